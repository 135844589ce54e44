#!/bin/sh
# scripts/first-command.sh
#
# Runs README's first command in a clean build, and prints the time that it took. Fails if that is
# more processor time than two cores have in a minute.
set -eu

export CARGO_TARGET_DIR=target/first-command
rm -rf "$CARGO_TARGET_DIR"
# The command continues while lines end with a backslash.
command=$(sed -n '/^cargo run /,/[^\\]$/p' README.md | sed '/[^\\]$/q')
echo "$command"
from=$(date +%s)
sh -c "$command"
elapsed=$(($(date +%s) - from))
rm -rf "$CARGO_TARGET_DIR"
# The second line of `times` has the times of the commands that this shell ran: 1m2.345s 0m6.789s.
# It is written to a file, because `times` in a pipe reports the times of the pipe's own shell.
times > target/first-command.times
used=$(sed -n 2p target/first-command.times | tr 'ms' '  ' |
	awk '{ printf "%d", $1 * 60 + $2 + $3 * 60 + $4 }')
echo "README's first command: $elapsed s, $used s of processor time"
if [ "$used" -gt 120 ]; then
	echo "It may take 120 s of processor time: two cores for a minute."
	exit 1
fi
