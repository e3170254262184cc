/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * One process per rank, forked before any of them touches CUDA: an all-gather through CUDA IPC,
 * and the death of a process in the middle of one. An assert that fails in a forked rank ends it
 * with status 1, which its parent sees.
 */

#include "gpu_process.h"
#include "gpu_rig.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ceoverlap/collective.h>

#include "base/clock.h"

#define PIECES      3u
#define PIECE_WORDS UINT64_C(40010)     /* uneven, but a multiple of 16 bytes, at which templates
					 * cut */
#define SHARD_WORDS (PIECES * PIECE_WORDS)
#define SHARD_BYTES (SHARD_WORDS * 8)
#define TILES       5u
#define LAUNCHES    100u
#define VICTIM      1u
#define LOSS_NS     TESTING_SECOND      /* limit for noticing the loss; the aim is 100 ms, and the
					 * time is printed */
#define DRAIN_NS    (8 * TESTING_SECOND)

struct board {                          /* memory shared by the processes of a test */
	_Atomic uint64_t killed_ns;
	_Atomic uint32_t step;
	uint64_t         lost_ns[GPU_RANKS_MAX];        /* when the wait ended */
};

static struct board *board;
static uint32_t n_ranks;
static pid_t ranks[GPU_RANKS_MAX];

struct party {
	uint32_t      rank;
	struct gpu    gpu;
	ceov_context *context;
	ceov_buffer  *source;
	ceov_buffer  *targets[GPU_RANKS_MAX];
	ceov_signal  *ready;
	ceov_signal  *arrived[GPU_RANKS_MAX];
	ceov_signal  *free[GPU_RANKS_MAX];
	ceov_plan    *plan;
	struct ceov_device_signal ready_view;
	struct ceov_device_signal arrived_view;
};

static void set_up(void)
{
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(board, MAP_FAILED);
}

static void tear_down(void)
{
	munmap(board, sizeof(*board));
}

/* --- processes of the ranks ---------------------------------------------- */

/* Starts one process per rank; each ends with status 0 when body returns. */
static void start(void (*body)(struct party *party))
{
	struct party party;
	uint32_t i;

	for (i = 0; i < n_ranks; i++) {
		ranks[i] = gpu_process_fork();
		if (ranks[i])
			continue;
		memset(&party, 0, sizeof(party));
		party.rank = i;
		body(&party);
		gpu_process_leave();
	}
}

/* Asserts how a rank's process ended: by itself with status 0, or by the signal that the test
 * sent. */
static void end(uint32_t rank, int by_signal)
{
	gpu_process_end(ranks[rank], rank, by_signal);
}

static void wait_for_step(uint32_t step)
{
	uint64_t deadline = cei_deadline(2 * TESTING_PATIENCE);

	while (atomic_load(&board->step) < step) {
		ck_assert_uint_lt(cei_now_ns(), deadline);
		usleep(1000);
	}
}

static void open_party(struct party *party)
{
	struct ceov_member member = { party->rank, { CEOV_PLACE_GPU, gpu_of_rank(party->rank) } };
	struct ceov_config config = CEOV_CONFIG_INIT;
	char path[200];

	testing_path("group", path, sizeof(path));
	config.members = &member;
	config.n_members = 1;
	config.n_ranks = n_ranks;
	config.group = path;
	config.deadline_ns = TESTING_PATIENCE;
	ck_assert_int_eq(ceov_open(&config, &party->context), 0);
	gpu_open(&party->gpu, gpu_of_rank(party->rank));
}

static ceov_buffer *find_buffer(struct party *party, uint32_t rank)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	ceov_buffer *found = NULL;
	int r;

	while ((r = ceov_buffer_find(party->context, rank, "target", &found)) == CEOV_NONE)
		ck_assert_uint_lt(cei_now_ns(), deadline);
	ck_assert_int_eq(r, 0);
	return found;
}

