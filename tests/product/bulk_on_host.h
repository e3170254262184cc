/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BULK_ON_HOST_H
#define CEI_BULK_ON_HOST_H

/*
 * kernels/bulk.cuh on the host. Bulk copies happen piece by piece at any later time: a store has
 * read its slot long before its bytes are written, and slots that are being loaded hold rubbish
 * until then.
 */

#include <map>

#include "gpu_on_host.h"

struct copy {                           /* a bulk copy */
	char             *to;
	const char       *from;
	uint32_t          n_bytes;
	uint64_t         *bar;          /* of a load; a store has none */
	std::vector<char> read;         /* what a store has read */
	int               state;        /* 0: begun, 1: read, 2: written */
	const launch       *of;
	const block_memory *memory;     /* of the block */
	uint32_t            pace;       /* 1 / the chance in each turn to come a state further */
};

typedef std::vector<std::shared_ptr<copy>> group;

static const size_t GROUPS_KEPT = 16;   /* more than any kernel leaves under way */

static bool is_written(const group &stores)
{
	for (const auto &each : stores)
		if (each->state < 2)
			return false;
	return true;
}

struct stores {                         /* of a thread */
	group              begun;       /* behind the last group */
	std::deque<group>  groups;
};

struct barrier {
	uint32_t n_arrivals, n_left;
	int64_t  n_bytes;               /* that loads still have to bring */
	uint32_t phase;
};

static void write_at_once(const copy &each)
{
	memcpy(each.to, each.read.data(), each.n_bytes);
}

/* Writes what a store has read. A test can have it seen later. */
static void (*write_store)(const copy &each) = write_at_once;

static uint32_t slowness = 1;           /* how much slower than others some copies are */
static std::vector<std::shared_ptr<copy>> copies;
static std::map<const context *, stores> all_stores;
static std::map<const void *, barrier> barriers;

static void end_phase(barrier *bar)
{
	if (bar->n_left || bar->n_bytes)
		return;
	bar->phase++;
	bar->n_left = bar->n_arrivals;
}

static void arrive(uint64_t *word, uint32_t n_bytes)
{
	barrier *bar = &barriers.at(word);

	CHECK(bar->n_left, "an arrival too many");
	bar->n_left--;
	bar->n_bytes += n_bytes;
	end_phase(bar);
	pause_thread();
}

static void cei_bar_init(uint64_t *word, uint32_t n_arrivals)
{
	barriers[word] = { n_arrivals, n_arrivals, 0, 0 };
}

static void cei_bar_init_fence()
{
}

static void cei_bar_wait(uint64_t *word, uint32_t parity)
{
	const barrier *bar = &barriers.at(word);

	wait_for([=] { return bar->phase % 2 != parity; });
}

static void cei_bar_arrive(uint64_t *word)
{
	arrive(word, 0);
}

static void cei_bar_expect(uint64_t *word, uint32_t n_bytes)
{
	arrive(word, n_bytes);
}

static std::shared_ptr<copy> begin_copy(void *to, const void *from, uint32_t n_bytes,
					uint64_t *bar)
{
	auto made = std::make_shared<copy>(
		copy{ (char *)to, (const char *)from, n_bytes, bar, {}, 0, current->of,
		      current->memory, draw(16) ? 4 : 4 + draw(slowness) });

	CHECK(n_bytes && ((uintptr_t)to | (uintptr_t)from | n_bytes) % 16 == 0, "a bad copy");
	copies.push_back(made);
	return made;
}

static void cei_bulk_load(void *to, const void *from, uint32_t n_bytes, uint64_t *bar)
{
	begin_copy(to, from, n_bytes, bar);
	memset(to, 0xee, n_bytes);
	pause_thread();
}

static void cei_bulk_store(void *to, const void *from, uint32_t n_bytes)
{
	all_stores[current].begun.push_back(begin_copy(to, from, n_bytes, nullptr));
	pause_thread();
}

static void cei_store_commit()
{
	stores *own = &all_stores[current];

	own->groups.push_back(own->begun);
	own->begun.clear();
	while (own->groups.size() > GROUPS_KEPT && is_written(own->groups.front()))
		own->groups.pop_front();
}

/* Waits until copies of all groups but the last n have come to a state. */
static void wait_groups(size_t n, int state)
{
	const stores *own = &all_stores[current];

	wait_for([=] {
		for (size_t i = 0; i + n < own->groups.size(); i++)
			for (const auto &each : own->groups[i])
				if (each->state < state)
					return false;
		return true;
	});
}

template <int N> static void cei_store_wait_read()
{
	wait_groups(N, 1);
}

template <int N> static void cei_store_wait_all_but()
{
	wait_groups(N, 2);
}

static void cei_store_wait()
{
	wait_groups(0, 2);
}

static void cei_fence_async()
{
}

static void cei_fence_async_shared()
{
}

/* Takes a copy one state further. */
static void advance(copy *each)
{
	if (each->bar) {
		memcpy(each->to, each->from, each->n_bytes);
		barriers.at(each->bar).n_bytes -= each->n_bytes;
		end_phase(&barriers.at(each->bar));
		each->state = 2;
	} else if (each->state == 0) {
		each->read.assign(each->from, each->from + each->n_bytes);
		each->state = 1;
	} else {
		write_store(*each);
		each->state = 2;
	}
}

static void advance_copies()
{
	std::vector<std::shared_ptr<copy>> left;

	for (const auto &each : copies) {
		if (draw(each->pace) == 0)
			advance(each.get());
		if (each->state < 2)
			left.push_back(each);
	}
	copies = left;
}

#endif /* CEI_BULK_ON_HOST_H */
