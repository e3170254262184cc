/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Compares the operators of all ranks before their first runs. */

#include "ops/core/op.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "ce_engine/objects/context.h"
#include "ops/compute/dtype.h"
#include "ops/core/agree.h"

#define TEXT_BYTES (CEI_AGREE_TEXT_WORDS * sizeof(uint32_t))
#define NUMBER_MAX (CEOV_VALUE_LIMIT >> 32)

/* In place of a hash: what a slot says that holds no operator, or those of several hashes. */
#define NOTHING    0u
#define ANYTHING   1u
#define HASH_MIN   2u

/* How long an error waits for each word of a peer's description, which was said before its hash;
 * and how often a rank that waits for a peer looks for both signs of it. */
#define TEXT_NS    UINT64_C(100000000)
#define LOOK_NS    UINT64_C(1000000)

/* --- what has to be alike -------------------------------------------------- */

static uint64_t hash_of(uint64_t hash, const void *bytes, size_t n)
{
	const unsigned char *next = bytes;
	size_t i;

	for (i = 0; i < n; i++)
		hash = (hash ^ next[i]) * UINT64_C(0x100000001b3);
	return hash;
}

static uint64_t hash_number(uint64_t hash, uint64_t number)
{
	return hash_of(hash, &number, sizeof(number));
}

static uint64_t hash_choice(uint64_t hash, const struct cei_op_shape *shape,
			    const struct cei_choice *choice)
{
	const uint64_t numbers[] = {
		choice->mode, choice->n_pieces, choice->cut.kind, choice->cut.block_rows,
		choice->cut.block_tiles, choice->cut.wave_tiles, choice->cut.step_columns,
	};
	const uint64_t of_blocks[] = { choice->n_reduce_blocks, choice->direct_ll,
				       choice->direct_steps, choice->direct_step_rows };

	hash = hash_of(hash, numbers, sizeof(numbers));
	if (!cei_selector_is_direct(choice->mode) || cei_kind_has_sm_lane(shape, choice->mode))
		return hash;
	return hash_of(hash, of_blocks, sizeof(of_blocks));
}

/* extent: the k or n of a product in which ranks have to be alike. */
static uint64_t hash_shape(const struct cei_op_shape *shape, uint64_t extent)
{
	const struct cei_experts_shape *experts = &shape->experts;
	const uint64_t numbers[] = {
		shape->dtype, extent, shape->sum.by_node, experts->hidden, experts->n_experts,
		experts->top_k, experts->n_groups, experts->capacity, experts->total_capacity,
		experts->n_received, shape->embedding.pooling, (uint64_t)shape->a2a.is_by_columns,
	};
	uint64_t hash = hash_of(UINT64_C(0xcbf29ce484222325), shape->kind->name,
				strlen(shape->kind->name));
	uint32_t i;

	hash = hash_of(hash, numbers, sizeof(numbers));
	for (i = 0; i < shape->n_ranks; i++) {
		hash = hash_number(hash, shape->rows[i]);
		hash = hash_number(hash, shape->a2a.rows[i]);
		hash = hash_number(hash, shape->a2a.columns[i]);
		hash = hash_number(hash, shape->embedding.n_tables[i]);
		hash = hash_number(hash, shape->embedding.columns[i]);
		hash = hash_number(hash, shape->embedding.elements[i]);
	}
	return shape->blocks ? hash_of(hash, shape->blocks, (size_t)shape->n_ranks *
				       shape->n_ranks * sizeof(*shape->blocks)) : hash;
}

static const char *mode_name(enum ceov_op_mode mode)
{
	static const char *const names[] = { "any", "overlap", "sequence", "direct", "two-shot" };

	return names[mode];
}

/* Appends to text, which ends where there is no more room. */
static void __attribute__((format(printf, 2, 3)))
append(char *text, const char *format, ...)
{
	size_t length = strlen(text);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text + length, TEXT_BYTES - length, format, arguments);
	va_end(arguments);
}

/* Appends numbers with a name in front; nothing where all are 0. */
static void append_numbers(char *text, const char *name, const uint64_t *numbers, uint32_t n)
{
	uint64_t all = 0;
	uint32_t i;

	for (i = 0; i < n; i++)
		all |= numbers[i];
	if (!all)
		return;
	append(text, ", %s", name);
	for (i = 0; i < n; i++)
		append(text, " %" PRIu64, numbers[i]);
}

