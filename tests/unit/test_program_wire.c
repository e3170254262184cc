/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests encoding and decoding of programs: a written program comes back equal; other bytes are
 * refused, or decode to a program that can be checked. */

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "ce_engine/program/program_order.h"
#include "ce_engine/program/program_wire.h"
#include "testing.h"

#define ROUNDS    3000u
#define MOST      12u                   /* most entries of a random list */
#define HEAD      16u                   /* bytes of the head: magic, version, number of bytes that
					 * follow */
#define AT_COUNTS (HEAD + 44u)          /* offset of the fields with the numbers of entries */

static uint64_t state;

static void set_up(void)
{
	state = testing_seed();
}

static uint32_t below(uint32_t limit)
{
	return (uint32_t)testing_below(&state, limit);
}

/* --- random programs --------------------------------------------------------- */

static struct cei_program_mark random_mark(const struct cei_program *program)
{
	struct cei_program_mark mark = { CEI_PROGRAM_NONE, 0, 0 };

	if (!program->n_signals || !below(3))
		return mark;
	mark.signal = below(program->n_signals);
	mark.counter = below(program->signals[mark.signal].n_counters);
	mark.value = below(2) ? below(4) : testing_below(&state, CEOV_VALUE_LIMIT);
	return mark;
}

static uint32_t random_buffer(const struct cei_program *program, int may_float)
{
	uint32_t buffer;

	do
		buffer = below(program->n_buffers);
	while (buffer == program->floating && !may_float);
	return buffer;
}

/* Chooses random rows that fit into both buffers, which hold at least 64 bytes. */
static void random_bytes(const struct cei_program *program,
			 struct cei_program_transfer *transfer)
{
	transfer->source.buffer = random_buffer(program, 1);
	transfer->target.buffer = random_buffer(program, 0);
	transfer->n_rows = 1 + below(3);
	transfer->row_bytes = 1 + below(8);
	transfer->source.offset_bytes = below(16);
	transfer->target.offset_bytes = below(16);
	if (transfer->n_rows == 1)
		return;
	transfer->source.pitch_bytes = transfer->row_bytes + below(8);
	transfer->target.pitch_bytes = transfer->row_bytes + below(8);
}

/* Of a program that has such memory: buffers of at least 64 bytes. */
static void random_count(const struct cei_program *program,
			 struct cei_program_transfer *transfer)
{
	uint32_t buffer = random_buffer(program, 0);

	if (transfer->source_ready.signal == CEI_PROGRAM_NONE ||
	    !cei_program_holds_count(&program->buffers[buffer], program->rank, 8))
		return;
	transfer->is_counted = 1;
	transfer->count.buffer = buffer;
	transfer->count.offset_bytes = 8 * below(8);
}

static void random_transfer(const struct cei_program *program,
			    struct cei_program_transfer *transfer)
{
	transfer->source_ready = random_mark(program);
	transfer->target_free = random_mark(program);
	transfer->then = random_mark(program);
	transfer->source.buffer = transfer->target.buffer = CEI_PROGRAM_NONE;
	transfer->mover = below(program->n_movers);
	transfer->has_direct = below(2);
	transfer->direction = below(CEI_DIRECTION_ANY);
	transfer->route = CEI_PROGRAM_NONE;
	if (program->n_buffers < 2 || !below(5))
		return;
	random_bytes(program, transfer);
	random_count(program, transfer);
	if (program->n_routes && below(2))
		transfer->route = below(program->n_routes);
}

static uint32_t random_place(void)
{
	return below(4) ? below(CEI_MACHINE_GPUS_MAX) : CEOV_NOBODY;
}

static void random_route(struct cei_program_route *route)
{
	struct cei_route_path *path;
	uint32_t i;

	route->from = random_place();
	route->to = random_place();
	route->bytes = testing_random(&state);
	route->may_drive = testing_random(&state);
	route->no_direct = below(2);
	route->route.n_paths = 1 + below(CEI_ROUTE_PATHS_MAX);
	route->route.expected_ns = testing_random(&state);
	for (i = below(CEI_ROUTE_WHY_BYTES); i-- > 0;)
		route->route.why[i] = (char)(1 + below(255));
	for (i = 0; i < route->route.n_paths; i++) {
		path = &route->route.paths[i];
		path->kind = (uint8_t)below(CEI_ROUTE_MIDDLE + 1);
		path->via = path->kind == CEI_ROUTE_DIRECT ? CEOV_NOBODY : below(8);
		path->engines[0] = random_place();
		path->engines[1] = random_place();
		path->bytes = 1 + testing_below(&state, UINT64_C(1) << 59);
		path->bytes_per_s = testing_random(&state);
		path->t0_ns = testing_random(&state);
	}
}

