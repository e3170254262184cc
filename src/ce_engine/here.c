/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The door to the engines of this process: its table of functions. */

#include "ce_engine/here.h"

#include "ce_engine/objects/abort.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"
#include "ce_engine/plan/plan_commit.h"
#include "ce_engine/plan/plan_explain.h"
#include "ce_engine/plan/plan_launch.h"
#include "ce_engine/plan/plan_release.h"
#include "ce_engine/signal_renew.h"
#include "ipc/share.h"

const struct cei_door cei_door_here = {
	.name = "here",
	.buffer = {
		.admit = cei_region_map_all,
		.dismiss = cei_region_fini,
	},
	.signal = {
		.raise = cei_signal_raise,
		.arrive = cei_signal_arrive,
		.value = cei_signal_value,
		.renew = cei_signal_renew,
		.abort = cei_abort_unlocked,
	},
	.plan = {
		.commit = cei_plan_commit,
		.launch = cei_launch_enqueue,
		.is_busy = cei_plan_is_in_flight,
		.explain = cei_plan_explain,
		.release = cei_plan_release,
		.destroy = cei_plan_destroy,
	},
	.ticket = {
		.wait = cei_ticket_wait,
		.abort = cei_ticket_abort,
	},
};
