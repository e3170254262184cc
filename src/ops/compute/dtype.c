/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Converts numbers by their bits, so that results do not depend on the thread's rounding mode, or
 * on whether it flushes small numbers to zero. */

#include "ops/compute/dtype.h"

#include <string.h>

#define FLOAT_ABS      UINT32_C(0x7fffffff)
#define FLOAT_INFINITY UINT32_C(0x7f800000)

/* As bits of a float: the smallest number that rounds to fp16's infinity, the smallest normal
 * number of fp16, and the difference between the exponent biases of float and fp16. */
#define FP16_TOO_LARGE UINT32_C(0x477ff000)
#define FP16_NORMAL    UINT32_C(0x38800000)
#define FP16_BIAS      (UINT32_C(112) << 23)

static float as_float(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static uint32_t as_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* Returns x / 2^shift (shift 1 to 31), rounded to nearest, ties to even. */
static uint32_t shift_rounded(uint32_t x, uint32_t shift)
{
	return (x + (UINT32_C(1) << (shift - 1)) - 1 + (x >> shift & 1)) >> shift;
}

static float from_bf16(uint16_t number)
{
	return as_float((uint32_t)number << 16);
}

static uint16_t to_bf16(float value)
{
	uint32_t bits = as_bits(value);

	if ((bits & FLOAT_ABS) > FLOAT_INFINITY)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)shift_rounded(bits, 16);
}

static float from_fp16(uint16_t number)
{
	uint32_t sign = (uint32_t)(number & 0x8000) << 16;
	uint32_t bits = (uint32_t)(number & 0x7fff) << 13;

	if (bits >= UINT32_C(31) << 23)
		return as_float(sign | FLOAT_INFINITY | bits);
	if (bits >= UINT32_C(1) << 23)
		return as_float(sign | (bits + FP16_BIAS));
	return as_float(sign | as_bits((float)(number & 0x3ff) * 0x1p-24f));
}

static uint16_t to_fp16(float value)
{
	uint32_t bits = as_bits(value), size = bits & FLOAT_ABS, shift;
	uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);

	if (size > FLOAT_INFINITY)
		return (uint16_t)(sign | 0x7e00 | (size >> 13 & 0x3ff));
	if (size >= FP16_TOO_LARGE)
		return (uint16_t)(sign | 0x7c00);
	if (size >= FP16_NORMAL)
		return (uint16_t)(sign | shift_rounded(size - FP16_BIAS, 13));
	/* The result is subnormal: round to units of 2^-24. The shift is at least 14. */
	shift = 126 - (size >> 23);
	if (shift > 24)
		return sign;                    /* less than half a unit rounds to zero */
	return (uint16_t)(sign | shift_rounded((size & 0x7fffff) | 0x800000, shift));
}

struct dtype {
	const char *name;
	uint64_t    n_bytes;
};

static const struct dtype dtypes[] = {
	[CEOV_BF16]       = { "bf16", 2 },
	[CEOV_FP16]       = { "fp16", 2 },
	[CEOV_FP32]       = { "fp32", 4 },
	[CEOV_FP64]       = { "fp64", 8 },
	[CEOV_INT8]       = { "int8", 1 },
	[CEOV_UINT8]      = { "uint8", 1 },
	[CEOV_INT16]      = { "int16", 2 },
	[CEOV_UINT16]     = { "uint16", 2 },
	[CEOV_INT32]      = { "int32", 4 },
	[CEOV_UINT32]     = { "uint32", 4 },
	[CEOV_INT64]      = { "int64", 8 },
	[CEOV_UINT64]     = { "uint64", 8 },
	[CEOV_BOOL]       = { "bool", 1 },
	[CEOV_FP8_E4M3]   = { "fp8_e4m3", 1 },
	[CEOV_FP8_E5M2]   = { "fp8_e5m2", 1 },
	[CEOV_COMPLEX64]  = { "complex64", 8 },
	[CEOV_COMPLEX128] = { "complex128", 16 },
};

/* NULL: there is no such type. */
static const struct dtype *find(enum ceov_dtype dtype)
{
	uint32_t i = (uint32_t)dtype;

	return i < sizeof(dtypes) / sizeof(dtypes[0]) && dtypes[i].name ? &dtypes[i] : NULL;
}

uint64_t cei_dtype_bytes(enum ceov_dtype dtype)
{
	const struct dtype *found = find(dtype);

	return found ? found->n_bytes : 0;
}

const char *cei_dtype_name(enum ceov_dtype dtype)
{
	const struct dtype *found = find(dtype);

	return found ? found->name : "?";
}

void cei_dtype_widen(enum ceov_dtype dtype, float *to, const void *from, uint64_t n)
{
	const uint16_t *number = from;
	uint64_t i;

	if (dtype == CEOV_FP32)
		memcpy(to, from, n * sizeof(*to));
	else if (dtype == CEOV_BF16)
		for (i = 0; i < n; i++)
			to[i] = from_bf16(number[i]);
	else
		for (i = 0; i < n; i++)
			to[i] = from_fp16(number[i]);
}

void cei_dtype_narrow(enum ceov_dtype dtype, void *to, const float *from, uint64_t n)
{
	uint16_t *number = to;
	uint64_t i;

	if (dtype == CEOV_FP32)
		memcpy(to, from, n * sizeof(*from));
	else if (dtype == CEOV_BF16)
		for (i = 0; i < n; i++)
			number[i] = to_bf16(from[i]);
	else
		for (i = 0; i < n; i++)
			number[i] = to_fp16(from[i]);
}
