/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* All-gather and all-to-all over several nodes, over a simulated network with delays: every byte of
 * every launch arrives at its place, and each rank knows only the ranks that the header names. */

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include <ceoverlap/collective.h>

#include "unit/nodes_rig.h"

#define GUARD     64u           /* bytes around targets that must stay untouched */
#define UNTOUCHED 0xa5
#define LAUNCHES  6u

enum shape { GATHER, GATHER_IN_PLACE, GATHER_RING, EXCHANGE, N_SHAPES };
struct layout {
	uint32_t n_nodes;
	uint32_t n_ranks;
	uint32_t node_of[NODES_RANKS_MAX];
};

static const struct layout layouts[] = {
	{ 2, 4, { 0, 0, 1, 1 } },
	{ 3, 6, { 0, 0, 1, 1, 2, 2 } },
	{ 4, 4, { 0, 1, 2, 3 } },
	{ 2, 4, { 0, 0, 0, 1 } },
	{ 3, 7, { 0, 1, 1, 1, 1, 2, 2 } },
	{ 3, 8, { 0, 1, 0, 2, 1, 0, 0, 2 } },   /* nodes' ranks are not in a row */
};
#define N_LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

struct rank {                           /* arrays: by rank, as this rank has found them */
	uint32_t     rank;
	uint64_t     random;
	ceov_buffer *source;
	ceov_signal *ready;
	ceov_buffer *targets[NODES_RANKS_MAX];
	ceov_signal *arrived[NODES_RANKS_MAX];
	ceov_signal *free[NODES_RANKS_MAX];
	ceov_plan   *plan;
	pthread_t    thread;
};

static struct {
	struct nodes  nodes;
	struct layout layout;
	enum shape    shape;
	uint32_t      n_pieces;
	uint64_t      bytes;            /* of a shard or block */
	struct rank   ranks[NODES_RANKS_MAX];
} group;

/* --- who knows whom -------------------------------------------------------------------- */

static uint32_t index_of(uint32_t rank)
{
	uint32_t i, n = 0;

	for (i = 0; i < rank; i++)
		n += group.layout.node_of[i] == group.layout.node_of[rank];
	return n;
}

static int is_beside(uint32_t a, uint32_t b)
{
	return group.layout.node_of[a] == group.layout.node_of[b];
}

static uint32_t next_node(uint32_t node)
{
	return (node + 1) % group.layout.n_nodes;
}

static uint32_t n_on(uint32_t node)
{
	uint32_t i, n = 0;

	for (i = 0; i < group.layout.n_ranks; i++)
		n += group.layout.node_of[i] == node;
	return n;
}

static int sends(uint32_t from, uint32_t to)
{
	if (group.shape == EXCHANGE || is_beside(from, to))
		return 1;
	if (group.shape == GATHER_RING &&
	    group.layout.node_of[to] != next_node(group.layout.node_of[from]))
		return 0;
	return index_of(from) % n_on(group.layout.node_of[to]) == index_of(to);
}

/* Whether the shard of a rank of another node enters the rank's node there. */
static int is_entry(uint32_t rank, uint32_t source)
{
	uint32_t node = group.layout.node_of[source], index = index_of(source);

	if (group.shape != GATHER_RING)
		return sends(source, rank);
	for (; node != group.layout.node_of[rank]; index %= n_on(node))
		node = next_node(node);
	return index == index_of(rank);
}

/* Whether the shard came from another node and goes on to neighbours, or along the ring. */
static int passes_on(uint32_t rank, uint32_t source)
{
	uint32_t next = next_node(group.layout.node_of[rank]);
	int leaves = group.shape == GATHER_RING && next != group.layout.node_of[source];

	return group.shape != EXCHANGE && !is_beside(rank, source) && is_entry(rank, source) &&
		(n_on(group.layout.node_of[rank]) > 1 || leaves);
}

/* Whether the rank passes the shard of the source on to the other one. */
static int passes_to(uint32_t rank, uint32_t source, uint32_t to)
{
	uint32_t node = group.layout.node_of[rank];

	if (!passes_on(rank, source) || to == rank)
		return 0;
	if (is_beside(rank, to))
		return 1;
	return group.shape == GATHER_RING && next_node(node) == group.layout.node_of[to] &&
		!is_beside(to, source) && is_entry(to, source);
}

/* Whether a piece that the rank sends, of any shard, is passed on to the other one from where it
 * arrives. */