static void random_movers(struct cei_program *program)
{
	uint32_t i;

	for (i = 0; i < program->n_movers; i++) {
		program->movers[i].flags = below(2);
		program->movers[i].moves = 1 + below(15);
		program->movers[i].gpu = random_place();
		program->movers[i].place = random_place();
		program->movers[i].may_drive = testing_random(&state);
	}
}

static void random_program(struct cei_program *program)
{
	uint32_t i;

	memset(program, 0, sizeof(*program));
	program->n_ranks = 1 + below(100000);
	program->rank = below(program->n_ranks);
	program->max_chunk_bytes = 1 + testing_below(&state, UINT64_C(1) << 40);
	program->mark_group_bytes = 1 + testing_below(&state, UINT64_C(1) << 40);
	program->urgency = below(CEOV_URGENCY_BACKGROUND + 1);
	program->has_template = below(2);
	program->keeps_order = below(2);
	program->floating = CEI_PROGRAM_NONE;
	program->n_transfers = below(MOST);
	program->n_expected = below(MOST);
	program->rule = below(CEI_ROUTE_RULE_ALL + 1);
	program->n_movers = 1 + below(3);
	program->n_routes = below(program->n_transfers + 1);
	program->n_buffers = below(3 * program->n_transfers + 1);
	program->n_signals = below(3 * program->n_transfers + 1);
	ck_assert_int_eq(cei_program_alloc(program), 0);
	for (i = 0; i < program->n_buffers; i++) {
		program->buffers[i].rank = program->rank;
		program->buffers[i].flags = CEI_PROGRAM_MAPPED * below(4);
		program->buffers[i].reached = below(1u << program->n_movers);
		program->buffers[i].kind = below(2);
		program->buffers[i].gpu = program->buffers[i].kind == CEOV_PLACE_GPU ? below(9)
			: CEOV_NOBODY;
		program->buffers[i].place = random_place();
		program->buffers[i].start = testing_below(&state, UINT64_C(1) << 62);
		program->buffers[i].size_bytes = 64 + testing_below(&state, UINT64_C(1) << 62);
	}
	if (program->n_buffers >= 2 && below(2)) {
		program->floating = below(program->n_buffers);
		program->buffers[program->floating].flags |= CEI_PROGRAM_FLOATING;
		program->buffers[program->floating].start = 0;
	}
	for (i = 0; i < program->n_signals; i++) {
		program->signals[i].rank = below(program->n_ranks);
		program->signals[i].n_counters = 1 + below(UINT32_MAX);
		program->signals[i].flags = below(4);
		program->signals[i].reached = below(1u << program->n_movers);
	}
	random_movers(program);
	for (i = 0; i < program->n_routes; i++)
		random_route(&program->routes[i]);
	for (i = 0; i < program->n_transfers; i++)
		random_transfer(program, &program->transfers[i]);
	for (i = 0; i < program->n_expected; i++)
		program->expected[i] = random_mark(program);
	for (i = program->n_expected; i-- > 0;)         /* those that are marks */
		if (program->expected[i].signal == CEI_PROGRAM_NONE)
			program->expected[i] = program->expected[--program->n_expected];
	ck_assert_int_eq(cei_program_verify(program), 0);
}

static uint8_t *encode(const struct cei_program *program, size_t *ret_n)
{
	uint8_t *bytes;

	*ret_n = cei_program_bytes(program);
	bytes = malloc(*ret_n);
	ck_assert_ptr_nonnull(bytes);
	cei_program_write(program, bytes);
	return bytes;
}

/* --- comparing --------------------------------------------------------------------- */

static void same_mark(const struct cei_program_mark *a, const struct cei_program_mark *b)
{
	ck_assert_uint_eq(a->signal, b->signal);
	ck_assert_uint_eq(a->counter, b->counter);
	ck_assert_uint_eq(a->value, b->value);
}

static void same_spot(const struct cei_program_spot *a, const struct cei_program_spot *b)
{
	ck_assert_uint_eq(a->buffer, b->buffer);
	ck_assert_uint_eq(a->offset_bytes, b->offset_bytes);
	ck_assert_uint_eq(a->pitch_bytes, b->pitch_bytes);
}

