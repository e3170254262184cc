/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Aborting signals, and the meaning of the abort word. */

#include <stdlib.h>

#include "ce_engine/objects/context.h"
#include "ce_engine/objects/far.h"
#include "ce_engine/objects/signal.h"

#define ERROR_BITS 8u
#define ERROR_MASK ((UINT32_C(1) << ERROR_BITS) - 1)

/* --- the word ------------------------------------------------------------ */

static uint32_t encode(int error, uint32_t rank)
{
	uint32_t blamed = rank == CEOV_NOBODY ? 0 : rank + 1;

	return (uint32_t)-error | blamed << ERROR_BITS;
}

/* Decodes the abort word, which lies in shared memory where others may write anything: a
 * value that no abort writes counts as an abort of unknown cause. */
static int decode(uint32_t word, uint32_t n_ranks, uint32_t *ret_rank)
{
	uint32_t error = word & ERROR_MASK, blamed = (word & ~CEI_ABORT_OPENS) >> ERROR_BITS;

	*ret_rank = CEOV_NOBODY;
	if (!word)
		return 0;
	if (!error || error > (uint32_t)-CEI_ERROR_LOWEST || blamed > n_ranks)
		return CEOV_ERR_ABORTED;
	if (blamed)
		*ret_rank = blamed - 1;
	return -(int)error;
}

int cei_signal_blame(const struct ceov_signal *signal, uint32_t *ret_rank)
{
	/* acquire: pairs with cei_signal_raise_abort() */
	uint32_t word = atomic_load_explicit(&cei_signal_header(signal)->abort_code,
					     memory_order_acquire);

	return decode(word, signal->object.context->site.n_ranks, ret_rank);
}

const char *cei_signal_advice(int error)
{
	if (error == CEOV_ERR_PEER_LOST)
		return "close the context and open a group without that rank";
	if (error == CEOV_ERR_DAEMON_LOST)
		return "call ceov_reopen() in all processes of the group";
	return "renew it";
}

int cei_signal_aborted(const struct ceov_signal *signal)
{
	uint32_t rank;

	return cei_signal_blame(signal, &rank);
}

int cei_signals_blame(struct ceov_signal *const *signals, uint32_t n, uint32_t *ret_rank)
{
	uint32_t i;
	int error = 0;

	*ret_rank = CEOV_NOBODY;
	for (i = 0; !error && i < n; i++)
		error = cei_signal_blame(signals[i], ret_rank);
	return error;
}

/* --- aborting ------------------------------------------------------------ */

/* Whether it is a GPU signal that may still be written to: memory of a dead process is not
 * accessed. */
static int is_alive(const struct ceov_signal *signal)
{
	/* A guest does not hear of lost ranks; memory that came as a descriptor outlives its
	 * owner. */
	if (signal->object.context->ended && signal->gpu && !signal->gpu->vmm_bytes)
		return 0;
	return !cei_context_is_lost(signal->object.context, signal->rank) &&
	       cei_signal_is_writable(signal);
}

int cei_signal_raise_abort(struct ceov_signal *signal, int error, uint32_t rank)
{
	uint32_t none = 0, code = encode(error, rank);
	uint64_t word = code;
	int is_first;

	/* seq_cst, as the poison: against raise_to() in signal_verbs.c, see there. Also
	 * the release that pairs with every look at the abort word. */
	is_first = atomic_compare_exchange_strong(&cei_signal_header(signal)->abort_code, &none,
						  code);
	if (is_alive(signal))           /* a failure has been raised */
		(void)cei_signal_store(signal, signal->n_counters * (uint64_t)sizeof(word), &word,
				       sizeof(word));
	return is_first;
}

