/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Compares the operators of all ranks before their first runs. */

#include "ops/core/op.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "ce_engine/objects/context.h"
#include "ops/compute/dtype.h"
#include "ops/core/agree.h"

#define TEXT_BYTES (CEI_AGREE_TEXT_WORDS * sizeof(uint32_t))
#define CUT_BYTES  24u                  /* the end of a text that was cut, with its NUL */
#define SHOWN_BYTES 64u                 /* of a description that an error message has */
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

/* A description is a text of items. Its hash is that of all of them, and text has as many as find
 * room in it. */
struct description {
	uint64_t hash;
	size_t   length;
	int      is_cut;
	char     text[TEXT_BYTES];
};

struct item {
	const char *name;
	uint64_t    number;
};

/* Returns the part of a hash that ranks tell each other. */
static uint32_t short_of(uint64_t hash)
{
	uint32_t folded = (uint32_t)(hash ^ hash >> 32);

	return folded < HASH_MIN ? folded + HASH_MIN : folded;
}

static const char *mode_name(enum ceov_op_mode mode)
{
	static const char *const names[] = { "any", "overlap", "sequence", "direct", "two-shot" };

	return names[mode];
}

static void __attribute__((format(printf, 2, 3)))
append(struct description *made, const char *format, ...)
{
	char text[64];
	va_list arguments;
	size_t n;

	va_start(arguments, format);
	n = (size_t)vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	made->hash = cei_hash(made->hash, text, n);
	made->is_cut |= made->length + n >= TEXT_BYTES - CUT_BYTES;
	if (made->is_cut)
		return;
	memcpy(made->text + made->length, text, n + 1);
	made->length += n;
}

/* Appends numbers that are not 0. */
static void append_items(struct description *made, const struct item *items, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (items[i].number)
			append(made, ", %s %" PRIu64, items[i].name, items[i].number);
}

/* Appends a list of numbers, in which 3 or more that follow each other and are alike are one number
 * and their count; nothing where all are 0. */
static void append_list(struct description *made, const char *name, const uint64_t *numbers,
			uint32_t n)
{
	uint64_t all = 0;
	uint32_t i, end;

	for (i = 0; i < n; i++)
		all |= numbers[i];
	if (!all)
		return;
	append(made, ", %s", name);
	for (i = 0; i < n; i = end) {
		for (end = i + 1; end < n && numbers[end] == numbers[i]; end++)
			;
		end = end < i + 3 ? i + 1 : end;
		append(made, " %" PRIu64, numbers[i]);
		if (end > i + 1)
			append(made, "x%" PRIu32, end - i);
	}
}

static void append_choice(struct description *made, const ceov_op *op)
{
	const struct cei_choice *choice = &op->choice;
	const struct item items[] = {
		{ "pieces", choice->n_pieces },
		{ "cut", choice->cut.kind == CEOV_CUT_EQUAL ? 0 : choice->cut.kind },
		{ "rows of a block", choice->cut.block_rows },
		{ "tiles of a block", choice->cut.block_tiles },
		{ "tiles of a wave", choice->cut.wave_tiles },
		{ "columns of a step", choice->cut.step_columns },
	};
	const struct item of_blocks[] = {
		{ "SMs", choice->n_reduce_blocks }, { "packets", choice->direct_ll },
		{ "steps", choice->direct_steps }, { "rows of a step", choice->direct_step_rows },
	};

	append(made, ", %s", mode_name(choice->mode));
	append_items(made, items, sizeof(items) / sizeof(items[0]));
	if (cei_selector_is_direct(choice->mode) && !cei_op_has_sm_lane(op))
		append_items(made, of_blocks, sizeof(of_blocks) / sizeof(of_blocks[0]));
}

