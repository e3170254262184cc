#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Tests ceoverlap-bench measure on host memory: it reports what it measured and what not, stores
# the result, and the files that it writes can be read again.
set -u

bench=./ceoverlap-bench
folder=${CEOVERLAP_TEST_TMP:-$(mktemp -d)}
out=$folder/measure.out
json=$folder/measure.json
xml=$folder/measure.xml
failed=0
export CEOVERLAP_MACHINE_CACHE=$folder/machines
unset CEOVERLAP_MACHINE

# expect STATUS WHAT ARGUMENT...
expect() {
	local wanted=$1 what=$2 status
	shift 2

	"$bench" measure "$@" > "$out" 2> "$out.err"
	status=$?
	[ "$status" = "$wanted" ] && return 0
	echo "FAIL: $what: exit status $status, not $wanted"
	tail -n 20 "$out" "$out.err"
	failed=1
}

holds() {
	grep -q -- "$2" "$1" && return 0
	echo "FAIL: $3"
	failed=1
}

kept() {
	find "$CEOVERLAP_MACHINE_CACHE" -name '*.measured' 2> /dev/null | wc -l
}

expect 0 "host memory, not kept" --quick --host --no-store
holds "$out" "no GPU was measured" "what was left out is said"
holds "$out" "^node0 " "there is a matrix"
holds "$out" "not kept: as asked" "what became of it is said"
holds "$out.err" "^measure: " "there is progress"
[ "$(kept)" = 0 ] || { echo "FAIL: something was kept"; failed=1; }

expect 0 "JSON and XML" --quick --host -J "$json" -o "$xml" --seed 7
for key in schema_version provenance command seed machine hash driver links from to kind \
	gb_per_s t0_us sizes bytes us_median at_once links_checked words_wrong \
	steps_left_out is_stored; do
	holds "$json" "\"$key\"" "JSON has $key"
done
if command -v python3 > /dev/null; then
	python3 - "$json" << 'PYTHON' || failed=1
import json, sys
report = json.load(open(sys.argv[1]))
assert report["links"], "no link"
assert report["words_wrong"] == 0
assert report["links_checked"] >= len(report["links"])
for link in report["links"]:
    assert link["gb_per_s"] > 0, link
    assert len(link["sizes"]) == 3, link
assert report["machine"]["gpus_measured"] == 0
assert report["is_stored"] is False
PYTHON
fi
holds "$xml" "<topology" "the machine is hwloc's XML"
CEOVERLAP_MACHINE=$xml CEOVERLAP_LOG=debug "$bench" -t p2p --host -g 2 -b 64K -n 2 -T 30 \
	> "$out" 2>&1 || { echo "FAIL: the runtime does not take $xml"; failed=1; }
CEOVERLAP_MACHINE=$json "$bench" -t p2p --host -g 2 -b 64K -n 2 -T 30 > "$out" 2>&1 &&
	{ echo "FAIL: the runtime takes JSON for a machine"; failed=1; }
holds "$out" "$json" "a bad file is named"

# Without GPUs the whole machine was measured, so the result is stored.
if ! "$bench" measure --quick -g 1 --no-store > "$out" 2>&1; then
	expect 0 "what is kept" --quick
	holds "$out" "^# kept for the runtime: $folder" "where it is kept is said"
	[ "$(kept)" = 1 ] || { echo "FAIL: $(kept) files were kept"; failed=1; }
	expect 0 "again" --quick
	[ "$(kept)" = 1 ] || { echo "FAIL: $(kept) files were kept after two"; failed=1; }
	CEOVERLAP_MACHINE_CACHE=off expect 0 "switched off" --quick
	holds "$out" "not kept: switched off" "that nothing is kept is said"
	CEOVERLAP_MACHINE_CACHE=/proc/none expect 1 "a folder that cannot be" --quick
	holds "$out.err" "cannot be kept" "that it cannot be kept is said"
fi

expect 1 "XML that cannot be written" --quick --host --no-store -o /nonexistent/x.xml
expect 1 "JSON that cannot be written" --quick --host --no-store -J /nonexistent/x.json
expect 1 "more GPUs than there are" --host -g 9
expect 0 "help" --help
expect 2 "an unknown option" --magic
expect 2 "an argument" all
expect 2 "GPUs that are none" -g x
exit "$failed"
