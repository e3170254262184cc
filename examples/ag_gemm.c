/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * All-gather + GEMM: each rank has 64 rows of A and a B of its own, and gets all rows of
 * A B^T. Ranks are threads of this process, on host memory, so that it runs anywhere;
 * "GPUs:" says what changes there.
 */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ops.h>

#define RANKS     4u
#define ROWS      64u                   /* of each rank; they may differ */
#define K         64u
#define COLUMNS   96u
#define SECOND_NS UINT64_C(1000000000)

struct part {                           /* one rank's. GPUs: a, b, c from cudaMalloc */
	_Alignas(16) uint16_t a[ROWS * K];
	_Alignas(16) uint16_t b[COLUMNS * K];
	_Alignas(16) uint16_t c[RANKS * ROWS * COLUMNS];
	uint32_t        rank;
	ceov_workspace *workspace;
	ceov_op        *op;
	pthread_t       thread;
	int             result;
};

/* bf16 is a float's upper half; the small whole numbers used here lose nothing. */
static uint16_t to_bf16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return (uint16_t)(bits >> 16);
}

static float number(uint32_t row, uint32_t k)
{
	return (float)((((row + 1) * (k + 2) * 31) >> 3) % 5) - 2;
}

static void *run_rank(void *arg)
{
	struct part *p = arg;
	struct ceov_ag_gemm_run run = { .struct_bytes = sizeof(run), .a = p->a,
					.b = { p->b }, .c = { p->c } };
	uint32_t i;

	for (i = 0; i < ROWS * K; i++)
		p->a[i] = to_bf16(number(p->rank * ROWS + i / K, i % K));
	for (i = 0; i < COLUMNS * K; i++)
		p->b[i] = to_bf16(number(p->rank + i / K, i % K));
	/* GPUs: set run.stream, a CUstream. The call then only queues the run; what is
	 * queued on that stream next finds C. */
	p->result = ceov_ag_gemm_run(p->op, &run);
	return NULL;
}

/* Done once; then any number of runs. */
static int set_up(ceov_context *context, struct part *parts)
{
	static const uint64_t rows[RANKS] = { ROWS, ROWS, ROWS, ROWS };
	struct ceov_ag_gemm shape = { .struct_bytes = sizeof(shape), .dtype = CEOV_BF16,
				      .rows = rows, .k = K, .n_gemms = 1, .n = { COLUMNS } };
	struct ceov_workspace_config config = { .struct_bytes = sizeof(config),
						.name = "example" };
	uint32_t i;
	int r = 0;

	config.scratch_bytes = ceov_ag_gemm_scratch_bytes(&shape, RANKS);
	for (i = 0; !r && i < RANKS; i++) {
		config.rank = parts[i].rank = i;
		r = ceov_workspace_create(context, &config, &parts[i].workspace);
	}
	for (i = 0; !r && i < RANKS; i++)       /* now that all are created */
		if (!(r = ceov_workspace_connect(parts[i].workspace, 10 * SECOND_NS)))
			r = ceov_ag_gemm_create(parts[i].workspace, &shape, &parts[i].op);
	return r;
}

/* Any element of C, against a sum of our own. */
static int check(const struct part *p, uint32_t row, uint32_t column)
{
	float sum = 0;
	uint32_t k;

	for (k = 0; k < K; k++)
		sum += number(row, k) * number(p->rank + column, k);
	printf("rank %u: C[%u][%u] should be %g: ", p->rank, row, column, (double)sum);
	puts(p->c[row * COLUMNS + column] == to_bf16(sum) ? "it is" : "it is NOT");
	return p->c[row * COLUMNS + column] == to_bf16(sum) ? 0 : CEOV_ERR_UNCERTAIN;
}

static int run_all(struct part *parts)
{
	uint32_t i, n;
	int r = 0;

	for (n = 0; n < RANKS; n++)
		if (pthread_create(&parts[n].thread, NULL, run_rank, &parts[n]))
			break;          /* the others' runs end at their deadline */
	for (i = 0; i < n; i++) {
		pthread_join(parts[i].thread, NULL);
		if (!r && !(r = parts[i].result))
			r = check(&parts[i], (i + 1) % RANKS * ROWS + 8, 10);
	}
	return !r && n < RANKS ? CEOV_ERR_SYSTEM : r;
}

int main(void)
{
	struct part *parts = calloc(RANKS, sizeof(*parts));
	struct ceov_config config = CEOV_CONFIG_INIT;
	struct ceov_member members[RANKS];
	ceov_context *context = NULL;
	uint32_t i;
	int r;

	for (i = 0; i < RANKS; i++)     /* GPUs: { CEOV_PLACE_GPU, i } */
		members[i] = (struct ceov_member){ i, { CEOV_PLACE_HOST, 0 } };
	config.members = members;
	config.n_members = config.n_ranks = RANKS;
	config.deadline_ns = 10 * SECOND_NS;
	r = parts ? ceov_open(&config, &context) : CEOV_ERR_NO_MEMORY;
	if (!r && !(r = set_up(context, parts)))
		r = run_all(parts);
	printf("all-gather + GEMM with ceoverlap %s: %s\n", ceov_version(), ceov_strerror(r));
	for (i = 0; context && i < RANKS; i++) {
		ceov_op_release(parts[i].op);
		ceov_workspace_release(parts[i].workspace);
	}
	ceov_close(context);
	free(parts);
	return r != 0;
}
