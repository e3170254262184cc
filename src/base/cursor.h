/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CURSOR_H
#define CEI_CURSOR_H

/*
 * Cursors that write numbers and bytes into a message, and read them back. Numbers are
 * little-endian, without padding. Every byte goes through a cursor, so bounds are checked in one
 * place.
 */

#include <stddef.h>
#include <stdint.h>

/* Where to write next. After a failure (no room) further calls do nothing. */
struct cei_writer {
	uint8_t *bytes;
	size_t   n_room;
	size_t   at;                    /* bytes written so far */
	int      failed;
};

/* Where to read next. After a failure (too few bytes, or a value out of range) further calls return
 * zeros. */
struct cei_reader {
	const uint8_t *bytes;
	size_t         n_bytes;
	size_t         at;
	int            failed;
};

struct cei_writer cei_writer_on(void *bytes, size_t n_room);
struct cei_reader cei_reader_on(const void *bytes, size_t n_bytes);

void cei_wire_put_u32(struct cei_writer *writer, uint32_t value);
void cei_wire_put_u64(struct cei_writer *writer, uint64_t value);
void cei_wire_put_bytes(struct cei_writer *writer, const void *bytes, size_t n_bytes);

uint32_t cei_wire_get_u32(struct cei_reader *reader);
uint64_t cei_wire_get_u64(struct cei_reader *reader);
void     cei_wire_get_bytes(struct cei_reader *reader, void *ret_bytes, size_t n_bytes);

/* Returns 0 if everything was read without a failure, else CEOV_ERR_INVALID (not raised). */
int cei_reader_end(const struct cei_reader *reader);

#endif /* CEI_CURSOR_H */
