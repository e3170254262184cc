/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Staged routes, executed by the engine: host ranks play the places of a machine from a
 * file (CEOVERLAP_MACHINE), so that helpers, slots and shares are those that GPUs would
 * have.
 */

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ceoverlap/collective.h>

#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/plan.h"
#include "testing.h"

#define RANKS_MAX 12u
#define MIB       (UINT64_C(1) << 20)

struct stand {
	ceov_context       *context;
	struct testing_log  log;
	uint32_t            n_gpus;
	ceov_buffer        *buffers[RANKS_MAX];
	ceov_signal        *done;
	uint64_t            size_bytes;
};

static char machine_path[600];

/* Opens a context whose ranks are the machine's places: GPUs, then NUMA nodes. */
static void stand_open(struct stand *stand, const char *fixture, uint32_t n_ranks,
		       uint64_t size_bytes)
{
	const char *srcdir = getenv("srcdir");
	uint32_t i;

	memset(stand, 0, sizeof(*stand));
	snprintf(machine_path, sizeof(machine_path), "%s/tests/fixtures/machines/%s",
		 srcdir ? srcdir : ".", fixture);
	setenv("CEOVERLAP_MACHINE", machine_path, 1);
	testing_log_init(&stand->log);
	stand->context = testing_open(n_ranks, &stand->log);
	stand->n_gpus = stand->context->works.topology->machine->n_gpus;
	stand->size_bytes = size_bytes;
	for (i = 0; i < n_ranks; i++)
		ck_assert_int_eq(ceov_buffer_create(stand->context, i, size_bytes,
						    &stand->buffers[i]), 0);
	ck_assert_int_eq(ceov_signal_create(stand->context, 0, testing_host, 4, 0,
					    &stand->done), 0);
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

static void fill(struct stand *stand, uint32_t rank, uint64_t seed)
{
	uint64_t *words = (uint64_t *)(void *)memory(stand, rank);
	uint64_t i;

	for (i = 0; i < stand->size_bytes / 8; i++)
		words[i] = testing_random(&seed);
}

static struct ceov_transfer whole(struct stand *stand, uint32_t from, uint32_t to)
{
	struct ceov_transfer transfer = testing_transfer(stand->buffers[from],
							 stand->buffers[to],
							 stand->size_bytes);

	transfer.then = testing_mark(stand->done, 0, 1);
	return transfer;
}

/* Commits a plan of rank `owner` with one transfer. */
static ceov_plan *plan_of(struct stand *stand, uint32_t owner,
			  const struct ceov_transfer *transfer, uint32_t routes)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options),
					     .routes = routes };
	ceov_plan *plan;

	ck_assert_int_eq(ceov_plan_create(stand->context, owner, &options, &plan), 0);
	ck_assert_int_eq(ceov_plan_add(plan, transfer), 0);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	return plan;
}

static int run(struct stand *stand, ceov_plan *plan, uint64_t base)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = base };
	ceov_ticket ticket;

	ck_assert_int_eq(ceov_launch(plan, &launch, &ticket), 0);
	return ceov_wait(stand->context, ticket, TESTING_PATIENCE);
}

static const struct cei_staging *staging_of(const struct stand *stand, uint32_t rank)
{
	return &stand->context->engines[rank]->staging;
}

static uint32_t n_helpers(const struct stand *stand, uint32_t rank)
{
	const struct cei_movers *movers = &stand->context->engines[rank]->movers;

	return movers->n - movers->n_own;
}

/* Asserts that every slot is free. */
static void check_slots(const struct stand *stand, uint32_t rank)
{
	const struct cei_staging *staging = staging_of(stand, rank);
	uint32_t i;

	for (i = 0; i < staging->n_paths; i++) {
		ck_assert_uint_eq(staging->paths[i].n_free, CEI_ROUTE_SLOTS);
		ck_assert(cei_list_is_empty(&staging->paths[i].waiting));
	}
}

static void explain(const ceov_plan *plan, char *ret_text, size_t n_bytes)
{
	char path[400];
	ssize_t n;
	int fd;

	testing_path("explained", path, sizeof(path));
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ceov_plan_explain(plan, fd), 0);
	n = pread(fd, ret_text, n_bytes - 1, 0);
	ck_assert_int_ge(n, 0);
	ret_text[n] = 0;
	close(fd);
	unlink(path);
}

