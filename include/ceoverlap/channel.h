/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEOVERLAP_CHANNEL_H
#define CEOVERLAP_CHANNEL_H

/*
 * Channels: collectives of any count, type and alignment, without an operator for each shape.
 *
 * A channel is fixed memory at every rank of the group that all peers know, made once. A call
 * allocates nothing, maps nothing and agrees on nothing with peers before its bytes flow: the first
 * call of a size costs what any other call of it does.
 *
 * WORDS
 *   call     one collective: what all ranks do together.
 *   run      the execution of a call. The runs of a channel are numbered; every rank makes the same
 *            calls in the same order, as collectives of NCCL or MPI.
 *   head     what each rank tells every peer in each run: which call it makes, and how many bytes
 *            go from it to that peer. Both ends of a pair know these, so a peer that makes another
 *            call, or the same one with other counts, is noticed.
 *
 * HOST       Ranks on the host, all on one node. Each rank calls from its own thread, which moves
 *            the bytes; the call returns when the rank's target is complete and its source may be
 *            changed. Peers may not have finished then.
 * GPUS       At most 8 ranks, all on GPUs of one node with NVLink between them (or on one GPU, for
 *            tests), of compute capability 9.0. A call queues a kernel on its stream and returns.
 *            Source and target are memory of the rank's GPU, and stay until the stream has passed.
 *            Calls of a rank follow each other whatever their streams, and can be captured in
 *            graphs, also on several branches. A replay is ordered by the program, by its stream or
 *            by events, behind and before the channel's other calls and replays: two that are under
 *            way at once end the channel (CEOV_ERR_STATE), and the results of both are invalid.
 *            Kernels wait for peers on the SMs that they hold: 1 to 32. So ranks that make calls
 *            of two channels, or of NCCL, at a time make them in the same order, one behind the
 *            other on the GPU, or leave SMs for both. Ranks of one process on one GPU need streams
 *            of their own other than the legacy one.
 * THREADS    Calls of one channel from several threads follow each other; all ranks need the same
 *            order. Messages need an order for each pair and direction alone, and go on beside
 *            calls. On GPUs the messages of a rank, and so of its streams, follow each other, too.
 * SUMS       are added up from rank 0 on, in fp32 for CEOV_BF16, CEOV_FP16 and CEOV_FP32, in fp64
 *            for CEOV_FP64 and in 64-bit integers for other types, so the same operands give the
 *            same bits whatever the kind, the sizes, the place and who calls first. GPUs add up the
 *            first three alone.
 * MEMORY     Any alignment. Source and target do not overlap, except: all-reduce, reduce and
 *            broadcast at the same address; an all-gather or gather whose source is its place in
 *            the target; a reduce-scatter or scatter whose target is the rank's own part of the
 *            source. Others are refused (CEOV_ERR_INVALID).
 * DEADLINE   Each wait for a peer is bounded by the channel's deadline.
 * FAILURE    A call that differs from that of a peer, a deadline that passes, a rank that has gone
 *            and ceov_channel_abort() end the channel: the call, and all later ones, return the
 *            error, at every rank that waits for this one. Where calls differ (CEOV_ERR_INVALID),
 *            ceov_last_failure() names both. Targets are undefined then. Release the channel and
 *            create another one, under another name. What kernels find, the next call and
 *            ceov_channel_status() return; kernels that are queued behind it do nothing, so streams
 *            go on. A kernel that waits for a process that has gone ends by its deadline, and the
 *            next collective fails with CEOV_ERR_PEER_LOST.
 */

#include <ceoverlap/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ceov_channel ceov_channel;

struct ceov_channel_config {
	size_t      struct_bytes;
	uint32_t    rank;               /* a rank of this process */
	const char *name;               /* 1 to 40 bytes, the same at all ranks; each live channel
					 * of the group has its own */
	uint64_t    ring_bytes;         /* shared memory for bytes under way, 64 KiB to 1 GiB; the
					 * same at all ranks. Host: for those that this rank gives
					 * to peers in calls; 0: 1 MiB; its messages have some more,
					 * see CEOV_SEND. GPU: for calls and messages that come to
					 * this rank; 0: 48 MiB; at least 4 chunks of 16 KiB for
					 * each lane are taken, and up to 10 MiB more for calls of
					 * few bytes */
	uint64_t    deadline_ns;        /* of each wait in a run; 0: the context's */
};

#define CEOV_CHANNEL_CONFIG_INIT CEOV_SIZED(struct ceov_channel_config)

enum ceov_call_kind {
	CEOV_ALL_GATHER     = 1,        /* target: the sources of all ranks, in their order */
	CEOV_REDUCE_SCATTER = 2,        /* source: a part for each rank; target: the sum of the
					 * parts of this rank */
	CEOV_ALL_REDUCE     = 3,
	CEOV_ALL_TO_ALL     = 4,        /* source: a part for each rank; target: a part from each */
	CEOV_BROADCAST      = 5,        /* source, at the root, to the targets of all ranks */
	CEOV_GATHER         = 6,        /* an all-gather whose target the root alone has */
	CEOV_SCATTER        = 7,        /* source, at the root: a part for each rank */
	CEOV_REDUCE         = 8,        /* an all-reduce whose target the root alone has */
	CEOV_BARRIER        = 9,        /* no memory */

