/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Tests ceov_reopen(): two processes of two ranks each, with a thread for each rank, pass data in a
 * ring by a daemon, which is killed under load, again and again. After each time all go on with the
 * next daemon, by the same handles, and every byte is right.
 *
 * CEOVERLAP_TEST_REOPEN_ROUNDS is another number of daemons than 10.
 */

#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "system/daemon_fixture.h"
#include "system/fake_daemon.h"
#include "testing.h"

#define PROCESSES 2u
#define OWN       2u                    /* ranks of a process */
#define RANKS     (PROCESSES * OWN)
#define BYTES     UINT64_C(200000)

/* A pass moves the rank's source to the next rank's target. Of `signal` counter 0 says that the
 * rank's target has arrived, and counter 1 that it may be written again. */
struct rank {
	struct process *process;
	uint32_t        rank;
	ceov_buffer    *source, *target, *next_target;
	ceov_signal    *ready, *signal, *next_signal;
	ceov_plan      *plan;
	uint64_t        n_passes;
	pthread_t       thread;
};

struct process {
	ceov_context *context;
	uint32_t      index;
	uint64_t      seed;             /* of the data; the same in both processes */
	uint64_t      round;
	struct rank   ranks[OWN];
};

static struct daemon_fixture server;

static uint32_t n_rounds(void)
{
	const char *text = getenv("CEOVERLAP_TEST_REOPEN_ROUNDS");

	return text ? (uint32_t)atoi(text) : 10;
}

/* --- a process -------------------------------------------------------------------- */

static void open_context(struct process *process)
{
	struct ceov_config config = CEOV_CONFIG_INIT;
	struct ceov_member members[OWN];
	char group[200];
	uint32_t i;

	for (i = 0; i < OWN; i++)
		members[i] = (struct ceov_member){ process->index * OWN + i, testing_host };
	testing_path("group.sock", group, sizeof(group));
	config.members = members;
	config.n_members = OWN;
	config.n_ranks = RANKS;
	config.group = group;
	config.daemon = server.path;
	ck_assert_int_eq(ceov_open(&config, &process->context), 0);
}

static void share(struct rank *own)
{
	ceov_context *context = own->process->context;

	own->source = testing_buffer(context, own->rank, BYTES);
	own->target = testing_buffer(context, own->rank, BYTES);
	own->ready = testing_signal(context, own->rank, 1);
	own->signal = testing_signal(context, own->rank, 2);
	ck_assert_int_eq(ceov_buffer_share(own->target, "target"), 0);
	ck_assert_int_eq(ceov_signal_share(own->signal, "signal"), 0);
}

static void find(struct rank *own)
{
	ceov_context *context = own->process->context;
	uint32_t next = (own->rank + 1) % RANKS;

	ck_assert_int_eq(ceov_buffer_find(context, next, "target", &own->next_target), 0);
	ck_assert_int_eq(ceov_signal_find(context, next, "signal", &own->next_signal), 0);
}

static void plan(struct rank *own)
{
	struct ceov_transfer transfer = testing_transfer(own->source, own->next_target, BYTES);

	transfer.source_ready = testing_mark(own->ready, 0, 1);
	transfer.target_free = testing_mark(own->next_signal, 1, 0);
	transfer.then = testing_mark(own->next_signal, 0, 1);
	own->plan = testing_plan(own->process->context, own->rank);
	testing_add(own->plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(own->plan), 0);
	testing_explained(own->plan, "carried out by the daemon");
}

static void begin(struct process *process)
{
	uint32_t i;

	open_context(process);
	for (i = 0; i < OWN; i++) {
		process->ranks[i].process = process;
		process->ranks[i].rank = process->index * OWN + i;
		share(&process->ranks[i]);
	}
	ck_assert_int_eq(ceov_barrier(process->context, TESTING_PATIENCE), 0);
	for (i = 0; i < OWN; i++) {
		find(&process->ranks[i]);
		plan(&process->ranks[i]);
	}
	ck_assert_int_eq(ceov_barrier(process->context, TESTING_PATIENCE), 0);
}

