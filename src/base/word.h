/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_WORD_H
#define CEI_WORD_H

/* Raising a 64-bit counter in host memory that others may write to at the same time. */

#include <stdatomic.h>
#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

/* Raises the counter to the value, but never lowers it: poison, which an abort writes and which is
 * above all values, stays. CEOV_NONE: the counter is above the value. */
static inline int cei_word_raise(_Atomic uint64_t *word, uint64_t value)
{
	/* relaxed: this only tells whether the counter would be lowered; the exchange decides */
	uint64_t was = atomic_load_explicit(word, memory_order_relaxed);

	/* release: pairs with the acquire of whoever waits for the counter, and then sees what was
	 * written before */
	while (was < value)
		if (atomic_compare_exchange_weak_explicit(word, &was, value, memory_order_release,
							  memory_order_relaxed))
			return 0;
	return was == value ? 0 : CEOV_NONE;
}

#endif /* CEI_WORD_H */
