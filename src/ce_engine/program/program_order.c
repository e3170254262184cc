/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The order of transfers, from the marks that they raise and wait for. */

#include "ce_engine/program/program_order.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ce_engine/program/order_queries.h"

int cei_order_no_memory(const struct cei_order *order)
{
	return cei_raise(order->report, CEOV_ERR_NO_MEMORY, 0,
			 "ceov_plan_commit: no memory for checks");
}

/* a raise by a transfer, or from outside (transfer CEOV_NOBODY) */
struct raise {
	uint32_t signal;
	uint32_t counter;
	uint32_t transfer;
	uint64_t value;
};

struct raises {
	struct raise *list;             /* sorted by signal, index, value */
	uint32_t      n;
};

static int compare_counters(const struct raise *a, const struct raise *b)
{
	if (a->signal != b->signal)
		return a->signal < b->signal ? -1 : 1;
	if (a->counter != b->counter)
		return a->counter < b->counter ? -1 : 1;
	return 0;
}

static int compare_raises(const void *left, const void *right)
{
	const struct raise *a = left, *b = right;
	int order = compare_counters(a, b);

	if (order)
		return order;
	if (a->value != b->value)
		return a->value < b->value ? -1 : 1;
	return a->transfer < b->transfer ? -1 : a->transfer > b->transfer;
}

static void add_raise(struct raises *raises, const struct cei_program_mark *mark,
		      uint32_t transfer)
{
	struct raise *raise = &raises->list[raises->n];

	if (mark->signal == CEI_PROGRAM_NONE)
		return;
	raise->signal = mark->signal;
	raise->counter = mark->counter;
	raise->value = mark->value;
	raise->transfer = transfer;
	raises->n++;
}

static int collect(const struct cei_order *order, struct raises *raises)
{
	const struct cei_program *program = order->program;
	uint32_t i;

	raises->n = 0;
	raises->list = calloc((size_t)program->n_transfers + program->n_expected + 1,
			      sizeof(*raises->list));
	if (!raises->list)
		return cei_order_no_memory(order);
	for (i = 0; i < program->n_transfers; i++)
		add_raise(raises, &program->transfers[i].then, i);
	for (i = 0; i < program->n_expected; i++)
		add_raise(raises, &program->expected[i], CEOV_NOBODY);
	qsort(raises->list, raises->n, sizeof(*raises->list), compare_raises);
	return 0;
}

/* The first raise of that counter to at least that value, which a wait for the mark
 * follows; NULL: there is none. */
