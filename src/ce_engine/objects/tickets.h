/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_TICKETS_H
#define CEI_TICKETS_H

/*
 * The launches in flight of a context, and the results of those that have ended.
 *
 * A launch occupies slot number % CEI_TICKETS until it ends. A number whose slot is still
 * occupied is skipped: so numbers rise, and a long launch delays no other. Skipping is
 * cheap, because each slot is skipped once per round.
 *
 * A launch that is not in its slot and not among the failures has succeeded. So only
 * failures take memory, and a result is lost only when that many later launches have
 * failed.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define CEI_TICKETS      4096u          /* launches in flight, per context */
#define CEI_FAILURES_MAX 4096u          /* failed launches whose results are kept */

struct ceov_plan;

struct cei_ticket_slot {
	_Atomic uint64_t  number;       /* 0: none, or being changed */
	_Atomic uint32_t  turn;         /* odd while a launch is in flight; it rises at each begin
					 * and end, so that a sleeper for an old launch does not
					 * sleep through a newer one */
	_Atomic uint32_t  n_waiters;
	_Atomic int       result;
	uint64_t          before;       /* the slot's previous number; with the lock */
	struct ceov_plan *plan;         /* likewise; a plan outlives its launches in flight */
};

struct cei_failed_launch {
	uint64_t number;
	int      result;
};

struct cei_tickets {
	pthread_mutex_t          lock;
	uint64_t                 last;          /* lock: the newest number */
	uint64_t                 n_failed;      /* lock: failures that were kept, ever; modulo
						 * CEI_FAILURES_MAX the next cell of the ring */
	uint64_t                 forgotten;     /* lock: the largest number of a failure that
						 * is not kept any more */
	struct cei_failed_launch failed[CEI_FAILURES_MAX];      /* lock: a ring */
	struct cei_ticket_slot   slots[CEI_TICKETS];
};

/* The tickets are zeroed before. */
void cei_tickets_init(struct cei_tickets *tickets);
void cei_tickets_fini(struct cei_tickets *tickets);

/* Takes a number and its slot. CEOV_FULL: CEI_TICKETS launches are in flight. Any thread. */
int  cei_tickets_take(struct cei_tickets *tickets, struct ceov_plan *plan,
		      uint64_t *ret_number, struct cei_ticket_slot **ret_slot);

/* Gives back the number and slot of a launch that could not begin; the number counts as never
 * issued. */
void cei_tickets_give_back(struct cei_tickets *tickets, struct cei_ticket_slot *slot);

/* Publishes a launch's result, which ends it. Takes the lock for failures only. Engine's thread. */
void cei_tickets_publish(struct cei_tickets *tickets, struct cei_ticket_slot *slot,
			 int result);

/* Waits until the launch has ended, at most timeout_ns. 0, and CEOV_PENDING or the result.
 * CEOV_NONE: the result is not kept any more. CEOV_ERR_INVALID, not raised: there is no
 * launch of that number. */
int  cei_tickets_wait(struct cei_tickets *tickets, uint64_t number, uint64_t timeout_ns,
		      int *ret_result);

/* Returns the plan of a launch in flight; NULL: it has ended, or there is none of that number. */
struct ceov_plan *cei_tickets_plan(struct cei_tickets *tickets, uint64_t number);

#endif /* CEI_TICKETS_H */
