/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Runs the kernels whose bytes travel with the number of the run (src/kernels/direct_ll.h) on the
 * host: gpu_on_host.h says how, check_ll.sh prepares their source. In a case all ranks make the
 * same runs one after another, each at its own time: a rank begins a run when it has ended the one
 * before, so it can be a run ahead of a peer, and blocks may sleep at any time. What ranks send has
 * another size in each run, so packets of older runs lie between those that are awaited.
 *
 * A packet that is stored becomes visible to others at any later time, in any order, at the latest
 * when the kernel ends. The order of other accesses is not played: see docs/internals/fences.md.
 *
 *   ll SEED CASES
 */

#include <algorithm>

#include "gpu_on_host.h"
#include "ll_cases.h"

static const uint64_t TURN_NS = 1000;           /* of the clock, for each turn of all threads */
static const uint64_t TIMEOUT_NS = 20000 * TURN_NS;
static const uint64_t SKEW_NS = 50 * TURN_NS;   /* how far the clocks of SMs are apart */
static const uint64_t HELD_NS = 40 * TURN_NS;   /* how long a block sends nothing, at least */
static const uint64_t HURRY = 100;              /* how much faster clocks go when runs fail */
static const uint64_t TURNS_MAX = 60000;        /* of a case that should have ended by then */

static scene *played;

/* --- packets ------------------------------------------------------------------- */

static void show(rank *own, size_t index)
{
	const packet_store store = own->unseen[index];
	const uint64_t words[2] = { store.bytes, store.number };

	memcpy(store.to, words, sizeof(words));
	own->unseen[index] = own->unseen.back();
	own->unseen.pop_back();
}

static void show_all(rank *own)
{
	while (!own->unseen.empty())
		show(own, own->unseen.size() - 1);
}

static void show_some(rank *own)
{
	for (uint32_t n = draw(2 + (uint32_t)own->unseen.size() / own->pace); n; n--)
		if (!own->unseen.empty())
			show(own, draw((uint32_t)own->unseen.size()));
}

static bool have_others_ended(const scene &made)
{
	for (uint32_t i = 0; i < made.n_ranks; i++)
		if (i != made.who && (made.ranks[i].number < made.at ||
				      (made.ranks[i].number == made.at && made.ranks[i].kernel)))
			return false;
	return true;
}

static bool have_others_begun(const scene &made)
{
	for (uint32_t i = 0; i < made.n_ranks; i++)
		if (i != made.who && made.ranks[i].number < made.at)
			return false;
	return true;
}

static bool has_stopped(const scene &made)
{
	const rank &who = made.ranks[made.who];

	return made.fails == STOPS && who.number == made.at && who.n_stored >= made.stop &&
		!have_others_ended(made);
}

/* Returns whether the first block has to wait for the others of its run to fail, and for peers to
 * send. */
static bool is_held(const scene &made)
{
	const rank &who = made.ranks[made.who];

	return made.fails == BESIDE && who.number == made.at &&
		(who.kernel->n_left > who.kernel->threads.x ||
		 now_ns < who.begun_ns + HELD_NS);
}

/* Stores to the same address become visible in their order. */
static void host_store_packet(void *to, uint64_t bytes, uint64_t number)
{
	rank *own = &played->ranks[current->of->rank];

	if (current->of->rank == played->who)
		wait_for([] { return !has_stopped(*played); });
	if (current->of->rank == played->who && !current->block.x)
		wait_for([] { return !is_held(*played); });
	CHECK((uintptr_t)to % 16 == 0, "rank %u: a packet at %p", current->of->rank, to);
	for (size_t i = 0; i < own->unseen.size(); i++)
		if (own->unseen[i].to == to) {
			show(own, i);
			break;
		}
	own->unseen.push_back({ (char *)to, bytes, number });
	own->n_stored++;
	pause_thread();
}

static void host_load_packet(const void *from, uint64_t *ret_bytes, uint64_t *ret_number)
{
	uint64_t words[2];

	pause_thread();
	memcpy(words, from, sizeof(words));
	*ret_bytes = words[0];
	*ret_number = words[1];
}

#include "kernels/direct_ll_kernels.cu"

/* --- parameters ---------------------------------------------------------------------- */

