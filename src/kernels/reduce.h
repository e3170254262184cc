/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_REDUCE_H
#define CEI_REDUCE_H

/*
 * The parameters of the sums of reduce-scatter and all-reduce. The host's executor computes
 * the same. Plain C.
 *
 *   for each piece of the own part, in order:
 *     await it from every other source; target = own + the others' (fp32, sources in
 *     the order of ranks from 0, the own one in its place), times scale (fp32), rounded;
 *     arrive at its ready counter
 *   all-reduce, then: for each other rank (own - 1, own - 2, ...: as they arrive), for
 *     each of its pieces: await it, copy it from gathered to its place in target
 *
 * Piece p of a part of n elements has elements p * piece_elements up to (p + 1) *
 * piece_elements, cut off at n. Counts and pieces are multiples of 8 elements, and all
 * addresses are multiples of 16 bytes. Empty pieces are not sent: their counters are
 * neither awaited nor raised.
 *
 * An await that fails ends the block's waiting and summing; a launch that finds *failed set
 * by an earlier one waits only for moments (marks.cuh). Without epoch the block does not
 * arrive any more. With epoch, *epoch is poisoned (CEOV_VALUE_LIMIT) first, and the block
 * goes on to arrive, for the reason that is given at struct cei_gemm_marks.
 *
 *   cei_reduce_bf16, cei_reduce_fp16, cei_reduce_fp32 (struct cei_reduce)
 *                                                            blocks that fit at once
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

#define CEI_REDUCE_RANKS_MAX 64u
#define CEI_REDUCE_THREADS   512u

struct cei_reduce {
	const void *source;             /* the caller's source; only its own part is read */
	void       *target;             /* all_reduce: all parts; else the own part */
	const void *partials;           /* what others sent: source s's copy of the own part
					 * begins at s * partial_stride_bytes */
	const void *gathered;           /* all_reduce: all summed parts, in the layout of
					 * target; NULL: reduce-scatter */
	uint64_t    partial_stride_bytes;
	uint64_t    counts[CEI_REDUCE_RANKS_MAX];       /* elements of each rank's part */
	uint64_t    piece_elements[CEI_REDUCE_RANKS_MAX];
	uint32_t    n_ranks;
	uint32_t    own;
	uint32_t    n_pieces;           /* the same for all ranks; some may be empty */
	uint32_t    is_tail_cut;        /* 1: only source own + 1, which comes last, sends
					 * in pieces; the others' copies come whole, with
					 * piece 0's counter */

	struct ceov_device_signal awaited;      /* counter s * n_pieces + p: partials */
	struct ceov_device_signal ready;        /* counter p: the own part's piece is summed;
						 * counters NULL: nobody awaits it */
	struct ceov_device_signal arrived;      /* counter first_arrived + s * n_pieces + p:
						 * gathered */
	struct ceov_device_signal sent;         /* awaited at the kernel's end, so that operands
						 * may change behind it */
	uint32_t                  first_arrived;
	uint32_t                  sent_index;   /* the first counter of sent that is awaited */
	uint32_t                  n_sent;       /* how many of its counters are awaited; 0: none */
	float                     scale;        /* factor of the own part's sums; 1: none */
	uint64_t                 *epoch;        /* NULL, or a word that is added to await_value */
	uint64_t                  await_value;
	uint64_t                  arrive_value;
	uint64_t                  sent_value;
	uint64_t                  timeout_ns;   /* of each await */
	uint32_t                 *status;       /* 0, or the enum ceov_device_result of a failed
						 * await; may be host memory */
	uint32_t                 *failed;       /* GPU memory, or NULL: set to non-zero by a
						 * failed await */
};

#endif /* CEI_REDUCE_H */
