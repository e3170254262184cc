/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Staged routes when something is missing, wrong or lost: limits, memory that is not
 * reachable, copies that never end, closing contexts, aborts among many plans. Host ranks
 * play the places of a machine from a file.
 */

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/plan.h"
#include "testing.h"

#define RANKS_MAX 12u
#define MIB       (UINT64_C(1) << 20)

struct stand {
	ceov_context      *context;
	struct testing_log log;
	uint32_t           n_ranks;
	uint32_t           n_gpus;
	uint64_t           size_bytes;
	ceov_buffer       *buffers[RANKS_MAX];
	ceov_signal       *done;
};

static void set_number(const char *name, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	ck_assert_int_eq(setenv(name, text, 1), 0);
}

/* Opens a context whose ranks are the machine's places: GPUs, then NUMA nodes. */
static void stand_open(struct stand *stand, const char *fixture, uint32_t n_ranks,
		       uint64_t size_bytes)
{
	const char *srcdir = getenv("srcdir");
	char path[600];
	uint32_t i;

	memset(stand, 0, sizeof(*stand));
	snprintf(path, sizeof(path), "%s/tests/fixtures/machines/%s", srcdir ? srcdir : ".",
		 fixture);
	setenv("CEOVERLAP_MACHINE", path, 1);
	testing_log_init(&stand->log);
	stand->context = testing_open(n_ranks, &stand->log);
	stand->n_ranks = n_ranks;
	stand->n_gpus = stand->context->works.topology->machine->n_gpus;
	stand->size_bytes = size_bytes;
	for (i = 0; i < n_ranks; i++)
		stand->buffers[i] = testing_buffer(stand->context, i, size_bytes);
	stand->done = testing_signal(stand->context, 0, 8);
}

static void stand_close(struct stand *stand)
{
	ceov_close(stand->context);
	unsetenv("CEOVERLAP_MACHINE");
}

static unsigned char *memory(const struct stand *stand, uint32_t rank)
{
	return ceov_buffer_base(stand->buffers[rank], rank);
}

static ceov_plan *new_plan(struct stand *stand, uint32_t rank, uint32_t routes)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options),
					     .routes = routes };
	ceov_plan *plan;

	ck_assert_int_eq(ceov_plan_create(stand->context, rank, &options, &plan), 0);
	return plan;
}

static ceov_plan *plan_with(struct stand *stand, uint32_t rank,
			    const struct ceov_transfer *transfer)
{
	ceov_plan *plan = new_plan(stand, rank, CEOV_ROUTES_ALL);

	testing_add(plan, transfer);
	ck_assert_msg(!ceov_plan_commit(plan), "rank %u: %u -> %u", rank,
		      transfer->source.buffer->rank, transfer->target.buffer->rank);
	return plan;
}

static ceov_plan *plan_of(struct stand *stand, uint32_t rank, uint32_t from, uint32_t to)
{
	struct ceov_transfer transfer = testing_transfer(stand->buffers[from],
							 stand->buffers[to],
							 stand->size_bytes);

	return plan_with(stand, rank, &transfer);
}

static ceov_ticket launch(ceov_plan *plan, uint64_t base, uint64_t deadline_ns)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = base };
	ceov_ticket ticket = { 0 };

	launch.deadline_ns = deadline_ns;
	ck_assert_int_eq(ceov_launch(plan, &launch, &ticket), 0);
	return ticket;
}

/* Asserts that every slot is free and every counter of work in flight is 0. */
static void check_idle(const struct stand *stand)
{
	const struct cei_engine *engine;
	const struct cei_lineup *lineup;
	uint32_t i, k;

	for (i = 0; i < stand->n_ranks; i++) {
		engine = stand->context->engines[i];
		ck_assert_uint_eq(engine->doorbell.n_armed, 0);
		for (k = 0; k < engine->staging.n_paths; k++) {
			ck_assert_uint_eq(engine->staging.paths[k].n_free, CEI_ROUTE_SLOTS);
			ck_assert(cei_list_is_empty(&engine->staging.paths[k].waiting));
		}
		for (k = 0; k < engine->scheduler.queues.n_lanes; k++) {
			lineup = engine->scheduler.queues.lanes[k];
			ck_assert_uint_eq(lineup->n_moving, 0);
			ck_assert_uint_eq(lineup->n_background, 0);
			ck_assert_uint_eq(lineup->background_bytes, 0);
		}
	}
	ck_assert(cei_ports_are_quiet(stand->context->works.ports));
}

