/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "tools/bench/share/pair.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

static int is_gpu(const struct bench_pair *pair, uint32_t rank)
{
	return pair->config.places[rank].kind == CEOV_PLACE_GPU;
}

/* The rank whose engine makes the copies: one on a GPU, if there is one, since a host rank's has no
 * copy engine. */
static uint32_t owner(const struct bench_pair *pair)
{
	return !is_gpu(pair, 0) && is_gpu(pair, 1);
}

/* What the caller's environment says of a daemon does not count. */
static int set_environment(const struct bench_pair_config *config)
{
	if (unsetenv("CEOVERLAP_DAEMON"))
		return CEOV_ERR_SYSTEM;
	if (!config->daemon)
		return 0;
	return setenv("CEOVERLAP_DAEMON_STRICT", "1", 1) ? CEOV_ERR_SYSTEM : 0;
}

static int open_context(struct bench_pair *pair)
{
	const struct ceov_member members[2] = {
		{ 0, pair->config.places[0] }, { 1, pair->config.places[1] },
	};
	struct ceov_config config = CEOV_CONFIG_INIT;
	int r = set_environment(&pair->config);

	config.members = members;
	config.n_members = 2;
	config.n_ranks = 2;
	config.max_chunk_bytes = pair->config.chunk_bytes;
	config.daemon = pair->config.daemon;
	return r ? r : ceov_open(&config, &pair->context);
}

static int open_memory(struct bench_pair *pair)
{
	const struct ceov_place host = { CEOV_PLACE_HOST, 0 };
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < 2; i++) {
		r = bench_device_open(&pair->devices[i], is_gpu(pair, i),
				      pair->config.places[i].index);
		if (!r)
			r = ceov_buffer_create(pair->context, i, pair->config.n_bytes,
					       &pair->buffers[i]);
	}
	if (!r)
		r = ceov_signal_create(pair->context, owner(pair), host, 1, 0, &pair->ready);
	if (!r)
		r = ceov_signal_create(pair->context, owner(pair), host, 1, 0, &pair->arrived);
	return r;
}

static int make_plan(struct bench_pair *pair)
{
	const struct ceov_mark ready = { pair->ready, 0, 1 };
	const struct ceov_transfer transfer = {
		.struct_bytes = sizeof(transfer),
		.source_ready = ready,
		.source = { .buffer = pair->buffers[0] },
		.target = { .buffer = pair->buffers[1] },
		.row_bytes = pair->config.n_bytes,
		.n_rows = 1,
		.then = { pair->arrived, 0, 1 },
	};
	const struct ceov_plan_options options = {
		.struct_bytes = sizeof(options),
		.urgency = pair->config.urgency,
	};
	int r = ceov_plan_create(pair->context, owner(pair), &options, &pair->plan);

	if (!r)
		r = ceov_plan_expect(pair->plan, &ready);
	if (!r)
		r = ceov_plan_add(pair->plan, &transfer);
	return r ? r : ceov_plan_commit(pair->plan);
}

int bench_pair_open(struct bench_pair *pair, const struct bench_pair_config *config)
{
	int r;

	memset(pair, 0, sizeof(*pair));
	pair->config = *config;
	r = open_context(pair);
	if (!r)
		r = open_memory(pair);
	return r ? r : make_plan(pair);
}

void bench_pair_close(struct bench_pair *pair)
{
	uint32_t i;

	for (i = 0; i < 2; i++)
		bench_device_close(pair->devices[i]);
	ceov_close(pair->context);
}

/* --- data ---------------------------------------------------------------------- */

static void *address(const struct bench_pair *pair, uint32_t rank)
{
	return ceov_buffer_base(pair->buffers[rank], rank);
}

int bench_pair_fill(struct bench_pair *pair, uint64_t seed)
{
	uint64_t n_bytes = pair->config.n_bytes;
	int r = bench_fill(pair->devices[0], address(pair, 0), n_bytes, seed);

	return r ? r : bench_fill(pair->devices[1], address(pair, 1), n_bytes, ~seed);
}

int bench_pair_verify(struct bench_pair *pair, uint64_t seed, uint64_t *ret_n_wrong)
{
	return bench_verify(pair->devices[1], address(pair, 1), pair->config.n_bytes, seed,
			    ret_n_wrong);
}

/* --- launches ------------------------------------------------------------------ */

static uint64_t left_ns(uint64_t deadline_ns)
{
	uint64_t now_ns = cei_now_ns();

	return deadline_ns > now_ns ? deadline_ns - now_ns : 0;
}

int bench_pair_launch(struct bench_pair *pair, uint64_t deadline_ns, ceov_ticket *ret_ticket)
{
	const struct ceov_launch launch = {
		.struct_bytes = sizeof(launch),
		.base = pair->n_launches,
	};
	struct cei_backoff backoff;
	int r = ceov_signal_raise(pair->ready, 0, pair->n_launches + 1);

	if (r)
		return r;
	cei_backoff_reset(&backoff);
	while ((r = ceov_launch(pair->plan, &launch, ret_ticket)) == CEOV_FULL) {
		if (!left_ns(deadline_ns))
			return CEOV_ERR_TIMEOUT;
		cei_backoff_step(&backoff);
	}
	if (!r)
		pair->n_launches++;
	return r;
}

int bench_pair_await(struct bench_pair *pair, uint64_t deadline_ns)
{
	int r = ceov_signal_wait(pair->arrived, 0, pair->n_launches, left_ns(deadline_ns));

	return r == CEOV_PENDING ? CEOV_ERR_TIMEOUT : r;
}

int bench_pair_wait(struct bench_pair *pair, ceov_ticket ticket, uint64_t deadline_ns)
{
	int r = ceov_wait(pair->context, ticket, left_ns(deadline_ns));

	return r == CEOV_PENDING ? CEOV_ERR_TIMEOUT : r;
}

void bench_pair_failure(const struct bench_pair *pair, char text[CEOV_FAILURE_TEXT_BYTES])
{
	struct ceov_failure failure = { .text = "" };

	if (pair->context)
		(void)ceov_last_failure(pair->context, &failure);
	memcpy(text, failure.text, CEOV_FAILURE_TEXT_BYTES);
}
