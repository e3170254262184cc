/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests an engine with more than 64 lanes. Beside the host's mover stands a test double that has a
 * lane for each other rank. Its targets are memory of rank 1 that is not mapped for rank 0. While
 * plans are committed, the test says that each target belongs to another rank, because a process
 * holds at most 16 ranks. */

#include <string.h>

#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/plan.h"
#include "ce_engine/open.h"
#include "ce_engine/plan/plan_release.h"
#include "conformance/proxy.h"
#include "testing.h"

#define BYTES       UINT64_C(3000)
#define PEERS       200u
#define PEERS_LIVE  80u                 /* where threads move, one a lane */
#define BROKEN      150u                /* the peer whose lane breaks */
#define TURNS       200u

/* --- a mover of which one lane breaks ------------------------------------- */

static struct proxy proxy;
static const struct cei_place_ops *movers[3];
static struct testing_log test_log;
static int (*reap_before)(struct cei_lane *lane, uint64_t *ret_n_done);
static uint32_t broken_lane;            /* its reap() fails; CEI_NO_LANE: none does */
static uint32_t busy_lane;              /* it never becomes idle; CEI_NO_LANE: none */
static uint32_t n_turns[CEI_LANES_MAX]; /* calls of turn() */

static int reap(struct cei_lane *lane, uint64_t *ret_n_done)
{
	int r = reap_before(lane, ret_n_done);

	return lane->index == broken_lane ? CEOV_ERR_SYSTEM : r;
}

static int is_idle(struct cei_lane *lane)
{
	return lane->index != busy_lane && proxy.under->lanes->is_idle(lane);
}

static int turn_lane(struct cei_lane *lane)
{
	n_turns[lane->index]++;
	return proxy.under->lanes->turn(lane);
}

/* --- ranks and plans -------------------------------------------------------- */

struct stand {
	ceov_context *context;
	struct cei_engine *engine;              /* of rank 0 */
	uint32_t      n_peers;
	ceov_buffer  *source;
	ceov_buffer  *targets[PEERS];
	ceov_signal  *arrived;                  /* of rank 1, a counter for each peer */
};

static void stand_open(struct stand *stand, uint32_t n_peers, int is_turned)
{
	struct ceov_member members[2];
	struct ceov_config config;
	uint32_t i;

	proxy_init(&proxy, cei_backend_named("host"));
	proxy_use_handles(&proxy);
	proxy.ops.caps |= CEI_CAP_PEER_LANES;
	reap_before = proxy.lanes.reap;
	proxy.lanes.reap = reap;
	proxy.lanes.is_idle = is_idle;
	proxy.lanes.turn = turn_lane;
	broken_lane = busy_lane = CEI_NO_LANE;
	movers[0] = proxy.under;
	movers[1] = &proxy.ops;
	testing_log_init(&test_log);
	config = testing_config(members, 2, &test_log);
	config.progress_by_caller = is_turned;
	ck_assert_int_eq(cei_context_open(&config, movers, NULL, &stand->context), 0);
	stand->engine = stand->context->engines[0];
	stand->n_peers = n_peers;
	stand->source = testing_buffer(stand->context, 0, BYTES);
	testing_fill(ceov_buffer_base(stand->source, 0), BYTES, 3);
	stand->arrived = testing_signal(stand->context, 1, PEERS);
	for (i = 0; i < n_peers; i++) {
		stand->targets[i] = testing_buffer(stand->context, 1, BYTES);
		stand->targets[i]->region->address[0] = 0;
	}
}

static void add_to(const struct stand *stand, ceov_plan *plan, ceov_signal *arrived, uint32_t peer)
{
	struct ceov_transfer transfer = testing_transfer(stand->source, stand->targets[peer],
							 BYTES);

	transfer.then = testing_mark(arrived, peer, 1);
	testing_add(plan, &transfer);
}

/* Commits the plan while target i belongs to rank 2 + i. */
static int commit(const struct stand *stand, ceov_plan *plan)
{
	uint32_t i;
	int r;

	for (i = 0; i < stand->n_peers; i++)
		stand->targets[i]->rank = 2 + i;
	r = ceov_plan_commit(plan);
	for (i = 0; i < stand->n_peers; i++)
		stand->targets[i]->rank = 1;
	return r;
}

/* A plan that moves to one peer. */
static ceov_plan *plan_to(const struct stand *stand, ceov_signal *arrived, uint32_t peer)
{
	ceov_plan *plan = testing_plan(stand->context, 0);

	add_to(stand, plan, arrived, peer);
	ck_assert_int_eq(commit(stand, plan), 0);
	return plan;
}

