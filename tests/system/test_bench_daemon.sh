#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Tests ceoverlap-bench daemon: clients of a daemon that it starts launch and find no wrong byte,
# and a daemon that does not start is told.
set -u

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
expect 0 "1 clients, 10 launches of 8192 bytes in .*; 0 wrong" --clients 1 -n 10 -b 8K
expect 1 "cannot connect" --clients 1 -n 10 --socket /nonexistent
expect 1 "did not start" --clients 1 -n 10 --daemon /nonexistent
expect 2 "must be a number" --clients 0
rm -f "$out"
exit "$failed"
