/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Aborts of signals, told to other nodes: of a found one to its owner, of an own one to all that
 * have found it. Signals that are aborted together arrive together, because all abort words are
 * raised before the first counter is poisoned. Within a node the words are in shared memory.
 */

#include "ipc/group/group_private.h"

/* The highest generation of which a use of the export has heard; 0: it is not used. */
static uint32_t generation_used(const struct cei_group *group, uint32_t process, uint32_t id)
{
	struct cei_group_use *use = NULL;
	uint32_t generation = 0;

	while ((use = cei_group_use_of(group, process, id, use)) != NULL)
		if (use->state == CEI_USE_HELD && use->generation > generation)
			generation = use->generation;
	return generation;
}

static int is_own(const struct cei_group *group, const struct cei_group_signal *signal)
{
	return group->roster->process_of[signal->rank] == group->roster->own;
}

/* 0: it is not known here. */
static uint32_t generation_of(const struct cei_group *group,
			      const struct cei_group_signal *signal)
{
	const struct cei_group_entry *entry;

	if (is_own(group, signal)) {
		entry = cei_group_entry(group, signal->id);
		return entry ? entry->generation : 0;
	}
	return generation_used(group, group->roster->process_of[signal->rank], signal->id);
}

/* Whether the process owns the signal, or has found it here. */
static int concerns(const struct cei_group *group, const struct cei_group_peer *peer,
		    const struct cei_group_signal *signal)
{
	if (!is_own(group, signal))
		return group->roster->process_of[signal->rank] == peer->process;
	return cei_group_is_used_by(cei_group_entry(group, signal->id), peer->process);
}

static void fill(const struct cei_group *group, const struct cei_group_peer *peer,
		 const struct cei_group_abort *all, struct cei_group_abort *abort)
{
	struct cei_group_signal signal;
	uint32_t i;

	abort->error = all->error;
	abort->blame = all->blame;
	abort->n = 0;
	for (i = 0; i < all->n; i++) {
		signal = all->signals[i];
		signal.generation = generation_of(group, &signal);
		if (signal.generation && concerns(group, peer, &signal))
			abort->signals[abort->n++] = signal;
	}
}

static int abort_at(struct cei_group *group, struct cei_group_peer *peer,
		    const struct cei_group_abort *all)
{
	struct cei_abort_note *note = cei_pool_take(&group->pools[CEI_ABORTS]);

	if (!note)
		return CEOV_ERR_NO_MEMORY;
	fill(group, peer, all, &note->abort);
	if (!note->abort.n) {
		cei_pool_put(&group->pools[CEI_ABORTS], note);
		return 0;
	}
	cei_list_init(&note->link);
	cei_list_append(&peer->aborts, &note->link);
	peer->n_aborts++;
	cei_owe(group, &note->owed, CEI_OWED_ABORT, peer->process, 0);
	if (peer->n_aborts > CEI_GROUP_ABORTS_MAX)
		cei_group_part(group, peer->process, "it does not read what was aborted");
	return 0;
}

int cei_group_abort(struct cei_group *group, const struct cei_group_abort *abort)
{
	struct cei_group_peer *peer;
	struct cei_list *node;
	int r = 0;

	for (node = group->known.next; !r && node != &group->known; node = node->next) {
		peer = CEI_OWNER(node, struct cei_group_peer, known);
		if (!cei_group_is_far(group, peer->process) || group->is_expelled ||
		    group->life[peer->process] != CEI_GROUP_UP)
			continue;
		r = cei_pool_reserve(&group->pools[CEI_ABORTS]);
		if (!r)
			r = abort_at(group, peer, abort);
	}
	return r;
}

uint32_t cei_group_still_aborted(const struct cei_group *group,
				 const struct cei_group_abort *abort,
				 struct cei_group_signal *ret_signals)
{
	uint32_t i, n = 0;

	for (i = 0; i < abort->n; i++)
		if (abort->signals[i].generation == generation_of(group, &abort->signals[i]))
			ret_signals[n++] = abort->signals[i];
	return n;
}

int cei_group_hear_abort(struct cei_group *group, struct cei_group_peer *peer,
			 const struct cei_group_abort *abort)
{
	struct cei_abort_note *note = NULL;
	uint32_t i;

	for (i = 0; i < abort->n; i++)
		if (abort->signals[i].rank >= group->roster->n_ranks)
			return CEOV_ERR_INVALID;
	if (peer->n_aborts_heard < CEI_GROUP_ABORTS_MAX)
		note = cei_pool_take(&group->pools[CEI_ABORTS]);
	if (!note)
		return CEOV_FULL;
	peer->n_aborts_heard++;
	note->abort = *abort;
	note->owed.process = peer->process;
	cei_list_init(&note->link);
	cei_list_append(&group->aborted, &note->link);
	return 0;
}

int cei_aborts_next(struct cei_group *group, struct cei_group_action *action)
{
	struct cei_list *node = cei_list_take(&group->aborted);
	struct cei_abort_note *note = CEI_OWNER(node, struct cei_abort_note, link);

	if (!node)
		return CEOV_NONE;
	action->what = CEI_GROUP_ABORTED;
	action->message.abort = note->abort;
	group->peers[note->owed.process]->n_aborts_heard--;
	cei_pool_put(&group->pools[CEI_ABORTS], node);
	return 0;
}

void cei_aborts_fill(const struct cei_owed *owed, struct cei_group_message *message)
{
	message->abort = CEI_OWNER(owed, struct cei_abort_note, owed)->abort;
}

void cei_aborts_paid(struct cei_group *group, struct cei_owed *owed)
{
	struct cei_abort_note *note = CEI_OWNER(owed, struct cei_abort_note, owed);

	group->peers[owed->process]->n_aborts--;
	cei_list_remove(&note->link);
	cei_pool_put(&group->pools[CEI_ABORTS], note);
}

void cei_aborts_end(struct cei_group *group, struct cei_group_peer *peer)
{
	struct cei_abort_note *note;

	while (!cei_list_is_empty(&peer->aborts)) {
		note = CEI_OWNER(peer->aborts.next, struct cei_abort_note, link);
		cei_owed_forget(group, &note->owed);
		note->owed.process = peer->process;
		cei_aborts_paid(group, &note->owed);
	}
}
