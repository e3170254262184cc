/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GROUP_PRIVATE_H
#define CEI_GROUP_PRIVATE_H

/*
 * Declarations shared by the files of the group's state machine:
 *
 *   machine.c     makes and frees it, hands events to the others, and gives actions
 *   peers.c       pools, records of processes, ends of calls
 *   owed.c        what has to be sent, in which order, and again
 *   directory.c   exports and their users
 *   uses.c        finds and uses
 *   aborts.c      aborts of signals
 *   counters.c    counters of exports: raising, asking, telling
 *   barrier.c     the barrier, and who is missing in it
 *   life.c        who is there: silence, losses and their news, farewell
 */

#include "base/clock.h"
#include "base/list.h"
#include "base/table.h"
#include "ipc/group/group.h"

#include <ceoverlap/ceoverlap.h>

/* Something that may have to be sent to one process; part of what it is about. In the order in
 * which they go out: drops before barriers, the farewell last. */
enum cei_owed_kind {
	CEI_OWED_ABORT,
	CEI_OWED_RAISE,
	CEI_OWED_DROP,
	CEI_OWED_REPLY,
	CEI_OWED_FIND,
	CEI_OWED_RENEW,
	CEI_OWED_ASK,
	CEI_OWED_VALUE,
	CEI_OWED_CALLED,        /* the barrier: this process has called it */
	CEI_OWED_ROUND,
	CEI_OWED_DONE,          /* all nodes have come */
	CEI_OWED_NEWS,          /* of losses */
	CEI_OWED_LIMIT,
	CEI_OWED_LATE,
	CEI_OWED_BEAT,
	CEI_OWED_BYE,
	CEI_OWED_KINDS
};

enum cei_owed_state { CEI_OWED_NOT, CEI_OWED_WAITS, CEI_OWED_ASKED };

struct cei_owed {
	struct cei_list link;           /* in cei_group_peer.waiting[kind] or .asked */
	uint64_t        number;
	uint64_t        again_ns;       /* ASKED: when it is sent again */
	uint32_t        process;
	uint8_t         kind;
	uint8_t         state;          /* enum cei_owed_state */
	uint8_t         was_sent;       /* and is not answered */
};

struct cei_group_answer {               /* sent once */
	struct cei_list link;
	uint32_t        type;           /* ACK; REPLY without an export; GONE: you are lost */
	uint64_t        number;         /* of what is answered */
	int             result;
	int             native_code;
};

/* Answers that wait for one process. What it asks beyond that is dropped. */
#define CEI_GROUP_ANSWERS_MAX 64u
/* Finds at one process that are not answered: less than it stores. */
#define CEI_GROUP_FINDS_MAX   32u
/* Messages with aborts that a process has not heard, or of it that the layer above has not: more of
 * them, and it is given up. */
#define CEI_GROUP_ABORTS_MAX  64u
/* Uses of exports by one process. More finds are refused. */
#define CEI_GROUP_USES_MAX    65536u
/* Drops of what nobody here asked for, that are not acknowledged. */
#define CEI_GROUP_STRAYS_MAX  64u

struct cei_group_peer {                 /* a process that was talked to, or is near */
	struct cei_list link;           /* in cei_group.sending: it has something to send */
	struct cei_list known;          /* in cei_group.known */
	struct cei_list asking;         /* in cei_group.asking: it has not answered all, or is to
					 * be asked whether it is there */
	struct cei_list watched;        /* in cei_group.watched: it is awaited, or may be as a user
					 * of exports */
	struct cei_list waiting[CEI_OWED_KINDS];        /* of struct cei_owed, ... */
	uint32_t        waiting_kinds;  /* ... whose lists of these bits are not empty */
	struct cei_list asked;          /* of struct cei_owed, in the order of again_ns */
	struct cei_list answers;
	struct cei_list uses;           /* of its exports */
	struct cei_list users;          /* of exports of this process */
	struct cei_list notes;          /* of struct cei_counter_note */
	struct cei_list listeners;      /* to counters of this process */
	struct cei_list aborts;         /* of struct cei_abort_note, that it has not heard */
	uint32_t        n_aborts;
	uint32_t        n_aborts_heard; /* of it, that are still to be told upwards */
	uint64_t        heard_ns;
	uint64_t        awaited_ns;     /* since when it has not answered */
	uint64_t        doubted_ns;     /* since when it may be lost, if later than both */
	uint64_t        n_dropped;
	uint32_t        process;
	uint32_t        n_answers;
	uint32_t        n_drops;        /* that it has not heard */
	uint32_t        n_raises;       /* likewise */
	uint32_t        n_replies;      /* likewise */
	uint32_t        n_users;
	uint32_t        n_finds;        /* that were sent and are not answered */
	uint32_t        n_unanswered;   /* messages, these among them */
	uint32_t        n_strays;
	uint32_t        n_awaited;
	uint8_t         is_full;
	uint8_t         has_heard_bye;