static int awaits_free(uint32_t rank, uint32_t to)
{
	uint32_t source, by;

	for (source = 0; source < group.layout.n_ranks; source++)
		for (by = 0; by < group.layout.n_ranks; by++)
			if ((rank == source ? by != rank && sends(rank, by)
			     : passes_to(rank, source, by)) && passes_to(by, source, to))
				return 1;
	return 0;
}

/* --- a group ----------------------------------------------------------------------------- */

static void make_memory(struct rank *own)
{
	uint64_t all = group.layout.n_ranks * group.bytes;
	uint32_t n = group.layout.n_ranks * group.n_pieces, rank = own->rank;
	ceov_context *context = nodes_context(&group.nodes, rank);

	own->targets[rank] = nodes_buffer(&group.nodes, rank, "target", all + 2 * GUARD);
	memset(ceov_buffer_base(own->targets[rank], rank), UNTOUCHED, all + 2 * GUARD);
	own->source = own->targets[rank];
	if (group.shape != GATHER_IN_PLACE)
		own->source = testing_buffer(context, rank, all);
	own->ready = testing_signal(context, rank, n);
	own->arrived[rank] = nodes_signal(&group.nodes, rank, "arrived", n);
	own->free[rank] = nodes_signal(&group.nodes, rank, "free", n);
}

/* Finds what the rank needs of another one. */
static void find(struct rank *own, uint32_t rank)
{
	struct rank *other = &group.ranks[rank];

	if (is_beside(own->rank, rank)) {
		own->targets[rank] = other->targets[rank];
		own->arrived[rank] = other->arrived[rank];
		own->free[rank] = other->free[rank];
		return;
	}
	if (sends(own->rank, rank)) {
		own->targets[rank] = nodes_find_buffer(&group.nodes, own->rank, rank, "target");
		own->arrived[rank] = nodes_find_signal(&group.nodes, own->rank, rank, "arrived");
	}
	if (sends(own->rank, rank) || awaits_free(own->rank, rank))
		own->free[rank] = nodes_find_signal(&group.nodes, own->rank, rank, "free");
}

static uint64_t source_offset(uint32_t rank)
{
	return group.shape == GATHER_IN_PLACE ? GUARD + rank * group.bytes : 0;
}

static int add_gather(struct rank *own)
{
	struct ceov_all_gather gather = { .struct_bytes = sizeof(gather) };

	gather.shard_bytes = group.bytes;
	gather.n_pieces = group.n_pieces;
	gather.source = own->source;
	gather.source_offset_bytes = source_offset(own->rank);
	gather.targets = own->targets;
	gather.target_offset_bytes = GUARD;
	gather.ready = own->ready;
	gather.arrived = own->arrived;
	gather.free = own->free;
	gather.nodes = group.shape == GATHER_RING ? CEOV_NODES_RING
		: own->rank % 2 ? CEOV_NODES_DEFAULT : CEOV_NODES_DIRECT;
	return ceov_plan_add_all_gather(own->plan, &gather);
}

static int add_exchange(struct rank *own)
{
	struct ceov_all_to_all exchange = { .struct_bytes = sizeof(exchange) };

	exchange.block_bytes = group.bytes;
	exchange.n_pieces = group.n_pieces;
	exchange.source = own->source;
	exchange.targets = own->targets;
	exchange.target_offset_bytes = GUARD;
	exchange.ready = own->ready;
	exchange.arrived = own->arrived;
	exchange.free = own->free;
	return ceov_plan_add_all_to_all(own->plan, &exchange);
}

static int add(struct rank *own)
{
	return group.shape == EXCHANGE ? add_exchange(own) : add_gather(own);
}

/* Opens the nodes; the plans have nothing in them yet. */
static void open_group(const struct layout *layout, enum shape shape, uint32_t n_pieces,
		       uint64_t bytes)
{
	uint32_t i, k;

	memset(&group, 0, sizeof(group));
	group.layout = *layout;
	group.shape = shape;
	group.n_pieces = n_pieces;
	group.bytes = bytes;
	nodes_open_mixed(&group.nodes, layout->n_nodes, layout->n_ranks, layout->node_of);
	for (i = 0; i < layout->n_ranks; i++) {
		group.ranks[i].rank = i;
		make_memory(&group.ranks[i]);
	}
	for (i = 0; i < layout->n_ranks; i++) {
		for (k = 0; k < layout->n_ranks; k++)
			if (k != i)
				find(&group.ranks[i], k);
		group.ranks[i].plan = testing_plan(nodes_context(&group.nodes, i), i);
	}
}

