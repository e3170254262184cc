/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* How channels end: calls that differ, late ranks, aborts, releases. Ranks are threads of one
 * process; where each has to keep a failure of its own they also have contexts of their own, which
 * meet as a group. What processes do is in tests/system/test_channel_programs.c. */

#include <check.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "ops/channel/channel.h"
#include "unit/channel_rig.h"

#define LATE      (200 * TESTING_MS)    /* deadline where a rank is late */
#define SOON      (2 * TESTING_SECOND)  /* on a busy machine */

/* --- contexts of their own ------------------------------------------------------------------- */

struct apart {
	uint32_t      n_ranks;
	uint64_t      deadline_ns;
	ceov_context *contexts[CHANNEL_RANKS_MAX];
	ceov_channel *channels[CHANNEL_RANKS_MAX];
	int           results[CHANNEL_RANKS_MAX];
	char          texts[CHANNEL_RANKS_MAX][CEOV_FAILURE_TEXT_BYTES];
	uint32_t      blamed[CHANNEL_RANKS_MAX];
	uint64_t      began_ns[CHANNEL_RANKS_MAX];      /* its first call that may fail */
	uint64_t      took_ns[CHANNEL_RANKS_MAX];       /* until one failed */
	const void   *arg;
	void        (*body)(struct apart *apart, uint32_t rank);
};

struct apart_thread {
	pthread_t     thread;
	struct apart *apart;
	uint32_t      rank;
};

static void drop_line(void *arg, const char *line)
{
	(void)arg;
	(void)line;
}

static void *run_apart(void *arg)
{
	struct apart_thread *thread = arg;
	struct apart *apart = thread->apart;
	struct ceov_member member = { thread->rank, { CEOV_PLACE_HOST, 0 } };
	struct ceov_config config = CEOV_CONFIG_INIT;
	char path[200];

	testing_path("group", path, sizeof(path));
	config.members = &member;
	config.n_members = 1;
	config.n_ranks = apart->n_ranks;
	config.group = path;
	config.log = drop_line;
	ck_assert_int_eq(ceov_open(&config, &apart->contexts[thread->rank]), 0);
	apart->channels[thread->rank] = channel_made(apart->contexts[thread->rank], thread->rank,
						     "apart", apart->deadline_ns);
	ck_assert_int_eq(ceov_channel_connect(apart->channels[thread->rank], TESTING_PATIENCE), 0);
	apart->body(apart, thread->rank);
	ck_assert_int_eq(ceov_barrier(apart->contexts[thread->rank], TESTING_PATIENCE), 0);
	ceov_close(apart->contexts[thread->rank]);
	return NULL;
}

/* Runs body in a thread of each rank. */
static void run_ranks(struct apart *apart, uint32_t n_ranks,
		      void (*body)(struct apart *apart, uint32_t rank), const void *arg)
{
	struct apart_thread threads[CHANNEL_RANKS_MAX];
	uint32_t i;

	apart->n_ranks = n_ranks;
	apart->body = body;
	apart->arg = arg;
	for (i = 0; i < n_ranks; i++) {
		threads[i].apart = apart;
		threads[i].rank = i;
		ck_assert_int_eq(pthread_create(&threads[i].thread, NULL, run_apart, &threads[i]),
				 0);
	}
	for (i = 0; i < n_ranks; i++)
		pthread_join(threads[i].thread, NULL);
}

/* Makes a call without a look at its bytes, which a peer whose call differs may have mixed up. */
static int call(const struct apart *apart, uint32_t rank, const struct channel_case *one)
{
	struct channel_form form = { 0 };
	struct channel_data data;
	int r;

	channel_data_make(one, rank, &form, &data);
	r = ceov_channel_run(apart->channels[rank], &data.call, 1);
	channel_data_free(&data);
	return r;
}

