/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "system/fake_daemon.h"

#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/site.h"
#include "ipc/service_ring.h"
#include "testing.h"

static int make_file(size_t n_bytes)
{
	int fd = memfd_create("fake-daemon", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)n_bytes), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	return fd;
}

static void say(int fd, const struct cei_service_message *message, int *fds, uint32_t n_fds)
{
	static uint8_t bytes[CEI_SERVICE_BYTES_MAX];
	struct cei_datagram datagram = { bytes, cei_encode(&cei_service_protocol, message, bytes),
					 fds, n_fds };

	ck_assert_int_eq(cei_datagram_send(fd, &datagram), 0);
}

static void welcome(struct fake_daemon *fake, int fd)
{
	struct cei_service_message message = { .type = CEI_SERVICE_WELCOME };
	uint32_t i, n = (uint32_t)__builtin_popcount(fake->serves);
	int fds[2 + CEI_MEMBERS_MAX];

	fds[0] = make_file(cei_service_down_bytes(n));
	fds[1] = make_file(sizeof(struct cei_service_up));
	for (i = 0; i < n; i++)
		fds[2 + i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ck_assert_int_eq(cei_alive_map(&fake->report, fds[1], sizeof(struct cei_service_up),
				       PROT_READ | PROT_WRITE, &fake->up), 0);
	ck_assert_int_eq(cei_alive_hold(fake->alive, &fake->up), 0);
	message.welcome.serves = fake->serves;
	message.welcome.n_rings = n;
	say(fd, &message, fds, 2 + n);
	for (i = 0; i < 2 + n; i++)
		close(fds[i]);
}

/* Returns whether the client goes on. */
static int answer(struct fake_daemon *fake, int fd, const struct cei_service_message *message)
{
	struct cei_service_message done = { .type = CEI_SERVICE_COMMITTED,
					    .number = fake->number };

	switch (message->type) {
	case CEI_SERVICE_HELLO:
		welcome(fake, fd);
		return 1;
	case CEI_SERVICE_PLAN:
		fake->n_left = message->plan.n_bytes;
		fake->number = message->number;
		return 1;
	case CEI_SERVICE_PART:
		fake->n_left -= message->part.n_bytes;
		if (message->part.n_bytes && !fake->n_left) {
			done.handle.slot = fake->n_commits++;
			say(fd, &done, NULL, 0);
		}
		return 1;
	case CEI_SERVICE_DROP:
		done.type = CEI_SERVICE_DROPPED;
		done.number = message->number;
		say(fd, &done, NULL, 0);
		return 1;
	default:
		return message->type != CEI_SERVICE_BYE;
	}
}

static void serve(struct fake_daemon *fake, int fd)
{
	static uint8_t bytes[CEI_SERVICE_BYTES_MAX];
	struct pollfd polled = { .fd = fd, .events = POLLIN };
	int fds[CEI_DATAGRAM_FDS_MAX], goes_on = 1;
	struct cei_service_message message;
	struct cei_datagram datagram;

	while (goes_on && poll(&polled, 1, -1) == 1) {
		datagram = (struct cei_datagram){ bytes, sizeof(bytes), fds, CEI_DATAGRAM_FDS_MAX };
		if (cei_datagram_receive(fd, &datagram))
			break;
		cei_datagram_close_fds(&datagram);
		ck_assert_int_eq(cei_decode(&cei_service_protocol, bytes, datagram.n_bytes,
					    &message), 0);
		goes_on = answer(fake, fd, &message);
	}
	cei_alive_unmap(&fake->up);
	close(fd);
}

static void *serve_all(void *arg)
{
	struct fake_daemon *fake = arg;
	int fd;

	while ((fd = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
		serve(fake, fd);
	return NULL;
}

void fake_daemon_start(struct fake_daemon *fake, const char *path, uint32_t serves)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	memset(fake, 0, sizeof(*fake));
	strcpy(fake->path, path);
	fake->serves = serves;
	cei_report_init(&fake->report, NULL, NULL);
	ck_assert_int_eq(cei_alive_open(&fake->report, &fake->alive), 0);
	ck_assert_uint_lt(strlen(path), sizeof(address.sun_path));
	strcpy(address.sun_path, path);
	(void)unlink(path);
	fake->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(fake->listener, 0);
	ck_assert_int_eq(bind(fake->listener, (const struct sockaddr *)&address,
			      sizeof(address)), 0);
	ck_assert_int_eq(listen(fake->listener, 8), 0);
	ck_assert_int_eq(pthread_create(&fake->thread, NULL, serve_all, fake), 0);
}

void fake_daemon_end(struct fake_daemon *fake)
{
	ck_assert_int_eq(shutdown(fake->listener, SHUT_RDWR), 0);
	ck_assert_int_eq(pthread_join(fake->thread, NULL), 0);
	close(fake->listener);
	cei_alive_close(fake->alive);
	cei_report_fini(&fake->report);
	ck_assert_int_eq(unlink(fake->path), 0);
}
