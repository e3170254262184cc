#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Tests ceoverlap-bench when a launcher has started it once for each rank: ceoverlap-run with
# processes that act as two nodes, and mpirun where it is installed. Rank 0 alone prints and writes
# the report, and a rank that fails, is killed or has other arguments makes all of them fail.
set -u

run=./ceoverlap-run
bench=./ceoverlap-bench
folder=${CEOVERLAP_TEST_TMP:-$(mktemp -d)}
export TMPDIR=$folder
out=$folder/nodes.out
errors=$folder/nodes.err
json=$folder/nodes.json
failed=0

for name in "${!CEOVERLAP_@}"; do
	case $name in CEOVERLAP_TEST_*) ;; *) unset "$name" ;; esac
done
export CEOVERLAP_NICS=lo

fail() {
	echo "FAIL: $1"
	tail -n 20 "$out" "$errors"
	failed=1
}

# ends STATUS WHAT COMMAND...: STATUS "bad" is any but 0 and that of timeout.
ends() {
	local wanted=$1 what=$2 status
	shift 2

	timeout 60 "$@" > "$out" 2> "$errors"
	status=$?
	case $wanted,$status in
	bad,0 | bad,124) fail "$what: exit status $status" ;;
	bad,* | "$status,$status") ;;
	*) fail "$what: exit status $status, not $wanted" ;;
	esac
	[ -z "$(find "$folder" -maxdepth 1 -name 'ceoverlap-*')" ] || fail "$what: left behind"
}

holds() {
	grep -qE -- "$2" "$1" || fail "$3"
}

# count NUMBER PATTERN WHAT: so many lines of the output match.
count() {
	local found
	found=$(grep -cE -- "$2" "$out")
	[ "$found" = "$1" ] || fail "$3: $found lines match '$2', not $1"
}

# rows TRIGGERS: the rows of all cases are there, each once.
rows() {
	count 0 "NCCL's" "rows that cannot be are explained"
	count 1 "^all_gather +ours +$1 .* verified$" "a row of the all-gather"
	count 1 "^all_to_all +ours +($1|nodes) .* verified$" "a row of the all-to-all"
	count 12 "^p2p +ours .* verified$" "rows of all pairs"
	count 1 "^mark +ours .* verified$" "a row of marks"
	count 1 "^broadcast +ours +levels .* verified$" "a row of the broadcast"
	count 1 "^broadcast +ours +flat .* verified$" "a row of the root that sends all itself"
	count 1 "^# ceoverlap-bench " "one rank prints"
	! grep -qE 'WRONG|unchecked' "$out" || fail "rows that are not verified"
}

# report NODES: the JSON is whole, and says of how many nodes it is.
report() {
	[ -e "$json" ] || { fail "there is no report"; return; }
	holds "$json" "\"nodes\": *$1,?$" "the report says that there are $1 nodes"
	! grep -q '"verified": *false' "$json" || fail "the report has wrong rows"
	command -v python3 > /dev/null || return 0
	python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$json" || fail "no JSON"
}

# operators NODES: the rows of all operators are there, in the report too.
operators() {
	count 1 "^ag_gemm .* verified$" "a row of ag_gemm"
	count 1 "^gemm_rs .* verified$" "a row of gemm_rs"
	count 1 "^gemm_ar .* verified$" "a row of gemm_ar"
	count 1 "^gemm_a2a .* verified$" "a row of gemm_a2a"
	count 1 "^a2a_gemm .* verified$" "a row of a2a_gemm"
	count 1 "^reduce_scatter +$2 .* verified$" "a row of the reduce-scatter"
	count 1 "^all_reduce +$2 .* verified$" "a row of the all-reduce"
	count 2 "^ep_dispatch .* verified$" "rows of dispatches, with and without drops"
	count 2 "^ep_combine .* verified$" "rows of combines, with and without drops"
	count 1 "^# ceoverlap-bench " "one rank prints"
	report "$1"
	# The findings of checks come from other processes; they are small numbers, but not 0, of
	# the seven operators that add up and of the two rows of combines.
	[ "$(grep -cE '"error": *[1-9][0-9.]+e-0[34]' "$json")" = 9 ] || fail "errors in the report"
}

read -ra quick <<< "--host -b 64K -n 3 -w 1 -T 30"
all=all_gather,all_to_all,p2p,mark,broadcast

# --- two nodes ----------------------------------------------------------------------------

ends 0 "two nodes" "$run" -n 4 --nodes 2 "$bench" "${quick[@]}" -t "$all,engine" -J "$json"
if grep -qE 'libucp.so.0 |built without UCX' "$errors"; then
	echo "there is no UCX: nothing is tested"
	exit 77
fi
rows direct
count 1 "^all_gather +ours +ring .* verified$" "a row of the ring"
count 1 "^# +alone within the node, us [0-9.]+, alone between nodes, us [0-9.]+, both" "the levels"
count 1 "engine: left out, ranks that a launcher started" "what cannot run is left out"
report 2
for key in us_within_node us_between_nodes ratio_longer_level; do
	[ "$(grep -c "\"$key\": *[0-9.]*[1-9]" "$json")" = 1 ] || fail "JSON has no $key"
done

# Nodes of different size, and pieces.
ends 0 "nodes of two ranks and of one" "$run" -n 3 --nodes 2 "$bench" "${quick[@]}" \
	-t all_gather,all_to_all --pieces 3
count 3 "^all_.* verified$" "rows of three ranks"
ends 0 "nodes of one rank" "$run" -n 2 --nodes 2 "$bench" "${quick[@]}" -t all_gather
count 1 "^# +alone between nodes, us" "there is no level within the node"
# The bench's own processes.
ends 0 "nodes that the bench starts" "$bench" "${quick[@]}" -g 4 --nodes 2 \
	-t all_gather,all_to_all
