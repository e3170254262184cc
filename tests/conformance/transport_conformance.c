/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Cases of messages, offers and bounds; transport_ends.c has those of connections that end. */

#include "transport_conformance.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transport_cases.h"
#include "transport_rig.h"

#define SKIPPED 77
#define MIB     (UINT64_C(1) << 20)
#define BYTES   (8 * MIB)

struct transport_kit transport_kit;

static struct net_end *a, *b;
static struct net_link *ab, *ba;

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

/* --- the table --------------------------------------------------------------------------- */

START_TEST(test_table_is_complete)
{
	const struct cei_transport_ops *ops = transport_kit.ops;

	ck_assert(ops->name && ops->open && ops->close && ops->describe && ops->address);
	ck_assert(ops->memory_open && ops->memory_close && ops->peer_open && ops->peer_close);
	ck_assert(ops->say && ops->send && ops->accept && ops->refuse);
	ck_assert(ops->progress && ops->arm && ops->fd);
}
END_TEST

START_TEST(test_it_describes_itself_in_a_line)
{
	const char *text = a->transport.ops->describe(&a->transport);

	ck_assert(text && *text && !strchr(text, '\n'));
	ck_assert_uint_ge(a->n_address, 1);
	ck_assert_uint_le(a->n_address, CEI_TRANSPORT_ADDRESS_MAX);
}
END_TEST

/* More bytes take longer, and 64 MiB between 64 us (1 TB/s) and 64 s. */
START_TEST(test_it_tells_how_long_bytes_should_take)
{
	uint64_t few_ns = 0, many_ns = 0;

	net_say(ab, "?", 1);
	while (!b->n_heard)
		net_turn();
	ck_assert(!a->transport.ops->expected(ab->peer, 4096, &few_ns) && few_ns);
	ck_assert(!a->transport.ops->expected(ab->peer, UINT64_C(64) << 20, &many_ns));
	ck_assert(many_ns > few_ns && many_ns >= 64000 && many_ns <= UINT64_C(64000000000));
}
END_TEST

/* --- messages ---------------------------------------------------------------------------- */

static void check_heard(struct net_end *end, uint32_t i, struct net_link *from, uint32_t n_bytes,
			uint64_t seed)
{
	struct net_heard *heard = &end->heard[i % NET_HEARD];

	ck_assert_uint_eq(heard->n_bytes, n_bytes);
	ck_assert(heard->from == NULL || heard->from == from);
	ck_assert_uint_eq(testing_check(heard->bytes, n_bytes, seed), n_bytes);
}

START_TEST(test_messages_of_all_sizes_arrive_whole)
{
	uint8_t message[CEI_TRANSPORT_MESSAGE_MAX];
	uint32_t n;

	for (n = 1; n <= sizeof(message); n++) {
		testing_fill(message, n, n);
		net_say(n % 2 ? ab : ba, message, n);
		memset(message, 0xee, n);       /* the transport must have copied it */
		while (a->n_heard + b->n_heard < n)
			net_turn();
		if (n % 2)
			check_heard(b, b->n_heard - 1, ba, n, n);
		else
			check_heard(a, a->n_heard - 1, ab, n, n);
	}
}
END_TEST

START_TEST(test_messages_of_wrong_sizes_are_refused)
{
	uint8_t message[CEI_TRANSPORT_MESSAGE_MAX + 1];

	memset(message, 1, sizeof(message));
	ck_assert_int_eq(a->transport.ops->say(ab->peer, message, 0), CEOV_ERR_INVALID);
	ck_assert_int_eq(a->transport.ops->say(ab->peer, message, sizeof(message)),
			 CEOV_ERR_INVALID);
	net_say(ab, message, 7);
	while (!b->n_heard)
		net_turn();
	ck_assert_uint_eq(b->heard[0].n_bytes, 7);
}
END_TEST

static void answer(struct net_end *end, struct net_heard *heard)
{
	(void)end;
	if (heard->from && heard->bytes[0] == '?')
		(void)heard->from->end->transport.ops->say(heard->from->peer, "!", 1);
}

START_TEST(test_a_message_may_be_answered_where_it_is_heard)
{
	uint32_t i;

	b->on_heard = answer;
	for (i = 1; i <= 500; i++) {
		net_say(ab, "?", 1);
		while (a->n_heard < i)
			net_turn();
		ck_assert_uint_eq(a->heard[(i - 1) % NET_HEARD].bytes[0], '!');
	}
}
END_TEST

#define FLOOD 100000u

static uint8_t flood_seen[FLOOD];

