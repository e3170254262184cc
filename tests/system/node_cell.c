/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* One case of the faults between nodes: a group's life, the fault, the verdict, another life. */

#include "system/node_cell.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "conformance/ucx_aborts.h"
#include "system/bootstrap_fixture.h"
#include "system/node_life.h"
#include "testing.h"

#include "config.h"

#define TIMEOUT_MS   UINT64_C(1000)     /* peer_timeout of the groups */
#define OPEN_MS      UINT64_C(2500)
#define CLOSE_MS     UINT64_C(4000)     /* a close ends within it */
#define STALL_MS     (TIMEOUT_MS / 4)   /* what deadlines leave for the machine */
#define SLOW_MEGABIT 100u
#define OTHER_VERSION 4242u
#define N_BYTES      (UINT64_C(256) << 10)
#define LIVES        2u

const char *const fault_names[FAULTS] = {
	"killed", "stopped", "cable pulled", "hears nothing", "slow network", "another version",
};
const char *const phase_names[PHASES] = { "meeting", "idle", "busy", "closing" };

struct memory {                         /* shared by the processes of a case */
	struct life_shared shared;
	struct life        lives[LIVES][NAMESPACES_MAX];
};

struct cell {                           /* a case: a process with its nodes */
	enum fault        fault;
	enum phase        phase;
	uint32_t          victim;       /* a node */
	uint32_t          n_nodes;
	uint64_t          random;
	char              folder[112];
	struct namespaces nodes;
	struct memory    *memory;
	pid_t             pids[NAMESPACES_MAX];
	int               is_aborted[NAMESPACES_MAX];   /* by UCX before 1.14 */
	uint64_t          struck_ns;
	uint64_t          stalled_ns;   /* the longest sleep of a millisecond */
	uint64_t          locked_ns;    /* the longest question about a network interface */
};

