/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef NODE_LIFE_H
#define NODE_LIFE_H

/*
 * What a process on a node does in the tests of faults, once or several times: it opens the group
 * with two ranks; each rank sends random data to the rank of equal number on the next node, again
 * and again, and checks what comes from the node before; until a call fails, or the number of
 * passes is reached. What it saw is in shared memory.
 */

#include <stdatomic.h>
#include <stdint.h>

#include "system/namespaces.h"

#define LIFE_RANKS     2u                       /* of a node */
#define LIFE_CALL_MS   UINT64_C(6000)           /* deadline of each call */
#define LIFE_FOREVER   UINT32_MAX
#define LIFE_RECORD    16384u                   /* bytes of a record of the meeting */

enum life_stage {
	LIFE_NONE = 0,
	LIFE_OPENING,
	LIFE_READY,             /* the first pass has gone well */
	LIFE_CLOSING,
	LIFE_CLOSED,
	LIFE_ENDED,             /* what it left was counted, too */
};

struct life {                           /* of one process, or a part of it; in shared memory */
	_Atomic uint32_t stage;         /* enum life_stage */
	_Atomic uint64_t n_passes;      /* that have ended well */
	_Atomic int      error;         /* of the first call that failed; 0: none has */
	uint32_t         blamed;        /* the rank that its failure names */
	uint64_t         failed_ns;     /* when it returned */
	uint64_t         close_ns;      /* that the closing took */
	uint64_t         n_sent[LIFE_RANKS];    /* launches whose tickets ended well */
	uint64_t         n_come[LIFE_RANKS];    /* data that were checked */
	int              has_next[LIFE_RANKS];  /* and the next are there, too, after the failure */
	uint64_t         n_wrong;       /* checks that have found other bytes */
	uint64_t         n_late;        /* bytes that came after the failure */
	uint32_t         n_looks;       /* for such bytes */
	uint32_t         n_uncertain;   /* failures of which nobody knows what landed */
	int              is_unsaid;     /* a call has failed, but no rank was lost */
	uint32_t         n_stuck;       /* 1: memory stayed registered */
	uint32_t         n_fds;         /* open at the end */
	uint32_t         n_threads;     /* at the end */
	char             text[400];     /* of the failure */
};

/* What all processes of a test share. */
struct life_shared {
	_Atomic uint32_t is_struck;             /* the fault has come */
	_Atomic uint32_t is_mended;             /* its cause is gone */
	_Atomic uint32_t may_close;
	_Atomic uint32_t is_again;              /* all open the group once more */
	_Atomic uint32_t n_records;             /* of a meeting by callback */
	uint8_t          records[2][NAMESPACES_MAX][LIFE_RECORD];
};

struct life_plan {                              /* what a process does */
	struct life_shared *shared;
	struct life        *life;
	const char         *folder;             /* of each node's socket */
	uint32_t            node;
	uint32_t            n_nodes;
	uint64_t            timeout_ns;         /* peer_timeout_ns */
	uint64_t            open_ms;            /* deadline of the opening */
	uint64_t            n_bytes;            /* that each rank sends in a pass */
	uint32_t            n_passes;
	uint32_t            pause_ms;           /* between passes */
	int                 waits;              /* after the first pass, until the fault has come */
	int                 holds_close;        /* until it may close */
	int                 by_callback;        /* meets by shared memory */
	uint32_t            record_version;     /* if it is not 0, its record has this version */
};

/* Runs it in this process. */
void life_run(const struct life_plan *plan);

#endif /* NODE_LIFE_H */