static void note_number(struct net_end *end, struct net_heard *heard)
{
	uint32_t number;

	(void)end;
	ck_assert_uint_eq(heard->n_bytes, CEI_TRANSPORT_MESSAGE_MAX);
	memcpy(&number, heard->bytes, sizeof(number));
	ck_assert_uint_lt(number, FLOOD);
	ck_assert_uint_eq(flood_seen[number]++, 0);
}

/* The receiver makes no progress until the sender is told that too much is under way. */
START_TEST(test_too_many_messages_are_put_off_and_none_is_lost)
{
	uint8_t message[CEI_TRANSPORT_MESSAGE_MAX] = { 0 };
	uint32_t n = 0;
	int r = 0;

	b->on_heard = note_number;
	while (n < FLOOD && !r) {
		memcpy(message, &n, sizeof(n));
		r = a->transport.ops->say(ab->peer, message, sizeof(message));
		n += !r;
	}
	ck_assert_int_eq(r, CEOV_FULL);
	while (b->n_heard < n)
		net_turn();
	memcpy(message, &n, sizeof(n));
	net_say(ab, message, sizeof(message));
	while (b->n_heard < n + 1)
		net_turn();
}
END_TEST

/* --- offers ------------------------------------------------------------------------------ */

static const uint64_t sizes[] = { 1, 2, 7, 8, 63, 64, 255, 4095, 4096, 8191, 8192, 8193, 65535,
				  65536, 262143, 262144, 262145, 1048575, 1048576, 3145729 };
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

START_TEST(test_bytes_of_many_sizes_land_whole)
{
	uint64_t from, to, n;
	uint32_t i;

	for (i = 0; i < N_SIZES; i++) {
		n = sizes[i];
		from = testing_below(&transport_kit.random, BYTES - n);
		to = 1 + testing_below(&transport_kit.random, BYTES - n - 1);
		memset(b->bytes, 0xee, BYTES);
		ck_assert_int_eq(net_send(ab, from, n, 1000 + i, i), 0);
		while (!b->n_offers || !b->offers[0].offer)
			net_turn();
		ck_assert_uint_eq(b->offers[0].n_bytes, n);
		ck_assert_uint_eq(b->offers[0].head.seed, 1000 + i);
		ck_assert_uint_eq(b->offers[0].head.number, i);
		ck_assert_int_eq(net_accept(b, &b->offers[0], ba, to, i), 0);
		while (b->n_landed <= i || a->n_sent <= i)
			net_turn();
		ck_assert_int_eq(b->landed_error[i], 0);
		net_check(b, to, n, 1000 + i);
		net_check_all(b, 0, to, 0xee);
		net_check_all(b, to + n, BYTES - to - n, 0xee);
	}
	ck_assert_uint_eq(a->n_sent_well, N_SIZES);
}
END_TEST

START_TEST(test_64_mib_land_in_one_piece)
{
	struct net_end *c = net_open(transport_kit.ops, transport_kit.kinds, 65 * MIB);
	struct net_end *d = net_open(transport_kit.ops, transport_kit.kinds, 65 * MIB);
	struct net_link *cd, *dc;

	net_join(c, d, &cd, &dc);
	ck_assert_int_eq(net_send(cd, 5, 64 * MIB, 77, 0), 0);
	while (!d->n_offers)
		net_turn();
	ck_assert_int_eq(net_accept(d, &d->offers[0], dc, 3, 0), 0);
	while (!d->n_landed || !c->n_sent)
		net_turn();
	ck_assert_int_eq(d->landed_error[0], 0);
	net_check(d, 3, 64 * MIB, 77);
	net_close(c);
	net_close(d);
}
END_TEST

START_TEST(test_offers_are_accepted_later_and_in_any_order)
{
	const uint32_t n = 40;
	const uint64_t size = 100000;
	uint32_t i, left, pick;

	for (i = 0; i < n; i++)
		ck_assert_int_eq(net_send(ab, i * size, size, i, i), 0);
	while (b->n_offers < n)
		net_turn();
	for (i = 0; i < 200; i++)
		net_turn();
	ck_assert_uint_eq(a->n_sent, 0);        /* nothing goes that was not accepted */
	for (left = n; left; left--) {
		pick = (uint32_t)testing_below(&transport_kit.random, left);
		for (i = 0; !b->offers[i].offer || pick; i++)
			pick -= b->offers[i].offer != NULL;
		ck_assert_int_eq(net_accept(b, &b->offers[i], NULL,
					    b->offers[i].head.number * size,
					    b->offers[i].head.number), 0);
	}
	while (b->n_landed < n || a->n_sent < n)
		net_turn();
	ck_assert_uint_eq(b->n_landed_well, n);
	ck_assert_uint_eq(a->n_sent_well, n);
	for (i = 0; i < n; i++)
		net_check(b, i * size, size, i);
}
END_TEST

