/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_MEANS_H
#define CEI_MEANS_H

/*
 * What a means of an exchange is, for net/exchange.h: a table of functions, and the exchange that
 * they work on. Each means is in the file of its name.
 */

#include <stdint.h>

#include "base/report.h"
#include "base/site.h"
#include "net/gathered.h"
#include "net/links.h"
#include "net/record.h"

enum cei_means {
	CEI_MEANS_SHOWN = 0,            /* what the environment shows */
	CEI_MEANS_CALLBACK,
	CEI_MEANS_PMIX,
	CEI_MEANS_STORE,
};

#define CEI_WHERE_BYTES 1024u

/* How much longer than its own deadline a process waits for process 0, whose deadline passes at
 * about the same time and which names the missing processes. */
#define CEI_EXCHANGE_GRACE_NS UINT64_C(250000000)

/* Gathers n_bytes of each process, the same number at all, into ret_all, in the order of
 * processes. All processes call it equally often. Returns 0, or anything else for a failure. */
typedef int (*cei_all_gather_call)(void *arg, const void *own, size_t n_bytes, void *ret_all,
				   uint64_t timeout_ns);

struct cei_exchange_config {
	struct cei_report       *report;
	uint32_t                 means;         /* enum cei_means */
	uint32_t                 process;       /* this process, if n_processes is not 0 */
	uint32_t                 n_processes;   /* 0: as the means has it */
	cei_all_gather_call      all_gather;    /* NULL: none; needs n_processes */
	void                    *all_gather_arg;
	const char              *where;         /* "host:port" of the store; NULL:
						 * CEOVERLAP_STORE, or as the means has it */
	const char              *job;           /* tells jobs apart; NULL: CEOVERLAP_JOB, or as the
						 * means has it */
};

struct cei_exchange {
	const struct cei_exchange_ops *ops;
	struct cei_exchange_config     config;  /* where and job: not used after open; means: the
						 * one that was chosen */
	/* A store only, at a path instead of an address: processes of the node of this site meet
	 * there. They are numbered by their ranks, and there are as many as the group has ranks, of
	 * which a process holds several. NULL: at an address. */
	const struct cei_site         *site;
	uint32_t                       first;           /* whose store it is: 0; of a node its
							 * lowest rank */
	uint32_t                       process;
	uint32_t                       n_processes;     /* 0: known after ops->open */
	uint32_t                       n_rounds;        /* all-gathers that were begun */
	char                           job[CEI_JOB_BYTES];
	char                           where[CEI_WHERE_BYTES];
	void                          *private;         /* of the means */
};

struct cei_exchange_ops {
	const char *name;               /* as CEOVERLAP_BOOTSTRAP has it */

	/* Returns 1 if config or environment show this means, and fills process, n_processes, job
	 * and where, as far as config does not say them. 0: not shown. Errors are raised. */
	int  (*detect)(struct cei_exchange *exchange);

	/* Errors are raised, and leave nothing to close. NULL: nothing to open. */
	int  (*open)(struct cei_exchange *exchange, uint64_t deadline_ns);

	/* As cei_exchange_all_gather(). */
	int  (*all_gather)(struct cei_exchange *exchange, const void *own, uint32_t n_bytes,
			   uint64_t deadline_ns, struct cei_gathered *ret_gathered);

	/* NULL: nothing to close. */
	void (*close)(struct cei_exchange *exchange);
};

/* Meets the processes of this node at a path, with a store that was opened with a site, and instead
 * of all_gather. Errors are raised, and leave no links. */
int cei_exchange_links(struct cei_exchange *exchange, uint64_t deadline_ns,
		       struct cei_links *ret_links);

extern const struct cei_exchange_ops cei_exchange_callback;
extern const struct cei_exchange_ops cei_exchange_pmix;
extern const struct cei_exchange_ops cei_exchange_store;

#endif /* CEI_MEANS_H */
