/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PROXY_H
#define CEI_PROXY_H

/*
 * A test double: a mover in front of another one, which hands all calls on and can make the
 * ends of submits late, the order of what has no order different, or ends early, which no
 * mover may. With addresses of its own it also reaches memory that is not mapped for the
 * member. A context gets it by the table of movers that it is opened with; it says in the
 * log that it is there.
 */

#include <stdatomic.h>
#include <stdint.h>

#include "backend/backend.h"

#define PROXY_MEMORIES 256u

struct proxy {
	struct cei_backend_ops        ops;      /* first member, so that a backend's ops lead to
						 * the proxy */
	const struct cei_backend_ops *under;
	_Atomic uint64_t              late_ns;  /* reap() tells an end that much later */
	int                           is_reversed; /* reverses the pieces of a copy, and the posts
						    * of one call */
	int                           is_early; /* reap() counts a submit at once, which is
						 * executed only with the next one */
	int                           is_absent; /* open() says that it is not here */
	_Atomic uint64_t              n_pieces; /* copied by all its lanes */
	_Atomic uint32_t              n_open;   /* memories */
	uint64_t                      memory[PROXY_MEMORIES];   /* where each is; 0: free */
};

/* Initialises a proxy that disturbs nothing yet; it must outlive its backends. */
void proxy_init(struct proxy *proxy, const struct cei_backend_ops *under);

/* Before it is opened: it addresses memory by handle and offset, and reaches all that this
 * process has, whether it is mapped for the member or not. */
void proxy_use_handles(struct proxy *proxy);

#endif /* CEI_PROXY_H */
