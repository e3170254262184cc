/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "unit/channel_item.h"

#include <math.h>
#include <string.h>

#include "ops/compute/dtype.h"
#include "testing.h"

int channel_is_float(enum ceov_dtype dtype)
{
	return dtype >= CEOV_BF16 && dtype <= CEOV_FP64;
}

uint64_t channel_item_bytes(const struct channel_case *one)
{
	static const uint8_t bytes[] = { 0, 2, 2, 4, 8, 1, 1, 2, 2, 4, 4, 8, 8, 1, 1, 1, 8, 16 };

	return one->kind == CEOV_BARRIER ? 0 : bytes[one->dtype];
}

static uint64_t mix(uint64_t seed, uint32_t rank, uint64_t i)
{
	uint64_t state = seed + rank * UINT64_C(0x51ed2701) + i * UINT64_C(0x2545f4914f6cdd1d);

	return testing_random(&state);
}

/* Like cei_dtype_narrow(), to any address. */
static void narrow(const struct channel_case *one, char *to, float value)
{
	uint32_t aligned;

	cei_dtype_narrow(one->dtype, &aligned, &value, 1);
	memcpy(to, &aligned, channel_item_bytes(one));
}

/* Numbers whose sums are rounded; now and then one that is special. */
static double number(uint64_t bits)
{
	static const double special[] = { (double)NAN, (double)INFINITY, -(double)INFINITY, -0.0,
					  0.0, 3e38, 1e-40, -65504.0 };

	if (bits % 64 == 0)
		return special[bits >> 8 & 7];
	return ldexp((double)(int64_t)(bits >> 40) - (1 << 23), -(int)(bits >> 8 & 15) - 12);
}

void channel_item_make(const struct channel_case *one, uint32_t rank, uint64_t i, char *to)
{
	uint64_t bits[2] = { mix(one->seed, rank, i), 0 };
	double wide = number(bits[0]);

	bits[1] = bits[0] * 0x9e3779b97f4a7c15u;
	if (!channel_case_is_sum(one) || !channel_is_float(one->dtype)) {
		memcpy(to, bits, channel_item_bytes(one));
	} else if (one->dtype == CEOV_FP64) {
		memcpy(to, &wide, sizeof(wide));
	} else {
		narrow(one, to, (float)wide);
	}
}

static float float_of(enum ceov_dtype dtype, const char *from)
{
	uint32_t aligned = 0;
	float value;

	memcpy(&aligned, from, dtype == CEOV_FP32 ? 4 : 2);
	cei_dtype_widen(dtype, &value, &aligned, 1);
	return value;
}

static double double_of(const char *from)
{
	double value;

	memcpy(&value, from, sizeof(value));
	return value;
}

int channel_item_is_nan(const struct channel_case *one, const char *item)
{
	if (!channel_case_is_sum(one) || !channel_is_float(one->dtype))
		return 0;
	return one->dtype == CEOV_FP64 ? isnan(double_of(item))
		: isnan(float_of(one->dtype, item));
}

static float join_floats(enum ceov_reduction reduction, float a, float b)
{
	switch (reduction) {
	case CEOV_PRODUCT:
		return a * b;
	case CEOV_MIN:
		return isnan(a) || isnan(b) ? NAN : b < a ? b : a;
	case CEOV_MAX:
		return isnan(a) || isnan(b) ? NAN : b > a ? b : a;
	default:
		return a + b;
	}
}

static double join_doubles(enum ceov_reduction reduction, double a, double b)
{
	switch (reduction) {
	case CEOV_PRODUCT:
		return a * b;
	case CEOV_MIN:
		return isnan(a) || isnan(b) ? (double)NAN : b < a ? b : a;
	case CEOV_MAX:
		return isnan(a) || isnan(b) ? (double)NAN : b > a ? b : a;
	default:
		return a + b;
	}
}

/* Of sums and products of integers the low bits depend on low bits alone. */
static uint64_t join_integers(enum ceov_reduction reduction, int64_t a, int64_t b)
{
	switch (reduction) {
	case CEOV_PRODUCT:
		return (uint64_t)a * (uint64_t)b;
	case CEOV_MIN:
		return (uint64_t)(b < a ? b : a);
	case CEOV_MAX:
		return (uint64_t)(b > a ? b : a);
	default:
		return (uint64_t)a + (uint64_t)b;
	}
}

static int64_t integer_of(const struct channel_case *one, const char *from)
{
	uint64_t bytes = channel_item_bytes(one), bits = 0;
	unsigned int above = 64 - 8 * (unsigned int)bytes;

	memcpy(&bits, from, bytes);
	return one->dtype == CEOV_UINT8 ? (int64_t)bits : (int64_t)(bits << above) >> above;
}

void channel_item_sum(const struct channel_case *one, uint64_t i, char *to)
{
	uint32_t rank, n = one->n_ranks;
	char item[CHANNEL_ITEM_MAX];
	double doubles = 0;
	float floats = 0;
	uint64_t integers = 0;

	for (rank = 0; rank < n; rank++) {
		channel_item_make(one, rank, i, item);
		if (one->dtype == CEOV_FP64)
			doubles = rank ? join_doubles(one->reduction, doubles, double_of(item))
				: double_of(item);
		else if (channel_is_float(one->dtype))
			floats = rank ? join_floats(one->reduction, floats,
						    float_of(one->dtype, item))
				: float_of(one->dtype, item);
		else
			integers = rank ? join_integers(one->reduction, (int64_t)integers,
							integer_of(one, item))
				: (uint64_t)integer_of(one, item);
	}
	if (one->reduction == CEOV_MEAN) {
		doubles /= (double)n;
		floats /= (float)n;
	}
	memcpy(to, &integers, channel_item_bytes(one) <= 8 ? channel_item_bytes(one) : 8);
	if (one->dtype == CEOV_FP64)
		memcpy(to, &doubles, sizeof(doubles));
	else if (channel_is_float(one->dtype))
		narrow(one, to, floats);
}
