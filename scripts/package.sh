#!/bin/sh
# scripts/package.sh CRATE...
#
# Lists the files that each crate publishes, and packages all crates. The packages are not built,
# because they depend on each other, and unpublished versions cannot be downloaded.
set -eu

cargo=${CARGO:-cargo}
for crate in "$@"; do
	$cargo package --locked --allow-dirty --no-verify --quiet -p "$crate" --list | sed "s|^|$crate: |"
done
$cargo package --locked --allow-dirty --no-verify --workspace --exclude tollgate-testing