	/* Messages between two ranks, in the order of the calls for each pair and direction. A send
	 * returns when the channel holds its bytes, or the receiver has taken those that the
	 * channel does not hold. Of a pair and direction it holds a quarter of ring_bytes divided
	 * by the number of ranks, or 4 KiB if that is more; on GPUs by that of peers, in chunks of
	 * up to 16 KiB. On GPUs a rank receives what it sends to itself in the same call. */
	CEOV_SEND           = 10,       /* source to rank `root` */
	CEOV_RECEIVE        = 11        /* target from rank `root`; count and type as sent */
};

/* How sums are made. Types: CEOV_BF16, CEOV_FP16, CEOV_FP32, CEOV_FP64, CEOV_INT8, CEOV_UINT8,
 * CEOV_INT16, CEOV_INT32, CEOV_INT64. Integers wrap. CEOV_MIN and CEOV_MAX of a NaN are NaN. */
enum ceov_reduction {
	CEOV_SUM     = 0,
	CEOV_PRODUCT = 1,
	CEOV_MIN     = 2,
	CEOV_MAX     = 3,
	CEOV_MEAN    = 4                /* the sum divided by the number of ranks; no integers */
};

/* A call. Unused fields are 0. Counts are items of dtype; 0 is allowed, and memory of which
 * nothing is used may be NULL. */
struct ceov_call {
	size_t              struct_bytes;
	enum ceov_call_kind kind;
	enum ceov_dtype     dtype;
	enum ceov_reduction reduction;  /* of sums */
	uint32_t            root;       /* or the other rank of a message */
	const void         *source;
	void               *target;
	uint64_t            count;      /* of the rank's own part: what it gives to a gather, or to
					 * each rank of an all-to-all, or gets from a scatter or
					 * reduce-scatter; of a whole for the other kinds */
	/* NULL: every rank has `count`. Else one count for each rank, read in the call; then
	 * `count` has no effect where the rank's own part is in the list. sends: parts of the
	 * source of an all-to-all, a scatter's root, and, at all ranks, a reduce-scatter. receives:
	 * parts of the target of an all-to-all, a gather's root, and, at all ranks, an all-gather.
	 * An all-to-all has both or neither. */
	const uint64_t     *sends;
	const uint64_t     *receives;
	void               *stream;     /* of a rank on a GPU: the CUstream on which the call is
					 * queued; NULL: the legacy default stream. Between host
					 * ranks it has no effect */
};

#define CEOV_CALL_INIT CEOV_SIZED(struct ceov_call)

/* Allocates the channel's memory and exports it to the group. Does not wait for peers.
 * CEOV_ERR_INVALID: the group has several nodes; or the rank is on a GPU, which cannot have a
 * channel (GPUS). */
int  ceov_channel_create(ceov_context *context, const struct ceov_channel_config *config,
			 ceov_channel **ret_channel);

/* Finds the peers' memory; afterwards calls can be made. Blocks. CEOV_PENDING: timeout_ns passed
 * and some peer has not created its channel yet; call again. If one process has several ranks,
 * create the channels of all of them first. CEOV_ERR_INVALID: a peer's channel of that name has
 * another ring_bytes, or its GPU is not linked to this rank's as GPUS says. */
int  ceov_channel_connect(ceov_channel *channel, uint64_t timeout_ns);

#define CEOV_CHANNEL_CALLS_MAX     1024u
#define CEOV_CHANNEL_GPU_CALLS_MAX 128u

/* Makes a call, or n messages at once (at most CEOV_CHANNEL_CALLS_MAX sends and receives, of a rank
 * on a GPU CEOV_CHANNEL_GPU_CALLS_MAX of one stream, in any order, of which none waits for another
 * one but for those of its pair and direction), and returns when it is complete at this rank, or,
 * on a GPU, queued. Blocks between host ranks. CEOV_ERR_INVALID without an effect on the channel: a
 * call breaks a rule of this header that this rank can see alone. Other errors: see FAILURE. */
int  ceov_channel_run(ceov_channel *channel, const struct ceov_call *calls, uint32_t n);

/* Writes in a few lines to fd what the channel is, and how a call would move its bytes (NULL: no
 * call). Fails as ceov_plan_explain() does. */
int  ceov_channel_explain(ceov_channel *channel, const struct ceov_call *call, int fd);

/* What is known of a channel. */
struct ceov_channel_info {
	size_t            struct_bytes;
	uint32_t          rank;
	uint32_t          n_ranks;
	struct ceov_place place;        /* the rank's */
	uint64_t          ring_bytes;   /* of the configuration, or those that were chosen */
	uint64_t          deadline_ns;
	int               is_connected; /* so far, as the next one */
	int               error;        /* that has ended it, as ceov_channel_status() returns */
	char              name[CEOV_NAME_BYTES];
};

#define CEOV_CHANNEL_INFO_INIT CEOV_SIZED(struct ceov_channel_info)

int  ceov_channel_query(ceov_channel *channel, struct ceov_channel_info *ret_info);

/* Returns 0, or the error that ended the channel. Never blocks. */
int  ceov_channel_status(ceov_channel *channel);

/* Ends the channel, and the calls under way in it at all ranks, with CEOV_ERR_ABORTED. A channel
 * that failed before keeps its error. Does not block; any thread. */
int  ceov_channel_abort(ceov_channel *channel);

/* Releases the channel. No call of it may be under way at this rank, and no graph with calls of it
 * is replayed any more. CEOV_PENDING: a peer still maps its memory, or calls that this rank has
 * queued have not ended; call again, or leave it to ceov_close(). */
int  ceov_channel_release(ceov_channel *channel);

#ifdef __cplusplus
}
#endif

#endif /* CEOVERLAP_CHANNEL_H */
