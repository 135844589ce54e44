#!/bin/sh
# scripts/parts.sh TARGET PART...
#
# Makes each PART of TARGET, one after the other, and at the end prints the seconds that each part
# took, even if a part fails. In CI a part that takes more than 40 minutes is ended as hanging,
# while there is time to print that.
set -eu

target=$1
shift
times=
trap 'echo "make $target:"; printf "$times" | sed "s/^/  /"' EXIT
for part in "$@"; do
	from=$(date +%s)
	status=0
	${CI:+timeout --verbose 2400} ${MAKE:-make} --no-print-directory "$part" || status=$?
	times="$times$(printf '%5d s  %s' $(($(date +%s) - from)) "$part")"
	if [ "$status" -ne 0 ]; then
		times="$times: FAILED\n"
		exit "$status"
	fi
	times="$times\n"
done
