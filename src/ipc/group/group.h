/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GROUP_H
#define CEI_GROUP_H

/*
 * One process's view of its group, as a state machine: what it exports and has found, how far a
 * barrier has come, who is lost. It has no socket, thread, lock or clock. Events and calls go in,
 * actions come out, and time is what it is told. Whoever runs it holds a lock around each call.
 *
 *   carrier    brings messages to other processes; the machine says to whom and what
 *   near, far  a process of the own node, or of another one: each kind has a carrier
 *   use        a find that brought an export, until its drop. Its number is the find's
 *   owed       a message that has to arrive. It is made of what is true when it is sent, so there
 *              are never more of them than there are uses, users and processes
 *
 * No function allocates memory, but cei_group_make(), cei_group_reserve(),
 * cei_group_export(), cei_group_watch() and cei_group_abort().
 * Errors are returned and not raised.
 */

#include <stdint.h>

#include "base/list.h"
#include "ipc/group/messages.h"
#include "ipc/group/roster.h"

struct cei_group;

/* What a carrier promises. */
struct cei_group_carrier {
	int has_fds;            /* descriptors go beside messages; memory is shared, so nobody needs
				 * to be told of renewals */
	int tells_death;        /* cei_group_down() comes soon after a process ends, so silence says
				 * nothing */
	int is_sure;            /* each message arrives once, in order, or cei_group_down() comes:
				 * what was sent counts as heard */
};

struct cei_group_config {
	const struct cei_roster *roster;
	uint64_t                 now_ns;
	uint64_t                 timeout_ns;    /* silence of a process that is awaited, after which
						 * it is lost */
	struct cei_group_carrier near, far;
};

/* CEOV_ERR_NO_MEMORY. */
int  cei_group_make(const struct cei_group_config *config, struct cei_group **ret_group);

/* Every action has been taken, above all those that give descriptors back. NULL is allowed. */
void cei_group_free(struct cei_group *group);

/* Makes room for what one call or event may need. To be called before each; it is cheap if there
 * is room. CEOV_ERR_NO_MEMORY: calls may then return that, and what arrives may have to be asked
 * again. */
int  cei_group_reserve(struct cei_group *group);

/* --- calls -------------------------------------------------------------------------- */

struct cei_group_found {
	uint32_t             id;                /* the owner's number of the export */
	uint32_t             generation;        /* 1, counted by renewals */
	uint32_t             n_bytes;
	uint8_t              bytes[CEI_GROUP_BYTES_MAX];
	struct cei_group_fds fds;               /* the caller's from now on */
};

/* A call that ends later. The caller owns it, and keeps it until it has ended. Set: deadline_ns. */
struct cei_group_call {
	struct cei_list link;
	uint32_t        kind;                   /* the machine's */
	uint64_t        deadline_ns;            /* CEI_FOREVER: none */
	int             is_ended;               /* 1: the rest may be read */
	int             result;
	int             native_code;
	uint32_t        blame;                  /* a rank, or CEOV_NOBODY */
	int             has_departed;           /* CEOV_ERR_PEER_LOST: the rank to blame has closed
						 * in order */
	uint64_t        use;                    /* of a find; the machine's of other calls */
	struct cei_group_use   *asked;          /* the machine's */
	struct cei_group_found *found;          /* of a find: where an export goes */
};

struct cei_group_export {
	uint32_t             rank;              /* of this process */
	char                 name[CEI_GROUP_NAME_BYTES];
	int                  is_hidden;         /* 1: it cannot be found until cei_group_show() */
	uint32_t             n_bytes;
	uint8_t              bytes[CEI_GROUP_BYTES_MAX];
	struct cei_group_fds fds;
	_Atomic uint64_t    *words;             /* counters that other nodes may raise, which stay
						 * until it is withdrawn */
	uint32_t             n_words;
};

/* Exports, and takes the descriptors over on success: CEI_GROUP_CLOSE gives them back.
 * CEOV_ERR_INVALID: the rank is not of this process, or the name, bytes or descriptors are too
 * many or none. CEOV_ERR_STATE: the rank uses the name. CEOV_ERR_NO_MEMORY: there is none, or
 * there are CEI_GROUP_EXPORTS_MAX exports, or all numbers were used. */
#define CEI_GROUP_EXPORTS_MAX 4096u     /* with withdrawn ones that are still used */
int  cei_group_export(struct cei_group *group, const struct cei_group_export *export,
		      uint32_t *ret_id);
void cei_group_show(struct cei_group *group, uint32_t id);

