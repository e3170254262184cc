/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_ORDER_CUDA_H
#define CEI_ORDER_CUDA_H

/*
 * The order of runs on streams of one GPU: each run follows the one before it, whatever their
 * streams. Several orders whose runs follow each other have a leader, which is one of them; the
 * caller sees to it that only one of them is used at a time.
 */

#include <stdint.h>

#include "base/cuda_table.h"

struct cei_gpu_order {
	struct cei_cuda      *cuda;             /* NULL: the order is not open */
	uint32_t              gpu;
	uint32_t              rank;             /* for messages, as the next */
	const char           *whose;            /* ends "runs of": "this channel" */
	CUevent               mark;             /* recorded at the end of the order's own last run
						 * outside of graphs */
	unsigned long long    mark_on;          /* the id of the stream on which it was recorded;
						 * 0: not known */
	struct cei_gpu_order *leader;           /* itself, or the order that holds, for both, the
						 * fields below */
	struct cei_gpu_order *last;             /* made the last run outside of graphs, behind
						 * which is its `mark`; NULL: there was none */
	CUevent               captured;         /* behind the last captured run; NULL, as the next:
						 * none was captured yet */
	CUstream              inside;           /* a part of the capture in which `captured` was
						 * recorded, while that goes on */
	CUstream              captured_on;      /* the last captured run's stream */
	CUstream              followed_on;      /* the stream of the order's own run under way,
						 * between follow and mark; NULL: there is none, or
						 * it is the legacy default stream */
	unsigned long long    followed_id;      /* that stream's id; 0: not known, or captured */
	int                   is_captured;      /* 1: that stream is in a capture */
};

/* The GPU's context must be current for all of these. Before open an order is all zeros but for
 * `leader`: NULL, or the `leader` of an open order, which then closes after this one. close is
 * called once, when the order's runs have ended; also after open failed or was not called. */
int  cei_gpu_order_open(struct cei_gpu_order *order, struct cei_cuda *cuda, uint32_t gpu,
			uint32_t rank, const char *whose);
void cei_gpu_order_close(struct cei_gpu_order *order);

/* Called before and after a run is queued on the stream: the functions follow_mark and mark_stream
 * of struct cei_executor_ops. */
int  cei_gpu_order_follow(struct cei_gpu_order *order, CUstream stream);
int  cei_gpu_order_mark(struct cei_gpu_order *order, CUstream stream);

#endif /* CEI_ORDER_CUDA_H */
