#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Runs each fuzzer of this folder for a while, in a build folder, where version.h is:
#
#   run.sh [SECONDS]       of each fuzzer; default 60
#
# fuzz_NAME.c is a harness of libFuzzer. It is built with clang (CLANG names another one) and its
# address and undefined-behaviour sanitizers; and with AFL++ for as long again, where that is
# installed. It begins with what make_corpus.c writes, and with the inputs in corpus/fuzz_NAME.txt,
# one a line in hexadecimal, which were found to reach code that others do not, or failed once. An
# input that fails is kept in fuzz-failures/, and said. The last line counts fuzzers: "N passed, N
# failed, N skipped". 77: all were skipped, since clang or its fuzzer is missing. From the
# environment:
#
#   FUZZ_WITH=libfuzzer    leaves AFL++ out
#   FUZZ_RESULTS=FOLDER    leaves a .log and a .trs there for each, as tests/count_cases.sh reads
#   FUZZ_PATIENCE=SECONDS  an input that takes longer fails; default 10
#   FUZZ_KEEP=1            adds to corpus/ what libFuzzer has found
#   CEOVERLAP_TEST_SEED=N  has libFuzzer draw from this seed, of which it takes 32 bits
set -u

seconds=${1:-60}
here=$(cd "$(dirname "$0")" && pwd) || exit 99
top=$(cd "$here/../.." && pwd) || exit 99
build=$PWD
clang=${CLANG:-clang}
harnesses=(fuzz_messages fuzz_service_ring fuzz_program_wire)
sources=("$top"/tests/made_message.c "$top"/src/base/codec.c "$top"/src/ipc/wire.c
	"$top"/src/ipc/share.c "$here"/no_memory.c
	"$top"/src/ipc/service_wire.c "$top"/src/ipc/group/messages.c "$top"/src/net/store_wire.c
	"$top"/src/net/gathered.c "$top"/src/net/record.c
	"$top"/src/net/far_wire.c "$top"/src/ipc/service_ring.c
	"$top"/src/base/clock.c "$top"/src/base/write.c
	"$top"/src/base/report.c "$top"/src/base/repeats.c
	"$top"/src/ce_engine/program/program_wire.c "$top"/src/ce_engine/program/program.c)
options=(-std=gnu11 -pthread -g -O1 -D_GNU_SOURCE "-I$build" "-I$build/include" "-I$top/include"
	"-I$top/src" "-I$top")
checks=-fsanitize=address,undefined
patience=${FUZZ_PATIENCE:-10}
passed=0
failed=0
skipped=0

case $seconds in
*[!0-9]* | "" | 0) echo "run.sh: $seconds is no number of seconds" >&2; exit 2 ;;
esac
if ! [ -f "$build/include/ceoverlap/version.h" ]; then
	echo "run.sh: $build is no build folder: run configure there" >&2
	exit 2
fi
folder=$(mktemp -d "${TMPDIR:-/tmp}/ceov-fuzz.XXXXXX") || exit 99
trap 'rm -rf "$folder"' EXIT

# Whether the compiler links a fuzzer.
has_fuzzer() {
	echo 'int LLVMFuzzerTestOneInput(const unsigned char *b, unsigned long n);
		int LLVMFuzzerTestOneInput(const unsigned char *b, unsigned long n)
		{ return b && n == 99; }' > "$folder/empty.c"
	command -v "$1" > /dev/null &&
		"$1" -fsanitize=fuzzer,address -o "$folder/empty" "$folder/empty.c" \
			> "$folder/empty.log" 2>&1
}

# build_with COMPILER SUFFIX FLAG...: one program for each harness.
build_with() {
	local compiler=$1 suffix=$2 harness
	shift 2
	for harness in "${harnesses[@]}"; do
		"$compiler" "${options[@]}" "$@" -o "$folder/$harness.$suffix" \
			"$here/$harness.c" "${sources[@]}" > "$folder/build.log" 2>&1 && continue
		cat "$folder/build.log"
		echo "run.sh: $compiler does not build $harness" >&2
		leave FAIL "$harness" "$compiler does not build it"
		exit 1
	done
}

# leave RESULT NAME TEXT: for those who count cases.
leave() {
	[ -n "${FUZZ_RESULTS:-}" ] || return 0
	mkdir -p "$FUZZ_RESULTS" &&
		echo ":global-test-result: $1" > "$FUZZ_RESULTS/${2// /_}.trs" &&
		echo "$1: $3" > "$FUZZ_RESULTS/${2// /_}.log"
}

# fails NAME FILE...: keeps inputs and says how to repeat them.
fails() {
	local name=$1 text
	shift
	mkdir -p "$build/fuzz-failures"
	text="$name: $# inputs, in $build/fuzz-failures"
	echo "FAIL: $text"
	leave FAIL "$name" "$text"
	[ $# = 0 ] || cp "$@" "$build/fuzz-failures"
	failed=$((failed + 1))
}

passes() {
	echo "PASS: $1: $2 inputs in $seconds s"
	leave PASS "$1" "$2 inputs in $seconds s"
	passed=$((passed + 1))
}

# unpack NAME: writes the inputs that are kept in the tree to the harness's corpus.
unpack() {
	local text=$here/corpus/$1.txt line n=0

	[ -f "$text" ] || return 0
	while read -r line; do
		case $line in "#"* | "") continue ;; esac
		n=$((n + 1))
		# shellcheck disable=SC2001,SC2059  # the format is the bytes
		printf "$(sed 's/../\\x&/g' <<< "$line")" > "$folder/corpus/$1/kept$n"
	done < "$text"
}

