/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The sums of reduce-scatter and all-reduce on one GPU: the ranks are numbers in the
 * kernel's parameters, and the test sends what they would send, in random order, while
 * the kernel waits. Sums are compared bit for bit with the host's.
 *
 *   CEOVERLAP_GPU_REDUCTIONS   shapes for each number of ranks (default 9), a third of
 *                              them in each type
 */

#include "gpu_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "kernels/reduce.h"
#include "ops/compute/dtype.h"

#define RANKS         8u
#define PIECES_MAX    5u
#define STEP          8u                /* counts are multiples of this */
#define PART_MAX      (16384u * STEP)   /* largest part of a rank, in elements */
#define ALL_MAX       (RANKS * PART_MAX * 2) /* in 16-bit words; fp32 has two of them */
#define STRIDE_MAX    (4 * PART_MAX + 64) /* in bytes */
#define GUARD         64u               /* words behind the target; host.seen has room
					 * for them */
#define UNTOUCHED     0xabcdu
#define REDUCTIONS    9u
#define SHORT_NS      (5 * TESTING_MS)
#define ARRIVED_FIRST 3u
#define SENT_MAX      3u

static struct gpu gpu;
static ceov_context *context;

/* Memory for the largest shape. The kernel's is on the GPU; what peers will send is in
 * sent_*, beside copies on the host. */
static struct {
	uint16_t *source, *target, *partials, *gathered;
	uint16_t *sent_partials, *sent_gathered;
	uint64_t *epoch;
} device;

static struct {
	uint16_t *source, *partials, *gathered, *seen, *wanted;
	float *sum, *wide;
} host;

struct work {
	struct cei_reduce reduce;
	enum ceov_dtype   dtype;
	uint32_t          n_words;      /* 16-bit words per element */
	uint32_t          n_blocks;
	int               is_all_reduce;
	uint64_t          value;        /* the value that the kernel awaits */
	ceov_signal      *awaited, *ready, *arrived, *sent;
};

struct arrival {                        /* one piece from another rank */
	uint32_t rank;
	uint32_t piece;
	int      is_gathered;
};

static void *numbers(uint64_t n)
{
	void *p = malloc(n * sizeof(uint16_t));

	ck_assert_ptr_nonnull(p);
	return p;
}

static void set_up(void)
{
	static const uint32_t indices[1] = { 0 };

	context = gpu_context(indices, 1);
	gpu_open(&gpu, 0);
	device.source = gpu_allocate(&gpu, 2 * ALL_MAX);
	device.target = gpu_allocate(&gpu, 2 * (ALL_MAX + GUARD));
	device.partials = gpu_allocate(&gpu, RANKS * STRIDE_MAX);
	device.gathered = gpu_allocate(&gpu, 2 * ALL_MAX);
	device.sent_partials = gpu_allocate(&gpu, RANKS * STRIDE_MAX);
	device.sent_gathered = gpu_allocate(&gpu, 2 * ALL_MAX);
	device.epoch = gpu_allocate(&gpu, sizeof(uint64_t));
	host.source = numbers(ALL_MAX);
	host.partials = numbers(RANKS * STRIDE_MAX / 2);
	host.gathered = numbers(ALL_MAX);
	host.seen = numbers(RANKS * STRIDE_MAX / 2);
	host.wanted = numbers(ALL_MAX + GUARD);
	host.sum = malloc(PART_MAX * sizeof(float));
	host.wide = malloc(PART_MAX * sizeof(float));
	ck_assert(host.sum && host.wide);
}

static void tear_down(void)
{
	free(host.source);
	free(host.partials);
	free(host.gathered);
	free(host.seen);
	free(host.wanted);
	free(host.sum);
	free(host.wide);
	gpu_free(&gpu, device.source);
	gpu_free(&gpu, device.target);
	gpu_free(&gpu, device.partials);
	gpu_free(&gpu, device.gathered);
	gpu_free(&gpu, device.sent_partials);
	gpu_free(&gpu, device.sent_gathered);
	gpu_free(&gpu, device.epoch);
	gpu_close(&gpu);
	ceov_close(context);
}

