/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_NUMBER_SET_H
#define CEI_NUMBER_SET_H

/*
 * A set of numbers below a bound, in which the next smaller or larger member is found quickly.
 * There is a bit for each number, and levels of bits above: for each 64 bits of a level the next
 * level has one bit, which says whether any of them is set. Each call takes a few steps, whatever
 * the set contains. Callers serialise calls on one set.
 */

#include <stdint.h>

#define CEI_NUMBER_SET_LEVELS 6u        /* enough for any bound: 64^6 is above 2^32 */
#define CEI_NO_NUMBER         UINT32_MAX

struct cei_number_set {
	uint64_t *words[CEI_NUMBER_SET_LEVELS]; /* words[0]: a bit for each number; words[i]: a
						 * bit for each word of level i - 1 */
	uint32_t  n_levels;
};

/* Initialises an empty set for numbers below `bound`. CEOV_ERR_NO_MEMORY, not raised: the caller
 * must still call cei_number_set_fini(), which also accepts a zeroed set. */
int  cei_number_set_init(struct cei_number_set *set, uint32_t bound);
void cei_number_set_fini(struct cei_number_set *set);

/* Add and remove a number. Adding a number that is in the set, or removing one that is not, has
 * no effect. */
void cei_number_set_put(struct cei_number_set *set, uint32_t number);
void cei_number_set_take(struct cei_number_set *set, uint32_t number);

/* Return the next smaller or larger number in the set, or CEI_NO_NUMBER. The given number need
 * not be in the set; it may be the bound itself. */
uint32_t cei_number_set_before(const struct cei_number_set *set, uint32_t number);
uint32_t cei_number_set_after(const struct cei_number_set *set, uint32_t number);

#endif /* CEI_NUMBER_SET_H */
