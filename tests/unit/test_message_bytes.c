/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Holds the bytes of messages: whoever changes them changes the version of the protocol, too, since
 * processes of another build understand them no longer. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "ipc/group/messages.h"
#include "ipc/service_wire.h"
#include "ipc/wire.h"
#include "net/far_wire.h"
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
		.hello = { 0x11121314, { 2, { 0x21222324, 0x31323334 } }, 3, "job" },
	};
	uint8_t *all;
	const uint32_t lengths[] = { 2, 0, 1 };
	struct cei_gathered gathered;
	uint64_t n_bytes;

	assert_store(&message, CEI_STORE_HELLO,
		     "4345535403000000010000001700*7 141312110200000024232221343332310300000"
		     "06a6f62");
	assert_store(&message, CEI_STORE_JOINED,
		     "43455354030000000200*11 ");
	message.refuse = (struct cei_store_refuse){ CEOV_ERR_STATE, "no room" };
	assert_store(&message, CEI_STORE_REFUSE,
		     "434553540300000003000000cc00*7 feffffff6e6f20726f6f6d00*193 ");
	message.link = (struct cei_party){ 2, { 0x41424344, 0x51525354 } };
	assert_store(&message, CEI_STORE_LINK,
		     "4345535403000000060000000c00*7 020000004443424154535251");
	message.part = (struct cei_store_part){ 0x31323334, 0x4142, NULL };
	assert_store(&message, CEI_STORE_PART,
		     "434553540300000004000000464100*6 34333231");
	ck_assert_int_eq(cei_gathered_init(&gathered, 3, lengths), 0);
	memcpy(gathered.bytes, "abc", 3);
	all = cei_store_put_all(0x51525354, &gathered, &n_bytes);
	assert_bytes(all, n_bytes,
		     "4345535403000000050000001700*7 54535251030000000200*7 01000000616263");
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
	assert_bytes(bytes, cei_encode(&cei_service_protocol, message, bytes), expected);
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

/* --- exports --------------------------------------------------------------------- */

START_TEST(test_described)
{
	struct cei_wire_described described = { CEI_EXPORT_SIGNAL, CEOV_PLACE_GPU, 0x01020304,
						CEOV_SIGNAL_HOST_VISIBLE, 2, { { 0 } } };
	uint8_t bytes[CEI_GROUP_BYTES_MAX];
	struct cei_writer writer = cei_writer_on(bytes, sizeof(bytes));

	count(&described.regions[0], sizeof(described.regions[0]));
	count(&described.regions[1], sizeof(described.regions[1]));
	cei_put_layout(&writer, &cei_described_layout, &described);
	assert_bytes(bytes, writer.at,
		     "0200000001000000040302010100000002000000101112131415161718191a1b1c1d1e1f2021"
		     "22232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f4041424344454647"
		     "48494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d"
		     "6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f90919293"
		     "9495969798999a9b9c9d9e9f101112131415161718191a1b1c1d1e1f20212223242526272829"
		     "2a2b2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f"
		     "505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475"
		     "767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f909192939495969798999a9b"
		     "9c9d9e9f");
}
END_TEST

/* --- rails ----------------------------------------------------------------------- */

static void assert_far(struct cei_far_message *message, uint32_t type, const char *expected)
{
	uint8_t bytes[CEI_TRANSPORT_MESSAGE_MAX];
	uint32_t n_bytes;

	message->type = type;
	message->group = UINT64_C(0xa1a2a3a4a5a6a7a8);
	message->source = 0xb1b2b3b4;
	message->target = 0xc1c2c3c4;
	message->one = UINT64_C(0xd1d2d3d4d5d6d7d8);
	message->has_heard = UINT64_C(0xe1e2e3e4e5e6e7e8);
	n_bytes = (uint32_t)cei_encode(&cei_far_protocol, message, bytes);
	if (type == CEI_FAR_PIECE)              /* it is the head of an offer */
		ck_assert_uint_le(n_bytes, CEI_TRANSPORT_HEAD_MAX);
	assert_bytes(bytes, n_bytes, expected);
}

