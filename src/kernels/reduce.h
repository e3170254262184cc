/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_REDUCE_H
#define CEI_REDUCE_H

/*
 * The parameters of the sums of reduce-scatter and all-reduce. The host's executor computes the
 * same. This header is plain C.
 *
 *   For each piece of the own part, in order:
 *     await the piece from every other source; add the pieces of all sources in fp32, in the
 *     order of ranks from 0; multiply by scale; round and store in target; arrive at the
 *     piece's counter of ready
 *   In an all-reduce then, for each other rank (own - 1, own - 2, ..., the order of arrival),
 *   for each piece of its part:
 *     await the summed piece, and copy it from gathered to its place in target
 *
 * Piece p of a part of n elements has elements p * piece_elements up to (p + 1) * piece_elements,
 * cut off at n. Counts and pieces are multiples of 8 elements, and all addresses are multiples of
 * 16 bytes. Empty pieces are not sent: their counters are neither awaited nor raised.
 *
 * If an await fails, the block neither waits nor sums any more; a launch that finds *failed set by
 * an earlier launch waits only briefly (marks.cuh). If epoch is NULL, the block does not arrive any
 * more. Else *epoch is first poisoned (CEOV_VALUE_LIMIT), and the block then goes on to arrive, for
 * the reason that is given at struct cei_gemm_marks.
 *
 * The kernels are cei_reduce_bf16, cei_reduce_fp16 and cei_reduce_fp32. Each takes a struct
 * cei_reduce, and must be launched with so few blocks that all run at the same time.
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

#define CEI_REDUCE_RANKS_MAX 64u
#define CEI_REDUCE_THREADS   512u

struct cei_reduce {
	const void *source;             /* the caller's operand; only the own part is read */
	void       *target;             /* all-reduce: all parts; reduce-scatter: the own part */
	const void *partials;           /* what other ranks sent: the own part from source s
					 * begins at s * partial_stride_bytes */
	const void *gathered;           /* all-reduce: all summed parts, in the layout of
					 * target; NULL: reduce-scatter */
	uint64_t    partial_stride_bytes;
	uint64_t    counts[CEI_REDUCE_RANKS_MAX];       /* elements of each rank's part */
	uint64_t    piece_elements[CEI_REDUCE_RANKS_MAX];
	uint32_t    n_ranks;
	uint32_t    own;
	uint32_t    n_pieces;           /* of each rank's part; some may be empty */
	uint32_t    is_tail_cut;        /* 1: only source own + 1, whose copies arrive last,
					 * sends in pieces; other sources send their part whole,
					 * and raise the counter of piece 0 */

	struct ceov_device_signal awaited;      /* counter s * n_pieces + p: piece p of source s
						 * has come to partials; if counters is NULL, all
						 * pieces have come before the kernel begins */
	struct ceov_device_signal ready;        /* counter p: piece p of the own part is summed;
						 * if counters is NULL, nobody awaits that */
	struct ceov_device_signal arrived;      /* counter first_arrived + s * n_pieces + p:
						 * piece p of rank s has come to gathered */
	struct ceov_device_signal sent;         /* awaited at the end of the kernel, so that
						 * operands may change after it */
	uint32_t                  first_arrived;
	uint32_t                  sent_index;   /* the first counter of sent that is awaited */
	uint32_t                  n_sent;       /* how many of its counters are awaited; 0: none */
	float                     scale;        /* factor of the sums; 1: they stay as they are */
	uint64_t                 *epoch;        /* NULL, or a word that is added to await_value */
	uint64_t                  await_value;
	uint64_t                  arrive_value;
	uint64_t                  sent_value;
	uint64_t                  timeout_ns;   /* of each await */
	uint32_t                 *status;       /* 0, or the enum ceov_device_result of a failed
						 * await; may be host memory */
	uint32_t                 *failed;       /* word in GPU memory that a failed await sets to
						 * non-zero; or NULL */
};

#endif /* CEI_REDUCE_H */
