/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Ranks on GPUs, their threads and workspaces. */

#include "gpu_op_rig.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "ops/core/workspace.h"

#define LATE_NS     (10 * TESTING_MS)
#define LATE_RESULT 3u                  /* result slot of the kernel that delays a stream */

/* --- one thread per rank --------------------------------------------------- */

struct thread {
	pthread_t           thread;
	struct gpu_op_rank *rank;
	void              (*body)(struct gpu_op_rank *rank, const void *arg);
	const void         *arg;
};

static void *run_thread(void *arg)
{
	const struct thread *thread = arg;

	thread->body(thread->rank, thread->arg);
	return NULL;
}

void gpu_op_each(struct gpu_op_rig *rig,
		 void (*body)(struct gpu_op_rank *rank, const void *arg), const void *arg)
{
	struct thread threads[GPU_OP_RANKS_ROOM];
	uint32_t i;

	for (i = 0; i < rig->n_here; i++) {
		threads[i].rank = &rig->ranks[rig->first + i];
		threads[i].body = body;
		threads[i].arg = arg;
		ck_assert_int_eq(pthread_create(&threads[i].thread, NULL, run_thread,
						&threads[i]), 0);
	}
	for (i = 0; i < rig->n_here; i++)
		pthread_join(threads[i].thread, NULL);
}

void gpu_op_meet(struct gpu_op_rank *rank)
{
	struct gpu_op_rig *rig = rank->rig;

	if (rig->n_here == rig->n_ranks)
		pthread_barrier_wait(&rig->barrier);
	else
		ck_assert_int_eq(ceov_barrier(rig->context, TESTING_PATIENCE), 0);
}

/* --- opening --------------------------------------------------------------- */

static void open_rank(struct gpu_op_rank *rank, const void *arg)
{
	(void)arg;
	gpu_open(&rank->gpu, gpu_of_rank(rank->rank));
	rank->arena = gpu_allocate(&rank->gpu, GPU_OP_ARENA_BYTES);
}

/* contexts NULL: all ranks are in the rig's own. */
static void open_ranks(struct gpu_op_rig *rig, ceov_context *const *contexts)
{
	uint32_t i;

	ck_assert_int_eq(pthread_barrier_init(&rig->barrier, NULL, rig->n_here), 0);
	for (i = 0; i < rig->n_ranks; i++) {
		rig->ranks[i].rig = rig;
		rig->ranks[i].rank = i;
		rig->ranks[i].context = contexts ? contexts[i] : rig->context;
	}
	gpu_op_each(rig, open_rank, NULL);
}

void gpu_op_open(struct gpu_op_rig *rig, uint32_t n_ranks)
{
	uint32_t indices[GPU_OP_RANKS_ROOM], i;

	ck_assert_uint_le(n_ranks, GPU_OP_RANKS_ROOM);
	for (i = 0; i < n_ranks; i++)
		indices[i] = gpu_of_rank(i);
	memset(rig, 0, sizeof(*rig));
	rig->n_ranks = rig->n_here = n_ranks;
	rig->context = gpu_context(indices, n_ranks);
	open_ranks(rig, NULL);
}

void gpu_op_open_in(struct gpu_op_rig *rig, uint32_t n_ranks, ceov_context *const *contexts)
{
	ck_assert_uint_le(n_ranks, GPU_OP_RANKS_ROOM);
	memset(rig, 0, sizeof(*rig));
	rig->n_ranks = rig->n_here = n_ranks;
	open_ranks(rig, contexts);
}

void gpu_op_open_one(struct gpu_op_rig *rig, uint32_t rank, uint32_t n_ranks,
		     const char *path)
{
	struct ceov_member member = { rank, { CEOV_PLACE_GPU, gpu_of_rank(rank) } };
	struct ceov_config config = CEOV_CONFIG_INIT;

	ck_assert_uint_le(n_ranks, GPU_OP_RANKS_ROOM);
	memset(rig, 0, sizeof(*rig));
	rig->n_ranks = n_ranks;
	rig->first = rank;
	rig->n_here = 1;
	config.members = &member;
	config.n_members = 1;
	config.n_ranks = n_ranks;
	config.group = path;
	config.deadline_ns = GPU_DEADLINE;
	ck_assert_int_eq(ceov_open(&config, &rig->context), 0);
	open_ranks(rig, NULL);
}

