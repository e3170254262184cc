/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* All kernels of the library in one file, because nvcc -fatbin takes one file. */

#include "kernels/fill_kernels.cu"
#include "kernels/begin_kernels.cu"
#include "kernels/reduce_kernels.cu"
#include "kernels/sm_lane_kernels.cu"
#include "kernels/channel_packets_kernels.cu"
#include "kernels/channel_steps_kernels.cu"
#include "kernels/direct_kernels.cu"
#include "kernels/direct_steps_kernels.cu"
#include "kernels/direct_ll_kernels.cu"
#include "kernels/gemm_kernels.cu"
#include "kernels/experts_kernels.cu"
#include "kernels/embedding_kernels.cu"
#include "kernels/rows_kernels.cu"
