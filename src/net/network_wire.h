/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_NETWORK_WIRE_H
#define CEI_NETWORK_WIRE_H

/* What networks of two processes tell each other, in notes of their rails, by the tables of
 * base/codec.h. */

#include <stddef.h>
#include <stdint.h>

#include "net/far_wire.h"
#include "net/network_types.h"

enum cei_note_type {
	CEI_NOTE_FIND = 1,      /* do you export this? */
	CEI_NOTE_REPLY,         /* the export, or why not */
	CEI_NOTE_DROP,          /* one use of your export has ended */
	CEI_NOTE_RAISE,         /* raise this counter of yours */
	CEI_NOTE_ASK,           /* tell me when this counter of yours has reached a value */
	CEI_NOTE_VALUE,         /* my counter has reached this value */
	CEI_NOTE_ABORT,         /* these signals are aborted, all words before the first poison */
	CEI_NOTE_RENEW,         /* I have renewed my signal: zero your image */
	CEI_NOTE_RENEWED,       /* the image is zero */
	CEI_NOTE_BARRIER,       /* I have come so far in this barrier */
	CEI_NOTE_GONE,          /* the process of this rank is lost, or has closed */
};

struct cei_note_find {
	uint64_t number;                        /* repeated in the reply; not 0 */
	uint32_t rank;
	char     name[CEI_NETWORK_NAME_BYTES];
};

struct cei_note_reply {
	uint64_t                 number;
	int32_t                  result;        /* 0 or CEOV_NONE */
	struct cei_network_found found;         /* with result 0 only */
};

struct cei_note_counter {                       /* RAISE, ASK and VALUE */
	uint32_t region;                        /* at the signal's owner, as in all notes */
	uint32_t index;
	uint64_t value;
	uint32_t generation;                    /* of the signal: see struct cei_note_signal */
};

/* A signal that was renewed begins a new generation. What is said of an older generation comes too
 * late and is ignored. */
struct cei_note_signal {
	struct cei_network_signal named;
	uint32_t                  generation;
};

struct cei_note_abort {
	int32_t                   error;        /* enum ceov_error */
	uint32_t                  blame;        /* rank, or CEOV_NOBODY */
	uint32_t                  n;            /* 1 to CEI_NETWORK_ABORTS_MAX */
	struct cei_note_signal    signals[CEI_NETWORK_ABORTS_MAX];
};

struct cei_note_renew {                         /* RENEW and RENEWED */
	uint64_t               number;          /* of the renewal; not 0 */
	struct cei_note_signal signal;          /* the new generation */
};

struct cei_note_barrier {
	uint64_t call;                          /* 1 and above */
	uint32_t round;                         /* below CEI_NOTE_ROUNDS */
};

#define CEI_NOTE_ROUNDS 32u

struct cei_note_gone {
	uint32_t rank;
	uint32_t has_departed;                  /* 1: it has closed in order */
	uint64_t n_barriers;                    /* then: no more barriers than this complete; else
						 * 0 */
};

struct cei_note {
	uint32_t type;                          /* enum cei_note_type */
	union {
		struct cei_note_find    find;
		struct cei_note_reply   reply;
		uint32_t                drop;   /* a region */
		struct cei_note_counter counter;
		struct cei_note_abort   abort;
		struct cei_note_renew   renew;
		struct cei_note_barrier barrier;
		struct cei_note_gone    gone;
	};
};

extern const struct cei_protocol cei_note_protocol;

/* Encodes a note into bytes, which has room for CEI_FAR_NOTE_MAX: every note fits. Returns the
 * number of bytes written. */
uint32_t cei_note_encode(const struct cei_note *note, uint8_t *bytes);

/* Decodes a note. CEOV_ERR_INVALID, not raised: the bytes are no valid note. */
int cei_note_decode(const void *bytes, size_t n_bytes, struct cei_note *ret_note);

#endif /* CEI_NETWORK_WIRE_H */
