/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Numbers, keeps, repeats and sorts notes. */

#include "net/note_stream.h"

#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

static struct cei_note_item *copy_of(uint64_t number, const void *bytes, uint32_t n_bytes)
{
	struct cei_note_item *item = malloc(sizeof(*item) + n_bytes);

	if (!item)
		return NULL;
	cei_list_init(&item->link);
	item->number = number;
	item->n_bytes = n_bytes;
	memcpy(item->bytes, bytes, n_bytes);
	return item;
}

/* --- sender ------------------------------------------------------------------------------ */

void cei_note_out_init(struct cei_note_out *out, int is_kept)
{
	memset(out, 0, sizeof(*out));
	out->is_kept = is_kept;
	cei_list_init(&out->notes);
	out->said = &out->notes;
}

void cei_note_out_fini(struct cei_note_out *out)
{
	struct cei_list *node;

	while ((node = cei_list_take(&out->notes)))
		free(CEI_OWNER(node, struct cei_note_item, link));
	out->said = &out->notes;
	out->n_said = out->acked = out->last;
}

uint64_t cei_note_out_number(const struct cei_note_out *out)
{
	return out->is_kept ? out->last + 1 : 0;
}

int cei_note_out_add(struct cei_note_out *out, const void *bytes, uint32_t n_bytes)
{
	struct cei_note_item *item = copy_of(out->last + 1, bytes, n_bytes);

	if (!item)
		return CEOV_ERR_NO_MEMORY;
	out->last++;
	cei_list_append(&out->notes, &item->link);
	return 0;
}

struct cei_note_item *cei_note_out_next(const struct cei_note_out *out)
{
	if (out->said->next == &out->notes)
		return NULL;
	if (out->is_kept && out->n_said - out->acked >= CEI_NOTE_WINDOW)
		return NULL;
	return CEI_OWNER(out->said->next, struct cei_note_item, link);
}

void cei_note_out_said(struct cei_note_out *out)
{
	struct cei_note_item *item = CEI_OWNER(out->said->next, struct cei_note_item, link);

	out->n_said = item->number;
	if (out->n_said_ever < out->n_said)
		out->n_said_ever = out->n_said;
	if (out->is_kept) {
		out->said = &item->link;
		return;
	}
	cei_list_remove(&item->link);
	free(item);
}

int cei_note_out_acked(struct cei_note_out *out, uint64_t number)
{
	struct cei_note_item *item;

	if (number > (out->is_kept ? out->n_said_ever : 0))
		return CEOV_ERR_INVALID;
	while (out->acked < number) {
		item = CEI_OWNER(out->notes.next, struct cei_note_item, link);
		if (out->said == &item->link)
			out->said = &out->notes;
		cei_list_remove(&item->link);
		free(item);
		out->acked++;
	}
	if (out->n_said < out->acked)
		out->n_said = out->acked;
	return 0;
}

void cei_note_out_repeat(struct cei_note_out *out)
{
	out->said = &out->notes;
	out->n_said = out->acked;
}

/* --- receiver ---------------------------------------------------------------------------- */

void cei_note_in_fini(struct cei_note_in *in)
{
	uint32_t i;

	for (i = 0; in->early && i < CEI_NOTE_WINDOW; i++)
		free(in->early[i]);
	free(in->early);
	in->early = NULL;
}

/* Where a note waits for its turn; NULL: no memory. */
static struct cei_note_item **place_of(struct cei_note_in *in, uint64_t number)
{
	if (!in->early)
		in->early = calloc(CEI_NOTE_WINDOW, sizeof(*in->early));
	return in->early ? &in->early[number % CEI_NOTE_WINDOW] : NULL;
}

int cei_note_in_take(struct cei_note_in *in, uint64_t number, const void *bytes, uint32_t n_bytes)
{
	struct cei_note_item **place;

	if (!number || number > in->done + CEI_NOTE_WINDOW)
		return CEOV_ERR_INVALID;
	if (number == in->done + 1 && !in->is_handling) {
		in->is_handling = 1;
		return 0;
	}
	place = place_of(in, number);
	if (!place)
		return CEOV_ERR_NO_MEMORY;
	if (number <= in->done + 1 || *place) { /* the next one is being handled */
		in->owes_ack = 1;
		return CEOV_NONE;
	}
	*place = copy_of(number, bytes, n_bytes);
	return *place ? CEOV_PENDING : CEOV_ERR_NO_MEMORY;
}

struct cei_note_item *cei_note_in_next(struct cei_note_in *in)
{
	struct cei_note_item **place, *item;

	if (in->is_handling || !in->early)
		return NULL;
	place = &in->early[(in->done + 1) % CEI_NOTE_WINDOW];
	item = *place;
	*place = NULL;
	in->is_handling = item != NULL;
	return item;
}

void cei_note_in_handled(struct cei_note_in *in)
{
	in->is_handling = 0;
	in->done++;
}

int cei_note_in_must_tell(const struct cei_note_in *in)
{
	return in->owes_ack || in->done - in->told >= CEI_NOTE_ACK_AFTER;
}

void cei_note_in_told(struct cei_note_in *in)
{
	in->told = in->done;
	in->owes_ack = 0;
}
