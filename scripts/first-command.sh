#!/bin/sh
# scripts/first-command.sh
#
# Runs README's first command in a clean build, and prints the time that it took. That is less than
# a minute on two cores. One machine is half as fast as another, so the bound is a ratio: the script
# also builds clap and jiff, and fails if the command took more than five times the processor time.
set -eu

export CARGO_TARGET_DIR=target/first-command

# Sets `used` to the processor time of all commands that this shell has run, in tenths of a second,
# and removes the build. The second line of `times` has that time: 1m2.345s 0m6.789s. It is written
# to a file, because `times` in a pipe reports the times of the pipe's own shell.
end_build() {
	times > target/first-command.times
	used=$(sed -n 2p target/first-command.times | tr 'ms' '  ' |
		awk '{ printf "%d", 10 * ($1 * 60 + $2 + $3 * 60 + $4) }')
	rm -rf "$CARGO_TARGET_DIR"
}

rm -rf "$CARGO_TARGET_DIR"
# The command continues while lines end with a backslash.
command=$(sed -n '/^cargo run /,/[^\\]$/p' README.md | sed '/[^\\]$/q')
echo "$command"
from=$(date +%s)
sh -c "$command"
elapsed=$(($(date +%s) - from))
end_build
command_used=$used

cargo build --locked --quiet -p clap -p jiff
end_build
reference=$((used - command_used))

echo "README's first command: $elapsed s, $((command_used / 10)) s of processor time"
echo "clap and jiff alone: $((reference / 10)) s of processor time"
if [ "$command_used" -gt $((5 * reference)) ]; then
	echo "README's first command may take five times the processor time of clap and jiff."
	exit 1
fi
