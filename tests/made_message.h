/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_MADE_MESSAGE_H
#define CEI_MADE_MESSAGE_H

/* Valid messages at random, made from the tables of base/codec.h, and a list of all protocols. */

#include "base/codec.h"
#include "ipc/wire.h"
#include "net/record.h"

/* What VIEW and REST of made messages point to is no longer than this, and zeros. */
#define MADE_VIEW_MAX  65536u
#define MADE_BYTES_MAX (UINT32_C(1) << 18)      /* more than any, with its REST */

struct made_protocol {
	const char                *name;
	const struct cei_protocol *protocol;
};

/* What exports say, and records, are no messages, but as such of a protocol they are tested like
 * them. */
struct made_export {
	uint32_t type;                          /* 1 */
	struct made_content {
		uint32_t                  n;    /* 1 */
		struct cei_wire_described described;
	} content;
};

struct made_record {
	uint32_t type;                          /* 1 */
	struct made_records {
		uint32_t          n;            /* 1 */
		struct cei_record record;
	} records;
};

extern const struct cei_protocol made_exports;

/* Inputs that fuzzers keep name a protocol by its place: new ones come last. */
extern const struct made_protocol made_protocols[];
extern const uint32_t made_n_protocols;

/* Makes a valid value; *state: of the random numbers. Numbers are mostly small or at a bound. */
void made_value(uint64_t *state, const struct cei_layout *layout, void *ret_value);

/* Makes a valid message of this type, in memory for protocol->head->n_bytes. */
void made_message(uint64_t *state, const struct cei_protocol *protocol, uint32_t type,
		  void *ret_message);

/* Encodes a message, with its REST, into room of MADE_BYTES_MAX. Returns its length. */
size_t made_bytes(const struct cei_protocol *protocol, const void *message, uint8_t *bytes);

#endif /* CEI_MADE_MESSAGE_H */
