/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the messages between a daemon and its clients: what is sent comes back, and everything else
 * is refused, or is the bytes of another message. */

#include "ipc/service_wire.h"

#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "ipc/wire.h"
#include "testing.h"

#define N_ROUNDS   300u
#define N_RANDOM   50000u
#define HEAD_BYTES 16u
#define AT_MAGIC   0u
#define AT_VERSION 4u
#define AT_TYPE    8u
#define AT_BODY    HEAD_BYTES

static uint64_t state;

static void set_up(void)
{
	state = testing_seed();
}

static void random_bytes(void *bytes, size_t n_bytes)
{
	uint8_t *byte = bytes;

	while (n_bytes--)
		*byte++ = (uint8_t)testing_random(&state);
}

/* --- random messages ---------------------------------------------------------------- */

/* Of distinct ranks. */
static void random_hello(struct cei_service_hello *hello)
{
	uint32_t i, first;

	hello->n_ranks = CEI_MEMBERS_MAX +
		(uint32_t)testing_below(&state, CEI_RANKS_MAX - CEI_MEMBERS_MAX + 1);
	hello->n_members = 1 + (uint32_t)testing_below(&state, CEI_MEMBERS_MAX);
	first = (uint32_t)testing_random(&state);
	for (i = 0; i < hello->n_members; i++) {
		hello->members[i].rank = (first % hello->n_ranks + i) % hello->n_ranks;
		hello->members[i].kind = (uint32_t)testing_below(&state, 2);
		random_bytes(hello->members[i].uuid, sizeof(hello->members[i].uuid));
	}
	hello->deadline_ns = 1 + testing_random(&state) / 2;
	hello->max_chunk_bytes = 1 + testing_random(&state) / 2;
	hello->urgency = (uint32_t)testing_below(&state, CEOV_URGENCY_BACKGROUND + 1);
	random_bytes(hello->name, sizeof(hello->name) - 1);
}

static void random_welcome(struct cei_service_welcome *welcome)
{
	random_bytes(welcome->instance, sizeof(welcome->instance));
	welcome->serves = 1 + (uint32_t)testing_below(&state, (1u << CEI_MEMBERS_MAX) - 1);
	welcome->n_rings = (uint32_t)__builtin_popcount(welcome->serves);
	welcome->n_plans_max = (uint32_t)testing_random(&state);
	welcome->n_transfers_max = (uint32_t)testing_random(&state);
	welcome->n_bytes_max = testing_random(&state);
}

static void random_failure(struct ceov_failure *failure)
{
	failure->error = -1 - (int)testing_below(&state, -CEI_ERROR_LOWEST);
	failure->native_code = (int)testing_random(&state);
	failure->rank = (uint32_t)testing_random(&state);
	failure->transfer = (uint32_t)testing_random(&state);
	failure->chunk = testing_random(&state);
	failure->mark_value = testing_random(&state);
	failure->seen_value = testing_random(&state);
	random_bytes(failure->text, sizeof(failure->text) - 1);
}

/* A valid message of the type. A part has n_part bytes, which are static. */
static struct cei_service_message random_message(uint32_t type, uint32_t n_part)
{
	static uint8_t part[CEI_SERVICE_PART_BYTES];
	struct cei_service_message message;

	memset(&message, 0, sizeof(message));
	message.type = type;
	message.magic = CEI_SERVICE_MAGIC;
	message.version = CEI_SERVICE_VERSION;
	message.number = (uint32_t)testing_random(&state);
	switch ((enum cei_service_type)type) {
	case CEI_SERVICE_HELLO:     random_hello(&message.hello); break;
	case CEI_SERVICE_WELCOME:   random_welcome(&message.welcome); break;
	case CEI_SERVICE_PLAN:
		message.plan.n_memories = (uint32_t)testing_below(&state, 1u << 20);
		message.plan.n_fds = (uint32_t)testing_below(&state, message.plan.n_memories + 1);
		message.plan.n_bytes = message.plan.n_memories * CEI_WIRE_REGION_BYTES + 1 +
			(uint32_t)testing_below(&state, 1u << 30);
		break;
	case CEI_SERVICE_PART:
		random_bytes(part, n_part);
		message.part.n_bytes = n_part;
		message.part.bytes = part;
		break;
	case CEI_SERVICE_COMMITTED:
	case CEI_SERVICE_DROP:
	case CEI_SERVICE_EXPLAIN:
		message.handle.slot = (uint32_t)testing_random(&state);
		message.handle.generation = (uint32_t)testing_random(&state);
		break;
	case CEI_SERVICE_REFUSED:
	case CEI_SERVICE_FAILURE:   random_failure(&message.failure); break;
	case CEI_SERVICE_STAYED:    message.stayed.n_plans = testing_random(&state); break;
	case CEI_SERVICE_READY:
	case CEI_SERVICE_EXPLAINED:
	case CEI_SERVICE_DROPPED:
	case CEI_SERVICE_BYE:       break;
	}
	return message;
}

