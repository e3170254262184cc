/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Registered memory and regions of a rail, and the checks of what peers name in them. */

#include "net/far_memory.h"

#include <stdlib.h>
#include <string.h>

#define WORD sizeof(uint64_t)

void cei_far_table_init(struct cei_far_table *table, struct cei_transport *transport)
{
	memset(table, 0, sizeof(*table));
	table->transport = transport;
}

void cei_far_table_fini(struct cei_far_table *table)
{
	free(table->memories);
	free(table->regions);
	memset(table, 0, sizeof(*table));
}

/* --- sorted arrays of pointers --------------------------------------------- */

/* Makes room for an entry at `at`. Returns 0 if there is no memory. */
static int insert(void ***array, uint32_t *n, uint32_t at, void *entry)
{
	void **grown = *array;

	if (!(*n & (*n - 1))) {         /* full at each power of two */
		grown = realloc(*array, (*n ? 2 * (size_t)*n : 1) * sizeof(void *));
		if (!grown)
			return 0;
		*array = grown;
	}
	memmove(grown + at + 1, grown + at, (*n - at) * sizeof(void *));
	grown[at] = entry;
	++*n;
	return 1;
}

static void take_out(void **array, uint32_t *n, uint32_t at)
{
	--*n;
	memmove(array + at, array + at + 1, (*n - at) * sizeof(void *));
}

/* --- memory ---------------------------------------------------------------- */

