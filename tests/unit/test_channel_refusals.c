/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What channels refuse, with which words; a channel whose call was refused works on. */

#include <check.h>
#include <stddef.h>
#include <string.h>

#include "unit/channel_rig.h"
#include "unit/nodes_rig.h"

static char memory[4096];
static uint64_t counts[2] = { 10, 20 };
static uint64_t many[2] = { UINT64_C(1) << 55, UINT64_C(1) << 55 };

/* Rank 1 of 2 makes the call. */
struct refusal {
	struct ceov_call call;
	const char      *fault;
};

#define BYTES sizeof(struct ceov_call)

static const struct refusal refusals[] = {
	{ { .struct_bytes = 0 }, "struct_bytes is too small" },
	{ { .struct_bytes = BYTES + 1, .kind = CEOV_BARRIER },
	  "struct_bytes is no struct's size" },
	{ { .struct_bytes = BYTES }, "kind is none of enum ceov_call_kind" },
	{ { .struct_bytes = BYTES, .kind = (enum ceov_call_kind)12 },
	  "kind is none of enum ceov_call_kind" },
	{ { .struct_bytes = BYTES, .kind = (enum ceov_call_kind)-1 },
	  "kind is none of enum ceov_call_kind" },
	{ { .struct_bytes = BYTES, .kind = CEOV_BROADCAST, .dtype = CEOV_INT8, .root = 2,
	    .source = memory, .target = memory, .count = 8 }, "broadcast: root is no rank" },
	{ { .struct_bytes = BYTES, .kind = CEOV_ALL_GATHER, .dtype = CEOV_INT8, .root = 1,
	    .source = memory, .target = memory + 100, .count = 8 },
	  "all_gather: this kind has no root; set it to 0" },
	{ { .struct_bytes = BYTES, .kind = CEOV_GATHER, .dtype = CEOV_INT8, .reduction = CEOV_MAX,
	    .root = 1, .source = memory, .target = memory + 100, .count = 8 },
	  "gather: this kind has no reduction; set it to 0" },
	{ { .struct_bytes = BYTES, .kind = CEOV_ALL_REDUCE, .dtype = CEOV_INT8,
	    .reduction = (enum ceov_reduction)5, .source = memory, .target = memory, .count = 8 },
	  "reduction is none of enum ceov_reduction" },
	{ { .struct_bytes = BYTES, .kind = CEOV_BROADCAST, .source = memory, .target = memory,
	    .count = 8 }, "dtype is none of enum ceov_dtype" },
	{ { .struct_bytes = BYTES, .kind = CEOV_BROADCAST, .dtype = (enum ceov_dtype)18,
	    .source = memory, .target = memory, .count = 8 },
	  "dtype is none of enum ceov_dtype" },
	{ { .struct_bytes = BYTES, .kind = CEOV_BROADCAST, .dtype = (enum ceov_dtype)-1,
	    .source = memory, .target = memory, .count = 8 },
	  "dtype is none of enum ceov_dtype" },
	{ { .struct_bytes = BYTES, .kind = CEOV_ALL_REDUCE, .dtype = CEOV_UINT16,
	    .source = memory, .target = memory, .count = 8 },
	  "numbers of this dtype are not added up in that way" },
	{ { .struct_bytes = BYTES, .kind = CEOV_ALL_REDUCE, .dtype = CEOV_BOOL,
	    .reduction = CEOV_MAX, .source = memory, .target = memory, .count = 8 },
	  "numbers of this dtype are not added up in that way" },
	{ { .struct_bytes = BYTES, .kind = CEOV_REDUCE, .dtype = CEOV_COMPLEX64, .source = memory,
	    .target = memory, .count = 8 },
	  "numbers of this dtype are not added up in that way" },
	{ { .struct_bytes = BYTES, .kind = CEOV_REDUCE_SCATTER, .dtype = CEOV_INT32,
	    .reduction = CEOV_MEAN, .source = memory, .target = memory + 100, .count = 8 },
	  "numbers of this dtype are not added up in that way" },
	{ { .struct_bytes = BYTES, .kind = CEOV_ALL_GATHER, .dtype = CEOV_INT8, .source = memory,
	    .target = memory + 100, .count = 8, .sends = counts },
	  "this kind takes no such list of counts" },
	{ { .struct_bytes = BYTES, .kind = CEOV_REDUCE_SCATTER, .dtype = CEOV_INT8,
	    .source = memory, .target = memory + 100, .count = 8, .receives = counts },
	  "this kind takes no such list of counts" },
	{ { .struct_bytes = BYTES, .kind = CEOV_ALL_TO_ALL, .dtype = CEOV_INT8, .source = memory,
	    .target = memory + 100, .count = 8, .receives = counts },
	  "an all_to_all has both lists of counts, or neither" },
	{ { .struct_bytes = BYTES, .kind = CEOV_ALL_TO_ALL, .dtype = CEOV_INT8, .source = memory,
	    .target = memory + 100, .count = 8, .sends = counts },
	  "an all_to_all has both lists of counts, or neither" },
	{ { .struct_bytes = BYTES, .kind = CEOV_BARRIER, .count = 1 },
	  "barrier: a barrier has no memory" },
	{ { .struct_bytes = BYTES, .kind = CEOV_BARRIER, .source = memory },
	  "barrier: a barrier has no memory" },
	{ { .struct_bytes = BYTES, .kind = CEOV_BARRIER, .target = memory },
	  "barrier: a barrier has no memory" },
	{ { .struct_bytes = BYTES, .kind = CEOV_ALL_REDUCE, .dtype = CEOV_INT64, .source = memory,
	    .target = memory, .count = UINT64_MAX / 8 + 2 },
	  "the counts are more than any memory holds" },
	{ { .struct_bytes = BYTES, .kind = CEOV_REDUCE_SCATTER, .dtype = CEOV_INT16,
	    .source = memory, .target = memory, .sends = many },
	  "the counts are more than any memory holds" },
	{ { .struct_bytes = BYTES, .kind = CEOV_BROADCAST, .dtype = CEOV_INT8, .root = 1,
	    .target = memory, .count = 8 }, "source or target is NULL" },
	{ { .struct_bytes = BYTES, .kind = CEOV_ALL_REDUCE, .dtype = CEOV_INT8, .source = memory,
	    .count = 8 }, "source or target is NULL" },
	{ { .struct_bytes = BYTES, .kind = CEOV_BROADCAST, .dtype = CEOV_INT8,
	    .target = (char *)UINTPTR_MAX - 4, .count = 8 },
	  "source or target reaches beyond the end of memory" },
	{ { .struct_bytes = BYTES, .kind = CEOV_ALL_REDUCE, .dtype = CEOV_INT8, .source = memory,
	    .target = memory + 4, .count = 8 }, "source and target overlap" },
	{ { .struct_bytes = BYTES, .kind = CEOV_ALL_REDUCE, .dtype = CEOV_INT8,
	    .source = memory + 7, .target = memory, .count = 8 }, "source and target overlap" },
	{ { .struct_bytes = BYTES, .kind = CEOV_ALL_TO_ALL, .dtype = CEOV_INT8, .source = memory,
	    .target = memory, .count = 8 }, "source and target overlap" },
	{ { .struct_bytes = BYTES, .kind = CEOV_ALL_GATHER, .dtype = CEOV_INT8, .source = memory,
	    .target = memory, .count = 8 }, "source and target overlap" },
	{ { .struct_bytes = BYTES, .kind = CEOV_ALL_GATHER, .dtype = CEOV_INT8,
	    .source = memory + 8, .target = memory, .receives = counts },
	  "source and target overlap" },
	{ { .struct_bytes = BYTES, .kind = CEOV_REDUCE_SCATTER, .dtype = CEOV_INT8,
	    .source = memory, .target = memory, .count = 8 }, "source and target overlap" },
	{ { .struct_bytes = BYTES, .kind = CEOV_REDUCE, .dtype = CEOV_INT8, .root = 1,
	    .source = memory, .target = memory + 1, .count = 8 }, "source and target overlap" },
};

