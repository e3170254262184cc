/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Counts streams that wait. Each of them has a slot, which holds the stream and the number of
 * its last wait. */

#include "backend/waits.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES 4096u

struct slot {
	const void *stream;
	uint64_t    number;             /* number of its last wait; 0: the slot is free */
	int         is_marked;          /* its stream writes the number when the wait is over */
};

struct cei_waits {
	/* First, and aligned to whole pages, because the driver registers pages. */
	_Alignas(PAGE_BYTES) _Atomic uint64_t words[PAGE_BYTES / sizeof(uint64_t)];
	pthread_mutex_t  lock;          /* guards the rest, except the atomics */
	_Atomic int      allows_marks;
	_Atomic uint32_t n_taken;       /* slots that are not free; read without the lock, as
					 * an upper bound of the count */
	_Atomic uint32_t n_lanes;       /* lanes that wait */
	_Atomic uint32_t n_most;        /* the most streams that waited at once, ever */
	uint64_t         n_waits;       /* number of the last wait */
	struct slot      slots[CEI_WAITS_SLOTS];
};

_Static_assert(CEI_WAITS_SLOTS <= PAGE_BYTES / sizeof(uint64_t), "a word for each slot");

/* Hardware queues belong to the process, so these counts do, too. */
static struct cei_waits all[CEI_WAITS_GPUS_MAX];
static pthread_once_t   all_once = PTHREAD_ONCE_INIT;

static void init_all(void)
{
	uint32_t i;

	for (i = 0; i < CEI_WAITS_GPUS_MAX; i++)
		pthread_mutex_init(&all[i].lock, NULL);
}

struct cei_waits *cei_waits_of(uint32_t gpu)
{
	if (gpu >= CEI_WAITS_GPUS_MAX)
		return NULL;
	pthread_once(&all_once, init_all);
	return &all[gpu];
}

_Atomic uint64_t *cei_waits_words(struct cei_waits *waits, uint64_t *ret_n_bytes)
{
	*ret_n_bytes = sizeof(waits->words);
	return waits->words;
}

void cei_waits_allow_marks(struct cei_waits *waits)
{
	/* relaxed: says only that words may be named to the driver from now on */
	atomic_store_explicit(&waits->allows_marks, 1, memory_order_relaxed);
}

/* Marks a slot as free. With the lock held. */
static void set_free(struct cei_waits *waits, struct slot *slot)
{
	memset(slot, 0, sizeof(*slot));
	/* relaxed: a hint for readers without the lock */
	atomic_fetch_sub_explicit(&waits->n_taken, 1, memory_order_relaxed);
}

/* Frees slots whose streams have written that their wait is over. With the lock held. */
static void sweep(struct cei_waits *waits)
{
	uint32_t i;

	for (i = 0; i < CEI_WAITS_SLOTS; i++)
		/* relaxed: only the number matters, no data is published with it */
		if (waits->slots[i].is_marked &&
		    atomic_load_explicit(&waits->words[i], memory_order_relaxed) >=
		    waits->slots[i].number)
			set_free(waits, &waits->slots[i]);
}

/* Finds the stream's slot, else a free one, else CEI_WAITS_SLOTS. With the lock held. */
static uint32_t slot_for(const struct cei_waits *waits, const void *stream)
{
	uint32_t i, found = CEI_WAITS_SLOTS;

	for (i = CEI_WAITS_SLOTS; i-- > 0;) {
		if (!waits->slots[i].number)
			found = i;
		else if (waits->slots[i].stream == stream)
			return i;
	}
	return found;
}

/* Returns whether a further wait needs a mark. With the lock held. */
static int wants_mark(struct cei_waits *waits)
{
	/* relaxed: both, see where they are written */
	return atomic_load_explicit(&waits->allows_marks, memory_order_relaxed) &&
	       atomic_load_explicit(&waits->n_taken, memory_order_relaxed) >
	       CEI_WAITS_UNMARKED;
}