START_TEST(test_no_direct_link_goes_through_host_memory)
{
	struct stand stand;
	struct ceov_transfer transfer;
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	uint64_t counter = 0;
	ceov_plan *plan;
	char text[4000];
	int token;

	stand_open(&stand, "two-no-p2p.xml", 3, 21 * MIB + 4096);
	fill(&stand, 0, testing_seed());
	transfer = whole(&stand, 0, 1);
	plan = plan_of(&stand, 0, &transfer, CEOV_ROUTES_DEFAULT);
	explain(plan, text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "staged via node0"));
	ck_assert_int_eq(run(&stand, plan, 0), 0);
	ck_assert_int_eq(memcmp(memory(&stand, 0), memory(&stand, 1), stand.size_bytes), 0);
	ck_assert_int_eq(ceov_signal_value(stand.done, 0, &counter), 0);
	ck_assert_uint_eq(counter, 1);
	check_slots(&stand, 0);
	ck_assert_uint_eq(n_helpers(&stand, 0), 1);
	launch.base = 1;
	launch.after_stream = &token;
	ck_assert_int_eq(ceov_launch(plan, &launch, NULL), CEOV_ERR_INVALID);
	testing_log_has(&stand.log, "no direct path", NULL, NULL);
	stand_close(&stand);
}
END_TEST

START_TEST(test_direct_only_is_refused_without_a_direct_link)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options),
					     .routes = CEOV_ROUTES_DIRECT };
	struct stand stand;
	struct ceov_transfer transfer;
	ceov_plan *plan;

	stand_open(&stand, "two-no-p2p.xml", 3, MIB);
	transfer = whole(&stand, 0, 1);
	ck_assert_int_eq(ceov_plan_create(stand.context, 0, &options, &plan), 0);
	ck_assert_int_eq(ceov_plan_add(plan, &transfer), 0);
	ck_assert_int_eq(ceov_plan_commit(plan), CEOV_ERR_NO_ROUTE);
	testing_log_has(&stand.log, "transfer 0: no route from rank 0 to rank 1",
			"no direct link", NULL);
	stand_close(&stand);
}
END_TEST

START_TEST(test_several_paths_at_once)
{
	struct stand stand;
	struct ceov_transfer transfer;
	ceov_plan *plan;
	char text[4000];
	uint64_t i;

	stand_open(&stand, "h200x8-nvswitch.xml", 10, 64 * MIB + 24);
	transfer = whole(&stand, 2, 5);
	plan = plan_of(&stand, 2, &transfer, CEOV_ROUTES_ALL);
	explain(plan, text, sizeof(text));
	ck_assert_msg(strstr(text, "direct,") && strstr(text, "staged via node"), "%s", text);
	for (i = 0; i < 4; i++) {
		fill(&stand, 2, testing_seed() + i);
		ck_assert_int_eq(run(&stand, plan, i), 0);
		ck_assert_int_eq(memcmp(memory(&stand, 2), memory(&stand, 5),
					stand.size_bytes), 0);
	}
	check_slots(&stand, 2);
	stand_close(&stand);
}
END_TEST

/* A gated launch of a plan with several paths takes the direct one only; a polled launch
 * takes all. */
START_TEST(test_a_gated_launch_goes_directly)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options),
					     .routes = CEOV_ROUTES_ALL };
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	struct stand stand;
	struct ceov_transfer transfer;
	ceov_ticket ticket;
	ceov_plan *plan;
	int token;

	stand_open(&stand, "h200x8-nvswitch.xml", 10, 64 * MIB);
	transfer = whole(&stand, 0, 1);
	transfer.source_ready = testing_mark(stand.done, 1, 1);
	ck_assert_int_eq(ceov_plan_create(stand.context, 0, &options, &plan), 0);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	for (launch.base = 0; launch.base < 4; launch.base++) {
		fill(&stand, 0, testing_seed() + launch.base);
		launch.producer_stream = launch.base % 2 ? &token : NULL;
		ck_assert_int_eq(ceov_launch(plan, &launch, &ticket), 0);
		ck_assert_int_eq(ceov_wait(stand.context, ticket, 2 * TESTING_MS),
				 CEOV_PENDING);
		ck_assert_int_eq(ceov_signal_raise(stand.done, 1, launch.base + 1), 0);
		ck_assert_int_eq(ceov_wait(stand.context, ticket, TESTING_PATIENCE), 0);
		ck_assert_int_eq(memcmp(memory(&stand, 0), memory(&stand, 1),
					stand.size_bytes), 0);
		check_slots(&stand, 0);
	}
	stand_close(&stand);
}
END_TEST

/* Plan templates use direct paths only, because all ranks run them at once and would compete for
 * the host's links. */
