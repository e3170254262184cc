#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Runs the kernel of sums in steps (src/kernels/direct_steps_kernels.cu) on the host, by
# steps.cc: its source, with instructions of the GPU replaced, and with fewer threads and
# smaller chunks. CEOVERLAP_TEST_CASES cases, 60 by default. Needs a C++ compiler.
set -u

srcdir=${srcdir:-.}
CXX=${CXX:-c++}
read -ra cxx <<< "$CXX"
if ! command -v "${cxx[0]}" > /dev/null; then
	echo "skipped: there is no C++ compiler"
	exit 77
fi
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/kernels" "$folder/ceoverlap"

# steps.cc defines what these hold.
touch "$folder/kernels/bulk.cuh" "$folder/kernels/vectors.cuh" "$folder/ceoverlap/device.cuh"

cp "$srcdir/src/kernels/marks.cuh" "$folder/kernels"
sed -e 's/^\(#define CEI_DIRECT_STEP_ADDERS *\).*/\12u/' \
	-e 's/^\(#define CEI_DIRECT_CHUNK *\).*/\12048u/' \
	"$srcdir/src/kernels/direct.h" > "$folder/kernels/direct.h"
for name in direct.cuh direct_steps.cuh direct_steps_kernels.cu; do
	sed -e '/asm volatile("fence.acq_rel.sys;"/d' \
		-e 's/asm volatile("st.relaxed.sys.u64.*;$/host_store(counter, value);/' \
		-e 's/asm volatile("ld.relaxed.sys.u64.*;$/value = host_load(counter);/' \
		-e '/asm volatile("atom.acq_rel.gpu.inc/,/;$/c\
			n_before = host_count(direct.n_ended, last);' \
		-e 's/extern __shared__ .* shared\[\];/char *shared = host_shared();/' \
		"$srcdir/src/kernels/$name" > "$folder/kernels/$name"
	if grep -n 'asm\|__shared__' "$folder/kernels/$name"; then
		echo "FAIL: $name: the line above cannot run on the host; teach $0 how"
		exit 1
	fi
done

if ! "${cxx[@]}" -std=c++17 -O1 -w -I"$folder" -I"$srcdir/include" -Iinclude \
	-o "$folder/steps" "$srcdir/tests/product/steps.cc"; then
	echo "FAIL: the kernel does not compile for the host"
	exit 1
fi
seed=${CEOVERLAP_TEST_SEED:-$(date +%s%N)}
echo "seed $seed (CEOVERLAP_TEST_SEED repeats it)"
timeout 300 "$folder/steps" "$seed" "${CEOVERLAP_TEST_CASES:-60}"
