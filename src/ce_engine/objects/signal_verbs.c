/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Raising, arriving at, reading and awaiting counters on threads, and handing them to kernels. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/word.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/far.h"
#include "ce_engine/objects/signal.h"

/* Raises the abort's error for a counter that holds poison: its abort word was set before. */
static int poisoned(ceov_signal *signal, uint32_t index, const char *call)
{
	int r = cei_signal_check_abort(signal, call);

	if (r)
		return r;
	return cei_raise(&signal->object.context->report, CEOV_ERR_ABORTED, 0,
			 "%s: %s is poisoned, as by an abort that came while "
			 "the signal was renewed; renew it again", call,
			 cei_counter_text(signal, index).text);
}

int cei_signal_refuse_fall(ceov_signal *signal, uint32_t index, uint64_t value, const char *call)
{
	uint64_t seen;

	if (!cei_signal_is_visible(signal))
		return 0;
	/* acquire: pairs with cei_signal_poison(): with its poison the abort word is seen */
	seen = atomic_load_explicit(cei_signal_word(signal, index), memory_order_acquire);
	if (seen >= CEOV_VALUE_LIMIT)
		return poisoned(signal, index, call);
	if (value >= seen)
		return 0;
	return cei_raise(&signal->object.context->report, CEOV_ERR_INVALID, 0,
			 "%s: %s holds %" PRIu64 " and cannot fall to %" PRIu64, call,
			 cei_counter_text(signal, index).text, seen, value);
}

static int check_raise(ceov_signal *signal, uint32_t index, uint64_t value, const char *call)
{
	int r = cei_signal_check_mark(signal, index, value, call);

	if (!r)
		r = cei_signal_check_abort(signal, call);
	return r ? r : cei_signal_refuse_fall(signal, index, value, call);
}

static int store_gpu(ceov_signal *signal, uint32_t index, uint64_t value, const char *call)
{
	if (!cei_signal_is_writable(signal))
		return cei_raise(&signal->object.context->report, CEOV_ERR_NO_ROUTE, 0,
				 "%s: none of our ranks reaches the GPU of rank %u", call,
				 signal->rank);
	return cei_signal_store(signal, index * sizeof(value), &value, sizeof(value));
}

void cei_signal_ask(const struct ceov_signal *signal, uint32_t index, uint64_t value)
{
	if (signal->far)
		cei_peers_ask(signal->object.context->peers, signal->rank, signal->far->use, index,
			      value);
}

/* Has the owner on another node raise the counter, and notes that in the image. */
static int raise_far(ceov_signal *signal, uint32_t index, uint64_t value)
{
	int r = cei_peers_raise(signal->object.context->peers, signal->rank, signal->far->use,
				index, value);

	if (!r)
		(void)cei_word_raise(cei_signal_word(signal, index), value);
	return r;
}

static int raise_to(ceov_signal *signal, uint32_t index, uint64_t value, const char *call)
{
	int r = signal->gpu ? store_gpu(signal, index, value, call) : 0;

	if (r)
		return r;
	if (signal->far)
		return raise_far(signal, index, value);
	/* seq_cst: the release that pairs with pollers' acquire, and against
	 * an abort, which raises the abort word and then poisons: either
	 * its poison comes after our value, or we see its word. store() returns when the
	 * GPU's counter is written, so that holds for it, too. */
	if (cei_signal_is_visible(signal))
		atomic_store(cei_signal_word(signal, index), value);
	atomic_thread_fence(memory_order_seq_cst);
	if (!atomic_load(&cei_signal_header(signal)->abort_code))
		return 0;
	cei_signal_poison_one(signal, index);
	return poisoned(signal, index, call);
}

int ceov_signal_raise(ceov_signal *signal, uint32_t index, uint64_t value)
{
	static const char call[] = "ceov_signal_raise";
	int r = cei_object_check(signal, &cei_signal_type, call);

	if (!r)
		r = check_raise(signal, index, value, call);
	return r ? r : raise_to(signal, index, value, call);
}

int ceov_signal_arrive(ceov_signal *signal, uint32_t index, uint32_t n_tiles, uint64_t value)
{
	static const char call[] = "ceov_signal_arrive";
	_Atomic uint32_t *arrivals;
	uint32_t seen, next;
	int r = cei_object_check(signal, &cei_signal_type, call);

	if (!r)
		r = check_raise(signal, index, value, call);
	if (r)
		return r;
	if (!n_tiles)
		return cei_raise(&signal->object.context->report, CEOV_ERR_INVALID, 0,
				 "%s: n_tiles is 0", call);
	arrivals = cei_signal_host_arrivals(signal, index);
	seen = atomic_load_explicit(arrivals, memory_order_relaxed); /* only a guess */
	do {
		next = seen >= n_tiles - 1 ? 0 : seen + 1;
		/* acq_rel: pairs arrivals, so that the last one sees what all wrote */
	} while (!atomic_compare_exchange_weak_explicit(arrivals, &seen, next,
							memory_order_acq_rel,
							memory_order_relaxed));
	return seen >= n_tiles - 1 ? raise_to(signal, index, value, call) : 0;
}

static int read_value(ceov_signal *signal, uint32_t index, uint64_t *ret_value)
{
	int r = cei_signal_check_mark(signal, index, 0, "ceov_signal_value");

	if (r)
		return r;
	if (!ret_value)
		return cei_raise(&signal->object.context->report, CEOV_ERR_INVALID, 0,
				 "ceov_signal_value: no ret_value");
	if (!cei_signal_is_visible(signal))
		return cei_raise(&signal->object.context->report, CEOV_ERR_STATE, 0,
				 "ceov_signal_value: the counters of %s are in a GPU; create it "
				 "with CEOV_SIGNAL_HOST_VISIBLE", cei_signal_text(signal).text);
	/* acquire: pairs with the raiser's release */
	*ret_value = atomic_load_explicit(cei_signal_word(signal, index),
					  memory_order_acquire);
	return 0;
}

