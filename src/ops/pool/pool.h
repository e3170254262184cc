/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_POOL_H
#define CEI_POOL_H

/*
 * Pools (ceoverlap/pool.h). Each rank has a desk in host memory that all processes map and all GPUs
 * reach. A large call of a channel that has a pool goes like this at each rank:
 *
 *   the calling thread   writes a notice to its desk: what it calls, and where its target lies in
 *                        its pool. On the caller's stream it queues a write of the call's number
 *                        to `reached`, and waits for `sent` of and to all peers. If the target
 *                        does not lie in the pool it queues the kernel instead.
 *   the pool's thread    awaits the notices of all ranks. If all targets lie in pools, it awaits
 *                        `reached` of itself and of each peer, and then queues a copy to that peer
 *                        and, behind it, a write of the number to `sent`. If some rank's does not,
 *                        it awaits its own `reached`, and queues the kernel on its own stream.
 *
 * Calls are numbered by each rank, from 1 on; every rank makes the same large calls in the same
 * order. No copy is queued before its target may be written to, so a rank that fails leaves nothing
 * behind that writes to peers later. It opens what its streams and those of its peers wait for.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include <ceoverlap/pool.h>

#include "base/clock.h"
#include "base/report.h"
#include "kernels/channel.h"
#include "ops/channel/channel.h"

#define CEI_POOL_CALLS    64u           /* that a rank makes ahead of the slowest one's thread */
#define CEI_POOL_NOWHERE  UINT32_MAX    /* segment of a target that lies in none */
#define CEI_POOL_NO_NEED  (UINT32_MAX - 1)      /* of a rank that has no target */
#define CEI_POOL_OPEN     (UINT64_C(1) << 62)   /* more than any number of a call */

struct cei_pool_notice {
	_Alignas(CEI_CACHE_LINE)
	_Atomic uint64_t number;        /* of the call; stored last */
	uint64_t         what;          /* cei_call_text() */
	uint64_t         bytes;         /* cei_pool_bytes_of() */
	uint64_t         parts;         /* a hash of the sizes of all ranks' parts */
	uint64_t         offset;        /* of the target in its segment */
	uint32_t         segment;
};

struct cei_pool_word {                  /* written by streams */
	_Alignas(CEI_CACHE_LINE)
	uint64_t number;
};

/* Peers may write anything there, so each value is checked where it is read. */
struct cei_pool_desk {
	struct cei_pool_notice notices[CEI_POOL_CALLS];         /* [number % CEI_POOL_CALLS] */
	_Alignas(CEI_CACHE_LINE)
	_Atomic uint64_t       n_passed;        /* calls of which it reads no notice more */
	_Atomic uint32_t       n_segments;      /* that it has shared */
	_Atomic uint32_t       poison;          /* 0, or minus the error that ended the channel */
	struct cei_pool_word   reached;         /* the call that the caller's stream has come to */
	struct cei_pool_word   ended;           /* and that it has passed */
	struct cei_pool_word   sent[CEI_CHANNEL_RANKS_MAX];     /* [peer]: the call of which that
								 * one has all */
};

/* A call that the pool's thread has to make. */
struct cei_pool_task {
	struct cei_call call;
	int             has_kernel;     /* 1: the calling thread has queued its kernel */
};

struct cei_pool_segment {
	ceov_buffer *buffer;
	char        *base;              /* on the GPU */
	uint64_t     size_bytes;
	int          is_used;
};

extern const struct cei_object_type cei_pool_type;

struct ceov_pool {
	struct cei_object       object;
	ceov_channel           *channel;
	struct cei_pool_gpu    *gpu;
	ceov_buffer            *desk_buffers[CEI_CHANNEL_RANKS_MAX];    /* [rank] */
	struct cei_pool_desk   *desks[CEI_CHANNEL_RANKS_MAX];
	_Atomic int             is_connected;
	uint64_t                n_calls;        /* guarded by the channel's lock */
	int                     waits;          /* 1: a call returns when its copies are
						 * queued, since the driver queues none
						 * while it loads a kernel in another
						 * thread, which may wait for the stream
						 * that waits for them; set once */
	struct cei_pool_task    tasks[CEI_POOL_CALLS];  /* [number % CEI_POOL_CALLS]: the thread
							 * reads it between the call's notice
							 * and n_passed */
	_Atomic uint64_t        n_engine_calls;
	_Atomic uint64_t        n_kernel_calls;
	int                     has_said;       /* that a call takes SMs; channel's lock */

