/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Runs the kernel of sums in steps on the host: gpu_on_host.h says how, check_steps.sh prepares
 * its source, bulk_on_host.h says when bulk copies happen. So a slot that is used too early, a step
 * that is told of too early, a wrong phase of a barrier or a wait that nobody ends shows as a wrong
 * sum, or as a case that does not end. The order in which a GPU makes memory visible is not played:
 * see docs/internals/fences.md.
 *
 *   steps SEED CASES
 */

#include "bulk_on_host.h"

static const uint64_t TURN_NS = 1000;           /* of the clock, for each turn of all threads */
static const uint64_t TIMEOUT_NS = 2000000;
static const uint64_t TURNS_MAX = 100000;       /* of a run that should have ended by then */
static const float UNTOUCHED = 12345;           /* no sum: these are whole and below 8 * 500 */

#include "kernels/direct_steps_kernels.cu"

/* --- cases ----------------------------------------------------------------------- */

enum failure { NONE, MISSING, ABORT };  /* in the second run, of rank 1 */

struct rank {
	std::vector<float>    source, target;
	std::vector<uint4>    scratch;
	std::vector<uint64_t> arrived[2], done;
	uint64_t              epoch = 0, last_use[2] = { 0, 0 };
	uint32_t              status = 0, failed = 0, n_ended = 0, aborted = 0;
};

struct sums {
	uint32_t              n_ranks, n_blocks, gathers, is_captured, n_steps, step_rows;
	failure               fails;
	std::vector<uint64_t> parts, before;    /* elements; of a part, and of all before it */
	uint64_t              all, half_bytes, gather_at;
	std::vector<rank>     ranks;
};

static void cut(sums *made, uint64_t most)
{
	const uint64_t row = CEI_DIRECT_CHUNK * made->n_blocks;
	const uint32_t n_rows = (uint32_t)((most * sizeof(float) + row - 1) / row);

	made->step_rows = 1 + draw(4);
	while (made->step_rows * CEI_DIRECT_STEPS_MAX < n_rows)
		made->step_rows++;
	made->n_steps = (n_rows + made->step_rows - 1) / made->step_rows;
}

static sums pick(uint32_t number)
{
	sums made = { number % 5 == 4 ? 2 + draw(7) : 2 + draw(3), 1 + draw(2), draw(2), draw(2) };
	uint64_t most = 0;

	made.fails = draw(3) ? NONE : draw(2) ? MISSING : ABORT;
	for (uint32_t i = 0; i < made.n_ranks; i++) {
		made.parts.push_back(draw(5) ? 4 * draw(draw(3) ? 10000 : 600) : 0);
		made.parts[i] += i ? 0 : 4;
		made.before.push_back(made.all);
		made.all += made.parts[i];
		most = made.parts[i] > most ? made.parts[i] : most;
	}
	cut(&made, most);
	made.gather_at = made.n_ranks * most * sizeof(float);
	made.half_bytes = made.gather_at + made.all * sizeof(float) + 64;
	made.ranks.resize(made.n_ranks);
	for (auto &own : made.ranks) {
		own.source.resize(made.all);
		own.target.resize(made.all + 8);        /* with a guard behind */
		own.scratch.resize(2 * made.half_bytes / sizeof(uint4));
		own.done.resize(made.n_ranks);
		for (auto &half : own.arrived)
			half.resize(3 * 32 * made.n_ranks);
	}
	return made;
}

static cei_direct_span span_of(const sums &made, uint32_t own, uint32_t peer)
{
	const uint64_t there = made.parts[peer] * sizeof(float);
	const uint64_t here = made.parts[own] * sizeof(float);
	const uint64_t at = made.before[peer] * sizeof(float);

	return { at, there, own * there, peer * here, here, made.gathers ? at : 0 };
}

static void fill_marks(sums *made, uint32_t own, cei_direct *direct)
{
	rank *mine = &made->ranks[own];

	direct->timeout_ns = TIMEOUT_NS;
	direct->status = &mine->status;
	direct->failed = &mine->failed;
	direct->done.counters = mine->done.data();
	direct->done.abort_word = &mine->aborted;
	for (uint32_t half = 0; half < 2; half++) {
		direct->arrived[half].counters = mine->arrived[half].data();
		direct->arrived[half].abort_word = &mine->aborted;
	}
	if (!made->is_captured)
		return;
	direct->epoch = &mine->epoch;
	direct->last_use = mine->last_use;
	direct->n_ended = &mine->n_ended;
}

