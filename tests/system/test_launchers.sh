#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Tests that processes which other launchers have started meet, as docs/nodes.md says, and that their
# bytes arrive: under mpirun, which gives them a PMIx server, and with the variables that torchrun
# and srun set, here set by this script. In all cases four processes act as two nodes. And that
# nobody takes one of a launcher's several tasks for a group of its own.
set -u

srcdir=${srcdir:-.}
party=./tests/system/run_party
folder=${CEOVERLAP_TEST_TMP:-$(mktemp -d)}
export TMPDIR=$folder
out=$folder/launchers.out
errors=$folder/launchers.err
failed=0

for name in "${!CEOVERLAP_@}"; do
	case $name in CEOVERLAP_TEST_*) ;; *) unset "$name" ;; esac
done
export CEOVERLAP_NICS=lo CEOVERLAP_PLACE=host

fail() {
	echo "FAIL: $1"
	tail -n 20 "$out" "$errors"
	failed=1
}

# all_met STATUS WHAT: every rank printed its node, and ended well.
all_met() {
	local rank

	[ "$1" = 0 ] || { fail "$2: exit status $1"; return; }
	for rank in 0 1 2 3; do
		grep -q "^rank $rank is on node $((rank / 2))\$" "$out" || fail "$2: rank $rank"
	done
}

