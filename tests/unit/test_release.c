/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests handles that one thread releases while other threads find, create and release handles. */

#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"
#include "testing.h"

/* More handles than the quarantine and an allocator's caches hold. */
#define N_BESIDE (3 * CEI_QUARANTINE_MAX)
#define N_KEPT   600u
#define N_FINDERS 2u

/* --- a release that takes long --------------------------------------------------- */

/* Maps one of our own regions a second time, as if it belonged to a peer. */
static struct cei_region *map_again(ceov_context *context, struct cei_region *own)
{
	struct cei_region_wire wire;
	struct cei_region *region;
	int fd;

	ck_assert_int_eq(cei_share_host.export(own, &wire, &fd), 0);
	fd = dup(fd);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(cei_mapping_get(&context->mappings, &wire, fd, &region), 0);
	return region;
}

static int is_dead(struct cei_object *object)
{
	int is;

	pthread_mutex_lock(&object->context->lock);
	is = object->state == CEI_OBJECT_DEAD;
	pthread_mutex_unlock(&object->context->lock);
	return is;
}

static void await_dead(struct cei_object *object)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);

	while (!is_dead(object) && cei_now_ns() < deadline)
		sched_yield();
	ck_assert(is_dead(object));
}

/* Releases many handles, none of which may get the memory of `other`, whose release is in
 * progress. */
static void release_many(ceov_context *context, uint32_t n, const void *other)
{
	ceov_buffer *buffer;
	uint32_t i;

	for (i = 0; i < n; i++) {
		ck_assert_int_eq(ceov_buffer_float(context, 0, 4096, &buffer), 0);
		ck_assert_ptr_ne(buffer, other);
		ck_assert_int_eq(ceov_buffer_release(buffer), 0);
	}
}

static void *release_buffer(void *buffer)
{
	return (void *)(intptr_t)ceov_buffer_release(buffer);
}

static void *release_signal(void *signal)
{
	return (void *)(intptr_t)ceov_signal_release(signal);
}

/* The release waits for the mappings' lock, which the test holds. */
START_TEST(test_a_slow_release_of_a_buffer_keeps_its_memory)
{
	ceov_context *context = testing_open(1, NULL);
	ceov_buffer *own = testing_buffer(context, 0, 4096);
	ceov_buffer *slow, *kept[N_KEPT];
	pthread_t thread;
	void *result;
	uint32_t i, n_lost = 0;

	ck_assert_int_eq(ceov_buffer_float(context, 0, 4096, &slow), 0);
	slow->is_floating = 0;
	slow->region = map_again(context, &own->own);
	slow->found_use = 1;
	release_many(context, N_BESIDE, slow);
	pthread_mutex_lock(&context->mappings.lock);
	ck_assert_int_eq(pthread_create(&thread, NULL, release_buffer, slow), 0);
	await_dead(&slow->object);
	ck_assert_int_eq(ceov_buffer_release(slow), CEOV_ERR_INVALID);
	release_many(context, N_BESIDE, slow);
	for (i = 0; i < N_KEPT; i++) {
		kept[i] = testing_buffer(context, 0, 4096);
		ck_assert_ptr_ne(kept[i], slow);
	}
	pthread_mutex_unlock(&context->mappings.lock);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_ptr_null(result);
	for (i = 0; i < N_KEPT; i++)
		n_lost += ceov_buffer_base(kept[i], 0) == NULL;
	ck_assert_uint_eq(n_lost, 0);
	ceov_close(context);
}
END_TEST

START_TEST(test_a_slow_release_of_a_signal_keeps_its_memory)
{
	ceov_context *context = testing_open(1, NULL);
	ceov_signal *own = testing_signal(context, 0, 1);
	ceov_signal *slow, *kept[N_KEPT];
	pthread_t thread;
	void *result;
	uint32_t i;

	slow = testing_signal(context, 0, 1);
	cei_region_fini(&slow->own_control);
	slow->control = map_again(context, &own->own_control);
	slow->found_use = 1;
	release_many(context, N_BESIDE, slow);
	pthread_mutex_lock(&context->mappings.lock);
	ck_assert_int_eq(pthread_create(&thread, NULL, release_signal, slow), 0);
	await_dead(&slow->object);
	ck_assert_int_eq(ceov_signal_release(slow), CEOV_ERR_INVALID);
	release_many(context, N_BESIDE, slow);
	for (i = 0; i < N_KEPT; i++) {
		kept[i] = testing_signal(context, 0, 1);
		ck_assert_ptr_ne(kept[i], slow);
	}
	pthread_mutex_unlock(&context->mappings.lock);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_ptr_null(result);
	for (i = 0; i < N_KEPT; i++)
		ck_assert_int_eq(ceov_signal_raise(kept[i], 0, 1), 0);
	ceov_close(context);
}
END_TEST

/* --- finding while the owner releases --------------------------------------------- */

struct race {
	ceov_context   *context;
	_Atomic int     must_stop;      /* relaxed: no data depends on it */
	_Atomic int     n_wrong;
	_Atomic int     n_found;
};

static int goes_on(struct race *race)
{
	return !atomic_load_explicit(&race->must_stop, memory_order_relaxed);
}

