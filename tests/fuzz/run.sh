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
# installed. An input that fails is kept in fuzz-failures/, and said. The last line counts fuzzers:
# "N passed, N failed, N skipped". 77: all were skipped, since clang or its fuzzer is missing.
set -u

seconds=${1:-60}
here=$(cd "$(dirname "$0")" && pwd) || exit 99
top=$(cd "$here/../.." && pwd) || exit 99
build=$PWD
clang=${CLANG:-clang}
harnesses=(fuzz_service_wire fuzz_service_ring)
sources=("$top"/src/ipc/service_wire.c "$top"/src/ipc/service_ring.c "$top"/src/base/cursor.c
	"$top"/src/base/clock.c "$top"/src/base/futex.c "$top"/src/base/write.c
	"$top"/src/base/report.c "$top"/src/base/repeats.c)
options=(-std=gnu11 -pthread -g -O1 -D_GNU_SOURCE "-I$build/include" "-I$top/include"
	"-I$top/src" "-I$top")
checks=-fsanitize=address,undefined
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
		exit 1
	done
}

# fails NAME FILE...: keeps inputs and says how to repeat them.
fails() {
	local name=$1
	shift
	mkdir -p "$build/fuzz-failures"
	echo "FAIL: $name: $# inputs, in $build/fuzz-failures"
	[ $# = 0 ] || cp "$@" "$build/fuzz-failures"
	failed=$((failed + 1))
}

passes() {
	echo "PASS: $1: $2 inputs in $seconds s"
	passed=$((passed + 1))
}

# Told not to stop before its time: one that does has failed.
run_libfuzzer() {
	local name=$1 log=$folder/$1.log inputs
	mkdir -p "$folder/new.$name" "$folder/found.$name"
	if "$folder/$name.clang" -max_total_time="$seconds" -max_len=17000 -timeout=10 \
		-rss_limit_mb=2048 -artifact_prefix="$folder/found.$name/" -print_final_stats=1 \
		"$folder/new.$name" "$folder/corpus/$name" > "$log" 2>&1; then
		passes "$name" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
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
	echo "0 passed, 0 failed, ${#harnesses[@]} skipped"
	exit 77
fi
mkdir -p "$folder/corpus/fuzz_service_wire" "$folder/corpus/fuzz_service_ring"
"$clang" "${options[@]}" -o "$folder/make_corpus" "$here/make_corpus.c" "${sources[@]}" &&
	"$folder/make_corpus" "$folder/corpus" || exit 1
build_with "$clang" clang "$checks,fuzzer" -fno-sanitize-recover=undefined
for harness in "${harnesses[@]}"; do
	run_libfuzzer "$harness"
done
if command -v afl-clang-fast > /dev/null && command -v afl-fuzz > /dev/null; then
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
