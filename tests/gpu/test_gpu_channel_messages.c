/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Sends and receives by channels between ranks on GPUs, at once and in any order, in graphs, and
 * how those end that do not fit together. */

#include "gpu_channel_rig.h"
#include "gpu_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCHES      40u
#define AT_ONCE      4u                 /* batches that are queued before one is checked */
#define MANY         24u                /* messages of a drawn batch at most */
#define MESSAGES_MAX 128u               /* that can be called at once */
#define LARGE        (UINT64_C(10) << 20)
#define REPLAYS      10u
#define GUARD        0x5c               /* what a target and its surroundings hold before */
#define GUARD_BYTES  UINT64_C(64)
#define DEADLINE_NS  (2 * TESTING_SECOND)

static struct gpu_op_rig rig;
static uint32_t n_all;                  /* number of ranks */

/* --- messages -------------------------------------------------------------------------------- */

struct message {
	struct ceov_call call;
	char            *memory;        /* on the GPU, with guards around the message */
	uint64_t         n_bytes;       /* without them */
	uint64_t         shift;         /* of the message behind an aligned address */
	uint64_t         seed;
};

struct batch {
	struct message messages[MESSAGES_MAX + 1];
	uint32_t       n;
};

static uint64_t size_of(const struct message *message)
{
	return message->n_bytes + 2 * GUARD_BYTES + 16;
}

static char *begin_of(const struct message *message)
{
	return message->memory + GUARD_BYTES + message->shift;
}

/* Writes the memory as it is before: what is sent, or what a target holds. */
static void fill(struct gpu_op_rank *rank, const struct message *message)
{
	char *copy = malloc(size_of(message));

	ck_assert_ptr_nonnull(copy);
	memset(copy, GUARD, size_of(message));
	if (message->call.kind == CEOV_SEND)
		testing_fill(copy + GUARD_BYTES + message->shift, message->n_bytes, message->seed);
	gpu_move(&rank->gpu, message->memory, copy, size_of(message));
	free(copy);
}

/* Asserts that the message is in the memory, and nothing else was written to. */
static void check(struct gpu_op_rank *rank, const struct message *message)
{
	uint64_t before = GUARD_BYTES + message->shift, behind = GUARD_BYTES + 16 - message->shift;
	char *copy = malloc(size_of(message));

	ck_assert_ptr_nonnull(copy);
	gpu_move(&rank->gpu, copy, message->memory, size_of(message));
	ck_assert_uint_eq(testing_check_same(copy, before, GUARD), before);
	ck_assert_uint_eq(testing_check(copy + before, message->n_bytes, message->seed),
			  message->n_bytes);
	ck_assert_uint_eq(testing_check_same(copy + before + message->n_bytes, behind, GUARD),
			  behind);
	free(copy);
}

/* What both ranks of a message know of it. */
struct parcel {
	enum ceov_dtype dtype;
	uint64_t        item_bytes;
	uint64_t        count;
	uint64_t        seed;
};

static struct parcel bytes_of(uint64_t n_bytes, uint64_t seed)
{
	return (struct parcel){ CEOV_INT8, 1, n_bytes, seed };
}

/* Appends a message to or from a peer, and makes its memory. */
static void add(struct gpu_op_rank *rank, struct batch *batch, enum ceov_call_kind kind,
		uint32_t peer, const struct parcel *parcel)
{
	struct message *message = &batch->messages[batch->n];
	struct ceov_call *call = &message->call;

	memset(message, 0, sizeof(*message));
	message->n_bytes = parcel->count * parcel->item_bytes;
	message->seed = parcel->seed;
	message->shift = batch->n % 3 == 2 ? parcel->seed % 16 : 0;
	message->memory = gpu_op_take(rank, size_of(message));
	call->struct_bytes = sizeof(*call);
	call->kind = kind;
	call->dtype = parcel->dtype;
	call->root = peer;
	call->count = parcel->count;
	if (kind == CEOV_SEND)
		call->source = begin_of(message);
	else
		call->target = begin_of(message);
	fill(rank, message);
	batch->n++;
	ck_assert_uint_le(batch->n, MESSAGES_MAX + 1);
}

static int run(struct gpu_op_rank *rank, ceov_channel *channel, const struct batch *batch,
	       enum gpu_stream stream)
{
	struct ceov_call calls[MESSAGES_MAX + 1];
	uint32_t i;

	for (i = 0; i < batch->n; i++) {
		calls[i] = batch->messages[i].call;
		calls[i].stream = rank->gpu.streams[stream];
	}
	return ceov_channel_run(channel, calls, batch->n);
}

static void run_well(struct gpu_op_rank *rank, ceov_channel *channel, const struct batch *batch,
		     enum gpu_stream stream)
{
	if (batch->n)
		gpu_op_result_check(rank, run(rank, channel, batch, stream));
}

