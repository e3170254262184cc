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

#include "base/clock.h"
#include "tools/bench/children.h"
#include "tools/bench/overlap/overlap.h"
#include "tools/bench/trace.h"
#include "tools/common/output.h"
#include "tools/common/streams.h"

struct bench_shared {
	_Atomic uint32_t n_arrived;     /* ranks that have reached the barrier in this round */
	_Atomic uint32_t round;
	_Atomic int      failed;        /* the first failure of any rank */
	uint64_t         deadline_ns;
	char             blob[128];
	_Atomic uint64_t n_wrong[BENCH_MODES];
	double           samples[BENCH_MODES][BENCH_RANKS_MAX][BENCH_SAMPLES_MAX];
	uint32_t         n_rows;
	int              n_bad_rows;
	struct bench_row rows[BENCH_ROWS_MAX];
	struct bench_overlap_row overlap_rows[OVERLAP_ROWS_MAX];
	_Atomic int      any[2];        /* used by turns: one call of bench_any() takes the first,
					 * the next call the second */
};

struct run {
	const struct bench_options     *options;
	const struct bench_case *const *cases;
	uint32_t                        n_cases;
	struct bench_shared            *shared;
	uint32_t                        n_ranks;
	uint32_t                        n_gpus; /* 0: ranks are on host memory */
	char                            group[96];
	struct bench_children           children;
};

struct thread_rank {
	struct run   *run;
	ceov_context *context;
	uint32_t      rank;
	pthread_t     thread;
	int           result;
};

int bench_fail(const struct bench_rank *rank, int result, const char *what)
{
	struct ceov_failure failure;
	int expected = 0;

	fprintf(stderr, "ceoverlap-bench: rank %u: %s: %s\n", rank->rank, what,
		ceov_strerror(result));
	if (rank->context && !ceov_last_failure(rank->context, &failure))
		fprintf(stderr, "ceoverlap-bench: rank %u: first failure: %s\n", rank->rank,
			failure.text);
	atomic_compare_exchange_strong(&rank->shared->failed, &expected,
				       result ? result : CEOV_ERR_STATE);
	return result ? result : CEOV_ERR_STATE;
}

int bench_meet(struct bench_rank *rank)
{
	struct bench_shared *shared = rank->shared;
	/* seq_cst throughout: this barrier is not timed */
	uint32_t round = atomic_load(&shared->round);
	struct cei_backoff backoff;

	if (atomic_fetch_add(&shared->n_arrived, 1) + 1 == rank->n_ranks) {
		atomic_store(&shared->n_arrived, 0);
		atomic_fetch_add(&shared->round, 1);
		return atomic_load(&shared->failed) ? CEOV_ERR_ABORTED : 0;
	}
	cei_backoff_reset(&backoff);
	while (atomic_load(&shared->round) == round) {
		if (atomic_load(&shared->failed))
			return CEOV_ERR_ABORTED;
		if (cei_now_ns() >= shared->deadline_ns)
			return bench_fail(rank, CEOV_ERR_TIMEOUT, "waiting for the others");
		cei_backoff_step(&backoff);
	}
	return atomic_load(&shared->failed) ? CEOV_ERR_ABORTED : 0;
}

void bench_sample(struct bench_rank *rank, uint32_t mode, uint32_t sample, double us)
{
	rank->shared->samples[mode][rank->rank][sample] = us;
}

void bench_forget(struct bench_rank *rank)
{
	uint32_t mode;

	for (mode = 0; mode < BENCH_MODES; mode++)
		memset(rank->shared->samples[mode][rank->rank], 0,
		       sizeof(rank->shared->samples[mode][rank->rank]));
}

static int compare_doubles(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return a < b ? -1 : a > b;
}

void bench_statistics(struct bench_rank *rank, uint32_t mode, uint32_t n_samples,
		      struct bench_row *row)
{
	double worst[BENCH_SAMPLES_MAX];
	uint32_t i, r;

