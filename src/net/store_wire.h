/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_STORE_WIRE_H
#define CEI_STORE_WIRE_H

/*
 * Messages between process 0's store and the other processes. To bytes and back; pure functions.
 * Each message is a head and n_bytes of body. Head and REFUSE are the same in every version, so
 * that a process can tell one of another version why it is refused.
 */

#include <stddef.h>
#include <stdint.h>

#include "net/gathered.h"

#define CEI_STORE_MAGIC      UINT32_C(0x54534543)       /* "CEST" */
#define CEI_STORE_VERSION    1u
#define CEI_STORE_HEAD_BYTES 20u
#define CEI_STORE_TEXT_BYTES 200u               /* of a refusal, with the final 0 */

enum cei_store_type {
	CEI_STORE_HELLO = 1,    /* to process 0: who I am */
	CEI_STORE_JOINED,       /* from process 0: you are in; others may be missing */
	CEI_STORE_REFUSE,       /* from process 0: you cannot join, or it has failed, and why */
	CEI_STORE_PART,         /* to process 0: my bytes of a round */
	CEI_STORE_ALL,          /* from process 0: the bytes of all */
};

#define CEI_STORE_HELLO_BYTES  16u
#define CEI_STORE_REFUSE_BYTES (4u + CEI_STORE_TEXT_BYTES)
#define CEI_STORE_PART_BYTES   4u               /* and the process's own */
#define CEI_STORE_ALL_BYTES    8u               /* and a length and bytes for each process */
#define CEI_STORE_SMALL_BYTES  (CEI_STORE_HEAD_BYTES + CEI_STORE_REFUSE_BYTES)

struct cei_store_head {
	uint32_t magic;
	uint32_t version;
	uint32_t type;
	uint64_t n_bytes;
};

struct cei_store_hello {
	uint64_t group;
	uint32_t process;
	uint32_t n_processes;
};

struct cei_store_refuse {
	int32_t error;                          /* enum ceov_error */
	char    text[CEI_STORE_TEXT_BYTES];
};

/* Encode whole messages, into room of CEI_STORE_SMALL_BYTES bytes; return their length. */
size_t cei_store_put_hello(const struct cei_store_hello *hello, uint8_t *bytes);
size_t cei_store_put_joined(uint8_t *bytes);
size_t cei_store_put_refuse(const struct cei_store_refuse *refuse, uint8_t *bytes);

/* Encodes a PART's head and round; its n_bytes follow. Returns the length. */
size_t cei_store_put_part(uint32_t round, uint32_t n_bytes, uint8_t *bytes);

/* Returns a whole ALL message, allocated; NULL: no memory. */
uint8_t *cei_store_put_all(uint32_t round, const struct cei_gathered *gathered,
			   uint64_t *ret_n_bytes);

/* Decodes a head. CEOV_ERR_INVALID: of another magic, or of a type or a length that no message of
 * a group of n_processes has. CEOV_ERR_VERSION: of another version; its REFUSE is no error. */
int cei_store_get_head(const uint8_t bytes[CEI_STORE_HEAD_BYTES], uint32_t n_processes,
		       struct cei_store_head *ret_head);

/* Decode bodies, whose length is the head's. CEOV_ERR_INVALID. get_part's and get_all's bytes
 * are in the body. Not raised. */
int cei_store_get_hello(const uint8_t *body, uint64_t n_bytes,
			struct cei_store_hello *ret_hello);
int cei_store_get_refuse(const uint8_t *body, uint64_t n_bytes,
			 struct cei_store_refuse *ret_refuse);
int cei_store_get_part(const uint8_t *body, uint64_t n_bytes, uint32_t *ret_round);

/* What an ALL has to be. */
struct cei_store_wanted {
	uint32_t round;
	uint32_t n_processes;
};
int cei_store_get_all(const uint8_t *body, uint64_t n_bytes,
		      const struct cei_store_wanted *wanted, struct cei_gathered *ret_gathered);

#endif /* CEI_STORE_WIRE_H */