/* --- shapes -------------------------------------------------------------- */

static void choose_dtype(struct work *work, enum ceov_dtype dtype)
{
	work->dtype = dtype;
	work->n_words = (uint32_t)cei_dtype_bytes(dtype) / 2;
}

static uint64_t part_begin(const struct work *work, uint32_t rank)
{
	uint64_t n = 0;
	uint32_t r;

	for (r = 0; r < rank; r++)
		n += work->reduce.counts[r];
	return n;
}

/* Returns the number of elements of a piece, and its first element within the part. */
static uint64_t piece_of(const struct work *work, uint32_t rank, uint32_t piece,
			 uint64_t *ret_first)
{
	const uint64_t count = work->reduce.counts[rank];
	const uint64_t length = work->reduce.piece_elements[rank];
	const uint64_t first = piece * length;

	*ret_first = first;
	if (first >= count)
		return 0;
	return count - first < length ? count - first : length;
}

/* Random parts: empty, a few elements, fewer than the blocks have threads, or many rounds
 * of them. */
static void choose_shape(struct work *work, uint32_t n_ranks, uint64_t *state)
{
	static const uint64_t limits[] = { 1, 4, 600, PART_MAX / STEP + 1 };
	static const uint32_t blocks[] = { 1, 3, 16, 24 };
	static const float scales[] = { 1, 0.25f, 1 / 3.0f, -3 };
	struct cei_reduce *reduce = &work->reduce;
	uint64_t n_steps;
	uint32_t r;

	reduce->n_ranks = n_ranks;
	reduce->own = (uint32_t)testing_below(state, n_ranks);
	reduce->n_pieces = 1 + (uint32_t)testing_below(state, PIECES_MAX);
	reduce->scale = scales[testing_below(state, 4)];
	work->n_blocks = blocks[testing_below(state, 4)];
	for (r = 0; r < n_ranks; r++) {
		n_steps = testing_below(state, limits[testing_below(state, 4)]);
		reduce->counts[r] = n_steps * STEP;
		n_steps = (n_steps + reduce->n_pieces - 1) / reduce->n_pieces;
		reduce->piece_elements[r] = (n_steps + testing_below(state, 3)) * STEP;
	}
	reduce->partial_stride_bytes = 2 * work->n_words * reduce->counts[reduce->own] +
		16 * testing_below(state, 4);
}

static ceov_signal *visible(uint32_t n_counters)
{
	return gpu_signal(context, 0, 0, n_counters, CEOV_SIGNAL_HOST_VISIBLE);
}

static void make_marks(struct work *work, uint64_t *state)
{
	struct cei_reduce *reduce = &work->reduce;
	const uint32_t n = reduce->n_ranks * reduce->n_pieces;
	uint64_t epoch = 1 + testing_below(state, 1000);

	work->awaited = visible(n);
	work->ready = visible(reduce->n_pieces);
	work->arrived = visible(ARRIVED_FIRST + n);
	work->sent = visible(1 + SENT_MAX);
	work->value = epoch + 1;
	reduce->awaited = gpu_view(work->awaited, 0);
	reduce->arrived = gpu_view(work->arrived, 0);
	reduce->first_arrived = ARRIVED_FIRST;
	if (testing_below(state, 4))
		reduce->ready = gpu_view(work->ready, 0);
	reduce->sent = gpu_view(work->sent, 0);
	reduce->sent_index = 1;
	reduce->n_sent = (uint32_t)testing_below(state, SENT_MAX + 1);
	reduce->sent_value = 9;
	reduce->arrive_value = 5;
	reduce->await_value = work->value;
	if (testing_below(state, 2)) {
		reduce->epoch = device.epoch;
		reduce->await_value = 1;
		gpu_move(&gpu, device.epoch, &epoch, sizeof(epoch));
	}
	reduce->timeout_ns = GPU_AWAIT_NS;
	gpu_reset(&gpu, 0);
	gpu_reset(&gpu, 1);
	reduce->status = &gpu.results[0].status;
	reduce->failed = &gpu.results[1].status;
}

