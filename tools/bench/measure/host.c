/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Copies between NUMA nodes by memcpy() in one thread near the source, as the runtime's host
 * backend makes them. Several processors together may reach more.
 */

#include <hwloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tools/bench/measure/measure.h"

#define ROUNDS       5u
#define ROUNDS_QUICK 3u

struct place_memory {
	hwloc_topology_t hwloc;         /* NULL: memory is not bound to a node */
	unsigned char   *at;
	uint64_t         n_bytes;
	uint64_t         next;          /* offset of the next copy */
};

static hwloc_obj_t node_object(const struct measure *m, uint32_t node)
{
	const struct cei_machine *machine = m->machine;

	if (!machine->hwloc || machine->n_nodes < 2)
		return NULL;
	return hwloc_get_numanode_obj_by_os_index(machine->hwloc,
						  machine->nodes[node].os_index);
}

/* Allocates memory on a node and writes it once. CEOV_NONE: the node has no such memory to give. */
static int take(const struct measure *m, uint32_t node, uint64_t n_bytes,
		struct place_memory *memory)
{
	hwloc_obj_t object = node_object(m, node);
	void *at = NULL;

	memset(memory, 0, sizeof(*memory));
	if (object) {
		memory->hwloc = m->machine->hwloc;
		at = hwloc_alloc_membind(memory->hwloc, n_bytes, object->nodeset,
					 HWLOC_MEMBIND_BIND,
					 HWLOC_MEMBIND_BYNODESET | HWLOC_MEMBIND_STRICT);
	} else if (posix_memalign(&at, 4096, n_bytes)) {
		at = NULL;
	}
	memory->at = at;
	memory->n_bytes = n_bytes;
	return at ? 0 : CEOV_NONE;
}

static void give_back(struct place_memory *memory)
{
	if (memory->at && memory->hwloc)
		hwloc_free(memory->hwloc, memory->at, memory->n_bytes);
	else
		free(memory->at);
	memset(memory, 0, sizeof(*memory));
}

/* Times one copy. Successive copies move through the memory, so that caches do not hold their
 * data. */
static double copy_us(struct place_memory *target, const struct place_memory *source,
		      uint64_t n_bytes, uint32_t n_copies)
{
	uint64_t begin = cei_now_ns();
	uint32_t i;

	for (i = 0; i < n_copies; i++) {
		if (target->next + n_bytes > target->n_bytes)
			target->next = 0;
		memcpy(target->at + target->next, source->at + target->next, n_bytes);
		target->next += n_bytes;
	}
	return (double)(cei_now_ns() - begin) / 1e3 / n_copies;
}

static void measure_one(struct measure *m, uint32_t from, uint32_t to,
			const struct place_memory *source, struct place_memory *target)
{
	uint32_t i, size, n_copies[MEASURE_SIZES], n_rounds = m->is_quick ? ROUNDS_QUICK : ROUNDS;
	uint32_t a = cei_machine_host_place(m->machine, from);
	uint32_t b = cei_machine_host_place(m->machine, to);
	struct measure_link *link = measure_link(m, a, b);
	uint64_t bytes[MEASURE_SIZES];
	int is_right;

	measure_sizes_up_to(measure_largest(m, 0), bytes, n_copies);
	memset(target->at, 0x55, target->n_bytes);
	memcpy(target->at, source->at, target->n_bytes);
	is_right = !memcmp(target->at, source->at, target->n_bytes);
	m->n_checked++;
	m->n_wrong += !is_right;
	for (i = 0; i < n_rounds; i++) {
		for (size = 0; size < MEASURE_SIZES; size++)
			link->us[size][i] = (float)copy_us(target, source, bytes[size],
							   n_copies[size]);
		link->n_rounds++;
	}
	measure_conclude(m, a, b, bytes);
}

/* Measures the links from one node to all nodes. */
static int measure_from(struct measure *m, struct bench_device *host, uint32_t from)
{
	struct place_memory source, target;
	uint32_t to;
	int r = take(m, from, m->node_bytes, &source);

	if (r)
		fprintf(stderr, "ceoverlap-bench: no memory to be had on NUMA node %u: left "
			"out\n", m->machine->nodes[from].os_index);
	else
		r = bench_fill(host, source.at, source.n_bytes, m->options->seed + from);
	for (to = 0; !r && to < m->machine->n_nodes; to++) {
		if (m->machine->nodes[to].is_gpu_memory || !measure_has_time(m) ||
		    take(m, to, m->node_bytes, &target))
			continue;
		measure_one(m, from, to, &source, &target);
		give_back(&target);
	}
	give_back(&source);
	return r < 0 ? r : 0;
}

/* Binds the thread to the processors of a node, if it has any. */
static void bind_near(const struct measure *m, uint32_t node)
{
	hwloc_obj_t object = node_object(m, node);

	if (object && object->cpuset && !hwloc_bitmap_iszero(object->cpuset))
		(void)hwloc_set_cpubind(m->machine->hwloc, object->cpuset,
					HWLOC_CPUBIND_THREAD);
}

int measure_nodes(struct measure *m)
{
	hwloc_topology_t hwloc = m->machine->hwloc;
	hwloc_bitmap_t before = hwloc_bitmap_alloc();
	struct bench_device *host = NULL;
	uint32_t node;
	int r, can_go_back;

	can_go_back = before && hwloc &&
		!hwloc_get_cpubind(hwloc, before, HWLOC_CPUBIND_THREAD);
	r = bench_device_open(&host, 0, 0);
	for (node = 0; !r && node < m->machine->n_nodes; node++) {
		if (m->machine->nodes[node].is_gpu_memory)
			continue;
		measure_progress("node to node: from node %u", node);
		if (can_go_back)
			bind_near(m, node);
		r = measure_from(m, host, node);
	}
	if (can_go_back)
		(void)hwloc_set_cpubind(hwloc, before, HWLOC_CPUBIND_THREAD);
	hwloc_bitmap_free(before);
	if (host)
		bench_device_close(host);
	return r;
}
