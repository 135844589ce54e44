#!/bin/sh
# scripts/sanitize.sh
#
# Runs the tests of $SANITIZED under the address and leak sanitizers, and those of $THREADS and
# $EXACT_THREADS under the thread sanitizer.
#
# A target is named, so that build scripts are not sanitized.
set -eu

cargo=${CARGO:-cargo}
host=$(rustc -vV | sed -n 's/^host: //p')

tests() {
	for test in "$@"; do printf -- '--test %s ' "$test"; done
}

# Where nightly is missing, RUSTC_BOOTSTRAP makes the stable compiler accept its flags.
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
	ASAN_OPTIONS="detect_leaks=1" TOLLGATE_STRESS_SECONDS=5 \
		$cargo $nightly test --locked --target "$host" $(tests $SANITIZED)
	# This test checks that memory does not grow, so the sanitizer must keep little of what is freed.
	ASAN_OPTIONS="detect_leaks=1:quarantine_size_mb=4" \
		$cargo $nightly test --locked --target "$host" --test soak
}

# The sanitizer sees what std does only if std is built with it, from nightly's sources. (In such a
# build crossbeam-epoch uses no fences, which the sanitizer does not understand.)
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
	$cargo +nightly test -Zbuild-std --locked --release --target "$host" $(tests $THREADS)
	TSAN_OPTIONS="suppressions=$PWD/tests/thread-sanitizer.supp" \
		$cargo +nightly test -Zbuild-std --locked --release --target "$host" $(tests $EXACT_THREADS)
}

(address)
(threads)
