/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Includes all kernels of tools and tests, because nvcc -fatbin takes one file. */

#include "kernels/fill_kernels.cu"
#include "tools/kernels/raise_kernels.cu"
#include "tools/kernels/work_kernels.cu"
