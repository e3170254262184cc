/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PROXY_H
#define CEI_PROXY_H

/*
 * A test double: a mover that forwards all calls to another mover. It can delay the reported ends
 * of submits, change the order of things that have no defined order, or report ends too early,
 * which no mover may. With addresses of its own it also reaches memory that is not mapped for the
 * member. A context uses the proxy if the proxy is in the table of movers with which the context
 * is opened; the log then says so.
 */

#include <stdatomic.h>
#include <stdint.h>

#include "backend/lane.h"

#define PROXY_MEMORIES 256u

struct proxy {
	struct cei_place_ops        ops;        /* first member, so that a backend's ops lead to
						 * the proxy */
	struct cei_lane_ops         lanes;
	const struct cei_place_ops *under;
	_Atomic uint64_t              late_ns;  /* reap() reports an end that much later */
	int                           is_reversed; /* reverses the order of the pieces of a copy,
						    * and of the posts of one call */
	int                           is_early; /* reap() reports a submit at once, but the submit
						 * is executed only together with the next one */
	int                           is_absent; /* open() reports that the device does not exist */
	int                           has_handles; /* see proxy_use_handles() */
	_Atomic uint64_t              n_pieces; /* pieces copied by all lanes */
	_Atomic uint32_t              n_open;   /* memories that are mapped */
	uint64_t                      memory[PROXY_MEMORIES];   /* address of each memory; 0: the
								 * entry is free */
};

/* Initialises a proxy that forwards everything unchanged; it must outlive its backends. */
void proxy_init(struct proxy *proxy, const struct cei_place_ops *under);

/* Makes the proxy address memory by handle and offset. It then reaches all memory of this process,
 * whether or not it is mapped for the member. Call it before the proxy is opened. */
void proxy_use_handles(struct proxy *proxy);

#endif /* CEI_PROXY_H */
