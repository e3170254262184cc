/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PLAN_IMPORT_H
#define CEI_PLAN_IMPORT_H

/*
 * Plans from programs that another process wrote (program_wire.h).
 *
 * Nothing that the bytes say is trusted. Each handle must be what the program says of its
 * number: rank, kind of memory, size, number of counters. Who reaches what, which memory is
 * shared, where it is in the machine, routes and chunks are found again from the handles, so
 * that the program is checked as if its transfers had been added here one by one. Chunks are no
 * longer than the context allows.
 */

#include <stddef.h>

#include "ce_engine/objects/plan.h"

/* What the numbers of a program stand for; as many as it has. */
struct cei_plan_handles {
	ceov_buffer *const *buffers;
	uint32_t            n_buffers;
	ceov_signal *const *signals;
	uint32_t            n_signals;
};

/* A committed plan. Raises what is wrong with the bytes (CEOV_ERR_VERSION, CEOV_ERR_INVALID),
 * with a handle (CEOV_ERR_INVALID), and what ceov_plan_commit() raises; then nothing is left
 * that uses a handle. */
int cei_plan_import(ceov_context *context, const void *bytes, size_t n_bytes,
		    const struct cei_plan_handles *handles, ceov_plan **ret_plan);

#endif /* CEI_PLAN_IMPORT_H */
