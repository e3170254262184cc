/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Starts ceoverlapd, and asks it by ceoverlapctl. */

#include "system/daemon_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

/* --- the daemon --------------------------------------------------------------- */

void daemon_rig_configure(const struct daemon_rig *rig, const char *config)
{
	FILE *file = fopen(rig->config, "w");

	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(config, file), 0);
	ck_assert_int_eq(fclose(file), 0);
}

void daemon_rig_start(struct daemon_rig *rig, const char *config)
{
	testing_log_init(&rig->client_log);
	testing_path("d.conf", rig->config, sizeof(rig->config));
	testing_path("d.log", rig->log, sizeof(rig->log));
	if (config)
		daemon_rig_configure(rig, config);
	daemon_start_with(&rig->daemon, "d.sock", config ? rig->config : NULL, rig->log);
}

static void remove_files(const struct daemon_rig *rig)
{
	(void)unlink(rig->config);
	(void)unlink(rig->log);
}

void daemon_rig_await_end(struct daemon_rig *rig)
{
	daemon_await_end(&rig->daemon);
	remove_files(rig);
}

void daemon_rig_end(struct daemon_rig *rig)
{
	daemon_end(&rig->daemon);
	remove_files(rig);
}

void daemon_rig_kill(struct daemon_rig *rig)
{
	daemon_kill(&rig->daemon);
	(void)unlink(rig->daemon.path);
	(void)unlink(rig->daemon.control);
	remove_files(rig);
}

int daemon_rig_read(const char *path, char *ret_text, size_t n_bytes)
{
	FILE *file = fopen(path, "r");
	size_t n;

	if (!file)
		return 0;
	n = fread(ret_text, 1, n_bytes - 1, file);
	ret_text[n] = 0;
	fclose(file);
	return 1;
}

void daemon_rig_logs(const struct daemon_rig *rig, const char *text)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	static char log[65536];

	do {
		ck_assert_int_eq(daemon_rig_read(rig->log, log, sizeof(log)), 1);
		if (strstr(log, text))
			return;
		usleep(1000);
	} while (cei_now_ns() < deadline);
	ck_abort_msg("no line has '%s':\n%s", text, log);
}

/* --- ceoverlapctl ------------------------------------------------------------- */

int daemon_rig_ctl(const struct daemon_rig *rig, const char *arguments, char *ret_text,
		   size_t n_bytes)
{
	char command[600];
	size_t n, all = 0;
	FILE *pipe;
	int status;

	snprintf(command, sizeof(command), "timeout 60 ./ceoverlapctl --socket %s %s 2>&1",
		 rig->daemon.path, arguments);
	pipe = popen(command, "re");
	ck_assert_ptr_nonnull(pipe);
	while ((n = fread(ret_text + all, 1, n_bytes - 1 - all, pipe)) > 0)
		all += n;
	ret_text[all] = 0;
	status = pclose(pipe);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

void daemon_rig_fails(const struct daemon_rig *rig, const char *arguments, int status,
		      const char *text)
{
	static char said[1 << 20];
	int r = daemon_rig_ctl(rig, arguments, said, sizeof(said));

	ck_assert_msg(r == status, "%s: exit status %d, not %d:\n%s", arguments, r, status, said);
	ck_assert_msg(strstr(said, text) != NULL, "%s says no '%s':\n%s", arguments, text, said);
}

void daemon_rig_says(const struct daemon_rig *rig, const char *arguments, const char *text)
{
	daemon_rig_fails(rig, arguments, 0, text);
}

/* --- clients ------------------------------------------------------------------ */

static void open_context(struct daemon_rig *rig, struct daemon_rig_client *client, uint32_t rank)
{
	struct ceov_member members[2];
	struct ceov_config config = testing_config(members, 2, &rig->client_log);

	memset(client, 0, sizeof(*client));
	client->rank = rank;
	config.daemon = rig->daemon.path;
	config.deadline_ns = rig->deadline_ns;
	ck_assert_int_eq(ceov_open(&config, &client->context), 0);
	client->ready = testing_signal(client->context, rank, 1);
	client->arrived = testing_signal(client->context, !rank, 1);
	client->source = testing_buffer(client->context, rank, DAEMON_RIG_BYTES);
	client->target = testing_buffer(client->context, !rank, DAEMON_RIG_BYTES);
}

void daemon_rig_open_bare(struct daemon_rig *rig, struct daemon_rig_client *client)
{
	open_context(rig, client, 0);
}

void daemon_rig_build(struct daemon_rig_client *client, uint32_t urgency)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options),
					     .max_chunk_bytes = DAEMON_RIG_BYTES / 4,
					     .urgency = urgency };
	struct ceov_transfer transfer = testing_transfer(client->source, client->target,
							 DAEMON_RIG_BYTES);

	transfer.source_ready = testing_mark(client->ready, 0, 1);
	transfer.then = testing_mark(client->arrived, 0, 1);
	ck_assert_int_eq(ceov_plan_create(client->context, client->rank, &options,
					  &client->plan), 0);
	testing_add(client->plan, &transfer);
}

static void commit(const struct daemon_rig_client *client)
{
	struct ceov_failure failure = { .text = "" };
	int r = ceov_plan_commit(client->plan);

	(void)ceov_last_failure(client->context, &failure);
	ck_assert_msg(!r, "commit: %d, %s", r, failure.text);
}

void daemon_rig_open(struct daemon_rig *rig, struct daemon_rig_client *client, uint32_t urgency)
{
	open_context(rig, client, 0);
	daemon_rig_build(client, urgency);
	commit(client);
}

void daemon_rig_open_from(struct daemon_rig *rig, struct daemon_rig_client *client, uint32_t rank)
{
	open_context(rig, client, rank);
	daemon_rig_build(client, CEOV_URGENCY_NORMAL);
	commit(client);
}

void daemon_rig_open_stray(struct daemon_rig *rig, struct daemon_rig_client *client)
{
	static uint8_t memory[DAEMON_RIG_BYTES];

	open_context(rig, client, 0);
	ck_assert_int_eq(ceov_buffer_register(client->context, 0, memory, sizeof(memory),
					      &client->source), 0);
	daemon_rig_build(client, CEOV_URGENCY_NORMAL);
	commit(client);
}

void daemon_rig_pass(struct daemon_rig_client *client)
{
	const struct ceov_launch ask = { .struct_bytes = sizeof(ask), .base = client->base };
	ceov_ticket ticket;

	testing_fill(ceov_buffer_base(client->source, client->rank), DAEMON_RIG_BYTES,
		     client->base);
	ck_assert_int_eq(ceov_launch(client->plan, &ask, &ticket), 0);
	ck_assert_int_eq(ceov_signal_raise(client->ready, 0, client->base + 1), 0);
	ck_assert_int_eq(ceov_signal_wait(client->arrived, 0, client->base + 1,
					  TESTING_PATIENCE), 0);
	ck_assert_uint_eq(testing_check(ceov_buffer_base(client->target, !client->rank),
					DAEMON_RIG_BYTES, client->base), DAEMON_RIG_BYTES);
	ck_assert_int_eq(ceov_wait(client->context, ticket, TESTING_PATIENCE), 0);
	client->base++;
}

int daemon_rig_connection(void)
{
	socklen_t n = sizeof(int);
	int fd, type;

	for (fd = 3; fd < 200; fd++)
		if (!getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) && type == SOCK_SEQPACKET)
			return fd;
	ck_abort_msg("there is no connection");
	return -1;
}
