/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The host backend's fault script: read from the environment, and played. */

#include "backend/host.h"

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/variables.h"

#define NS_PER_MS UINT64_C(1000000)

int cei_host_script_from_environment(struct cei_report *report, uint32_t rank,
				     struct cei_host_script *ret_script)
{
	static const struct cei_host_script none;
	struct cei_host_script script = none;
	uint64_t only = rank;
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
		r = cei_variable_number(report, "CEOVERLAP_HOST_BREAK_AT", UINT64_MAX,
					&script.break_at);
	if (!r)
		r = cei_variable_number(report, "CEOVERLAP_HOST_BREAK_AFTER_MS",
					UINT64_MAX / NS_PER_MS, &script.break_after_ms);
	if (!r)
		r = cei_variable_number(report, "CEOVERLAP_HOST_FAULT_RANK", UINT32_MAX, &only);
	if (!r)
		*ret_script = only == rank ? script : none;
	return r;
}

int cei_host_faults_lost(const struct cei_host_faults *faults)
{
	uint64_t after_ns = faults->script.break_after_ms * NS_PER_MS;

	if (after_ns && cei_now_ns() - faults->opened_ns >= after_ns)
		return 1;
	/* relaxed: nothing else is to be seen with it */
	return atomic_load_explicit(&faults->is_lost, memory_order_relaxed) != 0;
}

/* Counts the copy, and loses the place with the one that the script names. */
static int is_lost_now(struct cei_host_faults *faults)
{
	uint64_t n;

	if (!faults->script.break_at)
		return 0;
	/* relaxed, both: see above */
	n = 1 + atomic_fetch_add_explicit(&faults->n_copies, 1, memory_order_relaxed);
	if (n >= faults->script.break_at)
		atomic_store_explicit(&faults->is_lost, 1, memory_order_relaxed);
	return n >= faults->script.break_at;
}

int cei_host_faults_copy(struct cei_host_faults *faults, const struct cei_lane *lane, uint64_t n)
{
	struct cei_report *report = lane->backend->site->report;

	if (n == faults->script.copy_fail_at)
		return cei_raise(report, CEOV_ERR_SYSTEM, EIO, "host: lane %u: copy %llu failed, "
				 "as its fault script says", lane->index, (unsigned long long)n);
	if (is_lost_now(faults))
		return cei_raise(report, CEOV_ERR_SYSTEM, EIO, "host: lane %u: its place is lost, "
				 "as its fault script says", lane->index);
	return 0;
}

int cei_host_faults_tell(const struct cei_host_faults *faults, uint32_t rank,
			 char ret_text[CEI_LOST_BYTES])
{
	if (!cei_host_faults_lost(faults))
		return 0;
	snprintf(ret_text, CEI_LOST_BYTES, "host memory %u is lost, as its fault script says",
		 rank);
	return CEOV_ERR_SYSTEM;
}