/* --- passes ----------------------------------------------------------------------- */

static uint64_t pattern(const struct rank *own, uint32_t rank, uint64_t pass)
{
	return own->process->seed + own->process->round * 1000003 + pass * RANKS + rank;
}

/* Returns 0, or what the first call that failed has returned. */
static int pass(struct rank *own, uint64_t n)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = n };
	uint32_t before = (own->rank + RANKS - 1) % RANKS;
	ceov_ticket ticket;
	int r;

	testing_fill(ceov_buffer_base(own->source, own->rank), BYTES, pattern(own, own->rank, n));
	r = ceov_launch(own->plan, &launch, &ticket);
	if (!r)
		r = ceov_signal_raise(own->ready, 0, n + 1);
	if (!r)
		r = ceov_signal_wait(own->signal, 0, n + 1, TESTING_PATIENCE);
	if (r)
		return r;
	ck_assert_uint_eq(testing_check(ceov_buffer_base(own->target, own->rank), BYTES,
					pattern(own, before, n)), BYTES);
	r = ceov_signal_raise(own->signal, 1, n + 1);
	return r ? r : ceov_wait(own->process->context, ticket, TESTING_PATIENCE);
}

/* Passes until the daemon is lost. */
static void *go_on(void *arg)
{
	struct rank *own = arg;
	uint64_t n = 0;
	int r = 0;

	for (; !r; n++)
		r = pass(own, n);
	ck_assert_msg(r == CEOV_ERR_DAEMON_LOST, "rank %u, pass %llu: %s", own->rank,
		      (unsigned long long)n, ceov_strerror(r));
	own->n_passes += n - 1;
	return NULL;
}

static void start(struct process *process)
{
	uint32_t i;

	for (i = 0; i < OWN; i++)
		ck_assert_int_eq(pthread_create(&process->ranks[i].thread, NULL, go_on,
						&process->ranks[i]), 0);
}

static void stop(struct process *process)
{
	uint32_t i;

	for (i = 0; i < OWN; i++)
		ck_assert_int_eq(pthread_join(process->ranks[i].thread, NULL), 0);
}

/* Returns CEOV_ERR_DAEMON_LOST if the next daemon was lost before the call came to its end. */
static int reopen(struct process *process)
{
	struct ceov_failure failure = { .text = "" };
	int r;

	while (!ceov_last_failure(process->context, &failure))
		;
	r = ceov_reopen(process->context, TESTING_PATIENCE);
	(void)ceov_last_failure(process->context, &failure);
	ck_assert_msg(!r || r == CEOV_ERR_DAEMON_LOST, "process %u: ceov_reopen: %d, %s",
		      process->index, r, failure.text);
	process->round++;
	return r;
}

static void end(struct process *process)
{
	ck_assert_int_eq(ceov_barrier(process->context, TESTING_PATIENCE), 0);
	ceov_close(process->context);
}

/* --- both processes ---------------------------------------------------------------- */

static void follow(uint64_t seed)
{
	static struct process process;
	uint32_t i;
	int r = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	process.index = 1;
	process.seed = seed;
	begin(&process);
	for (i = 0; i < n_rounds(); i++) {
		if (!r) {
			start(&process);
			stop(&process);
		}
		r = reopen(&process);
	}
	end(&process);
	fflush(NULL);
	_exit(0);
}

/* Kills the daemon at any time under load; the next one comes before or after the threads have
 * seen the loss. */
static void lead(struct process *process, uint64_t *random)
{
	int is_early = (int)testing_below(random, 2);

	start(process);
	usleep((useconds_t)testing_below(random, 20000));
	daemon_kill(&server);
	if (is_early)
		daemon_start(&server, "d.sock");
	stop(process);
	if (!is_early)
		daemon_start(&server, "d.sock");
	ck_assert_int_eq(reopen(process), 0);
}

