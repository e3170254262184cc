/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "net/record.h"

#include <string.h>

#include "base/cursor.h"

int cei_record_is_printable(const char *text)
{
	while (*text && (uint8_t)*text >= ' ' && *text != 0x7f)
		text++;
	return !*text;
}

size_t cei_record_encode(const struct cei_record *record, uint8_t *bytes)
{
	struct cei_writer writer = cei_writer_on(bytes, CEI_RECORD_BYTES_MAX);
	uint32_t i;

	cei_wire_put_u32(&writer, CEI_RECORD_MAGIC);
	cei_wire_put_u32(&writer, CEI_RECORD_VERSION);
	cei_wire_put_bytes(&writer, record->library, sizeof(record->library));
	cei_wire_put_bytes(&writer, record->transport, sizeof(record->transport));
	cei_wire_put_u64(&writer, record->node);
	cei_wire_put_u64(&writer, record->instance);
	cei_wire_put_u32(&writer, record->n_group_ranks);
	cei_wire_put_u32(&writer, record->n_ranks);
	for (i = 0; i < record->n_ranks; i++)
		cei_wire_put_u32(&writer, record->ranks[i]);
	cei_wire_put_u32(&writer, record->n_rails);
	for (i = 0; i < record->n_rails; i++) {
		cei_wire_put_u32(&writer, record->rails[i].n_bytes);
		cei_wire_put_bytes(&writer, record->rails[i].bytes, record->rails[i].n_bytes);
	}
	cei_wire_put_u32(&writer, (uint32_t)strlen(record->job));
	cei_wire_put_bytes(&writer, record->job, strlen(record->job));
	return writer.at;
}

/* Reads a text of fixed size: printable ASCII, then zeros, at least one. The text may appear in
 * messages. */
static void get_text(struct cei_reader *reader, char ret_text[CEI_RECORD_TEXT_BYTES])
{
	size_t i, n;

	cei_wire_get_bytes(reader, ret_text, CEI_RECORD_TEXT_BYTES);
	n = strnlen(ret_text, CEI_RECORD_TEXT_BYTES);
	for (i = 0; i < CEI_RECORD_TEXT_BYTES; i++)
		if (i < n ? ret_text[i] < ' ' || ret_text[i] > '~' : ret_text[i] != 0)
			reader->failed = 1;
	if (n == CEI_RECORD_TEXT_BYTES)
		reader->failed = 1;
}

static uint32_t get_count(struct cei_reader *reader, uint32_t least, uint32_t most)
{
	uint32_t n = cei_wire_get_u32(reader);

	if (n >= least && n <= most)
		return n;
	reader->failed = 1;
	return 0;
}

static void get_body(struct cei_reader *reader, struct cei_record *ret_record)
{
	uint32_t i, n;

	get_text(reader, ret_record->library);
	get_text(reader, ret_record->transport);
	ret_record->node = cei_wire_get_u64(reader);
	ret_record->instance = cei_wire_get_u64(reader);
	ret_record->n_group_ranks = cei_wire_get_u32(reader);
	ret_record->n_ranks = get_count(reader, 1, CEI_MEMBERS_MAX);
	for (i = 0; i < ret_record->n_ranks; i++)
		ret_record->ranks[i] = cei_wire_get_u32(reader);
	ret_record->n_rails = get_count(reader, 0, CEI_RECORD_RAILS_MAX);
	for (i = 0; i < ret_record->n_rails; i++) {
		ret_record->rails[i].n_bytes = get_count(reader, 1, CEI_RECORD_ADDRESS_BYTES);
		cei_wire_get_bytes(reader, ret_record->rails[i].bytes,
				   ret_record->rails[i].n_bytes);
	}
	n = get_count(reader, 0, CEI_JOB_BYTES - 1);
	cei_wire_get_bytes(reader, ret_record->job, n);
	if (!ret_record->node || strlen(ret_record->job) != n ||
	    !cei_record_is_printable(ret_record->job))
		reader->failed = 1;
}

int cei_record_decode(const uint8_t *bytes, size_t n_bytes, struct cei_record *ret_record)
{
	struct cei_reader reader = cei_reader_on(bytes, n_bytes);
	uint32_t magic = cei_wire_get_u32(&reader);
	int r;

	memset(ret_record, 0, sizeof(*ret_record));
	ret_record->version = cei_wire_get_u32(&reader);
	if (reader.failed)
		return CEOV_ERR_INVALID;
	if (magic != CEI_RECORD_MAGIC)
		ret_record->version = 0;
	if (ret_record->version != CEI_RECORD_VERSION)
		return CEOV_ERR_VERSION;
	get_body(&reader, ret_record);
	r = cei_reader_end(&reader);
	if (r) {
		memset(ret_record, 0, sizeof(*ret_record));
		ret_record->version = CEI_RECORD_VERSION;
	}
	return r;
}
