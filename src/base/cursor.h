/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CURSOR_H
#define CEI_CURSOR_H

/*
 * Cursors that write numbers and bytes into a message, and read them back. Numbers are
 * little-endian, without padding. Every byte goes through a cursor, so bounds are checked in one
 * place. Functions stand here so that constant lengths are seen where they are called.
 */

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

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

static inline struct cei_writer cei_writer_on(void *bytes, size_t n_room)
{
	return (struct cei_writer){ .bytes = bytes, .n_room = n_room };
}

static inline struct cei_reader cei_reader_on(const void *bytes, size_t n_bytes)
{
	return (struct cei_reader){ .bytes = bytes, .n_bytes = n_bytes };
}

static inline void cei_wire_put_bytes(struct cei_writer *writer, const void *bytes, size_t n_bytes)
{
	if (writer->failed || n_bytes > writer->n_room - writer->at) {
		writer->failed = 1;
		return;
	}
	if (n_bytes)
		memcpy(writer->bytes + writer->at, bytes, n_bytes);
	writer->at += n_bytes;
}

static inline void cei_wire_put_u32(struct cei_writer *writer, uint32_t value)
{
	value = htole32(value);
	cei_wire_put_bytes(writer, &value, sizeof(value));
}

static inline void cei_wire_put_u64(struct cei_writer *writer, uint64_t value)
{
	value = htole64(value);
	cei_wire_put_bytes(writer, &value, sizeof(value));
}

static inline void cei_wire_get_bytes(struct cei_reader *reader, void *ret_bytes, size_t n_bytes)
{
	if (reader->failed || n_bytes > reader->n_bytes - reader->at) {
		reader->failed = 1;
		memset(ret_bytes, 0, n_bytes);
		return;
	}
	if (n_bytes)
		memcpy(ret_bytes, reader->bytes + reader->at, n_bytes);
	reader->at += n_bytes;
}

static inline uint32_t cei_wire_get_u32(struct cei_reader *reader)
{
	uint32_t value;

	cei_wire_get_bytes(reader, &value, sizeof(value));
	return le32toh(value);
}

static inline uint64_t cei_wire_get_u64(struct cei_reader *reader)
{
	uint64_t value;

	cei_wire_get_bytes(reader, &value, sizeof(value));
	return le64toh(value);
}

/* Returns 0 if everything was read without a failure, else CEOV_ERR_INVALID (not raised). */
static inline int cei_reader_end(const struct cei_reader *reader)
{
	return reader->failed || reader->at != reader->n_bytes ? CEOV_ERR_INVALID : 0;
}

#endif /* CEI_CURSOR_H */
