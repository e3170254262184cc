#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Tests ceoverlap-bench daemon: clients of a daemon that it starts launch and find no wrong byte, a
# daemon that does not start is told, and a client takes no more of a daemon's memory than it may.
set -u

# KiB that a client may take of the daemon's memory beside its own buffers: the aim.
most_kib=1024

bench=./ceoverlap-bench
out=${CEOVERLAP_TEST_TMP:-$(mktemp -d)}/out
failed=0

if [ ! -x ./ceoverlapd ]; then
	echo "SKIP: built without the daemon"
	exit 77
fi

# expect STATUS TEXT ARGUMENT...
expect() {
	local wanted=$1 text=$2 status
	shift 2

	timeout 60 "$bench" daemon "$@" > "$out" 2>&1
	status=$?
	if [ "$status" != "$wanted" ] || ! grep -q -- "$text" "$out"; then
		echo "FAIL: daemon $*: exit status $status, not $wanted, or no '$text' in:"
		cat "$out"
		failed=1
	fi
}

expect 0 "8 clients, 4000 launches of 64 bytes in .*; 0 wrong" --clients 8 -n 4000
# Own memory and files together, after launches. Sanitizers keep what was freed.
kib=$(sed -n 's/^memory: .*after the launches \([0-9]*\) and \([0-9]*\);.*/\1 + \2/p' "$out")
if [ -z "$kib" ]; then
	echo "FAIL: nothing is said of memory:"
	cat "$out"
	failed=1
elif [ -z "${ASAN_OPTIONS:-}" ] && [ "$((kib))" -gt "$most_kib" ]; then
	echo "FAIL: a client takes $kib KiB of the daemon's memory, more than $most_kib"
	failed=1
fi
expect 0 "1 clients, 10 launches of 8192 bytes in .*; 0 wrong" --clients 1 -n 10 -b 8K
expect 1 "cannot connect" --clients 1 -n 10 --socket /nonexistent
expect 1 "did not start" --clients 1 -n 10 --daemon /nonexistent
expect 2 "must be a number" --clients 0
rm -f "$out"
exit "$failed"
