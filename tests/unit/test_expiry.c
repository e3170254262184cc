/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests deadlines and aborts with many launches in flight. Each turn checks a bounded part of the
 * launches, and a pass over all of them misses none. The test makes the turns and sets the time
 * itself. */

#include <check.h>

#include "base/clock.h"
#include "ce_engine/engine/completion.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/plan.h"
#include "ce_engine/objects/signal.h"
#include "testing.h"

#define MANY          UINT32_C(2048)
#define WIDE_SIGNALS  UINT32_C(63)      /* signals of a plan with many: 3 per transfer */
#define OWN           UINT32_C(30)      /* number of plans that have their own signals */
#define OWN_SIGNALS   UINT32_C(9)       /* signals of each such plan */

static struct testing_log log_of;
static ceov_context *context;
static ceov_buffer *source, *target;
static uint64_t random_state, clock_ns;

static struct cei_engine *engine(void)
{
	return context->engines[0];
}

static void set_up(void)
{
	testing_log_init(&log_of);
	context = testing_open_turned(1, &log_of);
	source = testing_buffer(context, 0, WIDE_SIGNALS);
	target = testing_buffer(context, 0, WIDE_SIGNALS);
	random_state = testing_seed();
	clock_ns = 0;
}

static void tear_down(void)
{
	ceov_close(context);
}

/* Makes a plan whose transfers use three of the signals each; its marks are never reached. */
static ceov_plan *plan_of(ceov_signal *const *signals, uint32_t n_signals)
{
	ceov_plan *plan = testing_plan(context, 0);
	struct ceov_transfer made;
	uint32_t i;

	for (i = 0; i + 2 < n_signals; i += 3) {
		made = testing_transfer(source, target, 1);
		made.source.offset_bytes = made.target.offset_bytes = i;
		made.source_ready = testing_mark(signals[i], 0, 1);
		made.target_free = testing_mark(signals[i + 1], 0, 1);
		made.then = testing_mark(signals[i + 2], 0, 1);
		testing_add(plan, &made);
	}
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_uint_eq(plan->program.n_signals, n_signals);
	return plan;
}

static void make_signals(ceov_signal **signals, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		signals[i] = testing_signal(context, 0, 1);
}

static ceov_ticket launch(ceov_plan *plan)
{
	struct ceov_launch how = { .struct_bytes = sizeof(how) };
	ceov_ticket ticket = { 0 };

	how.deadline_ns = 1000 * TESTING_SECOND;
	ck_assert_int_eq(ceov_launch(plan, &how, &ticket), 0);
	return ticket;
}

/* Lets the engine take up launches and finishes the present pass, so that the next turn of expire()
 * begins a new one. */
static void take_up(void)
{
	ck_assert_int_ge(ceov_turn(context), 0);
	while (cei_expiry_goes_on(&engine()->expiry))
		cei_completion_expire(engine(), clock_ns);
	engine()->expiry.next_pass_ns = 0;
}

/* Takes up launches as if they got no lane: the engine holds them back. */
static void hold(void)
{
	struct cei_launch *held;

	while ((held = cei_ring_take(&engine()->admission.inbox))) {
		held->plan->run.n_held = 1;
		cei_expiry_put(&engine()->expiry, held, &engine()->expiry.held);
	}
}

/* Makes one turn at a time when the next pass is due at once. */
static void expire(void)
{
	clock_ns += CEI_EXPIRY_NS;
	cei_completion_expire(engine(), clock_ns);
}

static struct cei_launch *launch_at(uint32_t i)
{
	struct cei_list *node = engine()->expiry.in_flight.next;

	while (i-- > 0)
		node = node->next;
	return CEI_OWNER(node, struct cei_launch, link);
}

static uint32_t n_in_flight(void)
{
	struct cei_list *node = engine()->expiry.in_flight.next;
	uint32_t n = 0;

	for (; node != &engine()->expiry.in_flight; node = node->next)
		n++;
	return n;
}

