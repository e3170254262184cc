/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Cuts copies of lanes into pieces and offers them; sends marks behind them. */

#include "net/far_send.h"

/* What is sent next of a copy: bytes that follow each other at both ends. */
struct part {
	uint64_t source;
	uint64_t offset;
	uint64_t n_bytes;
	int      is_last;
};

static int is_one_block(const struct cei_far_copy *copy)
{
	return copy->n_rows == 1 || (copy->source_pitch_bytes == copy->row_bytes &&
				     copy->target_pitch_bytes == copy->row_bytes);
}

/* Finds the next part, no larger than the limit. Rows that do not follow each other go one by
 * one. */
static struct part next_part(const struct cei_far_lane *lane, const struct cei_far_copy *copy,
			     uint64_t limit)
{
	int is_block = is_one_block(copy);
	uint64_t row_bytes = is_block ? copy->n_rows * copy->row_bytes : copy->row_bytes;
	uint64_t n_rows = is_block ? 1 : copy->n_rows;
	struct part part;

	part.source = copy->source + lane->row * copy->source_pitch_bytes + lane->at;
	part.offset = copy->offset + lane->row * copy->target_pitch_bytes + lane->at;
	part.n_bytes = row_bytes - lane->at;
	if (part.n_bytes > limit)
		part.n_bytes = limit;
	if (part.n_bytes > CEI_FAR_SLOT_BYTES)  /* it may go through slots at either side */
		part.n_bytes = CEI_FAR_SLOT_BYTES;
	part.is_last = lane->row + 1 == n_rows && lane->at + part.n_bytes == row_bytes;
	return part;
}

static void advance(struct cei_far_lane *lane, const struct cei_far_copy *copy,
		    const struct part *part)
{
	lane->at += part->n_bytes;
	if (is_one_block(copy) || lane->at < copy->row_bytes)
		return;
	lane->at = 0;
	lane->row++;
}

static int break_lane(struct cei_far_peer *peer, struct cei_far_lane *lane,
		      const struct cei_far_copy *copy)
{
	int r = cei_raise(peer->nic->config.report, CEOV_ERR_INVALID, 0,
			  "net: a copy of %llu rows of %llu bytes from %#llx to process %u "
			  "cannot be sent: its source is not registered with the rail, or its "
			  "rows overlap", (unsigned long long)copy->n_rows,
			  (unsigned long long)copy->row_bytes,
			  (unsigned long long)copy->source, peer->process);

	cei_far_lane_break(lane, r);
	return 0;
}

static int is_shape(const struct cei_far_copy *copy)
{
	return copy->row_bytes && copy->n_rows &&
		(copy->n_rows == 1 || (copy->source_pitch_bytes >= copy->row_bytes &&
				       copy->target_pitch_bytes >= copy->row_bytes));
}

static struct cei_far_piece make_piece(const struct cei_far_peer *peer,
				       const struct cei_far_copy *copy, const struct part *part)
{
	struct cei_far_piece piece = {
		.sequence = peer->out.next,
		.region = copy->region,
		.offset = part->offset,
		.row_bytes = part->n_bytes,
		.n_rows = 1,
		.pitch_bytes = part->n_bytes,
	};

	return piece;
}

/* Offers the piece, whose bytes are at the address in registered memory. */
static int offer(struct cei_far_peer *peer, const struct cei_far_piece *piece,
		 struct cei_far_memory *memory, uint64_t address)
{
	struct cei_transport_send send = { .span = { memory->registered, address,
						     piece->row_bytes } };
	uint32_t index = piece->sequence % CEI_FAR_SPAN;
	uint8_t head[CEI_TRANSPORT_MESSAGE_MAX];
	struct cei_far_message message;
	int r;

	cei_far_peer_head(peer, &message, CEI_FAR_PIECE);
	message.piece = *piece;
	send.head = head;
	send.n_head = (uint32_t)cei_encode(&cei_far_protocol, &message, head);
	send.tag = (uint64_t)peer->process << 32 | index;
	r = peer->nic->transport.ops->send(peer->open, &send);
	if (r)
		return r;
	memory->n_busy++;
	peer->reading[index] = memory;
	return 0;
}