/* Writes what the op was created with. The lists come last, since they may be too long. */
static void describe(const ceov_op *op, char *text)
{
	const struct cei_op_shape *shape = &op->shape;
	const struct cei_experts_shape *experts = &shape->experts;

	append(text, "%s of %s", shape->kind->name + strlen("ceov_"),
	       cei_dtype_name(shape->dtype));
	if (shape->product.n_products)
		append(text, ", k %" PRIu64 ", n %" PRIu64, shape->product.k,
		       shape->product.n[0]);
	if (experts->n_experts)
		append(text, ", %u of %u experts, hidden %" PRIu64 ", capacity %" PRIu64,
		       experts->top_k, experts->n_experts, experts->hidden, experts->capacity);
	append(text, ", %s, pieces %u", mode_name(op->choice.mode), op->choice.n_pieces);
	if (shape->blocks)
		append_numbers(text, "blocks", shape->blocks, shape->n_ranks * shape->n_ranks);
	append_numbers(text, "columns", shape->a2a.columns, shape->n_ranks);
	append_numbers(text, "columns", shape->embedding.columns, shape->n_ranks);
	append_numbers(text, "rows", shape->rows, shape->n_ranks);
}

/* --- counters -------------------------------------------------------------- */

static uint32_t slot_index(uint32_t hash)
{
	return CEI_ALLREDUCE_COUNTERS + hash % CEI_AGREE_SLOTS;
}

/* Returns the counter of the hash of a first run, behind which those of its description are. */
static uint32_t run_index(uint64_t number)
{
	return CEI_ALLREDUCE_COUNTERS + CEI_AGREE_SLOTS +
		(uint32_t)(number % CEI_AGREE_RUNS) * (1 + CEI_AGREE_TEXT_WORDS);
}

static uint64_t value_of(uint64_t number, uint32_t word)
{
	return number << 32 | word;
}

static ceov_signal *signal_of(const ceov_op *op, uint32_t rank)
{
	return op->workspace->allreduce.signals[rank];
}

/* Says what operators a slot has. Where numbers have run out, or the workspace has failed, peers
 * are not told. The caller holds the lock of `agree`. */
static void say_slot(const ceov_op *op, struct cei_agree_slot *slot)
{
	if (slot->n_said + 1 < NUMBER_MAX)
		(void)ceov_signal_raise(signal_of(op, op->workspace->rank), slot_index(op->hash),
					value_of(++slot->n_said, slot->n ? slot->hash : NOTHING));
}

void cei_agree_tell(ceov_op *op)
{
	struct cei_agree *agree = &op->workspace->agree;
	const struct cei_product_shape *product = &op->shape.product;
	struct cei_agree_slot *slot;
	uint64_t hash;

	if (op->kind->is_local || op->workspace->n_ranks == 1)
		return;
	hash = hash_choice(hash_shape(&op->shape, op->kind->gathers ? product->k : product->n[0]),
			   &op->shape, &op->choice);
	op->hash = (uint32_t)(hash ^ hash >> 32);
	op->hash += op->hash < HASH_MIN ? HASH_MIN : 0;
	slot = &agree->slots[op->hash % CEI_AGREE_SLOTS];
	pthread_mutex_lock(&agree->lock);
	slot->hash = !slot->n || slot->hash == op->hash ? op->hash : ANYTHING;
	slot->n++;
	say_slot(op, slot);
	pthread_mutex_unlock(&agree->lock);
	op->is_told = 1;
}

void cei_agree_untell(ceov_op *op)
{
	struct cei_agree *agree = &op->workspace->agree;
	struct cei_agree_slot *slot = &agree->slots[op->hash % CEI_AGREE_SLOTS];

	if (!op->is_told)
		return;
	op->is_told = 0;
	pthread_mutex_lock(&agree->lock);
	if (!--slot->n)
		say_slot(op, slot);
	pthread_mutex_unlock(&agree->lock);
}

/* Says which first run this is, and of what. */
static int say_run(const ceov_op *op, uint64_t number)
{
	ceov_signal *own = signal_of(op, op->workspace->rank);
	uint32_t words[CEI_AGREE_TEXT_WORDS] = { 0 }, i;
	int r = 0;

	describe(op, (char *)words);
	for (i = 0; !r && i < CEI_AGREE_TEXT_WORDS; i++)
		r = ceov_signal_raise(own, run_index(number) + 1 + i, value_of(number, words[i]));
	return r ? r : ceov_signal_raise(own, run_index(number), value_of(number, op->hash));
}

/* Waits until a counter of a rank has a value of this number or a later one, and returns it.
 * CEOV_PENDING: it has none within timeout_ns. */