START_TEST(test_a_refused_offer_moves_nothing_and_ends)
{
	uint32_t i;

	memset(b->bytes, 0xee, BYTES);
	for (i = 0; i < 30; i++) {
		ck_assert_int_eq(net_send(ab, 0, MIB, i, i), 0);
		while (!b->n_offers || !b->offers[0].offer)
			net_turn();
		net_refuse(b, &b->offers[0]);
		while (a->n_sent <= i)
			net_turn();
	}
	net_check_all(b, 0, BYTES, 0xee);
	ck_assert_uint_eq(b->n_landed, 0);
	ck_assert_uint_eq(ab->n_failed + ba->n_failed, 0);
}
END_TEST

static void take_even_ones(struct net_end *end, struct net_offer *offer)
{
	uint64_t number = offer->head.number;

	if (number % 2)
		net_refuse(end, offer);
	else
		ck_assert_int_eq(net_accept(end, offer, ba, number * 4096, number), 0);
}

START_TEST(test_offers_are_accepted_or_refused_where_they_arrive)
{
	uint32_t i;

	memset(b->bytes, 0xee, BYTES);
	b->on_offer = take_even_ones;
	for (i = 0; i < 60; i++)
		ck_assert_int_eq(net_send(ab, i * 4096, 4096, i, i), 0);
	while (a->n_sent < 60 || b->n_landed < 30)
		net_turn();
	ck_assert_uint_eq(b->n_landed_well, 30);
	for (i = 0; i < 60; i++)
		if (i % 2)
			net_check_all(b, i * 4096, 4096, 0xee);
		else
			net_check(b, i * 4096, 4096, i);
}
END_TEST

START_TEST(test_wrong_sends_are_refused)
{
	uint8_t head[CEI_TRANSPORT_HEAD_MAX + 1] = { 0 };
	struct cei_transport_send send = { head, 0, net_span(a, 0, 64), 0 };

	ck_assert_int_eq(a->transport.ops->send(ab->peer, &send), CEOV_ERR_INVALID);
	send.n_head = sizeof(head);
	ck_assert_int_eq(a->transport.ops->send(ab->peer, &send), CEOV_ERR_INVALID);
	send.n_head = 8;
	send.span = net_span(a, 0, 0);
	ck_assert_int_eq(a->transport.ops->send(ab->peer, &send), CEOV_ERR_INVALID);
	send.span = net_span(a, 1, BYTES);
	ck_assert_int_eq(a->transport.ops->send(ab->peer, &send), CEOV_ERR_INVALID);
	send.span = net_span(a, BYTES, 1);
	ck_assert_int_eq(a->transport.ops->send(ab->peer, &send), CEOV_ERR_INVALID);
	send.span = net_span(a, (uint64_t)-8, 16);
	ck_assert_int_eq(a->transport.ops->send(ab->peer, &send), CEOV_ERR_INVALID);
	ck_assert_uint_eq(a->n_sent, 0);
}
END_TEST

/* The offer is refused then: its sender hears that it has ended. */
START_TEST(test_wrong_accepts_are_refused_and_end_the_send)
{
	const uint64_t offsets[] = { BYTES - 4095, BYTES, (uint64_t)-4096 };
	struct cei_transport_offer *open;
	struct cei_transport_span span;
	uint32_t i;

	for (i = 0; i < 5; i++) {
		ck_assert_int_eq(net_send(ab, 0, 4096, i, i), 0);
		while (!b->n_offers || !b->offers[0].offer)
			net_turn();
		open = b->offers[0].offer;
		b->offers[0].offer = NULL;
		span = i < 3 ? net_span(b, offsets[i], 4096) : net_span(b, 0, 4092 + 8 * (i - 3));
		ck_assert_int_eq(b->transport.ops->accept(ba->peer, open, &span, i),
				 CEOV_ERR_INVALID);
		while (a->n_sent <= i)
			net_turn();
	}
	ck_assert_uint_eq(b->n_landed, 0);
}
END_TEST