static ceov_signal *find_signal(struct party *party, uint32_t rank, const char *name)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	ceov_signal *found = NULL;
	int r;

	while ((r = ceov_signal_find(party->context, rank, name, &found)) == CEOV_NONE)
		ck_assert_uint_lt(cei_now_ns(), deadline);
	ck_assert_int_eq(r, 0);
	return found;
}

static ceov_signal *make_signal(struct party *party, uint32_t n_counters)
{
	return gpu_signal(party->context, party->rank, party->gpu.index, n_counters,
			  CEOV_SIGNAL_HOST_VISIBLE);
}

static void meet(struct party *party)
{
	uint32_t own = party->rank, i;

	party->source = testing_buffer(party->context, own, SHARD_BYTES);
	party->targets[own] = testing_buffer(party->context, own, n_ranks * SHARD_BYTES);
	party->ready = make_signal(party, PIECES);
	party->arrived[own] = make_signal(party, n_ranks * PIECES);
	party->free[own] = make_signal(party, n_ranks * PIECES);
	ck_assert_int_eq(ceov_buffer_share(party->targets[own], "target"), 0);
	ck_assert_int_eq(ceov_signal_share(party->arrived[own], "arrived"), 0);
	ck_assert_int_eq(ceov_signal_share(party->free[own], "free"), 0);
	for (i = 0; i < n_ranks; i++) {
		if (i == own)
			continue;
		party->targets[i] = find_buffer(party, i);
		party->arrived[i] = find_signal(party, i, "arrived");
		party->free[i] = find_signal(party, i, "free");
	}
	party->ready_view = gpu_view(party->ready, own);
	party->arrived_view = gpu_view(party->arrived[own], own);
}

static void plan(struct party *party)
{
	struct ceov_all_gather gather = { .struct_bytes = sizeof(gather) };

	gather.shard_bytes = SHARD_BYTES;
	gather.n_pieces = PIECES;
	gather.source = party->source;
	gather.targets = party->targets;
	gather.ready = party->ready;
	gather.arrived = party->arrived;
	gather.free = party->free;
	party->plan = testing_plan(party->context, party->rank);
	ck_assert_int_eq(ceov_plan_add_all_gather(party->plan, &gather), 0);
	ck_assert_int_eq(ceov_plan_commit(party->plan), 0);
	ck_assert_int_eq(ceov_barrier(party->context, TESTING_PATIENCE), 0);
}

/* --- launches ------------------------------------------------------------ */

static uint64_t seed_of(uint32_t rank, uint64_t k)
{
	return testing_seed() + (k * GPU_RANKS_MAX + rank) * SHARD_WORDS;
}

static void produce(struct party *party, uint64_t k)
{
	struct cei_kernel_produce produce;

	memset(&produce, 0, sizeof(produce));
	produce.signal = party->ready_view;
	produce.p = ceov_buffer_base(party->source, party->rank);
	produce.n_words = PIECE_WORDS;
	produce.seed = seed_of(party->rank, k);
	produce.n_pieces = PIECES;
	produce.n_tiles = TILES;
	produce.value = k + 1;
	gpu_launch(&party->gpu, GPU_PRODUCE, "cei_kernel_produce", 16, &produce);
}

static int launch(struct party *party, uint64_t k, int is_gated, ceov_ticket *ret_ticket)
{
	struct ceov_launch made = { .struct_bytes = sizeof(made), .base = k };

	made.producer_stream = is_gated ? party->gpu.streams[GPU_PRODUCE] : NULL;
	return ceov_launch(party->plan, &made, ret_ticket);
}

