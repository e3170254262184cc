/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Operands, reference results, and ranks as threads. */

#include "op_expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/compute/dtype.h"

#define GUARD_BYTES 64u
#define GUARD       0x5au
#define BLOCK       256u                /* numbers that are narrowed by one call */

/* --- operands -------------------------------------------------------------- */

static void *allocate(uint64_t n_bytes)
{
	unsigned char *memory = aligned_alloc(16, (n_bytes + GUARD_BYTES + 15) / 16 * 16);

	ck_assert_ptr_nonnull(memory);
	memset(memory, GUARD, n_bytes + GUARD_BYTES);
	return memory;
}

/* Generates numbers in (-1, 1) that depend only on the arguments. `which` distinguishes the
 * operands of one rank. */
static void *numbers(const struct op_case *one, uint64_t n, uint64_t seed, uint32_t rank,
		     uint32_t which)
{
	uint64_t random = seed * 1000003 + rank * 1009 + which;
	uint64_t n_bytes = cei_dtype_bytes(one->dtype);
	void *made = allocate(n * n_bytes);
	float values[BLOCK];
	uint64_t i, k, n_values;

	for (i = 0; i < n; i += n_values) {
		n_values = n - i < BLOCK ? n - i : BLOCK;
		for (k = 0; k < n_values; k++)
			values[k] = (float)((double)(testing_random(&random) >> 11) * 0x1p-52 - 1);
		cei_dtype_narrow(one->dtype, (char *)made + i * n_bytes, values, n_values);
	}
	return made;
}

void *op_make_a(const struct op_case *one, uint32_t rank, uint64_t seed)
{
	return numbers(one, op_case_a_elements(one, rank), seed, rank, 0);
}

void *op_make_b(const struct op_case *one, uint32_t rank, uint64_t seed, uint32_t i)
{
	return numbers(one, one->n[i] * one->k, seed, rank, 1 + i);
}

void op_data_make(const struct op_case *one, uint32_t rank, uint64_t seed,
		  struct op_data *ret_data)
{
	struct op_data data;
	uint32_t i;

	memset(&data, 0, sizeof(data));
	data.a = op_make_a(one, rank, seed);
	for (i = 0; i < one->n_gemms; i++) {
		if (!op_is_sum(one->sort))
			data.b[i] = op_make_b(one, rank, seed, i);
		data.c_bytes[i] = op_case_c_elements(one, rank, i) * cei_dtype_bytes(one->dtype);
		data.c[i] = allocate(data.c_bytes[i]);
	}
	if (one->sort == OP_AG_GEMM && one->wants_gathered) {
		data.gathered_bytes = op_case_before(one, one->n_ranks) * one->k *
			CEI_DTYPE16_BYTES;
		data.gathered = allocate(data.gathered_bytes);
	}
	*ret_data = data;
}

void op_data_free(struct op_data *data)
{
	uint32_t i;

	free(data->a);
	free(data->gathered);
	for (i = 0; i < CEOV_OP_GEMMS_MAX; i++) {
		free(data->b[i]);
		free(data->c[i]);
	}
}

int op_data_run(const struct op_case *one, ceov_op *op, struct op_data *data)
{
	struct ceov_ag_gemm_run ag_gemm = { .struct_bytes = sizeof(ag_gemm) };
	struct ceov_gemm_rs_run gemm_rs = { .struct_bytes = sizeof(gemm_rs) };
	struct ceov_gemm_ar_run gemm_ar = { .struct_bytes = sizeof(gemm_ar) };
	struct ceov_reduce_run reduce = { .struct_bytes = sizeof(reduce) };
	uint32_t i;

	if (op_is_a2a(one->sort))
		return op_a2a_run(one, op, data);
	switch (one->sort) {
	case OP_AG_GEMM:
		ag_gemm.a = data->a;
		for (i = 0; i < one->n_gemms; i++) {
			ag_gemm.b[i] = data->b[i];
			ag_gemm.c[i] = data->c[i];
		}
		ag_gemm.gathered = data->gathered;
		return ceov_ag_gemm_run(op, &ag_gemm);
	case OP_GEMM_RS:
		gemm_rs.a = data->a;
		gemm_rs.b = data->b[0];
		gemm_rs.c = data->c[0];
		return ceov_gemm_rs_run(op, &gemm_rs);
	case OP_GEMM_AR:
		gemm_ar.a = data->a;
		gemm_ar.b = data->b[0];
		gemm_ar.c = data->c[0];
		return ceov_gemm_ar_run(op, &gemm_ar);
	default:
		reduce.source = data->a;
		reduce.target = data->c[0];
		return ceov_reduce_run(op, &reduce);
	}
}

