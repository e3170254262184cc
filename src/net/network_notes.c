/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Says notes to other processes. They go over the first rail to each process that is not lost; what
 * finds no room waits, and the network's thread says it later. Where two processes have several
 * rails, notes have numbers, and the loss of a rail costs none of them (net/note_stream.h).
 */

#include <stdlib.h>

#include <ceoverlap/ceoverlap.h>

#include "net/network_private.h"

/* --- opening -------------------------------------------------------------------------------- */

int cei_network_notes_open(struct cei_network *network)
{
	uint32_t n = cei_book_n_processes(network->book), i;

	network->notes = calloc(n, sizeof(*network->notes));
	if (!network->notes)
		return CEOV_ERR_NO_MEMORY;
	for (i = 0; i < n; i++)
		cei_note_out_init(&network->notes[i].out, cei_network_n_rails_to(network, i) > 1);
	return 0;
}

void cei_network_notes_close(struct cei_network *network)
{
	uint32_t i;

	for (i = 0; network->notes && i < cei_book_n_processes(network->book); i++)
		cei_network_notes_forget(network, i);
	free(network->notes);
}

/* --- saying --------------------------------------------------------------------------------- */

static uint32_t n_unsaid(const struct cei_note_out *out)
{
	return (uint32_t)(out->last - out->n_said);
}

/* 0, CEOV_FULL, or CEOV_ERR_NO_MEMORY. Where the rail or the process is lost, the rail tells so by
 * itself. */
static int say(struct cei_network *network, uint32_t process, uint8_t *bytes, uint32_t n_bytes)
{
	struct cei_network_notes *notes = &network->notes[process];
	struct cei_far_message message = { .type = CEI_FAR_NOTE };
	int r;

	cei_note_set_heard(bytes, notes->in.done);
	message.note.bytes = bytes;
	message.note.n_bytes = n_bytes;
	r = cei_rail_say(network->rails[notes->rail].rail, process, &message);
	if (!r)
		cei_note_in_told(&notes->in);
	return r;
}

/* Says what waits for one process. Returns whether anything was said. */
static int say_waiting(struct cei_network *network, uint32_t process)
{
	struct cei_note_out *out = &network->notes[process].out;
	struct cei_note_item *item;
	int r = 0, has_said = 0;

	while (!r && (item = cei_note_out_next(out))) {
		r = say(network, process, item->bytes, item->n_bytes);
		if (r)
			break;
		cei_note_out_said(out);
		network->n_waiting--;
		has_said = 1;
	}
	if (r < 0)
		cei_network_part(network, process, "there is no memory for what is said to it");
	if (n_unsaid(out))
		pthread_cond_signal(&network->work);
	return has_said;
}

static void keep(struct cei_network *network, uint32_t process, const uint8_t *bytes,
		 uint32_t n_bytes)
{
	if (network->n_waiting >= CEI_NETWORK_WAITING_MAX ||
	    cei_note_out_add(&network->notes[process].out, bytes, n_bytes)) {
		cei_network_part(network, process, "there is no memory for what it has not read");
		return;
	}
	network->n_waiting++;
	(void)say_waiting(network, process);
}

void cei_network_note(struct cei_network *network, uint32_t process, struct cei_note *note)
{
	struct cei_note_out *out = &network->notes[process].out;
	uint8_t bytes[CEI_FAR_NOTE_MAX];
	uint32_t n_bytes;

	if (network->has_gone[process])
		return;
	note->number = cei_note_out_number(out);
	n_bytes = cei_note_encode(note, bytes);
	if (out->is_kept || n_unsaid(out) || say(network, process, bytes, n_bytes))
		keep(network, process, bytes, n_bytes);
}

/* Acknowledges by a message of its own. Returns whether it was said. */
static int say_heard(struct cei_network *network, uint32_t process)
{
	const struct cei_note note = { .type = CEI_NOTE_HEARD };
	uint8_t bytes[CEI_FAR_NOTE_MAX];
	uint32_t n_bytes = cei_note_encode(&note, bytes);

	return !say(network, process, bytes, n_bytes);
}

int cei_network_notes_flush(struct cei_network *network)
{
	uint32_t n = cei_book_n_processes(network->book), i;
	int has_said = 0, still_owes = 0;

	if (!network->n_waiting && !network->owes_acks)
		return 0;
	for (i = 0; i < n; i++) {
		if (n_unsaid(&network->notes[i].out))
			has_said |= say_waiting(network, i);
		if (!cei_note_in_must_tell(&network->notes[i].in) || network->has_gone[i])
			continue;
		if (say_heard(network, i))
			has_said = 1;
		else
			still_owes = 1;
	}
	network->owes_acks = still_owes;
	return has_said;
}