static void check_batch(struct gpu_op_rank *rank, const struct batch *batch)
{
	uint32_t i;

	for (i = 0; i < batch->n; i++)
		check(rank, &batch->messages[i]);
}

static struct batch *make_batches(uint32_t n)
{
	struct batch *batches = calloc(n, sizeof(*batches));

	ck_assert_ptr_nonnull(batches);
	return batches;
}

/* --- random batches -------------------------------------------------------------------------- */

static struct parcel draw_parcel(uint64_t *random)
{
	static const struct parcel types[] = { { CEOV_INT8, 1, 0, 0 }, { CEOV_FP32, 4, 0, 0 },
					       { CEOV_COMPLEX128, 16, 0, 0 } };
	struct parcel parcel = types[testing_below(random, 3)];
	uint64_t how = testing_below(random, 40);
	uint64_t limit = how == 0 ? LARGE + 1 : how < 8 ? 200000 : 300;

	parcel.count = testing_below(random, limit) / parcel.item_bytes;
	parcel.seed = testing_random(random);
	return parcel;
}

/* All ranks draw the same messages; each takes those that concern it. Of a pair and direction they
 * are in the order of their drawing. */
static void draw(struct gpu_op_rank *rank, uint64_t *random, struct batch *batch)
{
	uint32_t n = (uint32_t)testing_below(random, MANY), n_ranks = rank->rig->n_ranks, i;
	uint32_t from, to;
	struct parcel parcel;

	batch->n = 0;
	for (i = 0; i < n; i++) {
		from = (uint32_t)testing_below(random, n_ranks);
		to = (uint32_t)testing_below(random, n_ranks);
		parcel = draw_parcel(random);
		if (from == rank->rank)
			add(rank, batch, CEOV_SEND, to, &parcel);
		if (to == rank->rank)
			add(rank, batch, CEOV_RECEIVE, from, &parcel);
	}
}

/* Batches on two streams, and a call of all ranks between some of them. */
static void send_random(struct gpu_op_rank *rank, const void *arg)
{
	const struct gpu_channel_mode *mode = arg;
	struct batch *batches = make_batches(AT_ONCE);
	ceov_channel *channel = gpu_channel_made(rank, mode);
	uint64_t random = testing_seed();
	uint32_t i, k;

	for (i = 0; i < BATCHES / AT_ONCE; i++) {
		rank->used_bytes = 0;
		for (k = 0; k < AT_ONCE; k++)
			draw(rank, &random, &batches[k]);
		for (k = 0; k < AT_ONCE; k++)
			run_well(rank, channel, &batches[k], k % 2 ? GPU_PRODUCE : GPU_CONSUME);
		gpu_channel_idle(rank, channel, GPU_PRODUCE);
		gpu_channel_idle(rank, channel, GPU_CONSUME);
		for (k = 0; k < AT_ONCE; k++)
			check_batch(rank, &batches[k]);
		if (i % 2)
			gpu_channel_works(rank, channel);
	}
	free(batches);
	gpu_channel_release(rank, channel);
}

/* Ranks also send to themselves. */
START_TEST(test_random_batches)
{
	static const struct gpu_channel_mode modes[] = { { "least", UINT64_C(1) << 16, 0 },
							 { "small", GPU_CHANNEL_RING, 0 },
							 { "usual", 0, 0 } };

	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, send_random, &modes[_i]);
	gpu_op_close(&rig);
}
END_TEST

/* --- what needs messages to go on beside each other ------------------------------------------ */

/* Each rank sends to the next one, or to all, more than the channel holds, and receives as much.
 * Its receives are called behind its sends. */
static void send_around(struct gpu_op_rank *rank, const void *arg)
{
	static const struct gpu_channel_mode mode = { "around", GPU_CHANNEL_RING, 0 };
	uint32_t n_ranks = rank->rig->n_ranks, own = rank->rank;
	ceov_channel *channel = gpu_channel_made(rank, &mode);
	struct batch *batch = make_batches(1);
	uint32_t n_peers = *(const uint32_t *)arg, peer, i;
	struct parcel parcel;

	for (i = 1; i <= n_peers; i++) {
		peer = (own + i) % n_ranks;
		parcel = bytes_of(LARGE, own * n_ranks + peer);
		add(rank, batch, CEOV_SEND, peer, &parcel);
	}
	for (i = 1; i <= n_peers; i++) {
		peer = (own + n_ranks - i) % n_ranks;
		parcel = bytes_of(LARGE, peer * n_ranks + own);
		add(rank, batch, CEOV_RECEIVE, peer, &parcel);
	}
	run_well(rank, channel, batch, GPU_CONSUME);
	gpu_channel_idle(rank, channel, GPU_CONSUME);
	check_batch(rank, batch);
	free(batch);
	gpu_channel_release(rank, channel);
}

