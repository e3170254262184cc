/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_FENCES_H
#define CEI_DAEMON_FENCES_H

/*
 * Engines whose places, mostly GPUs, are lost to the daemon: they are fenced
 * (ce_engine/engine/fence.h). Their launches end with an error, which is the engines' work. Here is
 * what the daemon does beside: it tells its operator and clients, once, and refuses what asks for
 * such a place. Only a new start of the daemon ends a fence.
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

#include "backend/place.h"
#include "base/report.h"
#include "base/site.h"

struct cei_works;                       /* ce_engine/objects/works.h */

/* By engine. Zeroed, and then the first three fields set. */
struct cei_fences {
	const struct cei_works *works;
	struct cei_report      *report;
	uint32_t                n;      /* engines */
	uint64_t                since_ns[CEI_MEMBERS_MAX];      /* when its fence was noticed; 0: it
								 * is not fenced. Front thread */
};

/* Whether the engine is fenced. Returns the error, and which place is lost by what; 0: it is not.
 * Any thread. */
int  cei_fences_read(const struct cei_fences *fences, uint32_t engine,
		     char ret_why[CEI_LOST_BYTES]);

/* Notices engines that were fenced since the last look. Returns them: bit i, engine i. Front
 * thread. */
uint32_t cei_fences_look(struct cei_fences *fences);

/* The same, with words for a client that asks for the engine's place. */
int  cei_fences_refuse(const struct cei_fences *fences, uint32_t engine,
		       char ret_text[CEOV_FAILURE_TEXT_BYTES]);

#endif /* CEI_DAEMON_FENCES_H */
