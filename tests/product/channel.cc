/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Runs the kernels of channels between GPUs (src/kernels/channel.h) on the host: gpu_on_host.h says
 * how, check_channel.sh prepares their source, bulk_on_host.h and channel_late.h say what comes
 * late. In a case each rank makes the same calls, and beside them sends and receives messages, each
 * rank at its own time, on memory that is made once: so rings wrap, and halves are used again. The
 * parameters are those that the library makes. The order in which a GPU makes ordinary stores to
 * its own memory visible is not played: see docs/internals/fences.md.
 *
 *   channel SEED CASES [MUTANT]
 */

#include "channel_cases.h"

#include "kernels/channel_packets_kernels.cu"
#include "kernels/channel_steps_kernels.cu"

static const uint64_t TURN_NS = 1000;           /* of the clock, for each turn of all threads */
static const uint64_t TIMEOUT_NS = 100000 * TURN_NS;
static const uint64_t SKEW_NS = 50 * TURN_NS;   /* how far the clocks of SMs are apart */
static const uint64_t HURRY = 300;              /* how much faster clocks go while a rank is
						 * missed */
static const uint32_t SLOWNESS = 300;           /* of some bulk copies, in turns */
static const uint64_t TURNS_MAX = 300000;       /* of a case that should have ended by then */

extern "C" struct ceov_call cei_calls_at(const struct cei_calls *calls, uint32_t i)
{
	return ((const ceov_call *)calls->first)[i];
}

/* --- kernels ----------------------------------------------------------------------- */

static const struct {
	const char *name;
	void      (*run)(cei_channel_run);
} kernels[] = {
	{ "cei_channel_packets_copy", cei_channel_packets_copy },
	{ "cei_channel_packets_bf16", cei_channel_packets_bf16 },
	{ "cei_channel_packets_fp16", cei_channel_packets_fp16 },
	{ "cei_channel_packets_fp32", cei_channel_packets_fp32 },
	{ "cei_channel_lines_copy", cei_channel_lines_copy },
	{ "cei_channel_lines_bf16", cei_channel_lines_bf16 },
	{ "cei_channel_lines_fp16", cei_channel_lines_fp16 },
	{ "cei_channel_lines_fp32", cei_channel_lines_fp32 },
	{ "cei_channel_steps_copy", cei_channel_steps_copy },
	{ "cei_channel_steps_bf16", cei_channel_steps_bf16 },
	{ "cei_channel_steps_fp16", cei_channel_steps_fp16 },
	{ "cei_channel_steps_fp32", cei_channel_steps_fp32 },
};

static cei_channel_place place_of(scene *made, uint32_t own)
{
	cei_channel_place place = {};

	for (uint32_t i = 0; i < made->n_ranks; i++)
		place.memory[i] = (char *)made->ranks[i].memory;
	place.layout = made->layout;
	place.status = &made->ranks[own].status;
	place.timeout_ns = TIMEOUT_NS;
	place.n_ranks = made->n_ranks;
	place.own = own;
	return place;
}

/* Returns whether a peer has told the rank that the channel has ended. */
static bool is_told(const scene &made, uint32_t own)
{
	const uint64_t *poison = made.ranks[own].memory->words.poison;

	for (uint32_t i = 0; i < made.n_ranks; i++)
		if (poison[i] && (poison[i] & 255) != CEI_CHANNEL_RELEASED)
			return true;
	return false;
}

static void begin_kernel(scene *made, uint32_t own, lane_of_work *work)
{
	work->was_told = is_told(*made, own);
	work->had_failed = made->ranks[own].memory->state.failed;
	work->kernel.reset(new launch{ nullptr, own, { work->how.n_blocks },
				       { work->how.n_threads }, work->how.shared_bytes });
	all_late[work->kernel.get()].pace = 1u << draw(6);
	work->next++;
}

static void begin_call(scene *made, uint32_t own, lane_of_work *work)
{
	const part &part = made->runs[work->next].parts[own];

	work->run = {};
	work->run.place = place_of(made, own);
	cei_gpu_make_run(&part.call, &work->run, &work->how);
	CHECK(work->how.kernel < CEI_GPU_LINES || work->how.kernel >= CEI_GPU_STEPS ||
	      work->run.place.layout.line_span > work->run.place.layout.span_max,
	      "rank %u of %u, %s: there is no mail for lines", own, made->n_ranks,
	      cei_gpu_kernel_names[work->how.kernel]);
	work->before = part.memory.bytes;
	begin_kernel(made, own, work);
	for (const auto &each : kernels)
		if (!strcmp(each.name, cei_gpu_kernel_names[work->how.kernel]))
			begin(&work->threads, work->kernel.get(), each.run, &work->run);
	CHECK(work->kernel->n_left, "no kernel %s", cei_gpu_kernel_names[work->how.kernel]);
}