	uint64_t        n_calls;        /* of the barrier, as told */
	uint64_t        n_done;         /* of a leader: barriers to which all nodes have come */
	uint64_t        round_call;     /* what ROUND, DONE, LIMIT and LATE tell it, ... */
	uint32_t        round_step;
	uint64_t        limit_told;
	uint64_t        late_told;
	uint32_t        n_news;         /* entries of cei_group.gone that it knows, ... */
	uint32_t        n_news_sent;    /* ... and that it knows when it has answered */
	struct cei_owed called, round, done, news, limit, late, beat, bye;
};

enum cei_use_state {
	CEI_USE_ASKED,
	CEI_USE_UNWANTED,               /* asked, and nobody waits any more */
	CEI_USE_HELD,
	CEI_USE_DROPPED,                /* and the owner has not heard it */
};

struct cei_group_use {                  /* of another process's export */
	struct cei_list        link;    /* in cei_group_peer.uses, or free */
	struct cei_list        renewed; /* in cei_group.renewed: to be told upwards */
	struct cei_table_node  by_number, by_id;        /* the latter if it was brought */
	struct cei_owed        owed;    /* FIND or DROP */
	enum cei_use_state     state;
	uint64_t               number;
	uint32_t               rank;
	uint32_t               id;
	uint32_t               generation;
	int                    is_stray;
	struct cei_group_call *call;    /* ASKED */
	char                   name[CEI_GROUP_NAME_BYTES];
	_Atomic uint64_t      *words;   /* the image of its counters; NULL: it is not watched */
	uint64_t              *asked;   /* by word: the value that was asked for; 0: none */
	uint32_t               n_words;
	uint32_t               n_asked;
};

struct cei_counter_note {               /* RAISE or ASK */
	struct cei_list          link;  /* in cei_group_peer.notes */
	struct cei_table_node    by_counter;
	struct cei_owed          owed;
	struct cei_group_counter counter;
};

struct cei_abort_note {                 /* to a process, or to be told upwards */
	struct cei_list        link;    /* in cei_group_peer.aborts or cei_group.aborted */
	struct cei_owed        owed;
	struct cei_group_abort abort;
};

struct cei_listener {                   /* to a counter of this process */
	struct cei_list         link;   /* in cei_group_peer.listeners */
	struct cei_list         of;     /* in cei_group_entry.listeners */
	struct cei_list         looked; /* in cei_group.listening */
	struct cei_table_node   by_counter;
	struct cei_owed         owed;   /* VALUE */
	struct cei_group_entry *entry;
	uint32_t                process;
	uint32_t                index;
	uint64_t                until;  /* the value to reach */
	uint64_t                told;   /* the last one that it was told */
};

struct cei_group_user {                 /* another process's use of an export */
	struct cei_list         link;   /* in cei_group_peer.users, or free */
	struct cei_list         of;     /* in cei_group_entry.users */
	struct cei_table_node   by_number;
	struct cei_owed         reply;
	struct cei_owed         renew;
	struct cei_group_entry *entry;  /* NULL: it was forced out of it */
	uint64_t                number;
	uint32_t                process;
	uint32_t                generation;     /* that it has heard of */
	uint32_t                renewing;       /* that it was told last */
};

