/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests a real ceoverlapd with real clients: data that it moves for one and for two processes, what
 * it refuses, plans that stay in the process, and the death of either side. */

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/objects/signal.h"
#include "ipc/service_wire.h"
#include "system/daemon_fixture.h"
#include "testing.h"

#define BYTES    UINT64_C(100000)
#define LAUNCHES 200u

static struct daemon_fixture server;
static struct testing_log    lines;

static void start_daemon(void)
{
	testing_log_init(&lines);
	daemon_start(&server, "d.sock");
}

static void end_daemon(void)
{
	daemon_end(&server);
}

static void kill_daemon(void)
{
	daemon_kill(&server);
	ck_assert_int_eq(unlink(server.path), 0);
}

/* --- clients ------------------------------------------------------------------ */

struct client {
	ceov_context *context;
	ceov_buffer  *source, *target;
	ceov_signal  *ready, *arrived;
	ceov_plan    *plan;
};

static ceov_context *open_client(uint32_t n_ranks)
{
	struct ceov_member members[4];
	struct ceov_config config = testing_config(members, n_ranks, &lines);
	ceov_context *context = NULL;

	config.daemon = server.path;
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	return context;
}

static void make_plan(struct client *client)
{
	struct ceov_transfer transfer = testing_transfer(client->source, client->target, BYTES);

	client->ready = testing_signal(client->context, 0, 1);
	client->arrived = testing_signal(client->context, 1, 1);
	client->plan = testing_plan(client->context, 0);
	transfer.source_ready = testing_mark(client->ready, 0, 1);
	transfer.then = testing_mark(client->arrived, 0, 1);
	testing_add(client->plan, &transfer);
}

static void commits(const struct client *client)
{
	struct ceov_failure failure = { .text = "" };
	int r = ceov_plan_commit(client->plan);

	(void)ceov_last_failure(client->context, &failure);
	ck_assert_msg(!r, "commit: %d, %s", r, failure.text);
}

static void make_client(struct client *client)
{
	client->context = open_client(2);
	client->source = testing_buffer(client->context, 0, BYTES);
	client->target = testing_buffer(client->context, 1, BYTES);
	make_plan(client);
	commits(client);
}

static ceov_ticket launch(const struct client *client, uint64_t base)
{
	const struct ceov_launch ask = { .struct_bytes = sizeof(ask), .base = base };
	ceov_ticket ticket;

	ck_assert_int_eq(ceov_launch(client->plan, &ask, &ticket), 0);
	return ticket;
}

/* One launch with new data, which arrive whole. */
static void pass(const struct client *client, uint64_t base, uint64_t *seed)
{
	uint8_t *from = ceov_buffer_base(client->source, 0);
	ceov_ticket ticket = launch(client, base);
	uint64_t i;

	for (i = 0; i < BYTES; i++)
		from[i] = (uint8_t)testing_random(seed);
	ck_assert_int_eq(ceov_signal_raise(client->ready, 0, base + 1), 0);
	ck_assert_int_eq(ceov_signal_wait(client->arrived, 0, base + 1, TESTING_PATIENCE), 0);
	ck_assert_int_eq(memcmp(from, ceov_buffer_base(client->target, 1), BYTES), 0);
	ck_assert_int_eq(ceov_wait(client->context, ticket, TESTING_PATIENCE), 0);
}

static void explains(ceov_plan *plan, const char *text)
{
	char path[200], line[400] = "";
	int found = 0;
	FILE *file;
	int fd;

	testing_path("explained", path, sizeof(path));
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ceov_plan_explain(plan, fd), 0);
	close(fd);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	while (!found && fgets(line, sizeof(line), file))
		found = strstr(line, text) != NULL;
	fclose(file);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_msg(found, "no line has '%s'", text);
}

/* --- tests -------------------------------------------------------------------- */

START_TEST(test_a_daemon_moves_data)
{
	uint64_t seed = testing_seed(), i;
	struct client client;

	start_daemon();
	make_client(&client);
	explains(client.plan, "carried out by the daemon");
	for (i = 0; i < LAUNCHES; i++)
		pass(&client, i, &seed);
	ceov_plan_release(client.plan);
	make_plan(&client);
	commits(&client);
	pass(&client, 0, &seed);
	ceov_close(client.context);
	end_daemon();
}
END_TEST

START_TEST(test_wrong_plans_are_refused_with_the_daemons_words)
{
	struct ceov_transfer twice;
	struct ceov_failure failure;
	struct client client;

	start_daemon();
	client.context = open_client(2);
	client.source = testing_buffer(client.context, 0, BYTES);
	client.target = testing_buffer(client.context, 1, BYTES);
	make_plan(&client);
	/* the same target twice, in no order */
	twice = testing_transfer(client.source, client.target, 64);
	ck_assert_int_eq(ceov_plan_add(client.plan, &twice), 0);
	ck_assert_int_eq(ceov_plan_commit(client.plan), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_last_failure(client.context, &failure), 0);
	ck_assert_int_eq(failure.error, CEOV_ERR_INVALID);
	ceov_close(client.context);
	end_daemon();
}
END_TEST

