/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GROUP_MESSAGES_H
#define CEI_GROUP_MESSAGES_H

/*
 * What the processes of a group tell each other, by the tables of base/codec.h. Comments name the
 * bounds of each field that decoding checks; what depends on the group (whether there is such a
 * rank, whether anybody asked) is checked by the machine, in the file that handles the message.
 *
 * A process numbers what it tells any other process, from 1 on. Messages that have to arrive have
 * such a number, and a carrier that may lose messages has them answered by an ACK with this number;
 * a FIND is answered by its REPLY.
 */

#include <stdint.h>

#include "base/codec.h"

#define CEI_GROUP_NAME_BYTES   64u      /* of an export, with the final 0 */
#define CEI_GROUP_BYTES_MAX    1024u    /* of an export */
#define CEI_GROUP_FDS_MAX      4u       /* of an export */
#define CEI_GROUP_ID_MAX       ((UINT32_C(1) << 23) - 1)
#define CEI_GROUP_NEWS_MAX     16u      /* lost processes that one message names */
#define CEI_GROUP_STEPS        32u      /* of a barrier */
#define CEI_GROUP_STEP_ALL     (CEI_GROUP_STEPS - 1)
#define CEI_GROUP_SIGNALS_MAX  64u      /* that are aborted together */

enum cei_group_type {
	CEI_GROUP_FIND = 1,     /* do you export this? */
	CEI_GROUP_REPLY,        /* the export, or why not; descriptors go beside it */
	CEI_GROUP_DROP,         /* my use of your export has ended */
	CEI_GROUP_RENEW,        /* I have renewed my export: zero what you have of it */
	CEI_GROUP_BARRIER,      /* I have come so far in this barrier */
	CEI_GROUP_LATE,         /* this rank has not come to this barrier for long */
	CEI_GROUP_LIMIT,        /* no more barriers than this complete, because of this rank */
	CEI_GROUP_GONE,         /* these processes are lost; you may be among them. With a number
				 * answered by an ACK from where no death is told */
	CEI_GROUP_BYE,          /* I close in order, and say nothing more; body as of LIMIT */
	CEI_GROUP_BEAT,         /* are you there? Answered by an ACK on every carrier */
	CEI_GROUP_ACK,          /* I have handled your message of this number */
	CEI_GROUP_RAISE,        /* raise this counter of yours */
	CEI_GROUP_ASK,          /* tell me your counter's changes until it has this value */
	CEI_GROUP_VALUE,        /* my counter has this value */
	CEI_GROUP_ABORT,        /* these signals are aborted, all words before the first poison */
};

struct cei_group_find {                         /* its number is the use's, too */
	uint32_t rank;                          /* of the receiver */
	char     name[CEI_GROUP_NAME_BYTES];    /* 1 to 63 bytes, rest 0 */
};

/* With another result than 0 the number of the message is 0: it is not acknowledged. */
struct cei_group_reply {
	uint64_t use;                           /* the FIND's number, at least 1 */
	int32_t  result;                        /* 0, CEOV_NONE or a negative enum ceov_error */
	int32_t  native_code;                   /* with a negative result; else 0 */
	uint32_t id;                            /* the following with result 0 only; 1 to
						 * CEI_GROUP_ID_MAX */
	uint32_t generation;                    /* at least 1 */
	uint32_t n_fds;                         /* beside the message, at most CEI_GROUP_FDS_MAX */
	uint32_t n_bytes;                       /* at most CEI_GROUP_BYTES_MAX */
	uint8_t  bytes[CEI_GROUP_BYTES_MAX];
};

struct cei_group_use_named {                    /* DROP and RENEW */
	uint64_t use;                           /* the number of its FIND, at least 1 */
	uint32_t generation;                    /* RENEW: the new one, at least 2; DROP: 0 */
};

struct cei_group_barrier_step {
	uint64_t call;                          /* the sender's calls so far, at least 1 */
	uint32_t step;                          /* 0: I have called. To a process of the own node.
						 * 1 and more: a round of the leaders.
						 * CEI_GROUP_STEP_ALL: all nodes have come. From
						 * the leader to its node */
};

struct cei_group_rank_said {                    /* LATE, LIMIT and BYE */
	uint64_t n_calls;                       /* LATE: at least 1 */
	uint32_t rank;
};

struct cei_group_gone {
	uint32_t n;                             /* 1 to CEI_GROUP_NEWS_MAX */
	uint32_t processes[CEI_GROUP_NEWS_MAX];
};

struct cei_group_counter {                      /* RAISE, ASK and VALUE */
	uint32_t id;                            /* of the owner's export, 1 to CEI_GROUP_ID_MAX */
	uint32_t index;
	uint32_t generation;                    /* at least 1 */
	uint64_t value;                         /* below CEOV_VALUE_LIMIT: no poison */
};

struct cei_group_signal {
	uint32_t rank;                          /* of the owner */
	uint32_t id;                            /* there, 1 to CEI_GROUP_ID_MAX */
	uint32_t generation;                    /* at least 1 */
};

struct cei_group_abort {
	int32_t                 error;          /* a negative enum ceov_error */
	uint32_t                blame;          /* a rank, or CEOV_NOBODY */
	uint32_t                n;              /* 1 to CEI_GROUP_SIGNALS_MAX */
	struct cei_group_signal signals[CEI_GROUP_SIGNALS_MAX];
};

struct cei_group_message {
	uint32_t type;                          /* enum cei_group_type */
	uint64_t number;                        /* the sender's; of an ACK: the receiver's that it
						 * answers. 0: of a REPLY without an export, and
						 * of a GONE that is not to be acknowledged */
	union {
		struct cei_group_find         find;
		struct cei_group_reply        reply;
		struct cei_group_use_named    use;      /* DROP, RENEW */
		struct cei_group_barrier_step barrier;
		struct cei_group_rank_said    said;     /* LATE, LIMIT, BYE */
		struct cei_group_gone         gone;
		struct cei_group_counter      counter;  /* RAISE, ASK, VALUE */
		struct cei_group_abort        abort;
	};
};

/* Of the longest encoded message, a REPLY. */
#define CEI_GROUP_MESSAGE_BYTES (44u + CEI_GROUP_BYTES_MAX)

extern const struct cei_protocol cei_group_protocol;

/* Descriptors that go beside a message. Nobody here duplicates or closes them: see the contracts of
 * the calls that take or give such a bundle. */
struct cei_group_fds {
	uint32_t n;
	int      fds[CEI_GROUP_FDS_MAX];
};

#endif /* CEI_GROUP_MESSAGES_H */
