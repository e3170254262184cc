/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CHANNEL_CASES_H
#define CEI_CHANNEL_CASES_H

/* The cases of channel.cc: what ranks call in each run, which messages they send, what fails, and
 * what results have to be. */

#include <cmath>

#include "channel_late.h"

extern "C" {
#include "ops/channel/call.h"
#include "ops/channel/gpu.h"
}

static const size_t GUARD = 64;         /* bytes before and behind operands */
static const uint32_t RUNS_MAX = 8;

enum failure_kind {
	NONE,
	RUN_DIFFERS,    /* a rank calls something else */
	MESSAGE_DIFFERS,        /* a receiver awaits something else than what is sent */
	ABORTS,         /* a rank, at any time */
	MISSES,         /* a rank begins a run when all others have waited for it in vain */
	DOUBLES,        /* a rank begins a run twice at once */
	FAILURES
};

struct operand {                        /* memory of a rank, with guards */
	std::vector<char> bytes;
	char             *first = nullptr;
};

struct part {                           /* of a rank in a run */
	cei_call              call;
	operand               memory, other;    /* what is in place has one memory */
	std::vector<char>     sent;             /* what the source holds when the run begins */
	std::vector<char>     want, want_other; /* all of both behind a good run; around the
						 * target behind any run */
	size_t                target_at, target_n;      /* in memory */
};

struct run {
	std::vector<part> parts;        /* [rank] */
};

struct message {
	uint32_t  from, to;
	ceov_call send, receive;
	operand   source, target;
	std::vector<char> want;         /* all of the target's memory */
};

struct lane_of_work {                   /* a stream of a rank: its calls, or its messages */
	uint32_t                next = 0;       /* of its kernels */
	std::unique_ptr<launch> kernel;         /* NULL: between kernels */
	contexts                threads;
	cei_gpu_launch          how;
	cei_channel_run         run;
	cei_channel_messages    messages;
	uint64_t                begins_ns = 0;
	bool                    was_told = false;       /* when the kernel began, of a failure */
	bool                    had_failed = false;     /* then */
	std::vector<char>       before;         /* what the target's memory held then */
};

struct rank {
	std::vector<char>                  bytes;
	cei_channel_memory                *memory;
	uint64_t                           n_memory;
	cei_channel_status                 status = {};
	std::vector<std::vector<uint32_t>> batches;     /* of messages, by their number */
	lane_of_work                       calls, messages, twice;
	bool                               has_released = false;
};

struct scene {
	uint32_t             n_ranks;
	cei_channel_layout   layout;
	failure_kind         fails;
	uint32_t             at;        /* the run, from 0, or the message */
	uint32_t             who;
	bool                 is_released;       /* ranks release the channel as soon as they can */
	uint64_t             base;      /* runs, and chunks of each lane, before the case */
	uint64_t             abort_ns = 0;
	bool                 is_aborted = false;
	std::vector<run>     runs;
	std::deque<message>  messages;
	std::vector<rank>    ranks;
};

/* --- memory ------------------------------------------------------------------------ */

static void allocate(operand *made, size_t n)
{
	const size_t aligned = draw(2) ? 0 : draw(3) ? 1 + draw(15) : 4 * draw(4);

	made->bytes.resize(n + 2 * GUARD + 32);
	for (auto &byte : made->bytes)
		byte = (char)draw(256);
	made->first = (char *)(((uintptr_t)made->bytes.data() + GUARD + 15) / 16 * 16 + aligned);
}

/* --- calls ------------------------------------------------------------------------ */

struct plan {                           /* of a run: what all ranks call together */
	ceov_call                          call;        /* of all ranks alike */
	bool                               is_listed, is_in_place;
	std::vector<std::vector<uint64_t>> counts;      /* [source][target], of an all-to-all; of
							 * others [0][rank] */
};

static uint64_t near(uint64_t bytes)
{
	return bytes + draw(2) * (draw(2) ? 16 : draw(40)) - (bytes > 40 ? draw(40) : 0);
}

