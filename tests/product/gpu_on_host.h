/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GPU_ON_HOST_H
#define CEI_GPU_ON_HOST_H

/*
 * What a kernel needs to run on the host, in C++17; gpu_on_host.sh prepares its source. All threads
 * of all kernels that run at the same time are contexts that one thread of the host switches
 * between, in an order that the seed says: where they wait, and where they access counters or other
 * memory that changes while they run.
 *
 * A test includes this, defines what else its kernel needs, and then includes the kernel's source.
 */

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <vector>
#include <setjmp.h>
#include <ucontext.h>

#include <ceoverlap/ceoverlap.h>

extern "C" {
#include "ops/compute/dtype.h"
}

#define CHECK(condition, ...) \
	do { \
		if (!(condition)) { \
			printf("FAIL: case %u: %s: ", case_number, #condition); \
			printf(__VA_ARGS__); \
			printf("\n"); \
			exit(1); \
		} \
	} while (0)

static const size_t STACK_BYTES = 32768;

/* --- threads ------------------------------------------------------------------ */

struct context;

struct meeting {                        /* of the threads of a warp or block */
	std::vector<context *> come;
	uint32_t               bits = 0, result = 0;    /* those of all threads */
};

struct block_memory {
	std::vector<char>    bytes;
	meeting              all;
	std::vector<meeting> warps;
};

struct number {
	uint32_t x;
};

struct launch {                         /* of a kernel; it stays where it is while that runs */
	std::function<void()>    kernel;        /* what each thread runs */
	uint32_t                 rank;
	number                   blocks, threads;       /* threads of a block */
	size_t                   n_shared;      /* bytes of shared memory of a block */
	std::deque<block_memory> memory;        /* [block] */
	size_t                   n_left;        /* threads that have not ended */
};

struct context {                        /* a thread of the GPU */
	jmp_buf                 machine;
	std::unique_ptr<char[]> stack;
	number                  thread, block;
	launch                 *of;
	block_memory           *memory;
	bool                    has_begun = false, has_ended = false;
	bool                    is_parked = false;      /* until others have come to a meeting */
	std::function<bool()>   awaited;        /* empty: it can go on */
	uint64_t                sleeps_until_ns = 0;
};

typedef std::vector<std::unique_ptr<context>> contexts;

static context *current;
static jmp_buf scheduler;
static std::vector<context *> ready;    /* threads that have not ended and are not parked */
static size_t n_running;                /* that have not ended */
static uint64_t now_ns, random_state;
static uint64_t skew_ns;                /* how far the clocks of SMs may be apart */
static uint32_t case_number;

static uint32_t draw(uint32_t n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % n;
}

static void pause_thread()
{
	if (!_setjmp(current->machine))
		_longjmp(scheduler, 1);
}

static void wait_for(std::function<bool()> condition)
{
	if (condition())
		return;
	current->awaited = condition;
	pause_thread();
}

/* Returns the bits of all n threads. */
static uint32_t meet(meeting *meeting, uint32_t n, uint32_t bits)
{
	meeting->bits |= bits;
	if (meeting->come.size() + 1 < n) {
		meeting->come.push_back(current);
		current->is_parked = true;
		pause_thread();
		return meeting->result;
	}
	for (context *each : meeting->come) {
		each->is_parked = false;
		ready.push_back(each);
	}
	meeting->come.clear();
	meeting->result = meeting->bits;
	meeting->bits = 0;
	return meeting->result;
}

static void enter()
{
	current->of->kernel();
	current->has_ended = true;
	current->of->n_left--;
	n_running--;
	_longjmp(scheduler, 1);
}

/* Lets a thread go on until it pauses. It changes stacks by setjmp(), since swapcontext() asks the
 * kernel each time. */
static void go_on(context *next)
{
	ucontext_t first;

	current = next;
	if (_setjmp(scheduler))
		return;
	if (next->has_begun)
		_longjmp(next->machine, 1);
	next->has_begun = true;
	getcontext(&first);
	first.uc_stack.ss_sp = next->stack.get();
	first.uc_stack.ss_size = STACK_BYTES;
	makecontext(&first, enter, 0);
	setcontext(&first);
}

static void add_block(contexts *threads, launch *of, uint32_t block)
{
	block_memory *memory;

	of->memory.emplace_back();
	memory = &of->memory.back();
	memory->bytes.resize(of->n_shared + 128);
	memory->warps.resize(of->threads.x / 32);
	for (uint32_t i = 0; i < of->threads.x; i++) {
		auto made = std::make_unique<context>();

		made->stack.reset(new char[STACK_BYTES]);
		made->thread = { i };
		made->block = { block };
		made->of = of;
		made->memory = memory;
		ready.push_back(made.get());
		n_running++;
		threads->push_back(std::move(made));
	}
}

/* Begins a kernel, whose rank, blocks, threads and n_shared the launch says. The parameters stay
 * where they are while it runs. */
template <class PARAMETERS>
static void begin(contexts *threads, launch *of, void (*kernel)(PARAMETERS),
		  const PARAMETERS *parameters)
{
	of->kernel = [=] { kernel(*parameters); };
	of->n_left = of->blocks.x * of->threads.x;
	for (uint32_t block = 0; block < of->blocks.x; block++)
		add_block(threads, of, block);
}

/* Lets each thread that can go on do so, most of the time; those of one rank seldom. Returns how
 * many have not ended. */
static size_t turn(uint32_t slow)
{
	std::vector<context *> here;
	const size_t shift = ready.empty() ? 0 : draw((uint32_t)ready.size());

	here.swap(ready);
	for (size_t i = 0; i < here.size(); i++) {
		context *next = here[(i + shift) % here.size()];
		const bool is_slow = next->of->rank == slow;

		if (now_ns >= next->sleeps_until_ns && draw(is_slow ? 4 : 8) &&
		    (!next->awaited || next->awaited())) {
			next->awaited = nullptr;
			go_on(next);
		}
		if (!next->has_ended && !next->is_parked)
			ready.push_back(next);
	}
	return n_running;
}

/* --- what CUDA has ------------------------------------------------------------ */

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(n, per_sm)
#define __CUDA_ARCH_FEAT_SM90_ALL
#define threadIdx (current->thread)
#define blockIdx  (current->block)
#define blockDim  (current->of->threads)
#define gridDim   (current->of->blocks)

struct alignas(16) uint4 {
	uint32_t x, y, z, w;
};

static uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
	return { x, y, z, w };
}

