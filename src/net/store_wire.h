/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_STORE_WIRE_H
#define CEI_STORE_WIRE_H

/*
 * Messages between process 0's store and the other processes, or between the processes of a node
 * that meet at a path. Pure functions.
 * Each message is a head and n_bytes of body. Head and REFUSE are the same in every version, so
 * that a process can tell one of another version why it is refused. The version counts for what
 * linked processes say afterwards, too (ipc/group/messages.h).
 */

#include <stddef.h>
#include <stdint.h>

#include "base/codec.h"
#include "base/site.h"
#include "net/gathered.h"
#include "net/record.h"

#define CEI_STORE_MAGIC      UINT32_C(0x54534543)       /* "CEST" */
#define CEI_STORE_VERSION    3u
#define CEI_STORE_HEAD_BYTES 20u
#define CEI_STORE_TEXT_BYTES 200u               /* of a refusal, with the final 0 */

enum cei_store_type {
	CEI_STORE_HELLO = 1,    /* to process 0: who I am */
	CEI_STORE_JOINED,       /* from process 0: you are in; others may be missing. At a path
				 * once more: it has sent all links */
	CEI_STORE_REFUSE,       /* from process 0: you cannot join, or it has failed, and why */
	CEI_STORE_PART,         /* to process 0: my bytes of a round */
	CEI_STORE_ALL,          /* from process 0: the bytes of all */
	CEI_STORE_LINK,         /* at a path: the ranks of another process. A socket to it is sent
				 * beside, and a pidfd, if the system can make one */
};

#define CEI_STORE_SMALL_BYTES \
	(CEI_STORE_HEAD_BYTES + 12u + 4u * CEI_MEMBERS_MAX + CEI_JOB_BYTES)

struct cei_store_hello {
	uint32_t         n_processes;           /* of the group; at a path its ranks */
	struct cei_party party;                 /* one number: of the process; at a path its
						 * ranks */
	uint32_t         n_job;                 /* bytes of the job's name, without a final 0 */
	char             job[CEI_JOB_BYTES];
};

struct cei_store_refuse {
	int32_t error;                          /* enum ceov_error */
	char    text[CEI_STORE_TEXT_BYTES];
};

struct cei_store_part {
	uint32_t       round;
	uint64_t       n_bytes;                 /* encoding counts them, and they are sent behind */
	const uint8_t *bytes;
};

struct cei_store_all {
	uint32_t       round;
	uint32_t       n_processes;
	uint64_t       n_bytes;                 /* likewise */
	const uint8_t *bytes;                   /* of each process a length in 32 bits, and then of
						 * each its bytes */
};

struct cei_store_message {
	uint32_t magic;                         /* set by decoding, as received; so are version */
	uint32_t version;                       /* and n_bytes */
	uint32_t type;                          /* enum cei_store_type */
	uint64_t n_bytes;                       /* of the body */
	union {
		struct cei_store_hello  hello;
		struct cei_store_refuse refuse;
		struct cei_store_part   part;
		struct cei_store_all    all;
		struct cei_party        link;
	};
};

/* All fit in CEI_STORE_SMALL_BYTES, without what is sent behind PART and ALL. */
extern const struct cei_protocol cei_store_protocol;

/* Returns a whole ALL message, allocated; NULL: no memory. */
uint8_t *cei_store_put_all(uint32_t round, const struct cei_gathered *gathered,
			   uint64_t *ret_n_bytes);

/* Decodes a head. CEOV_ERR_INVALID: of another magic, or of a type or a length that no message of
 * a group of n_processes has. CEOV_ERR_VERSION: of another version; its REFUSE is no error. Not
 * raised. */
int cei_store_get_head(const uint8_t bytes[CEI_STORE_HEAD_BYTES], uint32_t n_processes,
		       struct cei_store_message *ret_message);

/* Decodes the body of n_bytes of a message, whose head is there. The bytes of PART and ALL stay in
 * it; a refusal's text may be printed. CEOV_ERR_INVALID, not raised. */
int cei_store_get_body(const uint8_t *body, struct cei_store_message *message);

/* CEOV_ERR_INVALID: it is of another round or group, or its lengths are wrong; CEOV_ERR_NO_MEMORY.
 * Not raised. */
int cei_store_get_all(const struct cei_store_all *all, uint32_t round, uint32_t n_processes,
		      struct cei_gathered *ret_gathered);

#endif /* CEI_STORE_WIRE_H */