START_TEST(test_all_ranks_go_on_with_the_next_daemon)
{
	static struct process process;
	uint64_t random = testing_seed(), n = 0;
	uint32_t i;
	int status;
	pid_t child;

	process.seed = random;
	daemon_start(&server, "d.sock");
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child)
		follow(process.seed);
	begin(&process);
	for (i = 0; i < n_rounds(); i++)
		lead(&process, &random);
	end(&process);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	for (i = 0; i < OWN; i++)
		n += process.ranks[i].n_passes;
	printf("%u daemons killed, %llu passes checked\n", n_rounds(), (unsigned long long)n);
	daemon_end(&server);
}
END_TEST

/* Without a daemon, and where it lives: aborted signals and those of a daemon's plans count from 0,
 * others go on. */
static void renews_what_was_aborted(const char *path)
{
	struct ceov_member members[2];
	struct ceov_config config = testing_config(members, 2, NULL);
	ceov_signal *aborted, *other;
	ceov_context *context;
	struct ceov_transfer transfer = { .struct_bytes = sizeof(transfer) };
	ceov_ticket ticket;
	ceov_plan *moves;
	uint64_t value;

	config.daemon = path;
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	aborted = testing_signal(context, 0, 1);
	other = testing_signal(context, 1, 1);
	moves = testing_plan(context, 0);
	transfer.n_rows = 1;
	transfer.source_ready = testing_mark(aborted, 0, 7);
	testing_add(moves, &transfer);
	ck_assert_int_eq(ceov_plan_commit(moves), 0);
	ck_assert_int_eq(ceov_launch(moves, NULL, &ticket), 0);
	ck_assert_int_eq(ceov_signal_raise(other, 0, 5), 0);
	ck_assert_int_eq(ceov_reopen(context, 1000000), CEOV_ERR_TIMEOUT);
	ck_assert_int_eq(ceov_abort(context, ticket), 0);
	ck_assert_int_eq(ceov_reopen(context, TESTING_PATIENCE), 0);
	ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_signal_value(aborted, 0, &value), 0);
	ck_assert_uint_eq(value, 0);
	ck_assert_int_eq(ceov_signal_value(other, 0, &value), 0);
	ck_assert_uint_eq(value, 5);
	ck_assert_int_eq(ceov_launch(moves, NULL, &ticket), 0);
	ck_assert_int_eq(ceov_signal_raise(aborted, 0, 7), 0);
	ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), 0);
	ck_assert_int_eq(ceov_reopen(context, TESTING_PATIENCE), 0);
	ck_assert_int_eq(ceov_signal_value(aborted, 0, &value), 0);
	ck_assert_uint_eq(value, path ? 0 : 7);
	ceov_close(context);
}

START_TEST(test_without_a_loss_signals_are_renewed)
{
	daemon_start(&server, "d.sock");
	renews_what_was_aborted(server.path);
	daemon_end(&server);
	renews_what_was_aborted(NULL);
}
END_TEST

/* A process of one rank with a plan that raises the signal of rank 0. */
static ceov_signal *begin_one(uint32_t rank, ceov_context **ret_context)
{
	struct ceov_member member;
	struct ceov_config config = testing_config(&member, 1, NULL);
	struct ceov_transfer transfer = { .struct_bytes = sizeof(transfer), .n_rows = 1 };
	ceov_context *context;
	ceov_signal *signal;
	ceov_plan *raises;
	char group[200];

	testing_path("group.sock", group, sizeof(group));
	member = (struct ceov_member){ rank, testing_host };
	config.group = group;
	config.n_ranks = 2;
	config.daemon = server.path;
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	if (!rank) {
		signal = testing_signal(context, 0, 1);
		ck_assert_int_eq(ceov_signal_share(signal, "signal"), 0);
	}
	ck_assert_int_eq(ceov_barrier(context, TESTING_PATIENCE), 0);
	if (rank)
		ck_assert_int_eq(ceov_signal_find(context, 0, "signal", &signal), 0);
	raises = testing_plan(context, rank);
	transfer.then = testing_mark(signal, 0, 1);
	testing_add(raises, &transfer);
	ck_assert_int_eq(ceov_plan_commit(raises), 0);
	ck_assert_int_eq(ceov_barrier(context, TESTING_PATIENCE), 0);
	*ret_context = context;
	return signal;
}

