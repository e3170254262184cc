/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What clients may use and have received at ports. */

#include <check.h>
#include <pthread.h>
#include <stdlib.h>

#include <ceoverlap/ceoverlap.h>

#include "ce_engine/sched/flows.h"
#include "testing.h"

#define MIB     (UINT64_C(1) << 20)
#define NOW     UINT64_C(1000000000)
#define THREADS 4u
#define ROUNDS  20000u

/* Two ports, which both links share. */
static const struct cei_machine_link link = { .kind = CEI_MACHINE_NVSWITCH, .n_ports = 2,
					      .bytes_per_s = 100 * MIB, .ports = { 1, 3 } };

static struct cei_flows *create(void)
{
	struct cei_report report;
	struct cei_flows *flows = NULL;

	cei_report_init(&report, NULL, NULL);
	ck_assert_int_eq(cei_flows_create(&report, 4, &flows), 0);
	cei_report_fini(&report);
	return flows;
}

static uint32_t open_slot(struct cei_flows *flows, uint32_t weight, uint64_t bytes_per_s)
{
	const struct cei_flows_limits limits = { weight, bytes_per_s };
	uint32_t slot = 0;

	ck_assert_int_eq(cei_flows_open(flows, &limits, &slot), 0);
	return slot;
}

static uint32_t flow_of(uint32_t slot, enum cei_flow_class class)
{
	return slot * CEI_FLOW_CLASSES + class;
}

static void serve(struct cei_flows *flows, uint32_t flow, uint64_t takes_ns, int is_urgent)
{
	const struct cei_flows_use use = { &link, flow, is_urgent, takes_ns, NOW };

	cei_flows_serve(flows, &use);
}

/* --- slots ---------------------------------------------------------------------- */

START_TEST(test_slots_are_bounded_and_used_again)
{
	const struct cei_flows_limits limits = { 1, 0 };
	struct cei_flows *flows = create();
	uint32_t i, slot = 77;

	ck_assert(!cei_flows_are_shared(flows));
	for (i = 1; i <= CEI_FLOWS_CLIENTS; i++) {
		ck_assert_uint_eq(open_slot(flows, i, 0), i);
		ck_assert_int_eq(cei_flows_are_shared(flows), i > 1);
	}
	ck_assert_int_eq(cei_flows_open(flows, &limits, &slot), CEOV_FULL);
	ck_assert_uint_eq(slot, 77);
	ck_assert_int_eq(cei_flows_close(flows, 40), 0);
	ck_assert_int_eq(cei_flows_close(flows, 40), CEOV_ERR_INVALID);
	ck_assert_int_eq(cei_flows_change(flows, 40, &limits), CEOV_ERR_INVALID);
	ck_assert_uint_eq(open_slot(flows, 1, 0), 40);
	cei_flows_destroy(flows);
}
END_TEST

START_TEST(test_bad_limits_and_slots_are_refused)
{
	static const uint32_t weights[] = { 0, CEI_FLOWS_WEIGHT_MAX + 1, UINT32_MAX };
	static const uint32_t slots[] = { 2, CEI_FLOWS_SLOTS, UINT32_MAX };
	const struct cei_flows_limits limits = { 1, 0 };
	struct cei_flows_limits bad = { 0 };
	struct cei_flows *flows = create();
	uint32_t i, slot = 77;

	ck_assert_uint_eq(open_slot(flows, 1, 0), 1);
	for (i = 0; i < 3; i++) {
		bad.weight = weights[i];
		ck_assert_int_eq(cei_flows_open(flows, &bad, &slot), CEOV_ERR_INVALID);
		ck_assert_int_eq(cei_flows_change(flows, 1, &bad), CEOV_ERR_INVALID);
		ck_assert_int_eq(cei_flows_change(flows, slots[i], &limits), CEOV_ERR_INVALID);
		ck_assert_int_eq(cei_flows_close(flows, slots[i]), CEOV_ERR_INVALID);
	}
	ck_assert_int_eq(cei_flows_close(flows, 0), CEOV_ERR_INVALID);
	ck_assert_int_eq(cei_flows_change(flows, 0, &limits), 0);
	ck_assert_uint_eq(slot, 77);
	cei_flows_destroy(NULL);
	cei_flows_destroy(flows);
}
END_TEST

/* --- service --------------------------------------------------------------------- */

START_TEST(test_service_is_time_by_weight)
{
	struct cei_flows *flows = create();
	uint32_t a = open_slot(flows, 1, 0), b = open_slot(flows, 3, 0);
	uint64_t normal = cei_flows_service(flows, flow_of(a, CEI_FLOW_NORMAL), 48000);

	ck_assert_uint_eq(normal, 48000 * CEI_FLOWS_SCALE / CEI_FLOWS_NORMAL);
	ck_assert_uint_eq(cei_flows_service(flows, flow_of(b, CEI_FLOW_NORMAL), 48000), normal / 3);
	ck_assert_uint_eq(cei_flows_service(flows, flow_of(a, CEI_FLOW_BACKGROUND), 48000),
			  normal * CEI_FLOWS_NORMAL / CEI_FLOWS_BACKGROUND);
	cei_flows_destroy(flows);
}
END_TEST