struct cei_group_entry {                /* an export */
	struct cei_list         link;   /* in cei_group.entries, or in .ended */
	struct cei_table_node   by_id, by_name;         /* the latter until it is withdrawn */
	struct cei_list         users;
	struct cei_list         listeners;
	uint32_t                id;
	uint32_t                generation;
	uint32_t                n_users;
	int                     is_withdrawn;
	struct cei_group_export export;
};

struct cei_pool {                       /* of objects that begin with a struct cei_list */
	struct cei_list free;
	struct cei_list chunks;
	uint32_t        n_free;
	uint32_t        n_needed;       /* of them, in one call or event */
	uint32_t        object_bytes;
};

struct cei_group_barrier {
	struct cei_list calls;                  /* that wait */
	uint64_t        n_calls;                /* barriers that this process has begun */
	uint64_t        n_world;                /* barriers to which all nodes have come */
	int             is_open;                /* the last one began, and no call passed it */
	uint64_t        began_ns;
	uint32_t        round;                  /* of a leader in barrier n_calls */
	int             has_told;               /* the partner of this round */
	uint32_t        awaited;                /* process that is watched; CEOV_NOBODY */
	uint64_t        seen[CEI_GROUP_STEPS];  /* by round: the partner's highest call */
	uint64_t        n_possible;             /* no more barriers complete, ... */
	uint32_t        missing;                /* ... because of this rank */
	int             must_tell;              /* n_possible, to others */
	uint64_t        late_call;              /* the barrier that waits for this rank for long */
	uint32_t        late_rank;
};

struct cei_group_gone_entry {
	uint32_t    process;
	uint32_t    is_told;                    /* upwards */
	const char *why;
};

/* What is owed is filled in, and means something, in the file that owes it. */
struct cei_owed_ops {
	void (*fill)(struct cei_group *group, const struct cei_owed *owed,
		     struct cei_group_action *action);
	void (*paid)(struct cei_group *group, struct cei_owed *owed);   /* it has arrived */
	void (*unsent)(struct cei_group *group, struct cei_owed *owed, int result,
		       int native_code);        /* the descriptors of a REPLY */
	void (*answered)(struct cei_group *group);      /* an answer was sent */

	/* A question was sent; and one was answered, or is not to be any more. */
	void (*asked)(struct cei_group *group, struct cei_group_peer *peer);
	void (*settled)(struct cei_group *group, struct cei_group_peer *peer);
};

enum cei_group_pool {
	CEI_PEERS, CEI_USES, CEI_USERS, CEI_ANSWERS, CEI_NOTES, CEI_LISTENERS, CEI_ABORTS,
	CEI_POOLS
};

/* Numbers are those of a process, see cei_group_key(). */
enum cei_group_table {
	CEI_USES_BY_NUMBER, CEI_USES_BY_ID, CEI_USERS_BY_NUMBER, CEI_ENTRIES_BY_ID,
	CEI_ENTRIES_BY_NAME, CEI_NOTES_BY_COUNTER, CEI_LISTENERS_BY_COUNTER,
	CEI_TABLES
};

struct cei_group {
	const struct cei_owed_ops  *ops;
	const struct cei_roster    *roster;
	struct cei_group_carrier    near, far;
	uint64_t                    now_ns;
	uint64_t                    timeout_ns;
	uint64_t                    due_ns;     /* when something is to be done, or may be */
	struct cei_group_peer     **peers;      /* by process; NULL: never talked to */
	struct cei_list             known;      /* the others */
	uint8_t                    *life;       /* by process: enum cei_group_life */
	uint64_t                    last_number;
	uint32_t                    last_id;
	uint32_t                    n_owed;
	uint32_t                    n_unanswered;       /* of them, that were sent */
	uint32_t                    n_answers;

	struct cei_pool             pools[CEI_POOLS];
	struct cei_table            tables[CEI_TABLES];
	struct cei_list             aborted;    /* to be told upwards */
	struct cei_list             listening;
	struct cei_list             sending, asking, watched;
	struct cei_group_peer      *sender;     /* of the last SEND, ... */
	struct cei_owed            *sent;       /* ... which is one of these */
	struct cei_group_answer    *answer;

