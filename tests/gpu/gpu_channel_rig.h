/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GPU_CHANNEL_RIG_H
#define CEI_GPU_CHANNEL_RIG_H

/*
 * Calls of channels between ranks on GPUs: the cases of channel_case.h with operands in a rank's
 * arena. Asserts with Check.
 */

#include <ceoverlap/channel.h>

#include "gpu_op_rig.h"
#include "unit/channel_case.h"

#define GPU_CHANNEL_RING (UINT64_C(1) << 20)

struct gpu_channel_mode {
	const char *name;
	uint64_t    ring_bytes;
	uint64_t    deadline_ns;        /* 0: the context's */
};

/* Creates and connects a channel, and releases it when the rank's streams are idle. All ranks must
 * call both. */
ceov_channel *gpu_channel_made(struct gpu_op_rank *rank, const struct gpu_channel_mode *mode);
void          gpu_channel_release(struct gpu_op_rank *rank, ceov_channel *channel);

/* Returns the case of that number, with a type that GPUs add up if it is a sum. The largest parts
 * have 3 * unit_bytes bytes. */
struct channel_case gpu_channel_case(uint32_t number, uint32_t n_ranks, uint64_t unit_bytes);

/* Whether GPUs add up numbers of the type. */
int gpu_channel_can_sum(enum ceov_dtype dtype);

/* One rank's part in a call. */
struct gpu_channel_call {
	struct gpu_op_rank *rank;
	struct channel_case one;
	struct channel_data data;       /* on the host */
	char               *memory;     /* the copy of data.memory in the rank's arena */
};

/* Makes operands and copies them to the GPU. The struct must not move afterwards. */
void gpu_channel_put(struct gpu_op_rank *rank, const struct channel_case *one,
		     const struct channel_form *form, struct gpu_channel_call *ret_call);

/* Makes the call on a stream and returns what ceov_channel_run() does. */
int  gpu_channel_run(ceov_channel *channel, const struct gpu_channel_call *call,
		     enum gpu_stream stream);

/* Copies what the call has given back to the host, and asserts that it is right. No stream may
 * still write to it. */
void gpu_channel_check(struct gpu_channel_call *call);

/* Frees what is on the host. */
void gpu_channel_drop(struct gpu_channel_call *call);

/* Asserts that the stream becomes idle, and that nothing has failed in the channel. */
void gpu_channel_idle(struct gpu_op_rank *rank, ceov_channel *channel, enum gpu_stream stream);

/* Makes an all-reduce of a few numbers and asserts that it is right. All ranks must call it. */
void gpu_channel_works(struct gpu_op_rank *rank, ceov_channel *channel);

/* Holds up a thread that makes calls without a wait for its GPU, until those of all ranks have made
 * as many; i counts from 0. The queue of a stream has room for about a thousand kernels. Where
 * ranks share a context, a thread that waits for room lets no other one queue anything. */
void gpu_channel_keep_pace(struct gpu_op_rank *rank, uint32_t i);

/* --- failures -------------------------------------------------------------------------------- */

/* Opens a rig whose log can be searched. */
void gpu_channel_open(struct gpu_op_rig *rig, uint32_t n_ranks, struct testing_log *log);
void gpu_channel_close(struct gpu_op_rig *rig);

/* Counts the lines that have both texts. */
uint32_t gpu_channel_lines(struct testing_log *log, const char *text, const char *and_text);

/* Makes a call on GPU_CONSUME that fails, and awaits the end of all that is on this stream. Its
 * result is that error, or 0 if nothing was known of it when it was queued. Nothing looks at the
 * bytes: a peer whose call differs may have mixed them up. */
void gpu_channel_run_in_vain(struct gpu_op_rank *rank, ceov_channel *channel,
			     const struct channel_case *one, int error);

/* Asserts that the channel has ended with the error, and that further calls return it. A rank whose
 * own call could end although others have failed makes it again before: at the latest the second
 * time it cannot end. */
void gpu_channel_expect_end(struct gpu_op_rank *rank, ceov_channel *channel,
			    const struct channel_case *one, int error);

#endif /* CEI_GPU_CHANNEL_RIG_H */
