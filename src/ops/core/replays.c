/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The table of runs of replays.h. */

#include "ops/core/replays.h"

#include <string.h>

/* FNV-1a (Fowler, Noll, Vo), 64 bits, over words instead of bytes. */
#define HASH_BASIS UINT64_C(0xcbf29ce484222325)
#define HASH_PRIME UINT64_C(0x100000001b3)

static uint64_t hash_of(const struct cei_replay_key *key)
{
	uint64_t hash = (HASH_BASIS ^ (uint64_t)(uintptr_t)key->op) * HASH_PRIME, word;
	uint32_t at;

	hash = (hash ^ key->half) * HASH_PRIME;
	for (at = 0; at + sizeof(word) <= key->n_bytes; at += sizeof(word)) {
		memcpy(&word, (const char *)key->operands + at, sizeof(word));
		hash = (hash ^ word) * HASH_PRIME;
	}
	return hash;
}

static int is_of(const struct cei_replay *replay, const struct cei_replay_key *key)
{
	return replay->op == key->op && replay->half == key->half &&
	       replay->n_bytes == key->n_bytes &&
	       !memcmp(replay->operands, key->operands, key->n_bytes);
}

static struct cei_replay *find(struct cei_replays *replays, const struct cei_replay_key *key,
			       uint64_t hash)
{
	uint32_t i;

	for (i = 0; i < replays->n; i++)
		if (replays->replay[i].hash == hash && is_of(&replays->replay[i], key))
			return &replays->replay[i];
	return NULL;
}

/* A free entry, or the one that was unused for longest, if that is long enough. */
static struct cei_replay *take_room(struct cei_replays *replays, void **ret_dropped)
{
	struct cei_replay *oldest = &replays->replay[0];
	uint32_t i;

	if (replays->n < CEI_REPLAYS_MAX)
		return &replays->replay[replays->n++];
	for (i = 1; i < replays->n; i++)
		if (replays->replay[i].last < oldest->last)
			oldest = &replays->replay[i];
	if (replays->n_runs - oldest->last < CEI_REPLAYS_STALE)
		return NULL;
	*ret_dropped = oldest->graph;
	return oldest;
}

static void fill(struct cei_replay *replay, const struct cei_replay_key *key, uint64_t hash)
{
	memset(replay, 0, sizeof(*replay));
	replay->op = key->op;
	replay->half = key->half;
	replay->n_bytes = key->n_bytes;
	memcpy(replay->operands, key->operands, key->n_bytes);
	replay->hash = hash;
}

struct cei_replay *cei_replays_see(struct cei_replays *replays,
				   const struct cei_replay_key *key, void **ret_dropped)
{
	uint64_t hash;
	struct cei_replay *replay;

	*ret_dropped = NULL;
	replays->n_runs++;
	if (key->n_bytes > CEI_REPLAY_OPERANDS_MAX)
		return NULL;
	hash = hash_of(key);
	replay = find(replays, key, hash);
	if (!replay) {
		replay = take_room(replays, ret_dropped);
		if (!replay)
			return NULL;
		fill(replay, key, hash);
	}
	replay->last = replays->n_runs;
	replay->n_seen++;
	return replay;
}

int cei_replays_forget(struct cei_replays *replays, const ceov_op *op, void **ret_dropped)
{
	uint32_t i;

	for (i = 0; i < replays->n; i++) {
		if (op && replays->replay[i].op != op)
			continue;
		*ret_dropped = replays->replay[i].graph;
		replays->replay[i] = replays->replay[--replays->n];
		return 1;
	}
	return 0;
}
