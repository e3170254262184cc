/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CHANNEL_ITEM_H
#define CEI_CHANNEL_ITEM_H

/* The items of random calls of channels, and their sums. */

#include "unit/channel_case.h"

#define CHANNEL_ITEM_MAX 16u            /* bytes */

int      channel_is_float(enum ceov_dtype dtype);

/* Returns the bytes of an item; 0: a barrier has none. */
uint64_t channel_item_bytes(const struct channel_case *one);

/* Writes item i of a rank's source. */
void     channel_item_make(const struct channel_case *one, uint32_t rank, uint64_t i, char *to);

/* Writes the sum, or another reduction, of item i over all ranks: added up from rank 0 on, as
 * channel.h says. */
void     channel_item_sum(const struct channel_case *one, uint64_t i, char *to);

int      channel_item_is_nan(const struct channel_case *one, const char *item);

#endif /* CEI_CHANNEL_ITEM_H */