static uint32_t upper_bound(struct cei_waits *waits)
{
	/* relaxed: both change at any time */
	return atomic_load_explicit(&waits->n_taken, memory_order_relaxed) +
	       atomic_load_explicit(&waits->n_lanes, memory_order_relaxed);
}

/* Updates n_most. With the lock held. */
static void keep_most(struct cei_waits *waits)
{
	uint32_t n = upper_bound(waits);

	/* relaxed: readers only compare n_most with a bound */
	if (n > atomic_load_explicit(&waits->n_most, memory_order_relaxed))
		atomic_store_explicit(&waits->n_most, n, memory_order_relaxed);
}

struct cei_wait cei_waits_enter(struct cei_waits *waits, const void *stream)
{
	struct cei_wait wait = { CEI_WAITS_SLOTS, 0, 0, 0 };
	struct slot *slot;

	if (!waits)
		return wait;
	pthread_mutex_lock(&waits->lock);
	sweep(waits);
	wait.slot = slot_for(waits, stream);
	if (wait.slot < CEI_WAITS_SLOTS) {
		slot = &waits->slots[wait.slot];
		wait.is_new = !slot->number;
		if (wait.is_new)
			/* relaxed: see set_free() */
			atomic_fetch_add_explicit(&waits->n_taken, 1, memory_order_relaxed);
		wait.number = ++waits->n_waits;
		wait.wants_mark = wants_mark(waits);
		slot->stream = stream;
		slot->number = wait.number;
		slot->is_marked = wait.wants_mark;
		keep_most(waits);
	}
	pthread_mutex_unlock(&waits->lock);
	return wait;
}

void cei_waits_leave(struct cei_waits *waits, const struct cei_wait *wait)
{
	if (!waits || wait->slot >= CEI_WAITS_SLOTS)
		return;
	pthread_mutex_lock(&waits->lock);
	if (waits->slots[wait->slot].number == wait->number)
		set_free(waits, &waits->slots[wait->slot]);
	pthread_mutex_unlock(&waits->lock);
}

void cei_waits_lane_begin(struct cei_waits *waits)
{
	/* relaxed: only compared with a bound, no data is published with it */
	if (waits)
		atomic_fetch_add_explicit(&waits->n_lanes, 1, memory_order_relaxed);
}

void cei_waits_lane_end(struct cei_waits *waits)
{
	/* relaxed: see cei_waits_lane_begin() */
	if (waits)
		atomic_fetch_sub_explicit(&waits->n_lanes, 1, memory_order_relaxed);
}

uint32_t cei_waits_count(struct cei_waits *waits)
{
	uint32_t n;

	if (!waits)
		return 0;
	pthread_mutex_lock(&waits->lock);
	sweep(waits);
	n = upper_bound(waits);
	pthread_mutex_unlock(&waits->lock);
	return n;
}

int cei_waits_is_below(struct cei_waits *waits, uint32_t bound)
{
	if (!waits || upper_bound(waits) < bound)
		return 1;
	return cei_waits_count(waits) < bound;
}

int cei_waits_may_block(struct cei_waits *waits, uint32_t bound)
{
	uint32_t many = bound < CEI_WAITS_MANY ? bound : CEI_WAITS_MANY;

	if (!waits)
		return 0;
	/* relaxed: see keep_most() */
	return atomic_load_explicit(&waits->n_most, memory_order_relaxed) >= many ||
	       !cei_waits_is_below(waits, many);
}

uint32_t cei_waits_n_queues(void)
{
	const char *text = secure_getenv("CUDA_DEVICE_MAX_CONNECTIONS");
	unsigned long n = text ? strtoul(text, NULL, 10) : 0;

	if (!n)
		return CEI_WAITS_QUEUES;
	return n < CEI_WAITS_QUEUES_MAX ? (uint32_t)n : CEI_WAITS_QUEUES_MAX;
}

uint32_t cei_waits_bound(uint32_t n_queues, uint32_t n_reserved)
{
	return n_queues > n_reserved + 1 ? n_queues - n_reserved : 1;
}
