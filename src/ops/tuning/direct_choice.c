/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Chooses how many SMs move the bytes of an op whose mode is direct, and explains it. */

#include "ops/tuning/direct_choice.h"

#include "ops/compute/direct.h"
#include "ops/kind.h"

#define VECTOR_BYTES     16u            /* what a thread stores at once */
#define BLOCKS_DEFAULT   16u
#define BLOCKS_LISTED    3u             /* how many numbers of SMs are measured */
#define BLOCKS_FEW       2u             /* how many of them are at most 16 */
#define LISTED_BYTES_MAX (UINT64_C(4) << 20)
#define SUM_BYTES_MAX    (UINT64_C(256) << 20)
#define LL_BLOCK_BYTES   (UINT64_C(8) << 10)     /* that a block sends with the number of the run */
#define STEP_ROWS_MIN    4u             /* sums in steps: chunks of a span that a block has, ... */
#define STEP_BYTES_MIN   (UINT64_C(256) << 10)  /* ... and bytes that it sends to all peers */
#define STEP_CHUNKS_MIN  4u             /* of a step, to all peers: so a step's last chunks are on
					 * their way while the next one begins */

/* One step of an all-reduce is chosen if a rank sends at most so much to all others together.
 * Between 4 GPUs one step of 256 KiB took 10.9 us and two 12.0, of 1 MiB 25.9 and 16.9
 * (docs/results/4xh200.md). */
#define ONE_SHOT_SENT_MAX (UINT64_C(1) << 20)

const char *cei_direct_ranks_fault(const struct cei_op_shape *shape)
{
	return shape->n_ranks <= CEI_DIRECT_RANKS_MAX ? NULL
		: "tuning->mode: direct modes are for at most 32 ranks";
}

/* Ops by SMs were measured with links of 390 GB/s; of slower ones nothing is known. */
#define LINK_BYTES_PER_NS 300.0

int cei_direct_is_open(const struct cei_choose_args *args)
{
	const struct cei_rates *rates = args->rates;

	return args->given->mode == CEOV_MODE_CHOOSE && !args->given->n_pieces &&
		args->shape->n_ranks > 1 && rates->has_lanes && rates->n_sms &&
		rates->copy_bytes_per_ns >= LINK_BYTES_PER_NS;
}

enum ceov_op_mode cei_direct_all_reduce_mode(uint64_t n_bytes, uint32_t n_ranks)
{
	return n_bytes * (n_ranks - 1) <= ONE_SHOT_SENT_MAX ? CEOV_MODE_DIRECT : CEOV_MODE_TWO_SHOT;
}

/* A run's begin and end, with counters and without; then the rates at which 16 SMs store to peers:
 * while they add, in sums made in steps; before they add or copy, in the kernels for few bytes; and
 * in those without counters, which store as many bytes of numbers, too. They are from 2, 4 and 8
 * GPUs in graphs (docs/results of 2026-11-26 and -27). */
#define DIRECT_NS          9000.0
#define LL_NS              4000.0
#define STEPS_BYTES_PER_NS  270.0
#define FEW_BYTES_PER_NS    210.0
#define LL_BYTES_PER_NS      93.0
#define MANY_RANKS_PER_NS   140.0       /* ... of more ranks than sums in steps take */
#define MEASURED_SMS         16.0

double cei_direct_ns(const struct cei_choose_args *args, const struct cei_choice *choice,
		     uint64_t n_bytes)
{
	double rate = FEW_BYTES_PER_NS;

	if (choice->direct_ll)
		rate = LL_BYTES_PER_NS;
	else if (choice->direct_steps)
		rate = STEPS_BYTES_PER_NS;
	else if (args->shape->n_ranks > CEI_DIRECT_STEP_RANKS_MAX)
		rate = MANY_RANKS_PER_NS;
	if (args->rates->n_sms < MEASURED_SMS)
		rate *= args->rates->n_sms / MEASURED_SMS;
	return (choice->direct_ll ? LL_NS : DIRECT_NS) + (double)n_bytes / rate;
}

