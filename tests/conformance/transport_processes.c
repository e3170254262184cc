/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Cases where the other transport is in another process, which is stopped or killed, and of
 * processes that sleep. A child is forked before either of them opens a transport. */

#include "transport_conformance.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "conformance/ucx_aborts.h"
#include "transport_cases.h"
#include "transport_rig.h"

#define MIB   (UINT64_C(1) << 20)
#define BYTES (32 * MIB)
#define PIECE (4 * MIB)
#define N     8u                        /* pieces in BYTES */
#define EMPTY 0xee

/* This process's side. */
static struct net_end *end;
static struct net_link *link_there;
static pid_t child;
static int channel;                     /* a socket to the other process */

/* What both sides do with offers: the first may come before the caller of start() goes on. */
static void (*taker)(struct net_end *at, struct net_offer *offer);

/* --- two processes ----------------------------------------------------------------------- */

static void give(const void *bytes, size_t n)
{
	ck_assert_int_eq(send(channel, bytes, n, MSG_NOSIGNAL), (ssize_t)n);
}

static void get(void *ret_bytes, size_t n)
{
	ck_assert_int_eq(recv(channel, ret_bytes, n, MSG_WAITALL), (ssize_t)n);
}

static void open_side(void)
{
	uint8_t address[CEI_TRANSPORT_ADDRESS_MAX];
	uint32_t n_address = 0;

	transport_kit.random = testing_seed();
	end = net_open(transport_kit.ops, transport_kit.kinds, BYTES);
	end->on_offer = taker;
	memset(end->bytes, EMPTY, BYTES);
	give(&end->n_address, sizeof(end->n_address));
	give(end->address, end->n_address);
	get(&n_address, sizeof(n_address));
	ck_assert_uint_le(n_address, sizeof(address));
	get(address, n_address);
	link_there = net_link(end, address, n_address);
	net_say(link_there, "hello", 5);
	while (!link_there->n_heard)
		net_turn();
}

/* Forks a child that runs the function on its side; the caller gets the other side. */
static void start(void (*run)(void))
{
	int sockets[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	channel = sockets[!child];
	close(sockets[!!child]);
	if (!child)
		ck_assert_int_eq(prctl(PR_SET_PDEATHSIG, SIGKILL), 0);
	open_side();
	if (child)
		return;
	run();
	net_close(end);
	_exit(0);
}

/* Has the child close its side. It must end well. */
static void finish(void)
{
	int status = 0;

	/* The child may have noticed by itself, and have gone. */
	(void)send(channel, "c", 1, MSG_NOSIGNAL);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "the child ended with 0x%x",
		      status);
	close(channel);
	net_close(end);
}

static void turn_for(uint64_t ns)
{
	uint64_t until = cei_now_ns() + ns;

	while (cei_now_ns() < until)
		net_turn();
}

static void take_by_number(struct net_end *at, struct net_offer *offer)
{
	uint64_t number = offer->head.number;

	(void)net_accept(at, offer, link_there, number * PIECE, number);
}

static void send_all(void)
{
	uint32_t i;

	for (i = 0; i < N; i++)
		ck_assert_int_eq(net_send(link_there, i * PIECE, PIECE, i, i), 0);
}

static void check_landed(void)
{
	uint32_t i;

	for (i = 0; i < N; i++)
		if (end->landed[i] && !end->landed_error[i])
			net_check(end, i * PIECE, PIECE, i);
}

/* Makes progress until the connection fails, or the other process says that it has closed its
 * side: a transport need not notice that. */
static void outlive(void)
{
	char byte;

	while (!link_there->n_failed && recv(channel, &byte, 1, MSG_DONTWAIT) != 1)
		net_turn();
	net_unlink(link_there);
}

static void send_and_outlive(void)
{
	send_all();
	outlive();
	ck_assert_uint_eq(end->n_sent, N);
}

static void take_and_outlive(void)
{
	outlive();
	check_landed();
}

/* --- stopped ----------------------------------------------------------------------------- */

/* The sender is stopped while it sends; the receiver gives up, and uses the memory for
 * something else; the sender goes on. */
START_TEST(test_no_byte_lands_after_closed)
{
	taker = take_by_number;
	start(send_and_outlive);
	while (end->bytes[(uint64_t)_i % N * PIECE + PIECE / 2] == EMPTY)
		net_turn();
	testing_stop(child);
	net_unlink(link_there);
	check_landed();
	memset(end->bytes, 0x77, BYTES);
	ck_assert_int_eq(kill(child, SIGCONT), 0);
	turn_for(200 * TESTING_MS);
	net_check_all(end, 0, BYTES, 0x77);
	finish();
}
END_TEST

/* The receiver is stopped; the sender gives up, and overwrites what it was sending. */
START_TEST(test_no_torn_receive_is_called_good)
{
	uint32_t i;

	taker = take_by_number;
	start(take_and_outlive);
	send_all();
	for (i = 0; i < 3 * (uint32_t)_i; i++)
		net_turn();
	testing_stop(child);
	net_unlink(link_there);
	ck_assert_uint_eq(end->n_sent, N);
	memset(end->bytes, 0x55, BYTES);
	ck_assert_int_eq(kill(child, SIGCONT), 0);
	turn_for(50 * TESTING_MS);
	finish();
}
END_TEST