struct alignas(8) uint2 {
	uint32_t x, y;
};

static uint2 make_uint2(uint32_t x, uint32_t y)
{
	return { x, y };
}

static uint32_t max(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static uint64_t max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint32_t min(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint64_t min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static float __uint_as_float(uint32_t word)
{
	float value;

	memcpy(&value, &word, sizeof(value));
	return value;
}

static uint32_t __float_as_uint(float value)
{
	uint32_t word;

	memcpy(&word, &value, sizeof(word));
	return word;
}

static float __fdiv_rn(float a, float b)
{
	return a / b;
}

static int __ffs(int word)
{
	return __builtin_ffs(word);
}

static int __popc(uint32_t word)
{
	return __builtin_popcount(word);
}

static uint32_t atomicExch(uint32_t *word, uint32_t value)
{
	const uint32_t before = *word;

	*word = value;
	return before;
}

static unsigned long long atomicAdd(unsigned long long *word, unsigned long long value)
{
	*word += value;
	return *word - value;
}

static unsigned long long atomicCAS(unsigned long long *word, unsigned long long wanted,
				    unsigned long long value)
{
	const unsigned long long before = *word;

	if (before == wanted)
		*word = value;
	return before;
}

static meeting *own_warp()
{
	return &current->memory->warps[threadIdx.x / 32];
}

static void __syncwarp()
{
	meet(own_warp(), 32, 0);
}

static bool __all_sync(uint32_t, bool value)
{
	return !meet(own_warp(), 32, !value);
}

static bool __any_sync(uint32_t, bool value)
{
	return meet(own_warp(), 32, value);
}

static uint32_t __reduce_or_sync(uint32_t, uint32_t bits)
{
	return meet(own_warp(), 32, bits);
}

static uint32_t __ballot_sync(uint32_t, bool value)
{
	return meet(own_warp(), 32, value ? 1u << threadIdx.x % 32 : 0);
}

static uint64_t __shfl_sync(uint32_t, uint64_t value, uint32_t lane)
{
	const uint64_t mine = threadIdx.x % 32 == lane ? value : 0;
	const uint32_t low = meet(own_warp(), 32, (uint32_t)mine);

	return (uint64_t)meet(own_warp(), 32, (uint32_t)(mine >> 32)) << 32 | low;
}

static void __syncthreads()
{
	meet(&current->memory->all, blockDim.x, 0);
}

static bool __syncthreads_and(bool value)
{
	return !meet(&current->memory->all, blockDim.x, !value);
}

static void __nanosleep(uint32_t)
{
	pause_thread();
}

static void __threadfence_system()
{
}

static void __trap()
{
	abort();
}

/* --- in place of instructions --------------------------------------------------- */

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

static uint32_t host_add(uint32_t *n, uint32_t what)
{
	const uint32_t n_before = *n;

	*n += what;
	return n_before;
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
	return skew_ns ? now_ns - draw((uint32_t)skew_ns) : now_ns;
}

static bool ceov_device_is_aborted(const ceov_device_signal &signal)
{
	pause_thread();
	return *(const volatile uint32_t *)signal.abort_word;
}

/* How many times as long as it says an await can last. On a GPU it looks at the clock once in some
 * loads, each of which may take long. */
static uint64_t await_overrun = 1;

static int ceov_device_await(const ceov_device_signal &signal, uint32_t index, uint64_t value,
			     uint64_t timeout_ns)
{
	const volatile uint64_t *counter = signal.counters + index;
	const volatile uint32_t *aborted = signal.abort_word;
	const uint64_t end_ns = now_ns + await_overrun * timeout_ns;

	wait_for([=] { return *counter >= value || *aborted || now_ns >= end_ns; });
	if (*aborted || *counter >= CEOV_VALUE_LIMIT)
		return CEOV_DEVICE_ABORTED;
	return *counter >= value ? CEOV_DEVICE_REACHED : CEOV_DEVICE_TIMEOUT;
}

/* --- kernels/vectors.cuh ------------------------------------------------------- */

static uint32_t host_narrow(enum ceov_dtype dtype, float low, float high)
{
	const float both[2] = { low, high };
	uint32_t pair;

	cei_dtype_narrow(dtype, &pair, both, 2);
	return pair;
}

static void host_widen(enum ceov_dtype dtype, uint32_t pair, float &low, float &high)
{
	float both[2];

	cei_dtype_widen(dtype, both, &pair, 2);
	low = both[0];
	high = both[1];
}

#include "kernels/vectors.cuh"

#endif /* CEI_GPU_ON_HOST_H */
