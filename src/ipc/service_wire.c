/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Encodes and decodes messages between a daemon and its clients. */

#include "ipc/service_wire.h"

#include <string.h>

#include "base/cursor.h"
#include "base/report.h"
#include "ipc/wire.h"

/* --- bodies --------------------------------------------------------------- */

static void put_hello(struct cei_writer *writer, const struct cei_service_hello *hello)
{
	const struct cei_service_member *member;
	uint32_t i;

	cei_wire_put_u32(writer, hello->n_ranks);
	cei_wire_put_u32(writer, hello->n_members);
	for (i = 0; i < hello->n_members; i++) {
		member = &hello->members[i];
		cei_wire_put_u32(writer, member->rank);
		cei_wire_put_u32(writer, member->kind);
		cei_wire_put_bytes(writer, member->uuid, sizeof(member->uuid));
	}
	cei_wire_put_u64(writer, hello->deadline_ns);
	cei_wire_put_u64(writer, hello->max_chunk_bytes);
	cei_wire_put_u32(writer, hello->urgency);
	cei_wire_put_bytes(writer, hello->name, sizeof(hello->name));
}

/* Makes the reader fail. */
static void refuse(struct cei_reader *reader, int is_wrong)
{
	if (is_wrong)
		reader->failed = 1;
}

static void get_member(struct cei_reader *reader, const struct cei_service_hello *hello,
		       struct cei_service_member *ret_member)
{
	const struct cei_service_member *before;

	ret_member->rank = cei_wire_get_u32(reader);
	ret_member->kind = cei_wire_get_u32(reader);
	cei_wire_get_bytes(reader, ret_member->uuid, sizeof(ret_member->uuid));
	refuse(reader, ret_member->rank >= hello->n_ranks);
	refuse(reader, ret_member->kind != CEOV_PLACE_HOST && ret_member->kind != CEOV_PLACE_GPU);
	for (before = hello->members; before < ret_member; before++)
		refuse(reader, before->rank == ret_member->rank);
}

static void get_hello(struct cei_reader *reader, struct cei_service_hello *ret_hello)
{
	uint32_t i;

	ret_hello->n_ranks = cei_wire_get_u32(reader);
	ret_hello->n_members = cei_wire_get_u32(reader);
	refuse(reader, !ret_hello->n_ranks || ret_hello->n_ranks > CEI_RANKS_MAX);
	refuse(reader, !ret_hello->n_members || ret_hello->n_members > CEI_MEMBERS_MAX);
	for (i = 0; !reader->failed && i < ret_hello->n_members; i++)
		get_member(reader, ret_hello, &ret_hello->members[i]);
	ret_hello->deadline_ns = cei_wire_get_u64(reader);
	ret_hello->max_chunk_bytes = cei_wire_get_u64(reader);
	ret_hello->urgency = cei_wire_get_u32(reader);
	cei_wire_get_bytes(reader, ret_hello->name, sizeof(ret_hello->name));
	refuse(reader, !ret_hello->deadline_ns || !ret_hello->max_chunk_bytes);
	refuse(reader, ret_hello->urgency > CEOV_URGENCY_BACKGROUND);
	refuse(reader, ret_hello->name[sizeof(ret_hello->name) - 1]);
}

static void put_welcome(struct cei_writer *writer, const struct cei_service_welcome *welcome)
{
	cei_wire_put_u64(writer, welcome->instance[0]);
	cei_wire_put_u64(writer, welcome->instance[1]);
	cei_wire_put_u32(writer, welcome->serves);
	cei_wire_put_u32(writer, welcome->n_rings);
	cei_wire_put_u32(writer, welcome->n_plans_max);
	cei_wire_put_u32(writer, welcome->n_transfers_max);
	cei_wire_put_u64(writer, welcome->n_bytes_max);
}

