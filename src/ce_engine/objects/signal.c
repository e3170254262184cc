/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Signals: creation, sharing, layout and renewal. signal_verbs.c raises and awaits;
 * signal_abort.c aborts. */

#include "ce_engine/objects/signal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ce_engine/objects/context.h"
#include "ce_engine/objects/export.h"
#include "ce_engine/objects/far.h"

const struct cei_object_type cei_signal_type = {
	.name = "signal",
	.list_at = offsetof(ceov_context, signals),
};

uint64_t cei_signal_control_bytes(uint32_t n_counters)
{
	return sizeof(struct cei_signal_header) + n_counters *
		(uint64_t)(sizeof(uint64_t) + sizeof(uint32_t));
}

uint64_t cei_signal_words_at(void)
{
	return sizeof(struct cei_signal_header);
}

static uint64_t gpu_bytes(uint32_t n_counters)
{
	/* counters, abort word (8 bytes), arrivals */
	return n_counters * (uint64_t)(sizeof(uint64_t) + sizeof(uint32_t)) + 8;
}

static uint64_t word_offset(uint32_t index)
{
	return sizeof(struct cei_signal_header) + index * (uint64_t)sizeof(uint64_t);
}

struct cei_signal_header *cei_signal_header(const struct ceov_signal *signal)
{
	return signal->control->host;
}

_Atomic uint64_t *cei_signal_word(const struct ceov_signal *signal, uint32_t index)
{
	return (_Atomic uint64_t *)((char *)signal->control->host + word_offset(index));
}

_Atomic uint32_t *cei_signal_host_arrivals(const struct ceov_signal *signal, uint32_t index)
{
	return (_Atomic uint32_t *)((char *)signal->control->host +
				    word_offset(signal->n_counters)) + index;
}

int cei_signal_is_visible(const struct ceov_signal *signal)
{
	return signal->place.kind == CEOV_PLACE_HOST ||
		(signal->flags & CEOV_SIGNAL_HOST_VISIBLE);
}

int cei_signal_is_shared_afar(const struct ceov_signal *signal)
{
	return signal->export_id && signal->object.context->site.network;
}

int cei_signal_frees_streams(const struct ceov_signal *signal)
{
	return !signal->gpu || !signal->found_use || signal->original;
}

/* The member of the context that can write to the counters, or CEOV_NOBODY. Its backend may be of
 * other works, where it has another number. */
static uint32_t writer_of(const struct ceov_signal *signal)
{
	const ceov_context *context = signal->object.context;
	uint32_t i;

	for (i = 0; signal->gpu && i < context->site.n_members; i++)
		if (signal->gpu->address[i])
			return i;
	return CEOV_NOBODY;
}

int cei_signal_is_writable(const struct ceov_signal *signal)
{
	return writer_of(signal) != CEOV_NOBODY;
}

int cei_signal_store(const struct ceov_signal *signal, uint64_t at, const void *bytes,
		     uint64_t n_bytes)
{
	uint32_t member = writer_of(signal);
	struct cei_backend *backend = signal->object.context->backends[member];

	return backend->ops->store(backend, signal->gpu->address[member] + at, bytes, n_bytes);
}

static int new_signal(ceov_context *context, uint32_t rank, ceov_signal **ret_signal)
{
	ceov_signal *signal = calloc(1, sizeof(*signal));
	uint32_t i;

	if (!signal)
		return cei_raise(&context->report, CEOV_ERR_NO_MEMORY, 0,
				 "no memory for a signal handle");
	signal->rank = rank;
	signal->object.context = context;
	signal->own_control.site = signal->own_gpu.site = &context->site;
	signal->own_control.fd = signal->own_gpu.fd = -1;
	for (i = 0; i < CEI_MEMBERS_MAX; i++) {
		signal->tallies[i].site = &context->site;
		signal->tallies[i].fd = -1;
	}
	*ret_signal = signal;
	return 0;
}

/* Releases the handle's regions. */
static void let_go(ceov_signal *signal)
{
	ceov_context *context = signal->object.context;
	uint32_t i;

	for (i = 0; i < CEI_MEMBERS_MAX; i++)
		cei_region_fini(&signal->tallies[i]);
	if (signal->original) {
		cei_object_unuse(&signal->original->object);
	} else if (signal->far) {
		cei_far_put(context, signal->far);
	} else if (signal->control != &signal->own_control) {
		cei_mapping_put(&context->mappings, signal->control);
		cei_mapping_put(&context->mappings, signal->gpu);
		if (signal->found_use)
			cei_export_drop(context, signal->rank, signal->found_use);
	} else {
		cei_region_fini(&signal->own_gpu);
		cei_region_fini(&signal->own_control);
	}
}