/* --- bounds ---------------------------------------------------------------- */

/* An engine has so many paths and no more; a plan that comes late still goes. */
START_TEST(test_paths_run_out)
{
	struct stand stand;
	ceov_plan *plan;
	uint32_t i, other, turn, path = 0;

	stand_open(&stand, "v100x8-mesh.xml", 10, 9 * MIB);
	for (turn = 0; turn < 2; turn++) {
		for (i = 1; i < stand.n_ranks; i++) {
			other = turn ? stand.n_ranks - i : i;
			testing_fill(memory(&stand, other), stand.size_bytes, ++path);
			plan = plan_of(&stand, 0, other, 0);
			ck_assert_int_eq(ceov_wait(stand.context, launch(plan, 0, 0),
						   TESTING_PATIENCE), 0);
			ck_assert_uint_eq(testing_check(memory(&stand, 0), stand.size_bytes,
							path), stand.size_bytes);
			plan = plan_of(&stand, 0, 0, other);
			ck_assert_int_eq(ceov_wait(stand.context, launch(plan, 0, 0),
						   TESTING_PATIENCE), 0);
		}
	}
	ck_assert_uint_le(stand.context->works.engines[0].staging.n_paths, CEI_PATHS_MAX);
	check_idle(&stand);
	stand_close(&stand);
}
END_TEST

/* Paths that are only faster leave some for transfers that have no other. */
START_TEST(test_the_only_path_is_found_late)
{
	struct stand stand;
	struct cei_staging *staging;
	ceov_plan *plan;

	stand_open(&stand, "v100x8-mesh.xml", 10, 9 * MIB);
	staging = &stand.context->works.engines[0].staging;
	ck_assert_uint_eq(staging->n_paths, 0);
	staging->n_paths = CEI_PATHS_SPARE;     /* as if they were in use */
	plan = plan_of(&stand, 0, 0, 5);        /* no direct link, so it needs a staged path */
	ck_assert_uint_eq(staging->n_paths, CEI_PATHS_SPARE + 1);
	ck_assert_uint_ne(plan->cuts[0].path, CEI_PATH_DIRECT);
	plan = plan_of(&stand, 0, 8, 0);        /* node 0 -> GPU 0: the direct path is enough */
	ck_assert_uint_eq(staging->n_paths, CEI_PATHS_SPARE + 1);
	ck_assert_int_eq(plan->steps[0].is_routed, 0);
	staging->n_paths = CEI_PATHS_MAX;
	plan = new_plan(&stand, 0, CEOV_ROUTES_DEFAULT);
	ck_assert_int_eq(ceov_plan_add(plan, &(struct ceov_transfer){
		.struct_bytes = sizeof(struct ceov_transfer), .row_bytes = MIB, .n_rows = 1,
		.source = { .buffer = stand.buffers[0] },
		.target = { .buffer = stand.buffers[6] } }), 0);
	ck_assert_int_eq(ceov_plan_commit(plan), CEOV_ERR_NO_ROUTE);
	testing_log_has(&stand.log, "rank 0 to rank 6", "has no room for", NULL);
	memmove(&staging->paths[0], &staging->paths[CEI_PATHS_SPARE], sizeof(staging->paths[0]));
	staging->n_paths = 1;
	stand_close(&stand);
}
END_TEST

