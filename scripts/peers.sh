#!/bin/sh
# scripts/peers.sh [BASELINE]
#
# Runs benches/peers with the options in $PEERS, and together with an older checkout if BASELINE
# names one. $PROFILE is the build profile of all but the first rows.
#
# The first rows, `defaults`, are built with default features, in cargo's release profile and in a
# profile with `lto`. With `defaults` in $PEERS only these rows run; with `latency`, `draw`,
# `--only` or `--help` only the others.
set -eu

cargo=${CARGO:-cargo}
baseline=${1:-}
manifest=benches/peers/Cargo.toml
features=
if [ -n "$baseline" ]; then
	benches/with-baseline.sh peers "$baseline"
	export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-benches/peers/target}"
	manifest=target/peers-with-baseline/Cargo.toml
	features="--features baseline"
fi

# The options may contain quoted words: --only 'hot key'.
eval "set -- ${PEERS:-}"
with_defaults=yes with_all=yes
for option in "$@"; do
	case $option in
	latency | draw | --only* | --help) with_defaults= ;;
	esac
done
for option in "$@"; do
	shift
	case $option in
	defaults) with_defaults=yes with_all= ;;
	*) set -- "$@" "$option" ;;
	esac
done

run() {
	$cargo run --locked --manifest-path "$manifest" $features "$@"
}
if [ -n "$with_defaults" ]; then
	run --no-default-features --release -- defaults "$@"
	run --no-default-features --profile lto -- defaults "$@"
fi
if [ -n "$with_all" ]; then
	run --profile "${PROFILE:-lto}" -- "$@"
fi
