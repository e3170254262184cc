/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "net/store_wire.h"

#include <stdlib.h>

#include <ceoverlap/ceoverlap.h>

#include "base/report.h"

static const struct cei_layout number_layout = CEI_ONE_U32;

static const struct cei_field hello_fields[] = {
	{ CEI_U32, CEI_AT(cei_store_hello, n_processes) },
	{ CEI_LIST, CEI_AT(cei_store_hello, party.ranks),
	  CEI_COUNT(cei_store_hello, party.n_ranks), .least = 1, .of = &number_layout },
	{ CEI_BYTES, CEI_AT(cei_store_hello, job),
	  CEI_COUNT(cei_store_hello, n_job), .most = CEI_JOB_BYTES - 1 },
};

static const struct cei_field refuse_fields[] = {
	{ CEI_I32, CEI_AT(cei_store_refuse, error), .least = CEI_ERROR_LOWEST, .most = -1 },
	{ CEI_RAW, CEI_AT(cei_store_refuse, text) },
};

static const struct cei_field part_fields[] = {
	{ CEI_U32, CEI_AT(cei_store_part, round) },
	{ CEI_REST, CEI_AT(cei_store_part, bytes),
	  CEI_COUNT(cei_store_part, n_bytes), .most = CEI_GATHERED_BYTES_MAX },
};

#define ALL_OF_ONE_MAX (4 + (uint64_t)CEI_GATHERED_BYTES_MAX)

static const struct cei_field all_fields[] = {
	{ CEI_U32, CEI_AT(cei_store_all, round) },
	{ CEI_U32, CEI_AT(cei_store_all, n_processes) },
	{ CEI_REST, CEI_AT(cei_store_all, bytes),
	  CEI_COUNT(cei_store_all, n_bytes),
	  .most = CEI_GATHERED_PROCESSES_MAX * ALL_OF_ONE_MAX },
};

static const struct cei_field link_fields[] = {
	{ CEI_LIST, CEI_AT(cei_party, ranks),
	  CEI_COUNT(cei_party, n_ranks), .least = 1, .of = &number_layout },
};

static const struct cei_field head_fields[] = {
	{ CEI_U32, CEI_AT(cei_store_message, magic) },
	{ CEI_U32, CEI_AT(cei_store_message, version) },
	{ CEI_U32, CEI_AT(cei_store_message, type) },
	{ CEI_U64, CEI_AT(cei_store_message, n_bytes) },
};
static const struct cei_layout head = CEI_LAYOUT(head_fields, cei_store_message, NULL);

static const struct cei_message_kind kinds[] = {
	[CEI_STORE_HELLO] = { "HELLO", CEI_LAYOUT(hello_fields, cei_store_hello, NULL) },
	[CEI_STORE_JOINED] = { "JOINED", CEI_NOTHING },
	[CEI_STORE_REFUSE] = { "REFUSE", CEI_LAYOUT(refuse_fields, cei_store_refuse, NULL) },
	[CEI_STORE_PART] = { "PART", CEI_LAYOUT(part_fields, cei_store_part, NULL) },
	[CEI_STORE_ALL] = { "ALL", CEI_LAYOUT(all_fields, cei_store_all, NULL) },
	[CEI_STORE_LINK] = { "LINK", CEI_LAYOUT(link_fields, cei_party, NULL) },
};

const struct cei_protocol cei_store_protocol = {
	.magic = CEI_STORE_MAGIC,
	.version = CEI_STORE_VERSION,
	.other_magic = CEOV_ERR_INVALID,
	.has_length = 1,
	.refusal = CEI_STORE_REFUSE,
	.n_bytes_max = CEI_STORE_SMALL_BYTES,
	.body_at = offsetof(struct cei_store_message, hello),
	.head = &head,
	CEI_KINDS(kinds),
};

uint8_t *cei_store_put_all(uint32_t round, const struct cei_gathered *gathered,
			   uint64_t *ret_n_bytes)
{
	uint32_t n = gathered->n_processes, i, length;
	struct cei_store_message message = {
		.type = CEI_STORE_ALL,
		.all = { round, n, 4 * (uint64_t)n + gathered->ends[n - 1], NULL },
	};
	size_t n_bytes = (size_t)(CEI_STORE_SMALL_BYTES + message.all.n_bytes);
	uint8_t *bytes = malloc(n_bytes);
	struct cei_writer writer;

	if (!bytes)
		return NULL;
	writer = cei_writer_on(bytes, n_bytes);
	writer.at = cei_encode(&cei_store_protocol, &message, bytes);
	for (i = 0; i < n; i++) {
		cei_gathered_part(gathered, i, &length);
		cei_wire_put_u32(&writer, length);
	}
	cei_wire_put_bytes(&writer, gathered->bytes, (size_t)gathered->ends[n - 1]);
	*ret_n_bytes = writer.at;
	return bytes;
}

int cei_store_get_head(const uint8_t bytes[CEI_STORE_HEAD_BYTES], uint32_t n_processes,
		       struct cei_store_message *ret_message)
{
	struct cei_reader reader = cei_reader_on(bytes, CEI_STORE_HEAD_BYTES);
	int r = cei_decode_head(&cei_store_protocol, &reader, ret_message);
	uint64_t least, most;

	if (r)
		return r;
	cei_layout_bytes(&kinds[ret_message->type].body, &least, &most);
	if (ret_message->type == CEI_STORE_ALL) {
		most -= (CEI_GATHERED_PROCESSES_MAX - n_processes) * ALL_OF_ONE_MAX;
		least += 4 * (uint64_t)n_processes;
	}
	return ret_message->n_bytes >= least && ret_message->n_bytes <= most ? 0 :
	       CEOV_ERR_INVALID;
}

int cei_store_get_body(const uint8_t *body, struct cei_store_message *message)
{
	struct cei_reader reader = cei_reader_on(body, (size_t)message->n_bytes);
	int r = cei_decode_body(&cei_store_protocol, &reader, message);
	char *text = message->refuse.text;
	size_t i;

	if (r || message->type != CEI_STORE_REFUSE)
		return r;
	text[sizeof(message->refuse.text) - 1] = '\0';
	for (i = 0; text[i]; i++)
		if (text[i] < ' ' || text[i] > '~')
			text[i] = '?';
	return 0;
}

int cei_store_get_all(const struct cei_store_all *all, uint32_t round, uint32_t n_processes,
		      struct cei_gathered *ret_gathered)
{
	struct cei_reader reader = cei_reader_on(all->bytes, (size_t)all->n_bytes);
	uint32_t *lengths, i;
	int r;

	if (all->round != round || all->n_processes != n_processes)
		return CEOV_ERR_INVALID;
	lengths = calloc(n_processes, sizeof(*lengths));
	if (!lengths)
		return CEOV_ERR_NO_MEMORY;
	for (i = 0; i < n_processes; i++)
		lengths[i] = cei_wire_get_u32(&reader);
	r = cei_gathered_init(ret_gathered, n_processes, lengths);
	free(lengths);
	if (r)
		return r;
	cei_wire_get_bytes(&reader, ret_gathered->bytes,
			   (size_t)ret_gathered->ends[n_processes - 1]);
	r = cei_reader_end(&reader);
	if (r)
		cei_gathered_fini(ret_gathered);
	return r;
}