/* _i 0: in a ring; 1: all pairs, and to itself. */
START_TEST(test_ranks_send_and_receive_at_once)
{
	const uint32_t n_peers = _i ? n_all : 1;

	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, send_around, &n_peers);
	gpu_op_close(&rig);
}
END_TEST

/* Rank 0 sends twice to rank 1 and waits for rank 2 in one batch. Rank 1 receives both in one
 * batch, and only then sends to rank 2, which then sends to rank 0. */
static void pass_on(struct gpu_op_rank *rank, const void *arg)
{
	static const struct gpu_channel_mode mode = { "passed on", GPU_CHANNEL_RING, 0 };
	const struct parcel x = bytes_of(LARGE, 1), y = bytes_of(3000001, 2);
	const struct parcel u = bytes_of(LARGE - 3, 3), z = bytes_of(LARGE, 4);
	ceov_channel *channel = gpu_channel_made(rank, &mode);
	struct batch *batches = make_batches(2);
	uint32_t i;

	(void)arg;
	if (rank->rank == 0) {
		add(rank, &batches[0], CEOV_RECEIVE, 2, &z);
		add(rank, &batches[0], CEOV_SEND, 1, &x);
		add(rank, &batches[0], CEOV_SEND, 1, &y);
	} else if (rank->rank == 1) {
		add(rank, &batches[0], CEOV_RECEIVE, 0, &x);
		add(rank, &batches[0], CEOV_RECEIVE, 0, &y);
		add(rank, &batches[1], CEOV_SEND, 2, &u);
	} else {
		add(rank, &batches[0], CEOV_RECEIVE, 1, &u);
		add(rank, &batches[1], CEOV_SEND, 0, &z);
	}
	for (i = 0; i < 2; i++)
		run_well(rank, channel, &batches[i], GPU_CONSUME);
	gpu_channel_idle(rank, channel, GPU_CONSUME);
	for (i = 0; i < 2; i++)
		check_batch(rank, &batches[i]);
	free(batches);
	gpu_channel_release(rank, channel);
}

START_TEST(test_a_batch_waits_for_what_it_causes)
{
	gpu_op_open(&rig, 3);
	gpu_op_each(&rig, pass_on, NULL);
	gpu_op_close(&rig);
}
END_TEST

/* As many as can be called at once; every second one is a receive. */
static void send_most(struct gpu_op_rank *rank, const void *arg)
{
	static const struct gpu_channel_mode mode = { "most", GPU_CHANNEL_RING, 0 };
	uint32_t n_ranks = rank->rig->n_ranks, next = (rank->rank + 1) % n_ranks, i;
	uint32_t previous = (rank->rank + n_ranks - 1) % n_ranks;
	ceov_channel *channel = gpu_channel_made(rank, &mode);
	struct batch *batch = make_batches(1);
	struct parcel parcel;

	(void)arg;
	for (i = 0; i < MESSAGES_MAX / 2; i++) {
		parcel = bytes_of(i % 16 == 7 ? UINT64_C(1) << 20 : 61 * i, 1000 * rank->rank + i);
		add(rank, batch, CEOV_SEND, next, &parcel);
		parcel.seed = 1000 * previous + i;
		add(rank, batch, CEOV_RECEIVE, previous, &parcel);
	}
	run_well(rank, channel, batch, GPU_CONSUME);
	gpu_channel_idle(rank, channel, GPU_CONSUME);
	check_batch(rank, batch);
	add(rank, batch, CEOV_SEND, next, &parcel);
	ck_assert_int_eq(run(rank, channel, batch, GPU_CONSUME), CEOV_ERR_INVALID);
	batch->n = 2;
	batch->messages[1].call = (struct ceov_call){ .struct_bytes = sizeof(struct ceov_call),
						      .kind = CEOV_BARRIER };
	ck_assert_int_eq(run(rank, channel, batch, GPU_CONSUME), CEOV_ERR_INVALID);
	batch->n = 0;
	ck_assert_int_eq(run(rank, channel, batch, GPU_CONSUME), CEOV_ERR_INVALID);
	gpu_channel_works(rank, channel);
	free(batch);
	gpu_channel_release(rank, channel);
}

START_TEST(test_as_many_messages_as_can_be_called_at_once)
{
	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, send_most, NULL);
	gpu_op_close(&rig);
}
END_TEST

/* --- graphs ---------------------------------------------------------------------------------- */