START_TEST(test_too_many_sends_are_put_off_and_none_is_lost)
{
	uint32_t n = 0, n_accepted = 0, i;
	int r = 0;

	while (n < NET_OFFERS && !r) {
		r = net_send(ab, n * 4096, 4096, n, n);
		n += !r;
	}
	ck_assert_int_eq(r, CEOV_FULL);
	while (n_accepted < n) {
		net_turn();
		for (i = 0; i < b->n_offers; i++)
			if (b->offers[i].offer) {
				n_accepted++;
				ck_assert_int_eq(net_accept(b, &b->offers[i], ba,
					b->offers[i].head.number * 4096,
					b->offers[i].head.number), 0);
			}
	}
	while (b->n_landed < n || a->n_sent < n)
		net_turn();
	ck_assert_uint_eq(b->n_landed_well, n);
	for (i = 0; i < n; i++)
		net_check(b, i * 4096, 4096, i);
	ck_assert_int_eq(net_send(ab, 0, 4096, n, n), 0);
}
END_TEST

/* --- many at once ------------------------------------------------------------------------ */

#define SLOT  (64 * 1024u)
#define SLOTS 32u
#define CHECKED 2                       /* in `landed`: the bytes were compared */

/* What one direction of the mixed traffic has sent and received. */
struct flow {
	struct net_link *link;
	uint32_t         n_begun;
	uint32_t         n_taken;
	uint64_t         n_bytes[NET_TAGS];
};

/* Whether the slot of that tag is used no more at either side: ends come in any order. */
static int is_free(const struct net_end *from, const struct net_end *to, uint32_t tag)
{
	return tag < SLOTS || (from->sent[tag - SLOTS] && to->landed[tag - SLOTS] == CHECKED);
}

static void mix_step(struct flow *out, struct net_end *from, struct net_end *to,
		     struct net_link *back)
{
	uint64_t n = 1 + testing_below(&transport_kit.random, SLOT);
	uint32_t i, tag = out->n_begun;
	struct net_offer *offer;

	if (tag < 1000 && is_free(from, to, tag) &&
	    !net_send(out->link, tag % SLOTS * SLOT, n, tag, tag)) {
		out->n_bytes[tag] = n;
		out->n_begun++;
	}
	for (i = 0; i < to->n_offers; i++) {
		offer = &to->offers[i];
		if (!offer->offer || testing_below(&transport_kit.random, 3))
			continue;
		ck_assert_uint_eq(offer->n_bytes, out->n_bytes[offer->head.number]);
		ck_assert_int_eq(net_accept(to, offer, back,
					    BYTES / 2 + offer->head.number % SLOTS * SLOT,
					    offer->head.number), 0);
		out->n_taken++;
	}
}

/* Checks a receive when it has landed, and before its slot is used again. */
static void mix_check(struct flow *in, struct net_end *end)
{
	uint32_t tag;

	for (tag = 0; tag < in->n_begun; tag++) {
		if (end->landed[tag] != 1)
			continue;
		ck_assert_int_eq(end->landed_error[tag], 0);
		net_check(end, BYTES / 2 + tag % SLOTS * SLOT, in->n_bytes[tag], tag);
		end->landed[tag] = CHECKED;
	}
}

START_TEST(test_mixed_traffic_both_ways_arrives)
{
	struct flow *there = calloc(1, sizeof(*there)), *here = calloc(1, sizeof(*here));
	uint32_t n_said = 0;

	ck_assert(there && here);
	there->link = ab;
	here->link = ba;
	while (a->n_landed < 1000 || b->n_landed < 1000 || a->n_sent < 1000 || b->n_sent < 1000) {
		mix_step(there, a, b, ba);
		mix_step(here, b, a, ab);
		if (!a->transport.ops->say(ab->peer, &n_said, sizeof(n_said)))
			n_said++;
		net_turn();
		mix_check(there, b);
		mix_check(here, a);
	}
	while (b->n_heard < n_said)
		net_turn();
	ck_assert_uint_eq(b->n_heard, n_said);
	free(there);
	free(here);
}
END_TEST

#define MANY 12u

static void take_by_sender(struct net_end *end, struct net_offer *offer)
{
	uint64_t from = offer->head.number % MANY;

	ck_assert_int_eq(net_accept(end, offer, NULL, from * 4096, from), 0);
}