# keep NAME: replaces the inputs in the tree by themselves and what else reaches new code. Long ones
# are left out, since people are to see what changes.
keep() {
	local merged=$folder/merged.$1 text=$here/corpus/$1.txt path

	mkdir -p "$merged" "$here/corpus"
	"$folder/$1.clang" -merge=1 -max_len=1024 "$merged" "$folder/corpus/$1" "$folder/new.$1" \
		> "$folder/merge.log" 2>&1 || { cat "$folder/merge.log"; return 1; }
	{
		# REUSE-IgnoreStart
		echo "# SPDX-License-Identifier: BSD-3-Clause"
		# REUSE-IgnoreEnd
		echo "# Copyright (c) The ceoverlap developers"
		echo "#"
		echo "# Inputs of $1.c, one a line in hexadecimal; FUZZ_KEEP=1 run.sh adds to them."
		for path in "$merged"/*; do
			od -An -v -tx1 "$path" | tr -d ' \n'
			echo
		done | LC_ALL=C sort -u
	} > "$text"
	echo "kept: $(grep -vc '^#' "$text") inputs of $1"
}

# Told not to stop before its time: one that does has failed.
run_libfuzzer() {
	local name=$1 log=$folder/$1.log inputs
	mkdir -p "$folder/new.$name" "$folder/found.$name"
	if "$folder/$name.clang" -max_total_time="$seconds" -max_len=17000 -timeout="$patience" \
		-seed=$((${CEOVERLAP_TEST_SEED:-0} & 0xffffffff)) -rss_limit_mb=2048 -artifact_prefix="$folder/found.$name/" -print_final_stats=1 \
		"$folder/new.$name" "$folder/corpus/$name" > "$log" 2>&1; then
		passes "$name" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
		[ -z "${FUZZ_KEEP:-}" ] || keep "$name" || exit 1
		return
	fi
	tail -n 40 "$log"
	mapfile -t inputs < <(find "$folder/found.$name" -type f)
	fails "$name" "${inputs[@]}"
}

run_afl() {
	local name=$1 out=$folder/afl.$1 inputs
	# Settings of the machine are left as they are: they cost AFL++ speed alone.
	if ! AFL_NO_UI=1 AFL_SKIP_CPUFREQ=1 AFL_NO_AFFINITY=1 AFL_NO_COLOR=1 \
		AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES=1 \
		afl-fuzz -V "$seconds" -m none -i "$folder/corpus/$name" -o "$out" \
		-- "$folder/$name.afl" > "$folder/afl.log" 2>&1; then
		tail -n 20 "$folder/afl.log"
		fails "$name with AFL++"
		return
	fi
	mapfile -t inputs < <(find "$out" -path '*/crashes/id:*' -o -path '*/hangs/id:*')
	if [ ${#inputs[@]} != 0 ]; then
		fails "$name with AFL++" "${inputs[@]}"
		return
	fi
	passes "$name with AFL++" "$(sed -n 's/^execs_done *: *//p' "$out/default/fuzzer_stats")"
}

if ! has_fuzzer "$clang"; then
	echo "SKIP: $clang with -fsanitize=fuzzer is missing; on Debian install clang"
	for harness in "${harnesses[@]}"; do
		leave SKIP "$harness" "$clang with -fsanitize=fuzzer is missing"
	done
	echo "0 passed, 0 failed, ${#harnesses[@]} skipped"
	exit 77
fi
for harness in "${harnesses[@]}"; do
	mkdir -p "$folder/corpus/$harness"
	unpack "$harness"
done
if ! "$clang" "${options[@]}" -o "$folder/make_corpus" "$here/make_corpus.c" "${sources[@]}" ||
	! "$folder/make_corpus" "$folder/corpus"; then
	leave FAIL make_corpus "it is not built, or fails"
	exit 1
fi
build_with "$clang" clang "$checks,fuzzer" -fno-sanitize-recover=undefined
for harness in "${harnesses[@]}"; do
	run_libfuzzer "$harness"
done
if [ "${FUZZ_WITH:-}" = libfuzzer ]; then
	:
elif command -v afl-clang-fast > /dev/null && command -v afl-fuzz > /dev/null; then
	AFL_USE_ASAN=1 AFL_USE_UBSAN=1 build_with afl-clang-fast afl -fsanitize=fuzzer
	for harness in "${harnesses[@]}"; do
		run_afl "$harness"
	done
else
	echo "SKIP: AFL++ is not installed; on Debian it is afl++"
	skipped=$((skipped + ${#harnesses[@]}))
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
