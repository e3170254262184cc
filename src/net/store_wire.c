/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "net/store_wire.h"

#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "base/cursor.h"
#include "base/report.h"

static void put_head(struct cei_writer *writer, enum cei_store_type type, uint64_t n_bytes)
{
	cei_wire_put_u32(writer, CEI_STORE_MAGIC);
	cei_wire_put_u32(writer, CEI_STORE_VERSION);
	cei_wire_put_u32(writer, type);
	cei_wire_put_u64(writer, n_bytes);
}

size_t cei_store_put_hello(const struct cei_store_hello *hello, uint8_t *bytes)
{
	struct cei_writer writer = cei_writer_on(bytes, CEI_STORE_SMALL_BYTES);

	put_head(&writer, CEI_STORE_HELLO, CEI_STORE_HELLO_BYTES);
	cei_wire_put_u64(&writer, hello->group);
	cei_wire_put_u32(&writer, hello->process);
	cei_wire_put_u32(&writer, hello->n_processes);
	return writer.at;
}

size_t cei_store_put_joined(uint8_t *bytes)
{
	struct cei_writer writer = cei_writer_on(bytes, CEI_STORE_SMALL_BYTES);

	put_head(&writer, CEI_STORE_JOINED, 0);
	return writer.at;
}

size_t cei_store_put_refuse(const struct cei_store_refuse *refuse, uint8_t *bytes)
{
	struct cei_writer writer = cei_writer_on(bytes, CEI_STORE_SMALL_BYTES);

	put_head(&writer, CEI_STORE_REFUSE, CEI_STORE_REFUSE_BYTES);
	cei_wire_put_u32(&writer, (uint32_t)refuse->error);
	cei_wire_put_bytes(&writer, refuse->text, sizeof(refuse->text));
	return writer.at;
}

size_t cei_store_put_part(uint32_t round, uint32_t n_bytes, uint8_t *bytes)
{
	struct cei_writer writer = cei_writer_on(bytes, CEI_STORE_SMALL_BYTES);

	put_head(&writer, CEI_STORE_PART, CEI_STORE_PART_BYTES + (uint64_t)n_bytes);
	cei_wire_put_u32(&writer, round);
	return writer.at;
}

uint8_t *cei_store_put_all(uint32_t round, const struct cei_gathered *gathered,
			   uint64_t *ret_n_bytes)
{
	uint32_t n = gathered->n_processes, i, length;
	uint64_t n_body = CEI_STORE_ALL_BYTES + 4 * (uint64_t)n + gathered->ends[n - 1];
	uint8_t *bytes = malloc((size_t)(CEI_STORE_HEAD_BYTES + n_body));
	struct cei_writer writer;

	if (!bytes)
		return NULL;
	writer = cei_writer_on(bytes, (size_t)(CEI_STORE_HEAD_BYTES + n_body));
	put_head(&writer, CEI_STORE_ALL, n_body);
	cei_wire_put_u32(&writer, round);
	cei_wire_put_u32(&writer, n);
	for (i = 0; i < n; i++) {
		cei_gathered_part(gathered, i, &length);
		cei_wire_put_u32(&writer, length);
	}
	cei_wire_put_bytes(&writer, gathered->bytes, (size_t)gathered->ends[n - 1]);
	*ret_n_bytes = writer.at;
	return bytes;
}

/* Returns whether a body of a message of this type may have this length. */
static int is_length(const struct cei_store_head *head, uint32_t n_processes)
{
	uint64_t n = head->n_bytes;

	switch (head->type) {
	case CEI_STORE_HELLO:
		return n == CEI_STORE_HELLO_BYTES;
	case CEI_STORE_JOINED:
		return !n;
	case CEI_STORE_REFUSE:
		return n == CEI_STORE_REFUSE_BYTES;
	case CEI_STORE_PART:
		return n >= CEI_STORE_PART_BYTES &&
		       n <= CEI_STORE_PART_BYTES + CEI_GATHERED_BYTES_MAX;
	case CEI_STORE_ALL:
		return n >= CEI_STORE_ALL_BYTES + 4 * (uint64_t)n_processes &&
		       n <= CEI_STORE_ALL_BYTES +
			    (uint64_t)n_processes * (4 + (uint64_t)CEI_GATHERED_BYTES_MAX);
	default:
		return 0;
	}
}