#define REFUSALS (sizeof(refusals) / sizeof(refusals[0]))

static void refused(struct channel_rig *rig, const struct ceov_call *call, const char *fault)
{
	struct ceov_failure failure;

	ck_assert_int_eq(ceov_channel_run(rig->channels[1], call, 1), CEOV_ERR_INVALID);
	failure = testing_failure(rig->context);
	ck_assert_msg(strstr(failure.text, "ceov_channel_run: channel 'rig', rank 1: ") &&
		      strstr(failure.text, fault), "'%s' is not in: %s", fault, failure.text);
	ck_assert_int_eq(ceov_channel_status(rig->channels[1]), 0);
	ck_assert_uint_eq(testing_check_same(memory, sizeof(memory), 0x77), sizeof(memory));
}

START_TEST(test_calls_are_refused)
{
	struct channel_rig rig;
	uint32_t i;

	memset(memory, 0x77, sizeof(memory));
	channel_rig_open(&rig, 2, 0, NULL);
	for (i = 0; i < REFUSALS; i++) {
		refused(&rig, &refusals[i].call, refusals[i].fault);
		channel_rig_works(&rig);
	}
	/* The call before was an all-reduce, of which a call that is none says nothing. */
	refused(&rig, NULL, "rank 1: ?: there is no struct");
	channel_rig_works(&rig);
	channel_rig_close(&rig);
}
END_TEST

