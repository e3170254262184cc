/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Makes calls between host ranks. A run is rounds: put the next chunk, then read what is this
 * rank's out of the chunk of each peer. A chunk of a call whose bytes all ranks get alike is one
 * piece of them; else it has a block for each rank. An all-reduce takes its operand slice by slice,
 * in two rounds each: the slice, of which each rank adds up its own block, and that sum.
 */

#include "ops/channel/channel.h"

#include <string.h>

#include "ops/channel/waits.h"
#include "ops/compute/sum.h"

/* Blocks begin at multiples of it, so that ranks do not write to one cache line. */
#define BLOCK_ALIGN CEI_CACHE_LINE

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t chunks_of(uint64_t bytes, uint64_t step)
{
	return (bytes + step - 1) / step;
}

/* How much of `bytes` lies in the piece of that size that begins at `at`. */
static uint64_t piece_of(uint64_t bytes, uint64_t at, uint64_t size)
{
	return at < bytes ? least(size, bytes - at) : 0;
}

uint64_t cei_host_step(const ceov_channel *channel, const struct cei_call *call)
{
	return call->is_shared ? channel->slot_bytes :
		channel->slot_bytes / channel->n_ranks / BLOCK_ALIGN * BLOCK_ALIGN;
}

static uint32_t peer_at(const ceov_channel *channel, uint32_t i)
{
	return (channel->rank + i) % channel->n_ranks;
}

/* --- the ring ------------------------------------------------------------------------------- */

static char *slot_of(const ceov_channel *channel, uint32_t rank, uint64_t chunk)
{
	return channel->rings[rank]->slots + chunk % CEI_RING_SLOTS * channel->slot_bytes;
}

/* Where the next chunk of this rank goes, once there is room. */
static char *own_slot(const ceov_channel *channel)
{
	return slot_of(channel, channel->rank, channel->n_put);
}

/* Chunk i of a peer in this run, which has come. */
static const char *chunk_of(const ceov_channel *channel, uint32_t peer, uint64_t i)
{
	return slot_of(channel, peer, channel->base[peer] + i);
}

static void put(ceov_channel *channel)
{
	/* release: pairs with the acquire of a peer that awaits the chunk */
	atomic_store_explicit(&channel->rings[channel->rank]->n_ready, ++channel->n_put,
			      memory_order_release);
}

/* Gives back the peer's chunks of this run before chunk n. */
static void give_back(ceov_channel *channel, uint32_t peer, uint64_t n)
{
	/* release: pairs with the acquire of the peer that awaits room; reads have ended */
	atomic_store_explicit(&channel->rings[peer]->credits[channel->rank].n_taken,
			      channel->base[peer] + n, memory_order_release);
}

static void give_back_all(ceov_channel *channel, uint32_t peer)
{
	give_back(channel, peer, channel->n_chunks[peer]);
}

static void store_head(ceov_channel *channel, uint64_t n_chunks)
{
	struct cei_ring_head *head;
	uint32_t rank;

	channel->run++;
	head = &channel->rings[channel->rank]->heads[channel->run % 2];
	head->what = channel->call.what;
	head->n_chunks = n_chunks;
	for (rank = 0; rank < channel->n_ranks; rank++)
		head->pairs[rank] = (struct cei_ring_pair){ channel->call.parts[rank].to,
							    channel->call.parts[rank].from };
	/* release: pairs with has_head() of the peers */
	atomic_store_explicit(&head->run, channel->run, memory_order_release);
}

static void end(ceov_channel *channel)
{
	uint32_t i, peer;

	for (i = 1; i < channel->n_ranks; i++) {
		peer = peer_at(channel, i);
		give_back_all(channel, peer);
		channel->base[peer] += channel->n_chunks[peer];
	}
}

/* --- moves and sums in one direction -------------------------------------------------------- */

/* The largest part that goes to a peer, or comes from one. */
static uint64_t largest(const struct cei_call *call, int is_to)
{
	uint64_t most = 0, here;
	uint32_t rank;

	for (rank = 0; rank < call->n_ranks; rank++) {
		here = is_to ? call->parts[rank].to : call->parts[rank].from;
		if (rank != call->rank && here > most)
			most = here;
	}
	return most;
}