	pthread_mutex_t         lock;           /* guards the next six */
	int                     is_released;    /* 1: it hands out no more */
	struct cei_report_hold  untold;         /* lines of functions, see cei_pool_tell() */
	uint64_t                max_bytes;
	uint64_t                segment_bytes;
	uint32_t                n_segments;
	struct cei_pool_segment segments[CEOV_POOL_SEGMENTS_MAX];

	/* Of the thread. */
	pthread_t               thread;
	int                     has_thread;
	_Atomic uint32_t        is_stopping;
	_Atomic uint32_t        bell;           /* rung when there is something to do */
	uint64_t                number;         /* of the call that it makes, or makes next */
	uint32_t                made;           /* peers to which its copies are queued, one bit
						 * each */
	uint64_t                late_ns;        /* when the wait under way is too long */
	uint64_t                look_ns;        /* when it next looks whether peers have gone */
	uint64_t                last_waited;    /* the last call for which the stream waits */
	uint64_t                ended;          /* `ended` as it was seen last */
	struct cei_backoff      backoff;
	uint32_t                n_found[CEI_CHANNEL_RANKS_MAX];
	ceov_buffer            *found[CEI_CHANNEL_RANKS_MAX][CEOV_POOL_SEGMENTS_MAX];
};

/* --- pool.c: the pool and its memory ---------------------------------------------------------- */

/* Finds where `n` bytes lie. Returns the segment, or CEI_POOL_NOWHERE. Any thread. */
uint32_t cei_pool_find(ceov_pool *pool, const void *memory, uint64_t n, uint64_t *ret_offset);

/* Writes the name under which a rank shares a segment, or its desk (CEI_POOL_NOWHERE). */
void cei_pool_name(const ceov_pool *pool, uint32_t segment, char *text);

static inline struct cei_pool_desk *cei_pool_own_desk(const ceov_pool *pool)
{
	return pool->desks[pool->channel->rank];
}

/* --- functions.c ------------------------------------------------------------------------------ */

/* Writes the lines of functions to the log, which these must not do themselves: an application's
 * log function may wait for a thread that waits for the allocator whose locks are held then. */
void cei_pool_tell(ceov_pool *pool);

/* Takes back what ceov_pool_functions() has given. */
void cei_pool_forget_functions(ceov_pool *pool);

/* --- calls.c: what calling threads do --------------------------------------------------------- */

extern const struct cei_channel_pool_ops cei_pool_ops;

/* Returns 0, or minus the error with which a peer has ended the channel. Any thread. */
uint32_t cei_pool_poison(const ceov_pool *pool, uint32_t peer);

/* Returns a peer that has ended the channel other than in order, or CEOV_NOBODY. */
uint32_t cei_pool_poisoned(const ceov_pool *pool);

/* Returns how many bytes of target all ranks have together, or each if they have the same. */
uint64_t cei_pool_bytes_of(const struct cei_call *call);

/* --- thread.c --------------------------------------------------------------------------------- */

int  cei_pool_start(ceov_pool *pool);

/* Ends the thread. What its streams wait for is open then if the channel has ended. */
void cei_pool_stop(ceov_pool *pool);

/* Tells the thread to look. Any thread. */
void cei_pool_ring(ceov_pool *pool);

/* --- pool_cuda.c; errors are raised ----------------------------------------------------------- */

int  cei_pool_gpu_open(ceov_pool *pool);

/* Whether nothing is under way on the pool's own streams. Any thread. */
int  cei_pool_gpu_is_idle(const ceov_pool *pool);
void cei_pool_gpu_close(ceov_pool *pool);

/* Whether the stream is captured. */
int  cei_pool_gpu_is_capturing(const ceov_pool *pool, void *stream);

/* Queues on the stream, behind the channel's last call: that call `number` is reached, the copy of
 * what stays at this rank, the waits, and that it has ended. The caller holds the channel's
 * lock. */
int  cei_pool_gpu_wait(ceov_pool *pool, void *stream, uint64_t number);

/* The following are called by the pool's thread. A copy, and what marks it. */
struct cei_pool_copy {
	uint32_t    peer;
	char       *to;
	const char *from;
	uint64_t    bytes;
};

int  cei_pool_gpu_copy(ceov_pool *pool, const struct cei_pool_copy *copy);

/* Queues the kernel of a task, and that all was sent. */
int  cei_pool_gpu_kernel(ceov_pool *pool, const struct cei_pool_task *task);

#endif /* CEI_POOL_H */