/* Queues a kernel that awaits one piece of one shard and checks its words. */
static void consume(struct party *party, uint64_t k, uint32_t i)
{
	struct cei_kernel_consume consume;

	memset(&consume, 0, sizeof(consume));
	consume.signal = party->arrived_view;
	consume.index = i;
	consume.value = k + 1;
	consume.timeout_ns = GPU_AWAIT_NS;
	consume.p = (uint64_t *)ceov_buffer_base(party->targets[party->rank], party->rank) +
		i * PIECE_WORDS;
	consume.n_words = PIECE_WORDS;
	consume.seed = seed_of(i / PIECES, k) + i % PIECES * PIECE_WORDS;
	consume.n_wrong = &party->gpu.results[0].n_wrong;
	consume.first_wrong = &party->gpu.results[0].first_wrong;
	consume.ret_status = &party->gpu.results[0].status;
	gpu_launch(&party->gpu, GPU_CONSUME, "cei_kernel_consume", 8, &consume);
}

static void free_targets(struct party *party, uint64_t k)
{
	struct ceov_mark marks[GPU_RANKS_MAX * PIECES];
	uint32_t i;

	for (i = 0; i < n_ranks * PIECES; i++)
		marks[i] = testing_mark(party->free[party->rank], i, 1);
	ck_assert_int_eq(ceov_stream_raise(party->context, party->rank,
					   party->gpu.streams[GPU_CONSUME], marks,
					   n_ranks * PIECES, k), 0);
}

/* Carries out one launch: produces, gathers, checks every word of every shard on the GPU, and
 * frees. */
static void whole_launch(struct party *party, uint64_t k, int is_gated)
{
	struct gpu_result seen;
	ceov_ticket ticket;
	uint32_t i;

	produce(party, k);
	ck_assert_int_eq(launch(party, k, is_gated, &ticket), 0);
	for (i = 0; i < n_ranks * PIECES; i++)
		consume(party, k, i);
	free_targets(party, k);
	ck_assert_int_eq(ceov_wait(party->context, ticket, TESTING_PATIENCE), 0);
	gpu_idle(&party->gpu, GPU_CONSUME);
	seen = gpu_result(&party->gpu, 0);
	ck_assert_uint_eq(seen.status, GPU_REACHED);
	ck_assert_msg(!seen.n_wrong, "rank %u, launch %llu: %llu words are wrong, the "
		      "first is %llu of a piece", party->rank, (unsigned long long)k,
		      seen.n_wrong, seen.first_wrong);
}

static void close_party(struct party *party)
{
	gpu_close(&party->gpu);
	ceov_close(party->context);
}

static void gather_all(struct party *party)
{
	uint64_t k;

	open_party(party);
	meet(party);
	plan(party);
	for (k = 0; k < LAUNCHES; k++)
		whole_launch(party, k, k / 7 % 2 != 0);
	ck_assert_int_eq(ceov_barrier(party->context, TESTING_PATIENCE), 0);
	close_party(party);
}

START_TEST(test_all_gather_between_processes)
{
	uint32_t i;

	start(gather_all);
	for (i = 0; i < n_ranks; i++)
		end(i, 0);
}
END_TEST

/* --- death of a process -------------------------------------------------- */

static void expect_loss(struct party *party, int r, const char *what)
{
	struct ceov_failure failure;

	ck_assert_msg(r == CEOV_ERR_PEER_LOST, "rank %u: %s: %s", party->rank, what,
		      ceov_strerror(r));
	failure = testing_failure(party->context);
	ck_assert_int_eq(failure.error, CEOV_ERR_PEER_LOST);
	ck_assert_msg(failure.rank == VICTIM, "rank %u: %s blames rank %d: %s", party->rank,
		      what, (int)failure.rank, failure.text);
}

/* Waits for the rank that dies: in kernels, in a stream, in a gated launch whose producer never
 * raises, and in another one whose target the rank does not free. */
