/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Channels between ranks on GPUs: random calls, the bits of sums, calls on several streams, calls
 * in CUDA graphs, many calls without a wait, processes. Messages: test_gpu_channel_messages.c; how
 * channels end: test_gpu_channel_fails.c.
 *
 *   CEOVERLAP_GPU_CHANNEL_CALLS   random calls with each size of rings (default 200)
 */

#include "gpu_channel_rig.h"
#include "gpu_graph.h"
#include "gpu_process.h"

#include <stdio.h>
#include <stdlib.h>

#define CALLS         200u
#define PROCESS_CALLS 40u
#define STREAM_CALLS  60u
#define CAPTURED      8u
#define REPLAYS       50u
#define SMALL_UNIT    UINT64_C(16384)   /* of calls that are made often */
#define HOLD_NS       (3 * TESTING_MS)

static struct gpu_op_rig rig;
static uint32_t n_all;                  /* number of ranks */
static uint32_t n_few;                  /* where each of a rank's streams must have a hardware queue
					 * of its own */

/* --- random calls ---------------------------------------------------------------------------- */

struct size {
	struct gpu_channel_mode mode;
	uint64_t                unit_bytes;     /* of the cases */
	uint32_t                n_calls;
};

static struct size size_of(int which)
{
	static const struct size sizes[] = {
		{ { "least", UINT64_C(1) << 16, 0 }, UINT64_C(1) << 16, 0 },
		{ { "small", UINT64_C(1) << 20, 0 }, UINT64_C(1) << 20, 0 },
		{ { "usual", 0, 0 }, (UINT64_C(8) << 20) / 3, 0 },
	};
	struct size size = sizes[which];

	size.n_calls = gpu_setting("CEOVERLAP_GPU_CHANNEL_CALLS", CALLS);
	return size;
}

#define SIZES 3

static void call_once(struct gpu_op_rank *rank, ceov_channel *channel,
		      const struct channel_case *one, const struct channel_form *form)
{
	struct gpu_channel_call call;

	rank->used_bytes = 0;
	gpu_channel_put(rank, one, form, &call);
	gpu_op_result_check(rank, gpu_channel_run(channel, &call, GPU_CONSUME));
	gpu_channel_idle(rank, channel, GPU_CONSUME);
	gpu_channel_check(&call);
	gpu_channel_drop(&call);
}

static void make_random(struct gpu_op_rank *rank, const void *arg)
{
	const struct size *size = arg;
	ceov_channel *channel = gpu_channel_made(rank, &size->mode);
	uint64_t random = testing_seed() + rank->rank;
	struct channel_form form;
	struct channel_case one;
	uint32_t i;

	for (i = 0; i < size->n_calls; i++) {
		one = gpu_channel_case(i, rank->rig->n_ranks, size->unit_bytes);
		form = channel_form_random(&random);
		if (testing_below(&random, 16) == 0)
			gpu_op_be_late(rank, GPU_CONSUME, &random);
		call_once(rank, channel, &one, &form);
	}
	gpu_channel_release(rank, channel);
}

START_TEST(test_random_calls)
{
	const struct size size = size_of(_i);

	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, make_random, &size);
	gpu_op_close(&rig);
}
END_TEST

/* Nothing, one, some, and more than what fits into the ring; of misaligned memory. */
static void make_every_type(struct gpu_op_rank *rank, const void *arg)
{
	static const uint64_t counts[] = { 0, 1, 13, 40001 };
	static const struct gpu_channel_mode mode = { "types", UINT64_C(1) << 16, 0 };
	enum ceov_call_kind kind = *(const enum ceov_call_kind *)arg;
	ceov_channel *channel = gpu_channel_made(rank, &mode);
	struct channel_form form = { .target_shift = 1 };
	struct channel_case one;
	uint32_t dtype, i;

	for (dtype = CEOV_BF16; dtype <= CEOV_COMPLEX128; dtype++) {
		for (i = 0; i < 4; i++) {
			one = channel_case_of(kind, (enum ceov_dtype)dtype, rank->rig->n_ranks,
					      counts[i]);
			if (channel_case_is_sum(&one) && !gpu_channel_can_sum(one.dtype))
				continue;
			form.has_lists = i % 2 != 0;
			call_once(rank, channel, &one, &form);
		}
	}
	gpu_channel_release(rank, channel);
}

