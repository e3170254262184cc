/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_LL_CASES_H
#define CEI_LL_CASES_H

/* The cases of ll.cc: what ranks send in each run, what fails, and what results have to be. */

#include <cmath>

#include "gpu_on_host.h"
#include "kernels/direct_ll.h"

static const uint32_t BLOCKS_MAX = 3;
static const uint32_t UNTOUCHED = 0xeeeeeeee;   /* no word of a result */

enum operation {
	SCATTER,        /* reduce-scatter; the target has places for all parts, as the source */
	REDUCE,         /* all-reduce */
	GATHER,         /* all-gather */
	EXCHANGE        /* all-to-all */
};

enum failure {
	NONE,
	MISSING,        /* a rank begins a run when all others have waited for it in vain */
	STOPS,          /* a rank sends some packets, and the others when the run has failed */
	ABORT,          /* at any time */
	LATE,           /* the rank that is missing is behind an abort, and has got all packets */
	BESIDE          /* all blocks of a rank but the first find poison, before that one has sent
			 * anything; it finds none */
};

struct operands {                       /* of a rank in a run */
	std::vector<uint32_t> sent;     /* what is in the source when the run begins */
	std::vector<uint4>    source;   /* empty: it is in target */
	std::vector<uint4>    before;   /* what is in target when the run begins */
	std::vector<uint4>    target;   /* with a guard of a vector before and behind it */
};

struct run {
	operation                          op;
	uint32_t                           n_blocks;
	std::vector<std::vector<uint32_t>> bytes;       /* [source][target] */
	std::vector<operands>              ranks;
};

struct packet_store {                   /* that is not visible yet */
	char    *to;
	uint64_t bytes, number;
};

struct rank {
	std::vector<uint4>        mail;         /* with a guard of a vector behind it */
	std::vector<uint64_t>     arrived[2], done;
	uint64_t                  epoch = 0, last_use[2] = { 0, 0 };
	uint32_t                  status = 0, failed = 0, n_ended = 0, aborted = 0;
	std::vector<packet_store> unseen;
	uint32_t                  pace = 1;     /* 1 / the part of unseen that each turn shows */
	std::unique_ptr<launch>   kernel;       /* NULL: between runs */
	cei_direct_ll             direct;
	uint32_t                  number = 0;   /* of the run, from 1, that it makes or made last */
	uint64_t                  begins_ns = 0;        /* the next one */
	uint64_t                  begun_ns = 0;         /* this one */
	uint32_t                  n_stored = 0; /* packets, in this run */
	bool                      had_failed = false;   /* when the run began */
	bool                      was_poisoned = false;
};

struct scene {
	uint32_t                n_ranks, n_runs;
	bool                    is_captured;
	uint64_t                base;   /* the number of the run before the first one */
	failure                 fails;
	uint32_t                at;     /* the run, from 1 */
	uint32_t                who;    /* the rank that is missing, stops, is late or finds
					 * poison */
	uint32_t                stop;   /* how many packets it has stored then */
	float                   scale;
	uint32_t                span_max;
	std::vector<run>        runs;
	std::vector<rank>       ranks;
	bool                    all_come = false;       /* at the rank that is missing or late */
	uint64_t                abort_ns = 0;           /* 0: it has not been said when */
	uint64_t                poison_ns = 0;
	bool                    is_aborting = false, is_aborted = false;
	std::vector<uint64_t *> to_poison;
};

/* --- cases ----------------------------------------------------------------------- */

static bool is_copy(const run &made)
{
	return made.op == GATHER || made.op == EXCHANGE;
}

/* Returns whether the source has a part of its own for each target. */
static bool is_spread(const run &made)
{
	return made.op == SCATTER || made.op == EXCHANGE;
}

static uint32_t leaves_at(const run &made, uint32_t source, uint32_t target)
{
	uint32_t at = 0;

	for (uint32_t i = 0; is_spread(made) && i < target; i++)
		at += made.bytes[source][i];
	return at;
}

/* Returns where in the target of a rank a peer's bytes or part is. */
static uint32_t place_at(const run &made, uint32_t own, uint32_t peer)
{
	uint32_t at = 0;

	if (!is_copy(made))
		return leaves_at(made, own, peer);
	for (uint32_t i = 0; i < peer; i++)
		at += made.bytes[i][own];
	return at;
}

/* Returns where in the target of a rank its source is, if that is in there. */
static uint32_t source_at(const run &made, uint32_t own)
{
	return is_copy(made) ? place_at(made, own, own) : 0;
}

static uint32_t draw_bytes(const scene &made, bool is_large)
{
	const uint32_t n_most = made.span_max / 16;

	if (!is_large)
		return 16 * (1 + draw(8));
	return 16 * (draw(4) ? 1 + draw(n_most < 200 ? n_most : 200) : n_most - draw(2));
}

static void size(const scene &made, bool is_large, run *run)
{
	const uint32_t all = draw_bytes(made, is_large);
	std::vector<uint32_t> each(made.n_ranks);

	for (auto &bytes : each)
		bytes = draw_bytes(made, is_large);
	run->bytes.assign(made.n_ranks, each);
	for (uint32_t source = 0; source < made.n_ranks; source++)
		for (uint32_t target = 0; target < made.n_ranks; target++) {
			uint32_t *bytes = &run->bytes[source][target];

			if (run->op == REDUCE)
				*bytes = all;
			else if (run->op == GATHER)
				*bytes = each[source];
			else if (run->op == EXCHANGE)
				*bytes = draw_bytes(made, is_large);
		}
	for (uint32_t i = 0; run->op == EXCHANGE && i < made.n_ranks; i++)
		run->bytes[i][i] *= draw(4) != 0;
}

