#!/bin/sh
# scripts/sanitize.sh
#
# Runs the tests of $SANITIZED under the address and leak sanitizers, and those of $THREADS and
# $EXACT_THREADS under the thread sanitizer. Each entry is PROGRAM/MODULES: the tests of a program
# whose names contain MODULES, or all tests if nothing follows the slash.
#
# The commands name a target, so that build scripts are not sanitized.
set -eu

cargo=${CARGO:-cargo}
host=$(rustc -vV | sed -n 's/^host: //p')

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# each COMMAND ENTRY...: runs and counts the tests of each entry, and fails if an entry has none.
# $skip leaves out tests that an entry selects by accident.
skip=
each() {
	command=$1 total=0
	shift
	for entry in "$@"; do
		$command --test "${entry%%/*}" -- ${entry#*/} $skip > "$log" 2>&1 || {
			cat "$log"
			exit 1
		}
		cat "$log"
		ran=$(sed -n 's/^running \([0-9]*\) tests\{0,1\}$/\1/p' "$log")
		if [ "${ran:-0}" -eq 0 ]; then
			echo "no test of $entry ran"
			exit 1
		fi
		total=$((total + ran))
	done
	echo "$total tests ran"
}

# If nightly is missing, RUSTC_BOOTSTRAP makes the stable compiler accept nightly's flags.
address() {
	if $cargo +nightly --version > /dev/null 2>&1; then
		nightly=+nightly
	else
		nightly=
		echo "nightly Rust is missing, so stable is used with RUSTC_BOOTSTRAP=1"
		echo "(rustup toolchain install nightly --profile minimal)"
		export RUSTC_BOOTSTRAP=1
	fi
	export RUSTFLAGS="-Zsanitizer=address" CARGO_TARGET_DIR=target/sanitize
	export TOLLGATE_STRESS_SECONDS=5 ASAN_OPTIONS="detect_leaks=1"
	each "$cargo $nightly test --locked --target $host" $SANITIZED
	# This test checks that memory does not grow. The sanitizer's quarantine of freed memory must
	# therefore be small, so that it is full after some seconds.
	export ASAN_OPTIONS="detect_leaks=1:quarantine_size_mb=4" TOLLGATE_SOAK_SECONDS=20
	each "$cargo $nightly test --locked --target $host" soak/
}

# The sanitizer sees the accesses of std only if std is built with it, from nightly's sources. (In
# such a build crossbeam-epoch uses no fences, because the sanitizer does not understand them.)
threads() {
	sources="$(rustc +nightly --print sysroot 2> /dev/null || true)/lib/rustlib/src/rust"
	if ! [ -d "$sources" ]; then
		echo "NOT DONE: the thread sanitizer needs nightly Rust with its sources:"
		echo "rustup toolchain install nightly --profile minimal --component rust-src"
		test -z "${CI:-}"
		return
	fi
	export RUSTFLAGS="-Zsanitizer=thread" CARGO_TARGET_DIR=target/sanitize-threads
	export TOLLGATE_STRESS_SECONDS=5
	skip="--skip with_exact_keys::"
	each "$cargo +nightly test -Zbuild-std --locked --release --target $host" $THREADS
	skip=
	export TSAN_OPTIONS="suppressions=$PWD/tests/thread-sanitizer.supp"
	each "$cargo +nightly test -Zbuild-std --locked --release --target $host" $EXACT_THREADS
}

(address)
(threads)
