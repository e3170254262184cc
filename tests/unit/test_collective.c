/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the plan templates with all ranks in this process: for all sizes, every byte of every
 * launch arrives at its place, and nothing else is written. */

#include <check.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include <ceoverlap/collective.h>

#include "testing.h"

#define RANKS_MAX 5u
#define PLANS     2u            /* launched alternately; each has its own buffers */
#define GUARD     64u           /* bytes around targets that must stay untouched */
#define UNTOUCHED 0xa5

enum shape { GATHER, GATHER_IN_PLACE, EXCHANGE };

struct set {                            /* one plan for each rank */
	ceov_buffer *source[RANKS_MAX];
	ceov_buffer *target[RANKS_MAX];
	ceov_signal *ready[RANKS_MAX];
	ceov_signal *arrived[RANKS_MAX];
	ceov_signal *free[RANKS_MAX];
	ceov_plan   *plan[RANKS_MAX];
};

struct group {
	ceov_context *context;
	enum shape    shape;
	uint32_t      n_ranks;
	uint32_t      n_pieces;
	uint32_t      n_launches;
	uint64_t      bytes;            /* size of a shard or block */
	struct set    sets[PLANS];
};

struct rank {
	struct group *group;
	uint32_t      rank;
	uint64_t      random;
	pthread_t     thread;
};

static void make_memory(struct group *group, struct set *set)
{
	uint64_t all = group->n_ranks * group->bytes;
	uint32_t i, n = group->n_ranks * group->n_pieces;

	for (i = 0; i < group->n_ranks; i++) {
		set->target[i] = testing_buffer(group->context, i, all + 2 * GUARD);
		memset(ceov_buffer_base(set->target[i], i), UNTOUCHED, all + 2 * GUARD);
		set->source[i] = set->target[i];
		if (group->shape != GATHER_IN_PLACE)
			set->source[i] = testing_buffer(group->context, i, all);
		set->ready[i] = testing_signal(group->context, i, n);
		set->arrived[i] = testing_signal(group->context, i, n);
		set->free[i] = testing_signal(group->context, i, n);
	}
}

static uint64_t source_offset(const struct group *group, uint32_t rank)
{
	return group->shape == GATHER_IN_PLACE ? GUARD + rank * group->bytes : 0;
}

static int add_gather(struct group *group, struct set *set, uint32_t rank)
{
	struct ceov_all_gather gather = { .struct_bytes = sizeof(gather) };

	gather.shard_bytes = group->bytes;
	gather.n_pieces = group->n_pieces;
	gather.source = set->source[rank];
	gather.source_offset_bytes = source_offset(group, rank);
	gather.targets = set->target;
	gather.target_offset_bytes = GUARD;
	gather.ready = set->ready[rank];
	gather.arrived = set->arrived;
	gather.free = set->free;
	return ceov_plan_add_all_gather(set->plan[rank], &gather);
}

static int add_exchange(struct group *group, struct set *set, uint32_t rank)
{
	struct ceov_all_to_all exchange = { .struct_bytes = sizeof(exchange) };

	exchange.block_bytes = group->bytes;
	exchange.n_pieces = group->n_pieces;
	exchange.source = set->source[rank];
	exchange.targets = set->target;
	exchange.target_offset_bytes = GUARD;
	exchange.ready = set->ready[rank];
	exchange.arrived = set->arrived;
	exchange.free = set->free;
	return ceov_plan_add_all_to_all(set->plan[rank], &exchange);
}

static int add(struct group *group, struct set *set, uint32_t rank)
{
	return group->shape == EXCHANGE ? add_exchange(group, set, rank)
		: add_gather(group, set, rank);
}

