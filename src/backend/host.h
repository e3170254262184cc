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
 *   CEOVERLAP_HOST_BREAK_AT        with the n-th copy of all its lanes together the rank's place
 *                                  is lost, as a GPU is whose context its driver has given up:
 *                                  this copy and all later ones fail
 *   CEOVERLAP_HOST_BREAK_AFTER_MS  the rank's place is lost so long after its backend was opened,
 *                                  whether it copies or not
 *   CEOVERLAP_HOST_FAULT_RANK      the script is of this rank alone; of a daemon's engines the
 *                                  first is rank 0
 */

#include <stdatomic.h>
#include <stdint.h>

#include "backend/lane.h"

struct cei_host_script {
	uint64_t copy_delay_ns;
	uint64_t copy_fail_at;
	uint64_t copy_lose_at;
	uint64_t break_at;
	uint64_t break_after_ms;
};

struct cei_host_faults {                /* of a backend */
	struct cei_host_script script;
	uint64_t               opened_ns;
	_Atomic uint64_t       n_copies;        /* of all lanes, if break_at is not 0 */
	_Atomic uint32_t       is_lost;
};

extern const struct cei_place_ops cei_backend_host;

/* The script of a rank. CEOV_ERR_INVALID, raised: a value is not a number. */
int  cei_host_script_from_environment(struct cei_report *report, uint32_t rank,
				      struct cei_host_script *ret_script);

/* Whether a copy, the lane's n-th, goes well. Else CEOV_ERR_SYSTEM, raised. */
int  cei_host_faults_copy(struct cei_host_faults *faults, const struct cei_lane *lane, uint64_t n);

/* Whether the place is lost, and the text of cei_place_ops.lost(). Any thread. */
int  cei_host_faults_lost(const struct cei_host_faults *faults);
int  cei_host_faults_tell(const struct cei_host_faults *faults, uint32_t rank,
			  char ret_text[CEI_LOST_BYTES]);

/* Call it before the first copy. */
void cei_host_set_script(struct cei_backend *backend, const struct cei_host_script *script);

/* See struct cei_place_ops. */
int  cei_host_store(struct cei_backend *backend, uint64_t address, const void *bytes,
		    uint64_t n_bytes);
int  cei_host_load(struct cei_backend *backend, uint64_t address, void *ret_bytes,
		   uint64_t n_bytes);

#endif /* CEI_HOST_H */
