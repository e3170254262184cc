/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Transfers between ranks on GPUs whose launches read how many rows they move: on one GPU and,
 * where there are more, on two. */

#include "gpu_rig.h"

#include <stdlib.h>
#include <string.h>

#define ROWS       UINT64_C(300)
#define ROW_BYTES  UINT64_C(14336)      /* 7168 numbers of 16 bits */
#define PITCH      (ROW_BYTES + 512)    /* of the target */
#define FROM_BYTES (ROWS * ROW_BYTES)
#define TO_BYTES   (ROWS * PITCH)
#define PAGE_BYTES UINT64_C(4096)
#define UNTOUCHED  0xa5
#define LAUNCHES   40u

static struct gpu gpus[2];
static ceov_context *context;

struct rows {
	ceov_buffer   *source, *target, *count;
	ceov_signal   *ready, *arrived;
	ceov_plan     *plan;
	uint64_t      *n;               /* host memory of rank 0 */
	unsigned char *from, *to, *expected;    /* on the host, as is what is expected there */
};

static void open_ranks(uint32_t second)
{
	uint32_t indices[2] = { 0, second };

	context = gpu_context(indices, 2);
	gpu_open(&gpus[0], 0);
	gpu_open(&gpus[1], second);
}

static void *host_memory(uint64_t n_bytes)
{
	void *memory = aligned_alloc(PAGE_BYTES, (n_bytes + PAGE_BYTES - 1) / PAGE_BYTES *
				     PAGE_BYTES);

	ck_assert_ptr_nonnull(memory);
	return memory;
}

static void make(struct rows *rows)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options),
					     .max_chunk_bytes = UINT64_C(1) << 20 };
	struct ceov_transfer transfer;

	rows->n = host_memory(PAGE_BYTES);
	rows->from = host_memory(FROM_BYTES);
	rows->to = host_memory(TO_BYTES);
	rows->expected = host_memory(TO_BYTES);
	rows->source = testing_buffer(context, 0, FROM_BYTES);
	rows->target = testing_buffer(context, 1, TO_BYTES);
	ck_assert_int_eq(ceov_buffer_register(context, 0, rows->n, PAGE_BYTES, &rows->count), 0);
	rows->ready = gpu_signal(context, 0, gpus[0].index, 1, CEOV_SIGNAL_HOST_VISIBLE);
	rows->arrived = gpu_signal(context, 1, gpus[1].index, 1, CEOV_SIGNAL_HOST_VISIBLE);
	transfer = testing_transfer(rows->source, rows->target, ROW_BYTES);
	transfer.n_rows = ROWS;
	transfer.source.pitch_bytes = ROW_BYTES;
	transfer.target.pitch_bytes = PITCH;
	transfer.source_ready = testing_mark(rows->ready, 0, 1);
	transfer.then = testing_mark(rows->arrived, 0, 1);
	transfer.n_rows_at.buffer = rows->count;
	ck_assert_int_eq(ceov_plan_create(context, 0, &options, &rows->plan), 0);
	testing_add(rows->plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(rows->plan), 0);
}

static void check(const struct rows *rows, uint64_t n)
{
	uint64_t row;

	gpu_move(&gpus[1], rows->to, ceov_buffer_base(rows->target, 1), TO_BYTES);
	memset(rows->expected, UNTOUCHED, TO_BYTES);
	for (row = 0; row < n; row++)
		memcpy(rows->expected + row * PITCH, rows->from + row * ROW_BYTES, ROW_BYTES);
	ck_assert_msg(!memcmp(rows->to, rows->expected, TO_BYTES), "not the first %llu rows",
		      (unsigned long long)n);
}

static void launch(struct rows *rows, uint64_t base, uint64_t n)
{
	struct ceov_launch made = { .struct_bytes = sizeof(made), .base = base };
	ceov_ticket ticket;

	memset(rows->to, UNTOUCHED, TO_BYTES);
	gpu_move(&gpus[1], ceov_buffer_base(rows->target, 1), rows->to, TO_BYTES);
	testing_fill(rows->from, FROM_BYTES, testing_seed() + base);
	gpu_move(&gpus[0], ceov_buffer_base(rows->source, 0), rows->from, FROM_BYTES);
	*rows->n = UINT64_MAX;          /* must not be read before the mark */
	ck_assert_int_eq(ceov_launch(rows->plan, &made, &ticket), 0);
	*rows->n = n;
	ck_assert_int_eq(ceov_signal_raise(rows->ready, 0, base + 1), 0);
	ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), 0);
	check(rows, n);
}

START_TEST(test_as_many_rows_as_a_launch_says)
{
	uint64_t random = testing_seed(), base;
	struct rows rows;

	open_ranks((uint32_t)_i);
	make(&rows);
	launch(&rows, 0, 0);
	launch(&rows, 1, ROWS);
	for (base = 2; base < LAUNCHES; base++)
		launch(&rows, base, testing_below(&random, ROWS + 1));
	gpu_close(&gpus[0]);
	gpu_close(&gpus[1]);
	ceov_close(context);
	free(rows.n);
	free(rows.from);
	free(rows.to);
	free(rows.expected);
}
END_TEST

static Suite *suite(uint32_t n_gpus)
{
	Suite *made = suite_create("gpu counted");
	TCase *all = tcase_create("counted");

	tcase_set_timeout(all, 60);
	tcase_add_loop_test(all, test_as_many_rows_as_a_launch_says, 0, n_gpus > 1 ? 2 : 1);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return gpu_main(1, suite);
}