/* Makes a call; after an error notes the failure. */
static int make(struct apart *apart, uint32_t rank, const struct channel_case *one)
{
	struct ceov_failure failure = { .rank = CEOV_NOBODY };
	int r;

	if (!apart->began_ns[rank])
		apart->began_ns[rank] = cei_now_ns();
	r = call(apart, rank, one);
	if (!r)
		return 0;
	(void)ceov_last_failure(apart->contexts[rank], &failure);
	apart->took_ns[rank] = cei_now_ns() - apart->began_ns[rank];
	apart->results[rank] = r;
	apart->blamed[rank] = failure.rank;
	memcpy(apart->texts[rank], failure.text, sizeof(failure.text));
	ck_assert_int_eq(ceov_channel_status(apart->channels[rank]), r);
	ck_assert_int_eq(call(apart, rank, one), r);
	return r;
}

/* A rank that comes late to a call in which others have failed may still find all that it needs;
 * the next call it cannot end. */
static int make_until_it_fails(struct apart *apart, uint32_t rank, const struct channel_case *one)
{
	int r = make(apart, rank, one);

	return r ? r : make(apart, rank, one);
}

static void has(const struct apart *apart, uint32_t rank, const char *text)
{
	ck_assert_msg(strstr(apart->texts[rank], text) != NULL, "rank %u: '%s' is not in: %s", rank,
		      text, apart->texts[rank]);
}

/* --- calls that differ ----------------------------------------------------------------------- */

struct difference {
	struct channel_case all, other;         /* rank 1 makes the other one */
	const char         *names[2];           /* how failures call them */
	int                 is_of_a_pair;       /* rank 2 sees nothing of it in the heads for it */
};

#define DIFFERENCES 14u

static struct channel_case with(enum ceov_call_kind kind, enum ceov_dtype dtype, uint64_t count,
				enum ceov_reduction reduction, uint32_t root)
{
	struct channel_case one = channel_case_of(kind, dtype, 3, count);

	one.reduction = reduction;
	one.root = root;
	return one;
}

static void make_counts_differ(struct difference *made, int which)
{
	static const enum ceov_call_kind kinds[] = { CEOV_ALL_GATHER, CEOV_REDUCE_SCATTER,
						     CEOV_BROADCAST, CEOV_SCATTER, CEOV_GATHER,
						     CEOV_REDUCE };

	made->all = made->other = with(kinds[which], CEOV_INT32, 100, CEOV_SUM, 0);
	made->other.is_uneven = 1;
	made->other.count = 101;
	made->other.sizes[1] = 101;
	/* Of a root and rank 1 rank 2 hears only when they fail. */
	made->is_of_a_pair = which >= 2;
	made->names[0] = "400";
	made->names[1] = "404";
}

static struct difference difference_of(int i)
{
	struct difference made = { .all = with(CEOV_ALL_REDUCE, CEOV_FP32, 100, CEOV_SUM, 0) };

	made.other = made.all;
	made.names[0] = "all_reduce of fp32, sum";
	switch (i) {
	case 0:
		made.other = with(CEOV_ALL_GATHER, CEOV_FP32, 100, CEOV_SUM, 0);
		made.names[1] = "all_gather of fp32";
		break;
	case 1:
		made.other.dtype = CEOV_INT32;
		made.names[1] = "all_reduce of int32, sum";
		break;
	case 2:
		made.other.count = 99;
		made.names[0] = "400";
		made.names[1] = "396";
		break;
	case 3:
		made.other.reduction = CEOV_MEAN;
		made.names[1] = "all_reduce of fp32, mean";
		break;
	case 4:
		made.all = with(CEOV_BROADCAST, CEOV_INT8, 10, CEOV_SUM, 0);
		made.other = with(CEOV_BROADCAST, CEOV_INT8, 10, CEOV_SUM, 1);
		made.names[0] = "broadcast of int8, root 0";
		made.names[1] = "broadcast of int8, root 1";
		break;
	case 5:
		made.other = with(CEOV_BARRIER, CEOV_FP32, 0, CEOV_SUM, 0);
		made.names[1] = "barrier";
		break;
	case 6:                         /* nothing flows, but the calls differ */
		made.all = with(CEOV_REDUCE, CEOV_FP32, 0, CEOV_MAX, 2);
		made.other = with(CEOV_REDUCE, CEOV_FP64, 0, CEOV_MAX, 2);
		made.names[0] = "reduce of fp32, max, root 2";
		made.names[1] = "reduce of fp64, max, root 2";
		break;
	case 7:                         /* one pair of an all-to-all */
		made.all = made.other = with(CEOV_ALL_TO_ALL, CEOV_INT16, 1000, CEOV_SUM, 0);
		made.other.is_uneven = 1;
		made.other.blocks[1][0] = 999;
		made.is_of_a_pair = 1;
		made.names[0] = "2000";
		made.names[1] = "1998";
		break;
	default:
		make_counts_differ(&made, i - 8);
	}
	return made;
}

