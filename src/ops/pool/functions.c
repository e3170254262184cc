/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Functions of single pools, for allocators that pass on no context: which pool a function belongs
 * to follows from its own address alone. So there is a table of them for the process, the only
 * state here that belongs to no context. They are called with an allocator's locks held, and take
 * none but the table's and the pool's.
 */

#include "ops/pool/pool.h"

#include "ce_engine/objects/context.h"

#define PAIRS 16u

static ceov_pool *pools[PAIRS];         /* [pair]: whose it is; NULL: nobody's */
static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;

/* Keeps the lines of a call for the pool's thread, those of the first call if there are more. */
static void keep(ceov_pool *pool, struct cei_report_hold *hold)
{
	if (hold->is_open)
		cei_report_hold_keep(cei_channel_report(pool->channel), hold);
	pthread_mutex_lock(&pool->lock);
	if (hold->n_lines && !pool->untold.n_lines)
		pool->untold = *hold;
	pthread_mutex_unlock(&pool->lock);
}

void cei_pool_tell(ceov_pool *pool)
{
	struct cei_report_hold hold;

	pthread_mutex_lock(&pool->lock);
	hold = pool->untold;
	pool->untold.n_lines = 0;
	pthread_mutex_unlock(&pool->lock);
	cei_list_init(&hold.link);
	if (hold.n_lines)
		cei_report_let_go(cei_channel_report(pool->channel), &hold);
}

static void *allocate(uint32_t pair, size_t size_bytes)
{
	struct cei_report_hold hold;
	void *memory = NULL;
	ceov_pool *pool;

	pthread_mutex_lock(&pools_lock);
	pool = pools[pair];
	if (pool) {
		cei_report_hold_begin(cei_channel_report(pool->channel), &hold);
		if (ceov_pool_alloc(pool, size_bytes, &memory))
			memory = NULL;
		keep(pool, &hold);
	}
	pthread_mutex_unlock(&pools_lock);
	return memory;
}

/* What comes back after its pool has ended is nobody's. */
static void give_back(uint32_t pair, void *memory)
{
	struct cei_report_hold hold;
	ceov_pool *pool;

	pthread_mutex_lock(&pools_lock);
	pool = pools[pair];
	if (pool) {
		cei_report_hold_begin(cei_channel_report(pool->channel), &hold);
		(void)ceov_pool_free(pool, memory);
		keep(pool, &hold);
	}
	pthread_mutex_unlock(&pools_lock);
}

/* A function's address is all that it knows, so each pair needs its own two, which differ in a
 * number. No function makes functions in C. */
#define PAIR(n) \
	static void *allocate_##n(size_t size_bytes, int device, void *stream) \
	{ \
		(void)device; \
		(void)stream; \
		return allocate(n, size_bytes); \
	} \
	static void free_##n(void *memory, size_t size_bytes, int device, void *stream) \
	{ \
		(void)size_bytes; \
		(void)device; \
		(void)stream; \
		give_back(n, memory); \
	}

PAIR(0) PAIR(1) PAIR(2) PAIR(3) PAIR(4) PAIR(5) PAIR(6) PAIR(7)
PAIR(8) PAIR(9) PAIR(10) PAIR(11) PAIR(12) PAIR(13) PAIR(14) PAIR(15)

static const struct {
	ceov_pool_allocate_fn allocate;
	ceov_pool_free_fn     free;
} pairs[PAIRS] = {
	{ allocate_0, free_0 }, { allocate_1, free_1 }, { allocate_2, free_2 },
	{ allocate_3, free_3 }, { allocate_4, free_4 }, { allocate_5, free_5 },
	{ allocate_6, free_6 }, { allocate_7, free_7 }, { allocate_8, free_8 },
	{ allocate_9, free_9 }, { allocate_10, free_10 }, { allocate_11, free_11 },
	{ allocate_12, free_12 }, { allocate_13, free_13 }, { allocate_14, free_14 },
	{ allocate_15, free_15 },
};

/* Returns the pool's pair, a free one which is its own then, or PAIRS. */
static uint32_t pair_of(ceov_pool *pool)
{
	uint32_t i, pair = PAIRS;

	for (i = 0; i < PAIRS; i++) {
		if (pools[i] == pool)
			return i;
		if (!pools[i] && pair == PAIRS)
			pair = i;
	}
	if (pair < PAIRS)
		pools[pair] = pool;
	return pair;
}

int ceov_pool_functions(ceov_pool *pool, ceov_pool_allocate_fn *ret_allocate,
			ceov_pool_free_fn *ret_free)
{
	static const char call[] = "ceov_pool_functions";
	int r = cei_object_check(pool, &cei_pool_type, call);
	uint32_t pair;

	if (r)
		return r;
	if (!ret_allocate || !ret_free)
		return cei_raise(cei_channel_report(pool->channel), CEOV_ERR_INVALID, 0,
				 "%s: no ret_allocate or no ret_free", call);
	pthread_mutex_lock(&pools_lock);
	pair = pair_of(pool);
	pthread_mutex_unlock(&pools_lock);
	if (pair == PAIRS)
		return cei_raise(cei_channel_report(pool->channel), CEOV_ERR_NO_MEMORY, 0,
				 "%s: %u pools of this process have functions already: release "
				 "one", call, PAIRS);
	*ret_allocate = pairs[pair].allocate;
	*ret_free = pairs[pair].free;
	return 0;
}

void cei_pool_forget_functions(ceov_pool *pool)
{
	uint32_t i;

	pthread_mutex_lock(&pools_lock);
	for (i = 0; i < PAIRS; i++)
		if (pools[i] == pool)
			pools[i] = NULL;
	pthread_mutex_unlock(&pools_lock);
}
