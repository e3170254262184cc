/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "system/torture_client.h"

#include <dirent.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <ceoverlap/ceoverlap.h>

#include "base/clock.h"
#include "system/torture_memory.h"
#include "testing.h"

#define PIECE_BYTES UINT64_C(100000)    /* that a pass sends */

/* A thread sanitizer has some of its own. */
#ifdef __SANITIZE_THREAD__
#define OWN_THREADS 4u
#else
#define OWN_THREADS 1u
#endif

struct client {
	const struct torture_task *task;
	ceov_context *context;
	struct torture_memory *memory;
	uint8_t      *bytes;            /* PIECE_BYTES of the program's own */
	ceov_buffer  *source, *target, *other_target;
	ceov_signal  *ready, *signal, *other_signal;    /* of `signal` counter 0 says that the
							 * target has arrived, 1 that it may be
							 * written again */
	ceov_plan    *all, *piece;
	uint64_t      half_bytes;       /* of the source, and of the target */
	uint32_t      n_fds;            /* with everything open */
};

/* A call whose failure is none of those that are expected. */
__attribute__((format(printf, 2, 3), noreturn))
static void give_up(struct client *client, const char *format, ...)
{
	struct ceov_failure failure = { .text = "" };
	char text[120];
	va_list values;

	va_start(values, format);
	vsnprintf(text, sizeof(text), format, values);
	va_end(values);
	if (client->context)
		(void)ceov_last_failure(client->context, &failure);
	snprintf(client->task->own->fault, sizeof(client->task->own->fault), "%s; %.170s", text,
		 failure.text);
	_exit(1);
}

static void need(struct client *client, int r, const char *call)
{
	if (r)
		give_up(client, "%s: %s", call, ceov_strerror(r));
}

static uint32_t n_entries(const char *path)
{
	DIR *folder = opendir(path);
	uint32_t n = 0;

	while (folder && readdir(folder))
		n++;
	if (folder)
		closedir(folder);
	return n;
}

/* --- opening ---------------------------------------------------------------------- */

static struct ceov_place place_of(const struct client *client)
{
	const int gpu = client->task->gpu;

	return gpu < 0 ? testing_host : (struct ceov_place){ CEOV_PLACE_GPU, (uint32_t)gpu };
}

static void open_context(struct client *client)
{
	struct ceov_member member = { client->task->rank, place_of(client) };
	struct ceov_config config = CEOV_CONFIG_INIT;

	config.members = &member;
	config.n_members = 1;
	config.n_ranks = TORTURE_PAIR;
	config.group = client->task->group;
	config.daemon = client->task->daemon;
	need(client, ceov_open(&config, &client->context), "ceov_open");
}

static void make(struct client *client)
{
	uint32_t rank = client->task->rank, other = !rank;
	ceov_context *context = client->context;
	const struct ceov_place place = place_of(client);
	const uint32_t flags = client->task->gpu < 0 ? 0 : CEOV_SIGNAL_HOST_VISIBLE;
	uint64_t half = client->half_bytes;

	need(client, ceov_buffer_create(context, rank, half, &client->source), "source");
	need(client, ceov_buffer_create(context, rank, half, &client->target), "target");
	need(client, ceov_signal_create(context, rank, place, 1, flags, &client->ready),
	     "ready");
	need(client, ceov_signal_create(context, rank, place, 2, flags, &client->signal),
	     "signal");
	need(client, ceov_buffer_share(client->target, "target"), "ceov_buffer_share");
	need(client, ceov_signal_share(client->signal, "signal"), "ceov_signal_share");
	need(client, ceov_barrier(context, TESTING_PATIENCE), "ceov_barrier");
	need(client, ceov_buffer_find(context, other, "target", &client->other_target), "find");
	need(client, ceov_signal_find(context, other, "signal", &client->other_signal), "find");
}

/* A plan that sends the first bytes of the source. */
static ceov_plan *make_plan(struct client *client, uint64_t n_bytes)
{
	struct ceov_transfer transfer = {
		.struct_bytes = sizeof(transfer),
		.source_ready = { client->ready, 0, 1 },
		.target_free = { client->other_signal, 1, 0 },
		.then = { client->other_signal, 0, 1 },
		.source = { .buffer = client->source },
		.target = { .buffer = client->other_target },
		.row_bytes = n_bytes,
		.n_rows = 1,
	};
	ceov_plan *plan;

	need(client, ceov_plan_create(client->context, client->task->rank, NULL, &plan), "plan");
	need(client, ceov_plan_add(plan, &transfer), "ceov_plan_add");
	need(client, ceov_plan_expect(plan, &transfer.source_ready), "ceov_plan_expect");
	need(client, ceov_plan_expect(plan, &transfer.target_free), "ceov_plan_expect");
	need(client, ceov_plan_commit(plan), "ceov_plan_commit");
	return plan;
}

/* --- passes ----------------------------------------------------------------------- */

static uint64_t pattern(const struct client *client, uint32_t rank, uint64_t n)
{
	return client->task->seed + client->task->own->n_reopened * UINT64_C(1000003) +
		n * TORTURE_PAIR + rank;
}

