#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Runs ceoverlap-bench on nodes that are network namespaces of this machine, joined by a bridge:
#
#   in-namespaces.sh BENCH ARGUMENT...    BENCH: the program ceoverlap-bench
#
#   NODES        how many (default 2)
#   RANKS        of each node (default 1)
#   SEND         limits what a node sends, as tc has rates, say 1gbit (default: no limit)
#   RECEIVE      likewise for what it receives, at its port of the bridge
#   QUEUE        how many bytes wait at a limit before the next ones are dropped (default 256kb)
#
# Each limit is a token bucket of its own, so nodes share no queue. Memory is shared between the
# processes of a node only by their own choice: between nodes, TCP alone is used. It needs no root,
# but user namespaces, and ip, tc and nsenter. Exits with the status of rank 0; 77 where namespaces
# cannot be made.
set -u

nodes=${NODES:-2}
ranks=${RANKS:-1}
send=${SEND:-}
receive=${RECEIVE:-}
queue=${QUEUE:-256kb}

# The rest runs again in namespaces of its own, which end with it.
if [ -z "${IN_NAMESPACES:-}" ]; then
	unshare -Urnm true 2> /dev/null || { echo "SKIP: no namespaces here"; exit 77; }
	IN_NAMESPACES=1 exec unshare -Urnm --kill-child --fork "$0" "$@"
fi

holders=()
# shellcheck disable=SC2317,SC2329 # the trap calls it
clean() {
	[ ${#holders[@]} = 0 ] || kill -KILL "${holders[@]}" 2> /dev/null
}
trap clean EXIT

limit() {
	"$@" root tbf rate "$rate" burst 128kb limit "$queue"
}

# add_node NUMBER: its interface e0 is at the port pNUMBER of the bridge.
add_node() {
	local rate pid
	unshare -nm sh -c 'mount -t sysfs none /sys && exec sleep 100000' &
	pid=$!
	disown "$pid"         # nobody is to be told that it was killed
	holders+=("$pid")
	# Until it has a network of its own, the interface would come to this one.
	for _ in $(seq 500); do
		[ "$(readlink "/proc/$pid/ns/net")" != "$(readlink /proc/self/ns/net)" ] &&
			nsenter -t "$pid" -m test -e /sys/class/net/lo && break
		sleep 0.01
	done
	ip link add "p$1" type veth peer name e0 netns "$pid" &&
		ip link set "p$1" master br0 up &&
		nsenter -t "$pid" -n ip addr add "10.78.0.$(($1 + 1))/24" dev e0 &&
		nsenter -t "$pid" -n ip link set e0 up &&
		nsenter -t "$pid" -n ip link set lo up || return 1
	rate=$send
	[ -z "$send" ] || limit nsenter -t "$pid" -n tc qdisc add dev e0 || return 1
	rate=$receive
	[ -z "$receive" ] || limit tc qdisc add dev "p$1"
}

ip link add br0 type bridge && ip link set br0 up || exit 77
for node in $(seq 0 $((nodes - 1))); do
	add_node "$node" || exit 77
done
for node in "${holders[@]}"; do         # the kernel notices carriers later
	for _ in $(seq 300); do
		nsenter -t "$node" -n ip link show e0 | grep -q 'state UP' && break
		sleep 0.01
	done
done

export CEOVERLAP_BOOTSTRAP=store CEOVERLAP_STORE=10.78.0.1:2900 CEOVERLAP_NICS=e0
export CEOVERLAP_PROCESSES=$((nodes * ranks))
export CEOVERLAP_TRANSPORTS=${CEOVERLAP_TRANSPORTS:-tcp}
pids=()
for process in $(seq 0 $((nodes * ranks - 1))); do
	node=$((process / ranks))
	CEOVERLAP_PROCESS=$process CEOVERLAP_NODE=node$node \
		nsenter -t "${holders[node]}" -n -m --wd="$PWD" "$@" &
	pids+=("$!")
done
wait "${pids[0]}"
status=$?
for pid in "${pids[@]:1}"; do
	wait "$pid" || status=${status/#0/1}
done
exit "$status"
