/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DOOR_H
#define CEI_DOOR_H

/*
 * Who carries out the plans of a context: the engines of this process (plan/local_door.c), or a
 * daemon's (remote/remote.c). A context has one door from ceov_open() on; public calls check the
 * handle and what the caller gave, and go on through it.
 *
 * Only plans and tickets have a door. Memory and counters are mapped in this process whoever moves
 * the bytes, so buffers and signals need none.
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

struct cei_door {
	/* Commits a plan that has something to do. After a failure transfers can still be added.
	 * Raises. */
	int  (*commit)(ceov_plan *plan);

	/* Launches a committed plan. The launch was checked. As ceov_launch(). */
	int  (*launch)(ceov_plan *plan, const struct ceov_launch *launch,
		       ceov_ticket *ret_ticket);

	/* How many launches of the plan are in flight. The caller holds the plan's lock: see
	 * cei_plan_in_flight(). */
	uint32_t (*n_in_flight)(const ceov_plan *plan);

	/* As ceov_plan_explain(), for a committed plan. */
	int  (*explain)(const ceov_plan *plan, int fd);

	/* Gives up what the door keeps for a plan that ends, of which no launch is in flight. NULL:
	 * it keeps nothing. */
	void (*end)(ceov_plan *plan);

	/* Waits until the launch has ended, at most timeout_ns. 0, and CEOV_PENDING or the
	 * result. CEOV_NONE: the result is not kept any more. CEOV_ERR_INVALID, not raised:
	 * there is no launch of that number. */
	int  (*wait)(ceov_context *context, ceov_ticket ticket, uint64_t timeout_ns,
		     int *ret_result);

	/* Aborts the signals of its plan. CEOV_NONE: the launch has ended, or never was. */
	int  (*abort)(ceov_context *context, ceov_ticket ticket);
};

#endif /* CEI_DOOR_H */
