/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Exports of this process to other nodes, and finding theirs. */

#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "net/network_private.h"

/* --- exporting ------------------------------------------------------------------------ */

struct cei_network_entry *cei_network_entry(struct cei_network *network, uint32_t region)
{
	struct cei_network_entry *entry;
	struct cei_list *node;

	for (node = network->entries.next; node != &network->entries; node = node->next) {
		entry = CEI_OWNER(node, struct cei_network_entry, link);
		if (entry->region == region)
			return entry;
	}
	return NULL;
}

static struct cei_network_entry *entry_named(struct cei_network *network, uint32_t rank,
					     const char *name)
{
	struct cei_network_entry *entry;
	struct cei_list *node;

	for (node = network->entries.next; node != &network->entries; node = node->next) {
		entry = CEI_OWNER(node, struct cei_network_entry, link);
		if (!entry->is_withdrawn && entry->export.rank == rank &&
		    !strcmp(entry->export.name, name))
			return entry;
	}
	return NULL;
}

/* Enters the export under a number of its own. CEOV_ERR_STATE: the name is taken;
 * CEOV_ERR_NO_MEMORY: all numbers were used. */
static int enter(struct cei_network *network, struct cei_network_entry *entry)
{
	int r = 0;

	pthread_mutex_lock(&network->lock);
	if (entry_named(network, entry->export.rank, entry->export.name))
		r = CEOV_ERR_STATE;
	else if (network->last_region == CEI_NETWORK_REGION_MAX)
		r = CEOV_ERR_NO_MEMORY;
	if (!r) {
		entry->region = ++network->last_region;
		entry->is_withdrawn = 1;        /* until the rail knows it */
		cei_list_append(&network->entries, &entry->link);
	}
	pthread_mutex_unlock(&network->lock);
	return r;
}

static void leave(struct cei_network *network, struct cei_network_entry *entry)
{
	uint32_t i;

	pthread_mutex_lock(&network->lock);
	for (i = 0; i < entry->n_uses; i++)
		cei_rail_use(network->rail, entry->uses[i].process, -1);
	cei_list_remove(&entry->link);
	network->n_listeners -= entry->n_listeners;
	pthread_mutex_unlock(&network->lock);
	free(entry->uses);
	free(entry->listeners);
	free(entry);
}

int cei_network_export(struct cei_network *network, const struct cei_network_export *export,
		       uint32_t *ret_region)
{
	struct cei_network_entry *entry = calloc(1, sizeof(*entry));
	int r;

	if (!entry)
		return cei_raise(network->site->report, CEOV_ERR_NO_MEMORY, 0,
				 "share: no memory for '%s' of rank %u", export->name,
				 export->rank);
	entry->export = *export;
	r = enter(network, entry);
	if (r) {
		free(entry);
		return cei_raise(network->site->report, r, 0, "share: rank %u %s '%s'",
				 export->rank, r == CEOV_ERR_STATE ? "exports already" :
				 "has used up all numbers for exports, at", export->name);
	}
	r = cei_network_region_open(network, entry->region, &entry->export.region);
	if (r) {
		leave(network, entry);
		return r;
	}
	pthread_mutex_lock(&network->lock);
	entry->is_withdrawn = 0;
	*ret_region = entry->region;
	pthread_mutex_unlock(&network->lock);
	return 0;
}

/* Ends an export that nobody uses, or, with is_forced, whoever does. */
static int withdraw(struct cei_network *network, uint32_t region, int is_forced)
{
	struct cei_network_entry *entry;
	int r = 0;

	pthread_mutex_lock(&network->lock);
	entry = cei_network_entry(network, region);
	if (entry) {
		entry->is_withdrawn = 1;
		r = entry->n_uses && !is_forced ? CEOV_PENDING : 0;
	}
	pthread_mutex_unlock(&network->lock);
	if (!entry || r)
		return r;
	r = cei_network_region_close(network, region);
	if (!r || is_forced)
		leave(network, entry);
	return r;
}

int cei_network_withdraw(struct cei_network *network, uint32_t region)
{
	return withdraw(network, region, 0);
}

int cei_network_revoke(struct cei_network *network, uint32_t region)
{
	return withdraw(network, region, 1);
}

/* --- users ---------------------------------------------------------------------------- */

static struct cei_network_use *use_of(struct cei_network_entry *entry, uint32_t process)
{
	uint32_t i;

	for (i = 0; i < entry->n_uses; i++)
		if (entry->uses[i].process == process)
			return &entry->uses[i];
	return NULL;
}

