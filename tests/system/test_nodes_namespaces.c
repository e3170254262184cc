/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Faults between nodes that are network namespaces with two network interfaces each: every kind
 * of fault at every phase of a group's life. Each case must end within its deadline, name the rank
 * that was lost, call nothing done that is not, and leave nothing; then the group opens again.
 *
 * CEOVERLAP_TEST_NODES_ROUNDS=100 runs each case that often instead of once;
 * CEOVERLAP_TEST_NODES_FAULT and CEOVERLAP_TEST_NODES_PHASE run those of one number only;
 * CEOVERLAP_TEST_SHOW shows all log lines.
 */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "system/bootstrap_fixture.h"
#include "system/namespaces.h"
#include "system/node_cell.h"
#include "testing.h"

#include "config.h"

static enum phase phase_now;
static uint32_t number_now;

static void run_fault(uint32_t fault)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	node_cell_run((enum fault)fault, phase_now, number_now);
	_exit(0);
}

static uint32_t number_in(const char *name, uint32_t otherwise)
{
	const char *text = getenv(name);

	return text ? (uint32_t)atoi(text) : otherwise;
}

/* Whether the case is there, and wanted. */
static int is_case(enum fault fault, enum phase phase)
{
	return (fault != FAULT_VERSION || phase == IN_MEETING) &&
		number_in("CEOVERLAP_TEST_NODES_FAULT", fault) == fault &&
		number_in("CEOVERLAP_TEST_NODES_PHASE", phase) == phase;
}

/* All faults at one phase, beside each other. */
static void run_phase(enum phase phase)
{
	uint32_t fault, n_rounds = number_in("CEOVERLAP_TEST_NODES_ROUNDS", 1);

	phase_now = phase;
	for (number_now = 0; number_now < n_rounds; number_now++) {
		for (fault = 0; fault < FAULTS; fault++)
			if (is_case((enum fault)fault, phase))
				start(run_fault, fault);
		assert_all_end_well();
		ck_assert(is_directory_empty());
	}
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
	tcase_set_timeout(tcase, 60 * (int)number_in("CEOVERLAP_TEST_NODES_ROUNDS", 1));
	tcase_add_test(tcase, test_faults_while_processes_meet);
	tcase_add_test(tcase, test_faults_of_idle_groups);
	tcase_add_test(tcase, test_faults_while_data_are_under_way);
	tcase_add_test(tcase, test_faults_while_groups_close);
}

/* Turns the leak check of an address sanitizer off: it crashes in processes that UCX runs in. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}

struct look {                           /* at what this machine has */
	char     lacks[200];            /* "": nothing */
	unsigned minor;                 /* of UCX's version */
};

/* In a child, so that this process and those that it forks begin without UCX and namespaces. */
static void look_in_child(struct look *ret_look)
{
	void (*version)(unsigned *, unsigned *, unsigned *);
	void *ucx = dlopen("libucp.so.0", RTLD_LAZY | RTLD_LOCAL);
	struct namespaces nodes;
	unsigned major, release;
	const char *why;

	if (!ucx)
		return;
	*(void **)(&version) = dlsym(ucx, "ucp_get_version");
	if (version)
		version(&major, &ret_look->minor, &release);
	why = namespaces_open(&nodes, 2);
	if (!why)
		namespaces_close(&nodes);
	snprintf(ret_look->lacks, sizeof(ret_look->lacks), "%s", why ? why : "");
}

static struct look look_at_machine(void)
{
	struct look *shared_look, look = { "there is no UCX", 0 };
	pid_t child;

	shared_look = mmap(NULL, sizeof(look), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared_look == MAP_FAILED)
		return look;
	*shared_look = look;
	child = HAVE_UCX ? fork() : -1;
	if (!child) {
		look_in_child(shared_look);
		_exit(0);
	}
	if (child > 0)
		(void)waitpid(child, NULL, 0);
	look = *shared_look;
	munmap(shared_look, sizeof(look));
	return look;
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
	struct look look = look_at_machine();

	if (look.lacks[0]) {
		printf("skipped: %s\n", look.lacks);
		return 77;
	}
	node_cell_ucx_aborts = look.minor < 14;
	choose_seed();
	return run_suite("nodes in namespaces", add_tests);
}