START_TEST(test_what_a_daemon_cannot_reach_stays_here)
{
	static uint8_t memory[BYTES];
	uint64_t seed = testing_seed();
	struct client client;

	start_daemon();
	client.context = open_client(2);
	client.target = testing_buffer(client.context, 1, BYTES);
	ck_assert_int_eq(ceov_buffer_register(client.context, 0, memory, BYTES, &client.source), 0);
	make_plan(&client);
	commits(&client);
	explains(client.plan, "in this process and not by the daemon");
	pass(&client, 0, &seed);
	ceov_close(client.context);
	ck_assert_int_eq(setenv("CEOVERLAP_DAEMON_STRICT", "1", 1), 0);
	client.context = open_client(2);
	client.target = testing_buffer(client.context, 1, BYTES);
	ck_assert_int_eq(ceov_buffer_register(client.context, 0, memory, BYTES, &client.source), 0);
	make_plan(&client);
	ck_assert_int_eq(ceov_plan_commit(client.plan), CEOV_ERR_NO_ROUTE);
	ceov_close(client.context);
	end_daemon();
}
END_TEST

START_TEST(test_an_abort_ends_a_launch_there)
{
	struct client client;
	ceov_ticket ticket;

	start_daemon();
	make_client(&client);
	ticket = launch(&client, 0);
	ck_assert_int_eq(ceov_wait(client.context, ticket, 0), CEOV_PENDING);
	ck_assert_int_eq(ceov_plan_idle(client.plan), CEOV_PENDING);
	ck_assert_int_eq(ceov_abort(client.context, ticket), 0);
	ck_assert_int_eq(ceov_wait(client.context, ticket, TESTING_PATIENCE), CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_signal_wait(client.arrived, 0, 1, TESTING_PATIENCE),
			 CEOV_ERR_ABORTED);
	ceov_close(client.context);
	end_daemon();
}
END_TEST

START_TEST(test_a_killed_daemon_is_told)
{
	struct client client;
	ceov_ticket ticket;

	start_daemon();
	make_client(&client);
	ticket = launch(&client, 0);
	kill_daemon();
	ck_assert_int_eq(ceov_wait(client.context, ticket, TESTING_PATIENCE),
			 CEOV_ERR_DAEMON_LOST);
	ck_assert_int_eq(ceov_signal_wait(client.arrived, 0, 1, TESTING_PATIENCE),
			 CEOV_ERR_DAEMON_LOST);
	testing_log_has(&lines, "the daemon at", "has gone", NULL);
	ceov_close(client.context);
}
END_TEST

/* A client in a process of its own, with a launch in flight, is killed; another one goes on. */
START_TEST(test_a_killed_client_does_not_disturb)
{
	uint64_t seed = testing_seed(), i;
	struct client client, other;
	int pipes[2], status;
	pid_t child;
	char byte;

	start_daemon();
	ck_assert_int_eq(pipe(pipes), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child) {
		make_client(&other);
		(void)launch(&other, 0);
		if (write(pipes[1], "x", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	make_client(&client);
	ck_assert_int_eq(read(pipes[0], &byte, 1), 1);
	pass(&client, 0, &seed);
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	for (i = 1; i < LAUNCHES; i++)
		pass(&client, i, &seed);
	close(pipes[0]);
	close(pipes[1]);
	ceov_close(client.context);
	end_daemon();
}
END_TEST

/* Its memory file outlives the client, and nobody but the daemon is there to abort its signal. */
START_TEST(test_signals_of_an_idle_client_that_died_are_aborted)
{
	const struct cei_signal_header *header;
	uint64_t deadline, seed = testing_seed();
	struct client client;
	int pipes[2], fd, status;
	char path[64];
	pid_t child;

	start_daemon();
	ck_assert_int_eq(pipe(pipes), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child) {
		make_client(&client);
		pass(&client, 0, &seed);
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
	end_daemon();
}
END_TEST

/* Bytes that are no message, and messages out of turn, end that connection alone. */
START_TEST(test_strangers_are_turned_away)
{
	uint64_t seed = testing_seed();
	struct client client;
	uint8_t bytes[64];
	uint32_t i, k;
	int fd;

	start_daemon();
	make_client(&client);
	for (i = 0; i < 50; i++) {
		fd = daemon_connect(&server);
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
		pass(&client, i, &seed);
	}
	ceov_close(client.context);
	end_daemon();
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
	tcase_add_test(cases, test_an_abort_ends_a_launch_there);
	tcase_add_test(cases, test_a_killed_daemon_is_told);
	tcase_add_test(cases, test_a_killed_client_does_not_disturb);
	tcase_add_test(cases, test_signals_of_an_idle_client_that_died_are_aborted);
	tcase_add_test(cases, test_strangers_are_turned_away);
	suite_add_tcase(all, cases);
	return all;
}

int main(void)
{
	return testing_run(suite());
}
