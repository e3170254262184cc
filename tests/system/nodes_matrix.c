/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Every fault between nodes at every phase of a group's life, again and again. Cases mostly sleep
 * until a timeout, so several run beside each other, each in namespaces of its own. At the end, and
 * when it is told to end (SIGTERM), it prints how often each case ran, and how often it went wrong;
 * a case that goes wrong says why at once, and the others go on.
 *
 * CEOVERLAP_TEST_NODES_ROUNDS (100), CEOVERLAP_TEST_NODES_BESIDE (8 cases at the same time) and
 * CEOVERLAP_TEST_NODES_SECONDS (no limit), after which no case begins; CEOVERLAP_TEST_NODES_CASE,
 * one case alone, as the table calls it ("killed, busy"); CEOVERLAP_TEST_SEED.
 */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "system/bootstrap_fixture.h"
#include "system/node_attempts.h"
#include "system/node_cell.h"
#include "testing.h"

#define BESIDE_MAX   64u
#define CASE_SECONDS 120u               /* a case that takes longer is killed, and is wrong */

struct tally {                          /* of a case */
	uint32_t n_run;
	uint32_t n_wrong;
	uint32_t n_failures;            /* where the survivor had one */
	uint32_t n_aborted;
	uint32_t n_stalled;
	uint64_t failed_ms;             /* the longest */
	uint64_t closed_ms;             /* likewise */
};

struct running {
	pid_t      pid;                 /* 0: none */
	enum fault fault;
	enum phase phase;
	uint64_t   until_ns;
};

static struct {
	struct tally             tallies[FAULTS][PHASES];
	struct running           running[BESIDE_MAX];
	struct node_cell_result *results;       /* in shared memory, by index in running */
	uint32_t                 n_beside;
	uint32_t                 n_rounds;
	uint32_t                 next;          /* how many cases have begun, those too that are not
						 * there */
	uint64_t                 until_ns;
} matrix;

static volatile sig_atomic_t must_end;

static void take_signal(int number)
{
	(void)number;
	must_end = 1;
}

static uint32_t number_in(const char *name, uint32_t otherwise)
{
	const char *text = getenv(name);

	return text ? (uint32_t)atoi(text) : otherwise;
}

/* --- one case ------------------------------------------------------------------------------- */

static void run_case(const struct running *running, uint32_t round,
		     struct node_cell_result *ret_result)
{
	signal(SIGTERM, SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	node_attempts_run(running->fault, running->phase, round, ret_result);
	_exit(0);
}

static void begin_case(uint32_t place, uint32_t number)
{
	struct running *running = &matrix.running[place];

	running->fault = (enum fault)(number / PHASES % FAULTS);
	running->phase = (enum phase)(number % PHASES);
	running->until_ns = cei_deadline(CASE_SECONDS * TESTING_SECOND);
	fflush(NULL);
	running->pid = fork();
	ck_assert_int_ge(running->pid, 0);
	if (!running->pid)
		run_case(running, number / PHASES / FAULTS, &matrix.results[place]);
}

static void count(const struct running *running, const struct node_cell_result *result, int status)
{
	struct tally *tally = &matrix.tallies[running->fault][running->phase];

	tally->n_run++;
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		tally->n_wrong++;
		printf("WRONG: %s, %s: status 0x%x\n", fault_names[running->fault],
		       phase_names[running->phase], (unsigned)status);
		return;
	}
	tally->n_failures += result->error != 0;
	tally->n_aborted += result->n_aborted;
	tally->n_stalled += result->n_stalled;
	if (tally->failed_ms < result->failed_ms)
		tally->failed_ms = result->failed_ms;
	if (tally->closed_ms < result->closed_ms)
		tally->closed_ms = result->closed_ms;
}

/* Looks whether a case has ended. */
static void look(uint32_t place)
{
	struct running *running = &matrix.running[place];
	int status = 0;
	pid_t ended;

	if (cei_now_ns() > running->until_ns)
		kill(running->pid, SIGKILL);
	ended = waitpid(running->pid, &status, WNOHANG);
	if (!ended || (ended < 0 && errno == EINTR))
		return;
	ck_assert_int_eq(ended, running->pid);
	running->pid = 0;
	count(running, &matrix.results[place], status);
}

