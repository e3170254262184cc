/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests that systemd's watchdog is fed by real progress alone: every engine has turned since, and
 * who sleeps is woken to turn. */

#include <check.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/operator/operation.h"
#include "daemon/server/server.h"
#include "testing.h"

#define N_ENGINES 2u
#define FEED_NS   UINT64_C(1000)

static struct cei_server *server;
static struct cei_operation operation;
static char path[100];
static int notified;                    /* the socket that systemd would listen at */

static void set_up(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	uint32_t i;

	server = calloc(1, sizeof(*server));
	ck_assert_ptr_nonnull(server);
	cei_report_init(&server->report, NULL, NULL);
	cei_list_init(&server->clients);
	server->site.n_members = N_ENGINES;
	operation = (struct cei_operation){ .server = server };
	operation.feed_ns = FEED_NS;
	for (i = 0; i < N_ENGINES; i++)
		ck_assert_int_eq(cei_intake_init(&server->intakes[i], &server->report), 0);
	testing_path("notify", path, sizeof(path));
	strcpy(address.sun_path, path);
	notified = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_ge(notified, 0);
	ck_assert_int_eq(bind(notified, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(setenv("NOTIFY_SOCKET", path, 1), 0);
}

static void tear_down(void)
{
	uint32_t i;

	for (i = 0; i < N_ENGINES; i++)
		cei_intake_fini(&server->intakes[i]);
	cei_report_fini(&server->report);
	free(server);
	close(notified);
	unlink(path);
}

static void turn(uint32_t engine)
{
	struct cei_launch_source *source = &server->intakes[engine].source;

	(void)source->take(source);
}

static int is_nudged(uint32_t engine)
{
	struct pollfd bell = { .fd = server->intakes[engine].bell, .events = POLLIN };

	return poll(&bell, 1, 0) == 1;
}

/* Whether it is fed when that much time has passed. */
static int feeds(uint64_t now_ns)
{
	char message[64] = "";

	cei_operation_look(&operation, now_ns);
	return recv(notified, message, sizeof(message) - 1, 0) > 0 &&
		!strcmp(message, "WATCHDOG=1");
}

START_TEST(test_an_engine_that_does_not_turn_starves_the_dog)
{
	uint64_t now_ns = 10 * FEED_NS;

	ck_assert_int_eq(feeds(now_ns), 0);     /* none has turned yet */
	turn(0);
	ck_assert_int_eq(feeds(now_ns), 0);     /* the other one has not */
	turn(1);
	ck_assert_int_eq(is_nudged(0), 0);
	ck_assert_int_eq(feeds(now_ns), 1);
	ck_assert_int_eq(is_nudged(0) && is_nudged(1), 1);
	turn(1);
	now_ns += FEED_NS;
	ck_assert_int_eq(feeds(now_ns), 0);
	ck_assert_int_eq(feeds(1000 * now_ns), 0);
	turn(0);
	ck_assert_int_eq(feeds(1000 * now_ns), 1);
	turn(0);
	turn(1);
	ck_assert_int_eq(feeds(1000 * now_ns), 0);      /* not yet again */
	ck_assert_int_eq(feeds(1001 * now_ns), 1);
}
END_TEST

START_TEST(test_without_a_watchdog_nobody_is_nudged)
{
	operation.feed_ns = 0;
	turn(0);
	turn(1);
	ck_assert_int_eq(feeds(10 * FEED_NS), 0);
	ck_assert_int_eq(is_nudged(0), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *all = suite_create("watchdog");
	TCase *cases = tcase_create("watchdog");

	tcase_add_checked_fixture(cases, set_up, tear_down);
	tcase_add_test(cases, test_an_engine_that_does_not_turn_starves_the_dog);
	tcase_add_test(cases, test_without_a_watchdog_nobody_is_nudged);
	suite_add_tcase(all, cases);
	return all;
}

int main(void)
{
	return testing_run(suite());
}