static void same_transfer(const struct cei_program_transfer *a,
			  const struct cei_program_transfer *b)
{
	same_spot(&a->source, &b->source);
	same_spot(&a->target, &b->target);
	ck_assert_uint_eq(a->row_bytes, b->row_bytes);
	ck_assert_uint_eq(a->n_rows, b->n_rows);
	same_mark(&a->source_ready, &b->source_ready);
	same_mark(&a->target_free, &b->target_free);
	same_mark(&a->then, &b->then);
	ck_assert_uint_eq(a->is_counted, b->is_counted);
	same_spot(&a->count, &b->count);
	ck_assert_uint_eq(a->mover, b->mover);
	ck_assert_uint_eq(a->has_direct, b->has_direct);
	ck_assert_uint_eq(a->direction, b->direction);
	ck_assert_uint_eq(a->route, b->route);
}

static void same_route(const struct cei_program_route *a, const struct cei_program_route *b)
{
	const struct cei_route_path *one, *other;
	uint32_t i;

	ck_assert_uint_eq(a->from, b->from);
	ck_assert_uint_eq(a->to, b->to);
	ck_assert_uint_eq(a->bytes, b->bytes);
	ck_assert_uint_eq(a->may_drive, b->may_drive);
	ck_assert_uint_eq(a->no_direct, b->no_direct);
	ck_assert_uint_eq(a->route.n_paths, b->route.n_paths);
	ck_assert_uint_eq(a->route.expected_ns, b->route.expected_ns);
	ck_assert_str_eq(a->route.why, b->route.why);
	for (i = 0; i < a->route.n_paths; i++) {
		one = &a->route.paths[i];
		other = &b->route.paths[i];
		ck_assert_uint_eq(one->kind, other->kind);
		ck_assert_uint_eq(one->via, other->via);
		ck_assert_uint_eq(one->engines[0], other->engines[0]);
		ck_assert_uint_eq(one->engines[1], other->engines[1]);
		ck_assert_uint_eq(one->bytes, other->bytes);
		ck_assert_uint_eq(one->bytes_per_s, other->bytes_per_s);
		ck_assert_uint_eq(one->t0_ns, other->t0_ns);
	}
}

static void same_buffer(const struct cei_program_buffer *a, const struct cei_program_buffer *b)
{
	ck_assert_uint_eq(a->rank, b->rank);
	ck_assert_uint_eq(a->flags, b->flags);
	ck_assert_uint_eq(a->reached, b->reached);
	ck_assert_uint_eq(a->kind, b->kind);
	ck_assert_uint_eq(a->gpu, b->gpu);
	ck_assert_uint_eq(a->place, b->place);
	ck_assert_uint_eq(a->start, b->start);
	ck_assert_uint_eq(a->size_bytes, b->size_bytes);
}

static void same_mover(const struct cei_program_mover *a, const struct cei_program_mover *b)
{
	ck_assert_uint_eq(a->flags, b->flags);
	ck_assert_uint_eq(a->moves, b->moves);
	ck_assert_uint_eq(a->gpu, b->gpu);
	ck_assert_uint_eq(a->place, b->place);
	ck_assert_uint_eq(a->may_drive, b->may_drive);
}

static void same_program(const struct cei_program *a, const struct cei_program *b)
{
	uint32_t i;

	ck_assert_uint_eq(a->rank, b->rank);
	ck_assert_uint_eq(a->n_ranks, b->n_ranks);
	ck_assert_uint_eq(a->max_chunk_bytes, b->max_chunk_bytes);
	ck_assert_uint_eq(a->mark_group_bytes, b->mark_group_bytes);
	ck_assert_uint_eq(a->urgency, b->urgency);
	ck_assert_uint_eq(a->has_template, b->has_template);
	ck_assert_uint_eq(a->keeps_order, b->keeps_order);
	ck_assert_uint_eq(a->floating, b->floating);
	ck_assert_uint_eq(a->n_buffers, b->n_buffers);
	ck_assert_uint_eq(a->n_signals, b->n_signals);
	ck_assert_uint_eq(a->n_transfers, b->n_transfers);
	ck_assert_uint_eq(a->n_expected, b->n_expected);
	ck_assert_uint_eq(a->rule, b->rule);
	ck_assert_uint_eq(a->n_movers, b->n_movers);
	ck_assert_uint_eq(a->n_routes, b->n_routes);
	for (i = 0; i < a->n_movers; i++)
		same_mover(&a->movers[i], &b->movers[i]);
	for (i = 0; i < a->n_buffers; i++)
		same_buffer(&a->buffers[i], &b->buffers[i]);
	for (i = 0; i < a->n_routes; i++)
		same_route(&a->routes[i], &b->routes[i]);
	for (i = 0; i < a->n_signals; i++) {
		ck_assert_uint_eq(a->signals[i].rank, b->signals[i].rank);
		ck_assert_uint_eq(a->signals[i].n_counters, b->signals[i].n_counters);
		ck_assert_uint_eq(a->signals[i].flags, b->signals[i].flags);
		ck_assert_uint_eq(a->signals[i].reached, b->signals[i].reached);
	}
	for (i = 0; i < a->n_transfers; i++)
		same_transfer(&a->transfers[i], &b->transfers[i]);
	for (i = 0; i < a->n_expected; i++)
		same_mark(&a->expected[i], &b->expected[i]);
}

