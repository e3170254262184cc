/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_UCX_TASK_H
#define CEI_UCX_TASK_H

/*
 * What was handed to UCX and has not ended: a message, a send or a receive. UCX may tell of an
 * end within any call; the owner is told in progress only.
 */

#include "net/ucx_worker.h"

struct cei_ucx_peer;

enum cei_ucx_kind { CEI_UCX_TASK_MESSAGE, CEI_UCX_TASK_SEND, CEI_UCX_TASK_RECEIVE };

/* UCX reads label, head and message until the task has ended. */
struct cei_ucx_task {
	struct cei_list      link;      /* in one of the lists of struct cei_ucx, or unlinked while
					 * UCX has the task */
	struct cei_ucx_peer *peer;
	enum cei_ucx_kind    kind;
	ucs_status_t         status;
	uint64_t             tag;
	struct cei_ucx_label label;
	uint8_t              bytes[];   /* a message, or, directly behind the label, a head */
};

/* NULL: no memory; not raised. The task counts as under way at its peer. */
struct cei_ucx_task *cei_ucx_task_take(struct cei_ucx_peer *peer, enum cei_ucx_kind kind,
				       uint64_t tag);

/* Evaluates what a call of UCX returned that was to begin the task: 0; or CEOV_ERR_PEER_LOST,
 * not raised: UCX refused it, the peer has failed and the task is dropped. */
int  cei_ucx_task_begun(struct cei_ucx_task *task, ucs_status_ptr_t result);

/* Callbacks for UCX, with the task as user data. */
void cei_ucx_task_sent(void *request, ucs_status_t status, void *task);
void cei_ucx_task_received(void *request, ucs_status_t status, size_t n_bytes, void *task);

/* Tells the owner of the tasks that have ended before the call. Returns their number. */
uint32_t cei_ucx_tasks_tell(struct cei_ucx *ucx);

/* Frees the unused tasks. */
void cei_ucx_tasks_fini(struct cei_ucx *ucx);

#endif /* CEI_UCX_TASK_H */