/* --- decoding ----------------------------------------------------------------------- */

/* Decodes a copy in memory of just that size, so that a sanitizer sees who reads behind it, and
 * checks the answer: an error, or a message with the same bytes. A later version's REFUSED is
 * encoded as this version's. */
static int decode(const uint8_t *bytes, size_t n_bytes)
{
	static uint8_t again[CEI_SERVICE_BYTES_MAX];
	uint8_t *copy = malloc(n_bytes ? n_bytes : 1);
	struct cei_service_message message;
	int r;

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, bytes, n_bytes);
	r = cei_service_decode(copy, n_bytes, &message);
	ck_assert(!r || r == CEOV_ERR_INVALID || r == CEOV_ERR_VERSION);
	if (!r) {
		ck_assert(message.version == CEI_SERVICE_VERSION ||
			  message.type == CEI_SERVICE_REFUSED);
		ck_assert_uint_eq(cei_service_encode(&message, again), n_bytes);
		memcpy(again + AT_VERSION, copy + AT_VERSION, 4);
		ck_assert_mem_eq(again, copy, n_bytes);
	}
	free(copy);
	return r;
}

static void check_comes_back(uint32_t type, uint32_t n_part)
{
	static uint8_t bytes[CEI_SERVICE_BYTES_MAX];
	struct cei_service_message message = random_message(type, n_part), back;
	size_t n = cei_service_encode(&message, bytes);

	ck_assert_uint_le(n, sizeof(bytes));
	ck_assert_int_eq(cei_service_decode(bytes, n, &back), 0);
	if (type == CEI_SERVICE_PART) {
		ck_assert_ptr_eq(back.part.bytes, bytes + n - n_part);
		ck_assert_mem_eq(back.part.bytes, message.part.bytes, n_part);
		back.part.bytes = message.part.bytes;
	}
	ck_assert_mem_eq(&back, &message, sizeof(back));
}

START_TEST(test_what_is_sent_comes_back)
{
	uint32_t round, type;

	for (round = 0; round < testing_share(N_ROUNDS); round++)
		for (type = CEI_SERVICE_HELLO; type <= CEI_SERVICE_STAYED; type++)
			check_comes_back(type, (uint32_t)testing_below(&state,
						CEI_SERVICE_PART_BYTES + 1));
	check_comes_back(CEI_SERVICE_PART, CEI_SERVICE_PART_BYTES);
	check_comes_back(CEI_SERVICE_PART, 0);
}
END_TEST

START_TEST(test_other_lengths_are_refused)
{
	static uint8_t bytes[CEI_SERVICE_BYTES_MAX];
	struct cei_service_message message;
	uint32_t type;
	size_t n, k;

	for (type = CEI_SERVICE_HELLO; type <= CEI_SERVICE_STAYED; type++) {
		message = random_message(type, (uint32_t)testing_below(&state, 100));
		n = cei_service_encode(&message, bytes);
		for (k = 0; k < n; k++)
			ck_assert_int_eq(decode(bytes, k), CEOV_ERR_INVALID);
		ck_assert_int_eq(decode(bytes, n), 0);
		bytes[n] = 0;
		ck_assert_int_eq(decode(bytes, n + 1), CEOV_ERR_INVALID);
	}
}
END_TEST