static void go_on_one(ceov_context *context, ceov_signal *signal)
{
	ck_assert_int_eq(ceov_reopen(context, TESTING_PATIENCE), 0);
	ck_assert_int_eq(ceov_signal_wait(signal, 0, 1, 0), CEOV_PENDING);
	ck_assert_int_eq(ceov_barrier(context, TESTING_PATIENCE), 0);
	ceov_close(context);
}

/* A process that is stopped while the daemon dies aborts the signals later than the others. */
START_TEST(test_who_notices_late_aborts_no_renewed_signal)
{
	ceov_context *context;
	ceov_signal *signal;
	pid_t child, waker;
	int status;

	daemon_start(&server, "d.sock");
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal = begin_one(1, &context);
		ck_assert_int_eq(ceov_signal_wait(signal, 0, 1, TESTING_PATIENCE),
				 CEOV_ERR_DAEMON_LOST);
		go_on_one(context, signal);
		_exit(0);
	}
	signal = begin_one(0, &context);
	testing_stop(child);
	daemon_kill(&server);
	daemon_start(&server, "d.sock");
	waker = fork();
	if (!waker) {
		usleep(300000);
		_exit(kill(child, SIGCONT) != 0);
	}
	go_on_one(context, signal);
	ck_assert_int_eq(waitpid(waker, &status, 0), waker);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	daemon_end(&server);
}
END_TEST

/* While no daemon listens the call times out, can be repeated, and leaves the context so that all
 * calls are refused and closing works. */
START_TEST(test_no_next_daemon_is_told)
{
	struct ceov_member members[1];
	struct ceov_config config = testing_config(members, 1, NULL);
	ceov_context *context;
	ceov_buffer *buffer;
	ceov_plan *moves, *later;
	struct ceov_transfer transfer;

	daemon_start(&server, "d.sock");
	config.daemon = server.path;
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	buffer = testing_buffer(context, 0, 4096);
	transfer = testing_transfer(buffer, buffer, 100);
	transfer.target.offset_bytes = 2048;
	moves = testing_plan(context, 0);
	testing_add(moves, &transfer);
	ck_assert_int_eq(ceov_plan_commit(moves), 0);
	daemon_kill(&server);
	while (ceov_launch(moves, NULL, NULL) != CEOV_ERR_DAEMON_LOST)
		usleep(1000);
	ck_assert_int_eq(ceov_reopen(context, 20 * TESTING_MS), CEOV_ERR_TIMEOUT);
	ck_assert_int_eq(ceov_launch(moves, NULL, NULL), CEOV_ERR_DAEMON_LOST);
	later = testing_plan(context, 0);
	testing_add(later, &transfer);
	ck_assert_int_eq(ceov_plan_commit(later), CEOV_ERR_DAEMON_LOST);
	ck_assert_int_eq(ceov_plan_explain(moves, 1), CEOV_ERR_DAEMON_LOST);
	ck_assert_int_eq(ceov_reopen(context, 20 * TESTING_MS), CEOV_ERR_TIMEOUT);
	daemon_start(&server, "d.sock");
	ck_assert_int_eq(ceov_reopen(context, TESTING_PATIENCE), 0);
	ck_assert_int_eq(ceov_plan_commit(later), 0);
	ck_assert_int_eq(ceov_launch(moves, NULL, NULL), 0);
	daemon_kill(&server);
	(void)ceov_reopen(context, 20 * TESTING_MS);
	ceov_plan_release(moves);
	ceov_close(context);
	ck_assert_int_eq(unlink(server.path), 0);
	ck_assert_int_eq(unlink(server.control), 0);
}
END_TEST