	struct cei_list             entries;
	struct cei_list             ended;      /* entries whose descriptors are to be closed */
	uint32_t                    n_entries;
	struct cei_list             renewed;
	struct cei_list             calls;      /* finds, renewals, the leave */
	int                         has_ended;  /* a call, which is to be told */

	struct cei_group_barrier    barrier;

	struct cei_group_gone_entry *gone;      /* in the order in which they went */
	uint32_t                    n_gone;
	uint32_t                    n_given_up; /* entries of gone that were given up */
	uint32_t                    n_told;     /* entries of gone before the first untold one */
	uint32_t                    n_untold;   /* that wait to be told upwards */
	int                         awaits_users;
	int                         must_spread;        /* there was no room for it */
	int                         is_expelled;
	struct cei_group_call      *leave;
	uint64_t                    leave_ns;   /* when farewells wait for nothing any more; 0: it
						 * does not leave */
	int                         says_bye;
	uint32_t                    n_byes;     /* known processes that are up and have not heard
						 * the farewell */
};

/* --- peers.c --------------------------------------------------------------------------- */

enum cei_group_call_kind {
	CEI_GROUP_CALL_FIND, CEI_GROUP_CALL_BARRIER, CEI_GROUP_CALL_RENEW, CEI_GROUP_CALL_LEAVE
};

void cei_group_begin(struct cei_group *group, struct cei_group_call *call,
		     enum cei_group_call_kind kind);

/* Ends the call, which is in a list; blame: a rank. */
void cei_group_end(struct cei_group *group, struct cei_group_call *call, int result,
		   uint32_t blame);

/* Makes the record of a process if it has none. NULL: there is no room. */
struct cei_group_peer *cei_group_peer(struct cei_group *group, uint32_t process);

/* cei_group_time() may have something to do at that time. */
void cei_group_due_at(struct cei_group *group, uint64_t at_ns);

uint32_t cei_group_own_node(const struct cei_group *group);
int  cei_group_is_far(const struct cei_group *group, uint32_t process);
const struct cei_group_carrier *cei_group_carrier_of(const struct cei_group *group,
						     uint32_t process);

void cei_pool_init(struct cei_pool *pool, size_t object_bytes, uint32_t n_needed);
void cei_pool_free(struct cei_pool *pool);

/* Makes room for the objects that are needed. CEOV_ERR_NO_MEMORY. */
int  cei_pool_reserve(struct cei_pool *pool);

/* Takes an object whose bytes are 0; NULL: there is none. */
void *cei_pool_take(struct cei_pool *pool);
void  cei_pool_put(struct cei_pool *pool, void *object);

/* The key of what is of that process and has that number there; for tables. */
uint64_t cei_group_key(uint32_t process, uint64_t number);

/* --- owed.c ----------------------------------------------------------------------------- */

/* Makes it owed, under the number; 0: a new one. What waits already keeps its place, and what was
 * sent is sent again, as something new. Does nothing to a process that is not up. */
void cei_owe(struct cei_group *group, struct cei_owed *owed, enum cei_owed_kind kind,
	     uint32_t process, uint64_t number);

/* It is owed no more. */
void cei_owed_forget(struct cei_group *group, struct cei_owed *owed);

/* It has arrived: what that means is done. */
void cei_owed_paid(struct cei_group *group, struct cei_owed *owed);

/* What the process was asked under that number; NULL: nothing. */
struct cei_owed *cei_owed_numbered(struct cei_group_peer *peer, uint64_t number);

/* Answers once. CEOV_FULL: there is no room, and the question is dropped. */
int  cei_group_answer(struct cei_group *group, struct cei_group_peer *peer,
		      const struct cei_group_answer *answer);

/* The process has something to be sent, or can take it again. */
void cei_group_wake(struct cei_group *group, struct cei_group_peer *peer);

/* Forgets everything that is to be sent to the process. */
void cei_owed_forget_all(struct cei_group *group, struct cei_group_peer *peer);

/* Sends again what was not answered. */
void cei_owed_again(struct cei_group *group, struct cei_group_peer *peer);

