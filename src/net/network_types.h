/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_NETWORK_TYPES_H
#define CEI_NETWORK_TYPES_H

/* What networks tell each other, and the layer above, of exports and signals. */

#include <stdint.h>

#define CEI_NETWORK_NAME_BYTES    64u   /* with the final 0 */
#define CEI_NETWORK_ABORTS_MAX    64u   /* signals that are aborted together */
#define CEI_NETWORK_DETAILS_BYTES 64u   /* of an export: what the layer above says of it */

enum cei_network_kind {
	CEI_NETWORK_BYTES = 1,          /* others write to all of it */
	CEI_NETWORK_COUNTERS,           /* others raise its counters, and nothing else */
};

struct cei_network_found {
	uint32_t              region;           /* its number at the owner */
	enum cei_network_kind kind;
	uint64_t              size_bytes;
	uint32_t              generation;       /* of a signal: how often it was renewed */
	uint32_t              n_details;
	uint8_t               details[CEI_NETWORK_DETAILS_BYTES];
};

struct cei_network_signal {
	uint32_t rank;                  /* the owner */
	uint32_t region;                /* its number there */
};

#endif /* CEI_NETWORK_TYPES_H */
