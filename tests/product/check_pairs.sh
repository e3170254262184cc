#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Runs how clusters of the GEMM claim pairs of tiles (src/kernels/gemm_pairs.cuh) on the host, by
# pairs.cc, where fewer clusters can run than there are. CEOVERLAP_TEST_CASES cases, 150 by default.
# Needs a C++ compiler.
set -u

srcdir=${srcdir:-.}
# shellcheck source=tests/product/gpu_on_host.sh
. "$srcdir/tests/product/gpu_on_host.sh"

set_in gemm.h
touch "$folder/kernels/gemm_sm90.cuh"   # pairs.cc defines what it holds
replace_in gemm_pairs.cuh -e '/asm volatile("atom.relaxed.gpu.inc/,/;$/c\
			column = host_count(p.claimed, last);'
run_cases pairs 150
