/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PEERS_FIXTURE_H
#define CEI_PEERS_FIXTURE_H

/*
 * A group whose processes are all in this one, for tests of the peers: those of a node have real
 * sockets to each other (ipc/carrier_unix.h), those of different nodes a post (post.h). Process i
 * holds rank i, process 0 also rank n.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "ipc/carrier_unix.h"
#include "ipc/peers/peers.h"
#include "post.h"
#include "testing.h"

#define WORLD_MAX  POST_MAX
#define NEWS_MAX   1024u
#define WORDS      4u

enum news_kind { LOST = 1, DEPARTED, ABORTED, RENEWED };

struct news {                           /* what was told upwards */
	enum news_kind         kind;
	uint32_t               number;  /* a rank; RENEWED: the owner */
	uint32_t               id;
	uint64_t               use;
	struct cei_group_abort abort;
};

struct process {
	struct world              *world;
	struct cei_report          report;
	struct cei_roster          roster;
	struct cei_links links;
	uint32_t                   n_ends;      /* of sockets: duplicates, to break them with */
	int                        ends[WORLD_MAX];
	struct cei_unix           *near;
	struct cei_peers          *peers;       /* NULL: it has closed */
	int                        is_turned;   /* it has no thread */
	_Atomic uint64_t           words[WORDS];
	pthread_mutex_t            upper;       /* the lock of the layer above, which events take */
	_Atomic uint32_t           n_in_event;
	void                     (*hook)(struct process *process, const struct news *news);
	pthread_mutex_t            lock;        /* guards what follows */
	uint32_t                   n_news;
	struct news                news[NEWS_MAX];
};

struct world {
	uint32_t          n;
	uint32_t          n_fds;                /* before it was opened */
	uint64_t          random;
	uint32_t          process_of[WORLD_MAX + 1], node_of[WORLD_MAX], first_rank[WORLD_MAX];
	uint32_t          in_node[WORLD_MAX], node_at[WORLD_MAX + 1];
	struct post       post;
	struct process    processes[WORLD_MAX];
};

struct world_config {
	uint32_t n;
	uint32_t node_of[WORLD_MAX];            /* from 0 on, without gaps */
	uint32_t turned;                        /* bits: processes that have no thread */
	uint32_t couriers;                      /* bits: whose offices have one */
	uint32_t fullness;                      /* of the post, see there */
	uint32_t busy;                          /* likewise */
	int      gives_up_slowly;               /* likewise */
	uint64_t timeout_ns;                    /* 0: TESTING_PATIENCE */
};

/* What all tests of one program use; opened by the test, closed by the fixture. */
extern struct world world;

void world_open(const struct world_config *config);

/* Closes in order: leaves, ends what calls events, frees. Does nothing to who has closed. */
void process_close(uint32_t process);

/* All its connections end, as if it were killed. It is still to be closed. */
void process_cut(uint32_t process);

struct cei_peers *peers_of(uint32_t process);

uint32_t draw(uint32_t limit);                  /* of any thread; below it */
void     rest(uint64_t ns);
uint32_t n_open_fds(void);

/* Exports a descriptor, and bytes that follow from the name; or counters. */
uint32_t export_file(uint32_t process, const char *name);
uint32_t export_words(uint32_t process, const char *name);

/* Finds with a deadline from now. 0: checks what was found, and closes the descriptor. */
int  find(uint32_t process, uint32_t rank, const char *name, uint64_t *ret_use);
int  find_within(uint32_t process, const struct cei_lookup *lookup, struct cei_group_found *found,
		 uint64_t *ret_use);

/* Calls it again and again until nobody uses the export. */
void withdraw(uint32_t process, uint32_t id);

/* Whether the news has come; waits for it; how many have come. */
int      has_news(uint32_t process, enum news_kind kind, uint32_t number);
void     await_news(uint32_t process, enum news_kind kind, uint32_t number);
uint32_t n_news_of(uint32_t process);
void     await_value(const _Atomic uint64_t *word, uint64_t value);

/* A thread that turns processes until it is stopped. */
struct turner {
	pthread_t   thread;
	uint32_t    process;
	_Atomic int must_stop;
};

void turner_start(struct turner *turner, uint32_t process);
void turner_stop(struct turner *turner);

/* Processes or callers, each in a thread, until all have returned. */
void run_all(uint32_t n, void *(*run)(void *));         /* the argument is a number, as a pointer */

int run_suite(const char *name, void (*add_tests)(TCase *));

#endif /* CEI_PEERS_FIXTURE_H */
