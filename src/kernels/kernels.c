/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The image of the library's kernels, and their names. */

#include "kernels/module.h"

extern const unsigned char cei_kernels_fatbin[]
	__attribute__((visibility("hidden")));          /* defined in kernels_fatbin.S */

static const char *const names[] = {
	"cei_fill",
	"cei_reduce_bf16",
	"cei_reduce_fp16",
	"cei_reduce_fp32",
	"cei_direct_bf16",
	"cei_direct_fp16",
	"cei_direct_fp32",
	"cei_direct_copy",
	"cei_direct_steps_bf16",
	"cei_direct_steps_fp16",
	"cei_direct_steps_fp32",
	"cei_direct_ll_copy",
	"cei_direct_ll_bf16",
	"cei_direct_ll_fp16",
	"cei_direct_ll_fp32",
	"cei_channel_packets_copy",
	"cei_channel_packets_bf16",
	"cei_channel_packets_fp16",
	"cei_channel_packets_fp32",
	"cei_channel_lines_copy",
	"cei_channel_lines_bf16",
	"cei_channel_lines_fp16",
	"cei_channel_lines_fp32",
	"cei_channel_steps_copy",
	"cei_channel_steps_bf16",
	"cei_channel_steps_fp16",
	"cei_channel_steps_fp32",
	"cei_channel_messages",
	"cei_op_begin",
	"cei_op_await",
	"cei_op_raise",
	"cei_sm_lane",
	"cei_copy_rows",
	"cei_gemm_bf16_128x256",
	"cei_gemm_bf16_128x192",
	"cei_gemm_bf16_128x128",
	"cei_gemm_fp16_128x256",
	"cei_gemm_fp16_128x192",
	"cei_gemm_fp16_128x128",
	"cei_gemm_bf16_128x256_kn",
	"cei_gemm_bf16_128x192_kn",
	"cei_gemm_bf16_128x128_kn",
	"cei_gemm_fp16_128x256_kn",
	"cei_gemm_fp16_128x192_kn",
	"cei_gemm_fp16_128x128_kn",
	"cei_experts_check",
	"cei_experts_place",
	"cei_experts_place_again",
	"cei_experts_pack",
	"cei_experts_receive",
	"cei_experts_sort",
	"cei_experts_give_back",
	"cei_experts_add_up_bf16",
	"cei_experts_add_up_fp16",
	"cei_experts_add_up_fp32",
	"cei_embedding_check",
	"cei_embedding_look_up_bf16",
	"cei_embedding_look_up_fp16",
	"cei_embedding_look_up_fp32",
	"cei_embedding_spread_bf16",
	"cei_embedding_spread_fp16",
	"cei_embedding_spread_fp32",
};

const struct cei_module_image cei_kernels = {
	cei_kernels_fatbin, names, sizeof(names) / sizeof(names[0])
};
