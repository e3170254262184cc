/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* A set as bits in levels: bit i of a level says whether word i of the level below has a bit
 * set. */

#include "base/number_set.h"

#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#define WORD_BITS 64u

int cei_number_set_init(struct cei_number_set *set, uint32_t bound)
{
	uint64_t n_words = bound;

	memset(set, 0, sizeof(*set));
	do {
		/* If the bound is a multiple of 64, this is one word more than needed, because
		 * callers may ask for the bound itself. */
		n_words = n_words / WORD_BITS + 1;
		set->words[set->n_levels] = calloc(n_words, sizeof(uint64_t));
		if (!set->words[set->n_levels])
			return CEOV_ERR_NO_MEMORY;
		set->n_levels++;
	} while (n_words > 1);
	return 0;
}

void cei_number_set_fini(struct cei_number_set *set)
{
	uint32_t i;

	for (i = 0; i < set->n_levels; i++)
		free(set->words[i]);
	memset(set, 0, sizeof(*set));
}

void cei_number_set_put(struct cei_number_set *set, uint32_t number)
{
	uint32_t i;

	for (i = 0; i < set->n_levels; i++, number /= WORD_BITS)
		set->words[i][number / WORD_BITS] |= UINT64_C(1) << number % WORD_BITS;
}

void cei_number_set_take(struct cei_number_set *set, uint32_t number)
{
	uint64_t *word;
	uint32_t i;

	for (i = 0; i < set->n_levels; i++, number /= WORD_BITS) {
		word = &set->words[i][number / WORD_BITS];
		*word &= ~(UINT64_C(1) << number % WORD_BITS);
		if (*word)
			return;
	}
}

static uint32_t highest(uint64_t word)
{
	return WORD_BITS - 1 - (uint32_t)__builtin_clzll(word);
}

uint32_t cei_number_set_before(const struct cei_number_set *set, uint32_t number)
{
	uint64_t found;
	uint32_t i;

	for (i = 0; i < set->n_levels; i++, number /= WORD_BITS) {
		found = set->words[i][number / WORD_BITS] &
			((UINT64_C(1) << number % WORD_BITS) - 1);
		if (!found)
			continue;
		number = number / WORD_BITS * WORD_BITS + highest(found);
		while (i-- > 0)
			number = number * WORD_BITS + highest(set->words[i][number]);
		return number;
	}
	return CEI_NO_NUMBER;
}

static uint32_t lowest(uint64_t word)
{
	return (uint32_t)__builtin_ctzll(word);
}

uint32_t cei_number_set_after(const struct cei_number_set *set, uint32_t number)
{
	uint64_t found;
	uint32_t i;

	for (i = 0; i < set->n_levels; i++, number /= WORD_BITS) {
		found = set->words[i][number / WORD_BITS] &
			~UINT64_C(1) << number % WORD_BITS;
		if (!found)
			continue;
		number = number / WORD_BITS * WORD_BITS + lowest(found);
		while (i-- > 0)
			number = number * WORD_BITS + lowest(set->words[i][number]);
		return number;
	}
	return CEI_NO_NUMBER;
}