START_TEST(test_many_peers_do_not_mix)
{
	struct net_end *ends[MANY];
	struct net_link *links[MANY][MANY] = { { NULL } };
	uint32_t i, k;

	for (i = 0; i < MANY; i++)
		ends[i] = net_open(transport_kit.ops, transport_kit.kinds, 2 * MANY * 4096);
	for (i = 0; i < MANY; i++)
		for (k = 0; k < i; k++)
			net_join(ends[i], ends[k], &links[i][k], &links[k][i]);
	for (i = 0; i < MANY; i++)
		ends[i]->on_offer = take_by_sender;
	for (i = 0; i < MANY; i++)
		for (k = 0; k < MANY; k++)
			if (i != k)
				ck_assert_int_eq(net_send(links[i][k], (MANY + k) * 4096, 4096,
							  i * MANY + k, i + MANY * k), 0);
	for (i = 0; i < MANY; i++) {
		while (ends[i]->n_landed < MANY - 1)
			net_turn();
		for (k = 0; k < MANY; k++)
			if (i != k)
				net_check(ends[i], k * 4096, 4096, k * MANY + i);
	}
	for (i = 0; i < MANY; i++)
		net_close(ends[i]);
}
END_TEST

/* --- sleeping ---------------------------------------------------------------------------- */

/* Waits until the end may sleep; b's later messages then wake it. */
static void arm(struct net_end *end)
{
	int r;

	while ((r = end->transport.ops->arm(&end->transport)) == CEOV_PENDING)
		net_turn();
	ck_assert_int_eq(r, 0);
}

START_TEST(test_a_message_wakes_who_sleeps)
{
	struct pollfd waiting = { .fd = a->transport.ops->fd(&a->transport), .events = POLLIN };
	uint32_t i;

	ck_assert_int_ge(waiting.fd, 0);
	for (i = 1; i <= 300; i++) {
		arm(a);
		net_say(ba, &i, sizeof(i));
		while (poll(&waiting, 1, 0) == 0)       /* only b makes progress */
			(void)b->transport.ops->progress(&b->transport);
		while (a->n_heard < i)
			net_turn();
	}
}
END_TEST

/* --- the suite --------------------------------------------------------------------------- */

/* The transport is opened in a child: many libraries do not survive a fork that comes later. */
static int is_absent(const struct cei_transport_ops *ops, const char *kinds)
{
	int status = 0;
	pid_t child = fork();

	if (!child) {
		status = net_try(ops, kinds) == CEOV_NONE ? SKIPPED : 0;
		fflush(stdout);
		_exit(status);
	}
	return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
		WEXITSTATUS(status) == SKIPPED;
}

void transport_add_cases(Suite *suite, const struct cei_transport_ops *ops, const char *kinds)
{
	TCase *cases = tcase_create("messages and offers");

	transport_kit.ops = ops;
	transport_kit.kinds = kinds;
	tcase_set_timeout(cases, 30);
	tcase_add_test(cases, test_table_is_complete);
	tcase_add_checked_fixture(cases, open_two, close_two);
	tcase_add_test(cases, test_it_describes_itself_in_a_line);
	if (transport_kit.ops->expected)
		tcase_add_test(cases, test_it_tells_how_long_bytes_should_take);
	tcase_add_test(cases, test_messages_of_all_sizes_arrive_whole);
	tcase_add_test(cases, test_messages_of_wrong_sizes_are_refused);
	tcase_add_test(cases, test_a_message_may_be_answered_where_it_is_heard);
	tcase_add_test(cases, test_too_many_messages_are_put_off_and_none_is_lost);
	tcase_add_test(cases, test_bytes_of_many_sizes_land_whole);
	tcase_add_test(cases, test_64_mib_land_in_one_piece);
	tcase_add_test(cases, test_offers_are_accepted_later_and_in_any_order);
	tcase_add_test(cases, test_a_refused_offer_moves_nothing_and_ends);
	tcase_add_test(cases, test_offers_are_accepted_or_refused_where_they_arrive);
	tcase_add_test(cases, test_wrong_sends_are_refused);
	tcase_add_test(cases, test_wrong_accepts_are_refused_and_end_the_send);
	tcase_add_test(cases, test_too_many_sends_are_put_off_and_none_is_lost);
	tcase_add_test(cases, test_mixed_traffic_both_ways_arrives);
	tcase_add_test(cases, test_many_peers_do_not_mix);
	tcase_add_test(cases, test_a_message_wakes_who_sleeps);
	suite_add_tcase(suite, cases);
	transport_add_end_cases(suite);
}

int transport_run(const struct cei_transport_ops *ops, const char *kinds, int with_processes)
{
	Suite *suite;

	if (is_absent(ops, kinds))
		return SKIPPED;
	suite = suite_create(ops->name);
	transport_add_cases(suite, ops, kinds);
	if (with_processes)
		transport_add_process_cases(suite, ops, kinds);
	return testing_run(suite);
}
