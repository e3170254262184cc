/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "base/cursor.h"

#include <string.h>

#include <ceoverlap/ceoverlap.h>

struct cei_writer cei_writer_on(void *bytes, size_t n_room)
{
	struct cei_writer writer = { .bytes = bytes, .n_room = n_room };

	return writer;
}

struct cei_reader cei_reader_on(const void *bytes, size_t n_bytes)
{
	struct cei_reader reader = { .bytes = bytes, .n_bytes = n_bytes };

	return reader;
}

void cei_wire_put_bytes(struct cei_writer *writer, const void *bytes, size_t n_bytes)
{
	if (writer->failed || n_bytes > writer->n_room - writer->at) {
		writer->failed = 1;
		return;
	}
	if (n_bytes)
		memcpy(writer->bytes + writer->at, bytes, n_bytes);
	writer->at += n_bytes;
}

void cei_wire_get_bytes(struct cei_reader *reader, void *ret_bytes, size_t n_bytes)
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

void cei_wire_put_u32(struct cei_writer *writer, uint32_t value)
{
	uint8_t bytes[4];
	uint32_t i;

	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(value >> (8 * i));
	cei_wire_put_bytes(writer, bytes, sizeof(bytes));
}

void cei_wire_put_u64(struct cei_writer *writer, uint64_t value)
{
	uint8_t bytes[8];
	uint32_t i;

	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(value >> (8 * i));
	cei_wire_put_bytes(writer, bytes, sizeof(bytes));
}

uint32_t cei_wire_get_u32(struct cei_reader *reader)
{
	uint8_t bytes[4];
	uint32_t value = 0;
	uint32_t i;

	cei_wire_get_bytes(reader, bytes, sizeof(bytes));
	for (i = 0; i < sizeof(bytes); i++)
		value |= (uint32_t)bytes[i] << (8 * i);
	return value;
}

uint64_t cei_wire_get_u64(struct cei_reader *reader)
{
	uint8_t bytes[8];
	uint64_t value = 0;
	uint32_t i;

	cei_wire_get_bytes(reader, bytes, sizeof(bytes));
	for (i = 0; i < sizeof(bytes); i++)
		value |= (uint64_t)bytes[i] << (8 * i);
	return value;
}

int cei_reader_end(const struct cei_reader *reader)
{
	return reader->failed || reader->at != reader->n_bytes ? CEOV_ERR_INVALID : 0;
}
