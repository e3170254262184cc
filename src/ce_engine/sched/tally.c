/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Counts what one engine moves. All atomics are relaxed: see tally.h. */

#include "ce_engine/sched/tally.h"

#include <stdlib.h>

#include "ce_engine/objects/context.h"

#define NS_PER_US UINT64_C(1000)

static uint64_t load(const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_relaxed);
}

static uint32_t load_count(const _Atomic uint32_t *word)
{
	return atomic_load_explicit(word, memory_order_relaxed);
}

/* There is one writer, so no instruction has to read and write at once. */
static void add(_Atomic uint64_t *word, uint64_t n)
{
	atomic_store_explicit(word, load(word) + n, memory_order_relaxed);
}

static void add_count(_Atomic uint32_t *word, int n)
{
	atomic_store_explicit(word, load_count(word) + (uint32_t)n, memory_order_relaxed);
}

struct cei_tally *cei_tally_create(void)
{
	struct cei_tally *tally = calloc(1, sizeof(*tally));

	if (tally)
		pthread_mutex_init(&tally->lock, NULL);
	return tally;
}

void cei_tally_destroy(struct cei_tally *tally)
{
	if (!tally)
		return;
	pthread_mutex_destroy(&tally->lock);
	free(tally);
}

void cei_tally_aim(struct cei_tally *tally, uint32_t urgency, uint64_t aim_ns)
{
	atomic_store_explicit(&tally->aim_ns[urgency], aim_ns, memory_order_relaxed);
}

/* --- writing ---------------------------------------------------------------- */

/* Finds or makes the link's place. The engine's thread alone changes the table, so it needs the
 * lock for that only. */
static uint16_t place_of(struct cei_tally *tally, const struct cei_machine_link *link)
{
	uint32_t i;

	for (i = 0; i < tally->n_links; i++)
		if (tally->links[i].link == link)
			return (uint16_t)i;
	if (i == CEI_TALLY_LINKS)
		return CEI_TALLY_LINKS - 1;
	pthread_mutex_lock(&tally->lock);
	tally->links[i].link = i < CEI_TALLY_LINKS - 1 ? link : NULL;
	tally->n_links = i + 1;
	pthread_mutex_unlock(&tally->lock);
	return (uint16_t)i;
}

void cei_tally_wait(struct cei_tally *tally, struct cei_chunk *chunk)
{
	const struct cei_step *step = cei_chunk_step(chunk);
	struct cei_job *job = &chunk->job;

	/* where no machine is known, links are told apart by direction alone */
	job->tally = place_of(tally, step->link ? step->link : cei_link_default(step->direction));
	add_count(&tally->links[job->tally].n_waiting, 1);
	add_count(&tally->n_waiting[job->client], 1);
}

static void end_waiting(struct cei_tally *tally, const struct cei_job *job)
{
	add_count(&tally->links[job->tally].n_waiting, -1);
	add_count(&tally->n_waiting[job->client], -1);
}

void cei_tally_go(struct cei_tally *tally, struct cei_chunk *chunk, uint64_t now_ns)
{
	end_waiting(tally, &chunk->job);
	chunk->job.chosen_ns = now_ns;
	add_count(&tally->links[chunk->job.tally].n_moving, 1);
}

static uint32_t bucket_of(uint64_t ns)
{
	uint64_t us = ns / NS_PER_US;
	uint32_t i = us ? 64u - (uint32_t)__builtin_clzll(us) : 0;

	return i < CEI_TALLY_BUCKETS ? i : CEI_TALLY_BUCKETS - 1;
}

static void add_time(struct cei_tally_times *times, uint64_t ns)
{
	add(&times->n[bucket_of(ns)], 1);
	add(&times->sum_ns, ns);
}

static uint64_t between(uint64_t from_ns, uint64_t to_ns)
{
	return to_ns > from_ns ? to_ns - from_ns : 0;
}

static void count(struct cei_tally *tally, const struct cei_tally_record *record)
{
	struct cei_tally_class *class = &tally->links[record->link].classes[record->urgency];
	uint64_t aim_ns = load(&tally->aim_ns[record->urgency]);

	add(&class->bytes, record->bytes);
	add_time(&class->waited, record->waited_ns);
	add_time(&class->moved, record->moved_ns);
	if (!aim_ns)
		return;
	add(&class->n_aimed, 1);
	if (record->waited_ns + record->moved_ns <= aim_ns)
		add(&class->n_in_time, 1);
}

