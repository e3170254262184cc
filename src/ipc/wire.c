/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Encodes and decodes messages. Every byte is written and read by the cursors of base/cursor.h, so
 * bounds are checked in one place. */

#include "ipc/wire.h"

#include <assert.h>
#include <string.h>

#include "base/report.h"

#define HEAD_BYTES 16u

/* --- regions ------------------------------------------------------------- */

void cei_wire_put_region(struct cei_writer *writer, const struct cei_region_wire *region)
{
	cei_wire_put_u32(writer, region->kind);
	cei_wire_put_u32(writer, region->has_fd);
	cei_wire_put_u64(writer, region->size_bytes);
	cei_wire_put_u64(writer, region->offset_bytes);
	cei_wire_put_u64(writer, region->device);
	cei_wire_put_u64(writer, region->buffer_id);
	cei_wire_put_u64(writer, region->instance[0]);
	cei_wire_put_u64(writer, region->instance[1]);
	cei_wire_put_u64(writer, region->pid);
	cei_wire_put_bytes(writer, region->handle, sizeof(region->handle));
	cei_wire_put_bytes(writer, region->uuid, sizeof(region->uuid));
}

void cei_wire_get_region(struct cei_reader *reader, struct cei_region_wire *ret_region)
{
	ret_region->kind = cei_wire_get_u32(reader);
	ret_region->has_fd = cei_wire_get_u32(reader);
	ret_region->size_bytes = cei_wire_get_u64(reader);
	ret_region->offset_bytes = cei_wire_get_u64(reader);
	ret_region->device = cei_wire_get_u64(reader);
	ret_region->buffer_id = cei_wire_get_u64(reader);
	ret_region->instance[0] = cei_wire_get_u64(reader);
	ret_region->instance[1] = cei_wire_get_u64(reader);
	ret_region->pid = cei_wire_get_u64(reader);
	cei_wire_get_bytes(reader, ret_region->handle, sizeof(ret_region->handle));
	cei_wire_get_bytes(reader, ret_region->uuid, sizeof(ret_region->uuid));
	if (ret_region->kind > CEOV_PLACE_GPU || ret_region->has_fd > 1 ||
	    !ret_region->size_bytes ||
	    ret_region->offset_bytes > UINT64_MAX - ret_region->size_bytes)
		reader->failed = 1;
	if (reader->failed)
		memset(ret_region, 0, sizeof(*ret_region));
}

/* --- what buffers and signals export -------------------------------------- */

void cei_wire_put_described(struct cei_writer *writer,
			    const struct cei_wire_described *described)
{
	uint32_t i;

	cei_wire_put_u32(writer, described->kind);
	cei_wire_put_u32(writer, described->place_kind);
	cei_wire_put_u32(writer, described->n_counters);
	cei_wire_put_u32(writer, described->flags);
	cei_wire_put_u32(writer, described->n_regions);
	for (i = 0; i < described->n_regions; i++)
		cei_wire_put_region(writer, &described->regions[i]);
}