/* Memory that no member can address is refused. */
START_TEST(test_memory_that_nobody_reaches)
{
	uint64_t kept[CEI_MEMBERS_MAX];
	struct stand stand;
	struct cei_region *region;
	struct ceov_transfer transfer;
	ceov_plan *plan;

	stand_open(&stand, "h200x8-nvswitch.xml", 10, 16 * MIB);
	region = stand.buffers[8]->region;
	memcpy(kept, region->address, sizeof(kept));
	memset(region->address, 0, sizeof(region->address));
	transfer = testing_transfer(stand.buffers[8], stand.buffers[0], stand.size_bytes);
	plan = new_plan(&stand, 0, CEOV_ROUTES_DEFAULT + (uint32_t)_i * CEOV_ROUTES_ALL);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), CEOV_ERR_NO_ROUTE);
	testing_log_has(&stand.log, "rank 8 to rank 0", "not reachable", NULL);
	memcpy(region->address, kept, sizeof(kept));
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	stand_close(&stand);
}
END_TEST

/* Sizes beyond every buffer are refused, even if their product wraps around, and use no
 * path. */
START_TEST(test_sizes_beyond_all_bounds)
{
	static const uint64_t sizes[][2] = {
		{ UINT64_MAX, 1 }, { UINT64_MAX, UINT64_MAX }, { UINT64_C(1) << 32,
		UINT64_C(1) << 32 }, { UINT64_C(1) << 63, 2 }, { UINT64_MAX / 8 * 7, 1 },
		{ 17 * MIB, 1 },
	};
	struct stand stand;
	struct ceov_transfer transfer;
	ceov_plan *plan;
	uint32_t i;

	stand_open(&stand, "h200x8-nvswitch.xml", 10, 16 * MIB);
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		transfer = testing_transfer(stand.buffers[1], stand.buffers[0], sizes[i][0]);
		transfer.n_rows = sizes[i][1];
		transfer.source.pitch_bytes = transfer.target.pitch_bytes = sizes[i][0];
		plan = new_plan(&stand, 0, CEOV_ROUTES_ALL);
		testing_add(plan, &transfer);
		ck_assert_int_eq(ceov_plan_commit(plan), CEOV_ERR_INVALID);
		ceov_plan_release(plan);
	}
	ck_assert_uint_eq(stand.context->works.engines[0].staging.n_paths, 0);
	stand_close(&stand);
}
END_TEST

/* Host ranks play a machine's GPUs only if no rank is on a real GPU. */
START_TEST(test_host_ranks_beside_gpus_have_no_place)
{
	static struct cei_engine engine;
	struct cei_topology topology;
	struct stand stand;

	stand_open(&stand, "two-no-p2p.xml", 3, MIB);
	ck_assert_uint_eq(stand.context->works.engines[1].place, 1);
	ck_assert_uint_eq(stand.context->works.engines[2].place, CEOV_NOBODY);
	topology = *stand.context->works.topology;
	topology.n_gpus = 2;
	ck_assert_int_eq(cei_engine_open(&engine, &stand.context->site, &topology, 1), 0);
	ck_assert_uint_eq(engine.place, CEOV_NOBODY);
	cei_engine_ask_stop(&engine, cei_deadline(TESTING_PATIENCE));
	ck_assert_int_eq(cei_engine_stop(&engine, cei_deadline(TESTING_PATIENCE)), 0);
	cei_engine_close(&engine);
	stand_close(&stand);
}
END_TEST

/* --- copies that do not end ------------------------------------------------- */

/* Copy number n of every lane is lost: the launch ends, all slots are freed, and later
 * launches fail at once or take another path. */
START_TEST(test_a_leg_that_is_lost)
{
	struct stand stand;
	ceov_ticket first, second;
	ceov_plan *plan;
	uint64_t before;

	set_number("CEOVERLAP_HOST_COPY_LOSE_AT", (uint64_t)_i + 1);
	stand_open(&stand, "h200x8-nvswitch.xml", 10, 64 * MIB);
	plan = plan_of(&stand, 0, 8, 0);
	ck_assert_uint_ge(stand.context->works.engines[0].movers.n, 3);
	before = cei_now_ns();
	first = launch(plan, 0, 100 * TESTING_MS);
	second = launch(plan, 1, 60 * TESTING_SECOND);
	ck_assert_int_eq(ceov_wait(stand.context, first, TESTING_PATIENCE),
			 CEOV_ERR_UNCERTAIN);
	ck_assert_int_lt(ceov_wait(stand.context, second, TESTING_PATIENCE), 0);
	ck_assert_uint_lt(cei_now_ns() - before, 12 * TESTING_SECOND);
	check_idle(&stand);
	before = cei_now_ns();
	ck_assert_int_lt(ceov_wait(stand.context, launch(plan, 2, 0), TESTING_PATIENCE), 0);
	ck_assert_uint_lt(cei_now_ns() - before, TESTING_SECOND);
	check_idle(&stand);
	unsetenv("CEOVERLAP_HOST_COPY_LOSE_AT");
	stand_close(&stand);
}
END_TEST

