/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DOOR_H
#define CEI_DOOR_H

/*
 * The way from handles to who carries out plans: engines of this process (here.c), or later
 * those of another one. Each handle has the door that its context had when it was made;
 * public calls check the handle and what the caller gave, and go on through it.
 *
 * What needs no engine has no door: memory and counters are mapped in this process, so
 * streams and kernels of the caller reach them by themselves (ceov_stream_*(),
 * ceov_signal_for_device(), ceov_plan_queue()), and peers' handles come from the bootstrap.
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

struct cei_region;                      /* ipc/share.h */

struct cei_buffer_ops {                 /* for buffers, and for the memory of signals */
	/* Maps a region, so that the movers of this door reach its memory. Raises. */
	int  (*admit)(struct cei_region *region);

	/* Unmaps a region, and releases what it owns. Accepts a region that was mapped
	 * in part. */
	void (*dismiss)(struct cei_region *region);
};

struct cei_signal_ops {                 /* as the public calls, for handles that were checked */
	int  (*raise)(ceov_signal *signal, uint32_t index, uint64_t value);
	int  (*arrive)(ceov_signal *signal, uint32_t index, uint32_t n_tiles, uint64_t value);
	int  (*value)(ceov_signal *signal, uint32_t index, uint64_t *ret_value);
	int  (*renew)(ceov_signal *signal);

	/* As cei_abort_unlocked(), for signals of this door. */
	void (*abort)(ceov_signal *const *signals, uint32_t n, int error, uint32_t rank);
};

struct cei_plan_ops {
	/* Commits a plan that has something to do. After a failure transfers can still be added.
	 * Raises. */
	int  (*commit)(ceov_plan *plan);

	/* Launches a committed plan. The launch was checked. As ceov_launch(). */
	int  (*launch)(ceov_plan *plan, const struct ceov_launch *launch,
		       ceov_ticket *ret_ticket);

	/* Whether launches of the plan are in flight. The caller holds the plan's lock: see
	 * cei_plan_is_busy(). */
	int  (*is_busy)(const ceov_plan *plan);

	/* As ceov_plan_explain(), for a committed plan. */
	int  (*explain)(const ceov_plan *plan, int fd);

	/* Waits for the plan's launches, and releases it. */
	void (*release)(ceov_plan *plan);

	/* Ends the plan at ceov_close(), when nothing is in flight any more. */
	void (*destroy)(ceov_plan *plan);
};

struct cei_ticket_ops {
	/* Waits until the launch has ended, at most timeout_ns. 0, and CEOV_PENDING or the
	 * result. CEOV_NONE: the result is not kept any more. CEOV_ERR_INVALID, not raised:
	 * there is no launch of that number. */
	int  (*wait)(ceov_context *context, ceov_ticket ticket, uint64_t timeout_ns,
		     int *ret_result);

	/* Aborts the signals of its plan. CEOV_NONE: the launch has ended, or never was. */
	int  (*abort)(ceov_context *context, ceov_ticket ticket);
};

struct cei_door {
	const char           *name;     /* for messages and tests: "here" */
	struct cei_buffer_ops buffer;
	struct cei_signal_ops signal;
	struct cei_plan_ops   plan;
	struct cei_ticket_ops ticket;
};

#endif /* CEI_DOOR_H */