int cei_store_get_head(const uint8_t bytes[CEI_STORE_HEAD_BYTES], uint32_t n_processes,
		       struct cei_store_head *ret_head)
{
	struct cei_reader reader = cei_reader_on(bytes, CEI_STORE_HEAD_BYTES);

	ret_head->magic = cei_wire_get_u32(&reader);
	ret_head->version = cei_wire_get_u32(&reader);
	ret_head->type = cei_wire_get_u32(&reader);
	ret_head->n_bytes = cei_wire_get_u64(&reader);
	if (ret_head->magic != CEI_STORE_MAGIC)
		return CEOV_ERR_INVALID;
	if (ret_head->version != CEI_STORE_VERSION && ret_head->type != CEI_STORE_REFUSE)
		return CEOV_ERR_VERSION;
	return is_length(ret_head, n_processes) ? 0 : CEOV_ERR_INVALID;
}

int cei_store_get_hello(const uint8_t *body, uint64_t n_bytes,
			struct cei_store_hello *ret_hello)
{
	struct cei_reader reader = cei_reader_on(body, (size_t)n_bytes);

	ret_hello->group = cei_wire_get_u64(&reader);
	ret_hello->process = cei_wire_get_u32(&reader);
	ret_hello->n_processes = cei_wire_get_u32(&reader);
	return cei_reader_end(&reader);
}

/* A refusal is an error, whatever it says, and its text may be printed. */
int cei_store_get_refuse(const uint8_t *body, uint64_t n_bytes,
			 struct cei_store_refuse *ret_refuse)
{
	struct cei_reader reader = cei_reader_on(body, (size_t)n_bytes);
	size_t i;

	ret_refuse->error = (int32_t)cei_wire_get_u32(&reader);
	cei_wire_get_bytes(&reader, ret_refuse->text, sizeof(ret_refuse->text));
	ret_refuse->text[sizeof(ret_refuse->text) - 1] = '\0';
	for (i = 0; ret_refuse->text[i]; i++)
		if (ret_refuse->text[i] < ' ' || ret_refuse->text[i] > '~')
			ret_refuse->text[i] = '?';
	if (ret_refuse->error >= 0 || ret_refuse->error < CEI_ERROR_LOWEST)
		return CEOV_ERR_INVALID;
	return cei_reader_end(&reader);
}

int cei_store_get_part(const uint8_t *body, uint64_t n_bytes, uint32_t *ret_round)
{
	struct cei_reader reader = cei_reader_on(body, (size_t)n_bytes);

	*ret_round = cei_wire_get_u32(&reader);
	return reader.failed ? CEOV_ERR_INVALID : 0;
}

int cei_store_get_all(const uint8_t *body, uint64_t n_bytes,
		      const struct cei_store_wanted *wanted, struct cei_gathered *ret_gathered)
{
	struct cei_reader reader = cei_reader_on(body, (size_t)n_bytes);
	uint32_t round = cei_wire_get_u32(&reader), n = cei_wire_get_u32(&reader), i;
	uint32_t *lengths;
	int r;

	if (reader.failed || round != wanted->round || n != wanted->n_processes)
		return CEOV_ERR_INVALID;
	lengths = calloc(n, sizeof(*lengths));
	if (!lengths)
		return CEOV_ERR_NO_MEMORY;
	for (i = 0; i < n; i++)
		lengths[i] = cei_wire_get_u32(&reader);
	r = cei_gathered_init(ret_gathered, n, lengths);
	free(lengths);
	if (r)
		return r;
	cei_wire_get_bytes(&reader, ret_gathered->bytes, (size_t)ret_gathered->ends[n - 1]);
	r = cei_reader_end(&reader);
	if (r)
		cei_gathered_fini(ret_gathered);
	return r;
}
