/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The tables of messages between a daemon and its clients, and offers of memory beside them:
 * gathering, writing and reading. */

#include "ipc/service_wire.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "base/report.h"
#include "ipc/share.h"

static const struct cei_field member_fields[] = {
	{ CEI_U32, CEI_AT(cei_service_member, rank) },
	{ CEI_U32, CEI_AT(cei_service_member, kind), .most = CEOV_PLACE_GPU },
	{ CEI_RAW, CEI_AT(cei_service_member, uuid) },
};
static const struct cei_layout member_layout = CEI_LAYOUT(member_fields, cei_service_member, NULL);

/* Ranks of the group, each once. */
static int are_members(const struct cei_service_hello *hello)
{
	uint32_t i, k;

	for (i = 0; i < hello->n_members; i++) {
		if (hello->members[i].rank >= hello->n_ranks)
			return 0;
		for (k = 0; k < i; k++)
			if (hello->members[k].rank == hello->members[i].rank)
				return 0;
	}
	return 1;
}

static int is_hello(const void *value)
{
	const struct cei_service_hello *hello = value;

	return are_members(hello) && !hello->name[sizeof(hello->name) - 1];
}

static const struct cei_field hello_fields[] = {
	{ CEI_U32, CEI_AT(cei_service_hello, n_ranks), .least = 1, .most = CEI_RANKS_MAX },
	{ CEI_LIST, CEI_AT(cei_service_hello, members),
	  CEI_COUNT(cei_service_hello, n_members), .least = 1, .of = &member_layout },
	{ CEI_U64, CEI_AT(cei_service_hello, deadline_ns), .least = 1 },
	{ CEI_U64, CEI_AT(cei_service_hello, max_chunk_bytes), .least = 1 },
	{ CEI_U32, CEI_AT(cei_service_hello, urgency), .most = CEOV_URGENCY_BACKGROUND },
	{ CEI_RAW, CEI_AT(cei_service_hello, name) },
};

static int is_welcome(const void *value)
{
	const struct cei_service_welcome *welcome = value;

	return !(welcome->serves >> CEI_MEMBERS_MAX) &&
	       (uint32_t)__builtin_popcount(welcome->serves) == welcome->n_rings;
}

static const struct cei_field welcome_fields[] = {
	{ CEI_U64, CEI_AT(cei_service_welcome, instance) },
	{ CEI_U32, CEI_AT(cei_service_welcome, serves) },
	{ CEI_U32, CEI_AT(cei_service_welcome, n_rings), .least = 1 },
	{ CEI_U32, CEI_AT(cei_service_welcome, n_plans_max) },
	{ CEI_U32, CEI_AT(cei_service_welcome, n_transfers_max) },
	{ CEI_U64, CEI_AT(cei_service_welcome, n_bytes_max) },
};

static int is_plan(const void *value)
{
	const struct cei_service_plan *plan = value;

	return plan->n_fds <= plan->n_memories &&
	       plan->n_bytes > (uint64_t)plan->n_memories * CEI_WIRE_REGION_BYTES;
}

static const struct cei_field plan_fields[] = {
	{ CEI_U32, CEI_AT(cei_service_plan, n_bytes) },
	{ CEI_U32, CEI_AT(cei_service_plan, n_memories) },
	{ CEI_U32, CEI_AT(cei_service_plan, n_fds) },
};

static const struct cei_field part_fields[] = {
	{ CEI_VIEW, CEI_AT(cei_service_part, bytes),
	  CEI_COUNT(cei_service_part, n_bytes), .most = CEI_SERVICE_PART_BYTES },
};

static const struct cei_field handle_fields[] = {
	{ CEI_U32, CEI_AT(cei_service_handle, slot) },
	{ CEI_U32, CEI_AT(cei_service_handle, generation) },
};

static const struct cei_field stayed_fields[] = {
	{ CEI_U64, CEI_AT(cei_service_stayed, n_plans) },
};

static int is_failure(const void *value)
{
	const struct ceov_failure *failure = value;

	return !failure->text[sizeof(failure->text) - 1];
}

static const struct cei_field failure_fields[] = {
	{ CEI_I32, CEI_AT(ceov_failure, error), .least = CEI_ERROR_LOWEST, .most = -1 },
	{ CEI_U32, CEI_AT(ceov_failure, native_code) },
	{ CEI_U32, CEI_AT(ceov_failure, rank) },
	{ CEI_U32, CEI_AT(ceov_failure, transfer) },
	{ CEI_U64, CEI_AT(ceov_failure, chunk) },
	{ CEI_U64, CEI_AT(ceov_failure, mark_value) },
	{ CEI_U64, CEI_AT(ceov_failure, seen_value) },
	{ CEI_RAW, CEI_AT(ceov_failure, text) },
};

