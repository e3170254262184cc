/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Adds up what users have had moved. */

#include "daemon/server/usage.h"

#include <string.h>

static void add(struct cei_usage *usage, const struct cei_usage *more)
{
	uint32_t i;

	for (i = 0; i < CEI_FLOWS_URGENCIES; i++)
		usage->bytes[i] += more->bytes[i];
	usage->n_launches += more->n_launches;
	usage->n_failed += more->n_failed;
	usage->n_stayed += more->n_stayed;
	usage->n_clients += more->n_clients;
	usage->n_mapped += more->n_mapped;
}

void cei_usage_add(struct cei_usage_table *table, uint32_t uid, const struct cei_usage *more)
{
	uint32_t i;

	for (i = 0; i < table->n; i++)
		if (table->users[i].uid == uid)
			break;
	if (i > CEI_USAGE_USERS)
		i = CEI_USAGE_USERS;
	if (i == table->n) {
		memset(&table->users[i], 0, sizeof(table->users[i]));
		table->users[i].uid = i < CEI_USAGE_USERS ? uid : CEI_USAGE_OTHERS;
		table->n++;
	}
	add(&table->users[i].usage, more);
}

struct cei_usage cei_usage_sum(const struct cei_usage_table *table)
{
	struct cei_usage sum;
	uint32_t i;

	memset(&sum, 0, sizeof(sum));
	for (i = 0; i < table->n; i++)
		add(&sum, &table->users[i].usage);
	return sum;
}
