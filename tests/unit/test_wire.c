/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests encoding and decoding of messages: a message that we send comes back equal, and everything
 * else is refused. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ipc/wire.h"

#define N_ROUNDS   20000
#define HEAD_BYTES 16

static uint64_t random_state;

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static void seed(void)
{
	const char *text = getenv("CEOVERLAP_TEST_SEED");

	random_state = text ? strtoull(text, NULL, 0) : cei_now_ns();
	random_state |= 1;
	printf("CEOVERLAP_TEST_SEED=%llu\n", (unsigned long long)random_state);
}

static void fill_random(void *bytes, size_t n_bytes)
{
	uint8_t *at = bytes;

	while (n_bytes--)
		*at++ = (uint8_t)next_random();
}

static void random_text(char *text, size_t room_bytes, size_t least)
{
	size_t n_bytes = least + next_random() % (room_bytes - least);
	size_t i;

	memset(text, 0, room_bytes);
	for (i = 0; i < n_bytes; i++)
		text[i] = (char)(1 + next_random() % 255);
}

static void random_party(struct cei_wire_party *party)
{
	uint32_t i;

	party->n_ranks = 1 + (uint32_t)(next_random() % CEI_MEMBERS_MAX);
	for (i = 0; i < party->n_ranks; i++)
		party->ranks[i] = (uint32_t)next_random();
}

static void random_export(struct cei_export *export)
{
	uint32_t i;

	export->rank = (uint32_t)next_random();
	random_text(export->name, sizeof(export->name), 1);
	export->n_fds = (uint32_t)(next_random() % (CEI_EXPORT_FDS_MAX + 1));
	export->n_bytes = (uint32_t)(next_random() % (CEI_EXPORT_BYTES_MAX + 1));
	fill_random(export->bytes, export->n_bytes);
	for (i = 0; i < CEI_EXPORT_FDS_MAX; i++)
		export->fds[i] = -1;
}

static void random_message(struct cei_message *message, uint32_t type)
{
	memset(message, 0, sizeof(*message));
	message->magic = CEI_WIRE_MAGIC;
	message->version = CEI_WIRE_VERSION;
	message->type = type;
	switch ((enum cei_message_type)type) {
	case CEI_MESSAGE_HELLO:
		message->hello.n_ranks = (uint32_t)next_random();
		random_party(&message->hello.party);
		break;
	case CEI_MESSAGE_REFUSE:
		message->refuse.error = -1 - (int)(next_random() % 100);
		random_text(message->refuse.text, sizeof(message->refuse.text), 0);
		break;
	case CEI_MESSAGE_LINK:
		random_party(&message->link);
		break;
	case CEI_MESSAGE_WELCOME:
		message->welcome.n_links = (uint32_t)next_random();
		random_party(&message->welcome.party);
		break;
	case CEI_MESSAGE_FIND:
		message->find.number = next_random();
		message->find.rank = (uint32_t)next_random();
		random_text(message->find.name, sizeof(message->find.name), 1);
		break;
	case CEI_MESSAGE_REPLY:
		message->reply.number = next_random();
		message->reply.result = next_random() & 1 ? 0 : CEOV_ERR_SYSTEM;
		message->reply.native_code = (int32_t)next_random();
		if (message->reply.result)
			break;
		message->reply.id = next_random();
		random_export(&message->reply.export);
		break;
	case CEI_MESSAGE_DROP:
		message->id = next_random();
		break;
	case CEI_MESSAGE_BARRIER:
		message->n_calls = next_random();
		break;
	case CEI_MESSAGE_LOST:
	case CEI_MESSAGE_MISSING:
		message->rank = (uint32_t)next_random();
		break;
	case CEI_MESSAGE_JOINED:
	case CEI_MESSAGE_BYE:
		break;
	}
}

static uint32_t random_type(void)
{
	return CEI_MESSAGE_HELLO + (uint32_t)(next_random() % CEI_MESSAGE_BYE);
}

static struct cei_region_wire random_region(void)
{
	struct cei_region_wire region;

