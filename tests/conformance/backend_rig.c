/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Set-up and helpers of the backend cases. */

#include "backend_rig.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cuda_driver.h"

#define PAUSE_NS (20 * TESTING_MS)

struct rig rig;

void rig_make_region(struct cei_region *region, enum ceov_place_kind kind,
		     uint64_t size_bytes)
{
	region->site = &rig.site;
	region->fd = -1;
	ck_assert_int_eq(cei_share_for(kind)->create(region, 0, size_bytes), 0);
	ck_assert_int_eq(cei_region_map_all(region), 0);
	ck_assert_uint_ne(region->address[0], 0);
}

static void open_site(void)
{
	const char *why = "";

	cei_report_init(&rig.report, NULL, NULL);
	rig.site.report = &rig.report;
	rig.site.n_ranks = rig.site.n_members = 1;
	rig.site.members[0].place.kind = rig.kind;
	if (rig.kind == CEOV_PLACE_GPU)
		ck_assert_msg(!cei_cuda_open(&rig.report, &rig.site.cuda, &why), "%s", why);
}

void rig_open(void)
{
	static const uint64_t zeros[COUNTERS];
	uint32_t i;

	open_site();
	rig.random = testing_seed();
	ck_assert_int_eq(cei_backend_open(&rig.backend, rig.ops, &rig.site, 0,
						  rig.site.members[0].place), 0);
	rig_make_region(&rig.memory[0], rig.kind, BYTES);
	rig_make_region(&rig.memory[1], rig.kind, BYTES);
	rig_make_region(&rig.counters, rig.kind, sizeof(zeros));
	rig_make_region(&rig.words, CEOV_PLACE_HOST, sizeof(zeros));
	ck_assert_int_eq(rig.ops->store(&rig.backend, rig.counters.address[0], zeros,
					sizeof(zeros)), 0);
	for (i = 0; i < LANES; i++)
		ck_assert_int_eq(cei_lane_open(&rig.lane[i], &rig.backend, i < GATE
					       ? CEI_DIRECTION_PEER : CEI_DIRECTION_ANY,
					       CEOV_NOBODY, i), 0);
}

void rig_close(void)
{
	uint32_t i;

	for (i = 0; i < LANES; i++)
		cei_lane_close(&rig.lane[i]);
	cei_region_fini(&rig.words);
	cei_region_fini(&rig.counters);
	cei_region_fini(&rig.memory[1]);
	cei_region_fini(&rig.memory[0]);
	cei_backend_close(&rig.backend);
	if (rig.site.cuda)
		cei_cuda_close(rig.site.cuda);
	cei_report_fini(&rig.report);
}

int rig_has_gates(void)
{
	return (cei_backend_caps(&rig.backend) & CEI_CAP_LANE_WAIT) != 0;
}

uint64_t rig_at(uint32_t region, uint64_t offset)
{
	return rig.memory[region].address[0] + offset;
}

uint64_t rig_counter_at(uint32_t i)
{
	return rig.counters.address[0] + i * sizeof(uint64_t);
}

uint64_t rig_value(uint32_t i)
{
	uint64_t value = 0;

	ck_assert_int_eq(rig.ops->load(&rig.backend, rig_counter_at(i), &value,
				       sizeof(value)), 0);
	return value;
}

void rig_raise(uint32_t i, uint64_t value)
{
	ck_assert_int_eq(rig.ops->store(&rig.backend, rig_counter_at(i), &value,
					sizeof(value)), 0);
}

uint64_t rig_word(uint32_t i)
{
	_Atomic uint64_t *words = rig.words.host;

	/* acquire: pairs with the lane's post */
	return atomic_load_explicit(&words[i], memory_order_acquire);
}

void rig_fill(uint64_t address, uint64_t n_bytes, uint64_t seed)
{
	void *bytes = malloc(n_bytes);

	ck_assert_ptr_nonnull(bytes);
	testing_fill(bytes, n_bytes, seed);
	ck_assert_int_eq(rig.ops->store(&rig.backend, address, bytes, n_bytes), 0);
	free(bytes);
}

void rig_check(uint64_t address, uint64_t n_bytes, uint64_t seed)
{
	void *bytes = malloc(n_bytes);

	ck_assert_ptr_nonnull(bytes);
	ck_assert_int_eq(rig.ops->load(&rig.backend, address, bytes, n_bytes), 0);
	ck_assert_uint_eq(testing_check(bytes, n_bytes, seed), n_bytes);
	free(bytes);
}

struct cei_piece rig_piece(uint64_t target, uint64_t source, uint64_t n_bytes)
{
	struct cei_piece piece = { source, target, n_bytes, n_bytes != 0, 0, 0 };

	return piece;
}

void rig_copy(uint32_t lane, uint64_t target, uint64_t source, uint64_t n_bytes)
{
	struct cei_piece piece = rig_piece(target, source, n_bytes);

	ck_assert_int_eq(rig.ops->lanes->copy(&rig.lane[lane], &piece, 1), 0);
}

void rig_post(uint32_t lane, uint32_t counter, uint64_t value)
{
	struct cei_post made = { rig_counter_at(counter), 0, value };

	ck_assert_int_eq(rig.ops->lanes->post(&rig.lane[lane], &made, 1), 0);
}

void rig_await(uint32_t lane, uint32_t counter, uint64_t value)
{
	struct cei_await made = { rig_counter_at(counter), value,
				  (const uint32_t *)&rig.abort_word };

	ck_assert_int_eq(rig.ops->lanes->wait(&rig.lane[lane], &made), 0);
}

uint64_t rig_submit(uint32_t lane)
{
	ck_assert_int_eq(rig.ops->lanes->submit(&rig.lane[lane]), 0);
	return ++rig.n_submitted[lane];
}

uint64_t rig_reaped(uint32_t lane)
{
	uint64_t n_done = UINT64_MAX;

	ck_assert_int_eq(rig.ops->lanes->reap(&rig.lane[lane], &n_done), 0);
	ck_assert_uint_le(n_done, rig.n_submitted[lane]);
	return n_done;
}

void rig_reap(uint32_t lane, uint64_t n_done)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	struct cei_backoff backoff;

	cei_backoff_reset(&backoff);
	while (rig_reaped(lane) < n_done) {
		ck_assert_msg(cei_now_ns() < deadline, "lane %u: %llu of %llu done", lane,
			      (unsigned long long)rig_reaped(lane),
			      (unsigned long long)n_done);
		cei_backoff_step(&backoff);
	}
}

void rig_reach(uint32_t counter, uint64_t value)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);

	while (rig_value(counter) < value)
		ck_assert_msg(cei_now_ns() < deadline, "counter %u is %llu", counter,
			      (unsigned long long)rig_value(counter));
}

void rig_pause(void)
{
	usleep((useconds_t)(PAUSE_NS / 1000));
}