/* Addends of which the sum depends on their order. */
static uint32_t draw_addend()
{
	const float value = draw(16) ? ldexpf((float)draw(1 << 24) - (1 << 23), (int)draw(12) - 20)
		: -0.0f;
	uint32_t word;

	memcpy(&word, &value, sizeof(word));
	return word;
}

static void fill(const run &run, uint32_t own, bool is_in_place, operands *made)
{
	const uint32_t last = (uint32_t)run.bytes.size() - 1;
	const uint32_t n_sent = leaves_at(run, own, last) +
		run.bytes[own][is_spread(run) ? last : own];
	const uint32_t n_target = is_copy(run) ? place_at(run, own, last) + run.bytes[last][own]
		: n_sent;

	made->sent.resize(n_sent / 4);
	for (auto &word : made->sent)
		word = is_copy(run) ? draw(UINT32_C(1) << 31) : draw_addend();
	made->before.resize(n_target / 16 + 2);
	memset(made->before.data(), UNTOUCHED & 0xff, n_target + 32);
	if (is_in_place) {
		memcpy((char *)(made->before.data() + 1) + source_at(run, own),
		       made->sent.data(), n_sent);
	} else {
		made->source.resize(n_sent / 16);
		memcpy(made->source.data(), made->sent.data(), n_sent);
	}
	made->target = made->before;
}

static void add_run(scene *made)
{
	run run;
	bool is_in_place;

	run.op = (operation)draw(4);
	run.n_blocks = made->fails == BESIDE ? 2 + draw(BLOCKS_MAX - 1) : 1 + draw(BLOCKS_MAX);
	is_in_place = run.op != EXCHANGE && draw(2);
	size(*made, draw(3) == 0 || (made->fails == STOPS && made->runs.size() + 1 == made->at),
	     &run);
	run.ranks.resize(made->n_ranks);
	for (uint32_t i = 0; i < made->n_ranks; i++)
		fill(run, i, is_in_place, &run.ranks[i]);
	made->runs.push_back(std::move(run));
}

/* Draws how many packets a rank sends before it stops. Often only a few of the last ones are
 * missing. */
static uint32_t draw_stop(const run &run, uint32_t own)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < run.bytes.size(); i++)
		n += i == own ? 0 : run.bytes[own][i] / 8;
	return draw(2) || n < 16 ? draw(n) : n - 1 - draw(16);
}

static void pick(uint32_t number, scene *made)
{
	made->n_ranks = number % 3 == 0 ? 2 + draw(7) : 2 + draw(3);
	made->n_runs = 4 + draw(3);
	made->base = draw(2) ? UINT64_C(0xfffffffd) : 0;
	made->fails = draw(5) < 2 ? NONE : (failure)(1 + draw(5));
	made->is_captured = made->fails == BESIDE || draw(2);
	made->at = 1 + draw(made->n_runs);
	made->who = draw(made->n_ranks);
	made->scale = draw(2) ? 1 : 1.0f / 3;
	made->span_max = cei_direct_ll_span_max(made->n_ranks);
	for (uint32_t i = 0; i < made->n_runs; i++)
		add_run(made);
	made->stop = draw_stop(made->runs[made->at - 1], made->who);
	made->ranks.resize(made->n_ranks);
	for (auto &own : made->ranks) {
		own.mail.resize(2 * cei_direct_ll_half_bytes(made->n_ranks) / 16 + 1);
		own.done.resize(made->n_ranks);
		for (auto &half : own.arrived)
			half.resize(BLOCKS_MAX * made->n_ranks);
		own.epoch = made->is_captured ? made->base : 0;
	}
}

/* --- results ----------------------------------------------------------------------- */

static uint32_t word_of(const run &run, uint32_t source, uint32_t target, uint32_t i)
{
	return run.ranks[source].sent[leaves_at(run, source, target) / 4 + i];
}

static uint32_t sum_of(const scene &made, const run &run, uint32_t target, uint32_t i)
{
	float sum = 0, addend;
	uint32_t word;

	for (uint32_t source = 0; source < made.n_ranks; source++) {
		word = word_of(run, source, target, i);
		memcpy(&addend, &word, sizeof(addend));
		sum = source ? sum + addend : addend;
	}
	sum *= made.scale;
	memcpy(&word, &sum, sizeof(word));
	return word;
}

/* Returns what is in the target behind a good run. */
static std::vector<uint4> wanted(const scene &made, const run &run, uint32_t own)
{
	std::vector<uint4> vectors = run.ranks[own].before;
	uint32_t *words = (uint32_t *)(vectors.data() + 1), i, peer;

	if (!is_copy(run))
		for (i = 0; i < run.bytes[own][own] / 4; i++)
			words[place_at(run, own, own) / 4 + i] = sum_of(made, run, own, i);
	for (peer = 0; is_copy(run) && peer < made.n_ranks; peer++)
		for (i = 0; i < run.bytes[peer][own] / 4; i++)
			words[place_at(run, own, peer) / 4 + i] = word_of(run, peer, own, i);
	return vectors;
}

#endif /* CEI_LL_CASES_H */
