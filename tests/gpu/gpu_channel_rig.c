/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "gpu_channel_rig.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define PACE 50u                        /* calls that a rank is ahead of others at most */

/* --- channels -------------------------------------------------------------------------------- */

ceov_channel *gpu_channel_made(struct gpu_op_rank *rank, const struct gpu_channel_mode *mode)
{
	struct ceov_channel_config config = { .struct_bytes = sizeof(config) };
	ceov_channel *channel = NULL;

	config.rank = rank->rank;
	config.name = mode->name;
	config.ring_bytes = mode->ring_bytes;
	config.deadline_ns = mode->deadline_ns;
	gpu_op_result_check(rank, ceov_channel_create(rank->context, &config, &channel));
	gpu_op_meet(rank);
	gpu_op_result_check(rank, ceov_channel_connect(channel, TESTING_PATIENCE));
	gpu_op_meet(rank);
	return channel;
}

/* Retries, because each peer unmaps the channel's memory only in its own call. */
void gpu_channel_release(struct gpu_op_rank *rank, ceov_channel *channel)
{
	uint64_t deadline_ns = cei_deadline(TESTING_PATIENCE);
	int r;

	gpu_op_meet(rank);
	while ((r = ceov_channel_release(channel)) == CEOV_PENDING) {
		ck_assert_uint_lt(cei_now_ns(), deadline_ns);
		usleep(1000);
	}
	gpu_op_result_check(rank, r);
	gpu_op_meet(rank);
}

/* --- calls ----------------------------------------------------------------------------------- */

int gpu_channel_can_sum(enum ceov_dtype dtype)
{
	return dtype == CEOV_BF16 || dtype == CEOV_FP16 || dtype == CEOV_FP32;
}

struct channel_case gpu_channel_case(uint32_t number, uint32_t n_ranks, uint64_t unit_bytes)
{
	static const enum ceov_dtype summed[] = { CEOV_BF16, CEOV_FP16, CEOV_FP32 };
	struct channel_case one = channel_case_random(testing_seed(), number, n_ranks, unit_bytes);

	if (channel_case_is_sum(&one) && !gpu_channel_can_sum(one.dtype)) {
		one.dtype = summed[one.dtype % 3];
		one.reduction = (enum ceov_reduction)(number % (CEOV_MEAN + 1));
	}
	return one;
}

void gpu_channel_put(struct gpu_op_rank *rank, const struct channel_case *one,
		     const struct channel_form *form, struct gpu_channel_call *ret_call)
{
	ret_call->rank = rank;
	ret_call->one = *one;
	channel_data_make(one, rank->rank, form, &ret_call->data);
	ret_call->memory = gpu_op_take(rank, ret_call->data.n_bytes);
	gpu_move(&rank->gpu, ret_call->memory, ret_call->data.memory, ret_call->data.n_bytes);
}

int gpu_channel_run(ceov_channel *channel, const struct gpu_channel_call *call,
		    enum gpu_stream stream)
{
	struct ceov_call made = channel_data_call_at(&call->data, call->memory);

	made.stream = call->rank->gpu.streams[stream];
	return ceov_channel_run(channel, &made, 1);
}

void gpu_channel_check(struct gpu_channel_call *call)
{
	gpu_move(&call->rank->gpu, call->data.memory, call->memory, call->data.n_bytes);
	channel_data_check(&call->one, call->rank->rank, &call->data);
}

void gpu_channel_drop(struct gpu_channel_call *call)
{
	channel_data_free(&call->data);
}

void gpu_channel_idle(struct gpu_op_rank *rank, ceov_channel *channel, enum gpu_stream stream)
{
	gpu_idle(&rank->gpu, stream);
	gpu_op_result_check(rank, ceov_channel_status(channel));
}

