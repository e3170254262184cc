/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Creates, publishes and finds shared objects in the same order on all ranks. */

#include "tools/bench/group.h"

#include "base/clock.h"

#define SPARE_SMS  8u    /* SMs left free for copies within a GPU that ranks share */
#define CONNECT_NS UINT64_C(60000000000)
#define RELEASE_NS UINT64_C(10000000000)

struct ceov_place bench_place(const struct bench_rank *rank)
{
	struct ceov_place place = { CEOV_PLACE_HOST, 0 };

	if (rank->is_gpu) {
		place.kind = CEOV_PLACE_GPU;
		place.index = rank->gpu;
	}
	return place;
}

struct ceov_place bench_mark_place(const struct bench_rank *rank)
{
	const struct ceov_place host = { CEOV_PLACE_HOST, 0 };

	return rank->n_nodes > 1 ? host : bench_place(rank);
}

void *bench_address(const struct bench_rank *rank, const ceov_buffer *buffer)
{
	return ceov_buffer_base(buffer, rank->rank);
}

uint64_t bench_seed(const struct bench_rank *rank, uint32_t source, uint32_t target,
		    uint64_t round)
{
	return rank->options->seed + (round * BENCH_RANKS_MAX + source) *
		(BENCH_RANKS_MAX * UINT64_C(0x100000001)) + target * UINT64_C(0x40000003);
}

uint64_t bench_next_size(const struct bench_options *options, uint64_t bytes)
{
	if (options->step_bytes)
		return options->end_bytes - bytes < options->step_bytes ? 0
			: bytes + options->step_bytes;
	if (bytes > options->end_bytes / options->factor)
		return 0;
	return bytes * options->factor;
}

static void next_name(struct bench_rank *rank, char *name, size_t n_bytes)
{
	snprintf(name, n_bytes, "bench.%llu", (unsigned long long)rank->n_names++);
}

int bench_share_buffers(struct bench_rank *rank, uint64_t n_bytes,
			struct bench_buffers *buffers)
{
	char name[32];
	uint32_t i;
	int r;

	next_name(rank, name, sizeof(name));
	r = ceov_buffer_create(rank->context, rank->rank, n_bytes,
			       &buffers->by_rank[rank->rank]);
	if (!r)
		r = ceov_buffer_share(buffers->by_rank[rank->rank], name);
	if (!r)
		r = bench_meet(rank);
	for (i = 0; !r && i < rank->n_ranks; i++)
		if (i != rank->rank)
			r = ceov_buffer_find(rank->context, i, name, &buffers->by_rank[i]);
	return r ? bench_fail(rank, r, "sharing buffers") : bench_meet(rank);
}

int bench_share_signals(struct bench_rank *rank, struct ceov_place place,
			uint32_t n_counters, uint32_t flags,
			struct bench_signals *signals)
{
	char name[32];
	uint32_t i;
	int r;

	next_name(rank, name, sizeof(name));
	r = ceov_signal_create(rank->context, rank->rank, place, n_counters, flags,
			       &signals->by_rank[rank->rank]);
	if (!r)
		r = ceov_signal_share(signals->by_rank[rank->rank], name);
	if (!r)
		r = bench_meet(rank);
	for (i = 0; !r && i < rank->n_ranks; i++)
		if (i != rank->rank)
			r = ceov_signal_find(rank->context, i, name, &signals->by_rank[i]);
	return r ? bench_fail(rank, r, "sharing signals") : bench_meet(rank);
}

/* Retries for a while, because a peer may not have unmapped the object yet. */
int bench_release_buffer(ceov_buffer *buffer)
{
	uint64_t deadline = cei_deadline(RELEASE_NS);
	struct cei_backoff backoff;
	int r;

	cei_backoff_reset(&backoff);
	while ((r = ceov_buffer_release(buffer)) == CEOV_PENDING && cei_now_ns() < deadline)
		cei_backoff_step(&backoff);
	return r;
}

static int release_signal(ceov_signal *signal)
{
	uint64_t deadline = cei_deadline(RELEASE_NS);
	struct cei_backoff backoff;
	int r;

	cei_backoff_reset(&backoff);
	while ((r = ceov_signal_release(signal)) == CEOV_PENDING && cei_now_ns() < deadline)
		cei_backoff_step(&backoff);
	return r;
}

/* Chooses how many SMs a rank's kernels may use. Ranks of one process that share a GPU must all
 * have SMs at once, because their kernels wait for each other. Processes take turns on a GPU, so
 * each may use all SMs but those left for copies. */
static uint64_t n_sms_for(const struct bench_rank *rank)
{
	uint32_t n_sms = bench_n_sms(rank->device);

	if (rank->n_on_gpu < 2 || n_sms <= SPARE_SMS)
		return 0;
	return (n_sms - SPARE_SMS) / (rank->options->one_process ? rank->n_on_gpu : 1) / 2 * 2;
}

int bench_open_workspace(struct bench_rank *rank, int is_capturable, uint64_t scratch_bytes,
			 ceov_workspace **ret_workspace)
{
	char name[32];
	const struct ceov_workspace_config config = {
		.struct_bytes = sizeof(config),
		.rank = rank->rank,
		.name = name,
		.scratch_bytes = scratch_bytes,
		.is_capturable = is_capturable,
		.n_sms = n_sms_for(rank),
	};
	int r;

	next_name(rank, name, sizeof(name));
	r = ceov_workspace_create(rank->context, &config, ret_workspace);
	if (!r)
		r = bench_meet(rank);
	if (!r)
		r = ceov_workspace_connect(*ret_workspace, CONNECT_NS);
	return r ? bench_fail(rank, r, "opening a workspace") : bench_meet(rank);
}

int bench_release_workspace(ceov_workspace *workspace)
{
	uint64_t deadline = cei_deadline(RELEASE_NS);
	struct cei_backoff backoff;
	int r;

	cei_backoff_reset(&backoff);
	while ((r = ceov_workspace_release(workspace)) == CEOV_PENDING &&
	       cei_now_ns() < deadline)
		cei_backoff_step(&backoff);
	return r;
}

uint64_t bench_random(uint64_t *state)
{
	uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);    /* splitmix64 */

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

int bench_drop_buffers(struct bench_rank *rank, struct bench_buffers *buffers)
{
	uint32_t i;
	int r = bench_meet(rank);

	for (i = 0; !r && i < rank->n_ranks; i++)
		if (i != rank->rank)
			r = bench_release_buffer(buffers->by_rank[i]);
	if (!r)
		r = bench_meet(rank);
	if (!r)
		r = bench_release_buffer(buffers->by_rank[rank->rank]);
	return r ? bench_fail(rank, r, "releasing buffers") : 0;
}

int bench_drop_signals(struct bench_rank *rank, struct bench_signals *signals)
{
	uint32_t i;
	int r = bench_meet(rank);

	for (i = 0; !r && i < rank->n_ranks; i++)
		if (i != rank->rank)
			r = release_signal(signals->by_rank[i]);
	if (!r)
		r = bench_meet(rank);
	if (!r)
		r = release_signal(signals->by_rank[rank->rank]);
	return r ? bench_fail(rank, r, "releasing signals") : 0;
}
