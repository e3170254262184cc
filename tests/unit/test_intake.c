/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What an engine of a daemon takes out of clients' rings: launches of a plan that is there, through
 * the ring of its rank; anything else is a fault of the client. */

#include <check.h>
#include <stdatomic.h>
#include <string.h>

#include "base/report.h"
#include "daemon/server/intake.h"
#include "testing.h"
#include "unit/service_rig.h"

#define N_RINGS 2u
#define SLOT    3u

static struct {
	struct service_rig       rig;
	struct cei_report        report;
	struct cei_intake        intake;
	struct cei_intake_plan   plans[CEI_CLIENT_PLANS_MAX];
	struct cei_mouth         mouths[N_RINGS];
	_Atomic uint32_t         is_faulty;
	uint32_t                 n_faults;
	ceov_context            *context;
	ceov_plan               *plan;
} desk;

static void note_fault(void *arg)
{
	(void)arg;
	desk.n_faults++;
}

/* Opens the daemon's side of a client with two rings and a plan in a slot, of the first ring. */
static void open_desk(void)
{
	struct ceov_transfer raise = { .struct_bytes = sizeof(raise) };
	uint32_t i;

	memset(&desk, 0, sizeof(desk));
	desk.context = testing_open(1, NULL);
	desk.plan = testing_plan(desk.context, 0);
	raise.then = testing_mark(testing_signal(desk.context, 0, 1), 0, 1);
	testing_add(desk.plan, &raise);
	ck_assert_int_eq(ceov_plan_commit(desk.plan), 0);
	service_rig_init(&desk.rig);
	service_rig_attach(&desk.rig, N_RINGS);
	cei_report_init(&desk.report, NULL, NULL);
	ck_assert_int_eq(cei_intake_init(&desk.intake, &desk.report), 0);
	for (i = 0; i < N_RINGS; i++) {
		desk.mouths[i] = (struct cei_mouth){
			.reader = desk.rig.readers[i], .plans = desk.plans,
			.bell = desk.rig.bells[i], .is_faulty = &desk.is_faulty,
			.faulty = note_fault };
		ck_assert_int_eq(cei_intake_add(&desk.intake, &desk.mouths[i]), 0);
	}
	cei_intake_put_plan(&desk.intake, &desk.plans[SLOT], desk.plan, &desk.mouths[0]);
}

static void close_desk(void)
{
	uint32_t i;

	for (i = 0; i < N_RINGS; i++)
		cei_intake_remove(&desk.intake, &desk.mouths[i]);
	cei_intake_fini(&desk.intake);
	service_rig_fini(&desk.rig);
	cei_report_fini(&desk.report);
	ceov_close(desk.context);
}

/* Puts a launch of the slot into the ring. Returns how many launches the engine takes. */
static uint32_t launch(uint32_t ring, uint32_t slot, uint32_t generation)
{
	struct cei_service_launch ask = { .slot = slot, .generation = generation };

	ck_assert_int_eq(cei_service_put(&desk.rig.launcher, ring, &ask), 0);
	return desk.intake.source.take(&desk.intake.source);
}

static void assert_faults(uint32_t n)
{
	ck_assert_uint_eq(desk.n_faults, n);
	ck_assert_uint_eq(atomic_load(&desk.is_faulty), n != 0);
}

START_TEST(test_a_launch_is_taken)
{
	open_desk();
	ck_assert_uint_eq(launch(0, SLOT, 0), 1);
	ck_assert_uint_eq(desk.mouths[0].n_launches, 1);
	assert_faults(0);
	close_desk();
}
END_TEST

/* A client that has dropped a plan, and got its slot again, names the new plan by another
 * generation. */
START_TEST(test_a_stale_handle_is_a_fault)
{
	open_desk();
	ck_assert_ptr_eq(cei_intake_take_plan(&desk.intake, &desk.plans[SLOT]), desk.plan);
	cei_intake_put_plan(&desk.intake, &desk.plans[SLOT], desk.plan, &desk.mouths[0]);
	ck_assert_uint_eq(launch(0, SLOT, 0), 0);
	assert_faults(1);
	atomic_store(&desk.is_faulty, 0);
	desk.n_faults = 0;
	cei_service_took(&desk.mouths[0].reader);
	ck_assert_uint_eq(launch(0, SLOT, 1), 1);
	assert_faults(0);
	close_desk();
}
END_TEST

/* The second ring is that of another rank, whose engine must not execute the plan. */
START_TEST(test_a_launch_through_another_ranks_ring_is_a_fault)
{
	open_desk();
	ck_assert_uint_eq(launch(1, SLOT, 0), 0);
	assert_faults(1);
	close_desk();
}
END_TEST

START_TEST(test_a_launch_of_no_plan_is_a_fault)
{
	static const uint32_t slots[] = { 0, SLOT + 1, CEI_CLIENT_PLANS_MAX - 1,
					  CEI_CLIENT_PLANS_MAX, UINT32_MAX };

	open_desk();
	ck_assert_uint_eq(launch(0, slots[_i], 0), 0);
	assert_faults(1);
	ck_assert_uint_eq(launch(0, SLOT, 0), 0);       /* it gets nothing more */
	assert_faults(1);
	close_desk();
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("intake");
	TCase *all = tcase_create("intake");

	tcase_add_test(all, test_a_launch_is_taken);
	tcase_add_test(all, test_a_stale_handle_is_a_fault);
	tcase_add_test(all, test_a_launch_through_another_ranks_ring_is_a_fault);
	tcase_add_loop_test(all, test_a_launch_of_no_plan_is_a_fault, 0, 5);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
