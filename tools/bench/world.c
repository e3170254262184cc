/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Runs ranks as processes (forked before any CUDA call) or threads, with the memory that they
 * share. */

#include "tools/bench/bench.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/bench/children.h"
#include "tools/bench/launched.h"
#include "tools/bench/options.h"
#include "tools/bench/overlap/overlap.h"
#include "tools/bench/trace.h"
#include "tools/bench/world.h"
#include "tools/common/output.h"

struct thread_rank {
	struct bench_run   *run;
	ceov_context *context;
	uint32_t      rank;
	pthread_t     thread;
	int           result;
};

/* --- ranks --------------------------------------------------------------- */

int bench_run_cases(struct bench_run *run, struct bench_rank *rank)
{
	uint32_t i;
	int r;

	r = bench_device_open(&rank->device, rank->is_gpu, rank->gpu);
	if (r)
		return bench_fail(rank, r, "opening the device");
	for (i = 0; !r && i < run->n_cases; i++) {
		r = run->cases[i]->run(rank);
		if (r && r != CEOV_ERR_ABORTED)
			(void)bench_fail(rank, r, run->cases[i]->name);
		if (!r)
			r = bench_meet(rank);
	}
	bench_device_close(rank->device);
	return r;
}

static struct bench_rank make_rank(struct bench_run *run, uint32_t rank, ceov_context *context)
{
	struct bench_rank made = {
		.options = run->options,
		.shared = run->shared,
		.rank = rank,
		.n_ranks = run->n_ranks,
		.is_gpu = run->n_gpus != 0,
		.gpu = run->n_gpus ? rank % run->n_gpus : 0,
		.n_nodes = run->options->n_nodes ? run->options->n_nodes : 1,
		.n_on_gpu = run->n_gpus ? (run->n_ranks + run->n_gpus - 1) / run->n_gpus : 1,
		.context = context,
	};
	uint32_t i;

	for (i = 0; i < made.n_ranks; i++)
		made.nodes[i] = i * made.n_nodes / made.n_ranks;
	return made;
}

/* The ranks are processes of this machine; what nodes they are the library cannot see itself. */
static struct ceov_network make_network(const struct bench_run *run, uint32_t rank, char *node,
					size_t n_bytes)
{
	const struct bench_rank made = make_rank((struct bench_run *)run, rank, NULL);
	struct ceov_network network = CEOV_NETWORK_INIT;

	snprintf(node, n_bytes, "bench node %u", made.nodes[rank]);
	network.bootstrap = CEOV_BOOTSTRAP_STORE;
	network.process = rank;
	network.n_processes = run->n_ranks;
	network.where = run->store;
	network.job = "ceoverlap-bench";
	network.node = node;
	return network;
}

static int open_context(struct bench_run *run, uint32_t first, uint32_t n_members,
			ceov_context **ret_context)
{
	struct ceov_network network;
	char node[32];
	struct ceov_member members[BENCH_RANKS_MAX];
	struct ceov_config config = CEOV_CONFIG_INIT;
	uint32_t i;

	for (i = 0; i < n_members; i++) {
		members[i].rank = first + i;
		members[i].place.kind = run->n_gpus ? CEOV_PLACE_GPU : CEOV_PLACE_HOST;
		members[i].place.index = run->n_gpus ? (first + i) % run->n_gpus : 0;
	}
	config.members = members;
	config.n_members = n_members;
	config.n_ranks = run->n_ranks;
	config.max_chunk_bytes = run->options->chunk_bytes;
	config.group = n_members == run->n_ranks ? NULL : run->group;
	if (run->options->n_nodes > 1) {
		network = make_network(run, first, node, sizeof(node));
		config.network = &network;
		config.group = NULL;
	}
	return ceov_open(&config, ret_context);
}

