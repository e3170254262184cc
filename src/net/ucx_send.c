/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Sends messages and offers as active messages; registers memory. */

#include "net/ucx_send.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "net/ucx_peer.h"

_Static_assert(offsetof(struct cei_ucx_task, bytes) ==
	       offsetof(struct cei_ucx_task, label) + sizeof(struct cei_ucx_label),
	       "UCX sends a label and the head behind it as one header");

/* --- memory ------------------------------------------------------------------------------ */

static int open_memory(struct cei_transport *transport, void *base, uint64_t n_bytes,
		       ucs_memory_type_t type, struct cei_transport_memory **ret_memory)
{
	struct cei_ucx *ucx = cei_ucx_of(transport);
	struct cei_transport_memory *memory;
	ucp_mem_map_params_t params;
	ucs_status_t status;

	if (!base || !n_bytes || n_bytes > UINTPTR_MAX - (uintptr_t)base)
		return cei_raise(transport->config.report, CEOV_ERR_INVALID, 0,
				 "UCX: no memory to register: %" PRIu64 " bytes at %p",
				 n_bytes, base);
	memory = malloc(sizeof(*memory));
	if (!memory)
		return cei_raise(transport->config.report, CEOV_ERR_NO_MEMORY, 0,
				 "UCX: no memory to note a registration");
	memset(&params, 0, sizeof(params));
	params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
		UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
	params.address = base;
	params.length = n_bytes;
	params.memory_type = type;
	status = ucx->calls.memory_map(ucx->context, &params, &memory->handle);
	if (status != UCS_OK) {
		free(memory);
		return cei_ucx_raise(ucx, status, "registering memory");
	}
	memory->base = (uintptr_t)base;
	memory->n_bytes = n_bytes;
	memory->type = type;
	*ret_memory = memory;
	return 0;
}

int cei_ucx_memory_open(struct cei_transport *transport, void *base, uint64_t n_bytes,
			struct cei_transport_memory **ret_memory)
{
	return open_memory(transport, base, n_bytes, UCS_MEMORY_TYPE_HOST, ret_memory);
}

int cei_ucx_gpu_memory_open(struct cei_transport *transport, void *base, uint64_t n_bytes,
			    struct cei_transport_memory **ret_memory)
{
	return open_memory(transport, base, n_bytes, UCS_MEMORY_TYPE_CUDA, ret_memory);
}

int cei_ucx_takes_gpu_memory(struct cei_transport *transport, const char **ret_why)
{
	struct cei_ucx *ucx = cei_ucx_of(transport);
	ucp_context_attr_t attributes;

	memset(&attributes, 0, sizeof(attributes));
	attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
	if (ucx->calls.context_query(ucx->context, &attributes) == UCS_OK &&
	    (attributes.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)))
		return 1;
	*ret_why = "UCX has no support for CUDA, or its list of transports leaves cuda_copy out";
	return 0;
}

void cei_ucx_memory_close(struct cei_transport *transport, struct cei_transport_memory *memory)
{
	struct cei_ucx *ucx = cei_ucx_of(transport);
	ucs_status_t status = ucx->calls.memory_unmap(ucx->context, memory->handle);

	if (status != UCS_OK)
		(void)cei_ucx_raise(ucx, status, "forgetting registered memory");
	free(memory);
}

int cei_ucx_span_check(struct cei_ucx *ucx, const struct cei_transport_span *span)
{
	const struct cei_transport_memory *memory = span->memory;

	if (memory && span->n_bytes && span->n_bytes <= memory->n_bytes &&
	    span->address >= memory->base &&
	    span->address - memory->base <= memory->n_bytes - span->n_bytes)
		return 0;
	return cei_raise(ucx->transport->config.report, CEOV_ERR_INVALID, 0,
			 "UCX: %" PRIu64 " bytes at 0x%" PRIx64 " are not within the registered "
			 "memory that they are said to be in", span->n_bytes, span->address);
}

