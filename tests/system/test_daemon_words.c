/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What clients of a daemon may say and have: messages that no client of ours sends, and limits that
 * hold over several plans and clients. */

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "ipc/service_area.h"
#include "ipc/service_wire.h"
#include "system/daemon_rig.h"

#define NORMAL  CEOV_URGENCY_NORMAL
#define CLIENTS 70u                     /* more than there are shares of the engines */

static struct daemon_rig rig;

/* --- messages -------------------------------------------------------------------- */

static void send_message(int connection, const struct cei_service_message *message, int *fds,
			 uint32_t n_fds)
{
	static uint8_t bytes[CEI_SERVICE_BYTES_MAX];
	struct cei_datagram datagram = { .bytes = bytes, .fds = fds, .n_fds = n_fds };

	datagram.n_bytes = cei_encode(&cei_service_protocol, message, bytes);
	ck_assert_int_eq(cei_datagram_send(connection, &datagram), 0);
}

static struct cei_service_message hello(void)
{
	struct cei_service_message message = { .type = CEI_SERVICE_HELLO };

	message.hello.n_ranks = message.hello.n_members = 1;
	message.hello.members[0].kind = CEOV_PLACE_HOST;
	message.hello.deadline_ns = message.hello.max_chunk_bytes = TESTING_SECOND;
	return message;
}

/* The daemon turns the client away with these words, and goes on. */
static void is_turned_away(const char *why)
{
	struct daemon_rig_client honest;

	daemon_rig_logs(&rig, why);
	daemon_rig_open(&rig, &honest, NORMAL);
	daemon_rig_pass(&honest);
	ceov_close(honest.context);
}

enum excess { FDS, BYTES, HELLO, N_EXCESSES };

/* A plan comes with more than was announced; a client that is open greets once more. */
START_TEST(test_more_than_was_announced_is_turned_away)
{
	struct cei_service_message message = { .type = CEI_SERVICE_PLAN, .number = 77 };
	struct daemon_rig_client client;
	int fds[CEI_SERVICE_PART_FDS] = { 0 }, connection;
	uint8_t bytes[4096] = { 0 };

	daemon_rig_start(&rig, NULL);
	daemon_rig_open_bare(&rig, &client);
	connection = daemon_rig_connection();
	message.plan = (struct cei_service_plan){ 3000, _i == FDS, _i == FDS };
	if (_i != HELLO)
		send_message(connection, &message, NULL, 0);
	message = (struct cei_service_message){ .type = CEI_SERVICE_PART };
	message.part.bytes = bytes;
	message.part.n_bytes = _i == FDS ? 0 : sizeof(bytes);
	if (_i == HELLO)
		message = hello();
	send_message(connection, &message, fds, _i == FDS ? CEI_SERVICE_PART_FDS : 0);
	is_turned_away(_i == HELLO ? "a message that no client sends here"
		       : "a part that belongs to no plan");
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

START_TEST(test_who_says_nothing_is_turned_away)
{
	struct timeval patience = { .tv_sec = 30 };
	uint64_t begin_ns = cei_now_ns();
	uint8_t bytes[1024];
	int fd;

	daemon_rig_start(&rig, NULL);
	fd = daemon_connect(&rig.daemon);
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
	while (recv(fd, bytes, sizeof(bytes), 0) > 0)
		;
	ck_assert_uint_lt(cei_now_ns() - begin_ns, 25 * TESTING_SECOND);
	is_turned_away("nothing was said in time");
	close(fd);
	daemon_rig_end(&rig);
}
END_TEST

/* The handle of a plan that was dropped does not drop the next one in its slot. */
START_TEST(test_handles_of_dropped_plans_mean_nothing)
{
	struct cei_service_message message = { .type = CEI_SERVICE_DROP, .number = 77 };
	struct daemon_rig_client client;

	daemon_rig_start(&rig, NULL);
	daemon_rig_open(&rig, &client, NORMAL);
	ceov_plan_release(client.plan);
	daemon_rig_build(&client, NORMAL);
	ck_assert_int_eq(ceov_plan_commit(client.plan), 0);
	message.handle = (struct cei_service_handle){ 0, 0 };
	send_message(daemon_rig_connection(), &message, NULL, 0);
	usleep(50000);
	daemon_rig_pass(&client);
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

/* Results are the daemon's alone to write. */
START_TEST(test_a_client_cannot_write_results)
{
	static uint8_t bytes[CEI_SERVICE_BYTES_MAX];
	int fds[CEI_DATAGRAM_FDS_MAX] = { -1 }, connection;
	struct cei_datagram datagram = { .bytes = bytes, .fds = fds };
	struct cei_service_message message = hello();
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);

	daemon_rig_start(&rig, NULL);
	connection = daemon_connect(&rig.daemon);
	send_message(connection, &message, NULL, 0);
	do {
		usleep(1000);
		datagram.n_bytes = sizeof(bytes);
		datagram.n_fds = CEI_DATAGRAM_FDS_MAX;
	} while (cei_datagram_receive(connection, &datagram) == CEOV_NONE &&
		 cei_now_ns() < deadline);
	ck_assert_int_eq(cei_decode(&cei_service_protocol, bytes, datagram.n_bytes, &message), 0);
	ck_assert_uint_eq(message.type, CEI_SERVICE_WELCOME);
	ck_assert_uint_eq(datagram.n_fds, 3);   /* DOWN, UP and a bell */
	ck_assert_ptr_ne(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fds[1], 0), MAP_FAILED);
	ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0),
			 MAP_FAILED);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_lt(write(fds[1], bytes, 1), 0);
	ck_assert_int_lt(ftruncate(fds[0], 0), 0);
	cei_datagram_close_fds(&datagram);
	close(connection);
	daemon_rig_end(&rig);
}
END_TEST