static void commit_all(void)
{
	uint32_t i;

	for (i = 0; i < group.layout.n_ranks; i++) {
		ck_assert_int_eq(add(&group.ranks[i]), 0);
		ck_assert_int_eq(ceov_plan_commit(group.ranks[i].plan), 0);
	}
}

/* --- one rank ---------------------------------------------------------------------------- */

static uint64_t seed_of(uint32_t from, uint32_t to, uint64_t base)
{
	return testing_seed() + base * UINT64_C(1000003) + from * 1009 + to * 31;
}

static void fill(struct rank *own, uint64_t base)
{
	uint8_t *source = ceov_buffer_base(own->source, own->rank);
	uint32_t i;

	if (group.shape == EXCHANGE)
		for (i = 0; i < group.layout.n_ranks; i++)
			testing_fill(source + i * group.bytes, group.bytes,
				     seed_of(own->rank, i, base));
	else
		testing_fill(source + source_offset(own->rank), group.bytes,
			     seed_of(own->rank, 0, base));
}

static void raise_ready(struct rank *own, uint64_t value)
{
	uint32_t i, n = group.n_pieces * (group.shape == EXCHANGE ? group.layout.n_ranks : 1);

	for (i = 0; i < n; i++)
		ck_assert_int_eq(ceov_signal_raise(own->ready, i, value), 0);
}

/* Awaits and checks a shard or block. */
static void take(struct rank *own, uint32_t from, uint64_t base)
{
	uint8_t *target = ceov_buffer_base(own->targets[own->rank], own->rank);
	uint32_t k, to = group.shape == EXCHANGE ? own->rank : 0;

	if (group.shape == GATHER_IN_PLACE && from == own->rank)
		return;
	for (k = 0; k < group.n_pieces; k++)
		nodes_await(own->arrived[own->rank], from * group.n_pieces + k, base + 1);
	ck_assert_uint_eq(testing_check(target + GUARD + from * group.bytes, group.bytes,
					seed_of(from, to, base)), group.bytes);
}

static void set_free(struct rank *own, uint32_t from, uint64_t value)
{
	uint32_t k;

	for (k = 0; k < group.n_pieces; k++)
		ck_assert_int_eq(ceov_signal_raise(own->free[own->rank],
						   from * group.n_pieces + k, value), 0);
}

/* Frees what has arrived, and overwrites it, unless the launch may have to pass it on still. */
static void leave(struct rank *own, uint32_t from, uint64_t base)
{
	uint8_t *target = ceov_buffer_base(own->targets[own->rank], own->rank);

	if ((group.shape != GATHER_IN_PLACE || from != own->rank) && !passes_on(own->rank, from))
		memset(target + GUARD + from * group.bytes, UNTOUCHED, group.bytes);
	set_free(own, from, base + 1);
}

static void check_guards(struct rank *own)
{
	uint8_t *target = ceov_buffer_base(own->targets[own->rank], own->rank);
	uint8_t *end = target + GUARD + group.layout.n_ranks * group.bytes;

	ck_assert_uint_eq(testing_check_same(target, GUARD, UNTOUCHED), GUARD);
	ck_assert_uint_eq(testing_check_same(end, GUARD, UNTOUCHED), GUARD);
}

static ceov_ticket launch(struct rank *own, uint64_t base)
{
	struct ceov_launch launched = { .struct_bytes = sizeof(launched), .base = base };
	ceov_ticket ticket;

	ck_assert_int_eq(ceov_launch(own->plan, &launched, &ticket), 0);
	return ticket;
}

static void *run_rank(void *arg)
{
	struct rank *own = arg;
	ceov_context *context = nodes_context(&group.nodes, own->rank);
	uint32_t i, n = group.layout.n_ranks;
	ceov_ticket ticket;
	uint64_t base;

	for (base = 0; base < LAUNCHES; base++) {
		ticket = launch(own, base);
		usleep((useconds_t)testing_below(&own->random, 500));
		fill(own, base);
		raise_ready(own, base + 1);
		for (i = 0; i < n; i++) {
			take(own, i, base);
			leave(own, i, base);
		}
		usleep((useconds_t)testing_below(&own->random, 500));
		ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), 0);
	}
	check_guards(own);
	return NULL;
}

static void run_all(uint64_t *random)
{
	uint32_t i;

	for (i = 0; i < group.layout.n_ranks; i++) {
		group.ranks[i].random = testing_random(random);
		ck_assert_int_eq(pthread_create(&group.ranks[i].thread, NULL, run_rank,
						&group.ranks[i]), 0);
	}
	for (i = 0; i < group.layout.n_ranks; i++)
		ck_assert_int_eq(pthread_join(group.ranks[i].thread, NULL), 0);
}

