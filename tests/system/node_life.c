/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* A process of a node in the tests of faults. */

#include "system/node_process.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/record.h"
#include "system/bootstrap_fixture.h"
#include "testing.h"

static void reach(struct life *life, enum life_stage stage)
{
	/* release: pairs with the acquire of the test's process, which reads what stands before */
	atomic_store_explicit(&life->stage, stage, memory_order_release);
}

static int is_set(_Atomic uint32_t *flag)
{
	/* acquire: pairs with the release of the test's process */
	return atomic_load_explicit(flag, memory_order_acquire) != 0;
}

void node_await_flag(_Atomic uint32_t *flag)
{
	while (!is_set(flag))
		pause_ms(1);
}

/* Keeps the first line of the log that tells an error. */
static void keep_error_line(struct node_process *process)
{
	struct life *life = process->life;
	uint32_t i;

	pthread_mutex_lock(&process->log.lock);
	for (i = process->log.n_lines; i-- > 0;)
		if (strstr(process->log.lines[i], "error: "))
			snprintf(life->text, sizeof(life->text), "%s", process->log.lines[i]);
	pthread_mutex_unlock(&process->log.lock);
}

/* Keeps the first failure. Returns r. */
static int note(struct node_process *process, int r)
{
	struct life *life = process->life;
	struct ceov_failure failure;

	if (!r)
		return 0;
	life->n_uncertain += r == CEOV_ERR_UNCERTAIN;
	if (atomic_load_explicit(&life->error, memory_order_relaxed))
		return r;
	life->failed_ns = cei_now_ns();
	life->blamed = CEOV_NOBODY;
	if (process->context && !ceov_last_failure(process->context, &failure)) {
		life->blamed = failure.rank;
		snprintf(life->text, sizeof(life->text), "%s", failure.text);
	} else {
		keep_error_line(process);
	}
	/* release: as in reach() */
	atomic_store_explicit(&life->error, r, memory_order_release);
	return r;
}

/* Keeps the line, and shows it with its time if that is wanted. */
static void take_line(void *arg, const char *line)
{
	struct node_process *process = arg;

	testing_log_line(&process->log, line);
	if (getenv("CEOVERLAP_TEST_SHOW"))
		fprintf(stderr, "%8llu ms, %s, node %u: %s\n",
			(unsigned long long)(cei_now_ns() / TESTING_MS % 100000000),
			strrchr(process->plan->folder, '/'), process->plan->node, line);
}

/* --- opening ------------------------------------------------------------------------------ */

/* Writes another version behind the magic number of the record, if these bytes hold one. */
static void claim(const struct life_plan *plan, uint8_t *bytes, size_t n_bytes)
{
	const uint32_t magic = CEI_RECORD_MAGIC;
	size_t at;

	for (at = 0; plan->record_version && at + 8 <= n_bytes; at += 4)
		if (!memcmp(bytes + at, &magic, sizeof(magic)))
			memcpy(bytes + at + 4, &plan->record_version, 4);
}

/* An exchange by shared memory, in which a process can claim another version. */
static int all_gather(void *arg, const void *own, size_t n_bytes, void *ret_all,
		      uint64_t timeout_ns)
{
	struct node_process *process = arg;
	const struct life_plan *plan = process->plan;
	struct life_shared *here = plan->shared;
	uint64_t deadline_ns = cei_deadline(timeout_ns);
	uint32_t i, turn = process->n_gathered++ % 2;
	uint32_t n_awaited = process->n_gathered * plan->n_nodes;

	need(n_bytes <= LIFE_RECORD);
	memcpy(here->records[turn][plan->node], own, n_bytes);
	claim(plan, here->records[turn][plan->node], n_bytes);
	/* acq_rel: pairs with the load below, behind which the others' records are read */
	atomic_fetch_add_explicit(&here->n_records, 1, memory_order_acq_rel);
	while (atomic_load_explicit(&here->n_records, memory_order_acquire) < n_awaited) {
		if (cei_now_ns() > deadline_ns)
			return 1;
		pause_ms(1);
	}
	for (i = 0; i < plan->n_nodes; i++)
		memcpy((char *)ret_all + i * n_bytes, here->records[turn][i], n_bytes);
	return 0;
}

