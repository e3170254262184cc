/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Publishes, withdraws, finds and drops exports, in application threads. bootstrap_link.c handles
 * the messages between processes. The contents of exports are not interpreted here.
 */

#include "ipc/bootstrap_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define NS_PER_MS UINT64_C(1000000)

/* --- exports of this process --------------------------------------------- */

void cei_export_entry_free(struct cei_bootstrap *bootstrap, uint32_t index)
{
	struct cei_export_entry *entry = bootstrap->exports[index];
	uint32_t i;

	for (i = 0; i < entry->export.n_fds; i++)
		cei_fd_close(entry->export.fds[i]);
	free(entry);
	bootstrap->exports[index] = bootstrap->exports[--bootstrap->n_exports];
}

struct cei_export_entry *cei_export_entry_find(struct cei_bootstrap *bootstrap, uint32_t rank,
					       const char *name)
{
	struct cei_export_entry *entry;
	uint32_t i;

	for (i = 0; i < bootstrap->n_exports; i++) {
		entry = bootstrap->exports[i];
		if (!entry->is_withdrawn && entry->export.rank == rank &&
		    !strcmp(entry->export.name, name))
			return entry;
	}
	return NULL;
}

static int is_member(const struct cei_site *site, uint32_t rank)
{
	uint32_t i;

	for (i = 0; i < site->n_members; i++)
		if (site->members[i].rank == rank)
			return 1;
	return 0;
}

static int is_name(const char *name)
{
	size_t n_bytes = strnlen(name, CEI_NAME_BYTES);

	return n_bytes && n_bytes < CEI_NAME_BYTES;
}

/* Copies an export and duplicates its descriptors. Returns an errno. */
static int copy_export(const struct cei_export *export, struct cei_export *ret_export)
{
	uint32_t i;

	*ret_export = *export;
	for (i = 0; i < CEI_EXPORT_FDS_MAX; i++)
		ret_export->fds[i] = -1;
	for (i = 0; i < export->n_fds; i++) {
		ret_export->fds[i] = fcntl(export->fds[i], F_DUPFD_CLOEXEC, 0);
		if (ret_export->fds[i] < 0)
			return errno;
	}
	return 0;
}

/* Adds an entry to the table of exports. CEOV_ERR_STATE: the name is taken; CEOV_FULL: the table is
 * full. */
static int add_entry(struct cei_bootstrap *bootstrap, struct cei_export_entry *entry,
		     uint64_t *ret_id)
{
	int r = 0;

	pthread_mutex_lock(&bootstrap->lock);
	if (cei_export_entry_find(bootstrap, entry->export.rank, entry->export.name)) {
		r = CEOV_ERR_STATE;
	} else if (bootstrap->n_exports == CEI_EXPORTS_MAX) {
		r = CEOV_FULL;
	} else {
		entry->id = ++bootstrap->n_ids;
		*ret_id = entry->id;
		bootstrap->exports[bootstrap->n_exports++] = entry;
	}
	pthread_mutex_unlock(&bootstrap->lock);
	return r;
}

static void discard_entry(struct cei_export_entry *entry)
{
	uint32_t i;

	for (i = 0; i < CEI_EXPORT_FDS_MAX; i++)
		cei_fd_close(entry->export.fds[i]);
	free(entry);
}

static int check_export(struct cei_bootstrap *bootstrap, const struct cei_export *export)
{
	struct cei_report *report = bootstrap->site->report;

	if (!is_member(bootstrap->site, export->rank))
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "export: rank %u is not held by this process",
				 export->rank);
	if (!is_name(export->name))
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "export of rank %u: a name has 1 to %u bytes",
				 export->rank, CEI_NAME_BYTES - 1);
	if (export->n_bytes > CEI_EXPORT_BYTES_MAX || export->n_fds > CEI_EXPORT_FDS_MAX)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "export '%s' of rank %u: %u bytes and %u descriptors; "
				 "%u and %u are the most", export->name, export->rank,
				 export->n_bytes, export->n_fds, CEI_EXPORT_BYTES_MAX,
				 CEI_EXPORT_FDS_MAX);
	return 0;
}