/* Counts one use of the process. CEOV_ERR_NO_MEMORY, not raised. */
static int use(struct cei_network *network, struct cei_network_entry *entry, uint32_t process)
{
	struct cei_network_use *known = use_of(entry, process), *more;

	if (known) {
		known->n++;
		return 0;
	}
	more = realloc(entry->uses, (entry->n_uses + 1) * sizeof(*more));
	if (!more)
		return CEOV_ERR_NO_MEMORY;
	entry->uses = more;
	more[entry->n_uses++] = (struct cei_network_use){ process, 1 };
	cei_rail_use(network->rail, process, 1);
	return 0;
}

static void forget_listeners(struct cei_network *network, struct cei_network_entry *entry,
			     uint32_t process)
{
	uint32_t i;

	for (i = entry->n_listeners; i-- > 0;) {
		if (entry->listeners[i].process != process)
			continue;
		entry->listeners[i] = entry->listeners[--entry->n_listeners];
		network->n_listeners--;
	}
}

/* Ends the process's uses and listeners. */
static void forget_user(struct cei_network *network, struct cei_network_entry *entry,
			uint32_t process)
{
	struct cei_network_use *known = use_of(entry, process);

	forget_listeners(network, entry, process);
	if (!known)
		return;
	*known = entry->uses[--entry->n_uses];
	cei_rail_use(network->rail, process, -1);
}

void cei_network_forget_process(struct cei_network *network, uint32_t process)
{
	struct cei_list *node;

	for (node = network->entries.next; node != &network->entries; node = node->next)
		forget_user(network, CEI_OWNER(node, struct cei_network_entry, link), process);
}

void cei_network_heard_drop(struct cei_network *network, uint32_t process, uint32_t region)
{
	struct cei_network_entry *entry = cei_network_entry(network, region);
	struct cei_network_use *known = entry ? use_of(entry, process) : NULL;

	if (known && !--known->n)
		forget_user(network, entry, process);
}

/* --- finding --------------------------------------------------------------------------- */

static void fill_found(const struct cei_network_entry *entry, struct cei_network_found *ret_found)
{
	ret_found->region = entry->region;
	ret_found->generation = entry->generation;
	ret_found->kind = entry->export.region.kind;
	ret_found->size_bytes = entry->export.region.size_bytes;
	ret_found->n_details = entry->export.n_details;
	memcpy(ret_found->details, entry->export.details, sizeof(ret_found->details));
}

void cei_network_heard_find(struct cei_network *network, uint32_t process,
			    const struct cei_note_find *find)
{
	struct cei_network_entry *entry = entry_named(network, find->rank, find->name);
	struct cei_note reply = { .type = CEI_NOTE_REPLY };

	reply.reply.number = find->number;
	reply.reply.result = entry && !use(network, entry, process) ? 0 : CEOV_NONE;
	if (!reply.reply.result)
		fill_found(entry, &reply.reply.found);
	cei_network_note(network, process, &reply);
}

static int raise_find(struct cei_network *network, int error, uint32_t rank, const char *name,
		      int has_departed)
{
	struct ceov_failure failure = cei_failure(error, 0);
	const char *what = "has not answered in time";

	if (error == CEOV_ERR_PEER_LOST)
		what = has_departed ? "has closed its context" :
			"is lost: the log says why";
	failure.rank = rank;
	return cei_raise_failure(network->site->report, &failure, "find '%s': rank %u %s", name,
				 rank, what);
}

int cei_network_find(struct cei_network *network, uint32_t rank, const char *name,
		     uint64_t deadline_ns, struct cei_network_found *ret_found)
{
	struct cei_network_request request = { .n_awaited = 1 };
	struct cei_note note = { .type = CEI_NOTE_FIND };
	int r, has_departed;

	request.process = cei_network_process(network, rank);
	note.find.rank = rank;
	memcpy(note.find.name, name, strnlen(name, CEI_NETWORK_NAME_BYTES - 1));
	pthread_mutex_lock(&network->lock);
	cei_network_enter(network, &request);
	request.is_lost = network->has_gone[request.process];
	note.find.number = request.number;
	cei_rail_expect(network->rail, request.process, 1);
	cei_network_note(network, request.process, &note);
	r = cei_network_await(network, &request, deadline_ns);
	cei_rail_expect(network->rail, request.process, -1);
	has_departed = network->has_departed[request.process];
	pthread_mutex_unlock(&network->lock);
	if (r)
		return raise_find(network, r == CEOV_NONE ? CEOV_ERR_TIMEOUT : r, rank, name,
				  has_departed);
	if (!request.result)
		*ret_found = request.found;
	return request.result;
}

void cei_network_drop(struct cei_network *network, uint32_t rank, uint32_t region)
{
	struct cei_note note = { .type = CEI_NOTE_DROP };

	note.drop = region;
	pthread_mutex_lock(&network->lock);
	cei_network_note(network, cei_network_process(network, rank), &note);
	pthread_mutex_unlock(&network->lock);
}
