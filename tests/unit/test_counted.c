/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests transfers whose launches read how many rows they move: in one process, through staging
 * memory, by a daemon, and to another node. */

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ce_engine/objects/plan.h"
#include "ce_engine/sched/launch.h"
#include "testing.h"
#include "unit/nodes_rig.h"

#define ROWS_MAX  300u
#define ROW_MAX   5000u
#define GAP_MAX   64u
#define ROOM      ((uint64_t)ROWS_MAX * (ROW_MAX + GAP_MAX))
#define UNTOUCHED 0xa5

/* Rank 0 sends rows to rank 1; the number of rows lies in memory of rank 0. */
struct rows {
	ceov_buffer *source, *target, *count;
	ceov_signal *ready, *arrived;
	ceov_plan   *plan;
	uint64_t     row_bytes, n_rows, source_pitch, target_pitch;
	void        *from, *to;
	uint64_t    *n;
};

static struct ceov_transfer transfer_of(const struct rows *rows)
{
	struct ceov_transfer transfer = testing_transfer(rows->source, rows->target,
							 rows->row_bytes);

	transfer.n_rows = rows->n_rows;
	transfer.source.pitch_bytes = rows->source_pitch;
	transfer.target.pitch_bytes = rows->target_pitch;
	transfer.source_ready = testing_mark(rows->ready, 0, 1);
	transfer.then = testing_mark(rows->arrived, 0, 1);
	transfer.n_rows_at.buffer = rows->count;
	transfer.n_rows_at.offset_bytes = 8;
	return transfer;
}

static void make(struct rows *rows, ceov_context *context)
{
	memset(rows, 0, sizeof(*rows));
	rows->source = testing_buffer(context, 0, ROOM);
	rows->target = testing_buffer(context, 1, ROOM);
	rows->count = testing_buffer(context, 0, 16);
	rows->ready = testing_signal(context, 0, 1);
	rows->arrived = testing_signal(context, 1, 1);
	rows->from = ceov_buffer_base(rows->source, 0);
	rows->to = ceov_buffer_base(rows->target, 1);
	rows->n = (uint64_t *)ceov_buffer_base(rows->count, 0) + 1;
}

static uint64_t gap(uint64_t *random)
{
	return testing_below(random, 2) ? testing_below(random, GAP_MAX) : 0;
}

/* Draws a shape: rows with and without gaps, alone, and longer than a chunk. */
static void draw(struct rows *rows, uint64_t *random)
{
	rows->n_rows = 1 + testing_below(random, testing_below(random, 3) ? ROWS_MAX : 3);
	rows->row_bytes = 1 + testing_below(random, ROW_MAX);
	rows->source_pitch = rows->row_bytes + gap(random);
	rows->target_pitch = rows->row_bytes + gap(random);
}

static void commit(struct rows *rows, ceov_context *context, uint64_t max_chunk_bytes)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options),
					     .max_chunk_bytes = max_chunk_bytes };
	struct ceov_transfer transfer = transfer_of(rows);

	ck_assert_int_eq(ceov_plan_create(context, 0, &options, &rows->plan), 0);
	testing_add(rows->plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(rows->plan), 0);
}

/* The first n rows have arrived, and nothing else was written. */
static void check_rows(const struct rows *rows, uint64_t n)
{
	static unsigned char expected[ROOM];
	uint64_t row;

	memset(expected, UNTOUCHED, ROOM);
	for (row = 0; row < n; row++)
		memcpy(expected + row * rows->target_pitch,
		       (char *)rows->from + row * rows->source_pitch, rows->row_bytes);
	ck_assert_msg(!memcmp(rows->to, expected, ROOM), "not the first %llu of %llu rows",
		      (unsigned long long)n, (unsigned long long)rows->n_rows);
}

/* One launch that moves n rows, and touches nothing else. */
static void launch(struct rows *rows, ceov_context *context, uint64_t base, uint64_t n)
{
	struct ceov_launch launched = { .struct_bytes = sizeof(launched), .base = base };
	ceov_ticket ticket;

	memset(rows->to, UNTOUCHED, ROOM);
	*rows->n = UINT64_MAX;          /* must not be read before the mark */
	ck_assert_int_eq(ceov_launch(rows->plan, &launched, &ticket), 0);
	if (base % 4 == 1)
		usleep(200);
	testing_fill(rows->from, ROOM, base);
	*rows->n = n;
	ck_assert_int_eq(ceov_signal_raise(rows->ready, 0, base + 1), 0);
	ck_assert_int_eq(ceov_signal_wait(rows->arrived, 0, base + 1, TESTING_PATIENCE), 0);
	check_rows(rows, n);
	ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), 0);
}

static void renew(struct rows *rows)
{
	ck_assert_int_eq(ceov_signal_renew(rows->ready), 0);
	ck_assert_int_eq(ceov_signal_renew(rows->arrived), 0);
}

/* The same plan moves none, all, and any number of its rows; chunks are cut at rows and in
 * them. */
