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
says "$folder/first" "overlap -t ag_gemm -m llama70b --tokens 2048,8192,16384 -n 10 -g 8"
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
echo '{"ranks": 2, "step_us": {"DTensor": 300, "ceoverlap": 200}}' > "$folder/tp-mlp.json"
printf 'moves\t0\t3\t50\ntorch\t124\t60\t60\n' > "$folder/steps.tsv"
echo "{" > "$folder/broken.json"
python3 "$top/bench/eight_summary.py" "$folder" > "$folder/summary" 2> "$folder/said" ||
	fail "the summary"
says "$folder/summary" "| p2p 0>1 | 2 | 0.0625 |"
says "$folder/summary" "| all_gather | 2 | 0.0625 |"
says "$folder/summary" "| ag_gemm | tiny | 256 x 256 x 256 | stream | 2 |"
says "$folder/summary" "| host to rank0 | 1 |"
says "$folder/summary" "| scheduler | 5 |"
says "$folder/summary" "| FSDP2 step | 2 | FSDP2 | 20.0 ms | 1.25 |"
says "$folder/summary" "| MLP block | 2 | DTensor | 300.0 us | 1.50 |"
says "$folder/summary" "| torch | 124 | 60 of 60 | it ran out of its time |"
says "$folder/said" "broken.json"
python3 "$top/bench/eight_summary.py" "$folder/nothing" 2> "$folder/said"
[ $? = 2 ] || fail "a folder that is not there is taken"
exit "$failed"
