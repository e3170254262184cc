/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests what a real ceoverlapd does with an engine whose place is lost. The place is host memory,
 * which the fault script of its engine's mover loses; the same code fences a GPU. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "system/daemon_rig.h"

#define LOST   "host memory 0 is lost, as its fault script says"
#define FENCED LOST "; the daemon has fenced it"

static struct daemon_rig rig;
static char said[1 << 20];

/* A daemon whose first engine loses its place with its n-th copy. */
static void start(const char *config, const char *n)
{
	ck_assert_int_eq(setenv("CEOVERLAP_HOST_FAULT_RANK", "0", 1), 0);
	ck_assert_int_eq(setenv("CEOVERLAP_HOST_BREAK_AT", n, 1), 0);
	daemon_rig_start(&rig, config);
	unsetenv("CEOVERLAP_HOST_BREAK_AT");
	unsetenv("CEOVERLAP_HOST_FAULT_RANK");
}

/* Launches, and returns what becomes of it. */
static int launch(struct daemon_rig_client *client)
{
	const struct ceov_launch ask = { .struct_bytes = sizeof(ask), .base = client->base };
	ceov_ticket ticket;

	ck_assert_int_eq(ceov_launch(client->plan, &ask, &ticket), 0);
	ck_assert_int_eq(ceov_signal_raise(client->ready, 0, client->base + 1), 0);
	return ceov_wait(client->context, ticket, TESTING_PATIENCE);
}

/* How many lines of clients have both texts. */
static uint32_t n_said(const char *text, const char *and_text)
{
	struct testing_log *log = &rig.client_log;
	uint32_t i, n = 0;

	pthread_mutex_lock(&log->lock);
	for (i = 0; i < TESTING_LINES && i < log->n_lines; i++)
		n += strstr(log->lines[i], text) && strstr(log->lines[i], and_text);
	pthread_mutex_unlock(&log->lock);
	return n;
}

static void clients_say(const char *text, const char *and_text, uint32_t n)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);

	while (n_said(text, and_text) < n && cei_now_ns() < deadline)
		usleep(1000);
	ck_assert_msg(n_said(text, and_text) == n, "%u lines say '%s' and '%s', not %u",
		      n_said(text, and_text), text, and_text, n);
}

static int commit_another(struct daemon_rig_client *client)
{
	struct ceov_transfer transfer = testing_transfer(client->source, client->target, 64);
	ceov_plan *plan = testing_plan(client->context, client->rank);

	testing_add(plan, &transfer);
	return ceov_plan_commit(plan);
}

/* How often the daemon's log has the text. */
static uint32_t n_lines(const char *text)
{
	const char *at = said;
	uint32_t n = 0;

	ck_assert_int_eq(daemon_rig_read(rig.log, said, sizeof(said)), 1);
	while ((at = strstr(at, text))) {
		at += strlen(text);
		n++;
	}
	return n;
}

START_TEST(test_an_engine_is_fenced_and_the_other_serves)
{
	struct daemon_rig_client victim, waiting, other, late;
	const struct ceov_launch ask = { .struct_bytes = sizeof(ask) };
	ceov_ticket ticket;
	uint32_t i;

	start("[daemon]\nhost_engines = 2\n", "9");
	/* ranks take the engines in turn, so each client's rank 0 has the first */
	daemon_rig_open(&rig, &victim, CEOV_URGENCY_NORMAL);
	daemon_rig_open(&rig, &waiting, CEOV_URGENCY_NORMAL);
	daemon_rig_open_from(&rig, &other, 1);
	ck_assert_int_eq(ceov_launch(waiting.plan, &ask, &ticket), 0);
	daemon_rig_pass(&victim);
	daemon_rig_pass(&victim);
	daemon_rig_pass(&other);
	daemon_rig_says(&rig, "metrics", "ceoverlap_fenced{engine=\"0\",place=\"host\"} 0\n");
	ck_assert_int_eq(launch(&victim), CEOV_ERR_SYSTEM);     /* its 9th of 4 copies each */
	clients_say("rank 0: launch 3, transfer 0", LOST " (to blame: rank 0)", 1);
	ck_assert_int_eq(ceov_wait(waiting.context, ticket, TESTING_PATIENCE), CEOV_ERR_SYSTEM);
	clients_say("rank 0: launch 1, transfer 0", LOST " (to blame: rank 0)", 1);
	ck_assert_int_eq(ceov_signal_wait(waiting.arrived, 0, 1, TESTING_PATIENCE),
			 CEOV_ERR_SYSTEM);
	clients_say(FENCED, "until it is started anew", 3);     /* all have a rank there */
	for (i = 0; i < 10; i++)
		daemon_rig_pass(&other);
	ck_assert_int_eq(commit_another(&waiting), CEOV_ERR_SYSTEM);
	clients_say(FENCED, "until it is started anew", 4);
	ck_assert_int_eq(commit_another(&other), 0);
	daemon_rig_open(&rig, &late, CEOV_URGENCY_NORMAL);
	for (i = 0; i < 10; i++)
		daemon_rig_pass(&late);
	daemon_rig_says(&rig, "status", "FENCED        engine 0 for");
	daemon_rig_says(&rig, "status", LOST);
	daemon_rig_says(&rig, "metrics", "ceoverlap_fenced{engine=\"0\",place=\"host\"} 1\n");
	daemon_rig_says(&rig, "metrics", "ceoverlap_fenced{engine=\"1\",place=\"host\"} 0\n");
	daemon_rig_logs(&rig, "fenced: " LOST);
	ck_assert_uint_eq(n_lines("fenced: " LOST), 1);
	ceov_close(victim.context);
	ceov_close(waiting.context);
	ceov_close(other.context);
	ceov_close(late.context);
	daemon_rig_end(&rig);
}
END_TEST

