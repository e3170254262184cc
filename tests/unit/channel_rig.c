/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "unit/channel_rig.h"

#include <string.h>

ceov_channel *channel_made(ceov_context *context, uint32_t rank, const char *name,
			   uint64_t deadline_ns)
{
	struct ceov_channel_config config = { .struct_bytes = sizeof(config) };
	ceov_channel *channel = NULL;

	config.rank = rank;
	config.name = name;
	config.ring_bytes = CHANNEL_RING;
	config.deadline_ns = deadline_ns ? deadline_ns : TESTING_PATIENCE;
	ck_assert_int_eq(ceov_channel_create(context, &config, &channel), 0);
	return channel;
}

void channel_rig_connect(struct channel_rig *rig, const char *name, uint64_t deadline_ns)
{
	uint32_t i;

	for (i = 0; i < rig->n_ranks; i++)
		rig->channels[i] = channel_made(rig->context, i, name, deadline_ns);
	for (i = 0; i < rig->n_ranks; i++)
		ck_assert_int_eq(ceov_channel_connect(rig->channels[i], TESTING_PATIENCE), 0);
}

void channel_rig_open(struct channel_rig *rig, uint32_t n_ranks, uint64_t deadline_ns,
		      struct testing_log *log)
{
	memset(rig, 0, sizeof(*rig));
	rig->n_ranks = n_ranks;
	rig->context = testing_open(n_ranks, log);
	channel_rig_connect(rig, "rig", deadline_ns);
}

void channel_rig_open_beside(struct channel_rig *rig, const struct channel_rig *other,
			     const char *name)
{
	memset(rig, 0, sizeof(*rig));
	rig->n_ranks = other->n_ranks;
	rig->context = other->context;
	channel_rig_connect(rig, name, 0);
}

void channel_rig_release(struct channel_rig *rig)
{
	uint32_t round, i, n_left = 1;
	int r;

	/* the first round unmaps peers' memory, so that the second one can succeed */
	for (round = 0; round < 2 && n_left; round++) {
		for (i = n_left = 0; i < rig->n_ranks; i++) {
			r = ceov_channel_release(rig->channels[i]);
			ck_assert(r == 0 || r == CEOV_PENDING);
			if (!r)
				rig->channels[i] = NULL;
			n_left += r == CEOV_PENDING;
		}
	}
	ck_assert_uint_eq(n_left, 0);
}

void channel_rig_close(struct channel_rig *rig)
{
	channel_rig_release(rig);
	ceov_close(rig->context);
	rig->context = NULL;
}

struct thread {
	pthread_t           thread;
	struct channel_part part;
	void              (*body)(const struct channel_part *part);
};

static void *run_thread(void *arg)
{
	const struct thread *thread = arg;

	thread->body(&thread->part);
	return NULL;
}

void channel_rig_each(struct channel_rig *rig, void (*body)(const struct channel_part *part),
		      void *arg)
{
	struct thread threads[CHANNEL_RANKS_MAX];
	uint32_t i;

	for (i = 0; i < rig->n_ranks; i++) {
		threads[i].part = (struct channel_part){ rig, i, rig->channels[i], arg };
		threads[i].body = body;
		ck_assert_int_eq(pthread_create(&threads[i].thread, NULL, run_thread,
						&threads[i]), 0);
	}
	for (i = 0; i < rig->n_ranks; i++)
		pthread_join(threads[i].thread, NULL);
}

static void sum_few(const struct channel_part *part)
{
	struct channel_case one = channel_case_of(CEOV_ALL_REDUCE, CEOV_INT32, part->rig->n_ranks,
						  7);
	uint64_t random = part->rank;

	ck_assert_int_eq(channel_case_run(&one, part->rank, part->channel, &random), 0);
}

void channel_rig_works(struct channel_rig *rig)
{
	channel_rig_each(rig, sum_few, NULL);
}
