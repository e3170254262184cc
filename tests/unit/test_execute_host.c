/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Compares the host's executor with plain sums while another thread delivers what it awaits, in any
 * order and late. The memory holds NaNs until then, so that reading too early shows. */

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "ops/compute/dtype.h"
#include "executor_fixture.h"

#define RUNS 2u

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

static void run_once(struct executor_fixture *fixture, uint64_t value)
{
	pthread_t taker;

	fixture_add_deliveries(fixture);
	fixture->job.marks.value = value;
	feeder_start(&fixture->feeder, fixture->job.marks.sent, value);
	if (fixture->args.scatters)
		ck_assert_int_eq(pthread_create(&taker, NULL, fixture_take, fixture), 0);
	ck_assert_int_eq(cei_executor_host.gemm(&fixture->executor, NULL, &fixture->job), 0);
	feeder_finish(&fixture->feeder);
	if (fixture->args.scatters)
		ck_assert_int_eq(pthread_join(taker, NULL), 0);
	ck_assert_int_eq(cei_executor_host.status(&fixture->executor), 0);
}

/* Makes several runs, each over NaNs, and expects the same bits. */
static void check_product(int scatters, uint64_t *random)
{
	struct executor_fixture *fixture = fixture_make(context, scatters, FIXTURE_ANY, random);
	uint16_t *first[CEI_GEMM_C_MAX] = { NULL };
	uint64_t run, n_come = fixture->own_rows * fixture->columns[0] * fixture->args.n_ranks;
	uint32_t c;

	for (run = 1; run <= RUNS; run++) {
		if (scatters)
			memset(fixture->come, 0xff, n_come * CEI_DTYPE16_BYTES);
		else
			memset(fixture->gathered, 0xff, fixture->n_rows * fixture->job.k *
			       CEI_DTYPE16_BYTES);
		run_once(fixture, run);
		for (c = 0; run > 1 && c < CEI_GEMM_C_MAX; c++)
			ck_assert(!memcmp(first[c], fixture->c[c], fixture->job.c[c].rows *
					  fixture->job.c[c].columns * CEI_DTYPE16_BYTES));
		for (c = 0; run == 1 && c < CEI_GEMM_C_MAX; c++) {
			first[c] = fixture->c[c];
			fixture->c[c] = NULL;
		}
		if (run == 1)
			fixture_clear(fixture);
	}
	fixture_check(fixture);
	for (c = 0; c < CEI_GEMM_C_MAX; c++)
		free(first[c]);
	fixture_free(fixture);
}

START_TEST(test_gathered_products)
{
	uint64_t random = testing_seed();
	uint32_t i;

	for (i = 0; i < testing_share(150); i++)
		check_product(0, &random);
}
END_TEST

START_TEST(test_scattered_products)
{
	uint64_t random = testing_seed();
	uint32_t i;

	for (i = 0; i < testing_share(250); i++)
		check_product(1, &random);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("execute_host");
	TCase *all = tcase_create("execute_host");

	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_set_timeout(all, 120);
	tcase_add_test(all, test_gathered_products);
	tcase_add_test(all, test_scattered_products);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
