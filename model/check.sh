#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Checks the models of the protocols with spin, each in all its states: no assertion fails
# and nothing is stuck. And each rule that a model can leave out is missed, which shows
# that the checks can fail: there, spin has to find an error.
#
#   flag_protocol.pml   tiles, engine, lane, consumer, abort
#   halves.pml          halves of scratch used in turn, without "target free"
#   sent.pml            the counters by which a job knows that its operands have left
#   captured_runs.pml   runs that a CUDA graph can hold, failures among them
#   direct_runs.pml     captured runs in direct modes, between others, failures among them
#   channel.pml         chunks, credits and heads of a channel of ranks on the host, and its end
#   channel_gpu.pml     heads, packets and ends of runs of a channel of ranks on GPUs
#   channel_rings.pml   its rings of chunks, and the tasks that wait for each other
#   far_marks.pml       pieces and marks to another node, and a connection that is given up
#   order.pml           each release, acquire and fence of the flag protocol, where memory is
#                       weak (weak_memory.pml); docs/internals/fences.md says which is which
#   service_ring.pml    likewise, of launches and results between a daemon and its clients
#
# With CEOVERLAP_TEST_MODELS=large also with more ranks and runs: minutes, and 4 GB of memory.
#
# 77: no spin.
set -u

# $CC may hold options, and is split for that.
read -ra cc <<< "${CC:-gcc}"
srcdir=$(cd "$(dirname "$0")" && pwd)
command -v spin > /dev/null || { echo "spin is not installed: skipped"; exit 77; }

folder=$(mktemp -d "${TMPDIR:-/tmp}/ceov-model.XXXXXX") || exit 99
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 99
failed=0
seconds=60
depth=10000

# errors -On MODEL [-DNAME=VALUE...]: searches all states; prints how many errors there
# are, or nothing on a failure. Searches of less than a million states take less time than compiling
# well for them.
errors() {
	local level=$1 model=$2
	shift 2
	spin -a "$@" "$srcdir/$model.pml" > spin.out 2>&1 || { cat spin.out >&2; return; }
	"${cc[@]}" "$level" -w -DSAFETY -DCOLLAPSE -o pan pan.c || return
	timeout "$seconds" ./pan -m"$depth" -w22 > pan.out 2>&1
	if grep -q 'max search depth too small\|out of memory' pan.out; then
		cat pan.out >&2
		return
	fi
	sed -n 's/.*errors: \([0-9]*\)$/\1/p' pan.out
}

level=

# Nothing may be found. With level=-O1 before it the search is compiled well.
holds() {
	local found states
	found=$(errors "${level:--O0}" "$@")
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.out)
	if [ "$found" = 0 ]; then
		echo "ok: $*: no error in $states states"
	else
		echo "FAIL: $*: ${found:-no result}"
		grep -a 'assertion violated\|invalid end state' pan.out
		failed=1
	fi
}

# Something has to be found.
is_missed() {
	local found
	found=$(errors -O0 "$@")
	if [ -n "$found" ] && [ "$found" != 0 ]; then
		echo "ok: $* is found: $(grep -ao 'assertion violated.*\|invalid end state' \
			pan.out | head -n 1)"
	else
		echo "FAIL: $* is not found"
		failed=1
	fi
}

# hand_over MODEL CASE COUNT [NUMBER...]: nothing is found as it is, and each of COUNT orders is
# missed when it is left out, but for the numbers named: others do the same. One program
# for all of a model's, made by make_hand_overs MODEL.
make_hand_overs() {
	spin -a "$srcdir/$1.pml" > spin.out 2>&1 &&
		"${cc[@]}" -O0 -w -DSAFETY -DCOLLAPSE -o "$1" pan.c && return
	cat spin.out >&2
	echo "FAIL: $1.pml: no program"
	failed=1
	return 1
}