START_TEST(test_as_many_rows_as_a_launch_says)
{
	uint64_t random = testing_seed(), base;
	ceov_context *context = testing_open(2, NULL);
	struct rows rows;
	uint32_t i;

	make(&rows, context);
	for (i = 0; i < testing_share(40); i++) {
		draw(&rows, &random);
		commit(&rows, context, 1 + testing_below(&random, 200000));
		launch(&rows, context, 0, 0);
		launch(&rows, context, 1, rows.n_rows);
		for (base = 2; base < 6; base++)
			launch(&rows, context, base, testing_below(&random, rows.n_rows + 1));
		testing_explained(rows.plan, "as many rows as a launch says, at most ");
		testing_explained(rows.plan, "the number of rows of a transfer is read when its "
				  "mark is reached");
		ceov_plan_release(rows.plan);
		renew(&rows);
	}
	ceov_close(context);
}
END_TEST

/* Numbers of a launch that are too large end it, say so, and move nothing; the next one goes. */
START_TEST(test_too_many_rows_fail_the_launch)
{
	const uint64_t wrong[] = { 4, UINT64_MAX, UINT64_C(1) << 32 };
	struct ceov_launch launched = { .struct_bytes = sizeof(launched) };
	struct testing_log log;
	ceov_context *context;
	ceov_ticket ticket;
	struct rows rows;
	uint32_t i;

	testing_log_init(&log);
	context = testing_open(2, &log);
	make(&rows, context);
	rows.n_rows = 3;
	rows.row_bytes = rows.source_pitch = rows.target_pitch = 100;
	commit(&rows, context, 0);
	for (i = 0; i < 3; i++) {
		memset(rows.to, UNTOUCHED, ROOM);
		*rows.n = wrong[i];
		ck_assert_int_eq(ceov_launch(rows.plan, &launched, &ticket), 0);
		ck_assert_int_eq(ceov_signal_raise(rows.ready, 0, 1), 0);
		ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), CEOV_ERR_INVALID);
		testing_log_has(&log, "transfer 0", "n_rows_at is", "of 3 rows");
		testing_log_clear(&log);
		check_rows(&rows, 0);
		renew(&rows);
	}
	launch(&rows, context, 0, 2);
	ceov_close(context);
}
END_TEST

static void refused(const struct rows *rows, const struct ceov_transfer *transfer,
		    struct testing_log *log, const char *words)
{
	ceov_plan *plan = rows->plan;
	int r = ceov_plan_add(plan, transfer);

	if (!r)
		r = ceov_plan_commit(plan);
	ck_assert_int_eq(r, CEOV_ERR_INVALID);
	testing_log_has(log, "transfer 0", words, NULL);
	testing_log_clear(log);
}

/* What cannot be read, or at no certain time. */
START_TEST(test_what_cannot_be_counted_is_refused)
{
	struct ceov_transfer right, wrong;
	struct testing_log log;
	ceov_context *context;
	struct rows rows;
	uint32_t i;

	testing_log_init(&log);
	context = testing_open(2, &log);
	make(&rows, context);
	rows.n_rows = 3;
	rows.row_bytes = rows.source_pitch = rows.target_pitch = 100;
	right = transfer_of(&rows);
	for (i = 0; i < 7; i++) {
		const char *words = "n_rows_at: offset";

		rows.plan = testing_plan(context, 0);
		wrong = right;
		switch (i) {
		case 0: wrong.source_ready.signal = NULL; words = "and source_ready"; break;
		case 1: wrong.n_rows_at.offset_bytes = 4; break;
		case 2: wrong.n_rows_at.offset_bytes = 16; break;
		case 3: wrong.n_rows_at.offset_bytes = UINT64_MAX - 7; break;
		case 4: wrong.n_rows_at.buffer = rows.target; break;
		case 5: wrong.n_rows_at.pitch_bytes = 8; words = "pitch_bytes must be 0"; break;
		case 6: wrong.row_bytes = 0; words = "row_bytes must not be 0"; break;
		}
		refused(&rows, &wrong, &log, words);
		ceov_plan_release(rows.plan);
	}
	ceov_close(context);
}
END_TEST

/* Callers that were compiled when the struct ended before n_rows_at move all rows. */
START_TEST(test_a_shorter_struct_moves_all_rows)
{
	ceov_context *context = testing_open(2, NULL);
	struct ceov_transfer transfer;
	struct rows rows;

	make(&rows, context);
	rows.n_rows = 3;
	rows.row_bytes = rows.source_pitch = rows.target_pitch = 100;
	transfer = transfer_of(&rows);
	transfer.struct_bytes = offsetof(struct ceov_transfer, n_rows_at);
	rows.plan = testing_plan(context, 0);
	testing_add(rows.plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(rows.plan), 0);
	memset(rows.to, UNTOUCHED, ROOM);
	*rows.n = 1;
	ck_assert_int_eq(ceov_launch(rows.plan, NULL, &(ceov_ticket){ 0 }), 0);
	ck_assert_int_eq(ceov_signal_raise(rows.ready, 0, 1), 0);
	ck_assert_int_eq(ceov_signal_wait(rows.arrived, 0, 1, TESTING_PATIENCE), 0);
	check_rows(&rows, 3);
	ceov_close(context);
}
END_TEST

