/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the backward of embedding bags + all-to-all on host ranks, a thread each, against gradients
 * copied and scaled here sample after sample. */

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ceoverlap/embedding.h>

#include "unit/embedding_data.h"
#include "unit/op_rig.h"

#define QUEUED 8u                       /* runs that ranks make without meeting in between */

enum wanted { WANTED_BAGS = 1, WANTED_ROWS = 2, WANTED_BOTH = 3 };

struct rank {
	ceov_op *op;
	char    *bag_grads;             /* both with guards around them */
	char    *row_grads;
	int      result;                /* of the last run */
};

static struct op_rig rig;
static struct embedding_data data;
static struct rank ranks[OP_RANKS_MAX];
static enum wanted wanted;

/* --- cases ------------------------------------------------------------------------ */

static void open_case(struct testing_log *log)
{
	uint32_t i;

	op_rig_open(&rig, data.n_ranks,
		    ceov_embedding_backward_scratch_bytes(&data.shape, data.n_ranks), log);
	memset(ranks, 0, sizeof(ranks));
	for (i = 0; i < rig.n_ranks; i++)
		ck_assert_int_eq(ceov_embedding_backward_create(rig.workspaces[i], &data.shape,
								&ranks[i].op), 0);
	wanted = WANTED_BOTH;
}

static void free_results(struct rank *rank)
{
	free(rank->bag_grads);
	free(rank->row_grads);
	rank->bag_grads = rank->row_grads = NULL;
}

static void draw_batch(uint64_t *random)
{
	uint32_t i;

	embedding_draw_batch(&data, random);
	for (i = 0; i < rig.n_ranks; i++) {
		free_results(&ranks[i]);
		ranks[i].bag_grads = embedding_guarded(embedding_bag_grads_bytes(&data, i));
		ranks[i].row_grads = embedding_guarded(embedding_row_grads_bytes(&data, i));
	}
}

static void close_case(void)
{
	uint32_t i;

	for (i = 0; i < rig.n_ranks; i++) {
		ceov_op_release(ranks[i].op);
		free_results(&ranks[i]);
	}
	op_rig_close(&rig);
	embedding_data_free(&data);
}

static struct ceov_embedding_backward_run operands(uint32_t rank)
{
	struct ceov_embedding_backward_run run = { .struct_bytes = sizeof(run) };

	run.grads = data.ranks[rank].grads;
	run.bags = embedding_bags(&data, rank);
	run.bags.indices = NULL;
	if (wanted & WANTED_BAGS)
		run.bag_grads = ranks[rank].bag_grads + EMBEDDING_GUARD_BYTES;
	if (wanted & WANTED_ROWS)
		run.row_grads = ranks[rank].row_grads + EMBEDDING_GUARD_BYTES;
	return run;
}

static void run_backward(const struct op_part *part)
{
	struct ceov_embedding_backward_run run = operands(part->rank);

	ranks[part->rank].result = ceov_embedding_backward_run(ranks[part->rank].op, &run);
}

static void check_bags(uint32_t rank)
{
	uint64_t n_bytes = embedding_bag_grads_bytes(&data, rank);
	char *expected = embedding_guarded(n_bytes);

	if (wanted & WANTED_BAGS)
		embedding_expect_bag_grads(&data, rank, expected + EMBEDDING_GUARD_BYTES);
	ck_assert_mem_eq(ranks[rank].bag_grads, expected, n_bytes + 2 * EMBEDDING_GUARD_BYTES);
	free(expected);
}

static void check_rows(uint32_t rank)
{
	uint64_t n_bytes = embedding_row_grads_bytes(&data, rank);
	char *expected = embedding_guarded(n_bytes);

	if (wanted & WANTED_ROWS)
		embedding_expect_row_grads(&data, rank, expected + EMBEDDING_GUARD_BYTES);
	ck_assert_mem_eq(ranks[rank].row_grads, expected, n_bytes + 2 * EMBEDDING_GUARD_BYTES);
	free(expected);
}