static uint32_t least(uint64_t x, uint64_t y)
{
	return (uint32_t)(x < y ? x : y);
}

/* Returns how many of the wanted SMs there are at every rank. */
static uint32_t blocks_within(const struct cei_rates *rates, uint32_t wanted)
{
	uint32_t n = least(wanted, CEI_DIRECT_BLOCKS_MAX);

	if (rates->n_sms)
		n = least(n, rates->n_sms);
	return n ? n : 1;
}

/* Returns how many SMs to use: no more than are wanted, and than there is work for if each thread
 * stores one vector. */
static uint32_t blocks_for(const struct cei_rates *rates, uint64_t span_bytes, uint32_t wanted)
{
	uint64_t n = cei_ceiling(span_bytes, VECTOR_BYTES * CEI_DIRECT_THREADS);

	return blocks_within(rates, least(n, wanted));
}

/* Returns how many vectors of a span threads have in flight (kernels/direct.h): as many as there is
 * room for, but no more than there are for a thread, since few bytes are all latency. It depends on
 * what is the same at all ranks. */
static uint32_t each_for(uint32_t n_ranks, uint64_t span_bytes, uint32_t n_blocks)
{
	static const uint32_t each[] = { 8, 4 };        /* others that the kernels are made for */
	uint64_t vectors = span_bytes / VECTOR_BYTES;
	uint64_t for_thread = vectors / ((uint64_t)n_blocks * CEI_DIRECT_THREADS);
	uint32_t i;

	for (i = 0; i < sizeof(each) / sizeof(each[0]); i++)
		if (each[i] * n_ranks <= CEI_DIRECT_FLIGHT && each[i] <= for_thread)
			return each[i];
	return 1;
}

/* Returns how many SMs the caller wants; 0: it says nothing that counts. */
static uint32_t given_blocks(const struct cei_choose_args *args)
{
	return args->given->mode == CEOV_MODE_CHOOSE ? 0 : args->given->n_reduce_blocks;
}

void cei_direct_choose(const struct cei_choose_args *args, uint64_t span_bytes,
		       struct cei_choice *choice)
{
	uint32_t given = given_blocks(args);

	choice->n_pieces = 1;
	choice->n_reduce_blocks = given ? blocks_within(args->rates, given)
		: blocks_for(args->rates, span_bytes, BLOCKS_DEFAULT);
	choice->direct_each = each_for(args->shape->n_ranks, span_bytes, choice->n_reduce_blocks);
}

/* Returns whether a sum is made in steps. Every rank finds the same. */
static int is_in_steps(const struct cei_choose_args *args, uint64_t span_bytes, uint32_t n_blocks)
{
	const struct cei_rates *rates = args->rates;
	uint32_t n_ranks = args->shape->n_ranks;

	return rates->n_sms && rates->all_have_kernels && n_ranks > 1 &&
		n_ranks <= CEI_DIRECT_STEP_RANKS_MAX && n_blocks <= CEI_DIRECT_STEP_BLOCKS_MAX &&
		span_bytes >= (uint64_t)STEP_ROWS_MIN * CEI_DIRECT_CHUNK * n_blocks &&
		(n_ranks - 1) * span_bytes >= STEP_BYTES_MIN * n_blocks;
}

/* Cuts the rows of chunks into steps, as many as there are counters for at most. */
static void cut_steps(uint32_t n_ranks, uint64_t n_rows, struct cei_choice *choice)
{
	uint64_t rows = cei_ceiling(n_rows, CEI_DIRECT_STEPS_MAX);
	uint32_t least_rows = (uint32_t)cei_ceiling(STEP_CHUNKS_MIN, n_ranks - 1);

	if (rows < least_rows)
		rows = least_rows;
	choice->direct_step_rows = (uint32_t)rows;
	choice->direct_steps = (uint32_t)cei_ceiling(n_rows, rows);
}

