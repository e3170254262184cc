/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Channels of ranks that are threads of one process: every kind of call gives the right bytes.
 * What fails is in test_channel_fails.c; random calls between processes are in
 * tests/system/test_channel_programs.c. */

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "unit/channel_rig.h"

#define CALLS    120u                   /* of random calls, with each number of ranks */
#define RELEASES 10000u
#define THREADS  3u                     /* of one rank, that call at once */

static void maybe_late(uint64_t *random)
{
	if (testing_below(random, 32) == 0)
		usleep((useconds_t)testing_below(random, 3000));
}

/* --- results --------------------------------------------------------------------------------- */

static void make_random(const struct channel_part *part)
{
	uint64_t random = testing_seed() + part->rank;
	struct channel_case one;
	uint32_t i;

	for (i = 0; i < testing_share(CALLS); i++) {
		one = channel_case_random(testing_seed(), i, part->rig->n_ranks, CHANNEL_RING);
		maybe_late(&random);
		ck_assert_int_eq(channel_case_run(&one, part->rank, part->channel, &random), 0);
	}
}

START_TEST(test_random_calls)
{
	struct channel_rig rig;

	channel_rig_open(&rig, (uint32_t)_i, 0, NULL);
	channel_rig_each(&rig, make_random, NULL);
	channel_rig_close(&rig);
}
END_TEST

/* Makes one case in the form that the test wants. */
struct formed {
	struct channel_case one;
	struct channel_form form;
};

static void make_formed(const struct channel_part *part)
{
	const struct formed *formed = part->arg;
	struct channel_data data;

	channel_data_make(&formed->one, part->rank, &formed->form, &data);
	ck_assert_int_eq(ceov_channel_run(part->channel, &data.call, 1), 0);
	channel_data_check(&formed->one, part->rank, &data);
	channel_data_free(&data);
}

/* Each kind with items of each size: nothing, one, some, and more than all slots hold. */
START_TEST(test_every_kind_and_type)
{
	static const uint64_t counts[] = { 0, 1, 13, 40001 };
	struct formed formed = { .form = { .target_shift = 1 } };
	struct channel_rig rig;
	int dtype;
	uint32_t i;

	channel_rig_open(&rig, 3, 0, NULL);
	for (dtype = CEOV_BF16; dtype <= CEOV_COMPLEX128; dtype++) {
		formed.one = channel_case_of((enum ceov_call_kind)_i, (enum ceov_dtype)dtype, 3, 0);
		if (channel_case_is_sum(&formed.one) &&
		    (dtype > CEOV_INT64 || dtype == CEOV_UINT16 || dtype == CEOV_UINT32))
			continue;
		for (i = 0; i < 4; i++) {
			formed.one = channel_case_of((enum ceov_call_kind)_i,
						     (enum ceov_dtype)dtype, 3, counts[i]);
			formed.form.has_lists = (int)i % 2;
			channel_rig_each(&rig, make_formed, &formed);
		}
	}
	channel_rig_close(&rig);
}
END_TEST

/* Also with roots that are not the first rank. */
START_TEST(test_memory_in_place)
{
	struct formed formed = { .form = { .is_in_place = 1, .source_shift = 3 } };
	struct channel_rig rig;

	channel_rig_open(&rig, 4, 0, NULL);
	formed.one = channel_case_of((enum ceov_call_kind)_i, CEOV_INT16, 4, 20011);
	if (_i == CEOV_BROADCAST || _i == CEOV_GATHER || _i == CEOV_SCATTER || _i == CEOV_REDUCE)
		formed.one.root = 2;
	channel_rig_each(&rig, make_formed, &formed);
	formed.one.is_uneven = 1;
	formed.one.sizes[1] = 0;
	formed.one.sizes[3] = 7;
	channel_rig_each(&rig, make_formed, &formed);
	channel_rig_close(&rig);
}
END_TEST

/* Ranks that get nothing, or little, of a peer's bytes give the rest of its chunks back at once: it
 * may have to put more of them than the ring holds before they can end. */
