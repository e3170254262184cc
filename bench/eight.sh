#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# One run over all GPUs of a machine: builds, tests and measures, the most valuable first, each
# step under a limit of its own, and writes a summary.
#
#   bench/eight.sh [--half=1|2] [--out=FOLDER] [--build=FOLDER] [--ranks=N] [--dry-run]
#
#   --half=1      links, collectives, the two first operators with their peers, copies
#   --half=2      the examples in PyTorch, the sweep with its pictures, relays, sums, further
#                 operators, suites on GPUs, PyTorch's tests. Without --half both, one after the
#                 other. A half takes at most 270 s and the build: what does not begin by then is
#                 left out. A bench that ends by its limit leaves the rows that it had
#   --out=FOLDER  for results (default: ./eight-results): a JSON file and a log for each step,
#                 steps.tsv (name, exit status, seconds, limit), and summary.md, which
#                 eight_summary.py writes from the JSON files alone
#   --build=FOLDER  a build that exists, or where one is made (default: ./build)
#   --ranks=N     ranks (default: one per GPU; 2 where there is one GPU, which they share, so that
#                 times say nothing of GPUs of their own)
#   --dry-run     print the steps and do nothing
#
# Exit status: 0 when each step that began has succeeded, 1 when one has failed or run out of its
# time, 2 on unusable arguments.
set -u

here=$(cd "$(dirname "$0")" && pwd)
top=$(dirname "$here")
half=
out=$PWD/eight-results
build=$PWD/build
ranks=
is_dry=0
for argument in "$@"; do
	case $argument in
	--half=[12]) half=${argument#*=} ;;
	--out=?*)    out=$(realpath -m "${argument#*=}") ;;
	--build=?*)  build=$(realpath -m "${argument#*=}") ;;
	--ranks=[1-9]*) ranks=${argument#*=} ;;
	--dry-run)   is_dry=1 ;;
	--help)      sed -n '5,/^set /{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;;
	*)           echo "eight.sh: unusable argument '$argument'; --help lists them" >&2; exit 2 ;;
	esac
done

n_gpus=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU')
if [ "$n_gpus" = 0 ] && [ "$is_dry" = 0 ]; then
	echo "eight.sh: nvidia-smi lists no GPU" >&2
	exit 1
fi
[ -n "$ranks" ] || ranks=$((n_gpus > 1 ? n_gpus : 2))
n_failed=0
half_seconds=270
least_seconds=20                # a bench's ranks take up to 11 s to begin on 8 GPUs
python=${PYTHON:-python3}
suites=(transfer queue routes litmus reduce)

# step NAME SECONDS COMMAND...: runs the command in the build folder. An argument OWN_LIMIT becomes
# the seconds that the command may give itself: when they are over, ceoverlap-bench needs up to 5
# more until ranks that still wait are ended and its rows are written.
step() {
	local name=$1 limit=$2 begin=$SECONDS left=$((end - SECONDS)) status
	shift 2
	[ "$left" -lt "$limit" ] && [ "$left" -ge $((limit / 3)) ] && limit=$left
	set -- "${@/%OWN_LIMIT/$((limit > 8 ? limit - 7 : 1))}"
	if [ "$is_dry" = 1 ]; then
		echo "$name ($limit s): $*"
		return
	fi
	rm -f "$out/$name.json"         # of an earlier run
	if [ "$left" -lt $((limit / 3)) ] || [ "$left" -lt "$least_seconds" ]; then
		printf '%s\t75\t0\t%s\n' "$name" "$limit" >> "$out/steps.tsv"
		echo "$name: left out: the half's time is over"
		return
	fi
	timeout -k 5 "$limit" "$@" > "$out/$name.log" 2>&1 < /dev/null
	status=$?
	printf '%s\t%s\t%s\t%s\n' "$name" "$status" $((SECONDS - begin)) "$limit" \
		>> "$out/steps.tsv"
	echo "$name: exit status $status after $((SECONDS - begin)) s"
	[ "$status" = 0 ] || [ "$status" = 77 ] || n_failed=$((n_failed + 1))
}

bench() {
	local name=$1 limit=$2
	shift 2
	step "$name" "$limit" ./ceoverlap-bench "$@" -g "$ranks" -T OWN_LIMIT -J "$out/$name.json"
}

# In a shell of its own, since it changes the folder.
make_build() (
	[ -e "$top/configure" ] || (cd "$top" && autoreconf -fi) || return 1
	mkdir -p "$build" && cd "$build" || return 1
	[ -e Makefile ] || "$top/configure" || return 1
	make -j"$(nproc)" || return 1
	[ "$half" = 1 ] || make -j"$(nproc)" "${suites[@]/#/tests/gpu/test_gpu_}"
)

