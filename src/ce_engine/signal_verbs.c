/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What is done with signals: raise, arrive, look, wait; on threads and streams. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ce_engine/context.h"
#include "ce_engine/signal.h"

/* Marks that one call hands to the driver at once; longer lists go in several. */
#define STREAM_MARKS 64u

static int check(ceov_signal *signal, uint32_t index, uint64_t value, const char *call)
{
	int r = cei_object_check(signal, CEI_OBJECT_SIGNAL, call);

	if (r)
		return r;
	if (index >= signal->n_counters)
		return cei_raise(&signal->object.context->report, CEOV_ERR_INVALID, 0,
				 "%s: counter %u of a signal that has %u", call, index,
				 signal->n_counters);
	if (value >= CEOV_VALUE_LIMIT)
		return cei_raise(&signal->object.context->report, CEOV_ERR_INVALID, 0,
				 "%s: value is at or above CEOV_VALUE_LIMIT", call);
	return 0;
}

static int aborted(ceov_signal *signal, const char *call)
{
	struct ceov_failure failure = cei_failure(cei_signal_aborted(signal), 0);

	if (!failure.error)
		return 0;
	/* relaxed: written before the code, and only for the message */
	failure.rank = atomic_load_explicit(&cei_signal_header(signal)->abort_rank,
					    memory_order_relaxed);
	return cei_raise_failure(&signal->object.context->report, &failure,
				 "%s: the signal of rank %u was aborted: %s (to blame: "
				 "rank %d); renew it", call, signal->rank,
				 ceov_strerror(failure.error), (int)failure.rank);
}

static int refuse_fall(ceov_signal *signal, uint32_t index, uint64_t value)
{
	uint64_t seen;

	if (!cei_signal_is_visible(signal))
		return 0;
	/* relaxed: this thread is the counter's only raiser */
	seen = atomic_load_explicit(cei_signal_word(signal, index), memory_order_relaxed);
	if (value >= seen)
		return 0;
	return cei_raise(&signal->object.context->report, CEOV_ERR_INVALID, 0,
			 "ceov_signal_raise: counter %u holds %" PRIu64 " and cannot fall "
			 "to %" PRIu64, index, seen, value);
}

static int raise_to(ceov_signal *signal, uint32_t index, uint64_t value)
{
	struct cei_backend *backend;
	uint64_t address;
	int r;

	if (signal->gpu) {
		backend = cei_signal_backend(signal);
		if (!backend)
			return cei_raise(&signal->object.context->report,
					 CEOV_ERR_NO_ROUTE, 0, "ceov_signal_raise: none of "
					 "our ranks reaches the GPU of rank %u",
					 signal->rank);
		address = signal->gpu->address[backend->member];
		r = backend->ops->store(backend, address + index * sizeof(value), &value,
					sizeof(value));
		if (r || !cei_signal_is_visible(signal))
			return r;
	}
	/* seq_cst: the release that pairs with pollers' acquire, and against
	 * cei_signals_abort(), which raises the abort word and then poisons: either
	 * its poison comes after our value, or we see its word. */
	atomic_store(cei_signal_word(signal, index), value);
	if (atomic_load(&cei_signal_header(signal)->abort_code))
		atomic_store(cei_signal_word(signal, index), CEOV_VALUE_LIMIT);
	return 0;
}

int ceov_signal_raise(ceov_signal *signal, uint32_t index, uint64_t value)
{
	int r = check(signal, index, value, "ceov_signal_raise");

	if (!r)
		r = aborted(signal, "ceov_signal_raise");
	if (!r)
		r = refuse_fall(signal, index, value);
	return r ? r : raise_to(signal, index, value);
}

int ceov_signal_arrive(ceov_signal *signal, uint32_t index, uint32_t n_tiles,
		       uint64_t value)
{
	_Atomic uint32_t *arrivals;
	uint32_t seen, next;
	int r = check(signal, index, value, "ceov_signal_arrive");

	if (!r)
		r = aborted(signal, "ceov_signal_arrive");
	if (r)
		return r;
	if (!n_tiles)
		return cei_raise(&signal->object.context->report, CEOV_ERR_INVALID, 0,
				 "ceov_signal_arrive: n_tiles is 0");
	arrivals = cei_signal_host_arrivals(signal, index);
	seen = atomic_load_explicit(arrivals, memory_order_relaxed); /* only a guess */
	do {
		next = seen >= n_tiles - 1 ? 0 : seen + 1;
		/* acq_rel: among arrivals; the last one takes in what all wrote */
	} while (!atomic_compare_exchange_weak_explicit(arrivals, &seen, next,
							memory_order_acq_rel,
							memory_order_relaxed));
	return seen >= n_tiles - 1 ? raise_to(signal, index, value) : 0;
}

int ceov_signal_value(ceov_signal *signal, uint32_t index, uint64_t *ret_value)
{
	int r = check(signal, index, 0, "ceov_signal_value");

	if (r)
		return r;
	if (!cei_signal_is_visible(signal))
		return cei_raise(&signal->object.context->report, CEOV_ERR_STATE, 0,
				 "ceov_signal_value: the counters are in a GPU; create the "
				 "signal with CEOV_SIGNAL_HOST_VISIBLE");
	/* acquire: pairs with the raiser's release */
	*ret_value = atomic_load_explicit(cei_signal_word(signal, index),
					  memory_order_acquire);
	return 0;
}