static int open_group(struct node_process *process)
{
	const struct life_plan *plan = process->plan;
	struct ceov_network network = CEOV_NETWORK_INIT;
	struct ceov_member members[LIFE_RANKS];
	struct ceov_config config = CEOV_CONFIG_INIT;
	char node[16], group[sizeof(directory) + 32];
	uint32_t i;

	for (i = 0; i < LIFE_RANKS; i++)
		members[i] = (struct ceov_member){ plan->node * LIFE_RANKS + i, testing_host };
	snprintf(node, sizeof(node), "node %u", plan->node);
	snprintf(group, sizeof(group), "%s/group%u", plan->folder, plan->node);
	network.bootstrap = plan->by_callback ? CEOV_BOOTSTRAP_CALLBACK : CEOV_BOOTSTRAP_STORE;
	network.where = plan->by_callback ? NULL : NAMESPACES_STORE;
	network.all_gather = plan->by_callback ? all_gather : NULL;
	network.all_gather_arg = process;
	network.process = plan->node;
	network.n_processes = plan->n_nodes;
	network.job = "test_nodes_namespaces";
	network.node = node;
	network.nics = "e0";
	network.peer_timeout_ns = plan->timeout_ns;
	config.members = members;
	config.n_members = LIFE_RANKS;
	config.n_ranks = plan->n_nodes * LIFE_RANKS;
	config.group = group;
	config.deadline_ns = plan->open_ms * TESTING_MS;
	config.network = &network;
	config.log = take_line;
	config.log_arg = process;
	return note(process, ceov_open(&config, &process->context));
}

uint64_t node_call_ns(void)
{
	return LIFE_CALL_MS * TESTING_MS;
}

static int share(struct node_process *process)
{
	struct way *way;
	char name[32];
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < LIFE_RANKS; i++) {
		uint32_t rank = process->plan->node * LIFE_RANKS + i;

		way = &process->ways[i];
		way->source = testing_buffer(process->context, rank, process->plan->n_bytes);
		way->target = testing_buffer(process->context, rank, process->plan->n_bytes);
		way->arrived = testing_signal(process->context, rank, 1);
		way->free = testing_signal(process->context, rank, 1);
		snprintf(name, sizeof(name), "target %u", i);
		r = note(process, ceov_buffer_share(way->target, name));
		snprintf(name, sizeof(name), "arrived %u", i);
		if (!r)
			r = note(process, ceov_signal_share(way->arrived, name));
		snprintf(name, sizeof(name), "free %u", i);
		if (!r)
			r = note(process, ceov_signal_share(way->free, name));
	}
	return r;
}

static int find(struct node_process *process, uint32_t i)
{
	const struct life_plan *plan = process->plan;
	uint32_t next = (plan->node + 1) % plan->n_nodes * LIFE_RANKS + i;
	ceov_signal *arrived = NULL, *is_free = NULL;
	struct way *way = &process->ways[i];
	struct ceov_transfer transfer;
	ceov_buffer *target = NULL;
	char name[32];
	int r;

	snprintf(name, sizeof(name), "target %u", i);
	r = note(process, ceov_buffer_find(process->context, next, name, &target));
	snprintf(name, sizeof(name), "arrived %u", i);
	if (!r)
		r = note(process, ceov_signal_find(process->context, next, name, &arrived));
	snprintf(name, sizeof(name), "free %u", i);
	if (!r)
		r = note(process, ceov_signal_find(process->context, next, name, &is_free));
	if (r)
		return r;
	way->arrived_there = arrived;
	way->free_there = is_free;
	way->plan = testing_plan(process->context, plan->node * LIFE_RANKS + i);
	transfer = testing_transfer(way->source, target, plan->n_bytes);
	transfer.target_free = testing_mark(is_free, 0, 0);
	transfer.then = testing_mark(arrived, 0, 1);
	testing_add(way->plan, &transfer);
	return note(process, ceov_plan_commit(way->plan));
}

static int prepare(struct node_process *process)
{
	int r = open_group(process);
	uint32_t i;

	if (!r)
		r = share(process);
	if (!r)
		r = note(process, ceov_barrier(process->context, node_call_ns()));
	for (i = 0; !r && i < LIFE_RANKS; i++)
		r = find(process, i);
	return r;
}

/* --- traffic -------------------------------------------------------------------------------- */

/* The pattern that a rank sends in a pass. */
static uint64_t pattern(uint64_t pass, uint32_t rank)
{
	return testing_seed() + pass * 1000 + rank + 1;
}

static uint32_t rank_before(const struct life_plan *plan, uint32_t i)
{
	return (plan->node + plan->n_nodes - 1) % plan->n_nodes * LIFE_RANKS + i;
}

int node_holds(struct node_process *process, uint32_t i, uint64_t pass)
{
	const struct life_plan *plan = process->plan;
	const void *target = ceov_buffer_base(process->ways[i].target,
					      plan->node * LIFE_RANKS + i);

	return testing_check(target, plan->n_bytes, pattern(pass, rank_before(plan, i))) ==
		plan->n_bytes;
}

