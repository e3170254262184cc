/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* A test double: copies between host memory and the memory of a "GPU". */

#include "unit/device_copier.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "testing.h"

#define COPIES_MAX 16u

struct copy {
	void    *target;
	void    *source;
	uint64_t n_bytes;
	uint32_t n_looks;               /* until it ends */
};

struct line {
	struct device_copier       *copier;
	enum cei_far_line_direction direction;
	uint64_t                    n_begun;
	uint64_t                    n_ended;
	int                         is_broken;
	struct copy                 copies[COPIES_MAX];
};

uint64_t device_address(const void *memory)
{
	return (uint64_t)(uintptr_t)memory | DEVICE_BIT;
}

static int memory_open(void *arg, uint32_t unit, uint64_t n_bytes, void **ret_memory)
{
	struct device_copier *copier = arg;

	ck_assert_uint_eq(unit, DEVICE_UNIT);
	copier->n_opened++;
	*ret_memory = malloc(n_bytes);
	return *ret_memory ? 0 : CEOV_ERR_NO_MEMORY;
}

static void memory_close(void *arg, uint32_t unit, void *memory)
{
	struct device_copier *copier = arg;

	ck_assert_uint_eq(unit, DEVICE_UNIT);
	copier->n_opened--;
	free(memory);
}

static int bind(void *arg, uint32_t unit)
{
	struct device_copier *copier = arg;

	ck_assert_uint_eq(unit, DEVICE_UNIT);
	copier->n_bound++;
	return copier->fails_to_bind ? CEOV_ERR_CUDA : 0;
}

static int landed(void *arg, uint32_t unit)
{
	struct device_copier *copier = arg;

	ck_assert_uint_eq(unit, DEVICE_UNIT);
	return ++copier->n_landed == copier->hide_at ? CEOV_ERR_CUDA : 0;
}

static int line_open(void *arg, uint32_t unit, enum cei_far_line_direction direction,
		     void **ret_line)
{
	struct device_copier *copier = arg;
	struct line *line = calloc(1, sizeof(*line));

	ck_assert_uint_eq(unit, DEVICE_UNIT);
	copier->n_opened++;
	line->copier = copier;
	line->direction = direction;
	*ret_line = line;
	return 0;
}

static void line_close(void *arg)
{
	struct line *line = arg;

	ck_assert_msg(line->is_broken || line->n_ended == line->n_begun,
		      "a line is closed whose copies have not ended");
	line->copier->n_opened--;
	free(line);
}

/* Returns the pointer for an address that has to be on the "GPU", or has to be in host memory. */
static void *pointer(uint64_t address, int is_device)
{
	ck_assert_int_eq((address & DEVICE_BIT) != 0, is_device);
	return (void *)(uintptr_t)(address & ~DEVICE_BIT);
}

static int break_line(struct line *line)
{
	line->is_broken = 1;
	line->copier->n_under_way -= (uint32_t)(line->n_begun - line->n_ended);
	return CEOV_ERR_CUDA;
}

static int copy(void *arg, uint64_t target, uint64_t source, uint64_t n_bytes)
{
	struct line *line = arg;
	struct device_copier *copier = line->copier;
	struct copy *made = &line->copies[line->n_begun % COPIES_MAX];
	int is_out = line->direction == CEI_FAR_LINE_OUT;

	ck_assert(!line->is_broken);
	ck_assert_uint_lt(line->n_begun - line->n_ended, COPIES_MAX);
	if (++copier->n_copies == copier->refuse_at)
		return break_line(line);
	made->target = pointer(target, !is_out);
	made->source = pointer(source, is_out);
	made->n_bytes = n_bytes;
	made->n_looks = 1 + (uint32_t)testing_below(&copier->random, copier->looks_max + 1);
	if (copier->n_copies == copier->fail_at)
		made->n_looks = 0;
	line->n_begun++;
	copier->n_under_way++;
	return 0;
}

static int reap(void *arg, uint64_t *ret_n_ended)
{
	struct line *line = arg;
	struct copy *first = &line->copies[line->n_ended % COPIES_MAX];

	if (line->n_ended < line->n_begun && !first->n_looks)
		return break_line(line);
	if (!line->copier->is_hung && line->n_ended < line->n_begun && !--first->n_looks) {
		memcpy(first->target, first->source, first->n_bytes);
		line->n_ended++;
		line->copier->n_under_way--;
	}
	*ret_n_ended = line->n_ended;
	return 0;
}

const struct cei_far_copier_ops device_copier_ops = {
	.memory_open  = memory_open,
	.memory_close = memory_close,
	.bind         = bind,
	.landed       = landed,
	.line_open    = line_open,
	.line_close   = line_close,
	.copy         = copy,
	.reap         = reap,
};