/* Puts what begins `at` bytes within each peer's part. */
static int put_parts(ceov_channel *channel, uint64_t at, uint64_t step)
{
	const struct cei_call *call = &channel->call;
	const char *source = call->call.source;
	const struct cei_call_part *part;
	uint64_t bytes;
	uint32_t rank;
	int r = cei_channel_await_room(channel);

	if (r)
		return r;
	if (call->is_shared) {
		bytes = piece_of(largest(call, 1), at, step);
		memcpy(own_slot(channel), source + at, bytes);
	}
	for (rank = 0; !call->is_shared && rank < call->n_ranks; rank++) {
		part = &call->parts[rank];
		bytes = piece_of(part->to, at, step);
		if (bytes && rank != call->rank)
			memcpy(own_slot(channel) + rank * step, source + part->source_at + at,
			       bytes);
	}
	put(channel);
	return 0;
}

/* Where this rank's piece lies in chunk i of a peer. */
static const char *piece_from(const ceov_channel *channel, uint32_t peer, uint64_t i, uint64_t step)
{
	return chunk_of(channel, peer, i) + (channel->call.is_shared ? 0 : channel->rank * step);
}

/* Gives back chunk i of a peer, and with the last one that this rank needs all that the peer puts
 * behind it. */
static void took(ceov_channel *channel, uint32_t peer, uint64_t i, uint64_t step)
{
	if ((i + 1) * step >= channel->call.parts[peer].from)
		give_back_all(channel, peer);
	else
		give_back(channel, peer, i + 1);
}

static int move_chunk(ceov_channel *channel, uint32_t peer, uint64_t i, uint64_t step)
{
	const struct cei_call_part *part = &channel->call.parts[peer];
	uint64_t bytes = piece_of(part->from, i * step, step);
	int r = bytes ? cei_channel_await_chunk(channel, peer, i) : 0;

	if (r || !bytes)
		return r;
	memcpy((char *)channel->call.call.target + part->target_at + i * step,
	       piece_from(channel, peer, i, step), bytes);
	took(channel, peer, i, step);
	return 0;
}

static int move_chunks(ceov_channel *channel, uint64_t i, uint64_t step)
{
	uint32_t n;
	int r = 0;

	for (n = 1; !r && n < channel->n_ranks; n++)
		r = move_chunk(channel, peer_at(channel, n), i, step);
	return r;
}

static void sum_up(const ceov_channel *channel, const void *const *sources, char *target,
		   uint64_t bytes)
{
	const struct ceov_call *call = &channel->call.call;
	const struct cei_sum sum = { call->dtype, call->reduction, 1, channel->n_ranks, sources };

	cei_sum_up(&sum, target, bytes / channel->call.item_bytes);
}

/* Awaits chunk i of all peers. */
static int await_chunks(ceov_channel *channel, uint64_t i)
{
	uint32_t n;
	int r = 0;

	for (n = 1; !r && n < channel->n_ranks; n++)
		r = cei_channel_await_chunk(channel, peer_at(channel, n), i);
	return r;
}

/* All parts that come have the size of this rank's own. */
static int sum_chunks(ceov_channel *channel, uint64_t i, uint64_t step)
{
	const struct cei_call_part *own = &channel->call.parts[channel->rank];
	uint64_t at = i * step, bytes = piece_of(own->from, at, step);
	const void *sources[CEI_OP_RANKS_MAX];
	uint32_t n, peer;
	int r = bytes ? await_chunks(channel, i) : 0;

	if (r || !bytes)
		return r;
	sources[channel->rank] = (const char *)channel->call.call.source + own->source_at + at;
	for (n = 1; n < channel->n_ranks; n++) {
		peer = peer_at(channel, n);
		sources[peer] = piece_from(channel, peer, i, step);
	}
	sum_up(channel, sources, (char *)channel->call.call.target + at, bytes);
	for (n = 1; n < channel->n_ranks; n++)
		took(channel, peer_at(channel, n), i, step);
	return 0;
}

/* A rank keeps its own part, too. */
static void copy_own(const ceov_channel *channel)
{
	const struct cei_call_part *own = &channel->call.parts[channel->rank];
	const char *from = (const char *)channel->call.call.source + own->source_at;
	char *to = (char *)channel->call.call.target + own->target_at;

	if (!channel->call.is_sum && own->from && from != to)
		memcpy(to, from, own->from);
}

/* Of peers from which nothing comes, all is given back at once. */
static void give_back_unneeded(ceov_channel *channel)
{
	uint32_t n, peer;

	for (n = 1; n < channel->n_ranks; n++) {
		peer = peer_at(channel, n);
		if (!channel->call.parts[peer].from)
			give_back_all(channel, peer);
	}
}

