/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests contexts that use the engines of others: their plans, which come as bytes, move the memory
 * that they import; launches are numbered by who asks; guests of one engine keep apart. A source
 * brings launches to the engine, and is slept on. */

#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <poll.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/engine/launch_source.h"
#include "ce_engine/engine/works_open.h"
#include "daemon/server/guest.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"
#include "ce_engine/plan/plan_import.h"
#include "ce_engine/plan/plan_launch.h"
#include "ce_engine/plan/plan_release.h"
#include "ce_engine/program/program_wire.h"
#include "testing.h"

#define BYTES    UINT64_C(5000)
#define LAUNCHES 64u

/* The engine's own number, which is no rank of a guest's group. */
#define ENGINE_RANK 5u

/* Who owns the memory, and would send its plan to a daemon. */
struct owner {
	ceov_context *context;
	ceov_buffer  *source, *target;
	ceov_signal  *ready, *arrived;
	ceov_plan    *plan;
};

/* Brings one launch again and again, as often as `n_wanted` says. */
struct bringer {
	struct cei_launch_source source;
	ceov_plan        *_Atomic plan;
	_Atomic uint64_t  n_wanted;     /* release: pairs with take() */
	uint64_t          n_brought;
	_Atomic uint32_t  n_sleeps;
	_Atomic uint32_t  is_dozing;
	int               bell;
};

/* The engines, and a guest. */
static struct {
	struct testing_log log;
	struct cei_report  report;
	struct cei_site    site;
	struct cei_works   works;
	struct bringer     bringer;
	_Atomic uint64_t   n_ended, n_failed, last;
	_Atomic int        error;
	ceov_context *_Atomic watched;  /* whether it is busy when it is told that a launch has
					 * ended; NULL: nobody looks */
	_Atomic uint64_t   n_idle;      /* times that it was not */
} host;

static uint32_t take(struct cei_launch_source *source)
{
	struct bringer *bringer = CEI_OWNER(source, struct bringer, source);
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	uint32_t n = 0;

	/* acquire: pairs with bring() */
	while (bringer->n_brought < atomic_load_explicit(&bringer->n_wanted,
							 memory_order_acquire)) {
		launch.base = bringer->n_brought;
		if (cei_launch_numbered(bringer->plan, &launch, bringer->n_brought + 1))
			break;
		bringer->n_brought++;
		n++;
	}
	return n;
}

static void doze(struct cei_launch_source *source, int is_dozing)
{
	atomic_store(&CEI_OWNER(source, struct bringer, source)->is_dozing, (uint32_t)is_dozing);
}

static int sleep_here(struct cei_launch_source *source)
{
	struct bringer *bringer = CEI_OWNER(source, struct bringer, source);
	struct pollfd poll_fd = { .fd = bringer->bell, .events = POLLIN };
	uint64_t n;

	atomic_fetch_add(&bringer->n_sleeps, 1);
	ck_assert_int_eq(poll(&poll_fd, 1, 20000), 1);
	ck_assert_int_eq(read(bringer->bell, &n, sizeof(n)), sizeof(n));
	return 1;
}

static void wake(struct cei_launch_source *source)
{
	uint64_t one = 1;

	ck_assert_int_eq(write(CEI_OWNER(source, struct bringer, source)->bell, &one,
			       sizeof(one)), sizeof(one));
}

static void ended(void *arg, uint64_t number, int result)
{
	ceov_context *watched = atomic_load(&host.watched);

	(void)arg;
	if (watched && !cei_plans_are_moving(watched))
		atomic_fetch_add(&host.n_idle, 1);
	if (result) {
		atomic_store(&host.error, result);
		atomic_fetch_add(&host.n_failed, 1);
	}
	atomic_store(&host.last, number);
	atomic_fetch_add(&host.n_ended, 1);
}

static void open_works(int has_source)
{
	memset(&host, 0, sizeof(host));
	testing_log_init(&host.log);
	cei_report_init(&host.report, testing_log_line, &host.log);
	host.site.report = &host.report;
	host.site.n_ranks = ENGINE_RANK + 1;
	host.site.n_members = 1;
	host.site.members[0].rank = ENGINE_RANK;
	host.site.movers = cei_backends;
	host.bringer.bell = eventfd(0, EFD_CLOEXEC);
	host.bringer.source = (struct cei_launch_source){ take, doze, sleep_here, wake, 1 };
	if (has_source)
		host.works.sources[0] = &host.bringer.source;
	ck_assert_int_eq(cei_works_open(&host.works, &host.site), 0);
	ck_assert_int_eq(cei_works_start(&host.works, 1), 0);
}