/* Makes one turn, which does its part of the pass, and returns how many checks it made. */
static uint32_t looks(uint32_t n_signals)
{
	const struct cei_expiry *expiry = &engine()->expiry;
	struct cei_list *from = expiry->at ? expiry->at : engine()->expiry.in_flight.next;
	uint32_t before = expiry->at ? expiry->next_signal : 0, n = 0;

	expire();
	for (; expiry->at && from != expiry->at && from != &engine()->expiry.in_flight; n++)
		from = from->next;
	return expiry->at ? n * (n_signals + 1) + expiry->next_signal - before : 0;
}

/* The last plan has a signal that only the expiry checks. It is aborted; the abort must be found
 * exactly when all checks before it have been made. */
START_TEST(test_a_turn_makes_a_part_of_a_pass)
{
	const uint32_t n_turns = MANY * (WIDE_SIGNALS + 1) / CEI_EXPIRY_LOOKS;
	ceov_signal *signals[WIDE_SIGNALS], *last[3];
	ceov_ticket ticket = { 0 };
	uint32_t i;

	make_signals(signals, WIDE_SIGNALS);
	make_signals(last, 3);
	for (i = 0; i < MANY; i++) {
		(void)launch(plan_of(signals, WIDE_SIGNALS));
		if (i % 512 == 511)
			take_up();
	}
	ticket = launch(plan_of(last, 3));
	take_up();
	ck_assert_uint_eq(n_in_flight(), MANY + 1);
	cei_signal_raise_abort(last[2], CEOV_ERR_ABORTED, 0);
	for (i = 0; i < n_turns; i++) {
		ck_assert_uint_le(looks(WIDE_SIGNALS), CEI_EXPIRY_LOOKS);
		ck_assert(cei_expiry_goes_on(&engine()->expiry));
		ck_assert_uint_eq(n_in_flight(), MANY + 1);
	}
	expire();
	ck_assert_int_eq(ceov_wait(context, ticket, 0), CEOV_ERR_ABORTED);
	ck_assert(!cei_expiry_goes_on(&engine()->expiry));
	ck_assert_uint_eq(n_in_flight(), MANY);
}
END_TEST

/* A pass checks each launch of a plan once, and each signal of the plan once. */
START_TEST(test_a_plan_is_looked_at_once_in_a_pass)
{
	ceov_signal *signals[WIDE_SIGNALS];
	ceov_plan *plan;
	uint32_t i, k;

	make_signals(signals, WIDE_SIGNALS);
	for (i = 0; i < 4; i++) {
		plan = plan_of(signals, WIDE_SIGNALS);
		for (k = 0; k < CEI_PLAN_LAUNCHES_MAX; k++)
			(void)launch(plan);
	}
	take_up();
	expire();
	ck_assert(cei_expiry_goes_on(&engine()->expiry));
	expire();
	ck_assert(!cei_expiry_goes_on(&engine()->expiry));
	ck_assert_uint_eq(engine()->expiry.next_pass_ns, clock_ns + CEI_EXPIRY_NS);
	cei_completion_expire(engine(), clock_ns + CEI_EXPIRY_NS - 1);
	ck_assert(!cei_expiry_goes_on(&engine()->expiry));
}
END_TEST

struct crowd {
	ceov_plan   *plans[OWN];
	ceov_ticket  tickets[OWN];
	uint32_t     order[OWN];        /* random order in which launches are checked */
};

static void arm(struct crowd *crowd, int is_held)
{
	ceov_signal *signals[OWN_SIGNALS];
	uint32_t i, k, kept;

	for (i = 0; i < OWN; i++) {
		make_signals(signals, OWN_SIGNALS);
		crowd->plans[i] = plan_of(signals, OWN_SIGNALS);
		crowd->tickets[i] = launch(crowd->plans[i]);
		crowd->order[i] = i;
	}
	for (i = OWN; i > 1; i--) {
		k = (uint32_t)testing_below(&random_state, i);
		kept = crowd->order[k];
		crowd->order[k] = crowd->order[i - 1];
		crowd->order[i - 1] = kept;
	}
	if (is_held)
		hold();
	else
		take_up();
}