static int hear(ceov_signal *signal, uint32_t index, uint64_t number, uint64_t timeout_ns,
		uint64_t *ret_value)
{
	int r = ceov_signal_wait(signal, index, value_of(number, 0), timeout_ns);

	if (!r)
		r = ceov_signal_value(signal, index, ret_value);
	/* If the signal was aborted since, its counter holds no number; waiting again returns the
	 * error of the abort. */
	if (!r && *ret_value >= CEOV_VALUE_LIMIT)
		r = ceov_signal_wait(signal, index, value_of(number, 0), 0);
	return r;
}

/* Returns whether a rank has created such an op and not run it. */
static int has_made(const ceov_op *op, uint32_t rank)
{
	uint64_t value = 0;
	uint32_t hash;

	if (ceov_signal_value(signal_of(op, rank), slot_index(op->hash), &value))
		return 0;
	hash = (uint32_t)value;
	return value < CEOV_VALUE_LIMIT && (hash == op->hash || hash == ANYTHING);
}

/* Looks at a peer until it is known whether its op is alike. CEOV_PENDING: it is not known by
 * deadline_ns. */
static int compare(const ceov_op *op, uint32_t rank, uint64_t deadline_ns, int *ret_differs)
{
	uint64_t number = op->workspace->agree.n_first, value = 0, wait_ns = 0;
	int r;

	for (;;) {
		r = hear(signal_of(op, rank), run_index(number), number, wait_ns, &value);
		if (!r)
			*ret_differs = value >> 32 == number && (uint32_t)value != op->hash;
		if (r != CEOV_PENDING || has_made(op, rank))
			return r < 0 ? r : 0;
		if (cei_now_ns() >= deadline_ns)
			return CEOV_PENDING;
		wait_ns = LOOK_NS;
	}
}

/* --- errors ---------------------------------------------------------------- */

/* Writes the description of a rank's op of this number, or that it is not there any more. */
static void hear_text(const ceov_op *op, uint32_t rank, char *text)
{
	uint64_t number = op->workspace->agree.n_first, value = 0;
	uint32_t i, word;

	for (i = 0; i < CEI_AGREE_TEXT_WORDS; i++) {
		if (hear(signal_of(op, rank), run_index(number) + 1 + i, number, TEXT_NS,
			 &value) || value >> 32 != number) {
			snprintf(text, TEXT_BYTES, "another operator");
			return;
		}
		word = (uint32_t)value;
		memcpy(text + i * sizeof(word), &word, sizeof(word));
	}
	text[TEXT_BYTES - 1] = '\0';
}

static int refuse(const ceov_op *op, uint32_t rank)
{
	char own[TEXT_BYTES] = "", other[TEXT_BYTES];
	struct ceov_failure failure = cei_failure(CEOV_ERR_INVALID, 0);

	describe(op, own);
	hear_text(op, rank, other);
	failure.rank = rank;
	return cei_raise_failure(cei_object_report(&op->object), &failure,
				 "%s: make the same runs in the same order: rank %u has %s, "
				 "rank %u has %s, in workspace '%s'", op->kind->run_call,
				 op->workspace->rank, own, rank, other, op->workspace->name);
}

static int refuse_late(const ceov_op *op, uint32_t rank)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_TIMEOUT, 0);

	failure.rank = rank;
	return cei_raise_failure(cei_object_report(&op->object), &failure,
				 "%s: workspace '%s': rank %u has not created such an operator as "
				 "rank %u has within the deadline", op->kind->run_call,
				 op->workspace->name, rank, op->workspace->rank);
}

int cei_agree_check(ceov_op *op)
{
	ceov_workspace *workspace = op->workspace;
	uint64_t deadline_ns = cei_deadline(workspace->deadline_ns);
	uint32_t i, rank, differing = CEOV_NOBODY;
	int r, differs = 0;

	if (!op->hash || op->is_agreed)
		return 0;
	r = say_run(op, ++workspace->agree.n_first);
	cei_agree_untell(op);
	for (i = 1; !r && i < workspace->n_ranks; i++) {
		rank = (workspace->rank + i) % workspace->n_ranks;
		r = compare(op, rank, deadline_ns, &differs);
		if (r == CEOV_PENDING)
			r = refuse_late(op, rank);
		if (differs)
			differing = rank;
	}
	if (r)
		return cei_workspace_fail(workspace, r);
	if (differing != CEOV_NOBODY)
		return refuse(op, differing);
	op->is_agreed = 1;
	return 0;
}