static void make_differing(struct apart *apart, uint32_t rank)
{
	const struct difference *difference = apart->arg;
	struct channel_case before = with(CEOV_ALL_GATHER, CEOV_BOOL, 3, CEOV_SUM, 0);
	int is_third = rank == 2 && difference->is_of_a_pair;

	ck_assert_int_eq(call(apart, rank, &before), 0);
	ck_assert_int_eq((is_third ? make_until_it_fails : make)
			 (apart, rank, rank == 1 ? &difference->other : &difference->all),
			 CEOV_ERR_INVALID);
}

START_TEST(test_calls_that_differ)
{
	struct difference difference = difference_of(_i);
	struct apart apart = { .arg = &difference };
	uint32_t rank;

	run_ranks(&apart, 3, make_differing, &difference);
	for (rank = 0; rank < 3; rank++) {
		ck_assert_uint_lt(apart.took_ns[rank], SOON);
		has(&apart, rank, "call 2: rank ");
		has(&apart, rank, ", but rank ");
		has(&apart, rank, difference.names[0]);
		has(&apart, rank, difference.names[1]);
	}
	ck_assert_uint_eq(apart.blamed[0], 1);
}
END_TEST

/* Ranks 0 and 1 make two calls in another order; one more call is as a late rank. */
static void make_in_other_order(struct apart *apart, uint32_t rank)
{
	struct channel_case calls[2];

	calls[0] = with(CEOV_ALL_GATHER, CEOV_INT8, 9, CEOV_SUM, 0);
	calls[1] = with(CEOV_ALL_REDUCE, CEOV_INT8, 9, CEOV_SUM, 0);
	ck_assert_int_eq(make(apart, rank, &calls[rank == 1]), CEOV_ERR_INVALID);
}

START_TEST(test_calls_in_another_order)
{
	struct apart apart = { 0 };
	uint32_t rank;

	run_ranks(&apart, 3, make_in_other_order, NULL);
	for (rank = 0; rank < 3; rank++) {
		has(&apart, rank, "all_gather of int8");
		has(&apart, rank, "all_reduce of int8, sum");
	}
}
END_TEST

/* Ranks 0 and 1 differ in what goes between them, which rank 2 cannot see in what they tell it. It
 * waits for rank 3, which comes much later, and hears of the failure before. */
static void differ_beside_a_late_rank(struct apart *apart, uint32_t rank)
{
	struct channel_case one = channel_case_of(CEOV_ALL_TO_ALL, CEOV_INT8, 4, 8);

	one.is_uneven = 1;
	if (rank == 1)
		one.blocks[1][0]--;
	if (rank == 3)
		usleep(3000000);
	ck_assert_int_eq(make_until_it_fails(apart, rank, &one), CEOV_ERR_INVALID);
}

START_TEST(test_a_failure_is_seen_while_another_rank_is_late)
{
	struct apart apart = { 0 };
	uint32_t rank;

	run_ranks(&apart, 4, differ_beside_a_late_rank, NULL);
	for (rank = 0; rank < 4; rank++) {
		ck_assert_uint_lt(apart.took_ns[rank], SOON);
		has(&apart, rank, "call 1: rank ");
		has(&apart, rank, ", but rank ");
	}
}
END_TEST

