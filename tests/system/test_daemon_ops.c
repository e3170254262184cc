/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the operation of a real ceoverlapd with real clients: settings that are read again, shares
 * and classes, what ceoverlapctl shows, what went last, and the orderly end. */

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <json-c/json.h>

#include "base/clock.h"
#include "system/daemon_rig.h"

#define NORMAL CEOV_URGENCY_NORMAL
#define URGENT CEOV_URGENCY_URGENT

static struct daemon_rig rig;
static char said[1 << 20];

/* What ceoverlapctl --json says. */
static struct json_object *asks(const char *command)
{
	struct json_object *answer;
	char arguments[64];

	snprintf(arguments, sizeof(arguments), "--json %s", command);
	ck_assert_int_eq(daemon_rig_ctl(&rig, arguments, said, sizeof(said)), 0);
	answer = json_tokener_parse(said);
	ck_assert_ptr_nonnull(answer);
	return answer;
}

/* The number at a path such as "daemon.clients" or "clients.0.plans". */
static uint64_t number_at(struct json_object *from, const char *path)
{
	char copy[128], *part, *rest = copy;

	snprintf(copy, sizeof(copy), "%s", path);
	while ((part = strsep(&rest, "."))) {
		if (json_object_is_type(from, json_type_array))
			from = json_object_array_get_idx(from, strtoul(part, NULL, 10));
		else
			ck_assert_msg(json_object_object_get_ex(from, part, &from),
				      "no %s of %s in %s", part, path, said);
	}
	return json_object_get_uint64(from);
}

static uint64_t asks_number(const char *command, const char *path)
{
	struct json_object *answer = asks(command);
	uint64_t number = number_at(answer, path);

	json_object_put(answer);
	return number;
}

/* --- settings ----------------------------------------------------------------- */