/* --- tests --------------------------------------------------------------------------- */

START_TEST(test_what_is_written_comes_back)
{
	struct cei_program program, back;
	uint32_t round;
	uint8_t *bytes;
	size_t n;

	for (round = 0; round < testing_share(ROUNDS); round++) {
		random_program(&program);
		bytes = encode(&program, &n);
		ck_assert_int_eq(cei_program_read(bytes, n, &back), 0);
		same_program(&program, &back);
		free(bytes);
		cei_program_fini(&program);
		cei_program_fini(&back);
	}
}
END_TEST

START_TEST(test_parts_of_programs_are_refused)
{
	struct cei_program program, back;
	uint8_t *bytes;
	size_t i, n;

	random_program(&program);
	while (!program.n_transfers || !program.n_expected) {
		cei_program_fini(&program);
		random_program(&program);
	}
	bytes = encode(&program, &n);
	bytes = realloc(bytes, n + 1);
	ck_assert_ptr_nonnull(bytes);
	bytes[n] = 0;
	ck_assert_int_eq(cei_program_read(bytes, n + 1, &back), CEOV_ERR_INVALID);
	for (i = 0; i < n; i++)
		ck_assert_int_eq(cei_program_read(bytes, i, &back), CEOV_ERR_INVALID);
	bytes[0]++;
	ck_assert_int_eq(cei_program_read(bytes, n, &back), CEOV_ERR_VERSION);
	bytes[0]--;
	bytes[4]++;
	ck_assert_int_eq(cei_program_read(bytes, n, &back), CEOV_ERR_VERSION);
	free(bytes);
	cei_program_fini(&program);
}
END_TEST

/* A number of entries larger than the bytes can hold is refused before memory is allocated for
 * it. */
START_TEST(test_numbers_beyond_the_bytes_are_refused)
{
	struct cei_program program, back;
	uint8_t *bytes;
	uint32_t list;
	size_t n;

	random_program(&program);
	bytes = encode(&program, &n);
	for (list = 0; list < 6; list++) {
		memset(bytes + AT_COUNTS + 4 * list, 0xff, 4);
		ck_assert_int_eq(cei_program_read(bytes, n, &back), CEOV_ERR_INVALID);
		memset(bytes + AT_COUNTS + 4 * list, 0x7f, 4);
		ck_assert_int_eq(cei_program_read(bytes, n, &back), CEOV_ERR_INVALID);
		cei_program_write(&program, bytes);
	}
	free(bytes);
	cei_program_fini(&program);
}
END_TEST

static void drop_line(void *arg, const char *line)
{
	(void)arg;
	(void)line;
}

/* Cuts every transfer and asserts that chunks lie within the buffers. */
static void cut_all(const struct cei_program *program)
{
	struct cei_cut *cuts = calloc((size_t)program->n_chunks + 1, sizeof(*cuts));
	const struct cei_program_transfer *transfer;
	const struct cei_program_buffer *target;
	uint64_t at, n_bytes;
	uint32_t i, k;

	ck_assert_ptr_nonnull(cuts);
	for (i = 0; i < program->n_transfers; i++) {
		transfer = &program->transfers[i];
		cei_program_cut(program, i, &cuts[transfer->first_chunk]);
		for (k = 0; transfer->row_bytes && k < transfer->n_chunks; k++) {
			if (!cuts[transfer->first_chunk + k].piece.n_rows)
				continue;
			target = &program->buffers[transfer->target.buffer];
			at = cuts[transfer->first_chunk + k].piece.target;
			n_bytes = cuts[transfer->first_chunk + k].piece.row_bytes;
			if (at < target->start || at - target->start + n_bytes > target->size_bytes)
				ck_abort_msg("transfer %u, chunk %u leaves its buffer", i, k);
		}
	}
	free(cuts);
}

