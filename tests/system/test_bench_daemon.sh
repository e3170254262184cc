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
json=$(dirname "$out")/daemon.json
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
	if [ "$status" != "$wanted" ] || ! grep -qE -- "$text" "$out"; then
		echo "FAIL: daemon $*: exit status $status, not $wanted, or no '$text' in:"
		cat "$out"
		failed=1
	fi
}

# A row from its seconds on; none was wrong.
row='( +[0-9.]+){6} +0$'
expect 0 "^ +8 +4000 +64$row" --clients 8 -n 4000 -J "$json"
# Own memory and files together, after launches. Sanitizers keep what was freed.
kib=$(sed -n 's/^for each client, after the launches *\([0-9]*\) *\([0-9]*\)$/\1 + \2/p' "$out")
if [ -z "$kib" ]; then
	echo "FAIL: nothing is said of memory:"
	cat "$out"
	failed=1
elif [ -z "${ASAN_OPTIONS:-}" ] && [ "$((kib))" -gt "$most_kib" ]; then
	echo "FAIL: a client takes $kib KiB of the daemon's memory, more than $most_kib"
	failed=1
fi
if command -v python3 > /dev/null; then
	python3 - "$json" << 'END' || failed=1
import json, sys

report = json.load(open(sys.argv[1]))
assert (report["clients"], report["launches"], report["bytes"]) == (8, 4000, 64)
assert report["wrong"] == 0 and report["launches_per_s"] > 0 and report["daemon_cpu_s"] >= 0
assert 0 < report["us_median"] <= report["us_p99"] <= report["us_p999"]
assert len(report["memory"]) == 3 and report["memory"][0]["own_kib"] > 0
END
fi
expect 0 "^ +1 +10 +8192$row" --clients 1 -n 10 -b 8K
expect 1 "nonexistent" --clients 1 -n 10 -J /nonexistent/x.json
expect 1 "cannot connect" --clients 1 -n 10 --socket /nonexistent
expect 1 "did not start" --clients 1 -n 10 --daemon /nonexistent
expect 2 "must be a number" --clients 0
rm -f "$out" "$json"
exit "$failed"
