/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests what an engine counts of the chunks that it moves, also while another thread reads. */

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "base/clock.h"
#include "ce_engine/engine/clients.h"
#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/sched/tally.h"
#include "testing.h"

#define BYTES    UINT64_C(1000000)
#define CHUNK    UINT64_C(100000)
#define N_CHUNKS 10u
#define TURNS    100000u                /* far more than a launch needs */
#define URGENT   CEOV_URGENCY_URGENT

struct fixture {
	ceov_context     *context;
	struct cei_tally *tally;
	ceov_signal      *ready;
	ceov_plan        *plan;
	uint64_t          base;
};

static void make_plan(struct fixture *f)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options),
					     .max_chunk_bytes = CHUNK, .urgency = URGENT };
	struct ceov_transfer transfer;

	transfer = testing_transfer(testing_buffer(f->context, 0, BYTES),
				    testing_buffer(f->context, 0, BYTES), BYTES);
	f->ready = testing_signal(f->context, 0, 1);
	transfer.source_ready = testing_mark(f->ready, 0, 1);
	ck_assert_int_eq(ceov_plan_create(f->context, 0, &options, &f->plan), 0);
	testing_add(f->plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(f->plan), 0);
}

static void set_up(struct fixture *f, int is_turned)
{
	f->context = is_turned ? testing_open_turned(1, NULL) : testing_open(1, NULL);
	f->tally = cei_tally_create();
	ck_assert_ptr_nonnull(f->tally);
	/* no chunk exists yet */
	f->context->engines[0]->scheduler.tally = f->tally;
	f->base = 0;
	make_plan(f);
}

static void tear_down(struct fixture *f)
{
	ceov_close(f->context);
	cei_tally_destroy(f->tally);
}

static void run(struct fixture *f)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = f->base };
	ceov_ticket ticket;
	uint32_t i;

	ck_assert_int_eq(ceov_launch(f->plan, &launch, &ticket), 0);
	ck_assert_int_eq(ceov_signal_raise(f->ready, 0, ++f->base), 0);
	for (i = 0; i < TURNS && ceov_wait(f->context, ticket, 0) == CEOV_PENDING; i++)
		ceov_turn(f->context);
	ck_assert_int_eq(ceov_wait(f->context, ticket, 0), 0);
}

static struct cei_tally_link_view view_of(struct fixture *f)
{
	struct cei_tally_link_view view = { .link = NULL };

	ck_assert_int_eq(cei_tally_read_link(f->tally, 0, &view), 1);
	return view;
}

START_TEST(test_chunks_are_counted_by_link_and_class)
{
	struct cei_tally_link_view view;
	struct fixture f;

	set_up(&f, 1);
	memset(&view, 0, sizeof(view));
	ck_assert_int_eq(cei_tally_read_link(f.tally, 0, &view), 0);
	cei_tally_aim(f.tally, URGENT, TESTING_PATIENCE);
	run(&f);
	cei_tally_aim(f.tally, URGENT, 1);      /* nothing is as fast */
	run(&f);
	view = view_of(&f);
	ck_assert_uint_eq(view.classes[URGENT].bytes, 2 * BYTES);
	ck_assert_uint_eq(view.classes[URGENT].moved.n_all, 2 * N_CHUNKS);
	ck_assert_uint_eq(view.classes[URGENT].waited.n_all, 2 * N_CHUNKS);
	ck_assert_uint_gt(view.classes[URGENT].moved.sum_ns, 0);
	ck_assert_uint_eq(view.classes[URGENT].n_aimed, 2 * N_CHUNKS);
	ck_assert_uint_eq(view.classes[URGENT].n_in_time, N_CHUNKS);
	ck_assert_uint_eq(view.classes[CEOV_URGENCY_NORMAL].bytes, 0);
	ck_assert_uint_eq(view.n_waiting, 0);
	ck_assert_uint_eq(view.n_moving, 0);
	ck_assert_uint_eq(cei_tally_waiting(f.tally, 0), 0);
	ck_assert_int_eq(cei_tally_read_link(f.tally, 1, &view), 0);
	tear_down(&f);
}
END_TEST

START_TEST(test_what_waits_and_moves_is_seen)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	struct cei_tally_link_view view;
	struct fixture f;
	ceov_ticket ticket;
	uint32_t n = 0;

	set_up(&f, 1);
	ck_assert_int_eq(ceov_launch(f.plan, &launch, &ticket), 0);
	ceov_turn(f.context);
	memset(&view, 0, sizeof(view));
	ck_assert_int_eq(cei_tally_read_link(f.tally, 0, &view), 0);    /* not ready */
	ck_assert_int_eq(ceov_signal_raise(f.ready, 0, 1), 0);
	while (!n && ceov_wait(f.context, ticket, 0) == CEOV_PENDING) {
		ceov_turn(f.context);
		view = view_of(&f);
		n = view.n_waiting + view.n_moving;
		ck_assert_uint_eq(cei_tally_waiting(f.tally, 0), view.n_waiting);
	}
	ck_assert_uint_gt(n, 0);
	ck_assert_uint_le(n, N_CHUNKS);
	ck_assert_int_eq(ceov_abort(f.context, ticket), 0);
	for (n = 0; n < TURNS && ceov_wait(f.context, ticket, 0) == CEOV_PENDING; n++)
		ceov_turn(f.context);
	view = view_of(&f);
	ck_assert_uint_eq(view.n_waiting + view.n_moving, 0);
	tear_down(&f);
}
END_TEST