static int launch(struct node_process *process, uint32_t i, uint64_t pass)
{
	const struct life_plan *plan = process->plan;
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = pass };
	uint32_t rank = plan->node * LIFE_RANKS + i;
	struct way *way = &process->ways[i];

	testing_fill(ceov_buffer_base(way->source, rank), plan->n_bytes, pattern(pass, rank));
	return note(process, ceov_launch(way->plan, &launch, &way->ticket));
}

static int receive(struct node_process *process, uint32_t i, uint64_t pass)
{
	struct way *way = &process->ways[i];
	int r = note(process, ceov_signal_wait(way->arrived, 0, pass + 1, node_call_ns()));

	if (r)
		return r;
	if (!node_holds(process, i, pass)) {
		process->life->n_wrong++;
		return note(process, CEOV_ERR_STATE);
	}
	process->life->n_come[i] = pass + 1;
	return note(process, ceov_signal_raise(way->free, 0, pass + 1));
}

int node_has_logged(struct node_process *process, const char *text)
{
	uint32_t i;
	int has = 0;

	pthread_mutex_lock(&process->log.lock);
	for (i = 0; i < process->log.n_lines; i++)
		has |= strstr(process->log.lines[i], text) != NULL;
	pthread_mutex_unlock(&process->log.lock);
	return has;
}

/* All tickets are waited for, even after a failure: each says how its launch has ended. */
int node_run_pass(struct node_process *process, uint64_t pass)
{
	uint32_t i, n_launched = 0;
	int r = 0, ended;

	while (!r && n_launched < LIFE_RANKS) {
		r = launch(process, n_launched, pass);
		n_launched += !r;
	}
	for (i = 0; !r && i < LIFE_RANKS; i++)
		r = receive(process, i, pass);
	for (i = 0; i < n_launched; i++) {
		ended = note(process, ceov_wait(process->context, process->ways[i].ticket,
						node_call_ns()));
		if (!ended)
			process->life->n_sent[i] = pass + 1;
		r = r ? r : ended;
	}
	return r;
}

static int run_passes(struct node_process *process)
{
	const struct life_plan *plan = process->plan;
	struct life *life = process->life;
	uint64_t pass;
	int r = 0;

	for (pass = 0; !r && pass < plan->n_passes; pass++) {
		r = node_run_pass(process, pass);
		if (r)
			break;
		/* release: as in reach() */
		atomic_store_explicit(&life->n_passes, pass + 1, memory_order_release);
		if (!pass) {
			reach(life, LIFE_READY);
			if (plan->waits)
				node_await_flag(&plan->shared->is_struck);
		}
		if (plan->pause_ms)
			pause_ms(plan->pause_ms);
	}
	return r;
}

/* --- the end ---------------------------------------------------------------------------------- */

static uint32_t n_threads(void)
{
	DIR *tasks = opendir("/proc/self/task");
	uint32_t n = 0;

	if (!tasks)
		return 0;
	while (readdir(tasks))
		n++;
	closedir(tasks);
	return n - 2;
}

/* The kernel may list a thread for a moment longer than pthread_join() waits for it. */
static uint32_t n_threads_left(void)
{
	uint64_t deadline_ns = cei_deadline(TESTING_SECOND);
	uint32_t n = n_threads();

	while (n > 1 && cei_now_ns() < deadline_ns) {
		sched_yield();
		n = n_threads();
	}
	return n;
}

void life_run(const struct life_plan *plan)
{
	struct node_process process = { .plan = plan, .life = plan->life };
	uint64_t began_ns;
	int r;

	testing_log_init(&process.log);
	reach(plan->life, LIFE_OPENING);
	need(!setenv("CEOVERLAP_TRANSPORTS", "tcp", 1));        /* not the machine's memory */
	need(!setenv("UCX_LOG_LEVEL", "fatal", 1));
	r = prepare(&process);
	if (!r)
		r = run_passes(&process);
	if (!r)                         /* in order: nobody closes while others still read */
		(void)note(&process, ceov_barrier(process.context, node_call_ns()));
	else
		node_end_failed(&process);
	reach(plan->life, LIFE_CLOSING);
	if (plan->holds_close)
		node_await_flag(&plan->shared->may_close);
	began_ns = cei_now_ns();
	ceov_close(process.context);
	plan->life->close_ns = cei_now_ns() - began_ns;
	reach(plan->life, LIFE_CLOSED);
	plan->life->n_stuck = (uint32_t)node_has_logged(&process, "stay");
	plan->life->n_fds = n_open_fds();
	plan->life->n_threads = n_threads_left();
	reach(plan->life, LIFE_ENDED);
}