static void open_group(struct group *group)
{
	uint32_t i, k;

	group->context = testing_open(group->n_ranks, NULL);
	for (k = 0; k < PLANS; k++) {
		make_memory(group, &group->sets[k]);
		for (i = 0; i < group->n_ranks; i++) {
			group->sets[k].plan[i] = testing_plan(group->context, i);
			ck_assert_int_eq(add(group, &group->sets[k], i), 0);
			ck_assert_int_eq(ceov_plan_commit(group->sets[k].plan[i]), 0);
		}
	}
}

/* --- one rank ------------------------------------------------------------ */

static uint64_t seed_of(uint32_t from, uint32_t to, uint32_t launch)
{
	return launch * UINT64_C(1000003) + from * 1009 + to * 31;
}

static void rest(struct rank *own)
{
	if (testing_below(&own->random, 4) == 0)
		usleep((useconds_t)testing_below(&own->random, 300));
}

static void produce(struct rank *own, struct set *set, uint32_t launch)
{
	struct group *group = own->group;
	char *source = ceov_buffer_base(set->source[own->rank], own->rank);
	uint32_t i, n = group->n_pieces;

	if (group->shape == EXCHANGE) {
		n *= group->n_ranks;
		for (i = 0; i < group->n_ranks; i++)
			testing_fill(source + i * group->bytes, group->bytes,
				     seed_of(own->rank, i, launch));
	} else {
		testing_fill(source + source_offset(group, own->rank), group->bytes,
			     seed_of(own->rank, 0, launch));
	}
	rest(own);
	for (i = 0; i < n; i++)
		ck_assert_int_eq(ceov_signal_raise(set->ready[own->rank], i,
						   launch / PLANS + 1), 0);
}

static void consume(struct rank *own, struct set *set, uint32_t launch)
{
	struct group *group = own->group;
	unsigned char *target = ceov_buffer_base(set->target[own->rank], own->rank);
	uint32_t i, k, to = group->shape == EXCHANGE ? own->rank : 0;

	for (i = 0; i < group->n_ranks; i++) {
		if (group->shape == GATHER_IN_PLACE && i == own->rank)
			continue;
		for (k = 0; k < group->n_pieces; k++)
			ck_assert_int_eq(ceov_signal_wait(set->arrived[own->rank],
							  i * group->n_pieces + k,
							  launch / PLANS + 1,
							  TESTING_PATIENCE), 0);
		ck_assert_uint_eq(testing_check(target + GUARD + i * group->bytes,
						group->bytes, seed_of(i, to, launch)),
				  group->bytes);
		memset(target + GUARD + i * group->bytes, UNTOUCHED, group->bytes);
	}
	rest(own);
	for (i = 0; i < group->n_ranks * group->n_pieces; i++)
		ck_assert_int_eq(ceov_signal_raise(set->free[own->rank], i,
						   launch / PLANS + 1), 0);
}

static void check_guards(struct rank *own, struct set *set)
{
	struct group *group = own->group;
	unsigned char *target = ceov_buffer_base(set->target[own->rank], own->rank);
	unsigned char *end = target + GUARD + group->n_ranks * group->bytes;

	ck_assert_uint_eq(testing_check_same(target, GUARD, UNTOUCHED), GUARD);
	ck_assert_uint_eq(testing_check_same(end, GUARD, UNTOUCHED), GUARD);
}

static void *run_rank(void *arg)
{
	struct rank *own = arg;
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	struct set *set;
	ceov_ticket ticket;
	uint32_t k;

	for (k = 0; k < own->group->n_launches; k++) {
		set = &own->group->sets[k % PLANS];
		launch.base = k / PLANS;
		launch.producer_stream = testing_below(&own->random, 2) ? own : NULL;
		ck_assert_int_eq(ceov_launch(set->plan[own->rank], &launch, &ticket), 0);
		rest(own);
		produce(own, set, k);
		consume(own, set, k);
		/* when all ranks have the data, the source may be overwritten */
		ck_assert_int_eq(ceov_wait(own->group->context, ticket, TESTING_PATIENCE),
				 0);
	}
	check_guards(own, &own->group->sets[0]);
	check_guards(own, &own->group->sets[PLANS - 1]);
	return NULL;
}