static void begin_run(scene *made, uint32_t own)
{
	lane_of_work *work = &made->ranks[own].calls, *twice = &made->ranks[own].twice;

	begin_call(made, own, work);
	if (made->fails == DOUBLES && own == made->who && work->next == made->at + 1) {
		twice->next = made->at;
		begin_call(made, own, twice);
	}
	if (made->fails == ABORTS && own == made->who && work->next == made->at + 1)
		made->abort_ns = now_ns + draw(600) * TURN_NS;
}

static void begin_messages(scene *made, uint32_t own)
{
	lane_of_work *work = &made->ranks[own].messages;
	std::vector<ceov_call> list;
	cei_calls calls;

	for (uint32_t i : made->ranks[own].batches[work->next]) {
		const message &each = made->messages[i];

		list.push_back(each.from == own ? each.send : each.receive);
	}
	calls = { list.data(), sizeof(list[0]), (uint32_t)list.size() };
	work->messages = {};
	work->messages.place = place_of(made, own);
	cei_gpu_make_messages(&calls, &work->messages, &work->how);
	CHECK(work->messages.n == list.size(), "%u messages of %zu", work->messages.n,
	      list.size());
	begin_kernel(made, own, work);
	begin(&work->threads, work->kernel.get(), cei_channel_messages, &work->messages);
}

/* --- what has to be right behind a kernel -------------------------------------------- */

static bool has_failed(const rank &own)
{
	return own.memory->state.failed;
}

static bool is_nan(const cei_call &call, const char *a, const char *b)
{
	float wide[2];

	cei_dtype_widen(call.call.dtype, wide, a, 1);
	cei_dtype_widen(call.call.dtype, wide + 1, b, 1);
	return std::isnan(wide[0]) && std::isnan(wide[1]);
}

static void check_target(const part &mine)
{
	const std::vector<char> &got = mine.memory.bytes, &want = mine.want;
	const cei_call &call = mine.call;
	const size_t first = mine.target_at % 4;        /* of an item */
	size_t i, item;

	for (i = 0; i < want.size(); i++) {
		if (got[i] == want[i])
			continue;
		item = call.is_sum ? i - (i - first) % call.item_bytes : i;
		CHECK(call.is_sum && is_nan(call, want.data() + item, got.data() + item),
		      "rank %u of %u, kind %u, dtype %u, reduction %u: %02x, not %02x, in byte %zd "
		      "of %zu", call.rank, call.n_ranks, call.call.kind, call.call.dtype,
		      call.call.reduction, got[i] & 255, want[i] & 255, i - mine.target_at,
		      mine.target_n);
	}
}

/* Nothing may be written around a target, whatever fails. */
static void check_around(const operand &memory, const std::vector<char> &want, size_t first,
			 size_t n)
{
	for (size_t i = 0; i < want.size(); i++)
		CHECK(memory.bytes[i] == want[i] || (i >= first && i < first + n),
		      "byte %zd of a target of %zu was written", i - first, n);
}

static void check_run(const scene &made, uint32_t own)
{
	const rank &rank = made.ranks[own];
	const uint32_t number = rank.calls.next;
	const part &mine = made.runs[number - 1].parts[own];

	check_around(mine.memory, mine.want, mine.target_at, mine.target_n);
	CHECK(!rank.calls.had_failed || mine.memory.bytes == rank.calls.before,
	      "rank %u, run %u: the channel had ended before it", own, number);
	CHECK(has_failed(rank) || !rank.calls.was_told, "rank %u, run %u goes on by itself", own,
	      number);
	CHECK(mine.other.bytes == mine.want_other, "rank %u, run %u: the source was changed", own,
	      number);
	if (has_failed(rank))
		return;
	CHECK(rank.memory->state.epoch == made.base + number, "rank %u, run %u: epoch %llu", own,
	      number, (unsigned long long)rank.memory->state.epoch);
	CHECK(!rank.memory->state.ended, "rank %u, run %u: blocks are still counted", own,
	      number);
	if ((made.fails == RUN_DIFFERS || made.fails == DOUBLES) && number == made.at + 1)
		return;
	check_target(mine);
}