static void fill_marks(scene *made, uint32_t own, cei_direct_ll *direct)
{
	rank *mine = &made->ranks[own];

	direct->timeout_ns = TIMEOUT_NS;
	direct->status = &mine->status;
	direct->failed = &mine->failed;
	direct->arrived.counters = mine->arrived[0].data();
	direct->arrived.abort_word = &mine->aborted;
	direct->value = made->base + mine->number;
	direct->half = mine->number % 2;
	if (!made->is_captured)
		return;
	direct->value = draw(1000);             /* nobody reads these two */
	direct->half = 2 + draw(1000);
	direct->epoch = &mine->epoch;
	direct->last_use = mine->last_use;
	direct->n_ended = &mine->n_ended;
	for (uint32_t i = 0; i < made->n_ranks; i++) {
		if (i == own)
			continue;
		direct->counters[i].done = &made->ranks[i].done[own];
		for (uint32_t half = 0; half < 2; half++)
			direct->counters[i].arrived[half] = made->ranks[i].arrived[half].data();
	}
}

/* Parts of a reduce-scatter can lie so far behind the begin of its source. */
static const uint64_t FAR_BYTES = UINT64_C(5) << 30;

static cei_direct_ll direct_of(scene *made, uint32_t own)
{
	run *run = &made->runs[made->ranks[own].number - 1];
	operands *operands = &run->ranks[own];
	char *target = (char *)(operands->target.data() + 1);
	cei_direct_ll direct = {};

	direct.target = target;
	direct.source = (const char *)((uintptr_t)(operands->source.empty()
						   ? target + source_at(*run, own)
						   : (char *)operands->source.data()) - FAR_BYTES);
	direct.n_ranks = made->n_ranks;
	direct.own = own;
	direct.span_max = made->span_max;
	direct.scale = made->scale;
	for (uint32_t i = 0; i < made->n_ranks; i++) {
		cei_direct_ll_peer *peer = &direct.peers[i];

		peer->mail = (char *)made->ranks[i].mail.data() +
			(i == own ? 0 : own * 2 * made->span_max);
		peer->leaves = FAR_BYTES + leaves_at(*run, own, i);
		peer->n_leaves = run->bytes[own][i];
		peer->n_here = run->bytes[i][own];
		peer->place = place_at(*run, own, i);
	}
	fill_marks(made, own, &direct);
	return direct;
}

/* --- checks ------------------------------------------------------------------------- */

/* Behind a failure words may be missing, but there are no wrong ones. A run that began behind one
 * has stored nothing. */
static void check_target(const scene &made, uint32_t own)
{
	const rank &mine = made.ranks[own];
	const run &run = made.runs[mine.number - 1];
	const operands &operands = run.ranks[own];
	const std::vector<uint4> vectors = wanted(made, run, own);
	const uint32_t *want = (const uint32_t *)vectors.data();
	const uint32_t *got = (const uint32_t *)operands.target.data();
	const uint32_t *before = (const uint32_t *)operands.before.data();

	for (uint32_t i = 0; i < vectors.size() * 4; i++)
		CHECK((got[i] == want[i] && !mine.had_failed) ||
		      (got[i] == before[i] && mine.failed),
		      "rank %u of %u, run %u: %08x, not %08x, in word %u of %zu of operation %u",
		      own, made.n_ranks, mine.number, got[i], want[i], i, vectors.size() * 4,
		      run.op);
	CHECK(!mine.had_failed || !mine.n_stored, "rank %u, run %u: it sent packets", own,
	      mine.number);
}

/* Checks what a captured run that has failed has stored at peers. */
static void check_poison(const scene &made, uint32_t own)
{
	const rank &mine = made.ranks[own];
	const uint32_t n_blocks = mine.kernel->blocks.x;

	for (uint32_t peer = 0; peer < made.n_ranks; peer++) {
		const rank &there = made.ranks[peer];

		if (peer == own)
			continue;
		for (uint32_t i = own * n_blocks; i < (own + 1) * n_blocks; i++)
			CHECK(there.arrived[0][i] == CEOV_VALUE_LIMIT &&
			      there.arrived[1][i] == CEOV_VALUE_LIMIT,
			      "rank %u, run %u: counter %u of rank %u has no poison", own,
			      mine.number, i, peer);
		CHECK(there.done[own] == CEOV_VALUE_LIMIT,
		      "rank %u, run %u: `done` of rank %u has no poison", own, mine.number, peer);
	}
}