/* --- sending ----------------------------------------------------------------------------- */

/* Looks whether something more can be begun, and takes a task for it. */
static int begin(struct cei_ucx_peer *peer, enum cei_ucx_kind kind, uint32_t limit, uint64_t tag,
		 struct cei_ucx_task **ret_task)
{
	if (!cei_ucx_peer_is_up(peer))
		return CEOV_ERR_PEER_LOST;
	if (peer->n_under_way[kind] >= limit)
		return CEOV_FULL;
	*ret_task = cei_ucx_task_take(peer, kind, tag);
	if (*ret_task)
		return 0;
	return cei_raise(peer->ucx->transport->config.report, CEOV_ERR_NO_MEMORY, 0,
			 "UCX: no memory for a message");
}

static ucp_request_param_t sent_params(struct cei_ucx_task *task, uint32_t flags)
{
	ucp_request_param_t param;

	memset(&param, 0, sizeof(param));
	param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
		UCP_OP_ATTR_FIELD_FLAGS;
	param.cb.send = cei_ucx_task_sent;
	param.user_data = task;
	param.flags = flags;
	return param;
}

int cei_ucx_say(struct cei_transport_peer *base, const void *message, uint32_t n_bytes)
{
	struct cei_ucx_peer *peer = cei_ucx_peer_of(base);
	struct cei_ucx *ucx = peer->ucx;
	struct cei_ucx_task *task = NULL;
	ucp_request_param_t param;
	int r;

	if (!n_bytes || n_bytes > CEI_TRANSPORT_MESSAGE_MAX)
		return cei_raise(ucx->transport->config.report, CEOV_ERR_INVALID, 0,
				 "UCX: a message of %u bytes: 1 to %u are possible", n_bytes,
				 CEI_TRANSPORT_MESSAGE_MAX);
	r = begin(peer, CEI_UCX_TASK_MESSAGE, CEI_UCX_MESSAGES_MAX, 0, &task);
	if (r)
		return r;
	memcpy(task->bytes, message, n_bytes);
	param = sent_params(task, UCP_AM_SEND_FLAG_EAGER);
	return cei_ucx_task_begun(task, ucx->calls.send(peer->endpoint, CEI_UCX_MESSAGE,
				  &task->label, sizeof(task->label), task->bytes, n_bytes,
				  &param));
}

int cei_ucx_send(struct cei_transport_peer *base, const struct cei_transport_send *send)
{
	struct cei_ucx_peer *peer = cei_ucx_peer_of(base);
	struct cei_ucx *ucx = peer->ucx;
	struct cei_ucx_task *task = NULL;
	ucp_request_param_t param;
	int r;

	if (!send->n_head || send->n_head > CEI_TRANSPORT_HEAD_MAX)
		return cei_raise(ucx->transport->config.report, CEOV_ERR_INVALID, 0,
				 "UCX: a head of %u bytes: 1 to %u are possible", send->n_head,
				 CEI_TRANSPORT_HEAD_MAX);
	r = cei_ucx_span_check(ucx, &send->span);
	if (!r)
		r = begin(peer, CEI_UCX_TASK_SEND, CEI_UCX_SENDS_MAX, send->tag, &task);
	if (r)
		return r;
	memcpy(task->bytes, send->head, send->n_head);
	/* The reply endpoint shows the receiver which of its own endpoints the bytes use. */
	param = sent_params(task, UCP_AM_SEND_FLAG_RNDV | UCP_AM_SEND_FLAG_REPLY);
	param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
	param.memh = send->span.memory->handle;
	param.memory_type = send->span.memory->type;
	return cei_ucx_task_begun(task, ucx->calls.send(peer->endpoint, CEI_UCX_OFFER,
				  &task->label, sizeof(task->label) + send->n_head,
				  (void *)(uintptr_t)send->span.address, send->span.n_bytes,
				  &param));
}