/* A machine whose GPUs, played by host ranks, reach each other only through host memory, and one
 * where several paths share a transfer. */
START_TEST(test_staged_paths_move_as_many_rows)
{
	const char *const machines[] = { "two-no-p2p.xml", "h200x8-nvswitch.xml" };
	const char *srcdir = getenv("srcdir");
	uint64_t random = testing_seed(), base;
	char path[600];
	ceov_context *context;
	struct rows rows;

	snprintf(path, sizeof(path), "%s/tests/fixtures/machines/%s", srcdir ? srcdir : ".",
		 machines[_i]);
	setenv("CEOVERLAP_MACHINE", path, 1);
	setenv("CEOVERLAP_ROUTES", "all", 1);
	context = testing_open(2, NULL);
	make(&rows, context);
	rows.n_rows = ROWS_MAX;
	rows.row_bytes = rows.source_pitch = ROW_MAX;
	rows.target_pitch = ROW_MAX + (_i ? 8 : 0);
	commit(&rows, context, 0);
	for (base = 0; base < 12; base++)
		launch(&rows, context, base, base < 2 ? base * ROWS_MAX
		       : testing_below(&random, ROWS_MAX + 1));
	ceov_close(context);
}
END_TEST

/* Rank 1 is on another node, over a simulated network. */
/* Where links have ports, chunks wait in a queue of their link. Those that move nothing wait there,
 * too: from another queue they could overtake bytes that their mark announces. */
START_TEST(test_chunks_of_nothing_wait_for_their_link)
{
	const char *srcdir = getenv("srcdir");
	const struct cei_launch *ended;
	ceov_context *context;
	struct rows rows;
	char path[600];
	uint32_t i;

	snprintf(path, sizeof(path), "%s/tests/fixtures/machines/h200x8-nvswitch.xml",
		 srcdir ? srcdir : ".");
	setenv("CEOVERLAP_MACHINE", path, 1);
	context = testing_open(2, NULL);
	make(&rows, context);
	rows.n_rows = ROWS_MAX;
	rows.row_bytes = rows.source_pitch = rows.target_pitch = ROW_MAX;
	commit(&rows, context, 64 * ROW_MAX);
	launch(&rows, context, 0, 70);
	ended = CEI_OWNER(rows.plan->run.idle.next, struct cei_launch, link);
	ck_assert_uint_eq(rows.plan->program.n_chunks, 5);
	ck_assert_uint_eq(ended->chunks[1].job.bytes, 10 * ROW_MAX);
	for (i = 2; i < 5; i++)
		ck_assert_uint_eq(ended->chunks[i].job.bytes, 0);
	for (i = 0; i < 5; i++) {
		ck_assert_ptr_nonnull(ended->chunks[i].job.link);
		ck_assert_ptr_eq(ended->chunks[i].job.link, ended->chunks[0].job.link);
	}
	ceov_close(context);
}
END_TEST

START_TEST(test_another_node_gets_as_many_rows)
{
	static struct nodes nodes;
	uint64_t random = testing_seed(), base;
	struct ceov_transfer transfer;
	ceov_context *context;
	struct rows rows;
	ceov_signal *arrived;

	nodes_open(&nodes, 2, 1);
	context = nodes_context(&nodes, 0);
	memset(&rows, 0, sizeof(rows));
	rows.source = testing_buffer(context, 0, ROOM);
	rows.count = testing_buffer(context, 0, 16);
	rows.ready = testing_signal(context, 0, 1);
	rows.to = ceov_buffer_base(nodes_buffer(&nodes, 1, "target", ROOM), 1);
	arrived = nodes_signal(&nodes, 1, "arrived", 1);
	rows.target = nodes_find_buffer(&nodes, 0, 1, "target");
	rows.arrived = nodes_find_signal(&nodes, 0, 1, "arrived");
	rows.from = ceov_buffer_base(rows.source, 0);
	rows.n = (uint64_t *)ceov_buffer_base(rows.count, 0) + 1;
	rows.n_rows = ROWS_MAX;
	rows.row_bytes = rows.source_pitch = ROW_MAX;
	rows.target_pitch = ROW_MAX + GAP_MAX;
	transfer = transfer_of(&rows);
	rows.plan = testing_plan(context, 0);
	testing_add(rows.plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(rows.plan), 0);
	rows.arrived = arrived;
	for (base = 0; base < 12; base++)
		launch(&rows, context, base, base < 2 ? base * ROWS_MAX
		       : testing_below(&random, ROWS_MAX + 1));
	nodes_close(&nodes);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("counted");
	TCase *tcase = tcase_create("counted");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, test_as_many_rows_as_a_launch_says);
	tcase_add_test(tcase, test_too_many_rows_fail_the_launch);
	tcase_add_test(tcase, test_what_cannot_be_counted_is_refused);
	tcase_add_test(tcase, test_a_shorter_struct_moves_all_rows);
	tcase_add_loop_test(tcase, test_staged_paths_move_as_many_rows, 0, 2);
	tcase_add_test(tcase, test_chunks_of_nothing_wait_for_their_link);
	tcase_add_test(tcase, test_another_node_gets_as_many_rows);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