/* Makes one run of all ranks, and checks all results. */
static void backward(void (*run)(const struct op_part *part))
{
	uint32_t i;

	op_rig_each(&rig, run, NULL);
	for (i = 0; i < rig.n_ranks; i++) {
		ck_assert_int_eq(ranks[i].result, 0);
		check_bags(i);
		check_rows(i);
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
			draw_batch(&random);
			wanted = (enum wanted)(1 + testing_below(&random, 3));
			backward(run_backward);
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
	run_backward(part);
}

START_TEST(test_a_rank_comes_late)
{
	uint64_t random = testing_seed();
	uint32_t batch;

	embedding_set_shape(&data, 4);
	open_case(NULL);
	for (batch = 0; batch < 4; batch++) {
		draw_batch(&random);
		backward(run_late);
	}
	close_case();
}
END_TEST

/* Rank 0 alone has samples, and makes many runs with other gradients each; rank 1, which alone has
 * tables, comes late to each of them, and sends nothing back. */
static char *results[QUEUED], *sources[QUEUED];

static void run_queued(const struct op_part *part)
{
	const struct timespec pause = { 0, 5000000 };
	struct ceov_embedding_backward_run run = operands(part->rank);
	uint32_t i;

	ranks[part->rank].result = 0;
	for (i = 0; i < QUEUED; i++) {
		if (part->rank == 1)
			nanosleep(&pause, NULL);
		run.grads = part->rank ? NULL : sources[i];
		run.bag_grads = part->rank == 1 ? results[i] : NULL;
		ranks[part->rank].result |= ceov_embedding_backward_run(ranks[part->rank].op,
									&run);
	}
}

START_TEST(test_nobody_runs_ahead)
{
	uint64_t random = testing_seed(), n_bytes;
	uint32_t i;

	embedding_set_shape(&data, 3);
	for (i = 0; i < 3; i++) {
		data.n_local[i] = i == 1 ? 3 : 0;
		data.samples[i] = i ? 0 : 9;
	}
	open_case(NULL);
	draw_batch(&random);
	wanted = WANTED_BAGS;
	n_bytes = embedding_bag_grads_bytes(&data, 1);
	for (i = 0; i < QUEUED; i++) {
		results[i] = embedding_guarded(n_bytes);
		sources[i] = embedding_guarded(n_bytes);
		testing_fill(sources[i], n_bytes, random + i);
	}
	op_rig_each(&rig, run_queued, NULL);
	for (i = 0; i < QUEUED; i++) {
		ck_assert_mem_eq(results[i], sources[i], n_bytes);
		free(results[i]);
		free(sources[i]);
	}
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(ranks[i].result, 0);
	close_case();
}
END_TEST

/* Each case is one wrong offset of rank 0, which ends its run with words. Without gradients of rows
 * nobody looks at bags. */
START_TEST(test_wrong_bags_end_the_run)
{
	uint64_t random = testing_seed();
	struct embedding_rank *rank = &data.ranks[0];
	struct testing_log log;

	testing_log_init(&log);
	embedding_set_shape(&data, 3);
	open_case(&log);
	draw_batch(&random);
	switch (_i) {
	case 0: rank->offsets[0] = -1; break;
	case 1: rank->offsets[1] = rank->offsets[2] + 1; break;
	case 2: rank->n_indices--; break;
	default: ck_abort();
	}
	wanted = WANTED_BAGS;
	op_rig_each(&rig, run_backward, NULL);
	ck_assert_int_eq(ranks[0].result, 0);
	wanted = WANTED_ROWS;
	op_rig_each(&rig, run_backward, NULL);
	ck_assert_int_eq(ranks[0].result, CEOV_ERR_INVALID);
	testing_log_has(&log, "rank 0", "bags.offsets: bag", NULL);
	ck_assert_int_eq(ceov_workspace_status(rig.workspaces[2]), CEOV_ERR_INVALID);
	close_case();
}
END_TEST

static void run_without_rows(const struct op_part *part)
{
	struct ceov_embedding_backward_run run = operands(part->rank);

	if (!part->rank)
		run.row_grads = NULL;
	ranks[part->rank].result = ceov_embedding_backward_run(ranks[part->rank].op, &run);
}

/* Memory for the rows of no index is NULL in some languages; the run is made all the same. */
START_TEST(test_a_rank_without_indices_gives_no_rows)
{
	uint64_t random = testing_seed();

	embedding_set_shape(&data, 3);
	open_case(NULL);
	wanted = WANTED_ROWS;
	draw_batch(&random);
	memset(data.ranks[0].offsets, 0, (2 * embedding_all_samples(&data) + 1) * sizeof(int64_t));
	data.ranks[0].n_indices = 0;
	free(ranks[0].row_grads);
	ranks[0].row_grads = embedding_guarded(0);
	backward(run_without_rows);
	close_case();
}
END_TEST

/* Operands that are refused before a run begins: the next run is as good as ever. */
START_TEST(test_wrong_operands_are_refused)
{
	const char *const words[] = { "grads is NULL", "bags.offsets is NULL",
				      "bags.weights must be NULL", "n_indices",
				      "one of them must be set", "bag_grads overlaps grads",
				      "row_grads is not aligned", "grads overlaps" };
	struct ceov_embedding_backward_run run;
	uint64_t random = testing_seed();
	struct testing_log log;

	testing_log_init(&log);
	embedding_set_shape(&data, 1);
	data.shape.pooling = CEOV_POOL_MEAN;
	open_case(&log);
	draw_batch(&random);
	run = operands(0);
	switch (_i) {
	case 0: run.grads = NULL; break;
	case 1: run.bags.offsets = NULL; break;
	case 2: run.bags.weights = data.ranks[0].weights; break;
	case 3: run.bags.n_indices = UINT64_MAX / 8; break;
	case 4: run.bag_grads = run.row_grads = NULL; run.bags.offsets = NULL; break;
	case 5: run.bag_grads = data.ranks[0].grads; break;
	case 6: run.row_grads = (char *)run.row_grads + 8; break;
	case 7: run.row_grads = run.bag_grads; break;
	default: ck_abort();
	}
	ck_assert_int_eq(ceov_embedding_backward_run(ranks[0].op, &run), CEOV_ERR_INVALID);
	testing_log_has(&log, "rank 0", words[_i], NULL);
	backward(run_backward);
	close_case();
}
END_TEST

static void abort_or_run(const struct op_part *part)
{
	if (part->rank == 1)
		ranks[1].result = ceov_workspace_abort(rig.workspaces[1]);
	else
		run_backward(part);
}

/* A rank aborts instead of making its run: the others' runs end. */
START_TEST(test_an_abort_ends_all_runs)
{
	uint64_t random = testing_seed();

	embedding_set_shape(&data, 3);
	open_case(NULL);
	draw_batch(&random);
	op_rig_each(&rig, abort_or_run, NULL);
	ck_assert_int_eq(ranks[0].result, CEOV_ERR_ABORTED);
	ck_assert_int_eq(ranks[1].result, 0);
	ck_assert_int_eq(ranks[2].result, CEOV_ERR_ABORTED);
	close_case();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("embedding backward");
	TCase *tcase = tcase_create("embedding backward");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, test_random_batches);
	tcase_add_test(tcase, test_a_rank_comes_late);
	tcase_add_test(tcase, test_nobody_runs_ahead);
	tcase_add_loop_test(tcase, test_wrong_bags_end_the_run, 0, 3);
	tcase_add_loop_test(tcase, test_wrong_operands_are_refused, 0, 8);
	tcase_add_test(tcase, test_a_rank_without_indices_gives_no_rows);
	tcase_add_test(tcase, test_an_abort_ends_all_runs);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