void cei_direct_choose_sum(const struct cei_choose_args *args, uint64_t span_bytes,
			   struct cei_choice *choice)
{
	uint64_t row_bytes;

	cei_direct_choose(args, span_bytes, choice);
	row_bytes = (uint64_t)CEI_DIRECT_CHUNK * choice->n_reduce_blocks;
	if (is_in_steps(args, span_bytes, choice->n_reduce_blocks))
		cut_steps(args->shape->n_ranks, cei_ceiling(span_bytes, row_bytes), choice);
}

/* There is one SM for each LL_BLOCK_BYTES that a rank sends to all peers together, and 16 at most:
 * what is sent takes an SM's time, not what one peer gets. */
void cei_direct_choose_ll(const struct cei_choose_args *args, int all_send, uint64_t span_bytes,
			  struct cei_choice *choice)
{
	uint32_t n_ranks = args->shape->n_ranks;
	uint64_t n;

	if (choice->mode != CEOV_MODE_DIRECT || choice->direct_steps || !all_send ||
	    !args->rates->n_sms || !args->rates->has_packets || n_ranks < 2 ||
	    n_ranks > CEI_DIRECT_LL_RANKS_MAX || span_bytes > cei_direct_ll_span_max(n_ranks))
		return;
	choice->direct_ll = 1;
	n = cei_ceiling((n_ranks - 1) * span_bytes, LL_BLOCK_BYTES);
	if (!given_blocks(args))
		choice->n_reduce_blocks = blocks_within(args->rates, least(n, BLOCKS_DEFAULT));
}

void cei_direct_say_moved(struct cei_choice *choice, int is_given)
{
	cei_choice_say(choice, "moved by: SMs, %u of each GPU (%s); no copy engine\n",
		       choice->n_reduce_blocks, cei_choice_by((uint64_t)is_given));
}

void cei_direct_explain(const struct cei_choose_args *args, struct cei_choice *choice)
{
	cei_choice_say_mode(args, choice);
	cei_direct_say_moved(choice, given_blocks(args) != 0);
	if (choice->direct_ll)
		cei_choice_say(choice, "sent: each 8 bytes together with the number of the run\n");
	if (choice->direct_steps)
		cei_choice_say(choice, "added up: in %u steps, while bytes of others are under "
			       "way\n", choice->direct_steps);
}

/* Adds candidates with the first n_blocks of these numbers of SMs. */
static void list(const struct cei_listing *listing, enum ceov_op_mode mode, uint64_t span_bytes,
		 uint32_t n_blocks)
{
	static const uint32_t blocks[BLOCKS_LISTED] = { BLOCKS_DEFAULT, 8, CEI_DIRECT_BLOCKS_MAX };
	struct ceov_op_tuning tuning = { .struct_bytes = sizeof(tuning) };
	const struct cei_op_shape *shape = listing->shape;
	uint32_t i;

	if (!listing->rates->has_direct || shape->n_ranks == 1 ||
	    shape->kind->direct_fault(shape, mode))
		return;
	tuning.mode = mode;
	tuning.n_pieces = 1;
	for (i = 0; i < n_blocks; i++) {
		tuning.n_reduce_blocks = blocks_for(listing->rates, span_bytes, blocks[i]);
		cei_candidates_add(listing, &tuning);
	}
}

void cei_direct_list(const struct cei_listing *listing, enum ceov_op_mode mode,
		     uint64_t span_bytes)
{
	if (span_bytes <= LISTED_BYTES_MAX)
		list(listing, mode, span_bytes, BLOCKS_LISTED);
}

void cei_direct_list_sum(const struct cei_listing *listing, enum ceov_op_mode mode,
			 uint64_t span_bytes, uint64_t all_bytes)
{
	if (all_bytes <= LISTED_BYTES_MAX)
		list(listing, mode, span_bytes, BLOCKS_LISTED);
	else if (all_bytes <= SUM_BYTES_MAX)
		list(listing, mode, span_bytes, BLOCKS_FEW);
}
