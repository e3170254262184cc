/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_POST_H
#define CEI_POST_H

/*
 * A carrier between processes of different nodes that are all in this one, for tests of the peers:
 * each has an office, to which messages go encoded. What an office tells comes from its thread, or,
 * without one, from turn(). Order among senders, waits and refused sends are drawn; each sender's
 * messages stay in order.
 */

#include <pthread.h>
#include <stdint.h>

#include "base/list.h"
#include "ipc/peers/carrier.h"

#define POST_MAX  6u
#define POST_TYPES (CEI_GROUP_ABORT + 1)

struct post_office {
	struct cei_carrier carrier;
	struct post       *post;
	uint32_t           own;
	struct cei_peers  *peers;               /* NULL: closed */
	int                has_thread, must_stop;
	pthread_t          thread;
	struct cei_list    letters[POST_MAX];   /* by sender */
	uint32_t           n_letters[POST_MAX];
	uint32_t           owes[POST_MAX];      /* by process: flags of post.c */
	uint32_t           n_sent[POST_MAX][POST_TYPES];        /* to whom, of which type */
	uint32_t           n_turns;
};

struct post {
	pthread_mutex_t    lock;                /* guards the rest; behind the lock of peers */
	pthread_cond_t     changed;
	uint64_t           random;
	uint32_t           n;
	uint32_t           fullness;            /* one of so many sends is refused; 0: none */
	uint32_t           busy;                /* bits: whose turn() is to be called again and
						 * again */
	int                gives_up_slowly;     /* give_up() returns when quiet was told */
	struct post_office offices[POST_MAX];
};

void post_open(struct post *post, uint32_t n, uint64_t seed);
void post_close(struct post *post);

const struct cei_carrier *post_carrier(struct post *post, uint32_t process);

/* The process has peers, and events come; before, all messages to and from it wait. has_thread:
 * they come from a thread of the office. */
void post_begin(struct post *post, uint32_t process, struct cei_peers *peers, int has_thread);

/* No event comes any more. Who has talked with it loses it, unless it has said farewell; who
 * talks to it later loses it then. */
void post_end(struct post *post, uint32_t process);

/* What the process says and is told stays under way as long as it is held. */
void post_hold(struct post *post, uint32_t process, int is_held);

/* The connection between the two breaks. */
void post_cut(struct post *post, uint32_t a, uint32_t b);

/* Whether one was told that the other is quiet. */
int post_is_quiet(struct post *post, uint32_t process, uint32_t other);

/* How many messages of a type one has sent the other; and how often turn() was called. */
uint32_t post_n_sent(struct post *post, uint32_t from, uint32_t to, uint32_t type);
uint32_t post_n_turns(struct post *post, uint32_t process);

#endif /* CEI_POST_H */
