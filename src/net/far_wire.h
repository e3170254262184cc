/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FAR_WIRE_H
#define CEI_FAR_WIRE_H

/*
 * What rails of two processes tell each other, by the tables of base/codec.h. The head and REFUSE's
 * body are the same in every version, so that a process can tell one of another version why it is
 * refused. A PIECE is the head of an offer (net/transport.h), all others are messages of their own.
 */

#include <stddef.h>
#include <stdint.h>

#include "base/codec.h"
#include "net/transport.h"

#define CEI_FAR_MAGIC       UINT32_C(0x4c494152)        /* "RAIL" */
#define CEI_FAR_VERSION     5u
#define CEI_FAR_HEAD_BYTES  48u
#define CEI_FAR_TEXT_BYTES  200u        /* of a refusal, with the final 0 */
#define CEI_FAR_NAME_BYTES  96u         /* of what HELLO names, with the final 0 */
#define CEI_FAR_NOTE_MAX    1920u       /* bytes of a NOTE's payload */

enum cei_far_type {
	CEI_FAR_HELLO = 1,      /* this is who I am; the connection begins */
	CEI_FAR_REFUSE,         /* I have nothing more to do with you, and why */
	CEI_FAR_PIECE,          /* what the offered bytes are, and where they go */
	CEI_FAR_MARK,           /* raise this counter once the pieces before have landed */
	CEI_FAR_ACK,            /* all pieces landed and all marks were raised up to here */
	CEI_FAR_BEAT,           /* I live, and so far have I come */
	CEI_FAR_NOTE,           /* bytes for the layer above */
	CEI_FAR_BYE,            /* I close in order, and have said so many NOTEs */
	CEI_FAR_CLOCK,          /* what time is it at yours? and the answer */
};

struct cei_far_hello {
	uint64_t instance[2];                   /* struct cei_site.instance of the process */
	char     library[CEI_FAR_NAME_BYTES];   /* its version of ceoverlap */
	char     transport[CEI_FAR_NAME_BYTES]; /* its transport's name and version */
};

struct cei_far_refuse {
	int32_t error;                          /* enum ceov_error */
	char    text[CEI_FAR_TEXT_BYTES];
};

/* Where the bytes of an offer go: rows within a region of the receiver. Bytes of one row follow
 * each other in the offer, and so do rows. */
struct cei_far_piece {
	uint64_t sequence;                      /* 1 and above; see net/far_stream.h */
	uint32_t region;
	uint64_t offset;                        /* of the first row, from the region's begin */
	uint64_t row_bytes;
	uint64_t n_rows;
	uint64_t pitch_bytes;                   /* from one row's begin to the next one's; of one
						 * row: row_bytes */
};

struct cei_far_mark {
	uint64_t sequence;                      /* 1 and above; pieces and marks count together */
	uint64_t after;                         /* it is raised when everything up to this number
						 * has landed; below sequence */
	uint32_t region;
	uint32_t index;                         /* of the 64-bit counter in the region */
	uint64_t value;
};

struct cei_far_beat {
	uint32_t is_question;                   /* 1: the receiver answers with a BEAT; 0 */
	uint32_t n_parked;                      /* pieces that wait at the speaker for room or
						 * for a copy */
	uint64_t n_landed_bytes;                /* of the receiver's pieces, in this connection */
};

struct cei_far_note {
	uint64_t       number;                  /* of the connection's NOTEs, from 1 on */
	uint32_t       n_bytes;                 /* 1 to CEI_FAR_NOTE_MAX */
	const uint8_t *bytes;                   /* decoded: within the bytes that were decoded */
};

enum cei_far_clock_what {
	CEI_FAR_CLOCK_ASK = 1,                  /* what time is it at yours? */
	CEI_FAR_CLOCK_TELL,                     /* the answer */
	CEI_FAR_CLOCK_END,                      /* that was my last question */
};

struct cei_far_clock {
	uint32_t what;                          /* enum cei_far_clock_what */
	uint64_t number;                        /* of the question; not 0 */
	uint64_t heard_ns;                      /* TELL: the speaker's clock when it heard the
						 * question, */
	uint64_t told_ns;                       /* and when it said the answer; else both 0 */
};

struct cei_far_message {
	uint32_t magic;                 /* set by decoding: as received; so are version and */
	uint32_t version;               /* n_bytes */
	uint32_t type;                  /* enum cei_far_type */
	uint32_t n_bytes;               /* of the body */
	uint64_t group;                 /* process 0's instance: keeps groups apart, those of
					 * one job, too */
	uint32_t source;                /* process */
	uint32_t target;                /* process */
	uint64_t one;                   /* 1: the head is the same in every version, and earlier
					 * ones numbered connections */
	uint64_t has_heard;             /* 1: the speaker has heard the target's HELLO; 0 */
	union {
		struct cei_far_hello  hello;
		struct cei_far_refuse refuse;
		struct cei_far_piece  piece;
		struct cei_far_mark   mark;
		uint64_t              ack;
		struct cei_far_beat   beat;
		struct cei_far_note   note;
		uint64_t              bye;      /* NOTEs that were said before it */
		struct cei_far_clock  clock;
	};
};

/* By cei_encode() every message fits in CEI_TRANSPORT_MESSAGE_MAX, and a PIECE in
 * CEI_TRANSPORT_HEAD_MAX. By cei_decode() a REFUSE of another version has the result 0. Whether a
 * region is there, and whether a piece lies in it, is for others to check; that the rows' end does
 * not wrap around is checked there. */
extern const struct cei_protocol cei_far_protocol;

/* The bytes from the first row's begin to the last one's end, and the sum of all rows. */
uint64_t cei_far_piece_extent(const struct cei_far_piece *piece);
uint64_t cei_far_piece_bytes(const struct cei_far_piece *piece);

#endif /* CEI_FAR_WIRE_H */
