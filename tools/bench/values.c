/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Reference code: as simple as possible, and not tuned for speed. */

#include "tools/bench/values.h"

#include <math.h>
#include <string.h>

static uint32_t to_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static float to_float(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static float from_bf16(uint16_t bits)
{
	return to_float((uint32_t)bits << 16);
}

/* Computes the same bits as the kernel in src/kernels/fill_kernels.cu. */
static uint32_t bell_bits(uint64_t seed, uint64_t index)
{
	uint64_t word = (seed + index + 1) * UINT64_C(0x9e3779b97f4a7c15);
	int sum;

	word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	word = (word ^ word >> 27) * UINT64_C(0x94d049bb133111eb);
	word ^= word >> 31;
	sum = (int)(word & 0xffff) + (int)(word >> 16 & 0xffff) +
		(int)(word >> 32 & 0xffff) + (int)(word >> 48);
	return to_bits((float)(sum - 131070) / 131072.0f) & UINT32_C(0xffff0000);
}

void bench_host_values(const struct bench_values *values)
{
	uint32_t bits;
	uint64_t i;

	for (i = 0; i < values->n; i++) {
		bits = bell_bits(values->seed, values->first + i);
		if (values->kind == BENCH_VALUES_BF16)
			((uint16_t *)values->at)[i] = (uint16_t)(bits >> 16);
		else if (values->kind == BENCH_VALUES_FLOAT)
			((float *)values->at)[i] = to_float(bits);
		else
			((float *)values->at)[i] += to_float(bits);
	}
}

void bench_host_compare(struct bench_compare *compare)
{
	const uint16_t *x = compare->x, *y = compare->y;
	const float *y_float = compare->y;
	float difference, value;
	uint64_t i;

	compare->difference = compare->largest = 0;
	compare->n_unlike = 0;
	for (i = 0; i < compare->n; i++) {
		value = compare->y_is_float ? y_float[i] : from_bf16(y[i]);
		difference = fabsf(from_bf16(x[i]) - value);
		/* this form of the condition keeps NaN */
		if (!(difference <= compare->difference))
			compare->difference = difference;
		if (fabsf(value) > compare->largest)
			compare->largest = fabsf(value);
		compare->n_unlike += x[i] != to_bits(value) >> 16;
	}
}

/* Computes a dot product; consecutive elements of b are b_step apart. */
static float dot(const uint16_t *a, const uint16_t *b, uint64_t b_step, uint64_t k)
{
	float sum = 0;
	uint64_t i;

	for (i = 0; i < k; i++)
		sum += from_bf16(a[i]) * from_bf16(b[i * b_step]);
	return sum;
}

void bench_host_multiply(const struct bench_product *product)
{
	const uint16_t *a = product->a, *b = product->b;
	uint64_t b_first = product->b_is_k_by_n ? 1 : product->k;
	uint64_t b_step = product->b_is_k_by_n ? product->n : 1;
	uint64_t row, column;
	float *c = product->c;

	for (row = 0; row < product->m; row++) {
		for (column = 0; column < product->n; column++, c++)
			*c = (product->adds ? *c : 0) + dot(a + row * product->k,
				b + column * b_first, b_step, product->k);
	}
}
