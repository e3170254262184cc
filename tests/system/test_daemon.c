/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests a real ceoverlapd with real clients: data that it moves for one and for two processes, what
 * it refuses, plans that stay in the process, and the death of either side. */

#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/objects/abort.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"
#include "ce_engine/remote/remote.h"
#include "ipc/service_wire.h"
#include "system/daemon_rig.h"

#define LAUNCHES 200u
#define COMMITS  100u
#define CLOSES   20u
#define NORMAL   CEOV_URGENCY_NORMAL

static struct daemon_rig rig;

static ceov_ticket launch(const struct daemon_rig_client *client)
{
	ceov_ticket ticket;

	ck_assert_int_eq(ceov_launch(client->plan, NULL, &ticket), 0);
	return ticket;
}

/* Asserts what the client's plan and context tell. */
static void tells(const struct daemon_rig_client *client, int is_by_daemon, uint32_t n_in_flight)
{
	struct ceov_context_info context = CEOV_CONTEXT_INFO_INIT;
	struct ceov_plan_info plan = CEOV_PLAN_INFO_INIT;

	ck_assert_int_eq(ceov_context_query(client->context, &context), 0);
	ck_assert_int_eq(context.has_daemon, 1);
	ck_assert_int_eq(ceov_plan_query(client->plan, &plan), 0);
	ck_assert_int_eq(plan.is_by_daemon, is_by_daemon);
	ck_assert_uint_eq(plan.n_in_flight, n_in_flight);
	ck_assert_uint_eq(plan.n_transfers, 1);
	ck_assert_uint_eq(plan.bytes, DAEMON_RIG_BYTES);
}

