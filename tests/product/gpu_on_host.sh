#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Runs kernels on the host: scripts source it from the build folder, with srcdir. Makes a folder,
# which goes away with the script, for the kernels' source with instructions of the GPU replaced by
# functions of gpu_on_host.h. Exits with 77 where there is no C++ compiler.

CXX=${CXX:-c++}
read -ra cxx <<< "$CXX"
if ! command -v "${cxx[0]}" > /dev/null; then
	echo "skipped: there is no C++ compiler"
	exit 77
fi
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/kernels" "$folder/ceoverlap"

# gpu_on_host.h defines what this holds.
touch "$folder/ceoverlap/device.cuh"
cp "${srcdir:?}/src/kernels/marks.cuh" "$folder/kernels"

# set_in NAME [ARGUMENT...]: takes a file of src/kernels, with numbers changed by sed.
set_in() {
	local name=$1

	shift
	sed -e '' "$@" "$srcdir/src/kernels/$name" > "$folder/kernels/$name" || exit 1
}

# replace_in NAME [ARGUMENT...]: takes a source of src/kernels with its instructions replaced, by
# sed with more arguments first.
replace_in() {
	local name=$1

	shift
	set_in "$name" "$@" -e '/asm volatile("fence.acq_rel.sys;"/d' \
		-e 's/asm volatile("st.relaxed.sys.u64.*;$/host_store(counter, value);/' \
		-e 's/asm volatile("ld.relaxed.sys.u64.*;$/value = host_load(counter);/' \
		-e '/asm volatile("atom.acq_rel.gpu.inc/,/;$/c\
			n_before = host_count(n_ended, last);' \
		-e 's/extern __shared__ .* shared\[\];/char *shared = host_shared();/'
	if grep -n 'asm *(\|asm volatile\|__shared__' "$folder/kernels/$name"; then
		echo "FAIL: $name: the line above cannot run on the host; teach $0 how"
		exit 1
	fi
}

replace_in vectors.cuh -e 's/asm("cvt.rn.bf16x2.*;$/pair = host_narrow(CEOV_BF16, low, high);/' \
	-e 's/asm("cvt.rn.f16x2.*;$/pair = host_narrow(CEOV_FP16, low, high);/' \
	-e '/asm("{.reg .f16/,/;$/c\
		host_widen(CEOV_FP16, pair, low, high);' \
	-e '/asm volatile("ld.global/,/;$/c\
		v = *p;'

# build_c FILE...: compiles C sources of src/ beside the test, with the headers that set_in made.
objects=()
build_c() {
	local file object

	for file; do
		object=$folder/$(basename "$file").o
		if ! "${cxx[@]}" -x c -std=gnu11 -O1 -w -I"$folder" -I"$srcdir/include" -Iinclude \
			-I"$srcdir/src" -I. -c -o "$object" "$file"; then
			echo "FAIL: $file does not compile"
			exit 1
		fi
		objects+=("$object")
	done
}
build_c "$srcdir/src/ops/compute/dtype.c"

# run_cases NAME CASES: compiles NAME.cc, and runs CASES cases or as many as CEOVERLAP_TEST_CASES
# says. Returns its exit status.
run_cases() {
	local seed

	if ! "${cxx[@]}" -std=c++17 -O1 -w -U_FORTIFY_SOURCE -I"$folder" \
		-I"$srcdir/include" -Iinclude -I"$srcdir/src" \
		-o "$folder/$1" "$srcdir/tests/product/$1.cc" "${objects[@]}"; then
		echo "FAIL: the kernel does not compile for the host"
		exit 1
	fi
	seed=${CEOVERLAP_TEST_SEED:-$(date +%s%N)}
	echo "seed $seed (CEOVERLAP_TEST_SEED repeats it)"
	timeout 300 "$folder/$1" "$seed" "${CEOVERLAP_TEST_CASES:-$2}"
}
