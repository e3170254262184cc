/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The host's executor when a piece never arrives, a signal was aborted, or a job is
 * invalid: the job ends in time with the right error. */

#include <check.h>
#include <string.h>

#include "ce_engine/objects/abort.h"
#include "ce_engine/objects/signal.h"
#include "ops/compute/dtype.h"
#include "executor_fixture.h"

static struct testing_log log_of;
static ceov_context *context;

static void set_up(void)
{
	testing_log_init(&log_of);
	context = testing_open(FIXTURE_RANKS, &log_of);
}

static void tear_down(void)
{
	ceov_close(context);
}

static struct executor_fixture *plain(int scatters)
{
	uint64_t random = testing_seed();
	struct executor_fixture *fixture = fixture_make(context, scatters, FIXTURE_PLAIN, &random);

	fixture->job.marks.value = 1;
	fixture->job.marks.timeout_ns = 20 * TESTING_MS;
	ck_assert_int_eq(ceov_signal_raise(fixture->job.marks.sent, 1, 1), 0);
	ck_assert_int_eq(ceov_signal_raise(fixture->job.marks.sent, 2, 1), 0);
	return fixture;
}

static void raise_all(struct executor_fixture *fixture, uint64_t value)
{
	uint32_t i;

	for (i = 0; i < FIXTURE_COUNTERS; i++)
		ck_assert_int_eq(ceov_signal_raise(fixture->job.marks.awaited, i, value), 0);
}

/* Asserts that the job ends with the error, and that status() returns it, too. */
static void fail_with(struct executor_fixture *fixture, int error)
{
	ck_assert_int_eq(cei_executor_host.gemm(&fixture->executor, NULL, &fixture->job), error);
	ck_assert_int_eq(cei_executor_host.status(&fixture->executor), error);
}

/* Asserts that these rows of C were not written. */
static void check_untouched(const struct executor_fixture *fixture, uint32_t c, uint64_t row,
			    uint64_t n_rows)
{
	uint64_t columns = fixture->job.c[c].columns, i;

	for (i = row * columns; i < (row + n_rows) * columns; i++)
		ck_assert_uint_eq(fixture->c[c][i], 0xffff);
}

static void check_timeout(struct executor_fixture *fixture, uint64_t wanted, uint64_t seen,
			  const char *what)
{
	struct ceov_failure failure;

	fail_with(fixture, CEOV_ERR_TIMEOUT);
	failure = testing_failure(context);
	ck_assert_int_eq(failure.error, CEOV_ERR_TIMEOUT);
	ck_assert_uint_eq(failure.rank, 0);
	ck_assert_uint_eq(failure.mark_value, wanted);
	ck_assert_uint_eq(failure.seen_value, seen);
	testing_log_has(&log_of, "rank 0", what, "20 ms");
}

START_TEST(test_rows_that_never_arrive_end_the_job)
{
	struct executor_fixture *fixture = plain(0);

	check_timeout(fixture, 1, 0, "rows of A: counter 2 ");
	check_untouched(fixture, 0, 100, 100);
	fixture_free(fixture);

	fixture = plain(0);                      /* only the pieces of the next run are raised */
	ck_assert_int_eq(ceov_signal_raise(fixture->job.marks.awaited, 3, 1), 0);
	check_timeout(fixture, 1, 0, "rows of A: counter 2 ");
	fixture_free(fixture);

	fixture = plain(0);                      /* only the pieces of the previous run are
						  * raised */
	raise_all(fixture, 1);
	fixture->job.marks.value = 2;
	check_timeout(fixture, 2, 1, "rows of A: counter 2 ");
	fixture_free(fixture);

	fixture = plain(0);                      /* only the first piece is raised */
	ck_assert_int_eq(ceov_signal_raise(fixture->job.marks.awaited, 2, 1), 0);
	check_timeout(fixture, 1, 0, "rows of A: counter 3 ");
	check_untouched(fixture, 0, 164, 36);
	fixture_free(fixture);
}
END_TEST

START_TEST(test_partial_sums_that_never_arrive_end_the_job)
{
	struct executor_fixture *fixture = plain(1);

	ck_assert_int_eq(ceov_signal_raise(fixture->job.marks.awaited, 3, 1), 0);
	check_timeout(fixture, 1, 0, "partial sums: counter 2 ");
	check_untouched(fixture, 0, 0, 100);
	/* pieces that were ready before the failure were sent */
	ck_assert_int_eq(ceov_signal_wait(fixture->job.marks.ready, 2, 1, 0), 0);
	ck_assert_int_eq(ceov_signal_wait(fixture->job.marks.ready, 3, 1, 0), 0);
	fixture_check_c(fixture, CEI_GEMM_C_PARTIAL);
	fixture_free(fixture);
}
END_TEST

START_TEST(test_copies_that_never_leave_end_the_job)
{
	struct executor_fixture *fixture = plain(1);

	raise_all(fixture, 2);
	ck_assert_int_eq(ceov_signal_raise(fixture->job.marks.sent, 1, 2), 0);
	memcpy(fixture->come, fixture->partials, 200 * fixture->columns[0] * CEI_DTYPE16_BYTES);
	fixture->job.marks.value = 2;
	check_timeout(fixture, 2, 1, "copies to leave: counter 2 ");
	fixture_check_c(fixture, 0);
	fixture_check_c(fixture, CEI_GEMM_C_PARTIAL);
	fixture_free(fixture);
}
END_TEST

