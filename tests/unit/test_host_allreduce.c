/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests rounds in which all ranks exchange numbers. The ranks are threads of one process. */

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/objects/abort.h"
#include "ce_engine/objects/signal.h"
#include "ops/core/host_allreduce.h"
#include "testing.h"

#define RANKS_MAX 5u
#define ROUNDS    2000u

static struct testing_log log_;

struct rig {
	ceov_context    *context;
	uint32_t         n_ranks;
	struct cei_allreduce ranks[RANKS_MAX];
};

static void set_up(void)
{
	testing_log_init(&log_);
}

static void offer_at(struct cei_allreduce *allreduce)
{
	static const struct ceov_place host = { CEOV_PLACE_HOST, 0 };
	ceov_signal **own = &allreduce->signals[allreduce->rank];

	ck_assert_int_eq(ceov_signal_create(allreduce->context, allreduce->rank, host,
					    CEI_ALLREDUCE_COUNTERS, 0, own), 0);
	ck_assert_int_eq(cei_allreduce_tell_facts(allreduce), 0);
	ck_assert_int_eq(ceov_signal_share(*own, "agree"), 0);
}

static void open_rig(struct rig *rig, uint32_t n_ranks)
{
	uint32_t i, k;

	memset(rig, 0, sizeof(*rig));
	rig->context = testing_open(n_ranks, &log_);
	rig->n_ranks = n_ranks;
	for (i = 0; i < n_ranks; i++) {
		rig->ranks[i].context = rig->context;
		rig->ranks[i].rank = i;
		rig->ranks[i].n_ranks = n_ranks;
		rig->ranks[i].facts[CEI_ALLREDUCE_SMS] = 132 - i;
		rig->ranks[i].facts[CEI_ALLREDUCE_COPY_RATE] = i ? UINT64_MAX : 0;
		rig->ranks[i].facts[CEI_ALLREDUCE_COPY_T0] = cei_allreduce_turned(2000 + i % 3);
		offer_at(&rig->ranks[i]);
	}
	for (i = 0; i < n_ranks; i++)
		for (k = 0; k < n_ranks; k++)
			if (k != i)
				ck_assert_int_eq(ceov_signal_find(
					rig->context, k, "agree",
					&rig->ranks[i].signals[k]), 0);
}

static void close_rig(struct rig *rig)
{
	uint32_t i, k;

	for (i = 0; i < rig->n_ranks; i++)
		for (k = 0; k < rig->n_ranks; k++)
			if (k != i)
				ck_assert_int_eq(ceov_signal_release(
					rig->ranks[i].signals[k]), 0);
	for (i = 0; i < rig->n_ranks; i++)
		ck_assert_int_eq(ceov_signal_release(rig->ranks[i].signals[i]), 0);
	ceov_close(rig->context);
}

/* --- many rounds ----------------------------------------------------------- */

/* Returns the number that a rank contributes to a round; every thread can compute it. */
static uint64_t number_of(uint32_t rank, uint32_t round)
{
	uint64_t state = testing_seed() + round * UINT64_C(1000003) + rank;

	if (testing_below(&state, 10) == 0)
		return testing_below(&state, 2) ? CEI_ALLREDUCE_VALUE_MAX : 0;
	return testing_below(&state, CEI_ALLREDUCE_VALUE_MAX);
}

static struct cei_allreduce_range expected(const struct rig *rig, uint32_t round)
{
	struct cei_allreduce_range range = { UINT64_MAX, 0 };
	uint64_t number;
	uint32_t i;

	for (i = 0; i < rig->n_ranks; i++) {
		number = number_of(i, round);
		range.min = number < range.min ? number : range.min;
		range.max = number > range.max ? number : range.max;
	}
	return range;
}

struct part {
	pthread_t   thread;
	struct rig *rig;
	uint32_t    rank;
};

static void *take_part(void *arg)
{
	const struct part *part = arg;
	struct cei_allreduce *allreduce = &part->rig->ranks[part->rank];
	uint64_t random = testing_seed() + part->rank;
	struct cei_allreduce_range range, wanted;
	uint32_t round;

	for (round = 1; round <= ROUNDS; round++) {
		if (testing_below(&random, 200) == 0)
			usleep((useconds_t)testing_below(&random, 2000));
		wanted = expected(part->rig, round);
		ck_assert_int_eq(cei_allreduce_range(allreduce, number_of(part->rank, round),
						     TESTING_PATIENCE, &range), 0);
		ck_assert_uint_eq(range.min, wanted.min);
		ck_assert_uint_eq(range.max, wanted.max);
	}
	return NULL;
}

START_TEST(test_many_rounds)
{
	static const uint32_t sizes[] = { 1, 2, RANKS_MAX };
	struct part parts[RANKS_MAX];
	struct rig rig;
	uint32_t i;

	open_rig(&rig, sizes[_i]);
	for (i = 0; i < rig.n_ranks; i++) {
		parts[i].rig = &rig;
		parts[i].rank = i;
		ck_assert_int_eq(pthread_create(&parts[i].thread, NULL, take_part, &parts[i]),
				 0);
	}
	for (i = 0; i < rig.n_ranks; i++)
		pthread_join(parts[i].thread, NULL);
	close_rig(&rig);
}
END_TEST

/* --- failures -------------------------------------------------------------- */

/* --- facts about ranks ----------------------------------------------------- */

