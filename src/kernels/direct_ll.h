/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DIRECT_LL_H
#define CEI_DIRECT_LL_H

/*
 * The parameters of the kernels for the fewest bytes: up to CEI_DIRECT_LL_SENT_MAX from one rank
 * to all others. They do what the kernels of direct.h do in one step, by what NCCL calls the LL
 * protocol (low latency): no counter stands behind the bytes, since each 8 bytes travel together
 * with the number of the run. This header is plain C.
 *
 *   cei_direct_ll_copy                          all-gather, all-to-all
 *   cei_direct_ll_bf16, _fp16, _fp32            reduce-scatter, all-reduce in one step
 *
 * PACKETS A packet is 8 bytes and the 64-bit number of the run, stored and loaded as one access of
 * 16 bytes: by the instructions with which cuda::atomic_ref of libcu++ stores and loads 16 bytes
 * atomically for all of the system, from sm_70 on. So who loads the number has loaded the bytes,
 * and neither side needs a fence. A vector of 16 bytes is two packets. Stores of 16 bytes arrive
 * whole over NVLink and within a GPU; over PCIe nothing promises that, so the host does not launch
 * these kernels there (ops/tuning/direct_choice.c).
 *
 * MAIL    Packets come to memory that nothing else uses, since other bytes could look like the
 * number of a run: each rank's scratch has it behind its two halves. It has two halves as well,
 * which runs use in turn like those of scratch. In a half, what rank r sends begins at
 * r * 2 * span_max: the first packets of all vectors, and span_max bytes behind them the second
 * ones. The memory is zero at first, and no run has the number 0; numbers only rise.
 *
 * RUNS    Every rank must send at least a vector to every other one: then a rank that has ended a
 * run knows that all others have begun it, on which halves rest (workspace.c). For the same reason
 * nobody waits before it sends: the end of the run before has shown that all peers have left the
 * half (model/direct_runs.pml). All ranks must launch the same number of blocks.
 *
 * FAILURES Each block looks now and then whether what it awaits will come. A captured run that
 * fails poisons its number, and stores poison to the peers' `done` and to all counters of their
 * `arrived` that the blocks of this rank have there by direct.h. Blocks that wait for packets look
 * at those of the first half, and every block does once: a run that is begun behind an abort fails,
 * also where all packets have come before.
 *
 * CAPTURED RUNS count themselves as those of direct.h do.
 *
 * All addresses and numbers of bytes are multiples of 16.
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

#define CEI_DIRECT_LL_RANKS_MAX 8u
#define CEI_DIRECT_LL_SENT_MAX  393216u         /* bytes from one rank to all others */

/* Returns the most bytes that go from one of n_ranks ranks to another one; n_ranks is 2 to
 * CEI_DIRECT_LL_RANKS_MAX. */
static inline uint32_t cei_direct_ll_span_max(uint32_t n_ranks)
{
	return CEI_DIRECT_LL_SENT_MAX / (n_ranks - 1) / 16 * 16;
}

/* Returns the size of one half of a rank's mail. */
static inline uint64_t cei_direct_ll_half_bytes(uint32_t n_ranks)
{
	return (uint64_t)n_ranks * 2 * cei_direct_ll_span_max(n_ranks);
}

struct cei_direct_ll_peer {             /* what this rank and rank r exchange; own: what stays */
	char     *mail;                 /* where this rank's packets go, in the first half of r's
					 * mail; own: where the first half of the own mail begins */
	uint64_t  leaves;               /* these four as in struct cei_direct_span; leaves can be
					 * large, since parts of a sum may lie far apart */
	uint32_t  n_leaves;
	uint32_t  n_here;
	uint32_t  place;
};

struct cei_direct_ll_counters {         /* at rank r */
	uint64_t *arrived[2];           /* [half] */
	uint64_t *done;                 /* NULL, as are arrived, if the run is not captured */
};

/* What every run reads comes first, because it is read in few accesses then. */
struct cei_direct_ll {
	const void *source;
	void       *target;
	uint64_t   *epoch;              /* the next three as in struct cei_direct */
	uint64_t   *last_use;
	uint32_t   *n_ended;
	uint32_t   *failed;
	uint64_t    value;              /* the run's number, if epoch is NULL */
	uint32_t    half;
	uint32_t    n_ranks;
	uint32_t    own;
	uint32_t    span_max;           /* of cei_direct_ll_span_max() */
	float       scale;              /* factor of the sums */
	struct cei_direct_ll_peer     peers[CEI_DIRECT_LL_RANKS_MAX];           /* [rank] */
	struct cei_direct_ll_counters counters[CEI_DIRECT_LL_RANKS_MAX];        /* [rank] */
	uint32_t                     *status;           /* as in struct cei_reduce */
	uint64_t                      timeout_ns;       /* of each wait for packets */
	struct ceov_device_signal     arrived;          /* the own signal of the first half, for
							 * poison and aborts alone */
};

#endif /* CEI_DIRECT_LL_H */
