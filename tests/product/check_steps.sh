#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Runs the kernel of sums in steps (src/kernels/direct_steps_kernels.cu) on the host, by
# steps.cc, with fewer threads and smaller chunks. CEOVERLAP_TEST_CASES cases, 60 by default.
# Needs a C++ compiler.
set -u

srcdir=${srcdir:-.}
# shellcheck source=tests/product/gpu_on_host.sh
. "$srcdir/tests/product/gpu_on_host.sh"

touch "$folder/kernels/bulk.cuh"        # steps.cc defines what it holds
set_in direct.h -e 's/^\(#define CEI_DIRECT_STEP_ADDERS *\).*/\12u/' \
	-e 's/^\(#define CEI_DIRECT_CHUNK *\).*/\12048u/'
for name in direct.cuh direct_steps.cuh direct_steps_kernels.cu; do
	replace_in "$name"
done
run_cases steps 60