START_TEST(test_a_template_goes_directly)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options),
					     .routes = CEOV_ROUTES_ALL };
	struct ceov_all_gather gather = { .struct_bytes = sizeof(gather),
					  .shard_bytes = 32 * MIB, .n_pieces = 1 };
	ceov_signal *arrived[RANKS_MAX];
	struct stand stand;
	ceov_plan *plan;
	uint32_t i;

	/* ranks 0 and 1 are the whole group, on two GPUs of a switch */
	stand_open(&stand, "h200x8-nvswitch.xml", 2, 64 * MIB);
	for (i = 0; i < 2; i++)
		arrived[i] = testing_signal(stand.context, i, 2);
	gather.source = stand.buffers[0];
	gather.targets = stand.buffers;
	gather.arrived = arrived;
	ck_assert_int_eq(ceov_plan_create(stand.context, 0, &options, &plan), 0);
	ck_assert_int_eq(ceov_plan_add_all_gather(plan, &gather), 0);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_uint_ge(plan->program.n_transfers, 1);
	for (i = 0; i < plan->program.n_transfers; i++)
		ck_assert(!plan->steps[i].is_routed);
	ck_assert_uint_eq(staging_of(&stand, 0)->n_paths, 0);
	stand_close(&stand);
}
END_TEST

START_TEST(test_a_host_load_is_relayed_by_peers)
{
	struct stand stand;
	struct ceov_transfer transfer;
	ceov_plan *plan;
	char text[4000];

	stand_open(&stand, "h200x8-nvswitch.xml", 10, 64 * MIB);
	fill(&stand, 8, testing_seed());
	transfer = whole(&stand, 8, 0);         /* node 0 -> GPU 0 */
	plan = plan_of(&stand, 0, &transfer, CEOV_ROUTES_ALL);
	explain(plan, text, sizeof(text));
	ck_assert_msg(strstr(text, "relayed via gpu"), "%s", text);
	ck_assert_int_eq(run(&stand, plan, 0), 0);
	ck_assert_int_eq(memcmp(memory(&stand, 8), memory(&stand, 0), stand.size_bytes), 0);
	check_slots(&stand, 0);
	ck_assert_uint_ge(n_helpers(&stand, 0), 2);
	stand_close(&stand);
}
END_TEST

/* Bytes between the rows are not touched. */
START_TEST(test_rows_keep_their_shape)
{
	enum { ROWS = 10000, ROW = 8192, PITCH = 8192 + 512 };
	struct stand stand;
	struct ceov_transfer transfer;
	const unsigned char *source, *target;
	unsigned char untouched[PITCH - ROW];
	ceov_plan *plan;
	uint64_t i;

	memset(untouched, 0x5a, sizeof(untouched));
	stand_open(&stand, "h200x8-nvswitch.xml", 10, (uint64_t)ROWS * PITCH);
	fill(&stand, 1, testing_seed());
	memset(memory(&stand, 3), 0x5a, stand.size_bytes);
	transfer = whole(&stand, 1, 3);
	transfer.row_bytes = ROW;
	transfer.n_rows = ROWS;
	transfer.source.pitch_bytes = ROW;
	transfer.target.pitch_bytes = PITCH;
	plan = plan_of(&stand, 1, &transfer, CEOV_ROUTES_ALL);
	ck_assert_uint_ge(staging_of(&stand, 1)->n_paths, 1);
	ck_assert_int_eq(run(&stand, plan, 0), 0);
	source = memory(&stand, 1);
	target = memory(&stand, 3);
	for (i = 0; i < ROWS; i++) {
		ck_assert_int_eq(memcmp(source + i * ROW, target + i * PITCH, ROW), 0);
		ck_assert_int_eq(memcmp(target + i * PITCH + ROW, untouched,
					sizeof(untouched)), 0);
	}
	stand_close(&stand);
}
END_TEST

/* The mark of a transfer without bytes comes after the bytes before it, over all paths. */
START_TEST(test_an_empty_transfer_comes_last)
{
	struct ceov_transfer empty = { .struct_bytes = sizeof(empty) };
	struct stand stand;
	struct ceov_transfer transfer;
	ceov_ticket ticket;
	ceov_plan *plan;

	setenv("CEOVERLAP_HOST_COPY_DELAY_NS", "2000000", 1);
	stand_open(&stand, "two-no-p2p.xml", 3, 24 * MIB);
	fill(&stand, 0, testing_seed());
	memset(memory(&stand, 1), 0, stand.size_bytes);
	transfer = whole(&stand, 0, 1);
	transfer.then = testing_mark(NULL, 0, 0);
	empty.then = testing_mark(stand.done, 0, 1);
	plan = testing_plan(stand.context, 0);
	testing_add(plan, &transfer);
	testing_add(plan, &empty);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_int_eq(ceov_launch(plan, NULL, &ticket), 0);
	ck_assert_int_eq(ceov_signal_wait(stand.done, 0, 1, TESTING_PATIENCE), 0);
	ck_assert_int_eq(memcmp(memory(&stand, 0), memory(&stand, 1), stand.size_bytes), 0);
	ck_assert_int_eq(ceov_wait(stand.context, ticket, TESTING_PATIENCE), 0);
	unsetenv("CEOVERLAP_HOST_COPY_DELAY_NS");
	stand_close(&stand);
}
END_TEST