/* Whether this case is to run. */
static int is_wanted(enum fault fault, enum phase phase)
{
	const char *only = getenv("CEOVERLAP_TEST_NODES_CASE");
	char name[64];

	snprintf(name, sizeof(name), "%s, %s", fault_names[fault], phase_names[phase]);
	return node_cell_is_there(fault, phase) && (!only || !strcmp(only, name));
}

/* --- all of them ------------------------------------------------------------------------------ */

/* The number of the next case; UINT32_MAX: there is none. */
static uint32_t next_case(void)
{
	uint32_t number;

	while (!must_end && cei_now_ns() < matrix.until_ns &&
	       matrix.next < matrix.n_rounds * FAULTS * PHASES) {
		number = matrix.next++;
		if (is_wanted((enum fault)(number / PHASES % FAULTS),
			      (enum phase)(number % PHASES)))
			return number;
	}
	return UINT32_MAX;
}

static void run_all(void)
{
	uint32_t place, number = 0, n_running = 1;

	while (n_running) {
		n_running = 0;
		for (place = 0; place < matrix.n_beside; place++) {
			if (matrix.running[place].pid)
				look(place);
			if (!matrix.running[place].pid && (number = next_case()) != UINT32_MAX)
				begin_case(place, number);
			n_running += matrix.running[place].pid != 0;
		}
		pause_ms(5);
	}
}

/* Returns how many have gone wrong. */
static uint32_t print_all(void)
{
	uint32_t fault, phase, n_wrong = 0;
	const struct tally *tally;

	printf("%-26s %-8s %6s %6s %8s %10s %10s %7s %8s\n", "fault", "phase", "rounds",
	       "wrong", "failures", "failed ms", "closed ms", "aborts", "repeated");
	for (fault = 0; fault < FAULTS; fault++) {
		for (phase = 0; phase < PHASES; phase++) {
			tally = &matrix.tallies[fault][phase];
			n_wrong += tally->n_wrong;
			if (is_wanted((enum fault)fault, (enum phase)phase))
				printf("%-26s %-8s %6u %6u %8u %10llu %10llu %7u %8u\n",
				       fault_names[fault], phase_names[phase], tally->n_run,
				       tally->n_wrong, tally->n_failures,
				       (unsigned long long)tally->failed_ms,
				       (unsigned long long)tally->closed_ms, tally->n_aborted,
				       tally->n_stalled);
		}
	}
	fflush(NULL);
	return n_wrong;
}

static uint32_t n_run(void)
{
	uint32_t fault, phase, n = 0;

	for (fault = 0; fault < FAULTS; fault++)
		for (phase = 0; phase < PHASES; phase++)
			n += matrix.tallies[fault][phase].n_run;
	return n;
}

START_TEST(test_each_fault_at_each_phase)
{
	uint32_t seconds = number_in("CEOVERLAP_TEST_NODES_SECONDS", 0);

	signal(SIGTERM, take_signal);
	matrix.n_rounds = number_in("CEOVERLAP_TEST_NODES_ROUNDS", 100);
	matrix.n_beside = number_in("CEOVERLAP_TEST_NODES_BESIDE", 8);
	ck_assert_uint_ge(matrix.n_beside, 1);
	ck_assert_uint_le(matrix.n_beside, BESIDE_MAX);
	matrix.until_ns = seconds ? cei_deadline(seconds * TESTING_SECOND) : CEI_FOREVER;
	matrix.results = mmap(NULL, BESIDE_MAX * sizeof(*matrix.results), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(matrix.results, MAP_FAILED);
	run_all();
	ck_assert_uint_eq(print_all(), 0);
	ck_assert_msg(n_run(), "no case has this name, or there was no time for any");
	ck_assert(is_directory_empty());
	munmap(matrix.results, BESIDE_MAX * sizeof(*matrix.results));
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_set_timeout(tcase, 14400);
	tcase_add_test(tcase, test_each_fault_at_each_phase);
}

int main(void)
{
	const char *why = node_cell_lacks();
	char text[32];

	if (why) {
		printf("skipped: %s\n", why);
		return 77;
	}
	snprintf(text, sizeof(text), "%llu", (unsigned long long)(cei_now_ns() / 1000));
	setenv("CEOVERLAP_TEST_SEED", text, 0);
	printf("CEOVERLAP_TEST_SEED=%s\n", getenv("CEOVERLAP_TEST_SEED"));
	return run_suite("matrix of faults between nodes", add_tests);
}
