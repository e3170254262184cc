/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_MODELS_H
#define BENCH_MODELS_H

/* Sizes of the feed-forward layers of well-known models, by name. */

#include <stddef.h>
#include <stdint.h>

struct bench_model {
	const char *name;               /* an entry with NULL ends the array */
	uint64_t    hidden;
	uint64_t    ffn;
};

extern const struct bench_model bench_models[];

/* Returns the model named by the first `length` bytes of name, or NULL. */
const struct bench_model *bench_model_find(const char *name, size_t length);

#endif /* BENCH_MODELS_H */
