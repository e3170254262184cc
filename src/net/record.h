/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_RECORD_H
#define CEI_RECORD_H

/*
 * What each process of a group tells all others before they connect: who it is and where it can
 * be reached. To bytes and back; pure functions.
 *
 * Decoding is strict: bytes come from another process and are not trusted. The magic number and
 * the version are at the same place in every version of the format.
 */

#include <stddef.h>
#include <stdint.h>

#include "base/codec.h"
#include "base/site.h"

#define CEI_RECORD_MAGIC         UINT32_C(0x52454543)   /* "CEER" */
#define CEI_RECORD_VERSION       4u
#define CEI_RECORD_TEXT_BYTES    32u            /* of a version, with the final 0 */
#define CEI_RECORD_ADDRESS_BYTES 1024u          /* of a rail's address at most; UCX's have 79
						 * for one TCP interface */

#define CEI_JOB_BYTES            320u           /* of a job's name, with the final 0; a PMIx
						 * namespace has up to 256 */

struct cei_record {
	uint32_t version;                       /* of the format; set by decoding: as received */
	char     library[CEI_RECORD_TEXT_BYTES];        /* ceoverlap's version */
	char     transport[CEI_RECORD_TEXT_BYTES];      /* UCX's version; "": it uses none */
	uint64_t node;                          /* the machine; never 0 */
	uint64_t instance;                      /* random, new for each context that opens */
	uint32_t n_group_ranks;                 /* ranks of the group, as this process says */
	uint32_t n_ranks;                       /* ranks that it holds: 1 to CEI_MEMBERS_MAX */
	uint32_t ranks[CEI_MEMBERS_MAX];        /* decoding does not check their values */
	uint32_t n_address;                     /* bytes; 0: other nodes cannot reach it */
	uint8_t  address[CEI_RECORD_ADDRESS_BYTES];     /* of its rail */
	char     job[CEI_JOB_BYTES];            /* the job's name; "": it has none */
};

/* Room for every encoded record. */
#define CEI_RECORD_BYTES_MAX (8u + 2u * CEI_RECORD_TEXT_BYTES + 2u * 8u + 4u + 4u + \
			      4u * CEI_MEMBERS_MAX + 4u + CEI_RECORD_ADDRESS_BYTES + \
			      4u + CEI_JOB_BYTES - 1u)

/* Whether a text has no control characters, so that messages can show it. */
int cei_record_is_printable(const char *text);

/* Of all but magic, version and job. */
extern const struct cei_layout cei_record_layout;

/* Encodes a valid record into room of CEI_RECORD_BYTES_MAX bytes; returns how many it has. */
size_t cei_record_encode(const struct cei_record *record, uint8_t *bytes);

/* Decodes a record. CEOV_ERR_VERSION: of another version, which is in ret_record->version, or
 * no record of ceoverlap, and then the version is 0. CEOV_ERR_INVALID: the bytes are no valid
 * record. Not raised. */
int cei_record_decode(const uint8_t *bytes, size_t n_bytes, struct cei_record *ret_record);

#endif /* CEI_RECORD_H */
