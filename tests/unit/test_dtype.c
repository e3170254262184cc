/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Converts every bf16 and fp16 number to float and back, and values between two neighbours. fp32
 * numbers stay unchanged. */

#include <check.h>
#include <string.h>

#include "feeder.h"
#include "ops/compute/dtype.h"

/* The bit layout of a type. */
struct layout {
	enum ceov_dtype dtype;
	uint32_t        n_fraction;
	uint32_t        exponent_max;
	int             bias;
};

static const struct layout layouts[] = {
	{ CEOV_BF16, 7, 255, 127 },
	{ CEOV_FP16, 10, 31, 15 },
};

static float float_of(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static uint32_t bits_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static double scaled(double value, int exponent)
{
	for (; exponent > 0; exponent--)
		value *= 2;
	for (; exponent < 0; exponent++)
		value /= 2;
	return value;
}

/* Returns a number's value by definition of the format; for infinity, the value that would follow
 * the largest number. */
static double value_of(const struct layout *layout, uint32_t number)
{
	int exponent = (int)(number >> layout->n_fraction & layout->exponent_max);
	double fraction = number & ((1u << layout->n_fraction) - 1);
	double sign = number & 0x8000 ? -1 : 1;

	if (exponent)
		fraction += 1u << layout->n_fraction;
	else
		exponent = 1;
	return sign * scaled(fraction, exponent - layout->bias - (int)layout->n_fraction);
}

static uint32_t infinity_of(const struct layout *layout)
{
	return layout->exponent_max << layout->n_fraction;
}

static void check_one(const struct layout *layout, uint32_t number)
{
	uint32_t infinity = infinity_of(layout), size = number & 0x7fff;
	float value = feeder_widen(layout->dtype, (uint16_t)number);
	uint32_t back = feeder_narrow(layout->dtype, value);

	if (size > infinity) {
		number |= 1u << (layout->n_fraction - 1);       /* set the quiet bit of a NaN */
		if (value == value)
			ck_abort_msg("%x was a NaN", number);
	} else if (size == infinity) {
		if (bits_of(value) != (0x7f800000u | (number & 0x8000) << 16))
			ck_abort_msg("%x was infinite", number);
	} else if ((double)value != value_of(layout, number) ||
		   bits_of(value) >> 31 != number >> 15) {
		ck_abort_msg("%x became %g", number, (double)value);
	}
	if (back != number)
		ck_abort_msg("%x became %x", number, back);
}

START_TEST(test_all_numbers_come_back)
{
	uint32_t number;

	for (number = 0; number < 65536; number++)
		check_one(&layouts[_i], number);
}
END_TEST

static void check_rounding(const struct layout *layout, float value, uint32_t wanted)
{
	uint32_t up = feeder_narrow(layout->dtype, value);
	uint32_t down = feeder_narrow(layout->dtype, -value);

	if (up != wanted || down != (wanted | 0x8000))
		ck_abort_msg("%a became %x and %x, not %x", (double)value, up, down, wanted);
}

/* A value halfway between two neighbours rounds to the even one, any other value to the nearer one.
 * The neighbour above the largest number is infinity. */
START_TEST(test_what_lies_between_goes_to_the_nearest)
{
	const struct layout *layout = &layouts[_i];
	uint32_t number, middle;
	double sum;

	for (number = 0; number < infinity_of(layout); number++) {
		sum = value_of(layout, number) + value_of(layout, number + 1);
		middle = bits_of((float)(sum / 2));
		check_rounding(layout, float_of(middle), number + (number & 1));
		check_rounding(layout, float_of(middle - 1), number);
		check_rounding(layout, float_of(middle + 1), number + 1);
	}
	check_rounding(layout, float_of(0x7f7fffff), infinity_of(layout));
	check_rounding(layout, float_of(1), 0);
}
END_TEST

START_TEST(test_a_nan_stays_one)
{
	const struct layout *layout = &layouts[_i];
	uint32_t bit, number;

	for (bit = 1; bit < 0x800000; bit <<= 1) {
		number = feeder_narrow(layout->dtype, float_of(0xff800000u | bit));
		ck_assert_uint_gt(number & 0x7fff, infinity_of(layout));
		ck_assert_uint_eq(number >> 15, 1);
	}
}
END_TEST

START_TEST(test_fp32_stays_as_it_is)
{
	static const uint32_t numbers[] = {
		0, 0x80000000, 1, 0x807fffff, 0x3f800001, 0x7f7fffff, 0x7f800000, 0xff800000,
		0x7f800001, 0xffc12345,         /* NaNs, the first a signalling one */
	};
	const uint64_t n = sizeof(numbers) / sizeof(numbers[0]);
	uint32_t back[sizeof(numbers) / sizeof(numbers[0])];
	float wide[sizeof(numbers) / sizeof(numbers[0])];

	cei_dtype_widen(CEOV_FP32, wide, numbers, n);
	ck_assert(!memcmp(wide, numbers, sizeof(wide)));
	cei_dtype_narrow(CEOV_FP32, back, wide, n);
	ck_assert(!memcmp(back, numbers, sizeof(back)));
}
END_TEST

START_TEST(test_sizes_and_names)
{
	ck_assert_uint_eq(cei_dtype_bytes(CEOV_BF16), 2);
	ck_assert_uint_eq(cei_dtype_bytes(CEOV_FP16), 2);
	ck_assert_uint_eq(cei_dtype_bytes(CEOV_FP32), 4);
	ck_assert_str_eq(cei_dtype_name(CEOV_BF16), "bf16");
	ck_assert_str_eq(cei_dtype_name(CEOV_FP16), "fp16");
	ck_assert_str_eq(cei_dtype_name(CEOV_FP32), "fp32");
}
END_TEST

static Suite *suite(void)
{
	const int n = sizeof(layouts) / sizeof(layouts[0]);
	Suite *made = suite_create("numbers");
	TCase *all = tcase_create("numbers");

	tcase_set_timeout(all, 60);
	tcase_add_loop_test(all, test_all_numbers_come_back, 0, n);
	tcase_add_loop_test(all, test_what_lies_between_goes_to_the_nearest, 0, n);
	tcase_add_loop_test(all, test_a_nan_stays_one, 0, n);
	tcase_add_test(all, test_fp32_stays_as_it_is);
	tcase_add_test(all, test_sizes_and_names);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
