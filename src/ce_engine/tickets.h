/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_TICKETS_H
#define CEI_TICKETS_H

/*
 * The launches in flight of a context, and how those that have ended ended.
 *
 * A launch has slot number % CEI_TICKETS until it ends. A number whose slot is still taken
 * is passed over, so numbers rise, and a launch that takes long holds up no other. Passing
 * over costs little: in one round through the slots each is passed over once.
 *
 * What has left its slot and is not among the failures went well. So only failures take
 * memory, and a result is lost only when that many later ones have failed.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define CEI_TICKETS      4096u          /* launches in flight, per context */
#define CEI_FAILURES_MAX 4096u          /* failed launches whose results are kept */

struct ceov_plan;

struct cei_ticket_slot {
	_Atomic uint64_t  number;       /* 0: none, or just changing */
	_Atomic uint32_t  turn;         /* odd while a launch is in flight; rises with each
					 * begin and end, so who sleeps on it for an old
					 * launch does not sleep for a newer one */
	_Atomic uint32_t  n_waiters;
	_Atomic int       result;
	uint64_t          before;       /* tickets' lock: the number that it had before */
	struct ceov_plan *plan;         /* likewise; a plan outlives its launches in flight */
};

struct cei_failed_launch {
	uint64_t number;
	int      result;
};

struct cei_tickets {
	pthread_mutex_t          lock;
	uint64_t                 last;          /* lock: the newest number */
	uint64_t                 n_failed;      /* lock: ever */
	uint64_t                 forgotten;     /* lock: the largest number of a failure that
						 * is not kept any more */
	struct cei_failed_launch failed[CEI_FAILURES_MAX];      /* lock: a ring */
	struct cei_ticket_slot   slots[CEI_TICKETS];
};

/* The tickets are zeroed before. */
void cei_tickets_init(struct cei_tickets *tickets);
void cei_tickets_fini(struct cei_tickets *tickets);

/* Any thread: a number, and the slot that has it. CEOV_FULL: CEI_TICKETS are in flight. */
int  cei_tickets_take(struct cei_tickets *tickets, struct ceov_plan *plan,
		      uint64_t *ret_number, struct cei_ticket_slot **ret_slot);

/* The launch could not begin: its number was never issued. */
void cei_tickets_give_back(struct cei_tickets *tickets, struct cei_ticket_slot *slot);

/* Engine's thread: the launch has ended. Takes the lock for failures only. */
void cei_tickets_publish(struct cei_tickets *tickets, struct cei_ticket_slot *slot,
			 int result);

/* Waits until the launch has ended, at most timeout_ns. 0, and CEOV_PENDING or the result.
 * CEOV_NONE: the result is not kept any more. CEOV_ERR_INVALID, not raised: there is no
 * launch of that number. */
int  cei_tickets_wait(struct cei_tickets *tickets, uint64_t number, uint64_t timeout_ns,
		      int *ret_result);

/* The plan of a launch in flight; NULL: it has ended, or there is none. */
struct ceov_plan *cei_tickets_plan(struct cei_tickets *tickets, uint64_t number);

#endif /* CEI_TICKETS_H */