/* --- expected results ------------------------------------------------------ */

static const void *at(const struct op_case *one, const void *numbers_, uint64_t i)
{
	return (const char *)numbers_ + i * cei_dtype_bytes(one->dtype);
}

float op_number(const struct op_case *one, const void *numbers_, uint64_t i)
{
	float value;

	cei_dtype_widen(one->dtype, &value, at(one, numbers_, i), 1);
	return value;
}

struct factor {                         /* the factors of one column of C */
	const void *b;
	uint64_t    first;
	uint64_t    step;
};

static struct factor factor_of(const struct op_case *one, const void *b, uint64_t n,
			       uint64_t column)
{
	struct factor factor = { b, column * one->k, 1 };

	if (one->b_is_k_by_n) {
		factor.first = column;
		factor.step = n;
	}
	return factor;
}

static double dot(const struct op_case *one, const void *a, uint64_t a_row,
		  struct factor factor)
{
	double sum = 0;
	uint64_t i;

	for (i = 0; i < one->k; i++)
		sum += (double)op_number(one, a, a_row * one->k + i) *
			(double)op_number(one, factor.b, factor.first + i * factor.step);
	return sum;
}

void op_check_number(const struct op_case *one, struct op_sum expected, const void *results,
			 uint64_t i)
{
	double rounding = one->dtype == CEOV_BF16 ? 0x1p-8 : 0x1p-11;
	double bound = 1.02 * rounding * (expected.magnitude + fabs(expected.value)) +
		1e-6 * (double)(one->k + 8) + 0x1p-24;
	double seen = (double)op_number(one, results, i);

	if (!(fabs(seen - expected.value) <= bound))    /* nor is a NaN */
		ck_abort_msg("sort %d, result %llu: %g instead of %g (bound %g)", (int)one->sort,
			     (unsigned long long)i, seen, expected.value, bound);
}

static void check_guard(const void *results, uint64_t n_bytes)
{
	if (results)
		ck_assert_uint_eq(testing_check_same((const char *)results + n_bytes, GUARD_BYTES,
						     GUARD), GUARD_BYTES);
}

static void check_ag_gemm(const struct op_case *one, uint64_t seed,
			  const struct op_data *data)
{
	uint64_t first, row, column;
	struct op_sum expected;
	uint32_t source, i;
	void *a;

	for (source = 0; source < one->n_ranks; source++) {
		a = op_make_a(one, source, seed);
		first = op_case_before(one, source);
		if (data->gathered)
			ck_assert(!memcmp((char *)data->gathered + first * one->k *
					  CEI_DTYPE16_BYTES, a,
					  one->rows[source] * one->k * CEI_DTYPE16_BYTES));
		for (i = 0; i < one->n_gemms; i++)
			for (row = 0; row < one->rows[source]; row++)
				for (column = 0; column < one->n[i]; column++) {
					expected.value =
						dot(one, a, row, factor_of(one, data->b[i],
									   one->n[i], column));
					expected.magnitude = 0;
					op_check_number(one, expected, data->c[i],
						     (first + row) * one->n[i] + column);
				}
		free(a);
	}
}

/* Checks products that are summed over all ranks: the rank's rows of the sum, or all of it. */
static void check_summed(const struct op_case *one, uint32_t rank, uint64_t seed,
			 const struct op_data *data)
{
	uint64_t n = op_case_c_elements(one, rank, 0), i;
	uint64_t first = one->sort == OP_GEMM_AR ? 0 : op_case_before(one, rank);
	struct op_sum *expected = calloc(n + 1, sizeof(*expected));
	uint32_t source;
	double part;
	void *a, *b;

	ck_assert_ptr_nonnull(expected);
	for (source = 0; source < one->n_ranks; source++) {
		a = op_make_a(one, source, seed);
		b = op_make_b(one, source, seed, 0);
		for (i = 0; i < n; i++) {
			part = dot(one, a, first + i / one->n[0],
				   factor_of(one, b, one->n[0], i % one->n[0]));
			expected[i].value += part;
			expected[i].magnitude += fabs(part);
		}
		free(a);
		free(b);
	}
	for (i = 0; i < n; i++)
		op_check_number(one, expected[i], data->c[0], i);
	free(expected);
}

/* What is added to the sums of a part: the addends of single ranks, or the rounded sum of a
 * node's. */
