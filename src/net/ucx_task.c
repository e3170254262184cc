/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Messages, sends and receives that UCX has, and how their ends are told. */

#include "net/ucx_task.h"

#include <stdlib.h>

#include "net/ucx_peer.h"

static struct cei_list *free_list(struct cei_ucx *ucx, enum cei_ucx_kind kind)
{
	return kind == CEI_UCX_TASK_MESSAGE ? &ucx->free_messages : &ucx->free_moves;
}

struct cei_ucx_task *cei_ucx_task_take(struct cei_ucx_peer *peer, enum cei_ucx_kind kind,
				       uint64_t tag)
{
	struct cei_list *node = cei_list_take(free_list(peer->ucx, kind));
	struct cei_ucx_task *task;

	if (node)
		task = CEI_OWNER(node, struct cei_ucx_task, link);
	else
		task = malloc(sizeof(*task) + (kind == CEI_UCX_TASK_MESSAGE ?
			      CEI_TRANSPORT_MESSAGE_MAX : CEI_TRANSPORT_HEAD_MAX));
	if (!task)
		return NULL;
	cei_list_init(&task->link);
	task->peer = peer;
	task->kind = kind;
	task->status = UCS_OK;
	task->tag = tag;
	task->label.magic = CEI_UCX_MAGIC;
	task->label.connection = 1;
	task->label.sender = peer->ucx->identity;
	peer->n_under_way[kind]++;
	return task;
}

/* Gives back a task that UCX does not have, without an event. */
static void drop(struct cei_ucx_task *task)
{
	task->peer->n_under_way[task->kind]--;
	cei_list_append(free_list(task->peer->ucx, task->kind), &task->link);
}

static void end(struct cei_ucx_task *task, ucs_status_t status)
{
	task->status = status;
	if (task->kind == CEI_UCX_TASK_MESSAGE)
		drop(task);        /* nobody is told of its end */
	else
		cei_list_append(&task->peer->ucx->ended, &task->link);
}

int cei_ucx_task_begun(struct cei_ucx_task *task, ucs_status_ptr_t result)
{
	if (!result) {
		end(task, UCS_OK);
		return 0;
	}
	if (!UCS_PTR_IS_ERR(result))
		return 0;       /* the callback ends it, or has ended it already */
	cei_ucx_peer_fail(task->peer, task->peer->ucx->calls.status_string(
				  UCS_PTR_STATUS(result)));
	drop(task);
	return CEOV_ERR_PEER_LOST;
}

void cei_ucx_task_sent(void *request, ucs_status_t status, void *task_arg)
{
	struct cei_ucx_task *task = task_arg;

	task->peer->ucx->calls.request_free(request);
	end(task, status);
}

void cei_ucx_task_received(void *request, ucs_status_t status, size_t n_bytes, void *task_arg)
{
	(void)n_bytes;  /* as many as the offer named: UCX ends any other receive with an error */
	cei_ucx_task_sent(request, status, task_arg);
}

static void tell(struct cei_ucx *ucx, struct cei_ucx_task *task)
{
	const struct cei_transport_config *config = &ucx->transport->config;
	enum cei_ucx_kind kind = task->kind;
	int error = task->status == UCS_OK ? 0 : CEOV_ERR_PEER_LOST;
	uint64_t tag = task->tag;

	drop(task);        /* so that the handler may use it again */
	if (kind == CEI_UCX_TASK_SEND)
		config->events->sent(config->events_arg, tag, error);
	else
		config->events->landed(config->events_arg, tag, error);
}

uint32_t cei_ucx_tasks_tell(struct cei_ucx *ucx)
{
	struct cei_list *node, now;
	uint32_t n = 0;

	/* What handlers begin may end at once; it is told in the next call, which bounds this
	 * one. */
	cei_list_init(&now);
	while ((node = cei_list_take(&ucx->ended)))
		cei_list_append(&now, node);
	for (; (node = cei_list_take(&now)); n++)
		tell(ucx, CEI_OWNER(node, struct cei_ucx_task, link));
	return n;
}

static void free_all(struct cei_list *list)
{
	struct cei_list *node;

	while ((node = cei_list_take(list)))
		free(CEI_OWNER(node, struct cei_ucx_task, link));
}

void cei_ucx_tasks_fini(struct cei_ucx *ucx)
{
	free_all(&ucx->free_messages);
	free_all(&ucx->free_moves);
}
