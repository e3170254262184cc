#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Tests ceoverlap-bench sweep on host memory: its text, CSV, JSON and report are complete, and
# traces have all stages of every chunk.
set -u

bench=./ceoverlap-bench
srcdir=${srcdir:-.}
folder=${CEOVERLAP_TEST_TMP:-$(mktemp -d)}
out=$folder/sweep.out
failed=0

# expect STATUS WHAT ARGUMENT...
expect() {
	local wanted=$1 what=$2 status
	shift 2

	"$bench" "$@" > "$out" 2> "$out.err"
	status=$?
	[ "$status" = "$wanted" ] && return 0
	echo "FAIL: $what: exit status $status, not $wanted"
	tail -n 20 "$out" "$out.err"
	failed=1
}

expect 0 "a sweep" sweep --host -g 3 -b 16K -e 256K -f 16 -n 3 -w 1 -T 100 \
	-t pairs,host,all_gather,all_to_all,random,urgent,load --seeds 3 --random-max 64K \
	--urgent-ms 50 --chunks 0,64K --in-flight 1,2 --seed 7 --html "$folder/sweep.html" \
	--csv "$folder/sweep.csv" -J "$folder/sweep.json" --trace "$folder/sweep.trace"
if grep -q WRONG "$out"; then
	echo "FAIL: wrong data"
	failed=1
fi
if grep -v '^#' "$out" | grep -E '^.{121}'; then
	echo "FAIL: lines that are wider than 120 characters"
	failed=1
fi
grep -q '^# .*pairs rank0 to rank1, 16 KiB' "$out.err" || {
	echo "FAIL: no progress on stderr"
	failed=1
}
grep -q '^host .* -$' "$out" || {
	echo "FAIL: the text has no matrix"
	failed=1
}

expect 0 "traces of processes, in one file" --host -g 2 -t p2p,all_gather -n 3 -w 1 -b 64K \
	--trace "$folder/all.trace"
[ ! -e "$folder/all.trace.rank0" ] || {
	echo "FAIL: parts of a trace are left"
	failed=1
}

# Without the program that joins them, the parts are left, and it is said.
cp "$bench" "$folder/alone"
PATH=/nonexistent "$folder/alone" --host -g 2 -t p2p -n 3 -w 1 -b 64K --trace "$folder/left" \
	> "$out" 2> "$out.err" && { echo "FAIL: traces were joined by nothing"; failed=1; }
if [ ! -e "$folder/left.rank1" ] || ! grep -q "left in $folder/left.rank" "$out.err"; then
	echo "FAIL: traces are lost that could not be joined"
	failed=1
fi

if command -v python3 > /dev/null; then
	python3 "$srcdir/tests/system/check_sweep.py" "$folder" || failed=1
else
	echo "python3 was not found: the files' insides were not looked at"
fi

# The report has all that the page and CSV have.
./ceoverlap-plot "$folder/sweep.json" | sed 's/<dt>Time.*//' > "$folder/again.html"
sed 's/<dt>Time.*//' "$folder/sweep.html" | cmp - "$folder/again.html" || failed=1
./ceoverlap-plot --csv - < "$folder/sweep.json" | cmp - "$folder/sweep.csv" || failed=1
echo '{"rows": [{}]}' > "$folder/none.json"
for report in "$folder/none.json" "$folder/all.trace" "$folder/sweep.csv" /nonexistent; do
	./ceoverlap-plot "$report" > "$out" 2> "$out.err"
	if [ $? != 1 ] || ! grep -q "^ceoverlap-plot: $report: " "$out.err"; then
		echo "FAIL: $report is drawn"
		failed=1
	fi
done
echo '{"provenance": {}, "rows": [{"case": "p2p"}]}' > "$folder/cases.json"
./ceoverlap-plot "$folder/cases.json" > "$out" 2> "$out.err"
if [ $? != 1 ] || ! grep -q "cases.json: .*not written by ceoverlap-bench sweep" "$out.err"; then
	echo "FAIL: a report of cases is drawn, or refused without a reason"
	failed=1
fi
# A reader that goes away is no fault of the report.
for flag in "" --csv; do
	# shellcheck disable=SC2086 # no flag is no word
	./ceoverlap-plot $flag "$folder/sweep.json" 2> "$out.err" | :
	[ ! -s "$out.err" ] || { echo "FAIL: a closed pipe with '$flag': $(cat "$out.err")"
		failed=1; }
done
./ceoverlap-plot > "$out" 2> "$out.err"
[ $? = 2 ] || { echo "FAIL: nothing is drawn"; failed=1; }

expect 0 "help of the sweep" sweep --help
expect 2 "an unknown test" sweep -t p2p
expect 2 "a list of nothing" sweep --in-flight ,
expect 2 "too many in flight" sweep --in-flight 17
expect 2 "a chunk that is none" sweep --chunks 3Q
expect 2 "a size below the first" sweep --host -b 1M -e 64K
expect 1 "a report that cannot be written" sweep --host -g 2 --quick -b 16K -e 16K -t pairs \
	--html /nonexistent/x.html
expect 1 "time that is up" sweep --host -g 3 -b 1M -e 64M -n 1000 -t pairs -T 1
expect 1 "nothing to run" sweep --host -g 1 -t pairs -b 16K -e 16K
CEOVERLAP_HOST_COPY_FAIL_AT=5 expect 1 "a copy that fails" sweep --host -g 2 --quick -t pairs
exit "$failed"
