/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Makes the parameters of the kernels that make calls between GPUs: which bytes go which way, and
 * by how many blocks. */

#include "ops/channel/gpu.h"

#include <stdio.h>
#include <string.h>

#include "ops/compute/dtype.h"

#define ALIGN         UINT64_C(256)
#define VECTOR        UINT64_C(16)
#define WARP          32u
#define SLOTS_MIN     4u                /* rows of sums under way must fit (SUM_LAG) */
#define LINES_SHARE   8u                /* of ring_bytes */
#define LINES_OF_WARP (4u * CEI_CHANNEL_LINE_BYTES)
#define PACKET_MOVERS (CEI_CHANNEL_PACKET_THREADS - WARP)
#define PACKET_BLOCK  (PACKET_MOVERS * VECTOR)  /* bytes of a pair that a block moves at once */
#define PACKET_BLOCKS 16u
#define LINE_BLOCKS   32u
#define SUM_LANES     16u

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t ceiling(uint64_t n, uint64_t unit)
{
	return (n + unit - 1) / unit;
}

/* --- memory ---------------------------------------------------------------------------------- */

/* Lanes of a pair's moves and messages. An SM pushes and adds up, or takes, a chunk in about a
 * microsecond, so on two H200s 16 lanes of a sum come near to a link's rate in both directions,
 * while a move, whose SMs also copy what stays, takes more. Ranks that share a GPU for tests must
 * all find SMs, which limits the lanes of many ranks: 8 x 16, and 8 x 7 x 2, of 132. */
static uint32_t pair_lanes(uint32_t n_ranks)
{
	if (n_ranks == 2)
		return CEI_CHANNEL_LANES_MAX;
	return n_ranks <= 4 ? 4 : 2;
}

/* Sets how many bytes of a pair go by lines at most, which is a share of the rings: the channels of
 * small groups have little memory. Returns the size of the mail of all peers. */
static uint64_t lines(uint64_t ring_bytes, uint32_t n_ranks, struct cei_channel_layout *layout)
{
	uint64_t bytes = least(ring_bytes / LINES_SHARE, CEI_CHANNEL_LINED_MAX) / (n_ranks - 1);

	layout->line_span = (uint32_t)(ceiling(bytes, 2 * LINES_OF_WARP) * 2 * LINES_OF_WARP);
	if (layout->line_span > layout->span_max)
		return (n_ranks - 1) * UINT64_C(2) * cei_channel_line_mail(layout->line_span);
	layout->line_span = layout->span_max;
	return 0;
}

uint64_t cei_gpu_layout(uint64_t ring_bytes, uint32_t n_ranks, struct cei_channel_layout *ret)
{
	const uint64_t shares[CEI_CHANNEL_RINGS] = { 3, 3, 2 };         /* eighths */
	const uint32_t lanes[CEI_CHANNEL_RINGS] = {
		(uint32_t)most(SUM_LANES, pair_lanes(n_ranks)), SUM_LANES,
		pair_lanes(n_ranks)
	};
	uint64_t at, pairs_bytes;
	uint32_t ring;

	if (n_ranks < 2)
		n_ranks = 2;            /* a rank that is alone sends nothing */
	ret->span_max = (uint32_t)(CEI_CHANNEL_SENT_MAX / (n_ranks - 1) / VECTOR * VECTOR);
	ret->mail_at = ceiling(sizeof(struct cei_channel_memory), ALIGN) * ALIGN;
	ret->lines_at = ret->mail_at +
		ceiling((n_ranks - 1) * UINT64_C(4) * ret->span_max, ALIGN) * ALIGN;
	at = ret->lines_at + lines(ring_bytes, n_ranks, ret);
	for (ring = 0; ring < CEI_CHANNEL_RINGS; ring++) {
		pairs_bytes = (uint64_t)(n_ranks - 1) * lanes[ring] * CEI_CHANNEL_CHUNK;
		ret->n_lanes[ring] = lanes[ring];
		ret->n_slots[ring] = SLOTS_MIN;
		while (ret->n_slots[ring] * 2 * pairs_bytes <= ring_bytes * shares[ring] / 8)
			ret->n_slots[ring] *= 2;
		ret->ring_at[ring] = at;
		at += pairs_bytes * ret->n_slots[ring];
	}
	return at;
}

/* --- parts ----------------------------------------------------------------------------------- */

static const char *source_at(const struct cei_call *call, uint64_t at)
{
	return (const char *)call->call.source + at;
}

