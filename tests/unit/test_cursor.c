/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the cursors that write and read messages. */

#include "base/cursor.h"
#include "testing.h"

START_TEST(test_cursors_read_what_was_written)
{
	uint8_t bytes[15];
	uint8_t back[3];
	struct cei_writer writer = cei_writer_on(bytes, sizeof(bytes));
	struct cei_reader reader = cei_reader_on(bytes, sizeof(bytes));

	cei_wire_put_u32(&writer, 0x04030201);
	cei_wire_put_u64(&writer, UINT64_C(0x0c0b0a0908070605));
	cei_wire_put_bytes(&writer, "xyz", 3);
	ck_assert(!writer.failed);
	ck_assert_uint_eq(writer.at, sizeof(bytes));
	ck_assert_uint_eq(bytes[0], 1);         /* little-endian, no padding */
	ck_assert_uint_eq(bytes[11], 12);
	ck_assert_uint_eq(cei_wire_get_u32(&reader), 0x04030201);
	ck_assert_uint_eq(cei_wire_get_u64(&reader), UINT64_C(0x0c0b0a0908070605));
	ck_assert_int_eq(cei_reader_end(&reader), CEOV_ERR_INVALID);
	cei_wire_get_bytes(&reader, back, sizeof(back));
	ck_assert_mem_eq(back, "xyz", 3);
	ck_assert_int_eq(cei_reader_end(&reader), 0);
}
END_TEST

START_TEST(test_cursors_stay_failed)
{
	uint8_t bytes[6] = { 1, 2, 3, 4, 5, 6 };
	struct cei_writer writer = cei_writer_on(bytes, sizeof(bytes));
	struct cei_reader reader = cei_reader_on(bytes, sizeof(bytes));
	volatile size_t too_many = SIZE_MAX;    /* which the compiler need not warn of */

	ck_assert_uint_eq(cei_wire_get_u64(&reader), 0);
	ck_assert(reader.failed);
	ck_assert_uint_eq(cei_wire_get_u32(&reader), 0);
	ck_assert_int_eq(cei_reader_end(&reader), CEOV_ERR_INVALID);
	cei_wire_put_u64(&writer, UINT64_MAX);
	cei_wire_put_u32(&writer, 0);
	ck_assert(writer.failed);
	ck_assert_uint_eq(bytes[0], 1);         /* nothing was written */
	cei_wire_put_bytes(&writer, bytes, too_many);
	ck_assert(writer.failed);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cursor");
	TCase *tcase = tcase_create("cursor");

	tcase_add_test(tcase, test_cursors_read_what_was_written);
	tcase_add_test(tcase, test_cursors_stay_failed);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