/* Asserts that within the rest of a pass and the next pass this launch ends with the result, while
 * those behind it stay in flight. */
static void check_found(const struct crowd *crowd, uint32_t at, int result)
{
	uint32_t i, n = 0;

	while (ceov_wait(context, crowd->tickets[crowd->order[at]], 0) == CEOV_PENDING) {
		ck_assert_uint_lt(n++, 2 * (OWN * (OWN_SIGNALS + 1) / CEI_EXPIRY_LOOKS + 1));
		expire();
	}
	ck_assert_int_eq(ceov_wait(context, crowd->tickets[crowd->order[at]], 0), result);
	for (i = at + 1; i < OWN; i++)
		ck_assert_int_eq(ceov_wait(context, crowd->tickets[crowd->order[i]], 0),
				 CEOV_PENDING);
}

/* Tests launches in flight and held launches. */
START_TEST(test_an_abort_is_found_at_every_place)
{
	struct crowd crowd;
	ceov_plan *plan;
	uint32_t i;

	arm(&crowd, _i);
	for (i = 0; i < OWN; i++) {
		plan = crowd.plans[crowd.order[i]];
		cei_signal_raise_abort(plan->signals[i % OWN_SIGNALS], CEOV_ERR_PEER_LOST, 0);
		check_found(&crowd, i, CEOV_ERR_PEER_LOST);
	}
	ck_assert(cei_list_is_empty(&engine()->expiry.in_flight));
	ck_assert(cei_list_is_empty(&engine()->expiry.held));
}
END_TEST

START_TEST(test_a_deadline_is_found_at_every_place)
{
	struct cei_list *node;
	struct crowd crowd;
	uint32_t i;

	arm(&crowd, _i);
	for (i = 0; i < OWN; i++) {
		node = (_i ? &engine()->expiry.held : &engine()->expiry.in_flight)->next;
		while (CEI_OWNER(node, struct cei_launch, link)->plan !=
		       crowd.plans[crowd.order[i]])
			node = node->next;
		CEI_OWNER(node, struct cei_launch, link)->deadline_ns = clock_ns;
		check_found(&crowd, i, CEOV_ERR_TIMEOUT);
	}
	ck_assert(cei_list_is_empty(&engine()->expiry.in_flight));
	ck_assert(cei_list_is_empty(&engine()->expiry.held));
}
END_TEST

/* A turn that stops within a launch is continued there by the next one. */
START_TEST(test_a_turn_goes_on_where_the_last_one_stopped)
{
	struct crowd crowd;
	struct cei_launch *stopped_at;
	uint32_t next;

	arm(&crowd, 0);
	expire();
	next = engine()->expiry.next_signal;
	ck_assert(cei_expiry_goes_on(&engine()->expiry));
	ck_assert_uint_eq(next, CEI_EXPIRY_LOOKS % (OWN_SIGNALS + 1) - 1);
	stopped_at = CEI_OWNER(engine()->expiry.at, struct cei_launch, link);
	cei_signal_raise_abort(stopped_at->plan->signals[next], CEOV_ERR_PEER_LOST, 0);
	expire();
	ck_assert_uint_eq(n_in_flight(), OWN - 1);
}
END_TEST

/* A launch ends while the pass is in the middle of its signals. The pass goes on with the first
 * signal of the next launch. The ended launch's record is freed, so the address sanitizer would
 * report an access to it. */