/* Returns whether a run has to fail. */
static bool must_fail(const scene &made, uint32_t own)
{
	const rank &mine = made.ranks[own];
	const bool is_alone = made.fails == MISSING && !made.is_captured && own == made.who;

	if (mine.had_failed || mine.was_poisoned)
		return true;
	if (made.fails == STOPS || is_alone)
		return mine.number > made.at;
	return (made.fails == MISSING || made.fails == LATE) && mine.number >= made.at;
}

static bool may_fail(const scene &made, uint32_t own)
{
	return must_fail(made, own) || (made.fails == ABORT && made.is_aborting) ||
		(made.fails == STOPS && made.ranks[own].number == made.at) ||
		(made.fails == BESIDE && made.ranks[own].number + 1 >= made.at);
}

/* Checks what a run has left behind that was counted by itself. */
static void check_count(const scene &made, uint32_t own)
{
	const rank &mine = made.ranks[own];
	const uint64_t number = made.base + mine.number;
	const uint64_t *last_use = mine.last_use;

	if (mine.failed) {
		CHECK(mine.epoch >= CEOV_VALUE_LIMIT, "rank %u, run %u failed without poison",
		      own, mine.number);
		CHECK(last_use[0] < number && last_use[1] < number,
		      "rank %u, run %u failed and was counted", own, mine.number);
		check_poison(made, own);
		return;
	}
	CHECK(mine.epoch == number, "rank %u, run %u: the epoch is %llu", own, mine.number,
	      (unsigned long long)mine.epoch);
	CHECK(last_use[(mine.number - 1) % 2] == number &&
	      last_use[mine.number % 2] == (mine.number == 1 ? 0 : number - 1),
	      "rank %u, run %u: halves were last used by %llu and %llu", own, mine.number,
	      (unsigned long long)last_use[0], (unsigned long long)last_use[1]);
}

static void check_run(const scene &made, uint32_t own)
{
	const rank &mine = made.ranks[own];
	const uint32_t number = mine.number;
	const bool may_time_out = made.fails == MISSING || made.fails == STOPS;

	CHECK(!mine.failed || may_fail(made, own), "rank %u of %u, run %u failed, status %u", own,
	      made.n_ranks, number, mine.status);
	CHECK(mine.failed || !must_fail(made, own), "rank %u of %u, run %u did not fail", own,
	      made.n_ranks, number);
	CHECK(mine.failed ? mine.status == CEOV_DEVICE_ABORTED ||
	      (may_time_out && mine.status == CEOV_DEVICE_TIMEOUT) : !mine.status,
	      "rank %u, run %u: the status is %u", own, number, mine.status);
	CHECK(!mine.n_ended, "rank %u, run %u: blocks are still counted", own,
	      number);
	check_target(made, own);
	if (made.is_captured)
		check_count(made, own);
}

/* Checks what all runs together have left behind. */
static void check_end(const scene &made)
{
	const bool is_poisoned = made.fails == ABORT || made.fails == LATE ||
		(made.fails != NONE && made.is_captured);
	const uint64_t done = made.is_captured ? made.base + made.n_runs - 1 : 0;
	uint32_t n_timed_out = 0;

	for (uint32_t own = 0; own < made.n_ranks; own++) {
		const rank &mine = made.ranks[own];
		const uint4 &guard = mine.mail.back();

		n_timed_out += (made.fails == STOPS || own != made.who) &&
			mine.status == CEOV_DEVICE_TIMEOUT;
		CHECK(!(guard.x | guard.y | guard.z | guard.w), "a packet behind rank %u's mail",
		      own);
		for (uint32_t i = 0; !is_poisoned && i < mine.arrived[0].size(); i++)
			CHECK(!mine.arrived[0][i] && !mine.arrived[1][i],
			      "rank %u: counter %u was raised", own, i);
		for (uint32_t i = 0; made.fails == NONE && i < made.n_ranks; i++)
			CHECK(mine.done[i] == (i == own ? 0 : done),
			      "rank %u was told of %llu runs of rank %u", own,
			      (unsigned long long)mine.done[i], i);
	}
	if (made.fails == MISSING || made.fails == STOPS)
		CHECK(n_timed_out >= (made.is_captured || made.fails == STOPS ? 1
				      : made.n_ranks - 1),
		      "%u of %u ranks have timed out", n_timed_out, made.n_ranks);
}