static char *target_at(const struct cei_call *call, uint64_t at)
{
	return (char *)call->call.target + at;
}

/* Moves, and sums in one step, in which each rank gets the addends of what it adds up. */
static void fill_parts(const struct cei_call *call, struct cei_channel_run *run)
{
	const struct cei_call_part *from;
	uint32_t rank;

	for (rank = 0; rank < call->n_ranks; rank++) {
		from = &call->parts[rank];
		run->parts[rank] = (struct cei_channel_part){
			source_at(call, from->source_at), target_at(call, from->target_at),
			from->to, from->from
		};
	}
}

/* Returns the bytes of a rank's block of an all-reduce in two steps: each rank adds up a block of
 * the operand, and gives all that sum. */
static uint64_t block_of(const struct cei_call *call)
{
	return ceiling(ceiling(call->parts[call->rank].to, call->n_ranks), VECTOR) * VECTOR;
}

static void fill_blocks(const struct cei_call *call, struct cei_channel_run *run)
{
	const uint64_t bytes = call->parts[call->rank].to;
	const uint64_t block = block_of(call);
	uint64_t at, here;
	uint32_t rank;

	for (rank = 0; rank < call->n_ranks; rank++) {
		at = least(rank * block, bytes);
		here = least(block, bytes - at);
		run->parts[rank] = (struct cei_channel_part){
			source_at(call, at), target_at(call, at), here, here
		};
	}
	run->gathers = 1;
}

/* The largest part between this rank and another one, or that it adds up. */
static uint64_t largest(const struct cei_call *call)
{
	uint64_t bytes = 0;
	uint32_t rank;

	for (rank = 0; rank < call->n_ranks; rank++)
		bytes = most(bytes, most(call->parts[rank].to, call->parts[rank].from));
	return bytes;
}

/* --- kernels --------------------------------------------------------------------------------- */

const char *const cei_gpu_kernel_names[CEI_GPU_KERNELS] = {
	"cei_channel_packets_copy", "cei_channel_packets_bf16", "cei_channel_packets_fp16",
	"cei_channel_packets_fp32",
	"cei_channel_lines_copy", "cei_channel_lines_bf16", "cei_channel_lines_fp16",
	"cei_channel_lines_fp32",
	"cei_channel_steps_copy", "cei_channel_steps_bf16", "cei_channel_steps_fp16",
	"cei_channel_steps_fp32",
	"cei_channel_messages",
};

/* Returns the kernel of a family for the call. A sum of one rank is a copy. */
static uint32_t kernel_of(enum cei_gpu_kernel family, const struct cei_call *call)
{
	return (uint32_t)family +
		(call->is_sum && call->n_ranks > 1 ? (uint32_t)call->call.dtype : 0);
}

static void launch_packets(const struct cei_call *call, uint64_t bytes,
			   struct cei_gpu_launch *launch)
{
	uint64_t n_movers;

	launch->kernel = kernel_of(CEI_GPU_PACKETS, call);
	launch->n_blocks = (uint32_t)most(1, least(PACKET_BLOCKS, ceiling(bytes, PACKET_BLOCK)));
	n_movers = ceiling(ceiling(bytes, VECTOR * launch->n_blocks), WARP) * WARP;
	launch->n_threads = (uint32_t)most(WARP, least(n_movers, PACKET_MOVERS)) + WARP;
	launch->shared_bytes = sizeof(uint64_t);
}

/* Ranks that share a GPU for tests must all find SMs. */
static void launch_lines(const struct cei_call *call, uint64_t bytes, struct cei_gpu_launch *launch)
{
	uint64_t n = ceiling(bytes, PACKET_MOVERS / WARP * LINES_OF_WARP);

	launch->kernel = kernel_of(CEI_GPU_LINES, call);
	launch->n_blocks = (uint32_t)least(n, call->n_ranks <= 4 ? LINE_BLOCKS : LINE_BLOCKS / 2);
	launch->n_threads = PACKET_MOVERS + WARP;
	launch->shared_bytes = sizeof(uint64_t);
}

/* Sums: each block serves all ranks. Moves: so many blocks serve each peer as its bytes have
 * lanes. */
static void launch_steps(const struct cei_call *call, struct cei_channel_run *run,
			 struct cei_gpu_launch *launch)
{
	uint32_t rank, lanes, n = 1;