/* A limit lets one chunk go, and keeps the others back until their launch is aborted. */
START_TEST(test_chunks_that_are_dropped_wait_no_longer)
{
	const struct cei_flows_limits slow = { .weight = 1, .bytes_per_s = 1 };
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	struct cei_tally_link_view view;
	struct cei_works *works;
	struct fixture f;
	ceov_ticket ticket;
	uint32_t i;

	set_up(&f, 1);
	works = &f.context->works;
	ck_assert_int_eq(cei_clients_share(works), 0);
	ck_assert_int_eq(cei_flows_change(works->flows, 0, &slow), 0);
	cei_queues_share(&f.context->engines[0]->scheduler.queues, works->flows);
	ck_assert_int_eq(ceov_launch(f.plan, &launch, &ticket), 0);
	ck_assert_int_eq(ceov_signal_raise(f.ready, 0, 1), 0);
	for (i = 0; i < 100; i++)
		ceov_turn(f.context);
	ck_assert_uint_eq(view_of(&f).n_waiting, N_CHUNKS - 1);
	ck_assert_uint_eq(cei_tally_waiting(f.tally, 0), N_CHUNKS - 1);
	ck_assert_int_eq(ceov_abort(f.context, ticket), 0);
	for (i = 0; i < TURNS && ceov_wait(f.context, ticket, 0) == CEOV_PENDING; i++)
		ceov_turn(f.context);
	view = view_of(&f);
	ck_assert_uint_eq(view.n_waiting, 0);
	ck_assert_uint_eq(view.classes[URGENT].moved.n_all, 1);
	ck_assert_uint_eq(cei_tally_waiting(f.tally, 0), 0);
	tear_down(&f);
}
END_TEST

START_TEST(test_the_last_chunks_are_remembered)
{
	struct cei_tally_record last[CEI_TALLY_RECORDS + 1];
	struct fixture f;
	uint32_t i, n;

	set_up(&f, 1);
	run(&f);
	ck_assert_uint_eq(cei_tally_read_last(f.tally, CEI_TALLY_RECORDS + 1, last), N_CHUNKS);
	for (i = 0; i < N_CHUNKS; i++) {
		ck_assert_uint_eq(last[i].chunk, i);
		ck_assert_uint_eq(last[i].bytes, CHUNK);
		ck_assert_uint_eq(last[i].urgency, URGENT);
		ck_assert_int_eq(last[i].error, 0);
	}
	for (n = 0; n < 40; n++)
		run(&f);
	ck_assert_uint_eq(cei_tally_read_last(f.tally, CEI_TALLY_RECORDS + 1, last),
			  CEI_TALLY_RECORDS);
	for (i = 1; i < CEI_TALLY_RECORDS; i++)
		ck_assert_uint_ge(last[i].done_ns, last[i - 1].done_ns);
	ck_assert_uint_eq(cei_tally_read_last(f.tally, 3, last), 3);
	ck_assert_uint_eq(last[2].chunk, N_CHUNKS - 1);
	tear_down(&f);
}
END_TEST

/* The engine has a thread of its own here, and this one reads what it counts. */
START_TEST(test_others_may_read_meanwhile)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	struct cei_tally_record last[CEI_TALLY_RECORDS];
	struct cei_tally_link_view view;
	uint64_t seen = 0, i;
	struct fixture f;
	ceov_ticket ticket;

	set_up(&f, 0);
	for (i = 0; i < 200; i++) {
		launch.base = i;
		ck_assert_int_eq(ceov_launch(f.plan, &launch, &ticket), 0);
		ck_assert_int_eq(ceov_signal_raise(f.ready, 0, i + 1), 0);
		do {
			memset(&view, 0, sizeof(view));
			(void)cei_tally_read_link(f.tally, 0, &view);
			ck_assert_uint_ge(view.classes[URGENT].bytes, seen);
			seen = view.classes[URGENT].bytes;
			ck_assert_uint_le(view.n_waiting, N_CHUNKS);
			(void)cei_tally_read_last(f.tally, CEI_TALLY_RECORDS, last);
		} while (ceov_wait(f.context, ticket, 0) == CEOV_PENDING);
		ck_assert_int_eq(ceov_wait(f.context, ticket, 0), 0);
	}
	ck_assert_uint_eq(view_of(&f).classes[URGENT].bytes, 200 * BYTES);
	tear_down(&f);
}
END_TEST

static Suite *suite(void)
{
	Suite *all = suite_create("tally");
	TCase *cases = tcase_create("tally");

	tcase_set_timeout(cases, 60);
	tcase_add_test(cases, test_chunks_are_counted_by_link_and_class);
	tcase_add_test(cases, test_what_waits_and_moves_is_seen);
	tcase_add_test(cases, test_chunks_that_are_dropped_wait_no_longer);
	tcase_add_test(cases, test_the_last_chunks_are_remembered);
	tcase_add_test(cases, test_others_may_read_meanwhile);
	suite_add_tcase(all, cases);
	return all;
}

int main(void)
{
	return testing_run(suite());
}
