/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "net/record.h"

#include <string.h>

int cei_record_is_printable(const char *text)
{
	while (*text && (uint8_t)*text >= ' ' && *text != 0x7f)
		text++;
	return !*text;
}

static int is_record(const void *value)
{
	const struct cei_record *record = value;

	return cei_record_is_printable(record->library) &&
	       cei_record_is_printable(record->transport);
}

static const struct cei_layout rank_layout = CEI_ONE_U32;

/* Magic and version are before them, and the job's name, with its length, behind. */
static const struct cei_field fields[] = {
	{ CEI_TEXT, CEI_AT(cei_record, library) },
	{ CEI_TEXT, CEI_AT(cei_record, transport) },
	{ CEI_U64, CEI_AT(cei_record, node), .least = 1 },
	{ CEI_U64, CEI_AT(cei_record, instance) },
	{ CEI_U32, CEI_AT(cei_record, n_group_ranks) },
	{ CEI_LIST, CEI_AT(cei_record, ranks), CEI_COUNT(cei_record, n_ranks),
	  .least = 1, .of = &rank_layout },
	{ CEI_BYTES, CEI_AT(cei_record, address), CEI_COUNT(cei_record, n_address) },
};
const struct cei_layout cei_record_layout = CEI_LAYOUT(fields, cei_record, is_record);

size_t cei_record_encode(const struct cei_record *record, uint8_t *bytes)
{
	struct cei_writer writer = cei_writer_on(bytes, CEI_RECORD_BYTES_MAX);
	uint32_t n_job = (uint32_t)strlen(record->job);

	cei_wire_put_u32(&writer, CEI_RECORD_MAGIC);
	cei_wire_put_u32(&writer, CEI_RECORD_VERSION);
	cei_put_layout(&writer, &cei_record_layout, record);
	cei_wire_put_u32(&writer, n_job);
	cei_wire_put_bytes(&writer, record->job, n_job);
	return writer.at;
}

static void get_job(struct cei_reader *reader, char *ret_job)
{
	uint32_t n = cei_wire_get_u32(reader);

	if (n < CEI_JOB_BYTES)
		cei_wire_get_bytes(reader, ret_job, n);
	if (strlen(ret_job) != n || !cei_record_is_printable(ret_job))
		reader->failed = 1;
}

int cei_record_decode(const uint8_t *bytes, size_t n_bytes, struct cei_record *ret_record)
{
	struct cei_reader reader = cei_reader_on(bytes, n_bytes);
	uint32_t magic = cei_wire_get_u32(&reader), version = cei_wire_get_u32(&reader);
	int r;

	memset(ret_record, 0, sizeof(*ret_record));
	if (reader.failed)
		return CEOV_ERR_INVALID;
	ret_record->version = magic == CEI_RECORD_MAGIC ? version : 0;
	if (ret_record->version != CEI_RECORD_VERSION)
		return CEOV_ERR_VERSION;
	cei_get_layout(&reader, &cei_record_layout, ret_record);
	get_job(&reader, ret_record->job);
	r = cei_reader_end(&reader);
	if (r)
		memset(ret_record, 0, sizeof(*ret_record));
	ret_record->version = CEI_RECORD_VERSION;
	return r;
}
