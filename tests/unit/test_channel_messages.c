/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Sends and receives by channels, between ranks that are threads of one process. */

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "unit/channel_rig.h"

#define BATCHES  60u
#define MANY     24u                    /* messages of a batch at most */
#define LARGE    UINT64_C(200000)       /* bytes; several times what a channel holds */
#define SECOND   TESTING_SECOND

static struct ceov_call message_of(enum ceov_call_kind kind, uint32_t peer, void *memory,
				   uint64_t count)
{
	struct ceov_call call = { .struct_bytes = sizeof(call), .kind = kind, .dtype = CEOV_INT8,
				  .root = peer, .count = count };

	if (kind == CEOV_SEND)
		call.source = memory;
	else
		call.target = memory;
	return call;
}

/* --- random batches --------------------------------------------------------------------------- */

struct batch {
	struct ceov_call calls[2 * MANY];
	uint64_t         seeds[2 * MANY];
	uint32_t         n;
};

/* All ranks draw the same messages; each takes those that concern it. A pair and direction has them
 * in the order of their drawing. */
static void draw(uint64_t *random, uint32_t rank, uint32_t n_ranks, struct batch *ret_batch)
{
	uint32_t n = (uint32_t)testing_below(random, MANY), i, from, to;
	uint64_t bytes, seed;
	char *memory;

	ret_batch->n = 0;
	for (i = 0; i < n; i++) {
		from = (uint32_t)testing_below(random, n_ranks);
		to = (uint32_t)testing_below(random, n_ranks);
		bytes = testing_below(random, 4) ? testing_below(random, 300) :
			testing_below(random, LARGE);
		seed = testing_random(random);
		if (from == rank) {
			memory = malloc(bytes + 1);
			testing_fill(memory, bytes, seed);
			ret_batch->calls[ret_batch->n++] =
				message_of(CEOV_SEND, to, memory, bytes);
		}
		if (to == rank) {
			ret_batch->seeds[ret_batch->n] = seed;
			ret_batch->calls[ret_batch->n++] =
				message_of(CEOV_RECEIVE, from, malloc(bytes + 1), bytes);
		}
	}
}

static void check(const struct batch *batch)
{
	const struct ceov_call *call;
	uint32_t i;

	for (i = 0; i < batch->n; i++) {
		call = &batch->calls[i];
		if (call->kind == CEOV_RECEIVE)
			ck_assert_uint_eq(testing_check(call->target, call->count, batch->seeds[i]),
					  call->count);
		free(call->target);
		free((void *)(uintptr_t)call->source);
	}
}

/* Between batches comes a call now and then, which uses other memory. */
static void exchange(const struct channel_part *part)
{
	struct ceov_call barrier = { .struct_bytes = sizeof(barrier), .kind = CEOV_BARRIER };
	uint64_t random = testing_seed();
	struct batch batch;
	uint32_t i;

	for (i = 0; i < testing_share(BATCHES); i++) {
		draw(&random, part->rank, part->rig->n_ranks, &batch);
		if (batch.n)
			ck_assert_int_eq(ceov_channel_run(part->channel, batch.calls, batch.n), 0);
		check(&batch);
		if (i % 7 == 0)
			ck_assert_int_eq(ceov_channel_run(part->channel, &barrier, 1), 0);
	}
}

/* A rank sends to itself, too. */
START_TEST(test_random_batches)
{
	struct channel_rig rig;

	channel_rig_open(&rig, (uint32_t)_i, 0, NULL);
	channel_rig_each(&rig, exchange, NULL);
	channel_rig_close(&rig);
}
END_TEST

/* --- order, and threads ----------------------------------------------------------------------- */

/* What a channel holds goes without the receiver, who takes it later. */
START_TEST(test_small_messages_wait_for_nobody)
{
	char sent[2][100], got[2][100];
	struct ceov_call call;
	struct channel_rig rig;
	uint32_t i;

	channel_rig_open(&rig, 2, SECOND, NULL);
	for (i = 0; i < 2; i++) {
		testing_fill(sent[i], sizeof(sent[i]), i);
		call = message_of(CEOV_SEND, 1, sent[i], sizeof(sent[i]));
		ck_assert_int_eq(ceov_channel_run(rig.channels[0], &call, 1), 0);
	}
	for (i = 0; i < 2; i++) {
		call = message_of(CEOV_RECEIVE, 0, got[i], sizeof(got[i]));
		ck_assert_int_eq(ceov_channel_run(rig.channels[1], &call, 1), 0);
		ck_assert_uint_eq(testing_check(got[i], sizeof(got[i]), i), sizeof(got[i]));
	}
	channel_rig_works(&rig);
	channel_rig_close(&rig);
}
END_TEST

struct waiting {
	ceov_channel *channel;
	char          got[64];
};

static void *receive(void *arg)
{
	struct waiting *waiting = arg;
	struct ceov_call call = message_of(CEOV_RECEIVE, 1, waiting->got, sizeof(waiting->got));

	ck_assert_int_eq(ceov_channel_run(waiting->channel, &call, 1), 0);
	return NULL;
}