/* --- runs --------------------------------------------------------------------------- */

/* Lets a block do nothing for a time. */
static void put_to_sleep(const contexts &threads, const launch *of, uint32_t block,
			 uint32_t n_turns)
{
	for (const auto &thread : threads)
		if (thread->of == of && thread->block.x == block)
			thread->sleeps_until_ns = now_ns + n_turns * TURN_NS;
}

static bool may_begin(const scene &made, uint32_t own)
{
	const rank &mine = made.ranks[own];
	const bool is_next = own == made.who && mine.number + 1 == made.at;
	const bool is_held = is_next &&
		((made.fails == MISSING && !have_others_ended(made)) ||
		 (made.fails == LATE && !(have_others_ended(made) && made.is_aborted)));

	return !mine.kernel && mine.number < made.n_runs && now_ns >= mine.begins_ns && !is_held;
}

/* Returns whether a peer or an abort has poisoned a counter that a run of the rank will look at. */
static bool has_poison(const scene &made, uint32_t own, uint32_t n_blocks)
{
	for (uint32_t i = 0; i < made.n_ranks * n_blocks; i++)
		if (i / n_blocks != own && made.ranks[own].arrived[0][i] >= CEOV_VALUE_LIMIT)
			return true;
	return false;
}

static void begin_abort(scene *made)
{
	made->abort_ns = now_ns + draw(400) * TURN_NS;
	made->poison_ns = made->abort_ns + draw(2) * 2 * TIMEOUT_NS;
}

/* Stores poison of a peer for all blocks but the first of the rank's run. */
static void poison_blocks(scene *made, uint32_t n_blocks)
{
	const uint32_t peer = (made->who + 1 + draw(made->n_ranks - 1)) % made->n_ranks;

	for (uint32_t block = 1; block < n_blocks; block++)
		made->ranks[made->who].arrived[0][peer * n_blocks + block] = CEOV_VALUE_LIMIT;
}

static void begin_run(scene *made, uint32_t own, contexts *threads)
{
	rank *mine = &made->ranks[own];
	const uint32_t n_blocks = made->runs[mine->number].n_blocks;

	mine->number++;
	mine->direct = direct_of(made, own);
	mine->kernel.reset(new launch{ nullptr, own, { n_blocks }, { draw(4) ? 32u : 64u }, 0 });
	if (made->fails == BESIDE && own == made->who && mine->number == made->at)
		poison_blocks(made, n_blocks);
	mine->had_failed = mine->failed;
	mine->was_poisoned = has_poison(*made, own, n_blocks);
	mine->n_stored = 0;
	mine->begun_ns = now_ns;
	mine->pace = 1u << draw(6);
	begin(threads, mine->kernel.get(), is_copy(made->runs[mine->number - 1])
	      ? cei_direct_ll_copy : cei_direct_ll_fp32, &mine->direct);
	for (uint32_t block = 0; block < n_blocks; block++)
		if (draw(4) == 0)
			put_to_sleep(*threads, mine->kernel.get(), block, draw(300));
	if (!made->abort_ns && made->fails == ABORT && mine->number == made->at)
		begin_abort(made);
}

/* What a kernel has stored is visible when it has ended. */
static void end_run(scene *made, uint32_t own, contexts *threads)
{
	rank *mine = &made->ranks[own];
	const launch *ended = mine->kernel.get();

	show_all(mine);
	check_run(*made, own);
	threads->erase(std::remove_if(threads->begin(), threads->end(), [=](const auto &thread) {
		return thread->of == ended;
	}), threads->end());
	mine->kernel.reset();
	mine->begins_ns = now_ns + draw(draw(3) ? 20 : 600) * TURN_NS;
}

/* Looks whether the rank that is missing or late has ended the run before, and has all packets of
 * this one in its mail. */
