/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "post.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "testing.h"

#define ROOM       16u          /* letters of one sender that wait */
#define TURN_MAX   16u          /* events of one turn */
#define PAUSE_NS   200000u      /* a pause is shorter than this */

/* What an office owes its peers about a process, and what it is to them. */
enum {
	READY = 1, DOWN = 2, REFUSAL = 4, QUIET = 8,
	GIVEN_UP = 16, ENDED = 32, HELD = 64, IS_QUIET = 128,
};

struct letter {
	struct cei_list link;
	size_t          n_bytes;
	uint8_t         bytes[CEI_GROUP_MESSAGE_BYTES];
};

struct event {
	uint32_t        what;           /* READY, DOWN, REFUSAL, QUIET; 0: a letter has come */
	uint32_t        process;
	struct letter  *letter;
};

/* --- with the lock ---------------------------------------------------------------------- */

static void stir(struct post_office *office)
{
	if (office->has_thread)
		pthread_cond_broadcast(&office->post->changed);
	else if (office->peers)
		cei_peers_wake(office->peers);
}

static void owe(struct post_office *office, uint32_t process, uint32_t what)
{
	office->owes[process] |= what;
	stir(office);
}

static int is_held(const struct post_office *office, uint32_t process)
{
	return ((office->owes[process] | office->owes[office->own] |
		 office->post->offices[process].owes[process]) & HELD) != 0;
}

static struct letter *take_letter(struct post_office *office, uint32_t from)
{
	struct letter *letter;

	if (cei_list_is_empty(&office->letters[from]))
		return NULL;
	letter = CEI_OWNER(cei_list_take(&office->letters[from]), struct letter, link);
	office->n_letters[from]--;
	stir(&office->post->offices[from]);             /* it may wait for room */
	return letter;
}

static void drop_letters(struct post_office *office, uint32_t from)
{
	struct letter *letter;

	while ((letter = take_letter(office, from)) != NULL)
		free(letter);
}

static int has_room(const struct post_office *office, uint32_t to)
{
	const struct post_office *other = &office->post->offices[to];

	return other->peers && other->n_letters[office->own] < ROOM;
}

static int take_owed(struct post_office *office, uint32_t process, uint32_t what,
		     struct event *ret_event)
{
	if (!(office->owes[process] & what))
		return 0;
	office->owes[process] &= ~what;
	*ret_event = (struct event){ what, process, NULL };
	return 1;
}

/* What is next about a process. Returns whether there is anything. */
static int take_of(struct post_office *office, uint32_t process, struct event *ret_event)
{
	uint32_t *owes = &office->owes[process];

	if (*owes & (GIVEN_UP | ENDED)) {
		drop_letters(office, process);
		*owes &= ~(uint32_t)(READY | DOWN | REFUSAL);
		return take_owed(office, process, QUIET, ret_event);
	}
	if (is_held(office, process))
		return 0;
	*ret_event = (struct event){ 0, process, take_letter(office, process) };
	if (ret_event->letter)
		return 1;
	if (has_room(office, process) && take_owed(office, process, READY, ret_event))
		return 1;
	if (!take_owed(office, process, REFUSAL, ret_event) &&
	    !take_owed(office, process, DOWN, ret_event))
		return 0;
	*owes |= ENDED;
	return 1;
}

static int take(struct post_office *office, struct event *ret_event)
{
	struct post *post = office->post;
	uint32_t first = (uint32_t)testing_below(&post->random, post->n), i;

	for (i = 0; office->peers && i < post->n; i++)
		if (take_of(office, (first + i) % post->n, ret_event))
			return 1;
	return 0;
}

static int has_talked(const struct post_office *office, uint32_t to)
{
	uint32_t type;

	for (type = 0; type < POST_TYPES; type++)
		if (office->n_sent[to][type])
			return 1;
	return 0;
}

/* Returns as of send(). */
static int put(struct post_office *office, uint32_t to, const struct cei_group_message *message)
{
	struct post *post = office->post;
	struct post_office *other = &post->offices[to];
	struct letter *letter;

	if (office->owes[to] & (GIVEN_UP | ENDED | DOWN | REFUSAL))
		return CEOV_ERR_PEER_LOST;
	if (!other->peers && other->must_stop) {
		owe(office, to, DOWN);
		return CEOV_ERR_PEER_LOST;
	}
	if (!office->peers || !has_room(office, to) ||
	    (post->fullness && !testing_below(&post->random, post->fullness))) {
		owe(office, to, READY);
		return CEOV_FULL;
	}
	letter = calloc(1, sizeof(*letter));
	ck_assert_ptr_nonnull(letter);
	letter->n_bytes = cei_encode(&cei_group_protocol, message, letter->bytes);
	cei_list_append(&other->letters[office->own], &letter->link);
	other->n_letters[office->own]++;
	office->n_sent[to][message->type]++;
	stir(other);
	return 0;
}

