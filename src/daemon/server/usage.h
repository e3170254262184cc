/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_USAGE_H
#define CEI_DAEMON_USAGE_H

/*
 * What users have had moved, for displays: that of clients that have gone stays counted. The first
 * CEI_USAGE_USERS users that come are told apart; all others are added up in one row more. A user
 * gets its row, or none, with the first thing that is added, even if that is 0, and keeps it: so
 * no counter that is shown falls. Front thread.
 */

#include <stdint.h>

#include "ce_engine/sched/flows.h"

#define CEI_USAGE_USERS 64u

/* Stands for all users for whom there was no place. */
#define CEI_USAGE_OTHERS UINT32_MAX

struct cei_usage {
	uint64_t bytes[CEI_FLOWS_URGENCIES];
	uint64_t n_launches;            /* that have ended */
	uint64_t n_failed;              /* among them */
	uint64_t n_stayed;              /* plans that stayed in their process */
	uint32_t n_clients;             /* that are there now */
	uint64_t n_mapped;              /* bytes, now */
};

struct cei_usage_table {
	uint32_t n;
	struct {
		uint32_t         uid;
		struct cei_usage usage;
	} users[CEI_USAGE_USERS + 1];   /* the last place is that of CEI_USAGE_OTHERS */
};

/* Adds what a user had, in the user's row or in that of CEI_USAGE_OTHERS. */
void cei_usage_add(struct cei_usage_table *table, uint32_t uid, const struct cei_usage *more);

/* What all users had together. */
struct cei_usage cei_usage_sum(const struct cei_usage_table *table);

#endif /* CEI_DAEMON_USAGE_H */
