/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Operators with random shapes on host ranks: many ops of one workspace, run in any order, with
 * late ranks; every result is checked. Runs for a fixed time and prints how many shapes it tried.
 * Then the same with a process for each rank, one of which dies. */

#include <check.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "unit/op_rig.h"

#define SHAPES_MIN   200u               /* also reached under sanitizers */
#define TIME_NS      (10 * TESTING_SECOND)
#define SCRATCH      UINT64_C(600000)
#define OPS          3u                 /* ops that exist at once */
#define RUNS         6u                 /* runs of these ops per round */
#define LATE_US_MAX  10000u

#define PROCESSES    3u
#define ROUNDS       20u                /* rounds of the processes */
#define VICTIM       1u

static void maybe_late(uint64_t *random)
{
	if (testing_below(random, 16) == 0)
		usleep((useconds_t)testing_below(random, LATE_US_MAX));
}

/* Plays one rank's part of a round: the same ops and runs as on all other ranks. */
static void run_round(const struct op_part *part)
{
	uint64_t random = *(const uint64_t *)part->arg, seed;
	uint64_t own_random = random + part->rank + 1;
	struct op_case cases[OPS];
	ceov_op *ops[OPS];
	struct op_data data;
	uint32_t i, which;

	for (i = 0; i < OPS; i++) {
		cases[i] = op_case_random(&random, part->rig->n_ranks);
		ck_assert_uint_le(op_case_scratch(&cases[i]), SCRATCH);
		ck_assert_int_eq(op_case_create(&cases[i], part->rig->workspaces[part->rank],
						&ops[i]), 0);
	}
	for (i = 0; i < RUNS; i++) {
		which = (uint32_t)testing_below(&random, OPS);
		seed = testing_random(&random);
		op_data_make(&cases[which], part->rank, seed, &data);
		maybe_late(&own_random);
		ck_assert_int_eq(op_data_run(&cases[which], ops[which], &data), 0);
		op_data_check(&cases[which], part->rank, seed, &data);
		op_data_free(&data);
	}
	for (i = 0; i < OPS; i++)
		ceov_op_release(ops[i]);
}

static uint32_t n_shapes;

/* Opens a context of some ranks and plays rounds until its share of the time is used. */
static void run_group(uint32_t n_ranks, uint64_t *random, uint64_t until_ns)
{
	uint64_t round;
	struct op_rig rig;

	op_rig_open(&rig, n_ranks, SCRATCH, NULL);
	do {
		round = testing_random(random);
		op_rig_each(&rig, run_round, &round);
		n_shapes += OPS;
	} while (cei_now_ns() < until_ns);
	op_rig_release(&rig);
	op_rig_close(&rig);
}

START_TEST(test_random_shapes)
{
	uint64_t random = testing_seed(), begin = cei_now_ns();
	uint32_t n_ranks;

	n_shapes = 0;
	for (n_ranks = 1; n_ranks <= OP_RANKS_MAX; n_ranks++)
		run_group(n_ranks, &random, begin + n_ranks * TIME_NS / OP_RANKS_MAX);
	while (n_shapes < SHAPES_MIN)
		run_group(2 + (uint32_t)testing_below(&random, 3), &random, 0);
	printf("%u shapes, %u runs of %u of them at a time, 1 to %u ranks, %.1f s\n",
	       n_shapes, RUNS, OPS, OP_RANKS_MAX,
	       (double)(cei_now_ns() - begin) / 1e9);
	fflush(stdout);
}
END_TEST

/* --- a process for each rank ------------------------------------------------ */

static pid_t processes[PROCESSES];

static void start(void (*body)(struct op_rig *rig, uint32_t rank))
{
	struct op_rig rig;
	uint32_t i;

	for (i = 0; i < PROCESSES; i++) {
		processes[i] = fork();
		ck_assert_int_ge(processes[i], 0);
		if (processes[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		memset(&rig, 0, sizeof(rig));
		body(&rig, i);
		_exit(0);
	}
}

static void end(uint32_t rank, int by_signal)
{
	int status = 0;

	ck_assert_int_eq(waitpid(processes[rank], &status, 0), processes[rank]);
	if (by_signal)
		ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == by_signal);
	else
		ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status),
			      "rank %u ended with status 0x%x", rank, status);
}

