/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Many calls and messages of random kinds and sizes in one channel leave nothing behind: no memory,
 * mapping or descriptor. CEOVERLAP_TEST_CHANNEL_CALLS=1000000 makes so many at each rank. */

#include <check.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "system/bootstrap_fixture.h"
#include "unit/channel_rig.h"

#define RANKS      3u
#define CALLS      20000u
#define WARM_UP    3000u                /* calls that come before */
#define LARGE      32u                  /* one call of so many is large: it fills rings */
#define BYTES_MAX  UINT64_C(100000)     /* of a message: more than a channel holds of it */
#define MORE_KIB   128u                 /* resident memory may differ by so much */

struct calls {
	uint32_t first;
	uint32_t end;
};

/* Sends to the next rank and receives from the one before, as many bytes at all ranks. */
static void exchange(const struct channel_part *part, uint32_t number)
{
	uint64_t random = testing_seed() + number;
	uint64_t n = testing_below(&random, number % LARGE ? 500 : BYTES_MAX);
	uint32_t to = (part->rank + 1) % RANKS, from = (part->rank + RANKS - 1) % RANKS;
	char *memory = malloc(2 * n + 1);
	const struct ceov_call calls[] = {
		{ .struct_bytes = sizeof(calls[0]), .kind = CEOV_SEND, .dtype = CEOV_INT8,
		  .root = to, .source = memory, .count = n },
		{ .struct_bytes = sizeof(calls[0]), .kind = CEOV_RECEIVE, .dtype = CEOV_INT8,
		  .root = from, .target = memory + n, .count = n },
	};

	ck_assert_ptr_nonnull(memory);
	testing_fill(memory, n, number * RANKS + to);
	ck_assert_int_eq(ceov_channel_run(part->channel, calls, 2), 0);
	ck_assert_uint_eq(testing_check(memory + n, n, number * RANKS + part->rank), n);
	free(memory);
}

static void play(const struct channel_part *part)
{
	const struct calls *calls = part->arg;
	uint64_t random = testing_seed() + calls->first + part->rank;
	struct channel_case one;
	uint32_t i;

	for (i = calls->first; i < calls->end; i++) {
		if (i % 3 == 0) {
			exchange(part, i);
			continue;
		}
		one = channel_case_random(testing_seed(), i, RANKS,
					  i % LARGE ? CHANNEL_RING / 32 : CHANNEL_RING);
		ck_assert_int_eq(channel_case_run(&one, part->rank, part->channel, &random), 0);
	}
}

/* What the process has. */
struct use {
	uint64_t allocated;             /* bytes; 0 under an address sanitizer */
	uint64_t resident_kib;
	uint32_t n_mappings;
	uint32_t n_fds;
};

static uint64_t resident_kib(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	char text[128];
	char *end = text;

	ck_assert_ptr_nonnull(file);
	ck_assert_ptr_nonnull(fgets(text, sizeof(text), file));
	fclose(file);
	(void)strtoul(text, &end, 10);
	return strtoul(end, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
}

static uint32_t n_mappings(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	uint32_t n = 0;
	int c;

	ck_assert_ptr_nonnull(file);
	while ((c = getc(file)) != EOF)
		n += c == '\n';
	fclose(file);
	return n;
}

/* malloc() gives back first what it keeps of freed memory. */
static struct use use_now(void)
{
	struct mallinfo2 info;
	struct use use;

	malloc_trim(0);
	info = mallinfo2();
	use.allocated = info.uordblks + info.hblkhd;
	use.resident_kib = resident_kib();
	use.n_mappings = n_mappings();
	use.n_fds = n_open_fds();
	return use;
}

static uint32_t n_calls(void)
{
	const char *text = getenv("CEOVERLAP_TEST_CHANNEL_CALLS");

	return text ? (uint32_t)strtoul(text, NULL, 10) : testing_share(CALLS);
}

START_TEST(test_nothing_is_kept)
{
	struct calls warm_up = { 0, testing_share(WARM_UP) };
	struct calls calls = { warm_up.end, warm_up.end + n_calls() };
	struct use before, after;
	struct channel_rig rig;

	(void)mallopt(M_ARENA_MAX, 1);          /* malloc_trim() trims no other one whole */
	channel_rig_open(&rig, RANKS, 0, NULL);
	channel_rig_each(&rig, play, &warm_up);
	(void)use_now();                /* which keeps what the C library has for files */
	before = use_now();
	channel_rig_each(&rig, play, &calls);
	after = use_now();
	printf("%u calls of %u ranks: %lld bytes allocated, %lld KiB resident, %d mappings and %d "
	       "descriptors more than before\n", n_calls(), RANKS,
	       (long long)(after.allocated - before.allocated),
	       (long long)(after.resident_kib - before.resident_kib),
	       (int)(after.n_mappings - before.n_mappings), (int)(after.n_fds - before.n_fds));
	fflush(stdout);
	ck_assert_uint_eq(after.n_fds, before.n_fds);
	ck_assert_uint_le(after.allocated, before.allocated);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)     /* these keep some */
	ck_assert_uint_le(after.n_mappings, before.n_mappings);
	ck_assert_uint_le(after.resident_kib, before.resident_kib + MORE_KIB);
#endif
	channel_rig_close(&rig);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("channel_growth");
	TCase *all = tcase_create("channel_growth");

	tcase_set_timeout(all, 60 + n_calls() / 500);
	tcase_add_test(all, test_nothing_is_kept);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
