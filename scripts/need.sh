#!/bin/sh
# scripts/need.sh PROGRAM WHY
#
# Installs PROGRAM if it is missing: `cargo-*` with `cargo install`, and any other as the Debian
# package of that name. `*-dev` is a package of headers. The script announces the installation; with
# INSTALL=no it installs nothing. It fails if PROGRAM is still missing.
set -eu

program=$1 why=$2
cargo=${CARGO:-cargo}

is_here() {
	case $program in
	cargo-*) $cargo "${program#cargo-}" --version ;;
	*-dev) dpkg-query --show --showformat='${Status}' "$program" | grep -q ' installed$' ;;
	*) command -v "$program" ;;
	esac > /dev/null 2>&1
}

install() {
	case $program in
	cargo-*) $cargo install --locked "$program" ;;
	# The package lists may be missing or outdated.
	*)
		apt-get install -y "$program" || { apt-get update && apt-get install -y "$program"; } ||
			sudo -n apt-get install -y "$program"
		;;
	esac
}

case $program in
cargo-*) by="cargo install --locked $program" ;;
*) by="apt-get install $program" ;;
esac

if is_here; then exit; fi
if [ "${INSTALL:-yes}" = no ]; then
	echo "NOT DONE: $program, $why, is missing and INSTALL=no ($by)"
	exit 1
fi
echo "Installing $program, $why ($by; with INSTALL=no, nothing is installed)"
install || true
if is_here; then exit; fi
echo "NOT DONE: $program, $why, is missing and could not be installed ($by)"
exit 1
