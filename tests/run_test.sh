#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Runs one test and passes its exit status on:
#
#   run_test.sh COMMAND [ARGUMENT...]
#
#   - within CEOVERLAP_TEST_TIMEOUT seconds (default 120); then it and all that it
#     started are killed;
#   - with CEOVERLAP_TEST_TMP and TMPDIR naming a private folder, removed after;
#   - a test that passes but leaves processes, or files of ours in /dev/shm or /tmp,
#     fails: somebody's cleaning up has not happened. Files are not judged while
#     another test runs beside it.
#
# A failing test's seed ("CEOVERLAP_TEST_SEED=...") is repeated at the end.
set -u

limit=${CEOVERLAP_TEST_TIMEOUT:-120}
folder=$(mktemp -d "/tmp/ceov-test.XXXXXX") || exit 99
output=$folder.out
trap 'rm -rf "$folder" "$output"' EXIT

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

# In the foreground, so that an interrupt from the keyboard reaches the test. Into a
# file, because what is left behind could hold a pipe open.
env CEOVERLAP_TEST_TMP="$folder" TMPDIR="$folder" \
	timeout --foreground -k 5 "$limit" "$@" > "$output" 2>&1 < /dev/null
status=$?
cat "$output"

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
	grep -a '^CEOVERLAP_TEST_SEED=' "$output" | tail -n 1
fi
exit "$status"