/* Each byte becomes each other value, or some under a sanitizer. */
START_TEST(test_changed_bytes)
{
	static uint8_t bytes[CEI_SERVICE_BYTES_MAX];
	struct cei_service_message message;
	uint32_t type, value, step = 255 / testing_share(255);
	uint8_t right;
	size_t n, k;
	int r;

	for (type = CEI_SERVICE_HELLO; type <= CEI_SERVICE_STAYED; type++) {
		message = random_message(type, 40);
		n = cei_service_encode(&message, bytes);
		for (k = 0; k < n; k++) {
			right = bytes[k];
			for (value = 1; value < 256; value += step) {
				bytes[k] = (uint8_t)(right + value);
				r = decode(bytes, n);
				if (k < AT_VERSION)
					ck_assert_int_eq(r, CEOV_ERR_VERSION);
				else if (k < AT_TYPE)
					ck_assert_int_eq(r, type == CEI_SERVICE_REFUSED ? 0 :
							 CEOV_ERR_VERSION);
				else
					ck_assert_int_ne(r, CEOV_ERR_VERSION);
			}
			bytes[k] = right;
		}
	}
}
END_TEST

START_TEST(test_random_bytes)
{
	static uint8_t bytes[CEI_SERVICE_BYTES_MAX];
	struct cei_service_message message;
	uint32_t i, n_flips;
	size_t n;

	for (i = 0; i < testing_share(N_RANDOM); i++) {
		message = random_message(1 + (uint32_t)testing_below(&state, CEI_SERVICE_STAYED),
					 30);
		n = cei_service_encode(&message, bytes);
		if (i % 2) {
			n = HEAD_BYTES + testing_below(&state, 400);
			random_bytes(bytes + AT_BODY, n - AT_BODY);
		}
		for (n_flips = (uint32_t)testing_below(&state, 5); n_flips; n_flips--)
			bytes[testing_below(&state, n)] = (uint8_t)testing_below(&state, 20);
		decode(bytes, n);
		random_bytes(bytes, n);
		ck_assert_int_ne(decode(bytes, n), 0);
	}
}
END_TEST

START_TEST(test_versions)
{
	static uint8_t bytes[CEI_SERVICE_BYTES_MAX];
	struct cei_service_message message = random_message(CEI_SERVICE_HELLO, 0), back;
	size_t n = cei_service_encode(&message, bytes);

	bytes[AT_VERSION] = CEI_SERVICE_VERSION + 1;
	ck_assert_int_eq(cei_service_decode(bytes, n, &back), CEOV_ERR_VERSION);
	ck_assert_uint_eq(back.version, CEI_SERVICE_VERSION + 1);
	ck_assert_uint_eq(back.magic, CEI_SERVICE_MAGIC);
	bytes[AT_MAGIC] ^= 1;
	ck_assert_int_eq(cei_service_decode(bytes, n, &back), CEOV_ERR_VERSION);
	ck_assert_uint_eq(back.magic, CEI_SERVICE_MAGIC ^ 1);
	message = random_message(CEI_SERVICE_REFUSED, 0);
	n = cei_service_encode(&message, bytes);
	bytes[AT_VERSION] = CEI_SERVICE_VERSION + 1;
	ck_assert_int_eq(cei_service_decode(bytes, n, &back), 0);
	ck_assert_uint_eq(back.version, CEI_SERVICE_VERSION + 1);
	ck_assert_int_eq(back.failure.error, message.failure.error);
	bytes[AT_MAGIC] ^= 1;
	ck_assert_int_eq(cei_service_decode(bytes, n, &back), CEOV_ERR_VERSION);
}
END_TEST

/* --- limits ------------------------------------------------------------------------- */

static int decode_message(const struct cei_service_message *message)
{
	static uint8_t bytes[CEI_SERVICE_BYTES_MAX];

	return decode(bytes, cei_service_encode(message, bytes));
}

/* Asserts that the message is refused while the field has the value, and not otherwise. */
#define REFUSES(message, field, wrong) do {				\
		struct cei_service_message changed = (message);		\
									\
		ck_assert_int_eq(decode_message(&changed), 0);		\
		changed.field = (wrong);				\
		ck_assert_int_eq(decode_message(&changed), CEOV_ERR_INVALID); \
	} while (0)