struct addends {
	const struct op_case *one;
	uint32_t              part;
	uint64_t              n;        /* elements of the part */
	uint64_t              seed;
	uint32_t              n_added;
	float                *sums;
	float                *node;     /* the sum of the node at hand */
};

/* Adds numbers in fp32 to the sums; the first ones set them. */
static void add_numbers(float *sums, const float *numbers_, uint64_t n, int is_first)
{
	uint64_t i;

	for (i = 0; i < n; i++)
		sums[i] = is_first ? numbers_[i] : sums[i] + numbers_[i];
}

static void read_addend(const struct addends *addends, uint32_t rank, float *ret_numbers)
{
	const struct op_case *one = addends->one;
	uint64_t first = op_case_part_at(one, rank, addends->part);
	void *a = op_make_a(one, rank, addends->seed);

	cei_dtype_widen(one->dtype, ret_numbers, at(one, a, first), addends->n);
	free(a);
}

static void add_rank(struct addends *addends, uint32_t rank)
{
	read_addend(addends, rank, addends->node);
	add_numbers(addends->sums, addends->node, addends->n, !addends->n_added++);
}

/* Adds the sum of another node, which was rounded unless it is the addend of one rank. */
static void add_node(struct addends *addends, uint32_t node)
{
	const struct op_case *one = addends->one;
	float *numbers_ = calloc(addends->n + 1, sizeof(*numbers_));
	uint32_t rank, n_added = 0, bits;
	uint64_t i;

	ck_assert_ptr_nonnull(numbers_);
	for (rank = 0; rank < one->n_ranks; rank++) {
		if (one->node_of[rank] != node)
			continue;
		read_addend(addends, rank, numbers_);
		add_numbers(addends->node, numbers_, addends->n, !n_added++);
	}
	for (i = 0; i < addends->n; i++) {
		cei_dtype_narrow(one->dtype, &bits, &addends->node[i], 1);
		addends->node[i] = op_number(one, &bits, 0);
	}
	free(numbers_);
	add_numbers(addends->sums, addends->node, addends->n, !addends->n_added++);
}

/* Adds by node: the ranks of the part's own node each, the others' sums, in the order of nodes. */
static void add_by_node(struct addends *addends)
{
	const struct op_case *one = addends->one;
	uint32_t node, rank, n_left = one->n_ranks;

	for (node = 0; n_left; node++) {
		if (node != one->node_of[addends->part])
			add_node(addends, node);
		for (rank = 0; rank < one->n_ranks; rank++) {
			n_left -= one->node_of[rank] == node;
			if (one->node_of[rank] == node && node == one->node_of[addends->part])
				add_rank(addends, rank);
		}
	}
}

/* Asserts that the sums of one part are exact: they are made in fp32 in the order of ranks, scaled
 * in fp32, and rounded once. */
static void check_part(struct addends *addends, uint32_t rank, const char *results)
{
	const struct op_case *one = addends->one;
	uint32_t source, bits;
	float rounded;
	uint64_t i;

	addends->sums = calloc(addends->n + 1, sizeof(*addends->sums));
	addends->node = calloc(addends->n + 1, sizeof(*addends->node));
	ck_assert(addends->sums && addends->node);
	for (source = 0; !one->node_of && source < one->n_ranks; source++)
		add_rank(addends, source);
	if (one->node_of)
		add_by_node(addends);
	for (i = 0; i < addends->n; i++) {
		addends->sums[i] *= op_case_scale(one, rank);
		cei_dtype_narrow(one->dtype, &bits, &addends->sums[i], 1);
		rounded = op_number(one, &bits, 0);
		if (memcmp(at(one, results, i), &bits, cei_dtype_bytes(one->dtype)))
			ck_abort_msg("sort %d in %s, part %u, sum %llu: %a instead of %a",
				     (int)one->sort, cei_dtype_name(one->dtype), addends->part,
				     (unsigned long long)i, (double)op_number(one, results, i),
				     (double)rounded);
	}
	free(addends->sums);
	free(addends->node);
}

static void check_sums(const struct op_case *one, uint32_t rank, uint64_t seed,
		       const struct op_data *data)
{
	struct addends addends = { .one = one, .part = rank, .n = one->rows[rank], .seed = seed };
	const char *results = data->c[0];
	uint32_t part;

	if (one->sort != OP_ALL_REDUCE) {
		check_part(&addends, rank, results);
		return;
	}
	for (part = 0; part < one->n_ranks; part++) {
		addends.part = part;
		addends.n = one->rows[part];
		addends.n_added = 0;
		check_part(&addends, rank, at(one, results, op_case_before(one, part)));
	}
}

