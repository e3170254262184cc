/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PROGRAM_WIRE_H
#define CEI_PROGRAM_WIRE_H

/*
 * Programs to bytes and back. Little-endian, no padding: a head (magic, version, bytes that
 * follow), the program's own fields, then its four lists. A program has one encoding only.
 *
 * Reading is strict: bytes come from another process and are not trusted. What has been read
 * satisfies cei_program_verify(); whether its transfers are in order and do not overlap is
 * asked as of any other program. Chunks are not written: cei_program_count() finds them again.
 */

#include <stddef.h>

#include "ce_engine/program.h"

#define CEI_PROGRAM_MAGIC   UINT32_C(0x52504543)        /* "CEPR" */
#define CEI_PROGRAM_VERSION 2u

/* How many bytes the program takes. */
size_t cei_program_bytes(const struct cei_program *program);

/* bytes has room for as many. */
void cei_program_write(const struct cei_program *program, void *bytes);

/* 0: *ret_program is to be ended by cei_program_fini(). Not raised: CEOV_ERR_VERSION, another
 * magic or version; CEOV_ERR_INVALID, anything else that no ceoverlap writes;
 * CEOV_ERR_NO_MEMORY. Takes memory in proportion to n_bytes at most. */
int  cei_program_read(const void *bytes, size_t n_bytes, struct cei_program *ret_program);

#endif /* CEI_PROGRAM_WIRE_H */
