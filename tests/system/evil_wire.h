/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef EVIL_WIRE_H
#define EVIL_WIRE_H

/*
 * What processes of a node say to each other, as bytes: what a test's process says as rank 1 of a
 * group of two. It knows nothing of the library's structs, so it can say what no library would.
 * Calls end the process with status 99 if they fail.
 */

#include <stdint.h>

#define EVIL_FDS_MAX    4u              /* descriptors beside a message */
#define EVIL_NAME_BYTES 64u
#define EVIL_ROOM_BYTES 1024u           /* of an export's description */

/* Ends the process of the peer with the line if the condition does not hold. */
#define must(condition) evil_must((condition) != 0, __FILE__, __LINE__, #condition)
void evil_must(int holds, const char *file, int line, const char *condition);

enum evil_type {                        /* of messages; 99 is none of the group's */
	EVIL_FIND = 1, EVIL_REPLY = 2, EVIL_DROP = 3, EVIL_BARRIER = 5, EVIL_BYE = 9,
	EVIL_NONE = 99, EVIL_HELLO = 100,       /* of those who meet */
};

struct evil_reply {                     /* to a find, whose number it repeats */
	uint64_t number;
	int32_t  result;
	char     name[EVIL_NAME_BYTES];         /* what was asked for, not sent */
	uint32_t id;                    /* this and all below: only if result is 0 */
	uint32_t generation;
	uint32_t n_fds;                 /* that it says; others may be sent */
	uint32_t n_bytes;
	uint8_t  bytes[EVIL_ROOM_BYTES];
};

/* Meets the process of rank 0, which listens at the path. Returns the link to it. */
int evil_come(const char *path);

/* Returns the type of the next message. A find fills in the name and what a reply repeats. A
 * barrier is answered. EVIL_BYE: also if the connection has ended. */
uint32_t evil_hear(int fd, struct evil_reply *ret_reply);

void evil_answer(int fd, const struct evil_reply *reply, const int *fds, uint32_t n_fds);

/* Sends a message of the type with EVIL_FDS_MAX descriptors, which such messages must not have. */
void evil_say_odd(int fd, uint32_t type, const int *fds);

#endif /* EVIL_WIRE_H */