/* Bytes around all borders. */
static uint64_t draw_bytes(const scene &made)
{
	const uint64_t chunk = CEI_CHANNEL_CHUNK, span = made.layout.span_max;
	const uint64_t ring = chunk * made.layout.n_slots[0] * made.layout.n_lanes[0];

	switch (draw(11)) {
	case 0:
		return 0;
	case 1:
		return draw(64);
	case 2:
		return span;
	case 3:
		return near(span);
	case 4:
		return near((1 + draw(4)) * chunk);
	case 5:
		return near(2 * chunk * (1 + draw(4)));
	case 6:
		return made.n_ranks > 4 ? draw(4096) : near(ring * (1 + draw(2)));
	case 7:
		return draw(2048);
	case 8:
		return near(made.layout.line_span);
	case 9:
		return draw(made.layout.line_span);
	}
	return draw(made.n_ranks > 4 ? 6000 : 36000);
}

static uint64_t draw_count(const scene &made, enum ceov_dtype dtype)
{
	return draw_bytes(made) / cei_dtype_bytes(dtype);
}

static bool is_sum(enum ceov_call_kind kind)
{
	return kind == CEOV_ALL_REDUCE || kind == CEOV_REDUCE_SCATTER || kind == CEOV_REDUCE;
}

static bool has_root(enum ceov_call_kind kind)
{
	return kind == CEOV_BROADCAST || kind == CEOV_GATHER || kind == CEOV_SCATTER ||
		kind == CEOV_REDUCE;
}

static enum ceov_dtype draw_dtype(bool is_sum)
{
	static const enum ceov_dtype sums[] = { CEOV_BF16, CEOV_FP16, CEOV_FP32 };
	static const enum ceov_dtype all[] = { CEOV_UINT8, CEOV_BF16, CEOV_FP32, CEOV_INT64 };

	return is_sum ? sums[draw(3)] : all[draw(4)];
}

static plan draw_plan(const scene &made)
{
	const uint32_t n = made.n_ranks;
	plan drawn = {};
	ceov_call *call = &drawn.call;

	call->struct_bytes = sizeof(*call);
	call->kind = draw(4) ? (enum ceov_call_kind)(1 + draw(9)) : CEOV_ALL_REDUCE;
	call->dtype = draw_dtype(is_sum(call->kind));
	call->reduction = is_sum(call->kind) ? (enum ceov_reduction)draw(5) : CEOV_SUM;
	call->root = has_root(call->kind) ? draw(n) : 0;
	if (call->kind != CEOV_BARRIER)
		call->count = draw_count(made, call->dtype);
	if (call->kind == CEOV_ALL_REDUCE && draw(2))
		call->count *= n > 4 ? 2 : n;
	drawn.is_listed = draw(2) && (call->kind == CEOV_ALL_GATHER ||
				      call->kind == CEOV_REDUCE_SCATTER ||
				      call->kind == CEOV_ALL_TO_ALL ||
				      call->kind == CEOV_GATHER || call->kind == CEOV_SCATTER);
	drawn.is_in_place = draw(3) == 0;
	drawn.counts.assign(n, std::vector<uint64_t>(n));
	for (auto &row : drawn.counts)
		for (auto &count : row)
			count = draw_count(made, call->dtype);
	return drawn;
}

/* Makes a rank's call of a plan, as yet without memory. */
static ceov_call call_of(const plan &drawn, uint32_t own, std::vector<uint64_t> *sends,
			 std::vector<uint64_t> *receives)
{
	ceov_call call = drawn.call;
	const bool is_root = call.root == own;

	if (!drawn.is_listed)
		return call;
	call.count = drawn.counts[0][own];
	if (call.kind == CEOV_ALL_TO_ALL) {
		*sends = drawn.counts[own];
		for (const auto &row : drawn.counts)
			receives->push_back(row[own]);
	}
	if (call.kind == CEOV_REDUCE_SCATTER || (call.kind == CEOV_SCATTER && is_root))
		*sends = drawn.counts[0];
	if (call.kind == CEOV_ALL_GATHER || (call.kind == CEOV_GATHER && is_root))
		*receives = drawn.counts[0];
	call.sends = sends->empty() ? nullptr : sends->data();
	call.receives = receives->empty() ? nullptr : receives->data();
	return call;
}