static int process_main(void *arg, uint32_t number)
{
	struct bench_run *run = arg;
	ceov_context *context = NULL;
	struct bench_rank rank = make_rank(run, number, NULL);
	int r;

	r = open_context(run, number, 1, &context);
	if (r)
		return bench_fail(&rank, r, "ceov_open") ? EXIT_FAILURE : EXIT_SUCCESS;
	/* When ceov_open() returns, nobody opens the shared files again; they are removed now in
	 * case the run is killed later. */
	if (!number)
		bench_children_remove_folder(&run->children);
	rank.context = context;
	r = bench_run_cases(run, &rank);
	if (!r)
		r = ceov_barrier(context, UINT64_C(10000000000));
	ceov_close(context);
	return r ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int run_processes(struct bench_run *run)
{
	uint32_t i;
	int r;

	for (i = 0; i < run->n_ranks; i++) {
		if (!bench_children_start(&run->children, process_main, run))
			continue;
		/* seq_cst, as in bench_meet() */
		atomic_store(&run->shared->failed, CEOV_ERR_SYSTEM);
		break;
	}
	r = bench_children_wait(&run->children, run->shared->deadline_ns,
				&run->shared->failed);
	return i < run->n_ranks ? EXIT_FAILURE : r;
}

static void *thread_main(void *arg)
{
	struct thread_rank *own = arg;
	struct bench_rank rank = make_rank(own->run, own->rank, own->context);

	own->result = bench_run_cases(own->run, &rank);
	return NULL;
}

/* Runs ranks as threads of a child process, so that the parent, which reports, opens no GPU. */
static int threads_main(void *arg, uint32_t number)
{
	struct bench_run *run = arg;
	struct thread_rank ranks[BENCH_RANKS_MAX];
	ceov_context *context = NULL;
	struct bench_rank first = make_rank(run, 0, NULL);
	uint32_t i, n = 0;
	int r = open_context(run, 0, run->n_ranks, &context);

	(void)number;
	if (r)
		return bench_fail(&first, r, "ceov_open") ? EXIT_FAILURE : EXIT_SUCCESS;
	for (i = 0; i < run->n_ranks; i++) {
		ranks[i] = (struct thread_rank){ run, context, i, 0, 0 };
		r = pthread_create(&ranks[i].thread, NULL, thread_main, &ranks[i]);
		if (r) {
			(void)bench_fail(&first, CEOV_ERR_SYSTEM, "pthread_create");
			break;
		}
		n++;
	}
	for (i = 0; i < n; i++) {
		pthread_join(ranks[i].thread, NULL);
		r = r ? r : ranks[i].result;
	}
	ceov_close(context);
	return r ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int run_threads(struct bench_run *run)
{
	if (bench_children_start(&run->children, threads_main, run))
		return EXIT_FAILURE;
	return bench_children_wait(&run->children, run->shared->deadline_ns,
				   &run->shared->failed);
}

/* Every rank of several nodes is a process. Returns 0, or CEOV_ERR_INVALID, reported. */
static int check_nodes(const struct bench_run *run)
{
	const struct bench_options *options = run->options;

	if (options->n_nodes < 2 || (!options->one_process && options->n_nodes <= run->n_ranks))
		return 0;
	fprintf(stderr, "ceoverlap-bench: --nodes %u needs as many ranks (-g), each a process "
		"of its own\n", options->n_nodes);
	return CEOV_ERR_INVALID;
}

/* Counts the GPUs and names the machine. */
static void look_for_gpus(struct bench_run *run, char *machine, size_t n_bytes)
{
	run->n_gpus = run->options->force_host ? 0 : bench_count_gpus(machine, n_bytes);
	if (run->options->force_host)
		snprintf(machine, n_bytes, "as asked");
}

static int choose_ranks(struct bench_run *run)
{
	run->n_ranks = run->options->n_ranks;
	if (!run->n_ranks)
		run->n_ranks = run->n_gpus ? run->n_gpus : 4;
	if (run->n_ranks <= BENCH_RANKS_MAX)
		return 0;
	fprintf(stderr, "ceoverlap-bench: %u ranks, at most %u\n", run->n_ranks,
		BENCH_RANKS_MAX);
	return CEOV_ERR_INVALID;
}

/* Prepares ranks that share a GPU. They run in one process unless the user ruled that out, because
 * processes take turns on a GPU. The environment variables take effect because CUDA is not opened
 * yet. */
static void prepare_sharing(const struct bench_run *run, struct bench_options *options)
{
	if (run->n_gpus >= run->n_ranks || !run->n_gpus)
		return;
	options->one_process |= !options->processes && options->n_nodes < 2;
	if (!options->one_process)
		return;
	/* More hardware queues than the default 8, because the waiting streams of all ranks would
	 * fill 8; and eager loading, because a kernel that is loaded at its first launch waits for
	 * all kernels of the GPU, even for those that wait for this rank. */
	(void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
	(void)setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

/* Runs the cases and reports, also after failures. After a signal nothing is reported. */
static int run_and_report(struct bench_run *run, const char *machine)
{
	const struct bench_options *options = run->options;
	int r = options->one_process ? run_threads(run) : run_processes(run);
	int is_complete = !r;

	if (run->children.ended_by)
		return EXIT_FAILURE;
	if (options->trace_path && bench_trace_merge(options->trace_path, run->n_ranks))
		r = EXIT_FAILURE;
	if (bench_run_judge(run))
		r = EXIT_FAILURE;
	if (options->json_path && bench_run_json(run, machine, is_complete))
		r = EXIT_FAILURE;
	return r;
}

/* Allocates what the ranks share. Returns 0, or EXIT_FAILURE, reported. */
static int make_shared(struct bench_run *run)
{
	run->shared = mmap(NULL, sizeof(*run->shared), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (run->shared == MAP_FAILED) {
		fprintf(stderr, "ceoverlap-bench: shared memory: %s\n", strerror(errno));
		return EXIT_FAILURE;
	}
	run->shared->deadline_ns = cei_deadline(run->options->timeout_s * UINT64_C(1000000000));
	return 0;
}

static int run_own(struct bench_run *run, const char *machine)
{
	const struct bench_options *options = run->options;
	int r, port = -1;

	if (options->n_nodes > 1 && (port = port_reserve(run->store)) < 0) {
		fprintf(stderr, "ceoverlap-bench: no port can be reserved: %s\n", strerror(errno));
		return EXIT_FAILURE;
	}
	r = bench_children_begin(&run->children, options->one_process ? "the ranks' process"
				 : "rank");
	if (!r) {
		snprintf(run->group, sizeof(run->group), "%s/group", run->children.folder);
		r = run_and_report(run, machine);
		bench_children_end(&run->children);
	}
	if (port >= 0)
		close(port);
	return r ? EXIT_FAILURE : EXIT_SUCCESS;
}

int bench_world_run(const struct bench_options *options,
		    const struct bench_case *const *cases, uint32_t n_cases)
{
	const struct bench_asked asked = { cases, n_cases };
	const struct bench_case *chosen[BENCH_CASES_MAX];
	struct bench_options decided = *options;
	struct bench_run run = { .options = &decided, .cases = chosen };
	char machine[256];
	int r;

	if (options->trace_path)        /* each process writes its own trace file */
		setenv("CEOVERLAP_TRACE", options->trace_path, 1);
	if (!bench_launched_is() &&
	    (output_check(options->json_path) || output_check(options->trace_path)))
		return EXIT_FAILURE;
	look_for_gpus(&run, machine, sizeof(machine));
	if (bench_launched_is()) {
		r = make_shared(&run);
		return r ? r : bench_launched_run(&run, &decided, &asked, machine);
	}
	if (choose_ranks(&run) || check_nodes(&run))
		return 2;
	prepare_sharing(&run, &decided);
	if (!run.n_gpus && decided.host_end_bytes)
		decided.end_bytes = decided.host_end_bytes;
	bench_run_head(&run, machine);
	bench_run_choose(&run, &asked, 0);
	if (make_shared(&run))
		return EXIT_FAILURE;
	r = run_own(&run, machine);
	munmap(run.shared, sizeof(*run.shared));
	return r;
}
