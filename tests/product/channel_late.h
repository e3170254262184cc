/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CHANNEL_LATE_H
#define CEI_CHANNEL_LATE_H

/*
 * Stores of channel.cc's kernels that others see late. Packets, counters and what bulk copies have
 * written become visible piece by piece at any later time and in any order, but for: a packet and a
 * counter come whole, the parts of a line come in ascending order, stores to one address come in
 * their order, and all that a thread has stored, and what bulk copies of its block have written,
 * comes before the thread leaves release_stores(). The end of a kernel shows all that it has
 * stored. So a counter that is raised before its bytes were written, or without a release, shows as
 * wrong bytes.
 */

#include <algorithm>

#include "bulk_on_host.h"
#include "kernels/channel.h"

static int mutant;                      /* the change to the kernels that is played; 0: none */
static const int IN_ANY_ORDER = 999;    /* a mutant: parts of a line come in any order */

struct late {                           /* a store that others do not see yet */
	char               *to;
	std::vector<char>   bytes;
	const context      *by;         /* NULL: a bulk copy */
	const block_memory *memory;     /* of the block */
	bool                is_of_line; /* the line before it comes first */
};

struct late_stores {                    /* of a kernel */
	std::vector<late> unseen;
	uint32_t          pace = 1;     /* 1 / the part of them that each turn shows */
};

static std::map<const launch *, late_stores> all_late;

/* Returns which store comes in place of this one: of a line the one with the lowest address. */
static size_t first_of_line(const late_stores &own, size_t index)
{
	const uintptr_t line = (uintptr_t)own.unseen[index].to / CEI_CHANNEL_LINE;
	size_t first = index;

	if (!own.unseen[index].is_of_line || mutant == IN_ANY_ORDER)
		return index;
	for (size_t i = 0; i < own.unseen.size(); i++)
		if (own.unseen[i].is_of_line &&
		    (uintptr_t)own.unseen[i].to / CEI_CHANNEL_LINE == line &&
		    own.unseen[i].to < own.unseen[first].to)
			first = i;
	return first;
}

static void show(late_stores *own, size_t index)
{
	late *store;

	index = first_of_line(*own, index);
	store = &own->unseen[index];

	memcpy(store->to, store->bytes.data(), store->bytes.size());
	if (index + 1 < own->unseen.size())
		*store = std::move(own->unseen.back());
	own->unseen.pop_back();
}

static void show_all(const launch *of)
{
	late_stores *own = &all_late[of];

	while (!own->unseen.empty())
		show(own, own->unseen.size() - 1);
}

static void show_some(const launch *of)
{
	late_stores *own = &all_late[of];

	for (uint32_t n = draw(2 + (uint32_t)own->unseen.size() / own->pace); n; n--)
		if (!own->unseen.empty())
			show(own, draw((uint32_t)own->unseen.size()));
}

static void store_late(void *to, const void *bytes, size_t n, bool is_of_line = false)
{
	late_stores *own = &all_late[current->of];

	for (size_t i = 0; i < own->unseen.size();)
		if (own->unseen[i].to == to)
			show(own, i);           /* or what comes before it */
		else
			i++;
	own->unseen.push_back({ (char *)to, { (const char *)bytes, (const char *)bytes + n },
				current, current->memory, is_of_line });
}

/* What a bulk copy has written comes in two pieces. */
static void write_late(const copy &each)
{
	const size_t first = draw(each.n_bytes / 16 + 1) * 16;
	const char *bytes = each.read.data();
	late_stores *own = &all_late[each.of];

	if (first)
		own->unseen.push_back({ each.to, { bytes, bytes + first }, nullptr, each.memory,
					false });
	if (first < each.n_bytes)
		own->unseen.push_back({ each.to + first, { bytes + first, bytes + each.n_bytes },
					nullptr, each.memory, false });
}

/* --- in place of instructions --------------------------------------------------- */

static void host_release()
{
	late_stores *own = &all_late[current->of];

	for (size_t i = own->unseen.size(); i; i--)
		if (own->unseen[i - 1].by == current ||
		    (!own->unseen[i - 1].by && own->unseen[i - 1].memory == current->memory))
			show(own, i - 1);
	pause_thread();
}

static void host_store_late(uint64_t *counter, uint64_t value)
{
	store_late(counter, &value, sizeof(value));
	pause_thread();
}

static void host_store_packet(void *to, uint64_t bytes, uint64_t number)
{
	const uint64_t both[2] = { bytes, number };

	CHECK((uintptr_t)to % sizeof(both) == 0, "a packet at %p", to);
	store_late(to, both, sizeof(both));
	if (draw(4) == 0)
		pause_thread();
}

static void host_load_packet(const void *from, uint64_t *ret_bytes, uint64_t *ret_number)
{
	uint64_t both[2];

	pause_thread();
	memcpy(both, from, sizeof(both));
	*ret_bytes = both[0];
	*ret_number = both[1];
}

static uint64_t host_add(uint64_t *n, uint64_t n_more)
{
	const uint64_t before = *n;

	*n += n_more;
	return before;
}

/* What the lanes of a warp store or load together. */
struct together {
	char    *at[32];
	uint64_t parts[32][2];
};

static std::map<const meeting *, together> all_together;

static void host_store_line(void *to, uint64_t first, uint64_t second)
{
	together *warp = &all_together[own_warp()];
	const uint32_t lane = threadIdx.x % 32;

	CHECK((uintptr_t)to % CEI_CHANNEL_LINE == lane * 16 % CEI_CHANNEL_LINE,
	      "lane %u stores a part of a line at %p", lane, to);
	warp->at[lane] = (char *)to;
	warp->parts[lane][0] = first;
	warp->parts[lane][1] = second;
	__syncwarp();
	for (uint32_t i = 0; !lane && i < 32; i++)
		store_late(warp->at[i], warp->parts[i], sizeof(warp->parts[i]), true);
	__syncwarp();
}

static void host_load_line(const void *from, uint64_t *ret_first, uint64_t *ret_second)
{
	together *warp = &all_together[own_warp()];
	const uint32_t lane = threadIdx.x % 32;

	warp->at[lane] = (char *)from;
	__syncwarp();
	for (uint32_t i = 0; !lane && i < 32; i++)
		memcpy(warp->parts[i], warp->at[i], sizeof(warp->parts[i]));
	__syncwarp();
	*ret_first = warp->parts[lane][0];
	*ret_second = warp->parts[lane][1];
	__syncwarp();
}

static uint32_t host_seen(const uint32_t *counter)
{
	pause_thread();
	return *(const volatile uint32_t *)counter;
}

static void host_publish(uint32_t *counter, uint32_t value)
{
	*(volatile uint32_t *)counter = value;
	pause_thread();
}

#endif /* CEI_CHANNEL_LATE_H */
