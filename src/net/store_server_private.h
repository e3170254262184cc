/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_STORE_SERVER_PRIVATE_H
#define CEI_STORE_SERVER_PRIVATE_H

/*
 * Declarations shared by the files of the store's server:
 *
 *   store_server.c  opens it; accepts processes, and gathers their bytes
 *   store_answer.c  sends the bytes of all to each
 *   store_links.c   gives each two processes a socket to each other
 */

#include <ceoverlap/ceoverlap.h>

#include "base/list.h"
#include "net/exchange_numbers.h"
#include "net/store_path.h"
#include "net/store_server.h"
#include "net/store_socket.h"

struct cei_store_guest {                          /* a connection */
	struct cei_list        link;    /* in strangers, joined or gone */
	int                    fd;
	struct cei_party       party;   /* its numbers; none: it has not said yet who it is */
	uint64_t               hello_by_ns;
	struct cei_store_inbox inbox;   /* its body is kept as the part of this round */
	int                    has_part;
	uint64_t               n_sent;  /* of the answer */
};

struct cei_store_server {
	const struct cei_exchange *exchange;
	const struct cei_gathered_words *words;
	struct cei_report *report;
	int                epoll_fd;
	int                listen_fd;   /* -1: it does not listen any more */
	struct cei_store_path path;     /* at a path */
	uint32_t           n_strangers;
	struct cei_list    strangers;   /* the oldest first */
	struct cei_list    joined;
	struct cei_list    gone;        /* closed; freed when no event can name them */
	struct cei_store_guest **guests;        /* by number; NULL: not joined */
	uint8_t           *has;         /* by number: nobody waits for it: its part of this round is
					 * there; at a path: it is, or is of another node */
	uint32_t           n_has;
	uint64_t           n_refused;
	uint32_t           twin;        /* the last number that came twice; CEOV_NOBODY: none */
	int                error;       /* raised already; the round has failed */
	uint8_t           *answer;      /* while it is sent: the bytes of all */
	uint64_t           n_answer;
	uint32_t           n_unsent;    /* processes that have not got all of it */
};

/* --- store_server.c ------------------------------------------------------------------ */

void cei_store_close_guest(struct cei_store_server *server, struct cei_store_guest *guest);

/* Waits for events once and passes guests with events on; NULL: to accept. */
void cei_store_turn(struct cei_store_server *server, uint64_t deadline_ns,
		    void (*handle)(struct cei_store_server *, struct cei_store_guest *));

/* --- store_answer.c ------------------------------------------------------------------ */

/* Errors of both are raised. */
int  cei_store_put_together(struct cei_store_server *server, const void *own, uint32_t n_bytes,
			    struct cei_gathered *ret_gathered);
int  cei_store_answer(struct cei_store_server *server, const struct cei_gathered *gathered,
		      uint64_t deadline_ns);

/* --- store_links.c ------------------------------------------------------------------- */

int  cei_store_hand_out(struct cei_store_server *server, uint64_t deadline_ns,
			struct cei_links *ret_links);

#endif /* CEI_STORE_SERVER_PRIVATE_H */