START_TEST(test_the_lead_is_beyond_those_that_wait)
{
	struct cei_flows *flows = create();
	uint32_t a = flow_of(open_slot(flows, 1, 0), CEI_FLOW_NORMAL);
	uint32_t b = flow_of(open_slot(flows, 1, 0), CEI_FLOW_NORMAL);
	uint64_t one = cei_flows_service(flows, a, 1000);

	cei_flows_wait(flows, &link, a);
	serve(flows, a, 1000, 0);
	serve(flows, a, 1000, 0);
	ck_assert_uint_eq(cei_flows_lead(flows, &link, a, NOW), 0);     /* nobody else waits */
	cei_flows_wait(flows, &link, b);                /* it begins where a's last job began */
	ck_assert_uint_eq(cei_flows_lead(flows, &link, a, NOW), one);
	serve(flows, a, 1000, 0);
	ck_assert_uint_eq(cei_flows_lead(flows, &link, a, NOW), 2 * one);
	ck_assert_uint_eq(cei_flows_lead(flows, &link, b, NOW), 0);
	cei_flows_unwait(flows, &link, b);
	ck_assert_uint_eq(cei_flows_lead(flows, &link, a, NOW), 0);
	cei_flows_destroy(flows);
}
END_TEST

START_TEST(test_who_is_held_up_catches_up_with_its_credit_alone)
{
	struct cei_flows *flows = create();
	uint32_t a = flow_of(open_slot(flows, 1, 0), CEI_FLOW_NORMAL);
	uint32_t b = flow_of(open_slot(flows, 1, 0), CEI_FLOW_NORMAL);
	uint64_t credit = cei_flows_service(flows, a, CEI_FLOWS_CREDIT_NS);
	uint32_t i;

	cei_flows_wait(flows, &link, a);
	cei_flows_wait(flows, &link, b);
	for (i = 0; i < 100; i++)
		serve(flows, a, CEI_FLOWS_CREDIT_NS, 0);
	ck_assert_uint_eq(cei_flows_lead(flows, &link, a, NOW), 100 * credit);
	serve(flows, b, 1000, 0);
	ck_assert_uint_le(cei_flows_lead(flows, &link, a, NOW), 2 * credit);
	cei_flows_destroy(flows);
}
END_TEST

START_TEST(test_urgent_jobs_add_to_a_lead_up_to_the_credit)
{
	struct cei_flows *flows = create();
	uint32_t a = flow_of(open_slot(flows, 1, 0), CEI_FLOW_NORMAL);
	uint32_t b = flow_of(open_slot(flows, 1, 0), CEI_FLOW_NORMAL);
	uint64_t credit = cei_flows_service(flows, a, CEI_FLOWS_CREDIT_NS);
	uint32_t i;

	cei_flows_wait(flows, &link, a);
	cei_flows_wait(flows, &link, b);
	for (i = 0; i < 100; i++)
		serve(flows, a, CEI_FLOWS_CREDIT_NS / 4, 1);
	ck_assert_uint_ge(cei_flows_lead(flows, &link, a, NOW), credit);
	ck_assert_uint_le(cei_flows_lead(flows, &link, a, NOW), 2 * credit);
	cei_flows_destroy(flows);
}
END_TEST

/* --- urgent time and limits -------------------------------------------------------- */

/* Uses all urgent time of a period, and asserts that it is the classes' part. */
static void uses_part(struct cei_flows *flows, const struct cei_flows_classes *classes,
		      uint64_t begin_ns)
{
	const uint64_t takes = 50000, period = 100 * TESTING_MS;
	uint64_t used = 0, now;

	for (now = begin_ns; now < begin_ns + period; now += 1000)
		while (cei_flows_use_urgent(flows, &link, NULL, takes, now))
			used += takes;
	ck_assert_uint_ge(used, period * classes->urgent_percent / 100);
	ck_assert_uint_le(used, (period + classes->urgent_ns) * classes->urgent_percent / 100 +
			  takes);
}