START_TEST(test_every_kind_and_type)
{
	const enum ceov_call_kind kind = (enum ceov_call_kind)_i;

	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, make_every_type, &kind);
	gpu_op_close(&rig);
}
END_TEST

/* --- the bits of sums ------------------------------------------------------------------------ */

struct bits {
	enum ceov_call_kind     kind;
	struct gpu_channel_mode mode;   /* with small rings, of which sums take no lines, or the
					 * usual ones */
};

/* Each 64th number is a NaN, infinite, huge, tiny or a negative zero. What is expected is added up
 * in the order of ranks, as channels between host ranks do it, and compared bit by bit. */
static void sum_each_way(struct gpu_op_rank *rank, const void *arg)
{
	static const uint64_t counts[] = { 3000, 300001 };
	const struct bits *bits = arg;
	ceov_channel *channel = gpu_channel_made(rank, &bits->mode);
	uint64_t random = testing_seed() + rank->rank;
	struct channel_form form;
	struct channel_case one;
	uint32_t i;

	for (i = 0; i < 2 * 3 * (CEOV_MEAN + 1); i++) {
		one = channel_case_of(bits->kind, (enum ceov_dtype)(CEOV_BF16 + i / 2 % 3),
				      rank->rig->n_ranks, counts[i % 2]);
		one.reduction = (enum ceov_reduction)(i / 6);
		one.seed = testing_seed() + i;
		form = channel_form_random(&random);
		call_once(rank, channel, &one, &form);
	}
	gpu_channel_release(rank, channel);
}

START_TEST(test_bits_of_sums)
{
	static const enum ceov_call_kind kinds[] = { CEOV_ALL_REDUCE, CEOV_REDUCE_SCATTER,
						     CEOV_REDUCE };
	const struct bits bits = { kinds[_i / 2], { "bits", _i % 2 ? 0 : GPU_CHANNEL_RING, 0 } };

	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, sum_each_way, &bits);
	gpu_op_close(&rig);
}
END_TEST

/* Sums of types that GPUs do not add up change nothing. */
static void sum_other_types(struct gpu_op_rank *rank, const void *arg)
{
	static const struct gpu_channel_mode mode = { "other types", GPU_CHANNEL_RING, 0 };
	ceov_channel *channel = gpu_channel_made(rank, &mode);
	struct gpu_channel_call call;
	struct channel_form form = { 0 };
	struct channel_case one;
	uint32_t dtype;

	(void)arg;
	for (dtype = CEOV_FP64; dtype <= CEOV_COMPLEX128; dtype++) {
		rank->used_bytes = 0;
		one = channel_case_of(CEOV_ALL_REDUCE, (enum ceov_dtype)dtype,
				      rank->rig->n_ranks, 64);
		gpu_channel_put(rank, &one, &form, &call);
		ck_assert_int_eq(gpu_channel_run(channel, &call, GPU_CONSUME), CEOV_ERR_INVALID);
		ck_assert_int_eq(ceov_channel_status(channel), 0);
		gpu_idle(&rank->gpu, GPU_CONSUME);
		gpu_move(&rank->gpu, call.data.memory, call.memory, call.data.n_bytes);
		channel_data_check_unchanged(&call.data);
		gpu_channel_drop(&call);
	}
	gpu_channel_works(rank, channel);
	gpu_channel_release(rank, channel);
}

START_TEST(test_sums_of_other_types_are_refused)
{
	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, sum_other_types, NULL);
	gpu_op_close(&rig);
}
END_TEST

/* --- streams --------------------------------------------------------------------------------- */

/* Random calls, all made before the first one is awaited; each rank draws streams of its own, and
 * holds one of them now and then. */
static void alternate(struct gpu_op_rank *rank, const void *arg)
{
	static const enum gpu_stream streams[] = { GPU_PRODUCE, GPU_CONSUME, GPU_WAIT };
	static const struct gpu_channel_mode mode = { "streams", GPU_CHANNEL_RING, 0 };
	struct gpu_channel_call *calls = calloc(STREAM_CALLS, sizeof(*calls));
	ceov_channel *channel = gpu_channel_made(rank, &mode);
	uint64_t random = testing_seed() + rank->rank;
	struct channel_case one;
	struct channel_form form;
	uint32_t i, which;

	(void)arg;
	ck_assert_ptr_nonnull(calls);
	for (i = 0; i < STREAM_CALLS; i++) {
		one = gpu_channel_case(i, rank->rig->n_ranks, GPU_CHANNEL_RING);
		form = channel_form_random(&random);
		gpu_channel_put(rank, &one, &form, &calls[i]);
	}
	for (i = 0; i < STREAM_CALLS; i++) {
		which = (uint32_t)testing_below(&random, 3);
		if (testing_below(&random, 4) == 0)
			gpu_op_hold(rank, streams[which], testing_below(&random, HOLD_NS));
		gpu_op_result_check(rank, gpu_channel_run(channel, &calls[i], streams[which]));
	}
	for (i = 0; i < 3; i++)
		gpu_channel_idle(rank, channel, streams[i]);
	for (i = 0; i < STREAM_CALLS; i++) {
		gpu_channel_check(&calls[i]);
		gpu_channel_drop(&calls[i]);
	}
	free(calls);
	gpu_channel_release(rank, channel);
}

