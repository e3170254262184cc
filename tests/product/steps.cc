/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Runs the kernel of sums in steps on the host; check_steps.sh prepares its source. All threads of
 * all ranks' blocks are contexts that one thread switches between, in an order that the seed says.
 * Bulk copies happen piece by piece at any later time: a store has read its slot long before its
 * bytes are written, and slots that are being loaded hold rubbish until then. So a slot that is used
 * too early, a step that is told of too early, a wrong phase of a barrier or a wait that nobody ends
 * shows as a wrong sum, or as a case that does not end. The order in which a GPU makes memory
 * visible is not played: see docs/fences.md.
 *
 *   steps SEED CASES
 */

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>
#include <ucontext.h>

#include <ceoverlap/ceoverlap.h>

#define CHECK(condition, ...) \
	do { \
		if (!(condition)) { \
			printf("FAIL: %s: ", #condition); \
			printf(__VA_ARGS__); \
			printf("\n"); \
			exit(1); \
		} \
	} while (0)

static const uint64_t TURN_NS = 1000;           /* of the clock, for each turn of all threads */
static const uint64_t TIMEOUT_NS = 2000000;
static const uint64_t TURNS_MAX = 100000;       /* of a run that should have ended by then */
static const size_t STACK_BYTES = 32768;
static const float UNTOUCHED = 12345;           /* no sum: these are whole and below 8 * 500 */

/* --- threads ------------------------------------------------------------------ */

struct copy {                           /* a bulk copy */
	char             *to;
	const char       *from;
	uint32_t          n_bytes;
	uint64_t         *bar;          /* of a load; a store has none */
	std::vector<char> read;         /* what a store has read */
	int               state;        /* 0: begun, 1: read, 2: written */
};

struct meeting {                        /* of the threads of a warp or block */
	uint32_t n_come = 0, number = 0;
	bool     all = true, result = true;
};

struct block_memory {
	std::vector<char>    bytes;
	meeting              all;
	std::vector<meeting> warps;
};

struct number {
	uint32_t x;
};

typedef std::vector<std::shared_ptr<copy>> group;

struct context {                        /* a thread of the GPU */
	ucontext_t            machine;
	std::vector<char>     stack;
	number                thread, block, blocks;
	block_memory         *memory;
	const void           *argument;
	bool                  has_ended = false;
	std::function<bool()> awaited;  /* empty: it can go on */
	group                 begun;    /* stores behind the last group */
	std::vector<group>    groups;
};

static context *current;
static ucontext_t scheduler;
static uint64_t now_ns, random_state;
static uint32_t n_threads;              /* of a block */
static std::vector<std::shared_ptr<copy>> copies;

static uint32_t draw(uint32_t n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % n;
}

static void pause_thread()
{
	swapcontext(&current->machine, &scheduler);
}

static void wait_for(std::function<bool()> condition)
{
	if (condition())
		return;
	current->awaited = condition;
	pause_thread();
}

static bool meet(meeting *meeting, uint32_t n, bool value)
{
	const uint32_t number = meeting->number;

	meeting->all = meeting->all && value;
	if (++meeting->n_come < n) {
		wait_for([=] { return meeting->number != number; });
		return meeting->result;
	}
	meeting->result = meeting->all;
	meeting->all = true;
	meeting->n_come = 0;
	meeting->number++;
	return meeting->result;
}

/* --- what CUDA has ------------------------------------------------------------ */

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(n, per_sm)
#define __CUDA_ARCH_FEAT_SM90_ALL
#define threadIdx (current->thread)
#define blockIdx  (current->block)
#define gridDim   (current->blocks)

struct alignas(16) uint4 {
	uint32_t x, y, z, w;
};

static meeting *own_warp()
{
	return &current->memory->warps[threadIdx.x / 32];
}

static void __syncwarp()
{
	meet(own_warp(), 32, true);
}

static bool __all_sync(uint32_t, bool value)
{
	return meet(own_warp(), 32, value);
}

static void __syncthreads()
{
	meet(&current->memory->all, n_threads, true);
}

static bool __syncthreads_and(bool value)
{
	return meet(&current->memory->all, n_threads, value);
}

static void __threadfence_system()
{
}

static void __trap()
{
	abort();
}

static char *host_shared()
{
	return (char *)(((uintptr_t)current->memory->bytes.data() + 127) / 128 * 128);
}

static uint64_t host_load(const uint64_t *counter)
{
	pause_thread();
	return *(const volatile uint64_t *)counter;
}

static void host_store(uint64_t *counter, uint64_t value)
{
	*(volatile uint64_t *)counter = value;
	pause_thread();
}

static uint32_t host_count(uint32_t *n, uint32_t last)
{
	const uint32_t n_before = *n;

	*n = n_before >= last ? 0 : n_before + 1;
	return n_before;
}

/* --- ceoverlap/device.cuh ------------------------------------------------------ */

enum { CEOV_DEVICE_REACHED, CEOV_DEVICE_ABORTED, CEOV_DEVICE_TIMEOUT };

static uint64_t ceov_device_load(const uint64_t *counter)
{
	return host_load(counter);
}

static uint64_t ceov_device_now_ns()
{
	return now_ns;
}

static int ceov_device_await(const ceov_device_signal &signal, uint32_t index, uint64_t value,
			     uint64_t timeout_ns)
{
	const volatile uint64_t *counter = signal.counters + index;
	const volatile uint32_t *aborted = signal.abort_word;
	const uint64_t end_ns = now_ns + timeout_ns;

	wait_for([=] { return *counter >= value || *aborted || now_ns >= end_ns; });
	if (*aborted || *counter >= CEOV_VALUE_LIMIT)
		return CEOV_DEVICE_ABORTED;
	return *counter >= value ? CEOV_DEVICE_REACHED : CEOV_DEVICE_TIMEOUT;
}

/* --- kernels/vectors.cuh: fp32 alone -------------------------------------------- */

struct vector_fp32 {
	static constexpr uint32_t n_elements = 4;

	static void widen(const uint4 &vector, float *wide)
	{
		memcpy(wide, &vector, sizeof(vector));
	}

	static uint4 narrow(const float *wide)
	{
		uint4 vector;

		memcpy(&vector, wide, sizeof(vector));
		return vector;
	}
};

struct pair_bf16;
struct pair_fp16;
template <class PAIR> struct vector_pairs : vector_fp32 {};

static uint4 cei_load(const uint4 *p)
{
	return *p;
}

template <class T>
static void cei_add_vector(const uint4 &vector, bool is_first, float *sum)
{
	float wide[T::n_elements];

	T::widen(vector, wide);
	for (uint32_t i = 0; i < T::n_elements; i++)
		sum[i] = is_first ? wide[i] : sum[i] + wide[i];
}

/* --- kernels/bulk.cuh ------------------------------------------------------------ */

struct barrier {
	uint32_t n_arrivals, n_left;
	int64_t  n_bytes;               /* that loads still have to bring */
	uint32_t phase;
};

static std::map<const void *, barrier> barriers;

static void end_phase(barrier *bar)
{
	if (bar->n_left || bar->n_bytes)
		return;
	bar->phase++;
	bar->n_left = bar->n_arrivals;
}

static void arrive(uint64_t *word, uint32_t n_bytes)
{
	barrier *bar = &barriers.at(word);

	CHECK(bar->n_left, "an arrival too many");
	bar->n_left--;
	bar->n_bytes += n_bytes;
	end_phase(bar);
	pause_thread();
}

static void cei_bar_init(uint64_t *word, uint32_t n_arrivals)
{
	barriers[word] = { n_arrivals, n_arrivals, 0, 0 };
}

static void cei_bar_init_fence()
{
}

static void cei_bar_wait(uint64_t *word, uint32_t parity)
{
	const barrier *bar = &barriers.at(word);

	wait_for([=] { return bar->phase % 2 != parity; });
}

static void cei_bar_arrive(uint64_t *word)
{
	arrive(word, 0);
}

static void cei_bar_expect(uint64_t *word, uint32_t n_bytes)
{
	arrive(word, n_bytes);
}

static std::shared_ptr<copy> begin_copy(void *to, const void *from, uint32_t n_bytes,
					uint64_t *bar)
{
	auto made = std::make_shared<copy>(
		copy{ (char *)to, (const char *)from, n_bytes, bar, {}, 0 });

	CHECK(n_bytes && ((uintptr_t)to | (uintptr_t)from | n_bytes) % 16 == 0, "a bad copy");
	copies.push_back(made);
	return made;
}

static void cei_bulk_load(void *to, const void *from, uint32_t n_bytes, uint64_t *bar)
{
	begin_copy(to, from, n_bytes, bar);
	memset(to, 0xee, n_bytes);
	pause_thread();
}

static void cei_bulk_store(void *to, const void *from, uint32_t n_bytes)
{
	current->begun.push_back(begin_copy(to, from, n_bytes, nullptr));
	pause_thread();
}

static void cei_store_commit()
{
	current->groups.push_back(current->begun);
	current->begun.clear();
}

/* Waits until copies of all groups but the last n have come to a state. */
static void wait_groups(size_t n, int state)
{
	const context *own = current;

	wait_for([=] {
		for (size_t i = 0; i + n < own->groups.size(); i++)
			for (const auto &each : own->groups[i])
				if (each->state < state)
					return false;
		return true;
	});
}

template <int N> static void cei_store_wait_read()
{
	wait_groups(N, 1);
}

template <int N> static void cei_store_wait_all_but()
{
	wait_groups(N, 2);
}

static void cei_store_wait()
{
	wait_groups(0, 2);
}

static void cei_fence_async()
{
}

static void cei_fence_async_shared()
{
}

/* Takes a copy one state further. */
static void advance(copy *each)
{
	if (each->bar) {
		memcpy(each->to, each->from, each->n_bytes);
		barriers.at(each->bar).n_bytes -= each->n_bytes;
		end_phase(&barriers.at(each->bar));
		each->state = 2;
	} else if (each->state == 0) {
		each->read.assign(each->from, each->from + each->n_bytes);
		each->state = 1;
	} else {
		memcpy(each->to, each->read.data(), each->n_bytes);
		each->state = 2;
	}
}

static void advance_copies()
{
	std::vector<std::shared_ptr<copy>> left;

	for (const auto &each : copies) {
		if (draw(4) == 0)
			advance(each.get());
		if (each->state < 2)
			left.push_back(each);
	}
	copies = left;
}

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

static void enter()
{
	cei_direct_steps_fp32(*(const cei_direct *)current->argument);
	current->has_ended = true;
	pause_thread();
}

static void add_block(std::deque<context> *contexts, block_memory *memory, uint32_t block,
		      uint32_t n_blocks, const cei_direct *direct)
{
	memory->bytes.resize(CEI_DIRECT_STEP_SHARED + 128);
	memory->warps.resize(n_threads / 32);
	for (uint32_t i = 0; i < n_threads; i++) {
		contexts->emplace_back();
		context *made = &contexts->back();

		made->stack.resize(STACK_BYTES);
		made->thread = { i };
		made->block = { block };
		made->blocks = { n_blocks };
		made->memory = memory;
		made->argument = direct;
		getcontext(&made->machine);
		made->machine.uc_stack.ss_sp = made->stack.data();
		made->machine.uc_stack.ss_size = made->stack.size();
		makecontext(&made->machine, enter, 0);
	}
}

/* Lets each thread that can go on do so, most of the time; those of one rank seldom. Returns how
 * many have not ended. */
static size_t turn(std::deque<context> *contexts, uint32_t slow)
{
	const size_t shift = draw((uint32_t)contexts->size());
	size_t n_left = 0;

	for (size_t i = 0; i < contexts->size(); i++) {
		context *next = &(*contexts)[(i + shift) % contexts->size()];
		const bool is_slow = ((const cei_direct *)next->argument)->own == slow;

		if (next->has_ended)
			continue;
		n_left++;
		if (draw(is_slow ? 4 : 8) == 0 || (next->awaited && !next->awaited()))
			continue;
		next->awaited = nullptr;
		current = next;
		swapcontext(&scheduler, &next->machine);
	}
	return n_left;
}

static void run(sums *made, uint32_t number)
{
	const bool misses = number == 2 && made->fails == MISSING;
	const uint64_t abort_at = number == 2 && made->fails == ABORT ? 20 + draw(600) : 0;
	const uint32_t slow = draw(made->n_ranks);
	std::vector<cei_direct> arguments;
	std::deque<block_memory> memory;
	std::deque<context> contexts;
	uint64_t n_turns = 0;

	barriers.clear();
	for (uint32_t i = 0; i < made->n_ranks; i++)
		arguments.push_back(argument_of(made, i, number));
	for (uint32_t i = 0; i < made->n_ranks; i++)
		for (uint32_t block = 0; block < made->n_blocks && !(misses && i == 1); block++) {
			memory.emplace_back();
			add_block(&contexts, &memory.back(), block, made->n_blocks, &arguments[i]);
		}
	while (turn(&contexts, slow)) {
		now_ns += TURN_NS;
		advance_copies();
		CHECK(++n_turns < TURNS_MAX, "run %u does not end", number);
		for (auto &own : made->ranks)
			own.aborted |= n_turns == abort_at;
	}
	CHECK(copies.empty(), "run %u ended before its copies", number);
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

	n_threads = CEI_DIRECT_STEP_THREADS;
	random_state = seed;
	for (uint32_t i = 0; i < n_cases; i++) {
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
