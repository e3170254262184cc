#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Tests the command ceoverlap-bench on host memory: its rows are verified, its JSON has all
# fields, and its exit codes distinguish kinds of failures.
set -u

bench=./ceoverlap-bench
folder=${CEOVERLAP_TEST_TMP:-$(mktemp -d)}
out=$folder/bench.out
json=$folder/bench.json
failed=0

# expect STATUS WHAT ARGUMENT...
expect() {
	local wanted=$1 what=$2 status
	shift 2

	"$bench" "$@" > "$out" 2>&1
	status=$?
	[ "$status" = "$wanted" ] && return 0
	echo "FAIL: $what: exit status $status, not $wanted"
	tail -n 20 "$out"
	failed=1
}

holds() {
	grep -q -- "$2" "$1" && return 0
	echo "FAIL: $3"
	failed=1
}

run="--host -n 3 -w 1 -T 60"

# fits WHAT: no line of the table is wider than 120 characters.
fits() {
	local wide

	wide=$(grep -v '^#' "$out" | grep -E '^.{121}' | head -n 3)
	[ -z "$wide" ] || { echo "FAIL: $1 are wider than 120 characters: $wide"; failed=1; }
}

# shellcheck disable=SC2086 # lists of words
{
expect 0 "every case" $run -g 3 -t p2p,p2p_2d,doorbell,all_gather,all_to_all,engine \
	-b 64K -e 256K -J "$json"
for name in p2p p2p_2d doorbell all_gather all_to_all engine; do
	holds "$out" "^$name .*ours.* verified" "$name has a verified row"
done
fits "rows of cases"
if grep -q 'WRONG\|unchecked' "$out"; then
	echo "FAIL: rows that are not verified"
	failed=1
fi
for key in schema_version provenance rows case mode trigger ranks bytes_per_rank \
	chunk_bytes us_median us_min us_p99 gb_per_s verified ratio_raw; do
	holds "$json" "\"$key\"" "JSON has $key"
done
if command -v python3 > /dev/null; then
	python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$json" || failed=1
fi

# Without sizes host memory gets fewer than GPUs, so that the command ends before its time is over;
# a run whose time is over says which option gives it.
expect 0 "sizes on host memory" --host -g 2 -t p2p -n 1 -w 0 -T 60
[ "$(awk '$1 == "p2p" && $2 == "ours" && $5 == "0>1" { print $6 }' "$out" | xargs)" = \
	"1048576 4194304" ] || {
	echo "FAIL: host memory is measured with 1 and 4 MiB by default"
	failed=1
}
expect 1 "a time that is over" --host -g 2 -t p2p -b 64M -n 1000 -w 0 -T 1
holds "$out" "the time that -T gives the whole run is over" "-T is named where its time is over"

# What nccl-tests' users type and look for: sizes by steps, its two bandwidths, and the closing lines.
expect 0 "sizes by steps" $run -g 3 -t p2p,all_gather,channel -b 64K -e 256K -i 96K -J "$json"
[ "$(awk '$1 == "all_gather" && $3 == "polled" { print $6 }' "$out" | xargs)" = \
	"65536 163840 262144" ] || {
	echo "FAIL: -i adds 96K from size to size"
	failed=1
}
holds "$out" "^# wrong values: 0 OK\$" "how many values were wrong"
holds "$out" "^# average busbw, GB/s: ours [0-9.]*, raw [0-9.]*\$" "the average bandwidths"
if command -v python3 > /dev/null; then
	python3 - "$json" <<-'END' || failed=1
	import json, sys
	report = json.load(open(sys.argv[1]))
	factors = {"p2p": 1, "all_gather": 2 / 3, "reduce_scatter": 2 / 3, "all_reduce": 4 / 3,
	           "all_to_all": 2 / 3}
	wrong, found = [], {}
	for row in report["rows"]:
	    n = 1 if row["case"] == "p2p" else row["ranks"]
	    algbw = n * row["bytes_per_rank"] / row["us_median"] / 1e3
	    if abs(algbw - row["algbw_gb_per_s"]) > 0.01 + 0.01 * algbw:
	        wrong.append(("algbw", row))
	    if abs(row["gb_per_s"] - row["algbw_gb_per_s"] * factors[row["case"]]) > 0.01:
	        wrong.append(("busbw", row))
	    found.setdefault(row["mode"], []).append(row["gb_per_s"])
	for mode, values in found.items():
	    if abs(sum(values) / len(values) - report["average_gb_per_s"][mode]) > 0.01:
	        wrong.append(("average", mode))
	if wrong or report["wrong_values"] != 0 or {row["case"] for row in report["rows"]} != set(factors):
	    sys.exit(f"FAIL: bandwidths: {wrong[:3]}")
	END
fi
expect 0 "-f before -i" $run -g 2 -t p2p -b 64K -e 256K -i 64K -f 4
[ "$(grep -c '^p2p .* ours .* verified' "$out")" = 4 ] || { echo "FAIL: -f counts for more than -i"; failed=1; }
expect 0 "data that is not checked" $run -g 2 -t p2p -b 64K -c 0
holds "$out" "^# wrong values: not looked for" "that nobody looked"
for command in "" overlap measure sweep daemon share; do
	expect 0 "help of ${command:-the program}" $command -h
	cp "$out" "$out.h"
	expect 0 "long help of ${command:-the program}" $command --help
	cmp -s "$out" "$out.h" || { echo "FAIL: $command -h is not --help"; failed=1; }
done
# brief WHAT ARGUMENT...: no line of the output is wider than 80 characters.
brief() {
	local what=$1
	shift

	expect 0 "$what" "$@" --brief
	[ "$(grep -c ' verified$' "$out")" -gt 0 ] || { echo "FAIL: $what: no brief rows"; failed=1; }
	if grep -E '^.{81}' "$out"; then
		echo "FAIL: $what: lines wider than 80 characters"
		failed=1
	fi
}
brief "brief cases" $run -g 3 -t p2p,p2p_2d,doorbell,all_gather,all_to_all,broadcast,channel,mark \
	-b 64K
holds "$out" "^p2p 0>1 .* verified" "brief rows name pairs"
brief "brief operators" overlap $run -g 3 --tokens 100 -b 96K

# Completion knows what the program says of itself.
# shellcheck disable=SC2016 # the inner shell's variables
complete_with() {
	PATH=$PWD:$PATH bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
		_ceoverlap_bench ceoverlap-bench; printf "%s\n" "${COMPREPLY[@]}"' bash \
		"${srcdir:-.}/tools/bench/completions/ceoverlap-bench" "$@" > "$out"
}
complete_with ceoverlap-bench --step
holds "$out" "^--stepbytes\$" "completion of options"
complete_with ceoverlap-bench overlap --tok
holds "$out" "^--tokens\$" "completion of a command's options"
complete_with ceoverlap-bench -t all_
[ "$(tr '\n' ' ' < "$out")" = "all_gather all_to_all " ] || {
	echo "FAIL: completion of test cases"
	failed=1
}
complete_with ceoverlap-bench sw
holds "$out" "^sweep\$" "completion of commands"

# A group on one node has no use for UCX: the program linker names what it opens. Nodes do open it,
# where it is installed, so the names are the right ones.
opens_ucx() {
	LD_DEBUG=files LD_DEBUG_OUTPUT=$folder/linked "$bench" "$@" > "$out" 2>&1
	cat "$folder"/linked.* > "$folder/opened"
	rm -f "$folder"/linked.*
	grep -q 'ceoverlap-bench' "$folder/opened" || { echo "FAIL: no names"; failed=1; }
	grep -q 'file=libuc[pst][0-9.a-z]* ' "$folder/opened"
}
if opens_ucx $run -g 2 -t p2p,all_gather -b 64K; then
	echo "FAIL: UCX is opened for one node"
	failed=1
fi
if ldconfig -p | grep -q 'libucp\.so\.0' && ! opens_ucx $run -g 2 --nodes 2 -t mark &&
	! grep -q "this machine cannot reach others" "$out"; then
	echo "FAIL: UCX is opened for nodes, but not noticed here"
	failed=1
fi

# UCX's log does not get into the table, unless its settings say where it goes.
if ldconfig -p | grep -q 'libucp\.so\.0' &&
	UCX_LOG_LEVEL=info CEOVERLAP_TRANSPORTS=tcp "$bench" $run -g 2 --nodes 2 -t mark \
		> "$out" 2> "$out.log"; then
	holds "$out.log" "^ceoverlap: UCX: info: " "UCX's log on standard error"
	if grep -i "ucx .*info" "$out"; then
		echo "FAIL: UCX writes into the table"
		failed=1
	fi
	UCX_LOG_LEVEL=info UCX_LOG_FILE=$folder/ucx.log CEOVERLAP_TRANSPORTS=tcp \
		"$bench" $run -g 2 --nodes 2 -t mark > "$out" 2> "$out.log"
	# UCX writes the file when the process ends by exit(), which ranks of the bench do not.
	[ -e "$folder/ucx.log" ] || { echo "FAIL: UCX makes no file that the user names"; failed=1; }
	if grep -i "ucx.*info" "$out" "$out.log"; then
		echo "FAIL: the log goes elsewhere than the user says"
		failed=1
	fi
fi
expect 0 "ranks as threads" $run --one-process -g 3 -t all_gather -b 64K --pieces 3
expect 0 "a channel" $run -g 3 -t channel -b 24 -e 24K -f 1024 -J "$json"
for name in all_gather reduce_scatter all_reduce all_to_all; do
	[ "$(grep -cE "^$name +ours +channel .* verified$" "$out")" = 2 ] || {
		echo "FAIL: $name through a channel has a verified row for each size"
		failed=1
	}
done
holds "$json" '"trigger": *"channel"' "JSON says which rows are a channel's"
[ "$(grep -c ' verified$' "$out")" = 8 ] || { echo "FAIL: host ranks have other rows of channels"; failed=1; }
if grep -q "us_call" "$json"; then
	echo "FAIL: host ranks, which make calls themselves, have a thread's time of a call"
	failed=1
fi
fits "rows of a channel"
expect 0 "a channel of threads" $run --one-process -g 2 -t channel -b 4K -c 0
[ "$(grep -cE " +ours +channel .* unchecked$" "$out")" = 4 ] || {
	echo "FAIL: rows of a channel that is not checked"
	failed=1
}
expect 1 "a channel between nodes" $run -g 2 --nodes 2 -t channel
holds "$out" "channel: left out, channels are for ranks of one node" "why there are no rows"
expect 0 "marks of single blocks" $run -g 3 -t all_gather,all_to_all -b 64K --mark-group 64K -J "$json"
holds "$json" '"mark_group_bytes": *65536' "JSON says how much shares marks"
expect 2 "a group of no size" --mark-group 64Q
expect 0 "more targets" $run -g 3 -t all_gather,all_to_all -b 64K --targets 3 -J "$json"
holds "$json" '"n_targets": *3' "JSON says with how many targets launches take turns"
expect 2 "too few targets" --targets 1
expect 2 "too many targets" --targets 9
# Ranks that act as nodes: over UCX, where it is installed.
expect 2 "more nodes than ranks" $run -g 2 --nodes 3 -t p2p
expect 2 "nodes within one process" $run -g 2 --nodes 2 --one-process -t p2p
if "$bench" $run -g 2 --nodes 2 -t mark > "$out" 2>&1 ||
	! grep -q "this machine cannot reach others" "$out"; then
	CEOVERLAP_TRANSPORTS=tcp expect 0 "ranks of two nodes" $run -g 3 --nodes 2 \
		-t p2p,p2p_2d,mark,engine -b 64K -e 256K -J "$json"
	for name in p2p p2p_2d mark; do
		holds "$out" "^$name .*ours .*nodes .* verified" "$name over nodes is verified"
	done
	holds "$out" "engine: left out" "what runs within a node is left out"
	holds "$json" '"cpu_s_per_gib"' "processor time of transfers between nodes"
	expect 0 "launches that name their sources" $run -g 2 --nodes 2 --named -t p2p -b 5M
	holds "$out" "^p2p .*ours.* verified" "p2p with named sources has a verified row"
fi

expect 0 "help" --help
expect 0 "version" --version
holds "$out" "^ceoverlap [0-9]" "the version"
expect 0 "list" -l
expect 2 "an unknown case" -t nothing
expect 2 "a size that is none" -b 3Q
expect 2 "a size below the first" -b 1M -e 64K
expect 2 "an unknown trigger" --trigger magic
expect 1 "nothing to run" $run -g 1 -t all_gather
expect 1 "JSON that cannot be written" $run -g 2 -t p2p -b 64K -J /nonexistent/x.json

# Operators: results are compared with plain fp32 sums, also if ranks differ in numbers of rows.
expect 0 "operators" overlap $run -g 3 --tokens 100 -b 96K -J "$json"
for name in ag_gemm gemm_rs gemm_ar reduce_scatter all_reduce gemm_a2a a2a_gemm all_gather \
	all_to_all embedding_a2a ep_dispatch ep_combine; do
	holds "$out" "^$name .* stream .* verified" "$name has a verified row"
done
fits "rows of operators"
if grep -q 'WRONG\|unchecked' "$out"; then
	echo "FAIL: rows of operators that are not verified"
	failed=1
fi
for key in schema_version provenance command samples seed machine rows operator launch \
	ranks model m n k bytes_per_rank methods ours us_median us_min us_p99 thread_us \
	process_percent verified same_bits error tolerance top_k dropped_percent gb_per_s; do
	holds "$json" "\"$key\"" "JSON of operators has $key"
done
if command -v python3 > /dev/null; then
	python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$json" || failed=1
fi
expect 0 "operators, ranks as threads" overlap $run --one-process -g 2 -m tiny \
	-t ag_gemm,gemm_rs --tokens 64,130 --pieces 2 --mode overlap --explain
for cut in equal waves shrinking growing; do
	expect 0 "products cut into $cut pieces" overlap $run -g 2 -m tiny --tokens 512 --cut $cut \
		-t ag_gemm,gemm_rs,gemm_ar,gemm_a2a,a2a_gemm --pieces 3 --op-chunk 4K --explain \
		--mode overlap -J "$json"
	holds "$out" "^gemm_rs .* stream .* verified" "a product cut into $cut pieces is verified"
	holds "$out" "chunks: at most 4096 bytes (as given)" "the explanation says the chunk"
	[ $cut = equal ] || holds "$out" "^cut: $cut (as given), rows [0-9 ]*\$" "it says the rows"
	holds "$json" "\"cut\": *\"$cut\"" "JSON says the cut"
	holds "$out" "^gemm_rs .* overlap/3/32x32  *verified" "the row says what was chosen"
	sed -n '/"chosen": *{/,/}/p' "$json" > "$json.chosen"
	holds "$json.chosen" "\"cut\": *\"$cut\"" "JSON says the chosen cut"
	holds "$json.chosen" '"pieces": *3' "JSON says the chosen pieces"
	holds "$json.chosen" '"tile_columns": *32' "JSON says the chosen tiles"
	holds "$json.chosen" '"chunk_bytes": *4096' "JSON says the chosen chunk"
	holds "$json" '"op_chunk_bytes": *4096' "JSON says the chunk"
done
expect 0 "pieces of columns" overlap $run -g 2 -m tiny --tokens 64 --cut columns \
	-t gemm_rs,gemm_ar --pieces 3 --explain --mode overlap -J "$json"
for name in gemm_rs gemm_ar; do
	holds "$out" "^$name .* stream .* verified" "$name with pieces of columns is verified"
done
holds "$out" "^cut: columns (as given), all rows, columns [0-9 ]*\$" "it says the columns"
holds "$json" '"cut": *"columns"' "JSON says that columns are cut"
expect 1 "rows that are gathered, cut by columns" overlap $run -g 2 -m tiny --tokens 64 \
	-t ag_gemm --cut columns
expect 1 "a sum cut unequally" overlap $run -g 2 -t all_reduce -b 64K --cut growing
expect 2 "an unknown cut" overlap --cut tapered
expect 0 "an order of tiles" overlap $run --one-process -g 3 -m tiny \
	-t ag_gemm,gemm_rs,gemm_ar,gemm_a2a,a2a_gemm --tokens 130 --pieces 3 --mode overlap \
	--order turns --band 64 --gemm-blocks 8 --explain -J "$json"
holds "$out" "order: all ranks' first pieces" "the order that is asked for"
holds "$out" "SMs of the product: at most 8" "the budget of SMs"
holds "$json" '"order": *"turns"' "JSON of the order"
holds "$json" '"band_rows": *64' "JSON of bands"
holds "$json" '"gemm_blocks": *8' "JSON of the budget"
if grep -q 'WRONG\|unchecked' "$out"; then
	echo "FAIL: rows with an order are not verified"
	failed=1
fi
expect 0 "tiles column by column" overlap $run -g 2 -m tiny -t gemm_rs --tokens 130 \
	--order columns
expect 2 "an unknown order" overlap --order rows
expect 2 "one SM" overlap --gemm-blocks 1
expect 0 "operators, B as k x n" overlap $run -g 2 -m tiny -t ag_gemm,gemm_rs \
	--tokens 130 --kn --explain
holds "$out" "B is k x n" "how B lies"
expect 0 "shapes that are given" overlap $run -g 3 -t gemm_a2a,a2a_gemm,gemm_rs \
	--shape 50,64,72 --shape 96,40,8 --kn --explain
holds "$out" "^a2a_gemm .* stream .* verified" "a given shape is verified"
holds "$out" "divided: rows" "how blocks are divided"
expect 0 "a product of one row" overlap $run -g 3 -t gemm_ar --shape 1,264,72 --explain
holds "$out" "^gemm_ar SM .* stream .* verified" "one row is verified"
holds "$out" "moved by: SMs" "few rows are summed by SMs"
expect 0 "few rows by copy engines" overlap $run -g 3 -t gemm_ar --shape 1,264,72 --explain \
	--mode overlap
holds "$out" "divided: columns" "few rows are not divided"
expect 0 "embeddings" overlap $run -g 3 -t embedding_a2a --shape 50,24,8 --pieces 2
holds "$out" "^embedding_a2a .* stream .* verified" "an embedding is verified"
expect 0 "experts" overlap $run -g 4 -t ep_a2a,gemm_rs --shape 200,136,16,5,30 --shape 9,8,4,4,0
for name in ep_dispatch ep_combine; do
	holds "$out" "^$name  *shape/5-30%  *200  *136  *16 .* verified\$" "$name, dropped"
	holds "$out" "^#.* GB/s [0-9]" "$name says its rate"
	holds "$out" "^$name  *shape/4-0%  *9  *8  *4 .* verified" "$name to all experts"
done
if grep -q '^gemm_rs\|WRONG\|unchecked' "$out"; then
	echo "FAIL: rows of operators that the shapes are not for, or that are not verified"
	failed=1
fi
expect 0 "experts, all choices dropped" overlap $run --one-process -g 2 -t ep_a2a \
	--shape 20,16,4,2,100
[ "$(grep -c ' verified$' "$out")" = 2 ] || { echo "FAIL: no rows of no choices"; failed=1; }
expect 1 "experts that ranks cannot share" overlap $run -g 3 -t ep_a2a --shape 20,16,8,2,0
expect 2 "a shape that is none" overlap --shape 64,12,8
for shape in 64,16,8,2 64,16,8,9,0 64,16,8,2,101 64,12,8,2,0 64,16,8,0,0 "64,16,8,2,0," \
		"64,16,8,"; do
	expect 2 "a shape $shape" overlap --shape "$shape"
done
# Of a table: only its operators run; K is shared out where the table says so.
expect 0 "a table" overlap $run -g 3 --table tiny -J "$json"
for name in gemm_rs gemm_ar; do
	holds "$out" "^$name\( SM\)\?  *tiny  *50  *64  *24 .* verified" "$name has a rank's share of K"
	holds "$out" "^$name\( SM\)\?  *tiny  *3  *24  *40 .* verified" "$name has a share in steps of 8"
done
holds "$out" "^gemm_a2a  *tiny  *50  *64  *72 .* verified" "gemm_a2a has all of K"
for name in ep_dispatch ep_combine; do
	holds "$out" "^$name  *tiny/3-30%  *24  *64  *12 .* verified" "$name of a table"
done
holds "$json" '"table_shape": *"24,64,12,3,30"' "JSON names experts as the table does"
holds "$json" '"table_shape": *"3,24,136"' "JSON names the shape as the table does"
holds "$json" '"table": *"tiny"' "JSON names the table"
if grep -q '^ag_gemm\|^all_reduce\|^a2a_gemm\|WRONG\|unchecked' "$out"; then
	echo "FAIL: rows of operators that the table is not for, or that are not verified"
	failed=1
fi
expect 0 "a table and a shape" overlap $run -g 2 -t gemm_rs,ag_gemm --table tiny --shape 8,16,24
[ "$(grep -c ' verified' "$out")" = 4 ] || { echo "FAIL: not 3 + 1 rows"; failed=1; }
expect 1 "a table for other operators" overlap $run -g 2 -t ag_gemm --table rs
holds "$out" "nothing ran" "no row is said to be of a table that has none"
expect 2 "an unknown table" overlap --table rs,none
expect 2 "no table" overlap --table ""
expect 0 "operators, in sequence" overlap $run -g 2 --tokens 96 -b 64K --mode sequence
expect 0 "operators by SMs" overlap $run -g 3 -b 1K -e 64K --mode direct --explain -J "$json" \
	-t reduce_scatter,all_reduce,all_gather,all_to_all
for name in reduce_scatter all_reduce all_gather all_to_all; do
	holds "$out" "^$name  *SM bytes:  *1024 .* verified" "$name says that SMs moved 1 KiB"
done
holds "$out" "moved by: SMs" "the explanation says it, too"
holds "$json" '"moved_by": *"SM"' "JSON says it, too"
expect 0 "an all-reduce in two steps" overlap $run -g 4 -b 2M --mode two-shot -t all_reduce \
	--reduce-blocks 7
holds "$out" "^all_reduce .* two-shot/1/7sm  *verified" "the row says how many SMs"
holds "$out" "^all_reduce  *SM bytes: .* verified" "two steps are verified"
expect 1 "a product in a direct mode" overlap $run -g 2 -m tiny -t ag_gemm --mode direct
expect 0 "help of operators" overlap --help
expect 0 "list of operators" overlap -l
holds "$out" "^llama70b .*8192" "the list has the models"
holds "$out" "^mistral7b .*4096, ffn 14336" "the list has Mistral's"
for shape in 4096,4096,12288 8192,8192,29568 32,5120,25600 28000,7168,4096 16384,8192,16384 \
	2048,8192,2048 512,8192,4096 2560,8192,4096 8192,16384,8192 4096,8192,4096 \
	8192,7168,256,8,30 4096,6144,256,6,0; do
	holds "$out" "^  *$shape\$" "the list has the tables' $shape"
done
expect 2 "an unknown operator" overlap -t p2p
expect 2 "an unknown model" overlap -m nothing
expect 2 "tokens that are none" overlap --tokens 12,
expect 2 "a tile that is none" overlap --tile 128
expect 2 "an unknown mode" overlap --mode magic

CEOVERLAP_HOST_COPY_FAIL_AT=2 expect 1 "a copy that fails" $run -g 2 -t p2p -b 64K
holds "$out" "fault script" "the failure is named"
CEOVERLAP_HOST_COPY_LOSE_AT=3 expect 1 "a copy that never ends" --host -n 3 -w 1 -T 3 \
	-g 2 -t p2p -b 64K
}
exit "$failed"