START_TEST(test_ranks_that_need_few_chunks)
{
	struct formed formed = { 0 };
	struct channel_rig rig;
	uint32_t i;

	channel_rig_open(&rig, 4, 2 * TESTING_SECOND, NULL);
	formed.one = channel_case_of(CEOV_ALL_TO_ALL, CEOV_INT8, 4, 0);
	formed.one.is_uneven = 1;
	for (i = 0; i < 4; i++) {
		formed.one.blocks[i][(i + 1) % 4] = 300000;
		formed.one.blocks[i][(i + 2) % 4] = 5000;
	}
	channel_rig_each(&rig, make_formed, &formed);
	memset(formed.one.blocks, 0, sizeof(formed.one.blocks));
	formed.one.blocks[0][1] = 500000;
	formed.one.blocks[2][0] = 1;
	channel_rig_each(&rig, make_formed, &formed);
	formed.one = channel_case_of(CEOV_GATHER, CEOV_INT8, 4, 200000);
	formed.one.root = 3;
	channel_rig_each(&rig, make_formed, &formed);
	channel_rig_close(&rig);
}
END_TEST

/* --- the bits of sums ------------------------------------------------------------------------ */

static void sum_specials(const struct channel_part *part)
{
	struct channel_case one = *(const struct channel_case *)part->arg;
	uint64_t random = part->rank;
	int reduction;

	for (reduction = CEOV_SUM; reduction <= CEOV_MEAN; reduction++) {
		if (reduction == CEOV_MEAN && one.dtype > CEOV_FP64)
			continue;
		one.reduction = (enum ceov_reduction)reduction;
		one.seed = testing_seed() + (uint64_t)reduction;
		ck_assert_int_eq(channel_case_run(&one, part->rank, part->channel, &random), 0);
	}
}

/* Of the numbers of channel_item.c each 64th is a NaN, infinite, huge, tiny or a negative zero. */
START_TEST(test_bits_of_sums)
{
	static const enum ceov_call_kind kinds[] = { CEOV_ALL_REDUCE, CEOV_REDUCE_SCATTER,
						     CEOV_REDUCE };
	struct channel_case one;
	struct channel_rig rig;
	int dtype;

	channel_rig_open(&rig, 3, 0, NULL);
	for (dtype = CEOV_BF16; dtype <= CEOV_INT64; dtype++) {
		if (dtype == CEOV_UINT16 || dtype == CEOV_UINT32)
			continue;
		one = channel_case_of(kinds[_i], (enum ceov_dtype)dtype, 3, 3000);
		channel_rig_each(&rig, sum_specials, &one);
	}
	channel_rig_close(&rig);
}
END_TEST

struct example {
	enum ceov_dtype     dtype;
	enum ceov_reduction reduction;
	uint64_t            operands[3];        /* the low bytes */
	uint64_t            result;
};

static const struct example examples[] = {
	{ CEOV_INT8, CEOV_SUM, { 127, 1, 0 }, 0x80 },
	{ CEOV_INT8, CEOV_MAX, { 0x80, 0xff, 0xfe }, 0xff },
	{ CEOV_UINT8, CEOV_MAX, { 0x80, 0xff, 1 }, 0xff },
	{ CEOV_UINT8, CEOV_MIN, { 0x80, 0xff, 1 }, 1 },
	{ CEOV_UINT8, CEOV_PRODUCT, { 16, 16, 3 }, 0 },
	{ CEOV_INT16, CEOV_SUM, { 0x7fff, 0x7fff, 3 }, 1 },
	{ CEOV_INT32, CEOV_PRODUCT, { 0x10000, 0x10001, 1 }, 0x10000 },
	{ CEOV_INT64, CEOV_SUM, { UINT64_MAX, UINT64_C(1) << 63, 2 }, (UINT64_C(1) << 63) + 1 },
	{ CEOV_INT64, CEOV_MIN, { 1, UINT64_C(1) << 63, UINT64_MAX }, UINT64_C(1) << 63 },
	/* 2^24 + 1 + 1 in fp32: each 1 is lost in the order of ranks */
	{ CEOV_FP32, CEOV_SUM, { 0x4b800000, 0x3f800000, 0x3f800000 }, 0x4b800000 },
	{ CEOV_FP32, CEOV_SUM, { 0x3f800000, 0x3f800000, 0x4b800000 }, 0x4b800001 },
	/* (1 + 0 + 0) / 3, and 5 / 3: rounded once */
	{ CEOV_FP32, CEOV_MEAN, { 0x3f800000, 0, 0 }, 0x3eaaaaab },
	{ CEOV_FP32, CEOV_MEAN, { 0x40a00000, 0, 0 }, 0x3fd55555 },
	/* bf16: 256 + 1 + 1 is added up in fp32 and rounded once */
	{ CEOV_BF16, CEOV_SUM, { 0x4380, 0x3f80, 0x3f80 }, 0x4381 },
	{ CEOV_FP16, CEOV_SUM, { 0x7bff, 0x7bff, 0xfbff }, 0x7bff },
	{ CEOV_FP16, CEOV_SUM, { 0x7bff, 0x7bff, 0 }, 0x7c00 },
	{ CEOV_FP64, CEOV_MAX, { 0x7ff0000000000000, 0xfff0000000000000, 0 },
	  0x7ff0000000000000 },
	{ CEOV_FP64, CEOV_MIN, { 0x7ff0000000000000, 0xfff0000000000000, 0 },
	  0xfff0000000000000 },
};