/* A context closes while chunks hold slots on both legs. */
START_TEST(test_close_in_the_middle)
{
	struct ceov_transfer transfer;
	struct stand stand;
	ceov_plan *plans[3];
	uint32_t i, k, from;

	set_number("CEOVERLAP_HOST_COPY_DELAY_NS", 500000);
	for (i = 0; i < 6; i++) {
		stand_open(&stand, i % 2 ? "two-no-p2p.xml" : "h200x8-nvswitch.xml",
			   i % 2 ? 3 : 10, 48 * MIB);
		for (k = 0; k < 3; k++) {
			from = k < 2 ? k : stand.n_ranks - 1;
			transfer = testing_transfer(stand.buffers[from],
						    stand.buffers[from ? 0 : 1], 12 * MIB);
			transfer.target.offset_bytes = (k + 1) * 12 * MIB;
			plans[k] = plan_with(&stand, 0, &transfer);
		}
		for (k = 0; k < 12; k++)
			launch(plans[k % 3], k / 3, 0);
		usleep(700 * i);
		stand_close(&stand);
	}
	unsetenv("CEOVERLAP_HOST_COPY_DELAY_NS");
}
END_TEST

/* --- everything at the same time --------------------------------------------- */

#define WORKERS     3u
#define SLICE_BYTES (12 * MIB)

struct worker {
	struct stand *stand;
	uint32_t      index;
	uint64_t      random;
	uint64_t      until_ns;
	uint64_t      base;
	uint64_t      n_plans;
	ceov_signal  *done;
	pthread_t     thread;
};

/* Makes a transfer between the worker's parts of two buffers, with random size and place. */
static struct ceov_transfer any_transfer(struct worker *worker, uint32_t rank)
{
	struct stand *stand = worker->stand;
	uint32_t other = (uint32_t)testing_below(&worker->random, stand->n_ranks);
	int is_pull = (int)testing_below(&worker->random, 2);
	uint64_t at = worker->index * SLICE_BYTES;
	struct ceov_transfer transfer;

	other = other == rank ? (rank + 1) % stand->n_ranks : other;
	transfer = testing_transfer(stand->buffers[is_pull ? other : rank],
				    stand->buffers[is_pull ? rank : other],
				    1 + testing_below(&worker->random, 6 * MIB));
	transfer.source.offset_bytes = at;
	transfer.target.offset_bytes = at + 6 * MIB;
	if (!testing_below(&worker->random, 3)) {
		/* rounded down, so that the last row ends within the slice */
		transfer.n_rows = transfer.row_bytes < 5000 ? 1 : transfer.row_bytes / 5000;
		transfer.row_bytes = 4500;
		transfer.source.pitch_bytes = 4500 + 64 * testing_below(&worker->random, 2);
		transfer.target.pitch_bytes = 4500 + 500 * testing_below(&worker->random, 2);
	}
	transfer.then = testing_mark(worker->done, 0, 1);
	return transfer;
}

static void check_rows(struct stand *stand, const struct ceov_transfer *transfer)
{
	const unsigned char *source = memory(stand, transfer->source.buffer->rank);
	const unsigned char *target = memory(stand, transfer->target.buffer->rank);
	uint64_t i;

	for (i = 0; i < transfer->n_rows; i++)
		ck_assert_int_eq(memcmp(source + transfer->source.offset_bytes +
					i * transfer->source.pitch_bytes,
					target + transfer->target.offset_bytes +
					i * transfer->target.pitch_bytes,
					transfer->row_bytes), 0);
}

