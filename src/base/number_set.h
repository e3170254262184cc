/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_NUMBER_SET_H
#define CEI_NUMBER_SET_H

/*
 * A set of numbers below a bound, which finds the neighbours of any number: bits, and above
 * each 64 of them one bit that says whether there is any. Each call takes a few steps,
 * whatever the set holds. Not for threads.
 */

#include <stdint.h>

#define CEI_NUMBER_SET_LEVELS 6u        /* 64 to this power is more than 32 bits count */
#define CEI_NO_NUMBER         UINT32_MAX

struct cei_number_set {
	uint64_t *words[CEI_NUMBER_SET_LEVELS]; /* words[0]: a bit for each number; words[i]: a
						 * bit for each word of level i - 1 */
	uint32_t  n_levels;
};

/* Empty, for numbers below `bound`. CEOV_ERR_NO_MEMORY, not raised; then fini, which
 * accepts zeroes, too. */
int  cei_number_set_init(struct cei_number_set *set, uint32_t bound);
void cei_number_set_fini(struct cei_number_set *set);

/* Adds and takes away; what is in, or not in, already stays so. */
void cei_number_set_put(struct cei_number_set *set, uint32_t number);
void cei_number_set_take(struct cei_number_set *set, uint32_t number);

/* The next smaller or larger number that is in the set, or CEI_NO_NUMBER. The given one
 * need not be in; it may be the bound itself. */
uint32_t cei_number_set_before(const struct cei_number_set *set, uint32_t number);
uint32_t cei_number_set_after(const struct cei_number_set *set, uint32_t number);

#endif /* CEI_NUMBER_SET_H */
