/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Faults between nodes that are network namespaces: every kind of fault at every phase of a group's
 * life. Each case must end within its deadline, name the rank that was lost, call nothing done that
 * is not, and leave nothing; then the group opens again.
 *
 * CEOVERLAP_TEST_NODES_FAULT and CEOVERLAP_TEST_NODES_PHASE run those of one number only;
 * CEOVERLAP_TEST_SHOW shows all log lines.
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "system/bootstrap_fixture.h"
#include "system/node_attempts.h"
#include "system/node_cell.h"
#include "testing.h"

static enum phase phase_now;

static void run_fault(uint32_t fault)
{
	struct node_cell_result result;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	node_attempts_run((enum fault)fault, phase_now, 0, &result);
	_exit(0);
}

static uint32_t number_in(const char *name, uint32_t otherwise)
{
	const char *text = getenv(name);

	return text ? (uint32_t)atoi(text) : otherwise;
}

static int is_wanted(enum fault fault, enum phase phase)
{
	return node_cell_is_there(fault, phase) &&
		number_in("CEOVERLAP_TEST_NODES_FAULT", fault) == fault &&
		number_in("CEOVERLAP_TEST_NODES_PHASE", phase) == phase;
}

/* All faults at one phase, beside each other. */
static void run_phase(enum phase phase)
{
	uint32_t fault;

	phase_now = phase;
	for (fault = 0; fault < FAULTS; fault++)
		if (is_wanted((enum fault)fault, phase))
			start(run_fault, fault);
	assert_all_end_well();
	ck_assert(is_directory_empty());
}

START_TEST(test_faults_while_processes_meet)
{
	run_phase(IN_MEETING);
}
END_TEST

START_TEST(test_faults_of_idle_groups)
{
	run_phase(IN_IDLE);
}
END_TEST

START_TEST(test_faults_while_data_are_under_way)
{
	run_phase(IN_BUSY);
}
END_TEST

START_TEST(test_faults_while_groups_close)
{
	run_phase(IN_CLOSING);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_set_timeout(tcase, 180);        /* some may run three times */
	tcase_add_test(tcase, test_faults_while_processes_meet);
	tcase_add_test(tcase, test_faults_of_idle_groups);
	tcase_add_test(tcase, test_faults_while_data_are_under_way);
	tcase_add_test(tcase, test_faults_while_groups_close);
}

static void choose_seed(void)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)(cei_now_ns() / 1000));
	setenv("CEOVERLAP_TEST_SEED", text, 0);
	printf("CEOVERLAP_TEST_SEED=%s\n", getenv("CEOVERLAP_TEST_SEED"));
}

int main(void)
{
	const char *why = node_cell_lacks();

	if (why) {
		printf("skipped: %s\n", why);
		return 77;
	}
	choose_seed();
	return run_suite("nodes in namespaces", add_tests);
}