START_TEST(test_where_all_is_fenced_clients_are_refused)
{
	struct daemon_rig_client victim;
	struct ceov_member member = { 0, { CEOV_PLACE_HOST, 0 } };
	struct ceov_config config = testing_config(&member, 1, &rig.client_log);
	ceov_context *context = NULL;

	start(NULL, "1");
	daemon_rig_open(&rig, &victim, CEOV_URGENCY_NORMAL);
	ck_assert_int_eq(launch(&victim), CEOV_ERR_SYSTEM);
	daemon_rig_logs(&rig, "fenced: " LOST);
	config.daemon = rig.daemon.path;
	ck_assert_int_eq(ceov_open(&config, &context), CEOV_ERR_SYSTEM);
	clients_say(FENCED, "until it is started anew", 2);     /* it, and the victim */
	ceov_close(victim.context);
	daemon_rig_end(&rig);
}
END_TEST

/* No lane breaks, since nothing moves: the engine asks by itself. In the second round a launch
 * waits for its mark meanwhile. */
START_TEST(test_an_idle_engine_is_fenced)
{
	const struct ceov_launch ask = { .struct_bytes = sizeof(ask) };
	struct daemon_rig_client client;
	ceov_ticket ticket;

	ck_assert_int_eq(setenv("CEOVERLAP_HOST_BREAK_AFTER_MS", "4000", 1), 0);
	daemon_rig_start(&rig, NULL);
	unsetenv("CEOVERLAP_HOST_BREAK_AFTER_MS");
	daemon_rig_open(&rig, &client, CEOV_URGENCY_NORMAL);
	if (_i)
		ck_assert_int_eq(ceov_launch(client.plan, &ask, &ticket), 0);
	clients_say(FENCED, "until it is started anew", 1);
	daemon_rig_logs(&rig, "fenced: " LOST);
	if (!_i)
		ck_assert_int_eq(ceov_launch(client.plan, &ask, &ticket), 0);
	ck_assert_int_eq(ceov_wait(client.context, ticket, TESTING_PATIENCE), CEOV_ERR_SYSTEM);
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

/* What goes on after the next daemon has come. */
START_TEST(test_a_new_daemon_ends_a_fence)
{
	struct daemon_rig_client client;

	start(NULL, "5");
	daemon_rig_open(&rig, &client, CEOV_URGENCY_NORMAL);
	daemon_rig_pass(&client);
	ck_assert_int_eq(launch(&client), CEOV_ERR_SYSTEM);
	daemon_end(&rig.daemon);
	daemon_start_with(&rig.daemon, "d.sock", NULL, rig.log);
	ck_assert_int_eq(ceov_reopen(client.context, TESTING_PATIENCE), 0);
	client.base = 0;
	daemon_rig_pass(&client);
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

static Suite *suite(void)
{
	Suite *all = suite_create("a daemon's fences");
	TCase *cases = tcase_create("a daemon's fences");

	tcase_set_timeout(cases, 120);
	tcase_add_test(cases, test_an_engine_is_fenced_and_the_other_serves);
	tcase_add_test(cases, test_where_all_is_fenced_clients_are_refused);
	tcase_add_loop_test(cases, test_an_idle_engine_is_fenced, 0, 2);
	tcase_add_test(cases, test_a_new_daemon_ends_a_fence);
	suite_add_tcase(all, cases);
	return all;
}

int main(void)
{
	return testing_run(suite());
}