/* Makes up to four launches. Some are aborted, after which one more must succeed. */
static void run(struct worker *worker, ceov_plan *plan)
{
	uint32_t i, n = 1 + (uint32_t)testing_below(&worker->random, 4);
	int is_aborted = !testing_below(&worker->random, 3);
	ceov_context *context = worker->stand->context;
	ceov_ticket tickets[4];
	int r;

	for (i = 0; i < n; i++)
		tickets[i] = launch(plan, ++worker->base, 0);
	if (is_aborted) {
		usleep((useconds_t)testing_below(&worker->random, 3000));
		is_aborted = !ceov_abort(context, tickets[testing_below(&worker->random, n)]);
	}
	for (i = 0; i < n; i++) {
		r = ceov_wait(context, tickets[i], TESTING_PATIENCE);
		ck_assert_msg(!r || (is_aborted && r == CEOV_ERR_ABORTED), "%d", r);
	}
	if (!is_aborted)
		return;
	ck_assert_int_eq(ceov_signal_renew(worker->done), 0);
	tickets[0] = launch(plan, ++worker->base, 0);
	ck_assert_int_eq(ceov_wait(context, tickets[0], TESTING_PATIENCE), 0);
}

static void *work(void *arg)
{
	struct worker *worker = arg;
	struct stand *stand = worker->stand;
	struct ceov_plan_options options = { .struct_bytes = sizeof(options),
					     .routes = CEOV_ROUTES_ALL };
	struct ceov_transfer transfer;
	ceov_plan *plan;
	uint32_t rank;

	while (cei_now_ns() < worker->until_ns) {
		rank = (uint32_t)testing_below(&worker->random, stand->n_gpus);
		options.urgency = (uint32_t)testing_below(&worker->random, 3);
		options.max_chunk_bytes = (64 * 1024) << testing_below(&worker->random, 9);
		transfer = any_transfer(worker, rank);
		testing_fill(memory(stand, transfer.source.buffer->rank) +
			     worker->index * SLICE_BYTES, 6 * MIB, worker->random);
		ck_assert_int_eq(ceov_plan_create(stand->context, rank, &options, &plan), 0);
		testing_add(plan, &transfer);
		ck_assert_int_eq(ceov_plan_commit(plan), 0);
		run(worker, plan);
		check_rows(stand, &transfer);
		worker->base++;
		ceov_plan_release(plan);
		worker->n_plans++;
	}
	return NULL;
}

/* Threads make, abort and release plans while engines turn. */
START_TEST(test_plans_come_and_go)
{
	static const char *const fixtures[] = { "h200x8-nvswitch.xml", "v100x8-mesh.xml",
						"two-no-p2p.xml", "pcie8-switches-nics.xml" };
	static const uint32_t n_ranks[] = { 10, 10, 3, 10 };
	struct worker workers[WORKERS];
	struct stand stand;
	uint32_t i;

	stand_open(&stand, fixtures[_i], n_ranks[_i], WORKERS * SLICE_BYTES);
	memset(workers, 0, sizeof(workers));
	for (i = 0; i < WORKERS; i++) {
		workers[i].stand = &stand;
		workers[i].index = i;
		workers[i].random = testing_seed() + i * 977;
		workers[i].until_ns = cei_deadline(2 * TESTING_SECOND);
		workers[i].done = testing_signal(stand.context, 0, 1);
		ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work,
						&workers[i]), 0);
	}
	for (i = 0; i < WORKERS; i++) {
		pthread_join(workers[i].thread, NULL);
		ck_assert_uint_gt(workers[i].n_plans, 0);
	}
	check_idle(&stand);
	stand_close(&stand);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("staging_fails");
	TCase *all = tcase_create("paths");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_paths_run_out);
	tcase_add_test(all, test_the_only_path_is_found_late);
	tcase_add_loop_test(all, test_memory_that_nobody_reaches, 0, 2);
	tcase_add_test(all, test_sizes_beyond_all_bounds);
	tcase_add_test(all, test_host_ranks_beside_gpus_have_no_place);
	tcase_add_loop_test(all, test_a_leg_that_is_lost, 0, 2);
	tcase_add_test(all, test_close_in_the_middle);
	tcase_add_loop_test(all, test_plans_come_and_go, 0, 4);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