int ceov_signal_wait(ceov_signal *signal, uint32_t index, uint64_t value,
		     uint64_t timeout_ns)
{
	uint64_t seen, deadline = timeout_ns ? cei_deadline(timeout_ns) : 0;
	struct cei_backoff backoff;
	int r = check(signal, index, value, "ceov_signal_wait");

	if (r)
		return r;
	cei_backoff_reset(&backoff);
	for (;;) {
		r = ceov_signal_value(signal, index, &seen);
		if (r)
			return r;
		if (cei_signal_aborted(signal)) {
			r = aborted(signal, "ceov_signal_wait");
			if (r)
				return r;
			continue;       /* renewed just now */
		}
		if (seen >= value)
			return 0;
		if (!timeout_ns || cei_now_ns() >= deadline)
			return CEOV_PENDING;
		cei_backoff_step(&backoff);
	}
}

/* --- streams ------------------------------------------------------------- */

static int resolve(const struct ceov_mark *mark, uint64_t base, uint32_t member,
		   const char *call, struct cei_counter *counter)
{
	ceov_signal *signal = mark->signal;
	int r = cei_object_check(signal, CEI_OBJECT_SIGNAL, call);

	if (!r)
		r = cei_signal_resolve(mark, member, call, counter);
	if (r)
		return r;
	if (base >= CEOV_VALUE_LIMIT - mark->value)
		return cei_raise(&signal->object.context->report, CEOV_ERR_INVALID, 0,
				 "%s: base + value is at or above CEOV_VALUE_LIMIT", call);
	if (!counter->address)
		return cei_raise(&signal->object.context->report, CEOV_ERR_NO_ROUTE, 0,
				 "%s: the counters of rank %u's signal are not reachable",
				 call, signal->rank);
	return aborted(signal, call);
}

static int check_frees(const struct ceov_mark *marks, uint32_t n_marks)
{
	const struct ceov_signal *signal;
	uint32_t i;

	for (i = 0; i < n_marks; i++) {
		signal = marks[i].signal;
		if (!cei_signal_frees_streams(signal))
			return cei_raise(&signal->object.context->report, CEOV_ERR_NO_ROUTE, 0,
					 "ceov_stream_wait: the counters of rank %u's signal "
					 "are in its GPU, in another process: if that ends, "
					 "nobody can open the wait; let it raise a signal of "
					 "the own rank, or one on the host", signal->rank);
	}
	return 0;
}

/* All are checked before the first is queued. */
static int resolve_all(const struct ceov_mark *marks, uint32_t n_marks, uint64_t base,
		       uint32_t member, const char *call)
{
	struct cei_counter counter;
	uint32_t i;
	int r = n_marks && !marks ? CEOV_ERR_INVALID : 0;

	for (i = 0; !r && i < n_marks; i++)
		r = resolve(&marks[i], base, member, call, &counter);
	return r;
}

int ceov_stream_raise(ceov_context *context, uint32_t rank, void *stream,
		      const struct ceov_mark *marks, uint32_t n_marks, uint64_t base)
{
	static const char call[] = "ceov_stream_raise";
	struct cei_post posts[STREAM_MARKS];
	struct cei_backend *backend;
	struct cei_counter counter;
	uint32_t i, n;
	int r = cei_context_stream(context, rank, stream, call, &backend);

	if (!r)
		r = resolve_all(marks, n_marks, base, backend->member, call);
	for (i = 0; !r && i < n_marks; i += n) {
		for (n = 0; n < STREAM_MARKS && i + n < n_marks; n++) {
			(void)cei_signal_resolve(&marks[i + n], backend->member, call,
						 &counter);
			posts[n].counter = counter.address;
			posts[n].word = counter.word;
			posts[n].value = base + counter.value;
		}
		r = backend->ops->stream_post(backend, stream, posts, n);
	}
	return r;
}

int ceov_stream_wait(ceov_context *context, uint32_t rank, void *stream,
		     const struct ceov_mark *marks, uint32_t n_marks, uint64_t base)
{
	static const char call[] = "ceov_stream_wait";
	struct cei_await awaits[STREAM_MARKS];
	struct cei_backend *backend;
	struct cei_counter counter;
	uint32_t i, n;
	int r = cei_context_stream(context, rank, stream, call, &backend);

	if (!r)
		r = resolve_all(marks, n_marks, base, backend->member, call);
	if (!r)
		r = check_frees(marks, n_marks);
	for (i = 0; !r && i < n_marks; i += n) {
		for (n = 0; n < STREAM_MARKS && i + n < n_marks; n++) {
			(void)cei_signal_resolve(&marks[i + n], backend->member, call,
						 &counter);
			awaits[n].counter = counter.address;
			awaits[n].value = base + counter.value;
			awaits[n].abort_word = NULL;    /* streams leave by poison */
		}
		r = backend->ops->stream_wait(backend, stream, awaits, n);
	}
	return r;
}

/* --- kernels ------------------------------------------------------------- */

/* Where kernels of the member count arrivals at a signal that is not in its memory. */
static int tally_for(ceov_signal *signal, uint32_t member)
{
	ceov_context *context = signal->object.context;
	struct cei_backend *backend = &context->engines[member].backend;
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
	struct cei_counter counter;
	ceov_context *context;
	uint64_t arrivals, abort_word;
	uint32_t member;
	int r = cei_object_check(signal, CEI_OBJECT_SIGNAL, call);

	if (r)
		return r;
	context = signal->object.context;
	r = cei_context_own_rank(context, rank, call, &member);
	if (r)
		return r;
	if (context->site.members[member].place.kind != CEOV_PLACE_GPU)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "%s: rank %u is not on a GPU", call, rank);
	r = cei_signal_resolve(&first, member, call, &counter);
	if (!r && !counter.address)
		r = cei_raise(&context->report, CEOV_ERR_NO_ROUTE, 0,
			      "%s: rank %u does not reach the counters", call, rank);
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
		pthread_mutex_lock(&context->lock);
		r = tally_for(signal, member);
		pthread_mutex_unlock(&context->lock);
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