#define EXAMPLES (sizeof(examples) / sizeof(examples[0]))

static void sum_example(const struct channel_part *part)
{
	const struct example *example = part->arg;
	uint64_t source = example->operands[part->rank], target = 0;
	struct ceov_call call = { .struct_bytes = sizeof(call), .kind = CEOV_ALL_REDUCE,
				  .dtype = example->dtype, .reduction = example->reduction,
				  .source = &source, .target = &target, .count = 1 };

	ck_assert_int_eq(ceov_channel_run(part->channel, &call, 1), 0);
	ck_assert_uint_eq(target, example->result);
}

START_TEST(test_examples_of_sums)
{
	struct example example = examples[_i];
	struct channel_rig rig;

	channel_rig_open(&rig, 3, 0, NULL);
	channel_rig_each(&rig, sum_example, &example);
	channel_rig_close(&rig);
}
END_TEST

static void reduce_nan(const struct channel_part *part)
{
	uint32_t i, where = *(const uint32_t *)part->arg, nan = 0x7fc00000, one = 0x3f800000;
	uint32_t source, target;
	struct ceov_call call = { .struct_bytes = sizeof(call), .kind = CEOV_ALL_REDUCE,
				  .dtype = CEOV_FP32, .source = &source, .target = &target,
				  .count = 1 };

	for (i = CEOV_SUM; i <= CEOV_MEAN; i++) {
		source = part->rank == where ? nan : one;
		target = 0;
		call.reduction = (enum ceov_reduction)i;
		ck_assert_int_eq(ceov_channel_run(part->channel, &call, 1), 0);
		ck_assert_uint_eq(target & 0x7fc00000, nan);
	}
}

START_TEST(test_a_nan_stays)
{
	struct channel_rig rig;
	uint32_t where;

	channel_rig_open(&rig, 3, 0, NULL);
	for (where = 0; where < 3; where++)
		channel_rig_each(&rig, reduce_nan, &where);
	channel_rig_close(&rig);
}
END_TEST

/* --- threads and channels -------------------------------------------------------------------- */

static void *call_many(void *arg)
{
	const struct channel_part *part = arg;
	struct channel_case one = channel_case_of(CEOV_ALL_REDUCE, CEOV_FP32, part->rig->n_ranks,
						  500);
	uint64_t random = part->rank;
	uint32_t i;

	for (i = 0; i < 100; i++)
		ck_assert_int_eq(channel_case_run(&one, part->rank, part->channel, &random), 0);
	return NULL;
}

static void call_in_threads(const struct channel_part *part)
{
	struct channel_part copy = *part;
	pthread_t threads[THREADS];
	uint32_t i;

	for (i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, call_many, &copy), 0);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

START_TEST(test_several_threads_of_each_rank)
{
	struct channel_rig rig;

	channel_rig_open(&rig, 3, 0, NULL);
	channel_rig_each(&rig, call_in_threads, NULL);
	channel_rig_close(&rig);
}
END_TEST

static void *run_other(void *arg)
{
	channel_rig_each(arg, make_random, NULL);
	return NULL;
}

START_TEST(test_several_channels_at_once)
{
	struct channel_rig rig, others[2];
	pthread_t threads[2];
	uint32_t i;

	channel_rig_open(&rig, 3, 0, NULL);
	for (i = 0; i < 2; i++) {
		channel_rig_open_beside(&others[i], &rig, i ? "third" : "second");
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run_other, &others[i]), 0);
	}
	channel_rig_each(&rig, make_random, NULL);
	for (i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		channel_rig_release(&others[i]);
	}
	channel_rig_close(&rig);
}
END_TEST

/* --- release --------------------------------------------------------------------------------- */

static void release_until_done(ceov_channel *channel)
{
	uint64_t deadline_ns = cei_deadline(TESTING_PATIENCE);
	int r;

	while ((r = ceov_channel_release(channel)) == CEOV_PENDING) {
		ck_assert_uint_lt(cei_now_ns(), deadline_ns);
		sched_yield();
	}
	ck_assert_int_eq(r, 0);
}

