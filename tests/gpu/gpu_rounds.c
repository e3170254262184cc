/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Implements gpu_rounds.h. The host queues at most WINDOW rounds ahead. */

#include "gpu_rounds.h"

#include <string.h>

#include "base/clock.h"

#define SLOTS  16u              /* slots for rounds in flight or being checked */
#define WINDOW 24u              /* rounds queued ahead; raises from streams are copies, of which at
				 * most 32 may be queued */
#define BLOCKS 16u              /* blocks of the kernels that run through all rounds */

/* Indexes of the result slots on both GPUs. */
#define PRODUCED 0u
#define CONSUMED 1u

struct run {
	const struct rounds *rounds;
	ceov_buffer *source;    /* memory of rank 0 */
	ceov_buffer *target;    /* memory of rank 1 */
	ceov_buffer *back;      /* memory of rank 0 for forwarded bytes */
	ceov_signal *ready;     /* this and the signals below have a counter for each slot */
	ceov_signal *arrived;
	ceov_signal *returned;
	ceov_signal *free;
	ceov_plan   *plans[SLOTS];
	ceov_plan   *forwards[SLOTS];
	ceov_ticket  tickets[SLOTS];
	struct cei_kernel_rounds producer;
	struct cei_kernel_rounds consumer;
};

const char *rounds_consumer_name(enum rounds_consumer consumer)
{
	switch (consumer) {
	case ROUNDS_KERNEL:  return "kernel";
	case ROUNDS_STREAM:  return "stream";
	case ROUNDS_FORWARD: return "forward";
	case ROUNDS_CONSUMERS: break;
	}
	return "?";
}

static uint64_t slot_bytes(const struct run *run)
{
	return run->rounds->n_words * sizeof(uint64_t);
}

/* --- objects ------------------------------------------------------------- */

static ceov_signal *signal_of(const struct run *run, uint32_t rank)
{
	return gpu_signal(run->rounds->context, rank, run->rounds->gpus[rank].index, SLOTS,
			  CEOV_SIGNAL_HOST_VISIBLE);
}

static ceov_plan *plan_slot(const struct run *run, uint32_t slot)
{
	struct ceov_transfer transfer = testing_transfer(run->source, run->target,
							 slot_bytes(run));
	ceov_plan *plan = testing_plan(run->rounds->context, 0);

	transfer.source.offset_bytes = transfer.target.offset_bytes =
		slot * slot_bytes(run);
	transfer.source_ready = testing_mark(run->ready, slot, 1);
	transfer.target_free = testing_mark(run->free, slot, 0);
	transfer.then = testing_mark(run->arrived, slot, 1);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	return plan;
}

/* Plans rank 1's transfer back to rank 0. Its target is free when the first transfer's target
 * is. */
static ceov_plan *plan_forward(const struct run *run, uint32_t slot)
{
	struct ceov_transfer transfer = testing_transfer(run->target, run->back,
							 slot_bytes(run));
	ceov_plan *plan = testing_plan(run->rounds->context, 1);

	transfer.source.offset_bytes = transfer.target.offset_bytes =
		slot * slot_bytes(run);
	transfer.source_ready = testing_mark(run->arrived, slot, 1);
	transfer.then = testing_mark(run->returned, slot, 1);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	return plan;
}

static void build(struct run *run)
{
	ceov_context *context = run->rounds->context;
	uint32_t i;

	run->source = testing_buffer(context, 0, SLOTS * slot_bytes(run));
	run->target = testing_buffer(context, 1, SLOTS * slot_bytes(run));
	run->back = testing_buffer(context, 0, SLOTS * slot_bytes(run));
	run->ready = signal_of(run, 0);
	run->arrived = signal_of(run, 1);
	run->returned = signal_of(run, 0);
	run->free = signal_of(run, 0);
	for (i = 0; i < SLOTS; i++) {
		run->plans[i] = plan_slot(run, i);
		if (run->rounds->consumer == ROUNDS_FORWARD)
			run->forwards[i] = plan_forward(run, i);
	}
	for (i = 0; i < 2; i++) {
		gpu_reset(&run->rounds->gpus[i], PRODUCED);
		gpu_reset(&run->rounds->gpus[i], CONSUMED);
	}
}

