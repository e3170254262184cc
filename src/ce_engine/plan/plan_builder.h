/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PLAN_BUILDER_H
#define CEI_PLAN_BUILDER_H

/*
 * What a plan needs while it is built, and no more: how handles are numbered, how much room
 * the lists have that grow, and the marks that the caller expects. Transfers go into the
 * plan's program as they are added. A commit that succeeds frees the builder.
 */

#include "base/ids.h"
#include "ce_engine/objects/plan.h"

extern const struct cei_object_type cei_plan_type;

struct cei_plan_builder {
	struct cei_ids    buffers;      /* numbers of buffer handles */
	struct cei_ids    signals;      /* numbers of signals by their control region, because two
					 * handles may be of one signal */
	uint32_t          buffers_room; /* capacity of plan->buffers */
	uint32_t          signals_room; /* of plan->signals */
	uint32_t          transfers_room;       /* capacity of the program's transfers */
	uint32_t          also_room;    /* of plan->also */
	struct ceov_mark *expected;     /* marks that the caller expects; may name signals that no
					 * transfer names */
	uint32_t          n_expected;
	uint32_t          expected_room;
};

/* For the layers above; call them before commit. set_template: a template has added the transfers,
 * in an order that keeps receivers apart; label is the plan's from then on. keep_order: chunks must
 * be moved in the plan's order of transfers, because a mark covers earlier transfers, too.
 * set_between_nodes: how shards go from node to node, for ceov_plan_explain(); the words have to
 * stay valid as long as the plan. */
void cei_plan_set_template(struct ceov_plan *plan, const char *label);
void cei_plan_set_between_nodes(struct ceov_plan *plan, const char *words);
void cei_plan_keep_order(struct ceov_plan *plan);

/* The transfer that was added last also waits for this mark, as for its target_free: who reads what
 * it overwrites may be several. The mark need not be expected. Raises: the engine does not see the
 * counter, or there is no memory. */
int  cei_plan_await_also(struct ceov_plan *plan, const struct ceov_mark *mark);

/* Returns 0 if the plan is a valid handle and not committed; else raises. call: name of the public
 * function. */
int  cei_plan_check_open(ceov_plan *plan, const char *call);

/* Frees the builder, at commit or when a plan that was never committed is released. May be
 * repeated. */
void cei_plan_end_builder(struct ceov_plan *plan);

#endif /* CEI_PLAN_BUILDER_H */