START_TEST(test_every_layout)
{
	uint64_t random = testing_seed() + (uint64_t)_i;
	int shape;

	for (shape = GATHER; shape < N_SHAPES; shape++) {
		open_group(&layouts[_i], (enum shape)shape,
			   1 + (uint32_t)testing_below(&random, 4),
			   500 + testing_below(&random, 30000));
		commit_all();
		nodes_delay(&group.nodes, &random);
		run_all(&random);
		nodes_close(&group.nodes);
	}
}
END_TEST

/* --- levels ------------------------------------------------------------------------------ */

static void assert_value(ceov_signal *signal, uint32_t index, uint64_t expected)
{
	uint64_t value;

	ck_assert_int_eq(ceov_signal_value(signal, index, &value), 0);
	ck_assert_uint_eq(value, expected);
}

/* Rank 0's first piece reaches rank 3, by way of rank 2, before its second piece is ready. */
START_TEST(test_a_piece_goes_on_while_the_next_one_is_not_ready)
{
	ceov_ticket tickets[4];
	uint32_t i;

	open_group(&layouts[0], GATHER, 2, 4096);
	commit_all();
	for (i = 0; i < 4; i++) {
		fill(&group.ranks[i], 0);
		tickets[i] = launch(&group.ranks[i], 0);
	}
	ck_assert_int_eq(ceov_signal_raise(group.ranks[0].ready, 0, 1), 0);
	nodes_await(group.ranks[3].arrived[3], 0, 1);
	assert_value(group.ranks[3].arrived[3], 1, 0);
	for (i = 0; i < 4; i++)
		raise_ready(&group.ranks[i], 1);
	for (i = 0; i < 4; i++) {
		take(&group.ranks[i], 0, 0);
		ck_assert_int_eq(ceov_wait(nodes_context(&group.nodes, i), tickets[i],
					   TESTING_PATIENCE), 0);
	}
	nodes_close(&group.nodes);
}
END_TEST

/* Rank 2, which has not launched, has freed rank 0's first shard, but not passed it on to rank 3:
 * so rank 0 keeps the second one, which would overwrite what rank 2 has still to read. */
START_TEST(test_a_piece_stays_until_who_passes_it_on_has_done_so)
{
	struct rank *first = group.ranks, *relay = first + 2, *last = first + 3;
	ceov_ticket tickets[2][4];
	uint64_t base, i;

	open_group(&layouts[0], GATHER, 1, 4096);
	commit_all();
	for (base = 0; base < 2; base++) {
		for (i = 0; i < 4; i++)
			if (i != relay->rank)
				tickets[base][i] = launch(&group.ranks[i], base);
		fill(first, base);
		raise_ready(first, base + 1);
		take(&group.ranks[1], 0, base);
		if (!base)
			take(relay, 0, base);
		set_free(&group.ranks[1], 0, base + 1);
		set_free(relay, 0, base + 1);
	}
	usleep(20000);
	assert_value(relay->arrived[2], 0, 1);
	tickets[0][2] = launch(relay, 0);
	tickets[1][2] = launch(relay, 1);
	take(last, 0, 0);
	for (i = 1; i < 4; i++)
		raise_ready(&group.ranks[i], 2);
	for (i = 0; i < 16; i++)        /* what has not arrived may have to be read still */
		nodes_await(group.ranks[i / 4].arrived[i / 4], (uint32_t)i % 4, 1);
	for (i = 0; i < 16; i++)
		set_free(&group.ranks[i / 4], (uint32_t)i % 4, 2);
	take(last, 0, 1);
	for (i = 0; i < 8; i++)
		ck_assert_int_eq(ceov_wait(nodes_context(&group.nodes, (uint32_t)i % 4),
					   tickets[i / 4][i % 4], TESTING_PATIENCE), 0);
	nodes_close(&group.nodes);
}
END_TEST

/* --- what a plan says ---------------------------------------------------------------------- */

/* Asserts that only the expected words follow "from node to node"; NULL: that nothing is said. */
static void assert_says(uint32_t rank, const char *expected)
{
	char text[4096] = "", *said;
	int fds[2];

	ck_assert_int_eq(pipe(fds), 0);
	ck_assert_int_eq(ceov_plan_explain(group.ranks[rank].plan, fds[1]), 0);
	ck_assert_int_gt(read(fds[0], text, sizeof(text) - 1), 0);
	(void)close(fds[0]);
	(void)close(fds[1]);
	said = strstr(text, "from node to node ");
	ck_assert_msg(said ? expected && !strncmp(said + 18, expected, strlen(expected))
		      : !expected, "%s", text);
}