/* The root of a broadcast ends as soon as it has seen that all make it, and releases its channel
 * while the other ranks still read its chunks. */
static void call_and_release(const struct channel_part *part)
{
	struct channel_case one = *(const struct channel_case *)part->arg;
	uint64_t random = part->rank;

	ck_assert_int_eq(channel_case_run(&one, part->rank, part->channel, &random), 0);
	release_until_done(part->channel);
}

START_TEST(test_release_right_after_the_last_call)
{
	struct channel_case one;
	struct channel_rig rig;
	char name[40];
	uint32_t i;

	memset(&rig, 0, sizeof(rig));
	rig.n_ranks = 3;
	rig.context = testing_open(3, NULL);
	for (i = 0; i < testing_share(RELEASES); i++) {
		snprintf(name, sizeof(name), "release %u", i);
		one = channel_case_of(i % 4 ? CEOV_BROADCAST : CEOV_ALL_REDUCE, CEOV_INT64, 3,
				      i % 3 ? 5 : 3000);
		one.root = one.kind == CEOV_BROADCAST ? i % 3 : 0;
		channel_rig_connect(&rig, name, 0);
		channel_rig_each(&rig, call_and_release, &one);
	}
	ceov_close(rig.context);
}
END_TEST

/* ceov_close() releases what the caller has left. */
START_TEST(test_close_with_channels)
{
	struct channel_rig rig;

	channel_rig_open(&rig, 3, 0, NULL);
	channel_rig_works(&rig);
	ceov_close(rig.context);
}
END_TEST

/* --- explanations ---------------------------------------------------------------------------- */

static void explained(ceov_channel *channel, const struct ceov_call *call, const char *text)
{
	char said[2048] = "";
	int fds[2];

	ck_assert_int_eq(pipe(fds), 0);
	ck_assert_int_eq(ceov_channel_explain(channel, call, fds[1]), 0);
	(void)close(fds[1]);
	ck_assert_int_gt(read(fds[0], said, sizeof(said) - 1), 0);
	(void)close(fds[0]);
	ck_assert_msg(strstr(said, text) != NULL, "'%s' is not in: %s", text, said);
}

START_TEST(test_explanations)
{
	struct ceov_call call = { .struct_bytes = sizeof(call), .kind = CEOV_REDUCE,
				  .dtype = CEOV_BF16, .reduction = CEOV_MEAN, .root = 1,
				  .source = &call, .count = 8 };
	struct channel_rig rig;

	channel_rig_open(&rig, 2, 0, NULL);
	explained(rig.channels[0], NULL, "channel 'rig' of rank 0: 2 ranks on the host");
	explained(rig.channels[0], NULL, "4 slots of 16384 bytes");
	explained(rig.channels[0], &call, "reduce of bf16, mean, root 1: all peers read the same "
		  "bytes, at most 16384 bytes");
	call = (struct ceov_call){ .struct_bytes = sizeof(call), .kind = CEOV_ALL_TO_ALL,
				   .dtype = CEOV_INT8 };
	explained(rig.channels[1], &call, "all_to_all of int8: each peer reads its own block of a "
		  "slot, at most 8192 bytes");
	call.root = 1;
	ck_assert_int_eq(ceov_channel_explain(rig.channels[0], &call, 1), CEOV_ERR_INVALID);
	call.root = 0;
	ck_assert_int_eq(ceov_channel_explain(rig.channels[0], &call, -1), CEOV_ERR_SYSTEM);
	channel_rig_works(&rig);
	channel_rig_close(&rig);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("channel");
	TCase *all = tcase_create("channel");

	tcase_set_timeout(all, 120);
	tcase_add_loop_test(all, test_random_calls, 1, CHANNEL_RANKS_MAX + 1);
	tcase_add_loop_test(all, test_every_kind_and_type, CEOV_ALL_GATHER, CEOV_BARRIER + 1);
	tcase_add_loop_test(all, test_memory_in_place, CEOV_ALL_GATHER, CEOV_BARRIER);
	tcase_add_test(all, test_ranks_that_need_few_chunks);
	tcase_add_loop_test(all, test_bits_of_sums, 0, 3);
	tcase_add_loop_test(all, test_examples_of_sums, 0, (int)EXAMPLES);
	tcase_add_test(all, test_a_nan_stays);
	tcase_add_test(all, test_several_threads_of_each_rank);
	tcase_add_test(all, test_several_channels_at_once);
	tcase_add_test(all, test_release_right_after_the_last_call);
	tcase_add_test(all, test_close_with_channels);
	tcase_add_test(all, test_explanations);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
