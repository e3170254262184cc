/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Plans on 8 GPUs behind an NVLink switch, simulated with the product's scheduler. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim.h"
#include "testing.h"

#define GPUS        8u
#define RATE        UINT64_C(392000000000)
#define T0_NS       4000u
#define MIB         (UINT64_C(1) << 20)
#define COPIES      4096u
#define PLANS       100u
#define TRANSFERS   256u

struct fixture {
	struct cei_machine *machine;
	struct sim         *sim;
	struct sim_copy    *copies;
	uint32_t            n;
};

static void set_up(struct fixture *f, int has_scheduler, uint64_t seed)
{
	memset(f, 0, sizeof(*f));
	f->machine = sim_machine_switch(GPUS, RATE, T0_NS);
	f->sim = sim_create(f->machine, has_scheduler, seed);
	f->copies = calloc(COPIES, sizeof(*f->copies));
	ck_assert_ptr_nonnull(f->copies);
}

static void tear_down(struct fixture *f)
{
	sim_destroy(f->sim);
	cei_machine_destroy(f->machine);
	free(f->copies);
}

static struct sim_copy *one(struct fixture *f, uint32_t from, uint32_t to, uint64_t n_bytes)
{
	struct sim_copy *copy = &f->copies[f->n++];

	ck_assert_uint_le(f->n, COPIES);
	sim_ask(f->sim, copy, from, to);
	copy->job.bytes = n_bytes;
	return copy;
}

/* Adds a transfer in chunks, as a plan cuts it. */
static void add(struct fixture *f, uint32_t from, uint32_t to, uint64_t n_bytes,
		uint64_t max_chunk)
{
	uint64_t n;

	for (; n_bytes; n_bytes -= n) {
		n = n_bytes < max_chunk ? n_bytes : max_chunk;
		sim_add(f->sim, one(f, from, to, n));
	}
}

static double run(struct fixture *f, struct sim_outcome *ret_outcome)
{
	ck_assert(sim_run(f->sim, SIM_PATIENCE_NS));
	*ret_outcome = sim_outcome(f->sim);
	return (double)ret_outcome->makespan_ns / (double)sim_bound_ns(f->sim, f->copies, f->n);
}

/* --- equal copies between all ----------------------------------------------- */

/* Adds an exchange in the order of a plan that names targets 0, 1, ... on every rank, so that all
 * ranks would send to the same target at once. */
static void add_exchange(struct fixture *f, uint64_t n_bytes, uint64_t max_chunk)
{
	uint32_t from, to;

	for (to = 0; to < GPUS; to++)
		for (from = 0; from < GPUS; from++)
			if (from != to)
				add(f, from, to, n_bytes, max_chunk);
}

START_TEST(test_equal_copies_between_all_keep_in_step)
{
	static const uint64_t chunks[] = { 64 * MIB, 16 * MIB };
	struct sim_outcome outcome;
	struct fixture f;
	uint32_t seed;

	for (seed = 0; seed < 20; seed++) {
		set_up(&f, 1, testing_seed() + seed);
		add_exchange(&f, (seed % 3 ? 64 : 16) * MIB, chunks[seed % 2]);
		ck_assert_double_le(run(&f, &outcome), 1.1);
		ck_assert_uint_le(outcome.longest_meeting_ns, CEI_QUEUES_MEET_NS);
		ck_assert_uint_le(outcome.longest_idle_ns, 2 * CEI_QUEUES_AHEAD_NS);
		tear_down(&f);
	}
}
END_TEST

START_TEST(test_templates_order_is_kept_and_as_good)
{
	struct sim_outcome outcome;
	struct fixture f;
	uint32_t from, step, seed, i;

	for (seed = 0; seed < 20; seed++) {
		set_up(&f, 1, testing_seed() + seed);
		for (step = 1; step < GPUS; step++) {
			for (from = 0; from < GPUS; from++) {
				one(&f, from, (from + step) % GPUS, 64 * MIB)
					->job.keeps_order = 1;
				sim_add(f.sim, &f.copies[f.n - 1]);
			}
		}
		ck_assert_double_le(run(&f, &outcome), 1.1);
		for (i = GPUS; i < f.n; i++)    /* copies of one GPU end in their order */
			ck_assert_uint_gt(f.copies[i].done_ns, f.copies[i - GPUS].done_ns);
		tear_down(&f);
	}
}
END_TEST

/* --- random plans ------------------------------------------------------------ */

static void add_random(struct fixture *f, uint64_t seed, uint64_t max_chunk)
{
	uint32_t i, from, to;

	for (i = 0; i < TRANSFERS; i++) {
		from = (uint32_t)testing_below(&seed, GPUS);
		to = (from + 1 + (uint32_t)testing_below(&seed, GPUS - 1)) % GPUS;
		add(f, from, to, (1 + testing_below(&seed, 64)) * MIB, max_chunk);
	}
}