static void check_messages(const scene &made, uint32_t own)
{
	const rank &rank = made.ranks[own];

	for (uint32_t i : rank.batches[rank.messages.next - 1]) {
		const message &each = made.messages[i];
		const size_t n = each.receive.count * cei_dtype_bytes(each.receive.dtype);

		if (each.from == own)
			continue;
		check_around(each.target, each.want, each.target.first - each.target.bytes.data(),
			     n);
		CHECK(has_failed(rank) || each.target.bytes == each.want,
		      "message %u of %zu bytes from rank %u to rank %u is wrong", i, n, each.from,
		      own);
	}
}

/* --- failures ---------------------------------------------------------------------- */

static bool is_same(const cei_channel_note &a, const cei_channel_note &b)
{
	return !memcmp(&a, &b, sizeof(a));
}

/* The note of a rank that has found what `peer` calls or sends. */
static cei_channel_note note_of(const scene &made, uint32_t own, uint32_t peer)
{
	if (made.fails == MESSAGE_DIFFERS) {
		const message &odd = made.messages[made.at];
		const uint64_t width = cei_dtype_bytes(odd.send.dtype);
		const uint64_t what = CEOV_SEND | (uint64_t)odd.send.dtype << 8;

		return { { what, odd.send.count * width }, { what, odd.receive.count * width } };
	}
	const cei_call &mine = made.runs[made.at].parts[own].call;
	const cei_call &there = made.runs[made.at].parts[peer].call;

	return { { there.what, there.parts[own].to }, { mine.what, mine.parts[peer].from } };
}

static enum cei_channel_end cause_of(failure_kind fails)
{
	static const enum cei_channel_end ends[FAILURES] = {
		CEI_CHANNEL_GOOD, CEI_CHANNEL_DIFFERS, CEI_CHANNEL_DIFFERS, CEI_CHANNEL_ABORTED,
		CEI_CHANNEL_LATE, CEI_CHANNEL_UNORDERED,
	};

	return ends[fails];
}

/* Checks the status of a rank that has found the failure itself. */
static void check_found(const scene &made, uint32_t own)
{
	const cei_channel_status &status = made.ranks[own].status;
	const uint64_t run = made.fails == MESSAGE_DIFFERS ? 0 : made.base + made.at + 1;

	if (made.fails == MISSES) {
		CHECK(status.end == CEI_CHANNEL_LATE, "rank %u has ended with %u", own,
		      status.end);
		return;
	}
	if (made.fails == ABORTS) {
		CHECK(status.end == CEI_CHANNEL_ABORTED && own == made.who,
		      "rank %u has ended with %u", own, status.end);
		return;
	}
	CHECK(status.end == cause_of(made.fails) && status.run == run,
	      "rank %u has ended run %llu with %u", own, (unsigned long long)status.run,
	      status.end);
	if (made.fails == DOUBLES)
		CHECK(own == made.who && status.peer == own, "rank %u was unordered", own);
	else
		CHECK(is_same(status.note, note_of(made, own, status.peer)),
		      "rank %u: a wrong note", own);
}

/* Checks the status of a rank that was told of the failure. */
static void check_told(const scene &made, uint32_t own)
{
	const cei_channel_status &status = made.ranks[own].status;
	const cei_channel_status &there = made.ranks[status.peer].status;
	const uint32_t because_of = (uint32_t)(status.cause >> 8);

	CHECK((status.cause & 255) == cause_of(made.fails), "rank %u: a wrong cause %llx", own,
	      (unsigned long long)status.cause);
	if (made.fails == ABORTS) {
		CHECK(status.peer == made.who, "rank %u was told by rank %u", own, status.peer);
		return;
	}
	CHECK(there.end == cause_of(made.fails) && there.peer == because_of &&
	      is_same(status.note, there.note),
	      "rank %u was told by rank %u, because of rank %u, which has ended with %u because "
	      "of rank %u", own, status.peer, because_of, there.end, there.peer);
}