int cei_bootstrap_export(struct cei_bootstrap *bootstrap, const struct cei_export *export,
			 uint64_t *ret_id)
{
	struct cei_report *report = bootstrap->site->report;
	struct cei_export_entry *entry;
	int error;
	int r;

	r = check_export(bootstrap, export);
	if (r)
		return r;
	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0,
				 "export '%s' of rank %u: no memory", export->name,
				 export->rank);
	error = copy_export(export, &entry->export);
	if (error) {
		discard_entry(entry);
		return cei_raise(report, CEOV_ERR_SYSTEM, error,
				 "export '%s' of rank %u: its descriptor cannot be "
				 "duplicated: %s", export->name, export->rank,
				 strerror(error));
	}
	r = add_entry(bootstrap, entry, ret_id);
	if (!r)
		return 0;
	discard_entry(entry);
	if (r == CEOV_FULL)
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0,
				 "export '%s' of rank %u: this process exports %u things "
				 "already, which is the most; release some", export->name,
				 export->rank, CEI_EXPORTS_MAX);
	return cei_raise(report, r, 0,
			 "export '%s': rank %u exports something under that name already",
			 export->name, export->rank);
}

int cei_bootstrap_withdraw(struct cei_bootstrap *bootstrap, uint64_t id)
{
	struct cei_export_entry *entry;
	int r = 0;
	uint32_t i;

	pthread_mutex_lock(&bootstrap->lock);
	if (!id || id > bootstrap->n_ids)
		r = CEOV_ERR_INVALID;
	for (i = 0; !r && i < bootstrap->n_exports; i++) {
		entry = bootstrap->exports[i];
		if (entry->id != id)
			continue;
		entry->is_withdrawn = 1;
		if (entry->n_users)
			r = CEOV_PENDING;
		else
			cei_export_entry_free(bootstrap, i);
		break;
	}
	pthread_mutex_unlock(&bootstrap->lock);
	if (r < 0)
		return cei_raise(bootstrap->site->report, r, 0,
				 "withdraw: there never was an export %llu",
				 (unsigned long long)id);
	return r;
}

/* --- find and drop ------------------------------------------------------- */

static struct cei_link *check_find(struct cei_bootstrap *bootstrap, uint32_t rank,
				   const char *name)
{
	struct cei_link *link = cei_link_of(bootstrap, rank);

	if (!is_name(name))
		cei_raise(bootstrap->site->report, CEOV_ERR_INVALID, 0,
			  "find at rank %u: a name has 1 to %u bytes", rank,
			  CEI_NAME_BYTES - 1);
	else if (!link)
		cei_raise(bootstrap->site->report, CEOV_ERR_INVALID, 0,
			  "find '%s': rank %u is no rank of another process of this "
			  "group of %u", name, rank, bootstrap->site->n_ranks);
	else
		return link;
	return NULL;
}

/* Sends the request and waits for its reply, which is then in request->answer. CEOV_NONE: the
 * deadline has passed. CEOV_ERR_PEER_LOST: the link ended. The caller holds the lock. */
static int send_request(struct cei_bootstrap *bootstrap, struct cei_link *link,
			struct cei_request *request, uint64_t deadline_ns)
{
	int is_late = 0;

	while (link->request && link->state == CEI_LINK_UP && !is_late)
		is_late = cei_bootstrap_wait(bootstrap, deadline_ns) != 0;
	if (link->state != CEI_LINK_UP)
		return CEOV_ERR_PEER_LOST;
	if (link->request)
		return CEOV_NONE;
	request->state = CEI_REQUEST_OWED;
	request->find.number = ++link->n_finds;
	link->request = request;
	cei_bootstrap_send_owed(bootstrap, link);
	is_late = 0;
	while (request->state != CEI_REQUEST_ANSWERED && link->state == CEI_LINK_UP && !is_late)
		is_late = cei_bootstrap_wait(bootstrap, deadline_ns) != 0;
	link->request = NULL;
	pthread_cond_broadcast(&bootstrap->changed);    /* another thread may wait to send a
							 * request */
	if (request->state == CEI_REQUEST_ANSWERED)
		return 0;
	return link->state == CEI_LINK_UP ? CEOV_NONE : CEOV_ERR_PEER_LOST;
}