/* It is found no more. CEOV_PENDING: it is still used; when the last use ends, its descriptors are
 * given back. is_forced: users are forgotten, and find out when they use it the next time.
 * CEOV_ERR_INVALID: there never was such an export. */
int  cei_group_withdraw(struct cei_group *group, uint32_t id, int is_forced);

/* Asks the process that holds the rank; call->found is set. Ends with 0 and call->use; CEOV_NONE:
 * it is not exported; CEOV_ERR_INVALID: the rank is of this process or there is none, or the name
 * is none; CEOV_ERR_STATE: this process leaves; CEOV_ERR_PEER_LOST; CEOV_ERR_TIMEOUT, after
 * CEI_GROUP_FIND_NS at the latest; CEOV_ERR_SYSTEM: the descriptors could not be sent, or EMFILE:
 * not be received; CEOV_ERR_NO_MEMORY. */
#define CEI_GROUP_FIND_NS UINT64_C(10000000000)
void cei_group_find(struct cei_group *group, struct cei_group_call *call, uint32_t rank,
		    const char *name);

/* Ends a use. It is told to its owner before anything else is, so a barrier that both pass behind
 * it finds it counted, if they are on one node. */
void cei_group_drop(struct cei_group *group, uint32_t rank, uint64_t use);

/* Ends with 0 when all processes of the group have called it as often as this one.
 * CEOV_ERR_PEER_LOST: a process is lost, or has closed with fewer calls. CEOV_ERR_TIMEOUT: the next
 * call goes on with the same barrier. blame is a rank that is lost, or has not come. */
void cei_group_barrier(struct cei_group *group, struct cei_group_call *call);

/* Begins the next generation of an export, and ends with 0 when all far users have heard of it;
 * CEOV_ERR_PEER_LOST: one of them was lost before; CEOV_ERR_TIMEOUT. 0 also if there is no such
 * export. */
void cei_group_renew(struct cei_group *group, struct cei_group_call *call, uint32_t id);

/* Says farewell: to each process that was talked to, when nothing else is owed to anybody, or after
 * half of the time. Ends with 0 when all have heard it; CEOV_ERR_TIMEOUT. Ends finds; other calls
 * have ended before. When it ends, exports are withdrawn by force. */
void cei_group_leave(struct cei_group *group, struct cei_group_call *call);

/* --- counters of what was found at another node ---------------------------------------------- */

/* Makes words the image of the owner's counters until the forget, which comes before the drop.
 * CEOV_ERR_NO_MEMORY; CEOV_ERR_INVALID: there is no such use. */
int  cei_group_watch(struct cei_group *group, uint32_t rank, uint64_t use,
		     _Atomic uint64_t *words, uint32_t n_words);
void cei_group_forget(struct cei_group *group, uint32_t rank, uint64_t use);

/* Has the owner raise a counter, if none of the two processes is lost. CEOV_ERR_PEER_LOST: it has
 * gone. CEOV_ERR_NO_MEMORY; CEOV_ERR_INVALID: there is no such use. */
int  cei_group_raise(struct cei_group *group, uint32_t rank, uint64_t use, uint32_t index,
		     uint64_t value);

/* Has the owner tell the changes of a watched counter until it has that value. */
void cei_group_ask(struct cei_group *group, uint32_t rank, uint64_t use, uint32_t index,
		   uint64_t value);

/* Looks at the counters of this process that others have asked for, and returns whether any has
 * changed. To be called again and again while there are listeners. */
int  cei_group_look(struct cei_group *group);
int  cei_group_has_listeners(const struct cei_group *group);

/* Tells the abort of signals, whose generations are set here, to the processes of other nodes that
 * own or have found them. CEOV_ERR_NO_MEMORY: not all are told. */
int  cei_group_abort(struct cei_group *group, const struct cei_group_abort *abort);

/* Writes those of the aborted signals that were not renewed since, and returns how many they are;
 * room for all. */
uint32_t cei_group_still_aborted(const struct cei_group *group,
				 const struct cei_group_abort *abort,
				 struct cei_group_signal *ret_signals);

/* --- others ---------------------------------------------------------------------------------- */

/* Adds `by`, which may be negative, to the number of answers that are awaited from the process.
 * While it is above 0 the process is pinged, and declared lost if it is silent. This does not
 * concern processes whose death their carrier reports. */
void cei_group_await(struct cei_group *group, uint32_t process, int by);

/* Whether this process awaits what users of its exports do: as long as is_waiting is 1, each
 * process that uses one or begins to is awaited, as by cei_group_await(). To be told before each
 * cei_group_time(); cei_group_due() comes four times in the timeout while there are users. */
void cei_group_await_users(struct cei_group *group, int is_waiting);