/* --- limits ---------------------------------------------------------------------- */

static void is_refused(const struct daemon_rig_client *client, const char *limit)
{
	struct ceov_failure failure;

	ck_assert_int_eq(ceov_plan_commit(client->plan), CEOV_ERR_NO_MEMORY);
	failure = testing_failure(client->context);
	ck_assert_msg(strstr(failure.text, limit) != NULL, "'%s' is not in '%s'", limit,
		      failure.text);
}

/* A client has two plans at a time, by number or by their four pieces of memory each; what it
 * releases it gets back, again and again. */
START_TEST(test_limits_hold_over_all_plans_of_a_client)
{
	static const char *const limits[][2] = {
		{ "[limits]\nplans = 2\n", "limit 'plans'" },
		{ "[limits]\nregions = 11\n", "limit 'regions'" },
	};
	struct daemon_rig_client client;
	ceov_plan *first;
	uint32_t i;

	daemon_rig_start(&rig, limits[_i][0]);
	daemon_rig_open(&rig, &client, NORMAL);
	first = client.plan;
	daemon_rig_build(&client, NORMAL);
	ck_assert_int_eq(ceov_plan_commit(client.plan), 0);
	for (i = 0; i < 4; i++) {
		daemon_rig_build(&client, NORMAL);
		is_refused(&client, limits[_i][1]);
		ceov_plan_release(first);
		ck_assert_int_eq(ceov_plan_commit(client.plan), 0);
		daemon_rig_pass(&client);
		first = client.plan;
	}
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

START_TEST(test_chunks_are_as_long_as_the_operator_says)
{
	struct daemon_rig_client client;
	char text[40];

	daemon_rig_start(&rig, "[limits]\nchunk_bytes = 4K\n");
	daemon_rig_open(&rig, &client, NORMAL);
	daemon_rig_pass(&client);
	snprintf(text, sizeof(text), " %u chunks", (unsigned)(DAEMON_RIG_BYTES / 4096 + 1));
	daemon_rig_says(&rig, "routes", text);
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

/* There are 64 shares: a client that goes leaves its own to the next one. */
START_TEST(test_clients_that_go_leave_their_shares)
{
	struct daemon_rig_client client;
	uint32_t i;

	daemon_rig_start(&rig, NULL);
	for (i = 0; i < CLIENTS; i++) {
		daemon_rig_open_bare(&rig, &client);
		if (i + 1 < CLIENTS)
			ceov_close(client.context);
	}
	daemon_rig_build(&client, NORMAL);
	ck_assert_int_eq(ceov_plan_commit(client.plan), 0);
	daemon_rig_pass(&client);
	daemon_rig_says(&rig, "--json clients", "\"has_share\":true");
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

/* A launch in flight keeps the daemon from its end, and it takes nobody new meanwhile. */
START_TEST(test_who_comes_while_it_drains_is_turned_away)
{
	struct ceov_member members[1] = { { 0 } };
	struct testing_log log;
	struct ceov_config config;
	struct daemon_rig_client client;
	ceov_context *late = NULL;
	ceov_ticket ticket;

	daemon_rig_start(&rig, NULL);
	daemon_rig_open(&rig, &client, NORMAL);
	ck_assert_int_eq(ceov_launch(client.plan, NULL, &ticket), 0);
	daemon_rig_says(&rig, "drain", "ends when all launches have");
	testing_log_init(&log);
	config = testing_config(members, 1, &log);
	config.daemon = rig.daemon.path;
	ck_assert_int_eq(ceov_open(&config, &late), CEOV_ERR_STATE);
	testing_log_has(&log, "about to end", NULL, NULL);
	daemon_rig_build(&client, NORMAL);
	ck_assert_int_eq(ceov_plan_commit(client.plan), CEOV_ERR_STATE);
	ck_assert_int_eq(ceov_signal_raise(client.ready, 0, 1), 0);
	ck_assert_int_eq(ceov_wait(client.context, ticket, TESTING_PATIENCE), 0);
	daemon_rig_await_end(&rig);
	ceov_close(client.context);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("daemon words");
	TCase *tests = tcase_create("words");

	tcase_set_timeout(tests, 120);
	tcase_add_loop_test(tests, test_more_than_was_announced_is_turned_away, 0, N_EXCESSES);
	tcase_add_test(tests, test_who_says_nothing_is_turned_away);
	tcase_add_test(tests, test_handles_of_dropped_plans_mean_nothing);
	tcase_add_test(tests, test_a_client_cannot_write_results);
	tcase_add_loop_test(tests, test_limits_hold_over_all_plans_of_a_client, 0, 2);
	tcase_add_test(tests, test_chunks_are_as_long_as_the_operator_says);
	tcase_add_test(tests, test_clients_that_go_leave_their_shares);
	tcase_add_test(tests, test_who_comes_while_it_drains_is_turned_away);
	suite_add_tcase(suite, tests);
	return testing_run(suite);
}