static const struct cei_message_kind kinds[] = {
	[CEI_SERVICE_HELLO] = { "HELLO", CEI_LAYOUT(hello_fields, cei_service_hello, is_hello) },
	[CEI_SERVICE_WELCOME] = {
		"WELCOME", CEI_LAYOUT(welcome_fields, cei_service_welcome, is_welcome),
	},
	[CEI_SERVICE_REFUSED] = { "REFUSED", CEI_LAYOUT(failure_fields, ceov_failure, is_failure) },
	[CEI_SERVICE_READY] = { "READY", CEI_NOTHING },
	[CEI_SERVICE_PLAN] = { "PLAN", CEI_LAYOUT(plan_fields, cei_service_plan, is_plan) },
	[CEI_SERVICE_PART] = { "PART", CEI_LAYOUT(part_fields, cei_service_part, NULL) },
	[CEI_SERVICE_COMMITTED] = {
		"COMMITTED", CEI_LAYOUT(handle_fields, cei_service_handle, NULL),
	},
	[CEI_SERVICE_DROP] = { "DROP", CEI_LAYOUT(handle_fields, cei_service_handle, NULL) },
	[CEI_SERVICE_DROPPED] = { "DROPPED", CEI_NOTHING },
	[CEI_SERVICE_EXPLAIN] = { "EXPLAIN", CEI_LAYOUT(handle_fields, cei_service_handle, NULL) },
	[CEI_SERVICE_EXPLAINED] = { "EXPLAINED", CEI_NOTHING },
	[CEI_SERVICE_FAILURE] = { "FAILURE", CEI_LAYOUT(failure_fields, ceov_failure, is_failure) },
	[CEI_SERVICE_BYE] = { "BYE", CEI_NOTHING },
	[CEI_SERVICE_STAYED] = { "STAYED", CEI_LAYOUT(stayed_fields, cei_service_stayed, NULL) },
};

static const struct cei_field head_fields[] = {
	{ CEI_U32, CEI_AT(cei_service_message, magic) },
	{ CEI_U32, CEI_AT(cei_service_message, version) },
	{ CEI_U32, CEI_AT(cei_service_message, type) },
	{ CEI_U32, CEI_AT(cei_service_message, number) },
};
static const struct cei_layout head = CEI_LAYOUT(head_fields, cei_service_message, NULL);

const struct cei_protocol cei_service_protocol = {
	.magic = CEI_SERVICE_MAGIC,
	.version = CEI_SERVICE_VERSION,
	.other_magic = CEOV_ERR_VERSION,
	.refusal = CEI_SERVICE_REFUSED,
	.n_bytes_max = CEI_SERVICE_BYTES_MAX,
	.body_at = offsetof(struct cei_service_message, hello),
	.head = &head,
	CEI_KINDS(kinds),
};

/* --- offers of memory ---------------------------------------------------------- */

int cei_offer_init(struct cei_service_offer *offer, uint32_t n_room)
{
	memset(offer, 0, sizeof(*offer));
	offer->memories = calloc((size_t)n_room + 1, sizeof(*offer->memories));
	offer->fds = calloc((size_t)n_room + 1, sizeof(*offer->fds));
	offer->n_room = n_room;
	return offer->memories && offer->fds ? 0 : CEOV_ERR_NO_MEMORY;
}

void cei_offer_fini(struct cei_service_offer *offer)
{
	free(offer->memories);
	free(offer->fds);
	memset(offer, 0, sizeof(*offer));
}

int cei_offer_add(struct cei_service_offer *offer, struct cei_region *region)
{
	int fd, r;

	assert(offer->n_memories < offer->n_room);
	r = cei_region_describe(region, &offer->memories[offer->n_memories], &fd);
	if (r)
		return r;
	offer->n_memories++;
	if (fd >= 0)
		offer->fds[offer->n_fds++] = fd;
	return 0;
}

size_t cei_offer_bytes(const struct cei_service_offer *offer)
{
	return (size_t)offer->n_memories * CEI_WIRE_REGION_BYTES;
}

void cei_offer_write(const struct cei_service_offer *offer, uint8_t *bytes)
{
	struct cei_writer writer = cei_writer_on(bytes, cei_offer_bytes(offer));
	uint32_t i;

	for (i = 0; i < offer->n_memories; i++)
		cei_put_layout(&writer, &cei_region_layout, &offer->memories[i]);
}

int cei_offer_take(struct cei_service_taken *taken, struct cei_region_wire *ret_wire, int *ret_fd)
{
	struct cei_reader reader;

	if (taken->next_memory == taken->n_memories)
		return CEOV_ERR_INVALID;
	reader = cei_reader_on(taken->bytes + (size_t)taken->next_memory * CEI_WIRE_REGION_BYTES,
			       CEI_WIRE_REGION_BYTES);
	cei_get_layout(&reader, &cei_region_layout, ret_wire);
	if (cei_reader_end(&reader) || (ret_wire->has_fd && taken->next_fd == taken->n_fds))
		return CEOV_ERR_INVALID;
	taken->next_memory++;
	*ret_fd = -1;
	if (!ret_wire->has_fd)
		return 0;
	*ret_fd = taken->fds[taken->next_fd];
	taken->fds[taken->next_fd++] = -1;
	return 0;
}

int cei_offer_is_taken(const struct cei_service_taken *taken)
{
	return taken->next_memory == taken->n_memories && taken->next_fd == taken->n_fds;
}