	for (i = 0; i < n_samples; i++) {
		worst[i] = 0;
		for (r = 0; r < rank->n_ranks; r++)
			if (rank->shared->samples[mode][r][i] > worst[i])
				worst[i] = rank->shared->samples[mode][r][i];
	}
	qsort(worst, n_samples, sizeof(worst[0]), compare_doubles);
	row->us_median = worst[n_samples / 2];
	row->us_min = worst[0];
	row->us_p99 = worst[(n_samples * 99 + 99) / 100 - 1];
}

void bench_wrong(struct bench_rank *rank, uint32_t mode, uint64_t n_wrong)
{
	atomic_fetch_add(&rank->shared->n_wrong[mode], n_wrong);
}

uint64_t bench_take_wrong(struct bench_rank *rank, uint32_t mode)
{
	return atomic_exchange(&rank->shared->n_wrong[mode], 0);
}

/* Flushes each row at once; ends the run if nobody reads the output. */
static void flush_row(struct bench_rank *rank)
{
	if (streams_flush())
		bench_fail(rank, CEOV_ERR_SYSTEM, "printing a row");
}

void bench_add_row(struct bench_rank *rank, const struct bench_row *row)
{
	struct bench_shared *shared = rank->shared;

	bench_report_row(stdout, row);
	flush_row(rank);
	shared->n_bad_rows += row->verified == 0;
	if (shared->n_rows < BENCH_ROWS_MAX)
		shared->rows[shared->n_rows++] = *row;
	else
		bench_fail(rank, CEOV_FULL, "more rows than the report holds");
}

void bench_add_overlap_row(struct bench_rank *rank, const struct bench_overlap_row *row)
{
	struct bench_shared *shared = rank->shared;

	bench_overlap_report_row(stdout, row);
	flush_row(rank);
	shared->n_bad_rows += row->verified == 0;
	if (shared->n_rows < OVERLAP_ROWS_MAX)
		shared->overlap_rows[shared->n_rows++] = *row;
	else
		bench_fail(rank, CEOV_FULL, "more rows than the report holds");
}

/* Between this call's two barriers no rank uses the word of the next call, so that word is cleared
 * there. */
int bench_any(struct bench_rank *rank, int yes, int *ret_any)
{
	struct bench_shared *shared = rank->shared;
	uint32_t turn = rank->n_turns++ % 2;
	int r;

	/* seq_cst throughout, as in bench_meet() */
	if (yes)
		atomic_store(&shared->any[turn], 1);
	r = bench_meet(rank);
	if (r)
		return r;
	*ret_any = atomic_load(&shared->any[turn]);
	atomic_store(&shared->any[1 - turn], 0);
	return bench_meet(rank);
}

void *bench_blob(struct bench_rank *rank)
{
	return rank->shared->blob;
}

/* --- ranks --------------------------------------------------------------- */

static int run_cases(struct run *run, struct bench_rank *rank)
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

uint32_t bench_node_of(const struct bench_rank *rank, uint32_t of)
{
	return of * rank->n_nodes / rank->n_ranks;
}

static struct bench_rank make_rank(struct run *run, uint32_t rank, ceov_context *context)
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

	return made;
}

/* The ranks are processes of this machine; what nodes they are the library cannot see itself. */
static struct ceov_network make_network(const struct run *run, uint32_t rank, char *node,
					size_t n_bytes)
{
	const struct bench_rank made = make_rank((struct run *)run, rank, NULL);
	struct ceov_network network = CEOV_NETWORK_INIT;

	snprintf(node, n_bytes, "bench node %u", bench_node_of(&made, rank));
	network.bootstrap = CEOV_BOOTSTRAP_FOLDER;
	network.process = rank;
	network.n_processes = run->n_ranks;
	network.where = run->children.folder;
	network.job = "ceoverlap-bench";
	network.node = node;
	return network;
}