static size_t end_of(const cei_call &call, bool is_source)
{
	size_t end = 0;

	for (uint32_t i = 0; i < call.n_ranks; i++) {
		const cei_call_part &part = call.parts[i];

		end = max(end, is_source ? part.source_at + part.to : part.target_at + part.from);
	}
	return end;
}

static void place_operands(const cei_call &call, bool is_in_place, part *made, ceov_call *ret)
{
	const cei_call_part &own = call.parts[call.rank];
	const size_t n_source = end_of(call, true), n_target = end_of(call, false);

	if (call.call.kind == CEOV_BARRIER)
		return;
	if (!is_in_place || call.call.kind == CEOV_ALL_TO_ALL) {
		allocate(&made->memory, n_target);
		allocate(&made->other, n_source);
		ret->target = made->memory.first;
		ret->source = made->other.first;
		return;
	}
	allocate(&made->memory, max(own.target_at + n_source, own.source_at + n_target));
	ret->source = made->memory.first + own.target_at;
	ret->target = made->memory.first + own.source_at;
}

/* Addends of which the sum depends on their order, and NaNs. */
static void fill_numbers(enum ceov_dtype dtype, char *to, size_t n_bytes)
{
	const uint64_t width = cei_dtype_bytes(dtype);
	float value;

	for (; n_bytes >= width; n_bytes -= width, to += width) {
		value = ldexpf((float)draw(1 << 24) - (1 << 23), (int)draw(12) - 26);
		if (draw(32) == 0)
			value = draw(4) ? -0.0f : NAN;
		cei_dtype_narrow(dtype, to, &value, 1);
	}
}

static void make_part(const scene &made, const plan &drawn, uint32_t own, part *ret)
{
	std::vector<uint64_t> sends, receives;
	ceov_call call = call_of(drawn, own, &sends, &receives);
	const char *fault;

	call.source = (const void *)(UINTPTR_MAX / 4);
	call.target = (void *)(UINTPTR_MAX / 2);
	if (call.kind == CEOV_BARRIER)
		call.source = call.target = nullptr;
	memset(&ret->call, 0, sizeof(ret->call));
	fault = cei_call_make(&call, own, made.n_ranks, &ret->call);
	CHECK(!fault, "%s", fault);
	place_operands(ret->call, drawn.is_in_place, ret, &call);
	fault = cei_call_make(&call, own, made.n_ranks, &ret->call);
	CHECK(!fault, "kind %u, in place %u: %s", call.kind, drawn.is_in_place, fault);
	if (ret->call.is_sum)
		fill_numbers(call.dtype, (char *)call.source, end_of(ret->call, true));
	ret->sent.assign((const char *)call.source,
			 (const char *)call.source + end_of(ret->call, true));
	ret->target_at = (char *)call.target - ret->memory.bytes.data();
	ret->target_n = end_of(ret->call, false);
	ret->want = ret->memory.bytes;
	ret->want_other = ret->other.bytes;
}

/* --- results ----------------------------------------------------------------------- */

static float reduced(enum ceov_reduction reduction, float sum, float addend)
{
	if (reduction == CEOV_PRODUCT)
		return sum * addend;
	if (reduction != CEOV_MIN && reduction != CEOV_MAX)
		return sum + addend;
	if (std::isnan(sum) || std::isnan(addend))
		return NAN;
	if (reduction == CEOV_MIN)
		return addend < sum ? addend : sum;
	return addend > sum ? addend : sum;
}

