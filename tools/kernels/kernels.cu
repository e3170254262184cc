/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The kernels of tools and tests as one unit: nvcc -fatbin takes one file. */

#include "kernels/fill_kernels.cu"
#include "tools/kernels/raise_kernels.cu"
#include "tools/kernels/work_kernels.cu"
