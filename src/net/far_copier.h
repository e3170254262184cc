/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FAR_COPIER_H
#define CEI_FAR_COPIER_H

/*
 * Copies between host memory and memory that a transport neither reads nor writes, such as that of
 * a GPU. The layer above implements these functions; a rail calls them.
 *
 * A unit is whoever owns such memory, by a number that the layer above chose: the member of this
 * process whose GPU it is. A line carries copies of one unit in one direction. It belongs to one
 * rail, whose thread makes all calls on it.
 */

#include <stdint.h>

#define CEI_FAR_UNITS_MAX 64u

enum cei_far_line_direction {
	CEI_FAR_LINE_OUT,               /* from the unit's memory to host memory */
	CEI_FAR_LINE_IN,                /* from host memory to the unit's memory */
	CEI_FAR_LINES,                  /* how many directions there are */
};

struct cei_far_copier_ops {
	/* Allocates host memory that the copies of all units read and write quickly (pinned
	 * memory), and frees it when no copy uses it any more. Any thread. Errors are raised. */
	int  (*memory_open)(void *arg, uint32_t unit, uint64_t n_bytes, void **ret_memory);
	void (*memory_close)(void *arg, uint32_t unit, void *memory);

	/* Opens a line. Errors are raised. close waits, for a bounded time, until all its copies
	 * have ended. Any thread. */
	int  (*line_open)(void *arg, uint32_t unit, enum cei_far_line_direction direction,
			  void **ret_line);
	void (*line_close)(void *line);

	/* Makes the calling thread one in which the transport can access the unit's memory
	 * itself. Errors are raised. */
	int  (*bind)(void *arg, uint32_t unit);

	/* Makes bytes that the transport has written to the unit's memory visible to copies and
	 * kernels that begin afterwards. In a bound thread. Errors are raised. */
	int  (*landed)(void *arg, uint32_t unit);

	/* Begins a copy; copies of a line end in their order. The caller has at most
	 * CEI_FAR_SLOTS of them under way on a line, for which there is room. Errors are raised:
	 * the line is broken then, and its other copies have ended without a result. */
	int  (*copy)(void *line, uint64_t target, uint64_t source, uint64_t n_bytes);

	/* Gives the number of copies that have ended since the line was opened. Errors as
	 * copy's. */
	int  (*reap)(void *line, uint64_t *ret_n_ended);
};

#endif /* CEI_FAR_COPIER_H */