# free_port: a port below those that the system gives away, at which nobody listens, nor at the next.
free_port() {
	local port

	while port=$((20000 + RANDOM % 10000))
		(exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null ||
			(exec 3<> "/dev/tcp/127.0.0.1/$((port + 1))") 2> /dev/null; do
		:
	done
	echo "$port"
}

# --- the variables of torchrun ------------------------------------------------------------

# torch PORT: one run of four processes, whose store is at the port behind this one.
torch() {
	local rank pids=() status=0

	: > "$out"
	: > "$errors"
	for rank in 0 1 2 3; do
		RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$((rank % 2)) MASTER_ADDR=127.0.0.1 \
			MASTER_PORT=$1 CEOVERLAP_BOOTSTRAP=store \
			CEOVERLAP_NODE=node$((rank / 2)) \
			timeout 60 "$party" >> "$out" 2>> "$errors" &
		pids+=($!)
	done
	for rank in 0 1 2 3; do
		wait "${pids[rank]}" || status=1
	done
	return "$status"
}

# Somebody else may have come to it meanwhile, so another one is tried.
torch "$(free_port)" || torch "$(free_port)"
status=$?
if grep -qE 'libucp.so.0 |built without UCX' "$errors"; then
	echo "there is no UCX: no group was formed"
	exit 0
fi
all_met "$status" "the variables of torchrun"

# --- variables of launchers that give no address ---------------------------------------------

# Asks a program that opens a context by the environment alone.
# shellcheck disable=SC2317 # called by refused and taken
opened() {
	timeout 60 "$party" > "$out" 2> "$errors"
}

# shellcheck disable=SC2317
measured() {
	timeout 60 ./ceoverlap-bench --host -t p2p -b 8K -e 8K -n 2 "$@" > "$out" 2> "$errors"
}

python=
if [ -e .libs/libceoverlap.so ] && command -v python3 > /dev/null; then
	python=python3
fi
# shellcheck disable=SC2317
in_python() {
	CEOVERLAP_LIBRARY=$PWD/.libs/libceoverlap.so PYTHONPATH=$srcdir/python \
		PYTHONDONTWRITEBYTECODE=1 timeout 60 "$python" -c "
import ceoverlap
with ceoverlap.Context($1) as context:
    print('alone' if len(context.ranks) == context.n_ranks else 'several')" > "$out" 2> "$errors"
}

# refused WHAT VARIABLE COMMAND...: the command fails, and says which variable makes it one of
# several, and what to set.
refused() {
	local what=$1 variable=$2
	shift 2

	if "$@"; then
		fail "$what: $1 has taken one of several tasks for a group of its own"
	elif ! grep -q "$variable.*to meet the others, set CEOVERLAP_BOOTSTRAP.*=alone" "$errors"
	then
		fail "$what: $1 does not say why it is refused"
	fi
}

# none_is_alone WHAT VARIABLE: one task of several is refused by all.
none_is_alone() {
	refused "$1" "$2" opened
	refused "$1" "$2" measured
	[ -z "$python" ] || refused "$1" "$2" in_python ""
	[ -z "$python" ] || refused "$1" "$2" in_python "place='host'"
}

# With the variables: LAUNCHER NUMBER COUNT.
while read -r launcher task n_tasks; do
	export "$task=1" "$n_tasks=2"
	none_is_alone "$launcher" "$n_tasks"
	CEOVERLAP_BOOTSTRAP=alone measured -g 2 || fail "$launcher: told to be alone"
	if [ -n "$python" ]; then
		CEOVERLAP_BOOTSTRAP=alone in_python "" || fail "$launcher: told to be alone"
		CEOVERLAP_RANKS=1 in_python "" || fail "$launcher: told to be a group of one"
		in_python "[0], place='host'" || fail "$launcher: a program names its only rank"
		in_python "network=ceoverlap.Network(bootstrap='alone')" ||
			fail "$launcher: a program says that it is alone"
	fi
	export "$task=0" "$n_tasks=1"
	measured -g 2 || fail "$launcher: a single task"
	unset "$task" "$n_tasks"
done <<- END
	torchrun RANK WORLD_SIZE
	srun SLURM_PROCID SLURM_STEP_NUM_TASKS
	mpirun OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE
	hydra PMI_RANK PMI_SIZE
	flux FLUX_TASK_RANK FLUX_JOB_SIZE
	jsrun JSM_NAMESPACE_RANK JSM_NAMESPACE_SIZE
END
SLURM_PROCID=0 SLURM_NTASKS=2 measured -g 2 || fail "a batch script of Slurm"
if [ -n "$python" ]; then
	PMIX_RANK=0 refused "PMIx" PMIX_RANK in_python ""
fi

# srun without PMIx, and the address of a store.
slurm() {
	local rank pids=() status=0

	: > "$out"
	: > "$errors"
	for rank in 0 1 2 3; do
		SLURM_PROCID=$rank SLURM_STEP_NUM_TASKS=4 CEOVERLAP_STORE=127.0.0.1:$1 \
			CEOVERLAP_BOOTSTRAP=store CEOVERLAP_NODE=node$((rank / 2)) \
			timeout 60 "$party" >> "$out" 2>> "$errors" &
		pids+=($!)
	done
	for rank in 0 1 2 3; do
		wait "${pids[rank]}" || status=1
	done
	return "$status"
}

slurm "$(free_port)" || slurm "$(free_port)"
all_met "$?" "the variables of srun and a store"

# --- two processes with one number -----------------------------------------------------------

# twins WHAT NUMBER: processes 0, 1 and 1 of 3, or 0, 0 and 1. Both that have one number say so. At a
# socket one of them does so at its deadline only, until which all three have to be there.
twins() {
	local i pids=() n

	for i in 0 1 2; do
		(exec env "${told[$i]}" "${common[@]}" timeout 60 "$python" -c "
import ceoverlap
ceoverlap.Context(deadline_s=15)") > /dev/null 2> "$errors.$i" &
		pids+=($!)
	done
	wait "${pids[@]}"
	cat "$errors".[012] > "$errors"
	n=$(grep -lE 'two processes say that they (are process|have rank) '"$2" \
		"$errors".[012] | wc -l)
	[ "$n" -ge 2 ] || fail "$1: $n processes say that two have the number $2"
}

if [ -n "$python" ]; then
	export CEOVERLAP_LIBRARY=$PWD/.libs/libceoverlap.so PYTHONPATH=$srcdir/python
	for twin in 0 1; do
		common=(WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 CEOVERLAP_BOOTSTRAP=store
			"MASTER_PORT=$(free_port)")
		told=(RANK=0 "RANK=$twin" RANK=1)
		twins "a store" "$twin"
		common=(CEOVERLAP_RANKS=3 "CEOVERLAP_GROUP=$folder/twins")
		told=(CEOVERLAP_RANK=0 "CEOVERLAP_RANK=$twin" CEOVERLAP_RANK=1)
		twins "a socket" "$twin"
	done
fi

# --- mpirun ---------------------------------------------------------------------------------

mpi() {
	timeout 60 mpirun --allow-run-as-root --oversubscribe -n 4 \
		-x CEOVERLAP_BOOTSTRAP=pmix -x CEOVERLAP_NICS -x CEOVERLAP_PLACE "$@" \
		> "$out" 2> "$errors"
}

if ! command -v mpirun > /dev/null; then
	echo "mpirun was not found: only the variables of torchrun were tried"
	exit "$failed"
fi
# shellcheck disable=SC2016 # each process has a number of its own
mpi sh -c 'CEOVERLAP_NODE=node$((PMIX_RANK / 2)) exec "$0"' "$party"
status=$?
if [ "$status" != 0 ] && grep -qi pmix "$errors"; then
	echo "there is no PMIx: mpirun was not tried"
	exit "$failed"
fi
all_met "$status" "mpirun"
exit "$failed"
