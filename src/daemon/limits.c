/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Limits where the operator says nothing. */

#include "daemon/limits.h"

#define GIB (UINT64_C(1) << 30)

struct cei_limits cei_limits_default(void)
{
	return (struct cei_limits){
		.n_clients = 256,
		.n_clients_uid = 64,
		.n_plans = 256,
		.n_transfers = 4096,
		.n_regions = 4096,
		.n_bytes = 1024 * GIB,
		.n_bytes_uid = 4096 * GIB,
		.max_chunk_bytes = UINT64_C(16) << 20,
	};
}
