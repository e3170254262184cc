/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Names of urgencies. */

#include "base/urgency.h"

#include <string.h>

#include <ceoverlap/ceoverlap.h>

#define N_URGENCIES (CEOV_URGENCY_BACKGROUND + 1u)

static const char *const names[N_URGENCIES] = {
	[CEOV_URGENCY_NORMAL] = "normal",
	[CEOV_URGENCY_URGENT] = "urgent",
	[CEOV_URGENCY_BACKGROUND] = "background",
};

const char *cei_urgency_name(uint32_t urgency)
{
	return urgency < N_URGENCIES ? names[urgency] : "?";
}

int cei_urgency_read(const char *text, uint32_t *ret_urgency)
{
	uint32_t i;

	for (i = 0; i < N_URGENCIES; i++) {
		if (strcmp(text, names[i]))
			continue;
		*ret_urgency = i;
		return 1;
	}
	return 0;
}
