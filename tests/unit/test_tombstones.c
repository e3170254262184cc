/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Uses handles long after their release, or after their context was closed. */

#include <check.h>
#include <string.h>

#include "base/clock.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/object.h"
#include "ce_engine/objects/object.h"
#include "testing.h"

/* More releases than a context's quarantine holds, but fewer than the quarantine and the list of
 * dead handles hold together. */
#define N_LATER (CEI_QUARANTINE_MAX + CEI_TOMBSTONES_HANDLES / 2)

/* Releases many handles, none of which may get the memory of `old`. */
static void release_many(ceov_context *context, uint32_t n, const ceov_buffer *old)
{
	ceov_buffer *buffer;
	uint32_t i;

	for (i = 0; i < n; i++) {
		ck_assert_int_eq(ceov_buffer_float(context, 0, 4096, &buffer), 0);
		ck_assert_ptr_ne(buffer, old);
		ck_assert_int_eq(ceov_buffer_release(buffer), 0);
	}
}

START_TEST(test_a_handle_is_refused_long_after_its_release)
{
	struct testing_log log;
	ceov_context *context;
	ceov_buffer *old;

	testing_log_init(&log);
	context = testing_open(1, &log);
	release_many(context, CEI_QUARANTINE_MAX + 100, NULL);  /* fill malloc's caches first */
	old = testing_buffer(context, 0, 4096);
	ck_assert_int_eq(ceov_buffer_release(old), 0);
	ck_assert_int_eq(ceov_buffer_release(old), CEOV_ERR_INVALID);
	testing_log_has(&log, "the buffer was released before", NULL, NULL);
	release_many(context, N_LATER, old);
	ck_assert_int_eq(ceov_buffer_release(old), CEOV_ERR_INVALID);
	ck_assert_ptr_null(ceov_buffer_base(old, 0));
	ck_assert_int_eq(ceov_buffer_share(old, "x"), CEOV_ERR_INVALID);
	ceov_close(context);
}
END_TEST

/* A long-lived context keeps the memory of a bounded number of released handles. */
START_TEST(test_a_context_keeps_a_bounded_number)
{
	ceov_context *context = testing_open(1, NULL);
	struct cei_list *node;
	uint32_t n = 0;

	release_many(context, CEI_QUARANTINE_MAX + 100, NULL);
	for (node = context->quarantine.next; node != &context->quarantine; node = node->next)
		n++;
	ck_assert_uint_eq(n, CEI_QUARANTINE_MAX);
	ceov_close(context);
}
END_TEST

struct closed {
	ceov_context *context;
	ceov_buffer  *source;
	ceov_buffer  *target;
	ceov_signal  *signal;
	ceov_signal  *found;
	ceov_plan    *plan;
};

/* Closing releases every handle that is not yet released. */
static void open_and_close(struct closed *closed)
{
	struct ceov_transfer transfer;

	closed->context = testing_open(2, NULL);
	closed->source = testing_buffer(closed->context, 0, 4096);
	closed->target = testing_buffer(closed->context, 0, 4096);
	closed->signal = testing_signal(closed->context, 0, 1);
	ck_assert_int_eq(ceov_signal_share(closed->signal, "s"), 0);
	ck_assert_int_eq(ceov_signal_find(closed->context, 0, "s", &closed->found), 0);
	closed->plan = testing_plan(closed->context, 0);
	transfer = testing_transfer(closed->source, closed->target, 4096);
	testing_add(closed->plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(closed->plan), 0);
	ceov_close(closed->context);
}

static void check_objects(const struct closed *closed)
{
	struct ceov_transfer transfer = testing_transfer(closed->source, closed->target, 8);
	uint64_t value = 7;
	ceov_ticket ticket;

	ck_assert_ptr_null(ceov_buffer_base(closed->source, 0));
	ck_assert_int_eq(ceov_buffer_share(closed->source, "x"), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_buffer_release(closed->target), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_signal_raise(closed->signal, 0, 1), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_signal_value(closed->found, 0, &value), CEOV_ERR_INVALID);
	ck_assert_uint_eq(value, 7);
	ck_assert_int_eq(ceov_signal_renew(closed->signal), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_signal_release(closed->found), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_plan_add(closed->plan, &transfer), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_launch(closed->plan, NULL, &ticket), CEOV_ERR_INVALID);
	ceov_plan_release(closed->plan);
}

static void check_context(ceov_context *context)
{
	static const ceov_ticket ticket = { 1 };
	struct ceov_failure failure;
	ceov_buffer *buffer = NULL;
	ceov_plan *plan = NULL;

	ck_assert_int_eq(ceov_turn(context), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_barrier(context, 0), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_wait(context, ticket, 0), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_abort(context, ticket), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_last_failure(context, &failure), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_buffer_create(context, 0, 8, &buffer), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_buffer_find(context, 0, "x", &buffer), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_plan_create(context, 0, NULL, &plan), CEOV_ERR_INVALID);
	ck_assert_ptr_null(buffer);
	ck_assert_ptr_null(plan);
	ceov_close(context);
}

START_TEST(test_handles_are_refused_after_close)
{
	struct closed closed;

	open_and_close(&closed);
	check_objects(&closed);
	check_context(closed.context);
	check_objects(&closed);
}
END_TEST

/* Contexts are remembered after their close, but not all of them; the latest ones are still
 * refused. */
START_TEST(test_contexts_are_refused_after_others)
{
	ceov_context *contexts[3 * CEI_TOMBSTONES_CONTEXTS];
	uint32_t i, n = sizeof(contexts) / sizeof(contexts[0]);

	for (i = 0; i < n; i++) {
		contexts[i] = testing_open(1, NULL);
		ceov_close(contexts[i]);
	}
	for (i = n - CEI_TOMBSTONES_CONTEXTS / 2; i < n; i++)
		check_context(contexts[i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tombstones");
	TCase *all = tcase_create("tombstones");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_a_handle_is_refused_long_after_its_release);
	tcase_add_test(all, test_a_context_keeps_a_bounded_number);
	tcase_add_test(all, test_handles_are_refused_after_close);
	tcase_add_test(all, test_contexts_are_refused_after_others);
	suite_add_tcase(suite, all);
	return testing_run(suite);
}
