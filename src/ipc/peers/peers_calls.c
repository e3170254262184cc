/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Exports, finds and barriers. */

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/clock.h"
#include "ipc/peers/peers_private.h"

#define NS_PER_MS UINT64_C(1000000)

/* --- exports ----------------------------------------------------------------------------- */

/* Returns an errno. */
static int duplicate(const struct cei_group_fds *fds, struct cei_group_fds *ret_fds)
{
	int error;

	for (ret_fds->n = 0; ret_fds->n < fds->n; ret_fds->n++) {
		ret_fds->fds[ret_fds->n] = fcntl(fds->fds[ret_fds->n], F_DUPFD_CLOEXEC, 0);
		if (ret_fds->fds[ret_fds->n] >= 0)
			continue;
		error = errno;
		cei_peers_close_fds(ret_fds, 0);
		return error;
	}
	return 0;
}

static int raise_export(struct cei_peers *peers, const struct cei_group_export *export, int error)
{
	struct cei_report *report = peers->config.report;

	if (error == CEOV_ERR_STATE)
		return cei_raise(report, error, 0, "export '%s': rank %u exports something under "
				 "that name already", export->name, export->rank);
	if (error == CEOV_ERR_NO_MEMORY)
		return cei_raise(report, error, 0, "export '%s' of rank %u: no memory, or this "
				 "process exports %u things already, which is the most; release "
				 "some", export->name, export->rank, CEI_GROUP_EXPORTS_MAX);
	return cei_raise(report, error, 0, "export '%s' of rank %u: the rank is not held by this "
			 "process, or the export is too large", export->name, export->rank);
}

int cei_peers_export(struct cei_peers *peers, const struct cei_group_export *export,
		     uint32_t *ret_id)
{
	struct cei_group_export own = *export;
	int r, error = export->fds.n > CEI_GROUP_FDS_MAX ? 0 : duplicate(&export->fds, &own.fds);

	if (error)
		return cei_raise(peers->config.report, CEOV_ERR_SYSTEM, error,
				 "export '%s' of rank %u: its descriptor cannot be duplicated: %s",
				 export->name, export->rank, strerror(error));
	cei_peers_enter(peers);
	r = cei_group_export(peers->machine, &own, ret_id);
	cei_peers_exit(peers, 0);
	if (!r)
		return 0;
	if (export->fds.n <= CEI_GROUP_FDS_MAX)
		cei_peers_close_fds(&own.fds, 0);
	return raise_export(peers, export, r);
}

void cei_peers_show(struct cei_peers *peers, uint32_t id)
{
	cei_peers_enter(peers);
	cei_group_show(peers->machine, id);
	cei_peers_exit(peers, 0);
}

int cei_peers_withdraw(struct cei_peers *peers, uint32_t id, int is_forced)
{
	int r;

	cei_peers_enter(peers);
	r = cei_group_withdraw(peers->machine, id, is_forced);
	cei_peers_exit(peers, 0);
	if (r != CEOV_ERR_INVALID)
		return r;
	return cei_raise(peers->config.report, r, 0, "withdraw: there never was an export %u", id);
}

/* --- finds ------------------------------------------------------------------------------- */

static int raise_find(struct cei_peers *peers, const struct cei_lookup *lookup,
		      const struct cei_group_call *call, uint64_t since_ns)
{
	struct ceov_failure failure = cei_failure(call->result, call->native_code);
	struct cei_report *report = peers->config.report;

	failure.rank = lookup->rank;
	if (call->result == CEOV_ERR_TIMEOUT)
		return cei_raise_failure(report, &failure, "find '%s': rank %u did not answer "
					 "within %llu ms; is its process stopped?", lookup->name,
					 lookup->rank, (unsigned long long)
					 ((cei_now_ns() - since_ns) / NS_PER_MS));
	if (call->result == CEOV_ERR_PEER_LOST)
		return cei_raise_failure(report, &failure, "find '%s': rank %u %s", lookup->name,
					 lookup->rank,
					 cei_peers_end_of(peers, lookup->rank,
							  call->has_departed));
	if (call->result == CEOV_ERR_STATE)
		return cei_raise_failure(report, &failure, "find '%s' at rank %u: this process is "
					 "closing its context", lookup->name, lookup->rank);
	if (call->result == CEOV_ERR_SYSTEM && call->native_code == EMFILE)
		return cei_raise_failure(report, &failure, "find '%s' at rank %u: its descriptors "
					 "did not arrive; has this process any free? (ulimit -n)",
					 lookup->name, lookup->rank);
	if (call->result == CEOV_ERR_SYSTEM)
		return cei_raise_failure(report, &failure, "find '%s': rank %u could not send it: "
					 "%s", lookup->name, lookup->rank,
					 strerror(call->native_code));
	failure.rank = CEOV_NOBODY;
	return cei_raise_failure(report, &failure, "find '%s' at rank %u: %s", lookup->name,
				 lookup->rank, call->result == CEOV_ERR_NO_MEMORY ? "no memory" :
				 "the rank is none of another process, or the name has not 1 to 63 "
				 "bytes");
}

int cei_peers_find(struct cei_peers *peers, const struct cei_lookup *lookup,
		   struct cei_group_found *ret_found, uint64_t *ret_use)
{
	struct cei_group_call call = { .deadline_ns = lookup->deadline_ns, .found = ret_found };
	uint64_t since_ns = cei_now_ns();

	cei_peers_enter(peers);
	cei_group_find(peers->machine, &call, lookup->rank, lookup->name);
	cei_peers_await(peers, &call);
	*ret_use = call.use;
	if (!call.result || call.result == CEOV_NONE)
		return call.result;
	return raise_find(peers, lookup, &call, since_ns);
}

void cei_peers_drop(struct cei_peers *peers, uint32_t rank, uint64_t use)
{
	cei_peers_enter(peers);
	cei_group_drop(peers->machine, rank, use);
	cei_peers_exit(peers, 0);
}

/* --- barrier ------------------------------------------------------------------------------ */

int cei_peers_barrier(struct cei_peers *peers, uint64_t deadline_ns)
{
	struct cei_group_call call = { .deadline_ns = deadline_ns };
	struct ceov_failure failure;

	cei_peers_enter(peers);
	cei_group_barrier(peers->machine, &call);
	cei_peers_await(peers, &call);
	if (!call.result)
		return 0;
	failure = cei_failure(call.result, 0);
	failure.rank = call.blame;
	if (call.blame == CEOV_NOBODY)
		return cei_raise_failure(peers->config.report, &failure,
					 "barrier: not all ranks have come in time");
	return cei_raise_failure(peers->config.report, &failure, "barrier: rank %u %s", call.blame,
				 call.result == CEOV_ERR_TIMEOUT ? "has not come in time" :
				 cei_peers_end_of(peers, call.blame, call.has_departed));
}
