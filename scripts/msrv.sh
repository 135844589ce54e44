#!/bin/sh
# scripts/msrv.sh MANIFEST...
#
# Checks each crate with the oldest Rust that its manifest names. If rustup does not have that
# version, the script prints NOT DONE; in CI it fails.
set -eu

cargo=${CARGO:-cargo}
for manifest in "$@"; do
	version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$manifest")
	if $cargo "+$version" --version > /dev/null 2>&1; then
		echo "$manifest: Rust $version"
		CARGO_TARGET_DIR=target/msrv \
			$cargo "+$version" check --locked --all-features --manifest-path "$manifest"
	else
		echo "NOT DONE: rustup toolchain install $version --profile minimal"
		test -z "${CI:-}"
	fi
done
