/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_CLIENT_PRIVATE_H
#define CEI_DAEMON_CLIENT_PRIVATE_H

/* What the files of a client share. */

#include "daemon/server/client.h"

#define LIMIT_TEXT "ceoverlapd: the limit '%s' of the daemon is reached; its operator sets it"

struct cei_client *cei_client_of_task(struct cei_task *task);

/* What the porter does for a client: cei_task.run, with an answer for the client but in close(). */
int  cei_client_run_open(struct cei_task *task);
int  cei_client_run_commit(struct cei_task *task);
int  cei_client_run_explain(struct cei_task *task);
int  cei_client_run_drop(struct cei_task *task);
int  cei_client_run_close(struct cei_task *task);

/* Empties the client's assembly, and closes its descriptors. */
void cei_client_clear_assembly(struct cei_client *client);

/* Make the task's answer a refusal: with a text, with the name of the limit that is reached, or
 * with the words of what was raised in the client's guest. */
void cei_client_refuse(struct cei_client *client, int error, const char *text);
void cei_client_refuse_limit(struct cei_client *client, const char *limit);
void cei_client_refuse_as_raised(struct cei_client *client, int error);

/* Has the front thread look at all clients soon, of which this one has news. Any thread. */
void cei_client_notify(void *client);

/* Releases the plan that is being dropped, if there is one, of which no launch is in flight. */
void cei_client_end_drop(struct cei_client *client);

/* Releases the handles that were made for a plan, which was released before. */
void cei_client_empty_plan(struct cei_client *client, struct cei_client_plan *plan);

/* --- front thread ------------------------------------------------------------- */

/* Refuses a connection, or what was said on it, and ends it. */
void cei_client_turn_away(struct cei_client *client, int error, const char *text);

/* Sends the answer, or leaves it for later if the client does not read. */
void cei_client_answer(struct cei_client *client);

/* Counts descriptors that there will be for the client. Returns whether it may have them; else says
 * in text what it may not. */
int  cei_client_take_fds(struct cei_client *client, uint32_t n,
			 char text[CEOV_FAILURE_TEXT_BYTES]);

/* The client is about to send a plan, or sends a part of it: returns whether that was the last. */
void cei_client_plan_comes(struct cei_client *client, const struct cei_service_plan *plan,
			   uint32_t number);
int  cei_client_part_comes(struct cei_client *client, const struct cei_service_part *part,
			   struct cei_datagram *datagram);

/* Whether a part of a plan was to come by now. */
int  cei_client_plan_is_late(const struct cei_client *client, uint64_t now_ns);

#endif /* CEI_DAEMON_CLIENT_PRIVATE_H */