static void check_failure(const scene &made)
{
	uint32_t n_found = 0;

	for (uint32_t own = 0; own < made.n_ranks; own++) {
		const uint32_t end = made.ranks[own].status.end;

		if (made.fails == ABORTS && own == made.who && !end)
			continue;       /* it has not waited since */
		CHECK(end, "rank %u has not failed", own);
		n_found += end != CEI_CHANNEL_POISONED;
		if (end == CEI_CHANNEL_POISONED)
			check_told(made, own);
		else
			check_found(made, own);
	}
	CHECK(n_found || made.fails == ABORTS, "nobody has found the failure");
}

/* --- what has to be right at the end -------------------------------------------------- */

/* What a rank has counted of a ring, and what its peer has. */
static void check_ring(const scene &made, uint32_t from, uint32_t to, uint32_t ring)
{
	const cei_channel_memory &sender = *made.ranks[from].memory;
	const cei_channel_memory &receiver = *made.ranks[to].memory;

	for (uint32_t lane = 0; lane < CEI_CHANNEL_LANES_MAX; lane++) {
		const uint64_t n = sender.state.sent[ring][to][lane];

		CHECK(receiver.words.arrived[ring][from][lane] == n &&
		      receiver.state.taken[ring][from][lane] == n &&
		      sender.words.credit[ring][to][lane] == n,
		      "ring %u, lane %u, of %llu chunks from rank %u to rank %u: %llu have "
		      "arrived, %llu were taken, for %llu there is credit", ring, lane,
		      (unsigned long long)n, from, to,
		      (unsigned long long)receiver.words.arrived[ring][from][lane],
		      (unsigned long long)receiver.state.taken[ring][from][lane],
		      (unsigned long long)sender.words.credit[ring][to][lane]);
	}
}

static void check_end(const scene &made)
{
	for (const auto &own : made.ranks)
		for (size_t i = 0; i < GUARD; i++)
			CHECK(((char *)own.memory)[own.n_memory + i] == (char)0xee,
			      "behind a channel's memory");
	if (made.fails != NONE)
		return check_failure(made);
	for (uint32_t from = 0; from < made.n_ranks; from++)
		for (uint32_t to = 0; to < made.n_ranks; to++)
			for (uint32_t ring = 0; from != to && ring < CEI_CHANNEL_RINGS; ring++)
				check_ring(made, from, to, ring);
}

/* --- play -------------------------------------------------------------------------- */

static bool have_others(const scene &made, std::function<bool(const rank &)> what)
{
	for (uint32_t i = 0; i < made.n_ranks; i++)
		if (i != made.who && !what(made.ranks[i]))
			return false;
	return true;
}

static bool is_missed(const scene &made)
{
	const lane_of_work &calls = made.ranks[made.who].calls;

	return made.fails == MISSES && calls.next == made.at && !calls.kernel;
}

/* Peers wait with their run until the rank that begins it twice has found that. */
static bool is_doubled(const scene &made, uint32_t own)
{
	return made.fails == DOUBLES && own != made.who && made.ranks[own].calls.next == made.at &&
		!has_failed(made.ranks[made.who]);
}

/* Failing cases end with a call that each rank begins when nothing else is under way there, so all
 * ranks have to find the failure. */
static bool may_begin_run(const scene &made, uint32_t own)
{
	const rank &rank = made.ranks[own];

	if (rank.calls.kernel || rank.calls.next == made.runs.size() ||
	    now_ns < rank.calls.begins_ns || is_doubled(made, own))
		return false;
	if (own == made.who && is_missed(made))
		return have_others(made, has_failed);
	if (made.fails == NONE || rank.calls.next + 1 < made.runs.size())
		return true;
	return rank.messages.next == rank.batches.size() && !rank.messages.kernel &&
		(made.fails != ABORTS || made.is_aborted);
}

static bool may_begin_messages(const scene &made, uint32_t own)
{
	const rank &rank = made.ranks[own];

	return !rank.messages.kernel && rank.messages.next < rank.batches.size() &&
		now_ns >= rank.messages.begins_ns;
}