static void run(struct group *group, uint64_t *random)
{
	struct rank ranks[RANKS_MAX];
	uint32_t i;

	open_group(group);
	for (i = 0; i < group->n_ranks; i++) {
		ranks[i].group = group;
		ranks[i].rank = i;
		ranks[i].random = testing_random(random);
		ck_assert_int_eq(pthread_create(&ranks[i].thread, NULL, run_rank,
						&ranks[i]), 0);
	}
	for (i = 0; i < group->n_ranks; i++)
		ck_assert_int_eq(pthread_join(ranks[i].thread, NULL), 0);
	ceov_close(group->context);
}

static void run_shapes(enum shape shape)
{
	uint64_t random = testing_seed();
	struct group group;
	uint32_t n_ranks, n_pieces;

	/* a single rank in place has nothing to move */
	for (n_ranks = shape == GATHER_IN_PLACE ? 2 : 1; n_ranks <= RANKS_MAX; n_ranks++) {
		for (n_pieces = 1; n_pieces <= 7; n_pieces += 1 + n_ranks % 2) {
			memset(&group, 0, sizeof(group));
			group.shape = shape;
			group.n_ranks = n_ranks;
			group.n_pieces = n_pieces;
			group.bytes = 16 * 7 * 7 + testing_below(&random, 9000);
			group.n_launches = 12;
			run(&group, &random);
		}
	}
}

START_TEST(test_all_gather)
{
	run_shapes(GATHER);
}
END_TEST

START_TEST(test_all_gather_in_place)
{
	run_shapes(GATHER_IN_PLACE);
}
END_TEST

START_TEST(test_all_to_all)
{
	run_shapes(EXCHANGE);
}
END_TEST

/* --- refusals ------------------------------------------------------------ */

static void prepare(struct group *group)
{
	memset(group, 0, sizeof(*group));
	group->n_ranks = 3;
	group->n_pieces = 2;
	group->bytes = 1000;
	group->context = testing_open(3, NULL);
	make_memory(group, &group->sets[0]);
	group->sets[0].plan[0] = testing_plan(group->context, 0);
}

/* Asserts that the template refuses the arguments and adds nothing to the plan, so that a valid
 * call still succeeds. */
static void refused(struct group *group, struct set *set)
{
	ck_assert_int_eq(add(group, set, 0), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_plan_commit(set->plan[0]), CEOV_ERR_STATE);
}

START_TEST(test_wrong_arguments_are_refused_before_anything_is_added)
{
	struct group group, wrong;

	prepare(&group);
	wrong = group;
	wrong.bytes = 0;
	refused(&wrong, &wrong.sets[0]);
	wrong.bytes = UINT64_MAX;
	refused(&wrong, &wrong.sets[0]);
	wrong = group;
	wrong.n_pieces = 0;
	refused(&wrong, &wrong.sets[0]);
	wrong.n_pieces = 64;            /* too many: the shard has only 63 pieces of 16 bytes */
	refused(&wrong, &wrong.sets[0]);
	wrong = group;
	wrong.bytes = 16;               /* the second piece would be empty */
	refused(&wrong, &wrong.sets[0]);
	wrong = group;
	wrong.sets[0].target[1] = wrong.sets[0].target[2];
	refused(&wrong, &wrong.sets[0]);
	wrong.sets[0].target[1] = NULL;
	refused(&wrong, &wrong.sets[0]);
	wrong = group;
	wrong.sets[0].arrived[2] = NULL;
	refused(&wrong, &wrong.sets[0]);
	wrong = group;
	wrong.sets[0].free[2] = NULL;
	refused(&wrong, &wrong.sets[0]);
	wrong = group;
	wrong.sets[0].arrived[2] = testing_signal(group.context, 2, 5);
	refused(&wrong, &wrong.sets[0]);
	wrong = group;
	wrong.sets[0].free[1] = testing_signal(group.context, 1, 5);
	refused(&wrong, &wrong.sets[0]);
	wrong = group;
	wrong.sets[0].ready[0] = testing_signal(group.context, 0, 1);
	refused(&wrong, &wrong.sets[0]);
	wrong = group;
	wrong.shape = EXCHANGE;
	wrong.sets[0].ready[0] = testing_signal(group.context, 0, 5);
	refused(&wrong, &wrong.sets[0]);
	ck_assert_int_eq(add(&group, &group.sets[0], 0), 0);
	ck_assert_int_eq(ceov_plan_commit(group.sets[0].plan[0]), 0);
	wrong = group;
	(void)testing_failure(group.context);   /* drop earlier failures */
	wrong.bytes = UINT64_MAX - 3;           /* wraps around when rounded up to whole pieces */
	ck_assert_int_eq(add(&wrong, &wrong.sets[0], 0), CEOV_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(testing_failure(group.context).text,
				     "the size overflows"));
	ck_assert_int_eq(ceov_plan_add_all_gather(group.sets[0].plan[0], NULL),
			 CEOV_ERR_INVALID);
	ceov_close(group.context);
}
END_TEST

