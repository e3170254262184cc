#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# How the time of an all-gather as a ring over nodes grows with their number, beside its bytes:
#
#   ring-in-namespaces.sh [BENCH]   BENCH: the program ceoverlap-bench (default ./ceoverlap-bench)
#
#   ROUNDS       how often all numbers of nodes take their turn (default 3)
#   SHARD        bytes of each rank (default 1M)
#   RATE         what each node sends and receives at most (default 200mbit)
#   COUNTS       numbers of nodes (default "2 4 8")
#
# Each node is a network namespace with one rank, see in-namespaces.sh. A rank sends and receives
# n - 1 shards. Prints the medians of the rounds, the time of each shard that a rank gets, and this
# relative to the first number of nodes: 1.00 is growth as that of the bytes. Exits with 77 where
# namespaces cannot be made.
set -u

bench=${1:-./ceoverlap-bench}
rounds=${ROUNDS:-3}
here=$(dirname "$0")
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
export SEND=${RATE:-200mbit} RECEIVE=${RATE:-200mbit}

echo "load $(cut -d' ' -f1-3 /proc/loadavg), $SEND each way, shards of ${SHARD:-1M}"
for round in $(seq "$rounds"); do
	for nodes in ${COUNTS:-2 4 8}; do
		NODES=$nodes bash "$here/in-namespaces.sh" "$bench" --host -t all_gather \
			-b "${SHARD:-1M}" -n 3 -w 1 -T 100 -J "$folder/$nodes.$round.json" \
			> "$folder/out" 2>&1
		status=$?
		[ "$status" = 77 ] && { echo "SKIP: no namespaces here"; exit 77; }
		[ "$status" = 0 ] || { tail -n 5 "$folder/out" >&2; exit 1; }
	done
done
# shellcheck disable=SC2086 # a list of words
python3 - "$folder" ${COUNTS:-2 4 8} << 'END'
import glob, json, statistics, sys
folder, counts = sys.argv[1], [int(word) for word in sys.argv[2:]]
base = {}
for trigger in ("ring", "polled"):
    for count in counts:
        times = []
        for name in glob.glob(f"{folder}/{count}.*.json"):
            rows = [row for row in json.load(open(name))["rows"] if row["trigger"] == trigger]
            if any(not row["verified"] for row in rows):
                sys.exit(f"wrong data with {count} nodes")
            times += [row["us_median"] for row in rows]
        if not times:
            continue
        per_shard = statistics.median(times) / (count - 1)
        base.setdefault(trigger, per_shard)
        print("%-6s %2d nodes: %9.1f us, %9.1f us a shard, %.2f of that of %d nodes" % (
            "ring" if trigger == "ring" else "direct", count, statistics.median(times),
            per_shard, per_shard / base[trigger], counts[0]))
END
