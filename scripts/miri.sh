#!/bin/sh
# scripts/miri.sh SEEDS
#
# Runs what has `unsafe` behind it under Miri: reclamation's own tests once, and a little of all
# stores (tests/miri.rs) with each of SEEDS seeds for Miri's choice of schedules and of what a load
# may return.
#
# Files and the clock are the real ones. The pointers of crossbeam-epoch are numbers with tags, for
# which Miri has to guess where they come from.
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
