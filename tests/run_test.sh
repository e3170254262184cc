#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Runs one test and passes its exit status on:
#
#   run_test.sh COMMAND [ARGUMENT...]
#
#   - within CEOVERLAP_TEST_TIMEOUT seconds (default 600); then it and all that it
#     started are killed, and nothing else: it has a process group of its own;
#   - the same when this script is told to end (Ctrl-C, SIGTERM, SIGHUP);
#   - with CEOVERLAP_TEST_TMP and TMPDIR naming a private folder, which is made in the
#     caller's TMPDIR and removed after;
#   - a test that passes but leaves processes, or files of ours in /dev/shm, /tmp or
#     TMPDIR, fails: somebody's cleaning up has not happened. Files of /dev/shm and /tmp
#     are not judged while another test runs beside it.
#
# Says how long the test took and how much processor time it used: one with little of that
# waits. A failing test's seed ("CEOVERLAP_TEST_SEED=...") is repeated at
# the end, also that of a suite, which prints "seed ...", and the last lines of the logs that it
# left in its folder.
set -u

limit=${CEOVERLAP_TEST_TIMEOUT:-600}
export CEOVERLAP_TEST_TIMEOUT=$limit    # tests of Python end themselves a little earlier
# Check gives a case 4 seconds unless it says otherwise, too few where others use the machine.
export CK_DEFAULT_TIMEOUT="${CK_DEFAULT_TIMEOUT:-20}"

# Tests bind sockets in their folder, whose paths may have 107 bytes.
temporary=${TMPDIR:-/tmp}
if [ "${#temporary}" -gt 50 ]; then
	echo "run_test.sh: TMPDIR is too long for paths of sockets: /tmp instead of $temporary"
	temporary=/tmp
fi
folder=$(mktemp -d "$temporary/ceov-test.XXXXXX") || exit 99
# Nobody else may look into it, but pass through: a test has ranks of another user.
chmod 711 "$folder"
output=$folder.out
trap 'rm -rf "$folder" "$output" "$output.time"' EXIT

# Processes that still carry this test's folder in their environment: its
# descendants, whatever session or group they moved to. Zombies have none.
processes_left() {
	grep -lszF "CEOVERLAP_TEST_TMP=$folder" /proc/[0-9]*/environ |
		sed 's,^/proc/\([0-9]*\)/.*,\1,'
}

# Whether another test runs now, whose files ours cannot be told from.
has_neighbour() {
	grep -hszF "CEOVERLAP_TEST_TMP=" /proc/[0-9]*/environ | tr '\0' '\n' |
		grep -qvxF "CEOVERLAP_TEST_TMP=$folder"
}

files_left() {
	find "$folder" -maxdepth 1 -name 'ceoverlap-*' 2>/dev/null
	has_neighbour && return
	find /dev/shm /tmp -maxdepth 1 -name 'ceoverlap-*' -user "$(id -u)" 2>/dev/null |
		sort | comm -13 <(echo "$files_before") -
}

# Prints what is left after a second of patience: an orphan may be about to exit.
what_is_left() {
	local try left
	for try in 1 2 3 4 5 6 7 8 9 10; do
		left=$(processes_left | while read -r pid; do
				echo "process $pid: $(tr '\0' ' ' < "/proc/$pid/cmdline")"
			done 2>/dev/null
			files_left)
		[ -n "$left" ] || return 0
		[ "$try" = 10 ] || sleep 0.1
	done
	echo "$left"
}

files_before=$(find /dev/shm /tmp -maxdepth 1 -name 'ceoverlap-*' \
	-user "$(id -u)" 2>/dev/null | sort)

# Ends the test and what it started, then this script by the same signal, so that its
# caller sees it, too.
# shellcheck disable=SC2317 # traps run it
ended_by() {
	trap '' INT TERM HUP
	[ -z "$test" ] || kill -TERM "$test" 2>/dev/null
	processes_left | xargs -r kill -9 2>/dev/null
	wait
	rm -rf "$folder" "$output" "$output.time"
	trap - EXIT "$1"
	kill -"$1" $$
}

test=
trap 'ended_by INT' INT
trap 'ended_by TERM' TERM
trap 'ended_by HUP' HUP

# In a process group of its own, which timeout makes: Check, when it is told to end,
# tells all of its group, and that must not be make and its caller. Ctrl-C does not reach
# it there, so it is passed on. bash has jobs ignore it; a test must not. Into a file,
# because what is left behind could hold a pipe open.
env --default-signal=INT,QUIT CEOVERLAP_TEST_TMP="$folder" TMPDIR="$folder" \
	timeout -k 5 "$limit" "$@" > "$output" 2>&1 < /dev/null &
test=$!
TIMEFORMAT="run_test.sh: took %1R s, computed %1U s and was in the kernel %1S s"
{ time wait "$test"; } 2> "$output.time"
status=$?
cat "$output" "$output.time"

if [ "$status" = 124 ] || [ "$status" = 137 ]; then
	echo "run_test.sh: no end within $limit s: killed"
	status=124
else
	left=$(what_is_left)
	if [ -n "$left" ]; then
		echo "run_test.sh: left behind:"
		echo "$left"
		[ "$status" = 0 ] && status=98
	fi
fi
processes_left | while read -r pid; do
	kill -9 "$pid" 2>/dev/null
done
if [ "$status" != 0 ] && [ "$status" != 77 ]; then
	sed -En 's/^(CEOVERLAP_TEST_SEED=|seed )([0-9]+).*/CEOVERLAP_TEST_SEED=\2/p' "$output" |
		tail -n 1
	# What a daemon said before it was lost, for one: the folder goes with the test.
	find "$folder" -maxdepth 1 -type f -name '*.log' -size +0 -exec tail -v -n 100 {} \;
fi
exit "$status"
