/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Says messages of the layer above, and tells it those of the other side in their order. */

#include "net/far_notes.h"

#include <stdlib.h>
#include <string.h>

#include "net/far_peer.h"

/* --- items --------------------------------------------------------------------------------- */

struct cei_far_note_item *cei_far_note_copy(const struct cei_far_message *message)
{
	uint32_t n_bytes = message->type == CEI_FAR_NOTE ? message->note.n_bytes : 0;
	struct cei_far_note_item *item = calloc(1, sizeof(*item) + n_bytes);

	if (!item)
		return NULL;
	cei_list_init(&item->link);
	item->message = *message;
	if (!n_bytes)
		return item;
	memcpy(item->payload, message->note.bytes, n_bytes);
	item->message.note.bytes = item->payload;
	return item;
}

void cei_far_note_drop(struct cei_far_note_item *item)
{
	/* relaxed: a number that is compared with a bound */
	if (item->n_queued)
		atomic_fetch_sub_explicit(item->n_queued, 1, memory_order_relaxed);
	free(item);
}

static struct cei_far_note_item *first_of(const struct cei_list *list)
{
	return CEI_OWNER(list->next, struct cei_far_note_item, link);
}

static void drop_all(struct cei_list *list)
{
	struct cei_list *at;

	while ((at = cei_list_take(list)))
		cei_far_note_drop(CEI_OWNER(at, struct cei_far_note_item, link));
}

void cei_far_notes_init(struct cei_far_notes *notes)
{
	cei_list_init(&notes->waiting);
	cei_list_init(&notes->early);
}

void cei_far_notes_forget(struct cei_far_notes *notes)
{
	drop_all(&notes->waiting);
	drop_all(&notes->early);
}

/* --- saying ---------------------------------------------------------------------------------- */

int cei_far_notes_say(struct cei_far_peer *peer)
{
	struct cei_far_notes *notes = &peer->notes;
	struct cei_far_note_item *item;
	int r;

	while (!cei_list_is_empty(&notes->waiting)) {
		item = first_of(&notes->waiting);
		if (item->message.type == CEI_FAR_NOTE)
			item->message.note.number = notes->n_said + 1;
		r = cei_far_peer_say(peer, &item->message);
		if (r)
			return r;
		notes->n_said += item->message.type == CEI_FAR_NOTE;
		cei_list_remove(&item->link);
		cei_far_note_drop(item);
	}
	return 0;
}

/* --- hearing --------------------------------------------------------------------------------- */

static void tell(struct cei_far_peer *peer, const struct cei_far_message *message)
{
	const struct cei_rail_config *config = &peer->nic->config;

	peer->notes.n_heard++;
	config->events->heard(config->events_arg, peer->process, message);
}

/* Keeps a NOTE that has overtaken others, in the order of numbers: it is mostly the last one. */
static void keep(struct cei_far_peer *peer, const struct cei_far_message *message)
{
	struct cei_list *early = &peer->notes.early, *at = early->previous;
	struct cei_far_note_item *item;
	uint64_t number = message->note.number;

	while (at != early && CEI_OWNER(at, struct cei_far_note_item, link)->message.note.number >
	       number)
		at = at->previous;
	if (at != early && CEI_OWNER(at, struct cei_far_note_item, link)->message.note.number ==
	    number) {
		peer->nic->counts.n_duplicates++;
		return;
	}
	item = cei_far_note_copy(message);
	if (item)
		cei_list_append(at->next, &item->link); /* before that one */
	else
		cei_far_peer_lose(peer, "there is no memory for a note that has overtaken others");
}

/* BYE counts as heard when everything that was said before it has come. */
static void settle_bye(struct cei_far_peer *peer)
{
	if (!peer->notes.has_bye || peer->notes.n_heard != peer->notes.n_before_bye)
		return;
	peer->bye_heard = 1;
	peer->wants_bye = 1;
}

void cei_far_notes_hear(struct cei_far_peer *peer, const struct cei_far_message *message)
{
	struct cei_far_notes *notes = &peer->notes;
	struct cei_far_note_item *item;

	if (message->note.number <= notes->n_heard) {
		peer->nic->counts.n_duplicates++;
		return;
	}
	if (message->note.number - notes->n_heard > CEI_FAR_EARLY_MAX) {
		cei_far_peer_refuse(peer, CEOV_ERR_INVALID, "its notes have no order");
		return;
	}
	if (message->note.number != notes->n_heard + 1) {
		keep(peer, message);
		return;
	}
	tell(peer, message);
	while (!cei_list_is_empty(&notes->early) &&
	       first_of(&notes->early)->message.note.number == notes->n_heard + 1) {
		item = first_of(&notes->early);
		cei_list_remove(&item->link);
		tell(peer, &item->message);
		cei_far_note_drop(item);
	}
	settle_bye(peer);
}

void cei_far_notes_hear_bye(struct cei_far_peer *peer, uint64_t n_before)
{
	if (n_before < peer->notes.n_heard) {
		cei_far_peer_refuse(peer, CEOV_ERR_INVALID, "its farewell does not know its notes");
		return;
	}
	peer->notes.has_bye = 1;
	peer->notes.n_before_bye = n_before;
	settle_bye(peer);
}