	fill_random(&region, sizeof(region));
	region.kind &= 1;
	region.has_fd &= 1;
	region.size_bytes = 1 + (region.size_bytes >> 1);
	region.offset_bytes >>= 1;
	return region;
}

START_TEST(test_region_comes_back)
{
	uint8_t bytes[CEI_WIRE_REGION_BYTES];
	struct cei_region_wire region, back;
	struct cei_writer writer;
	struct cei_reader reader;
	size_t n;
	int i;

	for (i = 0; i < 1000; i++) {
		region = random_region();
		writer = cei_writer_on(bytes, sizeof(bytes));
		cei_wire_put_region(&writer, &region);
		ck_assert(!writer.failed);
		ck_assert_uint_eq(writer.at, sizeof(bytes));
		reader = cei_reader_on(bytes, sizeof(bytes));
		cei_wire_get_region(&reader, &back);
		ck_assert_int_eq(cei_reader_end(&reader), 0);
		ck_assert_mem_eq(&region, &back, sizeof(region));
	}
	for (n = 0; n < sizeof(bytes); n++) {
		reader = cei_reader_on(bytes, n);
		cei_wire_get_region(&reader, &back);
		ck_assert_int_eq(cei_reader_end(&reader), CEOV_ERR_INVALID);
		ck_assert_uint_eq(back.size_bytes, 0);
	}
}
END_TEST

static int region_is_taken(const struct cei_region_wire *region)
{
	uint8_t bytes[CEI_WIRE_REGION_BYTES];
	struct cei_writer writer = cei_writer_on(bytes, sizeof(bytes));
	struct cei_reader reader = cei_reader_on(bytes, sizeof(bytes));
	struct cei_region_wire back;

	cei_wire_put_region(&writer, region);
	cei_wire_get_region(&reader, &back);
	return !cei_reader_end(&reader);
}

START_TEST(test_region_that_no_owner_sends_is_refused)
{
	struct cei_region_wire region = random_region();
	struct cei_region_wire bad;

	ck_assert(region_is_taken(&region));
	bad = region;
	bad.kind = 2;
	ck_assert(!region_is_taken(&bad));
	bad = region;
	bad.has_fd = 2;
	ck_assert(!region_is_taken(&bad));
	bad = region;
	bad.size_bytes = 0;
	ck_assert(!region_is_taken(&bad));
	bad = region;
	bad.offset_bytes = UINT64_MAX - bad.size_bytes + 1;
	ck_assert(!region_is_taken(&bad));
}
END_TEST

static int described_is_taken(const struct cei_wire_described *described, uint32_t n_fds)
{
	uint8_t bytes[CEI_EXPORT_BYTES_MAX];
	struct cei_writer writer = cei_writer_on(bytes, sizeof(bytes));
	struct cei_wire_described back;
	struct cei_reader reader;

	cei_wire_put_described(&writer, described);
	ck_assert(!writer.failed);
	reader = cei_reader_on(bytes, writer.at);
	cei_wire_get_described(&reader, n_fds, &back);
	return !cei_reader_end(&reader);
}

static struct cei_region_wire region_on(uint32_t kind)
{
	struct cei_region_wire region = random_region();

	region.kind = kind;
	region.has_fd = kind == CEOV_PLACE_HOST;
	return region;
}

/* The finder maps regions and takes descriptors as an export describes them, so both must be
 * consistent. */