# PyTorch's ways need a GPU for each rank.
with_torch() {
	local name=$1 limit=$2
	shift 2
	if [ "$n_gpus" -lt 2 ] && [ "$is_dry" = 0 ]; then
		printf '%s\t77\t0\t%s\n' "$name" "$limit" >> "$out/steps.tsv"
		echo "$name: left out: it needs two GPUs"
		return
	fi
	step "$name" "$limit" env CEOVERLAP_LIBRARY="$build/.libs/libceoverlap.so" \
		PYTHONPATH="$top/python" PYTHONDONTWRITEBYTECODE=1 \
		"$python" -m torch.distributed.run --standalone --nproc-per-node "$ranks" "$@"
}

# One call for all models and sizes where that can be: on 8 GPUs a call of ceoverlap-bench took 11 s
# whose samples take less than one.
first_half() {
	local models=llama70b,llama7b,llama8b,qwen72b,gpt3 operator
	local peers=("$here/peers/overlap.py" --lib "$build/.libs/libceoverlap.so" --samples 10)

	bench moves 60 -t all_gather,all_to_all,doorbell -b 1M -e 256M -n 10
	for operator in ag_gemm gemm_rs; do
		bench "$operator" 90 overlap -t "$operator" -m "$models" \
			--tokens 2048,8192,16384 -n 10
	done
	step measure 40 ./ceoverlap-bench measure --quick --no-store -T OWN_LIMIT \
		-J "$out/measure.json"
	with_torch peers 75 "${peers[@]}" --models llama70b --tokens 8192,16384 \
		--json "$out/peers.json"
	with_torch peers-others 100 "${peers[@]}" --models llama7b,llama8b,qwen72b,gpt3 \
		--tokens 8192 --json "$out/peers-others.json"
	# The number of pairs grows with the square of that of GPUs.
	bench moves-pairs 40 -t p2p -b 1M -e 256M -f 16 -n 10
}

second_half() {
	local parts=() suite

	# Each way has a model of 2.2 G parameters, so two GPUs have no room for five ways.
	[ "$ranks" -lt 4 ] || parts=(--parts)
	with_torch fsdp 55 "$top/examples/torch_fsdp.py" "${parts[@]}" --steps 12 \
		--json "$out/fsdp.json"
	# torch.compile takes most of this, and more with every rank
	with_torch tp-mlp 80 "$top/examples/torch_tp_mlp.py" --json "$out/tp-mlp.json"
	step sweep 50 ./ceoverlap-bench sweep --quick -g "$ranks" -T OWN_LIMIT \
		-t pairs,host,all_gather,all_to_all,random -J "$out/sweep.json" \
		--html="$out/sweep.html"
	step relays 45 ./ceoverlap-bench sweep -t host -b 1G -e 1G --in-flight 1 -n 3 -w 1 \
		-g "$ranks" -T OWN_LIMIT -J "$out/relays.json"
	bench sums 30 overlap -t all_reduce,reduce_scatter -b 4M -e 256M -n 10
	bench small 40 overlap -t all_reduce,reduce_scatter,all_gather,all_to_all -b 1K -e 1M -f 4 \
		--graph --mode direct -n 10
	bench embedding 30 overlap -t embedding_a2a -n 10
	bench products-a2a 30 overlap -t gemm_a2a,a2a_gemm --shape 4096,8192,8192 \
		--shape 8192,8192,8192 -n 10
	bench products-ar 30 overlap -t gemm_ar --table ar --shape 4096,7168,4096 -n 10
	bench sums-by-sms 25 overlap -t all_reduce -b 4M -e 256M --mode two-shot \
		--reduce-blocks 16 -n 10
	bench scatter-by-sms 25 overlap -t reduce_scatter -b 4M -e 256M --mode direct \
		--reduce-blocks 16 -n 10
	for suite in "${suites[@]}"; do
		step "suite-$suite" 30 env srcdir="$top" \
			bash "$top/tests/run_test.sh" "tests/gpu/test_gpu_$suite"
	done
	step torch 150 make check-gpu-torch
}

if [ "$is_dry" = 0 ]; then
	mkdir -p "$out" || exit 1
	if ! make_build > "$out/build.log" 2>&1; then
		echo "eight.sh: the build has failed; $out/build.log says why" >&2
		exit 1
	fi
	cd "$build" || exit 1
	# of an earlier run; the other half of this one stays
	for name in $("$here/eight.sh" --dry-run ${half:+"--half=$half"} | sed 's/ (.*//'); do
		[ ! -e "$out/steps.tsv" ] || sed -i "/^$name\t/d" "$out/steps.tsv"
	done
	nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader \
		> "$out/gpus.txt"
fi
end=$((SECONDS + half_seconds))
[ "$half" = 2 ] || first_half
end=$((SECONDS + half_seconds))
[ "$half" = 1 ] || second_half
if [ "$is_dry" = 0 ]; then
	"$python" -B "$here/eight_summary.py" "$out" > "$out/summary.md" || n_failed=$((n_failed + 1))
	echo "$out/summary.md"
fi
[ "$n_failed" = 0 ]
