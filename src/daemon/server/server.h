/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_SERVER_H
#define CEI_DAEMON_SERVER_H

/*
 * The daemon: engines, and the clients that they work for.
 *
 *   front thread   front.c's loop (sd-event): connections, messages, deaths; does not wait, but
 *                  for name services when settings are read again
 *   porter         maps memory, commits plans, ends clients
 *   engines        launches from the clients' rings, to their ends
 *   alive          holds the words that tell clients that the daemon lives
 *   watch          looks at the words that tell which clients live
 */

#include <stdatomic.h>
#include <stdint.h>

#include "backend/place.h"
#include "base/list.h"
#include "base/report.h"
#include "ce_engine/objects/works.h"
#include "daemon/server/account.h"
#include "daemon/server/fences.h"
#include "daemon/server/intake.h"
#include "daemon/server/porter.h"
#include "daemon/server/settings.h"
#include "daemon/server/usage.h"
#include "ipc/alive.h"
#include "ipc/alive_watch.h"

struct cei_client;                      /* daemon/server/client.h */
struct cei_reload;                      /* daemon/server/reload.h */
struct sd_event;
struct sd_event_source;

struct cei_server_config {
	const char          *file;      /* the configuration file, which is read again on demand;
					 * NULL: none */
	struct cei_settings  settings;  /* of the file, and of the command line over them */
	struct cei_settings  of_file;   /* of the file alone, as it was at the start */
	int                  has_drain; /* the command line says drain_ns: files do not change it */
};

struct cei_server_hooks {               /* what an operator wants beside; NULL: nothing */
	void (*look)(void *arg, uint64_t now_ns);       /* often */
	void (*signal)(void *arg, uint32_t number);     /* SIGHUP and SIGUSR1 */
	void  *arg;
};

struct cei_server {
	struct cei_server_config config;
	struct cei_report        report;
	struct cei_site          site;
	struct cei_works         works;
	struct cei_intake intakes[CEI_MEMBERS_MAX];      /* by engine */
	uint64_t                 instance[2];
	struct cei_accounts      accounts;
	struct cei_porter        porter;
	struct cei_alive        *alive;
	struct cei_alive_watch  *watch;
	struct sd_event         *event;
	int                      listener;
	struct sd_event_source  *listening;     /* the listener's, while it is off for want of
						 * files; else NULL */
	int                      made_path;     /* the socket's file is ours to remove */
	int                      news;          /* eventfd: threads have noted something about
						 * clients */
	struct cei_list          clients;
	pthread_mutex_t          shares_lock;   /* guards that shares of the engines are given,
						 * changed and taken back */
	struct cei_usage_table   usage;         /* of clients that have gone */
	_Atomic uint64_t         n_errors[1 - CEI_ERROR_LOWEST];        /* launches that failed, by
						 * -error */
	struct cei_fences        fences;
	struct cei_server_hooks  hooks;         /* set after open, before run */
	char                    *metrics;       /* as they were rendered last; NULL: not yet */
	uint64_t                 metrics_until_ns;      /* they are rendered anew from then on */
	uint64_t                 began_ns;
	double                   fairness;      /* of late: see ceoverlapctl(1) */
	uint32_t                 timed_out;     /* number of the client of which a launch has passed
						 * its deadline last; 0: none since this was seen */
	struct cei_reload       *reload;        /* set after open, before run */
	struct cei_settings_fault fault;        /* why the file was not read again; "": it was */
	uint64_t                 n_reloads;
	uint32_t                 n_clients_ever;
	uint32_t                 next_host_engine;
	int                      is_draining;
	uint64_t                 drain_by_ns;
};

/* Opens engines, the socket and the loop. Zeroed before; on failure call cei_server_close(). Raises
 * to stderr. */
int  cei_server_open(struct cei_server *server, const struct cei_server_config *config);

/* Serves until SIGTERM or SIGINT; then launches in flight may end, by drain_ns. 0, or an error,
 * raised. */
int  cei_server_run(struct cei_server *server);

void cei_server_close(struct cei_server *server);

/* Takes no new clients and plans, and ends when all launches have; asked again, at once. */
void cei_server_drain(struct cei_server *server);

#endif /* CEI_DAEMON_SERVER_H */
