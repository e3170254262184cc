/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Limits where the operator says nothing. */

#include "daemon/server/limits.h"

#include <ceoverlap/ceoverlap.h>

#define GIB (UINT64_C(1) << 30)

struct cei_limits cei_limits_default(void)
{
	return (struct cei_limits){
		.n_clients = 256,
		.n_clients_uid = 64,
		.n_plans = 256,
		.n_transfers = 4096,
		.n_chunks = 65536,
		.n_regions = 4096,
		.n_bytes = 1024 * GIB,
		.n_bytes_uid = 4096 * GIB,
		.max_chunk_bytes = UINT64_C(16) << 20,
		.weight = 1,
		.most_urgent = CEOV_URGENCY_URGENT,
	};
}

const struct cei_limits *cei_limits_of(const struct cei_limits_table *table, uint32_t uid)
{
	uint32_t i;

	for (i = 0; i < table->n_users; i++)
		if (table->users[i].uid == uid)
			return &table->users[i].limits;
	return &table->all;
}

static int rank_of(uint32_t urgency)
{
	static const int ranks[] = { [CEOV_URGENCY_BACKGROUND] = 0, [CEOV_URGENCY_NORMAL] = 1,
				     [CEOV_URGENCY_URGENT] = 2 };

	return ranks[urgency];
}

uint32_t cei_limits_cap(uint32_t most, uint32_t urgency)
{
	return rank_of(urgency) > rank_of(most) ? most : urgency;
}
