/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests embedding bags + all-to-all on host ranks, a thread each, against sums made here sample
 * after sample. */

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ceoverlap/embedding.h>

#include "unit/embedding_data.h"
#include "unit/op_rig.h"

struct rank {
	ceov_op *forward;
	char    *memory;                /* pooled, with guards around it */
	char    *pooled;
	int      result;                /* of the last run */
};

static struct op_rig rig;
static struct embedding_data data;
static struct rank ranks[OP_RANKS_MAX];

/* --- cases ------------------------------------------------------------------------ */

/* Creates the ops of data.shape, which was chosen before. */
static void open_case(struct testing_log *log)
{
	uint32_t i;

	op_rig_open(&rig, data.n_ranks,
		    ceov_embedding_a2a_scratch_bytes(&data.shape, data.n_ranks), log);
	memset(ranks, 0, sizeof(ranks));
	for (i = 0; i < rig.n_ranks; i++) {
		ck_assert_int_eq(ceov_embedding_a2a_create(rig.workspaces[i], &data.shape,
							   &ranks[i].forward), 0);
		ranks[i].memory = embedding_guarded(embedding_pooled_bytes(&data, i));
		ranks[i].pooled = ranks[i].memory + EMBEDDING_GUARD_BYTES;
	}
}

static void close_case(void)
{
	uint32_t i;

	for (i = 0; i < rig.n_ranks; i++) {
		ceov_op_release(ranks[i].forward);
		free(ranks[i].memory);
	}
	op_rig_close(&rig);
	embedding_data_free(&data);
}

static void run_forward(const struct op_part *part)
{
	struct ceov_embedding_a2a_run run = { .struct_bytes = sizeof(run) };
	struct rank *rank = &ranks[part->rank];

	run.tables = data.ranks[part->rank].tables;
	run.bags = embedding_bags(&data, part->rank);
	run.pooled = rank->pooled;
	rank->result = ceov_embedding_a2a_run(rank->forward, &run);
}

/* Makes one run of all ranks, and checks all results. */
static void forward(void (*run)(const struct op_part *part))
{
	uint64_t n_bytes;
	char *expected;
	uint32_t i;

	op_rig_each(&rig, run, NULL);
	for (i = 0; i < rig.n_ranks; i++) {
		ck_assert_int_eq(ranks[i].result, 0);
		n_bytes = embedding_pooled_bytes(&data, i);
		expected = embedding_guarded(n_bytes);
		embedding_expect_pooled(&data, i, expected + EMBEDDING_GUARD_BYTES);
		ck_assert_mem_eq(ranks[i].memory, expected, n_bytes + 2 * EMBEDDING_GUARD_BYTES);
		free(expected);
	}
}

/* --- the tests --------------------------------------------------------------------- */

/* Random shapes, each with several batches. */
START_TEST(test_random_batches)
{
	uint64_t random = testing_seed();
	uint32_t i, batch;

	for (i = 0; i < testing_share(60); i++) {
		embedding_draw_shape(&data, 1 + (uint32_t)testing_below(&random, 5), &random);
		open_case(NULL);
		for (batch = 0; batch < 4; batch++) {
			embedding_draw_batch(&data, &random);
			forward(run_forward);
		}
		close_case();
	}
}
END_TEST

static void run_late(const struct op_part *part)
{
	const struct timespec pause = { 0, 30000000 };

	if (part->rank == 1)
		nanosleep(&pause, NULL);
	run_forward(part);
}

START_TEST(test_a_rank_comes_late)
{
	uint64_t random = testing_seed();
	uint32_t batch;

	embedding_set_shape(&data, 4);
	open_case(NULL);
	for (batch = 0; batch < 4; batch++) {
		embedding_draw_batch(&data, &random);
		forward(run_late);
	}
	close_case();
}
END_TEST

/* Rank 0 alone has tables, and rank 1 alone has samples: all others only begin the run. */
START_TEST(test_ranks_without_tables_or_samples)
{
	uint64_t random = testing_seed();
	uint32_t i, batch;

	embedding_set_shape(&data, 4);
	for (i = 0; i < 4; i++) {
		data.n_local[i] = i ? 0 : 3;
		data.samples[i] = i == 1 ? 5 : 0;
	}
	open_case(NULL);
	for (batch = 0; batch < 4; batch++) {
		embedding_draw_batch(&data, &random);
		forward(run_late);
	}
	close_case();
}
END_TEST