START_TEST(test_calls_alternate_over_three_streams)
{
	gpu_op_open(&rig, n_few);
	gpu_op_each(&rig, alternate, NULL);
	gpu_op_close(&rig);
}
END_TEST

/* A call on another stream reads what the one before gives, which is held: nothing but the channel
 * orders them. */
static void pass_on(struct gpu_op_rank *rank, const void *arg)
{
	static const struct gpu_channel_mode mode = { "passed on", GPU_CHANNEL_RING, 0 };
	ceov_channel *channel = gpu_channel_made(rank, &mode);
	struct channel_case one = channel_case_of(CEOV_BROADCAST, CEOV_INT32, rank->rig->n_ranks,
						  50000);
	uint32_t last = rank->rig->n_ranks - 1;
	struct channel_form form = { 0 };
	struct gpu_channel_call calls[2];
	struct ceov_call next;

	(void)arg;
	gpu_channel_put(rank, &one, &form, &calls[0]);
	one.root = last;                /* it gives what it got from rank 0 */
	gpu_channel_put(rank, &one, &form, &calls[1]);
	next = channel_data_call_at(&calls[1].data, calls[1].memory);
	if (rank->rank == last)
		next.source = channel_data_call_at(&calls[0].data, calls[0].memory).target;
	next.stream = rank->gpu.streams[GPU_PRODUCE];
	gpu_op_hold(rank, GPU_CONSUME, 50 * TESTING_MS);
	gpu_op_result_check(rank, gpu_channel_run(channel, &calls[0], GPU_CONSUME));
	gpu_op_result_check(rank, ceov_channel_run(channel, &next, 1));
	gpu_channel_idle(rank, channel, GPU_PRODUCE);
	gpu_channel_idle(rank, channel, GPU_CONSUME);
	gpu_channel_check(&calls[0]);
	calls[1].one.root = 0;          /* whose items have come */
	gpu_channel_check(&calls[1]);
	gpu_channel_drop(&calls[0]);
	gpu_channel_drop(&calls[1]);
	gpu_channel_release(rank, channel);
}

START_TEST(test_a_call_reads_what_one_on_another_stream_gives)
{
	gpu_op_open(&rig, n_few);
	gpu_op_each(&rig, pass_on, NULL);
	gpu_op_close(&rig);
}
END_TEST

/* --- graphs ---------------------------------------------------------------------------------- */

struct player {
	struct gpu_op_rank     *rank;
	ceov_channel           *channel;
	int                     is_branched;    /* the graph has two branches, which only the
						 * channel orders */
	struct gpu_graph        graph;
	char                   *places[CAPTURED];       /* the memory of captured calls */
	struct gpu_channel_call calls[REPLAYS][CAPTURED];       /* operands and results of each
								 * replay */
	struct gpu_channel_call beside[REPLAYS];        /* calls outside the graph */
};

static void make_player(struct player *player, uint64_t random)
{
	uint32_t n_ranks = player->rank->rig->n_ranks, i, k;
	struct channel_form form;
	struct channel_case one;

	for (i = 0; i < CAPTURED; i++) {
		one = gpu_channel_case(i, n_ranks, SMALL_UNIT);
		form = channel_form_random(&random);
		for (k = 0; k < REPLAYS; k++) {
			one.seed += k;
			gpu_channel_put(player->rank, &one, &form, &player->calls[k][i]);
		}
		player->places[i] = gpu_op_take(player->rank, player->calls[0][i].data.n_bytes);
	}
	for (k = 0; k < REPLAYS; k++) {
		one = gpu_channel_case(CAPTURED + k, n_ranks, SMALL_UNIT);
		form = channel_form_random(&random);
		gpu_channel_put(player->rank, &one, &form, &player->beside[k]);
	}
	gpu_op_meet(player->rank);
}