static void get_welcome(struct cei_reader *reader, struct cei_service_welcome *ret_welcome)
{
	ret_welcome->instance[0] = cei_wire_get_u64(reader);
	ret_welcome->instance[1] = cei_wire_get_u64(reader);
	ret_welcome->serves = cei_wire_get_u32(reader);
	ret_welcome->n_rings = cei_wire_get_u32(reader);
	ret_welcome->n_plans_max = cei_wire_get_u32(reader);
	ret_welcome->n_transfers_max = cei_wire_get_u32(reader);
	ret_welcome->n_bytes_max = cei_wire_get_u64(reader);
	refuse(reader, !ret_welcome->n_rings || ret_welcome->serves >> CEI_MEMBERS_MAX ||
	       (uint32_t)__builtin_popcount(ret_welcome->serves) != ret_welcome->n_rings);
}

static void put_plan(struct cei_writer *writer, const struct cei_service_plan *plan)
{
	cei_wire_put_u32(writer, plan->n_bytes);
	cei_wire_put_u32(writer, plan->n_memories);
	cei_wire_put_u32(writer, plan->n_fds);
}

static void get_plan(struct cei_reader *reader, struct cei_service_plan *ret_plan)
{
	ret_plan->n_bytes = cei_wire_get_u32(reader);
	ret_plan->n_memories = cei_wire_get_u32(reader);
	ret_plan->n_fds = cei_wire_get_u32(reader);
	refuse(reader, ret_plan->n_fds > ret_plan->n_memories);
	refuse(reader, ret_plan->n_bytes <=
	       (uint64_t)ret_plan->n_memories * CEI_WIRE_REGION_BYTES);
}

static void put_part(struct cei_writer *writer, const struct cei_service_part *part)
{
	cei_wire_put_u32(writer, part->n_bytes);
	cei_wire_put_bytes(writer, part->bytes, part->n_bytes);
}

static void get_part(struct cei_reader *reader, struct cei_service_part *ret_part)
{
	ret_part->n_bytes = cei_wire_get_u32(reader);
	refuse(reader, ret_part->n_bytes > CEI_SERVICE_PART_BYTES ||
	       ret_part->n_bytes > reader->n_bytes - reader->at);
	if (reader->failed)
		return;
	ret_part->bytes = reader->bytes + reader->at;
	reader->at += ret_part->n_bytes;
}

static void put_failure(struct cei_writer *writer, const struct ceov_failure *failure)
{
	cei_wire_put_u32(writer, (uint32_t)failure->error);
	cei_wire_put_u32(writer, (uint32_t)failure->native_code);
	cei_wire_put_u32(writer, failure->rank);
	cei_wire_put_u32(writer, failure->transfer);
	cei_wire_put_u64(writer, failure->chunk);
	cei_wire_put_u64(writer, failure->mark_value);
	cei_wire_put_u64(writer, failure->seen_value);
	cei_wire_put_bytes(writer, failure->text, sizeof(failure->text));
}

static void get_failure(struct cei_reader *reader, struct ceov_failure *ret_failure)
{
	ret_failure->error = (int)cei_wire_get_u32(reader);
	ret_failure->native_code = (int)cei_wire_get_u32(reader);
	ret_failure->rank = cei_wire_get_u32(reader);
	ret_failure->transfer = cei_wire_get_u32(reader);
	ret_failure->chunk = cei_wire_get_u64(reader);
	ret_failure->mark_value = cei_wire_get_u64(reader);
	ret_failure->seen_value = cei_wire_get_u64(reader);
	cei_wire_get_bytes(reader, ret_failure->text, sizeof(ret_failure->text));
	refuse(reader, ret_failure->error >= 0 || ret_failure->error < CEI_ERROR_LOWEST);
	refuse(reader, ret_failure->text[sizeof(ret_failure->text) - 1]);
}

static void put_handle(struct cei_writer *writer, const struct cei_service_handle *handle)
{
	cei_wire_put_u32(writer, handle->slot);
	cei_wire_put_u32(writer, handle->generation);
}

