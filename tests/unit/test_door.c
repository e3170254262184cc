/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Tests the door between handles and engines with a test double behind it: an engine of this test,
 * which executes each launch in its own thread and reads only the plan's program. Templates and
 * operators must work through it, and the context's own engines must get nothing to do.
 */

#include <check.h>
#include <stdio.h>
#include <string.h>

#include <ceoverlap/collective.h>

#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/door.h"
#include "ce_engine/objects/plan.h"
#include "ce_engine/plan/local_door.h"
#include "op_rig.h"
#include "testing.h"

#define RANKS        3u
#define SHARD_BYTES  UINT64_C(4096)
#define PIECES       2u
#define LAUNCHES_MAX 64u

struct launch {
	pthread_t   thread;
	ceov_plan  *plan;
	uint64_t    base;
	const char *floating;
	int         result;
	int         is_joined;
};

static struct {
	pthread_mutex_t lock;           /* guards the fields below */
	struct launch   launches[LAUNCHES_MAX];
	uint32_t        n_launches;
	uint32_t        n_committed, n_explained, n_ended, n_aborted;
} calls;

static void count(uint32_t *counter)
{
	pthread_mutex_lock(&calls.lock);
	++*counter;
	pthread_mutex_unlock(&calls.lock);
}

/* --- calls that the double carries out itself ------------------------------- */

static int await(const struct launch *launch, const struct cei_program_mark *mark)
{
	if (mark->signal == CEI_PROGRAM_NONE)
		return 0;
	return ceov_signal_wait(launch->plan->signals[mark->signal], mark->counter,
				launch->base + mark->value, TESTING_PATIENCE);
}

static char *spot_of(const struct launch *launch, const struct cei_program_spot *spot)
{
	ceov_buffer *buffer = launch->plan->buffers[spot->buffer];
	char *base = buffer->is_floating ? (char *)(uintptr_t)launch->floating
		: ceov_buffer_base(buffer, launch->plan->program.rank);

	return base + spot->offset_bytes;
}

static int carry_out_one(const struct launch *launch,
			 const struct cei_program_transfer *transfer)
{
	const struct cei_program_mark *then = &transfer->then;
	uint64_t row;
	int r = await(launch, &transfer->source_ready);

	if (!r)
		r = await(launch, &transfer->target_free);
	for (row = 0; !r && row < transfer->n_rows; row++)
		memcpy(spot_of(launch, &transfer->target) + row * transfer->target.pitch_bytes,
		       spot_of(launch, &transfer->source) + row * transfer->source.pitch_bytes,
		       transfer->row_bytes);
	if (r || then->signal == CEI_PROGRAM_NONE)
		return r;
	return ceov_signal_raise(launch->plan->signals[then->signal], then->counter,
				 launch->base + then->value);
}

static void *carry_out(void *arg)
{
	struct launch *launch = arg;
	const struct cei_program *program = &launch->plan->program;
	uint32_t i;

	for (i = 0; !launch->result && i < program->n_transfers; i++)
		launch->result = carry_out_one(launch, &program->transfers[i]);
	return NULL;
}

static int double_launch(ceov_plan *plan, const struct ceov_launch *from,
			 ceov_ticket *ret_ticket)
{
	struct launch *launch;

	pthread_mutex_lock(&calls.lock);
	ck_assert_uint_lt(calls.n_launches, LAUNCHES_MAX);
	launch = &calls.launches[calls.n_launches++];
	launch->plan = plan;
	launch->base = from->base;
	launch->floating = from->floating;
	*ret_ticket = (ceov_ticket){ calls.n_launches };
	ck_assert_int_eq(pthread_create(&launch->thread, NULL, carry_out, launch), 0);
	pthread_mutex_unlock(&calls.lock);
	return 0;
}

/* Waits for the launch without a deadline, because no test waits with a timeout that could
 * expire. */