/* --- what comes ------------------------------------------------------------------------------ */

static void look_at_acks(struct cei_network *network, uint32_t process)
{
	if (network->owes_acks || !cei_note_in_must_tell(&network->notes[process].in))
		return;
	network->owes_acks = 1;
	pthread_cond_signal(&network->work);
}

/* Returns 0 if the numbers of a note that came are those of no honest process. */
static int hear_acked(struct cei_network *network, uint32_t process, uint64_t heard)
{
	struct cei_note_out *out = &network->notes[process].out;
	uint32_t before = n_unsaid(out);

	if (network->has_gone[process])
		return 1;
	if (cei_note_out_acked(out, heard))
		return 0;
	network->n_waiting -= before - n_unsaid(out);
	if (n_unsaid(out))
		(void)say_waiting(network, process);
	return 1;
}

int cei_network_note_came(struct cei_network *network, uint32_t process,
			  const struct cei_note *note, const struct cei_far_note *bytes)
{
	struct cei_network_notes *notes = &network->notes[process];
	int r = CEOV_ERR_INVALID;

	if (hear_acked(network, process, note->heard)) {
		if (note->type == CEI_NOTE_HEARD)
			return CEOV_NONE;
		if (notes->out.is_kept)
			r = cei_note_in_take(&notes->in, note->number, bytes->bytes,
					     bytes->n_bytes);
		else if (!note->number)
			r = 0;
	}
	if (r < 0)
		cei_network_part(network, process, r == CEOV_ERR_NO_MEMORY ?
				 "there is no memory for what it says" :
				 "it has sent a note with numbers that make no sense");
	look_at_acks(network, process);
	return r ? CEOV_NONE : 0;
}

int cei_network_note_next(struct cei_network *network, uint32_t process, struct cei_note *ret_note)
{
	struct cei_network_notes *notes = &network->notes[process];
	struct cei_note_item *item;
	int r;

	if (!notes->out.is_kept)
		return CEOV_NONE;
	cei_note_in_handled(&notes->in);
	look_at_acks(network, process);
	item = cei_note_in_next(&notes->in);
	if (!item)
		return CEOV_NONE;
	r = cei_note_decode(item->bytes, item->n_bytes, ret_note);      /* it was, when it came */
	free(item);
	return r;
}

/* --- losses ---------------------------------------------------------------------------------- */

void cei_network_notes_reroute(struct cei_network *network, uint32_t process)
{
	uint32_t n = cei_network_n_rails_to(network, process), rail = 0;
	struct cei_network_notes *notes = &network->notes[process];
	uint32_t before = n_unsaid(&notes->out);

	while (rail < n && cei_network_has_lost(network, process, rail))
		rail++;
	if (rail == n || rail == notes->rail)
		return;
	notes->rail = rail;
	cei_note_out_repeat(&notes->out);
	network->n_waiting += n_unsaid(&notes->out) - before;
	notes->in.owes_ack = 1;         /* what was said of it may be lost */
	network->owes_acks = 1;
	pthread_cond_signal(&network->work);
}

void cei_network_notes_forget(struct cei_network *network, uint32_t process)
{
	struct cei_network_notes *notes = &network->notes[process];

	network->n_waiting -= n_unsaid(&notes->out);
	cei_note_out_fini(&notes->out);
	cei_note_in_fini(&notes->in);
}

/* --- what is watched, on all rails at once --------------------------------------------- */

void cei_network_expect(struct cei_network *network, uint32_t process, int by)
{
	uint32_t i;

	for (i = 0; i < cei_network_n_rails_to(network, process); i++)
		cei_rail_expect(network->rails[i].rail, process, by);
}

void cei_network_use(struct cei_network *network, uint32_t process, int by)
{
	uint32_t i;

	for (i = 0; i < cei_network_n_rails_to(network, process); i++)
		cei_rail_use(network->rails[i].rail, process, by);
}

void cei_network_await_users(struct cei_network *network, int by)
{
	uint32_t i;

	for (i = 0; i < network->n_rails; i++)
		cei_rail_await_users(network->rails[i].rail, by);
}
