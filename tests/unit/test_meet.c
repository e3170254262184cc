/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests ranks that begin a run by the engine together, on host ranks. */

#include <check.h>
#include <unistd.h>

#include "ce_engine/objects/signal.h"
#include "op_rig.h"
#include "ops/core/op.h"
#include "ops/kind.h"
#include "ops/kinds.h"

#define SCRATCH UINT64_C(100000)

static struct testing_log log_;

static void set_up(void)
{
	testing_log_init(&log_);
}

struct meeting {
	struct op_case one;
	int            meets;
	ceov_op       *ops[OP_RANKS_MAX];
};

/* Whether rank 0 has sent what it has for the others in run 1. */
static int has_sent(struct op_rig *rig)
{
	uint64_t value = 0;

	ck_assert_int_eq(ceov_signal_value(rig->workspaces[0]->sent, 0, &value), 0);
	return value != 0;
}

/* The last rank comes late, when all others have long been able to send. */
static void run_in_meeting(const struct op_part *part)
{
	struct meeting *meeting = part->arg;
	uint32_t i, last = part->rig->n_ranks - 1;
	struct op_data data;

	op_data_make(&meeting->one, part->rank, 7, &data);
	if (part->rank == last && meeting->meets) {
		usleep(100000);
		ck_assert_int_eq(has_sent(part->rig), 0);
	}
	if (part->rank == last && !meeting->meets)
		ck_assert_int_eq(ceov_signal_wait(part->rig->workspaces[0]->sent, 0, 1,
						  TESTING_PATIENCE), 0);
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(op_data_run(&meeting->one, meeting->ops[part->rank], &data), 0);
	op_data_check(&meeting->one, part->rank, 7, &data);
	op_data_free(&data);
}

START_TEST(test_ranks_meet_before_copies_begin)
{
	struct meeting meeting = { .meets = _i / 2 };
	struct op_rig rig;
	uint32_t i;

	meeting.one = op_case_of(_i % 2 ? OP_ALL_REDUCE : OP_REDUCE_SCATTER, 3, 64, 0, 0);
	op_rig_open(&rig, 3, SCRATCH, &log_);
	for (i = 0; i < 3; i++) {
		meeting.ops[i] = op_case_made(&meeting.one, rig.workspaces[i]);
		ck_assert_int_eq(meeting.ops[i]->meets, 0);     /* sends too little */
		meeting.ops[i]->meets = meeting.meets;
		meeting.ops[i]->is_agreed = 1;  /* or the first run would wait for the last rank */
	}
	op_rig_each(&rig, run_in_meeting, &meeting);
	for (i = 0; i < 3; i++)
		ceov_op_release(meeting.ops[i]);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* A rank that never comes ends the others' runs by the deadline. */
START_TEST(test_a_rank_that_does_not_come_ends_the_meeting)
{
	struct op_case one = op_case_of(OP_REDUCE_SCATTER, 3, 64, 0, 0);
	struct op_data data;
	struct op_rig rig;
	ceov_op *op;

	op_rig_open(&rig, 3, SCRATCH, &log_);
	rig.workspaces[0]->deadline_ns = 50 * TESTING_MS;
	op = op_case_made(&one, rig.workspaces[0]);
	op->meets = 1;
	op_data_make(&one, 0, 7, &data);
	ck_assert_int_eq(op_data_run(&one, op, &data), CEOV_ERR_TIMEOUT);
	ck_assert_int_eq(ceov_signal_wait(rig.workspaces[1]->met[1], 0, 1, 0), CEOV_ERR_TIMEOUT);
	op_data_free(&data);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

START_TEST(test_long_sums_meet)
{
	struct cei_op_shape shape = { .kind = &cei_all_reduce, .dtype = CEOV_BF16, .n_ranks = 4 };
	uint32_t i;

	for (i = 0; i < 4; i++)
		shape.rows[i] = (UINT64_C(48) << 20) / 4 / 2;
	ck_assert(shape.kind->meets(&shape));
	for (i = 0; i < 4; i++)
		shape.rows[i] = (UINT64_C(12) << 20) / 4 / 2;
	ck_assert(!shape.kind->meets(&shape));
	ck_assert_ptr_null(cei_ag_gemm.meets);
	shape.n_ranks = 2;                              /* two ranks are never out of step */
	for (i = 0; i < 2; i++)
		shape.rows[i] = UINT64_C(48) << 20;
	ck_assert(!shape.kind->meets(&shape));
}
END_TEST

/* Tuning builds an op anew and swaps the two: what was chosen for the one does not stay at the
 * other. */
START_TEST(test_a_swap_takes_meeting_along)
{
	struct op_case one = op_case_of(OP_ALL_REDUCE, 3, 64, 0, 0);
	struct op_rig rig;
	ceov_op *op, *other;

	op_rig_open(&rig, 3, SCRATCH, &log_);
	op = op_case_made(&one, rig.workspaces[0]);
	other = op_case_made(&one, rig.workspaces[0]);
	op->meets = 1;
	cei_op_swap(op, other);
	ck_assert_int_eq(op->meets, 0);
	ck_assert_int_eq(other->meets, 1);
	ceov_op_release(op);
	ceov_op_release(other);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("meet");
	TCase *all = tcase_create("all");

	tcase_set_timeout(all, 60);
	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_add_loop_test(all, test_ranks_meet_before_copies_begin, 0, 4);
	tcase_add_test(all, test_a_rank_that_does_not_come_ends_the_meeting);
	tcase_add_test(all, test_long_sums_meet);
	tcase_add_test(all, test_a_swap_takes_meeting_along);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