static void close_rank(struct gpu_op_rank *rank, const void *arg)
{
	(void)arg;
	gpu_free(&rank->gpu, rank->arena);
	gpu_close(&rank->gpu);
}

void gpu_op_close(struct gpu_op_rig *rig)
{
	gpu_op_each(rig, close_rank, NULL);
	ceov_close(rig->context);
	pthread_barrier_destroy(&rig->barrier);
}

void *gpu_op_take(struct gpu_op_rank *rank, uint64_t n_bytes)
{
	void *taken = rank->arena + rank->used_bytes;

	rank->used_bytes += (n_bytes + GPU_OP_ALIGN_BYTES - 1) / GPU_OP_ALIGN_BYTES *
		GPU_OP_ALIGN_BYTES;
	ck_assert_uint_le(rank->used_bytes, GPU_OP_ARENA_BYTES);
	return taken;
}

/* --- workspaces ------------------------------------------------------------ */

/* Puts another pointer in the place of the first that is the given one. Returns whether there was
 * one. */
static int exchange(struct gpu_op_rank *rank, const ceov_workspace *from, ceov_workspace *to)
{
	uint32_t i;

	for (i = 0; i < GPU_OP_WORKSPACES_MAX; i++) {
		if (rank->workspaces[i] != from)
			continue;
		rank->workspaces[i] = to;
		return 1;
	}
	return 0;
}

ceov_workspace *gpu_op_workspace(struct gpu_op_rank *rank, const struct gpu_op_mode *mode)
{
	struct ceov_workspace_config config = { .struct_bytes = sizeof(config) };
	ceov_workspace *workspace = NULL;

	config.rank = rank->rank;
	config.name = mode->name;
	config.scratch_bytes = GPU_OP_SCRATCH;
	config.shares_sms = mode->shares_sms;
	config.deadline_ns = mode->deadline_ns;
	config.n_sms = gpu_sms_for(&rank->gpu, rank->rig->n_ranks,
				   mode->n_at_once ? mode->n_at_once : 1);
	ck_assert_int_eq(ceov_workspace_create(rank->context, &config, &workspace), 0);
	gpu_op_meet(rank);
	ck_assert_int_eq(ceov_workspace_connect(workspace, TESTING_PATIENCE), 0);
	gpu_op_meet(rank);
	ck_assert(exchange(rank, NULL, workspace));
	return workspace;
}

void gpu_op_result_check(const struct gpu_op_rank *rank, int result)
{
	struct ceov_failure failure = { .text = "it told nothing more" };

	if (!result)
		return;
	(void)ceov_last_failure(rank->context, &failure);
	ck_abort_msg("rank %u: %s: %s", rank->rank, ceov_strerror(result), failure.text);
}

void gpu_op_status_check(const struct gpu_op_rank *rank, ceov_workspace *workspace)
{
	gpu_op_result_check(rank, ceov_workspace_status(workspace));
}

void gpu_op_idle(struct gpu_op_rank *rank, enum gpu_stream stream)
{
	uint32_t i;

	gpu_idle(&rank->gpu, stream);
	for (i = 0; i < GPU_OP_WORKSPACES_MAX; i++)
		if (rank->workspaces[i])
			gpu_op_status_check(rank, rank->workspaces[i]);
}

/* Retries, because each peer unmaps the workspace only in its own call of this function. */
void gpu_op_workspace_release(struct gpu_op_rank *rank, ceov_workspace *workspace)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	int r;

	(void)exchange(rank, workspace, NULL);  /* some suites make their own */
	gpu_op_meet(rank);
	while ((r = ceov_workspace_release(workspace)) == CEOV_PENDING) {
		ck_assert_uint_lt(cei_now_ns(), deadline);
		usleep(1000);
	}
	ck_assert_msg(!r, "rank %u: releasing a workspace: %s", rank->rank, ceov_strerror(r));
	gpu_op_meet(rank);
}

uint32_t gpu_op_n_graphs(const struct gpu_op_rig *rig, uint32_t n)
{
	return gpu_n_sharing(rig->n_here) > 1 ? 0 : n;
}