# found MODEL CASE NUMBER: how many errors, or nothing on a failure.
found() {
	CASE=$2 WITHOUT=$3 timeout 60 "./$1" -m10000 -w20 > found.out 2>&1
	if grep -q 'max search depth too small\|out of memory' found.out; then
		return
	fi
	sed -n 's/.*errors: \([0-9]*\)$/\1/p' found.out
}

hand_over() {
	local model=$1 which=$2 count=$3 number wanted errors
	shift 3
	for number in $(seq 0 "$count"); do
		wanted=some
		[[ $number != 0 && " $* " != *" $number "* ]] || wanted=0
		errors=$(found "$model" "$which" "$number")
		[[ -z $errors || $errors == 0 ]] || errors=some
		if [ "$errors" != "$wanted" ]; then
			echo "FAIL: $model $which.$number: ${errors:-no result}, not $wanted"
			failed=1
		fi
	done
	echo "$model $which: $count orders left out, each found but those that others cover: ${*:-}"
}

for gated in 0 1; do
	holds flag_protocol -DGATED=$gated
done
for broken in 1 2 3 4 5 6; do
	is_missed flag_protocol -DGATED=1 -DBROKEN=$broken
done

# Two ranks and one run more than halves; three, because of what one does not hear of
# two others.
holds halves -DRANKS=2 -DRUNS=4
level=-O1 holds halves -DRANKS=3 -DRUNS=3
is_missed halves -DHERE=0
is_missed halves -DSETS=1

holds sent -DRAISES=0
is_missed sent -DRAISES=1

for phases in 1 2; do
	holds captured_runs -DPHASES=$phases -DFAILS=0 -DRUNS=4
	holds captured_runs -DPHASES=$phases -DFAILS=0 -DRANKS=3
	holds captured_runs -DPHASES=$phases -DFAILS=1
	holds captured_runs -DPHASES=$phases -DFAILS=2
done
level=-O1 holds captured_runs -DPHASES=1 -DFAILS=1 -DRANKS=3 -DRUNS=2
for broken in 1 2 4 6; do
	is_missed captured_runs -DFAILS=1 -DBROKEN=$broken
done
for broken in 3 5; do                   # also while nobody fails
	is_missed captured_runs -DFAILS=0 -DBROKEN=$broken
done
is_missed captured_runs -DFAILS=1 -DSTRICT=1

level=-O1
holds direct_runs
holds direct_runs -DRANKS=3 -DRUNS=3
holds direct_runs -DFAILS=1
holds direct_runs -DFAILS=2 -DRUNS=4
holds direct_runs -DFAILS=1 -DRANKS=3 -DRUNS=2
holds direct_runs -DRUNS=4 -DBROKEN=1   # a second safeguard
level=
for broken in 2 4 5 6 7; do
	is_missed direct_runs -DBROKEN=$broken
done
is_missed direct_runs -DFAILS=1 -DBROKEN=3

holds far_marks
for broken in 1 2 3; do
	is_missed far_marks -DBROKEN=$broken
done

# The third run uses a head again. Three ranks, because chunks that one does not need of another
# may stop the third, and because one may wait for a second that waits for the third.
holds channel
holds channel -DRANKS=3 -DRUNS=2
holds channel -DRANKS=3 -DKINDS=2
holds channel -DFAILS=DIFFERS
holds channel -DFAILS=DIFFERS -DRANKS=3 -DRUNS=2 -DODD_RUN=1
holds channel -DFAILS=ABORTS -DRUNS=2
for broken in NO_CREDIT CREDIT_FIRST ONE_HEAD NO_AWAIT_HEADS PUT_AFTER_READ POISON_LATE \
		POISON_LATE_HEAD COUNTER_FIRST NUMBER_FIRST; do
	is_missed channel -DBROKEN=$broken
done
for broken in NO_EARLY_REST NO_EARLY_ALL; do
	is_missed channel -DRANKS=3 -DRUNS=1 -DBROKEN=$broken
