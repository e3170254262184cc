/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GUEST_H
#define CEI_GUEST_H

/*
 * A context without engines of its own: its plans are carried out by the engines of works that
 * several contexts share. A daemon has such a context for each of its clients.
 *
 * A guest has no peers and no network: it imports the memory that its plans name
 * (cei_buffer_import(), cei_signal_import()), whoever owns that, and its plans come as bytes
 * (plan_import.h). Its launches are numbered by who asks for them (cei_launch_numbered()).
 */

#include <stdint.h>

#include "ce_engine/objects/works.h"

struct cei_guest {
	struct cei_works         *works;        /* started; outlives the guest */
	uint32_t                  n_ranks;      /* of the guest's group */
	uint32_t                  n_members;
	const struct ceov_member *members;      /* the ranks that the guest launches for, with
						 * their places in this process */
	const uint32_t           *engines;      /* by member: which engine of the works */
	uint64_t                  max_chunk_bytes;
	uint64_t                  deadline_ns;  /* of launches that have none */
	void                    (*log)(void *log_arg, const char *line);
	void                     *log_arg;
	void                    (*ended)(void *ended_arg, uint64_t number, int result);
	void                     *ended_arg;    /* see ceov_context.ended */
};

/* Opens a guest; what the struct points to is copied, but for the works. Raises, to the log. */
int  cei_guest_open(const struct cei_guest *guest, ceov_context **ret_context);

/* Closes a guest of which no launch is in flight, and no plan stuck (cei_plans_are_moving()). */
void cei_guest_close(ceov_context *context);

/* Aborts all launches that are in flight: raises the abort words of all signals of the guest's
 * plans, which others may share, and poisons these signals. */
void cei_guest_abort(ceov_context *context, int error, uint32_t rank);

#endif /* CEI_GUEST_H */
