/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The order of transfers, from the marks that they raise and wait for; and which of many transfers
 * follows which. */

#include "ce_engine/program/program_order.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int cei_order_no_memory(const struct cei_order *order)
{
	return cei_raise(order->report, CEOV_ERR_NO_MEMORY, 0,
			 "ceov_plan_commit: no memory for checks");
}

/* --- questions ----------------------------------------------------------------- */

/* Queries that are answered together: many enough to fill walks, few enough to be sorted in
 * the cache. */
#define BATCH (UINT32_C(1) << 16)

#define WALK_BITS (CEI_QUERY_MASK_WORDS * 64u)

int cei_queries_init(struct cei_queries *queries, const struct cei_order *order)
{
	size_t i, n = 2 * (size_t)order->n;
	uint32_t before;

	memset(queries, 0, sizeof(*queries));
	queries->order = order;
	queries->before = malloc((n + 1) * sizeof(uint32_t));
	queries->list = malloc(BATCH * sizeof(*queries->list));
	if (!queries->before || !queries->list)
		return CEOV_ERR_NO_MEMORY;
	for (i = 0; i < n; i++) {
		before = order->before[2 * (size_t)order->line[i / 2] + i % 2];
		queries->before[i] = before == CEOV_NOBODY ? CEOV_NOBODY
			: order->position[before];
	}
	return 0;
}

void cei_queries_fini(struct cei_queries *queries)
{
	free(queries->before);
	free(queries->masks);
	free(queries->list);
	queries->before = NULL;
	queries->masks = NULL;
	queries->list = NULL;
}

static int compare_queries(const void *left, const void *right)
{
	const struct cei_query *a = left, *b = right;

	if (a->first != b->first)
		return a->first < b->first ? -1 : 1;
	return a->second < b->second ? -1 : a->second > b->second;
}

static int is_earlier(const struct cei_query *a, const struct cei_query *b)
{
	if (a->note != b->note)
		return a->note < b->note;
	if (a->second != b->second)
		return a->second < b->second;
	return a->first < b->first;
}

void cei_queries_refuse(struct cei_queries *queries, uint32_t first, uint32_t second,
			uint32_t note)
{
	struct cei_query query = { first, second, note };

	if (!queries->result || is_earlier(&query, &queries->refused))
		queries->refused = query;
	queries->result = CEOV_NONE;
}

/* The masks of positions [from, to]: bit i of one says that it follows, or is, the i-th
 * position that the queries name first. The queries are sorted by it. */
static void walk(struct cei_queries *queries, const struct cei_query *query,
		 const struct cei_query *end, uint32_t to)
{
	uint32_t from = query->first, at, k, w, before, bit = 0;
	uint64_t *mask;

	for (at = from; at <= to; at++) {
		mask = queries->masks[at];
		memset(mask, 0, sizeof(*queries->masks));
		for (k = 0; k < 2; k++) {
			before = queries->before[2 * (size_t)at + k];
			if (before == CEOV_NOBODY || before < from)
				continue;
			for (w = 0; w < CEI_QUERY_MASK_WORDS; w++)
				mask[w] |= queries->masks[before][w];
		}
		if (query == end || query->first != at)
			continue;
		mask[bit / 64] |= UINT64_C(1) << bit % 64;
		for (bit++; query != end && query->first == at;)
			query++;
	}
}

static void read_masks(struct cei_queries *queries, const struct cei_query *query,
		       const struct cei_query *end)
{
	uint32_t bit = 0, first = query->first;

	for (; query != end; query++) {
		bit += query->first != first;
		first = query->first;
		if (!(queries->masks[query->second][bit / 64] >> bit % 64 & 1))
			cei_queries_refuse(queries, query->first, query->second, query->note);
	}
}

/* Groups the queries from index i on that a single walk can answer: at most WALK_BITS different
 * first positions. Returns the index after the last one; *ret_to: the highest second position,
 * where the walk may stop. */
static uint32_t take_group(const struct cei_queries *queries, uint32_t i, uint32_t *ret_to)
{
	uint32_t n_bits = 0;

	*ret_to = 0;
	for (; i < queries->n; i++) {
		if (!n_bits || queries->list[i].first != queries->list[i - 1].first)
			n_bits++;
		if (n_bits > WALK_BITS)
			break;
		if (queries->list[i].second > *ret_to)
			*ret_to = queries->list[i].second;
	}
	return i;
}

static void answer(struct cei_queries *queries)
{
	uint32_t i, end, to;

	if (!queries->masks)
		queries->masks = malloc(((size_t)queries->order->n + 1) * sizeof(*queries->masks));
	if (!queries->masks) {
		queries->result = CEOV_ERR_NO_MEMORY;
		return;
	}
	qsort(queries->list, queries->n, sizeof(*queries->list), compare_queries);
	for (i = 0; i < queries->n; i = end) {
		end = take_group(queries, i, &to);
		walk(queries, &queries->list[i], &queries->list[end], to);
		read_masks(queries, &queries->list[i], &queries->list[end]);
	}
	queries->n = 0;
}

void cei_queries_add(struct cei_queries *queries, uint32_t first, uint32_t second,
		     uint32_t note)
{
	const uint32_t *before = &queries->before[2 * (size_t)second];

	if (queries->result || before[0] == first || before[1] == first)
		return;
	if (first > second) {
		cei_queries_refuse(queries, first, second, note);
		return;
	}
	queries->list[queries->n++] = (struct cei_query){ first, second, note };
	if (queries->n == BATCH)
		answer(queries);
}

int cei_queries_end(struct cei_queries *queries)
{
	if (queries->n && queries->result != CEOV_ERR_NO_MEMORY)
		answer(queries);
	return queries->result;
}

/* --- raises and waits ---------------------------------------------------------- */

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

/* --- positions ----------------------------------------------------------------- */

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

/* --- who raises ---------------------------------------------------------------- */

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