int cei_signal_clear(ceov_signal *signal)
{
	struct cei_signal_header *header = cei_signal_header(signal);
	uint64_t n_bytes = gpu_bytes(signal->n_counters);
	void *zeros;
	uint32_t i;
	int r;

	for (i = 0; i < signal->n_counters; i++) {
		/* relaxed: a barrier follows each renewal */
		atomic_store_explicit(cei_signal_word(signal, i), 0, memory_order_relaxed);
		atomic_store_explicit(cei_signal_host_arrivals(signal, i), 0,
				      memory_order_relaxed);
	}
	if (cei_signal_is_writable(signal)) {
		zeros = calloc(1, n_bytes);
		if (!zeros)
			return cei_raise(&signal->object.context->report,
					 CEOV_ERR_NO_MEMORY, 0, "no memory for zeros");
		r = cei_signal_store(signal, 0, zeros, n_bytes);
		free(zeros);
		if (r)
			return r;
	}
	/* release: pairs with looks at the abort word, after zeroed counters */
	atomic_store_explicit(&header->abort_code, 0, memory_order_release);
	return 0;
}

static int check_create(ceov_context *context, uint32_t rank, struct ceov_place place,
			uint32_t n_counters, uint32_t flags)
{
	static const char call[] = "ceov_signal_create";
	const struct ceov_member *own;
	uint32_t member;
	int r = cei_context_own_rank(context, rank, call, &member);

	if (r)
		return r;
	if (!n_counters || n_counters > CEI_SIGNAL_COUNTERS_MAX)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "%s: n_counters is %u, must be 1 to %u", call, n_counters,
				 CEI_SIGNAL_COUNTERS_MAX);
	if (flags & ~(uint32_t)CEOV_SIGNAL_HOST_VISIBLE)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "%s: unknown flags 0x%x", call, flags);
	own = &context->site.members[member];
	if (place.kind == CEOV_PLACE_HOST)
		return 0;
	if (own->place.kind == CEOV_PLACE_GPU && own->place.index == place.index)
		return 0;
	return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
			 "%s: place must be the host or the GPU of rank %u", call, rank);
}

static int create_regions(ceov_signal *signal, uint32_t member)
{
	int r;

	signal->control = &signal->own_control;
	r = cei_share_host.create(&signal->own_control, member,
				  cei_signal_control_bytes(signal->n_counters));
	if (!r)
		r = cei_region_map_all(&signal->own_control);
	if (r || signal->place.kind == CEOV_PLACE_HOST)
		return r;
	r = cei_share_for(CEOV_PLACE_GPU)->create(&signal->own_gpu, member,
						  gpu_bytes(signal->n_counters));
	if (!r)
		r = cei_region_map_all(&signal->own_gpu);
	signal->gpu = &signal->own_gpu;
	return r;
}

int ceov_signal_create(ceov_context *context, uint32_t rank, struct ceov_place place,
		       uint32_t n_counters, uint32_t flags, ceov_signal **ret_signal)
{
	ceov_signal *signal = NULL;
	int r = cei_context_check(context, "ceov_signal_create");

	if (!r)
		r = check_create(context, rank, place, n_counters, flags);
	if (!r && !ret_signal)
		r = cei_raise(&context->report, CEOV_ERR_INVALID, 0,
			      "ceov_signal_create: no ret_signal");
	if (!r)
		r = new_signal(context, rank, &signal);
	if (r)
		return r;
	signal->place = place;
	signal->n_counters = n_counters;
	signal->flags = flags;
	r = create_regions(signal, cei_context_member(context, rank));
	if (!r)
		r = cei_signal_clear(signal);
	if (r) {
		let_go(signal);
		free(signal);
		return r;
	}
	cei_object_init(&signal->object, context, &cei_signal_type);
	*ret_signal = signal;
	return 0;
}

int ceov_signal_share(ceov_signal *signal, const char *name)
{
	struct cei_export_body body;
	int r = cei_object_check(signal, &cei_signal_type, "ceov_signal_share");

	if (r)
		return r;
	if (signal->control != &signal->own_control)
		return cei_raise(&signal->object.context->report, CEOV_ERR_INVALID, 0,
				 "ceov_signal_share: only the owner of a signal shares it");
	if (signal->export_id)
		return cei_raise(&signal->object.context->report, CEOV_ERR_STATE, 0,
				 "ceov_signal_share: %s is shared already; a signal has one name",
				 cei_signal_text(signal).text);
	memset(&body, 0, sizeof(body));
	body.owner = &signal->object;
	body.kind = CEI_EXPORT_SIGNAL;
	body.place_kind = signal->place.kind;
	body.n_counters = signal->n_counters;
	body.flags = signal->flags;
	body.n_regions = signal->gpu ? 2 : 1;
	body.regions[0] = signal->control;
	body.regions[1] = signal->gpu;
	r = cei_export_make(signal->object.context, signal->rank, name, &body,
			    &signal->export_id);
	if (!r)
		cei_shared_name_set(&signal->name, name);
	return r;
}

