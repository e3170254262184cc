/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Reads the host backend's fault script from the environment. */

#include "backend/host.h"

#include "base/variables.h"

int cei_host_script_from_environment(struct cei_report *report,
				     struct cei_host_script *ret_script)
{
	struct cei_host_script script = { 0 };
	int r;

	r = cei_variable_number(report, "CEOVERLAP_HOST_COPY_DELAY_NS", UINT64_MAX,
				&script.copy_delay_ns);
	if (!r)
		r = cei_variable_number(report, "CEOVERLAP_HOST_COPY_FAIL_AT", UINT64_MAX,
					&script.copy_fail_at);
	if (!r)
		r = cei_variable_number(report, "CEOVERLAP_HOST_COPY_LOSE_AT", UINT64_MAX,
					&script.copy_lose_at);
	if (!r)
		*ret_script = script;
	return r;
}
