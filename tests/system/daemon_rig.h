/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_RIG_H
#define CEI_DAEMON_RIG_H

/* A real ceoverlapd for tests of its operation, clients of it in the test's process, and
 * ceoverlapctl. Asserts with Check. */

#include <stddef.h>
#include <stdint.h>

#include "system/daemon_fixture.h"
#include "testing.h"

#define DAEMON_RIG_BYTES UINT64_C(100000)

struct daemon_rig {
	struct daemon_fixture daemon;
	char                  config[200];
	char                  log[200];         /* a file: its stderr */
	struct testing_log    client_log;
	uint64_t              deadline_ns;      /* of clients' contexts; 0: the default */
};

/* Starts a daemon with a configuration file, NULL: without one. It ends with the test, however that
 * ends. */
void daemon_rig_start(struct daemon_rig *rig, const char *config);

/* Writes the configuration file anew. */
void daemon_rig_configure(const struct daemon_rig *rig, const char *config);

/* Ends it, in order, or waits for its end; asserts that it has removed its sockets. */
void daemon_rig_end(struct daemon_rig *rig);
void daemon_rig_await_end(struct daemon_rig *rig);

/* Kills it, and removes what it has left. */
void daemon_rig_kill(struct daemon_rig *rig);

/* Runs ceoverlapctl with the arguments, words with spaces between. Copies what it has written to
 * both streams; returns its exit status. */
int daemon_rig_ctl(const struct daemon_rig *rig, const char *arguments, char *ret_text,
		   size_t n_bytes);

/* Asserts that it succeeds and says the text, or what it returns and says. */
void daemon_rig_says(const struct daemon_rig *rig, const char *arguments, const char *text);
void daemon_rig_fails(const struct daemon_rig *rig, const char *arguments, int status,
		      const char *text);

/* Asserts that the daemon's log gets a line with the text. */
void daemon_rig_logs(const struct daemon_rig *rig, const char *text);

/* Reads a whole file, at most n_bytes - 1. Returns 0 if there is none. */
int daemon_rig_read(const char *path, char *ret_text, size_t n_bytes);

struct daemon_rig_client {
	ceov_context *context;
	ceov_buffer  *source, *target;
	ceov_signal  *ready, *arrived;
	ceov_plan    *plan;
	uint64_t      base;
	uint32_t      rank;             /* that launches; the other one's memory is the target */
};

/* A client of two ranks with a plan, of an urgency, that moves DAEMON_RIG_BYTES. */
void daemon_rig_open(struct daemon_rig *rig, struct daemon_rig_client *client, uint32_t urgency);

/* The same in parts: all but a plan, and a plan that is not committed yet. */
void daemon_rig_open_bare(struct daemon_rig *rig, struct daemon_rig_client *client);
void daemon_rig_build(struct daemon_rig_client *client, uint32_t urgency);

/* The same as daemon_rig_open(), where that rank of the two launches. */
void daemon_rig_open_from(struct daemon_rig *rig, struct daemon_rig_client *client, uint32_t rank);

/* A client whose plan stays in this process, since it names memory that it has registered. */
void daemon_rig_open_stray(struct daemon_rig *rig, struct daemon_rig_client *client);

/* Launches once, with new data, and waits until they have arrived, whole. */
void daemon_rig_pass(struct daemon_rig_client *client);

/* The socket of this process's only context with a daemon, for what no client of ours says. */
int  daemon_rig_connection(void);

#endif /* CEI_DAEMON_RIG_H */