/* Checks that the regions are as large as the peer's description claims. */
static int check_found(ceov_context *context, const struct cei_found *found)
{
	uint32_t wanted = found->place_kind == CEOV_PLACE_GPU ? 2 : 1;

	if (found->n_regions == wanted && found->n_counters &&
	    found->n_counters <= CEI_SIGNAL_COUNTERS_MAX &&
	    found->regions[0]->kind == CEOV_PLACE_HOST &&
	    found->regions[0]->size_bytes >= cei_signal_control_bytes(found->n_counters) &&
	    (wanted == 1 || (found->regions[1]->kind == CEOV_PLACE_GPU &&
			     found->regions[1]->size_bytes >= gpu_bytes(found->n_counters))))
		return 0;
	return cei_raise(&context->report, CEOV_ERR_VERSION, 0,
			 "ceov_signal_find: the peer's signal does not make sense here");
}

static void fill_found(ceov_signal *signal, const struct cei_found *found)
{
	signal->n_counters = found->n_counters;
	signal->flags = found->flags;
	signal->control = found->regions[0];
	signal->gpu = found->n_regions > 1 ? found->regions[1] : NULL;
	signal->place.kind = (enum ceov_place_kind)found->place_kind;
	signal->place.index = signal->gpu ? signal->gpu->gpu : 0;
	signal->found_use = found->use;
	signal->far = found->far;
	if (found->owner)
		signal->original = CEI_OWNER(found->owner, ceov_signal, object);
}

int cei_signal_find(ceov_context *context, const struct cei_lookup *lookup,
		    ceov_signal **ret_signal)
{
	struct cei_found found;
	ceov_signal *signal = NULL;
	int r = new_signal(context, lookup->rank, &signal);

	if (r)
		return r;
	r = cei_export_find(context, lookup, CEI_EXPORT_SIGNAL, &found);
	if (r) {
		free(signal);
		return r;
	}
	fill_found(signal, &found);
	cei_shared_name_set(&signal->name, lookup->name);
	r = check_found(context, &found);
	if (r) {
		let_go(signal);
		free(signal);
		return r;
	}
	cei_object_init(&signal->object, context, &cei_signal_type);
	*ret_signal = signal;
	return 0;
}

int ceov_signal_find(ceov_context *context, uint32_t rank, const char *name,
		     ceov_signal **ret_signal)
{
	struct cei_lookup lookup;
	int r = cei_context_check(context, "ceov_signal_find");

	if (r)
		return r;
	if (!ret_signal)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "ceov_signal_find: no ret_signal");
	lookup = cei_export_lookup(context, rank, name);
	return cei_signal_find(context, &lookup, ret_signal);
}

static int check_size(ceov_signal *signal, const struct cei_region *region, uint64_t n_bytes)
{
	if (region->size_bytes >= n_bytes)
		return 0;
	return cei_raise(&signal->object.context->report, CEOV_ERR_INVALID, 0,
			 "a signal of rank %u with %u counters came with memory of %llu bytes, "
			 "which is too little", signal->rank, signal->n_counters,
			 (unsigned long long)region->size_bytes);
}

/* Maps the regions. Takes the descriptors in any case. */
static int map_parts(ceov_signal *signal, const struct cei_signal_parts *parts)
{
	struct cei_mappings *mappings = &signal->object.context->mappings;
	int r = cei_mapping_get(mappings, &parts->control, parts->fd, &signal->control);

	if (!r)
		r = check_size(signal, signal->control,
			       cei_signal_control_bytes(parts->n_counters));
	if (!parts->is_in_gpu)
		return r;
	if (!r)
		r = cei_mapping_get(mappings, &parts->gpu, parts->gpu_fd, &signal->gpu);
	else if (parts->gpu_fd >= 0)
		close(parts->gpu_fd);
	return r ? r : check_size(signal, signal->gpu, gpu_bytes(parts->n_counters));
}

void cei_signal_parts_close(const struct cei_signal_parts *parts)
{
	if (parts->fd >= 0)
		close(parts->fd);
	if (parts->is_in_gpu && parts->gpu_fd >= 0)
		close(parts->gpu_fd);
}

