/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Large calls of channels whose targets lie in pools, beside calls that take kernels, and how they
 * end when ranks differ, do not call, abort or close. */

#include "gpu_channel_rig.h"
#include "gpu_graph.h"
#include "gpu_process.h"

#include <ceoverlap/pool.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "ops/compute/dtype.h"

#define CALLS       24u                 /* of a drawn program */
#define AT_ONCE     4u                  /* that are queued before they are checked */
#define MIB         (UINT64_C(1) << 20)
#define DEADLINE_NS TESTING_SECOND
#define END_NS      (2 * TESTING_SECOND)

static struct gpu_op_rig rig;
static struct testing_log lines;
static uint32_t n_all;                  /* number of ranks */

struct pooled {                         /* a rank's channel with its pool */
	ceov_channel *channel;
	ceov_pool    *pool;
};

static struct pooled made(struct gpu_op_rank *rank, const char *name, uint64_t deadline_ns)
{
	struct gpu_channel_mode mode = { name, GPU_CHANNEL_RING, deadline_ns };
	struct ceov_pool_config config = CEOV_POOL_CONFIG_INIT;
	struct pooled own = { gpu_channel_made(rank, &mode), NULL };

	config.max_bytes = GPU_OP_ARENA_BYTES;
	gpu_op_result_check(rank, ceov_pool_create(own.channel, &config, &own.pool));
	gpu_op_meet(rank);
	gpu_op_result_check(rank, ceov_pool_connect(own.pool, TESTING_PATIENCE));
	gpu_op_meet(rank);
	return own;
}

static void release(struct gpu_op_rank *rank, const struct pooled *own)
{
	uint64_t deadline_ns = cei_deadline(TESTING_PATIENCE);
	int r;

	gpu_op_meet(rank);
	while ((r = ceov_pool_release(own->pool)) == CEOV_PENDING) {
		ck_assert_uint_lt(cei_now_ns(), deadline_ns);
		usleep(1000);
	}
	gpu_op_result_check(rank, r);
	gpu_channel_release(rank, own->channel);
}

static struct ceov_pool_info info_of(struct gpu_op_rank *rank, const struct pooled *own)
{
	struct ceov_pool_info info = CEOV_POOL_INFO_INIT;

	gpu_op_result_check(rank, ceov_pool_query(own->pool, &info));
	return info;
}

/* --- calls ----------------------------------------------------------------------------------- */

struct one {
	struct gpu_channel_call call;
	void                   *memory; /* in the pool, or NULL */
};

/* Makes operands in the pool, or elsewhere. The struct must not move afterwards. */
static void put(struct gpu_op_rank *rank, const struct pooled *own, const struct channel_case *one,
		struct one *ret)
{
	struct channel_form form = { .is_in_place = one->seed % 2 };

	memset(ret, 0, sizeof(*ret));
	if (!own) {
		gpu_channel_put(rank, one, &form, &ret->call);
		return;
	}
	ret->call.rank = rank;
	ret->call.one = *one;
	channel_data_make(one, rank->rank, &form, &ret->call.data);
	gpu_op_result_check(rank, ceov_pool_alloc(own->pool, ret->call.data.n_bytes,
						  &ret->memory));
	ret->call.memory = ret->memory;
	gpu_move(&rank->gpu, ret->memory, ret->call.data.memory, ret->call.data.n_bytes);
}

static void check(struct gpu_op_rank *rank, const struct pooled *own, struct one *one)
{
	gpu_channel_check(&one->call);
	gpu_channel_drop(&one->call);
	if (one->memory)
		gpu_op_result_check(rank, ceov_pool_free(own->pool, one->memory));
}

/* Returns the case of that number; a large one goes by pools if all targets lie there. */
static struct channel_case case_of(uint32_t number, int is_large)
{
	static const enum ceov_call_kind kinds[] = { CEOV_ALL_GATHER, CEOV_ALL_TO_ALL,
						     CEOV_BROADCAST };
	static const enum ceov_dtype dtypes[] = { CEOV_INT8, CEOV_BF16, CEOV_FP32, CEOV_INT64 };
	uint64_t random = testing_seed() + number * 7919u, count, rank;
	struct channel_case one;
	enum ceov_dtype dtype;

