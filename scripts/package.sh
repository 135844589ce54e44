#!/bin/sh
# scripts/package.sh CRATE...
#
# Lists the files that each crate uploads when it is published, and packages all of them. They are
# not built from the packages: they depend on each other, and unpublished versions cannot be
# downloaded.
set -eu

cargo=${CARGO:-cargo}
for crate in "$@"; do
	$cargo package --locked --allow-dirty --no-verify --quiet -p "$crate" --list | sed "s|^|$crate: |"
done
$cargo package --locked --allow-dirty --no-verify --workspace --exclude tollgate-testing
