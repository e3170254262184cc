/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Holds the bytes of messages: whoever changes them changes the version of the protocol, too, since
 * processes of another build understand them no longer. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "ipc/service_wire.h"
#include "net/store_wire.h"
#include "testing.h"

#define N_TEXT 4096u

/* Bytes in hexadecimal; "00*9 " is a run of four or more. */
static const char *text_of(const uint8_t *bytes, size_t n_bytes)
{
	static char text[N_TEXT];
	size_t i, n, at = 0;

	text[0] = '\0';
	for (i = 0; i < n_bytes; i += n) {
		for (n = 1; i + n < n_bytes && bytes[i + n] == bytes[i]; n++)
			;
		ck_assert_uint_lt(at, N_TEXT - 20);
		if (n > 3) {
			at += (size_t)sprintf(text + at, "%02x*%zu ", bytes[i], n);
			continue;
		}
		n = 1;
		at += (size_t)sprintf(text + at, "%02x", bytes[i]);
	}
	return text;
}

static void assert_bytes(const uint8_t *bytes, size_t n_bytes, const char *expected)
{
	ck_assert_str_eq(text_of(bytes, n_bytes), expected);
}

/* Fills a struct with bytes that all differ from their neighbours. */
static void count(void *value, size_t n_bytes)
{
	size_t i;

	for (i = 0; i < n_bytes; i++)
		((uint8_t *)value)[i] = (uint8_t)(0x10 + i);
}

/* --- the store ------------------------------------------------------------------ */

static void assert_store(struct cei_store_message *message, uint32_t type, const char *expected)
{
	uint8_t bytes[CEI_STORE_SMALL_BYTES];

	message->type = type;
	assert_bytes(bytes, cei_encode(&cei_store_protocol, message, bytes), expected);
}

START_TEST(test_store)
{
	struct cei_store_message message = {
		.hello = { UINT64_C(0x0102030405060708), 0x11121314, 0x21222324 },
	};
	uint8_t *all;
	const uint32_t lengths[] = { 2, 0, 1 };
	struct cei_gathered gathered;
	uint64_t n_bytes;

	assert_store(&message, CEI_STORE_HELLO,
		     "4345535401000000010000001000*7 08070605040302011413121124232221");
	assert_store(&message, CEI_STORE_JOINED,
		     "43455354010000000200*11 ");
	message.refuse = (struct cei_store_refuse){ CEOV_ERR_STATE, "no room" };
	assert_store(&message, CEI_STORE_REFUSE,
		     "434553540100000003000000cc00*7 feffffff6e6f20726f6f6d00*193 ");
	message.part = (struct cei_store_part){ 0x31323334, 0x4142, NULL };
	assert_store(&message, CEI_STORE_PART,
		     "434553540100000004000000464100*6 34333231");
	ck_assert_int_eq(cei_gathered_init(&gathered, 3, lengths), 0);
	memcpy(gathered.bytes, "abc", 3);
	all = cei_store_put_all(0x51525354, &gathered, &n_bytes);
	assert_bytes(all, n_bytes,
		     "4345535401000000050000001700*7 54535251030000000200*7 01000000616263");
	cei_gathered_fini(&gathered);
	free(all);
}
END_TEST

/* --- daemon and clients --------------------------------------------------------- */

static const struct cei_service_member members[] = {
	{ 0x01020304, CEOV_PLACE_GPU, "0123456789abcde" },
	{ 0x11121314, CEOV_PLACE_HOST, "" },
};

static void assert_service(struct cei_service_message *message, uint32_t type,
			   const char *expected)
{
	static uint8_t bytes[CEI_SERVICE_BYTES_MAX];

	message->type = type;
	message->number = 0x71727374;
	assert_bytes(bytes, cei_service_encode(message, bytes), expected);
}

START_TEST(test_service)
{
	struct cei_service_message message = { 0 };

	count(&message.hello, sizeof(message.hello));
	message.hello.n_members = 2;
	memcpy(message.hello.members, members, sizeof(members));
	assert_service(&message, CEI_SERVICE_HELLO,
		     "434f564404000000010000007473727110111213020000000403020101000000303132333435"
		     "363738396162636465001413121100*20 98999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabac"
		     "adaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacb");
	count(&message.welcome, sizeof(message.welcome));
	assert_service(&message, CEI_SERVICE_WELCOME,
		     "434f5644040000000200000074737271101112131415161718191a1b1c1d1e1f202122232425"
		     "262728292a2b2c2d2e2f3031323334353637");
	count(&message.plan, sizeof(message.plan));
	assert_service(&message, CEI_SERVICE_PLAN,
		     "434f5644040000000500000074737271101112131415161718191a1b");
	message.part = (struct cei_service_part){ 5, (const uint8_t *)"bytes" };
	assert_service(&message, CEI_SERVICE_PART,
		     "434f5644040000000600000074737271050000006279746573");
	count(&message.handle, sizeof(message.handle));
	assert_service(&message, CEI_SERVICE_COMMITTED,
		     "434f56440400000007000000747372711011121314151617");
	assert_service(&message, CEI_SERVICE_DROP,
		     "434f56440400000008000000747372711011121314151617");
	assert_service(&message, CEI_SERVICE_EXPLAIN,
		     "434f5644040000000a000000747372711011121314151617");
	count(&message.stayed, sizeof(message.stayed));
	assert_service(&message, CEI_SERVICE_STAYED,
		     "434f5644040000000e000000747372711011121314151617");
}
END_TEST

START_TEST(test_service_failures)
{
	struct cei_service_message message = { 0 };

	count(&message.failure, offsetof(struct ceov_failure, text));
	strcpy(message.failure.text, "what");
	assert_service(&message, CEI_SERVICE_REFUSED,
		     "434f5644040000000300000074737271101112131415161718191a1b1c1d1e1f202122232425"
		     "262728292a2b2c2d2e2f30313233343536377768617400*252 ");
	assert_service(&message, CEI_SERVICE_FAILURE,
		     "434f5644040000000c00000074737271101112131415161718191a1b1c1d1e1f202122232425"
		     "262728292a2b2c2d2e2f30313233343536377768617400*252 ");
	assert_service(&message, CEI_SERVICE_READY,
		     "434f5644040000000400000074737271");
	assert_service(&message, CEI_SERVICE_DROPPED,
		     "434f5644040000000900000074737271");
	assert_service(&message, CEI_SERVICE_EXPLAINED,
		     "434f5644040000000b00000074737271");
	assert_service(&message, CEI_SERVICE_BYE,
		     "434f5644040000000d00000074737271");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("message_bytes");
	TCase *tcase = tcase_create("message_bytes");

	tcase_add_test(tcase, test_store);
	tcase_add_test(tcase, test_service);
	tcase_add_test(tcase, test_service_failures);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
