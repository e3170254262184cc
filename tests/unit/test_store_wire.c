/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the messages of the store: what is written comes back, and everything else is refused. */

#include "net/store_wire.h"

#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "base/report.h"
#include "testing.h"

#define N_ROUNDS    20000
#define N_PROCESSES 5u

static uint64_t state;

static void set_up(void)
{
	state = testing_seed();
}

static void random_bytes(uint8_t *bytes, size_t n_bytes)
{
	while (n_bytes--)
		*bytes++ = (uint8_t)testing_random(&state);
}

/* --- messages ----------------------------------------------------------------------- */

START_TEST(test_refusals_are_plain_text)
{
	struct cei_store_message message = {
		.type = CEI_STORE_REFUSE, .refuse.error = CEI_ERROR_LOWEST,
	}, back;
	uint8_t bytes[CEI_STORE_SMALL_BYTES];

	memset(message.refuse.text, '\033', sizeof(message.refuse.text));
	ck_assert_uint_eq(cei_encode(&cei_store_protocol, &message, bytes),
			  CEI_STORE_HEAD_BYTES + 4 + CEI_STORE_TEXT_BYTES);
	ck_assert_int_eq(cei_store_get_head(bytes, N_PROCESSES, &back), 0);
	ck_assert_int_eq(cei_store_get_body(bytes + CEI_STORE_HEAD_BYTES, &back), 0);
	ck_assert_uint_eq(strspn(back.refuse.text, "?"), CEI_STORE_TEXT_BYTES - 1);
}
END_TEST

/* Random parts, gathered, to bytes and back. */
static uint8_t *random_all(struct cei_gathered *gathered, uint64_t *ret_n_bytes)
{
	uint32_t lengths[N_PROCESSES], i;

	for (i = 0; i < N_PROCESSES; i++)
		lengths[i] = (uint32_t)testing_below(&state, 40);
	ck_assert_int_eq(cei_gathered_init(gathered, N_PROCESSES, lengths), 0);
	random_bytes(gathered->bytes, gathered->ends[N_PROCESSES - 1]);
	return cei_store_put_all(3, gathered, ret_n_bytes);
}

static int get_all(const uint8_t *bytes, struct cei_store_message *message,
		   struct cei_gathered *ret_gathered)
{
	int r = cei_store_get_body(bytes + CEI_STORE_HEAD_BYTES, message);

	return r ? r : cei_store_get_all(&message->all, 3, N_PROCESSES, ret_gathered);
}

START_TEST(test_bytes_of_all_come_back)
{
	struct cei_gathered gathered, back;
	struct cei_store_message message;
	uint32_t i, p, n, n_back;
	uint64_t n_bytes;
	uint8_t *bytes;

	for (i = 0; i < 1000; i++) {
		bytes = random_all(&gathered, &n_bytes);
		ck_assert_int_eq(cei_store_get_head(bytes, N_PROCESSES, &message), 0);
		ck_assert_uint_eq(message.n_bytes, n_bytes - CEI_STORE_HEAD_BYTES);
		ck_assert_int_eq(get_all(bytes, &message, &back), 0);
		for (p = 0; p < N_PROCESSES; p++) {
			ck_assert_mem_eq(cei_gathered_part(&back, p, &n_back),
					 cei_gathered_part(&gathered, p, &n), n);
			ck_assert_uint_eq(n_back, n);
		}
		cei_gathered_fini(&back);
		message.n_bytes--;
		ck_assert_int_ne(get_all(bytes, &message, &back), 0);
		cei_gathered_fini(&gathered);
		free(bytes);
	}
}
END_TEST

static int head_of_part(uint64_t n_bytes, uint8_t *bytes)
{
	struct cei_store_message message = {
		.type = CEI_STORE_PART, .part = { 0, n_bytes, NULL },
	};

	cei_encode(&cei_store_protocol, &message, bytes);
	return cei_store_get_head(bytes, N_PROCESSES, &message);
}

START_TEST(test_lengths_have_limits)
{
	uint8_t bytes[CEI_STORE_SMALL_BYTES];
	struct cei_store_message message;

	ck_assert_int_eq(head_of_part(CEI_GATHERED_BYTES_MAX, bytes), 0);
	ck_assert_int_eq(head_of_part(CEI_GATHERED_BYTES_MAX + 1, bytes), CEOV_ERR_INVALID);
	bytes[8] = CEI_STORE_ALL;
	ck_assert_int_eq(cei_store_get_head(bytes, N_PROCESSES, &message), 0);
	ck_assert_int_eq(cei_store_get_head(bytes, 1, &message), 0);
	ck_assert_int_eq(cei_store_get_head(bytes, 20000, &message), CEOV_ERR_INVALID);
	bytes[12] = 8;                          /* 65544: round, number, length and 65536 bytes
						 * of one are 65548 */
	ck_assert_int_eq(cei_store_get_head(bytes, 1, &message), 0);
	bytes[12] = 13;
	ck_assert_int_eq(cei_store_get_head(bytes, 1, &message), CEOV_ERR_INVALID);
	bytes[19] = 0x80;
	ck_assert_int_eq(cei_store_get_head(bytes, 65536, &message), CEOV_ERR_INVALID);
	bytes[8] = CEI_STORE_HELLO;
	ck_assert_int_eq(cei_store_get_head(bytes, N_PROCESSES, &message), CEOV_ERR_INVALID);
}
END_TEST

/* Sanitizers check the accesses. */
START_TEST(test_random_messages_do_no_harm)
{
	struct cei_gathered gathered, back;
	uint64_t n_bytes, n_flips, sum;
	struct cei_store_message message;
	uint32_t i, p, n;
	uint8_t *bytes;

	for (i = 0; i < N_ROUNDS; i++) {
		bytes = random_all(&gathered, &n_bytes);
		for (n_flips = 1 + testing_below(&state, 4); n_flips; n_flips--)
			bytes[testing_below(&state, n_bytes < 60 ? n_bytes : 60)] =
				(uint8_t)testing_below(&state, 64);
		if (!cei_store_get_head(bytes, N_PROCESSES, &message) &&
		    message.n_bytes <= n_bytes - CEI_STORE_HEAD_BYTES &&
		    message.type == CEI_STORE_ALL && !get_all(bytes, &message, &back)) {
			for (sum = 0, p = 0; p < N_PROCESSES; p++, sum += n)
				cei_gathered_part(&back, p, &n);
			ck_assert_uint_eq(message.n_bytes, 8 + 4 * N_PROCESSES + sum);
			cei_gathered_fini(&back);
		}
		cei_gathered_fini(&gathered);
		free(bytes);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_wire");
	TCase *tcase = tcase_create("store_wire");

	tcase_add_checked_fixture(tcase, set_up, NULL);
	tcase_add_test(tcase, test_refusals_are_plain_text);
	tcase_add_test(tcase, test_bytes_of_all_come_back);
	tcase_add_test(tcase, test_lengths_have_limits);
	tcase_add_test(tcase, test_random_messages_do_no_harm);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
