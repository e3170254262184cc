/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Ranges by NVTX's headers. */

#include "base/ranges.h"

#include <stdlib.h>

/* Whoever runs a program with another user's rights must not choose the library that NVTX's headers
 * open, whose path they take from the environment. */
#define getenv secure_getenv
#include <nvtx3/nvToolsExt.h>

#include "base/variables.h"

struct cei_ranges {
	nvtxDomainHandle_t domain;      /* NULL: no tool listens */
};

int cei_ranges_open(struct cei_report *report, struct cei_ranges **ret_ranges)
{
	uint64_t is_wanted = 0;
	int r = cei_variable_number(report, "CEOVERLAP_NVTX", 1, &is_wanted);

	*ret_ranges = NULL;
	if (r || !is_wanted)
		return r;
	*ret_ranges = calloc(1, sizeof(**ret_ranges));
	if (!*ret_ranges)
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0, "no memory for ranges of NVTX");
	(*ret_ranges)->domain = nvtxDomainCreateA("ceoverlap");
	return 0;
}

void cei_ranges_close(struct cei_ranges *ranges)
{
	if (!ranges)
		return;
	if (ranges->domain)
		nvtxDomainDestroy(ranges->domain);
	free(ranges);
}

void cei_ranges_push(struct cei_ranges *ranges, const char *name, uint64_t value)
{
	nvtxEventAttributes_t event = {
		.version = NVTX_VERSION,
		.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
		.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64,
		.payload.ullValue = value,
		.messageType = NVTX_MESSAGE_TYPE_ASCII,
		.message.ascii = name,
	};

	if (ranges->domain)
		nvtxDomainRangePushEx(ranges->domain, &event);
}

void cei_ranges_pop(struct cei_ranges *ranges)
{
	if (ranges->domain)
		nvtxDomainRangePop(ranges->domain);
}