/* --- telling ---------------------------------------------------------------------------- */

static void become(struct post_office *office, uint32_t process, uint32_t what)
{
	pthread_mutex_lock(&office->post->lock);
	office->owes[process] |= what;
	pthread_mutex_unlock(&office->post->lock);
}

static void hand_over(struct post_office *office, const struct event *event)
{
	struct cei_group_message message;

	ck_assert_int_eq(cei_decode(&cei_group_protocol, event->letter->bytes,
				    event->letter->n_bytes, &message), 0);
	free(event->letter);
	cei_peers_received(office->peers, event->process, &message, NULL);
	if (message.type == CEI_GROUP_BYE)
		become(office, event->process, ENDED);
}

static void tell(struct post_office *office, const struct event *event)
{
	if (!event->what) {
		hand_over(office, event);
	} else if (event->what == READY) {
		cei_peers_ready(office->peers, event->process);
	} else if (event->what == QUIET) {
		cei_peers_quiet(office->peers, event->process);
		become(office, event->process, IS_QUIET);
	} else {
		cei_peers_down(office->peers, event->process, "the connection has ended",
			       event->what == REFUSAL);
	}
}

static int tell_next(struct post_office *office)
{
	struct event event;
	int has_event;

	pthread_mutex_lock(&office->post->lock);
	has_event = take(office, &event);
	pthread_mutex_unlock(&office->post->lock);
	if (has_event)
		tell(office, &event);
	return has_event;
}

/* With the lock, which is released meanwhile. */
static void pause_now(struct post *post)
{
	struct timespec pause = { 0, (long)testing_below(&post->random, PAUSE_NS) };

	pthread_mutex_unlock(&post->lock);
	nanosleep(&pause, NULL);
	pthread_mutex_lock(&post->lock);
}

static void *run(void *arg)
{
	struct post_office *office = arg;
	struct event event;

	pthread_mutex_lock(&office->post->lock);
	while (!office->must_stop) {
		if (!testing_below(&office->post->random, 8))
			pause_now(office->post);
		if (!take(office, &event)) {
			if (!office->must_stop)
				pthread_cond_wait(&office->post->changed, &office->post->lock);
			continue;
		}
		pthread_mutex_unlock(&office->post->lock);
		tell(office, &event);
		pthread_mutex_lock(&office->post->lock);
	}
	pthread_mutex_unlock(&office->post->lock);
	return NULL;
}

/* --- the carrier's operations ------------------------------------------------------------- */

static int post_send(void *state, uint32_t process, const struct cei_group_message *message,
		     const struct cei_group_fds *fds, int *ret_native_code)
{
	struct post_office *office = state;
	int r;

	(void)ret_native_code;
	ck_assert_ptr_null(fds);
	pthread_mutex_lock(&office->post->lock);
	r = put(office, process, message);
	pthread_mutex_unlock(&office->post->lock);
	return r;
}

/* The refusal and the quiet come later, from whoever tells what the two offices owe. */
static void post_give_up(void *state, uint32_t process, const char *why)
{
	struct post_office *office = state;
	struct post_office *other = &office->post->offices[process];
	int is_slow;

	ck_assert_ptr_nonnull(why);
	pthread_mutex_lock(&office->post->lock);
	if (!(other->owes[office->own] & (GIVEN_UP | ENDED | DOWN)))
		owe(other, office->own, REFUSAL);
	owe(office, process, GIVEN_UP | QUIET);
	is_slow = office->post->gives_up_slowly && office->has_thread &&
		!pthread_equal(pthread_self(), office->thread);
	while (is_slow && !(office->owes[process] & IS_QUIET))
		pause_now(office->post);
	pthread_mutex_unlock(&office->post->lock);
}

static int post_turn(void *state, const struct pollfd *fds)
{
	struct post_office *office = state;
	uint32_t n = 0;
	int has_thread;

	ck_assert_ptr_null(fds);
	pthread_mutex_lock(&office->post->lock);
	has_thread = office->has_thread;
	office->n_turns++;
	pthread_mutex_unlock(&office->post->lock);
	while (!has_thread && n < TURN_MAX && tell_next(office))
		n++;
	return n > 0;
}

static int has_something(const struct post_office *office)
{
	uint32_t process;

	for (process = 0; process < office->post->n; process++)
		if ((office->owes[process] & QUIET) || (!is_held(office, process) &&
		    (office->n_letters[process] ||
		     (office->owes[process] & (READY | DOWN | REFUSAL)))))
			return 1;
	return 0;
}