/* A thread that waits for a message holds up neither calls nor messages of other threads. */
START_TEST(test_a_thread_that_receives_holds_up_nobody)
{
	struct waiting waiting;
	struct channel_rig rig;
	struct ceov_call call;
	char bytes[64], got[64];
	pthread_t thread;

	channel_rig_open(&rig, 2, 0, NULL);
	waiting.channel = rig.channels[0];
	ck_assert_int_eq(pthread_create(&thread, NULL, receive, &waiting), 0);
	usleep(20000);
	channel_rig_works(&rig);
	testing_fill(bytes, sizeof(bytes), 5);
	call = message_of(CEOV_SEND, 1, bytes, sizeof(bytes));
	ck_assert_int_eq(ceov_channel_run(rig.channels[0], &call, 1), 0);
	call = message_of(CEOV_RECEIVE, 0, got, sizeof(got));
	ck_assert_int_eq(ceov_channel_run(rig.channels[1], &call, 1), 0);
	call = message_of(CEOV_SEND, 0, got, sizeof(got));
	ck_assert_int_eq(ceov_channel_run(rig.channels[1], &call, 1), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_eq(testing_check(waiting.got, sizeof(waiting.got), 5), sizeof(got));
	channel_rig_close(&rig);
}
END_TEST

/* --- failures --------------------------------------------------------------------------------- */

static void fails(ceov_channel *channel, const struct ceov_call *call, int error)
{
	ck_assert_int_eq(ceov_channel_run(channel, call, 1), error);
	ck_assert_int_eq(ceov_channel_status(channel), error);
}

START_TEST(test_a_receive_of_another_size_names_both)
{
	char bytes[100] = "";
	struct ceov_failure failure;
	struct channel_rig rig;
	struct ceov_call call;

	channel_rig_open(&rig, 2, SECOND, NULL);
	call = message_of(CEOV_SEND, 1, bytes, 100);
	ck_assert_int_eq(ceov_channel_run(rig.channels[0], &call, 1), 0);
	call = message_of(CEOV_RECEIVE, 0, bytes, 24);
	call.dtype = CEOV_FP32;
	fails(rig.channels[1], &call, CEOV_ERR_INVALID);
	failure = testing_failure(rig.context);
	ck_assert_msg(strstr(failure.text, "100 bytes by a send of int8") &&
		      strstr(failure.text, "96 bytes of a send of fp32"), "%s", failure.text);
	ck_assert_uint_eq(failure.rank, 0);
	call = message_of(CEOV_RECEIVE, 1, bytes, 1);
	fails(rig.channels[0], &call, CEOV_ERR_INVALID);
	channel_rig_close(&rig);
}
END_TEST

START_TEST(test_a_receive_without_a_send_ends_at_its_deadline)
{
	char bytes[8];
	struct ceov_call call = message_of(CEOV_RECEIVE, 1, bytes, 8);
	struct ceov_failure failure;
	struct channel_rig rig;

	channel_rig_open(&rig, 2, SECOND / 10, NULL);
	fails(rig.channels[0], &call, CEOV_ERR_TIMEOUT);
	failure = testing_failure(rig.context);
	ck_assert_msg(strstr(failure.text, "receive from rank 1, 0 of 8 bytes: rank 1 has not gone "
			     "on within 100 ms"), "%s", failure.text);
	ck_assert_uint_eq(failure.rank, 1);
	channel_rig_close(&rig);
}
END_TEST

static void *abort_soon(void *channel)
{
	usleep(20000);
	ck_assert_int_eq(ceov_channel_abort(channel), 0);
	return NULL;
}

START_TEST(test_an_abort_ends_a_receive)
{
	char bytes[8];
	struct ceov_call call = message_of(CEOV_RECEIVE, 1, bytes, 8);
	struct channel_rig rig;
	pthread_t thread;

	channel_rig_open(&rig, 2, 0, NULL);
	/* _i: who aborts */
	ck_assert_int_eq(pthread_create(&thread, NULL, abort_soon, rig.channels[_i]), 0);
	fails(rig.channels[0], &call, CEOV_ERR_ABORTED);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	channel_rig_close(&rig);
}
END_TEST

START_TEST(test_what_is_refused_changes_nothing)
{
	char bytes[8] = "";
	struct ceov_call calls[2];
	struct channel_rig rig;

	channel_rig_open(&rig, 2, SECOND, NULL);
	calls[0] = message_of(CEOV_SEND, 1, bytes, 8);
	calls[1] = (struct ceov_call){ .struct_bytes = sizeof(calls[1]), .kind = CEOV_BARRIER };
	ck_assert_int_eq(ceov_channel_run(rig.channels[0], calls, 2), CEOV_ERR_INVALID);
	calls[1] = message_of(CEOV_RECEIVE, 2, bytes, 8);
	ck_assert_int_eq(ceov_channel_run(rig.channels[0], calls, 2), CEOV_ERR_INVALID);
	calls[1] = message_of(CEOV_RECEIVE, 1, bytes, 8);
	calls[1].struct_bytes--;
	ck_assert_int_eq(ceov_channel_run(rig.channels[0], calls, 2), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_channel_run(rig.channels[0], calls, 0), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_channel_run(rig.channels[0], calls, CEOV_CHANNEL_CALLS_MAX + 1),
			 CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_channel_status(rig.channels[0]), 0);
	calls[0] = message_of(CEOV_RECEIVE, 0, bytes, 8);
	ck_assert_int_eq(ceov_channel_run(rig.channels[1], calls, 1), CEOV_ERR_TIMEOUT);
	channel_rig_close(&rig);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("channel_messages");
	TCase *all = tcase_create("channel_messages");

	tcase_set_timeout(all, 60);
	tcase_add_loop_test(all, test_random_batches, 1, 5);
	tcase_add_test(all, test_small_messages_wait_for_nobody);
	tcase_add_test(all, test_a_thread_that_receives_holds_up_nobody);
	tcase_add_test(all, test_a_receive_of_another_size_names_both);
	tcase_add_test(all, test_a_receive_without_a_send_ends_at_its_deadline);
	tcase_add_loop_test(all, test_an_abort_ends_a_receive, 0, 2);
	tcase_add_test(all, test_what_is_refused_changes_nothing);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