static void wait_in_vain(struct party *party, uint64_t k, ceov_ticket *tickets)
{
	const uint32_t own = party->rank;
	struct ceov_mark mark = testing_mark(party->arrived[own], VICTIM * PIECES, 1);
	struct ceov_mark at_victim = testing_mark(party->free[VICTIM], 0, 1);
	uint32_t i;

	ck_assert_int_eq(launch(party, k, 1, &tickets[0]), 0);
	ck_assert_int_eq(launch(party, k + 1, 1, &tickets[1]), 0);
	for (i = 0; i < PIECES; i++)
		consume(party, k, VICTIM * PIECES + i);
	ck_assert_int_eq(ceov_stream_wait(party->context, own,
					  party->gpu.streams[GPU_WAIT], &mark, 1, k), 0);
	/* waiting for a signal in another process's GPU is refused */
	ck_assert_int_eq(ceov_stream_wait(party->context, own,
					  party->gpu.streams[GPU_WAIT], &at_victim, 1, k),
			 CEOV_ERR_NO_ROUTE);
	ck_assert_int_eq(testing_failure(party->context).error, CEOV_ERR_NO_ROUTE);
}

static void survive(struct party *party, const ceov_ticket *tickets)
{
	struct gpu_result seen;
	uint64_t start;
	uint32_t i;
	int r;

	r = ceov_signal_wait(party->arrived[party->rank], VICTIM * PIECES,
			     CEOV_VALUE_LIMIT - 1, TESTING_PATIENCE);
	start = board->lost_ns[party->rank] = cei_now_ns();
	expect_loss(party, r, "ceov_signal_wait");
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(ceov_wait(party->context, tickets[i], TESTING_PATIENCE),
				 CEOV_ERR_PEER_LOST);
	printf("loss: rank %u: launches in flight ended %llu us later\n", party->rank,
	       (unsigned long long)(cei_now_ns() - start) / 1000);
	ck_assert_uint_lt(cei_now_ns() - start, DRAIN_NS);
	gpu_idle(&party->gpu, GPU_CONSUME);
	seen = gpu_result(&party->gpu, 0);
	ck_assert_uint_eq(seen.status, GPU_ABORTED);
	ck_assert_msg(!seen.n_wrong, "a kernel was let through to %llu wrong words",
		      seen.n_wrong);
	gpu_idle(&party->gpu, GPU_WAIT);
	ck_assert_int_eq(ceov_launch(party->plan, NULL, NULL), CEOV_ERR_PEER_LOST);
}

static void gather_until_death(struct party *party)
{
	ceov_ticket tickets[2];
	uint64_t k;

	open_party(party);
	meet(party);
	plan(party);
	for (k = 0; k < 4; k++)
		whole_launch(party, k, k % 2 != 0);
	ck_assert_int_eq(ceov_barrier(party->context, TESTING_PATIENCE), 0);
	if (party->rank != VICTIM)
		wait_in_vain(party, k, tickets);
	atomic_fetch_add(&board->step, 1);
	if (party->rank == VICTIM)
		pause();
	survive(party, tickets);
	close_party(party);
}

START_TEST(test_death_frees_waits_kernels_and_streams)
{
	uint64_t took;
	uint32_t i;

	start(gather_until_death);
	wait_for_step(n_ranks);
	usleep(50000);
	atomic_store(&board->killed_ns, cei_now_ns());
	ck_assert_int_eq(kill(ranks[VICTIM], SIGKILL), 0);
	for (i = 0; i < n_ranks; i++)
		end(i, i == VICTIM ? SIGKILL : 0);
	for (i = 0; i < n_ranks; i++) {
		if (i == VICTIM)
			continue;
		took = board->lost_ns[i] - atomic_load(&board->killed_ns);
		printf("loss: rank %u knew %llu us after the kill\n", i,
		       (unsigned long long)took / 1000);
		ck_assert_uint_lt(took, LOSS_NS);
	}
	fflush(stdout);
}
END_TEST

static Suite *suite(uint32_t n)
{
	Suite *made = suite_create("gpu processes");
	TCase *all = tcase_create("processes");

	n_ranks = n < GPU_RANKS_MAX ? n : GPU_RANKS_MAX;
	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_set_timeout(all, 100);
	tcase_add_test(all, test_all_gather_between_processes);
	tcase_add_test(all, test_death_frees_waits_kernels_and_streams);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return gpu_main_ranks(suite);
}