static void close_works(void)
{
	ck_assert_uint_eq(cei_works_stop(&host.works, TESTING_PATIENCE), 0);
	cei_works_close_engines(&host.works);
	cei_works_close(&host.works);
	close(host.bringer.bell);
	cei_report_fini(&host.report);
}

static void open_owner(struct owner *owner)
{
	struct ceov_transfer transfer;

	owner->context = testing_open(2, NULL);
	owner->source = testing_buffer(owner->context, 0, BYTES);
	owner->target = testing_buffer(owner->context, 1, BYTES);
	owner->ready = testing_signal(owner->context, 0, 1);
	owner->arrived = testing_signal(owner->context, 1, 1);
	owner->plan = testing_plan(owner->context, 0);
	transfer = testing_transfer(owner->source, owner->target, BYTES);
	transfer.source_ready = testing_mark(owner->ready, 0, 1);
	transfer.then = testing_mark(owner->arrived, 0, 1);
	testing_add(owner->plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(owner->plan), 0);
}

static ceov_context *open_guest(void)
{
	const struct ceov_member member = { 0, { CEOV_PLACE_HOST, 0 } };
	const uint32_t engine = 0;
	struct cei_guest guest = {
		.works = &host.works, .n_ranks = 2, .n_members = 1, .members = &member,
		.engines = &engine, .max_chunk_bytes = 1024, .deadline_ns = TESTING_PATIENCE,
		.log = testing_log_line, .log_arg = &host.log, .ended = ended,
	};
	ceov_context *context = NULL;

	ck_assert_int_eq(cei_guest_open(&guest, &context), 0);
	return context;
}

static int describe(struct cei_region *region, struct cei_region_wire *ret_wire)
{
	int fd;

	ck_assert_int_eq(cei_share_host.export(region, ret_wire, &fd), 0);
	fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static ceov_buffer *lend_buffer(ceov_context *guest, ceov_buffer *buffer)
{
	struct cei_region_wire wire;
	ceov_buffer *lent = NULL;
	int fd = describe(buffer->region, &wire);

	ck_assert_int_eq(cei_buffer_import(guest, buffer->rank, &wire, fd, &lent), 0);
	return lent;
}

static int lend(ceov_context *guest, ceov_signal *signal, uint32_t n_counters,
		ceov_signal **ret_lent)
{
	struct cei_signal_parts parts = { .rank = signal->rank, .n_counters = n_counters };

	parts.fd = describe(signal->control, &parts.control);
	return cei_signal_import(guest, &parts, ret_lent);
}

static ceov_signal *lend_signal(ceov_context *guest, ceov_signal *signal)
{
	ceov_signal *lent = NULL;

	ck_assert_int_eq(lend(guest, signal, signal->n_counters, &lent), 0);
	return lent;
}

/* Gives the guest the owner's plan. */
static ceov_plan *lend_plan(ceov_context *guest, const struct owner *owner)
{
	ceov_buffer *buffers[2] = { lend_buffer(guest, owner->source),
				    lend_buffer(guest, owner->target) };
	ceov_signal *signals[2] = { lend_signal(guest, owner->ready),
				    lend_signal(guest, owner->arrived) };
	const struct cei_plan_handles handles = { buffers, 2, signals, 2 };
	size_t n = cei_program_bytes(&owner->plan->program);
	void *bytes = malloc(n);
	ceov_plan *plan = NULL;

	ck_assert_ptr_nonnull(bytes);
	cei_program_write(&owner->plan->program, bytes);
	ck_assert_int_eq(cei_plan_import(guest, bytes, n, &handles, &plan), 0);
	free(bytes);
	return plan;
}

static void launch(ceov_plan *plan, uint64_t base, uint64_t number)
{
	const struct ceov_launch ask = { .struct_bytes = sizeof(ask), .base = base };

	ck_assert_int_eq(cei_launch_numbered(plan, &ask, number), 0);
}

static void await_ends(uint64_t n)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);

	while (atomic_load(&host.n_ended) < n && cei_now_ns() < deadline)
		usleep(100);
	ck_assert_uint_eq(atomic_load(&host.n_ended), n);
}

static void await_idle(ceov_context *guest)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);

	while (cei_plans_are_moving(guest) && cei_now_ns() < deadline)
		usleep(100);
	ck_assert_int_eq(cei_plans_are_moving(guest), 0);
}

