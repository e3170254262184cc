/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Two nodes that are network namespaces, whose group opens, is struck under load, and opens again,
 * a thousand times:
 *
 *   open   nothing strikes; the group closes in order
 *   kill   a process is killed; another one takes its place
 *   stop   a process is stopped until the other has given it up; what it sends when it goes on
 *          changes no byte
 *
 * Each cycle must see a right transfer and leave nothing. CEOVERLAP_TEST_NODES_CYCLES is another
 * number of cycles, CEOVERLAP_TEST_NODES_KIND one of these three alone,
 * CEOVERLAP_TEST_NODES_KIB what a rank sends in a pass (128), and CEOVERLAP_TEST_SEED repeats a
 * run.
 */

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
#include "system/node_life.h"
#include "testing.h"

#define NODES         2u
#define TIMEOUT_MS    UINT64_C(1000)    /* peer_timeout */
#define SHORT_MS      UINT64_C(250)     /* and where each cycle has to wait for it */
#define PATIENCE_S    30u
#define N_KINDS       3u

enum kind { AT_OPEN, AT_KILL, AT_STOP };

static const char *const kind_names[N_KINDS] = { "open", "kill", "stop" };

struct memory {                         /* shared by all processes */
	struct life_shared shared;
	struct life        lives[NODES];
	_Atomic uint32_t   cycle;       /* which one the processes are to run; 0: none yet */
};

struct torture {
	enum kind         kind;
	uint32_t          n_cycles;
	uint64_t          random;
	struct namespaces nodes;
	struct memory    *memory;
	pid_t             pids[NODES];
	uint32_t          n_fds[NODES]; /* of the process, after its first cycle; 0: none yet */
	uint64_t          n_passes;
	uint64_t          n_uncertain;
	uint64_t          slowest_ms;   /* from the fault to the failure */
};

static uint32_t cycle_of(struct memory *memory)
{
	/* acquire: pairs with begin_cycle() */
	return atomic_load_explicit(&memory->cycle, memory_order_acquire);
}

/* --- processes ---------------------------------------------------------------------------- */

static uint64_t n_bytes(void)
{
	const char *text = getenv("CEOVERLAP_TEST_NODES_KIB");

	return (text ? strtoull(text, NULL, 10) : 128) << 10;
}

static struct life_plan plan_of(struct torture *torture, uint32_t node)
{
	struct life_plan plan = {
		.shared = &torture->memory->shared,
		.life = &torture->memory->lives[node],
		.folder = directory,
		.node = node,
		.n_nodes = NODES,
		.timeout_ns = (torture->kind == AT_STOP ? SHORT_MS : TIMEOUT_MS) * TESTING_MS,
		.open_ms = LIFE_CALL_MS,
		.n_bytes = n_bytes(),
		.n_passes = torture->kind == AT_OPEN ? 3 : LIFE_FOREVER,
	};

	return plan;
}

static void run_node(struct torture *torture, uint32_t node, uint32_t first)
{
	struct life_plan plan = plan_of(torture, node);
	uint32_t cycle;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (namespaces_join(&torture->nodes, node))
		_exit(97);
	for (cycle = first; cycle <= torture->n_cycles; cycle++) {
		while (cycle_of(torture->memory) < cycle)
			pause_ms(1);
		life_run(&plan);
	}
	fflush(NULL);
	_exit(0);
}

static void start_node(struct torture *torture, uint32_t node, uint32_t first)
{
	fflush(NULL);
	torture->n_fds[node] = 0;
	torture->pids[node] = fork();
	if (!torture->pids[node])
		run_node(torture, node, first);
}

/* --- cycles --------------------------------------------------------------------------------- */