static void add_up(const run &made, uint32_t own, char *target)
{
	const cei_call &call = made.parts[own].call;
	const enum ceov_dtype dtype = call.call.dtype;
	const uint64_t width = call.item_bytes;
	float sum, addend;

	for (uint64_t i = 0; i < call.parts[own].from; i += width) {
		for (uint32_t peer = 0; peer < call.n_ranks; peer++) {
			const part &there = made.parts[peer];

			cei_dtype_widen(dtype, &addend, there.sent.data() +
					there.call.parts[own].source_at + i, 1);
			sum = peer ? reduced(call.call.reduction, sum, addend) : addend;
		}
		if (call.call.reduction == CEOV_MEAN)
			sum /= (float)call.n_ranks;
		cei_dtype_narrow(dtype, target + i, &sum, 1);
	}
}

/* Sets what the targets of all ranks hold behind the run. */
static void set_wanted(run *made)
{
	for (uint32_t own = 0; own < made->parts.size(); own++) {
		part *mine = &made->parts[own];
		char *target;

		if (mine->want.empty())
			continue;
		target = mine->want.data() + mine->target_at;
		if (mine->call.is_sum) {
			add_up(*made, own, target + mine->call.parts[own].target_at);
			continue;
		}
		for (uint32_t peer = 0; peer < made->parts.size(); peer++) {
			const part &there = made->parts[peer];

			memcpy(target + mine->call.parts[peer].target_at,
			       there.sent.data() + there.call.parts[own].source_at,
			       mine->call.parts[peer].from);
		}
	}
}

/* Returns whether heads of a rank and another one differ. */
static bool differ(const part &a, const part &b)
{
	return a.call.what != b.call.what ||
		a.call.parts[b.call.rank].to != b.call.parts[a.call.rank].from ||
		b.call.parts[a.call.rank].to != a.call.parts[b.call.rank].from;
}

static bool differs(const run &made, uint32_t who)
{
	for (const auto &each : made.parts)
		if (each.call.rank != who && differ(each, made.parts[who]))
			return true;
	return false;
}

/* Lets a rank call something else: often the same with another count. */
static void make_odd(const scene &made, const plan &drawn, run *run)
{
	plan odd;

	do {
		odd = draw_plan(made);
		if (draw(4)) {
			odd = drawn;
			odd.call.count += odd.call.kind == CEOV_BARRIER ? 0 : 1;
			odd.counts[0][draw(made.n_ranks)]++;
		}
		run->parts[made.who] = {};
		make_part(made, odd, made.who, &run->parts[made.who]);
	} while (!differs(*run, made.who));
}

static void add_run(scene *made, bool is_last)
{
	plan drawn = draw_plan(*made);
	run run;

	if (is_last) {
		drawn = {};
		drawn.call.struct_bytes = sizeof(drawn.call);
		drawn.call.kind = CEOV_BARRIER;
	}
	run.parts.resize(made->n_ranks);
	for (uint32_t own = 0; own < made->n_ranks; own++)
		make_part(*made, drawn, own, &run.parts[own]);
	if (made->fails == RUN_DIFFERS && made->runs.size() == made->at)
		make_odd(*made, drawn, &run);
	else
		set_wanted(&run);
	made->runs.push_back(std::move(run));
}

/* --- messages ------------------------------------------------------------------------ */

static void add_message(scene *made)
{
	const enum ceov_dtype dtype = draw_dtype(false);
	message drawn = {};
	uint64_t bytes;

	drawn.from = draw(made->n_ranks);
	drawn.to = (drawn.from + 1 + draw(made->n_ranks - 1)) % made->n_ranks;
	drawn.send.struct_bytes = sizeof(drawn.send);
	drawn.send.kind = CEOV_SEND;
	drawn.send.dtype = dtype;
	drawn.send.count = draw_count(*made, dtype);
	drawn.receive = drawn.send;
	drawn.receive.kind = CEOV_RECEIVE;
	drawn.send.root = drawn.to;
	drawn.receive.root = drawn.from;
	if (made->fails == MESSAGE_DIFFERS && made->messages.size() == made->at)
		drawn.receive.count += 1 + draw(3000);
	bytes = drawn.receive.count * cei_dtype_bytes(dtype);
	allocate(&drawn.source, bytes);
	allocate(&drawn.target, bytes);
	drawn.send.source = drawn.source.first;
	drawn.receive.target = drawn.target.first;
	drawn.want = drawn.target.bytes;
	if (bytes)
		memcpy(drawn.want.data() + (drawn.target.first - drawn.target.bytes.data()),
		       drawn.source.first, bytes);
	made->messages.push_back(std::move(drawn));
}

