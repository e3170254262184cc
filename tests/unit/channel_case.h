/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CHANNEL_CASE_H
#define CEI_CHANNEL_CASE_H

/*
 * Calls of channels: random ones, their operands, and checks of what they give. What a target has
 * to hold is computed from the seed alone, item by item, in another way than the library does it.
 * Asserts with Check.
 */

#include <stdint.h>

#include <ceoverlap/channel.h>

#define CHANNEL_RANKS_MAX 8u

/* A call as all ranks make it. */
struct channel_case {
	uint32_t            n_ranks;
	enum ceov_call_kind kind;
	enum ceov_dtype     dtype;
	enum ceov_reduction reduction;
	uint32_t            root;
	uint64_t            count;      /* all-reduce, broadcast, reduce: of the whole */
	int                 is_uneven;  /* 0: all sizes and blocks are `count` */
	uint64_t            sizes[CHANNEL_RANKS_MAX];   /* [rank]: items of its part: all-gather,
							 * gather, scatter, reduce-scatter */
	uint64_t            blocks[CHANNEL_RANKS_MAX][CHANNEL_RANKS_MAX];
							/* all-to-all: [source][target] */
	uint64_t            seed;       /* of its operands */
};

/* Makes the call of that number. Most are small; a few are several times as large as a ring. */
struct channel_case channel_case_random(uint64_t seed, uint32_t number, uint32_t n_ranks,
					uint64_t ring_bytes);

/* Makes an even call: sizes and blocks are count. */
struct channel_case channel_case_of(enum ceov_call_kind kind, enum ceov_dtype dtype,
				    uint32_t n_ranks, uint64_t count);

/* Makes the call another one for this rank, in one of so many ways. Some peer sees that. */
#define CHANNEL_CHANGES 6u
void channel_case_change(struct channel_case *one, uint32_t rank, uint32_t way);

int channel_case_is_sum(const struct channel_case *one);

/* How a rank gives its memory. */
struct channel_form {
	int      is_in_place;           /* where the kind has such a form */
	int      has_lists;             /* of counts, even where those are even */
	uint32_t source_shift;          /* bytes behind an aligned address, below 16 */
	uint32_t target_shift;
};

struct channel_form channel_form_random(uint64_t *random);

/* The memory of one rank in one call. */
struct channel_data {
	struct ceov_call call;
	uint64_t         sends[CHANNEL_RANKS_MAX];
	uint64_t         receives[CHANNEL_RANKS_MAX];
	char            *memory;        /* guards, source and target */
	char            *wanted;        /* what it has to hold after the call */
	uint64_t         n_bytes;
};

/* Makes the rank's operands and its call. The struct must not move afterwards. */
void channel_data_make(const struct channel_case *one, uint32_t rank,
		       const struct channel_form *form, struct channel_data *ret_data);
void channel_data_free(struct channel_data *data);

/* Returns the call for a copy of data->memory at that address, which has to be a multiple of 16:
 * memory of a GPU. What the call gives is to be copied back before it is checked. */
struct ceov_call channel_data_call_at(const struct channel_data *data, char *copy);

/* Asserts that the target is right and that nothing else was written to. Of a NaN the bits do not
 * matter. */
void channel_data_check(const struct channel_case *one, uint32_t rank,
			struct channel_data *data);

/* Asserts likewise that the call, which was refused or failed early, wrote nothing. */
void channel_data_check_unchanged(const struct channel_data *data);

/* Makes the case's call with random forms and checks it. Returns what the call returned; if that is
 * an error, nothing is checked. */
int channel_case_run(const struct channel_case *one, uint32_t rank, ceov_channel *channel,
		     uint64_t *random);

#endif /* CEI_CHANNEL_CASE_H */