static int open_context(struct run *run, uint32_t first, uint32_t n_members,
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
	struct run *run = arg;
	ceov_context *context = NULL;
	struct bench_rank rank = make_rank(run, number, NULL);
	int r;

	r = open_context(run, number, 1, &context);
	if (r)
		return bench_fail(&rank, r, "ceov_open") ? EXIT_FAILURE : EXIT_SUCCESS;
	/* When ceov_open() returns, nobody opens the shared files of one node again; they are
	 * removed now in case the run is killed later. Processes of several nodes may still read
	 * theirs. */
	if (!number && run->options->n_nodes < 2)
		bench_children_remove_folder(&run->children);
	rank.context = context;
	r = run_cases(run, &rank);
	if (!r)
		r = ceov_barrier(context, UINT64_C(10000000000));
	ceov_close(context);
	return r ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int run_processes(struct run *run)
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

	own->result = run_cases(own->run, &rank);
	return NULL;
}

/* Runs ranks as threads of a child process, so that the parent, which reports, opens no GPU. */
static int threads_main(void *arg, uint32_t number)
{
	struct run *run = arg;
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

static int run_threads(struct run *run)
{
	if (bench_children_start(&run->children, threads_main, run))
		return EXIT_FAILURE;
	return bench_children_wait(&run->children, run->shared->deadline_ns,
				   &run->shared->failed);
}

/* Every rank of several nodes is a process. Returns 0, or CEOV_ERR_INVALID, reported. */
static int check_nodes(const struct run *run)
{
	const struct bench_options *options = run->options;

	if (options->n_nodes < 2 || (!options->one_process && options->n_nodes <= run->n_ranks))
		return 0;
	fprintf(stderr, "ceoverlap-bench: --nodes %u needs as many ranks (-g), each a process "
		"of its own\n", options->n_nodes);
	return CEOV_ERR_INVALID;
}

static int choose_ranks(struct run *run, char *machine, size_t n_bytes)
{
	run->n_gpus = run->options->force_host ? 0 : bench_count_gpus(machine, n_bytes);
	if (run->options->force_host)
		snprintf(machine, n_bytes, "as asked");
	run->n_ranks = run->options->n_ranks;
	if (!run->n_ranks)
		run->n_ranks = run->n_gpus ? run->n_gpus : 4;
	if (run->n_ranks <= BENCH_RANKS_MAX)
		return 0;
	fprintf(stderr, "ceoverlap-bench: %u ranks, at most %u\n", run->n_ranks,
		BENCH_RANKS_MAX);
	return CEOV_ERR_INVALID;
}

static int fits(const struct run *run, const struct bench_case *test)
{
	if (test->needs_gpu && run->n_gpus < run->n_ranks) {
		printf("# %s: left out, it needs a GPU for each rank\n", test->name);
		return 0;
	}
	if (run->n_ranks < test->n_ranks_min) {
		printf("# %s: left out, it needs %u ranks\n", test->name,
		       test->n_ranks_min);
		return 0;
	}
	if (run->options->n_nodes > 1 && !test->over_nodes) {
		printf("# %s: left out, it runs within a node\n", test->name);
		return 0;
	}
	return 1;
}

static int write_json(const struct run *run, const char *machine)
{
	const struct bench_shared *shared = run->shared;

	if (run->options->overlap)
		return bench_overlap_report_json(run->options, shared->overlap_rows,
						 shared->n_rows, machine);
	return bench_report_json(run->options, shared->rows, shared->n_rows, machine);
}

/* Prepares ranks that share a GPU. They run in one process unless the user ruled that out, because
 * processes take turns on a GPU. The environment variables take effect because CUDA is not opened
 * yet. */
static void prepare_sharing(const struct run *run, struct bench_options *options)
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

static void say_sharing(const struct run *run)
{
	printf("# ranks share GPUs: rank r is on GPU r %% %u; their times say nothing of GPUs "
	       "of their own\n", run->n_gpus);
	if (run->options->one_process)
		printf("# ranks are threads of one process: CUDA_DEVICE_MAX_CONNECTIONS is %s, "
		       "CUDA_MODULE_LOADING %s\n", getenv("CUDA_DEVICE_MAX_CONNECTIONS"),
		       getenv("CUDA_MODULE_LOADING"));
	else
		printf("# ranks are processes, which take turns on a GPU\n");
}

static void print_head(const struct run *run, const char *machine)
{
	const struct bench_options *options = run->options;

	printf("# ceoverlap-bench %s: %u ranks on %s (%s), seed %llu\n", ceov_version(),
	       run->n_ranks, run->n_gpus ? "GPUs" : "host memory", machine,
	       (unsigned long long)options->seed);
	if (run->n_gpus && run->n_gpus < run->n_ranks)
		say_sharing(run);
	if (options->n_nodes > 1)
		printf("# ranks act as %u nodes of one machine: no figure is that of a network "
		       "between machines\n", options->n_nodes);
	if (run->n_gpus && bench_report_nvls(options))
		printf("# NVLS (NVLink multicast) in NCCL's rows: %s\n",
		       bench_report_nvls(options));
	if (!run->n_gpus)
		printf("# host memory stands in for GPUs: what the rows show is that all bytes "
		       "arrive; their times are this processor's\n");
}

/* Checks whether anything ran. Returns 0, or EXIT_FAILURE, reported. */
static int judge(const struct run *run)
{
	const struct bench_shared *shared = run->shared;

	if (!shared->n_rows)
		fprintf(stderr, "ceoverlap-bench: nothing ran\n");
	if (shared->n_bad_rows)
		fprintf(stderr, "ceoverlap-bench: %d rows with wrong data\n",
			shared->n_bad_rows);
	return !shared->n_rows || shared->n_bad_rows ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Runs the cases and reports, also after failures. After a signal nothing is reported. */
static int run_and_report(struct run *run, const char *machine)
{
	const struct bench_options *options = run->options;
	int r = options->one_process ? run_threads(run) : run_processes(run);

	if (run->children.ended_by)
		return EXIT_FAILURE;
	if (options->trace_path && bench_trace_merge(options->trace_path, run->n_ranks))
		r = EXIT_FAILURE;
	if (judge(run))
		r = EXIT_FAILURE;
	if (options->json_path && write_json(run, machine))
		r = EXIT_FAILURE;
	return r;
}

int bench_world_run(const struct bench_options *options,
		    const struct bench_case *const *cases, uint32_t n_cases)
{
	const struct bench_case *chosen[32];
	struct bench_options decided = *options;
	struct run run = { .options = &decided, .cases = chosen };
	char machine[256];
	uint32_t i;
	int r;

	if (output_check(options->json_path) || output_check(options->trace_path))
		return EXIT_FAILURE;
	if (choose_ranks(&run, machine, sizeof(machine)) || check_nodes(&run))
		return 2;
	prepare_sharing(&run, &decided);
	print_head(&run, machine);
	for (i = 0; i < n_cases; i++)
		if (fits(&run, cases[i]))
			chosen[run.n_cases++] = cases[i];
	run.shared = mmap(NULL, sizeof(*run.shared), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (run.shared == MAP_FAILED) {
		fprintf(stderr, "ceoverlap-bench: shared memory: %s\n", strerror(errno));
		return EXIT_FAILURE;
	}
	if (bench_children_begin(&run.children, options->one_process ? "the ranks' process"
				 : "rank"))
		return EXIT_FAILURE;
	snprintf(run.group, sizeof(run.group), "%s/group", run.children.folder);
	run.shared->deadline_ns = cei_deadline(options->timeout_s * UINT64_C(1000000000));
	if (options->overlap)
		bench_overlap_report_head(stdout);
	else
		bench_report_head(stdout, run.n_gpus != 0);
	if (options->trace_path)        /* each process writes its own trace file */
		setenv("CEOVERLAP_TRACE", options->trace_path, 1);
	r = run_and_report(&run, machine);
	bench_children_end(&run.children);
	munmap(run.shared, sizeof(*run.shared));
	return r;
}
