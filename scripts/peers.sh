#!/bin/sh
# scripts/peers.sh [BASELINE]
#
# Runs benches/peers with the options of $PEERS, beside an older checkout if one is named. $PROFILE
# is the profile that all but the first rows are built in.
#
# The first rows, `defaults`, are built with default features, in cargo's release profile and in
# one with `lto`. `defaults` in $PEERS runs these alone; `latency`, `draw`, `--only` and `--help`
# run the others alone.
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

# The options may have words in quotes: --only 'hot key'.
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