/* --- killed ------------------------------------------------------------------------------ */

static void kill_child(void)
{
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
}

static void wait_for_failure(void)
{
	net_patience();
	while (!link_there->n_failed)
		net_turn();
	net_unlink(link_there);
}

static void end_alone(void)
{
	close(channel);
	net_close(end);
}

static void lose_receiver(int n_turns)
{
	int i;

	taker = take_by_number;
	start(take_and_outlive);
	send_all();
	for (i = 0; i < n_turns; i++)
		net_turn();
	kill_child();
	wait_for_failure();
	ck_assert_uint_eq(end->n_sent, N);
	end_alone();
}

START_TEST(test_a_killed_receiver_fails)
{
	ucx_run_survivor(lose_receiver, 3 * _i);
}
END_TEST

static void lose_sender(int n_turns)
{
	int i;

	taker = take_by_number;
	start(send_and_outlive);
	for (i = 0; i < n_turns; i++)
		net_turn();
	kill_child();
	wait_for_failure();
	check_landed();
	end_alone();
}

START_TEST(test_a_killed_sender_fails)
{
	ucx_run_survivor(lose_sender, 3 * _i);
}
END_TEST

/* Over shared memory only the periodic check finds it. */
START_TEST(test_a_killed_peer_that_was_idle_fails)
{
	start(outlive);
	kill_child();
	wait_for_failure();
	check_landed();
	end_alone();
}
END_TEST

/* --- asleep ------------------------------------------------------------------------------ */

#define SLEEPS 4000u
#define HELLO  1u                       /* the message that open_side() hears */

/* Sleeps, unless something has come. Fails if something was there after a sleep that nothing
 * ended. */
static void sleep_or_turn(void)
{
	struct cei_transport *transport = &end->transport;
	struct pollfd waiting = { .fd = transport->ops->fd(transport), .events = POLLIN };
	uint32_t n_before = end->n_heard + end->n_landed + end->n_sent + end->n_offers;
	int r, n;

	if (transport->ops->progress(transport))
		return;
	r = transport->ops->arm(transport);
	if (r == CEOV_PENDING) {
		sched_yield();
		return;
	}
	ck_assert_int_eq(r, 0);
	do {
		n = poll(&waiting, 1, 3000);
	} while (n < 0 && errno == EINTR);
	if (n)
		return;
	while (transport->ops->progress(transport))
		;
	ck_assert_msg(end->n_heard + end->n_landed + end->n_sent + end->n_offers == n_before,
		      "what had come did not wake");
}

static void answer_all(void)
{
	uint32_t i;

	for (i = 1; i <= SLEEPS; i++) {
		while (end->n_heard < HELLO + i)
			sleep_or_turn();
		net_say(link_there, &i, sizeof(i));
	}
	outlive();
}

START_TEST(test_no_message_is_slept_through)
{
	uint32_t i;

	start(answer_all);
	for (i = 1; i <= SLEEPS; i++) {
		net_say(link_there, &i, sizeof(i));
		while (end->n_heard < HELLO + i)
			sleep_or_turn();
	}
	finish();
}
END_TEST

static void take_first(struct net_end *at, struct net_offer *offer)
{
	uint64_t tag = offer->head.number;

	ck_assert_int_eq(net_accept(at, offer, link_there, tag % N * PIECE, tag), 0);
}

static void take_many(void)
{
	while (end->n_landed < NET_TAGS / 4)
		sleep_or_turn();
	ck_assert_uint_eq(end->n_landed_well, NET_TAGS / 4);
	net_say(link_there, "end", 3);
	outlive();
}

START_TEST(test_no_bytes_are_slept_through)
{
	uint32_t i;

	taker = take_first;
	start(take_many);
	for (i = 0; i < NET_TAGS / 4; i++) {
		while (i > end->n_sent)
			sleep_or_turn();
		ck_assert_int_eq(net_send(link_there, 0, 1 + i * 100, i, i), 0);
	}
	while (end->n_heard <= HELLO)
		sleep_or_turn();
	finish();
}
END_TEST

void transport_add_process_cases(Suite *suite, const struct cei_transport_ops *ops,
				 const char *kinds)
{
	TCase *cases = tcase_create("processes");

	transport_kit.ops = ops;
	transport_kit.kinds = kinds;
	tcase_set_timeout(cases, 30);
	tcase_add_loop_test(cases, test_no_byte_lands_after_closed, 0, 16);
	tcase_add_loop_test(cases, test_no_torn_receive_is_called_good, 0, 12);
	tcase_add_loop_test(cases, test_a_killed_receiver_fails, 0, 4);
	tcase_add_loop_test(cases, test_a_killed_sender_fails, 0, 4);
	tcase_add_test(cases, test_a_killed_peer_that_was_idle_fails);
	tcase_add_test(cases, test_no_message_is_slept_through);
	tcase_add_test(cases, test_no_bytes_are_slept_through);
	suite_add_tcase(suite, cases);
}
