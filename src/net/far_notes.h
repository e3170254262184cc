/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FAR_NOTES_H
#define CEI_FAR_NOTES_H

/*
 * Messages of the layer above on a connection. A transport orders nothing, so NOTEs are numbered,
 * and what overtakes others waits at the receiver. BYE says how many there were, and counts as
 * heard behind them. CLOCKs have no number: their time matters. The rail's thread only, but for
 * cei_far_note_copy().
 */

#include "base/list.h"
#include "net/far_wire.h"

/* NOTEs that wait for one with a lower number. A transport has fewer messages under way. */
#define CEI_FAR_EARLY_MAX 2048u

struct cei_far_peer;

struct cei_far_note_item {
	struct cei_list        link;
	uint32_t               process;
	_Atomic uint32_t      *n_queued;        /* counted down when it is said or dropped; NULL:
						 * nobody counts it */
	struct cei_far_message message;         /* a NOTE's bytes are in payload */
	uint8_t                payload[];
};

struct cei_far_notes {
	struct cei_list waiting;        /* struct cei_far_note_item: not said yet */
	uint64_t        n_said;         /* NOTEs */
	struct cei_list early;          /* struct cei_far_note_item, by their numbers */
	uint64_t        n_heard;        /* told to the layer above */
	int             has_bye;        /* a BYE has come, */
	uint64_t        n_before_bye;   /* behind so many */
};

/* NULL: no memory. */
struct cei_far_note_item *cei_far_note_copy(const struct cei_far_message *message);
void cei_far_note_drop(struct cei_far_note_item *item);

/* Of a zeroed struct. A process connects to another one once. */
void cei_far_notes_init(struct cei_far_notes *notes);

/* The connection has ended: nothing waits. */
void cei_far_notes_forget(struct cei_far_notes *notes);

/* Says what waits: 0, or as cei_far_peer_say(). */
int  cei_far_notes_say(struct cei_far_peer *peer);

/* Tells the layer above what is next. Who numbers its notes in no order is refused. */
void cei_far_notes_hear(struct cei_far_peer *peer, const struct cei_far_message *message);
void cei_far_notes_hear_bye(struct cei_far_peer *peer, uint64_t n_before);

#endif /* CEI_FAR_NOTES_H */