/* Returns how many regions an export with these fields must have; 0: the fields are invalid. */
static uint32_t regions_of(const struct cei_wire_described *described)
{
	if (described->kind == CEI_EXPORT_BUFFER)
		return !described->place_kind && !described->n_counters && !described->flags;
	if (described->kind != CEI_EXPORT_SIGNAL || !described->n_counters ||
	    described->place_kind > CEOV_PLACE_GPU ||
	    described->flags & ~(uint32_t)CEOV_SIGNAL_HOST_VISIBLE)
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

void cei_wire_get_described(struct cei_reader *reader, uint32_t n_fds,
			    struct cei_wire_described *ret_described)
{
	uint32_t i, n_needed = 0;

	memset(ret_described, 0, sizeof(*ret_described));
	ret_described->kind = cei_wire_get_u32(reader);
	ret_described->place_kind = cei_wire_get_u32(reader);
	ret_described->n_counters = cei_wire_get_u32(reader);
	ret_described->flags = cei_wire_get_u32(reader);
	ret_described->n_regions = cei_wire_get_u32(reader);
	if (!ret_described->n_regions ||
	    ret_described->n_regions != regions_of(ret_described)) {
		reader->failed = 1;
		return;
	}
	for (i = 0; i < ret_described->n_regions; i++) {
		cei_wire_get_region(reader, &ret_described->regions[i]);
		if (!fits(ret_described, i))
			reader->failed = 1;
		n_needed += ret_described->regions[i].has_fd;
	}
	if (n_needed != n_fds)
		reader->failed = 1;
}

/* --- parts of messages --------------------------------------------------- */

/* Writes a text and fills the rest of its field with zeros, so that no uninitialised memory leaves
 * the process. */
static void put_text(struct cei_writer *writer, const char *text, size_t room_bytes)
{
	static const char zeros[CEI_WIRE_TEXT_BYTES];
	size_t n_bytes = strnlen(text, room_bytes - 1);

	assert(room_bytes <= sizeof(zeros));
	cei_wire_put_bytes(writer, text, n_bytes);
	cei_wire_put_bytes(writer, zeros, room_bytes - n_bytes);
}

static void get_text(struct cei_reader *reader, char *ret_text, size_t room_bytes)
{
	cei_wire_get_bytes(reader, ret_text, room_bytes);
	if (ret_text[room_bytes - 1]) {
		ret_text[room_bytes - 1] = 0;
		reader->failed = 1;
	}
}

static void get_name(struct cei_reader *reader, char *ret_name)
{
	get_text(reader, ret_name, CEI_NAME_BYTES);
	if (!ret_name[0])
		reader->failed = 1;
}

static void put_party(struct cei_writer *writer, const struct cei_wire_party *party)
{
	uint32_t i;

	cei_wire_put_u32(writer, party->n_ranks);
	for (i = 0; i < party->n_ranks; i++)
		cei_wire_put_u32(writer, party->ranks[i]);
}

static void get_party(struct cei_reader *reader, struct cei_wire_party *ret_party)
{
	uint32_t i;

	ret_party->n_ranks = cei_wire_get_u32(reader);
	if (!ret_party->n_ranks || ret_party->n_ranks > CEI_MEMBERS_MAX) {
		reader->failed = 1;
		return;
	}
	for (i = 0; i < ret_party->n_ranks; i++)
		ret_party->ranks[i] = cei_wire_get_u32(reader);
}

static void put_export(struct cei_writer *writer, const struct cei_export *export)
{
	cei_wire_put_u32(writer, export->rank);
	put_text(writer, export->name, CEI_NAME_BYTES);
	cei_wire_put_u32(writer, export->n_fds);
	cei_wire_put_u32(writer, export->n_bytes);
	cei_wire_put_bytes(writer, export->bytes, export->n_bytes);
}

static void get_export(struct cei_reader *reader, struct cei_export *ret_export)
{
	uint32_t i;

	ret_export->rank = cei_wire_get_u32(reader);
	get_name(reader, ret_export->name);
	ret_export->n_fds = cei_wire_get_u32(reader);
	ret_export->n_bytes = cei_wire_get_u32(reader);
	for (i = 0; i < CEI_EXPORT_FDS_MAX; i++)
		ret_export->fds[i] = -1;
	if (ret_export->n_fds > CEI_EXPORT_FDS_MAX ||
	    ret_export->n_bytes > CEI_EXPORT_BYTES_MAX) {
		reader->failed = 1;
		return;
	}
	cei_wire_get_bytes(reader, ret_export->bytes, ret_export->n_bytes);
}

static void put_reply(struct cei_writer *writer, const struct cei_wire_reply *reply)
{
	cei_wire_put_u64(writer, reply->number);
	cei_wire_put_u32(writer, (uint32_t)reply->result);
	cei_wire_put_u32(writer, (uint32_t)reply->native_code);
	if (reply->result)
		return;
	cei_wire_put_u64(writer, reply->id);
	put_export(writer, &reply->export);
}

static void get_reply(struct cei_reader *reader, struct cei_wire_reply *ret_reply)
{
	ret_reply->number = cei_wire_get_u64(reader);
	ret_reply->result = (int32_t)cei_wire_get_u32(reader);
	ret_reply->native_code = (int32_t)cei_wire_get_u32(reader);
	if (ret_reply->result > 0 && ret_reply->result != CEOV_NONE)
		reader->failed = 1;
	if (ret_reply->result < CEI_ERROR_LOWEST)
		reader->failed = 1;
	if (ret_reply->result)
		return;
	ret_reply->id = cei_wire_get_u64(reader);
	get_export(reader, &ret_reply->export);
}

static void get_refuse(struct cei_reader *reader, struct cei_wire_refuse *ret_refuse)
{
	ret_refuse->error = (int32_t)cei_wire_get_u32(reader);
	get_text(reader, ret_refuse->text, CEI_WIRE_TEXT_BYTES);
	/* A later version may define further errors (< 0), but 0 and above mean success. */
	if (ret_refuse->error >= 0)
		reader->failed = 1;
}

/* --- whole messages ------------------------------------------------------ */

static void put_body(struct cei_writer *writer, const struct cei_message *message)
{
	switch ((enum cei_message_type)message->type) {
	case CEI_MESSAGE_HELLO:
		cei_wire_put_u32(writer, message->hello.n_ranks);
		put_party(writer, &message->hello.party);
		break;
	case CEI_MESSAGE_REFUSE:
		cei_wire_put_u32(writer, (uint32_t)message->refuse.error);
		put_text(writer, message->refuse.text, CEI_WIRE_TEXT_BYTES);
		break;
	case CEI_MESSAGE_LINK:
		put_party(writer, &message->link);
		break;
	case CEI_MESSAGE_WELCOME:
		cei_wire_put_u32(writer, message->welcome.n_links);
		put_party(writer, &message->welcome.party);
		break;
	case CEI_MESSAGE_FIND:
		cei_wire_put_u64(writer, message->find.number);
		cei_wire_put_u32(writer, message->find.rank);
		put_text(writer, message->find.name, CEI_NAME_BYTES);
		break;
	case CEI_MESSAGE_REPLY:
		put_reply(writer, &message->reply);
		break;
	case CEI_MESSAGE_DROP:
		cei_wire_put_u64(writer, message->id);
		break;
	case CEI_MESSAGE_BARRIER:
		cei_wire_put_u64(writer, message->n_calls);
		break;
	case CEI_MESSAGE_LOST:
	case CEI_MESSAGE_MISSING:
		cei_wire_put_u32(writer, message->rank);
		break;
	case CEI_MESSAGE_JOINED:
	case CEI_MESSAGE_BYE:
		break;
	}
}

static void get_body(struct cei_reader *reader, struct cei_message *ret_message)
{
	switch ((enum cei_message_type)ret_message->type) {
	case CEI_MESSAGE_HELLO:
		ret_message->hello.n_ranks = cei_wire_get_u32(reader);
		get_party(reader, &ret_message->hello.party);
		return;
	case CEI_MESSAGE_REFUSE:
		get_refuse(reader, &ret_message->refuse);
		return;
	case CEI_MESSAGE_LINK:
		get_party(reader, &ret_message->link);
		return;
	case CEI_MESSAGE_WELCOME:
		ret_message->welcome.n_links = cei_wire_get_u32(reader);
		get_party(reader, &ret_message->welcome.party);
		return;
	case CEI_MESSAGE_FIND:
		ret_message->find.number = cei_wire_get_u64(reader);
		ret_message->find.rank = cei_wire_get_u32(reader);
		get_name(reader, ret_message->find.name);
		return;
	case CEI_MESSAGE_REPLY:
		get_reply(reader, &ret_message->reply);
		return;
	case CEI_MESSAGE_DROP:
		ret_message->id = cei_wire_get_u64(reader);
		return;
	case CEI_MESSAGE_BARRIER:
		ret_message->n_calls = cei_wire_get_u64(reader);
		return;
	case CEI_MESSAGE_LOST:
	case CEI_MESSAGE_MISSING:
		ret_message->rank = cei_wire_get_u32(reader);
		return;
	case CEI_MESSAGE_JOINED:
	case CEI_MESSAGE_BYE:
		return;
	}
	reader->failed = 1;     /* an unknown type */
}

size_t cei_message_encode(const struct cei_message *message, uint8_t *bytes)
{
	struct cei_writer head = cei_writer_on(bytes, HEAD_BYTES);
	struct cei_writer body = cei_writer_on(bytes + HEAD_BYTES,
					       CEI_MESSAGE_BYTES_MAX - HEAD_BYTES);

	put_body(&body, message);
	cei_wire_put_u32(&head, CEI_WIRE_MAGIC);
	cei_wire_put_u32(&head, CEI_WIRE_VERSION);
	cei_wire_put_u32(&head, message->type);
	cei_wire_put_u32(&head, (uint32_t)body.at);
	assert(!head.failed && !body.failed);
	return head.at + body.at;
}

int cei_message_decode(const uint8_t *bytes, size_t n_bytes,
		       struct cei_message *ret_message)
{
	struct cei_reader reader = cei_reader_on(bytes, n_bytes);
	uint32_t n_body_bytes;

	memset(ret_message, 0, sizeof(*ret_message));
	ret_message->magic = cei_wire_get_u32(&reader);
	ret_message->version = cei_wire_get_u32(&reader);
	ret_message->type = cei_wire_get_u32(&reader);
	n_body_bytes = cei_wire_get_u32(&reader);
	if (reader.failed)
		return CEOV_ERR_INVALID;
	if (ret_message->magic != CEI_WIRE_MAGIC)
		return CEOV_ERR_VERSION;
	if (ret_message->version != CEI_WIRE_VERSION &&
	    ret_message->type != CEI_MESSAGE_REFUSE)
		return CEOV_ERR_VERSION;
	if (n_body_bytes != reader.n_bytes - reader.at)
		return CEOV_ERR_INVALID;
	get_body(&reader, ret_message);
	return cei_reader_end(&reader);
}