START_TEST(test_signal_that_no_owner_exports_is_refused)
{
	struct cei_wire_described right = { CEI_EXPORT_SIGNAL, CEOV_PLACE_GPU, 4,
					    CEOV_SIGNAL_HOST_VISIBLE, 2, { { 0 } } };
	struct cei_wire_described bad;

	right.regions[0] = region_on(CEOV_PLACE_HOST);
	right.regions[1] = region_on(CEOV_PLACE_GPU);
	ck_assert(described_is_taken(&right, 1));
	ck_assert(!described_is_taken(&right, 0));
	ck_assert(!described_is_taken(&right, 2));
	bad = right;
	bad.regions[1] = region_on(CEOV_PLACE_HOST);
	ck_assert(!described_is_taken(&bad, 2));
	bad = right;
	bad.regions[0] = region_on(CEOV_PLACE_GPU);
	ck_assert(!described_is_taken(&bad, 0));
	bad = right;
	bad.regions[0].has_fd = 0;
	ck_assert(!described_is_taken(&bad, 0));
	bad = right;
	bad.flags |= 0x80;
	ck_assert(!described_is_taken(&bad, 1));
	bad = right;
	bad.n_counters = 0;
	ck_assert(!described_is_taken(&bad, 1));
	bad = right;
	bad.place_kind = CEOV_PLACE_HOST;
	ck_assert(!described_is_taken(&bad, 1));
	bad = right;
	bad.n_regions = 1;
	ck_assert(!described_is_taken(&bad, 1));
}
END_TEST

START_TEST(test_buffer_that_no_owner_exports_is_refused)
{
	struct cei_wire_described right = { CEI_EXPORT_BUFFER, 0, 0, 0, 1, { { 0 } } };
	struct cei_wire_described bad;

	right.regions[0] = region_on(CEOV_PLACE_GPU);
	ck_assert(described_is_taken(&right, 0));
	ck_assert(!described_is_taken(&right, 1));
	right.regions[0] = region_on(CEOV_PLACE_HOST);
	ck_assert(described_is_taken(&right, 1));
	ck_assert(!described_is_taken(&right, 2));
	bad = right;
	bad.n_counters = 1;
	ck_assert(!described_is_taken(&bad, 1));
	bad = right;
	bad.regions[1] = region_on(CEOV_PLACE_GPU);
	bad.n_regions = 2;
	ck_assert(!described_is_taken(&bad, 1));
	bad = right;
	bad.kind = CEI_EXPORT_BUFFER + CEI_EXPORT_SIGNAL + 1;
	ck_assert(!described_is_taken(&bad, 1));
}
END_TEST

START_TEST(test_every_message_comes_back)
{
	uint8_t bytes[CEI_MESSAGE_BYTES_MAX];
	struct cei_message message, back;
	size_t n_bytes;
	int i;

	for (i = 0; i < N_ROUNDS; i++) {
		random_message(&message, random_type());
		n_bytes = cei_message_encode(&message, bytes);
		ck_assert_uint_le(n_bytes, sizeof(bytes));
		memset(&back, 0xff, sizeof(back));
		ck_assert_int_eq(cei_message_decode(bytes, n_bytes, &back), 0);
		message.n_bytes = back.n_bytes;
		ck_assert_mem_eq(&message, &back, sizeof(message));
	}
}
END_TEST

START_TEST(test_message_of_another_length_is_refused)
{
	uint8_t bytes[CEI_MESSAGE_BYTES_MAX + 1];
	struct cei_message message, back;
	size_t n_bytes, n;
	uint32_t type;

	for (type = CEI_MESSAGE_HELLO; type <= CEI_MESSAGE_BYE; type++) {
		random_message(&message, type);
		n_bytes = cei_message_encode(&message, bytes);
		bytes[n_bytes] = 0;
		for (n = 0; n < n_bytes; n++)
			ck_assert_int_ne(cei_message_decode(bytes, n, &back), 0);
		ck_assert_int_ne(cei_message_decode(bytes, n_bytes + 1, &back), 0);
		/* the head is valid, the body is not */
		bytes[12]++;
		ck_assert_int_ne(cei_message_decode(bytes, n_bytes, &back), 0);
		ck_assert_int_ne(cei_message_decode(bytes, n_bytes + 1, &back), 0);
		bytes[12] = (uint8_t)(bytes[12] - 2);
		ck_assert_int_ne(cei_message_decode(bytes, n_bytes, &back), 0);
	}
}
END_TEST