/* What a kernel has stored is visible when it has ended. */
static void end_kernel(const scene &made, uint32_t own, lane_of_work *work)
{
	const launch *ended = work->kernel.get();

	for (const auto &each : copies)
		CHECK(each->of != ended, "rank %u: a copy is under way behind %s", own,
		      cei_gpu_kernel_names[work->how.kernel]);
	show_all(ended);
	all_late.erase(ended);
	for (const auto &thread : work->threads)
		all_stores.erase(thread.get());
	CHECK(made.fails != NONE || !has_failed(made.ranks[own]),
	      "rank %u of %u, %s: it failed with %u, wait %u, peer %u, run %llu", own,
	      made.n_ranks, cei_gpu_kernel_names[work->how.kernel], made.ranks[own].status.end,
	      made.ranks[own].status.wait, made.ranks[own].status.peer,
	      (unsigned long long)made.ranks[own].status.run);
	if (work == &made.ranks[own].calls)
		check_run(made, own);
	else if (work == &made.ranks[own].messages)
		check_messages(made, own);
	work->threads.clear();
	work->kernel.reset();
	work->begins_ns = now_ns + draw(draw(3) ? 20 : 600) * TURN_NS;
}

static void put_to_sleep(const lane_of_work &work)
{
	const uint32_t block = draw(work.kernel->blocks.x);
	const uint64_t until_ns = now_ns + draw(300) * TURN_NS;

	for (const auto &thread : work.threads)
		if (thread->block.x == block)
			thread->sleeps_until_ns = until_ns;
}

static void advance(const scene &made, uint32_t own, lane_of_work *work)
{
	if (!work->kernel)
		return;
	show_some(work->kernel.get());
	if (!work->kernel->n_left)
		end_kernel(made, own, work);
	else if (draw(200) == 0)
		put_to_sleep(*work);
}

/* Stores a rank's poison at all peers, as the library does on the host. */
static void poison_peers(scene *made, uint32_t own, enum cei_channel_end end)
{
	for (uint32_t i = 0; i < made->n_ranks; i++)
		if (i != own)
			made->ranks[i].memory->words.poison[own] = end | (uint64_t)own << 8;
}

static void abort_one(scene *made)
{
	rank *who = &made->ranks[made->who];

	if (made->is_aborted || !made->abort_ns || now_ns < made->abort_ns)
		return;
	made->is_aborted = true;
	who->status.abort = 1;
	if (!who->status.end)
		poison_peers(made, made->who, CEI_CHANNEL_ABORTED);
}

/* Returns whether the rank has anything left to do. */
static bool play_rank(scene *made, uint32_t own)
{
	rank *rank = &made->ranks[own];
	bool is_left;

	if (may_begin_run(*made, own))
		begin_run(made, own);
	if (may_begin_messages(*made, own))
		begin_messages(made, own);
	advance(*made, own, &rank->calls);
	advance(*made, own, &rank->messages);
	advance(*made, own, &rank->twice);
	is_left = rank->calls.kernel || rank->messages.kernel || rank->twice.kernel ||
		rank->calls.next < made->runs.size() ||
		rank->messages.next < rank->batches.size();
	if (!is_left && made->is_released && !rank->has_released) {
		rank->has_released = true;
		poison_peers(made, own, CEI_CHANNEL_RELEASED);
	}
	return is_left;
}

static void play(scene *made)
{
	uint64_t n_turns = 0;
	uint32_t slow = 0;
	bool is_left = true;

	while (is_left) {
		is_left = false;
		for (uint32_t i = 0; i < made->n_ranks; i++)
			is_left = play_rank(made, i) || is_left;
		turn(slow);
		advance_copies();
		abort_one(made);
		now_ns += is_missed(*made) && have_others(*made, [=](const rank &own) {
			return own.calls.next > made->at || has_failed(own);
		}) ? HURRY * TURN_NS : TURN_NS;
		CHECK(++n_turns < TURNS_MAX, "%u ranks, failure %u in %u of rank %u: it does not "
		      "end", made->n_ranks, made->fails, made->at, made->who);
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

	mutant = argc > 3 ? atoi(argv[3]) : 0;
	random_state = seed;
	now_ns = 1000 * TIMEOUT_NS;
	skew_ns = SKEW_NS;
	write_store = write_late;
	slowness = SLOWNESS;
	for (uint32_t i = 0; i < n_cases; i++) {
		scene made;

		case_number = i;
		pick(i, &made);
		play(&made);
		n_failing += made.fails != NONE;
		n_runs += made.runs.size() + made.messages.size();
	}
	printf("%u cases of %u runs and messages, %u of them with a failure: all bytes are right\n",
	       n_cases, n_runs, n_failing);
	return 0;
}