START_TEST(test_settings_are_read_again_while_clients_go_on)
{
	struct daemon_rig_client client;
	struct ceov_member members[2];
	struct ceov_config config;
	ceov_context *refused = NULL;

	daemon_rig_start(&rig, "[limits]\nplans = 7\n");
	daemon_rig_open(&rig, &client, NORMAL);
	daemon_rig_pass(&client);
	ck_assert_uint_eq(asks_number("limits", "limits.plans"), 7);
	daemon_rig_says(&rig, "limits", "  descriptors_per_user  0\n");
	daemon_rig_configure(&rig, "[limits]\nplans = 9\nclients_per_user = 1\nweight = 5\n");
	daemon_rig_says(&rig, "reload", "read again");
	ck_assert_uint_eq(asks_number("limits", "limits.plans"), 9);
	ck_assert_uint_eq(asks_number("clients", "clients.0.weight"), 5);
	daemon_rig_pass(&client);
	config = testing_config(members, 2, &rig.client_log);
	config.daemon = rig.daemon.path;
	ck_assert_int_eq(ceov_open(&config, &refused), CEOV_ERR_NO_MEMORY);
	testing_log_has(&rig.client_log, "clients_per_user", NULL, NULL);
	daemon_rig_pass(&client);
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

START_TEST(test_a_wrong_line_changes_nothing)
{
	struct daemon_rig_client client;
	char place[240];

	daemon_rig_start(&rig, "[limits]\nplans = 7\n");
	daemon_rig_open(&rig, &client, NORMAL);
	daemon_rig_configure(&rig, "[limits]\nplans = 9\nregions = none\n");
	snprintf(place, sizeof(place), "%s:3: regions is 'none'", rig.config);
	daemon_rig_fails(&rig, "reload", 1, place);
	daemon_rig_logs(&rig, place);
	ck_assert_uint_eq(asks_number("limits", "limits.plans"), 7);
	daemon_rig_says(&rig, "status", place);
	daemon_rig_says(&rig, "metrics", "ceoverlap_config_last_reload_successful 0\n");
	daemon_rig_pass(&client);
	daemon_rig_configure(&rig, "[limits]\nplans = 8\n[daemon]\nhost_engines = 2\n");
	ck_assert_int_eq(kill(rig.daemon.pid, SIGHUP), 0);
	daemon_rig_logs(&rig, "'host_engines' is not what it was");
	daemon_rig_says(&rig, "metrics", "ceoverlap_config_last_reload_successful 1\n");
	ck_assert_uint_eq(asks_number("limits", "limits.plans"), 8);
	daemon_rig_pass(&client);
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

/* How often the log says a text. */
static uint32_t n_logged(const char *text)
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

/* As long as the file differs from what the daemon was started with, and no longer. */
START_TEST(test_what_only_counts_at_the_start_is_told_each_time)
{
	static const char told[] = "'host_engines' is not what it was";

	daemon_rig_start(&rig, "[limits]\nplans = 7\n");
	daemon_rig_configure(&rig, "[daemon]\nhost_engines = 2\n");
	daemon_rig_says(&rig, "reload", "read again");
	ck_assert_uint_eq(n_logged(told), 1);
	daemon_rig_says(&rig, "reload", "read again");
	ck_assert_uint_eq(n_logged(told), 2);
	daemon_rig_configure(&rig, "[daemon]\nhost_engines = 1\n");
	daemon_rig_says(&rig, "reload", "read again");
	ck_assert_uint_eq(n_logged(told), 2);
	daemon_rig_end(&rig);
}
END_TEST

/* A pipe without a writer is as slow as a name service that does not answer. The daemon serves,
 * takes the settings over when they come, and ends while it reads again. */
START_TEST(test_a_slow_reading_stops_nobody)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	struct daemon_rig_client client;

	daemon_rig_start(&rig, "[limits]\nplans = 7\n");
	daemon_rig_open(&rig, &client, NORMAL);
	ck_assert_int_eq(unlink(rig.config), 0);
	ck_assert_int_eq(mkfifo(rig.config, 0600), 0);
	daemon_rig_fails(&rig, "reload", 1, "could not be read yet");
	daemon_rig_fails(&rig, "reload", 1, "could not be read yet");
	daemon_rig_pass(&client);
	ck_assert_uint_eq(asks_number("limits", "limits.plans"), 7);
	daemon_rig_configure(&rig, "[limits]\nplans = 9\n");
	while (asks_number("limits", "limits.plans") != 9 && cei_now_ns() < deadline)
		usleep(1000);
	ck_assert_uint_eq(asks_number("limits", "limits.plans"), 9);
	daemon_rig_pass(&client);
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

/* Connections that are refused, since their user has its clients already, until it is killed. */
static void knock(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd;

	memcpy(address.sun_path, rig.daemon.path, strlen(rig.daemon.path));
	for (;;) {
		fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
		(void)connect(fd, (const struct sockaddr *)&address, sizeof(address));
		close(fd);
	}
}

START_TEST(test_settings_are_read_while_clients_are_refused)
{
	struct daemon_rig_client client;
	uint32_t i;
	pid_t child;

	daemon_rig_start(&rig, "[limits]\nclients_per_user = 1\n");
	daemon_rig_open(&rig, &client, NORMAL);
	child = fork();
	if (!child)
		knock();
	ck_assert_int_ge(child, 0);
	for (i = 0; i < 100; i++) {
		ck_assert_int_eq(kill(rig.daemon.pid, SIGHUP), 0);
		usleep(5000);
	}
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	daemon_rig_pass(&client);
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

/* A plan that is refused leaves nothing behind: it fits when another one has gone. */
START_TEST(test_plans_of_too_many_chunks_are_refused)
{
	struct ceov_transfer transfer;
	struct daemon_rig_client client;
	ceov_plan *more;

	daemon_rig_start(&rig, "[limits]\nchunks = 4\n");
	daemon_rig_open(&rig, &client, NORMAL);         /* two chunks */
	more = testing_plan(client.context, 0);
	transfer = testing_transfer(client.source, client.target, DAEMON_RIG_BYTES);
	testing_add(more, &transfer);
	ck_assert_int_eq(ceov_plan_commit(more), CEOV_ERR_NO_MEMORY);
	testing_log_has(&rig.client_log, "the limit 'chunks'", NULL, NULL);
	daemon_rig_pass(&client);
	ceov_plan_release(client.plan);
	ck_assert_int_eq(ceov_plan_commit(more), 0);
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

/* Without a file there is nothing to read again. A wrong file is refused at the start. */
START_TEST(test_a_daemon_without_a_file)
{
	uint64_t deadline_ns = cei_deadline(TESTING_PATIENCE);
	static char log[4096];
	char command[800];
	int status;

	daemon_rig_start(&rig, NULL);
	daemon_rig_fails(&rig, "reload", 1, "without a configuration file");
	ck_assert_int_eq(kill(rig.daemon.pid, SIGHUP), 0);
	while (n_logged("without a configuration file") < 2) {
		ck_assert_msg(cei_now_ns() < deadline_ns, "SIGHUP is not answered");
		usleep(1000);
	}
	daemon_rig_says(&rig, "status", "no file; the defaults");
	daemon_rig_says(&rig, "metrics", "ceoverlap_config_last_reload_successful 1\n");
	daemon_rig_configure(&rig, "[limits]\nplans = 0\n");
	snprintf(command, sizeof(command), "timeout 20 ./ceoverlapd -s %s.2 -c %s 2> %s.2",
		 rig.daemon.path, rig.config, rig.log);
	status = system(command);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	snprintf(command, sizeof(command), "%s.2", rig.log);
	ck_assert_int_eq(daemon_rig_read(command, log, sizeof(log)), 1);
	ck_assert_ptr_nonnull(strstr(log, "d.conf:2: plans is '0'"));
	unlink(command);
	daemon_rig_end(&rig);
}
END_TEST

START_TEST(test_the_sockets_mode_and_group_are_set)
{
	struct stat stat_of;
	char config[100];

	snprintf(config, sizeof(config), "[daemon]\nmode = 0660\ngroup = %u\n",
		 (unsigned)getegid());
	daemon_rig_start(&rig, config);
	ck_assert_int_eq(stat(rig.daemon.path, &stat_of), 0);
	ck_assert_uint_eq(stat_of.st_mode & 0777, 0660);
	ck_assert_uint_eq(stat_of.st_gid, getegid());
	ck_assert_int_eq(stat(rig.daemon.control, &stat_of), 0);
	ck_assert_uint_eq(stat_of.st_mode & 0777, 0600);
	daemon_rig_end(&rig);
}
END_TEST

/* --- shares ------------------------------------------------------------------- */

START_TEST(test_a_class_is_capped)
{
	struct daemon_rig_client client;

	daemon_rig_start(&rig, "[limits]\nclass = background\n");
	daemon_rig_open(&rig, &client, URGENT);
	daemon_rig_pass(&client);
	ceov_close(client.context);
	ck_assert_uint_eq(asks_number("status", "daemon.bytes.background"), DAEMON_RIG_BYTES);
	ck_assert_uint_eq(asks_number("status", "daemon.bytes.urgent"), 0);
	daemon_rig_end(&rig);
}
END_TEST

/* 20 launches of 100 kB at 1 MB/s take two seconds, less what a limit lets go at once. */
START_TEST(test_a_limit_in_bytes_per_second_holds_at_once)
{
	struct daemon_rig_client client;
	uint64_t begin_ns;
	uint32_t i;

	daemon_rig_start(&rig, "[limits]\nbytes = 1G\n");
	daemon_rig_open(&rig, &client, NORMAL);
	daemon_rig_pass(&client);
	daemon_rig_configure(&rig, "[user 0]\nbytes_per_second = 1000000\n"
			     "[limits]\nbytes_per_second = 1000000\n");
	daemon_rig_says(&rig, "reload", "read again");
	begin_ns = cei_now_ns();
	for (i = 0; i < 20; i++)
		daemon_rig_pass(&client);
	ck_assert_uint_ge(cei_now_ns() - begin_ns, 1500 * TESTING_MS);
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

/* --- what is shown ------------------------------------------------------------ */

START_TEST(test_what_clients_do_is_shown)
{
	struct daemon_rig_client client, stray;
	struct json_object *answer;

	daemon_rig_start(&rig, "[user 0]\nweight = 3\n");
	daemon_rig_open(&rig, &client, URGENT);
	daemon_rig_open_stray(&rig, &stray);
	daemon_rig_pass(&client);
	daemon_rig_pass(&stray);
	answer = asks("status");
	ck_assert_uint_eq(number_at(answer, "daemon.clients"), 2);
	ck_assert_uint_eq(number_at(answer, "daemon.plans"), 1);
	ck_assert_uint_eq(number_at(answer, "daemon.unarbitrated_plans"), 1);
	ck_assert_uint_eq(number_at(answer, "daemon.launches"), 1);
	ck_assert_uint_eq(number_at(answer, "daemon.failed_launches"), 0);
	ck_assert_uint_eq(number_at(answer, "daemon.bytes.urgent"), DAEMON_RIG_BYTES);
	ck_assert_uint_eq(number_at(answer, "clients.0.pid"), (uint64_t)getpid());
	ck_assert_uint_eq(number_at(answer, "clients.0.uid"), getuid());
	ck_assert_uint_eq(number_at(answer, "clients.0.unarbitrated_plans"), 0);
	ck_assert_uint_eq(number_at(answer, "clients.1.unarbitrated_plans"), 1);
	ck_assert_uint_eq(number_at(answer, "links.0.classes.urgent.bytes"), DAEMON_RIG_BYTES);
	ck_assert_uint_eq(number_at(answer, "links.0.classes.urgent.chunks"), 4);
	ck_assert_uint_eq(number_at(answer, "links.0.waiting_chunks"), 0);
	json_object_put(answer);
	daemon_rig_says(&rig, "status", "1 here, 1 unarbitrated");
	daemon_rig_says(&rig, "clients", "test_daemon_ops");
	daemon_rig_says(&rig, "routes", "host: ");
	daemon_rig_says(&rig, "limits", "everybody");
	ceov_close(client.context);
	ceov_close(stray.context);
	/* what clients had that have gone stays counted */
	ck_assert_uint_eq(asks_number("status", "daemon.launches"), 1);
	ck_assert_uint_eq(asks_number("status", "daemon.unarbitrated_plans"), 1);
	daemon_rig_end(&rig);
}
END_TEST

static int has_entry(const char *manual, const char *name)
{
	char entry[80];

	snprintf(entry, sizeof(entry), "Cm %s\n", name);
	if (strstr(manual, entry))
		return 1;
	snprintf(entry, sizeof(entry), "Cm %s ,", name);
	return strstr(manual, entry) != NULL;
}

/* Asserts that the manual has an entry for each field of an object, and of those in it. Users, who
 * are numbers, are no fields. */
static void is_described(const char *manual, struct json_object *object)
{
	size_t i;

	if (json_object_is_type(object, json_type_array))
		for (i = 0; i < json_object_array_length(object); i++)
			is_described(manual, json_object_array_get_idx(object, i));
	if (!json_object_is_type(object, json_type_object))
		return;
	json_object_object_foreach(object, name, value) {
		if (name[strspn(name, "0123456789")])
			ck_assert_msg(has_entry(manual, name), "the manual has no %s", name);
		is_described(manual, value);
	}
}

START_TEST(test_the_manual_describes_the_fields)
{
	static const char *const commands[] = { "status", "limits", "dump", "metrics", "reload" };
	const char *folder = getenv("srcdir") ? getenv("srcdir") : ".";
	static char manual[65536];
	struct daemon_rig_client client;
	struct json_object *answer;
	char path[256];
	uint32_t i;

	snprintf(path, sizeof(path), "%s/man/ceoverlapctl.1", folder);
	ck_assert_int_eq(daemon_rig_read(path, manual, sizeof(manual)), 1);
	daemon_rig_start(&rig, "[user 0]\nweight = 3\n");
	daemon_rig_open(&rig, &client, NORMAL);
	daemon_rig_pass(&client);
	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		answer = asks(commands[i]);
		is_described(manual, answer);
		json_object_put(answer);
	}
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

START_TEST(test_exit_statuses)
{
	struct daemon_rig nowhere;

	daemon_rig_start(&rig, NULL);
	daemon_rig_fails(&rig, "", 2, "say what to do: status|clients|routes|");
	daemon_rig_fails(&rig, "dance", 2, "there is no command 'dance'");
	daemon_rig_fails(&rig, "status routes", 2, "one command at a time");
	daemon_rig_fails(&rig, "-i 5 monitor", 2, "from 100 to 60000");
	daemon_rig_fails(&rig, "status > /dev/full", 1, "");
	nowhere = rig;
	testing_path("nowhere", nowhere.daemon.path, sizeof(nowhere.daemon.path));
	daemon_rig_fails(&nowhere, "status", 3, "is ceoverlapd running");
	daemon_rig_end(&rig);
	daemon_rig_fails(&rig, "status", 3, "cannot connect");
}
END_TEST

/* The socket's file keeps others out, and so does the daemon, should its file let them in. */
START_TEST(test_others_are_refused)
{
	char command[800];
	int status;

	if (geteuid()) {
		printf("needs root, to be somebody else: skipped\n");
		return;
	}
	daemon_rig_start(&rig, NULL);
	ck_assert_int_eq(chmod(rig.daemon.control, 0666), 0);
	ck_assert_int_eq(chmod(getenv("CEOVERLAP_TEST_TMP"), 0755), 0);
	snprintf(command, sizeof(command), "setpriv --reuid 65534 --clear-groups "
		 "timeout 20 python3 -c 'import socket, sys\n"
		 "s = socket.socket(socket.AF_UNIX); s.connect(\"%s\"); s.settimeout(10)\n"
		 "try: s.send(b\"drain\\n\")\n"
		 "except OSError: pass\n"
		 "sys.exit(8 if b\"only root\" in s.recv(200) else 9)'", rig.daemon.control);
	status = system(command);
	ck_assert(WIFEXITED(status));
	ck_assert_int_ne(WEXITSTATUS(status), 9);
	if (WEXITSTATUS(status) == 8)   /* else nobody else comes into this folder */
		daemon_rig_logs(&rig, "refused: only root and the daemon's user may ask");
	daemon_rig_says(&rig, "status", "serves");
	daemon_rig_end(&rig);
}
END_TEST

/* A connection to the operator's socket that says nothing. */
static int connect_silently(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_uint_lt(strlen(rig.daemon.control), sizeof(address.sun_path));
	strcpy(address.sun_path, rig.daemon.control);
	ck_assert_int_eq(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

START_TEST(test_who_is_one_too_many_hears_of_the_limit)
{
	int fds[16];
	uint32_t i;

	daemon_rig_start(&rig, NULL);
	for (i = 0; i < 16; i++)
		fds[i] = connect_silently();
	daemon_rig_fails(&rig, "status", 1, "16 ask already, which is the limit");
	for (i = 0; i < 16; i++)
		close(fds[i]);
	daemon_rig_end(&rig);
}
END_TEST

/* --- what went last ------------------------------------------------------------ */

START_TEST(test_what_went_last_is_shown_and_logged)
{
	struct daemon_rig_client client;
	ceov_ticket ticket;
	struct ceov_launch ask = { .struct_bytes = sizeof(ask), .base = 1,
				   .deadline_ns = 50 * TESTING_MS };
	uint64_t deadline_ns;

	daemon_rig_start(&rig, NULL);
	daemon_rig_says(&rig, "dump", "nothing was moved yet");
	daemon_rig_open(&rig, &client, NORMAL);
	daemon_rig_pass(&client);
	daemon_rig_says(&rig, "dump", "chunk 3: 24.4 KiB over host, normal");
	ck_assert_uint_eq(asks_number("dump", "transfers.3.chunk"), 3);
	ck_assert_uint_eq(asks_number("dump", "transfers.3.client"), 1);
	ck_assert_int_eq(kill(rig.daemon.pid, SIGUSR1), 0);
	daemon_rig_logs(&rig, "what went last, because of a signal");
	daemon_rig_logs(&rig, "chunk 3: 25000 bytes over host, normal");
	/* nobody raises the mark that this launch waits for */
	ck_assert_int_eq(ceov_launch(client.plan, &ask, &ticket), 0);
	ck_assert_int_eq(ceov_wait(client.context, ticket, TESTING_PATIENCE), CEOV_ERR_TIMEOUT);
	ck_assert_int_eq(testing_failure(client.context).error, CEOV_ERR_TIMEOUT);
	daemon_rig_logs(&rig, "because a launch of client 1 has passed its deadline");
	daemon_rig_says(&rig, "metrics", "ceoverlap_launch_errors_total{error=\"timeout\"} 1\n");
	ceov_close(client.context);
	deadline_ns = cei_deadline(TESTING_PATIENCE);
	while (asks_number("status", "daemon.clients") && cei_now_ns() < deadline_ns)
		;
	daemon_rig_says(&rig, "dump", "ago: a client that has gone, or has no share of its own, "
			"launch 1, transfer 0, chunk 3");
	daemon_rig_end(&rig);
}
END_TEST

START_TEST(test_drain_ends_the_daemon)
{
	struct daemon_rig_client client;

	daemon_rig_start(&rig, NULL);
	daemon_rig_open(&rig, &client, NORMAL);
	daemon_rig_pass(&client);
	daemon_rig_says(&rig, "drain", "ends when all launches have");
	daemon_rig_await_end(&rig);
	ceov_close(client.context);
}
END_TEST

static Suite *suite(void)
{
	Suite *all = suite_create("operation of a daemon");
	TCase *cases = tcase_create("operation of a daemon");

	tcase_set_timeout(cases, 90);
	tcase_add_test(cases, test_settings_are_read_again_while_clients_go_on);
	tcase_add_test(cases, test_a_wrong_line_changes_nothing);
	tcase_add_test(cases, test_what_only_counts_at_the_start_is_told_each_time);
	tcase_add_test(cases, test_a_slow_reading_stops_nobody);
	tcase_add_test(cases, test_settings_are_read_while_clients_are_refused);
	tcase_add_test(cases, test_plans_of_too_many_chunks_are_refused);
	tcase_add_test(cases, test_a_daemon_without_a_file);
	tcase_add_test(cases, test_the_sockets_mode_and_group_are_set);
	tcase_add_test(cases, test_a_class_is_capped);
	tcase_add_test(cases, test_a_limit_in_bytes_per_second_holds_at_once);
	tcase_add_test(cases, test_what_clients_do_is_shown);
	tcase_add_test(cases, test_the_manual_describes_the_fields);
	tcase_add_test(cases, test_exit_statuses);
	tcase_add_test(cases, test_others_are_refused);
	tcase_add_test(cases, test_who_is_one_too_many_hears_of_the_limit);
	tcase_add_test(cases, test_what_went_last_is_shown_and_logged);
	tcase_add_test(cases, test_drain_ends_the_daemon);
	suite_add_tcase(all, cases);
	return all;
}

int main(void)
{
	return testing_run(suite());
}