static void capture(struct player *player)
{
	struct gpu_channel_call call;
	uint32_t i;

	gpu_graph_begin(&player->graph, &player->rank->gpu, GPU_CONSUME);
	if (player->is_branched)
		gpu_graph_go_on(&player->graph, GPU_CONSUME, GPU_PRODUCE);
	for (i = 0; i < CAPTURED; i++) {
		call = player->calls[0][i];
		call.memory = player->places[i];
		gpu_op_result_check(player->rank, gpu_channel_run(
			player->channel, &call,
			player->is_branched && i % 2 ? GPU_PRODUCE : GPU_CONSUME));
	}
	if (player->is_branched)
		gpu_graph_go_on(&player->graph, GPU_PRODUCE, GPU_CONSUME);
	gpu_graph_end(&player->graph);
	gpu_op_meet(player->rank);
}

/* Copies the memory of replay k to where the graph has it, or back, in the order of the stream. */
static void exchange(struct player *player, uint32_t k, int is_back)
{
	struct gpu_channel_call *call;
	uint32_t i;

	for (i = 0; i < CAPTURED; i++) {
		call = &player->calls[k][i];
		gpu_copy(&player->rank->gpu, GPU_CONSUME,
			 is_back ? call->memory : player->places[i],
			 is_back ? player->places[i] : call->memory, call->data.n_bytes);
	}
}

/* Replays on another stream than the graph was captured from, in the order of this one. */
static void replay_elsewhere(struct gpu_graph *graph)
{
	enum gpu_stream own = graph->stream;

	gpu_graph_go_on(graph, own, GPU_WAIT);
	graph->stream = GPU_WAIT;
	gpu_graph_launch(graph);
	graph->stream = own;
	gpu_graph_go_on(graph, GPU_WAIT, own);
}

/* Queues all replays, with other calls between them, and then checks all. */
static void play(struct player *player, uint64_t random)
{
	struct gpu_op_rank *rank = player->rank;
	uint32_t k;

	for (k = 0; k < REPLAYS; k++) {
		if (testing_below(&random, 16) == 0)
			gpu_op_be_late(rank, GPU_CONSUME, &random);
		exchange(player, k, 0);
		if (k % 5 == 4)
			replay_elsewhere(&player->graph);
		else
			gpu_graph_launch(&player->graph);
		exchange(player, k, 1);
		if (k % 3 == 0)
			gpu_op_result_check(rank, gpu_channel_run(player->channel,
								  &player->beside[k],
								  GPU_CONSUME));
		gpu_channel_keep_pace(rank, 10 * k + 9);        /* it is many pieces of work */
	}
	gpu_channel_idle(rank, player->channel, GPU_CONSUME);
}

static void check_player(struct player *player)
{
	uint32_t k, i;

	for (k = 0; k < REPLAYS; k++) {
		for (i = 0; i < CAPTURED; i++) {
			gpu_channel_check(&player->calls[k][i]);
			gpu_channel_drop(&player->calls[k][i]);
		}
		if (k % 3 == 0)
			gpu_channel_check(&player->beside[k]);
		gpu_channel_drop(&player->beside[k]);
	}
}

static void play_all(struct gpu_op_rank *rank, const void *arg)
{
	static const struct gpu_channel_mode mode = { "graphs", UINT64_C(1) << 16, 0 };
	struct player *player = calloc(1, sizeof(*player));
	uint64_t random = testing_seed() + rank->rank;

	ck_assert_ptr_nonnull(player);
	player->rank = rank;
	player->is_branched = *(const int *)arg;
	player->channel = gpu_channel_made(rank, &mode);
	make_player(player, random);
	capture(player);
	play(player, random);
	check_player(player);
	gpu_op_meet(rank);
	gpu_graph_free(&player->graph);
	gpu_channel_release(rank, player->channel);
	free(player);
}

START_TEST(test_graphs_are_replayed)
{
	const int is_branched = _i;

	gpu_op_open(&rig, n_few);
	gpu_op_each(&rig, play_all, &is_branched);
	gpu_op_close(&rig);
}
END_TEST

/* --- many calls ------------------------------------------------------------------------------ */

/* Calls without a wait between them. Between two ranks the second ones go by lines: how these come
 * is what was seen, not what a manual promises. */
