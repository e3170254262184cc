#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Runs, in a build folder, what "make check" has in a short form, for long: 30 to 60 minutes on two
# idle cores.
#
#   check_long.sh [PART...]     default: all parts
#
#   nodes    groups of several nodes that open, are killed and are stopped, 1,000 cycles of each
#   daemon   1,000 clients or daemons killed, and 100 daemons killed under ranks that go on
#   channel  1,000,000 calls of each rank in one channel, which leave nothing behind
#   suites   all suites that draw, 5 times each, two at once
#   torch    300 random programs of PyTorch, twice, and PyTorch's own tests of process groups over
#            our backend; PYTHON names the Python that has it
#   versions the suites of PyTorch with each Python that CEOVERLAP_PYTHONS names ("/a/python3
#            /b/python3"), for versions of PyTorch beside the newest, which .ci/run has
#   readme   the first programs of the documents, 1,000 runs each; the site, without a warning
#   group    100,000 schedules of a group's state machine, and rules left out that they have to miss
#   models   the models of the protocols, with more ranks and runs
#   fuzz     each fuzzer, for 2 minutes
#
# Needs the built suites, nodes_torture among them. Each run of a part has a seed of its own: they
# count up from CEOVERLAP_TEST_SEED, or from a random one. Prints a line for each part, behind the
# logs of runs that failed, and last "N passed, N failed, N skipped". A part that lacks something is
# skipped. Fails if a part did. "CEOVERLAP_TEST_SEED=SEED make check-long LONG=PART" repeats a part
# with the seed that its line says.
set -u

here=$(cd "$(dirname "$0")" && pwd) || exit 99
srcdir=$(cd "$here/.." && pwd) || exit 99
export srcdir
parts=(nodes daemon channel suites torch versions readme group models fuzz)
first_seed=${CEOVERLAP_TEST_SEED:-$((RANDOM << 15 | RANDOM))}
passed=0
failed=0
skipped=0

folder=$(mktemp -d "${TMPDIR:-/tmp}/ceov-long.XXXXXX") || exit 99
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM HUP

# run SEED SECONDS COMMAND...: one test with its seed, and the log of one that failed. Returns its
# exit status.
run() {
	local seed=$1 seconds=$2 log status
	shift 2

	log=$(mktemp "$folder/log.XXXXXX") || return 99
	CEOVERLAP_TEST_SEED=$seed CEOVERLAP_TEST_TIMEOUT=$seconds \
		bash "$here/run_test.sh" "$@" > "$log" 2>&1
	status=$?
	if [ "$status" != 0 ] && [ "$status" != 77 ]; then
		echo "check_long.sh: $* with CEOVERLAP_TEST_SEED=$seed: exit status $status"
		tail -n 60 "$log"
	fi
	rm -f "$log"
	return "$status"
}

# Several times as long as a case takes in "make check", where it may have 20 s.
export CK_DEFAULT_TIMEOUT=${CK_DEFAULT_TIMEOUT:-120}

# --- parts: each is called with its first seed ----------------------------------------------

run_nodes() {
	[ -x tests/system/nodes_torture ] || return 77
	CEOVERLAP_TEST_NODES_CYCLES=1000 run "$1" 3600 tests/system/nodes_torture
}

run_daemon() {
	[ -x tests/system/daemon_torture ] || return 77
	CEOVERLAP_TEST_REOPEN_ROUNDS=100 run "$1" 1200 tests/system/test_reopen &&
		CEOVERLAP_TEST_DAEMON_CYCLES=1000 CEOVERLAP_TEST_DAEMON_MIB=64 \
			run "$1" 2400 tests/system/daemon_torture
}

run_channel() {
	[ -x tests/unit/test_channel_growth ] || return 77
	CEOVERLAP_TEST_CHANNEL_CALLS=1000000 run "$1" 2400 tests/unit/test_channel_growth
}

# The suites that draw by themselves; what others draw in a rig is left to "make check".
drawing_suites() {
	local source suite

	for source in $(cd "$srcdir" && grep -lE 'testing_(share|seed)\(' tests/unit/test_*.c \
			tests/sim/test_*.c tests/system/test_ops_shapes.c); do
		suite=${source%.c}
		[ ! -x "$suite" ] || echo "$suite"
	done
}

run_suites() {
	local seed suites

	mapfile -t suites < <(drawing_suites)
	[ ${#suites[@]} != 0 ] || return 77
	export -f run
	export here folder
	for ((seed = $1; seed < $1 + 5; seed++)); do
		# shellcheck disable=SC2016 # the inner shell expands it
		printf '%s\n' "${suites[@]}" |
			xargs -P 2 -I{} bash -c 'run "$1" 600 "$2"; [ $? = 0 ] || [ $? = 77 ]' \
				run "$seed" {} || return 1
	done
}

run_torch() {
	local seed

	for seed in "$1" $(($1 + 1)); do
		run "$seed" 900 "$srcdir/tests/system/test_torch_programs.sh" || return
	done
	CEOVERLAP_TEST_C10D_ALL=1 CEOVERLAP_TEST_BACKEND_CALLS=3000 CEOVERLAP_TEST_HANGS_ALL=1 \
		run "$1" 3000 "$srcdir/tests/system/test_torch_backend.sh"
}

# All that PyTorch has in "make check", with other versions of it. A Python without PyTorch is none
# that should have been named, so nothing may be skipped.
run_versions() {
	local one suite pythons

	read -ra pythons <<< "${CEOVERLAP_PYTHONS:-}"
	[ ${#pythons[@]} != 0 ] || return 77
	for one in "${pythons[@]}"; do
		echo "with $one: PyTorch $("$one" -c 'import torch; print(torch.__version__)')"
		for suite in torch torch_layers torch_backend torch_programs torch_nodes; do
			if ! PYTHON=$one run "$1" 1800 "$srcdir/tests/system/test_$suite.sh"; then
				echo "check_long.sh: test_$suite.sh failed, or was skipped, with $one"
				return 1
			fi
		done
	done
}

run_readme() {
	CEOVERLAP_TEST_README_RUNS=500 run "$1" 900 "$srcdir/tests/product/check_readme.sh" || return
	CEOVERLAP_TEST_SITE=1 run "$1" 900 "$srcdir/tests/product/check_reference.sh" ||
		[ $? = 77 ]
}

run_group() {
	CEOVERLAP_TEST_SCHEDULES=100000 run "$1" 1800 tests/unit/test_group_sim &&
		run "$1" 1800 "$srcdir/tests/unit/group_mutants.sh"
}

run_models() {
	CEOVERLAP_TEST_MODELS=large run "$1" 2400 "$srcdir/model/check.sh"
}

run_fuzz() {
	FUZZ_WITH=libfuzzer FUZZ_PATIENCE=120 run "$1" 1200 "$here/fuzz/run.sh" 120
}

# --------------------------------------------------------------------------------------------

# part NAME: runs it and counts it.
part() {
	local name=$1 seed=$first_seed began=$SECONDS status result

	"run_$name" "$seed"
	status=$?
	case $status in
	0) result=PASS passed=$((passed + 1)) ;;
	77) result=SKIP skipped=$((skipped + 1)) ;;
	*) result=FAIL failed=$((failed + 1)) ;;
	esac
	echo "$result: $name, CEOVERLAP_TEST_SEED=$seed, $((SECONDS - began)) s"
}

for name in "$@"; do
	[[ " ${parts[*]} " == *" $name "* ]] && continue
	echo "check_long.sh: there is no part '$name': ${parts[*]}" >&2
	exit 2
done
for name in "${@:-${parts[@]}}"; do
	part "$name"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
