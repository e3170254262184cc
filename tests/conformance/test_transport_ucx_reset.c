/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Sockets that break while UCX sends over them. This program has the functions of the C library by
 * which UCX sends: when a socket has taken a part of the bytes only, the next send over it fails,
 * as it does when the other process has died in between.
 */

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "net/ucx.h"
#include "testing.h"
#include "transport_rig.h"

#define SKIPPED 77
#define MIB     (UINT64_C(1) << 20)
#define PIECE   (4 * MIB)
#define N       8u                      /* pieces */

static int n_partial_until_reset;       /* 0: sockets stay as they are */
static int broken_fd = -1;              /* the next send over it fails */
static int n_resets;

/* --- in place of the C library's --------------------------------------------------------- */

static int breaks(int fd)
{
	if (fd != broken_fd)
		return 0;
	broken_fd = -1;
	n_resets++;
	shutdown(fd, SHUT_RDWR);
	errno = ECONNRESET;
	return 1;
}

static ssize_t note_partial(int fd, ssize_t n_sent, size_t n_bytes)
{
	if (n_partial_until_reset && n_sent > 0 && (size_t)n_sent < n_bytes &&
	    !--n_partial_until_reset)
		broken_fd = fd;
	return n_sent;
}

__attribute__((visibility("default")))
ssize_t send(int fd, const void *bytes, size_t n_bytes, int flags)
{
	if (breaks(fd))
		return -1;
	return note_partial(fd, syscall(SYS_sendto, fd, bytes, n_bytes, flags, NULL, 0), n_bytes);
}

__attribute__((visibility("default")))
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	size_t i, n_bytes = 0;

	if (breaks(fd))
		return -1;
	for (i = 0; i < message->msg_iovlen; i++)
		n_bytes += message->msg_iov[i].iov_len;
	return note_partial(fd, syscall(SYS_sendmsg, fd, message, flags), n_bytes);
}

/* --- the case ------------------------------------------------------------------------------ */

static void take_by_number(struct net_end *end, struct net_offer *offer)
{
	uint64_t number = offer->head.number;

	(void)net_accept(end, offer, NULL, number * PIECE, number);
}

/* Every send ends once, which the rig sees to, and the process lives. */
START_TEST(test_a_socket_that_breaks_ends_each_send_once)
{
	struct net_end *a = net_open(&cei_transport_ucx, "tcp", N * PIECE);
	struct net_end *b = net_open(&cei_transport_ucx, "tcp", N * PIECE);
	struct net_link *ab, *ba;
	uint64_t i;

	net_join(a, b, &ab, &ba);
	b->on_offer = take_by_number;
	n_partial_until_reset = 1 + _i;
	for (i = 0; i < N; i++)
		ck_assert_int_eq(net_send(ab, i * PIECE, PIECE, i, i), 0);
	while (!ab->n_failed)
		net_turn();
	ck_assert_int_eq(n_resets, 1);
	net_unlink(ba);
	net_unlink(ab);
	ck_assert_uint_eq(a->n_sent, N);
	for (i = 0; i < N; i++)
		if (b->landed[i] && !b->landed_error[i])
			net_check(b, i * PIECE, PIECE, i);
	net_close(a);
	net_close(b);
}
END_TEST

/* The leak sanitizer asks this. It crashes now and then while it walks the memory of UCX's own
 * thread; other errors are still found. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}

static int open_and_close(void)
{
	return net_try(&cei_transport_ucx, "tcp") != 0;
}

int main(void)
{
	Suite *suite = suite_create("sockets that break");
	TCase *cases = tcase_create("breaks");

	if (testing_fails(open_and_close)) {
		printf("skipped: there is no UCX that can use TCP\n");
		return SKIPPED;
	}
	tcase_set_timeout(cases, 30);
	tcase_add_loop_test(cases, test_a_socket_that_breaks_ends_each_send_once, 0, 10);
	suite_add_tcase(suite, cases);
	return testing_run(suite);
}