/* Begins to copy the piece from its memory into a slot. When the copy has ended, send_slots()
 * offers the piece. CEOV_NONE: no slot is free; the lane waits until one is. */
static int fill_slot(struct cei_far_peer *peer, const struct cei_far_piece *piece,
		     const struct part *part, struct cei_far_memory *memory)
{
	struct cei_far_slots *slots = &peer->nic->slots;
	struct cei_far_slot *slot = cei_far_slots_take(slots, CEI_FAR_LINE_OUT);
	int r;

	if (!slot)
		return CEOV_NONE;
	slot->peer = peer;
	slot->index = piece->sequence % CEI_FAR_SPAN;
	slot->unit = memory->unit;
	slot->piece = *piece;
	slot->n_bytes = part->n_bytes;
	slot->memory = memory;
	r = cei_far_slots_copy(slots, slot, part->source - memory->above);
	if (r)
		cei_far_slot_free(slot);
	else
		memory->n_busy++;
	return r;
}

static int send_copy(struct cei_far_peer *peer, struct cei_far_lane *lane,
		     const struct cei_far_copy *copy)
{
	struct cei_far_memory *memory;
	struct cei_far_piece piece;
	struct part part;
	int r;

	if (!is_shape(copy))
		return break_lane(peer, lane, copy);
	part = next_part(lane, copy, peer->out.piece_bytes);
	memory = cei_far_memory_of(&peer->nic->table, part.source, part.n_bytes);
	if (!memory)
		return break_lane(peer, lane, copy);
	if (memory->is_device && part.n_bytes > CEI_FAR_STAGED_BYTES)
		part = next_part(lane, copy, CEI_FAR_STAGED_BYTES);
	piece = make_piece(peer, copy, &part);
	r = memory->is_device ? fill_slot(peer, &piece, &part, memory)
		: offer(peer, &piece, memory, part.source);
	if (r < 0 && memory->is_device) {       /* raised; other lanes can go on */
		cei_far_lane_break(lane, r);
		return 0;
	}
	if (r)
		return r;
	cei_far_out_add(&peer->out, part.n_bytes, peer->nic->now_ns);
	advance(lane, copy, &part);
	cei_far_lane_sent(lane, peer->out.next - 1, part.is_last);
	return 0;
}

/* Offers the pieces that have been copied into slots. */
static int send_slots(struct cei_far_peer *peer)
{
	struct cei_far_slots *slots = &peer->nic->slots;
	struct cei_far_slot *slot = &slots->slots[CEI_FAR_LINE_OUT * CEI_FAR_SLOTS];
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < CEI_FAR_SLOTS; i++, slot++) {
		if (slot->state != CEI_FAR_SLOT_COPIED || slot->peer != peer)
			continue;
		r = offer(peer, &slot->piece, slots->registered, slot->address);
		if (!r)
			slot->state = CEI_FAR_SLOT_BUSY;
	}
	return r;
}

void cei_far_send_copied(struct cei_far_slot *slot)
{
	struct cei_far_peer *peer = slot->peer;

	int error = slot->error;

	slot->memory->n_busy--;
	if (!peer->open || error)
		cei_far_slot_free(slot);
	if (error)
		cei_far_peer_lose(peer, "bytes for it could not be copied from the memory of a "
				  "GPU");
	cei_far_peer_copied(peer);
	cei_far_peer_touch(peer);
}

void cei_far_send_forget(struct cei_far_peer *peer)
{
	struct cei_far_slot *slot = &peer->nic->slots.slots[CEI_FAR_LINE_OUT * CEI_FAR_SLOTS];
	uint32_t i;

	for (i = 0; i < CEI_FAR_SLOTS; i++, slot++)
		if (slot->peer == peer && slot->state != CEI_FAR_SLOT_COPYING)
			cei_far_slot_free(slot);
}