static cei_direct argument_of(sums *made, uint32_t own, uint32_t run)
{
	rank *mine = &made->ranks[own];
	cei_direct direct = {};

	for (auto &value : mine->source)
		value = (float)draw(1000) - 500;
	mine->target.assign(made->all + 8, UNTOUCHED);
	direct.source = mine->source.data();
	direct.target = mine->target.data();
	direct.half_bytes = made->half_bytes;
	direct.gather_at = made->gather_at;
	direct.n_ranks = made->n_ranks;
	direct.own = own;
	direct.gathers = made->gathers;
	direct.half = run % 2;
	direct.value = run;
	direct.scale = 1;
	direct.n_steps = made->n_steps;
	direct.step_rows = made->step_rows;
	direct.steps_first = 2 * 32 * made->n_ranks;
	for (uint32_t i = 0; i < made->n_ranks; i++) {
		direct.spans[i] = span_of(*made, own, i);
		direct.peers[i].scratch = (char *)made->ranks[i].scratch.data();
		direct.peers[i].done = &made->ranks[i].done[own];
		for (uint32_t half = 0; half < 2; half++)
			direct.peers[i].arrived[half] = made->ranks[i].arrived[half].data();
	}
	fill_marks(made, own, &direct);
	return direct;
}

/* --- runs --------------------------------------------------------------------------- */

static void run(sums *made, uint32_t number)
{
	const bool misses = number == 2 && made->fails == MISSING;
	const uint64_t abort_at = number == 2 && made->fails == ABORT ? 20 + draw(600) : 0;
	const uint32_t slow = draw(made->n_ranks);
	const uint64_t begin_ns = now_ns;
	std::vector<cei_direct> arguments;
	std::deque<launch> launches;
	contexts threads;
	uint64_t n_turns = 0;

	await_overrun = misses ? 8 : 1;
	barriers.clear();
	all_stores.clear();
	for (uint32_t i = 0; i < made->n_ranks; i++)
		arguments.push_back(argument_of(made, i, number));
	for (uint32_t i = 0; i < made->n_ranks; i++) {
		if (misses && i == 1)
			continue;
		launches.push_back({ nullptr, i, { made->n_blocks }, { CEI_DIRECT_STEP_THREADS },
				     CEI_DIRECT_STEP_SHARED });
		begin(&threads, &launches.back(), cei_direct_steps_fp32, &arguments[i]);
	}
	while (turn(slow)) {
		now_ns += TURN_NS;
		advance_copies();
		CHECK(++n_turns < TURNS_MAX, "run %u does not end", number);
		for (auto &own : made->ranks)
			own.aborted |= n_turns == abort_at;
	}
	CHECK(copies.empty(), "run %u ended before its copies", number);
	CHECK(!misses || now_ns - begin_ns < 2 * TIMEOUT_NS,
	      "run %u waited for %llu ns, and its time is up after %llu", number,
	      (unsigned long long)(now_ns - begin_ns), (unsigned long long)TIMEOUT_NS);
}

/* --- results ------------------------------------------------------------------------ */

/* Behind a failure sums may be missing, but there are no wrong ones. */
static void check_part(const sums &made, uint32_t own, uint32_t part, bool is_good)
{
	const uint64_t place = made.gathers ? made.before[part] : 0;
	float want, got;

	for (uint64_t i = 0; i < made.parts[part]; i++) {
		want = made.ranks[0].source[made.before[part] + i];
		for (uint32_t peer = 1; peer < made.n_ranks; peer++)
			want += made.ranks[peer].source[made.before[part] + i];
		got = made.ranks[own].target[place + i];
		CHECK(got == want || (!is_good && got == UNTOUCHED),
		      "rank %u, part %u, element %llu: %g, not %g", own, part,
		      (unsigned long long)i, got, want);
	}
}

static void check(const sums &made, uint32_t number)
{
	const bool is_good = made.fails == NONE || number == 1;

	for (uint32_t own = 0; own < made.n_ranks; own++) {
		const rank &mine = made.ranks[own];
		const bool misses = number == 2 && made.fails == MISSING && own == 1;

		CHECK(!is_good || (!mine.failed && !mine.status), "rank %u failed", own);
		CHECK(made.fails != MISSING || number != 2 || misses || mine.failed,
		      "rank %u did not miss rank 1", own);
		CHECK(!made.is_captured || !mine.failed || mine.epoch >= CEOV_VALUE_LIMIT,
		      "rank %u failed without poison", own);
		CHECK(!made.is_captured || !is_good || mine.epoch == number,
		      "rank %u has not counted its run", own);
		CHECK(!mine.n_ended, "rank %u: blocks are still counted", own);
		for (uint32_t part = 0; part < made.n_ranks; part++)
			if (made.gathers || part == own)
				check_part(made, own, part, is_good);
		for (uint64_t i = made.gathers ? made.all : made.parts[own]; i < made.all + 8; i++)
			CHECK(mine.target[i] == UNTOUCHED, "rank %u wrote behind its sums", own);
	}
}

int main(int argc, char **argv)
{
	const uint64_t seed = argc > 1 ? strtoull(argv[1], nullptr, 10) : 1;
	const uint32_t n_cases = argc > 2 ? (uint32_t)strtoul(argv[2], nullptr, 10) : 20;
	uint32_t n_failing = 0;

	random_state = seed;
	for (uint32_t i = 0; i < n_cases; i++) {
		case_number = i;
		sums made = pick(i);

		n_failing += made.fails != NONE;
		for (uint32_t number = 1; number <= 3; number++) {
			run(&made, number);
			check(made, number);
		}
	}
	printf("%u cases of three runs, %u of them with a failure: all sums are right\n", n_cases,
	       n_failing);
	return 0;
}
