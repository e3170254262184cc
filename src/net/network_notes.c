/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Says notes to other processes. What finds no room in the rail waits, and the network's thread
 * says it later. */

#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "net/network_private.h"

struct item {                           /* a note that waits */
	struct cei_list link;
	uint32_t        n_bytes;
	uint8_t         bytes[];
};

/* --- opening -------------------------------------------------------------------------------- */

int cei_network_notes_open(struct cei_network *network)
{
	uint32_t n = cei_book_n_processes(network->book), i;

	network->waiting = calloc(n, sizeof(*network->waiting));
	if (!network->waiting)
		return CEOV_ERR_NO_MEMORY;
	for (i = 0; i < n; i++)
		cei_list_init(&network->waiting[i]);
	return 0;
}

void cei_network_notes_close(struct cei_network *network)
{
	uint32_t i;

	for (i = 0; network->waiting && i < cei_book_n_processes(network->book); i++)
		cei_network_notes_forget(network, i);
	free(network->waiting);
}

/* --- saying --------------------------------------------------------------------------------- */

/* 0, CEOV_FULL, or CEOV_ERR_NO_MEMORY. Where the process is lost, the rail tells so by itself. */
static int say(struct cei_network *network, uint32_t process, const uint8_t *bytes,
	       uint32_t n_bytes)
{
	struct cei_far_message message = { .type = CEI_FAR_NOTE };

	message.note.bytes = bytes;
	message.note.n_bytes = n_bytes;
	return cei_rail_say(network->rail, process, &message);
}

/* Says what waits for one process. Returns whether anything was said. */
static int say_waiting(struct cei_network *network, uint32_t process)
{
	struct cei_list *waiting = &network->waiting[process];
	struct item *item;
	int r, has_said = 0;

	while (!cei_list_is_empty(waiting)) {
		item = CEI_OWNER(waiting->next, struct item, link);
		r = say(network, process, item->bytes, item->n_bytes);
		if (r < 0)
			cei_network_part(network, process,
					 "there is no memory for what is said to it");
		if (r)
			break;
		cei_list_remove(&item->link);
		free(item);
		network->n_waiting--;
		has_said = 1;
	}
	return has_said;
}

static void keep(struct cei_network *network, uint32_t process, const uint8_t *bytes,
		 uint32_t n_bytes)
{
	struct item *item = network->n_waiting < CEI_NETWORK_WAITING_MAX
		? malloc(sizeof(*item) + n_bytes) : NULL;

	if (!item) {
		cei_network_part(network, process, "there is no memory for what it has not read");
		return;
	}
	item->n_bytes = n_bytes;
	memcpy(item->bytes, bytes, n_bytes);
	cei_list_append(&network->waiting[process], &item->link);
	network->n_waiting++;
	pthread_cond_signal(&network->work);
}

void cei_network_note(struct cei_network *network, uint32_t process, const struct cei_note *note)
{
	uint8_t bytes[CEI_FAR_NOTE_MAX];
	uint32_t n_bytes;

	if (network->has_gone[process])
		return;
	n_bytes = cei_note_encode(note, bytes);
	if (!cei_list_is_empty(&network->waiting[process]) ||
	    say(network, process, bytes, n_bytes))
		keep(network, process, bytes, n_bytes);
}

int cei_network_notes_flush(struct cei_network *network)
{
	uint32_t n = cei_book_n_processes(network->book), i;
	int has_said = 0;

	for (i = 0; network->n_waiting && i < n; i++)
		has_said |= say_waiting(network, i);
	return has_said;
}

void cei_network_notes_forget(struct cei_network *network, uint32_t process)
{
	struct cei_list *node;

	while ((node = cei_list_take(&network->waiting[process]))) {
		free(CEI_OWNER(node, struct item, link));
		network->n_waiting--;
	}
}

/* --- what is watched ------------------------------------------------------------------- */

void cei_network_await_users(struct cei_network *network, int by)
{
	if (network->rail)
		cei_rail_await_users(network->rail, by);
}