/* A fact that all ranks know needs no round; each rank gets the smallest value of all. */
START_TEST(test_facts_are_the_least_of_all_ranks)
{
	struct rig rig;
	uint64_t least;
	uint32_t i;

	open_rig(&rig, 4);
	for (i = 0; i < 4; i++) {
		least = 7;
		ck_assert_int_eq(cei_allreduce_least(&rig.ranks[i], CEI_ALLREDUCE_SMS, 0,
						     &least), 0);
		ck_assert_uint_eq(least, 129);
		/* rank 0 does not know the fact, so no rank uses it */
		ck_assert_int_eq(cei_allreduce_least(&rig.ranks[i], CEI_ALLREDUCE_COPY_RATE, 0,
						     &least), 0);
		ck_assert_uint_eq(least, 0);
		ck_assert_int_eq(cei_allreduce_least(&rig.ranks[i], CEI_ALLREDUCE_COPY_T0, 0,
						     &least), 0);
		ck_assert_uint_eq(cei_allreduce_turned(least), 2002);   /* the largest */
	}
	close_rig(&rig);
}
END_TEST

START_TEST(test_turned_facts)
{
	ck_assert_uint_eq(cei_allreduce_turned(0), 0);
	ck_assert_uint_eq(cei_allreduce_turned(CEI_ALLREDUCE_VALUE_MAX), 0);
	ck_assert_uint_eq(cei_allreduce_turned(UINT64_MAX), 0);
	ck_assert_uint_eq(cei_allreduce_turned(1), CEI_ALLREDUCE_VALUE_MAX - 1);
	ck_assert_uint_eq(cei_allreduce_turned(CEI_ALLREDUCE_VALUE_MAX - 1), 1);
}
END_TEST

START_TEST(test_an_absent_rank)
{
	struct cei_allreduce_range range = { 77, 77 };
	uint64_t begin = cei_now_ns();
	struct rig rig;

	open_rig(&rig, 2);
	ck_assert_int_eq(cei_allreduce_range(&rig.ranks[0], 1, 50 * TESTING_MS, &range),
			 CEOV_ERR_TIMEOUT);
	ck_assert_uint_ge(cei_now_ns() - begin, 50 * TESTING_MS);
	ck_assert_uint_eq(range.max, 77);
	testing_log_has(&log_, "rank 0 waits for rank 1 to tune", NULL, NULL);
	close_rig(&rig);
}
END_TEST

START_TEST(test_too_large)
{
	struct cei_allreduce_range range;
	struct rig rig;

	open_rig(&rig, 1);
	ck_assert_int_eq(cei_allreduce_range(&rig.ranks[0], CEI_ALLREDUCE_VALUE_MAX + 1, 0, &range),
			 CEOV_ERR_INVALID);
	ck_assert_int_eq(cei_allreduce_range(&rig.ranks[0], CEI_ALLREDUCE_VALUE_MAX, 0, &range), 0);
	ck_assert_uint_eq(range.max, CEI_ALLREDUCE_VALUE_MAX);
	rig.ranks[0].round = (UINT64_C(1) << 22) - 2;
	ck_assert_int_eq(cei_allreduce_range(&rig.ranks[0], 0, 0, &range), CEOV_ERR_STATE);
	close_rig(&rig);
}
END_TEST

static void *abort_soon(void *arg)
{
	struct cei_allreduce *allreduce = arg;

	usleep(20000);
	cei_abort_unlocked(allreduce->signals, allreduce->n_ranks, CEOV_ERR_ABORTED,
			  allreduce->rank);
	return NULL;
}

START_TEST(test_an_abort_ends_the_wait)
{
	struct cei_allreduce_range range;
	uint64_t begin = cei_now_ns();
	pthread_t thread;
	struct rig rig;

	open_rig(&rig, 2);
	ck_assert_int_eq(pthread_create(&thread, NULL, abort_soon, &rig.ranks[1]), 0);
	ck_assert_int_eq(cei_allreduce_range(&rig.ranks[0], 1, TESTING_PATIENCE, &range),
			 CEOV_ERR_ABORTED);
	ck_assert_uint_lt(cei_now_ns() - begin, TESTING_PATIENCE / 2);
	pthread_join(thread, NULL);
	ck_assert_int_eq(cei_allreduce_range(&rig.ranks[1], 1, TESTING_PATIENCE, &range),
			 CEOV_ERR_ABORTED);
	close_rig(&rig);
}
END_TEST

/* A rank is two rounds ahead, which violates the protocol. */
START_TEST(test_another_round)
{
	struct cei_allreduce_range range;
	struct rig rig;

	open_rig(&rig, 2);
	ck_assert_int_eq(ceov_signal_raise(rig.ranks[1].signals[1], 1,
					   UINT64_C(3) << CEI_ALLREDUCE_VALUE_BITS), 0);
	ck_assert_int_eq(cei_allreduce_range(&rig.ranks[0], 1, TESTING_PATIENCE, &range),
			 CEOV_ERR_STATE);
	testing_log_has(&log_, "rank 1 tells of another round", NULL, NULL);
	close_rig(&rig);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("agree");
	TCase *all = tcase_create("rounds");

	tcase_set_timeout(all, 120);
	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_add_loop_test(all, test_many_rounds, 0, 3);
	tcase_add_test(all, test_facts_are_the_least_of_all_ranks);
	tcase_add_test(all, test_turned_facts);
	tcase_add_test(all, test_an_absent_rank);
	tcase_add_test(all, test_too_large);
	tcase_add_test(all, test_an_abort_ends_the_wait);
	tcase_add_test(all, test_another_round);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
