#!/bin/sh
# scripts/instructions.sh [BASELINE]
#
# Counts instructions with valgrind. With a baseline, it first counts the instructions of the older
# checkout, without a bound, and then allows this checkout 1 % more. If valgrind is missing, it
# prints that; in CI it fails.
set -eu

cargo=${CARGO:-cargo}
baseline=${1:-}
if ! scripts/need.sh valgrind "which counts instructions"; then
	test -z "${CI:-}"
	exit
fi
if [ -z "$baseline" ]; then
	cd benches/instructions
	exec $cargo bench --locked
fi
benches/with-baseline.sh instructions "$baseline"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/benches/instructions/target}"
(
	cd target/instructions-with-baseline
	$cargo bench --locked -- --save-baseline=older --callgrind-limits=ir=1000000000000
)
cd benches/instructions
$cargo bench --locked -- --baseline=older --callgrind-limits=ir=1%