static void get_handle(struct cei_reader *reader, struct cei_service_handle *ret_handle)
{
	ret_handle->slot = cei_wire_get_u32(reader);
	ret_handle->generation = cei_wire_get_u32(reader);
}

/* --- messages --------------------------------------------------------------- */

static void put_body(struct cei_writer *writer, const struct cei_service_message *message)
{
	switch ((enum cei_service_type)message->type) {
	case CEI_SERVICE_HELLO:     put_hello(writer, &message->hello); break;
	case CEI_SERVICE_WELCOME:   put_welcome(writer, &message->welcome); break;
	case CEI_SERVICE_PLAN:      put_plan(writer, &message->plan); break;
	case CEI_SERVICE_PART:      put_part(writer, &message->part); break;
	case CEI_SERVICE_COMMITTED:
	case CEI_SERVICE_DROP:
	case CEI_SERVICE_EXPLAIN:   put_handle(writer, &message->handle); break;
	case CEI_SERVICE_REFUSED:
	case CEI_SERVICE_FAILURE:   put_failure(writer, &message->failure); break;
	case CEI_SERVICE_STAYED:    cei_wire_put_u64(writer, message->stayed.n_plans); break;
	case CEI_SERVICE_READY:
	case CEI_SERVICE_EXPLAINED:
	case CEI_SERVICE_DROPPED:
	case CEI_SERVICE_BYE:       break;
	}
}

size_t cei_service_encode(const struct cei_service_message *message, uint8_t *bytes)
{
	struct cei_writer writer = cei_writer_on(bytes, CEI_SERVICE_BYTES_MAX);

	cei_wire_put_u32(&writer, CEI_SERVICE_MAGIC);
	cei_wire_put_u32(&writer, CEI_SERVICE_VERSION);
	cei_wire_put_u32(&writer, message->type);
	cei_wire_put_u32(&writer, message->number);
	put_body(&writer, message);
	return writer.at;
}

static void get_body(struct cei_reader *reader, struct cei_service_message *message)
{
	switch ((enum cei_service_type)message->type) {
	case CEI_SERVICE_HELLO:     get_hello(reader, &message->hello); break;
	case CEI_SERVICE_WELCOME:   get_welcome(reader, &message->welcome); break;
	case CEI_SERVICE_PLAN:      get_plan(reader, &message->plan); break;
	case CEI_SERVICE_PART:      get_part(reader, &message->part); break;
	case CEI_SERVICE_COMMITTED:
	case CEI_SERVICE_DROP:
	case CEI_SERVICE_EXPLAIN:   get_handle(reader, &message->handle); break;
	case CEI_SERVICE_REFUSED:
	case CEI_SERVICE_FAILURE:   get_failure(reader, &message->failure); break;
	case CEI_SERVICE_STAYED:    message->stayed.n_plans = cei_wire_get_u64(reader); break;
	case CEI_SERVICE_READY:
	case CEI_SERVICE_EXPLAINED:
	case CEI_SERVICE_DROPPED:
	case CEI_SERVICE_BYE:       break;
	default:                    reader->failed = 1; break;
	}
}

int cei_service_decode(const uint8_t *bytes, size_t n_bytes,
		       struct cei_service_message *ret_message)
{
	struct cei_reader reader = cei_reader_on(bytes, n_bytes);

	memset(ret_message, 0, sizeof(*ret_message));
	ret_message->magic = cei_wire_get_u32(&reader);
	ret_message->version = cei_wire_get_u32(&reader);
	ret_message->type = cei_wire_get_u32(&reader);
	ret_message->number = cei_wire_get_u32(&reader);
	if (reader.failed)
		return CEOV_ERR_INVALID;
	if (ret_message->magic != CEI_SERVICE_MAGIC ||
	    (ret_message->version != CEI_SERVICE_VERSION &&
	     ret_message->type != CEI_SERVICE_REFUSED))
		return CEOV_ERR_VERSION;
	get_body(&reader, ret_message);
	return cei_reader_end(&reader);
}
