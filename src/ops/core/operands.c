/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "ops/core/operands.h"

#include <inttypes.h>


#define ALIGN_BYTES 16u

static int check_one(const ceov_op *op, const struct cei_operand *operand)
{
	struct cei_report *report = cei_object_report(&op->object);
	uint64_t base = (uintptr_t)operand->base;
	const char *fault = NULL;

	if (!operand->n_bytes)
		return 0;
	if (!base)
		fault = "NULL";
	else if (base % ALIGN_BYTES)
		fault = "not aligned to 16 bytes";
	if (fault)
		return cei_raise(report, CEOV_ERR_INVALID, 0, "%s: rank %u: %s is %s",
				 op->kind->name, op->workspace->rank, operand->name, fault);
	if (operand->n_bytes <= UINTPTR_MAX - base)
		return 0;
	return cei_raise(report, CEOV_ERR_INVALID, 0,
			 "%s: rank %u: %s has %" PRIu64 " bytes from 0x%" PRIx64 " on, which is "
			 "past the end of the address space", op->kind->name,
			 op->workspace->rank, operand->name, operand->n_bytes, base);
}

static int is_apart(const struct cei_operand *one, const struct cei_operand *other)
{
	uint64_t at = (uintptr_t)one->base, other_at = (uintptr_t)other->base;

	return !one->n_bytes || !other->n_bytes || at + one->n_bytes <= other_at ||
		other_at + other->n_bytes <= at;
}

/* Refuses a result that overlaps another operand. While a tile writes results, the other operand
 * may still be read by other tiles, or be on its way to a peer. */
static int check_apart(const ceov_op *op, const struct cei_operand *result,
		       const struct cei_operand *other)
{
	if (is_apart(result, other))
		return 0;
	return cei_raise(cei_object_report(&op->object), CEOV_ERR_INVALID, 0,
			 "%s: rank %u: %s overlaps %s; give each result memory of its own",
			 op->kind->name, op->workspace->rank, result->name, other->name);
}

int cei_operands_take(struct cei_run *run, const struct cei_operand *operands, uint32_t n)
{
	uint32_t i, other;
	int r = 0;

	for (i = 0; !r && i < n; i++)
		r = check_one(run->op, &operands[i]);
	for (i = 0; !r && i < n; i++)
		for (other = 0; !r && operands[i].is_result && other < n; other++)
			if (other != i)
				r = check_apart(run->op, &operands[i], &operands[other]);
	run->n_memory = 0;
	for (i = 0; !r && i < n; i++)
		if (operands[i].n_bytes)
			run->memory[run->n_memory++] = operands[i].base;
	return r;
}
