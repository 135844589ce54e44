#!/bin/sh
# scripts/fuzz.sh SECONDS TARGET...
#
# Fuzzes each target for SECONDS. Inputs that reach new code are written to fuzz/corpus, and inputs
# that make a target fail to fuzz/artifacts.
set -eu

cargo=${CARGO:-cargo}
seconds=$1
shift
$cargo +nightly --version > /dev/null 2>&1 || {
	echo "NOT DONE: fuzzing needs nightly Rust: rustup toolchain install nightly --profile minimal"
	exit 1
}
scripts/need.sh cargo-fuzz "which builds and runs the fuzz targets"
for target in "$@"; do
	echo "fuzzing $target for $seconds s"
	mkdir -p "fuzz/corpus/$target"
	$cargo +nightly fuzz run "$target" "fuzz/corpus/$target" "crates/tollgate-testing/corpus/$target" \
		-- -max_total_time="$seconds" -max_len=4096 -print_final_stats=1
done