/* Batches that all ranks make one after another, without meeting in between. */
#define QUEUED 8u

static struct embedding_data batches[QUEUED];
static char *results[OP_RANKS_MAX][QUEUED];

static void run_queued(const struct op_part *part)
{
	struct ceov_embedding_a2a_run run = { .struct_bytes = sizeof(run) };
	const struct timespec pause = { 0, 5000000 };
	uint32_t i;

	ranks[part->rank].result = 0;
	for (i = 0; i < QUEUED; i++) {
		if (part->rank == 1)
			nanosleep(&pause, NULL);
		run.tables = batches[i].ranks[part->rank].tables;
		run.bags = embedding_bags(&batches[i], part->rank);
		run.pooled = results[part->rank][i];
		ranks[part->rank].result |= ceov_embedding_a2a_run(ranks[part->rank].forward,
								   &run);
	}
}

static void check_queued(uint32_t rank)
{
	uint64_t n_bytes = embedding_pooled_bytes(&data, rank);
	char *expected = embedding_guarded(n_bytes);
	uint32_t i;

	ck_assert_int_eq(ranks[rank].result, 0);
	for (i = 0; i < QUEUED; i++) {
		embedding_expect_pooled(&batches[i], rank, expected);
		ck_assert_mem_eq(results[rank][i], expected, n_bytes);
		free(results[rank][i]);
	}
	free(expected);
}

/* Rank 0 has all tables and gets nothing from rank 1, which comes late to each run: rank 0 must not
 * overwrite what rank 1 has not taken yet. */
START_TEST(test_nobody_runs_ahead)
{
	uint64_t random = testing_seed();
	uint32_t i, k;

	embedding_set_shape(&data, 3);
	for (i = 0; i < 3; i++)
		data.n_local[i] = i ? 0 : 3;
	open_case(NULL);
	for (k = 0; k < QUEUED; k++) {
		batches[k] = data;
		embedding_draw_batch(&batches[k], &random);
		for (i = 0; i < 3; i++)
			results[i][k] = embedding_guarded(embedding_pooled_bytes(&data, i));
	}
	op_rig_each(&rig, run_queued, NULL);
	for (i = 0; i < 3; i++)
		check_queued(i);
	for (k = 0; k < QUEUED; k++)
		embedding_data_free(&batches[k]);
	close_case();
}
END_TEST

/* Each case is one wrong number in the bags of rank 0. The run ends with words, and those of peers
 * end, too. */
START_TEST(test_wrong_bags_end_the_run)
{
	const char *const words[] = { "bags.indices: 7 is no row", "bags.indices: -1 is no row",
				      "bags.offsets: bag", "bags.offsets: bag",
				      "bags.offsets: bag" };
	uint64_t random = testing_seed();
	struct embedding_rank *rank = &data.ranks[0];
	struct testing_log log;

	testing_log_init(&log);
	embedding_set_shape(&data, 3);
	data.rows[0] = 7;
	open_case(&log);
	embedding_draw_batch(&data, &random);
	while (rank->offsets[1] == rank->offsets[0] || rank->offsets[2] == rank->offsets[1])
		embedding_draw_batch(&data, &random);
	switch (_i) {
	case 0: rank->indices[rank->offsets[0]] = 7; break;
	case 1: rank->indices[rank->offsets[0]] = -1; break;
	case 2: rank->offsets[0] = -1; break;
	case 3: rank->offsets[1] = rank->offsets[2] + 1; break;
	case 4: rank->n_indices--; break;
	default: ck_abort();
	}
	op_rig_each(&rig, run_forward, NULL);
	ck_assert_int_eq(ranks[0].result, CEOV_ERR_INVALID);
	ck_assert_int_eq(ranks[1].result, CEOV_ERR_INVALID);
	ck_assert_int_eq(ranks[2].result, CEOV_ERR_INVALID);
	testing_log_has(&log, "rank 0", words[_i], NULL);
	close_case();
}
END_TEST

