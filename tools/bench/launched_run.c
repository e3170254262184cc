/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Runs one rank of a group whose processes a launcher started. Rank 0 prints and writes the report;
 * all end with the same verdict. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/bench/launched.h"
#include "tools/bench/world.h"
#include "tools/common/output.h"

#define OPEN_NS     UINT64_C(60000000000)
#define BARRIER_NS  UINT64_C(10000000000)
#define OVERTIME_S  30u                 /* after the deadline: time to report and to close */

/* --- opening ------------------------------------------------------------- */

/* Names the place of this process's rank, unless the environment does: host memory, or the GPU with
 * the number of the process on its machine. */
static int choose_place(const struct bench_run *run)
{
	char place[32] = "host";

	if (run->n_gpus)
		snprintf(place, sizeof(place), "gpu:%u",
			 bench_launched_local_number() % run->n_gpus);
	if (!setenv("CEOVERLAP_PLACE", place, run->options->force_host))
		return 0;
	fprintf(stderr, "ceoverlap-bench: CEOVERLAP_PLACE: %s\n", strerror(errno));
	return -1;
}

static int open_context(const struct bench_run *run, ceov_context **ret_context)
{
	struct ceov_network network = CEOV_NETWORK_INIT;
	struct ceov_config config = CEOV_CONFIG_INIT;
	uint64_t limit_ns = run->options->timeout_s * UINT64_C(1000000000);

	config.network = &network;
	config.max_chunk_bytes = run->options->chunk_bytes;
	config.deadline_ns = limit_ns < OPEN_NS ? limit_ns : OPEN_NS;
	return ceov_open(&config, ret_context);
}

/* Learns from the context which rank this is, and where all ranks are. */
static int learn(struct bench_run *run, struct bench_options *options, struct bench_rank *rank)
{
	struct ceov_member own;
	uint32_t n_own, i;
	int r = ceov_n_ranks(rank->context, &rank->n_ranks);

	if (!r)
		r = ceov_members(rank->context, &own, 1, &n_own);
	if (!r && (rank->n_ranks > BENCH_RANKS_MAX || n_own != 1)) {
		fprintf(stderr, "ceoverlap-bench: %u ranks, %u of them in one process: at most %u, "
			"each in a process of its own\n", rank->n_ranks, n_own, BENCH_RANKS_MAX);
		return CEOV_ERR_INVALID;
	}
	for (i = 0; !r && i < rank->n_ranks; i++) {
		r = ceov_rank_node(rank->context, i, &rank->nodes[i]);
		if (!r && rank->nodes[i] >= rank->n_nodes)
			rank->n_nodes = rank->nodes[i] + 1;
	}
	if (r)
		return r;
	rank->rank = own.rank;
	rank->is_gpu = own.place.kind == CEOV_PLACE_GPU;
	rank->gpu = rank->is_gpu ? own.place.index : 0;
	run->n_gpus = rank->is_gpu ? run->n_gpus : 0;
	run->n_ranks = rank->n_ranks;
	options->n_nodes = rank->n_nodes;
	return 0;
}

/* Refuses what only ranks of the bench's own can have. Returns 0, or 2, reported. */
static int check_options(const struct bench_options *options)
{
	if (!options->n_nodes && !options->n_ranks && !options->one_process &&
	    !options->processes)
		return 0;
	fprintf(stderr, "ceoverlap-bench: a launcher started this process: it says how many ranks "
		"and nodes there are, so -g, --nodes, --one-process and --processes are not for "
		"this run\n");
	return 2;
}

/* --- agreeing ------------------------------------------------------------ */

/* FNV-1a */
static uint64_t add_to_hash(uint64_t hash, const void *bytes, size_t n)
{
	const unsigned char *at = bytes;

	while (n--)
		hash = (hash ^ *at++) * UINT64_C(0x100000001b3);
	return hash;
}

static uint64_t add_text_to_hash(uint64_t hash, const char *text)
{
	return add_to_hash(hash, text ? text : "", text ? strlen(text) + 1 : 1);
}

static uint64_t add_overlap_to_hash(uint64_t hash, const struct bench_overlap_options *overlap)
{
	const int flags[] = { overlap->streams, overlap->graphs, overlap->without_blas,
		overlap->gathers, overlap->b_is_k_by_n, overlap->by_node, overlap->tunes,
		overlap->is_tuned };
	const uint32_t tuning[] = { (uint32_t)overlap->tuning.mode, overlap->tuning.n_pieces,
		overlap->tuning.tile_rows, overlap->tuning.tile_columns,
		overlap->tuning.n_reduce_blocks, (uint32_t)overlap->tuning.cut,
		(uint32_t)overlap->tuning.tile_order, overlap->tuning.band_rows,
		overlap->tuning.n_gemm_blocks };

	hash = add_text_to_hash(hash, overlap->models);
	hash = add_text_to_hash(hash, overlap->tokens);
	hash = add_text_to_hash(hash, overlap->tables);
	hash = add_to_hash(hash, overlap->shapes, overlap->n_shapes * sizeof(overlap->shapes[0]));
	hash = add_to_hash(hash, overlap->choices,
			   overlap->n_shapes * sizeof(overlap->choices[0]));
	hash = add_to_hash(hash, flags, sizeof(flags));
	hash = add_to_hash(hash, &overlap->tuning.chunk_bytes,
			   sizeof(overlap->tuning.chunk_bytes));
	return add_to_hash(hash, tuning, sizeof(tuning));
}