/* A plan that moves to all peers but one (CEOV_NOBODY: to all). */
static ceov_plan *plan_without(const struct stand *stand, uint32_t but)
{
	ceov_plan *plan = testing_plan(stand->context, 0);
	uint32_t i;

	for (i = 0; i < stand->n_peers; i++)
		if (i != but)
			add_to(stand, plan, stand->arrived, i);
	ck_assert_int_eq(commit(stand, plan), 0);
	return plan;
}

static ceov_ticket launch(ceov_plan *plan, uint64_t base)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = base };
	ceov_ticket ticket;

	ck_assert_int_eq(ceov_launch(plan, &launch, &ticket), 0);
	return ticket;
}

/* Launches the plan, and turns the engine. Returns the launch's result. */
static int run(const struct stand *stand, ceov_plan *plan, uint64_t base)
{
	ceov_ticket ticket = launch(plan, base);
	uint32_t n = TURNS;

	while (n--)
		ck_assert_int_ge(ceov_turn(stand->context), 0);
	return ceov_wait(stand->context, ticket, 0);
}

static void check_arrived(const struct stand *stand, uint32_t peer, uint64_t expected)
{
	const unsigned char *target = stand->targets[peer]->region->host;
	uint64_t value = 0;

	ck_assert_int_eq(ceov_signal_value(stand->arrived, peer, &value), 0);
	ck_assert_uint_eq(value, expected);
	ck_assert_uint_eq(testing_check(target, BYTES, 3), BYTES);
}

/* --- cases ------------------------------------------------------------------ */

START_TEST(test_each_of_many_peers_has_a_lane)
{
	struct stand stand;
	ceov_plan *plan;
	uint32_t i;

	stand_open(&stand, PEERS, 1);
	ck_assert_uint_eq(cei_lanes_n(&stand.engine->lanes), CEI_LANES);
	plan = plan_without(&stand, CEOV_NOBODY);
	ck_assert_uint_eq(cei_lanes_n(&stand.engine->lanes), CEI_LANES + PEERS);
	for (i = 0; i < PEERS; i++) {
		ck_assert_uint_eq(plan->steps[i].lane, CEI_LANES + i);
		ck_assert_uint_eq(stand.engine->lanes.states[CEI_LANES + i]->lane.peer, 2 + i);
	}
	ck_assert_int_eq(run(&stand, plan, 0), 0);
	ck_assert_int_eq(run(&stand, plan, 1), 0);
	for (i = 0; i < PEERS; i++)
		check_arrived(&stand, i, 2);
	ck_assert_uint_eq(proxy.n_pieces, 2 * PEERS);
	ck_assert(cei_lane_set_is_empty(&stand.engine->lanes.under_way));
	ceov_close(stand.context);
}
END_TEST

/* A turn does not visit lanes on which nothing is under way. */
START_TEST(test_lanes_without_work_are_not_visited)
{
	const uint32_t busy = CEI_LANES + PEERS - 1;
	struct stand stand;
	ceov_plan *plan;
	uint32_t i;

	stand_open(&stand, PEERS, 1);
	plan_without(&stand, CEOV_NOBODY);
	plan = plan_to(&stand, stand.arrived, PEERS - 1);
	ck_assert_uint_eq(plan->steps[0].lane, busy);
	memset(n_turns, 0, sizeof(n_turns));
	ck_assert_int_eq(run(&stand, plan, 0), 0);
	ck_assert_uint_gt(n_turns[busy], 0);
	ck_assert_uint_lt(n_turns[busy], TURNS);
	for (i = 0; i < CEI_LANES_MAX; i++)
		ck_assert(i == busy || !n_turns[i]);
	ceov_close(stand.context);
}
END_TEST

/* A lane with a high number breaks while it may still move. Its launch ends, and the plan is kept
 * when it is released. Plans on the other lanes go on; others on this lane fail. */