__attribute__((noreturn)) static void give_up_cycle(const struct torture *torture, uint32_t cycle,
						     const char *what)
{
	const struct life *life;
	uint32_t node;
	int status;

	printf("%s, cycle %u: %s\n", kind_names[torture->kind], cycle, what);
	for (node = 0; node < NODES; node++) {
		if (waitpid(torture->pids[node], &status, WNOHANG) == torture->pids[node])
			printf("  the process on node %u has ended with status %#x\n", node,
			       (unsigned)status);
		life = &torture->memory->lives[node];
		printf("  node %u: stage %u, %llu passes, error %d, rank %u, %llu wrong, %llu "
		       "late, %u descriptors, %u threads: %s\n", node, life->stage,
		       (unsigned long long)life->n_passes, life->error, life->blamed,
		       (unsigned long long)life->n_wrong, (unsigned long long)life->n_late,
		       life->n_fds, life->n_threads, life->text);
	}
	fflush(NULL);
	exit(1);
}

static void await(struct torture *torture, uint32_t cycle, uint32_t node, enum life_stage stage)
{
	uint64_t deadline_ns = cei_deadline(PATIENCE_S * TESTING_SECOND);
	struct life *life = &torture->memory->lives[node];

	/* acquire, both: pair with reach() and note() of the node's process */
	while (atomic_load_explicit(&life->stage, memory_order_acquire) < stage) {
		if (cei_now_ns() > deadline_ns)
			give_up_cycle(torture, cycle, "a process does not come on");
		if (stage == LIFE_READY &&
		    atomic_load_explicit(&life->error, memory_order_acquire))
			give_up_cycle(torture, cycle, "a group does not open or transfer");
		usleep(200);
	}
}

/* Waits until the survivor has been told. */
static void await_failure(struct torture *torture, uint32_t cycle, uint32_t node, uint64_t from_ns)
{
	struct life *life = &torture->memory->lives[node];
	uint64_t deadline_ns = cei_deadline(PATIENCE_S * TESTING_SECOND), ms;

	while (!atomic_load_explicit(&life->error, memory_order_acquire)) {
		if (cei_now_ns() > deadline_ns)
			give_up_cycle(torture, cycle, "the survivor is told nothing");
		usleep(200);
	}
	if (life->blamed / LIFE_RANKS == node)
		give_up_cycle(torture, cycle, "the failure names the wrong rank");
	ms = life->failed_ns > from_ns ? (life->failed_ns - from_ns) / TESTING_MS : 0;
	if (ms > torture->slowest_ms)
		torture->slowest_ms = ms;
	torture->n_uncertain += life->error == CEOV_ERR_UNCERTAIN;
}

static void strike(struct torture *torture, uint32_t cycle)
{
	uint32_t victim = (uint32_t)testing_below(&torture->random, NODES);
	uint64_t from_ns;

	usleep((useconds_t)testing_below(&torture->random, 20000));
	from_ns = cei_now_ns();
	if (torture->kind == AT_KILL) {
		kill(torture->pids[victim], SIGKILL);
		(void)waitpid(torture->pids[victim], NULL, 0);
	} else {
		testing_stop(torture->pids[victim]);
	}
	await_failure(torture, cycle, !victim, from_ns);
	if (torture->kind == AT_STOP)
		kill(torture->pids[victim], SIGCONT);
	/* release: pairs with the acquire of the nodes' processes */
	atomic_store_explicit(&torture->memory->shared.is_mended, 1, memory_order_release);
	await(torture, cycle, !victim, LIFE_ENDED);
	if (torture->kind == AT_KILL)
		start_node(torture, victim, cycle + 1);
	else
		await(torture, cycle, victim, LIFE_ENDED);
}

static void check(struct torture *torture, uint32_t cycle, uint32_t node)
{
	const struct life *life = &torture->memory->lives[node];

	if (life->stage != LIFE_ENDED)
		return;                 /* it was killed */
	if (torture->kind == AT_OPEN && life->error)
		give_up_cycle(torture, cycle, "a call has failed without a fault");
	if (life->n_wrong || life->n_late)
		give_up_cycle(torture, cycle, "wrong bytes");
	if (life->error && !life->n_looks)
		give_up_cycle(torture, cycle, "nobody has looked for late bytes");
	if (life->n_threads != 1 || life->n_stuck || life->is_unsaid)
		give_up_cycle(torture, cycle, "something is left");
	if (torture->n_fds[node] && torture->n_fds[node] != life->n_fds)
		give_up_cycle(torture, cycle, "descriptors are left");
	torture->n_fds[node] = life->n_fds;
	torture->n_passes += life->n_passes;
}