static int double_wait(ceov_context *context, ceov_ticket ticket, uint64_t timeout_ns,
		       int *ret_result)
{
	struct launch *launch = &calls.launches[ticket.number - 1];

	(void)context;
	(void)timeout_ns;
	pthread_mutex_lock(&calls.lock);
	ck_assert_uint_le(ticket.number, calls.n_launches);
	pthread_mutex_unlock(&calls.lock);
	if (!launch->is_joined)
		ck_assert_int_eq(pthread_join(launch->thread, NULL), 0);
	launch->is_joined = 1;
	*ret_result = launch->result;
	return 0;
}

static int double_explain(const ceov_plan *plan, int fd)
{
	(void)plan;
	count(&calls.n_explained);
	return dprintf(fd, "carried out by a double\n") < 0;
}

/* --- calls that the double counts --------------------------------------------- */

static int double_commit(ceov_plan *plan)
{
	count(&calls.n_committed);
	return cei_local_door.commit(plan);
}

static uint32_t double_in_flight(const ceov_plan *plan)
{
	uint32_t i, n = 0;

	pthread_mutex_lock(&calls.lock);
	for (i = 0; i < calls.n_launches; i++)
		n += calls.launches[i].plan == plan && !calls.launches[i].is_joined;
	pthread_mutex_unlock(&calls.lock);
	return n;
}

static void double_end(ceov_plan *plan)
{
	ck_assert_uint_eq(double_in_flight(plan), 0);
	count(&calls.n_ended);
}

static int double_abort(ceov_context *context, ceov_ticket ticket)
{
	(void)context;
	(void)ticket;
	count(&calls.n_aborted);
	return CEOV_NONE;
}

static const struct cei_door the_double = {
	.commit = double_commit,
	.launch = double_launch,
	.n_in_flight = double_in_flight,
	.explain = double_explain,
	.end = double_end,
	.wait = double_wait,
	.abort = double_abort,
};

/* Has the double carry out the context's plans, none of which was committed yet. */
static void use_double(ceov_context *context)
{
	ck_assert_ptr_eq(context->door, &cei_local_door);
	memset(&calls, 0, sizeof(calls));
	pthread_mutex_init(&calls.lock, NULL);
	context->door = &the_double;
}

/* --- a plan template ---------------------------------------------------------- */

struct gathering {
	ceov_context *context;
	ceov_buffer  *sources[RANKS];
	ceov_buffer  *targets[RANKS];
	ceov_signal  *ready[RANKS];
	ceov_signal  *arrived[RANKS];
	ceov_plan    *plans[RANKS];
};

static void open_gathering(struct gathering *all)
{
	struct ceov_all_gather gather = { .struct_bytes = sizeof(gather) };
	uint32_t i;

	all->context = testing_open(RANKS, NULL);
	use_double(all->context);
	for (i = 0; i < RANKS; i++) {
		all->sources[i] = testing_buffer(all->context, i, SHARD_BYTES);
		all->targets[i] = testing_buffer(all->context, i, RANKS * SHARD_BYTES);
		all->ready[i] = testing_signal(all->context, i, PIECES);
		all->arrived[i] = testing_signal(all->context, i, RANKS * PIECES);
		testing_fill(ceov_buffer_base(all->sources[i], i), SHARD_BYTES, 100 + i);
	}
	gather.shard_bytes = SHARD_BYTES;
	gather.n_pieces = PIECES;
	gather.targets = all->targets;
	gather.arrived = all->arrived;
	for (i = 0; i < RANKS; i++) {
		gather.source = all->sources[i];
		gather.ready = all->ready[i];
		all->plans[i] = testing_plan(all->context, i);
		ck_assert_int_eq(ceov_plan_add_all_gather(all->plans[i], &gather), 0);
		ck_assert_int_eq(ceov_plan_commit(all->plans[i]), 0);
	}
}