START_TEST(test_unknown_type_is_refused)
{
	uint8_t bytes[CEI_MESSAGE_BYTES_MAX];
	struct cei_message message, back;
	size_t n_bytes;

	random_message(&message, CEI_MESSAGE_BYE);
	n_bytes = cei_message_encode(&message, bytes);
	bytes[8] = 0;
	ck_assert_int_eq(cei_message_decode(bytes, n_bytes, &back), CEOV_ERR_INVALID);
	bytes[8] = CEI_MESSAGE_BYE + 1;
	ck_assert_int_eq(cei_message_decode(bytes, n_bytes, &back), CEOV_ERR_INVALID);
}
END_TEST

START_TEST(test_other_version_is_named)
{
	uint8_t bytes[CEI_MESSAGE_BYTES_MAX];
	struct cei_message message, back;
	size_t n_bytes;

	random_message(&message, CEI_MESSAGE_HELLO);
	n_bytes = cei_message_encode(&message, bytes);
	bytes[4] = 9;
	ck_assert_int_eq(cei_message_decode(bytes, n_bytes, &back), CEOV_ERR_VERSION);
	ck_assert_uint_eq(back.version, 9);
	ck_assert_uint_eq(back.magic, CEI_WIRE_MAGIC);
	bytes[0] = 'X';
	ck_assert_int_eq(cei_message_decode(bytes, n_bytes, &back), CEOV_ERR_VERSION);
	ck_assert_uint_ne(back.magic, CEI_WIRE_MAGIC);
}
END_TEST

START_TEST(test_refusal_of_another_version_is_read)
{
	uint8_t bytes[CEI_MESSAGE_BYTES_MAX];
	struct cei_message message, back;
	size_t n_bytes;

	random_message(&message, CEI_MESSAGE_REFUSE);
	n_bytes = cei_message_encode(&message, bytes);
	bytes[4] = 9;
	ck_assert_int_eq(cei_message_decode(bytes, n_bytes, &back), 0);
	ck_assert_uint_eq(back.version, 9);
	ck_assert_str_eq(back.refuse.text, message.refuse.text);
}
END_TEST

START_TEST(test_refusal_is_never_a_success)
{
	uint8_t bytes[CEI_MESSAGE_BYTES_MAX];
	struct cei_message message, back;
	size_t n_bytes;

	random_message(&message, CEI_MESSAGE_REFUSE);
	message.refuse.error = 0;
	n_bytes = cei_message_encode(&message, bytes);
	ck_assert_int_eq(cei_message_decode(bytes, n_bytes, &back), CEOV_ERR_INVALID);
}
END_TEST

static int reply_is_taken(int32_t result)
{
	uint8_t bytes[CEI_MESSAGE_BYTES_MAX];
	struct cei_message message, back;

	random_message(&message, CEI_MESSAGE_REPLY);
	message.reply.result = result;
	return !cei_message_decode(bytes, cei_message_encode(&message, bytes), &back);
}

/* A reply's result becomes the result of a call here, so it must be one that calls return. */
START_TEST(test_reply_has_a_result_that_calls_have)
{
	ck_assert(reply_is_taken(CEOV_NONE));
	ck_assert(!reply_is_taken(CEOV_PENDING));
	ck_assert(!reply_is_taken(CEOV_NONE + 1));
	ck_assert(reply_is_taken(CEI_ERROR_LOWEST));
	ck_assert(!reply_is_taken(CEI_ERROR_LOWEST - 1));
}
END_TEST

START_TEST(test_names_must_end_and_not_be_empty)
{
	uint8_t bytes[CEI_MESSAGE_BYTES_MAX];
	struct cei_message message, back;
	size_t n_bytes;

	random_message(&message, CEI_MESSAGE_FIND);
	n_bytes = cei_message_encode(&message, bytes);
	memset(bytes + HEAD_BYTES + 12, 'a', CEI_NAME_BYTES);
	ck_assert_int_eq(cei_message_decode(bytes, n_bytes, &back), CEOV_ERR_INVALID);
	bytes[HEAD_BYTES + 12] = 0;
	bytes[n_bytes - 1] = 0;
	ck_assert_int_eq(cei_message_decode(bytes, n_bytes, &back), CEOV_ERR_INVALID);
}
END_TEST