/* A rank whose plan moves bytes within its memory. */
struct mover {
	ceov_buffer *buffer;
	ceov_signal *moved;
	ceov_plan   *plan;
	uint64_t     base;
};

static void begin_mover(ceov_context *context, uint32_t rank, struct mover *mover)
{
	struct ceov_transfer transfer;

	mover->buffer = testing_buffer(context, rank, 4096);
	mover->moved = testing_signal(context, rank, 1);
	mover->plan = testing_plan(context, rank);
	mover->base = 0;
	transfer = testing_transfer(mover->buffer, mover->buffer, 2000);
	transfer.target.offset_bytes = 2048;
	transfer.then = testing_mark(mover->moved, 0, 1);
	testing_add(mover->plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(mover->plan), 0);
	testing_explained(mover->plan, "carried out by the daemon");
}

static void move(ceov_context *context, uint32_t rank, struct mover *mover)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = mover->base };
	uint8_t *bytes = ceov_buffer_base(mover->buffer, rank);
	ceov_ticket ticket;

	testing_fill(bytes, 2000, mover->base + 1);
	ck_assert_int_eq(ceov_launch(mover->plan, &launch, &ticket), 0);
	ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), 0);
	ck_assert_int_eq(ceov_signal_wait(mover->moved, 0, mover->base + 1, 0), 0);
	ck_assert_uint_eq(testing_check(bytes + 2048, 2000, mover->base + 1), 2000);
	mover->base++;
}

/* The next daemon serves rank 1 alone. */
static void goes_on_without_rank_0(const char *strict, int result)
{
	struct ceov_member members[2];
	struct ceov_config config = testing_config(members, 2, NULL);
	struct mover movers[2];
	struct fake_daemon fake;
	ceov_context *context;
	uint32_t i;

	ck_assert_int_eq(setenv("CEOVERLAP_DAEMON_STRICT", strict, 1), 0);
	daemon_start(&server, "d.sock");
	config.daemon = server.path;
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	for (i = 0; i < 2; i++) {
		begin_mover(context, i, &movers[i]);
		move(context, i, &movers[i]);
		movers[i].base = 0;
	}
	daemon_kill(&server);
	fake_daemon_start(&fake, server.path, 2);
	ck_assert_int_eq(ceov_reopen(context, TESTING_PATIENCE), result);
	if (!result) {
		testing_explained(movers[0].plan, "on a GPU that the daemon does not serve");
		move(context, 0, &movers[0]);
		move(context, 0, &movers[0]);
		ceov_plan_release(movers[0].plan);
	}
	ceov_close(context);
	fake_daemon_end(&fake);
	ck_assert_int_eq(unlink(server.control), 0);
	ck_assert_uint_eq(fake.n_commits, !result);
}

START_TEST(test_plans_of_a_rank_that_is_not_served_any_more_stay_here)
{
	goes_on_without_rank_0("0", 0);
	goes_on_without_rank_0("1", CEOV_ERR_NO_ROUTE);
}
END_TEST

static Suite *suite(void)
{
	Suite *all = suite_create("reopen");
	TCase *cases = tcase_create("reopen");

	tcase_set_timeout(cases, 60 + 2 * (double)n_rounds());
	tcase_add_test(cases, test_all_ranks_go_on_with_the_next_daemon);
	tcase_add_test(cases, test_without_a_loss_signals_are_renewed);
	tcase_add_test(cases, test_who_notices_late_aborts_no_renewed_signal);
	tcase_add_test(cases, test_no_next_daemon_is_told);
	tcase_add_test(cases, test_plans_of_a_rank_that_is_not_served_any_more_stay_here);
	suite_add_tcase(all, cases);
	return all;
}

int main(void)
{
	return testing_run(suite());
}
