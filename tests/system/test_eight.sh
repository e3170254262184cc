#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Tests what a machine without GPUs can of bench/eight.sh: its arguments and its steps, and the
# summary, which is written from JSON files of runs on host memory.
set -u

top=$(dirname "$0")/../..
folder=${CEOVERLAP_TEST_TMP:-$(mktemp -d)}/eight
failed=0

if [ ! -e "$top/bench/eight.sh" ]; then
	echo "SKIP: a distribution without the folder bench"
	exit 77
fi

fail() {
	echo "FAIL: $1"
	failed=1
}

# says FILE TEXT
says() {
	grep -qF -- "$2" "$1" || { fail "no '$2' in:"; cat "$1"; }
}

mkdir -p "$folder"
bash "$top/bench/eight.sh" --half=3 2> "$folder/said"
[ $? = 2 ] || fail "--half=3 is taken"
says "$folder/said" "unusable argument '--half=3'"
bash "$top/bench/eight.sh" --dry-run --half=1 --ranks=8 > "$folder/first" || fail "half 1"
bash "$top/bench/eight.sh" --dry-run --half=2 --ranks=8 > "$folder/second" || fail "half 2"
says "$folder/first" "overlap -t ag_gemm -m llama70b,llama7b,llama8b,qwen72b,gpt3 --tokens 2048,"
# what ceoverlap-bench needs behind its own limit, to write its rows
says "$folder/first" "moves (60 s): ./ceoverlap-bench -t all_gather,all_to_all,doorbell -b 1M -e 256M \
-n 10 -g 8 -T 53 "
says "$folder/second" "relays (45 s): ./ceoverlap-bench sweep -t host -b 1G -e 1G"
says "$folder/second" "-t pairs,host,all_gather,all_to_all,random"
grep -q OWN_LIMIT "$folder/first" "$folder/second" && fail "a limit is not filled in"
says "$folder/second" "overlap -t all_reduce,reduce_scatter"
says "$folder/second" "overlap -t gemm_ar"
grep -q "all_reduce" "$folder/first" && fail "half 1 has steps of half 2"

./ceoverlap-bench --host -g 2 -n 2 -w 1 -t p2p,all_gather -b 64K -e 64K \
	-J "$folder/moves.json" > "$folder/log" 2>&1 || { fail "moves"; cat "$folder/log"; }
./ceoverlap-bench overlap --host -g 2 -n 2 -w 1 -t ag_gemm -J "$folder/ag.json" \
	> "$folder/log" 2>&1 || { fail "overlap"; cat "$folder/log"; }
./ceoverlap-bench sweep --host --quick -t host,random -J "$folder/sweep.json" \
	> "$folder/log" 2>&1 || { fail "sweep"; cat "$folder/log"; }
echo '{"ranks": 2, "ways": {"FSDP2": {"step_ms": [30, 10, 20]}, "ceoverlap": {"step_ms": [16]}}}' \
	> "$folder/fsdp.json"
echo '{"ranks": 2, "step_us": {"dtensor": 300, "ceoverlap": 200}}' > "$folder/tp-mlp.json"
printf 'moves\t0\t3\t50\nlate\t1\t5\t9\ntorch\t124\t60\t60\n' > "$folder/steps.tsv"
cat > "$folder/late.json" << 'END'
{"complete": false, "rows": [
 {"operator": "gemm_rs", "model": "llama7b", "m": 8192, "n": 4096, "k": 1376, "launch": "graph",
  "ranks": 8, "fraction": 0.7, "verified": true,
  "methods": {"gemm": {"us_median": 130}, "comm": {"us_median": 200},
              "sequence": {"us_median": 330}, "ours": {"us_median": 300}}},
 {"operator": "gemm_rs", "model": "llama7b", "m": 8192, "n": 4096, "k": 1376, "launch": "stream",
  "ranks": 8, "fraction": -0.2, "verified": true,
  "methods": {"gemm": {"us_median": 130}, "comm": {"us_median": 200},
              "sequence": {"us_median": 330}, "ours": {"us_median": 400}}},
 {"operator": "all_gather", "launch": "graph", "ranks": 8, "bytes_per_rank": 4096,
  "methods": {"comm": {"us_median": 20}, "ours": {"us_median": 10}}, "verified": true}]}
END
cat > "$folder/moves-large.json" << 'END'
{"complete": true, "rows": [
 {"case": "all_gather", "mode": "ours", "trigger": "polled", "ranks": 8,
  "bytes_per_rank": 67108864, "us_median": 1300.0},
 {"case": "all_gather", "mode": "ours", "trigger": "follow", "ranks": 8,
  "bytes_per_rank": 67108864, "us_median": 1200.0},
 {"case": "all_gather", "mode": "nccl_sm", "ranks": 8, "bytes_per_rank": 67108864,
  "us_median": 1380.0},
 {"case": "all_gather", "mode": "nccl_ce", "ranks": 8, "bytes_per_rank": 67108864,
  "us_median": 1188.0}]}
END
echo '{"links": [{"from": "gpu0", "to": "gpu1", "gb_per_s": 400}, {"from": "node0", "to": "gpu1",
 "gb_per_s": 50}]}' > "$folder/measure.json"
echo "{" > "$folder/broken.json"
python3 -B "$top/bench/eight_summary.py" "$folder" > "$folder/summary" 2> "$folder/said" ||
	fail "the summary"
says "$folder/summary" "| p2p 0>1 | 2 | 0.0625 |"
says "$folder/summary" "| all_gather | 2 | 0.0625 |"
says "$folder/summary" "| ag_gemm | tiny | 256 x 256 x 256 | stream | 2 |"
says "$folder/summary" "| overlap/1/32x32 | - | yes |"
says "$folder/summary" "| host to rank0 | 1 |"
says "$folder/summary" "| scheduler | 5 |"
says "$folder/summary" "| FSDP2 step | 2 | FSDP2 | 20.0 ms | 1.25 |"
says "$folder/summary" "| MLP block | 2 | dtensor | 300.0 us | 1.50 |"
says "$folder/summary" "| late | 1 | 5 of 9 | it ended early"
says "$folder/summary" "| all_gather |  | 4 KiB | graph |"
# of the aims: the fastest trigger counts, and so does the faster one of NCCL's ways
says "$folder/summary" "NCCL's modes / ours | at least 1 | 1 of 2 | 1.150 to 1.150 | **all_gather, 64 MiB, \
nccl_ce 0.990** |"
says "$folder/summary" "at the pair rate / ours | at least 0.93 | 1 of 1 | 0.979 to 0.979 | - |"
says "$folder/summary" "GEMM + reduce-scatter of small models: of the ideal speed-up | at least 0.65 | \
1 of 2 | 0.700 to 0.700 | **llama7b, 8192, stream -0.200** |"
says "$folder/summary" "NCCL and cuBLAS / ours, 8192 and 16384 rows | at least 1 | 1 of 2 | 1.100 to 1.100 | \
**gemm_rs, llama7b, 8192, stream 0.825** |"
says "$folder/summary" "async-TP / ours | at least 1 | 0 of 0 | - | not measured |"
says "$folder/summary" "MLP block: DTensor / ours | at least 1.2 | 1 of 1 | 1.500 to 1.500 | - |"
says "$folder/summary" "| torch | 124 | 60 of 60 | it ran out of its time |"
says "$folder/said" "broken.json"
python3 -B "$top/bench/eight_summary.py" "$folder/nothing" 2> "$folder/said"
[ $? = 2 ] || fail "a folder that is not there is taken"
exit "$failed"