static int compare(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

/* Simulates random plans; ratios: their times relative to their bounds, sorted. */
static void play_random(int has_scheduler, uint64_t max_chunk, double *ratios)
{
	double meeting = 0, all = 0;
	struct sim_outcome outcome;
	struct fixture f;
	uint32_t i;

	for (i = 0; i < PLANS; i++) {
		set_up(&f, has_scheduler, i);
		add_random(&f, i + 1, max_chunk);
		ratios[i] = run(&f, &outcome);
		meeting += (double)outcome.meeting_ns;
		all += (double)outcome.makespan_ns * GPUS;
		if (has_scheduler)
			ck_assert_uint_le(outcome.longest_idle_ns, 8 * CEI_QUEUES_AHEAD_NS);
		tear_down(&f);
	}
	qsort(ratios, PLANS, sizeof(*ratios), compare);
	printf("random plans, %s, chunks of %2llu MiB: time over bound %.3f, median %.3f, "
	       "9 of 10 %.3f, worst %.3f; receivers meet %.1f %% of the time\n",
	       has_scheduler ? "scheduled" : "in order ", (unsigned long long)(max_chunk / MIB),
	       ratios[0], ratios[PLANS / 2], ratios[PLANS * 9 / 10], ratios[PLANS - 1],
	       100 * meeting / all);
	if (has_scheduler)
		ck_assert_double_le(meeting / all, 0.05);
}

START_TEST(test_random_plans_come_near_their_bound)
{
	static const uint64_t chunks[] = { 64 * MIB, 16 * MIB };
	double with[PLANS], without[PLANS];
	uint32_t i;

	for (i = 0; i < 2; i++) {
		play_random(1, chunks[i], with);
		play_random(0, chunks[i], without);
		ck_assert_double_le(with[PLANS - 1], 1.15);
		ck_assert_double_le(with[PLANS / 2], 1.05);
		ck_assert_double_ge(without[PLANS / 2], with[PLANS / 2]);
	}
}
END_TEST

/* --- urgent and background ---------------------------------------------------- */

#define ROUNDS 16u                      /* number of all-gathers */
#define URGENT 16u

/* Adds background all-gathers of 64 MiB shards, in order. */
static void add_background(struct fixture *f)
{
	uint32_t round, step, from, piece;
	struct sim_copy *copy;

	for (round = 0; round < ROUNDS; round++) {
		for (step = 1; step < GPUS; step++) {
			for (from = 0; from < GPUS; from++) {
				for (piece = 0; piece < 4; piece++) {
					copy = one(f, from, (from + step) % GPUS, 16 * MIB);
					copy->job.keeps_order = 1;
					copy->job.urgency = CEOV_URGENCY_BACKGROUND;
					sim_add(f->sim, copy);
				}
			}
		}
	}
}

/* Adds an urgent 1 MiB transfer each ms. Returns the longest time that any of them took. */
static uint64_t add_urgent(struct fixture *f)
{
	uint64_t added, took, slowest = 0;
	struct sim_copy *copy;
	uint32_t i;

	for (i = 0; i < URGENT; i++) {
		copy = one(f, i % GPUS, (i + 3) % GPUS, MIB);
		copy->job.urgency = CEOV_URGENCY_URGENT;
		added = f->sim->now_ns;
		sim_add(f->sim, copy);
		(void)sim_run(f->sim, added + TESTING_MS);
		ck_assert_uint_ne(copy->done_ns, 0);
		took = copy->done_ns - added;
		slowest = took > slowest ? took : slowest;
		if (f->sim->now_ns < added + TESTING_MS)        /* no other copy was running */
			f->sim->now_ns = added + TESTING_MS;
	}
	return slowest;
}

START_TEST(test_urgent_jobs_wait_for_little_of_the_background)
{
	uint64_t alone, beside, chunk_ns, quiet_ns;
	struct sim_outcome outcome;
	struct fixture f;

	set_up(&f, 1, 1);
	chunk_ns = cei_machine_link_ns(cei_machine_link(f.machine, 0, 1), 16 * MIB);
	alone = add_urgent(&f);
	tear_down(&f);
	set_up(&f, 1, 1);
	add_background(&f);
	(void)run(&f, &outcome);
	quiet_ns = outcome.makespan_ns;
	tear_down(&f);
	set_up(&f, 1, 1);
	add_background(&f);
	beside = add_urgent(&f);
	(void)run(&f, &outcome);
	tear_down(&f);
	printf("urgent MiB: %llu ns alone, %llu beside the background; background %.2f of its "
	       "rate\n", (unsigned long long)alone, (unsigned long long)beside,
	       (double)quiet_ns / (double)outcome.makespan_ns);
	ck_assert_uint_le(beside, alone + 3 * chunk_ns);
	ck_assert_double_ge((double)quiet_ns / (double)outcome.makespan_ns, 0.85);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sim_switch");
	TCase *tests = tcase_create("plans");

	tcase_set_timeout(tests, 120);
	tcase_add_test(tests, test_equal_copies_between_all_keep_in_step);
	tcase_add_test(tests, test_templates_order_is_kept_and_as_good);
	tcase_add_test(tests, test_random_plans_come_near_their_bound);
	tcase_add_test(tests, test_urgent_jobs_wait_for_little_of_the_background);
	suite_add_tcase(suite, tests);
	return testing_run(suite);
}