/* Divides a rank's messages into batches. In the order of all messages nobody waits in a circle. */
static void add_batches(scene *made, uint32_t own)
{
	std::vector<std::vector<uint32_t>> *batches = &made->ranks[own].batches;
	uint32_t n_left = 0;

	for (uint32_t i = 0; i < made->messages.size(); i++) {
		if (made->messages[i].from != own && made->messages[i].to != own)
			continue;
		if (!n_left--) {
			n_left = draw(5);
			batches->emplace_back();
		}
		batches->back().push_back(i);
	}
}

/* --- scenes -------------------------------------------------------------------------- */

static uint64_t draw_ring_bytes(uint32_t n_ranks)
{
	cei_channel_layout layout;

	if (draw(8) == 0)
		return draw(2 * CEI_CHANNEL_SENT_MAX);  /* so few that nothing goes by lines */
	cei_gpu_layout(0, n_ranks, &layout);
	return (uint64_t)(n_ranks > 1 ? n_ranks - 1 : 1) * layout.n_lanes[0] * CEI_CHANNEL_CHUNK *
		8 / 3 * (draw(2) ? 4 : 4 + draw(12));
}

static void begin_memory(scene *made, rank *own, uint64_t n)
{
	const uint64_t n_zero = made->layout.ring_at[0];

	own->bytes.resize(n + 256 + GUARD, (char)0xee);
	own->n_memory = n;
	own->memory = (cei_channel_memory *)(((uintptr_t)own->bytes.data() + 255) / 256 * 256);
	memset(own->memory, 0, n_zero);
	own->memory->state.epoch = own->memory->state.order = made->base;
	for (uint64_t *counters : { own->memory->state.sent[0][0], own->memory->state.taken[0][0],
				    own->memory->words.arrived[0][0],
				    own->memory->words.credit[0][0] })
		std::fill(counters, counters + CEI_CHANNEL_RINGS * CEI_CHANNEL_RANKS_MAX *
			  CEI_CHANNEL_LANES_MAX, made->base);
}

static void pick(uint32_t number, scene *made)
{
	const uint32_t n_messages = draw(3) ? 1 + draw(20) : 0;
	uint32_t n_runs = 2 + draw(RUNS_MAX - 2);
	uint64_t n;

	made->n_ranks = number % 16 == 7 ? 5 + draw(4) : 2 + draw(3);
	if (number % 16 == 15)
		made->n_ranks = 1;
	n = cei_gpu_layout(draw_ring_bytes(made->n_ranks), made->n_ranks, &made->layout);
	made->fails = draw(2) || made->n_ranks == 1 ? NONE : (failure_kind)(1 + draw(FAILURES - 1));
	if (made->fails == MESSAGE_DIFFERS && !n_messages)
		made->fails = RUN_DIFFERS;
	made->at = draw(made->fails == MESSAGE_DIFFERS ? n_messages : n_runs);
	made->who = draw(made->n_ranks);
	made->is_released = made->fails == NONE && draw(2);
	made->base = draw(2) ? UINT64_C(0xfffffffd) : 0;
	for (uint32_t i = 0; i <= n_runs; i++)
		add_run(made, i == n_runs);
	for (uint32_t i = 0; made->n_ranks > 1 && i < n_messages; i++)
		add_message(made);
	made->ranks.resize(made->n_ranks);
	for (uint32_t i = 0; i < made->n_ranks; i++) {
		add_batches(made, i);
		begin_memory(made, &made->ranks[i], n);
	}
}

#endif /* CEI_CHANNEL_CASES_H */