START_TEST(test_an_aborted_signal_ends_the_job)
{
	struct executor_fixture *fixture = plain(1);

	cei_abort_unlocked(&fixture->job.marks.awaited, 1, CEOV_ERR_PEER_LOST, 1);
	fail_with(fixture, CEOV_ERR_PEER_LOST);
	check_untouched(fixture, 0, 0, 100);
	fixture_free(fixture);

	fixture = plain(1);
	cei_abort_unlocked(&fixture->job.marks.ready, 1, CEOV_ERR_ABORTED, 1);
	fail_with(fixture, CEOV_ERR_ABORTED);
	cei_abort_unlocked(&fixture->job.marks.ready, 1, CEOV_ERR_PEER_LOST, 1);
	fixture->job.marks.ready = NULL;
	ck_assert_int_eq(cei_executor_host.gemm(&fixture->executor, NULL, &fixture->job),
			 CEOV_ERR_TIMEOUT);
	ck_assert_int_eq(cei_executor_host.status(&fixture->executor), CEOV_ERR_ABORTED);
	fixture->job.marks.ready = testing_signal(context, 0, 1);
	fixture_free(fixture);
}
END_TEST

START_TEST(test_without_signals_nothing_waits)
{
	struct executor_fixture *fixture = plain(1);
	struct cei_job_marks marks = fixture->job.marks;

	memcpy(fixture->come, fixture->partials, 200 * fixture->columns[0] * CEI_DTYPE16_BYTES);
	fixture->job.marks.awaited = fixture->job.marks.ready = fixture->job.marks.sent = NULL;
	ck_assert_int_eq(cei_executor_host.gemm(&fixture->executor, NULL, &fixture->job), 0);
	fixture_check_c(fixture, 0);
	fixture_check_c(fixture, CEI_GEMM_C_PARTIAL);
	ck_assert_int_eq(ceov_signal_wait(marks.ready, 2, 1, 0), CEOV_PENDING);
	fixture->job.marks = marks;
	fixture_free(fixture);
}
END_TEST

START_TEST(test_tiles_outside_of_their_matrices_are_refused)
{
	struct executor_fixture *fixture = plain(0);
	struct cei_gemm_tile first = fixture->tiles.tile[0], *tile = &fixture->tiles.tile[0];

	tile->c_row = 199;
	fail_with(fixture, CEOV_ERR_INVALID);
	*tile = first;
	tile->a_row = 99;
	fail_with(fixture, CEOV_ERR_INVALID);
	*tile = first;
	tile->column = 20;
	fail_with(fixture, CEOV_ERR_INVALID);
	*tile = first;
	tile->b = tile->c = 1;                  /* index beyond the only product */
	fail_with(fixture, CEOV_ERR_INVALID);
	*tile = first;
	tile->reduce = 0;                       /* a product without partial sums */
	fail_with(fixture, CEOV_ERR_INVALID);
	*tile = first;
	fixture->job.k = 11;
	fail_with(fixture, CEOV_ERR_INVALID);
	check_untouched(fixture, 0, 0, 200);
	fixture->job.k = 10;
	fixture_free(fixture);
}
END_TEST

START_TEST(test_what_has_nothing_to_do_succeeds)
{
	struct executor_fixture *fixture = plain(0);
	void *held = fixture;
	char to[3] = "ab";

	fixture->tiles.n_tiles = 0;
	ck_assert_int_eq(cei_executor_host.gemm(&fixture->executor, NULL, &fixture->job), 0);
	ck_assert_int_eq(cei_executor_host.hold(&fixture->executor, NULL, 0, &held), 0);
	cei_executor_host.drop(&fixture->executor, held);
	ck_assert_int_eq(cei_executor_host.mark_stream(&fixture->executor, NULL), 0);
	ck_assert_int_eq(cei_executor_host.follow_mark(&fixture->executor, NULL), 0);
	ck_assert_int_eq(cei_executor_host.idle(&fixture->executor, 0), 0);
	ck_assert_int_eq(cei_executor_host.copy(&fixture->executor, NULL, NULL, NULL, 0), 0);
	ck_assert_int_eq(cei_executor_host.copy(&fixture->executor, NULL, to, "cd", 3), 0);
	ck_assert_str_eq(to, "cd");
	fixture_free(fixture);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("execute_fails");
	TCase *all = tcase_create("execute_fails");

	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_rows_that_never_arrive_end_the_job);
	tcase_add_test(all, test_partial_sums_that_never_arrive_end_the_job);
	tcase_add_test(all, test_copies_that_never_leave_end_the_job);
	tcase_add_test(all, test_an_aborted_signal_ends_the_job);
	tcase_add_test(all, test_without_signals_nothing_waits);
	tcase_add_test(all, test_tiles_outside_of_their_matrices_are_refused);
	tcase_add_test(all, test_what_has_nothing_to_do_succeeds);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
