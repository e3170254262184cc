/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The host's executor against plain sums, while another thread delivers what it waits
 * for: in any order, late, and over NaNs that nobody may have read before. */

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "ops/compute/numbers.h"
#include "part.h"

#define RUNS 2u

static struct testing_log log_of;
static ceov_context *context;

static void set_up(void)
{
	testing_log_init(&log_of);
	context = testing_open(PART_RANKS, &log_of);
}

static void tear_down(void)
{
	ceov_close(context);
}

static void run_once(struct part *part, uint64_t value)
{
	pthread_t taker;

	part_add_deliveries(part);
	part->job.marks.value = value;
	feeder_start(&part->feeder, part->job.marks.sent, value);
	if (part->question.scatters)
		ck_assert_int_eq(pthread_create(&taker, NULL, part_take, part), 0);
	ck_assert_int_eq(cei_executor_host.gemm(&part->executor, NULL, &part->job), 0);
	feeder_finish(&part->feeder);
	if (part->question.scatters)
		ck_assert_int_eq(pthread_join(taker, NULL), 0);
	ck_assert_int_eq(cei_executor_host.status(&part->executor), 0);
}

/* Several runs, each over NaNs, with the same bits. */
static void check_product(int scatters, uint64_t *random)
{
	struct part *part = part_make(context, scatters, PART_ANY, random);
	uint16_t *first[CEI_GEMM_C_MAX] = { NULL };
	uint64_t run, n_come = part->own_rows * part->columns[0] * part->question.n_ranks;
	uint32_t c;

	for (run = 1; run <= RUNS; run++) {
		if (scatters)
			memset(part->come, 0xff, n_come * CEI_NUMBER_BYTES);
		else
			memset(part->gathered, 0xff, part->n_rows * part->job.k *
			       CEI_NUMBER_BYTES);
		run_once(part, run);
		for (c = 0; run > 1 && c < CEI_GEMM_C_MAX; c++)
			ck_assert(!memcmp(first[c], part->c[c], part->job.c[c].rows *
					  part->job.c[c].columns * CEI_NUMBER_BYTES));
		for (c = 0; run == 1 && c < CEI_GEMM_C_MAX; c++) {
			first[c] = part->c[c];
			part->c[c] = NULL;
		}
		if (run == 1)
			part_clear(part);
	}
	part_check(part);
	for (c = 0; c < CEI_GEMM_C_MAX; c++)
		free(first[c]);
	part_free(part);
}

START_TEST(test_gathered_products)
{
	uint64_t random = testing_seed();
	uint32_t i;

	for (i = 0; i < 150; i++)
		check_product(0, &random);
}
END_TEST

START_TEST(test_scattered_products)
{
	uint64_t random = testing_seed();
	uint32_t i;

	for (i = 0; i < 250; i++)
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