	if (!is_large)
		return gpu_channel_case(number, n_all, 65536);
	dtype = dtypes[testing_random(&random) % 4];
	count = CEOV_POOL_CALL_BYTES + testing_random(&random) % (MIB * 4);
	count = count / cei_dtype_bytes(dtype) + 1;
	one = channel_case_of(kinds[number % 3], dtype, n_all, count);
	one.seed = testing_random(&random);
	if (one.kind == CEOV_BROADCAST)
		one.root = (uint32_t)(testing_random(&random) % n_all);
	if (one.kind == CEOV_ALL_GATHER && number % 2) {
		one.is_uneven = 1;
		for (rank = 1; rank < n_all; rank++)
			one.sizes[rank] = testing_random(&random) % count;
	}
	return one;
}

/* --- programs -------------------------------------------------------------------------------- */

struct program {
	const char *name;
	uint32_t    first;              /* number of its first case */
	uint32_t    outside;            /* every so many calls a rank's target lies elsewhere;
					 * 0: never */
};

/* Returns whose target lies elsewhere in a large call, or n_all: nobody's. */
static uint32_t outside_of(const struct program *program, uint32_t number)
{
	uint32_t rank = number / 2 % n_all;

	return program->outside && number % program->outside == 0 ? rank : n_all;
}

/* Whether that rank's target is looked for: a broadcast's root has none. */
static int takes_kernel(const struct channel_case *one, uint32_t outside)
{
	return outside < n_all && !(one->kind == CEOV_BROADCAST && one->root == outside);
}

/* Large and small calls on several streams, of which several are queued before they are checked. */
static void run_program(struct gpu_op_rank *rank, const void *arg)
{
	const struct program *program = arg;
	struct pooled own = made(rank, program->name, 0);
	struct one at_once[AT_ONCE];
	struct channel_case one;
	uint32_t i, k, number, outside, n_large = 0, n_outside = 0;
	struct ceov_pool_info info;

	for (i = 0; i < CALLS; i += AT_ONCE) {
		rank->used_bytes = 0;
		for (k = 0; k < AT_ONCE; k++) {
			number = program->first + i + k;
			one = case_of(number, k != 2);
			outside = outside_of(program, number);
			n_large += k != 2;
			n_outside += k != 2 && takes_kernel(&one, outside);
			put(rank, outside == rank->rank || k == 2 ? NULL : &own, &one, &at_once[k]);
		}
		gpu_op_meet(rank);
		for (k = 0; k < AT_ONCE; k++)
			gpu_op_result_check(rank, gpu_channel_run(own.channel, &at_once[k].call,
								  k % 2 ? GPU_CONSUME : GPU_WAIT));
		gpu_channel_idle(rank, own.channel, GPU_WAIT);
		gpu_channel_idle(rank, own.channel, GPU_CONSUME);
		for (k = 0; k < AT_ONCE; k++)
			check(rank, &own, &at_once[k]);
	}
	info = info_of(rank, &own);
	ck_assert_uint_eq(info.n_engine_calls, n_large - n_outside);
	ck_assert_uint_eq(info.n_kernel_calls, n_outside);
	ck_assert_uint_eq(info.used_bytes, 0);
	release(rank, &own);
}

START_TEST(test_large_calls_go_to_targets)
{
	const struct program program = { "pool", (uint32_t)_i * 1000, 0 };

	gpu_channel_open(&rig, n_all, &lines);
	gpu_op_each(&rig, run_program, &program);
	gpu_channel_close(&rig);
}
END_TEST

START_TEST(test_targets_of_some_ranks_lie_elsewhere)
{
	const struct program program = { "mixed", (uint32_t)_i * 1000 + 500, 2 };

	gpu_channel_open(&rig, n_all, &lines);
	gpu_op_each(&rig, run_program, &program);
	gpu_channel_close(&rig);
}
END_TEST

static void be_process(uint32_t rank)
{
	const struct program direct = { "processes", 40, 0 }, mixed = { "mixed processes", 80, 3 };
	char path[200];

	testing_path("group", path, sizeof(path));
	gpu_op_open_one(&rig, rank, n_all, path);
	gpu_op_each(&rig, run_program, &direct);
	gpu_op_each(&rig, run_program, &mixed);
	gpu_op_close(&rig);
}

START_TEST(test_processes)
{
	gpu_process_each(n_all, be_process);
}
END_TEST

/* A rank's stream comes to a call late, again and again, and its target is not written to before:
 * what it holds when the stream comes is what the rank has put there last. */