	launch->kernel = kernel_of(CEI_GPU_STEPS, call);
	run->n_lanes = call->is_sum ? SUM_LANES : pair_lanes(call->n_ranks);
	for (rank = 0; rank < call->n_ranks; rank++) {
		if (!call->is_sum && rank == call->rank)
			continue;
		lanes = cei_channel_lanes(most(run->parts[rank].to, run->parts[rank].from),
					  run->n_lanes);
		n = lanes > n ? lanes : n;
	}
	run->blocks_each = call->is_sum ? 0 : n;
	launch->n_blocks = call->is_sum ? n : n * (call->n_ranks - 1);
	launch->n_threads = CEI_CHANNEL_STEP_THREADS;
	launch->shared_bytes = CEI_CHANNEL_SHARED;
}

/* Whether n bytes, if there are any, are more than `least_bytes` and at most `most_bytes`. */
static int is_between(uint64_t n, uint64_t least_bytes, uint64_t most_bytes)
{
	return !n || (n > least_bytes && n <= most_bytes);
}

/* Whether all of a call goes one way. Of sums all ranks know all sizes; of moves each pair knows
 * its own, and goes the same way in each kernel. */
static int are_between(const struct cei_call *call, uint64_t least_bytes, uint64_t most_bytes)
{
	uint32_t rank;

	if (call->is_sum)
		return is_between(largest(call), least_bytes, most_bytes);
	for (rank = 0; rank < call->n_ranks; rank++)
		if (rank != call->rank &&
		    (!is_between(call->parts[rank].to, least_bytes, most_bytes) ||
		     !is_between(call->parts[rank].from, least_bytes, most_bytes)))
			return 0;
	return 1;
}

static int is_by_packets(const struct cei_call *call, const struct cei_channel_layout *layout)
{
	return call->n_ranks == 1 || are_between(call, 0, layout->span_max);
}

/* An all-reduce needs the mail for its addends and for its sums. */
static int is_by_lines(const struct cei_call *call, const struct cei_channel_layout *layout)
{
	if (layout->line_span == layout->span_max)
		return 0;               /* there is none */
	if (call->call.kind == CEOV_ALL_REDUCE)
		return 2 * block_of(call) <= layout->line_span;
	return are_between(call, layout->span_max, layout->line_span);
}

static int is_aligned(const struct cei_channel_part *part)
{
	return !(((uintptr_t)part->source | (uintptr_t)part->target | part->to | part->from) %
		 VECTOR);
}

static uint32_t is_plain(const struct cei_call *call, const struct cei_channel_run *run)
{
	uint32_t rank;

	for (rank = 0; rank < call->n_ranks; rank++)
		if (!is_aligned(&run->parts[rank]))
			return 0;
	return run->is_scaled;
}

/* A mean of 3 ranks is no product by the third, which is no number of the type. */
static void fill_scale(const struct cei_call *call, struct cei_channel_run *run)
{
	const uint32_t n = call->n_ranks;
	const int is_mean = call->call.reduction == CEOV_MEAN;

	run->scale = is_mean ? 1.0f / (float)n : 1.0f;
	run->is_scaled = call->call.reduction == CEOV_SUM || (is_mean && !(n & (n - 1)));
}

void cei_gpu_make_run(const struct cei_call *call, struct cei_channel_run *run,
		      struct cei_gpu_launch *launch)
{
	const int is_small = is_by_packets(call, &run->place.layout);
	const int is_lined = !is_small && is_by_lines(call, &run->place.layout);
	uint32_t rank;

	memset(launch, 0, sizeof(*launch));
	run->what = call->what;
	run->reduction = (uint32_t)call->call.reduction;
	run->gathers = 0;
	run->n_lanes = run->blocks_each = 0;
	for (rank = 0; rank < call->n_ranks; rank++) {
		run->gives[rank] = call->parts[rank].to;
		run->gets[rank] = call->parts[rank].from;
	}
	if (call->call.kind == CEOV_ALL_REDUCE && !is_small)
		fill_blocks(call, run);
	else
		fill_parts(call, run);
	fill_scale(call, run);
	run->is_plain = is_plain(call, run);
	if (is_small)
		launch_packets(call, largest(call), launch);
	else if (is_lined)
		launch_lines(call, run->gathers ? block_of(call) : largest(call), launch);
	else
		launch_steps(call, run, launch);
}

/* --- messages -------------------------------------------------------------------------------- */

static struct cei_channel_message message_of(const struct ceov_call *call)
{
	const int is_receive = call->kind == CEOV_RECEIVE;