int ceov_signal_value(ceov_signal *signal, uint32_t index, uint64_t *ret_value)
{
	int r = cei_object_check(signal, &cei_signal_type, "ceov_signal_value");

	return r ? r : read_value(signal, index, ret_value);
}

/* Whether the counter has the value: 0, CEOV_PENDING, or why it will not have it. */
static int look(ceov_signal *signal, uint32_t index, uint64_t value)
{
	static const char call[] = "ceov_signal_wait";
	uint64_t seen;
	int r = read_value(signal, index, &seen);

	if (!r)
		r = cei_signal_check_abort(signal, call);
	if (r)
		return r;
	if (seen >= CEOV_VALUE_LIMIT)
		return poisoned(signal, index, call);
	return seen >= value ? 0 : CEOV_PENDING;
}

/* A wait for a counter that others raise: who may and falls silent meanwhile is lost. */
static int look_until(ceov_signal *signal, uint32_t index, uint64_t value, uint64_t deadline_ns)
{
	ceov_context *context = signal->object.context;
	struct cei_backoff backoff;
	int r;

	cei_context_await(context, 1);
	cei_backoff_reset(&backoff);
	do {
		cei_backoff_step(&backoff);
		r = look(signal, index, value);
	} while (r == CEOV_PENDING && cei_now_ns() < deadline_ns);
	cei_context_await(context, -1);
	return r;
}

int ceov_signal_wait(ceov_signal *signal, uint32_t index, uint64_t value,
		     uint64_t timeout_ns)
{
	uint64_t deadline_ns = timeout_ns ? cei_deadline(timeout_ns) : 0;
	static const char call[] = "ceov_signal_wait";
	int r = cei_object_check(signal, &cei_signal_type, call);

	if (!r)
		r = cei_signal_check_mark(signal, index, value, call);
	if (r)
		return r;
	cei_signal_ask(signal, index, value);
	r = look(signal, index, value);
	if (r != CEOV_PENDING || !timeout_ns)
		return r;
	return look_until(signal, index, value, deadline_ns);
}

/* --- kernels ------------------------------------------------------------- */

/* Makes the memory in which kernels of the member count arrivals at a signal that is not in the
 * member's own memory. */
static int tally_for(ceov_signal *signal, uint32_t member)
{
	ceov_context *context = signal->object.context;
	struct cei_backend *backend = context->backends[member];
	struct cei_region *tally = &signal->tallies[member];
	uint64_t n_bytes = signal->n_counters * (uint64_t)sizeof(uint32_t);
	void *zeros;
	int r;

	if (tally->address[member])
		return 0;
	zeros = calloc(1, n_bytes);
	if (!zeros)
		return cei_raise(&context->report, CEOV_ERR_NO_MEMORY, 0,
				 "ceov_signal_for_device: no memory for zeros");
	r = cei_share_for(CEOV_PLACE_GPU)->create(tally, member, n_bytes);
	if (!r)
		r = cei_share_for(CEOV_PLACE_GPU)->map(tally, member);
	if (!r)
		r = backend->ops->store(backend, tally->address[member], zeros, n_bytes);
	free(zeros);
	if (r)
		cei_region_fini(tally);
	return r;
}

int ceov_signal_for_device(ceov_signal *signal, uint32_t rank,
			   struct ceov_device_signal *ret_device_signal)
{
	static const char call[] = "ceov_signal_for_device";
	struct ceov_mark first = { signal, 0, 0 };
	struct cei_report_hold hold;
	struct cei_counter counter;
	ceov_context *context;
	uint64_t arrivals, abort_word;
	uint32_t member;
	int r = cei_object_check(signal, &cei_signal_type, call);

	if (r)
		return r;
	context = signal->object.context;
	if (!ret_device_signal)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "%s: no ret_device_signal", call);
	r = cei_context_own_rank(context, rank, call, &member);
	if (r)
		return r;
	if (context->site.members[member].place.kind != CEOV_PLACE_GPU)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "%s: rank %u is not on a GPU", call, rank);
	r = cei_signal_resolve(&first, member, call, &counter);
	if (!r && !counter.address)
		r = cei_raise(&context->report, CEOV_ERR_NO_ROUTE, 0,
			      "%s: rank %u does not reach the counters of %s%s", call, rank,
			      cei_signal_text(signal).text,
			      signal->far ? ", which is on another node" : "");
	if (r)
		return r;
	abort_word = signal->control->address[member];
	arrivals = 0;
	if (signal->gpu) {
		abort_word = counter.address + signal->n_counters * sizeof(uint64_t);
		if (signal->gpu->gpu == context->site.members[member].place.index)
			arrivals = abort_word + sizeof(uint64_t);
	}
	if (!arrivals) {
		cei_report_hold_begin(&context->report, &hold);
		pthread_mutex_lock(&context->lock);
		r = tally_for(signal, member);
		pthread_mutex_unlock(&context->lock);
		cei_report_hold_end(&context->report, &hold);
		if (r)
			return r;
		arrivals = signal->tallies[member].address[member];
	}
	memset(ret_device_signal, 0, sizeof(*ret_device_signal));
	ret_device_signal->counters = (uint64_t *)(uintptr_t)counter.address;
	ret_device_signal->arrivals = (uint32_t *)(uintptr_t)arrivals;
	ret_device_signal->words = (uint64_t *)(uintptr_t)counter.word;
	ret_device_signal->abort_word = (const uint32_t *)(uintptr_t)abort_word;
	return 0;
}