static uint64_t post_due(void *state)
{
	const struct post_office *office = state;
	uint64_t due_ns;

	pthread_mutex_lock(&office->post->lock);
	due_ns = ((office->post->busy >> office->own) & 1) ||
		(!office->has_thread && has_something(office)) ? 0 : CEI_FOREVER;
	pthread_mutex_unlock(&office->post->lock);
	return due_ns;
}

static const struct cei_carrier_ops ops = {
	.send = post_send, .give_up = post_give_up, .turn = post_turn, .due = post_due,
};

/* --- opening and closing -------------------------------------------------------------------- */

void post_open(struct post *post, uint32_t n, uint64_t seed)
{
	struct post_office *office;
	uint32_t i, j;

	ck_assert_uint_le(n, POST_MAX);
	memset(post, 0, sizeof(*post));
	pthread_mutex_init(&post->lock, NULL);
	pthread_cond_init(&post->changed, NULL);
	post->n = n;
	post->random = seed;
	for (i = 0; i < n; i++) {
		office = &post->offices[i];
		office->post = post;
		office->own = i;
		office->carrier = (struct cei_carrier){ .ops = &ops, .state = office,
							.promises = { .is_sure = 1 } };
		for (j = 0; j < n; j++)
			cei_list_init(&office->letters[j]);
	}
}

void post_close(struct post *post)
{
	uint32_t i, j;

	for (i = 0; i < post->n; i++)
		for (j = 0; j < post->n; j++)
			drop_letters(&post->offices[i], j);
	pthread_mutex_destroy(&post->lock);
	pthread_cond_destroy(&post->changed);
}

const struct cei_carrier *post_carrier(struct post *post, uint32_t process)
{
	return &post->offices[process].carrier;
}

void post_begin(struct post *post, uint32_t process, struct cei_peers *peers, int has_thread)
{
	struct post_office *office = &post->offices[process];
	uint32_t i;

	pthread_mutex_lock(&post->lock);
	office->peers = peers;
	office->has_thread = has_thread;
	for (i = 0; i < post->n; i++)
		stir(&post->offices[i]);
	pthread_mutex_unlock(&post->lock);
	if (has_thread)
		ck_assert_int_eq(pthread_create(&office->thread, NULL, run, office), 0);
}

void post_end(struct post *post, uint32_t process)
{
	struct post_office *office = &post->offices[process];
	uint32_t i;

	pthread_mutex_lock(&post->lock);
	office->must_stop = 1;
	stir(office);
	pthread_mutex_unlock(&post->lock);
	if (office->has_thread)
		pthread_join(office->thread, NULL);
	pthread_mutex_lock(&post->lock);
	office->peers = NULL;
	for (i = 0; i < post->n; i++) {
		drop_letters(office, i);
		if (has_talked(office, i) || has_talked(&post->offices[i], process))
			owe(&post->offices[i], process, DOWN);
	}
	pthread_mutex_unlock(&post->lock);
}

void post_hold(struct post *post, uint32_t process, int is_held)
{
	uint32_t i;

	pthread_mutex_lock(&post->lock);
	if (is_held)
		post->offices[process].owes[process] |= HELD;
	else
		post->offices[process].owes[process] &= ~(uint32_t)HELD;
	for (i = 0; i < post->n; i++)
		stir(&post->offices[i]);
	pthread_mutex_unlock(&post->lock);
}

void post_cut(struct post *post, uint32_t a, uint32_t b)
{
	pthread_mutex_lock(&post->lock);
	drop_letters(&post->offices[a], b);
	drop_letters(&post->offices[b], a);
	owe(&post->offices[a], b, DOWN);
	owe(&post->offices[b], a, DOWN);
	pthread_mutex_unlock(&post->lock);
}

int post_is_quiet(struct post *post, uint32_t process, uint32_t other)
{
	int is_quiet;

	pthread_mutex_lock(&post->lock);
	is_quiet = (post->offices[process].owes[other] & IS_QUIET) != 0;
	pthread_mutex_unlock(&post->lock);
	return is_quiet;
}

uint32_t post_n_sent(struct post *post, uint32_t from, uint32_t to, uint32_t type)
{
	uint32_t n;

	pthread_mutex_lock(&post->lock);
	n = post->offices[from].n_sent[to][type];
	pthread_mutex_unlock(&post->lock);
	return n;
}

uint32_t post_n_turns(struct post *post, uint32_t process)
{
	uint32_t n;

	pthread_mutex_lock(&post->lock);
	n = post->offices[process].n_turns;
	pthread_mutex_unlock(&post->lock);
	return n;
}