/* Copy number n fails: the launch fails once, and all slots are released. */
START_TEST(test_a_leg_that_fails)
{
	struct stand stand;
	struct ceov_transfer transfer;
	ceov_plan *plan;
	char text[16];

	snprintf(text, sizeof(text), "%d", _i + 1);
	setenv("CEOVERLAP_HOST_COPY_FAIL_AT", text, 1);
	stand_open(&stand, "two-no-p2p.xml", 3, 40 * MIB);
	transfer = whole(&stand, 0, 1);
	plan = plan_of(&stand, 0, &transfer, CEOV_ROUTES_DEFAULT);
	ck_assert_int_eq(run(&stand, plan, 0), CEOV_ERR_SYSTEM);
	check_slots(&stand, 0);
	unsetenv("CEOVERLAP_HOST_COPY_FAIL_AT");
	stand_close(&stand);
}
END_TEST

/* An abort comes in the middle of a launch: the launch ends, and after a renewal everything works
 * again. */
START_TEST(test_an_abort_gives_slots_back)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	struct stand stand;
	struct ceov_transfer transfer;
	ceov_ticket tickets[4];
	ceov_plan *plan;
	uint32_t i;
	int r;

	stand_open(&stand, "two-no-p2p.xml", 3, 40 * MIB);
	fill(&stand, 0, testing_seed());
	transfer = whole(&stand, 0, 1);
	plan = plan_of(&stand, 0, &transfer, CEOV_ROUTES_DEFAULT);
	for (i = 0; i < 4; i++) {
		launch.base = i;
		ck_assert_int_eq(ceov_launch(plan, &launch, &tickets[i]), 0);
	}
	usleep(3000);
	r = ceov_abort(stand.context, tickets[3]);
	ck_assert(!r || r == CEOV_NONE);
	for (i = 0; i < 4; i++)
		(void)ceov_wait(stand.context, tickets[i], TESTING_PATIENCE);
	check_slots(&stand, 0);
	ck_assert_int_eq(ceov_signal_renew(stand.done), 0);
	ck_assert_int_eq(run(&stand, plan, 4), 0);
	ck_assert_int_eq(memcmp(memory(&stand, 0), memory(&stand, 1), stand.size_bytes), 0);
	check_slots(&stand, 0);
	stand_close(&stand);
}
END_TEST

/* Many launches of plans share paths; at the end each target equals its source. */
START_TEST(test_many_at_once)
{
	struct stand stand;
	struct ceov_transfer transfer;
	ceov_ticket tickets[8][4];
	ceov_plan *plans[8];
	uint32_t i, k;

	stand_open(&stand, "h200x8-nvswitch.xml", 10, 20 * MIB);
	for (i = 0; i < 8; i += 2)
		fill(&stand, i, testing_seed() + i);
	for (i = 0; i < 8; i += 2) {
		transfer = whole(&stand, i, i + 1);
		transfer.then = testing_mark(stand.done, i / 2, 1);
		plans[i] = plan_of(&stand, i, &transfer, CEOV_ROUTES_ALL);
	}
	for (k = 0; k < 4; k++)
		for (i = 0; i < 8; i += 2) {
			struct ceov_launch launch = { .struct_bytes = sizeof(launch),
						      .base = k };

			ck_assert_int_eq(ceov_launch(plans[i], &launch, &tickets[i][k]), 0);
		}
	for (k = 0; k < 4; k++)
		for (i = 0; i < 8; i += 2)
			ck_assert_int_eq(ceov_wait(stand.context, tickets[i][k],
						   TESTING_PATIENCE), 0);
	for (i = 0; i < 8; i += 2) {
		ck_assert_int_eq(memcmp(memory(&stand, i), memory(&stand, i + 1),
					stand.size_bytes), 0);
		check_slots(&stand, i);
	}
	stand_close(&stand);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("staging");
	TCase *all = tcase_create("paths");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_no_direct_link_goes_through_host_memory);
	tcase_add_test(all, test_direct_only_is_refused_without_a_direct_link);
	tcase_add_test(all, test_several_paths_at_once);
	tcase_add_test(all, test_a_gated_launch_goes_directly);
	tcase_add_test(all, test_a_template_goes_directly);
	tcase_add_test(all, test_a_host_load_is_relayed_by_peers);
	tcase_add_test(all, test_rows_keep_their_shape);
	tcase_add_test(all, test_an_empty_transfer_comes_last);
	tcase_add_loop_test(all, test_a_leg_that_fails, 0, 4);
	tcase_add_test(all, test_an_abort_gives_slots_back);
	tcase_add_test(all, test_many_at_once);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