count 3 "^all_.* verified$" "rows of ranks that the bench starts"

# More ranks than 16.
ends 0 "many ranks" "$bench" --host -n 1 -w 0 -g 18 --nodes 3 -t mark
count 1 "^mark +ours +nodes +18 .* verified$" "a row of 18 ranks"

# --- operators ----------------------------------------------------------------------------

rm -f "$json"
ends 0 "operators of two nodes" "$run" -n 4 --nodes 2 "$bench" overlap "${quick[@]}" -J "$json"
operators 2 bytes:
ends 0 "sums by node" "$run" -n 3 --nodes 2 "$bench" overlap "${quick[@]}" --by-node -J "$json"
operators 2 "by node:"
[ "$(grep -c '"by_node": *true' "$json")" = 2 ] || fail "the report names the sums by node"
ends 0 "operators that the bench starts" "$bench" overlap "${quick[@]}" -g 3 --nodes 3 -J "$json"
operators 3 bytes:
# shellcheck disable=SC2016 # the processes expand it
ends bad "other operators' arguments" "$run" -n 2 --nodes 2 sh -c '
	[ "$CEOVERLAP_PROCESS" = 1 ] && set -- "$@" --tokens 64
	exec "$0" "$@"' "$bench" overlap "${quick[@]}" -t ag_gemm
holds "$errors" "rank 1: other arguments than those of rank 0" "it is told"

# --- ranks that fail ----------------------------------------------------------------------

# told NAME: each process writes its own exit status.
# shellcheck disable=SC2016 # the processes expand it
told='"$0" "$@"; status=$?; echo "ended with $status"; exit $status'

# failing RANK WHAT SCRIPT [ARGUMENT...]: that rank runs the script first; all ranks fail.
failing() {
	local rank=$1 what=$2 script=$3
	shift 3

	rm -f "$json"
	ends bad "$what" "$run" -n 4 --nodes 2 --grace 20 sh -c "trap : TERM
		if [ \"\$CEOVERLAP_PROCESS\" = $rank ]; then
			$script
		fi
		$told" "$bench" "${quick[@]}" -t mark,all_gather -J "$json" "$@"
	! grep -q '^ended with 0' "$out" || fail "$what: a rank ends as if all were well"
	count 4 '^ended with [1-9]' "$what: all ranks end"
}

for rank in 0 3; do
	failing "$rank" "a copy fails at rank $rank" "export CEOVERLAP_HOST_COPY_FAIL_AT=2"
	count 1 "^mark .* verified$" "what was measured before"
	count 0 "^all_gather " "no row of what failed"
	holds "$errors" "rank $rank: first failure: .*fault script" "the failure is named"
	report 2
done
failing 2 "other arguments" "set -- \"\$@\" -n 4"
holds "$errors" "rank 2: other arguments than those of rank 0" "it is told"
count 0 "^mark " "nothing was measured"
# shellcheck disable=SC2016
failing 1 "a rank that is killed" '"$0" "$@" &
	sleep 0.5; kill -KILL $!; wait $!; status=$?; echo "ended with $status"; exit $status' -n 1000
count 0 "^mark " "no row of what was not done"
ends bad "a report that cannot be written" "$run" -n 2 --nodes 2 "$bench" "${quick[@]}" -t mark \
	-J /nonexistent/x.json
holds "$errors" "cannot write /nonexistent/x.json" "it is told"
count 0 "^mark " "nothing was measured"

# --- arguments ----------------------------------------------------------------------------

for words in "-g 4" "--nodes 2" "--one-process" "--processes"; do
	# shellcheck disable=SC2086 # a list of words
	ends 2 "$words under a launcher" "$run" -n 2 "$bench" --host $words -t mark
done
for command in sweep measure share; do
	ends 2 "$command under a launcher" "$run" -n 2 "$bench" "$command" --host
	holds "$errors" "$command starts its own ranks" "$command is refused by name"
done

# --- mpirun -------------------------------------------------------------------------------

mpi=(mpirun --allow-run-as-root --oversubscribe)
if ! command -v mpirun > /dev/null; then
	echo "mpirun is not tested: it is not installed"
elif ! timeout 30 "${mpi[@]}" -n 2 true > "$out" 2>&1; then
	echo "mpirun is not tested: it does not run here"
elif ! timeout 30 "${mpi[@]}" -n 2 "$bench" "${quick[@]}" -t mark > "$out" 2> "$errors" &&
		grep -qE 'built without PMIx|libpmix' "$errors"; then
	echo "mpirun is not tested: there is no PMIx"
else
	rm -f "$json"
	ends 0 "mpirun" "${mpi[@]}" -n 4 "$bench" "${quick[@]}" -t "$all" -J "$json"
	rows polled
	report 1
	# shellcheck disable=SC2016
	ends 0 "mpirun, two nodes" "${mpi[@]}" -n 4 -x CEOVERLAP_BOOTSTRAP=pmix sh -c \
		'CEOVERLAP_NODE=n$((PMIX_RANK / 2)) exec "$0" "$@"' \
		"$bench" "${quick[@]}" -t "$all" -J "$json"
	rows direct
	report 2
	rm -f "$json"
	ends 0 "operators under mpirun" "${mpi[@]}" -n 2 "$bench" overlap "${quick[@]}" -J "$json"
	operators 1 bytes:
	# shellcheck disable=SC2016
	ends bad "a copy fails under mpirun" "${mpi[@]}" -n 4 sh -c \
		'[ $PMIX_RANK = 2 ] && export CEOVERLAP_HOST_COPY_FAIL_AT=2
		exec "$0" "$@"' "$bench" "${quick[@]}" -t all_gather
fi
exit "$failed"
