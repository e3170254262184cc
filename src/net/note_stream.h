/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_NOTE_STREAM_H
#define CEI_NOTE_STREAM_H

/*
 * Notes from this process to another one, and those from there to here, so that each is handled
 * once and in order though a rail that carries them may be lost with some of them.
 *
 *   sender     numbers its notes 1, 2, 3, ... and keeps each until the other side has acknowledged
 *              it. When the rail that carried them is lost, all that are kept are said again, over
 *              another rail.
 *   receiver   handles them in the order of their numbers. One that comes early waits; one that was
 *              handled is dropped: it was repeated, or comes late from a lost rail.
 *
 * At most CEI_NOTE_WINDOW notes are said and not acknowledged, which bounds what the receiver
 * keeps. Every note says up to which number its speaker has handled the other side's; who has
 * nothing to say acknowledges from time to time, and whenever a note comes twice, because then an
 * acknowledgement may have been lost. model/far_notes.pml is this in Promela.
 *
 * Where two processes have one rail only, notes need none of this: a lost rail is a lost process.
 * Then a sender is told so (is_kept 0), numbers nothing, and keeps a note until it is said.
 *
 * Plain data: no I/O and no lock; the caller sees to both.
 */

#include <stdint.h>

#include "base/list.h"

#define CEI_NOTE_WINDOW    256u
#define CEI_NOTE_ACK_AFTER 64u          /* so many notes are handled before they are acknowledged
					 * by a message of its own */

struct cei_note_item {
	struct cei_list link;
	uint64_t        number;
	uint32_t        n_bytes;
	uint8_t         bytes[];
};

struct cei_note_out {
	int             is_kept;        /* until it is acknowledged */
	struct cei_list notes;          /* struct cei_note_item, by number */
	struct cei_list *said;          /* the last of them that was said; the list itself: none */
	uint64_t        last;           /* number of the last note */
	uint64_t        n_said;         /* number of the last one that was said since the last
					 * repetition, */
	uint64_t        n_said_ever;    /* and since ever */
	uint64_t        acked;
};

struct cei_note_in {
	uint64_t              done;     /* all up to here were handled */
	uint64_t              told;     /* the last acknowledgement */
	int                   is_handling;
	int                   owes_ack;
	struct cei_note_item **early;   /* by number modulo the window; NULL: none ever was */
};

/* --- sender ----------------------------------------------------------------------------------- */

void cei_note_out_init(struct cei_note_out *out, int is_kept);
void cei_note_out_fini(struct cei_note_out *out);

/* The number for the next note; 0: notes have no numbers. */
uint64_t cei_note_out_number(const struct cei_note_out *out);

/* Appends the next note, whose bytes are copied. CEOV_ERR_NO_MEMORY, not raised. */
int cei_note_out_add(struct cei_note_out *out, const void *bytes, uint32_t n_bytes);

/* The next note to say; NULL: there is none, or the other side has to acknowledge first. */
struct cei_note_item *cei_note_out_next(const struct cei_note_out *out);

/* What cei_note_out_next() returned was said. It is freed if it is not kept. */
void cei_note_out_said(struct cei_note_out *out);

/* The other side has handled all up to that number. CEOV_ERR_INVALID, not raised: so many were
 * never said. */
int cei_note_out_acked(struct cei_note_out *out, uint64_t number);

/* All that is kept is to be said again. */
void cei_note_out_repeat(struct cei_note_out *out);

/* --- receiver --------------------------------------------------------------------------------- */

void cei_note_in_fini(struct cei_note_in *in);

/* A note has come. 0: handle it now, then call cei_note_in_handled(). CEOV_PENDING: it was copied
 * and waits for its turn. CEOV_NONE: it came before. CEOV_ERR_INVALID: no honest sender says such a
 * number now. CEOV_ERR_NO_MEMORY. None of them is raised. */
int cei_note_in_take(struct cei_note_in *in, uint64_t number, const void *bytes, uint32_t n_bytes);

/* The next note whose turn it is, to be handled and freed by the caller, who then calls
 * cei_note_in_handled(); NULL: there is none, or another thread is handling one. */
struct cei_note_item *cei_note_in_next(struct cei_note_in *in);
void cei_note_in_handled(struct cei_note_in *in);

/* Whether an acknowledgement is due that no note carries. */
int cei_note_in_must_tell(const struct cei_note_in *in);

/* Something was said that acknowledges all that was handled. */
void cei_note_in_told(struct cei_note_in *in);

#endif /* CEI_NOTE_STREAM_H */
