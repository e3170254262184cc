/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceov_stream_raise and ceov_stream_wait: marks as work of a caller's stream. */

#include "ce_engine/exec/lower.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"

/* Most marks that are handed to the driver at once; a longer list is handed over in parts. */
#define STREAM_MARKS 64u

static int resolve(const struct ceov_mark *mark, uint64_t base, uint32_t member,
		   const char *call, struct cei_counter *counter)
{
	ceov_signal *signal = mark->signal;
	int r = cei_object_check(signal, &cei_signal_type, call);

	if (!r)
		r = cei_signal_resolve(mark, member, call, counter);
	if (r)
		return r;
	if (base >= CEOV_VALUE_LIMIT - mark->value)
		return cei_raise(&signal->object.context->report, CEOV_ERR_INVALID, 0,
				 "%s: base + value for %s is at or above CEOV_VALUE_LIMIT", call,
				 cei_counter_text(signal, mark->index).text);
	if (signal->far)
		return cei_raise(&signal->object.context->report, CEOV_ERR_NO_ROUTE, 0,
				 "%s: %s is on another node, which streams do not reach: raise "
				 "and await its counters by plans, or by ceov_signal_raise() and "
				 "ceov_signal_wait()", call, cei_signal_text(signal).text);
	if (!counter->address)
		return cei_raise(&signal->object.context->report, CEOV_ERR_NO_ROUTE, 0,
				 "%s: the counters of %s are not reachable", call,
				 cei_signal_text(signal).text);
	return cei_signal_check_abort(signal, call);
}

static int check_frees(const struct ceov_mark *marks, uint32_t n_marks)
{
	const struct ceov_signal *signal;
	uint32_t i;

	for (i = 0; i < n_marks; i++) {
		signal = marks[i].signal;
		if (!cei_signal_frees_streams(signal))
			return cei_raise(&signal->object.context->report, CEOV_ERR_NO_ROUTE, 0,
					 "ceov_stream_wait: the counters of %s are in its GPU, "
					 "in another process: if that ends, nobody can open the "
					 "wait; let it raise a signal of the own rank, or one on "
					 "the host", cei_signal_text(signal).text);
	}
	return 0;
}

/* Checks all marks, before the first is queued. */
static int resolve_all(const struct ceov_mark *marks, uint32_t n_marks, uint64_t base,
		       const struct cei_backend *backend, const char *call)
{
	struct cei_counter counter;
	uint32_t i;
	int r = 0;

	if (n_marks && !marks)
		return cei_raise(backend->site->report, CEOV_ERR_INVALID, 0,
				 "%s: no marks, though n_marks is %u", call, n_marks);
	for (i = 0; !r && i < n_marks; i++)
		r = resolve(&marks[i], base, backend->member, call, &counter);
	return r;
}

/* Refuses marks whose counters hold more already. The others may still be overtaken by work that is
 * queued elsewhere. */
static int refuse_falls(const struct ceov_mark *marks, uint32_t n_marks, uint64_t base,
			const char *call)
{
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < n_marks; i++)
		r = cei_signal_refuse_fall(marks[i].signal, marks[i].index,
					   base + marks[i].value, call);
	return r;
}

int ceov_stream_raise(ceov_context *context, uint32_t rank, void *stream,
		      const struct ceov_mark *marks, uint32_t n_marks, uint64_t base)
{
	static const char call[] = "ceov_stream_raise";
	struct cei_post posts[STREAM_MARKS];
	struct cei_stream_work work = { .posts = posts };
	struct cei_backend *backend;
	struct cei_counter counter;
	uint32_t i, n;
	int r = cei_context_stream(context, rank, stream, call, &backend);

	if (!r)
		r = resolve_all(marks, n_marks, base, backend, call);
	if (!r)
		r = refuse_falls(marks, n_marks, base, call);
	for (i = 0; !r && i < n_marks; i += n) {
		for (n = 0; n < STREAM_MARKS && i + n < n_marks; n++) {
			(void)cei_signal_resolve(&marks[i + n], backend->member, call,
						 &counter);
			posts[n] = cei_lower_post(&counter, base);
		}
		work.n_posts = n;
		r = backend->ops->stream_queue(backend, stream, &work);
	}
	return r;
}

int ceov_stream_wait(ceov_context *context, uint32_t rank, void *stream,
		     const struct ceov_mark *marks, uint32_t n_marks, uint64_t base)
{
	static const char call[] = "ceov_stream_wait";
	struct cei_await awaits[STREAM_MARKS];
	struct cei_stream_work work = { .awaits = awaits };
	struct cei_backend *backend;
	struct cei_counter counter;
	uint32_t i, n;
	int r = cei_context_stream(context, rank, stream, call, &backend);

	if (!r)
		r = resolve_all(marks, n_marks, base, backend, call);
	if (!r)
		r = check_frees(marks, n_marks);
	for (i = 0; !r && i < n_marks; i += n) {
		for (n = 0; n < STREAM_MARKS && i + n < n_marks; n++) {
			(void)cei_signal_resolve(&marks[i + n], backend->member, call,
						 &counter);
			awaits[n] = cei_lower_await(&counter, base);
		}
		work.n_awaits = n;
		r = backend->ops->stream_queue(backend, stream, &work);
	}
	return r;
}