static void be_late(struct gpu_op_rank *rank, const void *arg)
{
	struct pooled own = made(rank, "late", 0);
	uint64_t random = testing_seed() + rank->rank;
	struct channel_case one;
	struct one call;
	uint32_t i;

	(void)arg;
	for (i = 0; i < CALLS; i++) {
		one = case_of(3000 + i, 1);
		put(rank, &own, &one, &call);
		gpu_op_meet(rank);
		gpu_op_be_late(rank, GPU_CONSUME, &random);
		gpu_move(&rank->gpu, call.memory, call.call.data.memory, call.call.data.n_bytes);
		gpu_op_result_check(rank, gpu_channel_run(own.channel, &call.call, GPU_CONSUME));
		gpu_channel_idle(rank, own.channel, GPU_CONSUME);
		check(rank, &own, &call);
	}
	release(rank, &own);
}

START_TEST(test_streams_that_come_late)
{
	gpu_channel_open(&rig, n_all, &lines);
	gpu_op_each(&rig, be_late, NULL);
	gpu_channel_close(&rig);
}
END_TEST

/* --- memory ---------------------------------------------------------------------------------- */

/* Whether a line says that a pool has no more memory. */
static int told_in_the_log(void)
{
	uint32_t i, n = 0;

	pthread_mutex_lock(&lines.lock);
	for (i = 0; i < TESTING_LINES && i < lines.n_lines; i++)
		n += strstr(lines.lines[i], "max_bytes together") != NULL;
	pthread_mutex_unlock(&lines.lock);
	return n > 0;
}

static void allocate(struct gpu_op_rank *rank, const void *arg)
{
	struct pooled own = made(rank, "memory", 0);
	struct ceov_pool_info info;
	void *first = NULL, *second = NULL, *again = NULL;
	ceov_pool_allocate_fn take = NULL;
	ceov_pool_free_fn give = NULL;
	uint64_t begin_ns = cei_now_ns();

	(void)arg;
	gpu_op_result_check(rank, ceov_pool_functions(own.pool, &take, &give));
	ck_assert_ptr_null(take(2 * GPU_OP_ARENA_BYTES, 0, NULL));  /* the pool's thread says why */
	while (!told_in_the_log() && cei_now_ns() - begin_ns < END_NS)
		usleep(1000);
	ck_assert(told_in_the_log());
	gpu_op_result_check(rank, ceov_pool_alloc(own.pool, 3 * MIB, &first));
	gpu_op_result_check(rank, ceov_pool_alloc(own.pool, MIB, &second));
	ck_assert_ptr_ne(first, second);
	info = info_of(rank, &own);
	ck_assert_uint_eq(info.segment_bytes, 6 * MIB);
	ck_assert_uint_eq(info.used_bytes, 6 * MIB);
	gpu_op_result_check(rank, ceov_pool_free(own.pool, first));
	ck_assert_int_eq(ceov_pool_free(own.pool, first), CEOV_ERR_INVALID);
	gpu_op_result_check(rank, ceov_pool_alloc(own.pool, 4 * MIB, &again));
	ck_assert_ptr_eq(first, again);
	ck_assert_uint_eq(info_of(rank, &own).n_segments, 2);
	ck_assert_int_eq(ceov_pool_alloc(own.pool, GPU_OP_ARENA_BYTES, &first),
			 CEOV_ERR_NO_MEMORY);
	give(second, MIB, 0, NULL);
	ck_assert_ptr_eq(take(MIB, 0, NULL), second);
	ck_assert_int_eq(ceov_channel_release(own.channel), CEOV_ERR_STATE);
	release(rank, &own);
	ck_assert_ptr_null(take(MIB, 0, NULL));
}

START_TEST(test_memory_is_handed_out_again)
{
	gpu_channel_open(&rig, n_all, &lines);
	gpu_op_each(&rig, allocate, NULL);
	gpu_channel_close(&rig);
}
END_TEST

/* --- failures -------------------------------------------------------------------------------- */

enum way { DIFFERS, DIFFERS_IN_SIZE, IS_ABSENT, ABORTS };