static void run_cycle(struct torture *torture, uint32_t cycle)
{
	struct memory *memory = torture->memory;
	uint32_t node;

	memset(&memory->shared, 0, sizeof(memory->shared));
	memset(memory->lives, 0, sizeof(memory->lives));
	/* release: pairs with cycle_of() */
	atomic_store_explicit(&memory->cycle, cycle, memory_order_release);
	for (node = 0; node < NODES; node++)
		await(torture, cycle, node, LIFE_READY);
	if (torture->kind != AT_OPEN)
		strike(torture, cycle);
	for (node = 0; node < NODES; node++) {
		if (torture->kind != AT_KILL)
			await(torture, cycle, node, LIFE_ENDED);
		check(torture, cycle, node);
	}
	if (!is_directory_empty())
		give_up_cycle(torture, cycle, "files are left");
}

static void run_kind(struct torture *torture)
{
	uint64_t began_ns = cei_now_ns();
	uint32_t cycle, node;

	torture->n_passes = torture->n_uncertain = torture->slowest_ms = 0;
	atomic_store(&torture->memory->cycle, 0);
	for (node = 0; node < NODES; node++)
		start_node(torture, node, 1);
	for (cycle = 1; cycle <= torture->n_cycles; cycle++)
		run_cycle(torture, cycle);
	for (node = 0; node < NODES; node++) {
		kill(torture->pids[node], SIGKILL);
		(void)waitpid(torture->pids[node], NULL, 0);
	}
	printf("%s: %u cycles, %llu passes checked, 0 wrong, 0 late bytes, %llu of the failures "
	       "uncertain, told after %llu ms at most, %.0f s\n", kind_names[torture->kind],
	       torture->n_cycles, (unsigned long long)torture->n_passes,
	       (unsigned long long)torture->n_uncertain, (unsigned long long)torture->slowest_ms,
	       (double)(cei_now_ns() - began_ns) / 1e9);
	fflush(NULL);
}

static uint32_t n_cycles(void)
{
	const char *text = getenv("CEOVERLAP_TEST_NODES_CYCLES");

	return text ? (uint32_t)atoi(text) : 1000;
}

static int is_wanted(enum kind kind)
{
	const char *only = getenv("CEOVERLAP_TEST_NODES_KIND");

	return !only || !strcmp(only, kind_names[kind]);
}

static void torture_by(enum kind kind)
{
	struct torture torture = { .kind = kind, .n_cycles = n_cycles() };
	const char *why;

	torture.random = testing_seed();
	torture.memory = mmap(NULL, sizeof(*torture.memory), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(torture.memory, MAP_FAILED);
	why = namespaces_open(&torture.nodes, NODES);
	ck_assert_msg(!why, "%s", why);
	run_kind(&torture);
	namespaces_close(&torture.nodes);
	munmap(torture.memory, sizeof(*torture.memory));
}

START_TEST(test_groups_open_again_and_again)
{
	torture_by(AT_OPEN);
}
END_TEST

START_TEST(test_groups_open_again_after_kills)
{
	torture_by(AT_KILL);
}
END_TEST

START_TEST(test_no_byte_comes_late)
{
	torture_by(AT_STOP);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_set_timeout(tcase, 7200);
	if (is_wanted(AT_OPEN))
		tcase_add_test(tcase, test_groups_open_again_and_again);
	if (is_wanted(AT_KILL))
		tcase_add_test(tcase, test_groups_open_again_after_kills);
	if (is_wanted(AT_STOP))
		tcase_add_test(tcase, test_no_byte_comes_late);
}

int main(void)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)(cei_now_ns() / 1000));
	setenv("CEOVERLAP_TEST_SEED", text, 0);
	printf("CEOVERLAP_TEST_SEED=%s\n", getenv("CEOVERLAP_TEST_SEED"));
	return run_suite("nodes under torture", add_tests);
}
