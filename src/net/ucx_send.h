/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_UCX_SEND_H
#define CEI_UCX_SEND_H

/* What goes out: messages and offers. Operations of struct cei_transport_ops. */

#include "net/ucx_worker.h"

/* Memory that UCX has registered. */
struct cei_transport_memory {
	uint64_t          base;
	uint64_t          n_bytes;
	ucs_memory_type_t type;
	ucp_mem_h         handle;
};

int  cei_ucx_memory_open(struct cei_transport *transport, void *base, uint64_t n_bytes,
			 struct cei_transport_memory **ret_memory);
int  cei_ucx_gpu_memory_open(struct cei_transport *transport, void *base, uint64_t n_bytes,
			     struct cei_transport_memory **ret_memory);
int  cei_ucx_takes_gpu_memory(struct cei_transport *transport, const char **ret_why);
void cei_ucx_memory_close(struct cei_transport *transport,
			  struct cei_transport_memory *memory);

int  cei_ucx_say(struct cei_transport_peer *peer, const void *message, uint32_t n_bytes);
int  cei_ucx_send(struct cei_transport_peer *peer, const struct cei_transport_send *send);

/* CEOV_ERR_INVALID, raised: the span is empty, or not within its memory. */
int  cei_ucx_span_check(struct cei_ucx *ucx, const struct cei_transport_span *span);

#endif /* CEI_UCX_SEND_H */
