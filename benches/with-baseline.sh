#!/bin/sh
# benches/with-baseline.sh PACKAGE BASELINE
#
# Creates target/PACKAGE-with-baseline from benches/PACKAGE, in order to measure an older tollgate.
# BASELINE is the path of a checkout, which is only read, or a revision of this repository, which is
# unpacked under target/.
#
# Cargo can build two versions of a package at once, but not two folders with one version. The older
# package is therefore built as version `...-baseline`, from a folder with its own manifest and
# links to the files of the package. Each baseline also has its own folder, because cargo decides by
# time stamps what to build again, and the time stamps of an older revision are older.
set -eu

fail() {
	echo "with-baseline: $*" >&2
	exit 1
}

# Links to all entries of a folder, except for those that cargo reads and writes there.
link_all() {
	for entry in "$1"/*; do
		case ${entry##*/} in
		Cargo.toml | Cargo.lock | target) ;;
		*) ln -sfn "$entry" "$2/${entry##*/}" ;;
		esac
	done
}

package=$1 baseline=$2
cd "$(dirname "$0")/.."
root=$PWD

if [ -f "$baseline/Cargo.toml" ]; then
	source=$(cd "$baseline" && pwd)
	name=checkout-$(printf %s "$source" | cksum | cut -d ' ' -f 1)
else
	commit=$(git rev-parse --verify --quiet "$baseline^{commit}") ||
		fail "BASELINE=$baseline is neither a checkout of tollgate nor a revision of this repository"
	name=$commit
	source=$root/target/baseline/$commit-files
	if [ ! -d "$source" ]; then
		mkdir -p "$source.new"
		git archive --output "$source.tar" "$commit"
		tar -x -f "$source.tar" -C "$source.new"
		rm "$source.tar"
		mv "$source.new" "$source"
	fi
fi
older=target/baseline/$name
mkdir -p "$older"
link_all "$source" "$older"
sed '/^\[package\]/,/^\[/ s/^version = "\([^"]*\)"/version = "\1-baseline"/' \
	"$source/Cargo.toml" > "$older/Cargo.toml"
grep -q '^version = ".*-baseline"' "$older/Cargo.toml" ||
	fail "$source/Cargo.toml states no version"

# The folder is as deep under the root as benches/PACKAGE, so that relative paths stay valid.
made=target/$package-with-baseline
mkdir -p "$made"
link_all "$root/benches/$package" "$made"
case $package in
# The baseline is in the same program as the present tollgate, and has the same clock.
peers)
	edit="s|^tollgate = { path = .*|&\\
tollgate-baseline = { path = \"../baseline/$name\", package = \"tollgate\" }|"
	expected='^tollgate-baseline = '
	;;
# The baseline replaces the present tollgate, because instructions need not be counted in turns. The
# present tollgate stays a dependency only for the lock file.
instructions)
	edit="s|^tollgate = { path = .*|tollgate = { path = \"../baseline/$name\" }\\
tollgate-present = { path = \"../..\", package = \"tollgate\" }|"
	expected="^tollgate = .*baseline/$name"
	;;
*) fail "benches/$package has no use for a baseline" ;;
esac
sed "$edit" "benches/$package/Cargo.toml" > "$made/Cargo.toml"
grep -q "$expected" "$made/Cargo.toml" ||
	fail "benches/$package/Cargo.toml has no dependency on tollgate"

# The baseline is added to a copy of the lock file, and changes the version of no other package.
cp "benches/$package/Cargo.lock" "$made/Cargo.lock"
lock() {
	${CARGO:-cargo} update --quiet --workspace "$@" --manifest-path "$made/Cargo.toml"
}
lock --offline 2> /dev/null || lock
moved=$(grep '^checksum' "benches/$package/Cargo.lock" |
	grep -v -x -F -f "$made/Cargo.lock" | wc -l)
[ "$moved" -eq 0 ] ||
	fail "the baseline needs other versions of $moved packages than benches/$package/Cargo.lock has"
echo "baseline: $baseline ($source)"