/* Fills a SEND. CEOV_NONE: there is nothing to send. */
int  cei_owed_next(struct cei_group *group, struct cei_group_action *action);

/* --- events that the files handle: 0; CEOV_FULL: there is no room, and the message is not
 * acknowledged; CEOV_ERR_INVALID: the process lies --------------------------------------- */

int  cei_group_hear_find(struct cei_group *group, struct cei_group_peer *peer, uint64_t number,
			 const struct cei_group_find *find);
int  cei_group_hear_drop(struct cei_group *group, struct cei_group_peer *peer, uint64_t number);
int  cei_group_hear_reply(struct cei_group *group, struct cei_group_peer *peer,
			  const struct cei_group_reply *reply, struct cei_group_fds *fds);
int  cei_group_hear_renew(struct cei_group *group, struct cei_group_peer *peer,
			  const struct cei_group_use_named *renew);
int  cei_group_hear_barrier(struct cei_group *group, struct cei_group_peer *peer,
			    const struct cei_group_barrier_step *step);
int  cei_group_hear_late(struct cei_group *group, const struct cei_group_rank_said *late);
int  cei_group_hear_limit(struct cei_group *group, const struct cei_group_rank_said *limit);
int  cei_group_hear_gone(struct cei_group *group, const struct cei_group_gone *gone);
int  cei_group_hear_bye(struct cei_group *group, struct cei_group_peer *peer,
			const struct cei_group_rank_said *bye);

int  cei_group_hear_raise(struct cei_group *group, const struct cei_group_counter *raise);
int  cei_group_hear_ask(struct cei_group *group, struct cei_group_peer *peer,
			const struct cei_group_counter *ask);
int  cei_group_hear_value(struct cei_group *group, struct cei_group_peer *peer,
			  const struct cei_group_counter *told);

/* --- counters.c ------------------------------------------------------------------------------ */

void cei_counters_fill(const struct cei_owed *owed, struct cei_group_message *message);
void cei_counters_note_paid(struct cei_group *group, struct cei_owed *owed);
void cei_counters_value_paid(struct cei_group *group, struct cei_owed *owed);

/* The export was renewed, or ends; the use was renewed; the process has gone. */
void cei_counters_end_listeners(struct cei_group *group, struct cei_group_entry *entry);
void cei_counters_renewed(struct cei_group *group, struct cei_group_use *use);
void cei_counters_end(struct cei_group *group, struct cei_group_peer *peer);

/* The process, or this one there, uses the export no more: nobody waits for its counters. */
void cei_counters_unused(struct cei_group *group, struct cei_group_entry *entry,
			 struct cei_group_peer *peer);
void cei_counters_dropped(struct cei_group *group, struct cei_group_peer *peer, uint32_t id);

int  cei_group_is_used_by(const struct cei_group_entry *entry, uint32_t process);

/* --- aborts.c: likewise ---------------------------------------------------------------------- */

int  cei_group_hear_abort(struct cei_group *group, struct cei_group_peer *peer,
			  const struct cei_group_abort *abort);
int  cei_aborts_next(struct cei_group *group, struct cei_group_action *action);
void cei_aborts_fill(const struct cei_owed *owed, struct cei_group_message *message);
void cei_aborts_paid(struct cei_group *group, struct cei_owed *owed);
void cei_aborts_end(struct cei_group *group, struct cei_group_peer *peer);

/* Looks up an export by its id, and a use that is held, so neither asked for still nor dropped, by
 * the owner's rank and the use's own number. NULL: there is none. */
struct cei_group_entry *cei_group_entry(const struct cei_group *group, uint32_t id);
struct cei_group_use   *cei_group_held(const struct cei_group *group, uint32_t rank,
				       uint64_t number);

/* The first use of that export of a process, with after = NULL, and the next one; held or dropped.
 * NULL: there is none. */
struct cei_group_use   *cei_group_use_of(const struct cei_group *group, uint32_t process,
					 uint32_t id, struct cei_group_use *after);

/* --- directory.c, uses.c: a process has gone ----------------------------------------------- */

void cei_group_end_users(struct cei_group *group, struct cei_group_peer *peer);
void cei_group_end_uses(struct cei_group *group, struct cei_group_peer *peer);

