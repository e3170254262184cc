/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_WIRE_H
#define CEI_WIRE_H

/*
 * Messages with which processes of a node meet, and what exports say, by the tables of
 * base/codec.h. The head of a message, and the body of a REFUSE, are the same in every version, so
 * a process of another version can be told why it is refused. The version counts for what linked
 * processes say afterwards, too (ipc/group/messages.h).
 */

#include <stddef.h>
#include <stdint.h>

#include "base/codec.h"
#include "ipc/bootstrap.h"
#include "ipc/share.h"

#define CEI_WIRE_MAGIC     UINT32_C(0x564f4543) /* "CEOV" */
#define CEI_WIRE_VERSION   4u

#define CEI_WIRE_TEXT_BYTES 200u        /* of a refusal's text, including the NUL */
#define CEI_MESSAGE_BYTES_MAX 256u      /* of the longest encoded message */

/* --- regions ------------------------------------------------------------- */

/* Values that no owner sends are refused: an unknown kind, a size of 0, an offset or a size that
 * wraps around. */
extern const struct cei_layout cei_region_layout;

#define CEI_WIRE_REGION_BYTES 144u

/* --- what buffers and signals export -------------------------------------- */

enum cei_export_kind { CEI_EXPORT_BUFFER = 1, CEI_EXPORT_SIGNAL = 2 };

#define CEI_EXPORT_REGIONS_MAX 2u

/* The contents of an export. A buffer has exactly one region. A signal has its control region, and
 * a second region if its counters are on a GPU. */
struct cei_wire_described {
	uint32_t               kind;            /* enum cei_export_kind */
	uint32_t               place_kind;      /* signals only: enum ceov_place_kind of the place
						 * where the counters are */
	uint32_t               n_counters;      /* signals only */
	uint32_t               flags;           /* signals only: enum ceov_signal_flags */
	uint32_t               n_regions;
	struct cei_region_wire regions[CEI_EXPORT_REGIONS_MAX];
};

extern const struct cei_layout cei_described_layout;

/* Decodes the contents of an export. The reader fails if they are none that an owner sends, above
 * all if the number of regions or descriptors does not fit the kind. */
void cei_wire_get_described(struct cei_reader *reader, uint32_t n_fds,
			    struct cei_wire_described *ret_described);

/* --- messages of the bootstrap protocol --------------------------------------------- */

enum cei_message_type {
	CEI_MESSAGE_HELLO = 1,  /* a joining process tells the first rank's process who it is */
	CEI_MESSAGE_REFUSE,     /* the answer: the process cannot join, and why */
	CEI_MESSAGE_JOINED,     /* the answer: it has joined; other ranks may be missing */
	CEI_MESSAGE_LINK,       /* then, for each peer: its ranks; the socket is sent beside */
	CEI_MESSAGE_WELCOME,    /* then: all links have been sent */
};

struct cei_wire_hello {
	uint32_t              n_ranks;          /* ranks of the group */
	struct cei_party party;            /* decoding checks how many ranks it has, but not
						 * their values */
};

struct cei_wire_welcome {
	uint32_t              n_links;          /* how many LINK messages were sent before */
	struct cei_party party;            /* the ranks of the first rank's process. The
						 * link to it is the connection on which this
						 * message arrives */
};

struct cei_wire_refuse {
	int32_t error;                          /* enum ceov_error */
	char    text[CEI_WIRE_TEXT_BYTES];
};

struct cei_message {
	uint32_t magic;                         /* set by decoding, as received; so are version */
	uint32_t version;                       /* and n_bytes */
	uint32_t type;                          /* enum cei_message_type */
	uint32_t n_bytes;                       /* of the body */
	union {
		struct cei_wire_hello   hello;
		struct cei_wire_refuse  refuse;
		struct cei_party   link;
		struct cei_wire_welcome welcome;
	};
};

extern const struct cei_protocol cei_message_protocol;

/* Encodes a message into bytes, which must have room for CEI_MESSAGE_BYTES_MAX. Every message fits.
 * Returns the number of bytes written. */
size_t cei_message_encode(const struct cei_message *message, uint8_t *bytes);

/* Decodes a message. CEOV_ERR_VERSION: it has another magic or version, both of which are in
 * *ret_message; a REFUSE message is decoded all the same, and the result is 0. CEOV_ERR_INVALID:
 * the bytes are no valid message. Errors are not raised here. */
int cei_message_decode(const uint8_t *bytes, size_t n_bytes,
		       struct cei_message *ret_message);

#endif /* CEI_WIRE_H */