/* --- late ranks and aborts ------------------------------------------------------------------- */

static void let_one_be_late(struct apart *apart, uint32_t rank)
{
	struct channel_case one = with(CEOV_ALL_REDUCE, CEOV_BF16, 10, CEOV_SUM, 0);

	ck_assert_int_eq(call(apart, rank, &one), 0);
	if (rank == 1)                  /* the others have made one call more */
		usleep((useconds_t)(3 * LATE / 1000));
	ck_assert_int_eq(make(apart, rank, &one), CEOV_ERR_TIMEOUT);
}

START_TEST(test_a_late_rank_is_named)
{
	struct apart apart = { .deadline_ns = LATE };
	uint32_t rank;

	run_ranks(&apart, 3, let_one_be_late, NULL);
	for (rank = 0; rank < 3; rank += 2) {
		ck_assert_uint_ge(apart.took_ns[rank], LATE);
		ck_assert_uint_lt(apart.took_ns[rank], LATE + SOON);
		ck_assert_uint_eq(apart.blamed[rank], 1);
		has(&apart, rank, "call 2, all_reduce of bf16, sum: rank 1 has not made this call "
		    "within 200 ms");
	}
	has(&apart, 1, "has ended the channel; its log says why");
}
END_TEST

static void *abort_soon(void *arg)
{
	usleep(50000);
	ck_assert_int_eq(ceov_channel_abort(arg), 0);
	return NULL;
}

/* The last rank but one is aborted by another thread of it while it waits for the last one, which
 * comes later; so does rank 0 of three wait, and it hears of the abort at once. */
static void abort_one(struct apart *apart, uint32_t rank)
{
	struct channel_case one = channel_case_of(CEOV_BARRIER, CEOV_INT8, apart->n_ranks, 0);
	int is_aborted = rank == apart->n_ranks - 2;
	pthread_t thread;

	if (is_aborted)
		ck_assert_int_eq(pthread_create(&thread, NULL, abort_soon,
						apart->channels[rank]), 0);
	if (rank == apart->n_ranks - 1)
		usleep(3000000);
	ck_assert_int_eq(make_until_it_fails(apart, rank, &one), CEOV_ERR_ABORTED);
	if (is_aborted)
		pthread_join(thread, NULL);
	ck_assert_int_eq(ceov_channel_abort(apart->channels[rank]), 0);
	ck_assert_int_eq(ceov_channel_status(apart->channels[rank]), CEOV_ERR_ABORTED);
}

START_TEST(test_an_abort_ends_the_calls_of_all_ranks)
{
	struct apart apart = { 0 };
	uint32_t rank;

	run_ranks(&apart, (uint32_t)_i, abort_one, NULL);
	for (rank = 0; rank < (uint32_t)_i; rank++)
		ck_assert_uint_lt(apart.took_ns[rank], SOON);
	if (_i == 3)
		has(&apart, 0, "rank 1 has ended the channel");
}
END_TEST

/* --- one context ----------------------------------------------------------------------------- */

static void call_nothing(const struct channel_part *part)
{
	struct channel_case one = channel_case_of(CEOV_BARRIER, CEOV_INT8, part->rig->n_ranks, 0);
	uint64_t random = 0;
	int want = *(const int *)part->arg;

	ck_assert_int_eq(channel_case_run(&one, part->rank, part->channel, &random), want);
}

START_TEST(test_another_channel_after_a_failed_one)
{
	int aborted = CEOV_ERR_ABORTED;
	struct channel_rig rig, next;

	channel_rig_open(&rig, 3, 0, NULL);
	channel_rig_works(&rig);
	ck_assert_int_eq(ceov_channel_status(rig.channels[0]), 0);
	ck_assert_int_eq(ceov_channel_abort(rig.channels[0]), 0);
	channel_rig_each(&rig, call_nothing, &aborted);
	channel_rig_open_beside(&next, &rig, "next");
	channel_rig_works(&next);
	channel_rig_release(&rig);
	channel_rig_works(&next);
	channel_rig_close(&next);
}
END_TEST