int gpu_op_has_library(ceov_workspace *workspace)
{
	const struct cei_tile_shape wide = { OP_WIDE_ROWS, OP_WIDE_COLUMNS };

	return workspace->executor.ops->is_fit(&workspace->executor, wide);
}

int gpu_op_has_sm_lane(ceov_workspace *workspace)
{
	const struct cei_tile_shape tile = { 128, 256 };

	return !workspace->shares_sms &&
	       workspace->executor.ops->pair(&workspace->executor, tile) == 2;
}

int gpu_op_error(struct gpu_op_rank *rank, ceov_workspace *workspace)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	int r;

	while (!(r = ceov_workspace_status(workspace))) {
		ck_assert_msg(cei_now_ns() < deadline, "rank %u: no error is known",
			      rank->rank);
		usleep(1000);
	}
	return r;
}

/* --- one operator of each kind --------------------------------------------- */

struct op_case gpu_op_case_plain(enum op_sort sort, uint32_t n_ranks)
{
	int is_sum = op_is_sum(sort);
	struct op_case one = op_case_of(sort, n_ranks, is_sum ? 40000 : 384,
					is_sum ? 0 : 512, is_sum ? 0 : 640);

	one.tuning.mode = CEOV_MODE_OVERLAP;
	one.tuning.n_pieces = 3;
	one.dtype = sort % 2 ? CEOV_FP16 : CEOV_BF16;
	if (sort == OP_ALL_REDUCE)
		one.dtype = CEOV_FP32;
	one.wants_gathered = 1;
	one.b_is_k_by_n = sort == OP_GEMM_RS;
	one.by_columns = sort == OP_A2A_GEMM;
	return one;
}

const enum op_sort gpu_op_lane_sorts[GPU_OP_LANE_SORTS] = { OP_AG_GEMM, OP_GEMM_RS, OP_GEMM_AR };

struct op_case gpu_op_case_lane(enum op_sort sort, uint32_t n_ranks)
{
	struct op_case one = gpu_op_case_plain(sort, n_ranks);

	one.tuning.mode = CEOV_MODE_DIRECT;
	one.tuning.n_reduce_blocks = 4;
	if (sort != OP_GEMM_AR)
		return one;
	one.by_columns = 0;
	one.n[0] = 2048;
	return one;
}

void gpu_op_plain_make(struct gpu_op_rank *rank, ceov_workspace *workspace,
		       struct gpu_op_plain *ret_plain)
{
	struct op_case *cases = ret_plain->cases;
	uint32_t i;

	rank->used_bytes = 0;
	for (i = 0; i < OP_SORTS; i++) {
		cases[i] = gpu_op_case_plain((enum op_sort)i, rank->rig->n_ranks);
		gpu_op_data_make(rank, &cases[i], &ret_plain->data[i]);
		ret_plain->ops[i] = NULL;
		ck_assert_int_eq(op_case_create(&cases[i], workspace, &ret_plain->ops[i]), 0);
	}
	gpu_op_meet(rank);
}

void gpu_op_plain_release(struct gpu_op_rank *rank, struct gpu_op_plain *plain)
{
	uint32_t i;

	gpu_op_meet(rank);
	for (i = 0; i < OP_SORTS; i++)
		ceov_op_release(plain->ops[i]);
}

/* --- delaying a rank ------------------------------------------------------- */

void gpu_op_hold(struct gpu_op_rank *rank, enum gpu_stream stream, uint64_t ns)
{
	struct gpu_result *words = &rank->gpu.results[LATE_RESULT];
	const uint32_t *stop_word = &words->pad;        /* a word that nobody sets */
	uint32_t *n_started = &words->status;
	void *arguments[] = { &stop_word, &ns, &n_started };
	const struct cei_module_launch launch = {
		.name = "cei_kernel_spin",
		.n_blocks = 1,
		.n_threads = 32,
		.arguments = arguments,
	};

	gpu_launch_as(&rank->gpu, stream, &launch);
}

void gpu_op_be_late(struct gpu_op_rank *rank, enum gpu_stream stream, uint64_t *random)
{
	int sleeps = (int)testing_below(random, 2);
	uint64_t ns = testing_below(random, LATE_NS);

	if (sleeps)
		usleep((useconds_t)(ns / 1000));
	else
		gpu_op_hold(rank, stream, ns);
}