/* The user, or its process, cannot be told: ends it. */
void cei_group_end_user(struct cei_group *group, struct cei_group_user *user);

/* Withdraws all exports by force. */
void cei_group_withdraw_all(struct cei_group *group);

/* Whether the name has 1 to 63 bytes. */
int  cei_group_is_name(const char *name);

/* Ends a find whose deadline has passed without an answer, with this result; or all finds, because
 * this process leaves the group. */
void cei_group_end_find(struct cei_group *group, struct cei_group_call *call, int result);
void cei_group_end_finds(struct cei_group *group);

/* --- owed things: what they say, and what it means that it arrived -------------------------- */

void cei_group_fill_find(const struct cei_owed *owed, struct cei_group_message *message);
void cei_group_fill_drop(const struct cei_owed *owed, struct cei_group_message *message);
void cei_group_drop_paid(struct cei_group *group, struct cei_owed *owed);
void cei_group_fill_reply(struct cei_group *group, const struct cei_owed *owed,
			  struct cei_group_action *action);
void cei_group_fill_renew(const struct cei_owed *owed, struct cei_group_message *message);
void cei_group_renew_paid(struct cei_group *group, struct cei_owed *owed);

/* The descriptors of a REPLY could not be sent. */
void cei_group_reply_unsent(struct cei_group *group, struct cei_owed *owed, int result,
			    int native_code);

void cei_barrier_fill(struct cei_group *group, const struct cei_owed *owed,
		      struct cei_group_message *message);
void cei_group_fill_life(struct cei_group *group, const struct cei_owed *owed,
			 struct cei_group_message *message);
void cei_group_news_paid(struct cei_group *group, struct cei_group_peer *peer);

/* --- barrier.c --------------------------------------------------------------------------- */

void cei_barrier_init(struct cei_group_barrier *barrier);

/* Goes on as far as what is known allows, and ends calls. */
void cei_barrier_go(struct cei_group *group);

/* No more than so many barriers complete, because of the rank. */
void cei_barrier_limit(struct cei_group *group, uint32_t rank, uint64_t n_calls);

/* This process leaves: it takes part in no further barrier. */
void cei_barrier_leave(struct cei_group *group);

/* What it says in its farewell: not a barrier of which somebody has not heard all from here yet,
 * because the farewell could not wait for that. */
struct cei_group_rank_said cei_barrier_farewell(struct cei_group *group);

/* Deadlines, and ranks that are late. cei_barrier_due(): when there is something to do. */
void     cei_barrier_time(struct cei_group *group);
uint64_t cei_barrier_due(const struct cei_group *group);

/* --- life.c -------------------------------------------------------------------------------- */

uint32_t cei_group_leader(const struct cei_group *group, uint32_t node);

/* The first process of the node that is there: it tells and hears news for it. CEOV_NOBODY: there
 * is none. */
uint32_t cei_group_speaker(const struct cei_group *group, uint32_t node);

/* Gives the process up. */
void cei_group_part(struct cei_group *group, uint32_t process, const char *why);

/* Owes news, limits and late ranks to those who are to hear them and do not know them. */
void cei_group_spread(struct cei_group *group);

/* The first use of an export by that process has begun, or its last one has ended. */
void cei_life_watch(struct cei_group *group, struct cei_group_peer *peer);

/* Something is asked of it, or would be if its carrier had room: its silence begins to count. And
 * the end of that, if it has answered all. */
void cei_life_ask(struct cei_group *group, struct cei_group_peer *peer);
void cei_life_answered(struct cei_group *group, struct cei_group_peer *peer);

void     cei_life_time(struct cei_group *group, uint64_t late_ns);
uint64_t cei_life_due(const struct cei_group *group);
int      cei_life_next(struct cei_group *group, struct cei_group_action *action);

/* The farewell goes on, if nothing is owed any more. */
void cei_group_leave_go(struct cei_group *group);

/* The farewell has ended. */
void cei_group_left(struct cei_group *group, int result);

#endif /* CEI_GROUP_PRIVATE_H */