START_TEST(test_release_while_a_peer_maps_the_memory)
{
	struct channel_case one = channel_case_of(CEOV_BARRIER, CEOV_INT8, 2, 0);
	struct channel_rig rig;
	uint64_t random = 0;

	channel_rig_open(&rig, 2, 0, NULL);
	ck_assert_int_eq(ceov_channel_release(rig.channels[1]), CEOV_PENDING);
	ck_assert_int_eq(ceov_channel_status(rig.channels[1]), CEOV_ERR_STATE);
	ck_assert_int_eq(channel_case_run(&one, 1, rig.channels[1], &random), CEOV_ERR_STATE);
	/* a peer that waits for it is told */
	ck_assert_int_eq(channel_case_run(&one, 0, rig.channels[0], &random), CEOV_ERR_STATE);
	ck_assert_int_eq(ceov_channel_release(rig.channels[0]), 0);
	ck_assert_int_eq(ceov_channel_release(rig.channels[1]), 0);
	ceov_close(rig.context);
}
END_TEST

/* --- a peer's memory ------------------------------------------------------------------------- */

/* A ring that the test writes to instead of a rank. Its counters lie in the first page, its poison
 * in the second. */
static struct cei_ring *played;
static long page;

static void play_on(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)info;
	(void)context;
	if (mprotect(played, sizeof(*played), PROT_READ | PROT_WRITE))
		_exit(1);
	/* relaxed: the reader is this thread */
	atomic_store_explicit(&played->heads[1].run, 1, memory_order_relaxed);
	atomic_store_explicit(&played->n_ready, 1, memory_order_relaxed);
	atomic_store_explicit(&played->poison, (uint32_t)-CEOV_ERR_STATE, memory_order_relaxed);
}

