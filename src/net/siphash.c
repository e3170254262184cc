/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "net/siphash.h"

struct state {
	uint64_t v[4];
};

static uint64_t rotated(uint64_t word, unsigned by)
{
	return word << by | word >> (64 - by);
}

static void mix(struct state *state, unsigned n_rounds)
{
	uint64_t *v = state->v;

	while (n_rounds--) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = rotated(v[1], 13) ^ v[0];
		v[3] = rotated(v[3], 16) ^ v[2];
		v[0] = rotated(v[0], 32);
		v[2] += v[1];
		v[0] += v[3];
		v[1] = rotated(v[1], 17) ^ v[2];
		v[3] = rotated(v[3], 21) ^ v[0];
		v[2] = rotated(v[2], 32);
	}
}

/* Returns up to 8 bytes as a little-endian number. */
static uint64_t word_of(const uint8_t *bytes, size_t n_bytes)
{
	uint64_t word = 0;
	size_t i;

	for (i = 0; i < n_bytes; i++)
		word |= (uint64_t)bytes[i] << 8 * i;
	return word;
}

static void take(struct state *state, uint64_t word)
{
	state->v[3] ^= word;
	mix(state, 2);
	state->v[0] ^= word;
}

/* The four numbers are the ASCII letters "somepseudorandomlygeneratedbytes". */
uint64_t cei_siphash(const uint64_t key[2], const void *bytes, size_t n_bytes)
{
	const uint8_t *at = bytes;
	struct state state = { {
		key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
		key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573),
	} };
	size_t n_left;

	for (n_left = n_bytes; n_left >= 8; n_left -= 8, at += 8)
		take(&state, word_of(at, 8));
	take(&state, word_of(at, n_left) | (uint64_t)n_bytes << 56);
	state.v[2] ^= 0xff;
	mix(&state, 4);
	return state.v[0] ^ state.v[1] ^ state.v[2] ^ state.v[3];
}
