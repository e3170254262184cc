/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* A launcher and the readers of its rings in one process. */

#include "unit/service_rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "testing.h"

void service_rig_init(struct service_rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	cei_service_launcher_init(&rig->launcher);
}

void service_rig_fini(struct service_rig *rig)
{
	if (rig->down)
		service_rig_detach(rig);
	cei_service_launcher_fini(&rig->launcher);
}

static void *zeroed(size_t n_bytes)
{
	size_t n = (n_bytes + CEI_SERVICE_PAGE - 1) / CEI_SERVICE_PAGE * CEI_SERVICE_PAGE;
	void *area = aligned_alloc(CEI_SERVICE_PAGE, n);

	ck_assert_ptr_nonnull(area);
	return memset(area, 0, n);
}

struct cei_service_reader service_reader(const struct cei_service_down *down,
					 struct cei_service_up *up, uint32_t ring)
{
	struct cei_service_reader reader = { .ring = &down->rings[ring], .line = &up->lines[ring] };

	return reader;
}

void service_rig_attach(struct service_rig *rig, uint32_t n_rings)
{
	struct cei_service_areas areas;
	uint32_t i;

	rig->down = zeroed(cei_service_down_bytes(n_rings));
	rig->up = zeroed(sizeof(*rig->up));
	rig->n_rings = n_rings;
	for (i = 0; i < n_rings; i++) {
		rig->bells[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		ck_assert_int_ge(rig->bells[i], 0);
		rig->readers[i] = service_reader(rig->down, rig->up, i);
	}
	areas = (struct cei_service_areas){ rig->down, rig->up, n_rings, rig->bells };
	cei_service_launcher_attach(&rig->launcher, &areas);
}

void service_rig_detach(struct service_rig *rig)
{
	uint32_t i;

	cei_service_launcher_detach(&rig->launcher);
	for (i = 0; i < rig->n_rings; i++)
		close(rig->bells[i]);
	free(rig->down);
	free(rig->up);
	rig->down = NULL;
	rig->up = NULL;
}

struct cei_service_launch service_launch(uint64_t *state)
{
	struct cei_service_launch launch = {
		.slot = (uint32_t)testing_random(state),
		.generation = (uint32_t)testing_random(state),
		.base = testing_random(state),
		.deadline_ns = testing_random(state),
	};

	return launch;
}

uint64_t service_rig_put(struct service_rig *rig, uint32_t ring)
{
	struct cei_service_launch launch = { .slot = ring };

	ck_assert_int_eq(cei_service_put(&rig->launcher, ring, &launch), 0);
	return launch.number;
}

uint64_t service_rig_take(struct service_rig *rig, uint32_t ring)
{
	struct cei_service_launch launch;

	ck_assert_int_eq(cei_service_take(&rig->readers[ring], &launch), 0);
	cei_service_took(&rig->readers[ring]);
	return launch.number;
}

void service_rig_end(struct service_rig *rig, uint64_t number, int result)
{
	cei_service_end(rig->up, rig->down, number, result);
}

int service_rig_result(struct service_rig *rig, uint64_t number)
{
	int result = 0, r = cei_service_wait(&rig->launcher, number, 0, &result);

	return r ? r : result;
}

uint64_t service_bell_count(int bell)
{
	uint64_t count = 0;

	if (read(bell, &count, sizeof(count)) < 0)
		ck_assert_int_eq(errno, EAGAIN);
	return count;
}