START_TEST(test_a_high_lane_breaks)
{
	const uint32_t lane = CEI_LANES + BROKEN;
	ceov_plan *all, *others, *stuck, *late;
	ceov_signal *own, *own_late;
	struct stand stand;
	uint32_t i;

	stand_open(&stand, PEERS, 1);
	own = testing_signal(stand.context, 1, PEERS);
	own_late = testing_signal(stand.context, 1, PEERS);
	all = plan_without(&stand, CEOV_NOBODY);
	ck_assert_int_eq(run(&stand, all, 0), 0);
	ceov_plan_release(all);
	others = plan_without(&stand, BROKEN);
	stuck = plan_to(&stand, own, BROKEN);
	late = plan_to(&stand, own_late, BROKEN);
	ck_assert_uint_eq(stuck->steps[0].lane, lane);

	broken_lane = busy_lane = lane;
	ck_assert_int_eq(run(&stand, stuck, 0), CEOV_ERR_SYSTEM);
	ck_assert_uint_eq(cei_lane_set_next(&stuck->run.stuck_lanes, 0), lane);
	ck_assert_uint_eq(cei_lane_set_next(&stuck->run.stuck_lanes, lane + 1), CEI_NO_LANE);
	ck_assert_int_eq(run(&stand, others, 1), 0);
	ck_assert_int_eq(run(&stand, late, 0), CEOV_ERR_SYSTEM);
	for (i = 0; i < PEERS; i++)
		check_arrived(&stand, i, i == BROKEN ? 1 : 2);
	ck_assert(cei_lane_set_is_empty(&others->run.stuck_lanes));
	ck_assert(cei_lane_set_is_empty(&stand.engine->lanes.under_way));

	ceov_plan_release(others);
	ck_assert(cei_list_is_empty(&stand.context->stuck));
	ceov_plan_release(stuck);
	ck_assert(!cei_list_is_empty(&stand.context->stuck));
	ck_assert_uint_eq(cei_plans_settle(stand.context), 0);
	ck_assert_int_eq(ceov_signal_renew(own), CEOV_PENDING);
	i = n_turns[lane];
	ck_assert_int_ge(ceov_turn(stand.context), 0);
	ck_assert_uint_eq(n_turns[lane], i + 1);        /* so that it can become idle */
	busy_lane = CEI_NO_LANE;
	ck_assert_int_eq(ceov_signal_renew(own), 0);
	ck_assert_uint_eq(cei_plans_settle(stand.context), 1);
	ceov_close(stand.context);
}
END_TEST

/* Commits open lanes, beyond the 64th, while the engine's thread moves through earlier ones. */
START_TEST(test_lanes_open_while_others_move)
{
	ceov_ticket tickets[PEERS_LIVE];
	struct stand stand;
	uint32_t i;

	stand_open(&stand, PEERS_LIVE, 0);
	for (i = 0; i < PEERS_LIVE; i++)
		tickets[i] = launch(plan_to(&stand, stand.arrived, i), 0);
	for (i = 0; i < PEERS_LIVE; i++) {
		ck_assert_int_eq(ceov_wait(stand.context, tickets[i], TESTING_PATIENCE), 0);
		check_arrived(&stand, i, 1);
	}
	ceov_close(stand.context);
}
END_TEST

START_TEST(test_lanes_run_out)
{
	struct cei_backend *mover;
	struct stand stand;
	ceov_plan *first, *last, *plan;
	uint32_t lane = 0, peer = 1000;

	stand_open(&stand, 3, 1);
	mover = &stand.engine->movers.mover[1].backend;
	first = plan_to(&stand, stand.arrived, 0);
	pthread_mutex_lock(&stand.engine->movers.lock);
	while (lane < CEI_LANES_MAX - 2)
		ck_assert_int_eq(cei_lanes_take(&stand.engine->lanes, mover, CEI_DIRECTION_HOST,
						peer++, &lane), 0);
	pthread_mutex_unlock(&stand.engine->movers.lock);
	last = plan_to(&stand, stand.arrived, 1);
	ck_assert_uint_eq(last->steps[0].lane, CEI_LANES_MAX - 1);

	plan = testing_plan(stand.context, 0);
	add_to(&stand, plan, stand.arrived, 2);
	ck_assert_int_eq(commit(&stand, plan), CEOV_ERR_NO_MEMORY);
	testing_log_has(&test_log, "rank 0: proxy", "at most 1024 lanes", "fewer ranks");
	ck_assert_uint_eq(cei_lanes_n(&stand.engine->lanes), CEI_LANES_MAX);
	ck_assert_int_eq(run(&stand, first, 0), 0);
	ck_assert_int_eq(run(&stand, last, 0), 0);
	check_arrived(&stand, 0, 1);
	check_arrived(&stand, 1, 1);
	ceov_close(stand.context);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("many lanes");
	TCase *cases = tcase_create("proxy");

	tcase_set_timeout(cases, 60);
	tcase_add_test(cases, test_each_of_many_peers_has_a_lane);
	tcase_add_test(cases, test_lanes_without_work_are_not_visited);
	tcase_add_test(cases, test_a_high_lane_breaks);
	tcase_add_test(cases, test_lanes_open_while_others_move);
	tcase_add_test(cases, test_lanes_run_out);
	suite_add_tcase(suite, cases);
	return testing_run(suite);
}