static void check_gathered(const struct gathering *all)
{
	uint32_t rank, i, piece;
	const char *target;

	for (rank = 0; rank < RANKS; rank++) {
		target = ceov_buffer_base(all->targets[rank], rank);
		for (i = 0; i < RANKS; i++) {
			for (piece = 0; piece < PIECES; piece++)
				ck_assert_int_eq(ceov_signal_wait(
					all->arrived[rank], i * PIECES + piece, 1, 0), 0);
			ck_assert_uint_eq(testing_check(target + i * SHARD_BYTES, SHARD_BYTES,
							100 + i), SHARD_BYTES);
		}
	}
}

START_TEST(test_a_template_goes_through_the_door)
{
	ceov_ticket tickets[RANKS];
	struct gathering all;
	uint32_t i, piece;

	open_gathering(&all);
	for (i = 0; i < RANKS; i++)
		ck_assert_int_eq(ceov_launch(all.plans[i], NULL, &tickets[i]), 0);
	ck_assert_int_eq(ceov_plan_idle(all.plans[0]), CEOV_PENDING);
	for (i = 0; i < RANKS; i++)
		for (piece = 0; piece < PIECES; piece++)
			ck_assert_int_eq(ceov_signal_raise(all.ready[i], piece, 1), 0);
	for (i = 0; i < RANKS; i++)
		ck_assert_int_eq(ceov_wait(all.context, tickets[i], TESTING_PATIENCE), 0);
	check_gathered(&all);
	ck_assert_int_eq(ceov_plan_idle(all.plans[0]), 0);
	ck_assert_int_eq(ceov_signal_renew(all.arrived[0]), 0);
	ck_assert_int_eq(ceov_abort(all.context, tickets[0]), CEOV_NONE);
	ck_assert_int_eq(ceov_plan_explain(all.plans[0], 2), 0);
	ceov_plan_release(all.plans[0]);
	ceov_close(all.context);

	ck_assert_uint_eq(calls.n_committed, RANKS);
	ck_assert_uint_eq(calls.n_launches, RANKS);
	ck_assert_uint_eq(calls.n_ended, RANKS);
	ck_assert_uint_eq(calls.n_aborted, 1);
	ck_assert_uint_eq(calls.n_explained, 1);
}
END_TEST

/* --- operators ---------------------------------------------------------------- */

static void run_rank(const struct op_part *part)
{
	const struct op_case *one = part->arg;
	ceov_op *op = op_case_made(one, part->rig->workspaces[part->rank]);
	struct op_data data;
	uint64_t seed;

	for (seed = 1; seed <= 3; seed++) {
		op_data_make(one, part->rank, seed, &data);
		ck_assert_int_eq(op_data_run(one, op, &data), 0);
		op_data_check(one, part->rank, seed, &data);
		op_data_free(&data);
	}
	ceov_op_release(op);
}

static uint64_t last_ticket(ceov_context *context)
{
	uint64_t last;

	pthread_mutex_lock(&context->tickets.lock);
	last = context->tickets.last;
	pthread_mutex_unlock(&context->tickets.lock);
	return last;
}

START_TEST(test_an_operator_goes_through_the_door)
{
	struct op_case one = op_case_of((enum op_sort)_i, 2, 16, 16, 16);
	uint64_t before, scratch = op_case_scratch(&one);
	struct op_rig here, behind;

	if (one.sort == OP_GEMM_AR)     /* few rows are summed without launches otherwise */
		one.tuning.mode = CEOV_MODE_OVERLAP;
	op_rig_open(&here, 2, scratch, NULL);
	before = last_ticket(here.context);
	use_double(here.context);
	op_rig_open_beside(&behind, &here, "behind", scratch);
	op_rig_each(&behind, run_rank, &one);
	ck_assert_uint_gt(calls.n_launches, 0);
	ck_assert_uint_eq(last_ticket(here.context), before);   /* the engines got no launch */

	op_rig_release(&behind);
	op_rig_close(&here);
	ck_assert_uint_eq(calls.n_committed, calls.n_ended);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("door");
	TCase *all = tcase_create("door");

	tcase_set_timeout(all, 120);
	tcase_add_test(all, test_a_template_goes_through_the_door);
	tcase_add_loop_test(all, test_an_operator_goes_through_the_door, 0, OP_SORTS);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