int cei_signal_import(ceov_context *context, const struct cei_signal_parts *parts,
		      ceov_signal **ret_signal)
{
	ceov_signal *signal;
	int r = new_signal(context, parts->rank, &signal);

	if (r) {
		cei_signal_parts_close(parts);
		return r;
	}
	signal->n_counters = parts->n_counters;
	signal->flags = parts->flags;
	r = map_parts(signal, parts);
	if (r) {
		let_go(signal);
		free(signal);
		return r;
	}
	signal->place.kind = signal->gpu ? CEOV_PLACE_GPU : CEOV_PLACE_HOST;
	signal->place.index = signal->gpu ? signal->gpu->gpu : 0;
	cei_object_init(&signal->object, context, &cei_signal_type);
	*ret_signal = signal;
	return 0;
}

int ceov_signal_release(ceov_signal *signal)
{
	static const char call[] = "ceov_signal_release";
	int r;

	if (!signal)
		return 0;
	r = cei_object_check(signal, &cei_signal_type, call);
	if (r)
		return r;
	r = cei_export_release(&signal->object, &signal->export_id, call);
	if (r)
		return r;
	let_go(signal);
	cei_object_quarantine(&signal->object);
	return 0;
}

void cei_signal_destroy(ceov_signal *signal)
{
	cei_export_revoke(signal->object.context, signal->export_id, &signal->own_control);
	/* first, because the thread of the peers writes aborts to the memory of signals that have
	 * not ended */
	cei_object_end(&signal->object);
	let_go(signal);
	cei_object_quarantine(&signal->object);
}

struct cei_signal_text cei_signal_text(const struct ceov_signal *signal)
{
	const char *name = cei_shared_name_text(&signal->name);
	struct cei_signal_text signal_text;
	char place[24] = "on the host";

	if (signal->place.kind == CEOV_PLACE_GPU)
		snprintf(place, sizeof(place), "in GPU %u", signal->place.index);
	if (*name)
		snprintf(signal_text.text, sizeof(signal_text.text),
			 "signal '%s' of rank %u", name, signal->rank);
	else    /* a daemon is not told its clients' names */
		snprintf(signal_text.text, sizeof(signal_text.text),
			 "%s signal of rank %u %s with %u counters",
			 signal->object.context->site.has_clients ? "a" : "an unshared",
			 signal->rank, place, signal->n_counters);
	return signal_text;
}

struct cei_counter_text cei_counter_text(const struct ceov_signal *signal, uint32_t index)
{
	struct cei_counter_text counter_text;

	snprintf(counter_text.text, sizeof(counter_text.text), "counter %u of %s", index,
		 cei_signal_text(signal).text);
	return counter_text;
}

int cei_signal_check_mark(const struct ceov_signal *signal, uint32_t index, uint64_t value,
			  const char *what)
{
	if (index >= signal->n_counters)
		return cei_raise(&signal->object.context->report, CEOV_ERR_INVALID, 0,
				 "%s: there is no %s, which has %u", what,
				 cei_counter_text(signal, index).text, signal->n_counters);
	if (value >= CEOV_VALUE_LIMIT)
		return cei_raise(&signal->object.context->report, CEOV_ERR_INVALID, 0,
				 "%s: value %" PRIu64 " for %s is at or above CEOV_VALUE_LIMIT",
				 what, value, cei_counter_text(signal, index).text);
	return 0;
}

struct cei_signal_spot cei_signal_spot(const struct ceov_signal *signal, uint32_t index)
{
	struct cei_signal_spot spot = { signal->control, NULL, word_offset(index), 0 };

	if (signal->far) {
		spot.counters = &signal->far->region;
		spot.counter_at = index * (uint64_t)sizeof(uint64_t);
		return spot;
	}
	if (!signal->gpu)
		return spot;
	spot.counters = signal->gpu;
	spot.counter_at = index * (uint64_t)sizeof(uint64_t);
	if (!cei_signal_is_visible(signal))
		return spot;
	spot.words = signal->control;
	spot.word_at = word_offset(index);
	return spot;
}

int cei_signal_resolve(const struct ceov_mark *mark, uint32_t member, const char *what,
		       struct cei_counter *ret_counter)
{
	ceov_signal *signal = mark->signal;
	struct cei_signal_spot spot;
	int r;

	memset(ret_counter, 0, sizeof(*ret_counter));
	if (!signal)
		return 0;
	r = cei_signal_check_mark(signal, mark->index, mark->value, what);
	if (r)
		return r;
	ret_counter->signal = signal;
	ret_counter->index = mark->index;
	ret_counter->value = mark->value;
	ret_counter->header = cei_signal_header(signal);
	if (cei_signal_is_visible(signal))
		ret_counter->seen = cei_signal_word(signal, mark->index);
	spot = cei_signal_spot(signal, mark->index);
	if (spot.counters->address[member])
		ret_counter->address = spot.counters->address[member] + spot.counter_at;
	if (spot.words && spot.words->address[member])
		ret_counter->word = spot.words->address[member] + spot.word_at;
	return 0;
}