/* A number of what all ranks have to be started with alike. */
static uint64_t hash_arguments(const struct bench_options *options,
			       const struct bench_asked *asked)
{
	const uint64_t numbers[] = {
		options->begin_bytes, options->end_bytes, options->factor, options->n_samples,
		options->n_warmup, (uint64_t)options->check, options->n_pieces,
		options->chunk_bytes, options->mark_group_bytes, options->triggers,
		options->has_sizes != 0, options->n_targets, options->step_bytes,
	};
	uint64_t hash = add_to_hash(UINT64_C(0xcbf29ce484222325), numbers, sizeof(numbers));
	uint32_t i;

	for (i = 0; i < asked->n; i++)
		hash = add_to_hash(hash, asked->cases[i]->name, strlen(asked->cases[i]->name) + 1);
	return options->overlap ? add_overlap_to_hash(hash, options->overlap) : hash;
}

static int agree(struct bench_rank *rank, struct bench_options *options,
		 const struct bench_asked *asked)
{
	int r = bench_launched_open(rank->context, rank->shared->deadline_ns, &rank->launched);

	if (r)
		return bench_fail(rank, r, "meeting the other ranks");
	r = bench_launched_agree(rank->launched, &options->seed,
				 hash_arguments(options, asked));
	if (r)
		return bench_fail(rank, r, r == CEOV_ERR_INVALID
				  ? "other arguments than those of rank 0" : "meeting rank 0");
	return bench_meet(rank);
}

/* --- running ------------------------------------------------------------- */

static int can_write(const struct bench_rank *rank)
{
	return rank->rank || !(output_check(rank->options->json_path) ||
			       output_check(rank->options->trace_path));
}

/* Hands rank 0 how many values all ranks have found to be wrong. Samples carry 24 bits, so of more
 * than 2^24 the lowest bits are lost. */
static int collect_wrong(struct bench_rank *rank)
{
	struct bench_shared *shared = rank->shared;
	uint32_t i;
	int r;

	bench_sample(rank, 0, 0, (double)shared->n_all_wrong);
	r = bench_collect(rank, 0, 1);
	for (i = 1; !r && !rank->rank && i < rank->n_ranks; i++)
		shared->n_all_wrong += (uint64_t)shared->samples[0][i][0];
	return r;
}

static int measure(struct bench_run *run, struct bench_rank *rank,
		   const struct bench_asked *asked, const char *machine)
{
	int r;

	if (!can_write(rank))
		return CEOV_ERR_SYSTEM;
	if (!rank->rank)
		bench_run_head(run, machine);
	bench_run_choose(run, asked, rank->rank != 0);
	r = bench_run_cases(run, rank);
	return r ? r : collect_wrong(rank);
}

/* Reports at rank 0, also after failures, and agrees on the verdict. Returns whether the run was
 * good. */
static int conclude(struct bench_run *run, struct bench_rank *rank, int r, const char *machine)
{
	int is_complete = !r;

	if (r)
		bench_launched_fail(rank->launched);
	if (!rank->rank && bench_run_judge(run))
		r = CEOV_ERR_STATE;
	if (!rank->rank && run->options->json_path && bench_run_json(run, machine, is_complete))
		r = CEOV_ERR_SYSTEM;
	return bench_launched_end(rank->launched, !r);
}

int bench_launched_run(struct bench_run *run, struct bench_options *options,
		       const struct bench_asked *asked, const char *machine)
{
	struct bench_rank rank = { .options = options, .shared = run->shared, .n_nodes = 1,
				   .n_on_gpu = 1 };
	int is_good = 0, r;

	if (check_options(options))
		return 2;
	/* All waits have deadlines; this ends the process if one is not kept. */
	(void)alarm(options->timeout_s + OVERTIME_S);
	run->is_launched = 1;
	if (choose_place(run))
		return EXIT_FAILURE;
	r = open_context(run, &rank.context);
	if (!r)
		r = learn(run, options, &rank);
	r = r ? bench_fail(&rank, r, "ceov_open") : agree(&rank, options, asked);
	if (!r)
		r = measure(run, &rank, asked, machine);
	if (rank.launched)
		is_good = conclude(run, &rank, r, machine);
	if (is_good)
		is_good = !ceov_barrier(rank.context, BARRIER_NS);
	ceov_close(rank.context);
	bench_launched_close(rank.launched);
	return is_good ? EXIT_SUCCESS : EXIT_FAILURE;
}