/* Fills the source anew, and raises its mark. */
static void fill(const struct owner *owner, uint64_t base, uint64_t *seed)
{
	uint8_t *bytes = ceov_buffer_base(owner->source, 0);
	uint64_t i;

	for (i = 0; i < BYTES; i++)
		bytes[i] = (uint8_t)testing_random(seed);
	ck_assert_int_eq(ceov_signal_raise(owner->ready, 0, base + 1), 0);
}

static void arrived_whole(const struct owner *owner, uint64_t base)
{
	ck_assert_int_eq(ceov_signal_wait(owner->arrived, 0, base + 1, TESTING_PATIENCE), 0);
	ck_assert_int_eq(memcmp(ceov_buffer_base(owner->source, 0),
				ceov_buffer_base(owner->target, 1), BYTES), 0);
}

START_TEST(test_a_guest_moves_what_it_imports)
{
	uint64_t seed = testing_seed(), i;
	ceov_context *guest;
	struct owner owner;
	ceov_plan *plan;

	open_works(0);
	open_owner(&owner);
	guest = open_guest();
	plan = lend_plan(guest, &owner);
	atomic_store(&host.watched, guest);     /* it could be closed when it is idle */
	for (i = 0; i < LAUNCHES; i++) {
		launch(plan, i, 1000 + i);
		fill(&owner, i, &seed);
		arrived_whole(&owner, i);
		await_ends(i + 1);
		ck_assert_uint_eq(atomic_load(&host.last), 1000 + i);
	}
	ck_assert_uint_eq(atomic_load(&host.n_failed), 0);
	ck_assert_uint_eq(atomic_load(&host.n_idle), 0);
	await_idle(guest);
	cei_guest_close(guest);
	ceov_close(owner.context);
	close_works();
}
END_TEST

static void *ask_on(void *arg)
{
	ceov_context *guest = arg;

	while (atomic_load(&host.n_ended) < LAUNCHES)
		(void)cei_plans_are_moving(guest);
	return NULL;
}

/* As the threads of a daemon ask while the engine moves a client's bytes: TSan looks on. */
START_TEST(test_a_guest_is_asked_while_it_moves)
{
	uint64_t seed = testing_seed(), i;
	ceov_context *guest;
	struct owner owner;
	pthread_t thread;
	ceov_plan *plan;

	open_works(0);
	open_owner(&owner);
	guest = open_guest();
	plan = lend_plan(guest, &owner);
	ck_assert_int_eq(pthread_create(&thread, NULL, ask_on, guest), 0);
	for (i = 0; i < LAUNCHES; i++) {
		launch(plan, i, 1 + i);
		ck_assert_int_eq(cei_plans_are_moving(guest), 1);  /* its mark is not raised yet */
		fill(&owner, i, &seed);
		arrived_whole(&owner, i);
	}
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_eq(atomic_load(&host.n_failed), 0);
	await_idle(guest);
	cei_guest_close(guest);
	ceov_close(owner.context);
	close_works();
}
END_TEST

START_TEST(test_guests_of_one_engine_keep_apart)
{
	uint64_t seed = testing_seed();
	ceov_context *guests[2];
	struct owner owners[2];
	ceov_plan *plans[2];
	uint32_t i;

	open_works(0);
	for (i = 0; i < 2; i++) {
		open_owner(&owners[i]);
		guests[i] = open_guest();
		plans[i] = lend_plan(guests[i], &owners[i]);
		launch(plans[i], 0, 1);
	}
	ck_assert_int_ne(cei_plans_are_moving(guests[0]), 0);
	cei_guest_abort(guests[0], CEOV_ERR_ABORTED, CEOV_NOBODY);
	await_ends(1);
	ck_assert_int_eq(atomic_load(&host.error), CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_signal_wait(owners[0].arrived, 0, 1, TESTING_PATIENCE),
			 CEOV_ERR_ABORTED);
	await_idle(guests[0]);
	cei_guest_close(guests[0]);
	fill(&owners[1], 0, &seed);
	arrived_whole(&owners[1], 0);
	await_ends(2);
	ck_assert_uint_eq(atomic_load(&host.n_failed), 1);
	await_idle(guests[1]);
	cei_guest_close(guests[1]);
	for (i = 0; i < 2; i++)
		ceov_close(owners[i].context);
	close_works();
}
END_TEST

