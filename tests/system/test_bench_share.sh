#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Tests ceoverlap-bench share on host memory: both runs have a row for each sender and for urgent
# launches, no word is wrong, the JSON says the same, and failures and wrong arguments are told by
# the exit status. How fast anything was is not judged.
set -u

bench=./ceoverlap-bench
folder=${CEOVERLAP_TEST_TMP:-$(mktemp -d)}
out=$folder/out
json=$folder/share.json
failed=0

if [ ! -x ./ceoverlapd ]; then
	echo "SKIP: built without the daemon"
	exit 77
fi

# expect STATUS TEXT ARGUMENT...
expect() {
	local wanted=$1 text=$2 status
	shift 2

	timeout 60 "$bench" share -b 1M --seconds 0.2 "$@" > "$out" 2>&1
	status=$?
	if [ "$status" != "$wanted" ] || ! grep -qE -- "$text" "$out"; then
		echo "FAIL: share $*: exit status $status, not $wanted, or no '$text' in:"
		cat "$out"
		failed=1
	fi
}

# rows COUNT PATTERN
rows() {
	local n

	n=$(grep -cE -- "$2" "$out")
	if [ "$n" != "$1" ]; then
		echo "FAIL: $n rows, not $1, match '$2' in:"
		cat "$out"
		failed=1
	fi
}

expect 0 "3 senders of 1048576 bytes from host to host, 2 launches of each in flight" \
	--senders 3 --in-flight 2 --urgent=64K --every=2000 -J "$json"
for with in no yes; do
	# sender, alone, together, share, wrong words; without arbitration a sender may get nothing
	rows 3 "^$with +[0-2] +[0-9]+\.[0-9]+ +[0-9]+\.[0-9]+ +[0-9.]+ +0\$"
	rows 1 "^$with +[0-9]+\.[0-9]+ +[0-9]+\.[0-9]+ +[0-9]\.[0-9]+\$"
	# launches, missed, four times, wrong words
	rows 2 "^$with +(alone|together) +[0-9]+ +[0-9]+( +[0-9]+\.[0-9]){4} +0\$"
done

if command -v python3 > /dev/null; then
	python3 - "$json" <<'END' || failed=1
import json, sys

report = json.load(open(sys.argv[1]))
assert report["schema_version"] == 1 and report["provenance"]["seed"] > 0
assert (report["from"], report["to"], report["bytes"]) == ("host", "host", 1 << 20)
assert (report["urgent_bytes"], report["every_us"]) == (64 << 10, 2000)
assert (report["in_flight"], report["seconds"]) == (2, 0.2)
assert [run["daemon"] for run in report["runs"]] == [False, True]
for run in report["runs"]:
    senders = run["senders"]
    total = sum(one["together_bytes_per_s"] for one in senders)
    assert [one["sender"] for one in senders] == [0, 1, 2]
    assert all(one["wrong_words"] == 0 for one in senders)
    assert abs(run["sum_bytes_per_s"] - total) < 1
    if total:                           # else the machine was too busy
        assert abs(sum(one["share"] for one in senders) - 1) < 0.01
        assert 0.33 < run["fairness_jain"] <= 1.001
    if total and any(one["alone_bytes_per_s"] for one in senders):
        assert run["sum_by_alone"] > 0
    for when in "alone", "together":
        urgent = run["urgent"][when]
        assert urgent["launches"] + urgent["missed"] <= 101 and urgent["wrong_words"] == 0
        times = [urgent["us_" + name] for name in ("median", "p90", "p99", "worst")]
        assert times == sorted(times)
        assert urgent["launches"] == 0 or times[0] > 0
END
fi

expect 0 "^yes +0 +[0-9.]+ +[0-9.]+ +[0-9.]+ +0\$" --senders 1 -J "$json"
rows 0 "urgent"
grep -q '"urgent": *null' "$json" || { echo "FAIL: urgent times of no process"; failed=1; }

expect 1 "did not start" --daemon /nonexistent
expect 1 "process ., with a daemon: beginning" --socket /nonexistent
expect 1 "deadline passed" --seconds 30 -T 1
expect 1 "nonexistent" -J /nonexistent/x.json
expect 1 "there is no GPU 63" --to gpu:63
expect 2 "--from: 'disk' must be host or gpu:N" --from disk
expect 2 "--senders: '17' must be a number" --senders=17
expect 2 "must be a number" --seconds 0
expect 2 "more than 65536 urgent launches" --urgent --every 10 --seconds 1
expect 2 "unexpected" more
rm -f "$out" "$json"
exit "$failed"
