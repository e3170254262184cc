/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The litmus: whoever has seen a mark sees every byte behind it. Each way to raise a
 * counter x each way to wait for it x both triggers, between two GPUs, through
 * ceov_launch(). One line for each combination.
 *
 *   CEOVERLAP_LITMUS_ROUNDS   rounds of each (default 2000: a smoke test; 100000 is
 *                             the documented run, 1 to 3 s for each of the 12)
 *   CEOVERLAP_LITMUS_BYTES    of each round (default 256 KiB)
 */

#include "gpu_rounds.h"

#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 2000u
#define BYTES  262144u

static const uint32_t indices[2] = { 0, 1 };
static const char *const flags[] = { "write", "copy" };

struct litmus {
	const char   *flag;
	struct gpu    gpus[2];
	ceov_context *context;
};

static unsigned long long run(struct litmus *litmus, enum rounds_consumer consumer,
			      int is_gated)
{
	struct rounds rounds = {
		.context = litmus->context,
		.gpus = litmus->gpus,
		.consumer = consumer,
		.is_gated = is_gated,
		.n_rounds = gpu_setting("CEOVERLAP_LITMUS_ROUNDS", ROUNDS),
		.n_words = gpu_setting("CEOVERLAP_LITMUS_BYTES", BYTES) / 8,
		.seed = testing_seed(),
	};
	unsigned long long n_stale;
	uint64_t took = 0;

	n_stale = rounds_run(&rounds, &took);
	printf("litmus: flag=%s trigger=%s consumer=%s rounds=%u bytes=%llu stale=%llu "
	       "us_per_round=%.2f\n", litmus->flag, is_gated ? "gated" : "polled",
	       rounds_consumer_name(consumer), rounds.n_rounds,
	       (unsigned long long)rounds.n_words * 8, n_stale,
	       (double)took / 1e3 / rounds.n_rounds);
	fflush(stdout);
	return n_stale;
}

/* The driver may refuse that stream memory operations write to a peer; then the library
 * refuses this setting. */
static int open_context(struct litmus *litmus)
{
	struct ceov_member members[2] = {
		{ 0, { CEOV_PLACE_GPU, 0 } }, { 1, { CEOV_PLACE_GPU, 1 } },
	};
	struct ceov_config config = CEOV_CONFIG_INIT;

	config.members = members;
	config.n_members = config.n_ranks = 2;
	return ceov_open(&config, &litmus->context);
}

START_TEST(test_no_byte_is_older_than_its_mark)
{
	struct litmus litmus = { .flag = flags[_i] };
	unsigned long long n_stale = 0;
	uint32_t i;
	int r;

	ck_assert_int_eq(setenv("CEOVERLAP_FLAG", litmus.flag, 1), 0);
	r = open_context(&litmus);
	if (r == CEOV_ERR_CUDA && _i == 0) {
		printf("litmus: flag=write is not possible here\n");
		fflush(stdout);
		return;
	}
	ck_assert_int_eq(r, 0);
	for (i = 0; i < 2; i++)
		gpu_open(&litmus.gpus[i], indices[i]);
	for (i = 0; i < 2 * ROUNDS_CONSUMERS; i++)
		n_stale += run(&litmus, (enum rounds_consumer)(i / 2), (int)(i % 2));
	ck_assert_uint_eq(n_stale, 0);
	for (i = 0; i < 2; i++)
		gpu_close(&litmus.gpus[i]);
	ceov_close(litmus.context);
}
END_TEST

static Suite *suite(uint32_t n_gpus)
{
	Suite *made = suite_create("gpu litmus");
	TCase *all = tcase_create("litmus");

	(void)n_gpus;
	tcase_set_timeout(all, 100);
	tcase_add_loop_test(all, test_no_byte_is_older_than_its_mark, 0, 2);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return gpu_main(2, suite);
}