static void drop_marks(struct work *work)
{
	ck_assert_int_eq(ceov_signal_release(work->awaited), 0);
	ck_assert_int_eq(ceov_signal_release(work->ready), 0);
	ck_assert_int_eq(ceov_signal_release(work->arrived), 0);
	ck_assert_int_eq(ceov_signal_release(work->sent), 0);
}

/* --- numbers ------------------------------------------------------------- */

/* Makes a finite number; most are of a magnitude at which sums round, some of any magnitude. */
static uint32_t number(enum ceov_dtype dtype, uint64_t *state)
{
	const uint64_t bits = testing_random(state), other = testing_random(state);
	const unsigned fraction = dtype == CEOV_BF16 ? 7 : dtype == CEOV_FP16 ? 10 : 23;
	const uint64_t n_exponents = dtype == CEOV_FP16 ? 31 : 255;
	uint64_t exponent = n_exponents / 2 - 6 + bits % 9;

	if (bits >> 61 == 0)
		exponent = bits % n_exponents;
	exponent += (other >> 63) * (n_exponents + 1);  /* the sign bit is above the exponent */
	return (uint32_t)(exponent << fraction | (other & ((1u << fraction) - 1)));
}

/* Fills n words with random numbers. */
static void fill(const struct work *work, uint16_t *to, uint64_t n, uint64_t *state)
{
	uint32_t bits;
	uint64_t i;

	for (i = 0; i < n; i += work->n_words) {
		bits = number(work->dtype, state);
		memcpy(to + i, &bits, 2 * work->n_words);
	}
}

/* Generates what peers send. The kernel's copies are NaN until they are sent. */
static void make_numbers(struct work *work, uint64_t *state)
{
	struct cei_reduce *reduce = &work->reduce;
	const uint64_t n_all = part_begin(work, reduce->n_ranks) * work->n_words;
	const uint64_t n_partials = reduce->n_ranks * reduce->partial_stride_bytes / 2;
	uint64_t i;

	fill(work, host.source, n_all, state);
	fill(work, host.partials, n_partials, state);
	fill(work, host.gathered, n_all, state);
	gpu_move(&gpu, device.source, host.source, 2 * ALL_MAX);
	gpu_move(&gpu, device.sent_partials, host.partials, RANKS * STRIDE_MAX);
	gpu_move(&gpu, device.sent_gathered, host.gathered, 2 * ALL_MAX);
	memset(host.seen, 0xff, RANKS * STRIDE_MAX);
	gpu_move(&gpu, device.partials, host.seen, RANKS * STRIDE_MAX);
	gpu_move(&gpu, device.gathered, host.seen, 2 * ALL_MAX);
	for (i = 0; i < ALL_MAX + GUARD; i++)
		host.wanted[i] = UNTOUCHED;
	gpu_move(&gpu, device.target, host.wanted, 2 * (ALL_MAX + GUARD));
	reduce->source = device.source + part_begin(work, reduce->own) * work->n_words;
	reduce->target = device.target;
	reduce->partials = device.partials;
	reduce->gathered = work->is_all_reduce ? device.gathered : NULL;
}

/* Computes the reference sum in the order of ranks, in which the own part has its place. */
static void sum_own_part(const struct work *work, uint16_t *target)
{
	const struct cei_reduce *reduce = &work->reduce;
	const uint64_t n = reduce->counts[reduce->own];
	const uint16_t *from;
	uint64_t i;
	uint32_t s;

	for (s = 0; s < reduce->n_ranks; s++) {
		from = host.partials + s * reduce->partial_stride_bytes / 2;
		if (s == reduce->own)
			from = host.source + part_begin(work, s) * work->n_words;
		cei_dtype_widen(work->dtype, host.wide, from, n);
		for (i = 0; i < n; i++)
			host.sum[i] = s ? host.sum[i] + host.wide[i] : host.wide[i];
	}
	for (i = 0; i < n; i++)
		host.sum[i] *= reduce->scale;
	cei_dtype_narrow(work->dtype, target, host.sum, n);
}