static int send_mark(struct cei_far_peer *peer, struct cei_far_lane *lane,
		     const struct cei_far_post *post)
{
	struct cei_far_message message;
	int r;

	cei_far_peer_head(peer, &message, CEI_FAR_MARK);
	message.mark.sequence = peer->out.next;
	message.mark.after = lane->last;
	message.mark.region = post->region;
	message.mark.index = post->index;
	message.mark.value = post->value;
	r = cei_far_peer_say(peer, &message);
	if (r)
		return r;
	cei_far_out_add(&peer->out, 0, peer->nic->now_ns);
	cei_far_lane_sent(lane, peer->out.next - 1, 1);
	return 0;
}

/* Sends one piece or mark of the lane. CEOV_NONE: it has nothing, or the window no room. */
static int send_one(struct cei_far_peer *peer, struct cei_far_lane *lane)
{
	struct cei_far_op *op = cei_far_lane_next(lane);

	if (!op || !cei_far_out_has_room(&peer->out, op->kind == CEI_FAR_COPY))
		return CEOV_NONE;
	return op->kind == CEI_FAR_COPY ? send_copy(peer, lane, &op->copy)
		: send_mark(peer, lane, &op->post);
}

/* Each lane sends one thing, then the next lane; ends when all of them in a row had nothing. */
int cei_far_send(struct cei_far_peer *peer)
{
	struct cei_list *first_idle = NULL;
	struct cei_far_lane *lane;
	int r = send_slots(peer);

	if (r)
		return r;
	while (!cei_list_is_empty(&peer->busy)) {
		lane = CEI_OWNER(peer->busy.next, struct cei_far_lane, link);
		if (first_idle == &lane->link)
			return 0;
		r = send_one(peer, lane);
		if (r && r != CEOV_NONE)
			return r;
		if (!r)
			first_idle = NULL;
		else if (!first_idle)
			first_idle = &lane->link;
		cei_list_remove(&lane->link);
		cei_list_append(&peer->busy, &lane->link);
	}
	return 0;
}

void cei_far_send_ended(struct cei_far_peer *peer, uint32_t index)
{
	struct cei_far_slot *slot;

	if (!peer->reading[index])
		return;
	slot = cei_far_slots_find(&peer->nic->slots, CEI_FAR_LINE_OUT, peer, index);
	if (slot)
		cei_far_slot_free(slot);
	peer->reading[index]->n_busy--;
	peer->reading[index] = NULL;
	cei_far_out_sent(&peer->out, index);
}

void cei_far_send_settle(struct cei_far_peer *peer)
{
	struct cei_list *at = peer->busy.next, *next;
	struct cei_far_lane *lane;

	for (; at != &peer->busy; at = next) {
		next = at->next;
		lane = CEI_OWNER(at, struct cei_far_lane, link);
		(void)cei_far_lane_next(lane);  /* counts submits at the end */
		cei_far_lane_settle(lane, peer->out.ended);
		if (!cei_far_lane_is_settled(lane))
			continue;
		cei_list_remove(at);
		cei_list_append(&peer->idle, at);
	}
}

static void gather(struct cei_far_peer *peer)
{
	struct cei_list *at;

	while ((at = cei_list_take(&peer->idle)))
		cei_list_append(&peer->busy, at);
}

void cei_far_send_break(struct cei_far_peer *peer)
{
	struct cei_far_lane *lane;
	struct cei_list *at;

	gather(peer);
	for (at = peer->busy.next; at != &peer->busy; at = at->next) {
		lane = CEI_OWNER(at, struct cei_far_lane, link);
		cei_far_lane_break(lane, lane->last > peer->out.acked ? CEOV_ERR_UNCERTAIN
				   : CEOV_ERR_PEER_LOST);
	}
}

void cei_far_send_end(struct cei_far_peer *peer)
{
	struct cei_list *at;

	gather(peer);
	for (at = peer->busy.next; at != &peer->busy; at = at->next)
		cei_far_lane_end(CEI_OWNER(at, struct cei_far_lane, link));
}
