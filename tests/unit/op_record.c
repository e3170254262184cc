/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "op_record.h"

#include <stdio.h>
#include <string.h>

#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/plan.h"
#include "ops/core/op.h"

static struct op_record record;         /* of the job that runs */

static void add_word(const char *word)
{
	size_t at = strlen(record.words);

	snprintf(record.words + at, sizeof(record.words) - at, "%s ", word);
}

static int recorded_gemm(struct cei_executor *executor, void *stream,
			 const struct cei_gemm_job *job)
{
	if (job->marks.n_sent > record.n_sent)
		record.n_sent = job->marks.n_sent;
	add_word("gemm");
	return cei_executor_host.gemm(executor, stream, job);
}

static int recorded_copy(struct cei_executor *executor, void *stream, void *target,
			 const void *source, uint64_t n_bytes)
{
	add_word("copy");
	return cei_executor_host.copy(executor, stream, target, source, n_bytes);
}

static int recorded_copy_rows(struct cei_executor *executor, void *stream,
			      const struct cei_rows *rows)
{
	add_word("rows");
	return cei_executor_host.copy_rows(executor, stream, rows);
}

static int recorded_await(struct cei_executor *executor, void *stream,
			  const struct cei_job_marks *marks, const struct cei_counters *counters)
{
	char word[32];

	snprintf(word, sizeof(word), "%u+%u", counters->first, counters->n);
	add_word(word);
	return cei_executor_host.await(executor, stream, marks, counters);
}

static void run_once(const struct op_part *part)
{
	const struct op_case *one = part->arg;
	ceov_op *op = op_case_made(one, part->rig->workspaces[part->rank]);
	struct op_data data;

	op_data_make(one, part->rank, 1, &data);
	ck_assert_int_eq(op_data_run(one, op, &data), 0);
	op_data_check(one, part->rank, 1, &data);
	op_data_free(&data);
	ceov_op_release(op);
}

void op_record_job(struct op_case *one, uint64_t scratch_bytes, struct op_record *ret_record)
{
	struct cei_executor_ops ops = cei_executor_host;
	struct op_rig rig;

	ops.gemm = recorded_gemm;
	ops.copy = recorded_copy;
	ops.copy_rows = recorded_copy_rows;
	ops.await = recorded_await;
	memset(&record, 0, sizeof(record));
	op_rig_open(&rig, one->n_ranks, scratch_bytes, NULL);
	rig.workspaces[1]->executor.ops = &ops;
	op_rig_each(&rig, run_once, one);
	rig.workspaces[1]->executor.ops = &cei_executor_host;
	op_rig_release(&rig);
	op_rig_close(&rig);
	*ret_record = record;
}

uint32_t op_record_target(const ceov_op *op, uint32_t i)
{
	const struct cei_piece *piece = &op->stages[0].plan[0]->steps[i].piece;
	const struct ceov_buffer *scratch;
	uint32_t rank;

	for (rank = 0; piece->n_rows && rank < op->shape.n_ranks; rank++) {
		scratch = op->workspace->scratch[rank];
		if (piece->target - scratch->region->address[0] < scratch->region->size_bytes)
			return rank;
	}
	return CEOV_NOBODY;
}
