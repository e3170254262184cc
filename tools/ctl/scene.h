/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CTL_SCENE_H
#define CTL_SCENE_H

/* What monitor shows: rows of links and of clients, with rates between two answers. */

#include <stdint.h>

#include <json-c/json.h>

#define SCENE_LINKS   129u
#define SCENE_CLIENTS 256u
#define SCENE_HISTORY 64u

enum scene_class { SCENE_URGENT, SCENE_NORMAL, SCENE_BACKGROUND, SCENE_CLASSES };

struct scene_row {
	char     name[48];              /* of the link, or of the client's program */
	char     user[32];              /* of a client */
	char     class[16];             /* likewise */
	uint64_t key;                   /* likewise: its number, ... */
	uint64_t pid;                   /* ... and its process */
	uint64_t bytes[SCENE_CLASSES];
	uint64_t rate[SCENE_CLASSES];   /* bytes per second */
	uint64_t rated;                 /* bytes per second of a link; 0: not known */
	uint64_t waiting;               /* chunks */
	uint64_t moving;                /* likewise, of a link */
	uint64_t plans;                 /* of a client */
	uint64_t unarbitrated;          /* likewise */
	uint64_t wait_p99_us;           /* of a link, of its most urgent class that moved */
	uint64_t copy_p99_us;
};

struct scene {
	uint64_t         at_ns;         /* of the answer */
	uint32_t         n_links;
	uint32_t         n_clients;     /* rows; ... */
	uint32_t         n_clients_more;        /* ... so many have none */
	struct scene_row links[SCENE_LINKS];
	struct scene_row clients[SCENE_CLIENTS];
	char             head[160];     /* the daemon in a line */
	double           fairness;
	uint64_t         rate;          /* of all links */
	uint64_t         history[SCENE_HISTORY];        /* rates before, the newest last */
	uint32_t         n_history;
};

/* Fills the scene from an answer; rates are since `before`, or 0 if that is NULL. */
void scene_fill(struct scene *scene, struct json_object *answer, const struct scene *before);

/* The rate of a row's classes together. */
uint64_t scene_rate(const struct scene_row *row);

#endif /* CTL_SCENE_H */