START_TEST(test_a_daemon_moves_data)
{
	struct daemon_rig_client client;
	uint32_t i;

	daemon_rig_start(&rig, NULL);
	daemon_rig_open(&rig, &client, NORMAL);
	testing_explained(client.plan, "carried out by the daemon");
	for (i = 0; i < LAUNCHES; i++)
		daemon_rig_pass(&client);
	ceov_plan_release(client.plan);
	daemon_rig_build(&client, NORMAL);
	ck_assert_int_eq(ceov_plan_commit(client.plan), 0);
	daemon_rig_pass(&client);
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

START_TEST(test_wrong_plans_are_refused_with_the_daemons_words)
{
	struct ceov_transfer twice;
	struct ceov_failure failure;
	struct daemon_rig_client client;

	daemon_rig_start(&rig, NULL);
	daemon_rig_open_bare(&rig, &client);
	daemon_rig_build(&client, NORMAL);
	/* the same target twice, in no order */
	twice = testing_transfer(client.source, client.target, 64);
	ck_assert_int_eq(ceov_plan_add(client.plan, &twice), 0);
	ck_assert_int_eq(ceov_plan_commit(client.plan), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_last_failure(client.context, &failure), 0);
	ck_assert_int_eq(failure.error, CEOV_ERR_INVALID);
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

START_TEST(test_what_a_daemon_cannot_reach_stays_here)
{
	static uint8_t memory[DAEMON_RIG_BYTES];
	struct daemon_rig_client client;

	daemon_rig_start(&rig, NULL);
	daemon_rig_open_stray(&rig, &client);
	testing_explained(client.plan, "in this process and not by the daemon");
	tells(&client, 0, 0);
	daemon_rig_pass(&client);
	ceov_close(client.context);
	ck_assert_int_eq(setenv("CEOVERLAP_DAEMON_STRICT", "1", 1), 0);
	daemon_rig_open_bare(&rig, &client);
	ck_assert_int_eq(ceov_buffer_register(client.context, 0, memory, sizeof(memory),
					      &client.source), 0);
	daemon_rig_build(&client, NORMAL);
	ck_assert_int_eq(ceov_plan_commit(client.plan), CEOV_ERR_NO_ROUTE);
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

static void *commit_and_release_plans(void *arg)
{
	struct daemon_rig_client *client = arg;
	uint32_t i;

	for (i = 0; i < COMMITS; i++) {
		daemon_rig_build(client, NORMAL);
		ck_assert_int_eq(ceov_plan_commit(client->plan), 0);
		ceov_plan_release(client->plan);
	}
	return NULL;
}

/* Closes the way to the daemon as ceov_close() does. */
static void *close_the_link(void *arg)
{
	struct daemon_rig_client *client = arg;

	usleep(2000);
	cei_remote_close(client->context);
	return NULL;
}

/* Makes aborts, each of which looks at all plans, while another thread runs the function. Then
 * closes the client. */
static void abort_beside(struct daemon_rig_client *client, void *(*run)(void *client))
{
	pthread_t thread;
	uint32_t i;

	ck_assert_int_eq(pthread_create(&thread, NULL, run, client), 0);
	for (i = 0; i < COMMITS; i++) {
		pthread_mutex_lock(&client->context->lock);
		cei_abort_end(client->context, 0);
		pthread_mutex_unlock(&client->context->lock);
		usleep(100);
	}
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ceov_close(client->context);
}

/* For the thread sanitizer: plans that the daemon carries out, and plans whose commit finds out
 * that they stay in this process. */
START_TEST(test_aborts_look_at_plans_that_come_and_go)
{
	struct daemon_rig_client client;

	daemon_rig_start(&rig, NULL);
	if (_i)
		daemon_rig_open(&rig, &client, NORMAL);
	else
		daemon_rig_open_stray(&rig, &client);
	ceov_plan_release(client.plan);
	abort_beside(&client, commit_and_release_plans);
	daemon_rig_end(&rig);
}
END_TEST

/* For the thread sanitizer: a lost peer brings an abort while the context is being closed. */
START_TEST(test_aborts_look_at_plans_while_the_link_is_closed)
{
	struct daemon_rig_client client;

	daemon_rig_start(&rig, NULL);
	daemon_rig_open(&rig, &client, NORMAL);
	daemon_rig_pass(&client);
	abort_beside(&client, close_the_link);
	daemon_rig_end(&rig);
}
END_TEST

START_TEST(test_an_abort_ends_a_launch_there)
{
	struct daemon_rig_client client;
	ceov_ticket ticket;

	daemon_rig_start(&rig, NULL);
	daemon_rig_open(&rig, &client, NORMAL);
	ticket = launch(&client);
	ck_assert_int_eq(ceov_wait(client.context, ticket, 0), CEOV_PENDING);
	ck_assert_int_eq(ceov_plan_idle(client.plan), CEOV_PENDING);
	tells(&client, 1, 1);
	ck_assert_int_eq(ceov_abort(client.context, ticket), 0);
	ck_assert_int_eq(ceov_wait(client.context, ticket, TESTING_PATIENCE), CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_signal_wait(client.arrived, 0, 1, TESTING_PATIENCE),
			 CEOV_ERR_ABORTED);
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

/* Clients close as soon as they see the last mark, which the daemon's lane raises before its engine
 * has seen that the launch is done. A launch that waits for a mark is ended. */
START_TEST(test_a_client_that_closes_aborts_no_launch_that_is_done)
{
	struct daemon_rig_client client;
	uint32_t i;

	daemon_rig_start(&rig, NULL);
	for (i = 0; i < CLOSES; i++) {
		daemon_rig_open(&rig, &client, NORMAL);
		launch(&client);
		ck_assert_int_eq(ceov_signal_raise(client.ready, 0, 1), 0);
		ck_assert_int_eq(ceov_signal_wait(client.arrived, 0, 1, TESTING_PATIENCE), 0);
		ceov_close(client.context);
	}
	ck_assert_uint_eq(rig.client_log.n_lines, 0);
	daemon_rig_says(&rig, "metrics", "ceoverlap_launches_total 20\n");
	daemon_rig_says(&rig, "metrics", "ceoverlap_launch_errors_total{error=\"aborted\"} 0\n");
	daemon_rig_open(&rig, &client, NORMAL);
	launch(&client);
	ceov_close(client.context);
	ck_assert_uint_eq(rig.client_log.n_lines, 0);
	daemon_rig_end(&rig);
}
END_TEST

START_TEST(test_a_killed_daemon_is_told)
{
	struct ceov_context_info info = CEOV_CONTEXT_INFO_INIT;
	struct daemon_rig_client client;
	ceov_ticket ticket;

	daemon_rig_start(&rig, NULL);
	daemon_rig_open(&rig, &client, NORMAL);
	ticket = launch(&client);
	daemon_rig_kill(&rig);
	ck_assert_int_eq(ceov_wait(client.context, ticket, TESTING_PATIENCE),
			 CEOV_ERR_DAEMON_LOST);
	ck_assert_int_eq(ceov_signal_wait(client.arrived, 0, 1, TESTING_PATIENCE),
			 CEOV_ERR_DAEMON_LOST);
	testing_log_has(&rig.client_log, "the daemon at", "has gone", NULL);
	ck_assert_int_eq(ceov_context_query(client.context, &info), 0);
	ck_assert_int_eq(info.has_daemon, 0);
	ceov_close(client.context);
}
END_TEST

/* A client in a process of its own, with a launch in flight, is killed; another one goes on. */
START_TEST(test_a_killed_client_does_not_disturb)
{
	struct daemon_rig_client client, other;
	int pipes[2], status;
	pid_t child;
	uint32_t i;
	char byte;

	daemon_rig_start(&rig, NULL);
	ck_assert_int_eq(pipe(pipes), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child) {
		daemon_rig_open(&rig, &other, NORMAL);
		(void)launch(&other);
		if (write(pipes[1], "x", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	daemon_rig_open(&rig, &client, NORMAL);
	ck_assert_int_eq(read(pipes[0], &byte, 1), 1);
	daemon_rig_pass(&client);
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	for (i = 1; i < LAUNCHES; i++)
		daemon_rig_pass(&client);
	close(pipes[0]);
	close(pipes[1]);
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

/* Its memory file outlives the client, and nobody but the daemon is there to abort its signal. */
START_TEST(test_signals_of_an_idle_client_that_died_are_aborted)
{
	const struct cei_signal_header *header;
	uint64_t deadline;
	struct daemon_rig_client client;
	int pipes[2], fd, status;
	char path[64];
	pid_t child;

	daemon_rig_start(&rig, NULL);
	ck_assert_int_eq(pipe(pipes), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child) {
		daemon_rig_open(&rig, &client, NORMAL);
		daemon_rig_pass(&client);
		if (write(pipes[1], &client.arrived->control->fd, sizeof(fd)) != sizeof(fd))
			_exit(1);
		pause();
		_exit(0);
	}
	ck_assert_int_eq(read(pipes[0], &fd, sizeof(fd)), sizeof(fd));
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", child, fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	header = mmap(NULL, sizeof(*header), PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(header, MAP_FAILED);
	ck_assert_uint_eq(header->abort_code, 0);
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	deadline = cei_deadline(TESTING_PATIENCE);
	while (!header->abort_code && cei_now_ns() < deadline)
		usleep(500);
	ck_assert_int_eq((int)(header->abort_code & 0xff), -CEOV_ERR_PEER_LOST);
	munmap((void *)(uintptr_t)header, sizeof(*header));
	close(fd);
	close(pipes[0]);
	close(pipes[1]);
	daemon_rig_end(&rig);
}
END_TEST

/* Bytes that are no message, and messages out of turn, end that connection alone. */
START_TEST(test_strangers_are_turned_away)
{
	uint64_t seed = testing_seed();
	struct daemon_rig_client client;
	uint8_t bytes[64];
	uint32_t i, k;
	int fd;

	daemon_rig_start(&rig, NULL);
	daemon_rig_open(&rig, &client, NORMAL);
	for (i = 0; i < 50; i++) {
		fd = daemon_connect(&rig.daemon);
		ck_assert_int_ge(fd, 0);
		for (k = 0; k < sizeof(bytes); k++)
			bytes[k] = (uint8_t)testing_random(&seed);
		if (i % 2) {
			((uint32_t *)(void *)bytes)[0] = CEI_SERVICE_MAGIC;
			((uint32_t *)(void *)bytes)[1] = CEI_SERVICE_VERSION;
			((uint32_t *)(void *)bytes)[2] = i % (CEI_SERVICE_STAYED + 1);
		}
		ck_assert_int_eq(send(fd, bytes, 12 + i, MSG_NOSIGNAL), 12 + (ssize_t)i);
		while (recv(fd, bytes, sizeof(bytes), 0) > 0)
			;               /* until the daemon has closed it */
		close(fd);
		daemon_rig_pass(&client);
	}
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

/* --- releases ------------------------------------------------------------------ */

/* How many pieces of clients' memory the daemon has mapped. */
static uint32_t n_mapped(void)
{
	char path[64], line[400];
	uint32_t n = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", rig.daemon.pid);
	maps = fopen(path, "r");
	ck_assert_ptr_nonnull(maps);
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "/memfd:ceoverlap ") != NULL;
	fclose(maps);
	return n;
}

/* Sends the daemon a signal after a while. */
static pid_t signal_daemon_later(int number)
{
	pid_t child = fork();

	ck_assert_int_ge(child, 0);
	if (child)
		return child;
	usleep(200000);
	_exit(kill(rig.daemon.pid, number) != 0);
}

static void has_signalled(pid_t child)
{
	int status;

	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}

/* The daemon does nothing for a while, so that a release which does not wait for it is seen. */
START_TEST(test_a_released_plan_is_not_mapped_any_more)
{
	struct daemon_rig_client client;
	pid_t child;

	daemon_rig_start(&rig, NULL);
	daemon_rig_open(&rig, &client, NORMAL);
	ck_assert_uint_eq(n_mapped(), 4);
	testing_stop(rig.daemon.pid);
	child = signal_daemon_later(SIGCONT);
	ceov_plan_release(client.plan);
	ck_assert_uint_eq(n_mapped(), 0);
	has_signalled(child);
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

START_TEST(test_a_release_ends_when_the_daemon_dies)
{
	uint64_t begin;
	struct daemon_rig_client client;
	pid_t child;

	rig.deadline_ns = 3 * TESTING_PATIENCE;
	daemon_rig_start(&rig, NULL);
	daemon_rig_open(&rig, &client, NORMAL);
	testing_stop(rig.daemon.pid);
	child = signal_daemon_later(SIGKILL);
	begin = cei_now_ns();
	ceov_plan_release(client.plan);
	ck_assert_uint_lt(cei_now_ns() - begin, TESTING_PATIENCE);
	has_signalled(child);
	daemon_rig_kill(&rig);
	ceov_close(client.context);
}
END_TEST

/* What the daemon commits when nobody waits for that any more, it does not keep. */
START_TEST(test_a_commit_has_a_deadline)
{
	struct daemon_rig_client client;
	pid_t child;

	rig.deadline_ns = TESTING_SECOND;
	daemon_rig_start(&rig, NULL);
	daemon_rig_open_bare(&rig, &client);
	daemon_rig_build(&client, NORMAL);
	testing_stop(rig.daemon.pid);
	ck_assert_int_eq(ceov_plan_commit(client.plan), CEOV_ERR_TIMEOUT);
	child = signal_daemon_later(SIGCONT);
	has_signalled(child);
	ceov_plan_release(client.plan);
	daemon_rig_build(&client, NORMAL);
	ck_assert_int_eq(ceov_plan_commit(client.plan), 0);
	daemon_rig_pass(&client);
	ck_assert_uint_eq(n_mapped(), 4);
	ceov_plan_release(client.plan); /* a plan that was kept would name the same memory */
	ck_assert_uint_eq(n_mapped(), 0);
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

/* What the daemon says late is not taken for the answer to what is asked next. */
START_TEST(test_a_release_has_a_deadline)
{
	struct ceov_failure failure = { .text = "" };
	struct daemon_rig_client client;
	pid_t child;

	rig.deadline_ns = 3 * TESTING_SECOND;
	daemon_rig_start(&rig, NULL);
	daemon_rig_open(&rig, &client, NORMAL);
	testing_stop(rig.daemon.pid);
	ceov_plan_release(client.plan);
	ck_assert_int_eq(ceov_last_failure(client.context, &failure), 0);
	ck_assert_int_eq(failure.error, CEOV_ERR_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(failure.text, "may still have its memory mapped"));
	child = signal_daemon_later(SIGCONT);
	daemon_rig_build(&client, NORMAL);
	ck_assert_int_eq(ceov_plan_commit(client.plan), 0);
	has_signalled(child);
	daemon_rig_pass(&client);
	ceov_plan_release(client.plan);
	ck_assert_uint_eq(n_mapped(), 0);
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

static Suite *suite(void)
{
	Suite *all = suite_create("daemon");
	TCase *cases = tcase_create("daemon");

	tcase_set_timeout(cases, 90);
	tcase_add_test(cases, test_a_daemon_moves_data);
	tcase_add_test(cases, test_wrong_plans_are_refused_with_the_daemons_words);
	tcase_add_test(cases, test_what_a_daemon_cannot_reach_stays_here);
	tcase_add_loop_test(cases, test_aborts_look_at_plans_that_come_and_go, 0, 2);
	tcase_add_test(cases, test_aborts_look_at_plans_while_the_link_is_closed);
	tcase_add_test(cases, test_an_abort_ends_a_launch_there);
	tcase_add_test(cases, test_a_client_that_closes_aborts_no_launch_that_is_done);
	tcase_add_test(cases, test_a_killed_daemon_is_told);
	tcase_add_test(cases, test_a_killed_client_does_not_disturb);
	tcase_add_test(cases, test_signals_of_an_idle_client_that_died_are_aborted);
	tcase_add_test(cases, test_strangers_are_turned_away);
	tcase_add_test(cases, test_a_released_plan_is_not_mapped_any_more);
	tcase_add_test(cases, test_a_release_ends_when_the_daemon_dies);
	tcase_add_test(cases, test_a_commit_has_a_deadline);
	tcase_add_test(cases, test_a_release_has_a_deadline);
	suite_add_tcase(all, cases);
	return all;
}

int main(void)
{
	return testing_run(suite());
}