START_TEST(test_counts_have_limits)
{
	uint8_t bytes[CEI_MESSAGE_BYTES_MAX];
	struct cei_message message, back;
	size_t n_bytes;

	random_message(&message, CEI_MESSAGE_LINK);
	message.link.n_ranks = CEI_MEMBERS_MAX;
	n_bytes = cei_message_encode(&message, bytes);
	ck_assert_int_eq(cei_message_decode(bytes, n_bytes, &back), 0);
	bytes[HEAD_BYTES] = CEI_MEMBERS_MAX + 1;
	ck_assert_int_eq(cei_message_decode(bytes, n_bytes, &back), CEOV_ERR_INVALID);
	message.link.n_ranks = 0;
	n_bytes = cei_message_encode(&message, bytes);
	ck_assert_int_eq(cei_message_decode(bytes, n_bytes, &back), CEOV_ERR_INVALID);

	random_message(&message, CEI_MESSAGE_REPLY);
	message.reply.result = 0;
	random_export(&message.reply.export);
	message.reply.export.n_bytes = 0;
	n_bytes = cei_message_encode(&message, bytes);
	ck_assert_int_eq(cei_message_decode(bytes, n_bytes, &back), 0);
	bytes[n_bytes - 8] = CEI_EXPORT_FDS_MAX + 1;    /* n_fds, then n_bytes */
	ck_assert_int_eq(cei_message_decode(bytes, n_bytes, &back), CEOV_ERR_INVALID);
	bytes[n_bytes - 8] = 0;
	bytes[n_bytes - 3] = 0xff;
	ck_assert_int_eq(cei_message_decode(bytes, n_bytes, &back), CEOV_ERR_INVALID);
}
END_TEST

/* Sanitizers check the accesses. A message that is accepted must also be one that we would send. */
START_TEST(test_random_bytes_do_no_harm)
{
	uint8_t bytes[CEI_MESSAGE_BYTES_MAX], again[CEI_MESSAGE_BYTES_MAX];
	struct cei_message message, back;
	size_t n_bytes, n_flips;
	int i;

	for (i = 0; i < N_ROUNDS; i++) {
		random_message(&message, random_type());
		n_bytes = cei_message_encode(&message, bytes);
		for (n_flips = 1 + next_random() % 4; n_flips; n_flips--)
			bytes[next_random() % n_bytes] = (uint8_t)next_random();
		if (cei_message_decode(bytes, n_bytes, &back) ||
		    back.version != CEI_WIRE_VERSION)
			continue;
		ck_assert_uint_eq(cei_message_encode(&back, again), n_bytes);
	}
	for (i = 0; i < N_ROUNDS; i++) {
		n_bytes = next_random() % sizeof(bytes);
		fill_random(bytes, n_bytes);
		ck_assert_int_ne(cei_message_decode(bytes, n_bytes, &back), 0);
	}
}
END_TEST

static Suite *wire_suite(void)
{
	Suite *suite = suite_create("wire");
	TCase *tcase = tcase_create("wire");

	tcase_add_test(tcase, test_region_comes_back);
	tcase_add_test(tcase, test_region_that_no_owner_sends_is_refused);
	tcase_add_test(tcase, test_signal_that_no_owner_exports_is_refused);
	tcase_add_test(tcase, test_buffer_that_no_owner_exports_is_refused);
	tcase_add_test(tcase, test_every_message_comes_back);
	tcase_add_test(tcase, test_message_of_another_length_is_refused);
	tcase_add_test(tcase, test_unknown_type_is_refused);
	tcase_add_test(tcase, test_other_version_is_named);
	tcase_add_test(tcase, test_refusal_of_another_version_is_read);
	tcase_add_test(tcase, test_refusal_is_never_a_success);
	tcase_add_test(tcase, test_reply_has_a_result_that_calls_have);
	tcase_add_test(tcase, test_names_must_end_and_not_be_empty);
	tcase_add_test(tcase, test_counts_have_limits);
	tcase_add_test(tcase, test_random_bytes_do_no_harm);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	SRunner *runner;
	int n_failed;

	seed();
	runner = srunner_create(wire_suite());
	srunner_run_all(runner, CK_NORMAL);
	n_failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