static void release(struct run *run)
{
	uint32_t i;

	for (i = 0; i < SLOTS; i++) {
		ceov_plan_release(run->plans[i]);
		ceov_plan_release(run->forwards[i]);
	}
	ck_assert_int_eq(ceov_signal_release(run->ready), 0);
	ck_assert_int_eq(ceov_signal_release(run->arrived), 0);
	ck_assert_int_eq(ceov_signal_release(run->returned), 0);
	ck_assert_int_eq(ceov_signal_release(run->free), 0);
	ck_assert_int_eq(ceov_buffer_release(run->source), 0);
	ck_assert_int_eq(ceov_buffer_release(run->target), 0);
	ck_assert_int_eq(ceov_buffer_release(run->back), 0);
}

/* --- kernels that run through all rounds --------------------------------- */

/* Returns the rank on whose GPU the bytes are checked. */
static uint32_t consumer_rank(const struct run *run)
{
	return run->rounds->consumer == ROUNDS_FORWARD ? 0 : 1;
}

static struct cei_kernel_rounds kernel_of(const struct run *run, struct gpu *gpu,
					  uint32_t result)
{
	struct cei_kernel_rounds kernel;

	memset(&kernel, 0, sizeof(kernel));
	kernel.slot_words = run->rounds->n_words;
	kernel.n_slots = SLOTS;
	kernel.n_rounds = run->rounds->n_rounds;
	kernel.seed = run->rounds->seed;
	kernel.timeout_ns = GPU_AWAIT_NS;
	kernel.n_wrong = &gpu->results[result].n_wrong;
	kernel.first_wrong = &gpu->results[result].first_wrong;
	kernel.ret_status = &gpu->results[result].status;
	return kernel;
}

/* Creating views may allocate, so all are made before the first kernel awaits a mark. */
static void build_kernels(struct run *run)
{
	const uint32_t rank = consumer_rank(run);
	struct gpu *gpus = run->rounds->gpus;

	run->producer = kernel_of(run, &gpus[0], PRODUCED);
	run->producer.await_signal = gpu_view(run->free, 0);
	run->producer.raise_signal = gpu_view(run->ready, 0);
	run->producer.p = ceov_buffer_base(run->source, 0);
	run->consumer = kernel_of(run, &gpus[rank], CONSUMED);
	run->consumer.await_signal = gpu_view(rank ? run->arrived : run->returned, rank);
	run->consumer.raise_signal = gpu_view(run->free, rank);
	run->consumer.p = ceov_buffer_base(rank ? run->target : run->back, rank);
}

static void start_kernels(struct run *run)
{
	struct gpu *gpus = run->rounds->gpus;

	gpu_launch(&gpus[0], GPU_PRODUCE, "cei_kernel_produce_rounds", BLOCKS,
		   &run->producer);
	if (run->rounds->consumer != ROUNDS_STREAM)
		gpu_launch(&gpus[consumer_rank(run)], GPU_CONSUME,
			   "cei_kernel_consume_rounds", BLOCKS, &run->consumer);
}

/* --- rounds -------------------------------------------------------------- */

static ceov_ticket launch(ceov_plan *plan, uint64_t base, void *producer)
{
	struct ceov_launch made = {
		.struct_bytes = sizeof(made),
		.base = base,
		.producer_stream = producer,
	};
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	ceov_ticket ticket = { 0 };
	int r;

	while ((r = ceov_launch(plan, &made, &ticket)) == CEOV_FULL)
		ck_assert_uint_lt(cei_now_ns(), deadline);
	ck_assert_int_eq(r, 0);
	return ticket;
}

