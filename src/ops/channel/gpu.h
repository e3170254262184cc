/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CHANNEL_GPU_H
#define CEI_CHANNEL_GPU_H

/*
 * Channels of ranks on GPUs of one node. The calling thread queues one kernel for each call on the
 * caller's stream (kernels/channel.h), and returns. What fails then, kernels write to a status in
 * host memory, where the next call, or ceov_channel_status(), finds it. This header needs no
 * cuda.h.
 */

#include "kernels/channel.h"
#include "ops/channel/channel.h"

/* The kernels of calls. The first three are families of four: of moves, then of sums of CEOV_BF16,
 * CEOV_FP16 and CEOV_FP32, in the order of enum ceov_dtype. */
enum cei_gpu_kernel {
	CEI_GPU_PACKETS  = 0,
	CEI_GPU_LINES    = 4,
	CEI_GPU_STEPS    = 8,
	CEI_GPU_MESSAGES = 12,
	CEI_GPU_KERNELS
};

/* [enum cei_gpu_kernel] */
extern const char *const cei_gpu_kernel_names[CEI_GPU_KERNELS];

/* The kernel of a call, and of how many blocks. */
struct cei_gpu_launch {
	uint32_t kernel;                /* index of cei_gpu_kernel_names */
	uint32_t n_blocks;
	uint32_t n_threads;
	uint32_t shared_bytes;
};

/* gpu_calls.c: how calls go through a channel's memory. */

/* Divides the memory of a rank's channel, and returns its size. */
uint64_t cei_gpu_layout(uint64_t ring_bytes, uint32_t n_ranks, struct cei_channel_layout *ret);

/* Makes a call's kernel. run->place is set. */
void cei_gpu_make_run(const struct cei_call *call, struct cei_channel_run *run,
		      struct cei_gpu_launch *ret_launch);

/* Messages of a rank to itself are copies: a walk over pairs of a send and a receive, in their
 * order. Zeros at first. */
struct cei_gpu_own {
	struct ceov_call send;
	struct ceov_call receive;
	uint64_t         bytes;
	uint32_t         next_send;     /* calls before these were passed */
	uint32_t         next_receive;
};

/* Returns 1: the next pair; 0: there are no more; CEOV_ERR_INVALID, not raised: a send or a receive
 * without the other, or of another size or dtype. */
int cei_gpu_next_own(const struct cei_calls *calls, uint32_t rank, struct cei_gpu_own *own);

/* Makes the kernel of messages to and from peers, which were checked, at most
 * CEI_CHANNEL_MESSAGES_MAX. messages->n is 0 if there are none. */
void cei_gpu_make_messages(const struct cei_calls *calls, struct cei_channel_messages *messages,
			   struct cei_gpu_launch *ret_launch);

/* Returns why GPUs do not make a call that host ranks make, or NULL. */
const char *cei_gpu_call_fault(const struct cei_call *call);

/* Writes what the channel is, and how it would make the call; call: NULL: none. */
void cei_gpu_explain(const ceov_channel *channel, const struct cei_call *call, char *text,
		     size_t n);

/* gpu_fails.c: raises what kernels have found, and ends the channel. Returns the error. The status
 * may be a lie only in so far as peers' heads are. */
int cei_gpu_channel_raise(ceov_channel *channel, const struct cei_channel_status *status);

/* gpu_cuda.c: a rank's channel on its GPU; in a build without CUDA gpu_absent.c, which refuses. All
 * but open and close are called with a channel that has such a part; errors are raised. */

/* Allocates what the rank needs beside the memory that peers know. CEOV_ERR_INVALID: its GPU cannot
 * have a channel. */
int  cei_gpu_channel_open(ceov_channel *channel, uint32_t gpu);

/* Fills the channel's memory with zeros, before it is shared. */
int  cei_gpu_channel_clear(ceov_channel *channel);

/* Takes the memory of all ranks, which is found. CEOV_ERR_INVALID: a rank cannot be reached in the
 * way that kernels need. */
int  cei_gpu_channel_connect(ceov_channel *channel);

/* Queue channel->call, or messages, on the stream. The caller holds channel->lock. */
int  cei_gpu_channel_run(ceov_channel *channel, void *stream);
int  cei_gpu_channel_messages(ceov_channel *channel, const struct cei_calls *calls, void *stream);

/* Returns what kernels have found, or NULL. It stays as it is. Any thread. */
const struct cei_channel_status *cei_gpu_channel_status(const ceov_channel *channel);

/* Tells kernels, and peers, that the channel has ended with this error. Any thread. */
void cei_gpu_channel_end(ceov_channel *channel, int error);

/* Returns 0, or CEOV_PENDING: kernels of the channel are queued or run. */
int  cei_gpu_channel_idle(ceov_channel *channel);

/* Frees what open has allocated. Kernels have ended. channel->gpu may be NULL. */
void cei_gpu_channel_close(ceov_channel *channel);

#endif /* CEI_CHANNEL_GPU_H */
