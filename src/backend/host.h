/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_HOST_H
#define CEI_HOST_H

/*
 * The host backend's fault script: makes its copies slow, fail or never end, so that error
 * paths can be tested without broken hardware. It is read from the environment when a
 * context opens; tests can also set it by cei_host_set_script(). All zero: no faults.
 *
 *   CEOVERLAP_HOST_COPY_DELAY_NS   every copy takes that much longer
 *   CEOVERLAP_HOST_COPY_FAIL_AT    the n-th copy of a lane (from 1) fails, and
 *                                  breaks the lane
 *   CEOVERLAP_HOST_COPY_LOSE_AT    the n-th copy of a lane never ends
 */

#include <stdint.h>

#include "backend/backend.h"

struct cei_host_script {
	uint64_t copy_delay_ns;
	uint64_t copy_fail_at;
	uint64_t copy_lose_at;
};

extern const struct cei_backend_ops cei_backend_host;

/* CEOV_ERR_INVALID, raised: a value is not a number. */
int  cei_host_script_from_environment(struct cei_report *report,
				      struct cei_host_script *ret_script);

/* Call it before the first copy. */
void cei_host_set_script(struct cei_backend *backend, const struct cei_host_script *script);

#endif /* CEI_HOST_H */
