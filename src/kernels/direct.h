/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DIRECT_H
#define CEI_DIRECT_H

/*
 * The parameters of the kernels that move bytes themselves: small collectives, for which a copy
 * engine takes longer to begin than the bytes take to arrive. They store to memory of peers on the
 * same node. The host's executor does the same. This header is plain C.
 *
 *   cei_direct_copy                          all-gather, all-to-all
 *   cei_direct_bf16, _fp16, _fp32            reduce-scatter, all-reduce
 *
 * What a kernel does in run e of rank `own`, where a half of each rank's scratch holds what comes:
 *
 *   store spans[r] of source to the half of each other rank r; raise a counter of r's `arrived`
 *   await the same counter of each other rank in the own `arrived`
 *   copies: copy what has come from each rank, and the own block, to target
 *   sums: add up what has come and the own part in fp32, in the order of ranks from 0; multiply by
 *         scale; round and store in target
 *   if it gathers: store the own sums to each other rank's half as well, raise a second counter,
 *         await these of all others, and copy their sums to target
 *
 * BLOCKS Block b of each rank stores, awaits and reads the same vectors of each span as block b of
 * every other rank, so blocks of one kernel do not wait for each other, and all ranks must launch
 * the same number of blocks and threads, with the same `each`. All blocks must run at the same
 * time as those of peers on the same GPU. On a stream of a green context with fewer SMs they take
 * turns: a GPU begins blocks in their order, so of all blocks that have not ended the first one
 * runs at each rank (CUDA does not promise that order; tests/gpu/test_gpu_few_sms.c looks).
 * Counters of `arrived`: source * n_blocks + b, and `second` more for the second step. Every block
 * raises and awaits its counters even if its spans are empty: so a rank that has ended a run knows
 * that all others have begun it, on which the halves of scratch rest (workspace.c).
 *
 * STEPS   Sums of many bytes are made in steps by kernels of their own, cei_direct_steps_bf16,
 * _fp16 and _fp32, for GPUs of sm_90 (direct_steps_kernels.cu): what is above is done for one step
 * while the stores of later ones are under way. A span is cut into chunks of CEI_DIRECT_CHUNK
 * bytes. Block b handles chunks b, b + n_blocks, ...: its rows 0, 1, ..., and step s the rows from
 * s * step_rows on, the last step also those behind. Counters: from steps_first on,
 * source * n_blocks + b, and n_ranks * CEI_DIRECT_STEP_BLOCKS_MAX more for sums. They belong to
 * these kernels alone, since in run e, behind its step s, they rise to
 * e * CEI_DIRECT_STEP_VALUES + s + 1. (Before that came near CEOV_VALUE_LIMIT, runs would have to
 * follow each other for thousands of years.) All ranks must have the same n_steps and step_rows.
 *
 * BEHIND A FAILURE a run that is not captured does nothing: it stores, raises and awaits nothing,
 * since a peer may still use the half that it would store to.
 *
 * CAPTURED RUNS count themselves (begin.h): if epoch is not NULL, the run is *epoch + 1. No
 * cei_op_begin stands before this kernel, which counts and tells peers as that does, but awaits
 * only that they have ended the last run that used its half. It takes the half that was used
 * longest ago, which is the same at all ranks because their runs are. So also a graph of a single
 * run uses both halves, and the peers have long told that they have ended the last run that used
 * the half. The last block that ends advances *epoch and last_use. If an await fails, *epoch is
 * poisoned, and poison is stored to the peers' counters in place of the run's number.
 *
 * All spans and addresses are multiples of 16 bytes.
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

#define CEI_DIRECT_RANKS_MAX  32u
#define CEI_DIRECT_BLOCKS_MAX 32u
#define CEI_DIRECT_THREADS    512u
#define CEI_DIRECT_HALVES     2u
#define CEI_DIRECT_FLIGHT     16u       /* vectors that a thread can have in flight, of all ranks */

