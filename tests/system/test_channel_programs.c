/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Channels between processes: random programs, of which each makes some dozens of calls in a
 * channel of its own and checks every byte that they give; programs in which one rank makes another
 * call; ranks that are killed and stopped. CEOVERLAP_TEST_CHANNEL_PROGRAMS=10000 makes so many of
 * the programs that are right, and as many of those that are not. */

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
#include "unit/channel_rig.h"

#define RANKS_MIN 2
#define RANKS_MAX 6
#define PROGRAMS  300u                  /* with all numbers of ranks together */
#define WRONG     100u                  /* programs in which a rank makes another call */
#define LATE_US   5000u
#define DEADLINE  (300 * TESTING_MS)    /* where a rank is stopped */
#define SOON      TESTING_SECOND        /* for those that hear of a failure */

/* What the processes tell the test. */
struct shared {
	_Atomic uint32_t n_calls;       /* that were right */
	_Atomic uint32_t n_ready;       /* ranks that make calls */
	_Atomic uint64_t since_ns;      /* when a rank was killed or stopped */
	_Atomic uint32_t n_failed;      /* ranks whose call failed as it has to */
	_Atomic uint32_t n_named;       /* of these: ranks that named both calls */
	_Atomic uint64_t longest_ns;    /* until such a failure */
};

static struct shared *shared;
static pid_t processes[RANKS_MAX];

/* One rank in its process. */
struct player {
	ceov_context *context;
	ceov_channel *channel;
	uint32_t      rank;
	uint32_t      n_ranks;
	uint64_t      random;           /* of this rank alone */
};

static uint32_t n_programs(uint32_t usual)
{
	const char *text = getenv("CEOVERLAP_TEST_CHANNEL_PROGRAMS");
	uint32_t n = text ? (uint32_t)strtoul(text, NULL, 10) : testing_share(usual);

	return 1 + (n - 1) / (RANKS_MAX - RANKS_MIN + 1);
}

/* --- processes ------------------------------------------------------------------------------- */

static void share(void)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
}

static void drop_line(void *arg, const char *line)
{
	(void)arg;
	(void)line;
}

static void open_own(struct player *player)
{
	struct ceov_member member = { player->rank, { CEOV_PLACE_HOST, 0 } };
	struct ceov_config config = CEOV_CONFIG_INIT;
	char path[200];

	testing_path("group", path, sizeof(path));
	config.members = &member;
	config.n_members = 1;
	config.n_ranks = player->n_ranks;
	config.group = path;
	config.log = drop_line;
	ck_assert_int_eq(ceov_open(&config, &player->context), 0);
}