/* Ends the case's process with a message if the condition does not hold. */
#define expect(cell, condition) \
	do { \
		if (!(condition)) \
			fail_cell(cell, __LINE__, #condition); \
	} while (0)

static void print_life(const struct cell *cell, uint32_t which, uint32_t node)
{
	const struct life *life = &cell->memory->lives[which][node];

	fprintf(stderr, "  life %u of node %u: failed at %llu ms, stage %u, %llu passes, sent "
		"%llu %llu, come %llu %llu, error %d, rank %u, closed in %llu ms, %u descriptors, "
		"%u threads: %s\n",
		which, node, (unsigned long long)(life->failed_ns / TESTING_MS % 100000000),
		life->stage, (unsigned long long)life->n_passes,
		(unsigned long long)life->n_sent[0], (unsigned long long)life->n_sent[1],
		(unsigned long long)life->n_come[0], (unsigned long long)life->n_come[1],
		life->error, life->blamed, (unsigned long long)(life->close_ns / TESTING_MS),
		life->n_fds, life->n_threads, life->text);
}

/* The deadlines of a case hold on a machine that lets it run. The kernel makes and removes network
 * namespaces, those of other cases too, under one lock, and UCX's questions about an interface wait
 * for that lock in the threads of rails. */
static int has_stalled(const struct cell *cell)
{
	return cell->stalled_ns >= STALL_MS * TESTING_MS ||
		cell->locked_ns >= STALL_MS * TESTING_MS;
}

__attribute__((noreturn)) static void fail_cell(const struct cell *cell, int line,
						 const char *condition)
{
	uint32_t which, node;

	fprintf(stderr, "%s, %s, node %u, line %d: %s\n", fault_names[cell->fault],
		phase_names[cell->phase], cell->victim, line, condition);
	fprintf(stderr, "  struck at %llu ms, now %llu ms; this process slept up to %llu ms "
		"instead of 1, and a question about a network interface took up to %llu ms\n",
		(unsigned long long)(cell->struck_ns / TESTING_MS % 100000000),
		(unsigned long long)(cei_now_ns() / TESTING_MS % 100000000),
		(unsigned long long)(cell->stalled_ns / TESTING_MS),
		(unsigned long long)(cell->locked_ns / TESTING_MS));
	for (which = 0; which < LIVES; which++)
		for (node = 0; node < cell->n_nodes; node++)
			print_life(cell, which, node);
	_exit(has_stalled(cell) ? NODE_CELL_STALLED : NODE_CELL_WRONG);
}

static int ucx_aborts;          /* this version does, see is_gone() */

/* --- processes of nodes ------------------------------------------------------------------ */

static int reached(_Atomic uint32_t *word, uint32_t value)
{
	/* acquire: pairs with the release of the node's process */
	return atomic_load_explicit(word, memory_order_acquire) >= value;
}

static void set(_Atomic uint32_t *word)
{
	/* release: pairs with the acquire of the nodes' processes */
	atomic_store_explicit(word, 1, memory_order_release);
}

static struct life_plan plan_of(struct cell *cell, uint32_t node, uint32_t which)
{
	struct life_plan plan = {
		.shared = &cell->memory->shared,
		.life = &cell->memory->lives[which][node],
		.folder = cell->folder,
		.node = node,
		.n_nodes = cell->n_nodes,
		.timeout_ns = TIMEOUT_MS * TESTING_MS,
		.open_ms = which ? LIFE_CALL_MS : OPEN_MS,
		.n_bytes = N_BYTES,
		.n_passes = which ? 2 : LIFE_FOREVER,
		.pause_ms = 1,
		.by_callback = cell->fault == FAULT_VERSION,
	};

	if (which)
		return plan;
	if (cell->fault == FAULT_SLOW || cell->phase == IN_CLOSING)
		plan.n_passes = 8;
	plan.waits = cell->phase == IN_IDLE;
	plan.holds_close = cell->phase == IN_CLOSING;
	if (cell->fault == FAULT_VERSION && node == cell->victim)
		plan.record_version = OTHER_VERSION;
	return plan;
}

/* A process that was there from the first life on lives a second one. */
static void run_node(struct cell *cell, uint32_t node, uint32_t which)
{
	struct life_plan plan;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	expect(cell, !namespaces_join(&cell->nodes, node));
	for (; which < LIVES; which++) {
		while (which && !reached(&cell->memory->shared.is_again, 1))
			pause_ms(1);
		plan = plan_of(cell, node, which);
		life_run(&plan);
	}
	fflush(NULL);
	_exit(0);
}

static void start_node(struct cell *cell, uint32_t node, uint32_t which)
{
	fflush(NULL);
	cell->pids[node] = fork();
	expect(cell, cell->pids[node] >= 0);
	if (!cell->pids[node])
		run_node(cell, node, which);
}

/* Whether the process has ended before its time: the fault has killed it, or UCX has. Before 1.14,
 * UCX aborts a process by an assertion when it closes a connection whose other side is lost
 * between the two messages by which UCX makes it. */
static int is_gone(struct cell *cell, uint32_t node)
{
	int status;

	if (cell->fault == FAULT_KILL && node == cell->victim)
		return 1;
	if (cell->is_aborted[node] || cell->phase != IN_MEETING || !ucx_aborts)
		return cell->is_aborted[node];
	if (waitpid(cell->pids[node], &status, WNOHANG) != cell->pids[node])
		return 0;
	expect(cell, WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	printf("UCX has aborted the process on node %u, which it does before 1.14\n", node);
	cell->is_aborted[node] = 1;
	return 1;
}

/* Sleeps between two looks at the others, and measures how long the machine takes. */
static void rest(struct cell *cell)
{
	uint64_t began_ns = cei_now_ns(), slept_ns, asked_ns;

	pause_ms(1);
	slept_ns = cei_now_ns() - began_ns;
	if (cell->stalled_ns < slept_ns)
		cell->stalled_ns = slept_ns;
	asked_ns = namespaces_ask();
	if (cell->locked_ns < asked_ns)
		cell->locked_ns = asked_ns;
}

/* Waits until the node's life has come to the stage. Returns 0 if its process is gone. */
static int await_stage(struct cell *cell, uint32_t which, uint32_t node, enum life_stage stage)
{
	uint64_t deadline_ns = cei_deadline(TESTING_PATIENCE);

	while (!reached(&cell->memory->lives[which][node].stage, stage)) {
		if (!which && is_gone(cell, node))
			return 0;
		expect(cell, cei_now_ns() < deadline_ns && "a stage is reached");
		rest(cell);
	}
	return 1;
}

/* --- faults -------------------------------------------------------------------------------- */

static void strike(struct cell *cell)
{
	uint32_t node = cell->victim;

	if (cell->fault == FAULT_KILL) {
		expect(cell, !kill(cell->pids[node], SIGKILL));
		expect(cell, waitpid(cell->pids[node], NULL, 0) == cell->pids[node]);
	} else if (cell->fault == FAULT_STOP) {
		testing_stop(cell->pids[node]);
	} else if (cell->fault == FAULT_CABLE) {
		namespaces_plug(&cell->nodes, node, 0);
	} else if (cell->fault == FAULT_DEAF) {
		namespaces_deafen(&cell->nodes, node);
	} else if (cell->fault == FAULT_SLOW) {
		namespaces_limit(&cell->nodes, node, SLOW_MEGABIT);
	}
	cell->struck_ns = cei_now_ns(); /* commands that change a cable may take their time */
	set(&cell->memory->shared.is_struck);
	set(&cell->memory->shared.may_close);
}

static void mend(struct cell *cell)
{
	uint32_t node = cell->victim;

	if (cell->fault == FAULT_STOP)
		expect(cell, !kill(cell->pids[node], SIGCONT));
	else if (cell->fault == FAULT_CABLE)
		namespaces_plug(&cell->nodes, node, 1);
	else if (cell->fault == FAULT_DEAF || cell->fault == FAULT_SLOW)
		namespaces_unlimit(&cell->nodes, node);
	set(&cell->memory->shared.is_mended);
}

/* Waits for the moment of the fault. */
static void await_moment(struct cell *cell)
{
	uint32_t node, n_passes = 2 + (uint32_t)testing_below(&cell->random, 20);
	struct life *life = cell->memory->lives[0];
	uint64_t deadline_ns = cei_deadline(TESTING_PATIENCE);

	if (cell->phase == IN_MEETING) {
		usleep((useconds_t)testing_below(&cell->random, 60000));
		return;
	}
	for (node = 0; node < cell->n_nodes; node++)
		(void)await_stage(cell, 0, node, LIFE_READY);
	if (cell->phase == IN_BUSY && cell->fault != FAULT_SLOW)
		while (atomic_load(&life[cell->victim].n_passes) < n_passes)
			expect(cell, cei_now_ns() < deadline_ns);
	if (cell->phase == IN_CLOSING) {
		for (node = 0; node < cell->n_nodes; node++)
			(void)await_stage(cell, 0, node, LIFE_CLOSING);
		if (testing_below(&cell->random, 2))
			set(&cell->memory->shared.may_close);
	}
	if (cell->phase != IN_IDLE)
		usleep((useconds_t)testing_below(&cell->random, 2000));
}

/* --- verdicts -------------------------------------------------------------------------------- */

/* The fault has taken the process, or holds it. */
static int is_out(const struct cell *cell, uint32_t node)
{
	return (cell->fault == FAULT_KILL || cell->fault == FAULT_STOP) && node == cell->victim;
}

/* From the fault on. Silence is measured by the timeout, and noticed up to a tenth of it later. Who
 * hears nothing gives up so, and then is silent itself. The quarter is for the machine. */
static uint64_t deadline_ms(const struct cell *cell)
{
	const uint64_t n_silences = cell->fault == FAULT_DEAF ? 2 : 1;
	const uint64_t silence_ms = n_silences * (TIMEOUT_MS + TIMEOUT_MS / 10) + TIMEOUT_MS / 4;

	if (cell->phase == IN_MEETING)
		return OPEN_MS + silence_ms;            /* opened at its deadline, then lost */
	return cell->fault == FAULT_KILL ? TIMEOUT_MS : silence_ms;
}

static int names(const struct life *life, uint32_t node)
{
	char rank[32], process[32];

	snprintf(process, sizeof(process), "process %u", node);
	snprintf(rank, sizeof(rank), "rank %u", node * LIFE_RANKS);
	return life->blamed / LIFE_RANKS == node || strstr(life->text, process) ||
		strstr(life->text, rank);
}

/* What the sender calls done has been checked by the receiver, or is in its memory. */
static void check_done(struct cell *cell)
{
	uint32_t node, i;

	for (node = 0; node < cell->n_nodes; node++) {
		const struct life *to = &cell->memory->lives[0][(node + 1) % cell->n_nodes];
		const struct life *from = &cell->memory->lives[0][node];

		if (is_gone(cell, (node + 1) % cell->n_nodes))
			continue;
		for (i = 0; i < LIFE_RANKS; i++)
			expect(cell, from->n_sent[i] <= to->n_come[i] + (to->has_next[i] != 0));
	}
}

static void check_ended(const struct cell *cell, uint32_t which, uint32_t node)
{
	const struct life *life = &cell->memory->lives[which][node];

	expect(cell, !life->n_wrong);
	expect(cell, !life->n_late);
	expect(cell, !life->n_stuck);
	expect(cell, !life->is_unsaid);
	expect(cell, life->n_threads == 1);
	expect(cell, life->close_ns < CLOSE_MS * TESTING_MS);
}

/* A survivor's failure: in time, with the name of the other. */
static void check_failure(const struct cell *cell, uint32_t node)
{
	const struct life *life = &cell->memory->lives[0][node];

	if (cell->fault == FAULT_SLOW || (cell->phase == IN_CLOSING && !life->error)) {
		expect(cell, !life->error);
		return;
	}
	expect(cell, life->error);
	expect(cell, life->failed_ns < cell->struck_ns + deadline_ms(cell) * TESTING_MS);
	expect(cell, life->n_looks || cell->phase == IN_MEETING);
	if (cell->fault == FAULT_VERSION)
		expect(cell, life->error == CEOV_ERR_VERSION && strstr(life->text, "4242"));
	else if (cell->phase != IN_MEETING)
		expect(cell, life->error == CEOV_ERR_PEER_LOST ||
		       life->error == CEOV_ERR_UNCERTAIN);
	if (cell->phase == IN_MEETING && node == cell->victim)
		return;                 /* its own interface, or its own version, may be named */
	expect(cell, names(life, node == cell->victim ? !node : cell->victim));
}

static void await_failures(struct cell *cell)
{
	uint64_t deadline_ns = cell->struck_ns + 2 * deadline_ms(cell) * TESTING_MS;
	uint32_t node;

	for (node = 0; node < cell->n_nodes; node++) {
		struct life *life = &cell->memory->lives[0][node];

		while (!is_out(cell, node) && !is_gone(cell, node) &&
		       !atomic_load(&life->error) && !reached(&life->stage, LIFE_ENDED)) {
			expect(cell, cell->fault == FAULT_SLOW || cell->phase == IN_CLOSING ||
			       cei_now_ns() < deadline_ns);
			rest(cell);
		}
	}
}

static void report_cell(struct cell *cell, struct node_cell_result *ret_result)
{
	const struct life *life = &cell->memory->lives[0][!cell->victim];
	uint64_t after_ms = life->error && life->failed_ns > cell->struck_ns ?
		(life->failed_ns - cell->struck_ns) / TESTING_MS : 0;
	uint32_t node;

	memset(ret_result, 0, sizeof(*ret_result));
	ret_result->error = life->error;
	ret_result->failed_ms = after_ms;
	ret_result->closed_ms = life->close_ns / TESTING_MS;
	for (node = 0; node < cell->n_nodes; node++)
		ret_result->n_aborted += (uint32_t)cell->is_aborted[node];

	printf("%-8s %-26s node %u: %s after %llu ms (deadline %llu), %llu passes, closed in %llu "
	       "ms\n", phase_names[cell->phase], fault_names[cell->fault], cell->victim,
	       life->error ? ceov_strerror(life->error) : "no failure",
	       (unsigned long long)after_ms, (unsigned long long)deadline_ms(cell),
	       (unsigned long long)life->n_passes,
	       (unsigned long long)(life->close_ns / TESTING_MS));
}

/* --- the case ------------------------------------------------------------------------------- */

static void run_first_life(struct cell *cell)
{
	uint32_t node;

	for (node = 0; node < cell->n_nodes; node++)
		start_node(cell, node, 0);
	await_moment(cell);
	strike(cell);
	await_failures(cell);
	mend(cell);
	for (node = 0; node < cell->n_nodes; node++) {
		if (is_gone(cell, node) || !await_stage(cell, 0, node, LIFE_ENDED))
			continue;
		check_ended(cell, 0, node);
		if (!is_out(cell, node))
			check_failure(cell, node);
	}
	check_done(cell);
}

/* The group opens again at once, with the same names, and works. */
static void run_second_life(struct cell *cell)
{
	struct life *lives = cell->memory->lives[1];
	uint32_t node;

	atomic_store(&cell->memory->shared.n_records, 0);
	set(&cell->memory->shared.is_again);
	for (node = 0; node < cell->n_nodes; node++)
		if (is_gone(cell, node))
			start_node(cell, node, 1);
	for (node = 0; node < cell->n_nodes; node++) {
		(void)await_stage(cell, 1, node, LIFE_ENDED);
		check_ended(cell, 1, node);
		expect(cell, !lives[node].error && lives[node].n_passes == 2);
		if (cell->phase != IN_MEETING && !is_gone(cell, node))
			expect(cell, lives[node].n_fds == cell->memory->lives[0][node].n_fds);
		expect(cell, waitpid(cell->pids[node], NULL, 0) == cell->pids[node]);
	}
}

int node_cell_is_there(enum fault fault, enum phase phase)
{
	return fault != FAULT_VERSION || phase == IN_MEETING;
}

void node_cell_run(const struct node_cell_order *order, struct node_cell_result *ret_result)
{
	struct cell cell = { .fault = order->fault, .phase = order->phase, .n_nodes = 2 };
	const char *why;

	cell.random = testing_seed() + order->number * 97 + order->fault * 7 + order->phase;
	cell.victim = (uint32_t)testing_below(&cell.random, 2);
	cell.memory = mmap(NULL, sizeof(*cell.memory), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	need(cell.memory != MAP_FAILED);
	snprintf(cell.folder, sizeof(cell.folder), "%s", order->folder);
	need(!mkdir(cell.folder, 0700));
	why = namespaces_open(&cell.nodes, cell.n_nodes);
	need(!why);
	run_first_life(&cell);
	run_second_life(&cell);
	namespaces_close(&cell.nodes);
	report_cell(&cell, ret_result);
	need(!rmdir(cell.folder));      /* nothing is left in it */
	fflush(NULL);
}

/* --- what this machine has ------------------------------------------------------------------- */

/* Turns the leak check of an address sanitizer off: it crashes in processes that UCX runs in. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}

#define LACKS_BYTES 200

/* In a child, so that this process and those that it forks begin without UCX and namespaces. */
static void look_in_child(char *ret_lacks)
{
	struct namespaces nodes;
	const char *why;

	if (!dlopen("libucp.so.0", RTLD_LAZY | RTLD_LOCAL))
		return;
	why = namespaces_open(&nodes, 2);
	if (!why)
		namespaces_close(&nodes);
	snprintf(ret_lacks, LACKS_BYTES, "%s", why ? why : "");
}

const char *node_cell_lacks(void)
{
	static char lacks[LACKS_BYTES] = "there is no UCX";
	char *found;
	pid_t child;

	found = mmap(NULL, LACKS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (found == MAP_FAILED)
		return lacks;
	memcpy(found, lacks, LACKS_BYTES);
	child = HAVE_UCX ? fork() : -1;
	if (!child) {
		look_in_child(found);
		_exit(0);
	}
	if (child > 0)
		(void)waitpid(child, NULL, 0);
	memcpy(lacks, found, LACKS_BYTES);
	munmap(found, LACKS_BYTES);
	ucx_aborts = ucx_aborts_on_loss();
	return lacks[0] ? lacks : NULL;
}