/* The number of memories whose base is at most this address. */
static uint32_t count_up_to(const struct cei_far_table *table, uint64_t address)
{
	uint32_t low = 0, high = table->n_memories, middle;

	while (low < high) {
		middle = low + (high - low) / 2;
		if ((uint64_t)(uintptr_t)table->memories[middle]->base <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int holds(const struct cei_far_memory *memory, uint64_t address, uint64_t n_bytes)
{
	uint64_t base = (uint64_t)(uintptr_t)memory->base;

	return address >= base && address - base <= memory->n_bytes &&
		n_bytes <= memory->n_bytes - (address - base);
}

struct cei_far_memory *cei_far_memory_of(const struct cei_far_table *table, uint64_t address,
					 uint64_t n_bytes)
{
	uint32_t at = count_up_to(table, address);

	while (at--)
		if (holds(table->memories[at], address, n_bytes))
			return table->memories[at];
	return NULL;
}

static struct cei_far_memory *same_memory(const struct cei_far_table *table, void *base,
					  uint64_t n_bytes)
{
	uint32_t at = count_up_to(table, (uint64_t)(uintptr_t)base);

	while (at-- && table->memories[at]->base == base)
		if (table->memories[at]->n_bytes == n_bytes)
			return table->memories[at];
	return NULL;
}

static int no_memory(struct cei_far_table *table)
{
	return cei_raise(table->transport->config.report, CEOV_ERR_NO_MEMORY, 0,
			 "net: no memory for what a rail knows of registered memory");
}

static int is_wrong(const struct cei_far_table *table, void *base, uint64_t n_bytes)
{
	if (base && n_bytes && table->n_memories < CEI_FAR_MEMORIES_MAX)
		return 0;
	return cei_raise(table->transport->config.report, CEOV_ERR_INVALID, 0,
			 "net: %llu bytes at %p cannot be registered: no memory, or %u are "
			 "registered already", (unsigned long long)n_bytes, base,
			 table->n_memories);
}

/* Enters what the description says, which is copied. */
static int enter(struct cei_far_table *table, const struct cei_far_memory *described,
		 struct cei_far_memory **ret_memory)
{
	uint32_t at = count_up_to(table, (uint64_t)(uintptr_t)described->base);
	struct cei_far_memory *memory = malloc(sizeof(*memory));

	if (!memory || !insert((void ***)&table->memories, &table->n_memories, at, memory)) {
		free(memory);
		return no_memory(table);
	}
	*memory = *described;
	memory->n_opened = 1;
	*ret_memory = memory;
	return 0;
}

/* Opens memory as it is described, which says by is_device that it is a unit's. */
static int open_as(struct cei_far_table *table, const struct cei_far_memory *wanted,
		   struct cei_far_memory **ret_memory)
{
	struct cei_far_memory described = *wanted;
	struct cei_far_memory *memory = same_memory(table, described.base, described.n_bytes);
	struct cei_transport *transport = table->transport;
	int r;

	if (memory) {
		memory->n_opened++;
		*ret_memory = memory;
		return 0;
	}
	r = is_wrong(table, described.base, described.n_bytes);
	if (r)
		return r;
	if (!described.is_device) {
		r = transport->ops->memory_open(transport, described.base, described.n_bytes,
						&described.registered);
	} else if (table->is_direct && !described.needs_slots) {
		described.is_device = 0;
		r = transport->ops->gpu_memory_open(transport, described.base, described.n_bytes,
						    &described.registered);
	}
	if (r)
		return r;
	r = enter(table, &described, ret_memory);
	if (r && described.registered)
		transport->ops->memory_close(transport, described.registered);
	return r;
}

int cei_far_memory_open(struct cei_far_table *table, void *base, uint64_t n_bytes,
			struct cei_far_memory **ret_memory)
{
	const struct cei_far_memory host = { .base = base, .n_bytes = n_bytes };

	return open_as(table, &host, ret_memory);
}

int cei_far_memory_open_device(struct cei_far_table *table,
			       const struct cei_far_memory *described,
			       struct cei_far_memory **ret_memory)
{
	const struct cei_far_memory device = {
		.base = described->base,
		.n_bytes = described->n_bytes,
		.is_device = 1,
		.unit = described->unit,
		.above = described->above,
		.needs_slots = described->needs_slots,
	};

	return open_as(table, &device, ret_memory);
}

int cei_far_memory_close(struct cei_far_table *table, struct cei_far_memory *memory)
{
	uint32_t at = count_up_to(table, (uint64_t)(uintptr_t)memory->base);

	if (memory->n_opened > 1) {
		memory->n_opened--;
		return 0;
	}
	if (memory->n_busy)
		return CEOV_PENDING;
	while (at-- && table->memories[at] != memory)
		;
	take_out((void **)table->memories, &table->n_memories, at);
	if (!memory->is_device)
		table->transport->ops->memory_close(table->transport, memory->registered);
	free(memory);
	return 0;
}

/* --- regions --------------------------------------------------------------- */

/* The index of the first region whose id is not below this one. */
static uint32_t lower_bound(const struct cei_far_table *table, uint32_t id)
{
	uint32_t low = 0, high = table->n_regions, middle;

	while (low < high) {
		middle = low + (high - low) / 2;
		if (table->regions[middle]->id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct cei_far_region *cei_far_region_of(const struct cei_far_table *table, uint32_t id)
{
	uint32_t at = lower_bound(table, id);

	return at < table->n_regions && table->regions[at]->id == id ? table->regions[at] : NULL;
}

/* Words may live elsewhere; bytes are in host memory, or else in a unit's. */
static int has_memory(const struct cei_far_region *region)
{
	if (region->uses == CEI_FAR_WORDS)
		return !region->device;
	return region->device ? !region->host && region->uses == CEI_FAR_BYTES
		: region->host != NULL;
}

static int check_region(const struct cei_far_table *table, const struct cei_far_region *region)
{
	const char *why = NULL;

	if (cei_far_region_of(table, region->id))
		why = "a region of that number is open";
	else if (table->n_regions == CEI_FAR_REGIONS_MAX)
		why = "too many regions are open";
	else if (!region->uses || !region->n_bytes || !has_memory(region))
		why = "it has no memory";
	else if ((region->uses & CEI_FAR_WORDS) &&
		 ((uintptr_t)region->host % WORD || region->n_bytes % WORD))
		why = "its counters are not 8-byte words";
	if (!why)
		return 0;
	return cei_raise(table->transport->config.report, CEOV_ERR_INVALID, 0,
			 "net: region %u cannot be opened to other processes: %s", region->id,
			 why);
}

/* Opens what the transport writes in place. *ret_memory stays NULL: it writes to slots. */
static int open_bytes(struct cei_far_table *table, const struct cei_far_region *region,
		      struct cei_far_memory **ret_memory)
{
	const struct cei_far_memory device = {
		.base = (uint8_t *)(uintptr_t)region->device,
		.n_bytes = region->n_bytes,
		.unit = region->unit,
	};

	if (region->host)
		return cei_far_memory_open(table, region->host, region->n_bytes, ret_memory);
	return table->is_direct && !region->needs_slots
		? cei_far_memory_open_device(table, &device, ret_memory) : 0;
}

int cei_far_region_open(struct cei_far_table *table, const struct cei_far_region *region)
{
	struct cei_far_region *made;
	int r = check_region(table, region);

	if (r)
		return r;
	made = malloc(sizeof(*made));
	if (!made)
		return no_memory(table);
	*made = *region;
	made->memory = NULL;
	made->n_busy = 0;
	if (region->uses & CEI_FAR_BYTES)
		r = open_bytes(table, region, &made->memory);
	if (!r && !insert((void ***)&table->regions, &table->n_regions,
			  lower_bound(table, region->id), made)) {
		if (made->memory)
			(void)cei_far_memory_close(table, made->memory);
		r = no_memory(table);
	}
	if (r)
		free(made);
	return r;
}

int cei_far_region_close(struct cei_far_table *table, uint32_t id)
{
	uint32_t at = lower_bound(table, id);
	struct cei_far_region *region;
	int r;

	if (!cei_far_region_of(table, id))
		return CEOV_NONE;
	region = table->regions[at];
	if (region->n_busy)
		return CEOV_PENDING;
	r = region->memory ? cei_far_memory_close(table, region->memory) : 0;
	if (r)
		return r;
	take_out((void **)table->regions, &table->n_regions, at);
	free(region);
	return 0;
}

/* --- what peers name ------------------------------------------------------- */

const char *cei_far_check_piece(const struct cei_far_table *table,
				const struct cei_far_piece *piece, uint64_t n_offered,
				struct cei_far_region **ret_region)
{
	struct cei_far_region *region = cei_far_region_of(table, piece->region);
	uint64_t extent = cei_far_piece_extent(piece);

	if (!region)
		return "there is no such region";
	if (!(region->uses & CEI_FAR_BYTES))
		return "that region takes no bytes";
	if (piece->offset > region->n_bytes || extent > region->n_bytes - piece->offset)
		return "it ends outside the region";
	if (cei_far_piece_bytes(piece) != n_offered)
		return "the offer has another size";
	if (extent != n_offered)
		return "its rows do not follow each other in memory";
	if (region->device && n_offered > CEI_FAR_SLOT_BYTES)
		return "it is larger than pieces for memory of a GPU may be";
	*ret_region = region;
	return NULL;
}

const char *cei_far_check_mark(const struct cei_far_table *table,
			       const struct cei_far_mark *mark,
			       struct cei_far_region **ret_region)
{
	struct cei_far_region *region = cei_far_region_of(table, mark->region);

	if (!region)
		return "there is no such region";
	if (!(region->uses & CEI_FAR_WORDS))
		return "that region has no counters";
	if (mark->index >= region->n_bytes / WORD)
		return "it has no such counter";
	*ret_region = region;
	return NULL;
}