static void count(_Atomic int *counter, int n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static void *find_buffers(void *arg)
{
	struct race *race = arg;
	ceov_buffer *found;
	uint32_t i;

	while (goes_on(race)) {
		if (ceov_buffer_find(race->context, 0, "x", &found)) {
			sched_yield();
			continue;
		}
		count(&race->n_found, 1);
		for (i = 0; i < 50; i++)
			count(&race->n_wrong, !ceov_buffer_base(found, 1));
		count(&race->n_wrong, ceov_buffer_release(found) != 0);
	}
	return NULL;
}

static void *find_signals(void *arg)
{
	struct race *race = arg;
	ceov_signal *found;
	uint64_t value, i;

	while (goes_on(race)) {
		if (ceov_signal_find(race->context, 0, "x", &found)) {
			sched_yield();
			continue;
		}
		count(&race->n_found, 1);
		for (i = 0; i < 50; i++)
			count(&race->n_wrong, ceov_signal_value(found, 0, &value) != 0);
		count(&race->n_wrong, ceov_signal_release(found) != 0);
	}
	return NULL;
}

/* Plays one round of the owner: exports a buffer, and releases it as soon as it has no user. */
static void export_buffer(ceov_context *context)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	ceov_buffer *buffer = testing_buffer(context, 0, 4096);
	int r;

	ck_assert_int_eq(ceov_buffer_share(buffer, "x"), 0);
	while ((r = ceov_buffer_release(buffer)) == CEOV_PENDING && cei_now_ns() < deadline)
		sched_yield();
	ck_assert_int_eq(r, 0);
}

static void export_signal(ceov_context *context)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	ceov_signal *signal = testing_signal(context, 0, 1);
	int r;

	ck_assert_int_eq(ceov_signal_share(signal, "x"), 0);
	while ((r = ceov_signal_release(signal)) == CEOV_PENDING && cei_now_ns() < deadline)
		sched_yield();
	ck_assert_int_eq(r, 0);
}

static void run_race(void *(*find)(void *), void (*export)(ceov_context *))
{
	uint64_t until = cei_deadline(TESTING_SECOND);
	struct race race = { testing_open(2, NULL), 0, 0, 0 };
	pthread_t threads[N_FINDERS];
	uint32_t i;

	for (i = 0; i < N_FINDERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, find, &race), 0);
	while (cei_now_ns() < until)
		export(race.context);
	atomic_store_explicit(&race.must_stop, 1, memory_order_relaxed);
	for (i = 0; i < N_FINDERS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	ck_assert_int_gt(race.n_found, 0);
	ck_assert_int_eq(race.n_wrong, 0);
	ceov_close(race.context);
}

START_TEST(test_a_found_buffer_is_not_released_under_its_finder)
{
	run_race(find_buffers, export_buffer);
}
END_TEST

START_TEST(test_a_found_signal_is_not_released_under_its_finder)
{
	run_race(find_signals, export_signal);
}
END_TEST

START_TEST(test_a_refused_release_leaves_the_export_as_it_was)
{
	ceov_context *context = testing_open(2, NULL);
	ceov_buffer *own = testing_buffer(context, 0, 4096);
	ceov_buffer *found, *again;

	ck_assert_int_eq(ceov_buffer_share(own, "x"), 0);
	ck_assert_int_eq(ceov_buffer_find(context, 0, "x", &found), 0);
	ck_assert_int_eq(ceov_buffer_release(own), CEOV_PENDING);
	ck_assert_int_eq(ceov_buffer_find(context, 0, "x", &again), 0);
	ck_assert_int_eq(ceov_buffer_release(found), 0);
	ck_assert_int_eq(ceov_buffer_release(own), CEOV_PENDING);
	ck_assert_int_eq(ceov_buffer_release(again), 0);
	ck_assert_int_eq(ceov_buffer_release(own), 0);
	ck_assert_int_eq(ceov_buffer_find(context, 0, "x", &again), CEOV_NONE);
	ceov_close(context);
}
END_TEST

/* A plan, or a find, may start to use a handle after the release has checked for users and before
 * it claims the handle: then the handle stays. */
START_TEST(test_what_is_used_is_not_claimed)
{
	ceov_context *context = testing_open(1, NULL);
	ceov_buffer *own = testing_buffer(context, 0, 4096);

	cei_object_use(&own->object);
	ck_assert_int_eq(cei_object_claim(&own->object, "test"), CEOV_PENDING);
	ck_assert_ptr_nonnull(ceov_buffer_base(own, 0));
	cei_object_unuse(&own->object);
	ck_assert_int_eq(cei_object_claim(&own->object, "test"), 0);
	ck_assert_ptr_null(ceov_buffer_base(own, 0));
	cei_region_fini(&own->own);
	cei_object_quarantine(&own->object);
	ceov_close(context);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("release");
	TCase *slow = tcase_create("a release that takes long");
	TCase *race = tcase_create("find against release");

	tcase_set_timeout(slow, 120);
	tcase_add_test(slow, test_a_slow_release_of_a_buffer_keeps_its_memory);
	tcase_add_test(slow, test_a_slow_release_of_a_signal_keeps_its_memory);
	suite_add_tcase(suite, slow);
	tcase_set_timeout(race, 120);
	tcase_add_test(race, test_a_found_buffer_is_not_released_under_its_finder);
	tcase_add_test(race, test_a_found_signal_is_not_released_under_its_finder);
	tcase_add_test(race, test_a_refused_release_leaves_the_export_as_it_was);
	tcase_add_test(race, test_what_is_used_is_not_claimed);
	suite_add_tcase(suite, race);
	return testing_run(suite);
}