/* Runs every check on a decoded program; none of them may crash, whatever it finds. */
static void check_all(struct cei_program *program)
{
	struct cei_triggers triggers;
	struct cei_report report;
	struct cei_order order;
	int r;

	cei_report_init(&report, drop_line, NULL);
	r = cei_program_check_triggers(program, &report, &triggers);
	if (!cei_program_count(program, &report) && program->n_chunks < 100000)
		cut_all(program);
	ck_assert_int_eq(cei_program_check_spots(program, &report), 0);
	if (!cei_order_init(&order, program, &report)) {
		(void)cei_overlap_check(&order);
		if (!r)
			(void)cei_triggers_follow(&triggers, &order);
	}
	cei_order_fini(&order);
	cei_report_fini(&report);
}

/* Changes a few bytes, mostly behind the head. */
static void damage(uint8_t *bytes, size_t n)
{
	uint32_t k, n_changes = 1 + below(3);
	size_t at;

	for (k = 0; k < n_changes; k++) {
		at = below(10) ? HEAD + below((uint32_t)(n - HEAD)) : below((uint32_t)n);
		bytes[at] = below(2) ? (uint8_t)below(256)
			: (uint8_t)(bytes[at] ^ 1u << below(8));
	}
}

START_TEST(test_damaged_programs_are_refused_or_sound)
{
	struct cei_program program, back;
	uint8_t *bytes, *again;
	uint32_t round, n_taken = 0, n_refused = 0;
	size_t n, n_again;
	int r;

	for (round = 0; round < testing_share(ROUNDS); round++) {
		random_program(&program);
		bytes = encode(&program, &n);
		damage(bytes, n);
		r = cei_program_read(bytes, n, &back);
		ck_assert(!r || r == CEOV_ERR_INVALID || r == CEOV_ERR_VERSION);
		if (r) {
			n_refused++;
		} else {
			n_taken++;
			again = encode(&back, &n_again);        /* a program has only one
								 * encoding */
			ck_assert_uint_eq(n_again, n);
			ck_assert_mem_eq(again, bytes, n);
			check_all(&back);
			free(again);
			cei_program_fini(&back);
		}
		free(bytes);
		cei_program_fini(&program);
	}
	ck_assert_uint_gt(n_taken, testing_share(ROUNDS) / 100);
	ck_assert_uint_gt(n_refused, testing_share(ROUNDS) / 100);
}
END_TEST

/* What a router sets. */
static void route(struct cei_program *program, uint32_t n_routes)
{
	struct cei_program_transfer *transfer = program->transfers;

	program->n_routes = n_routes;
	for (; transfer < program->transfers + program->n_transfers; transfer++) {
		transfer->mover = n_routes ? below(program->n_movers) : 0;
		transfer->has_direct = n_routes ? below(2) : 0;
		transfer->direction = n_routes ? below(CEI_DIRECTION_ANY) : 0;
		transfer->route = n_routes ? below(n_routes) : CEI_PROGRAM_NONE;
	}
}

/* A daemon gets a plan again after the client has routed it; these are the same bytes. */
START_TEST(test_a_copy_without_routes_is_as_before_routing)
{
	struct cei_program program, copy;
	uint8_t *before, *after;
	uint32_t i, n_routes;
	size_t n_bytes;

	for (i = 0; i < testing_share(ROUNDS); i++) {
		random_program(&program);
		n_routes = program.n_routes;
		route(&program, 0);
		n_bytes = cei_program_bytes(&program);
		before = malloc(n_bytes);
		after = malloc(n_bytes);
		cei_program_write(&program, before);
		route(&program, n_routes);
		ck_assert_int_eq(cei_program_copy_unrouted(&program, &copy), 0);
		ck_assert_uint_eq(cei_program_bytes(&copy), n_bytes);
		cei_program_write(&copy, after);
		ck_assert_int_eq(memcmp(before, after, n_bytes), 0);
		free(copy.transfers);
		free(before);
		free(after);
		cei_program_fini(&program);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("program_wire");
	TCase *tcase = tcase_create("wire");

	tcase_add_checked_fixture(tcase, set_up, NULL);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, test_what_is_written_comes_back);
	tcase_add_test(tcase, test_a_copy_without_routes_is_as_before_routing);
	tcase_add_test(tcase, test_parts_of_programs_are_refused);
	tcase_add_test(tcase, test_numbers_beyond_the_bytes_are_refused);
	tcase_add_test(tcase, test_damaged_programs_are_refused_or_sound);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