START_TEST(test_urgent_time_is_a_part)
{
	struct cei_flows_classes classes = cei_flows_classes_default();
	struct cei_flows *flows = create();

	ck_assert_uint_eq(classes.urgent_percent, 25);
	uses_part(flows, &classes, NOW);
	classes.urgent_percent = 50;
	classes.urgent_ns = 5 * TESTING_MS;
	ck_assert_int_eq(cei_flows_tune(flows, &classes), 0);
	uses_part(flows, &classes, 2 * NOW);
	classes.urgent_percent = 0;
	ck_assert_int_eq(cei_flows_tune(flows, &classes), 0);
	ck_assert_int_eq(cei_flows_use_urgent(flows, &link, NULL, 1, 3 * NOW), 0);
	cei_flows_destroy(flows);
}
END_TEST

START_TEST(test_weights_of_classes_can_be_set)
{
	struct cei_flows_classes classes = cei_flows_classes_default();
	struct cei_flows *flows = create();
	uint32_t slot = open_slot(flows, 1, 0);

	classes.normal = 4;
	classes.background = 2;
	ck_assert_int_eq(cei_flows_tune(flows, &classes), 0);
	ck_assert_uint_eq(cei_flows_service(flows, flow_of(slot, CEI_FLOW_NORMAL), 4000),
			  1000 * CEI_FLOWS_SCALE);
	ck_assert_uint_eq(cei_flows_service(flows, flow_of(slot, CEI_FLOW_BACKGROUND), 4000),
			  2000 * CEI_FLOWS_SCALE);
	classes.background = 0;
	ck_assert_int_eq(cei_flows_tune(flows, &classes), CEOV_ERR_INVALID);
	classes.background = 2;
	classes.urgent_percent = 101;
	ck_assert_int_eq(cei_flows_tune(flows, &classes), CEOV_ERR_INVALID);
	cei_flows_destroy(flows);
}
END_TEST

START_TEST(test_a_limit_is_kept_and_can_be_changed)
{
	const struct cei_flows_limits none = { 1, 0 };
	struct cei_flows *flows = create();
	uint32_t slot = open_slot(flows, 1, 1000 * MIB);
	uint64_t bytes = 0, now;

	for (now = NOW; now < NOW + 100 * TESTING_MS; now += 1000)
		for (; cei_flows_may_go(flows, slot, now); bytes += MIB)
			cei_flows_charge(flows, slot, MIB, now);
	ck_assert_uint_ge(bytes, 100 * MIB);
	ck_assert_uint_le(bytes, 102 * MIB);
	cei_flows_charge(flows, slot, 1000 * MIB, now);
	ck_assert(!cei_flows_may_go(flows, slot, now + 900 * TESTING_MS));
	ck_assert_int_eq(cei_flows_change(flows, slot, &none), 0);
	cei_flows_charge(flows, slot, 1000 * MIB, now);
	ck_assert(cei_flows_may_go(flows, slot, now));
	cei_flows_destroy(flows);
}
END_TEST

START_TEST(test_short_copies_count_for_more_at_a_limit)
{
	struct cei_flows *flows = create();
	uint32_t n = 0, slot = open_slot(flows, 1, 20 * MIB);
	uint64_t now;

	for (now = NOW; now < NOW + 100 * TESTING_MS; now += 1000)
		for (; cei_flows_may_go(flows, slot, now); n++)
			cei_flows_charge(flows, slot, 1, now);
	ck_assert_uint_ge(n, 2 * MIB / CEI_FLOWS_COPY_BYTES);
	ck_assert_uint_le(n, 2 * MIB / CEI_FLOWS_COPY_BYTES + 10);
	cei_flows_destroy(flows);
}
END_TEST

START_TEST(test_the_shortest_job_of_the_heaviest_flow_counts)
{
	struct cei_flows_classes classes = cei_flows_classes_default();
	struct cei_flows *flows = create();
	uint32_t slot = open_slot(flows, CEI_FLOWS_WEIGHT_MAX, 0);

	classes.normal = CEI_FLOWS_WEIGHT_MAX;
	ck_assert_int_eq(cei_flows_tune(flows, &classes), 0);
	ck_assert_uint_eq(cei_flows_service(flows, flow_of(slot, CEI_FLOW_NORMAL), 1), 1);
	cei_flows_destroy(flows);
}
END_TEST

START_TEST(test_lanes_without_ports_have_urgent_time_of_their_own)
{
	static const struct cei_machine_link local = { .kind = CEI_MACHINE_SELF,
						       .bytes_per_s = 100 * MIB };
	const struct cei_machine_link *links[] = { NULL, &local };
	struct cei_flows *flows = create();
	uint64_t now, until, used_ns;
	uint32_t i;

	for (i = 0; i < 2; i++) {
		for (used_ns = until = 0, now = NOW; now < NOW + 100 * TESTING_MS; now += 1000)
			while (cei_flows_use_urgent(flows, links[i], &until, 10000, now))
				used_ns += 10000;
		ck_assert_uint_ge(used_ns, 25 * TESTING_MS);
		ck_assert_uint_le(used_ns, 26 * TESTING_MS);
	}
	cei_flows_destroy(flows);
}
END_TEST