void op_data_check(const struct op_case *one, uint32_t rank, uint64_t seed,
		   const struct op_data *data)
{
	uint32_t i;

	for (i = 0; i < one->n_gemms; i++)
		check_guard(data->c[i], data->c_bytes[i]);
	check_guard(data->gathered, data->gathered_bytes);
	if (one->sort == OP_AG_GEMM)
		check_ag_gemm(one, seed, data);
	else if (op_is_a2a(one->sort))
		op_a2a_check(one, rank, seed, data);
	else if (one->sort == OP_GEMM_RS || one->sort == OP_GEMM_AR)
		check_summed(one, rank, seed, data);
	else
		check_sums(one, rank, seed, data);
}

uint64_t op_data_hash(const struct op_data *data)
{
	uint64_t hash = UINT64_C(14695981039346656037), k;
	const unsigned char *bytes;
	uint32_t i;

	for (i = 0; i < CEOV_OP_GEMMS_MAX; i++) {
		bytes = data->c[i];
		for (k = 0; k < data->c_bytes[i]; k++)
			hash = (hash ^ bytes[k]) * UINT64_C(1099511628211);
	}
	return hash;
}

/* --- the rig --------------------------------------------------------------- */

ceov_workspace *op_workspace(ceov_context *context, uint32_t rank, const char *name,
			     uint64_t scratch_bytes, uint64_t deadline_ns)
{
	struct ceov_workspace_config config = { .struct_bytes = sizeof(config) };
	ceov_workspace *workspace = NULL;

	config.rank = rank;
	config.name = name;
	config.scratch_bytes = scratch_bytes;
	config.deadline_ns = deadline_ns;
	ck_assert_int_eq(ceov_workspace_create(context, &config, &workspace), 0);
	return workspace;
}

static void open_workspaces(struct op_rig *rig, const char *name, uint64_t scratch_bytes)
{
	uint32_t i;

	for (i = 0; i < rig->n_ranks; i++)
		rig->workspaces[i] = op_workspace(rig->context, i, name, scratch_bytes, 0);
	for (i = 0; i < rig->n_ranks; i++)
		ck_assert_int_eq(ceov_workspace_connect(rig->workspaces[i],
							TESTING_PATIENCE), 0);
}

void op_rig_open(struct op_rig *rig, uint32_t n_ranks, uint64_t scratch_bytes,
		 struct testing_log *log)
{
	memset(rig, 0, sizeof(*rig));
	rig->n_ranks = n_ranks;
	rig->context = testing_open(n_ranks, log);
	open_workspaces(rig, "rig", scratch_bytes);
}

void op_rig_open_beside(struct op_rig *rig, const struct op_rig *other, const char *name,
			uint64_t scratch_bytes)
{
	memset(rig, 0, sizeof(*rig));
	rig->n_ranks = other->n_ranks;
	rig->context = other->context;
	open_workspaces(rig, name, scratch_bytes);
}

void op_rig_release(struct op_rig *rig)
{
	uint32_t round, i, n_left = 1;
	int r;

	/* the first round unmaps peers' workspaces, so that the second one can succeed */
	for (round = 0; round < 2 && n_left; round++) {
		for (i = n_left = 0; i < rig->n_ranks; i++) {
			r = ceov_workspace_release(rig->workspaces[i]);
			ck_assert(r == 0 || r == CEOV_PENDING);
			if (!r)
				rig->workspaces[i] = NULL;
			n_left += r == CEOV_PENDING;
		}
	}
	ck_assert_uint_eq(n_left, 0);
}

void op_rig_close(struct op_rig *rig)
{
	ceov_close(rig->context);
	rig->context = NULL;
}

struct thread {
	pthread_t      thread;
	struct op_part part;
	void         (*body)(const struct op_part *part);
};

static void *run_thread(void *arg)
{
	const struct thread *thread = arg;

	thread->body(&thread->part);
	return NULL;
}

void op_rig_each(struct op_rig *rig, void (*body)(const struct op_part *part), void *arg)
{
	struct thread threads[OP_RANKS_MAX];
	uint32_t i;

	for (i = 0; i < rig->n_ranks; i++) {
		threads[i].part = (struct op_part){ rig, i, arg };
		threads[i].body = body;
		ck_assert_int_eq(pthread_create(&threads[i].thread, NULL, run_thread,
						&threads[i]), 0);
	}
	for (i = 0; i < rig->n_ranks; i++)
		pthread_join(threads[i].thread, NULL);
}