/* Returns the export that the answer brings, or raises an error. Takes ownership of the answer's
 * descriptors. */
static int take_answer(struct cei_bootstrap *bootstrap, struct cei_received *answer,
		       const struct cei_wire_find *find, struct cei_export *ret_export)
{
	const struct cei_wire_reply *reply = &answer->message.reply;
	struct ceov_failure failure = cei_failure(CEOV_ERR_SYSTEM, EMFILE);

	failure.rank = find->rank;
	if (reply->result < 0) {
		failure.error = reply->result;
		failure.native_code = reply->native_code;
		cei_received_close_fds(answer);
		return cei_raise_failure(bootstrap->site->report, &failure,
					 "find '%s': rank %u could not send it: %s",
					 find->name, find->rank,
					 strerror(reply->native_code));
	}
	if (reply->result || answer->n_fds == reply->export.n_fds) {
		if (!reply->result) {
			*ret_export = reply->export;
			memcpy(ret_export->fds, answer->fds,
			       answer->n_fds * sizeof(answer->fds[0]));
		}
		return reply->result;
	}
	cei_received_close_fds(answer);
	cei_bootstrap_drop(bootstrap, find->rank, reply->id);
	return cei_raise_failure(bootstrap->site->report, &failure,
				 "find '%s' at rank %u: its descriptors did not arrive; "
				 "has this process any free? (ulimit -n)", find->name,
				 find->rank);
}

static int raise_silence(struct cei_bootstrap *bootstrap, const struct cei_lookup *lookup,
			 uint64_t waited_ns)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_TIMEOUT, 0);

	failure.rank = lookup->rank;
	return cei_raise_failure(bootstrap->site->report, &failure,
				 "find '%s': rank %u did not answer within %llu ms; is its "
				 "process stopped?", lookup->name, lookup->rank,
				 (unsigned long long)(waited_ns / NS_PER_MS));
}

int cei_bootstrap_find(struct cei_bootstrap *bootstrap, const struct cei_lookup *lookup,
		       struct cei_export *ret_export, uint64_t *ret_id)
{
	uint32_t rank = lookup->rank;
	struct cei_link *link = check_find(bootstrap, rank, lookup->name);
	struct cei_request request = { .find.rank = rank };
	uint64_t begun_ns = cei_now_ns();
	enum cei_link_state state;
	int r;

	if (!link)
		return CEOV_ERR_INVALID;
	memcpy(request.find.name, lookup->name, strlen(lookup->name));
	request.use = malloc(sizeof(*request.use));
	if (!request.use)
		return cei_raise(bootstrap->site->report, CEOV_ERR_NO_MEMORY, 0,
				 "find '%s' at rank %u: no memory", lookup->name, rank);
	pthread_mutex_lock(&bootstrap->lock);
	r = send_request(bootstrap, link, &request, lookup->deadline_ns);
	state = link->state;
	pthread_mutex_unlock(&bootstrap->lock);
	free(request.use); /* NULL if the link took it */
	if (r < 0)
		return cei_bootstrap_raise_gone(bootstrap, rank, state, "find");
	if (r)
		return raise_silence(bootstrap, lookup, cei_now_ns() - begun_ns);
	r = take_answer(bootstrap, &request.answer, &request.find, ret_export);
	if (!r)
		*ret_id = request.answer.message.reply.id;
	return r;
}

void cei_bootstrap_drop(struct cei_bootstrap *bootstrap, uint32_t rank, uint64_t id)
{
	struct cei_link *link = cei_link_of(bootstrap, rank);
	struct cei_list *node;

	if (!link)
		return;
	pthread_mutex_lock(&bootstrap->lock);
	for (node = link->uses.next; node != &link->uses; node = node->next) {
		if (CEI_OWNER(node, struct cei_use, link)->id != id)
			continue;
		cei_list_remove(node);
		cei_list_append(&link->drops_owed, node);
		cei_bootstrap_send_owed(bootstrap, link);
		break;
	}
	pthread_mutex_unlock(&bootstrap->lock);
}
