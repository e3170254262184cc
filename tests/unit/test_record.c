/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests that a record comes back from its bytes equal, and that all other bytes are refused. */

#include "net/record.h"

#include <string.h>

#include "testing.h"

#define N_ROUNDS 20000

/* Offsets of an encoded record. */
enum { AT_MAGIC = 0, AT_VERSION = 4, AT_LIBRARY = 8, AT_TRANSPORT = 40, AT_NODE = 72,
       AT_INSTANCE = 80, AT_GROUP_RANKS = 88, AT_RANKS = 92 };

static struct cei_record record, back;
static uint8_t bytes[CEI_RECORD_BYTES_MAX + 1], again[CEI_RECORD_BYTES_MAX];
static uint64_t state;

static void random_bytes(uint8_t *at, size_t n_bytes)
{
	while (n_bytes--)
		*at++ = (uint8_t)testing_random(&state);
}

static void random_text(char *text, size_t room)
{
	size_t n = (size_t)testing_below(&state, room), i;

	for (i = 0; i < n; i++)
		text[i] = (char)(' ' + testing_below(&state, 95));
}

static size_t make_record(uint32_t n_ranks, uint32_t n_address)
{
	uint32_t i;

	memset(&record, 0, sizeof(record));
	record.version = CEI_RECORD_VERSION;
	random_text(record.library, CEI_RECORD_TEXT_BYTES);
	random_text(record.transport, CEI_RECORD_TEXT_BYTES);
	random_text(record.job, CEI_JOB_BYTES);
	record.node = testing_random(&state) | 1;
	record.instance = testing_random(&state);
	record.n_group_ranks = (uint32_t)testing_random(&state);
	record.n_ranks = n_ranks;
	for (i = 0; i < n_ranks; i++)
		record.ranks[i] = (uint32_t)testing_random(&state);
	record.n_address = n_address;
	random_bytes(record.address, n_address);
	return cei_record_encode(&record, bytes);
}

static size_t random_record(void)
{
	return make_record(1 + (uint32_t)testing_below(&state, CEI_MEMBERS_MAX),
			   (uint32_t)testing_below(&state, CEI_RECORD_ADDRESS_BYTES + 1));
}

static void set_up(void)
{
	state = testing_seed();
}

START_TEST(test_every_record_comes_back)
{
	size_t n_bytes;
	int i;

	for (i = 0; i < N_ROUNDS; i++) {
		n_bytes = random_record();
		ck_assert_uint_le(n_bytes, CEI_RECORD_BYTES_MAX);
		ck_assert_int_eq(cei_record_decode(bytes, n_bytes, &back), 0);
		ck_assert_mem_eq(&record, &back, sizeof(record));
	}
}
END_TEST

START_TEST(test_the_longest_record_fits)
{
	size_t n_bytes;

	make_record(CEI_MEMBERS_MAX, CEI_RECORD_ADDRESS_BYTES);
	memset(record.job, 'x', CEI_JOB_BYTES - 1);
	n_bytes = cei_record_encode(&record, bytes);
	ck_assert_uint_eq(n_bytes, CEI_RECORD_BYTES_MAX);
	ck_assert_int_eq(cei_record_decode(bytes, n_bytes, &back), 0);
}
END_TEST

START_TEST(test_another_length_is_refused)
{
	size_t n_bytes = make_record(3, 79), n;

	for (n = 0; n < n_bytes; n++)
		ck_assert_int_eq(cei_record_decode(bytes, n, &back), CEOV_ERR_INVALID);
	bytes[n_bytes] = 0;
	ck_assert_int_eq(cei_record_decode(bytes, n_bytes + 1, &back), CEOV_ERR_INVALID);
}
END_TEST

START_TEST(test_another_version_is_named)
{
	size_t n_bytes = make_record(1, 79);

	bytes[AT_VERSION] = 9;
	ck_assert_int_eq(cei_record_decode(bytes, n_bytes, &back), CEOV_ERR_VERSION);
	ck_assert_uint_eq(back.version, 9);
	bytes[AT_MAGIC] ^= 1;
	ck_assert_int_eq(cei_record_decode(bytes, n_bytes, &back), CEOV_ERR_VERSION);
	ck_assert_uint_eq(back.version, 0);
}
END_TEST

/* Decodes a record in which one byte differs. */
static int decode_with(size_t at, uint8_t value)
{
	size_t n_bytes = make_record(2, 79);

	bytes[at] = value;
	return cei_record_decode(bytes, n_bytes, &back);
}

START_TEST(test_fields_that_no_process_sends_are_refused)
{
	const size_t at_address = AT_RANKS + 4 + 2 * 4;
	size_t n_bytes = make_record(2, 79);

	ck_assert_int_eq(cei_record_decode(bytes, n_bytes, &back), 0);
	ck_assert_int_eq(decode_with(AT_LIBRARY, '\n'), CEOV_ERR_INVALID);
	ck_assert_int_eq(decode_with(AT_TRANSPORT + 31, 'x'), CEOV_ERR_INVALID);
	ck_assert_int_eq(decode_with(AT_RANKS, 0), CEOV_ERR_INVALID);
	ck_assert_int_eq(decode_with(AT_RANKS, CEI_MEMBERS_MAX + 1), CEOV_ERR_INVALID);
	ck_assert_int_eq(decode_with(at_address + 2, 1), CEOV_ERR_INVALID);
	n_bytes = make_record(2, 79);
	strcpy(record.job, "job");
	n_bytes = cei_record_encode(&record, bytes);
	bytes[n_bytes - 1] = '\n';
	ck_assert_int_eq(cei_record_decode(bytes, n_bytes, &back), CEOV_ERR_INVALID);
	bytes[n_bytes - 1] = 0;
	ck_assert_int_eq(cei_record_decode(bytes, n_bytes, &back), CEOV_ERR_INVALID);
	n_bytes = make_record(2, 79);
	memset(bytes + AT_NODE, 0, 8);
	ck_assert_int_eq(cei_record_decode(bytes, n_bytes, &back), CEOV_ERR_INVALID);
}
END_TEST

/* Sanitizers check the accesses. Bytes that are accepted must be those of the decoded record. */
START_TEST(test_random_bytes_do_no_harm)
{
	size_t n_bytes, n_flips;
	int i;

	for (i = 0; i < N_ROUNDS; i++) {
		n_bytes = random_record();
		for (n_flips = 1 + testing_below(&state, 4); n_flips; n_flips--)
			bytes[testing_below(&state, n_bytes)] = (uint8_t)testing_random(&state);
		if (cei_record_decode(bytes, n_bytes, &back))
			continue;
		ck_assert_uint_eq(cei_record_encode(&back, again), n_bytes);
		ck_assert_mem_eq(again, bytes, n_bytes);
	}
	for (i = 0; i < N_ROUNDS; i++) {
		n_bytes = testing_below(&state, 512);
		random_bytes(bytes, n_bytes);
		ck_assert_int_ne(cei_record_decode(bytes, n_bytes, &back), 0);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("record");
	TCase *tcase = tcase_create("record");

	tcase_add_checked_fixture(tcase, set_up, NULL);
	tcase_add_test(tcase, test_every_record_comes_back);
	tcase_add_test(tcase, test_the_longest_record_fits);
	tcase_add_test(tcase, test_another_length_is_refused);
	tcase_add_test(tcase, test_another_version_is_named);
	tcase_add_test(tcase, test_fields_that_no_process_sends_are_refused);
	tcase_add_test(tcase, test_random_bytes_do_no_harm);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