/* Sums in steps: see STEPS. */
#define CEI_DIRECT_STEP_RANKS_MAX  8u
#define CEI_DIRECT_STEP_BLOCKS_MAX 16u
#define CEI_DIRECT_STEPS_MAX       32u
#define CEI_DIRECT_STEP_VALUES     64u  /* more than there are steps */
#define CEI_DIRECT_STEP_ADDERS     16u  /* warps that add up */
#define CEI_DIRECT_STEP_THREADS    ((CEI_DIRECT_STEP_ADDERS + 7u) * 32u)
#define CEI_DIRECT_CHUNK           16384u

/* Their shared memory: barriers, then slots of a chunk each. What is pushed to peers has most of
 * them, since the links depend on it; together they fit into an SM. */
#define CEI_DIRECT_BARS_BYTES 2048u
#define CEI_DIRECT_PUSH_SLOTS 6u
#define CEI_DIRECT_COPY_SLOTS 4u
#define CEI_DIRECT_SUM_SLOTS  4u
#define CEI_DIRECT_STEP_SHARED \
	(CEI_DIRECT_BARS_BYTES + CEI_DIRECT_CHUNK * \
	 (CEI_DIRECT_PUSH_SLOTS + CEI_DIRECT_COPY_SLOTS + CEI_DIRECT_SUM_SLOTS))

/* What this rank and one rank r exchange, in bytes. For r = own: what stays. */
struct cei_direct_span {
	uint64_t leaves;                /* offset in source of what goes to r */
	uint64_t n_leaves;
	uint64_t there;                 /* where it goes in a half of r's scratch; own: unused */
	uint64_t here;                  /* where what r sends comes in a half of the own scratch;
					 * own: unused */
	uint64_t n_here;                /* copies: what r sends; sums: the own part, which r sends
					 * to be added, the same for all r */
	uint64_t place;                 /* offset in target: of what r sent, or of r's part of the
					 * sums */
};

struct cei_direct_peer {                /* addresses of rank r's memory; own: only scratch */
	char     *scratch;              /* the first of its two halves */
	uint64_t *arrived[CEI_DIRECT_HALVES];   /* [half]: the first counter of its `arrived` */
	uint64_t *done;                 /* this rank's counter of its `done`; captured runs only */
};

struct cei_direct {
	const void             *source;
	void                   *target;
	struct cei_direct_span  spans[CEI_DIRECT_RANKS_MAX];    /* [rank] */
	struct cei_direct_peer  peers[CEI_DIRECT_RANKS_MAX];    /* [rank] */
	uint64_t                half_bytes;     /* from the first half of scratch to the second */
	uint64_t                gather_at;      /* where gathered sums come in a half, in the layout
						 * of target */
	uint32_t                n_ranks;
	uint32_t                own;
	uint32_t                gathers;        /* 1: sums are gathered */
	uint32_t                half;           /* of a run that is not captured */
	uint32_t                second;         /* the first counter of the second step */
	float                   scale;          /* factor of the sums */
	uint32_t                each;           /* vectors of a span that a thread has in flight: 1,
						 * 4 or 8; as many at all ranks. If it is not 1,
						 * n_ranks times as many are at most
						 * CEI_DIRECT_FLIGHT */

	/* Of sums in steps only; see STEPS. */
	uint32_t                n_steps;        /* at least 1 */
	uint32_t                step_rows;      /* at least 1 */
	uint32_t                steps_first;

	struct ceov_device_signal arrived[CEI_DIRECT_HALVES];   /* [half]: the own signals */
	uint64_t                  value;        /* the run's number, if epoch is NULL */
	uint64_t                  timeout_ns;   /* of each await */
	uint32_t                 *status;       /* as in struct cei_reduce */
	uint32_t                 *failed;

	uint64_t                 *epoch;        /* NULL: the run is not captured, and the rest is
						 * unused */
	uint64_t                 *last_use;     /* as in struct cei_op_begin, as are epoch and
						 * done */
	uint32_t                 *n_ended;      /* counts the blocks that have ended, if there
						 * are several; 0 between
						 * runs */
	struct ceov_device_signal done;
};

#endif /* CEI_DIRECT_H */