static bool have_all_come(const scene &made)
{
	const run &run = made.runs[made.at - 1];
	const uint32_t half = made.is_captured ? (made.at - 1) % 2 : made.at % 2;
	const char *mail = (const char *)made.ranks[made.who].mail.data() +
		half * cei_direct_ll_half_bytes(made.n_ranks);
	const uint64_t number = made.base + made.at;

	if (made.ranks[made.who].number != made.at - 1 || made.ranks[made.who].kernel)
		return false;
	for (uint32_t i = 0; i < made.n_ranks; i++)
		for (uint32_t at = 0; i != made.who && at < run.bytes[i][made.who]; at += 16) {
			const char *first = mail + i * 2 * made.span_max + at;

			if (((const uint64_t *)first)[1] != number ||
			    ((const uint64_t *)(first + made.span_max))[1] != number)
				return false;
		}
	return true;
}

/* Takes an abort further. As in the library all abort words come before the counters. */
static void advance_abort(scene *made)
{
	if (made->is_aborted || !made->abort_ns || now_ns < made->abort_ns)
		return;
	for (auto &own : made->ranks) {
		own.aborted = 1;
		for (auto &half : own.arrived)
			for (auto &counter : half)
				if (!made->is_aborting)
					made->to_poison.push_back(&counter);
	}
	made->is_aborting = true;
	if (now_ns < made->poison_ns)
		return;
	for (uint32_t n = draw(40); n && !made->to_poison.empty(); n--) {
		std::swap(made->to_poison[draw((uint32_t)made->to_poison.size())],
			  made->to_poison.back());
		*made->to_poison.back() = CEOV_VALUE_LIMIT;
		made->to_poison.pop_back();
	}
	made->is_aborted = made->to_poison.empty();
}

static void pass_time(scene *made)
{
	bool hurries = made->fails == MISSING ? made->all_come
		: has_stopped(*made) && have_others_begun(*made);

	for (const auto &own : made->ranks)
		hurries = hurries || (own.failed && made->fails != BESIDE);
	now_ns += hurries ? HURRY * TURN_NS : TURN_NS;
	if ((made->fails == MISSING || made->fails == LATE) && !made->all_come) {
		made->all_come = have_all_come(*made);
		if (made->all_come && made->fails == LATE)
			begin_abort(made);
	}
	advance_abort(made);
}

/* Returns false when all ranks have made all runs. */
static bool play_turn(scene *made, contexts *threads, uint32_t slow)
{
	bool is_left = false;

	for (uint32_t i = 0; i < made->n_ranks; i++)
		if (may_begin(*made, i))
			begin_run(made, i, threads);
	turn(slow);
	for (uint32_t i = 0; i < made->n_ranks; i++) {
		rank *own = &made->ranks[i];

		show_some(own);
		if (own->kernel && !own->kernel->n_left)
			end_run(made, i, threads);
		else if (own->kernel && draw(200) == 0)
			put_to_sleep(*threads, own->kernel.get(), draw(own->kernel->blocks.x),
				     draw(300));
		is_left = is_left || own->kernel || own->number < made->n_runs;
	}
	pass_time(made);
	return is_left;
}

static void play(scene *made)
{
	uint64_t n_turns = 0;
	contexts threads;
	uint32_t slow = 0;

	played = made;
	while (play_turn(made, &threads, slow)) {
		CHECK(++n_turns < TURNS_MAX, "%u ranks, failure %u in run %u: it does not end",
		      made->n_ranks, made->fails, made->at);
		if (draw(500) == 0)
			slow = draw(made->n_ranks);
	}
	check_end(*made);
}

int main(int argc, char **argv)
{
	const uint64_t seed = argc > 1 ? strtoull(argv[1], nullptr, 10) : 1;
	const uint32_t n_cases = argc > 2 ? (uint32_t)strtoul(argv[2], nullptr, 10) : 20;
	uint32_t n_failing = 0, n_runs = 0;

	random_state = seed;
	now_ns = 1000 * TIMEOUT_NS;
	skew_ns = SKEW_NS;
	for (uint32_t i = 0; i < n_cases; i++) {
		scene made;

		case_number = i;
		pick(i, &made);
		play(&made);
		n_failing += made.fails != NONE;
		n_runs += made.n_runs;
	}
	printf("%u cases of %u runs, %u of them with a failure: all bytes are right\n", n_cases,
	       n_runs, n_failing);
	return 0;
}
