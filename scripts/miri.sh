#!/bin/sh
# scripts/miri.sh SEEDS
#
# Runs code that relies on `unsafe` under Miri: the tests of reclamation once, and a few operations
# of all stores (tests/miri.rs) with each of SEEDS seeds. A seed determines the schedule and the
# values that loads return.
#
# Isolation is off, so files and the clock are real. Provenance is permissive, because
# crossbeam-epoch keeps its tagged pointers as numbers, and Miri has to guess their provenance.
set -eu

cargo=${CARGO:-cargo}
seeds=$1
if ! $cargo +nightly miri --version > /dev/null 2>&1; then
	echo "NOT DONE: Miri is missing:"
	echo "rustup toolchain install nightly --profile minimal --component miri,rust-src"
	test -z "${CI:-}"
	exit
fi
flags="-Zmiri-disable-isolation -Zmiri-permissive-provenance"
export CARGO_TARGET_DIR=target/miri
MIRIFLAGS="$flags" $cargo +nightly miri test --locked --lib reclaim::
MIRIFLAGS="$flags -Zmiri-many-seeds=0..$seeds" $cargo +nightly miri test --locked --test miri
