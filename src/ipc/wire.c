/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The tables of messages of the bootstrap, and of what exports say. */

#include "ipc/wire.h"

#include "base/report.h"

/* --- regions ------------------------------------------------------------- */

static int is_region(const void *value)
{
	const struct cei_region_wire *region = value;

	return region->offset_bytes <= UINT64_MAX - region->size_bytes;
}

static const struct cei_field region_fields[] = {
	{ CEI_U32, CEI_AT(cei_region_wire, kind), .most = CEOV_PLACE_GPU },
	{ CEI_U32, CEI_AT(cei_region_wire, has_fd), .most = 1 },
	{ CEI_U64, CEI_AT(cei_region_wire, size_bytes), .least = 1 },
	{ CEI_U64, CEI_AT(cei_region_wire, offset_bytes) },
	{ CEI_U64, CEI_AT(cei_region_wire, device) },
	{ CEI_U64, CEI_AT(cei_region_wire, buffer_id) },
	{ CEI_U64, CEI_AT(cei_region_wire, instance) },
	{ CEI_U64, CEI_AT(cei_region_wire, pid) },
	{ CEI_RAW, CEI_AT(cei_region_wire, handle) },
	{ CEI_RAW, CEI_AT(cei_region_wire, uuid) },
};
const struct cei_layout cei_region_layout =
	CEI_LAYOUT(region_fields, cei_region_wire, is_region);

/* --- what buffers and signals export -------------------------------------- */

/* Returns how many regions an export with these fields must have; 0: the fields are invalid. */
static uint32_t regions_of(const struct cei_wire_described *described)
{
	if (described->kind == CEI_EXPORT_BUFFER)
		return !described->place_kind && !described->n_counters && !described->flags;
	if (!described->n_counters)
		return 0;
	return described->place_kind == CEOV_PLACE_GPU ? 2 : 1;
}

/* Returns whether a region is in the right kind of memory, and comes with a descriptor if it is
 * host memory; GPU memory may. A signal's control region is host memory; its second region is GPU
 * memory. */
static int fits(const struct cei_wire_described *described, uint32_t index)
{
	const struct cei_region_wire *region = &described->regions[index];

	if (region->kind == CEOV_PLACE_HOST && !region->has_fd)
		return 0;
	return described->kind == CEI_EXPORT_BUFFER ||
	       region->kind == (index ? CEOV_PLACE_GPU : CEOV_PLACE_HOST);
}

static int is_described(const void *value)
{
	const struct cei_wire_described *described = value;
	uint32_t i;

	for (i = 0; i < described->n_regions; i++)
		if (!fits(described, i))
			return 0;
	return described->n_regions == regions_of(described);
}

static const struct cei_field described_fields[] = {
	{ CEI_U32, CEI_AT(cei_wire_described, kind),
	  .least = CEI_EXPORT_BUFFER, .most = CEI_EXPORT_SIGNAL },
	{ CEI_U32, CEI_AT(cei_wire_described, place_kind), .most = CEOV_PLACE_GPU },
	{ CEI_U32, CEI_AT(cei_wire_described, n_counters) },
	{ CEI_U32, CEI_AT(cei_wire_described, flags), .most = CEOV_SIGNAL_HOST_VISIBLE },
	{ CEI_LIST, CEI_AT(cei_wire_described, regions),
	  CEI_COUNT(cei_wire_described, n_regions), .least = 1, .of = &cei_region_layout },
};
const struct cei_layout cei_described_layout =
	CEI_LAYOUT(described_fields, cei_wire_described, is_described);

void cei_wire_get_described(struct cei_reader *reader, uint32_t n_fds,
			    struct cei_wire_described *ret_described)
{
	uint32_t i;

	cei_get_layout(reader, &cei_described_layout, ret_described);
	for (i = 0; i < ret_described->n_regions; i++)
		n_fds -= ret_described->regions[i].has_fd;
	if (n_fds)
		reader->failed = 1;
}

/* --- messages ------------------------------------------------------------- */

static const struct cei_layout rank_layout = CEI_ONE_U32;

static const struct cei_field party_fields[] = {
	{ CEI_LIST, CEI_AT(cei_party, ranks),
	  CEI_COUNT(cei_party, n_ranks), .least = 1, .of = &rank_layout },
};

static const struct cei_field hello_fields[] = {
	{ CEI_U32, CEI_AT(cei_wire_hello, n_ranks) },
	{ CEI_LIST, CEI_AT(cei_wire_hello, party.ranks),
	  CEI_COUNT(cei_wire_hello, party.n_ranks), .least = 1, .of = &rank_layout },
};

static const struct cei_field welcome_fields[] = {
	{ CEI_U32, CEI_AT(cei_wire_welcome, n_links) },
	{ CEI_LIST, CEI_AT(cei_wire_welcome, party.ranks),
	  CEI_COUNT(cei_wire_welcome, party.n_ranks), .least = 1, .of = &rank_layout },
};

/* A later version may define further errors (< 0), but 0 and above mean success. */
static const struct cei_field refuse_fields[] = {
	{ CEI_I32, CEI_AT(cei_wire_refuse, error), .least = INT32_MIN, .most = -1 },
	{ CEI_TEXT, CEI_AT(cei_wire_refuse, text) },
};

static const struct cei_message_kind kinds[] = {
	[CEI_MESSAGE_HELLO] = { "HELLO", CEI_LAYOUT(hello_fields, cei_wire_hello, NULL) },
	[CEI_MESSAGE_REFUSE] = { "REFUSE", CEI_LAYOUT(refuse_fields, cei_wire_refuse, NULL) },
	[CEI_MESSAGE_JOINED] = { "JOINED", CEI_NOTHING },
	[CEI_MESSAGE_LINK] = { "LINK", CEI_LAYOUT(party_fields, cei_party, NULL) },
	[CEI_MESSAGE_WELCOME] = { "WELCOME", CEI_LAYOUT(welcome_fields, cei_wire_welcome, NULL) },
};

static const struct cei_field head_fields[] = {
	{ CEI_U32, CEI_AT(cei_message, magic) },
	{ CEI_U32, CEI_AT(cei_message, version) },
	{ CEI_U32, CEI_AT(cei_message, type) },
	{ CEI_U32, CEI_AT(cei_message, n_bytes) },
};
static const struct cei_layout head = CEI_LAYOUT(head_fields, cei_message, NULL);

const struct cei_protocol cei_message_protocol = {
	.magic = CEI_WIRE_MAGIC,
	.version = CEI_WIRE_VERSION,
	.other_magic = CEOV_ERR_VERSION,
	.has_length = 1,
	.refusal = CEI_MESSAGE_REFUSE,
	.n_bytes_max = CEI_MESSAGE_BYTES_MAX,
	.body_at = offsetof(struct cei_message, hello),
	.head = &head,
	CEI_KINDS(kinds),
};

size_t cei_message_encode(const struct cei_message *message, uint8_t *bytes)
{
	return cei_encode(&cei_message_protocol, message, bytes);
}

int cei_message_decode(const uint8_t *bytes, size_t n_bytes, struct cei_message *ret_message)
{
	return cei_decode(&cei_message_protocol, bytes, n_bytes, ret_message);
}