done
is_missed channel -DFAILS=DIFFERS -DBROKEN=NO_COMPARE
is_missed channel -DFAILS=DIFFERS -DRANKS=3 -DRUNS=2 -DODD_RUN=1 -DBROKEN=NO_POISON

# Blocks of a run, and halves; three ranks, of which one may release the channel while another one
# is awaited.
level=-O1
holds channel_gpu
holds channel_gpu -DBLOCKS=1 -DRANKS=3 -DRUNS=2
holds channel_gpu -DFAILS=1 -DBLOCKS=1 -DRUNS=4
holds channel_gpu -DFAILS=1 -DBLOCKS=1 -DRANKS=3 -DRUNS=2 -DODD_RUN=1
level=
for broken in NO_HEADS ONE_HALF_HEADS ONE_HALF_MAIL NUMBER_FIRST EPOCH_EARLY RELEASED_AT_ONCE; do
	is_missed channel_gpu -DBROKEN=$broken
done
for broken in NO_COMPARE NO_POISON EPOCH_ANYWAY; do
	is_missed channel_gpu -DFAILS=1 -DBROKEN=$broken
done
is_missed channel_gpu -DBLOCKS=1 -DRANKS=3 -DRUNS=1 -DBROKEN=RELEASED_OF_ANY

# More rows than slots on the way, where tasks in one, or one that does not tell, close a circle.
level=-O1
holds channel_rings
holds channel_rings -DSLOTS=2 -DROWS=4 -DRUNS=2
holds channel_rings -DRANKS=3 -DRUNS=1 -DKINDS=1 -DREADS_AT_ONCE=1
level=
for broken in NO_CREDIT CREDIT_FIRST CREDIT_ADDENDS COUNTER_FIRST FROM_ZERO; do
	is_missed channel_rings -DBROKEN=$broken
done
for broken in ONE_TASK SUMS_IN_ONE SILENT_PUSH SILENT_STORE TOLD_FALLS; do
	is_missed channel_rings -DRUNS=1 -DROWS=4 -DKINDS=1 -DBROKEN=$broken
done

if make_hand_overs order; then
	hand_over order 1 11 2 4
	hand_over order 2 12
	hand_over order 3 6 1 6
	hand_over order 4 8 1 2 4 7
	hand_over order 5 7 4 6
	hand_over order 6 4 3 4
	hand_over order 7 2
	hand_over order 8 2
	hand_over order 9 2
	hand_over order 10 17 1 2 3 5 7 8 9 10 11
	hand_over order 11 3
fi
if make_hand_overs service_ring; then
	hand_over service_ring 1 7
	hand_over service_ring 2 8 5 6
	hand_over service_ring 3 8
fi

if [ "${CEOVERLAP_TEST_MODELS:-}" = large ]; then
	level=-O2
	seconds=600
	depth=100000
	holds halves -DRANKS=3 -DRUNS=4
	holds captured_runs -DPHASES=2 -DFAILS=1 -DRANKS=3 -DRUNS=2
	holds captured_runs -DPHASES=1 -DFAILS=0 -DRANKS=3 -DRUNS=4
	holds direct_runs -DRANKS=3 -DRUNS=4
	holds direct_runs -DFAILS=1 -DRUNS=5
	holds direct_runs -DFAILS=2 -DRANKS=3 -DRUNS=2
	holds channel -DRANKS=3
	holds channel -DFAILS=DIFFERS -DRANKS=3 -DKINDS=3
	holds channel -DFAILS=ABORTS
	holds channel -DFAILS=ABORTS -DRANKS=3 -DRUNS=1
	holds channel_gpu -DFAILS=1
	holds channel_gpu -DRANKS=3 -DBLOCKS=1
	holds channel_gpu -DRANKS=3 -DBLOCKS=1 -DRUNS=2 -DFAILS=1
	holds channel_rings -DRANKS=3 -DROWS=3 -DRUNS=1 -DREADS_AT_ONCE=1
fi
exit "$failed"