static void check_target(const struct work *work)
{
	const struct cei_reduce *reduce = &work->reduce;
	const uint64_t begin = part_begin(work, reduce->own) * work->n_words;
	const uint64_t n_all = part_begin(work, reduce->n_ranks) * work->n_words;
	uint64_t i;

	if (work->is_all_reduce)
		memcpy(host.wanted, host.gathered, 2 * n_all);
	sum_own_part(work, host.wanted + (work->is_all_reduce ? begin : 0));
	gpu_move(&gpu, host.seen, device.target, 2 * (ALL_MAX + GUARD));
	for (i = 0; i < ALL_MAX + GUARD && host.seen[i] == host.wanted[i]; i++)
		;
	ck_assert_msg(i == ALL_MAX + GUARD,
		      "%s %s of %u ranks, own %u, scale %g: word %llu of %llu (own part: "
		      "%llu elements from word %llu) is %04x, not %04x",
		      cei_dtype_name(work->dtype),
		      work->is_all_reduce ? "all-reduce" : "reduce-scatter",
		      reduce->n_ranks, reduce->own, (double)reduce->scale,
		      (unsigned long long)i,
		      (unsigned long long)n_all,
		      (unsigned long long)reduce->counts[reduce->own],
		      (unsigned long long)begin, host.seen[i], host.wanted[i]);
}

static void check_ready(const struct work *work)
{
	uint64_t first, n, value;
	uint32_t p;

	for (p = 0; p < work->reduce.n_pieces; p++) {
		n = piece_of(work, work->reduce.own, p, &first);
		ck_assert_int_eq(ceov_signal_value(work->ready, p, &value), 0);
		ck_assert_uint_eq(value, n && work->reduce.ready.counters ?
				  work->reduce.arrive_value : 0);
	}
}

/* --- sending ------------------------------------------------------------- */

static void launch(struct work *work)
{
	char name[32];
	void *arguments[] = { &work->reduce };
	const struct cei_module_launch made = {
		.name = name,
		.n_blocks = work->n_blocks,
		.n_threads = CEI_REDUCE_THREADS,
		.arguments = arguments,
	};

	snprintf(name, sizeof(name), "cei_reduce_%s", cei_dtype_name(work->dtype));
	gpu_launch_as(&gpu, GPU_CONSUME, &made);
}

/* Raises a mark from the host or from a stream. */
static void raise_mark(ceov_signal *signal, uint32_t index, uint64_t value, uint64_t *state)
{
	const struct ceov_mark mark = testing_mark(signal, index, value);

	if (testing_below(state, 2))
		ck_assert_int_eq(ceov_signal_raise(signal, index, value), 0);
	else
		ck_assert_int_eq(ceov_stream_raise(context, 0, gpu.streams[GPU_PRODUCE],
						   &mark, 1, 0), 0);
}

/* Lists everything that peers send, without empty pieces, in random order. */
static uint32_t list_arrivals(const struct work *work, struct arrival *list, uint64_t *state)
{
	const struct cei_reduce *reduce = &work->reduce;
	const uint32_t n_each = reduce->n_ranks * reduce->n_pieces;
	struct arrival next, swapped;
	uint32_t i, k, n = 0;
	uint64_t first;

	for (i = 0; i < (work->is_all_reduce ? 2 : 1) * n_each; i++) {
		next.is_gathered = i >= n_each;
		next.rank = i % n_each / reduce->n_pieces;
		next.piece = i % reduce->n_pieces;
		if (next.rank != reduce->own &&
		    piece_of(work, next.is_gathered ? next.rank : reduce->own, next.piece,
			     &first))
			list[n++] = next;
	}
	for (i = n; i > 1; i--) {
		k = (uint32_t)testing_below(state, i);
		swapped = list[i - 1];
		list[i - 1] = list[k];
		list[k] = swapped;
	}
	return n;
}

