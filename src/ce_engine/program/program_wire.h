/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PROGRAM_WIRE_H
#define CEI_PROGRAM_WIRE_H

/*
 * Encoding and decoding of programs. Little-endian, no padding: a head (magic, version,
 * bytes that follow), the program's own fields, then its lists. Each program has exactly
 * one encoding.
 *
 * Decoding is strict, because bytes come from another process and are not trusted. A
 * decoded program satisfies cei_program_verify(); order and overlap of its transfers are
 * checked as for any other program. Chunks are not encoded: cei_program_count() computes
 * them again.
 */

#include <stddef.h>

#include "ce_engine/program/program.h"

#define CEI_PROGRAM_MAGIC   UINT32_C(0x52504543)        /* "CEPR" */
#define CEI_PROGRAM_VERSION 3u

/* Size of the program's encoding. */
size_t cei_program_bytes(const struct cei_program *program);

/* bytes must have room for that size. */
void cei_program_write(const struct cei_program *program, void *bytes);

/* 0: end *ret_program by cei_program_fini(). Not raised: CEOV_ERR_VERSION, another magic or
 * version; CEOV_ERR_INVALID, anything else that ceoverlap does not encode;
 * CEOV_ERR_NO_MEMORY. Allocates at most in proportion to n_bytes. */
int  cei_program_read(const void *bytes, size_t n_bytes, struct cei_program *ret_program);

#endif /* CEI_PROGRAM_WIRE_H */
