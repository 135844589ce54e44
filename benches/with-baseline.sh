#!/bin/sh
# benches/with-baseline.sh PACKAGE BASELINE
#
# Makes target/PACKAGE-with-baseline from benches/PACKAGE, so that it measures an older tollgate.
# BASELINE is the path of a checkout, which is only read, or a revision of this repository, which is
# unpacked under target/.
#
# Of the same package cargo can build two versions at once, but not two folders of one version. So
# the older one is built as version `...-baseline`, from a folder of links to its files with a
# manifest of its own. Each baseline has a folder of its own, too: cargo tells by time stamps what
# to build again, and an older revision's are older.
set -eu

fail() {
	echo "with-baseline: $*" >&2
	exit 1
}

# Links to all that is in a folder, but for what cargo reads and writes there.
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

# As deep under the root as benches/PACKAGE, so that relative paths stay true.
made=target/$package-with-baseline
mkdir -p "$made"
link_all "$root/benches/$package" "$made"
case $package in
# In one program with the present one, and with the same clock.
peers)
	edit="s|^tollgate = { path = .*|&\\
tollgate-baseline = { path = \"../baseline/$name\", package = \"tollgate\" }|"
	expected='^tollgate-baseline = '
	;;
# In place of the present one: instructions need not be counted in turns. The present one stays for
# the lock file's sake.
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

# The baseline enters a copy of the lock file, and moves no other package.
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
