#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Tests how the tools end, and what they leave behind: files that cannot be written are refused
# before the run, written files are complete, failing to write output is an error, and a signal
# that ends the bench also ends its ranks and removes their folder.
#
# shellcheck disable=SC2317 # until_true calls functions by name
set -u

bench=./ceoverlap-bench
info=./ceoverlap-info
folder=${CEOVERLAP_TEST_TMP:-$(mktemp -d)}
out=$folder/ends.out
errors=$folder/ends.err
export TMPDIR=$folder/own
mkdir "$TMPDIR"
failed=0

fail() {
	echo "FAIL: $1"
	tail -n 20 "$out" "$errors"
	failed=1
}

# expect STATUS WHAT COMMAND...
expect() {
	local wanted=$1 what=$2 status
	shift 2

	timeout 100 "$@" > "$out" 2> "$errors"
	status=$?
	[ "$status" = "$wanted" ] || fail "$what: exit status $status, not $wanted"
}

is_empty() {
	[ -z "$(ls -A "$TMPDIR")" ] || fail "$1: left in TMPDIR: $(ls -A "$TMPDIR")"
}

read -ra quick <<< "--host -g 2 -n 2 -w 0 -b 64K -e 64K"

# --- files, before the run ----------------------------------------------------------------

# refused OPTION: asserts that an unwritable file is refused before anything is measured.
refused() {
	expect 1 "$*: a folder that there is not" "$bench" "$@" /nonexistent/x
	grep -q '^ceoverlap-bench: cannot write /nonexistent/x: No such file' "$errors" ||
		fail "$*: the file is not named"
	! grep -qE '^(p2p|pairs|operator|ag_gemm|all_|from)' "$out" ||
		fail "$*: something was measured first"
	expect 1 "$*: a folder" "$bench" "$@" "$folder"
}

refused "${quick[@]}" -t p2p -J
refused "${quick[@]}" -t p2p --trace
refused overlap "${quick[@]}" -t all_reduce -J
refused sweep "${quick[@]}" -t pairs -J
refused sweep "${quick[@]}" -t pairs --csv
refused sweep "${quick[@]}" -t pairs --html
refused measure --host --quick --no-store -J
refused measure --host --quick --no-store -o
is_empty "refused files"

# --- files, after it ----------------------------------------------------------------------

json=$folder/rows.json
echo old > "$json"
chmod 640 "$json"
ln -s rows.json "$folder/link.json"
expect 0 "JSON over an old file, by a link" "$bench" "${quick[@]}" -t p2p,engine \
	-J "$folder/link.json"
[ -L "$folder/link.json" ] || fail "a link was replaced"
[ "$(stat -c %a "$json")" = 640 ] || fail "the file's mode has changed"
grep -q '"gb_per_s": *null' "$json" || fail "a bandwidth that was not measured is no null"
if grep -qE '"(us_[a-z0-9]+|gb_per_s)": *0\.0+,?$' "$json"; then
	fail "JSON has figures of what was not measured"
fi
grep -q '"nccl_nvls": *null' "$json" || fail "host memory alone: something is told of NVLS"
! compgen -G "$folder/*.new" > /dev/null || fail "a file beside another is left"

# A path that is no regular file is written directly.
expect 0 "JSON on standard output" bash -c \
	"'$bench' ${quick[*]} -t p2p -J /dev/stdout | grep -q '\"rows\"'"
# So is "-", which keeps standard output for JSON; what is in a file behind it stays.
echo before > "$folder/all.json"
for command in "" overlap sweep measure; do
	case $command in
	"") more="-t p2p" ;; overlap) more="-t all_reduce" ;; sweep) more="-t pairs" ;;
	measure) more="" ;;
	esac
	arguments=("${quick[@]}")
	[ "$command" != measure ] || arguments=(--host --quick --no-store)
	# shellcheck disable=SC2086 # lists of words
	"$bench" $command "${arguments[@]}" $more -J - >> "$folder/all.json" 2> "$errors" ||
		fail "$command: JSON on standard output"
	grep -q '^# ceoverlap-bench' "$errors" || fail "$command: the table is not on stderr"
done
[ "$(head -n 1 "$folder/all.json")" = before ] || fail "what was there before JSON is lost"
if command -v python3 > /dev/null; then
	sed 1d "$folder/all.json" | python3 -c 'import json, sys
rest, read = sys.stdin.read().strip(), json.JSONDecoder().raw_decode
for number in range(4):
    report, end = read(rest)
    assert report["provenance"]["command"].endswith(" -J -"), report
    rest = rest[end:].lstrip()
assert not rest, rest[:99]' || fail "there is more than JSON on standard output"
fi
# A refused run leaves the old file unchanged.
cp "$json" "$folder/before.json"
expect 1 "nothing to run" "$bench" --host -g 1 -t all_gather --trace /nonexistent/x -J "$json"
cmp -s "$json" "$folder/before.json" || fail "a refused run has changed the old file"

NCCL_NVLS_ENABLE=0 expect 0 "NVLS is off" "$bench" -g 2 -n 2 -w 0 -b 64K -t p2p -J "$json"
grep -q '"nccl_nvls": *"off (NCCL_NVLS_ENABLE=0)"' "$json" || fail "JSON does not say so"

