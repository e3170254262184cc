/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_CLIENT_H
#define CEI_DAEMON_CLIENT_H

/*
 * One client: its connection, its areas, its guest of the engines, and its plans.
 *
 *   NEW --HELLO--> OPENING --> GREETED --READY--> OPEN --BYE, death, nonsense--> ENDING --> freed
 *    |                |           |
 *    +----------------+-----------+--- nothing said in time, or refused --------> ENDING
 *
 * The front thread receives and answers (client.c). What may take long is done by the porter
 * meanwhile, one task at a time for each client (client_tasks.c, client_plans.c); the socket is
 * not read until it is done.
 */

#include <stdatomic.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/server/account.h"
#include "daemon/server/guest.h"
#include "daemon/server/intake.h"
#include "daemon/server/porter.h"
#include "daemon/server/usage.h"
#include "ipc/alive.h"
#include "ipc/alive_watch.h"
#include "ipc/service_wire.h"

struct cei_server;                      /* daemon/server/server.h */
struct sd_event_source;

enum cei_client_state {
	CEI_CLIENT_NEW,
	CEI_CLIENT_OPENING,
	CEI_CLIENT_GREETED,
	CEI_CLIENT_OPEN,
	CEI_CLIENT_ENDING,
};

/* A message about a plan while its parts come. */
struct cei_assembly {
	struct cei_service_plan head;
	uint8_t                *bytes;          /* head.n_bytes */
	uint32_t                n_bytes;        /* so many came */
	int                    *fds;            /* as many as there are buffers and signals */
	uint32_t                n_fds;          /* so many came; they are the assembly's */
	uint32_t                n_promised;     /* so many its user's account counts for it */
	uint64_t                heard_ns;       /* when its last part came */
	uint32_t                number;         /* of the request */
	int                     is_open;
	int                     is_refused;     /* what still comes of it is dropped */
};

/* A plan that was committed, with the handles that were made for it. */
struct cei_client_plan {
	struct ceov_buffer    **buffers;
	struct ceov_signal    **signals;
	uint32_t                n_buffers;
	uint32_t                n_signals;
	uint32_t                n_memories;     /* of both together */
	uint32_t                n_chunks;
	uint64_t                n_bytes;        /* of memory that it maps, as counted */
};

struct cei_client {
	struct cei_list          link;          /* the server's */
	struct cei_server       *server;
	enum cei_client_state    state;         /* front thread */
	uint32_t                 number;        /* counts clients, for people */
	uint32_t                 uid;
	int                      pid;           /* as this process sees it; 0: it does not */
	int                      fd;
	struct sd_event_source  *source;
	struct cei_account      *account;
	uint64_t                 since_ns;      /* of its state NEW or GREETED, or of a plan
						 * whose parts come */
	struct cei_service_hello hello;         /* without the members that no engine serves */
	uint32_t                 serves;        /* which those are, as WELCOME says it */
	int                      fence_error;   /* a member's engine was fenced when it came: the
						 * error, ... */
	char                     fence_text[CEOV_FAILURE_TEXT_BYTES];   /* ... and words */

	/* for displays, front thread */
	uint64_t                 seen_bytes;    /* when its rate was computed last */
	uint64_t                 bytes_per_s;   /* its rate of late */
	uint32_t                 shown_slot;    /* these as they were when no task was under way */
	uint32_t                 shown_plans;
	uint32_t                 shown_regions;
	uint64_t                 shown_bytes;

	uint64_t                 used[CEI_FLOWS_URGENCIES];     /* what was moved for it, until it
						 * gave its share back; shares_lock guards it */
	uint32_t                 slot;          /* of its share of the engines; 0: with others; the
						 * server's shares_lock guards it */

	/* what the porter has made */
	ceov_context            *context;
	struct cei_alive_area    down;
	struct cei_alive_area    up;
	int                      area_fds[2];   /* of DOWN and UP, until WELCOME is sent */
	uint32_t                 engines[CEI_MEMBERS_MAX];
	struct cei_mouth         mouths[CEI_MEMBERS_MAX];
	uint32_t                 n_mouths;      /* that have a bell */
	int                      has_mouths;    /* they are in their intakes */
	struct cei_intake_plan  *slots;         /* CEI_CLIENT_PLANS_MAX: engines read them */
	struct cei_client_plan  *plans;         /* likewise, by slot */
	uint64_t                 n_stayed;      /* plans that stayed in its process, as it says */
	uint32_t                 n_plans;
	uint32_t                 n_regions;
	uint64_t                 n_chunks;
	uint64_t                 n_bytes;       /* mapped, as the account counts */
	uint64_t                 n_fds;         /* its descriptors, likewise */

	/* the task under way */
	struct cei_task          task;
	int                      has_task;
	struct cei_assembly      assembly;
	struct cei_service_handle asked;        /* of EXPLAIN and DROP */
	uint32_t                 asked_number;  /* of the request that is carried out; 0: hello */
	struct ceov_plan        *dropping;      /* out of its slot, until its launches have ended;
						 * else NULL */
	struct cei_service_message answer;
	int                      has_answer;    /* it was not sent yet, since the socket is full */
	int                      answer_fd;     /* -1: none */

	/* how it ends */
	struct cei_alive_watched watched;
	_Atomic int              must_end;      /* as soon as the task is done; the front thread
						 * sets it, and the porter looks at it */
	int                      end_error;     /* what its launches end with */
	int                      has_aborted;   /* its signals were aborted at its end */
	uint64_t                 abort_at_ns;   /* launches of a client that has said farewell may
						 * end by themselves before this point in time */
	_Atomic uint32_t         has_died;      /* set by the watch, ... */
	_Atomic uint32_t         is_faulty;     /* ... by engines, ... */
	_Atomic uint32_t         has_news;      /* ... and by its report: a launch has failed */
	_Atomic uint64_t         n_ended;       /* launches that have ended, ... */
	_Atomic uint64_t         n_failed;      /* ... and those among them that failed */
};

/* Takes a connection. NULL: it was refused, with a message to the client, and closed. */
struct cei_client *cei_client_new(struct cei_server *server, int fd);

/* Looks at what threads have noted about the client, and at what it did not say in time. */
void cei_client_look(struct cei_client *client, uint64_t now_ns);

/* Tells an open client that the engine is fenced, if one of its ranks is served by that. */
void cei_client_tell_fence(struct cei_client *client, uint32_t engine);

/* Ends the client; its launches end with the error. May be called again. It is freed when the last
 * of its memory is unmapped. */
void cei_client_end(struct cei_client *client, int error);

/* What the operator lets the client have. Any thread. */
struct cei_limits cei_client_limits(const struct cei_client *client);

/* What was moved for the client so far. What clients have that came when all shares were given away
 * is not known: see slot. Front thread. */
struct cei_usage cei_client_usage(struct cei_client *client);

/* The client's share of the engines is as its limits say from now on. */
void cei_client_set_share(struct cei_client *client);

#endif /* CEI_DAEMON_CLIENT_H */