/* Rank 1 does something else than the others; all learn of it, and their streams go on. */
static void do_else(struct gpu_op_rank *rank, const void *arg)
{
	static const int errors[] = { CEOV_ERR_INVALID, CEOV_ERR_INVALID, CEOV_ERR_TIMEOUT,
				      CEOV_ERR_ABORTED };
	const enum way way = *(const enum way *)arg;
	struct pooled own = made(rank, "fails", DEADLINE_NS);
	struct channel_case one = case_of(0, 1);
	uint64_t begin_ns;
	struct one call;
	int r;

	if (rank->rank == 1 && way == DIFFERS)
		one = case_of(2, 1);
	if (rank->rank == 1 && way == DIFFERS_IN_SIZE)
		one = channel_case_of(one.kind, one.dtype, n_all, one.count + 16);
	put(rank, &own, &one, &call);
	gpu_op_meet(rank);
	begin_ns = cei_now_ns();
	if (rank->rank == 1 && way == ABORTS)
		gpu_op_result_check(rank, ceov_channel_abort(own.channel));
	if (rank->rank != 1 || way < IS_ABSENT) {
		r = gpu_channel_run(own.channel, &call.call, GPU_CONSUME);
		ck_assert_msg(!r || r == errors[way], "rank %u: %s", rank->rank, ceov_strerror(r));
	}
	gpu_idle(&rank->gpu, GPU_CONSUME);
	if (rank->rank != 1 || way < IS_ABSENT) {
		while (!(r = ceov_channel_status(own.channel)) &&
		       cei_now_ns() - begin_ns < DEADLINE_NS + END_NS)
			usleep(1000);
		ck_assert_msg(r == errors[way], "rank %u: %s: %s", rank->rank, ceov_strerror(r),
			      testing_failure(rank->context).text);
		ck_assert_uint_lt(cei_now_ns() - begin_ns, DEADLINE_NS + END_NS);
	}
	gpu_op_meet(rank);
	gpu_channel_drop(&call.call);
	release(rank, &own);
}

START_TEST(test_a_rank_that_does_something_else)
{
	const enum way way = (enum way)_i;

	gpu_channel_open(&rig, n_all, &lines);
	gpu_op_each(&rig, do_else, &way);
	if (way == DIFFERS)
		ck_assert_uint_ge(gpu_channel_lines(&lines, "all_gather", "broadcast"), 1);
	if (way == DIFFERS_IN_SIZE)
		ck_assert_uint_ge(gpu_channel_lines(&lines, "large call 1", "the same of"), 1);
	if (way == IS_ABSENT)
		ck_assert_uint_ge(gpu_channel_lines(&lines, "rank 1", "has not made this call"), 1);
	gpu_channel_close(&rig);
}
END_TEST

/* A context closes while streams wait in calls that a rank does not make. */
static void leave_waiting(struct gpu_op_rank *rank, const void *arg)
{
	struct pooled own = made(rank, "closes", TESTING_PATIENCE);
	struct channel_case one = case_of(0, 1);
	struct one call;

	(void)arg;
	put(rank, &own, &one, &call);
	gpu_op_meet(rank);
	if (rank->rank)
		gpu_op_result_check(rank, gpu_channel_run(own.channel, &call.call, GPU_CONSUME));
	gpu_op_meet(rank);
	gpu_channel_drop(&call.call);
}

static void drain(struct gpu_op_rank *rank, const void *arg)
{
	(void)arg;
	gpu_idle(&rank->gpu, GPU_CONSUME);
}

START_TEST(test_a_context_closes)
{
	uint64_t begin_ns;

	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, leave_waiting, NULL);
	begin_ns = cei_now_ns();
	ceov_close(rig.context);
	rig.context = NULL;
	gpu_op_each(&rig, drain, NULL);
	ck_assert_uint_lt(cei_now_ns() - begin_ns, 2 * END_NS);
	gpu_op_close(&rig);
}
END_TEST

static Suite *suite(uint32_t n_ranks)
{
	Suite *all = suite_create("gpu pool");
	TCase *calls = tcase_create("pool");

	n_all = n_ranks < CHANNEL_RANKS_MAX ? n_ranks : CHANNEL_RANKS_MAX;
	tcase_set_timeout(calls, 60);
	tcase_add_loop_test(calls, test_large_calls_go_to_targets, 0, 2);
	tcase_add_loop_test(calls, test_targets_of_some_ranks_lie_elsewhere, 0, 2);
	tcase_add_test(calls, test_processes);
	tcase_add_test(calls, test_streams_that_come_late);
	tcase_add_test(calls, test_memory_is_handed_out_again);
	tcase_add_loop_test(calls, test_a_rank_that_does_something_else, 0, ABORTS + 1);
	tcase_add_test(calls, test_a_context_closes);
	suite_add_tcase(all, calls);
	return all;
}

int main(void)
{
	return gpu_main_ranks(suite);
}