START_TEST(test_the_launch_that_a_pass_stands_at_may_end)
{
	ceov_signal *signals[WIDE_SIGNALS], *own[WIDE_SIGNALS];
	struct cei_launch *ended, *next;
	struct cei_ending ending;
	ceov_plan *plans[8];
	uint32_t i;

	make_signals(signals, WIDE_SIGNALS);
	make_signals(own, WIDE_SIGNALS);
	for (i = 0; i < 8; i++) {
		plans[i] = plan_of(i == 3 ? own : signals, WIDE_SIGNALS);
		(void)launch(plans[i]);
	}
	take_up();
	ended = launch_at(3);
	next = launch_at(4);
	cei_completion_expire(engine(), ++clock_ns);
	engine()->expiry.at = &ended->link;     /* set the position that a turn with fewer checks
						 * would have left */
	engine()->expiry.next_signal = 40;
	cei_signal_raise_abort(own[0], CEOV_ERR_ABORTED, 0);
	do
		(void)cei_doorbell_poll(&engine()->doorbell, &ending);
	while (!ending.launch);
	cei_completion_fail(engine(), &ending);
	ck_assert_uint_eq(n_in_flight(), 7);
	ck_assert_ptr_eq(engine()->expiry.at, &next->link);
	ck_assert_uint_eq(engine()->expiry.next_signal, 0);
	ceov_plan_release(plans[3]);
	for (i = 0; i < 8; i++)
		expire();
	ck_assert_uint_eq(n_in_flight(), 7);
}
END_TEST

/* Held launches get a lane while the pass is at one of them. The pass continues with the launches
 * in flight, and the next pass finds the admitted ones among these. */
START_TEST(test_held_launches_may_be_admitted_during_a_pass)
{
	struct crowd crowd;
	uint32_t i;

	arm(&crowd, 1);
	clock_ns = cei_now_ns();
	cei_completion_expire(engine(), ++clock_ns);
	ck_assert(cei_expiry_goes_on(&engine()->expiry));
	ck_assert(engine()->expiry.is_held);
	ck_assert_int_ge(ceov_turn(context), 0);
	ck_assert_uint_eq(n_in_flight(), OWN);
	ck_assert(!cei_expiry_goes_on(&engine()->expiry));
	clock_ns = cei_now_ns();
	for (i = 0; i < OWN; i++) {
		cei_signal_raise_abort(crowd.plans[crowd.order[i]]->signals[0],
				       CEOV_ERR_PEER_LOST, 0);
		check_found(&crowd, i, CEOV_ERR_PEER_LOST);
	}
}
END_TEST

/* In each turn all launches end and new ones are made, as with a stream of short launches. */
START_TEST(test_a_pass_ends_while_launches_come)
{
	ceov_signal *signals[OWN_SIGNALS];
	ceov_plan *plan;
	uint32_t i, k;

	make_signals(signals, OWN_SIGNALS);
	for (i = 0; i < 10; i++) {
		plan = plan_of(signals, OWN_SIGNALS);
		for (k = 0; k < CEI_PLAN_LAUNCHES_MAX; k++)
			(void)launch(plan);
	}
	take_up();
	expire();
	ck_assert(cei_expiry_goes_on(&engine()->expiry));
	for (i = 0; i < 3 && cei_expiry_goes_on(&engine()->expiry); i++) {
		for (k = n_in_flight(); k > 0; k--)
			cei_expiry_put(&engine()->expiry, launch_at(0),
				       &engine()->expiry.in_flight);
		expire();
	}
	ck_assert(!cei_expiry_goes_on(&engine()->expiry));
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("expiry");
	TCase *all = tcase_create("expiry");

	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_a_turn_makes_a_part_of_a_pass);
	tcase_add_test(all, test_a_plan_is_looked_at_once_in_a_pass);
	tcase_add_loop_test(all, test_an_abort_is_found_at_every_place, 0, 2);
	tcase_add_loop_test(all, test_a_deadline_is_found_at_every_place, 0, 2);
	tcase_add_test(all, test_a_turn_goes_on_where_the_last_one_stopped);
	tcase_add_test(all, test_the_launch_that_a_pass_stands_at_may_end);
	tcase_add_test(all, test_held_launches_may_be_admitted_during_a_pass);
	tcase_add_test(all, test_a_pass_ends_while_launches_come);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