static const struct many {
	uint32_t                n_calls;
	uint64_t                least_items, items;     /* from the least on, so many sizes */
	struct gpu_channel_mode mode;
} many_calls[] = {
	{ 3000, 0, 2000, { "many", GPU_CHANNEL_RING, 0 } },
	{ 150, 200000, 250000, { "many lines", 0, 0 } },
};

static void make_many(struct gpu_op_rank *rank, const void *arg)
{
	const struct many *many = arg;
	struct gpu_channel_call *calls = calloc(many->n_calls, sizeof(*calls));
	ceov_channel *channel = gpu_channel_made(rank, &many->mode);
	uint64_t random = testing_seed();       /* the same at all ranks */
	struct channel_form form = { 0 };
	struct channel_case one;
	uint32_t i;

	ck_assert_ptr_nonnull(calls);
	for (i = 0; i < many->n_calls; i++) {
		one = channel_case_of(CEOV_ALL_REDUCE, (enum ceov_dtype)(CEOV_BF16 + i % 3),
				      rank->rig->n_ranks,
				      many->least_items + testing_below(&random, many->items));
		one.seed = testing_random(&random);
		form.is_in_place = i % 2 != 0;
		gpu_channel_put(rank, &one, &form, &calls[i]);
	}
	for (i = 0; i < many->n_calls; i++) {
		gpu_op_result_check(rank, gpu_channel_run(channel, &calls[i], GPU_CONSUME));
		gpu_channel_keep_pace(rank, i);
	}
	gpu_channel_idle(rank, channel, GPU_CONSUME);
	for (i = 0; i < many->n_calls; i++) {
		gpu_channel_check(&calls[i]);
		gpu_channel_drop(&calls[i]);
	}
	free(calls);
	gpu_channel_release(rank, channel);
}

START_TEST(test_many_calls_without_a_wait)
{
	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, make_many, &many_calls[_i]);
	gpu_op_close(&rig);
}
END_TEST

/* --- processes ------------------------------------------------------------------------------- */

/* Ranks that are processes do not share the legacy default stream: the second round is on it. */
static void be_process(uint32_t rank)
{
	struct size size = size_of(1);
	void **stream;
	char path[200];
	void *kept;

	testing_path("group", path, sizeof(path));
	size.n_calls = PROCESS_CALLS;
	gpu_op_open_one(&rig, rank, n_all, path);
	gpu_op_each(&rig, make_random, &size);
	stream = &rig.ranks[rank].gpu.streams[GPU_CONSUME];
	kept = *stream;
	*stream = NULL;
	size.mode.name = "legacy";
	gpu_op_each(&rig, make_random, &size);
	*stream = kept;
	gpu_op_close(&rig);
}

START_TEST(test_a_process_for_each_rank)
{
	gpu_process_each(n_all, be_process);
}
END_TEST

static Suite *suite(uint32_t n_ranks)
{
	Suite *made = suite_create("gpu channel");
	TCase *all = tcase_create("channel");
	TCase *processes = tcase_create("channel in processes");

	n_all = n_ranks < CHANNEL_RANKS_MAX ? n_ranks : CHANNEL_RANKS_MAX;
	n_few = gpu_n_sharing(n_all) > 1 && n_all > GPU_OP_RANKS_MAX ? GPU_OP_RANKS_MAX : n_all;
	tcase_set_timeout(all, 100);
	tcase_add_loop_test(all, test_random_calls, 0, SIZES);
	tcase_add_loop_test(all, test_every_kind_and_type, CEOV_ALL_GATHER, CEOV_BARRIER + 1);
	tcase_add_loop_test(all, test_bits_of_sums, 0, 6);
	tcase_add_test(all, test_sums_of_other_types_are_refused);
	tcase_add_test(all, test_calls_alternate_over_three_streams);
	tcase_add_test(all, test_a_call_reads_what_one_on_another_stream_gives);
	tcase_add_loop_test(all, test_graphs_are_replayed, 0, 2);
	tcase_add_loop_test(all, test_many_calls_without_a_wait, 0,
			    sizeof(many_calls) / sizeof(many_calls[0]));
	suite_add_tcase(made, all);
	tcase_set_timeout(processes, 100);
	tcase_add_test(processes, test_a_process_for_each_rank);
	suite_add_tcase(made, processes);
	return made;
}

int main(void)
{
	return gpu_main_ranks(suite);
}