static void drop_line(void *arg, const char *line)
{
	(void)arg;
	(void)line;
}

static void open_own(struct op_rig *rig, uint32_t rank)
{
	struct ceov_member member = { rank, { CEOV_PLACE_HOST, 0 } };
	struct ceov_config config = CEOV_CONFIG_INIT;
	char path[200];

	testing_path("group", path, sizeof(path));
	config.members = &member;
	config.n_members = 1;
	config.n_ranks = PROCESSES;
	config.group = path;
	config.log = drop_line;
	rig->n_ranks = PROCESSES;
	ck_assert_int_eq(ceov_open(&config, &rig->context), 0);
	rig->workspaces[rank] = op_workspace(rig->context, rank, "own", SCRATCH, 0);
	ck_assert_int_eq(ceov_workspace_connect(rig->workspaces[rank], TESTING_PATIENCE), 0);
}

static void close_own(struct op_rig *rig, uint32_t rank)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	int r;

	while ((r = ceov_workspace_release(rig->workspaces[rank])) == CEOV_PENDING)
		ck_assert_uint_lt(cei_now_ns(), deadline);
	ck_assert_int_eq(r, 0);
	ck_assert_int_eq(ceov_barrier(rig->context, TESTING_PATIENCE), 0);
	ceov_close(rig->context);
}

static void run_rounds(struct op_rig *rig, uint32_t rank)
{
	uint64_t random = testing_seed(), round;
	struct op_part part = { rig, rank, &round };
	uint32_t i;

	open_own(rig, rank);
	for (i = 0; i < ROUNDS; i++) {
		round = testing_random(&random);
		run_round(&part);
	}
	close_own(rig, rank);
}

START_TEST(test_processes)
{
	uint32_t i;

	start(run_rounds);
	for (i = 0; i < PROCESSES; i++)
		end(i, 0);
}
END_TEST

static _Atomic uint32_t *n_ready;       /* number of ranks that are ready, shared by the
					 * processes */

static enum op_sort dying;               /* the operator whose rank dies */

/* Makes runs until one fails because the victim has died, and asserts that the error is
 * reported. */
static void run_until_death(struct op_rig *rig, uint32_t rank)
{
	struct op_case one = op_case_of(dying, PROCESSES, 16, 24, 24);
	struct op_data data;
	ceov_op *op = NULL;
	int r = 0;

	open_own(rig, rank);
	ck_assert_int_eq(op_case_create(&one, rig->workspaces[rank], &op), 0);
	op_data_make(&one, rank, 1, &data);
	ck_assert_int_eq(op_data_run(&one, op, &data), 0);
	atomic_fetch_add(n_ready, 1);
	while (!r)
		r = op_data_run(&one, op, &data);
	ck_assert_msg(r == CEOV_ERR_PEER_LOST, "rank %u: %s", rank, ceov_strerror(r));
	ck_assert_int_eq(ceov_workspace_status(rig->workspaces[rank]), CEOV_ERR_PEER_LOST);
	op_data_free(&data);
	ceov_op_release(op);
	ceov_close(rig->context);
}

START_TEST(test_death_of_a_rank_ends_runs)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	uint32_t i;

	n_ready = mmap(NULL, sizeof(*n_ready), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(n_ready, MAP_FAILED);
	dying = _i ? (enum op_sort)(OP_GEMM_A2A + _i - 1) : OP_GEMM_RS;
	start(run_until_death);
	while (atomic_load(n_ready) < PROCESSES) {
		ck_assert_uint_lt(cei_now_ns(), deadline);
		usleep(1000);
	}
	usleep(20000);
	ck_assert_int_eq(kill(processes[VICTIM], SIGKILL), 0);
	for (i = 0; i < PROCESSES; i++)
		end(i, i == VICTIM ? SIGKILL : 0);
	munmap(n_ready, sizeof(*n_ready));
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("ops_shapes");
	TCase *all = tcase_create("ops_shapes");

	tcase_set_timeout(all, 200);
	tcase_add_test(all, test_random_shapes);
	tcase_add_test(all, test_processes);
	tcase_add_loop_test(all, test_death_of_a_rank_ends_runs, 0, 4);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
