/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Cases of connections that are closed and lost, within one process. */

#include "transport_cases.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "transport_rig.h"

#define MIB   (UINT64_C(1) << 20)
#define BYTES (32 * MIB)
#define PIECE (4 * MIB)
#define N     8u                        /* pieces in BYTES */

static struct net_end *a, *b;
static struct net_link *ab, *ba;
static uint32_t n_accepted;

static void open_two(void)
{
	transport_kit.random = testing_seed();
	a = net_open(transport_kit.ops, transport_kit.kinds, BYTES);
	b = net_open(transport_kit.ops, transport_kit.kinds, BYTES);
	net_join(a, b, &ab, &ba);
	a->n_heard = b->n_heard = 0;
}

static void close_two(void)
{
	net_close(a);
	net_close(b);
}

static void turn_for(uint64_t ns)
{
	uint64_t until = cei_now_ns() + ns;

	while (cei_now_ns() < until)
		net_turn();
}

static void send_all(void)
{
	uint32_t i;

	for (i = 0; i < N; i++)
		ck_assert_int_eq(net_send(ab, i * PIECE, PIECE, i, i), 0);
}

/* Offers may still come when their connection has closed here. */
static void take_by_number(struct net_end *end, struct net_offer *offer)
{
	uint64_t number = offer->head.number;

	if (!ba->peer) {
		net_refuse(end, offer);
		return;
	}
	n_accepted += !net_accept(end, offer, ba, number * PIECE, number);
}

/* Begins N sends and as many receives, and stops after so many turns. */
static void begin_traffic(uint32_t n_turns)
{
	uint32_t i;

	b->on_offer = take_by_number;
	memset(b->bytes, 0xee, BYTES);
	send_all();
	for (i = 0; i < n_turns; i++)
		net_turn();
}

/* Asserts that what landed well is whole. */
static void check_landed(void)
{
	uint32_t i;

	for (i = 0; i < N; i++)
		if (b->landed[i] && !b->landed_error[i])
			net_check(b, i * PIECE, PIECE, i);
}

/* --- closing ----------------------------------------------------------------------------- */

START_TEST(test_an_idle_link_closes)
{
	net_unlink(ab);
	ck_assert_uint_eq(ab->n_failed, 0);
	net_unlink(ba);
	ck_assert_ptr_null(ab->peer);
}
END_TEST

/* In rounds, so that the close hits every stage of a transfer. */
START_TEST(test_the_receiver_closes_while_bytes_come)
{
	begin_traffic(2 * (uint32_t)_i);
	net_unlink(ba);
	ck_assert_uint_eq(b->n_landed, n_accepted);
	check_landed();
	memset(b->bytes, 0x77, BYTES);  /* the memory is used for something else now */
	turn_for(20 * TESTING_MS);
	net_check_all(b, 0, BYTES, 0x77);
	net_unlink(ab);
	ck_assert_uint_eq(a->n_sent, N);        /* each has ended; the rig sees to "once" */
	net_check_all(b, 0, BYTES, 0x77);
}
END_TEST

START_TEST(test_the_sender_closes_while_bytes_go)
{
	begin_traffic(2 * (uint32_t)_i);
	net_unlink(ab);
	ck_assert_uint_eq(a->n_sent, N);
	memset(a->bytes, 0x55, BYTES);  /* what lands well is from before */
	turn_for(20 * TESTING_MS);
	check_landed();
	net_unlink(ba);
	check_landed();
	ck_assert_uint_eq(a->n_sent, N);
}
END_TEST

START_TEST(test_messages_under_way_do_not_hold_a_close_up)
{
	uint8_t message[CEI_TRANSPORT_MESSAGE_MAX] = { 0 };
	int r = 0;

	while (!r)
		r = a->transport.ops->say(ab->peer, message, sizeof(message));
	ck_assert_int_eq(r, CEOV_FULL);
	net_unlink(ab);
	net_unlink(ba);
}
END_TEST

START_TEST(test_nothing_begins_on_a_closed_link)
{
	a->transport.ops->peer_close(ab->peer);
	ck_assert_int_eq(a->transport.ops->say(ab->peer, "x", 1), CEOV_ERR_PEER_LOST);
	ck_assert_int_eq(net_send(ab, 0, 64, 1, 1), CEOV_ERR_PEER_LOST);
	while (!ab->n_closed)
		net_turn();
}
END_TEST

START_TEST(test_offers_of_a_closed_link_are_void)
{
	uint32_t i;

	send_all();
	while (b->n_offers < N)
		net_turn();
	b->transport.ops->peer_close(ba->peer);
	ck_assert_int_eq(net_accept(b, &b->offers[0], ba, 0, 0), CEOV_ERR_PEER_LOST);
	net_refuse(b, &b->offers[1]);
	while (!ba->n_closed)
		net_turn();
	for (i = 2; i < N; i++)
		net_refuse(b, &b->offers[i]);
	ck_assert_uint_eq(b->n_landed, 0);
	net_unlink(ab);
	ck_assert_uint_eq(a->n_sent, N);
}
END_TEST

/* The other side's sends do not end by themselves then; closing its side ends them. */
START_TEST(test_offers_of_a_link_that_the_other_side_closed)
{
	uint32_t i;

	send_all();
	while (b->n_offers < N)
		net_turn();
	net_unlink(ab);
	ck_assert_uint_eq(a->n_sent, N);
	turn_for(5 * TESTING_MS);
	memset(b->bytes, 0xee, BYTES);
	for (i = 0; i < N / 2; i++)
		net_refuse(b, &b->offers[i]);
	for (; i < N; i++)
		take_by_number(b, &b->offers[i]);
	turn_for(5 * TESTING_MS);
	net_unlink(ba);
	ck_assert_uint_eq(b->n_landed, n_accepted);
	ck_assert_uint_eq(b->n_landed_well, 0);
	net_check_all(b, 0, BYTES, 0xee);
}
END_TEST