/* Each rank sends to the next one, with other bytes in each replay. */
static void replay(struct gpu_op_rank *rank, const void *arg)
{
	static const struct gpu_channel_mode mode = { "replayed", UINT64_C(1) << 16, 0 };
	uint32_t n_ranks = rank->rig->n_ranks, own = rank->rank, k, i;
	uint32_t previous = (own + n_ranks - 1) % n_ranks;
	ceov_channel *channel = gpu_channel_made(rank, &mode);
	struct parcel parcel = bytes_of(200001, 0);
	struct batch *batch = make_batches(1);
	struct gpu_graph graph;

	(void)arg;
	add(rank, batch, CEOV_SEND, (own + 1) % n_ranks, &parcel);
	add(rank, batch, CEOV_RECEIVE, previous, &parcel);
	gpu_graph_begin(&graph, &rank->gpu, GPU_CONSUME);
	run_well(rank, channel, batch, GPU_CONSUME);
	gpu_graph_end(&graph);
	gpu_op_meet(rank);
	for (k = 0; k < REPLAYS; k++) {
		batch->messages[0].seed = k * n_ranks + own;
		batch->messages[1].seed = k * n_ranks + previous;
		for (i = 0; i < 2; i++)
			fill(rank, &batch->messages[i]);
		gpu_graph_launch(&graph);
		if (k % 3 == 0)
			gpu_channel_works(rank, channel);
		gpu_channel_idle(rank, channel, GPU_CONSUME);
		check_batch(rank, batch);
	}
	gpu_op_meet(rank);
	gpu_graph_free(&graph);
	free(batch);
	gpu_channel_release(rank, channel);
}

START_TEST(test_messages_are_replayed)
{
	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, replay, NULL);
	gpu_op_close(&rig);
}
END_TEST

/* --- what does not fit together -------------------------------------------------------------- */

struct unequal {
	struct parcel sent;
	struct parcel expected;
	const char   *words[2];         /* of failures */
};

static void send_unequal(struct gpu_op_rank *rank, const void *arg)
{
	static const struct gpu_channel_mode mode = { "unequal", GPU_CHANNEL_RING, DEADLINE_NS };
	const struct unequal *unequal = arg;
	const struct channel_case after = channel_case_of(CEOV_ALL_REDUCE, CEOV_FP32,
							  rank->rig->n_ranks, 7);
	ceov_channel *channel = gpu_channel_made(rank, &mode);
	struct batch *batch = make_batches(1);

	gpu_channel_works(rank, channel);
	if (rank->rank == 0)
		add(rank, batch, CEOV_SEND, 1, &unequal->sent);
	else if (rank->rank == 1)
		add(rank, batch, CEOV_RECEIVE, 0, &unequal->expected);
	run_well(rank, channel, batch, GPU_CONSUME);
	gpu_idle(&rank->gpu, GPU_CONSUME);
	gpu_op_meet(rank);
	gpu_channel_expect_end(rank, channel, &after, CEOV_ERR_INVALID);
	free(batch);
	gpu_channel_release(rank, channel);
}

START_TEST(test_a_receive_of_another_message_names_both)
{
	static const struct unequal unequal[] = {
		{ { CEOV_INT8, 1, 100, 0 }, { CEOV_INT8, 1, 96, 0 }, { "100", "96" } },
		{ { CEOV_INT8, 1, 96, 0 }, { CEOV_FP32, 4, 24, 0 }, { "int8", "fp32" } },
		{ { CEOV_INT8, 1, LARGE, 0 }, { CEOV_INT8, 1, 0, 0 }, { "10485760", "" } },
	};
	struct testing_log log;

	gpu_channel_open(&rig, n_all, &log);
	gpu_op_each(&rig, send_unequal, &unequal[_i]);
	ck_assert_uint_ge(gpu_channel_lines(&log, unequal[_i].words[0], unequal[_i].words[1]), 2);
	gpu_channel_close(&rig);
}
END_TEST

static Suite *suite(uint32_t n_ranks)
{
	Suite *made = suite_create("gpu channel messages");
	TCase *all = tcase_create("channel messages");

	n_all = n_ranks < CHANNEL_RANKS_MAX ? n_ranks : CHANNEL_RANKS_MAX;
	tcase_set_timeout(all, 100);
	tcase_add_loop_test(all, test_random_batches, 0, 3);
	tcase_add_loop_test(all, test_ranks_send_and_receive_at_once, 0, 2);
	if (n_all > 2 || gpu_n_sharing(n_all) > 1)
		tcase_add_test(all, test_a_batch_waits_for_what_it_causes);
	else
		printf("left out: three ranks, of which each needs a GPU\n");
	tcase_add_test(all, test_as_many_messages_as_can_be_called_at_once);
	tcase_add_test(all, test_messages_are_replayed);
	tcase_add_loop_test(all, test_a_receive_of_another_message_names_both, 0, 3);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return gpu_main_ranks(suite);
}