static void start(uint32_t n_ranks, void (*body)(struct player *player))
{
	struct player player = { .n_ranks = n_ranks };
	uint32_t i;

	for (i = 0; i < n_ranks; i++) {
		processes[i] = fork();
		ck_assert_int_ge(processes[i], 0);
		if (processes[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		player.rank = i;
		player.random = testing_seed() + i;
		open_own(&player);
		body(&player);
		ceov_close(player.context);
		_exit(0);
	}
}

static void end(uint32_t rank, int by_signal)
{
	int status = 0;

	ck_assert_int_eq(waitpid(processes[rank], &status, 0), processes[rank]);
	ck_assert_msg(by_signal ? WIFSIGNALED(status) && WTERMSIG(status) == by_signal
		      : WIFEXITED(status) && !WEXITSTATUS(status),
		      "rank %u ended with status 0x%x", rank, status);
}

static void play_all(uint32_t n_ranks, void (*body)(struct player *player))
{
	uint32_t i;

	start(n_ranks, body);
	for (i = 0; i < n_ranks; i++)
		end(i, 0);
}

static void connect_channel(struct player *player, const char *name, uint64_t deadline_ns)
{
	player->channel = channel_made(player->context, player->rank, name, deadline_ns);
	ck_assert_int_eq(ceov_channel_connect(player->channel, TESTING_PATIENCE), 0);
}

static void release_channel(struct player *player)
{
	uint64_t deadline_ns = cei_deadline(TESTING_PATIENCE);
	int r;

	while ((r = ceov_channel_release(player->channel)) == CEOV_PENDING) {
		ck_assert_uint_lt(cei_now_ns(), deadline_ns);
		usleep(100);
	}
	ck_assert_int_eq(r, 0);
}

static void maybe_late(struct player *player)
{
	if (testing_below(&player->random, 200) == 0)
		usleep((useconds_t)testing_below(&player->random, LATE_US));
}

/* --- right programs -------------------------------------------------------------------------- */

static void play_program(struct player *player, uint32_t number)
{
	uint64_t random = testing_seed() + number * 1000 + player->n_ranks, seed;
	uint32_t i, n = 20 + (uint32_t)testing_below(&random, 41);
	struct channel_case one;
	char name[40];

	seed = testing_random(&random);
	snprintf(name, sizeof(name), "program %u", number);
	connect_channel(player, name, 0);
	for (i = 0; i < n; i++) {
		one = channel_case_random(seed, i, player->n_ranks, CHANNEL_RING);
		maybe_late(player);
		ck_assert_int_eq(channel_case_run(&one, player->rank, player->channel,
						  &player->random), 0);
	}
	atomic_fetch_add(&shared->n_calls, n);
	release_channel(player);
}

static void play_programs(struct player *player)
{
	uint32_t i, n = n_programs(PROGRAMS);

	for (i = 0; i < n; i++)
		play_program(player, i);
}

START_TEST(test_random_programs)
{
	uint64_t begin_ns = cei_now_ns();

	share();
	play_all((uint32_t)_i, play_programs);
	printf("%d ranks: %u programs, %u calls, %.1f s\n", _i, n_programs(PROGRAMS),
	       atomic_load(&shared->n_calls) / (uint32_t)_i,
	       (double)(cei_now_ns() - begin_ns) / 1e9);
	fflush(stdout);
}
END_TEST

/* --- programs that differ -------------------------------------------------------------------- */

/* Notes the failure of a call that began at that time. */
static void note(struct player *player, uint64_t begin_ns)
{
	uint64_t took_ns = cei_now_ns() - begin_ns, longest_ns = atomic_load(&shared->longest_ns);
	struct ceov_failure failure = { .rank = CEOV_NOBODY };

	while (took_ns > longest_ns &&
	       !atomic_compare_exchange_weak(&shared->longest_ns, &longest_ns, took_ns))
		;
	ck_assert_int_eq(ceov_last_failure(player->context, &failure), 0);
	atomic_fetch_add(&shared->n_failed, 1);
	if (strstr(failure.text, ", but rank "))
		atomic_fetch_add(&shared->n_named, 1);
}

/* Makes a call without a look at its bytes, which a peer whose call differs may have mixed up. */
static int call(struct player *player, const struct channel_case *one)
{
	struct channel_form form = channel_form_random(&player->random);
	struct channel_data data;
	int r;

	channel_data_make(one, player->rank, &form, &data);
	r = ceov_channel_run(player->channel, &data.call, 1);
	channel_data_free(&data);
	return r;
}

/* Where programs differ. */
struct wrong {
	uint32_t rank;                  /* that makes another call */
	uint32_t at;                    /* which one */
	uint32_t way;                   /* of channel_case_change(), or: */
};

#define WAY_ORDER CHANNEL_CHANGES       /* this call and the next one change places */

static struct channel_case wrong_case(const struct player *player, uint64_t seed,
				      const struct wrong *wrong)
{
	struct channel_case one = channel_case_random(seed, wrong->at, player->n_ranks,
						      CHANNEL_RING);
	struct channel_case next = channel_case_random(seed, wrong->at + 1, player->n_ranks,
						       CHANNEL_RING);

	if (wrong->way == WAY_ORDER && next.kind != one.kind)
		return next;
	channel_case_change(&one, player->rank, wrong->way % CHANNEL_CHANGES);
	return one;
}

/* The rank whose call differs fails in it, others at the latest in the next one. */
static void play_wrong(struct player *player, uint32_t number)
{
	uint64_t random = testing_seed() + number * 1000 + player->n_ranks;
	uint64_t seed = testing_random(&random), begin_ns = 0;
	struct wrong wrong = { (uint32_t)testing_below(&random, player->n_ranks),
			       (uint32_t)testing_below(&random, 6),
			       (uint32_t)testing_below(&random, CHANNEL_CHANGES + 1) };
	struct channel_case one;
	char name[40];
	uint32_t i;
	int r = 0;

	snprintf(name, sizeof(name), "wrong %u", number);
	connect_channel(player, name, 0);
	/* A rank that fails early releases its channel; all have to have found it before. */
	ck_assert_int_eq(ceov_barrier(player->context, TESTING_PATIENCE), 0);
	for (i = 0; !r && i <= wrong.at + 1; i++) {
		one = channel_case_random(seed, i, player->n_ranks, CHANNEL_RING);
		if (i == wrong.at && player->rank == wrong.rank)
			one = wrong_case(player, seed, &wrong);
		maybe_late(player);
		if (i == wrong.at)
			begin_ns = cei_now_ns();
		r = call(player, &one);
	}
	ck_assert_msg(r == CEOV_ERR_INVALID, "program %u, rank %u: %d", number, player->rank, r);
	ck_assert_msg(i > wrong.at && (player->rank != wrong.rank || i == wrong.at + 1),
		      "program %u: rank %u failed in call %u, and rank %u makes another call %u",
		      number, player->rank, i - 1, wrong.rank, wrong.at);
	note(player, begin_ns);
	release_channel(player);
}

static void play_wrongs(struct player *player)
{
	uint32_t i, n = n_programs(WRONG);

	for (i = 0; i < n; i++)
		play_wrong(player, i);
}

START_TEST(test_programs_that_differ)
{
	uint32_t n_failed = n_programs(WRONG) * (uint32_t)_i;

	share();
	play_all((uint32_t)_i, play_wrongs);
	printf("%d ranks: %u failures, %u with both calls, the last after %.1f ms\n", _i,
	       atomic_load(&shared->n_failed), atomic_load(&shared->n_named),
	       (double)atomic_load(&shared->longest_ns) / 1e6);
	fflush(stdout);
	ck_assert_uint_eq(atomic_load(&shared->n_failed), n_failed);
	ck_assert_uint_eq(atomic_load(&shared->n_named), n_failed);
	ck_assert_uint_lt(atomic_load(&shared->longest_ns), 2 * SOON);
}
END_TEST

/* --- ranks that are killed or stopped -------------------------------------------------------- */

#define BROKEN_RANKS 4u
#define VICTIM       2u

/* Makes random calls until one fails. */
static int play_until_failure(struct player *player, uint64_t deadline_ns)
{
	struct channel_case one;
	uint32_t i;
	int r = 0;

	connect_channel(player, "broken", deadline_ns);
	atomic_fetch_add(&shared->n_ready, 1);
	for (i = 0; !r; i++) {
		one = channel_case_random(testing_seed(), i, player->n_ranks, CHANNEL_RING);
		r = channel_case_run(&one, player->rank, player->channel, &player->random);
	}
	return r;
}

static void await_ready(uint32_t n)
{
	uint64_t deadline_ns = cei_deadline(TESTING_PATIENCE);

	while (atomic_load(&shared->n_ready) < n) {
		ck_assert_uint_lt(cei_now_ns(), deadline_ns);
		usleep(1000);
	}
}

static void play_until_death(struct player *player)
{
	int r = play_until_failure(player, 0);

	ck_assert_msg(r == CEOV_ERR_PEER_LOST, "rank %u: %s", player->rank, ceov_strerror(r));
	ck_assert_uint_lt(cei_now_ns() - atomic_load(&shared->since_ns), SOON);
}

START_TEST(test_a_rank_is_killed_in_a_call)
{
	uint64_t random = testing_seed() + (uint64_t)_i;
	uint32_t i;

	share();
	start(BROKEN_RANKS, play_until_death);
	await_ready(BROKEN_RANKS);
	usleep((useconds_t)testing_below(&random, 30000));
	atomic_store(&shared->since_ns, cei_now_ns());
	ck_assert_int_eq(kill(processes[VICTIM], SIGKILL), 0);
	for (i = 0; i < BROKEN_RANKS; i++)
		end(i, i == VICTIM ? SIGKILL : 0);
}
END_TEST

/* Rank 0 waits for rank 1, which is late, and for the victim, which is killed meanwhile: when rank
 * 0 sleeps between its looks. */
static void wait_for_two(struct player *player)
{
	struct channel_case one = channel_case_of(CEOV_BARRIER, CEOV_INT8, 3, 0);

	connect_channel(player, "two", 0);
	atomic_fetch_add(&shared->n_ready, 1);
	if (player->rank == VICTIM)
		pause();
	if (player->rank == 1)
		usleep(3 * SOON / 1000);
	ck_assert_int_eq(call(player, &one), CEOV_ERR_PEER_LOST);
	if (player->rank == 0)
		ck_assert_uint_lt(cei_now_ns() - atomic_load(&shared->since_ns), SOON);
}

START_TEST(test_a_rank_is_killed_while_another_one_is_late)
{
	uint32_t i;

	share();
	start(3, wait_for_two);
	await_ready(3);
	usleep(700000);
	atomic_store(&shared->since_ns, cei_now_ns());
	ck_assert_int_eq(kill(processes[VICTIM], SIGKILL), 0);
	for (i = 0; i < 3; i++)
		end(i, i == VICTIM ? SIGKILL : 0);
}
END_TEST

static void play_until_deadline(struct player *player)
{
	int r = play_until_failure(player, DEADLINE);

	ck_assert_msg(r == CEOV_ERR_TIMEOUT, "rank %u: %s", player->rank, ceov_strerror(r));
	if (player->rank != VICTIM)
		ck_assert_uint_lt(cei_now_ns() - atomic_load(&shared->since_ns), DEADLINE + SOON);
	atomic_fetch_add(&shared->n_failed, 1);
	release_channel(player);
}

START_TEST(test_a_rank_is_stopped_in_a_call)
{
	uint64_t random = testing_seed() + (uint64_t)_i, deadline_ns;
	uint32_t i;

	share();
	start(BROKEN_RANKS, play_until_deadline);
	await_ready(BROKEN_RANKS);
	usleep((useconds_t)testing_below(&random, 30000));
	atomic_store(&shared->since_ns, cei_now_ns());
	testing_stop(processes[VICTIM]);
	deadline_ns = cei_deadline(TESTING_PATIENCE);
	while (atomic_load(&shared->n_failed) < BROKEN_RANKS - 1) {
		ck_assert_uint_lt(cei_now_ns(), deadline_ns);
		usleep(1000);
	}
	ck_assert_int_eq(kill(processes[VICTIM], SIGCONT), 0);
	for (i = 0; i < BROKEN_RANKS; i++)
		end(i, 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("channel_programs");
	TCase *all = tcase_create("channel_programs");

	tcase_set_timeout(all, 60 + n_programs(PROGRAMS));
	tcase_add_loop_test(all, test_random_programs, RANKS_MIN, RANKS_MAX + 1);
	tcase_add_loop_test(all, test_programs_that_differ, RANKS_MIN, RANKS_MAX + 1);
	tcase_add_loop_test(all, test_a_rank_is_killed_in_a_call, 0, 5);
	tcase_add_test(all, test_a_rank_is_killed_while_another_one_is_late);
	tcase_add_loop_test(all, test_a_rank_is_stopped_in_a_call, 0, 3);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