static void queue_check(const struct run *run, uint32_t round)
{
	const struct rounds *rounds = run->rounds;
	struct gpu *gpu = &rounds->gpus[1];
	const uint32_t slot = round % SLOTS;
	struct ceov_mark arrived = testing_mark(run->arrived, slot, 1);
	struct ceov_mark freed = testing_mark(run->free, slot, 1);
	struct gpu_words words;

	words.p = (char *)ceov_buffer_base(run->target, 1) + slot * slot_bytes(run);
	words.n_words = rounds->n_words;
	words.seed = rounds->seed + round * rounds->n_words;
	ck_assert_int_eq(ceov_stream_wait(rounds->context, 1, gpu->streams[GPU_WAIT],
					  &arrived, 1, round / SLOTS), 0);
	gpu_verify(gpu, GPU_WAIT, &words, CONSUMED);
	ck_assert_int_eq(ceov_stream_raise(rounds->context, 1, gpu->streams[GPU_WAIT],
					   &freed, 1, round / SLOTS), 0);
}

static void queue_round(struct run *run, uint32_t round)
{
	struct gpu *gpus = run->rounds->gpus;
	const uint32_t slot = round % SLOTS;

	run->tickets[slot] = launch(run->plans[slot], round / SLOTS,
				    run->rounds->is_gated ? gpus[0].streams[GPU_PRODUCE]
							  : NULL);
	if (run->rounds->consumer == ROUNDS_STREAM)
		queue_check(run, round);
	if (run->rounds->consumer == ROUNDS_FORWARD)
		(void)launch(run->forwards[slot], round / SLOTS,
			     gpus[1].streams[GPU_WAIT]);
}

static void await_freed(const struct run *run, uint32_t round)
{
	int r = ceov_signal_wait(run->free, round % SLOTS, round / SLOTS + 1,
				 TESTING_PATIENCE);

	ck_assert_msg(!r, "consumer %s, %s: round %u is not freed: %s",
		      rounds_consumer_name(run->rounds->consumer),
		      run->rounds->is_gated ? "gated" : "polled", round, ceov_strerror(r));
}

/* Waits for the producer, the consumer and the last launches. */
static void finish(const struct run *run)
{
	const struct rounds *rounds = run->rounds;
	const uint32_t n = rounds->n_rounds < SLOTS ? rounds->n_rounds : SLOTS;
	uint32_t i;

	for (i = 0; i < n; i++)
		ck_assert_int_eq(ceov_wait(rounds->context, run->tickets[i],
					   TESTING_PATIENCE), 0);
	gpu_idle(&rounds->gpus[0], GPU_PRODUCE);
	for (i = 0; i < 2; i++) {
		gpu_idle(&rounds->gpus[i], GPU_CONSUME);
		gpu_idle(&rounds->gpus[i], GPU_WAIT);
	}
	ck_assert_uint_eq(gpu_result(&rounds->gpus[0], PRODUCED).status, GPU_REACHED);
}

unsigned long long rounds_run(const struct rounds *rounds, uint64_t *ret_ns)
{
	struct gpu_result seen;
	uint64_t start;
	struct run run;
	uint32_t i;

	memset(&run, 0, sizeof(run));
	run.rounds = rounds;
	build(&run);
	build_kernels(&run);
	start = cei_now_ns();
	start_kernels(&run);
	for (i = 0; i < rounds->n_rounds; i++) {
		if (i >= WINDOW)
			await_freed(&run, i - WINDOW);
		queue_round(&run, i);
	}
	for (i = i > WINDOW ? i - WINDOW : 0; i < rounds->n_rounds; i++)
		await_freed(&run, i);
	*ret_ns = cei_now_ns() - start;
	finish(&run);
	seen = gpu_result(&rounds->gpus[consumer_rank(&run)], CONSUMED);
	ck_assert_uint_eq(seen.status, GPU_REACHED);
	release(&run);
	return seen.n_wrong;
}