START_TEST(test_one_rank_in_place_has_nothing_to_do)
{
	ceov_context *context = testing_open(1, NULL);
	ceov_buffer *own = testing_buffer(context, 0, 4096);
	ceov_signal *arrived = testing_signal(context, 0, 1);
	ceov_plan *plan = testing_plan(context, 0);
	struct ceov_all_gather gather = {
		.struct_bytes = sizeof(gather),
		.shard_bytes = 4096,
		.n_pieces = 1,
		.source = own,
		.targets = &own,
		.arrived = &arrived,
	};
	ceov_ticket ticket;

	ck_assert_int_eq(ceov_plan_add_all_gather(plan, &gather), 0);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_int_eq(ceov_launch(plan, NULL, &ticket), 0);
	ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), 0);
	ceov_close(context);
}
END_TEST

/* A rank's own shard is copied to another buffer, or to another place in the same one. */
START_TEST(test_own_shard_is_copied_to_its_place)
{
	ceov_context *context = testing_open(1, NULL);
	ceov_buffer *source = testing_buffer(context, 0, 8192);
	ceov_buffer *target = _i ? source : testing_buffer(context, 0, 8192);
	uint64_t offset = _i ? 4096 : 0;
	ceov_signal *arrived = testing_signal(context, 0, 1);
	ceov_plan *plan = testing_plan(context, 0);
	struct ceov_all_gather gather = {
		.struct_bytes = sizeof(gather),
		.shard_bytes = 4096,
		.n_pieces = 1,
		.source = source,
		.targets = &target,
		.target_offset_bytes = offset,
		.arrived = &arrived,
	};
	ceov_ticket ticket;

	testing_fill(ceov_buffer_base(source, 0), 4096, testing_seed());
	ck_assert_int_eq(ceov_plan_add_all_gather(plan, &gather), 0);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_int_eq(ceov_launch(plan, NULL, &ticket), 0);
	ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), 0);
	ck_assert_uint_eq(testing_check((char *)ceov_buffer_base(target, 0) + offset, 4096,
					testing_seed()), 4096);
	ceov_close(context);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("collective");
	TCase *all = tcase_create("collective");

	tcase_set_timeout(all, 100);
	tcase_add_test(all, test_all_gather);
	tcase_add_test(all, test_all_gather_in_place);
	tcase_add_test(all, test_all_to_all);
	tcase_add_test(all, test_one_rank_in_place_has_nothing_to_do);
	tcase_add_loop_test(all, test_own_shard_is_copied_to_its_place, 0, 2);
	tcase_add_test(all, test_wrong_arguments_are_refused_before_anything_is_added);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
