/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests what messages have to be beyond the bounds of their fields, which test_messages.c tests. */

#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "ipc/group/messages.h"
#include "ipc/service_wire.h"
#include "ipc/wire.h"
#include "net/far_wire.h"
#include "made_message.h"
#include "testing.h"

static uint64_t state;
static uint8_t *bytes;

static void set_up(void)
{
	state = testing_seed() | 1;
	bytes = malloc(MADE_BYTES_MAX);
	ck_assert_ptr_nonnull(bytes);
}

static void tear_down(void)
{
	free(bytes);
}

static int decode(const struct cei_protocol *protocol, const void *message, void *ret_back)
{
	return cei_decode(protocol, bytes, made_bytes(protocol, message, bytes), ret_back);
}

/* Asserts that the message is refused while the field has the value, and not otherwise. */
#define REFUSES(protocol, message, field, wrong) do {				\
		__typeof__(message) changed = (message), got;			\
										\
		ck_assert_int_eq(decode(protocol, &changed, &got), 0);		\
		changed.field = (wrong);					\
		ck_assert_int_eq(decode(protocol, &changed, &got), CEOV_ERR_INVALID); \
	} while (0)

/* --- daemon and clients --------------------------------------------------------- */

static struct cei_service_message made_service(uint32_t type)
{
	struct cei_service_message message;

	made_message(&state, &cei_service_protocol, type, &message);
	return message;
}

#define SERVICE_REFUSES(message, field, wrong) \
	REFUSES(&cei_service_protocol, message, field, wrong)

START_TEST(test_service_hello)
{
	struct cei_service_message message = made_service(CEI_SERVICE_HELLO);
	struct cei_service_hello *hello = &message.hello;
	uint32_t i;

	hello->n_ranks = CEI_RANKS_MAX;
	hello->n_members = CEI_MEMBERS_MAX;
	for (i = 0; i < CEI_MEMBERS_MAX; i++) {
		hello->members[i].rank = CEI_RANKS_MAX - 1 - i;
		hello->members[i].kind = CEOV_PLACE_GPU;
	}
	SERVICE_REFUSES(message, hello.n_ranks, CEI_RANKS_MAX - 1);
	SERVICE_REFUSES(message, hello.members[3].rank, CEI_RANKS_MAX);
	SERVICE_REFUSES(message, hello.members[15].rank, hello->members[0].rank);
	SERVICE_REFUSES(message, hello.members[15].kind, 2);
	SERVICE_REFUSES(message, hello.name[31], 'x');
}
END_TEST

START_TEST(test_service)
{
	struct cei_service_message message = made_service(CEI_SERVICE_WELCOME);

	SERVICE_REFUSES(message, welcome.n_rings, message.welcome.n_rings + 1);
	SERVICE_REFUSES(message, welcome.serves, UINT32_C(1) << CEI_MEMBERS_MAX);
	message = made_service(CEI_SERVICE_PLAN);
	SERVICE_REFUSES(message, plan.n_bytes, message.plan.n_memories * CEI_WIRE_REGION_BYTES);
	SERVICE_REFUSES(message, plan.n_fds, message.plan.n_memories + 1);
	message = made_service(CEI_SERVICE_FAILURE);
	SERVICE_REFUSES(message, failure.text[CEOV_FAILURE_TEXT_BYTES - 1], 'x');
	SERVICE_REFUSES(message, failure.error, CEOV_PENDING);
}
END_TEST

/* --- the bootstrap, and exports --------------------------------------------------- */

/* A reply's result becomes the result of a call, so it must be one that calls return. */
START_TEST(test_results_of_replies)
{
	struct cei_group_message message, back;

	made_message(&state, &cei_group_protocol, CEI_GROUP_REPLY, &message);
	message.reply.result = CEOV_NONE;
	message.reply.native_code = 0;
	REFUSES(&cei_group_protocol, message, reply.result, CEOV_PENDING);
	REFUSES(&cei_group_protocol, message, reply.result, CEOV_NONE + 1);
	ck_assert_int_eq(decode(&cei_group_protocol, &message, &back), 0);
	ck_assert_int_eq(back.reply.result, CEOV_NONE);
}
END_TEST

