#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# tests/run_test.sh keeps its promises: a test that hangs ends alone, whoever ends the
# runner ends the test, nothing is left behind unseen, and TMPDIR is honoured.
set -u

runner=$(cd "${srcdir:-.}" && pwd)/tests/run_test.sh
folder=${CEOVERLAP_TEST_TMP:-$(mktemp -d)}
out=$folder/runner.out
mark=$folder/mark
failed=0

fail() {
	echo "FAIL: $1"
	sed 's/^/  | /' "$out"
	failed=1
}

# expect STATUS WHAT SCRIPT: bash runs SCRIPT as a test.
expect() {
	local status

	bash "$runner" bash -c "$3" > "$out" 2>&1
	status=$?
	[ "$status" = "$1" ] || fail "$2: exit status $status, not $1"
}

holds() {
	grep -q -- "$1" "$out" || fail "$2: no line matches '$1'"
}

# Whether a process of a test that this script has started is alive after 5 s at most.
is_alive() {
	local try

	for try in {1..50}; do
		kill -0 "$1" 2> /dev/null || return 1
		sleep 0.1
	done
	echo "process $1 is alive after $try looks"
}

expect 0 "a test that passes" "exit 0"
expect 3 "a test that fails" "echo CEOVERLAP_TEST_SEED=5; exit 3"
holds "CEOVERLAP_TEST_SEED=5" "a failed test's seed"
holds "took [0-9.]* s, computed [0-9.]* s and was in the kernel [0-9.]* s$" "a test's time"
expect 3 "a suite that fails" "echo 'seed 6 (CEOVERLAP_TEST_SEED repeats it)'; exit 3"
holds "^CEOVERLAP_TEST_SEED=6$" "a failed suite's seed"
# shellcheck disable=SC2016 # the test expands it
expect 3 "a test that fails with a log" 'echo "it died of this" > "$TMPDIR/d.log"; exit 3'
holds "^it died of this$" "the log of a failed test"
expect 77 "a test that is skipped" "exit 77"

# As Check does where it is told to end: its whole group hears of it.
CEOVERLAP_TEST_TIMEOUT=1 expect 124 "a test that hangs and tells its group" \
	"trap 'kill -TERM 0' TERM; sleep 60 & echo \$! > '$mark'; wait; sleep 60"
holds "no end within 1 s" "the end of a test that hangs"
is_alive "$(cat "$mark")" && fail "what a test that hung has started is alive"

expect 98 "a test that leaves a process" "setsid sleep 60 & echo \$! > '$mark'"
holds "left behind" "what a test left is told"
is_alive "$(cat "$mark")" && fail "a process that a test left is alive"
# shellcheck disable=SC2016 # the test's folder
expect 98 "a test that leaves a file" 'touch "$TMPDIR/ceoverlap-left"'
holds "ceoverlap-left" "the file that a test left is told"
# shellcheck disable=SC2016 # the test's own process
expect 130 "a test that an interrupt would end" 'kill -INT $$; sleep 1; exit 0'

# ends SIGNAL: a runner that gets it ends by it, with its test and without its folder.
ends() {
	local pid status try

	rm -f "$mark"
	mkdir -p "$folder/own"
	# job control: a job's own group, in which an interrupt is not ignored
	set -m
	TMPDIR=$folder/own bash "$runner" bash -c "echo \$\$ > '$mark'; sleep 60" \
		> "$out" 2>&1 &
	set +m
	pid=$!
	for try in {1..100}; do
		[ -s "$mark" ] && break
		sleep 0.1
	done
	[ -s "$mark" ] || fail "the test did not begin within $try looks"
	kill -"$1" "$pid"
	wait "$pid" 2> /dev/null
	status=$?
	[ "$status" = "$2" ] || fail "after SIG$1: exit status $status, not $2"
	is_alive "$(cat "$mark")" && fail "after SIG$1 the test is alive"
	[ -z "$(ls "$folder/own")" ] || fail "after SIG$1 there is $(ls "$folder/own")"
}

ends TERM 143
ends INT 130
ends HUP 129

# shellcheck disable=SC2016 # as the test sees it
TMPDIR=$folder/own expect 0 "a test in a folder of the caller's" \
	'[ "$TMPDIR" = "$CEOVERLAP_TEST_TMP" ] && echo "in $TMPDIR"'
holds "^in $folder/own/" "TMPDIR is honoured"
long=$folder/$(printf 'l%.0s' {1..90})
mkdir "$long"
# shellcheck disable=SC2016 # as the test sees it
TMPDIR=$long expect 0 "a folder too deep for a socket" 'echo "in $TMPDIR"'
holds "TMPDIR is too long" "that TMPDIR cannot be used is told"
holds "^in /tmp/" "another folder is taken"
exit "$failed"
