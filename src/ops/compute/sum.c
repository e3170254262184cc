/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Numbers are widened block by block, added up there, and narrowed once. */

#include "ops/compute/sum.h"

#include <math.h>
#include <string.h>

#include "ops/compute/dtype.h"
#include "ops/shape.h"

#define BLOCK 512u                      /* numbers; three such blocks of 8 bytes fit the L1 cache */

enum width { NONE, AS_FLOAT, AS_DOUBLE, AS_INTEGER };

static enum width width_of(enum ceov_dtype dtype)
{
	switch (dtype) {
	case CEOV_BF16:
	case CEOV_FP16:
	case CEOV_FP32:
		return AS_FLOAT;
	case CEOV_FP64:
		return AS_DOUBLE;
	case CEOV_INT8:
	case CEOV_UINT8:
	case CEOV_INT16:
	case CEOV_INT32:
	case CEOV_INT64:
		return AS_INTEGER;
	default:
		return NONE;
	}
}

int cei_sum_takes(enum ceov_dtype dtype, enum ceov_reduction reduction)
{
	enum width width = width_of(dtype);

	return width == AS_INTEGER ? reduction != CEOV_MEAN : width != NONE;
}

/* --- floats -------------------------------------------------------------------------------- */

static void add_floats(enum ceov_reduction reduction, float *sum, const float *addend, uint64_t n)
{
	uint64_t i;

	if (reduction == CEOV_SUM || reduction == CEOV_MEAN)
		for (i = 0; i < n; i++)
			sum[i] += addend[i];
	else if (reduction == CEOV_PRODUCT)
		for (i = 0; i < n; i++)
			sum[i] *= addend[i];
	else if (reduction == CEOV_MIN)
		for (i = 0; i < n; i++)
			sum[i] = addend[i] < sum[i] || isnan(addend[i]) ? addend[i] : sum[i];
	else
		for (i = 0; i < n; i++)
			sum[i] = addend[i] > sum[i] || isnan(addend[i]) ? addend[i] : sum[i];
}

/* from: of each rank, already at the block. Aligned copies of fp32 go through floats, too. */
static void sum_floats(const struct cei_sum *sum, const char *const *from, void *target, uint64_t n)
{
	float total[BLOCK], addend[BLOCK];
	uint16_t numbers[BLOCK];
	uint64_t bytes = n * cei_dtype_bytes(sum->dtype), i;
	int is_wide = sum->dtype == CEOV_FP32;
	uint32_t rank;
	float *to;

	for (rank = 0; rank < sum->n_ranks; rank++) {
		to = rank ? addend : total;
		memcpy(is_wide ? (void *)to : numbers, from[rank], bytes);
		if (!is_wide)
			cei_dtype_widen(sum->dtype, to, numbers, n);
		if (rank)
			add_floats(sum->reduction, total, addend, n);
	}
	for (i = 0; sum->reduction == CEOV_MEAN && i < n; i++)
		total[i] /= (float)sum->n_ranks;
	for (i = 0; sum->scale != 1 && i < n; i++)
		total[i] *= sum->scale;
	if (!is_wide)
		cei_dtype_narrow(sum->dtype, numbers, total, n);
	memcpy(target, is_wide ? (void *)total : numbers, bytes);
}

/* --- doubles ------------------------------------------------------------------------------- */

static void add_doubles(enum ceov_reduction reduction, double *sum, const double *addend,
			uint64_t n)
{
	uint64_t i;

	if (reduction == CEOV_SUM || reduction == CEOV_MEAN)
		for (i = 0; i < n; i++)
			sum[i] += addend[i];
	else if (reduction == CEOV_PRODUCT)
		for (i = 0; i < n; i++)
			sum[i] *= addend[i];
	else if (reduction == CEOV_MIN)
		for (i = 0; i < n; i++)
			sum[i] = addend[i] < sum[i] || isnan(addend[i]) ? addend[i] : sum[i];
	else
		for (i = 0; i < n; i++)
			sum[i] = addend[i] > sum[i] || isnan(addend[i]) ? addend[i] : sum[i];
}

static void sum_doubles(const struct cei_sum *sum, const char *const *from, void *target,
			uint64_t n)
{
	double total[BLOCK], addend[BLOCK];
	uint32_t rank;
	uint64_t i;

	memcpy(total, from[0], n * sizeof(*total));
	for (rank = 1; rank < sum->n_ranks; rank++) {
		memcpy(addend, from[rank], n * sizeof(*addend));
		add_doubles(sum->reduction, total, addend, n);
	}
	for (i = 0; sum->reduction == CEOV_MEAN && i < n; i++)
		total[i] /= sum->n_ranks;
	memcpy(target, total, n * sizeof(*total));
}

/* --- integers ------------------------------------------------------------------------------ */

static int64_t integer_at(enum ceov_dtype dtype, const char *from)
{
	int16_t two;
	int32_t four;
	int64_t eight;

	switch (dtype) {
	case CEOV_INT8:
		return *(const int8_t *)from;
	case CEOV_UINT8:
		return *(const uint8_t *)from;
	case CEOV_INT16:
		memcpy(&two, from, sizeof(two));
		return two;
	case CEOV_INT32:
		memcpy(&four, from, sizeof(four));
		return four;
	default:
		memcpy(&eight, from, sizeof(eight));
		return eight;
	}
}

static int64_t reduced(enum ceov_reduction reduction, int64_t a, int64_t b)
{
	switch (reduction) {
	case CEOV_PRODUCT:
		return (int64_t)((uint64_t)a * (uint64_t)b);
	case CEOV_MIN:
		return a < b ? a : b;
	case CEOV_MAX:
		return a > b ? a : b;
	default:
		return (int64_t)((uint64_t)a + (uint64_t)b);
	}
}

/* The low bytes of a wrapped 64-bit result are the wrapped result of the narrow type. */
static void sum_integers(const struct cei_sum *sum, const char *const *from, void *target,
			 uint64_t n)
{
	uint64_t bytes = cei_dtype_bytes(sum->dtype), i;
	int64_t total;
	uint32_t rank;

	for (i = 0; i < n; i++) {
		total = integer_at(sum->dtype, from[0] + i * bytes);
		for (rank = 1; rank < sum->n_ranks; rank++)
			total = reduced(sum->reduction, total,
					integer_at(sum->dtype, from[rank] + i * bytes));
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the low bytes of an integer come first on machines that the library knows"
#endif
		memcpy((char *)target + i * bytes, &total, bytes);
	}
}

void cei_sum_up(const struct cei_sum *sum, void *target, uint64_t n)
{
	uint64_t bytes = cei_dtype_bytes(sum->dtype), at, here;
	const char *from[CEI_OP_RANKS_MAX];
	uint32_t rank;

	for (at = 0; at < n; at += BLOCK) {
		here = n - at < BLOCK ? n - at : BLOCK;
		for (rank = 0; rank < sum->n_ranks; rank++)
			from[rank] = (const char *)sum->sources[rank] + at * bytes;
		if (width_of(sum->dtype) == AS_FLOAT)
			sum_floats(sum, from, (char *)target + at * bytes, here);
		else if (width_of(sum->dtype) == AS_DOUBLE)
			sum_doubles(sum, from, (char *)target + at * bytes, here);
		else
			sum_integers(sum, from, (char *)target + at * bytes, here);
	}
}