static void poison_gpu(struct ceov_signal *signal)
{
	uint64_t n_bytes = signal->n_counters * (uint64_t)sizeof(uint64_t);
	uint64_t *poison;
	uint32_t i;

	if (!is_alive(signal))
		return;
	poison = malloc(n_bytes);
	if (!poison) {
		(void)cei_raise(&signal->object.context->report, CEOV_ERR_NO_MEMORY, 0,
				"abort: no memory to poison %s", cei_signal_text(signal).text);
		return;
	}
	for (i = 0; i < signal->n_counters; i++)
		poison[i] = CEOV_VALUE_LIMIT;
	(void)cei_signal_store(signal, 0, poison, n_bytes);
	free(poison);
}

/* Lets lanes of the host through, which look at the word as well as at the counter. A word of 0 has
 * been renewed meanwhile, and one that changes is somebody else's. */
static void open_gates(struct ceov_signal *signal)
{
	_Atomic uint32_t *code = &cei_signal_header(signal)->abort_code;
	uint32_t word = atomic_load_explicit(code, memory_order_relaxed);

	/* release: pairs with execute_wait() (host.c), behind which the words of all signals of
	 * this abort are found; relaxed: nothing is read behind it */
	if (word)
		(void)atomic_compare_exchange_strong_explicit(code, &word, word | CEI_ABORT_OPENS,
							      memory_order_release,
							      memory_order_relaxed);
}

void cei_signal_poison(struct ceov_signal *signal)
{
	uint32_t i;

	open_gates(signal);
	poison_gpu(signal);
	for (i = 0; i < signal->n_counters; i++)
		/* seq_cst, see above; and the release that pairs with pollers and
		 * lanes that wait */
		atomic_store(cei_signal_word(signal, i), CEOV_VALUE_LIMIT);
}

void cei_signal_poison_one(struct ceov_signal *signal, uint32_t index)
{
	uint64_t poison = CEOV_VALUE_LIMIT;

	if (is_alive(signal))
		(void)cei_signal_store(signal, index * (uint64_t)sizeof(poison), &poison,
				       sizeof(poison));
	/* release: as in cei_signal_poison() */
	atomic_store_explicit(cei_signal_word(signal, index), poison, memory_order_release);
}

/* Adds a signal that other nodes have to hear of. */
static void add(struct cei_group_abort *told, const struct ceov_signal *signal)
{
	struct cei_group_signal *named = &told->signals[told->n];

	if (!signal->far && !cei_signal_is_shared_afar(signal))
		return;
	named->rank = signal->rank;
	named->id = signal->far ? signal->far->region.far_id : signal->export_id;
	told->n++;
}

void cei_signals_tell(struct ceov_signal *const *signals, uint32_t n, int error, uint32_t rank)
{
	struct cei_group_abort told = { .error = error, .blame = rank };
	ceov_context *context = n ? signals[0]->object.context : NULL;
	uint32_t i;

	for (i = 0; i < n && context->site.network; i++) {
		add(&told, signals[i]);
		if (!told.n || (told.n < CEI_GROUP_SIGNALS_MAX && i + 1 < n))
			continue;
		cei_peers_abort(context->peers, &told);
		told.n = 0;
	}
}

uint32_t cei_signals_raise_abort(struct ceov_signal *const *signals, uint32_t n, int error,
				 uint32_t rank)
{
	uint32_t i, n_first = 0;

	for (i = 0; i < n; i++)
		n_first += (uint32_t)cei_signal_raise_abort(signals[i], error, rank);
	return n_first;
}

void cei_signals_poison(struct ceov_signal *const *signals, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		cei_signal_poison(signals[i]);
}

int cei_signal_check_abort(const struct ceov_signal *signal, const char *call)
{
	struct ceov_failure failure = cei_failure(0, 0);

	failure.error = cei_signal_blame(signal, &failure.rank);
	if (!failure.error)
		return 0;
	return cei_raise_failure(&signal->object.context->report, &failure,
				 "%s: %s was aborted: %s%s; %s", call,
				 cei_signal_text(signal).text, ceov_strerror(failure.error),
				 cei_blame_text(failure.rank).text,
				 cei_signal_advice(failure.error));
}
