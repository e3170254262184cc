/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Chooses between host memory of the application and slots. */

#include "net/in_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "net/far_slots.h"

enum mode {
	MODE_AUTO,                      /* in place where that was tried */
	MODE_ON,
	MODE_OFF,
};

static int read_mode(struct cei_report *report, enum mode *ret_mode)
{
	const char *const names[] = { "auto", "on", "off" };
	const char *text = secure_getenv("CEOVERLAP_IN_PLACE");
	uint32_t i;

	*ret_mode = MODE_AUTO;
	if (!text || !*text)
		return 0;
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(text, names[i])) {
			*ret_mode = (enum mode)i;
			return 0;
		}
	return cei_raise(report, CEOV_ERR_INVALID, 0, "ceov_open: CEOVERLAP_IN_PLACE is '%s', "
			 "and must be auto, on or off", text);
}

int cei_in_place_choose(struct cei_report *report, const char *obstacle,
			struct cei_in_place *ret_choice)
{
	const char *why = obstacle;
	enum mode mode;
	int r = read_mode(report, &mode);

	if (r)
		return r;
	if (mode == MODE_OFF)
		why = "CEOVERLAP_IN_PLACE says so";
	ret_choice->is_staged = why && mode != MODE_ON;
	if (ret_choice->is_staged)
		snprintf(ret_choice->text, sizeof(ret_choice->text), "pass through %u slots of %u "
			 "MiB: %s", CEI_FAR_SLOTS, (unsigned)(CEI_FAR_SLOT_BYTES >> 20), why);
	else
		snprintf(ret_choice->text, sizeof(ret_choice->text), "are read and written in "
			 "place%s%s", why ? ", because CEOVERLAP_IN_PLACE says so: " : "",
			 why ? why : "");
	cei_log(report, why ? CEI_LOG_WARN : CEI_LOG_INFO, "network: bytes of host memory %s",
		ret_choice->text);
	return 0;
}
