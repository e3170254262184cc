/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_STORE_SOCKET_H
#define CEI_STORE_SOCKET_H

/* Sockets of the store, TCP ones or those at a path: addresses, connections, and messages that come
 * in pieces. No call blocks beyond its deadline. */

#include <stdint.h>
#include <sys/socket.h>

#include "base/report.h"
#include "net/store_wire.h"

#define CEI_STORE_ADDRESSES_MAX 8u
#define CEI_STORE_HOST_BYTES    256u

struct cei_store_place {                /* "host:port" or "[address]:port", taken apart */
	char     host[CEI_STORE_HOST_BYTES];
	uint16_t port;
};

/* CEOV_ERR_INVALID, not raised: the text is none of these, or the port is 0. */
int cei_store_place(const char *text, struct cei_store_place *ret_place);

struct cei_store_addresses {
	uint32_t                n;
	struct sockaddr_storage all[CEI_STORE_ADDRESSES_MAX];
	socklen_t               n_bytes[CEI_STORE_ADDRESSES_MAX];
};

/* Looks the host up. CEOV_ERR_TIMEOUT, CEOV_ERR_SYSTEM: raised. If the name server does not
 * answer in time, the query goes on in a thread of the C library, with memory of its own. */
int cei_store_resolve(struct cei_report *report, const struct cei_store_place *place,
		      uint64_t deadline_ns, struct cei_store_addresses *ret_addresses);

/* The address of a path, which is short enough for a socket. */
void cei_store_address_of(const char *path, struct cei_store_addresses *ret_addresses);

/* Listens at the port: on the loopback interface if the place's host is called localhost,
 * 127.0.0.1 or ::1, else on all interfaces. Returns 0 or an errno. */
int cei_store_listen(const struct cei_store_place *place, int *ret_fd);

/* Connects to one address. Returns 0 or an errno; ETIMEDOUT: the deadline passed. */
int cei_store_connect(const struct cei_store_addresses *addresses, uint32_t index,
		      uint64_t deadline_ns, int *ret_fd);

/* Sends all bytes. Returns 0 or an errno; ETIMEDOUT: the deadline passed. */
int cei_store_send(int fd, const void *bytes, uint64_t n_bytes, uint64_t deadline_ns);

/* Waits for events, as in poll(2). CEOV_NONE: the deadline passed. */
int cei_store_wait(int fd, short events, uint64_t deadline_ns);

#define CEI_STORE_FDS_MAX 3u            /* a socket, a pidfd, and one too many */

/* A message that is being received. */
struct cei_store_inbox {
	uint8_t                  head_bytes[CEI_STORE_HEAD_BYTES];
	struct cei_store_message message;
	uint64_t                 n_got;         /* bytes, the head's included */
	uint8_t                 *body;          /* NULL until the head is complete */
	uint32_t                 n_fds;
	int                      fds[CEI_STORE_FDS_MAX];        /* that came beside */
};

/* What may come: other types are CEOV_ERR_INVALID. */
struct cei_store_expected {
	uint32_t n_processes;
	uint32_t types;                         /* 1 << type, or-ed */
};

/* Receives what is there without blocking. 0: a message is complete, until inbox_clear. CEOV_NONE:
 * more has to come. CEOV_ERR_PEER_LOST: the connection has ended. CEOV_ERR_VERSION,
 * CEOV_ERR_INVALID: as from cei_store_get_head() and _body(). CEOV_ERR_NO_MEMORY. Not raised. */
int  cei_store_receive(int fd, const struct cei_store_expected *expected,
		       struct cei_store_inbox *inbox);
void cei_store_inbox_clear(struct cei_store_inbox *inbox);

#endif /* CEI_STORE_SOCKET_H */
