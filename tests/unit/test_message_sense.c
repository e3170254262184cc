/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests what messages have to be beyond the bounds of their fields, which test_messages.c tests. */

#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "ipc/service_wire.h"
#include "ipc/wire.h"
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
		__typeof__(message) changed = (message), back;			\
										\
		ck_assert_int_eq(decode(protocol, &changed, &back), 0);		\
		changed.field = (wrong);					\
		ck_assert_int_eq(decode(protocol, &changed, &back), CEOV_ERR_INVALID); \
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

int main(void)
{
	Suite *suite = suite_create("message_sense");
	TCase *tcase = tcase_create("message_sense");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, test_service_hello);
	tcase_add_test(tcase, test_service);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
