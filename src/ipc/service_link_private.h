/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SERVICE_LINK_PRIVATE_H
#define CEI_SERVICE_LINK_PRIVATE_H

/* What service_link.c, which opens and closes a client's connection and receives, shares with
 * service_ask.c, which asks. */

#include <pthread.h>
#include <stdatomic.h>

#include "ipc/alive.h"
#include "ipc/service_link.h"

/* Of more late plans than these, the daemon frees some only when the client ends. */
#define CEI_SERVICE_LATE_MAX 16u

struct cei_service_late {               /* a plan that was committed too late: to be dropped */
	uint32_t                  number;       /* of the request */
	struct cei_service_handle handle;
};

struct cei_service_link {
	struct cei_service_link_config config;
	struct cei_service_welcome     welcome;
	int                            fd;
	int                            stop;    /* eventfd: ends the receiver */
	struct cei_alive              *alive;
	struct cei_alive_area          down;
	struct cei_alive_area          up;
	int                            bells[CEI_MEMBERS_MAX];
	uint32_t                       n_bells;
	pthread_t                      receiver, watcher;
	int                            has_receiver, has_watcher;
	_Atomic uint32_t               must_end;
	_Atomic uint32_t               is_lost; /* config.lost was called, or is about to be */

	pthread_mutex_t                asking;  /* held from a request to its answer */
	pthread_mutex_t                lock;    /* guards the rest */
	pthread_cond_t                 answered;
	uint32_t                       number;  /* of the last request; never 0 */
	int                            wants;   /* it has no answer yet, and was not given up */
	int                            has_answer;
	struct cei_service_late        late[CEI_SERVICE_LATE_MAX];
	uint32_t                       n_late;
	int                            has_end; /* no answer will come any more */
	int                            is_closed;       /* the other end of the socket is, or
							 * cannot be read */
	struct cei_service_message     answer;
	int                            answer_fd;       /* -1: none came */
};

/* Raise CEOV_ERR_DAEMON_LOST, and what the daemon refused with. */
int  cei_service_raise_lost(const struct cei_service_link *link);
int  cei_service_raise_refused(struct cei_service_link *link, const struct ceov_failure *refused);

/* Send a datagram or a message, and wait by the deadline while the socket is full. Raise. */
int  cei_service_send_by(struct cei_service_link *link, const struct cei_datagram *datagram,
			 uint64_t deadline_ns);
int  cei_service_say(struct cei_service_link *link, const struct cei_service_message *message,
		     uint64_t deadline_ns);

#endif /* CEI_SERVICE_LINK_PRIVATE_H */
