/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "daemon/server/fences.h"

#include <stdio.h>

#include <systemd/sd-daemon.h>

#include "base/clock.h"
#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/works.h"

int cei_fences_read(const struct cei_fences *fences, uint32_t engine, char ret_why[CEI_LOST_BYTES])
{
	return fences->works->engines
		? cei_fence_read(&fences->works->engines[engine].fence, ret_why) : 0;
}

int cei_fences_refuse(const struct cei_fences *fences, uint32_t engine,
		      char ret_text[CEOV_FAILURE_TEXT_BYTES])
{
	char why[CEI_LOST_BYTES];
	int error = cei_fences_read(fences, engine, why);

	if (error)
		snprintf(ret_text, CEOV_FAILURE_TEXT_BYTES, "ceoverlapd: %s; the daemon has fenced "
			 "it, and carries out nothing there until it is started anew", why);
	return error;
}

static void notice(struct cei_fences *fences, uint32_t engine, const char *why)
{
	uint32_t i, n = 0;

	fences->since_ns[engine] = cei_now_ns();
	for (i = 0; i < fences->n; i++)
		n += fences->since_ns[i] != 0;
	cei_log(fences->report, CEI_LOG_ERROR, "fenced: %s; its launches have ended, and it gets "
		"no more until the daemon is started anew; all else is served as before", why);
	(void)sd_notifyf(0, "STATUS=serves, but has fenced %u of %u engines, at last: %s", n,
			 fences->n, why);
}

uint32_t cei_fences_look(struct cei_fences *fences)
{
	char why[CEI_LOST_BYTES];
	uint32_t i, found = 0;

	for (i = 0; i < fences->n; i++) {
		if (fences->since_ns[i] || !cei_fences_read(fences, i, why))
			continue;
		notice(fences, i, why);
		found |= UINT32_C(1) << i;
	}
	return found;
}
