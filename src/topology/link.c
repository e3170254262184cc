/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The default costs of direct copies, and the names of links and origins. */

#include "topology/link.h"

#define NS_PER_S UINT64_C(1000000000)

/*
 * Measured on one host with 8 x H200 behind NVSwitch: rates of back-to-back copies of 64 MiB and
 * more, and t0 of a batch of copies behind which one mark is raised. PEER is the rate that each
 * pair of GPUs keeps while all take part in a collective; one pair alone reaches 395 GB/s. LOCAL
 * is what a copy engine does within a GPU (87 to 106 GB/s), far below the rate of the GPU's
 * memory. HOST is the memcpy of one thread.
 */
static const struct cei_machine_link defaults[] = {
	[CEI_DIRECTION_PEER] = {
		.kind = CEI_MACHINE_NVSWITCH, .bytes_per_s = UINT64_C(392000000000),
		.t0_ns = 4000,
	},
	[CEI_DIRECTION_IN] = {
		.kind = CEI_MACHINE_HOST, .bytes_per_s = UINT64_C(53000000000), .t0_ns = 4000,
	},
	[CEI_DIRECTION_OUT] = {
		.kind = CEI_MACHINE_HOST, .bytes_per_s = UINT64_C(55000000000), .t0_ns = 4000,
	},
	[CEI_DIRECTION_LOCAL] = {
		.kind = CEI_MACHINE_SELF, .bytes_per_s = UINT64_C(100000000000),
		.t0_ns = 4000,
	},
	[CEI_DIRECTION_HOST] = {
		.kind = CEI_MACHINE_NODES, .bytes_per_s = UINT64_C(8000000000), .t0_ns = 2000,
	},
};

const struct cei_machine_link *cei_link_default(enum cei_direction direction)
{
	return &defaults[direction];
}

uint64_t cei_machine_link_ns(const struct cei_machine_link *link, uint64_t n_bytes)
{
	uint64_t rate = link->bytes_per_s;
	uint64_t s, rest_ns;

	if (link->kind == CEI_MACHINE_NONE || !rate)
		return UINT64_MAX;
	s = n_bytes / rate;
	/* the remainder is less than a second's bytes, so a double is exact to 1 ns up to
	 * 2^53 bytes per second */
	rest_ns = (uint64_t)((double)(n_bytes % rate) * (double)NS_PER_S / (double)rate);
	if (s > (UINT64_MAX - rest_ns) / NS_PER_S ||
	    link->t0_ns > UINT64_MAX - rest_ns - s * NS_PER_S)
		return UINT64_MAX;
	return link->t0_ns + s * NS_PER_S + rest_ns;
}

const char *cei_direction_name(enum cei_direction direction)
{
	switch (direction) {
	case CEI_DIRECTION_PEER:  return "peer";
	case CEI_DIRECTION_IN:    return "host-to-gpu";
	case CEI_DIRECTION_OUT:   return "gpu-to-host";
	case CEI_DIRECTION_LOCAL: return "local";
	case CEI_DIRECTION_HOST:  return "host";
	case CEI_DIRECTION_ANY:   return "any";
	}
	return "unknown";
}

const char *cei_machine_link_kind_name(enum cei_machine_link_kind kind)
{
	switch (kind) {
	case CEI_MACHINE_NONE:     return "none";
	case CEI_MACHINE_SELF:     return "self";
	case CEI_MACHINE_NVSWITCH: return "NVSwitch";
	case CEI_MACHINE_NVLINK:   return "NVLink";
	case CEI_MACHINE_PCIE:     return "PCIe";
	case CEI_MACHINE_HOST:     return "host";
	case CEI_MACHINE_C2C:      return "C2C";
	case CEI_MACHINE_NODES:    return "nodes";
	}
	return "unknown";
}

const char *cei_machine_origin_name(enum cei_machine_origin origin)
{
	switch (origin) {
	case CEI_MACHINE_DEFAULT:  return "default";
	case CEI_MACHINE_REPORTED: return "reported";
	case CEI_MACHINE_MEASURED: return "measured";
	}
	return "unknown";
}