static void close_on_message(struct net_end *end, struct net_heard *heard)
{
	if (heard->from && heard->bytes[0] == 'c')
		end->transport.ops->peer_close(heard->from->peer);
}

START_TEST(test_a_handler_may_close_the_link_it_is_called_for)
{
	b->on_heard = close_on_message;
	net_say(ab, "c", 1);
	while (!ba->n_closed)
		net_turn();
	net_unlink(ab);
}
END_TEST

/* --- failure ----------------------------------------------------------------------------- */

/* A transport has closed, and nobody knows: opening it works, and fails later. */
START_TEST(test_who_is_not_there_fails_later)
{
	struct net_end *gone = net_open(transport_kit.ops, transport_kit.kinds, MIB);
	uint8_t address[CEI_TRANSPORT_ADDRESS_MAX];
	uint32_t n_address = gone->n_address;
	struct net_link *link;

	memcpy(address, gone->address, n_address);
	net_close(gone);
	link = net_link(a, address, n_address);
	(void)a->transport.ops->say(link->peer, "hello", 5);
	(void)net_send(link, 0, MIB, 1, 1);
	while (!link->n_failed)
		net_turn();
	ck_assert_int_eq(a->transport.ops->say(link->peer, "hello", 5), CEOV_ERR_PEER_LOST);
	ck_assert_int_eq(net_send(link, 0, MIB, 2, 2), CEOV_ERR_PEER_LOST);
	net_unlink(link);
	ck_assert_uint_eq(a->n_sent, a->sent[1]);
	net_say(ab, "still", 5);
	while (!b->n_heard)
		net_turn();
}
END_TEST

START_TEST(test_bytes_that_are_no_address_are_refused)
{
	uint8_t address[CEI_TRANSPORT_ADDRESS_MAX + 1] = { 0 };
	struct cei_transport_peer *peer = NULL;
	uint32_t i, n;

	for (i = 0; i < 500; i++) {
		n = (uint32_t)testing_below(&transport_kit.random, sizeof(address) + 1);
		testing_fill(address, sizeof(address), testing_random(&transport_kit.random));
		ck_assert_int_eq(a->transport.ops->peer_open(&a->transport, address, n, NULL,
							     &peer), CEOV_ERR_INVALID);
	}
	for (i = 0; i < b->n_address; i++) {    /* one bit is wrong, or the end is missing */
		memcpy(address, b->address, b->n_address);
		address[i] ^= 1u << testing_below(&transport_kit.random, 8);
		ck_assert_int_eq(a->transport.ops->peer_open(&a->transport, address,
				 b->n_address, NULL, &peer), CEOV_ERR_INVALID);
		ck_assert_int_eq(a->transport.ops->peer_open(&a->transport, b->address, i,
				 NULL, &peer), CEOV_ERR_INVALID);
	}
	ck_assert_ptr_null(peer);
}
END_TEST

/* The other side opened first, and has sent already. */
START_TEST(test_what_comes_before_the_link_is_opened_is_kept)
{
	struct net_end *c = net_open(transport_kit.ops, transport_kit.kinds, MIB);
	struct net_end *d = net_open(transport_kit.ops, transport_kit.kinds, MIB);
	struct net_link *cd = net_link(c, d->address, d->n_address), *dc;

	net_say(cd, "early", 5);
	ck_assert_int_eq(net_send(cd, 0, MIB, 9, 1), 0);
	turn_for(10 * TESTING_MS);
	dc = net_link(d, c->address, c->n_address);
	while (!d->n_heard || !d->n_offers)
		net_turn();
	ck_assert_int_eq(net_accept(d, &d->offers[0], dc, 0, 1), 0);
	while (!d->n_landed || !c->n_sent)
		net_turn();
	ck_assert_int_eq(d->landed_error[1], 0);
	net_check(d, 0, MIB, 9);
	net_close(c);
	net_close(d);
}
END_TEST

void transport_add_end_cases(Suite *suite)
{
	TCase *cases = tcase_create("connections that end");

	tcase_set_timeout(cases, 30);
	tcase_add_checked_fixture(cases, open_two, close_two);
	tcase_add_test(cases, test_an_idle_link_closes);
	tcase_add_loop_test(cases, test_the_receiver_closes_while_bytes_come, 0, 20);
	tcase_add_loop_test(cases, test_the_sender_closes_while_bytes_go, 0, 20);
	tcase_add_test(cases, test_messages_under_way_do_not_hold_a_close_up);
	tcase_add_test(cases, test_nothing_begins_on_a_closed_link);
	tcase_add_test(cases, test_offers_of_a_closed_link_are_void);
	tcase_add_test(cases, test_offers_of_a_link_that_the_other_side_closed);
	tcase_add_loop_test(cases, test_a_handler_may_close_the_link_it_is_called_for, 0, 20);
	tcase_add_test(cases, test_who_is_not_there_fails_later);
	tcase_add_test(cases, test_bytes_that_are_no_address_are_refused);
	tcase_add_test(cases, test_what_comes_before_the_link_is_opened_is_kept);
	suite_add_tcase(suite, cases);
}