/* Returns 0, or what the first call that failed has returned. */
static int pass(struct client *client, ceov_plan *plan, uint64_t n)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = n };
	uint32_t rank = client->task->rank;
	uint64_t n_right;
	ceov_ticket ticket;
	int r;

	testing_fill(client->bytes, PIECE_BYTES, pattern(client, rank, n));
	torture_memory_put(client->memory, ceov_buffer_base(client->source, rank), client->bytes,
			   PIECE_BYTES);
	r = ceov_launch(plan, &launch, &ticket);
	if (!r)
		r = ceov_signal_raise(client->ready, 0, n + 1);
	if (!r)
		r = ceov_signal_wait(client->signal, 0, n + 1, TESTING_PATIENCE);
	if (r)
		return r;
	torture_memory_get(client->memory, client->bytes, ceov_buffer_base(client->target, rank),
			   PIECE_BYTES);
	n_right = testing_check(client->bytes, PIECE_BYTES, pattern(client, !rank, n));
	if (n_right != PIECE_BYTES)
		give_up(client, "pass %llu: byte %llu is wrong", (unsigned long long)n,
			(unsigned long long)n_right);
	r = ceov_signal_raise(client->signal, 1, n + 1);
	if (!r)
		r = ceov_wait(client->context, ticket, TESTING_PATIENCE);
	atomic_fetch_add(&client->task->own->n_passes, !r);     /* seq_cst: no fast path */
	return r;
}

/* Rank 0 names the last pass before it launches one, without which rank 1 passes no further. */
static int go_on(struct client *client, uint64_t n)
{
	const struct torture_task *task = client->task;
	struct torture_client *first = task->own - task->rank;
	int r = 0;

	for (; !r && (!first->end || n < first->end); n++) {
		if (!task->rank && task->own->must_end && !first->end)
			first->end = n + 2;
		r = pass(client, client->piece, n);
	}
	return r;
}

/* --- losses ----------------------------------------------------------------------- */

static void note(_Atomic uint64_t *when)
{
	if (!atomic_load(when))
		atomic_store(when, cei_now_ns());
}

/* Returns what ends the passes: 0, both were told to end; CEOV_ERR_PEER_LOST. */
static int reopen_and_go_on(struct client *client)
{
	struct torture_client *own = client->task->own;
	int r = CEOV_ERR_DAEMON_LOST;
	uint32_t n_fds;

	while (r == CEOV_ERR_DAEMON_LOST) {
		note(&own->lost_ns);
		r = ceov_reopen(client->context, TESTING_PATIENCE);
		if (r && r != CEOV_ERR_DAEMON_LOST)
			return r;
		n_fds = n_entries("/proc/self/fd");
		if (!r && client->task->gpu < 0 && n_fds != client->n_fds)
			give_up(client, "%u descriptors before the loss and %u after it",
				client->n_fds, n_fds);
		atomic_fetch_add(&own->n_reopened, 1);
		if (!r)
			r = go_on(client, 0);
	}
	return r;
}

static uint32_t n_threads(void)
{
	return n_entries("/proc/self/task") - 2;        /* . and .. */
}

/* CUDA has threads and descriptors of its own, and more of them from time to time, so that only
 * those of clients of host memory are counted. */
static void leave(struct client *client, uint32_t n_fds_before)
{
	uint64_t deadline_ns = cei_deadline(TESTING_PATIENCE);
	uint32_t n;

	ceov_close(client->context);
	client->context = NULL;
	if (client->task->gpu >= 0)
		_exit(0);
	n = n_entries("/proc/self/fd");
	if (n != n_fds_before)
		give_up(client, "%u descriptors before, %u after the close", n_fds_before, n);
	n = n_threads();
	while (n > OWN_THREADS && cei_now_ns() < deadline_ns) {
		usleep(500);            /* who was joined may be seen a moment longer */
		n = n_threads();
	}
	if (n > OWN_THREADS)
		give_up(client, "%u threads are left", n);
	_exit(0);
}

static void touch_all(struct client *client)
{
	char *source = ceov_buffer_base(client->source, client->task->rank);
	uint64_t at;

	memset(client->bytes, 1, PIECE_BYTES);
	for (at = 0; at + PIECE_BYTES <= client->half_bytes; at += PIECE_BYTES)
		torture_memory_put(client->memory, source + at, client->bytes, PIECE_BYTES);
}

void torture_client_run(const struct torture_task *task)
{
	struct client client = { .task = task, .half_bytes = task->n_bytes / 2 };
	uint32_t n_fds = n_entries("/proc/self/fd");
	uint64_t deadline_ns;
	int r;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	client.memory = torture_memory_open(task->gpu);
	client.bytes = malloc(PIECE_BYTES);
	if (!client.bytes)
		give_up(&client, "no memory");
	open_context(&client);
	make(&client);
	client.all = make_plan(&client, client.half_bytes);
	client.piece = make_plan(&client, PIECE_BYTES);
	client.n_fds = n_entries("/proc/self/fd");
	touch_all(&client);
	r = pass(&client, client.all, 0);
	if (!r)
		r = go_on(&client, 1);
	if (r == CEOV_ERR_DAEMON_LOST)
		r = reopen_and_go_on(&client);
	if (r && r != CEOV_ERR_PEER_LOST)
		give_up(&client, "after %llu passes: %s", (unsigned long long)task->own->n_passes,
			ceov_strerror(r));
	if (r)
		note(&task->own->gone_ns);
	deadline_ns = cei_deadline(TESTING_PATIENCE);
	while (r && !task->own->may_leave && cei_now_ns() < deadline_ns)
		usleep(500);
	leave(&client, n_fds);
	_exit(1);
}
