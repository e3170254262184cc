/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Shapes and sizes of embeddings, and the tables of an op. */

#include "ops/embedding/layout.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/sized.h"
#include "ops/compute/dtype.h"
#include "ops/kind.h"

#define DIM_STEP    8u
#define TABLES_MAX  65536u

/* Drivers copy rows that are less than 2^31 bytes apart. */
#define COLUMNS_MAX (UINT64_C(1) << 28)

/* Below it all numbers and sizes of bags fit 63 bits. */
#define INDICES_MAX (UINT64_C(1) << 32)

/* --- shapes ---------------------------------------------------------------- */

static int is_good_table(const struct ceov_embedding *from, uint64_t table)
{
	uint64_t dim = from->dims[table], rows = from->rows[table];

	return dim && dim % DIM_STEP == 0 && dim <= COLUMNS_MAX && rows &&
		rows <= CEI_ELEMENTS_MAX / dim;
}

/* Adds up the tables of all ranks. Returns what is wrong with them, or NULL. */
static const char *add_tables(struct cei_embedding_shape *shape,
			      const struct ceov_embedding *from, uint32_t n_ranks)
{
	uint64_t table = 0, end = 0, columns = 0;
	uint32_t rank;

	for (rank = 0; rank < n_ranks; rank++) {
		end += from->n_local[rank];
		if (end > TABLES_MAX)
			return "there are more than 65536 tables";
		shape->n_tables[rank] = from->n_local[rank];
		for (; table < end; table++) {
			if (!is_good_table(from, table))
				return "dims must be multiples of 8, tables must have rows, and at "
					"most 2^48 elements";
			shape->columns[rank] += from->dims[table];
			shape->elements[rank] += from->rows[table] * from->dims[table];
			if (shape->elements[rank] > CEI_ELEMENTS_MAX)
				return "the tables of a rank have more than 2^48 elements";
			columns += from->dims[table];
			if (columns > COLUMNS_MAX)
				return "the sum of dims is above 2^28";
		}
	}
	return end ? NULL : "there are no tables";
}

const struct ceov_op_tuning *cei_embedding_shape(struct cei_op_shape *shape, const void *from,
						 uint32_t n_ranks)
{
	const struct ceov_embedding *taken = from;

	shape->fault = cei_sized_fault(from, sizeof(*taken), sizeof(*taken));
	if (shape->fault)
		return NULL;
	shape->dtype = taken->dtype;
	shape->embedding.pooling = taken->pooling;
	if (!n_ranks || n_ranks > CEI_OP_RANKS_MAX)
		return taken->tuning;
	if (!taken->samples || !taken->n_local || !taken->dims || !taken->rows) {
		shape->fault = "samples, n_local, dims or rows is NULL";
		return taken->tuning;
	}
	cei_op_take_rows(shape, taken->samples, n_ranks);
	shape->embedding.dims = taken->dims;
	shape->embedding.table_rows = taken->rows;
	shape->fault = add_tables(&shape->embedding, taken, n_ranks);
	return taken->tuning;
}

static uint64_t columns_before(const struct cei_op_shape *shape, uint32_t rank)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < rank; i++)
		sum += shape->embedding.columns[i];
	return sum;
}

const char *cei_embedding_fault(const struct cei_op_shape *shape)
{
	const char *fault = cei_op_dtype_fault(shape);

	if (!fault)
		fault = cei_op_rows_fault(shape, CEI_EXTENT_MAX, 1);
	if (fault)
		return fault;
	if (shape->embedding.pooling != CEOV_POOL_SUM && shape->embedding.pooling != CEOV_POOL_MEAN)
		return "pooling is none of enum ceov_pooling";
	if (cei_op_all_rows(shape) > CEI_ELEMENTS_MAX / columns_before(shape, shape->n_ranks))
		return "samples times columns is above 2^48";
	return NULL;
}

uint64_t cei_embedding_width(const struct cei_op_shape *shape, uint32_t rank)
{
	return shape->embedding.columns[rank] * cei_dtype_bytes(shape->dtype);
}

uint64_t cei_embedding_widths_before(const struct cei_op_shape *shape, uint32_t rank)
{
	return columns_before(shape, rank) * cei_dtype_bytes(shape->dtype);
}

uint64_t cei_embedding_pitch(const struct cei_op_shape *shape)
{
	return cei_embedding_widths_before(shape, shape->n_ranks);
}

uint64_t cei_embedding_table_bytes(const struct cei_op_shape *shape, uint32_t rank)
{
	return shape->embedding.elements[rank] * cei_dtype_bytes(shape->dtype);
}

