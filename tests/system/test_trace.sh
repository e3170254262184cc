#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Tests the command ceoverlap-trace: its arguments and exit statuses, and, if UCX is there, the
# traces of four processes that act as two nodes of this machine; and its reports. These have one clock, so joining
# may move no event by more than the offset of the clocks can be wrong.
set -u

trace=./ceoverlap-trace
party=./tests/system/run_party
folder=${CEOVERLAP_TEST_TMP:-$(mktemp -d)}
export TMPDIR=$folder
out=$folder/trace.out
errors=$folder/trace.err
joined=$folder/all.json
failed=0

for name in "${!CEOVERLAP_@}"; do
	case $name in CEOVERLAP_TEST_*) ;; *) unset "$name" ;; esac
done

fail() {
	echo "FAIL: $1"
	failed=1
}

# expect STATUS WHAT ARGUMENT...
expect() {
	local wanted=$1 what=$2 status
	shift 2

	timeout 60 "$trace" "$@" > "$out" 2> "$errors"
	status=$?
	[ "$status" = "$wanted" ] && return 0
	fail "$what: exit status $status, not $wanted"
	tail -n 20 "$errors" "$out"
}

# says TEXT WHAT: the last errors have it.
says() {
	grep -qF -- "$1" "$errors" || { fail "$2: '$1' is not said"; cat "$errors"; }
}

# --- arguments --------------------------------------------------------------------------

expect 0 "help" --help
expect 0 "version" --version
grep -q "^ceoverlap [0-9]" "$out" || fail "the version"
expect 2 "no file to write" "$folder/x"
expect 2 "no file to read" -o "$joined"
expect 2 "an unknown option" --nothing -o "$joined" "$folder/x"
expect 1 "a file that is not there" -o "$joined" "$folder/x"
says "$folder/x: No such file" "it is named"
head -c 4096 /dev/urandom > "$folder/noise"
expect 1 "noise" -o "$joined" "$folder/noise"
says "$folder/noise" "it is named"
[ ! -e "$joined" ] || fail "a file was written all the same"

if command -v python3 > /dev/null; then
	for check in check_trace.py check_report.py; do
		python3 "${srcdir:-.}/tests/system/$check" "$trace" > "$out" 2>&1 || {
			fail "what is made of files"
			cat "$out"
		}
	done
fi

expect 0 "the same by its name" merge --help
expect 0 "help of reports" report --help
grep -q -- "--svg" "$out" || fail "its options"
expect 2 "a report of nothing" report
expect 2 "a file that is not there" report "$folder/x"
says "$folder/x: No such file" "it is named"
expect 2 "a report of noise" report "$folder/noise"
expect 2 "a number of chunks that is none" report --chunks -1 "$folder/noise"

# --- one process of two ranks -------------------------------------------------------------

CEOVERLAP_TRACE=$folder/one timeout 60 ./ceoverlap-bench --host --one-process -g 2 -t p2p -n 3 \
	-w 1 -b 64K -e 64K > "$out" 2>&1 || { fail "the bench"; cat "$out"; }
expect 0 "the trace of one process" -o "$joined" "$folder/one"
[ ! -s "$errors" ] || { fail "a warning that nobody needs"; cat "$errors"; }
expect 0 "a report of it" report --svg "$folder/one.svg" "$folder/one"
grep -qE '^1 +[0-9.]+ +- +[0-9.]+ +- ' "$out" || { fail "a line of rank 1"; cat "$out"; }
grep -qE '^plan +[1-9]' "$out" || { fail "a line of the caller's plans"; cat "$out"; }
grep -q "is not known of rank 0, 1" "$out" || fail "what the report cannot tell"
! grep -qE '^.{81}' "$out" || fail "a line of more than 80 columns"
grep -q '</svg>' "$folder/one.svg" || fail "the picture"
expect 2 "a report of a joined trace" report "$joined"
says "joined already" "it is told"
expect 1 "a trace that is joined already" -o "$folder/again" "$joined"
says "joined already" "it is told"
if [ -w /dev/full ]; then
	expect 1 "a target that is full" -o /dev/full "$folder/one"
fi
rm -f "$joined"

# --- four processes, as two nodes ---------------------------------------------------------