/* --- events ------------------------------------------------------------------------------- */

/* The time goes on. To be called at cei_group_due() and before any other event and any call. If it
 * comes far too late, this process stood still, which is held against nobody. */
void cei_group_time(struct cei_group *group, uint64_t now_ns);

/* A message has come, which a decoder has checked. fds may be NULL; those that the machine takes
 * over it takes out of there, and the caller closes what is left. */
void cei_group_received(struct cei_group *group, uint32_t process,
			const struct cei_group_message *message, struct cei_group_fds *fds);

/* The carrier has room again for messages to the process. */
void cei_group_ready(struct cei_group *group, uint32_t process);

/* The connection has ended without a BYE. why: a text that stays. is_refusal: the process lives and
 * has ended it: this process has been given up by the group. */
void cei_group_down(struct cei_group *group, uint32_t process, const char *why, int is_refusal);

/* The process was given up, and nothing of it lands any more. */
void cei_group_quiet(struct cei_group *group, uint32_t process);

/* --- actions ------------------------------------------------------------------------------ */

enum cei_group_action_kind {
	CEI_GROUP_SEND = 1,     /* then cei_group_sent() */
	CEI_GROUP_ENDED,        /* calls have ended: wake those who wait */
	CEI_GROUP_GIVE_UP,      /* accept nothing more of the process, and have it find out by a
				 * refusal; then cei_group_quiet(). After an expulsion nobody is
				 * refused: connections stay open, and unused */
	CEI_GROUP_PEER_GONE,    /* tell upwards that the process is lost, or has departed */
	CEI_GROUP_ABORTED,      /* tell this process that signals were aborted: those that
				 * message.abort names, without those renewed since. It writes all
				 * their abort words before it poisons the first counter */
	CEI_GROUP_RENEWED,      /* tell upwards that the signal was renewed, to zero its image,
				 * before any further action is taken */
	CEI_GROUP_CLOSE,        /* close these descriptors */
};

struct cei_group_action {
	enum cei_group_action_kind what;
	uint32_t                   process;
	int                        has_departed;        /* PEER_GONE */
	const char                *why;                 /* GIVE_UP, PEER_GONE: a text */
	uint32_t                   id;                  /* RENEWED: the owner's export, ... */
	uint32_t                   generation;          /* ... its new one, */
	uint64_t                   use;                 /* and a use of it here */
	struct cei_group_message   message;             /* SEND; ABORTED: its abort */
	struct cei_group_fds       fds;                 /* SEND: the machine's, until the lock is
							 * released. CLOSE: the caller's */
};

/* Takes the next action. CEOV_NONE: there is none. */
int  cei_group_next(struct cei_group *group, struct cei_group_action *ret_action);

/* How the last SEND went. 0; CEOV_FULL: not now, cei_group_ready() says when; CEOV_ERR_PEER_LOST:
 * cei_group_down() will say so; CEOV_ERR_SYSTEM: the descriptors of a REPLY could not be sent, and
 * the errno. */
void cei_group_sent(struct cei_group *group, int result, int native_code);

/* When cei_group_time() may have something to do; CEI_FOREVER: not before another event or call,
 * each of which may make it earlier. */
uint64_t cei_group_due(const struct cei_group *group);

/* --- what is known ------------------------------------------------------------------------- */

enum cei_group_life {
	CEI_GROUP_UP,
	CEI_GROUP_PARTING,      /* given up, and maybe something of it still lands */
	CEI_GROUP_LOST,
	CEI_GROUP_DEPARTED,     /* has closed in order */
};

enum cei_group_life cei_group_life(const struct cei_group *group, uint32_t process);

/* Whether the others have given this process up, which then has given up all of them. */
int      cei_group_is_expelled(const struct cei_group *group);

/* Questions of the process that were dropped, because it had too many without an answer. */
uint64_t cei_group_n_dropped(const struct cei_group *group, uint32_t process);

/* Messages that are still to arrive somewhere. */
uint32_t cei_group_n_owed(const struct cei_group *group);

/* Those of them that were not sent yet. */
uint32_t cei_group_n_unsent(const struct cei_group *group);

/* How many uses of the export are counted. */
uint32_t cei_group_n_users(const struct cei_group *group, uint32_t id);

/* The generation of an export that is used; 0: there is no such use. */
uint32_t cei_group_generation(const struct cei_group *group, uint32_t rank, uint64_t use);

/* A rank without which the barrier that this process is in or calls next cannot complete;
 * CEOV_NOBODY: none is known. */
uint32_t cei_group_missing(const struct cei_group *group);

#endif /* CEI_GROUP_H */
