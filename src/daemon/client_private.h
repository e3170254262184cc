/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_CLIENT_PRIVATE_H
#define CEI_DAEMON_CLIENT_PRIVATE_H

/* What client_tasks.c and client_plans.c, which hold the porter's tasks, share. */

#include "daemon/client.h"

struct cei_client *cei_client_of_task(struct cei_task *task);

/* Gives the porter a task. Front thread. */
void cei_client_begin(struct cei_client *client, int (*run)(struct cei_task *));

/* Make the task's answer a refusal: with a text, with the name of the limit that is reached, or
 * with the words of what was raised in the client's guest. */
void cei_client_refuse(struct cei_client *client, int error, const char *text);
void cei_client_refuse_limit(struct cei_client *client, const char *limit);
void cei_client_refuse_as_raised(struct cei_client *client, int error);

/* Releases the plan that is being dropped, if there is one, of which no launch is in flight. */
void cei_client_end_drop(struct cei_client *client);

/* Releases the handles that were made for a plan, which was released before. */
void cei_client_empty_plan(struct cei_client *client, struct cei_client_plan *plan);

#endif /* CEI_DAEMON_CLIENT_PRIVATE_H */
