/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CODEC_H
#define CEI_CODEC_H

/*
 * Messages as bytes and back. A message is a struct, and a table says which of its members are
 * sent, in which order and within which bounds. Pure functions: no I/O, no allocation, no clock.
 *
 * Numbers are little-endian, without padding. A message is a head and a body. Where a protocol has
 * a magic number, the head begins with 32 bits each of magic, version and type, and, if
 * has_length, with the length of the body; else it begins with the type. Then come further members.
 *
 * Decoding is strict, because bytes come from another process and are not trusted: what is
 * accepted encodes to the same bytes.
 */

#include <stddef.h>
#include <stdint.h>

#include "base/cursor.h"

enum cei_field_kind {
	CEI_U32 = 1,            /* numbers, as many as the member has room for */
	CEI_U64,
	CEI_I32,                /* likewise, with a sign */
	CEI_TEXT,               /* ends with 0; the rest of the member is sent as zeros */
	CEI_RAW,                /* the member's bytes, whatever they are */
	/* Their number, a member of its own, is sent before them as 32 bits: */
	CEI_BYTES,
	CEI_LIST,               /* structs, which another table describes */
	CEI_VIEW,               /* the member is a pointer: decoded, into the received bytes */
	CEI_REST,               /* all that follows the message. The member is a pointer, as
				 * above, and the number has 64 bits and is not sent. The sender
				 * sends it behind what was encoded, which counts it as its own. */
};

struct cei_field {
	uint8_t  kind;                  /* enum cei_field_kind */
	uint16_t at;                    /* of the member in the struct */
	uint16_t room;                  /* the member's bytes */
	uint16_t count_at;              /* where the number of BYTES, structs and so on is */
	uint16_t unless_at;             /* not 0: the field is left out if 32 bits here are not
					 * 0 */
	int64_t  least;                 /* bounds of numbers, of how many, and of a text's length */
	int64_t  most;                  /* 0: as many as there is room for; of I32: 0 */
	const struct cei_layout *of;    /* LIST */
};

#define CEI_AT(tag, member) \
	.at = offsetof(struct tag, member), .room = sizeof(((struct tag *)0)->member)
#define CEI_COUNT(tag, member)  .count_at = offsetof(struct tag, member)
#define CEI_UNLESS(tag, member) .unless_at = offsetof(struct tag, member)

struct cei_layout {
	const struct cei_field *fields;
	uint16_t n_fields;
	uint16_t n_bytes;               /* of the struct */
	int    (*makes_sense)(const void *value);       /* what bounds do not say; or NULL */
};

#define CEI_LAYOUT(fields, tag, makes_sense) \
	{ fields, sizeof(fields) / sizeof((fields)[0]), sizeof(struct tag), makes_sense }

/* Nothing, and one number alone. */
#define CEI_NOTHING { NULL, 0, 0, NULL }
#define CEI_ONE_U32 { cei_one_u32, 1, sizeof(uint32_t), NULL }
#define CEI_ONE_U64 { cei_one_u64, 1, sizeof(uint64_t), NULL }

extern const struct cei_field cei_one_u32[1], cei_one_u64[1];

struct cei_message_kind {
	const char       *name;         /* for people; NULL: there is no such type */
	struct cei_layout body;
};

struct cei_protocol {
	uint32_t magic;                 /* 0: the messages have neither magic nor version */
	uint32_t version;
	int      other_magic;           /* the error that another magic is */
	int      has_length;
	uint32_t refusal;               /* the type that is read whatever its version, since its
					 * body is the same in all; 0: none */
	uint32_t n_bytes_max;
	uint32_t body_at;               /* of the bodies, a union, in the message's struct */
	const struct cei_layout *head;
	const struct cei_message_kind *kinds;   /* by type */
	uint32_t n_kinds;
};

#define CEI_KINDS(table) .kinds = (table), .n_kinds = sizeof(table) / sizeof((table)[0])

/* NULL, and "unknown": there is no such type. */
const struct cei_layout *cei_message_body(const struct cei_protocol *protocol, uint32_t type);
const char *cei_message_name(const struct cei_protocol *protocol, uint32_t type);

/* Encodes a message of a known type; magic, version and length need not be in it. All fit in
 * n_bytes_max. Returns the number of bytes written. */
size_t cei_encode(const struct cei_protocol *protocol, const void *message, uint8_t *bytes);

/* Decodes a message, zeroing the struct first. CEOV_ERR_VERSION: it is of another version, and the
 * head is in *ret_message. other_magic: likewise. CEOV_ERR_INVALID: it is no valid message. Errors
 * are not raised. */
int cei_decode(const struct cei_protocol *protocol, const void *bytes, size_t n_bytes,
	       void *ret_message);

/* The same in two steps, for who receives the head first. CEOV_ERR_INVALID of the first: there is
 * no such type, or the head is too short. */
int cei_decode_head(const struct cei_protocol *protocol, struct cei_reader *reader,
		    void *ret_message);
int cei_decode_body(const struct cei_protocol *protocol, struct cei_reader *reader,
		    void *ret_message);

/* Structs that are no messages. A reader that fails leaves zeros. */
void cei_put_layout(struct cei_writer *writer, const struct cei_layout *layout,
		    const void *value);
void cei_get_layout(struct cei_reader *reader, const struct cei_layout *layout, void *ret_value);

/* The largest number, or how many at most, that a field takes. */
uint64_t cei_field_most(const struct cei_field *field);

/* How many bytes the struct is at least and at most when it was encoded, its REST included. */
void cei_layout_bytes(const struct cei_layout *layout, uint64_t *ret_least, uint64_t *ret_most);

#endif /* CEI_CODEC_H */
