/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The door to the engines of this process: its table of functions. */

#include "ce_engine/plan/local_door.h"

#include "ce_engine/plan/plan_commit.h"
#include "ce_engine/plan/plan_explain.h"
#include "ce_engine/plan/plan_launch.h"
#include "ce_engine/plan/plan_release.h"

const struct cei_door cei_local_door = {
	.commit = cei_plan_commit,
	.launch = cei_launch_enqueue,
	.n_in_flight = cei_plan_in_flight_here,
	.explain = cei_plan_explain,
	.wait = cei_ticket_wait,
	.abort = cei_ticket_abort,
};