static int is_taken(const struct cei_wire_described *described, uint32_t n_fds)
{
	struct cei_writer writer = cei_writer_on(bytes, CEI_GROUP_BYTES_MAX);
	struct cei_reader reader = cei_reader_on(bytes, CEI_GROUP_BYTES_MAX);
	struct cei_wire_described back;

	cei_put_layout(&writer, &cei_described_layout, described);
	reader.n_bytes = writer.at;
	cei_wire_get_described(&reader, n_fds, &back);
	return !cei_reader_end(&reader);
}

#define EXPORT_REFUSES(export, field, wrong) \
	REFUSES(&made_exports, export, content.described.field, wrong)

/* The finder maps regions and takes descriptors as an export describes them, so both must be
 * consistent. */
START_TEST(test_signals)
{
	struct made_export export = { 1, { 1, { CEI_EXPORT_SIGNAL, CEOV_PLACE_GPU, 4,
						CEOV_SIGNAL_HOST_VISIBLE, 2, {
		{ .kind = CEOV_PLACE_HOST, .has_fd = 1, .size_bytes = 4096, .offset_bytes = 64 },
		{ .kind = CEOV_PLACE_GPU, .size_bytes = 4096 } } } } };

	EXPORT_REFUSES(export, regions[1].kind, CEOV_PLACE_HOST);
	EXPORT_REFUSES(export, regions[0].kind, CEOV_PLACE_GPU);
	EXPORT_REFUSES(export, regions[0].has_fd, 0);
	EXPORT_REFUSES(export, regions[0].offset_bytes, UINT64_MAX - 4095);
	EXPORT_REFUSES(export, flags, 0x80);
	EXPORT_REFUSES(export, n_counters, 0);
	EXPORT_REFUSES(export, place_kind, CEOV_PLACE_HOST);
	EXPORT_REFUSES(export, n_regions, 1);
	ck_assert(is_taken(&export.content.described, 1));
	ck_assert(!is_taken(&export.content.described, 0));
	ck_assert(!is_taken(&export.content.described, 2));
}
END_TEST

START_TEST(test_buffers)
{
	struct made_export export = { 1, { 1, { CEI_EXPORT_BUFFER, 0, 0, 0, 1, {
		{ .kind = CEOV_PLACE_GPU, .size_bytes = 4096 },
		{ .kind = CEOV_PLACE_GPU, .size_bytes = 4096 } } } } };

	EXPORT_REFUSES(export, place_kind, CEOV_PLACE_GPU);
	EXPORT_REFUSES(export, n_counters, 1);
	EXPORT_REFUSES(export, flags, CEOV_SIGNAL_HOST_VISIBLE);
	EXPORT_REFUSES(export, n_regions, 2);
	EXPORT_REFUSES(export, kind, CEI_EXPORT_BUFFER + CEI_EXPORT_SIGNAL + 1);
	ck_assert(is_taken(&export.content.described, 0));
	ck_assert(!is_taken(&export.content.described, 1));
}
END_TEST

/* --- rails ------------------------------------------------------------------------- */

#define FAR_REFUSES(message, field, wrong) REFUSES(&cei_far_protocol, message, field, wrong)

START_TEST(test_pieces_and_marks)
{
	struct cei_far_message message = {
		.type = CEI_FAR_PIECE, .one = 1,
		.piece = { .sequence = 1, .offset = 64, .row_bytes = 8, .n_rows = 2,
			   .pitch_bytes = 16 },
	};

	FAR_REFUSES(message, piece.pitch_bytes, 7);
	FAR_REFUSES(message, piece.n_rows, 1);          /* whose pitch is the row's bytes */
	FAR_REFUSES(message, piece.n_rows, UINT64_MAX / 15);
	FAR_REFUSES(message, piece.offset, UINT64_MAX - 31);
	message = (struct cei_far_message){
		.type = CEI_FAR_MARK, .one = 1,
		.mark = { .sequence = 7, .after = 6 },
	};
	FAR_REFUSES(message, mark.after, 7);
	FAR_REFUSES(message, mark.sequence, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("message_sense");
	TCase *tcase = tcase_create("message_sense");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, test_service_hello);
	tcase_add_test(tcase, test_service);
	tcase_add_test(tcase, test_results_of_replies);
	tcase_add_test(tcase, test_signals);
	tcase_add_test(tcase, test_buffers);
	tcase_add_test(tcase, test_pieces_and_marks);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