START_TEST(test_limits_of_a_hello)
{
	struct cei_service_message message = random_message(CEI_SERVICE_HELLO, 0);
	struct cei_service_hello *hello = &message.hello;
	uint32_t i;

	hello->n_ranks = CEI_RANKS_MAX;
	hello->n_members = CEI_MEMBERS_MAX;
	for (i = 0; i < CEI_MEMBERS_MAX; i++)
		hello->members[i].rank = CEI_RANKS_MAX - 1 - i;
	REFUSES(message, hello.n_ranks, 0);
	REFUSES(message, hello.n_ranks, CEI_RANKS_MAX + 1);
	REFUSES(message, hello.n_ranks, CEI_RANKS_MAX - 1);
	REFUSES(message, hello.n_members, 0);
	REFUSES(message, hello.members[3].rank, CEI_RANKS_MAX);
	REFUSES(message, hello.members[15].rank, hello->members[0].rank);
	REFUSES(message, hello.members[0].kind, 2);
	REFUSES(message, hello.urgency, CEOV_URGENCY_BACKGROUND + 1);
	REFUSES(message, hello.deadline_ns, 0);
	REFUSES(message, hello.max_chunk_bytes, 0);
	REFUSES(message, hello.name[31], 'x');
}
END_TEST

/* One more member than there is room for, in bytes that have them all. */
START_TEST(test_too_many_members)
{
	static uint8_t bytes[CEI_SERVICE_BYTES_MAX];
	struct cei_service_message message = random_message(CEI_SERVICE_HELLO, 0);
	const size_t n_member = 4 + 4 + 16;
	size_t n, at;

	message.hello.n_ranks = CEI_RANKS_MAX;
	message.hello.n_members = CEI_MEMBERS_MAX;
	n = cei_service_encode(&message, bytes);
	at = AT_BODY + 8 + CEI_MEMBERS_MAX * n_member;
	memmove(bytes + at + n_member, bytes + at, n - at);
	memset(bytes + at, 0, n_member);
	bytes[AT_BODY + 4] = CEI_MEMBERS_MAX + 1;
	ck_assert_int_eq(decode(bytes, n + n_member), CEOV_ERR_INVALID);
	memset(bytes + AT_BODY + 4, 0xff, 4);
	ck_assert_int_eq(decode(bytes, n + n_member), CEOV_ERR_INVALID);
}
END_TEST

START_TEST(test_limits_of_other_messages)
{
	static uint8_t bytes[CEI_SERVICE_BYTES_MAX];
	struct cei_service_message message = random_message(CEI_SERVICE_WELCOME, 0);
	size_t n;

	REFUSES(message, welcome.n_rings, 0);
	REFUSES(message, welcome.n_rings, CEI_MEMBERS_MAX + 1);
	REFUSES(message, welcome.serves, UINT32_C(1) << CEI_MEMBERS_MAX);
	REFUSES(message, type, 0);
	REFUSES(message, type, CEI_SERVICE_STAYED + 1);
	REFUSES(message, type, UINT32_MAX);
	message = random_message(CEI_SERVICE_PLAN, 0);
	REFUSES(message, plan.n_bytes, 0);
	REFUSES(message, plan.n_bytes, message.plan.n_memories * CEI_WIRE_REGION_BYTES);
	REFUSES(message, plan.n_fds, message.plan.n_memories + 1);
	message = random_message(CEI_SERVICE_FAILURE, 0);
	message.failure.error = CEI_ERROR_LOWEST;
	REFUSES(message, failure.error, CEI_ERROR_LOWEST - 1);
	REFUSES(message, failure.error, 0);
	REFUSES(message, failure.error, CEOV_PENDING);
	REFUSES(message, failure.text[CEOV_FAILURE_TEXT_BYTES - 1], 'x');
	message = random_message(CEI_SERVICE_PART, CEI_SERVICE_PART_BYTES);
	n = cei_service_encode(&message, bytes);
	ck_assert_int_eq(decode(bytes, n), 0);
	bytes[AT_BODY]++;                       /* with a byte for it, too */
	ck_assert_int_eq(decode(bytes, n + 1), CEOV_ERR_INVALID);
	memset(bytes + AT_BODY, 0xff, 4);
	ck_assert_int_eq(decode(bytes, n), CEOV_ERR_INVALID);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("service_wire");
	TCase *tcase = tcase_create("service_wire");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, set_up, NULL);
	tcase_add_test(tcase, test_what_is_sent_comes_back);
	tcase_add_test(tcase, test_other_lengths_are_refused);
	tcase_add_test(tcase, test_changed_bytes);
	tcase_add_test(tcase, test_random_bytes);
	tcase_add_test(tcase, test_versions);
	tcase_add_test(tcase, test_limits_of_a_hello);
	tcase_add_test(tcase, test_too_many_members);
	tcase_add_test(tcase, test_limits_of_other_messages);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