static const struct raise *find(const struct raises *raises, const struct cei_program_mark *mark)
{
	struct raise wanted = { mark->signal, mark->counter, 0, mark->value };
	uint32_t low = 0, high = raises->n, middle;

	while (low < high) {
		middle = low + (high - low) / 2;
		if (compare_raises(&raises->list[middle], &wanted) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == raises->n || compare_counters(&raises->list[low], &wanted))
		return NULL;
	return &raises->list[low];
}

static int find_order(const struct raises *raises, struct cei_order *order)
{
	const struct cei_program *program = order->program;
	const struct cei_program_mark *marks[2];
	const struct raise *raise;
	uint32_t i, k;

	for (i = 0; i < program->n_transfers; i++) {
		marks[0] = &program->transfers[i].source_ready;
		marks[1] = &program->transfers[i].target_free;
		for (k = 0; k < 2; k++) {
			order->before[2 * i + k] = CEOV_NOBODY;
			if (marks[k]->signal == CEI_PROGRAM_NONE)
				continue;
			raise = find(raises, marks[k]);
			if (!raise)
				return cei_raise(order->report, CEOV_ERR_INVALID, 0,
						 "transfer %u: %s waits for counter %u of "
						 "%s to reach %" PRIu64 ", which no "
						 "transfer raises and ceov_plan_expect() "
						 "does not name", i, k ? "target_free"
						 : "source_ready", marks[k]->counter,
						 cei_program_signal_text(program,
									 marks[k]->signal),
						 marks[k]->value);
			if (marks[k]->value)    /* value 0 was raised by an earlier launch */
				order->before[2 * i + k] = raise->transfer;
		}
	}
	return 0;
}

/* Computes order->empty of i from that of its direct predecessors, which must be known. */
static uint32_t last_empty(const struct cei_order *order, uint32_t i)
{
	uint32_t k, before, last = 0;

	for (k = 0; k < 2; k++) {
		before = order->before[2 * i + k];
		if (before == CEOV_NOBODY)
			continue;
		if (order->empty[before] > last)
			last = order->empty[before];
		if (!order->program->transfers[before].row_bytes && before >= last)
			last = before + 1;
	}
	return last;
}

/* A direct predecessor without a position, or CEOV_NOBODY. */
static uint32_t unplaced(const struct cei_order *order, uint32_t i)
{
	uint32_t k, before;

	for (k = 2; k-- > 0;) {
		before = order->before[2 * i + k];
		if (before != CEOV_NOBODY && order->position[before] == CEOV_NOBODY)
			return before;
	}
	return CEOV_NOBODY;
}

/* Gives transfer i a position behind all that it follows, without recursion. Returns a
 * transfer of a cycle, or CEOV_NOBODY. */
static uint32_t place(struct cei_order *order, uint32_t i)
{
	uint32_t n = 0, top, next;

	order->stack[n++] = i;
	while (n) {
		top = order->stack[n - 1];
		next = unplaced(order, top);
		if (next == CEOV_NOBODY) {
			order->empty[top] = last_empty(order, top);
			order->position[top] = order->n_placed;
			order->line[order->n_placed++] = top;
			n--;
		} else if (n == order->n) {
			return top;     /* a path longer than the number of transfers is a cycle */
		} else {
			order->stack[n++] = next;
		}
	}
	return CEOV_NOBODY;
}

static int check_circles(struct cei_order *order)
{
	uint32_t i, found;

	for (i = 0; i < order->n; i++) {
		found = order->position[i] == CEOV_NOBODY ? place(order, i)
			: CEOV_NOBODY;
		if (found != CEOV_NOBODY)
			return cei_raise(order->report, CEOV_ERR_INVALID, 0,
					 "transfer %u: its marks wait for each other in a "
					 "circle", found);
	}
	return 0;
}

/* A transfer without bytes goes behind all before it in the plan, so none of those may
 * follow it. Following one further back is allowed and closes no longer cycle, because
 * places only decrease. */
static int check_empties(const struct cei_order *order)
{
	uint32_t i;

	for (i = 0; i < order->n; i++)
		if (order->empty[i] > i)
			return cei_raise(order->report, CEOV_ERR_INVALID, 0,
					 "transfer %u: it waits for the mark of transfer %u, "
					 "which moves nothing and so goes behind it; add that "
					 "one first", i, order->empty[i] - 1);
	return 0;
}

/* Refuses two raises of one counter that are next to each other. */
static int refuse_raises(const struct cei_order *order, const struct raise *a,
			 const struct raise *b)
{
	const char *signal = cei_program_signal_text(order->program, a->signal);

	if (a->transfer == CEOV_NOBODY || b->transfer == CEOV_NOBODY)
		return cei_raise(order->report, CEOV_ERR_INVALID, 0,
				 "transfer %u: raises counter %u of %s, which is expected "
				 "to be raised outside", a->transfer == CEOV_NOBODY ?
				 b->transfer : a->transfer, a->counter, signal);
	return cei_raise(order->report, CEOV_ERR_INVALID, 0,
			 "transfers %u and %u: both raise counter %u of %s and "
			 "nothing orders them", a->transfer, b->transfer, a->counter, signal);
}

static int query_raisers(const struct raises *raises, struct cei_order *order,
		       struct cei_queries *queries)
{
	const struct raise *a, *b;
	uint32_t i;

	for (i = 0; i + 1 < raises->n; i++) {
		a = &raises->list[i];
		b = &raises->list[i + 1];
		if (compare_counters(a, b) || a->transfer == b->transfer)
			continue;
		if (a->transfer == CEOV_NOBODY || b->transfer == CEOV_NOBODY ||
		    a->value == b->value)
			cei_queries_refuse(queries, 0, 0, i);
		else
			cei_queries_add(queries, order->position[a->transfer],
				     order->position[b->transfer], i);
		order->raises_again = 1;
	}
	return cei_queries_end(queries);
}

/* Checks that each counter has one raiser at a time. */
static int check_raisers(const struct raises *raises, struct cei_order *order)
{
	struct cei_queries queries;
	uint32_t i;
	int r = cei_queries_init(&queries, order);

	if (!r)
		r = query_raisers(raises, order, &queries);
	i = queries.refused.note;
	cei_queries_fini(&queries);
	if (r == CEOV_ERR_NO_MEMORY)
		return cei_order_no_memory(order);
	return r ? refuse_raises(order, &raises->list[i], &raises->list[i + 1]) : 0;
}

void cei_order_fini(struct cei_order *order)
{
	free(order->before);
	free(order->empty);
	free(order->stack);
	free(order->position);
	free(order->line);
	memset(order, 0, sizeof(*order));
}

static int make_room(struct cei_order *order)
{
	size_t n = (size_t)order->n + 1;

	order->before = calloc(n, 2 * sizeof(uint32_t));
	order->empty = calloc(n, sizeof(uint32_t));
	order->stack = calloc(n, sizeof(uint32_t));
	order->position = malloc(n * sizeof(uint32_t));
	order->line = calloc(n, sizeof(uint32_t));
	if (!order->before || !order->empty || !order->stack || !order->position ||
	    !order->line)
		return cei_order_no_memory(order);
	memset(order->position, 0xff, n * sizeof(uint32_t));    /* CEOV_NOBODY */
	return 0;
}

int cei_order_init(struct cei_order *order, const struct cei_program *program,
		   struct cei_report *report)
{
	struct raises raises = { NULL, 0 };
	int r;

	memset(order, 0, sizeof(*order));
	order->program = program;
	order->report = report;
	order->n = program->n_transfers;
	r = make_room(order);
	if (!r)
		r = collect(order, &raises);
	if (!r)
		r = find_order(&raises, order);
	if (!r)
		r = check_circles(order);
	if (!r)
		r = check_empties(order);
	if (!r)
		r = check_raisers(&raises, order);
	free(raises.list);
	return r;
}
