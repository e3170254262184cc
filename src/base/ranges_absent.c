/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Ranges where the library was built without NVTX's headers: there are none. */

#include "base/ranges.h"

#include <stddef.h>

#include "base/variables.h"

int cei_ranges_open(struct cei_report *report, struct cei_ranges **ret_ranges)
{
	uint64_t is_wanted = 0;
	int r = cei_variable_number(report, "CEOVERLAP_NVTX", 1, &is_wanted);

	*ret_ranges = NULL;
	if (!r && is_wanted)
		cei_log(report, CEI_LOG_WARN, "CEOVERLAP_NVTX is 1, but this library was built "
			"without NVTX's headers, so tools see no ranges of it");
	return r;
}

/* What follows is not called, as there are no ranges. */

void cei_ranges_close(struct cei_ranges *ranges)
{
	(void)ranges;
}

void cei_ranges_push(struct cei_ranges *ranges, const char *name, uint64_t value)
{
	(void)ranges;
	(void)name;
	(void)value;
}

void cei_ranges_pop(struct cei_ranges *ranges)
{
	(void)ranges;
}