START_TEST(test_a_plan_says_how_shards_go_between_nodes)
{
	static const struct layout one_node = { 1, 2, { 0, 0 } };
	int shape;

	for (shape = GATHER; shape < N_SHAPES; shape++) {
		open_group(&layouts[2], (enum shape)shape, 1, 4096);
		commit_all();
		assert_says(0, shape == EXCHANGE ? NULL : shape == GATHER_RING
			    ? "as a ring, as the caller said\n"
			    : "directly, as the caller said\n");
		if (shape == GATHER)
			assert_says(1, "directly, which is the default: a ring has");
		nodes_close(&group.nodes);
	}
	open_group(&one_node, GATHER, 1, 4096);
	commit_all();
	assert_says(0, NULL);
	nodes_close(&group.nodes);
}
END_TEST

/* --- refusals ---------------------------------------------------------------------------- */

/* Asserts that the rank's plan gets nothing from these arguments. */
static void refused(struct rank *wrong, const char *words)
{
	ceov_context *context = nodes_context(&group.nodes, wrong->rank);
	struct ceov_failure failure;

	ck_assert_int_eq(add(wrong), CEOV_ERR_INVALID);
	failure = testing_failure(context);
	ck_assert_msg(strstr(failure.text, words) != NULL, "%s", failure.text);
	ck_assert_int_eq(ceov_plan_commit(wrong->plan), CEOV_ERR_STATE);
	(void)testing_failure(context);
}

START_TEST(test_what_is_missing_is_refused_by_name)
{
	struct rank wrong;

	/* rank 0 sends to ranks 2 and 1, and passes on the shard of rank 2 */
	open_group(&layouts[0], GATHER, 2, 4096);
	wrong = group.ranks[0];
	wrong.targets[0] = NULL;
	refused(&wrong, "rank 0: no target buffer, from which this rank passes on");
	wrong = group.ranks[0];
	wrong.targets[2] = NULL;
	refused(&wrong, "rank 2: no target buffer");
	wrong = group.ranks[0];
	wrong.arrived[2] = NULL;
	refused(&wrong, "rank 2: its arrived signal is missing");
	wrong = group.ranks[0];
	wrong.free[1] = NULL;
	refused(&wrong, "rank 1: its free signal is missing");
	wrong = group.ranks[0];         /* rank 2 passes the shard on to rank 3 */
	wrong.free[3] = NULL;
	refused(&wrong, "rank 3: its free signal is missing");
	group.shape = GATHER_IN_PLACE;
	wrong = group.ranks[0];
	wrong.source = wrong.targets[0];
	wrong.arrived[0] = NULL;
	refused(&wrong, "rank 0: its arrived signal is missing");
	group.shape = EXCHANGE;
	refused(&group.ranks[0], "rank 3: no target buffer");
	group.shape = GATHER;
	commit_all();
	nodes_close(&group.nodes);
}
END_TEST

/* The only rank of its node passes nothing on, and needs no target of its own. */
START_TEST(test_a_rank_alone_on_its_node_needs_no_target)
{
	struct rank *alone = &group.ranks[3];
	ceov_ticket ticket;

	open_group(&layouts[3], GATHER, 1, 4096);
	alone->targets[3] = NULL;
	alone->arrived[3] = NULL;
	ck_assert_int_eq(add(alone), 0);
	ck_assert_int_eq(ceov_plan_commit(alone->plan), 0);
	fill(alone, 0);
	ticket = launch(alone, 0);
	raise_ready(alone, 1);
	take(&group.ranks[0], 3, 0);
	ck_assert_int_eq(ceov_wait(nodes_context(&group.nodes, 3), ticket, TESTING_PATIENCE),
			 0);
	nodes_close(&group.nodes);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("levels");
	TCase *all = tcase_create("levels");

	tcase_set_timeout(all, 60);
	tcase_add_loop_test(all, test_every_layout, 0, N_LAYOUTS);
	tcase_add_test(all, test_a_piece_goes_on_while_the_next_one_is_not_ready);
	tcase_add_test(all, test_a_piece_stays_until_who_passes_it_on_has_done_so);
	tcase_add_test(all, test_a_plan_says_how_shards_go_between_nodes);
	tcase_add_test(all, test_what_is_missing_is_refused_by_name);
	tcase_add_test(all, test_a_rank_alone_on_its_node_needs_no_target);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
