#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Tests the command ceoverlap-run: what its processes are told, labels, exit statuses, processes
# that fail, are killed or hang, signals, and that nothing is left behind. At the end four
# processes form a group of two nodes, if UCX is there.
set -u

run=./ceoverlap-run
party=./tests/system/run_party
folder=${CEOVERLAP_TEST_TMP:-$(mktemp -d)}
export TMPDIR=$folder
out=$folder/run.out
errors=$folder/run.err
failed=0

for name in "${!CEOVERLAP_@}"; do
	case $name in CEOVERLAP_TEST_*) ;; *) unset "$name" ;; esac
done

fail() {
	echo "FAIL: $1"
	failed=1
}

# Sleepers of this test are told from others by how long they sleep.
nap=7$$
sleepers() {
	grep -lszF "$nap" /proc/[0-9]*/cmdline | while read -r path; do
		[ "$(tr '\0' ' ' < "$path")" = "sleep $nap " ] && echo "$path"
	done 2> /dev/null
}

# clean WHAT: no sleepers are left.
clean() {
	local left
	left=$(sleepers)
	[ -z "$left" ] || fail "$1: left behind: $left"
}

# expect STATUS WHAT ARGUMENT...
expect() {
	local wanted=$1 what=$2 status
	shift 2

	timeout 60 "$run" "$@" > "$out" 2> "$errors"
	status=$?
	if [ "$status" != "$wanted" ]; then
		fail "$what: exit status $status, not $wanted"
		tail -n 20 "$errors" "$out"
	fi
	clean "$what"
}

# holds FILE PATTERN WHAT: a line of the last output or of its errors matches.
holds() {
	grep -qE -- "$2" "$1" || { fail "$3: no line matches '$2'"; head -n 40 "$1"; }
}

# --- what processes are told --------------------------------------------------------------

# shellcheck disable=SC2016 # the processes expand it
told='echo "$CEOVERLAP_PROCESS of $CEOVERLAP_PROCESSES ${CEOVERLAP_NODE-none}" \
	"$CEOVERLAP_BOOTSTRAP ${CEOVERLAP_RANK-none} ${CEOVERLAP_GROUP-none}" \
	"$CEOVERLAP_STORE $CEOVERLAP_JOB"'

CEOVERLAP_RANK=7 CEOVERLAP_GROUP=/x expect 0 "five processes on two nodes" -n 5 --nodes 2 \
	sh -c "$told"
sort -o "$out" "$out"
for number in 0 1 2 3 4; do
	node=$((number * 2 / 5))
	holds "$out" "^$number of 5 node$node store none none 127.0.0.1:[0-9]+ ceoverlap-run-[0-9-]+$" \
		"process $number is told who it is"
done
[ "$(wc -l < "$out")" = 5 ] || fail "five processes were started"
[ "$(awk '{ print $NF }' "$out" | sort -u | wc -l)" = 1 ] || fail "all have one job"
job=$(awk 'NR == 1 { print $NF }' "$out")
expect 0 "one node" -n 1 sh -c "$told"
holds "$out" "^0 of 1 none store " "without --nodes no node is named"
[ "$(awk '{ print $NF }' "$out")" != "$job" ] || fail "each run has a job of its own"
expect 0 "standard input is empty" -n 2 sh -c '! read -r line'

# --- labels -------------------------------------------------------------------------------

# Each line is written in two parts with a pause between them.
# shellcheck disable=SC2016
expect 0 "labels" -n 4 --label sh -c 'for i in 1 2 3 4 5; do
	printf "line $i "; sleep 0.02; echo "of $CEOVERLAP_PROCESS"; done
	echo to-errors >&2; printf "no end"'
for number in 0 1 2 3; do
	for i in 1 2 3 4 5; do
		holds "$out" "^$number: line $i of $number$" "a whole line"
	done
	holds "$out" "^$number: no end$" "a last line that nothing ends"
	holds "$errors" "^$number: to-errors$" "errors stay errors"
done
[ "$(wc -l < "$out")" = 24 ] || fail "labels: $(wc -l < "$out") lines, not 24"
expect 0 "a long line" -n 1 --label sh -c 'head -c 40000 /dev/zero | tr "\0" x'
[ "$(sed 's/^0: //' "$out" | tr -d '\n' | wc -c)" = 40000 ] || fail "a long line is all there"
if [ -w /dev/full ]; then
	timeout 60 "$run" -n 2 --label sh -c "echo; exec sleep $nap" > /dev/full 2> "$errors"
	[ $? = 1 ] || fail "output that cannot be written is no success"
	clean "output that cannot be written"
fi

# --- failures -----------------------------------------------------------------------------

expect 0 "all end well" -n 3 true
# shellcheck disable=SC2016
fails='[ $CEOVERLAP_PROCESS = 1 ] && '
expect 7 "a process that fails" -n 3 sh -c "$fails exit 7; exec sleep $nap"
holds "$errors" "process 1 of 3 ended with status 7; the others are told to end" "it is named"
# shellcheck disable=SC2016
expect 139 "a process that is killed" -n 3 sh -c "$fails"'kill -SEGV $$;'" exec sleep $nap"
holds "$errors" "process 1 of 3 was ended by signal 11 " "its signal is named"
# Process 1 fails only when process 0 listens.
# shellcheck disable=SC2016
expect 3 "others may end in their own way" -n 2 sh -c \
	"$fails"'{ until [ -e "$TMPDIR/ready" ]; do sleep 0.05; done; exit 3; }
	trap "echo told; exit 9" TERM; : > "$TMPDIR/ready"; sleep '"$nap"' & wait'
holds "$out" "^told$" "the others get SIGTERM"
started=$SECONDS
expect 5 "a process that does not want to end" -n 2 --grace 0.3 sh -c \
	"$fails { sleep 0.3; exit 5; }; trap '' TERM; while :; do sleep 0.1; done"