static void send(const struct work *work, const struct arrival *arrival, uint64_t *state)
{
	const struct cei_reduce *reduce = &work->reduce;
	const uint32_t counter = arrival->rank * reduce->n_pieces + arrival->piece;
	uint64_t first, n;

	if (arrival->is_gathered) {
		n = piece_of(work, arrival->rank, arrival->piece, &first) * work->n_words;
		first = (first + part_begin(work, arrival->rank)) * work->n_words;
		gpu_move(&gpu, device.gathered + first, device.sent_gathered + first, 2 * n);
		raise_mark(work->arrived, ARRIVED_FIRST + counter, work->value, state);
		return;
	}
	n = piece_of(work, reduce->own, arrival->piece, &first) * work->n_words;
	first = first * work->n_words + arrival->rank * reduce->partial_stride_bytes / 2;
	gpu_move(&gpu, device.partials + first, device.sent_partials + first, 2 * n);
	raise_mark(work->awaited, counter, work->value, state);
}

/* Waits long enough that a kernel which did not await its marks would have ended, with
 * wrong sums. */
static void check_it_waits(void)
{
	const struct timespec pause = { 0, 2 * (long)TESTING_MS };

	nanosleep(&pause, NULL);
	ck_assert_int_eq(gpu_is_idle(&gpu, GPU_CONSUME), 0);
}

/* Sends everything. The kernel must run until the last piece is sent, and end then. */
static void send_all(const struct work *work, uint64_t *state)
{
	struct arrival list[2 * RANKS * PIECES_MAX];
	const uint32_t n = list_arrivals(work, list, state);
	uint32_t i;

	for (i = 0; i < n; i++) {
		if (i == 0 || i == n - 1)
			check_it_waits();
		send(work, &list[i], state);
	}
	for (i = 0; i < work->reduce.n_sent; i++) {
		check_it_waits();
		raise_mark(work->sent, work->reduce.sent_index + i, work->reduce.sent_value,
			   state);
	}
}

static void reduce_once(struct work *work, uint32_t n_ranks, uint64_t *state)
{
	choose_shape(work, n_ranks, state);
	make_numbers(work, state);
	make_marks(work, state);
	launch(work);
	send_all(work, state);
	gpu_idle(&gpu, GPU_CONSUME);
	gpu_idle(&gpu, GPU_PRODUCE);
	ck_assert_uint_eq(gpu_result(&gpu, 0).status, GPU_REACHED);
	check_target(work);
	check_ready(work);
	drop_marks(work);
}

START_TEST(test_sums_are_the_hosts_bit_for_bit)
{
	static const enum ceov_dtype dtypes[] = { CEOV_BF16, CEOV_FP16, CEOV_FP32 };
	const uint32_t n_each = gpu_setting("CEOVERLAP_GPU_REDUCTIONS", REDUCTIONS);
	uint64_t state = testing_seed() + (uint64_t)_i;
	uint32_t n_ranks, k;
	struct work work;

	for (n_ranks = 1; n_ranks <= RANKS; n_ranks++) {
		for (k = 0; k < n_each; k++) {
			memset(&work, 0, sizeof(work));
			work.is_all_reduce = _i;
			choose_dtype(&work, dtypes[k % 3]);
			reduce_once(&work, n_ranks, &state);
		}
	}
}
END_TEST

/* --- failures ------------------------------------------------------------ */

/* Makes a case of two ranks in one piece; the own rank is the first. */
static void make_small(struct work *work, int has_epoch)
{
	const uint64_t one = 1;
	uint64_t state = testing_seed();

	memset(work, 0, sizeof(*work));
	choose_dtype(work, CEOV_BF16);
	work->n_blocks = 3;
	work->reduce.scale = 1;
	work->reduce.n_ranks = 2;
	work->reduce.n_pieces = 1;
	work->reduce.counts[0] = work->reduce.piece_elements[0] = 800;
	work->reduce.partial_stride_bytes = 1600;
	make_numbers(work, &state);
	make_marks(work, &state);
	work->reduce.ready = gpu_view(work->ready, 0);
	work->reduce.await_value = 1;
	work->reduce.epoch = has_epoch ? device.epoch : NULL;
	gpu_move(&gpu, device.epoch, &one, sizeof(one));
}

