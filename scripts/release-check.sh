#!/bin/sh
# scripts/release-check.sh CRATE...
#
# Checks from a clean checkout that the crates can be published:
#
# - Cargo packages all crates, and builds each of them from its package. A package that depends on
#   others is built with the packages of these others, which cargo keeps in a temporary registry.
# - The documentation of each package is built with the features that docs.rs uses, and no link to
#   another of its pages is dead.
# - Each relative link in the README of a crate leads to a file of the repository, because crates.io
#   resolves such links there.
# - `cargo check` passes for each package with the oldest Rust that its manifest names.
#
# After that, one command publishes all crates:
# cargo publish --workspace --exclude tollgate-testing
set -eu

cargo=${CARGO:-cargo}
top=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CARGO_TARGET_DIR="$top/target/release-check"
failed=

say() {
	echo "release-check: $*"
}

say "packages, built from a clean checkout"
git clone --quiet "$top" "$work/checkout"
cd "$work/checkout"
rm -rf "$CARGO_TARGET_DIR/package"
# Cargo would also reuse the sources that it has extracted from the packages of an earlier run,
# because they have the same versions. The folders of registries without a host begin with a `-`.
rm -rf "${CARGO_HOME:-$HOME/.cargo}"/registry/src/-*/tollgate*-[0-9]*
$cargo package --locked --workspace --exclude tollgate-testing

# The packages form a workspace, which uses them in place of published versions. Its lock file has
# the same versions of all other crates.
mkdir "$work/packages"
cp Cargo.lock "$work/packages"
cd "$work/packages"
printf '[workspace]\nresolver = "3"\nmembers = ["*"]\nexclude = ["Cargo.lock"]\n[patch.crates-io]\n' > Cargo.toml
for crate in "$@"; do
	tar -xzf "$CARGO_TARGET_DIR/package/$crate"-[0-9]*.crate
	mv "$crate"-[0-9]* "$crate"
	echo "$crate = { path = \"$crate\" }" >> Cargo.toml
done

# dead_links FOLDER: prints each link from an HTML page to another page that is not there. Links to
# other sites are not followed. (docs.rs resolves those to the types of other crates.)
dead_links() {
	find "$1" -name '*.html' | while read -r page; do
		grep -o 'href="[^":$#?]*\.html' "$page" | sed 's/^href="//' | sort -u | while read -r link; do
			test -e "$(dirname "$page")/$link" || echo "$page: $link"
		done
	done
}

# The pages of all crates are in one folder, so rustdoc links each crate to those before it.
rm -rf "$CARGO_TARGET_DIR/doc"
for crate in "$@"; do
	say "documentation of $crate"
	features=$(sed -n '/^\[package.metadata.docs.rs\]/,/^$/{
		s/^all-features = true/--all-features/p
		s/^features = \[\(.*\)\]/--features \1/p
	}' "$crate/Cargo.toml" | tr -d '"')
	# shellcheck disable=SC2086 # an option and its value
	RUSTDOCFLAGS="-D warnings" $cargo doc --quiet --no-deps --lib -p "$crate" $features
	dead=$(dead_links "$CARGO_TARGET_DIR/doc/$(echo "$crate" | tr - _)")
	if [ -n "$dead" ]; then
		echo "$dead"
		failed=yes
	fi
done

say "links of the READMEs"
for crate in "$@"; do
	folder=crates/$crate
	test "$crate" != tollgate || folder=.
	for link in $(grep -o '](\([^):#]*\)[)#]' "$crate/README.md" | sed 's/^](//; s/[)#]$//' | sort -u); do
		if ! [ -e "$work/checkout/$folder/$link" ]; then
			echo "$folder/README.md: $link"
			failed=yes
		fi
	done
	if ! grep -q '^repository = ' "$crate/Cargo.toml"; then
		missing="${missing:-} $crate"
	fi
done

for crate in "$@"; do
	version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$crate/Cargo.toml")
	if $cargo "+$version" --version > /dev/null 2>&1; then
		say "$crate with Rust $version"
		$cargo "+$version" check --quiet --all-features -p "$crate"
	else
		echo "NOT DONE: rustup toolchain install $version --profile minimal"
		test -z "${CI:-}"
	fi
done

if [ -n "${missing:-}" ]; then
	echo "NOT DONE: without \`repository\` in its manifest, a page of crates.io has dead links:$missing"
fi
test -z "$failed"