expect 0 "a sweep's CSV" "$bench" sweep "${quick[@]}" -t pairs --csv "$folder/rows.csv"
[ "$(head -n 1 "$folder/rows.csv" | tr -cd , | wc -c)" = \
	"$(sed -n 2p "$folder/rows.csv" | tr -cd , | wc -c)" ] || fail "CSV lacks columns"
! grep -q ',0\.0000*,' "$folder/rows.csv" || fail "CSV has figures of what was not measured"
is_empty "runs that ended by themselves"

# --- a time limit -------------------------------------------------------------------------

# late ROW ARGUMENT...: asserts that a run whose second size does not end in time leaves the rows of
# its first size and says that there should be more.
late() {
	local row=$1
	shift

	rm -f "$json"
	expect 1 "$*: a time limit" "$bench" "$@" --host -g 2 -w 20 -n 200 -b 64K -e 64M -f 1024 \
		-T 6 -J "$json"
	grep -q '"complete": *false' "$json" || fail "$*: JSON does not say that it is not complete"
	grep -q "\"$row\"" "$json" || fail "$*: JSON lacks the rows that were measured"
	is_empty "$*: a time limit"
}

late p2p -t p2p
late p2p --one-process -t p2p
late all_reduce overlap -t all_reduce
late pairs sweep -t pairs
expect 0 "no time limit" "$bench" "${quick[@]}" -t p2p -J "$json"
grep -q '"complete": *true' "$json" || fail "JSON does not say that it is complete"

# --- output that cannot be written --------------------------------------------------------

if [ -w /dev/full ]; then
	for arguments in --help --version -l "overlap -l" "sweep --help" "${quick[*]} -t p2p" \
			"sweep ${quick[*]} -t pairs" "${quick[*]} -t p2p -J /dev/full"
	do
		expect 1 "a full disk: $arguments" bash -c "'$bench' $arguments > /dev/full"
		grep -q 'cannot write' "$errors" || fail "$arguments: it is not told why"
	done
	for arguments in --help --version build "--json build"; do
		expect 1 "a full disk: info $arguments" bash -c "'$info' $arguments > /dev/full"
	done
fi
expect 1 "standard output is closed" bash -c "'$info' build >&-"
expect 1 "standard output is closed" bash -c "'$bench' ${quick[*]} -t p2p >&-"
is_empty "output that cannot be written"

# --- signals ------------------------------------------------------------------------------

# Lists the processes of this test that run the bench.
benches() {
	grep -lszF "TMPDIR=$TMPDIR" /proc/[0-9]*/environ |
		sed -n 's,^/proc/\([0-9]*\)/environ$,\1,p' |
		while read -r pid; do
			[ "$(cat "/proc/$pid/comm" 2> /dev/null)" = ceoverlap-bench ] &&
				echo "$pid"
		done
}

# until_true WHAT COMMAND...: waits until the command succeeds, 10 s at most.
until_true() {
	local what=$1 try
	shift

	for try in {1..100}; do
		"$@" && return 0
		sleep 0.1
	done
	fail "$what: not within $try looks"
}

some_run() {
	[ "$(benches | wc -l)" -ge "$1" ]
}

none_runs() {
	[ -z "$(benches)" ]
}

# ended SIGNAL STATUS PROCESSES ARGUMENT...: ends the bench after it has begun to measure.
ended() {
	local number=$1 wanted=$2 n=$3 pid status
	shift 3

	rm -f "$json"
	# job control: interrupts are not ignored
	set -m
	"$bench" "$@" -J "$json" > "$out" 2> "$errors" &
	set +m
	pid=$!
	until_true "$*: it begins" some_run "$n"
	sleep 0.3
	kill -"$number" "$pid"
	wait "$pid" 2> /dev/null
	status=$?
	[ "$status" = "$wanted" ] || fail "$* after SIG$number: exit status $status"
	until_true "$* after SIG$number: no rank runs" none_runs
	[ ! -e "$json" ] || fail "$* after SIG$number: there is a report of half a run"
	is_empty "$* after SIG$number"
}

read -ra long <<< "--host -g 3 -n 1000 -w 10000 -b 64K -e 1M"
ended TERM 143 4 "${long[@]}" -t p2p
ended INT 130 4 "${long[@]}" -t p2p
ended HUP 129 2 --one-process "${long[@]}" -t p2p
ended TERM 143 4 overlap "${long[@]}" -t all_reduce
ended INT 130 2 sweep "${long[@]}" -t pairs
ended KILL 137 4 "${long[@]}" -t p2p

# A TMPDIR whose path is too long for a socket is not used.
deep=$folder/$(printf 'd%.0s' {1..90})
mkdir "$deep"
TMPDIR=$deep expect 0 "a deep TMPDIR" "$bench" "${quick[@]}" -t p2p
grep -q "TMPDIR is too long" "$errors" || fail "it is not told that TMPDIR was not used"
TMPDIR=/nonexistent expect 1 "a TMPDIR that there is not" "$bench" "${quick[@]}" -t p2p
grep -q "/nonexistent" "$errors" || fail "the folder is not named"
exit "$failed"
