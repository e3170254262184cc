/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEOVERLAP_POOL_H
#define CEOVERLAP_POOL_H

/*
 * Pools: memory of a rank's GPU that the peers of a channel know. A large call of the channel whose
 * targets lie in it takes no SM: copy engines write straight into the targets of peers.
 *
 * MEMORY     A pool takes memory from the driver in segments, and keeps each until the pool is
 *            released: what is freed serves later allocations of this pool alone. Each peer maps a
 *            segment when it sees it, in the background, or when the first call needs it.
 * CALLS      Of a channel that has a pool, so at all ranks, these calls look for their targets in
 *            it: all-gathers, broadcasts, and all-to-alls without lists of counts, of which a rank
 *            gives CEOV_POOL_CALL_BYTES or more to a peer, outside of captures. Where the target of
 *            each rank lies in its pool, in one segment, a thread of the pool queues copies as soon
 *            as the streams of both ranks have come to the call; streams wait without an SM. Where
 *            some rank's does not, all take the channel's kernels. Sources may lie anywhere. What a
 *            rank gives to itself its stream copies, by the driver's kernels; it is not copied
 *            where it lies in its place (channel.h, MEMORY).
 *            Copies take the way between the two GPUs that peer access has. A call that is captured
 *            at one rank is captured at all.
 * HOST       A process that takes part has a thread for each pool, which polls while calls are
 *            under way, and maps segments. The driver queues no copy while it loads a kernel at its
 *            first launch or frees memory, and both may wait for streams that wait for that copy.
 *            So unless CUDA_MODULE_LOADING is EAGER a call returns only when its copies are queued,
 *            for which the streams of all ranks have to come to it; and only one thread of the
 *            process launches kernels that it has not launched before. With EAGER calls return at
 *            once, and nobody frees memory of the driver's (cuMemFree(), PyTorch's empty_cache())
 *            while one is under way.
 * FAILURE    As with the channel's other calls: who waits for a peer until the deadline ends the
 *            channel, which names the peer; streams that wait go on, and targets are undefined.
 */

#include <ceoverlap/channel.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ceov_pool ceov_pool;

#define CEOV_POOL_CALL_BYTES   (UINT64_C(4) << 20)
#define CEOV_POOL_SEGMENTS_MAX 256u

struct ceov_pool_config {
	size_t   struct_bytes;
	uint64_t max_bytes;             /* that segments take together at most; 0: no bound */
};

#define CEOV_POOL_CONFIG_INIT CEOV_SIZED(struct ceov_pool_config)

/* Makes the pool of a connected channel of a rank on a GPU; a channel has one at most. Does not
 * wait for peers. All ranks make theirs between the same two calls of the channel.
 * CEOV_ERR_INVALID: the rank is on the host; CEOV_ERR_STATE: the channel has a pool, or is not
 * connected. */
int  ceov_pool_create(ceov_channel *channel, const struct ceov_pool_config *config,
		      ceov_pool **ret_pool);

/* Finds the pools of the peers; afterwards calls look for their targets in it. Blocks.
 * CEOV_PENDING: timeout_ns passed, and some peer has not made its pool yet; call again. If one
 * process has several ranks, make the pools of all of them first. */
int  ceov_pool_connect(ceov_pool *pool, uint64_t timeout_ns);

/* Returns memory for size_bytes, aligned to 2 MiB. Any thread, at any time, without peers.
 * CEOV_ERR_NO_MEMORY: max_bytes or the number of segments is reached, or the GPU has no more. */
int  ceov_pool_alloc(ceov_pool *pool, uint64_t size_bytes, void **ret_memory);

/* Gives memory back to the pool, which may hand it out again at once: no call and no kernel of this
 * rank uses it any more. NULL is ignored. CEOV_ERR_INVALID: it is no memory of the pool's. */
int  ceov_pool_free(ceov_pool *pool, void *memory);

typedef void *(*ceov_pool_allocate_fn)(size_t size_bytes, int device, void *stream);
typedef void (*ceov_pool_free_fn)(void *memory, size_t size_bytes, int device, void *stream);

/* Returns functions of this pool alone, for allocators that pass on no context, such as PyTorch's
 * CUDAPluggableAllocator. device, stream and, where memory is freed, size_bytes have no effect.
 * *ret_allocate returns NULL where ceov_pool_alloc() fails. At most 16 pools of a process have such
 * functions at a time, until they are released. CEOV_ERR_NO_MEMORY: 16 have. Called again it
 * returns the same. */
int  ceov_pool_functions(ceov_pool *pool, ceov_pool_allocate_fn *ret_allocate,
			 ceov_pool_free_fn *ret_free);

/* What is known of a pool. */
struct ceov_pool_info {
	size_t   struct_bytes;
	uint64_t segment_bytes;         /* of all segments */
	uint64_t used_bytes;            /* of those that are handed out */
	uint32_t n_segments;
	int      is_connected;
	uint64_t n_engine_calls;        /* that copy engines have made, since the pool was made */
	uint64_t n_kernel_calls;        /* that looked for targets in the pool, and took kernels */
};

#define CEOV_POOL_INFO_INIT CEOV_SIZED(struct ceov_pool_info)

int  ceov_pool_query(ceov_pool *pool, struct ceov_pool_info *ret_info);

/* Releases the pool with its memory, before its channel is released. No call under way uses its
 * memory. The channel makes no further call. CEOV_PENDING: a peer still maps a segment, or calls
 * have not ended; call again, or leave it to ceov_close(). */
int  ceov_pool_release(ceov_pool *pool);

#ifdef __cplusplus
}
#endif

#endif /* CEOVERLAP_POOL_H */