uint64_t cei_embedding_row_bytes(const struct cei_op_shape *shape)
{
	uint64_t most = 0, width;
	uint32_t rank;

	for (rank = 0; rank < shape->n_ranks; rank++) {
		width = cei_embedding_width(shape, rank);
		most = width > most ? width : most;
	}
	return most;
}

/* --- the choice ------------------------------------------------------------ */

void cei_embedding_choose(const struct cei_choose_args *args, struct cei_choice *choice)
{
	if (choice->mode == CEOV_MODE_SEQUENCE)
		choice->n_pieces = 1;
	choice->copy_ns = cei_selector_copy_ns(args, choice->n_pieces);
}

void cei_embedding_explain(const struct cei_choose_args *args, struct cei_choice *choice)
{
	cei_choice_say_mode(args, choice);
	cei_choice_say_pieces(args, choice);
}

/* --- tables ---------------------------------------------------------------- */

/* Returns the number of the first table of a rank. */
static uint64_t tables_before(const struct cei_op_shape *shape, uint32_t rank)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < rank; i++)
		sum += shape->embedding.n_tables[i];
	return sum;
}

static void fill_tables(ceov_op *op)
{
	const struct cei_op_shape *shape = &op->shape;
	uint32_t rank = op->workspace->rank, i;
	uint64_t step = CEI_EMBEDDING_VECTOR_BYTES / cei_dtype_bytes(shape->dtype);
	uint64_t table = tables_before(shape, rank), first = 0, column = 0;
	struct cei_embedding_table *to;

	for (i = 0; i < shape->embedding.n_tables[rank]; i++, table++) {
		to = &op->tables.list[i];
		to->first = first;
		to->n_rows = shape->embedding.table_rows[table];
		to->n_vectors = shape->embedding.dims[table] / step;
		to->column = column;
		first += to->n_rows * to->n_vectors;
		column += to->n_vectors;
		if (to->n_vectors > op->tables.most_vectors)
			op->tables.most_vectors = to->n_vectors;
	}
}

int cei_embedding_make_tables(ceov_op *op)
{
	struct cei_executor *executor = &op->workspace->executor;
	uint32_t n = op->shape.embedding.n_tables[op->workspace->rank];
	struct cei_op_tables *tables = &op->tables;
	int r = 0;

	if (n) {
		tables->list = calloc(n, sizeof(*tables->list));
		if (!tables->list)
			return cei_raise(cei_object_report(&op->object), CEOV_ERR_NO_MEMORY, 0,
					 "%s_create: rank %u: no memory for its list of tables",
					 op->kind->name, op->workspace->rank);
		fill_tables(op);
		r = executor->ops->hold(executor, tables->list, n * sizeof(*tables->list),
					&tables->held);
	}
	op->shape.embedding.dims = NULL;
	op->shape.embedding.table_rows = NULL;
	return r;
}

void cei_embedding_fini(ceov_op *op)
{
	struct cei_executor *executor = &op->workspace->executor;

	executor->ops->drop(executor, op->tables.held);
	free(op->tables.list);
	memset(&op->tables, 0, sizeof(op->tables));
}

/* --- bags ------------------------------------------------------------------ */

int cei_embedding_check_bags(const ceov_op *op, const struct ceov_embedding_bags *bags)
{
	struct cei_report *report = cei_object_report(&op->object);

	if (bags->n_indices > INDICES_MAX)
		return cei_raise(report, CEOV_ERR_INVALID, 0, "%s: rank %u: bags.n_indices is %"
				 PRIu64 ", must be at most 2^32", op->kind->run_call,
				 op->workspace->rank, bags->n_indices);
	if (!bags->weights || op->shape.embedding.pooling == CEOV_POOL_SUM)
		return 0;
	return cei_raise(report, CEOV_ERR_INVALID, 0, "%s: rank %u: bags.weights must be NULL, "
			 "because means are made", op->kind->run_call, op->workspace->rank);
}

uint64_t cei_embedding_offsets_bytes(const ceov_op *op)
{
	uint64_t n_tables = op->shape.embedding.n_tables[op->workspace->rank];

	return n_tables ? (n_tables * cei_op_all_rows(&op->shape) + 1) * sizeof(int64_t) : 0;
}

struct cei_embedding_job cei_embedding_job(const struct cei_run *run,
					   const struct ceov_embedding_bags *bags)
{
	const ceov_op *op = run->op;

	return (struct cei_embedding_job){
		.dtype = op->shape.dtype,
		.is_mean = op->shape.embedding.pooling == CEOV_POOL_MEAN,
		.n_tables = op->shape.embedding.n_tables[op->workspace->rank],
		.n_samples = cei_op_all_rows(&op->shape),
		.most_vectors = op->tables.most_vectors,
		.tables = op->tables.list,
		.held_tables = op->tables.held,
		.bags = *bags,
	};
}
