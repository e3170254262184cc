#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Tests that processes which other launchers have started meet, as docs/nodes.md says, and that their
# bytes arrive: under mpirun, which gives them a PMIx server, and with the variables that torchrun
# sets, here set by this script. In both cases four processes act as two nodes.
set -u

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

# Below the ports that the system gives away. Somebody else may have it, so another one is tried.
torch $((20000 + RANDOM % 10000)) || torch $((20000 + RANDOM % 10000))
status=$?
if grep -qE 'libucp.so.0 |built without UCX' "$errors"; then
	echo "there is no UCX: no group was formed"
	exit 0
fi
all_met "$status" "the variables of torchrun"

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