static void append_lists(struct description *made, const struct cei_op_shape *shape)
{
	uint64_t n_tables[CEI_OP_RANKS_MAX];
	uint32_t i, n = shape->n_ranks;

	for (i = 0; i < n; i++)
		n_tables[i] = shape->embedding.n_tables[i];
	append_list(made, "rows", shape->rows, n);
	append_list(made, "rows of each", shape->a2a.rows, n);
	append_list(made, "columns", shape->a2a.columns, n);
	append_list(made, "tables", n_tables, n);
	append_list(made, "dims", shape->embedding.columns, n);
	append_list(made, "elements", shape->embedding.elements, n);
	if (shape->blocks)
		append_list(made, "blocks", shape->blocks, n * n);
}

/* Describes the op by everything in which ranks have to be alike. The lists come last, since they
 * may be too long; then the text ends with the hash. */
static void describe(const ceov_op *op, struct description *made)
{
	const struct cei_op_shape *shape = &op->shape;
	const struct cei_experts_shape *experts = &shape->experts;
	int gathers = op->kind->gathers;
	const struct item items[] = {
		{ "k", gathers ? shape->product.k : 0 }, { "n", gathers ? 0 : shape->product.n[0] },
		{ "top", experts->top_k }, { "experts", experts->n_experts },
		{ "groups", experts->n_groups }, { "hidden", experts->hidden },
		{ "capacity", experts->capacity }, { "total capacity", experts->total_capacity },
		{ "received", experts->n_received }, { "by node", shape->sum.by_node },
		{ "pooling", shape->embedding.pooling },
		{ "by columns", (uint64_t)shape->a2a.is_by_columns },
	};

	*made = (struct description){ .hash = CEI_HASH_START };
	append(made, "%s of %s", shape->kind->name + strlen("ceov_"),
	       cei_dtype_name(shape->dtype));
	append_items(made, items, sizeof(items) / sizeof(items[0]));
	append_choice(made, op);
	append_lists(made, shape);
	if (made->is_cut)
		snprintf(made->text + made->length, CUT_BYTES, ", and more (%08" PRIx32 ")",
			 short_of(made->hash));
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
	struct cei_agree_slot *slot;
	struct description made;

	if (op->kind->is_local || op->workspace->n_ranks == 1)
		return;
	describe(op, &made);
	op->hash = short_of(made.hash);
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

void cei_agree_renew(ceov_op *op)
{
	if (!op->hash)
		return;
	cei_agree_untell(op);
	cei_agree_tell(op);
	/* relaxed: no run of the op is under way, and only one thread makes the next one */
	atomic_store_explicit(&op->is_agreed, 0, memory_order_relaxed);
}

/* Says which first run this is, and of what: the words of the text up to its NUL, and the hash. */
static int say_run(const ceov_op *op, uint64_t number)
{
	ceov_signal *own = signal_of(op, op->workspace->rank);
	uint32_t i, n, word;
	struct description made;
	int r = 0;

	describe(op, &made);
	n = (uint32_t)(strlen(made.text) / sizeof(word)) + 1;
	for (i = 0; !r && i < n; i++) {
		memcpy(&word, made.text + i * sizeof(word), sizeof(word));
		r = ceov_signal_raise(own, run_index(number) + 1 + i, value_of(number, word));
	}
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

/* Returns whether a peer that has created such an op need not have come to its run, because one
 * thread may make the runs of several ranks, one after another. A run of a host rank ends when all
 * ranks have come to it, so each of them has a thread of its own. */
static int may_come_later(const ceov_workspace *workspace)
{
	return !workspace->is_host && workspace->object.context->site.n_members > 1;
}

/* Looks at a peer until it is known whether its op is alike. CEOV_PENDING: it is not known by
 * deadline_ns. */
static int compare(const ceov_op *op, uint32_t rank, uint64_t deadline_ns, int *ret_differs)
{
	int may_be_late = may_come_later(op->workspace), r;
	uint64_t number = op->workspace->agree.n_first, value = 0, wait_ns = 0, now_ns;

	for (;;) {
		r = hear(signal_of(op, rank), run_index(number), number, wait_ns, &value);
		*ret_differs = !r && value >> 32 == number && (uint32_t)value != op->hash;
		if (r != CEOV_PENDING)
			return r;
		if (may_be_late && has_made(op, rank))
			return 0;
		now_ns = cei_now_ns();
		if (now_ns >= deadline_ns)
			return CEOV_PENDING;
		wait_ns = may_be_late ? LOOK_NS : deadline_ns - now_ns;
	}
}

/* --- errors ---------------------------------------------------------------- */

/* Writes the description of a rank's op of this number, or that it is not there any more. */
static void hear_text(const ceov_op *op, uint32_t rank, char text[TEXT_BYTES])
{
	uint64_t number = op->workspace->agree.n_first, value = 0;
	uint32_t i, word = ~0u;

	for (i = 0; i < CEI_AGREE_TEXT_WORDS && memchr(&word, 0, sizeof(word)) == NULL; i++) {
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

/* Returns where two descriptions begin to differ: at an item, or within a long one. */
static size_t differ_from(const char *text, const char *other)
{
	size_t i, from = 0;

	for (i = 0; text[i] && text[i] == other[i]; i++)
		if (text[i] == ',' || (text[i] == ' ' && i - from > SHOWN_BYTES / 2))
			from = i;
	return from;
}

/* Writes a description's first item, and what there is behind `from`. */
static void shorten(const char *text, size_t from, char ret_shown[SHOWN_BYTES])
{
	size_t head = strcspn(text, ",");

	snprintf(ret_shown, SHOWN_BYTES, "%.*s%s%s", (int)head, text, from > head ? ", ..." : "",
		 text + (from > head ? from : head));
}

static int refuse(const ceov_op *op, uint32_t rank)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_INVALID, 0);
	char other[TEXT_BYTES], shown[2][SHOWN_BYTES];
	struct description own;
	size_t from;

	describe(op, &own);
	hear_text(op, rank, other);
	from = differ_from(own.text, other);
	shorten(own.text, from, shown[0]);
	shorten(other, from, shown[1]);
	failure.rank = rank;
	return cei_raise_failure(cei_object_report(&op->object), &failure,
				 "%s: make the same runs in the same order: rank %u has %s, "
				 "rank %u has %s, in workspace '%s'", op->kind->run_call,
				 op->workspace->rank, shown[0], rank, shown[1],
				 op->workspace->name);
}

static int refuse_late(const ceov_op *op, uint32_t rank)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_TIMEOUT, 0);
	struct description own;

	describe(op, &own);
	failure.rank = rank;
	return cei_raise_failure(cei_object_report(&op->object), &failure,
				 "%s: workspace '%s': rank %u has not come to such a run as rank "
				 "%u has within the deadline: %.100s", op->kind->run_call,
				 op->workspace->name, rank, op->workspace->rank, own.text);
}

/* --- the check ------------------------------------------------------------- */

/* The caller holds the turn of first runs. */
static int check(ceov_op *op)
{
	ceov_workspace *workspace = op->workspace;
	uint64_t deadline_ns = cei_deadline(workspace->deadline_ns);
	uint32_t i, rank, differing = CEOV_NOBODY;
	int r, differs;

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
	/* relaxed: pairs with cei_agree_is_due(), which reads this word alone */
	atomic_store_explicit(&op->is_agreed, 1, memory_order_relaxed);
	return 0;
}

int cei_agree_is_due(const ceov_op *op)
{
	/* relaxed: pairs with check() in another thread; what runs share has a lock */
	return op->hash && !atomic_load_explicit(&op->is_agreed, memory_order_relaxed);
}

int cei_agree_check(ceov_op *op)
{
	struct cei_agree *agree = &op->workspace->agree;
	int r;

	pthread_mutex_lock(&agree->first);
	r = cei_agree_is_due(op) ? check(op) : 0;
	pthread_mutex_unlock(&agree->first);
	return r;
}
