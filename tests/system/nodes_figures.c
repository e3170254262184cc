/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Figures of groups of many processes, each a node of its own, over UCX and TCP on this machine:
 * how long they take to open, and what memory a process needs for one that it knows and for one
 * that it has sent to. It judges nothing: the machine may be busy with something else.
 *
 * CEOVERLAP_TEST_PROCESSES is another number of processes than 64.
 */

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "system/bootstrap_fixture.h"
#include "testing.h"

#define FEW       2u
#define BYTES     UINT64_C(4096)
#define SETTLE_MS 500u

struct memory {                         /* that a process has */
	uint64_t allocated;             /* by malloc(), but for what it maps by itself */
	uint64_t resident;              /* not of files */
};

struct figures {                        /* shared by all processes */
	_Atomic uint64_t last_open_ns;  /* when the last one had opened */
	_Atomic uint64_t longest_ns;    /* that one call of ceov_open() took */
	struct memory    opened;        /* of process 0 */
	struct memory    sent;          /* what it took in addition to send to n_sent others */
	uint32_t         n_sent;
};

static struct figures *figures;
static uint32_t n_processes;

static struct memory look(void)
{
	struct mallinfo2 info = mallinfo2();
	struct memory memory = { .allocated = info.uordblks };
	FILE *file = fopen("/proc/self/status", "re");
	unsigned long long kib;
	char line[128];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "RssAnon: %llu", &kib) == 1)
			memory.resident = kib << 10;
	if (file)
		fclose(file);
	return memory;
}

static void raise_to(_Atomic uint64_t *most, uint64_t value)
{
	uint64_t now = atomic_load(most);

	while (now < value && !atomic_compare_exchange_weak(most, &now, value))
		;
}

static ceov_context *open_process(uint32_t number)
{
	struct ceov_network network = CEOV_NETWORK_INIT;
	struct ceov_member member = { number, testing_host };
	struct ceov_config config = CEOV_CONFIG_INIT;
	char node[16], group[sizeof(directory) + 16];
	uint64_t began_ns = cei_now_ns();
	ceov_context *context = NULL;

	snprintf(node, sizeof(node), "node %u", number);
	snprintf(group, sizeof(group), "%s/group%u", directory, number);
	network.bootstrap = CEOV_BOOTSTRAP_STORE;
	network.where = store;
	network.process = number;
	network.n_processes = n_processes;
	network.job = "nodes_figures";
	network.node = node;
	network.nics = "lo";
	config.members = &member;
	config.n_members = 1;
	config.n_ranks = n_processes;
	config.group = group;
	config.deadline_ns = 60 * TESTING_SECOND;
	config.network = &network;
	need(!ceov_open(&config, &context));
	raise_to(&figures->last_open_ns, cei_now_ns());
	raise_to(&figures->longest_ns, cei_now_ns() - began_ns);
	return context;
}

/* Finds a buffer and a signal of the rank, and sends to it. */
static void send_to(ceov_context *context, ceov_buffer *source, uint32_t rank)
{
	struct ceov_transfer transfer;
	ceov_buffer *target = NULL;
	ceov_signal *arrived = NULL;
	ceov_ticket ticket;
	ceov_plan *plan;

	need(!ceov_buffer_find(context, rank, "target", &target));
	need(!ceov_signal_find(context, rank, "arrived", &arrived));
	plan = testing_plan(context, 0);
	transfer = testing_transfer(source, target, BYTES);
	transfer.then = testing_mark(arrived, 0, 1);
	testing_add(plan, &transfer);
	need(!ceov_plan_commit(plan));
	need(!ceov_launch(plan, NULL, &ticket));
	need(!ceov_wait(context, ticket, TESTING_PATIENCE));
}

/* Barriers connect processes at distances that are powers of two. */
static int is_connected(uint32_t rank)
{
	uint32_t back = n_processes - rank;

	return !(rank & (rank - 1)) || !(back & (back - 1));
}

static void connect_all(ceov_context *context)
{
	ceov_buffer *source = testing_buffer(context, 0, BYTES);
	struct memory before, after;
	uint32_t rank;

	for (rank = 1; rank < n_processes; rank++) {
		before = look();
		send_to(context, source, rank);
		after = look();
		if (is_connected(rank))
			continue;
		figures->sent.allocated += after.allocated - before.allocated;
		figures->sent.resident += after.resident - before.resident;
		figures->n_sent++;
	}
}

static void run_process(uint32_t number)
{
	ceov_context *context = open_process(number);
	ceov_buffer *target;
	ceov_signal *arrived;

	pause_ms(SETTLE_MS);            /* threads end what they do at the opening */
	if (!number)
		figures->opened = look();
	target = testing_buffer(context, number, BYTES);
	arrived = testing_signal(context, number, 1);
	need(!ceov_buffer_share(target, "target"));
	need(!ceov_signal_share(arrived, "arrived"));
	need(!ceov_barrier(context, 2 * TESTING_PATIENCE));
	if (number)
		need(!ceov_signal_wait(arrived, 0, 1, 2 * TESTING_PATIENCE));
	else
		connect_all(context);
	need(!ceov_barrier(context, 2 * TESTING_PATIENCE));
	ceov_close(context);
}

/* Opens a group of n; returns how long that took, from the first process' start. */
static double run_group(uint32_t n)
{
	uint64_t began_ns = cei_now_ns();
	uint32_t number;

	n_processes = n;
	memset(figures, 0, sizeof(*figures));
	for (number = 0; number < n; number++)
		start(run_process, number);
	assert_all_end_well();
	return (double)(figures->last_open_ns - began_ns) / 1e9;
}

static double kib(uint64_t bytes, uint32_t n)
{
	return (double)(int64_t)bytes / 1024 / n;
}

START_TEST(test_many_processes)
{
	const char *text = getenv("CEOVERLAP_TEST_PROCESSES");
	uint32_t n = text ? (uint32_t)atoi(text) : 64;
	struct figures few;
	double seconds;

	ck_assert_uint_ge(n, 8);
	figures = mmap(NULL, sizeof(*figures), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	ck_assert_ptr_ne(figures, MAP_FAILED);
	(void)run_group(FEW);
	memcpy(&few, figures, sizeof(few));
	seconds = run_group(n);
	printf("%u processes have opened %.2f s after the first one was started; the longest call "
	       "took %.2f s\n", n, seconds, (double)figures->longest_ns / 1e9);
	printf("memory for each process that nothing was sent to: %.2f KiB allocated, %.2f KiB "
	       "resident\n", kib(figures->opened.allocated - few.opened.allocated, n - FEW),
	       kib(figures->opened.resident - few.opened.resident, n - FEW));
	printf("more for each that was sent to, with a plan and what it names: %.2f KiB allocated, "
	       "%.2f KiB resident\n", kib(figures->sent.allocated, figures->n_sent),
	       kib(figures->sent.resident, figures->n_sent));
	fflush(stdout);
	munmap(figures, sizeof(*figures));
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_set_timeout(tcase, 300);
	tcase_add_test(tcase, test_many_processes);
}

int main(void)
{
	need(!setenv("CEOVERLAP_TRANSPORTS", "tcp", 1));
	return run_suite("figures of many processes", add_tests);
}