	return (struct cei_channel_message){
		.memory = is_receive ? call->target : (char *)(uintptr_t)call->source,
		.bytes = call->count * cei_dtype_bytes(call->dtype),
		.what = (uint32_t)CEOV_SEND | (uint32_t)call->dtype << 8,
		.peer = (uint16_t)call->root,
		.is_receive = (uint16_t)is_receive,
	};
}

/* Finds a message of that kind to itself from call *i on, and goes behind it. Returns 0 if there is
 * none. */
static int next_own(const struct cei_calls *calls, uint32_t rank, enum ceov_call_kind kind,
		    uint32_t *i, struct ceov_call *ret)
{
	while (*i < calls->n) {
		*ret = cei_calls_at(calls, (*i)++);
		if (ret->root == rank && ret->kind == kind)
			return 1;
	}
	return 0;
}

int cei_gpu_next_own(const struct cei_calls *calls, uint32_t rank, struct cei_gpu_own *own)
{
	int has_send = next_own(calls, rank, CEOV_SEND, &own->next_send, &own->send);
	int has_receive = next_own(calls, rank, CEOV_RECEIVE, &own->next_receive, &own->receive);

	if (!has_send && !has_receive)
		return 0;
	if (!has_send || !has_receive || own->send.dtype != own->receive.dtype ||
	    own->send.count != own->receive.count)
		return CEOV_ERR_INVALID;
	own->bytes = own->send.count * cei_dtype_bytes(own->send.dtype);
	return 1;
}

void cei_gpu_make_messages(const struct cei_calls *calls, struct cei_channel_messages *messages,
			   struct cei_gpu_launch *launch)
{
	uint8_t has[CEI_CHANNEL_RANKS_MAX] = { 0 };
	struct cei_channel_message *message;
	struct ceov_call call;
	uint32_t i, lanes, n_served = 0;

	memset(launch, 0, sizeof(*launch));
	messages->n = 0;
	messages->n_lanes = pair_lanes(messages->place.n_ranks);
	messages->blocks_each = 1;
	for (i = 0; i < calls->n; i++) {
		call = cei_calls_at(calls, i);
		if (call.root == messages->place.own)
			continue;
		message = &messages->messages[messages->n++];
		*message = message_of(&call);
		lanes = cei_channel_lanes(message->bytes, messages->n_lanes);
		if (lanes > messages->blocks_each)
			messages->blocks_each = lanes;
		if (!has[message->peer])
			messages->served[n_served++] = message->peer;
		has[message->peer] = 1;
	}
	launch->kernel = CEI_GPU_MESSAGES;
	launch->n_blocks = n_served * messages->blocks_each;
	launch->n_threads = CEI_CHANNEL_STEP_THREADS;
	launch->shared_bytes = CEI_CHANNEL_SHARED;
}

/* --- explanations ---------------------------------------------------------------------------- */

void cei_gpu_explain(const ceov_channel *channel, const struct cei_call *call, char *text,
		     size_t n)
{
	struct cei_channel_run run = { .place = { .n_ranks = channel->n_ranks,
						  .own = channel->rank } };
	struct cei_channel_layout *layout = &run.place.layout;
	char what[CEI_CALL_TEXT_BYTES];
	struct cei_gpu_launch launch;
	size_t at;

	(void)cei_gpu_layout(channel->ring_bytes, channel->n_ranks, layout);
	at = (size_t)snprintf(text, n, "channel '%s' of rank %u: %u ranks on GPUs; up to %u bytes "
			      "of a pair go by packets, %u by lines, more through rings of %u "
			      "chunks of %u bytes for each of up to %u lanes\n", channel->name,
			      channel->rank, channel->n_ranks, layout->span_max, layout->line_span,
			      layout->n_slots[CEI_CHANNEL_MOVES], CEI_CHANNEL_CHUNK,
			      layout->n_lanes[CEI_CHANNEL_MOVES]);
	if (!call)
		return;
	cei_gpu_make_run(call, &run, &launch);
	cei_call_text(call->what, what);
	snprintf(text + at, n - at, "%s: %s on %u SMs, with %u threads each\n", what,
		 cei_gpu_kernel_names[launch.kernel], launch.n_blocks, launch.n_threads);
}

const char *cei_gpu_call_fault(const struct cei_call *call)
{
	if (!call->is_sum || call->call.dtype == CEOV_BF16 || call->call.dtype == CEOV_FP16 ||
	    call->call.dtype == CEOV_FP32)
		return NULL;
	return "GPUs add up bf16, fp16 and fp32 alone";
}
