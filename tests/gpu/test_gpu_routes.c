/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Tests staged routes on GPUs: through host memory, and over other GPUs' links to the host. A
 * kernel that awaits the mark at the target checks the bytes.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/plan.h"
#include "gpu_rig.h"
#include "testing.h"

#define MIB      (UINT64_C(1) << 20)
#define LAUNCHES 6u
#define AWAIT_NS (10 * TESTING_SECOND)
#define GPUS_MAX 8u

static uint32_t n_all;
static ceov_context *context;
static struct gpu gpus[GPUS_MAX];

static void print_line(void *arg, const char *line)
{
	(void)arg;
	fprintf(stderr, "%s\n", line);
}

/* Opens rank i on GPU i, and one more rank on the host. */
static void open_ranks(uint32_t n_gpus)
{
	struct ceov_member members[GPUS_MAX + 1];
	struct ceov_config config = CEOV_CONFIG_INIT;
	uint32_t i;

	for (i = 0; i < n_gpus; i++)
		members[i] = (struct ceov_member){ i, { CEOV_PLACE_GPU, i } };
	members[n_gpus] = (struct ceov_member){ n_gpus, { CEOV_PLACE_HOST, 0 } };
	config.members = members;
	config.n_members = config.n_ranks = n_gpus + 1;
	config.log = print_line;
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	for (i = 0; i < n_gpus; i++)
		gpu_open(&gpus[i], i);
}

static void close_ranks(uint32_t n_gpus)
{
	uint32_t i;

	for (i = 0; i < n_gpus; i++)
		gpu_close(&gpus[i]);
	ceov_close(context);
}

struct route {
	uint32_t     n_gpus;
	uint32_t     from;
	uint32_t     to;
	uint64_t     n_bytes;
	ceov_buffer *source;
	ceov_buffer *target;
	ceov_signal *arrived;
	ceov_plan   *plan;
};

static int is_gpu(const struct route *route, uint32_t rank)
{
	return rank < route->n_gpus;
}

/* Returns the GPU whose kernels fill and check a rank's memory; GPU 0 for host memory. */
static struct gpu *gpu_for(const struct route *route, uint32_t rank)
{
	return &gpus[is_gpu(route, rank) ? rank : 0];
}

static struct gpu_words words_of(const struct route *route, int is_target, uint64_t seed)
{
	uint32_t rank = is_target ? route->to : route->from;
	ceov_buffer *buffer = is_target ? route->target : route->source;
	struct gpu_words words = {
		ceov_buffer_base(buffer, is_gpu(route, rank) ? rank : 0),
		route->n_bytes / 8, seed
	};

	/* for host memory the call above does not return the address that GPU 0 uses */
	if (!is_gpu(route, rank))
		words.p = (void *)(uintptr_t)buffer->region->address[0];
	return words;
}

static void build(struct route *route, uint32_t routes)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options),
					     .routes = routes };
	uint32_t owner = is_gpu(route, route->from) ? route->from : route->to;
	uint32_t looker = gpu_for(route, route->to)->index;
	struct ceov_transfer transfer;

	route->source = testing_buffer(context, route->from, route->n_bytes);
	route->target = testing_buffer(context, route->to, route->n_bytes);
	route->arrived = gpu_signal(context, looker, looker, 1, CEOV_SIGNAL_HOST_VISIBLE);
	ck_assert_int_eq(ceov_plan_create(context, owner, &options, &route->plan), 0);
	transfer = testing_transfer(route->source, route->target, route->n_bytes);
	transfer.then = testing_mark(route->arrived, 0, 1);
	testing_add(route->plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(route->plan), 0);
	ck_assert_int_eq(ceov_plan_explain(route->plan, STDOUT_FILENO), 0);
}

static void check_slots(const struct route *route)
{
	const struct cei_staging *staging =
		&context->engines[route->plan->member]->staging;
	uint32_t i;

	ck_assert_uint_ge(staging->n_paths, 1);
	for (i = 0; i < staging->n_paths; i++)
		ck_assert_uint_eq(staging->paths[i].n_free, CEI_ROUTE_SLOTS);
}

/* Launches the plan. One kernel at the target awaits the mark, and another one checks the bytes. */
static void run(struct route *route)
{
	struct gpu *source = gpu_for(route, route->from), *target = gpu_for(route, route->to);
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	struct ceov_mark mark = { route->arrived, 0, 0 };
	struct gpu_words words;
	ceov_ticket ticket;
	uint32_t k;

	for (k = 0; k < LAUNCHES; k++) {
		words = words_of(route, 0, testing_seed() + 1000003 * k);
		gpu_fill(source, GPU_CONTROL, &words);
		gpu_idle(source, GPU_CONTROL);
		gpu_reset(target, 0);
		gpu_reset(target, 1);
		mark.value = k + 1;
		gpu_await(target, gpu_view(route->arrived, target->index), &mark, AWAIT_NS, 1);
		words = words_of(route, 1, words.seed);
		gpu_verify(target, GPU_CONSUME, &words, 0);
		launch.base = k;
		ck_assert_int_eq(ceov_launch(route->plan, &launch, &ticket), 0);
		ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), 0);
		gpu_idle(target, GPU_CONSUME);
		ck_assert_uint_eq(gpu_result(target, 1).status, GPU_REACHED);
		ck_assert_uint_eq(gpu_result(target, 0).n_wrong, 0);
		check_slots(route);
	}
	ceov_plan_release(route->plan);
}

START_TEST(test_a_pair_over_several_paths)
{
	struct route route = { .n_gpus = 2, .from = 0, .to = 1, .n_bytes = 160 * MIB + 4104 };

	open_ranks(2);
	build(&route, CEOV_ROUTES_ALL);
	run(&route);
	close_ranks(2);
}
END_TEST

START_TEST(test_a_pull_over_several_paths)
{
	struct route route = { .n_gpus = 2, .from = 1, .to = 0, .n_bytes = 160 * MIB };

	open_ranks(2);
	build(&route, CEOV_ROUTES_ALL);
	run(&route);
	close_ranks(2);
}
END_TEST

START_TEST(test_the_host_by_relays)
{
	struct route route = { .n_gpus = n_all, .n_bytes = 96 * MIB };

	open_ranks(n_all);
	route.from = _i ? 0 : n_all;
	route.to = _i ? n_all : 0;
	build(&route, CEOV_ROUTES_ALL);
	run(&route);
	close_ranks(n_all);
}
END_TEST

/* Uses a machine from a file in which GPUs do not reach each other. */
START_TEST(test_no_peer_access)
{
	struct route route = { .n_gpus = 2, .from = 0, .to = 1, .n_bytes = 40 * MIB };
	const char *srcdir = getenv("srcdir");
	char path[600];

	snprintf(path, sizeof(path), "%s/tests/fixtures/machines/two-no-p2p.xml",
		 srcdir ? srcdir : ".");
	setenv("CEOVERLAP_MACHINE", path, 1);
	open_ranks(2);
	build(&route, CEOV_ROUTES_DEFAULT);
	run(&route);
	close_ranks(2);
	unsetenv("CEOVERLAP_MACHINE");
}
END_TEST

static Suite *suite(uint32_t n_gpus)
{
	Suite *made = suite_create("gpu routes");
	TCase *all = tcase_create("paths");

	n_all = n_gpus < GPUS_MAX ? n_gpus : GPUS_MAX;
	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_a_pair_over_several_paths);
	tcase_add_test(all, test_a_pull_over_several_paths);
	tcase_add_loop_test(all, test_the_host_by_relays, 0, 2);
	tcase_add_test(all, test_no_peer_access);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return gpu_main(2, suite);
}