static int run_parts(ceov_channel *channel)
{
	const struct cei_call *call = &channel->call;
	uint64_t step = cei_host_step(channel, call), i;
	uint64_t n_puts = chunks_of(largest(call, 1), step);
	uint64_t n_rounds = chunks_of(call->is_sum ? call->parts[call->rank].from :
				      largest(call, 0), step);
	int r;

	store_head(channel, n_puts);
	r = n_puts ? put_parts(channel, 0, step) : 0;   /* it travels with the head */
	if (!r)
		r = cei_channel_await_heads(channel);
	if (r)
		return r;
	copy_own(channel);
	give_back_unneeded(channel);
	for (i = 0; !r && (i < n_puts || i < n_rounds); i++) {
		if (i && i < n_puts)
			r = put_parts(channel, i * step, step);
		if (!r && i < n_rounds)
			r = call->is_sum ? sum_chunks(channel, i, step)
				: move_chunks(channel, i, step);
	}
	return r;
}

/* --- all-reduce ----------------------------------------------------------------------------- */

struct slice {
	uint64_t i;
	uint64_t at;                    /* in the operand, in bytes */
	uint64_t bytes;
	uint64_t step;                  /* of a rank's block */
};

static int put_bytes(ceov_channel *channel, const void *from, uint64_t bytes)
{
	int r = cei_channel_await_room(channel);

	if (r)
		return r;
	memcpy(own_slot(channel), from, bytes);
	put(channel);
	return 0;
}

static int put_slice(ceov_channel *channel, const struct slice *slice)
{
	return put_bytes(channel, (const char *)channel->call.call.source + slice->at,
			 slice->bytes);
}

/* Adds up this rank's block of a slice, in the target, and puts the sum. */
static int sum_block(ceov_channel *channel, const struct slice *slice)
{
	uint64_t block_at = channel->rank * slice->step;
	uint64_t bytes = piece_of(slice->bytes, block_at, slice->step);
	char *target = (char *)channel->call.call.target + slice->at + block_at;
	const void *sources[CEI_OP_RANKS_MAX];
	uint32_t n, peer;
	int r = await_chunks(channel, 2 * slice->i);

	if (r)
		return r;
	sources[channel->rank] = (const char *)channel->call.call.source + slice->at + block_at;
	for (n = 1; n < channel->n_ranks; n++) {
		peer = peer_at(channel, n);
		sources[peer] = chunk_of(channel, peer, 2 * slice->i) + block_at;
	}
	if (bytes)
		sum_up(channel, sources, target, bytes);
	for (n = 1; n < channel->n_ranks; n++)
		give_back(channel, peer_at(channel, n), 2 * slice->i + 1);
	return put_bytes(channel, target, bytes);
}

static int take_sums(ceov_channel *channel, const struct slice *slice)
{
	char *target = (char *)channel->call.call.target + slice->at;
	uint32_t n, peer;
	int r = 0;

	for (n = 1; !r && n < channel->n_ranks; n++) {
		peer = peer_at(channel, n);
		r = cei_channel_await_chunk(channel, peer, 2 * slice->i + 1);
		if (r)
			break;
		memcpy(target + peer * slice->step, chunk_of(channel, peer, 2 * slice->i + 1),
		       piece_of(slice->bytes, peer * slice->step, slice->step));
		give_back(channel, peer, 2 * slice->i + 2);
	}
	return r;
}

static int run_slices(ceov_channel *channel)
{
	uint64_t bytes = channel->call.parts[channel->rank].from;
	struct slice slice = { .step = cei_host_step(channel, &channel->call) };
	uint64_t size = slice.step * channel->n_ranks;
	int r = 0;

	store_head(channel, 2 * chunks_of(bytes, size));
	for (; !r && (slice.at < bytes || !slice.i); slice.i++, slice.at += size) {
		slice.bytes = piece_of(bytes, slice.at, size);
		if (slice.bytes)
			r = put_slice(channel, &slice);
		if (!r && !slice.i)
			r = cei_channel_await_heads(channel);
		if (!r && slice.bytes)
			r = sum_block(channel, &slice);
		if (!r && slice.bytes)
			r = take_sums(channel, &slice);
	}
	return r;
}

int cei_host_run(ceov_channel *channel)
{
	int r = channel->call.call.kind == CEOV_ALL_REDUCE ? run_slices(channel)
		: run_parts(channel);

	if (!r)
		end(channel);
	return r;
}