/* A newer caller's struct, whose further fields have to be 0. */
START_TEST(test_a_larger_struct)
{
	struct {
		struct ceov_call call;
		uint64_t         further;
	} larger = { .call = { .struct_bytes = sizeof(larger), .kind = CEOV_BARRIER } };
	struct channel_rig rig;

	channel_rig_open(&rig, 1, 0, NULL);
	ck_assert_int_eq(ceov_channel_run(rig.channels[0], &larger.call, 1), 0);
	larger.further = 1;
	ck_assert_int_eq(ceov_channel_run(rig.channels[0], &larger.call, 1), CEOV_ERR_INVALID);
	channel_rig_close(&rig);
}
END_TEST

/* Calls of the first header, which ended before `stream`; in an array they lie closer together. */
START_TEST(test_a_smaller_struct)
{
	enum { WORDS = offsetof(struct ceov_call, stream) / sizeof(uint64_t) };
	struct ceov_call call = { .struct_bytes = offsetof(struct ceov_call, stream),
				  .kind = CEOV_SEND, .dtype = CEOV_INT8, .source = "twice",
				  .count = 6 };
	uint64_t packed[2 * WORDS];
	char got[2][6];
	struct channel_rig rig;

	channel_rig_open(&rig, 1, 0, NULL);
	memcpy(packed, &call, call.struct_bytes);
	memcpy(packed + WORDS, &call, call.struct_bytes);
	ck_assert_int_eq(ceov_channel_run(rig.channels[0], (const void *)packed, 2), 0);
	call.kind = CEOV_RECEIVE;
	call.source = NULL;
	call.target = got[0];
	memcpy(packed, &call, call.struct_bytes);
	call.target = got[1];
	memcpy(packed + WORDS, &call, call.struct_bytes);
	ck_assert_int_eq(ceov_channel_run(rig.channels[0], (const void *)packed, 2), 0);
	ck_assert_str_eq(got[0], "twice");
	ck_assert_str_eq(got[1], "twice");
	call.struct_bytes -= sizeof(uint64_t);
	ck_assert_int_eq(ceov_channel_run(rig.channels[0], &call, 1), CEOV_ERR_INVALID);
	channel_rig_close(&rig);
}
END_TEST

/* --- channels -------------------------------------------------------------------------------- */

static void not_created(ceov_context *context, const struct ceov_channel_config *config,
			const char *fault)
{
	ceov_channel *channel = NULL;
	struct ceov_failure failure;

	ck_assert_int_eq(ceov_channel_create(context, config, &channel), CEOV_ERR_INVALID);
	ck_assert_ptr_null(channel);
	failure = testing_failure(context);
	ck_assert_msg(strstr(failure.text, "ceov_channel_create") && strstr(failure.text, fault),
		      "'%s' is not in: %s", fault, failure.text);
}

START_TEST(test_channels_are_refused)
{
	struct ceov_channel_config good = { sizeof(good), 0, "one", CHANNEL_RING, 0 }, bad;
	ceov_context *context = testing_open(2, NULL);
	ceov_channel *channel = NULL, *second = NULL;

	not_created(context, NULL, "there is no struct");
	bad = good;
	bad.struct_bytes = 8;
	not_created(context, &bad, "struct_bytes is too small");
	bad = good;
	bad.rank = 2;
	not_created(context, &bad, "rank");
	bad = good;
	bad.name = NULL;
	not_created(context, &bad, "the name must have 1 to 40 bytes");
	bad.name = "";
	not_created(context, &bad, "the name must have 1 to 40 bytes");
	bad.name = "12345678901234567890123456789012345678901";
	not_created(context, &bad, "the name must have 1 to 40 bytes");
	bad = good;
	bad.ring_bytes = CHANNEL_RING - 1;
	not_created(context, &bad, "ring_bytes must be 0, or 64 KiB to 1 GiB");
	bad.ring_bytes = (UINT64_C(1) << 30) + 1;
	not_created(context, &bad, "ring_bytes must be 0, or 64 KiB to 1 GiB");
	ck_assert_int_eq(ceov_channel_create(context, &good, NULL), CEOV_ERR_INVALID);

	good.name = "1234567890123456789012345678901234567890";
	ck_assert_int_eq(ceov_channel_create(context, &good, &channel), 0);
	ck_assert_int_lt(ceov_channel_create(context, &good, &second), 0);
	ck_assert_ptr_null(second);
	ck_assert_int_eq(ceov_channel_release(channel), 0);
	ceov_close(context);
}
END_TEST