START_TEST(test_rail)
{
	struct cei_far_message message = { .type = 0 };

	message.hello = (struct cei_far_hello){ { 1, 2 }, "library", "transport" };
	assert_far(&message, CEI_FAR_HELLO,
		     "5241494c0500000001000000d0000000a8a7a6a5a4a3a2a1b4b3b2b1c4c3c2c1d8d7d6d5d4d3"
		     "d2d1e8e7e6e5e4e3e2e10100*7 0200*7 6c69627261727900*89 7472616e73706f727400*8"
		     "7 ");
	message.refuse = (struct cei_far_refuse){ CEOV_ERR_STATE, "why" };
	assert_far(&message, CEI_FAR_REFUSE,
		     "5241494c0500000002000000cc000000a8a7a6a5a4a3a2a1b4b3b2b1c4c3c2c1d8d7d6d5d4d3"
		     "d2d1e8e7e6e5e4e3e2e1feffffff77687900*197 ");
	count(&message.piece, sizeof(message.piece));
	assert_far(&message, CEI_FAR_PIECE,
		     "5241494c05000000030000002c000000a8a7a6a5a4a3a2a1b4b3b2b1c4c3c2c1d8d7d6d5d4d3"
		     "d2d1e8e7e6e5e4e3e2e1101112131415161718191a1b202122232425262728292a2b2c2d2e2f"
		     "303132333435363738393a3b3c3d3e3f");
	count(&message.mark, sizeof(message.mark));
	assert_far(&message, CEI_FAR_MARK,
		     "5241494c050000000400000020000000a8a7a6a5a4a3a2a1b4b3b2b1c4c3c2c1d8d7d6d5d4d3"
		     "d2d1e8e7e6e5e4e3e2e1101112131415161718191a1b1c1d1e1f202122232425262728292a2b"
		     "2c2d2e2f");
	message.ack = UINT64_C(0x0102030405060708);
	assert_far(&message, CEI_FAR_ACK,
		     "5241494c050000000500000008000000a8a7a6a5a4a3a2a1b4b3b2b1c4c3c2c1d8d7d6d5d4d3"
		     "d2d1e8e7e6e5e4e3e2e10807060504030201");
	count(&message.beat, sizeof(message.beat));
	assert_far(&message, CEI_FAR_BEAT,
		     "5241494c050000000600000010000000a8a7a6a5a4a3a2a1b4b3b2b1c4c3c2c1d8d7d6d5d4d3"
		     "d2d1e8e7e6e5e4e3e2e1101112131415161718191a1b1c1d1e1f");
	message.note.number = UINT64_C(0x0102030405060708);
	message.note.bytes = (const uint8_t *)"note";
	message.note.n_bytes = 4;
	assert_far(&message, CEI_FAR_NOTE,
		     "5241494c050000000700000010000000a8a7a6a5a4a3a2a1b4b3b2b1c4c3c2c1d8d7d6d5d4d3"
		     "d2d1e8e7e6e5e4e3e2e10807060504030201040000006e6f7465");
	message.bye = UINT64_C(0x0102030405060708);
	assert_far(&message, CEI_FAR_BYE,
		     "5241494c050000000800000008000000a8a7a6a5a4a3a2a1b4b3b2b1c4c3c2c1d8d7d6d5d4d3"
		     "d2d1e8e7e6e5e4e3e2e10807060504030201");
	count(&message.clock, sizeof(message.clock));
	assert_far(&message, CEI_FAR_CLOCK,
		     "5241494c05000000090000001c000000a8a7a6a5a4a3a2a1b4b3b2b1c4c3c2c1d8d7d6d5d4d3"
		     "d2d1e8e7e6e5e4e3e2e11011121318191a1b1c1d1e1f202122232425262728292a2b2c2d2e"
		     "2f");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("message_bytes");
	TCase *tcase = tcase_create("message_bytes");

	tcase_add_test(tcase, test_store);
	tcase_add_test(tcase, test_service);
	tcase_add_test(tcase, test_service_failures);
	tcase_add_test(tcase, test_described);
	tcase_add_test(tcase, test_rail);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