static void remember(struct cei_tally *tally, const struct cei_tally_record *record)
{
	pthread_mutex_lock(&tally->lock);
	tally->records[tally->n_records++ % CEI_TALLY_RECORDS] = *record;
	pthread_mutex_unlock(&tally->lock);
}

void cei_tally_leave(struct cei_tally *tally, const struct cei_chunk *chunk, uint64_t now_ns)
{
	const struct cei_launch *launch = chunk->launch;
	const struct cei_job *job = &chunk->job;
	struct cei_tally_record record;

	if (job->state == CEI_JOB_WAITING)
		end_waiting(tally, job);
	if (job->state != CEI_JOB_MOVING)
		return;
	add_count(&tally->links[job->tally].n_moving, -1);
	record = (struct cei_tally_record){
		.done_ns = now_ns,
		.waited_ns = between(job->ready_ns, job->chosen_ns),
		.moved_ns = between(job->chosen_ns, now_ns),
		.bytes = job->bytes,
		.launch = launch->number,
		.chunk = chunk->index - cei_chunk_step(chunk)->first_chunk,
		.transfer = cei_chunk_cut(chunk)->step,
		.client = job->client,
		.lane = job->lane,
		.link = job->tally,
		.urgency = job->urgency,
		.error = launch->error,
	};
	count(tally, &record);
	remember(tally, &record);
}

/* --- reading ---------------------------------------------------------------- */

static void read_times(const struct cei_tally_times *times, struct cei_tally_times_view *view)
{
	uint64_t n;
	uint32_t i;

	view->sum_ns += load(&times->sum_ns);
	for (i = 0; i < CEI_TALLY_BUCKETS; i++) {
		n = load(&times->n[i]);
		view->n[i] += n;
		view->n_all += n;
	}
}

uint32_t cei_tally_n_links(struct cei_tally *tally)
{
	uint32_t n_links;

	pthread_mutex_lock(&tally->lock);
	n_links = tally->n_links;
	pthread_mutex_unlock(&tally->lock);
	return n_links;
}

const struct cei_machine_link *cei_tally_link(struct cei_tally *tally, uint32_t at)
{
	const struct cei_machine_link *link = NULL;

	pthread_mutex_lock(&tally->lock);
	if (at < tally->n_links)
		link = tally->links[at].link;
	pthread_mutex_unlock(&tally->lock);
	return link;
}

int cei_tally_read_link(struct cei_tally *tally, uint32_t at, struct cei_tally_link_view *view)
{
	const struct cei_tally_class *class;
	struct cei_tally_link *link;
	uint32_t i;

	if (at >= cei_tally_n_links(tally))
		return 0;
	link = &tally->links[at];
	view->n_waiting += load_count(&link->n_waiting);
	view->n_moving += load_count(&link->n_moving);
	for (i = 0; i < CEI_FLOWS_URGENCIES; i++) {
		class = &link->classes[i];
		view->classes[i].bytes += load(&class->bytes);
		view->classes[i].n_aimed += load(&class->n_aimed);
		view->classes[i].n_in_time += load(&class->n_in_time);
		read_times(&class->waited, &view->classes[i].waited);
		read_times(&class->moved, &view->classes[i].moved);
	}
	return 1;
}

uint32_t cei_tally_waiting(struct cei_tally *tally, uint32_t client)
{
	return load_count(&tally->n_waiting[client]);
}

uint32_t cei_tally_read_last(struct cei_tally *tally, uint32_t n,
			     struct cei_tally_record *ret_records)
{
	uint64_t at;
	uint32_t i;

	pthread_mutex_lock(&tally->lock);
	if (n > CEI_TALLY_RECORDS)
		n = CEI_TALLY_RECORDS;
	if (n > tally->n_records)
		n = (uint32_t)tally->n_records;
	at = tally->n_records - n;
	for (i = 0; i < n; i++)
		ret_records[i] = tally->records[(at + i) % CEI_TALLY_RECORDS];
	pthread_mutex_unlock(&tally->lock);
	return n;
}
