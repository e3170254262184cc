/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BEGIN_H
#define CEI_BEGIN_H

/*
 * Kernels with which captured runs begin and wait. A run in a CUDA graph is replayed with
 * the same parameters each time, so it counts itself: its number stands in GPU memory.
 * Plain C.
 *
 *   cei_op_begin (struct cei_op_begin)                       one block of 64 threads
 *   cei_op_await (struct cei_op_await)                       one block, one thread
 *
 * cei_op_await holds a stream until marks are reached or a timeout has passed; it reads the
 * run's number from GPU memory. cei_op_begin begins run e = *epoch + 1 of its rank. It:
 *
 *   closes the rank's gates: sets them to 0 (nobody raises or awaits one between runs)
 *   tells each peer, in peer_done, that e - 1 runs are finished here
 *   awaits, for each peer r: counter r of done >= last_use[half]
 *   sets last_use[half] = e, then *epoch = e
 *
 * An await that fails poisons *epoch (CEOV_VALUE_LIMIT), here and in the other kernels of a
 * run. *epoch stays poisoned: no later run waits, peers are told the poison and not e - 1,
 * and whoever awaits *epoch's value finds it.
 *
 * Why halves of scratch memory may be used in turn: all that a run e sends lands in the
 * same half at every rank. Run L = last_use[half] used that half last. A peer's half is
 * free once the peer's run L is over, and the peer says so when it begins its next run:
 * work on one stream goes in order, so a rank that executes cei_op_begin has ended all
 * earlier runs, and the release of its word comes after all that they read. Everything that
 * run e sends is queued behind this kernel, whose await acquires that word; so no byte of
 * run e arrives where a peer still reads run L's.
 *
 * Ranks do not wait in a circle: a rank tells before it waits, and waits only for peers to
 * begin a run L + 1 <= e. With halves in turn L is e - 2, so ranks may be one run apart. A
 * graph of one run uses one half only: then L is e - 1, which is safe as well.
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

#define CEI_BEGIN_RANKS_MAX 64u
#define CEI_BEGIN_THREADS   64u

struct cei_op_begin {
	uint64_t *epoch;                /* runs begun here, or poisoned; GPU memory, 0 at
					 * first */
	uint64_t *gates;                /* n_gates words in GPU memory */
	uint32_t  n_gates;
	uint32_t  reserved_too;
	uint64_t *last_use;             /* 2 words in GPU memory, one for each half: the last run
					 * that used it; 0: none */
	uint32_t  half;                 /* 0 or 1: the half of scratch that this run uses, at all
					 * ranks */
	uint32_t  n_ranks;
	uint32_t  own;
	uint32_t  reserved;
	uint64_t *peer_done[CEI_BEGIN_RANKS_MAX];       /* this rank's counter in each peer's
							 * `done`; own: NULL */
	struct ceov_device_signal done; /* this rank's: counter r is the number of runs that rank
					 * r has finished */
	uint64_t  timeout_ns;           /* of each await; they run concurrently */
	uint32_t *status;               /* 0, or the enum ceov_device_result of a failed await;
					 * may be host memory */
};

/* Awaits counters index to index + n - 1: each until it reaches value, plus *epoch if epoch
 * is not NULL. Fails as cei_op_begin does. If an earlier kernel has set *failed, it waits
 * only briefly (marks.cuh). */
struct cei_op_await {
	struct ceov_device_signal signal;
	uint32_t                  index;
	uint32_t                  n;
	uint64_t                 *epoch;
	uint64_t                  value;
	uint64_t                  timeout_ns;   /* of each */
	uint32_t                 *status;
	uint32_t                 *failed;       /* GPU memory, or NULL: set to non-zero by a
						 * failed await */
};

#endif /* CEI_BEGIN_H */