/* --- what has gone ------------------------------------------------------------------ */

START_TEST(test_counts_are_by_port_slot_and_urgency)
{
	struct cei_flows *flows = create();
	uint32_t slot = open_slot(flows, 1, 0);
	struct cei_flows_tally tally;

	cei_flows_count(flows, &link, slot, CEOV_URGENCY_URGENT, 5);
	cei_flows_count(flows, &link, slot, CEOV_URGENCY_URGENT, 6);
	cei_flows_count(flows, NULL, slot, CEOV_URGENCY_URGENT, 7);
	tally = cei_flows_read(flows, 3, slot, CEOV_URGENCY_URGENT);
	ck_assert_uint_eq(tally.bytes, 11);
	ck_assert_uint_eq(tally.n_chunks, 2);
	tally = cei_flows_read(flows, CEI_FLOWS_ALL_PORTS, slot, CEOV_URGENCY_URGENT);
	ck_assert_uint_eq(tally.bytes, 18);
	ck_assert_uint_eq(tally.n_chunks, 3);
	ck_assert_uint_eq(cei_flows_read(flows, 2, slot, CEOV_URGENCY_URGENT).n_chunks, 0);
	ck_assert_uint_eq(cei_flows_read(flows, 3, 0, CEOV_URGENCY_URGENT).n_chunks, 0);
	ck_assert_uint_eq(cei_flows_read(flows, 3, slot, CEOV_URGENCY_NORMAL).n_chunks, 0);
	ck_assert_uint_eq(cei_flows_read(flows, 4, slot, CEOV_URGENCY_URGENT).n_chunks, 0);
	ck_assert_uint_eq(cei_flows_read(flows, 3, CEI_FLOWS_SLOTS, 0).n_chunks, 0);
	ck_assert_uint_eq(cei_flows_read(flows, 3, slot, CEI_FLOWS_URGENCIES).n_chunks, 0);
	ck_assert_int_eq(cei_flows_close(flows, slot), 0);
	ck_assert_uint_eq(open_slot(flows, 1, 0), slot);
	ck_assert_uint_eq(cei_flows_read(flows, 3, slot, CEOV_URGENCY_URGENT).bytes, 0);
	cei_flows_destroy(flows);
}
END_TEST

static void *work(void *context)
{
	struct cei_flows *flows = context;
	uint32_t i;

	for (i = 0; i < ROUNDS; i++) {
		cei_flows_wait(flows, &link, i % 4);
		serve(flows, i % 4, 1000, i % 2);
		cei_flows_unwait(flows, &link, i % 4);
		cei_flows_count(flows, &link, i % 4 / CEI_FLOW_CLASSES, 0, 1);
		(void)cei_flows_lead(flows, &link, i % 4, NOW);
	}
	return NULL;
}

START_TEST(test_threads_lose_no_count)
{
	struct cei_flows *flows = create();
	pthread_t threads[THREADS];
	uint32_t i;

	ck_assert_uint_eq(open_slot(flows, 1, 0), 1);
	for (i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, work, flows), 0);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(cei_flows_read(flows, 1, 0, 0).bytes +
			  cei_flows_read(flows, 1, 1, 0).bytes, THREADS * ROUNDS);
	ck_assert_uint_eq(atomic_load(&flows->ports[3].n_waiting_all), 0);
	for (i = 0; i < 4; i++)
		ck_assert_uint_eq(atomic_load(&flows->ports[3].n_waiting[i]), 0);
	cei_flows_destroy(flows);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("flows");
	TCase *tests = tcase_create("clients");

	tcase_add_test(tests, test_slots_are_bounded_and_used_again);
	tcase_add_test(tests, test_bad_limits_and_slots_are_refused);
	tcase_add_test(tests, test_service_is_time_by_weight);
	tcase_add_test(tests, test_the_lead_is_beyond_those_that_wait);
	tcase_add_test(tests, test_who_is_held_up_catches_up_with_its_credit_alone);
	tcase_add_test(tests, test_urgent_jobs_add_to_a_lead_up_to_the_credit);
	tcase_add_test(tests, test_urgent_time_is_a_part);
	tcase_add_test(tests, test_weights_of_classes_can_be_set);
	tcase_add_test(tests, test_a_limit_is_kept_and_can_be_changed);
	tcase_add_test(tests, test_short_copies_count_for_more_at_a_limit);
	tcase_add_test(tests, test_the_shortest_job_of_the_heaviest_flow_counts);
	tcase_add_test(tests, test_lanes_without_ports_have_urgent_time_of_their_own);
	tcase_add_test(tests, test_counts_are_by_port_slot_and_urgency);
	tcase_add_test(tests, test_threads_lose_no_count);
	suite_add_tcase(suite, tests);
	return testing_run(suite);
}