void gpu_channel_works(struct gpu_op_rank *rank, ceov_channel *channel)
{
	struct channel_case one = channel_case_of(CEOV_ALL_REDUCE, CEOV_FP32, rank->rig->n_ranks,
						  7);
	struct channel_form form = { 0 };
	struct gpu_channel_call call;

	gpu_channel_put(rank, &one, &form, &call);
	gpu_op_result_check(rank, gpu_channel_run(channel, &call, GPU_CONSUME));
	gpu_channel_idle(rank, channel, GPU_CONSUME);
	gpu_channel_check(&call);
	gpu_channel_drop(&call);
}

void gpu_channel_keep_pace(struct gpu_op_rank *rank, uint32_t i)
{
	if (i % PACE == PACE - 1)
		gpu_op_meet(rank);
}

/* --- failures -------------------------------------------------------------------------------- */

void gpu_channel_open(struct gpu_op_rig *rig, uint32_t n_ranks, struct testing_log *log)
{
	ceov_context *contexts[GPU_OP_RANKS_ROOM], *context = NULL;
	struct ceov_member members[GPU_OP_RANKS_ROOM];
	struct ceov_config config = CEOV_CONFIG_INIT;
	uint32_t i;

	ck_assert_uint_le(n_ranks, GPU_OP_RANKS_ROOM);
	testing_log_init(log);
	for (i = 0; i < n_ranks; i++)
		members[i] = (struct ceov_member){ i, { CEOV_PLACE_GPU, gpu_of_rank(i) } };
	config.members = members;
	config.n_members = config.n_ranks = n_ranks;
	config.deadline_ns = GPU_DEADLINE;
	config.log = testing_log_line;
	config.log_arg = log;
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	for (i = 0; i < n_ranks; i++)
		contexts[i] = context;
	gpu_op_open_in(rig, n_ranks, contexts);
}

void gpu_channel_close(struct gpu_op_rig *rig)
{
	ceov_context *context = rig->ranks[0].context;

	gpu_op_close(rig);
	ceov_close(context);
}

uint32_t gpu_channel_lines(struct testing_log *log, const char *text, const char *and_text)
{
	uint32_t i, n = 0;

	pthread_mutex_lock(&log->lock);
	for (i = 0; i < TESTING_LINES && i < log->n_lines; i++)
		n += strstr(log->lines[i], text) && strstr(log->lines[i], and_text);
	for (i = 0; !n && i < TESTING_LINES && i < log->n_lines; i++)
		fprintf(stderr, "logged: %s\n", log->lines[i]);
	pthread_mutex_unlock(&log->lock);
	return n;
}

static int status_of(const struct gpu_op_rank *rank, ceov_channel *channel)
{
	uint64_t deadline_ns = cei_deadline(TESTING_PATIENCE);
	int r;

	while (!(r = ceov_channel_status(channel))) {
		ck_assert_msg(cei_now_ns() < deadline_ns, "rank %u: no error is known",
			      rank->rank);
		usleep(1000);
	}
	return r;
}

void gpu_channel_run_in_vain(struct gpu_op_rank *rank, ceov_channel *channel,
			     const struct channel_case *one, int error)
{
	const struct channel_form form = { 0 };
	struct gpu_channel_call call;
	int r;

	gpu_channel_put(rank, one, &form, &call);
	r = gpu_channel_run(channel, &call, GPU_CONSUME);
	ck_assert_msg(!r || r == error, "rank %u: %s instead of: %s", rank->rank,
		      ceov_strerror(r), ceov_strerror(error));
	gpu_idle(&rank->gpu, GPU_CONSUME);
	gpu_channel_drop(&call);
}

void gpu_channel_expect_end(struct gpu_op_rank *rank, ceov_channel *channel,
			    const struct channel_case *one, int error)
{
	uint32_t i;
	int r;

	for (i = 0; i < 2 && !ceov_channel_status(channel); i++)
		gpu_channel_run_in_vain(rank, channel, one, error);
	r = status_of(rank, channel);
	ck_assert_msg(r == error, "rank %u: %s instead of: %s", rank->rank, ceov_strerror(r),
		      ceov_strerror(error));
	gpu_channel_run_in_vain(rank, channel, one, error);
	ck_assert_int_eq(ceov_channel_status(channel), error);
}