/* Asserts that nothing was written, and that with an epoch all pieces are raised all the same. */
static void check_nothing_was_made(const struct work *work)
{
	uint64_t value = 1, epoch = 0, i;

	ck_assert_int_eq(ceov_signal_value(work->ready, 0, &value), 0);
	ck_assert_uint_eq(value, work->reduce.epoch ? work->reduce.arrive_value : 0);
	gpu_move(&gpu, &epoch, device.epoch, sizeof(epoch));
	ck_assert_uint_eq(epoch, work->reduce.epoch ? CEOV_VALUE_LIMIT : 1);
	gpu_move(&gpu, host.seen, device.target, 1600);
	for (i = 0; i < 800; i++)
		ck_assert_uint_eq(host.seen[i], UNTOUCHED);
}

START_TEST(test_what_never_arrives_ends_the_kernel)
{
	struct work work;

	make_small(&work, _i);
	work.reduce.timeout_ns = SHORT_NS;
	launch(&work);
	gpu_idle(&gpu, GPU_CONSUME);
	ck_assert_uint_eq(gpu_result(&gpu, 0).status, GPU_TIMEOUT);
	check_nothing_was_made(&work);
	drop_marks(&work);
}
END_TEST

START_TEST(test_an_abort_ends_the_kernel)
{
	struct ceov_transfer transfer = testing_transfer(NULL, NULL, 0);
	ceov_plan *plan = testing_plan(context, 0);
	ceov_signal *never = visible(1);
	ceov_ticket ticket = { 0 };
	struct work work;

	make_small(&work, _i);
	transfer.source_ready = testing_mark(never, 0, 1);
	transfer.then = testing_mark(work.awaited, 1, 1);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_int_eq(ceov_launch(plan, NULL, &ticket), 0);
	launch(&work);
	ck_assert_int_eq(ceov_wait(context, ticket, 20 * TESTING_MS), CEOV_PENDING);
	ck_assert_int_eq(gpu_is_idle(&gpu, GPU_CONSUME), 0);
	ck_assert_int_eq(ceov_abort(context, ticket), 0);
	gpu_idle(&gpu, GPU_CONSUME);
	ck_assert_uint_eq(gpu_result(&gpu, 0).status, GPU_ABORTED);
	ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), CEOV_ERR_ABORTED);
	check_nothing_was_made(&work);
	if (_i) {                       /* a run with a poisoned epoch waits for nothing */
		gpu_reset(&gpu, 0);
		launch(&work);
		gpu_idle(&gpu, GPU_CONSUME);
		ck_assert_uint_eq(gpu_result(&gpu, 0).status, GPU_ABORTED);
	}
	ceov_plan_release(plan);
}
END_TEST

/* Nothing is sent, and the timeout is long: the kernel ends because a run before it failed. */
START_TEST(test_behind_a_failed_run_nobody_waits)
{
	const uint32_t failed = 1;
	uint64_t begin_ns;
	struct work work;

	make_small(&work, _i);
	gpu_move(&gpu, &gpu.results[1].status, &failed, sizeof(failed));
	begin_ns = cei_now_ns();
	launch(&work);
	gpu_idle(&gpu, GPU_CONSUME);
	ck_assert_uint_lt(cei_now_ns() - begin_ns, GPU_AWAIT_NS / 10);
	ck_assert_uint_eq(gpu_result(&gpu, 0).status, GPU_ABORTED);
	check_nothing_was_made(&work);
	drop_marks(&work);
}
END_TEST

static Suite *suite(uint32_t n_gpus)
{
	Suite *made = suite_create("gpu reduce");
	TCase *all = tcase_create("reduce");

	(void)n_gpus;
	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_set_timeout(all, 120);
	tcase_add_loop_test(all, test_sums_are_the_hosts_bit_for_bit, 0, 2);
	tcase_add_loop_test(all, test_what_never_arrives_ends_the_kernel, 0, 2);
	tcase_add_loop_test(all, test_an_abort_ends_the_kernel, 0, 2);
	tcase_add_loop_test(all, test_behind_a_failed_run_nobody_waits, 0, 2);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return gpu_main(1, suite);
}