static void map_played(void)
{
	played = mmap(NULL, sizeof(*played) + CHANNEL_RING, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(played, MAP_FAILED);
}

/* Plays rank 1, which makes its only call and releases its channel just when rank 0 looks whether
 * it has done so. */
static void play(ceov_channel *channel, uint64_t run_before)
{
	struct sigaction action = { .sa_flags = SA_SIGINFO };
	uint64_t poison_at = offsetof(struct cei_ring, poison);

	page = sysconf(_SC_PAGESIZE);
	ck_assert_uint_ge(poison_at, (uint64_t)page);
	ck_assert_uint_lt(offsetof(struct cei_ring, n_ready), (uint64_t)page);
	action.sa_sigaction = play_on;
	ck_assert_int_eq(sigaction(SIGSEGV, &action, NULL), 0);
	map_played();
	played->heads[1].what = CEOV_BROADCAST | CEOV_INT8 << 8 | UINT64_C(1) << 24;
	played->heads[1].n_chunks = 1;
	played->heads[1].pairs[0].gives = 4;
	atomic_init(&played->heads[1].run, run_before);
	memcpy(played->slots, "abcd", 4);
	ck_assert_int_eq(mprotect((char *)played + poison_at / (uint64_t)page * (uint64_t)page,
				  (size_t)page, PROT_NONE), 0);
	channel->rings[1] = played;
}

/* _i 0: the head comes when rank 0 waits for it; 1: it is there, and the chunk comes then. */
START_TEST(test_a_peer_that_releases_at_once_has_not_failed)
{
	char target[4] = "";
	struct ceov_call call = { .struct_bytes = sizeof(call), .kind = CEOV_BROADCAST,
				  .dtype = CEOV_INT8, .root = 1, .target = target, .count = 4 };
	struct cei_ring *ring;
	struct channel_rig rig;

	channel_rig_open(&rig, 2, TESTING_SECOND, NULL);
	ring = rig.channels[0]->rings[1];
	play(rig.channels[0], (uint64_t)_i);
	ck_assert_int_eq(ceov_channel_run(rig.channels[0], &call, 1), 0);
	ck_assert(!memcmp(target, "abcd", 4));
	ck_assert_uint_eq(atomic_load(&played->poison), (uint32_t)-CEOV_ERR_STATE);
	rig.channels[0]->rings[1] = ring;
	ck_assert_int_eq(munmap(played, sizeof(*played) + CHANNEL_RING), 0);
	channel_rig_close(&rig);
}
END_TEST

/* Rank 1 is played: it stays in the first call, the bytes of which fill the ring of rank 0. */
START_TEST(test_a_peer_that_stays_in_the_call_before)
{
	struct channel_case one = channel_case_of(CEOV_BROADCAST, CEOV_INT8, 2, CHANNEL_RING);
	uint64_t random = 0;
	struct channel_rig rig;
	struct cei_ring *ring;

	channel_rig_open(&rig, 2, LATE, NULL);
	map_played();
	played->heads[1].what = CEOV_BROADCAST | CEOV_INT8 << 8;
	played->heads[1].pairs[0].gets = CHANNEL_RING;
	atomic_store(&played->heads[1].run, 1);
	ring = rig.channels[0]->rings[1];
	rig.channels[0]->rings[1] = played;
	ck_assert_int_eq(channel_case_run(&one, 0, rig.channels[0], &random), 0);
	ck_assert_int_eq(channel_case_run(&one, 0, rig.channels[0], &random), CEOV_ERR_TIMEOUT);
	ck_assert(strstr(testing_failure(rig.context).text,
			 "call 2, broadcast of int8, root 0: rank 1 has not ended the call before "
			 "within 200 ms"));
	rig.channels[0]->rings[1] = ring;
	ck_assert_int_eq(munmap(played, sizeof(*played) + CHANNEL_RING), 0);
	channel_rig_close(&rig);
}
END_TEST

/* Words of a peer that are none: an error all the same, and nothing is read elsewhere. */
START_TEST(test_any_words_of_a_peer)
{
	struct channel_case one = channel_case_of(CEOV_ALL_GATHER, CEOV_INT8, 2, 100);
	uint64_t random = testing_seed();
	struct channel_rig rig;
	struct cei_ring *ring;

	channel_rig_open(&rig, 2, LATE, NULL);
	ring = rig.channels[1]->rings[1];
	testing_fill(ring, sizeof(*ring), testing_seed() + (uint64_t)_i);
	atomic_store(&ring->heads[1].run, _i % 2 ? 1 : 2);
	atomic_store(&ring->poison, _i % 4 < 2 ? 0 : (uint32_t)testing_random(&random) | 1);
	ck_assert_int_lt(channel_case_run(&one, 0, rig.channels[0], &random), 0);
	ck_assert_int_lt(ceov_channel_status(rig.channels[0]), 0);
	channel_rig_close(&rig);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("channel_fails");
	TCase *all = tcase_create("channel_fails");

	tcase_set_timeout(all, 60);
	tcase_add_loop_test(all, test_calls_that_differ, 0, DIFFERENCES);
	tcase_add_test(all, test_calls_in_another_order);
	tcase_add_test(all, test_a_failure_is_seen_while_another_rank_is_late);
	tcase_add_test(all, test_a_late_rank_is_named);
	tcase_add_loop_test(all, test_an_abort_ends_the_calls_of_all_ranks, 2, 4);
	tcase_add_test(all, test_another_channel_after_a_failed_one);
	tcase_add_test(all, test_release_while_a_peer_maps_the_memory);
	tcase_add_loop_test(all, test_a_peer_that_releases_at_once_has_not_failed, 0, 2);
	tcase_add_test(all, test_a_peer_that_stays_in_the_call_before);
	tcase_add_loop_test(all, test_any_words_of_a_peer, 0, 8);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