export CEOVERLAP_PLACE=host CEOVERLAP_NICS=lo CEOVERLAP_TRACE=$folder/part
timeout 60 ./ceoverlap-run -n 4 --nodes 2 --timeout 50 "$party" > "$out" 2> "$errors"
status=$?
unset CEOVERLAP_TRACE
if [ "$status" != 0 ] && grep -qE 'libucp.so.0 |built without UCX' "$errors"; then
	echo "there is no UCX: no group was formed"
	exit "$failed"
fi
[ "$status" = 0 ] || { fail "a group of two nodes: exit status $status"; cat "$errors"; }
parts=("$folder"/part.rank*)
[ "${#parts[@]}" = 4 ] || fail "traces of four processes: ${parts[*]}"
expect 0 "four processes" -o "$joined" "${parts[@]}"
[ ! -s "$errors" ] || { fail "clocks that were measured need no warning"; cat "$errors"; }
if command -v python3 > /dev/null; then
	python3 - "$joined" "${parts[@]}" <<'END' || failed=1
import json, sys
bad = 0
def check(holds, what):
    global bad
    if not holds:
        print("FAIL: " + what)
        bad = 1
merged, parts = [json.load(open(name)) for name in sys.argv[1:2]], \
    [json.load(open(name)) for name in sys.argv[2:]]
merged = merged[0]
origins = [part["otherData"]["origin"] for part in parts]
measured = [origin for origin in origins if origin["offsets"]]
check([origin["ranks"] for origin in measured] == [[2]], "rank 2 alone measures, for node 1")
check(all(len(origin["offsets"]) == 2 for origin in measured), "at the open and at the close")
bound = max((o["within_ns"] for origin in measured for o in origin["offsets"]), default=0)
# What runs later than the open and the close of the group cannot be slower than the timeout.
check(0 < bound < 5e9, "an offset is exact to %d ns" % bound)
for origin in measured:
    for offset in origin["offsets"]:
        check(abs(offset["ahead_ns"]) <= offset["within_ns"],
              "one clock is ahead of itself by %d ns, within %d" %
              (offset["ahead_ns"], offset["within_ns"]))
def key(event):
    return (event["pid"], event.get("tid"), event["name"], event["ph"], event.get("id"))
def times(trace):
    found = {}
    for event in trace["traceEvents"]:
        if event["ph"] != "M":
            found.setdefault(key(event), []).append(event["ts"])
    return found
after, n, moved = times(merged), 0, 0
for part in parts:
    for name, before in times(part).items():
        check(len(after.get(name, [])) == len(before), "event %s is there" % (name,))
        for one, other in zip(before, after.get(name, [])):
            n += 1
            moved = max(moved, abs(one - other) * 1000)
            check(name[0] >= 2 or one == other, "times of node 0 stay")
# A double has half a nanosecond here for a month that the machine is up.
check(moved <= bound + 1, "an event was moved by %g ns, the bound is %d" % (moved, bound))
check(n >= 4 * 8, "%d events" % n)
check({event["pid"] for event in merged["traceEvents"]} == {0, 1, 2, 3}, "all ranks")
check([node["clock"] for node in merged["otherData"]["nodes"]] == ["reference", "measured"],
      "both nodes")
print("%d events of two nodes, moved by %d ns at most; clocks are known within %d ns" %
      (n, moved, bound))
sys.exit(bad)
END
else
	echo "python3 was not found: times were not compared"
fi

expect 0 "without the process that has measured" -o "$joined" "${parts[0]}" "${parts[3]}"
says "node 1 (node1)" "the node is named"
says "rank 2" "the missing file is named"
grep -q "clock unknown" "$joined" || fail "ranks of unknown clocks are labelled"
expect 1 "one process twice" -o "$folder/twice" "${parts[@]}" "${parts[1]}"
says "part.rank1: rank 1 is in " "it is named"
expect 1 "a trace of another group" -o "$folder/twice" "${parts[@]}" "$folder/one"
says "$folder/one: it is of another group" "it is named"
expect 1 "a target that is a source" -o "${parts[2]}" "${parts[@]}"
[ ! -e "$folder/twice" ] || fail "a file was written all the same"
expect 0 "all sources are as they were" -o "$joined" "${parts[@]}"
exit "$failed"
