/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What other layers tell a rail without waiting for its thread. */

#include <stdio.h>
#include <stdlib.h>

#include "net/rail_private.h"

static int may_say(const struct cei_rail *rail, uint32_t process,
		   const struct cei_far_message *message)
{
	if (process >= rail->nic.config.n_processes || process == rail->nic.config.process)
		return 0;
	if (message->type == CEI_FAR_NOTE)
		return message->note.n_bytes && message->note.n_bytes <= CEI_FAR_NOTE_MAX;
	return message->type == CEI_FAR_CLOCK || message->type == CEI_FAR_REFUSE;
}

int cei_rail_say(struct cei_rail *rail, uint32_t process, const struct cei_far_message *message)
{
	struct cei_far_note_item *item;

	if (!may_say(rail, process, message))
		return cei_raise(rail->nic.config.report, CEOV_ERR_INVALID, 0,
				 "net: a message of type %s to process %u cannot be said",
				 cei_message_name(&cei_far_protocol, message->type), process);
	item = cei_far_note_copy(message);
	if (!item)
		return cei_raise(rail->nic.config.report, CEOV_ERR_NO_MEMORY, 0,
				 "net: no memory for a message to process %u", process);
	item->process = process;
	item->n_queued = &rail->n_notes[process];
	/* relaxed: a number that is compared with a bound */
	if (atomic_fetch_add_explicit(item->n_queued, 1, memory_order_relaxed) <
	    CEI_RAIL_NOTES_MAX && !cei_ring_put(&rail->notes, item)) {
		cei_bell_ring(&rail->bell);
		return 0;
	}
	atomic_fetch_sub_explicit(item->n_queued, 1, memory_order_relaxed);
	free(item);
	return CEOV_FULL;
}

int cei_rail_refuse(struct cei_rail *rail, uint32_t process, const char *why)
{
	struct cei_far_message message = { .type = CEI_FAR_REFUSE };

	snprintf(message.refuse.text, sizeof(message.refuse.text), "%s", why);
	return cei_rail_say(rail, process, &message);
}