[ $((SECONDS - started)) -lt 20 ] || fail "the grace time is kept to"
expect 127 "a program that is not there" -n 2 -- /nonexistent/program
holds "$errors" "cannot execute /nonexistent/program: No such file" "it is named"
expect 126 "a program that is none" -n 2 /dev/null

# --- timeout ------------------------------------------------------------------------------

expect 124 "a timeout" -n 3 --timeout 0.3 sleep "$nap"
holds "$errors" "the timeout of 0.3 s is over: 3 of 3 processes" "it is told"
expect 124 "a timeout that nobody heeds" -n 2 --timeout 0.3 --grace 0.3 sh -c \
	"trap '' TERM; while :; do sleep 0.1; done"
expect 0 "a timeout that does not come" -n 2 --timeout 50 true

# --- signals ------------------------------------------------------------------------------

# until COMMAND...: waits until it succeeds, 10 s at most.
until_so() {
	local try
	for try in $(seq 200); do
		"$@" && return 0
		[ "$try" = 200 ] || sleep 0.05
	done
	return 1
}

# shellcheck disable=SC2317 # called by until_so
has_lines() {
	[ "$(wc -l < "$out")" -ge "$1" ]
}

# signalled SIGNAL STATUS SCRIPT WHAT: two processes run the script and say that they are there.
signalled() {
	local status pid
	env --default-signal=INT "$run" -n 2 sh -c "$3" > "$out" 2> "$errors" &
	pid=$!
	until_so has_lines 2 || fail "$4: the processes do not start"
	kill -"$1" "$pid"
	wait "$pid"
	status=$?
	[ "$status" = "$2" ] || { fail "$4: exit status $status, not $2"; cat "$errors"; }
	clean "$4"
}

signalled TERM 143 "echo here; exec sleep $nap" "SIGTERM is passed on"
signalled INT 130 "echo here; exec sleep $nap" "SIGINT is passed on"
signalled HUP 129 "echo here; exec sleep $nap" "SIGHUP is passed on"
signalled HUP 0 "trap 'echo heard; exit 0' HUP; echo here; sleep $nap & wait" \
	"processes that end well after a signal"
[ "$(grep -c '^heard$' "$out")" = 2 ] || fail "both processes heard the signal"

# --- nothing is left ----------------------------------------------------------------------

expect 0 "children of the processes, in sessions of their own" -n 2 sh -c \
	"setsid sleep $nap & sh -c 'setsid sleep $nap &'"

# shellcheck disable=SC2317 # called by until_so
nobody_sleeps() {
	[ -z "$(sleepers)" ]
}

# Killed, it cannot clean up; its processes end all the same.
"$run" -n 2 sh -c "echo here; exec sleep $nap" > "$out" 2> "$errors" &
pid=$!
until_so has_lines 2 || fail "the processes do not start"
kill -KILL "$pid"
wait "$pid" 2> /dev/null
until_so nobody_sleeps || fail "processes outlive a launcher that was killed"

# --- arguments ----------------------------------------------------------------------------

expect 0 "help" --help
expect 0 "version" --version
holds "$out" "^ceoverlap [0-9]" "the version"
expect 2 "no number of processes" true
expect 2 "no program" -n 2
expect 2 "no processes" -n 0 true
expect 2 "too many processes" -n 1025 true
expect 2 "more nodes than processes" -n 2 --nodes 3 true
expect 2 "a timeout of nothing" -n 1 --timeout 0 true
expect 2 "a time that is none" -n 1 --grace soon true
expect 2 "an unknown option" --nothing -n 1 true
expect 0 "options of the program are its own" -n 1 echo -n 2 --label
holds "$out" "^2 --label$" "they reach it"

# --- a group ------------------------------------------------------------------------------

export CEOVERLAP_PLACE=host CEOVERLAP_NICS=lo
timeout 60 "$run" -n 4 --nodes 2 --label --timeout 50 "$party" > "$out" 2> "$errors"
status=$?
clean "a group of two nodes"
if [ "$status" != 0 ] && grep -qE 'libucp.so.0 |built without UCX' "$errors"; then
	echo "there is no UCX: no group was formed"
elif [ "$status" != 0 ]; then
	fail "a group of two nodes: exit status $status"
	cat "$errors"
else
	for rank in 0 1 2 3; do
		holds "$out" "^$rank: rank $rank is on node $((rank / 2))$" "rank $rank has its node"
	done
fi

# A library that cannot be loaded stands for a machine without UCX, in a build with UCX, too.
mkdir -p "$folder/no-ucx"
: > "$folder/no-ucx/libucp.so.0"
export LD_LIBRARY_PATH=$folder/no-ucx${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
expect 0 "a group of one node without UCX" -n 4 --label --timeout 50 "$party"
for rank in 0 1 2 3; do
	holds "$out" "^$rank: rank $rank is on node 0$" "rank $rank is on the only node"
done
# Each run has a port of its own.
pids=()
for one in 1 2 3 4 5 6 7 8; do
	timeout 60 "$run" -n 4 --timeout 50 "$party" > "$out.$one" 2>&1 &
	pids+=($!)
done
for one in 1 2 3 4 5 6 7 8; do
	wait "${pids[one - 1]}" || { fail "run $one of 8 at once"; cat "$out.$one"; }
	[ "$(grep -c 'is on node 0$' "$out.$one")" = 4 ] || fail "run $one of 8 has all ranks"
done
expect 1 "a group of two nodes without UCX" -n 4 --nodes 2 --timeout 50 "$party"
holds "$errors" "cannot reach others by ucx: .*(libucp.so.0|built without UCX)" "it says why"
exit "$failed"
