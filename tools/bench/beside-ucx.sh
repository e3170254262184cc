#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Compares transfers between two nodes, which two processes of this machine act as, with UCX's own
# ucx_perftest, in turns:
#
#   beside-ucx.sh [BENCH]           BENCH: the program ceoverlap-bench (default ./ceoverlap-bench)
#
#   ROUNDS       how often each runs (default 5)
#   TRANSPORTS   as UCX_TLS has it (default tcp)
#   ARGUMENTS    more of ceoverlap-bench for its transfers, say --named: then through slots
#   EVENTS       how ucx_perftest waits (its option -E): sleep (default) or poll
#
# LD_LIBRARY_PATH and PATH choose the UCX and its ucx_perftest.
# Prints a line a round and the medians: GB/s of 64 MiB, processor seconds a GiB of both processes
# (of ucx_perftest with its start), and half of the round trip of a mark and of a message. Exits with
# 77 where ucx_perftest is not installed.
set -u

bench=${1:-./ceoverlap-bench}
rounds=${ROUNDS:-5}
transports=${TRANSPORTS:-tcp}
events=${EVENTS:-sleep}
port=$((20000 + $$ % 20000))

command -v ucx_perftest > /dev/null || { echo "SKIP: no ucx_perftest"; exit 77; }
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
export UCX_LOG_LEVEL=fatal UCX_WARN_UNUSED_ENV_VARS=n UCX_MM_ERROR_HANDLING=y

echo "ucx_perftest of $(ucx_info -v 2> /dev/null | sed -nE 's/^# (Library version:|Version) /UCX /p'), load" \
	"$(cut -d' ' -f1-3 /proc/loadavg)"

# How much processor time the process's children that have ended took, in 1/100 s.
children_ticks() {
	awk '{ print $16 + $17 }' "/proc/$1/stat"
}

# reference TEST BYTES COUNT: the last line of its output is "Final: ...".
reference() {
	port=$((port + 1))
	UCX_TLS=$transports timeout 60 ucx_perftest -p $port -t "$1" -s "$2" -n "$3" -w 2 \
		-E "$events" -e > /dev/null 2>&1 &
	sleep 0.5
	UCX_TLS=$transports timeout 60 ucx_perftest -p $port -t "$1" -s "$2" -n "$3" -w 2 \
		-E "$events" -e 127.0.0.1 2> /dev/null | awk '/Final:/ { $1 = ""; print }'
	wait
}

ours() {
	CEOVERLAP_TRANSPORTS=$transports timeout 120 "$bench" --host -g 2 --nodes 2 -n 8 -w 2 -T 100 \
		"$@" -J "$folder/ours.json" > /dev/null 2>&1
	python3 - "$folder/ours.json" << 'END'
import json, sys
rows = json.load(open(sys.argv[1]))["rows"]
print(rows[0]["gb_per_s"] or rows[0]["us_median"], rows[0].get("cpu_s_per_gib", 0))
END
}

for round in $(seq "$rounds"); do
	# shellcheck disable=SC2086 # a list of words
	read -r gb cpu <<< "$(ours -t p2p -b 64M ${ARGUMENTS:-})"
	self=$BASHPID
	begin=$(children_ticks "$self")
	read -r -a bw <<< "$(reference ucp_am_bw 67108864 30)"
	end=$(children_ticks "$self")
	read -r mark _ <<< "$(ours -t mark)"
	read -r -a lat <<< "$(reference ucp_am_lat 8 2000)"
	# ucx_perftest's MB are MiB; of 32 messages with those that warm up
	if [ ${#bw[@]} -lt 6 ] || [ ${#lat[@]} -lt 3 ] || [ -z "$gb" ] || [ -z "$mark" ]; then
		echo "a program failed in round $round; is there such a transport?" >&2
		exit 1
	fi
	echo "$round $gb $cpu ${bw[5]} $((end - begin)) $mark ${lat[2]}"
done | python3 -c '
import statistics, sys
rows = [[float(word) for word in line.split()] for line in sys.stdin]
rate = [row[3] * 1.048576e-3 for row in rows]
cpu = [row[4] / 100 / (32 * 64 / 1024) for row in rows]
for row, r, c in zip(rows, rate, cpu):
    print("round %d: ours %.2f GB/s %.2f s/GiB, reference %.2f GB/s %.2f s/GiB; "
          "mark %.1f us, message %.1f us" % (row[0], row[1], row[2], r, c, row[5], row[6]))
median = statistics.median
print("medians: ours %.2f GB/s, reference %.2f, ratio of each round %.2f; processor %.2f and %.2f "
      "s/GiB; mark %.1f us, message %.1f" % (
    median([row[1] for row in rows]), median(rate),
    median([row[1] / r for row, r in zip(rows, rate)]), median([row[2] for row in rows]),
    median(cpu), median([row[5] for row in rows]), median([row[6] for row in rows])))'