/* More than 64 ranks, which no group has on one node, are several nodes as well. */
START_TEST(test_groups_of_several_nodes)
{
	struct ceov_channel_config config = { sizeof(config), 2, "far", CHANNEL_RING, 0 };
	struct nodes nodes;

	nodes_open(&nodes, 2, 2);
	not_created(nodes.node[1].context, &config, "channels are for groups of one node");
	nodes_close(&nodes);
}
END_TEST

/* What was found of a peer before does not make the next attempt succeed. */
START_TEST(test_rings_of_other_sizes)
{
	struct ceov_channel_config config = { sizeof(config), 0, "sizes", 2 * CHANNEL_RING, 0 };
	ceov_context *context = testing_open(2, NULL);
	ceov_channel *channels[2];
	struct ceov_failure failure;
	uint32_t i;

	ck_assert_int_eq(ceov_channel_create(context, &config, &channels[0]), 0);
	channels[1] = channel_made(context, 1, "sizes", 0);
	for (i = 0; i < 4; i++) {
		ck_assert_int_eq(ceov_channel_connect(channels[i % 2], 0), CEOV_ERR_INVALID);
		failure = testing_failure(context);
		ck_assert(strstr(failure.text, "give all ranks the same ring_bytes"));
	}
	ck_assert_int_eq(ceov_channel_release(channels[0]), CEOV_PENDING);
	ck_assert_int_eq(ceov_channel_release(channels[1]), 0);
	ck_assert_int_eq(ceov_channel_release(channels[0]), 0);
	ceov_close(context);
}
END_TEST

START_TEST(test_channels_that_are_not_connected)
{
	struct ceov_call call = { .struct_bytes = sizeof(call), .kind = CEOV_BARRIER };
	ceov_context *context = testing_open(2, NULL);
	ceov_channel *channels[2];

	channels[0] = channel_made(context, 0, "late", 0);
	ck_assert_int_eq(ceov_channel_run(channels[0], &call, 1), CEOV_ERR_STATE);
	ck_assert(strstr(testing_failure(context).text, "is not connected yet"));
	ck_assert_int_eq(ceov_channel_connect(channels[0], 0), CEOV_PENDING);
	ck_assert_int_eq(ceov_channel_run(channels[0], &call, 1), CEOV_ERR_STATE);
	ck_assert_int_eq(ceov_channel_explain(channels[0], NULL, 1), CEOV_ERR_STATE);
	channels[1] = channel_made(context, 1, "late", 0);
	ck_assert_int_eq(ceov_channel_connect(channels[0], TESTING_PATIENCE), 0);
	ck_assert_int_eq(ceov_channel_connect(channels[0], 0), 0);
	ck_assert_int_eq(ceov_channel_release(channels[1]), CEOV_PENDING);
	ck_assert_int_eq(ceov_channel_release(channels[0]), 0);
	ck_assert_int_eq(ceov_channel_release(channels[1]), 0);
	ceov_close(context);
}
END_TEST

START_TEST(test_no_handles)
{
	struct ceov_call call = { .struct_bytes = sizeof(call), .kind = CEOV_BARRIER };
	struct channel_rig rig;
	ceov_channel *dead;

	ck_assert_int_eq(ceov_channel_run(NULL, &call, 1), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_channel_connect(NULL, 0), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_channel_explain(NULL, &call, 1), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_channel_status(NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_channel_abort(NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_channel_release(NULL), 0);
	channel_rig_open(&rig, 1, 0, NULL);
	dead = rig.channels[0];
	channel_rig_works(&rig);
	channel_rig_release(&rig);
	ck_assert_int_lt(ceov_channel_run(dead, &call, 1), 0);
	ck_assert_int_lt(ceov_channel_status(dead), 0);
	ck_assert_int_lt(ceov_channel_abort(dead), 0);
	ck_assert_int_lt(ceov_channel_release(dead), 0);
	ceov_close(rig.context);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("channel_refusals");
	TCase *all = tcase_create("channel_refusals");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_calls_are_refused);
	tcase_add_test(all, test_a_larger_struct);
	tcase_add_test(all, test_a_smaller_struct);
	tcase_add_test(all, test_channels_are_refused);
	tcase_add_test(all, test_groups_of_several_nodes);
	tcase_add_test(all, test_rings_of_other_sizes);
	tcase_add_test(all, test_channels_that_are_not_connected);
	tcase_add_test(all, test_no_handles);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