/* Operands that are refused before a run begins: the next run is as good as ever. */
START_TEST(test_wrong_operands_are_refused)
{
	const char *const words[] = { "tables is NULL", "bags.indices is NULL",
				      "bags.offsets is NULL", "bags.weights must be NULL",
				      "n_indices", "pooled is NULL", "pooled overlaps tables",
				      "pooled is not aligned" };
	struct ceov_embedding_a2a_run run = { .struct_bytes = sizeof(run) };
	uint64_t random = testing_seed();
	struct testing_log log;

	testing_log_init(&log);
	embedding_set_shape(&data, 1);
	data.shape.pooling = CEOV_POOL_MEAN;
	open_case(&log);
	embedding_draw_batch(&data, &random);
	run.tables = data.ranks[0].tables;
	run.bags = embedding_bags(&data, 0);
	run.pooled = ranks[0].pooled;
	switch (_i) {
	case 0: run.tables = NULL; break;
	case 1: run.bags.indices = NULL; break;
	case 2: run.bags.offsets = NULL; break;
	case 3: run.bags.weights = data.ranks[0].weights; break;
	case 4: run.bags.n_indices = UINT64_MAX / 8; break;
	case 5: run.pooled = NULL; break;
	case 6: run.pooled = data.ranks[0].tables; break;
	case 7: run.pooled = ranks[0].pooled + 8; break;
	default: ck_abort();
	}
	ck_assert_int_eq(ceov_embedding_a2a_run(ranks[0].forward, &run), CEOV_ERR_INVALID);
	testing_log_has(&log, "rank 0", words[_i], NULL);
	forward(run_forward);
	close_case();
}
END_TEST

START_TEST(test_wrong_shapes_are_refused)
{
	struct ceov_embedding *shape = &data.shape;

	embedding_set_shape(&data, 2);
	ck_assert_uint_ne(ceov_embedding_a2a_scratch_bytes(shape, 2), 0);
	switch (_i) {
	case 0: shape->dtype = (enum ceov_dtype)4; break;
	case 1: shape->pooling = (enum ceov_pooling)3; break;
	case 2: shape->pooling = (enum ceov_pooling)0; break;
	case 3: shape->samples = NULL; break;
	case 4: shape->n_local = NULL; break;
	case 5: shape->dims = NULL; break;
	case 6: shape->rows = NULL; break;
	case 7: data.dims[1] = 12; break;
	case 8: data.dims[1] = 0; break;
	case 9: data.dims[1] = UINT64_C(1) << 29; break;
	case 10: data.rows[0] = 0; break;
	case 11: data.rows[0] = UINT64_C(1) << 48; break;
	case 12: data.n_local[0] = data.n_local[1] = 0; break;
	case 13: data.n_local[0] = 65537; break;
	case 14: data.samples[0] = data.samples[1] = 0; break;
	case 15: data.samples[0] = UINT64_C(1) << 40; break;
	case 16: shape->struct_bytes = 8; break;
	default: ck_abort();
	}
	ck_assert_uint_eq(ceov_embedding_a2a_scratch_bytes(shape, 2), 0);
}
END_TEST

static void abort_or_run(const struct op_part *part)
{
	if (part->rank == 1)
		ranks[1].result = ceov_workspace_abort(rig.workspaces[1]);
	else
		run_forward(part);
}

/* A rank aborts instead of making its run: the others' runs end. */
START_TEST(test_an_abort_ends_all_runs)
{
	uint64_t random = testing_seed();

	embedding_set_shape(&data, 3);
	open_case(NULL);
	embedding_draw_batch(&data, &random);
	op_rig_each(&rig, abort_or_run, NULL);
	ck_assert_int_eq(ranks[0].result, CEOV_ERR_ABORTED);
	ck_assert_int_eq(ranks[1].result, 0);
	ck_assert_int_eq(ranks[2].result, CEOV_ERR_ABORTED);
	close_case();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("embedding");
	TCase *tcase = tcase_create("embedding");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, test_random_batches);
	tcase_add_test(tcase, test_a_rank_comes_late);
	tcase_add_test(tcase, test_ranks_without_tables_or_samples);
	tcase_add_test(tcase, test_nobody_runs_ahead);
	tcase_add_loop_test(tcase, test_wrong_bags_end_the_run, 0, 5);
	tcase_add_loop_test(tcase, test_wrong_operands_are_refused, 0, 8);
	tcase_add_loop_test(tcase, test_wrong_shapes_are_refused, 0, 17);
	tcase_add_test(tcase, test_an_abort_ends_all_runs);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