/* Also where the guest's owner reads of it in the signals. */
START_TEST(test_a_failure_names_the_rank_of_the_guest)
{
	struct ceov_failure failure;
	ceov_context *guest;
	struct owner owner;

	open_works(0);
	open_owner(&owner);
	guest = open_guest();
	ck_assert_int_eq(ceov_signal_raise(owner.arrived, 0, 2), 0);
	launch(lend_plan(guest, &owner), 0, 1);
	ck_assert_int_eq(ceov_signal_raise(owner.ready, 0, 1), 0);
	await_ends(1);
	ck_assert_int_eq(atomic_load(&host.error), CEOV_ERR_INVALID);
	testing_log_has(&host.log, "rank 0: launch 1", "its mark would fall", "blame: rank 0");
	ck_assert_int_eq(ceov_signal_wait(owner.arrived, 0, 3, TESTING_PATIENCE),
			 CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_last_failure(owner.context, &failure), 0);
	ck_assert_uint_eq(failure.rank, 0);
	await_idle(guest);
	cei_guest_close(guest);
	ceov_close(owner.context);
	close_works();
}
END_TEST

START_TEST(test_a_base_too_large_is_refused)
{
	const struct ceov_launch large = { .struct_bytes = sizeof(large),
					   .base = CEOV_VALUE_LIMIT - 1 };
	ceov_context *guest;
	struct owner owner;

	open_works(0);
	open_owner(&owner);
	guest = open_guest();
	ck_assert_int_eq(cei_launch_numbered(lend_plan(guest, &owner), &large, 1),
			 CEOV_ERR_INVALID);
	ck_assert_uint_eq(atomic_load(&host.n_idle), 0);
	await_idle(guest);
	cei_guest_close(guest);
	ceov_close(owner.context);
	close_works();
}
END_TEST

START_TEST(test_a_signal_in_too_little_memory_is_refused)
{
	ceov_signal *lent = NULL;
	ceov_context *guest;
	struct owner owner;

	open_works(0);
	open_owner(&owner);
	guest = open_guest();
	ck_assert_int_eq(lend(guest, owner.ready, 2, &lent), CEOV_ERR_INVALID);
	testing_log_has(&host.log, "with 2 counters", "too little", NULL);
	await_idle(guest);
	cei_guest_close(guest);
	ceov_close(owner.context);
	close_works();
}
END_TEST

/* Lets the bringer bring n launches in all; it is woken if it sleeps. */
static void bring(uint64_t n)
{
	/* seq_cst, both: the engine dozes and then looks for launches, and this sets what it looks
	 * for and then whether it dozes */
	atomic_store(&host.bringer.n_wanted, n);
	if (atomic_load(&host.bringer.is_dozing))
		wake(&host.bringer.source);
}

START_TEST(test_a_source_brings_launches_and_is_slept_on)
{
	uint64_t seed = testing_seed(), i;
	ceov_context *guest;
	struct owner owner;

	open_works(1);
	open_owner(&owner);
	guest = open_guest();
	host.bringer.plan = lend_plan(guest, &owner);
	for (i = 0; i < LAUNCHES; i++) {
		if (i % 16 == 0)
			usleep(30000);          /* longer than an engine stays awake */
		bring(i + 1);
		fill(&owner, i, &seed);
		arrived_whole(&owner, i);
		await_ends(i + 1);
	}
	ck_assert_uint_ge(atomic_load(&host.bringer.n_sleeps), 2);
	ck_assert_uint_eq(atomic_load(&host.n_failed), 0);
	await_idle(guest);
	cei_guest_close(guest);
	ceov_close(owner.context);
	close_works();
}
END_TEST

static Suite *suite(void)
{
	Suite *all = suite_create("guest");
	TCase *cases = tcase_create("guest");

	tcase_set_timeout(cases, 60);
	tcase_add_test(cases, test_a_guest_moves_what_it_imports);
	tcase_add_test(cases, test_a_guest_is_asked_while_it_moves);
	tcase_add_test(cases, test_guests_of_one_engine_keep_apart);
	tcase_add_test(cases, test_a_failure_names_the_rank_of_the_guest);
	tcase_add_test(cases, test_a_base_too_large_is_refused);
	tcase_add_test(cases, test_a_signal_in_too_little_memory_is_refused);
	tcase_add_test(cases, test_a_source_brings_launches_and_is_slept_on);
	suite_add_tcase(all, cases);
	return all;
}

int main(void)
{
	return testing_run(suite());
}
