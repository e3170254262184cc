/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Signals across nodes. The owner's counters are in its memory; others have images of them.
 * Who waits for a counter asks (ASK); the owner tells each change that it sees (VALUE) until
 * the value is reached.
 */

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "base/clock.h"
#include "base/word.h"
#include "net/network_private.h"

/* Listeners of one export: a process has one for each counter at most. A larger number is a
 * mistake, or an attack. */
#define LISTENERS_MAX (UINT32_C(1) << 20)

/* --- images ------------------------------------------------------------------------------ */

/* Numbers of regions are their process's, whichever of its ranks owns them. */
static struct cei_network_image *image_of(struct cei_network *network, uint32_t process,
					  uint32_t region)
{
	struct cei_network_image *image;
	struct cei_list *node;

	for (node = network->images.next; node != &network->images; node = node->next) {
		image = CEI_OWNER(node, struct cei_network_image, link);
		if (image->process == process && image->region == region)
			return image;
	}
	return NULL;
}

static struct cei_network_image *image_of_rank(struct cei_network *network, uint32_t rank,
					       uint32_t region)
{
	return image_of(network, cei_network_process(network, rank), region);
}

int cei_network_watch(struct cei_network *network, uint32_t rank,
		      const struct cei_network_found *found, _Atomic uint64_t *words,
		      uint32_t n_words)
{
	struct cei_network_image *image = calloc(1, sizeof(*image));

	if (image)
		image->asked = calloc(n_words, sizeof(*image->asked));
	if (!image || !image->asked) {
		free(image);
		return cei_raise(network->site->report, CEOV_ERR_NO_MEMORY, 0,
				 "find: no memory for %u counters of rank %u", n_words, rank);
	}
	image->process = cei_network_process(network, rank);
	image->region = found->region;
	image->generation = found->generation;
	image->words = words;
	image->n_words = n_words;
	pthread_mutex_lock(&network->lock);
	cei_list_append(&network->images, &image->link);
	pthread_mutex_unlock(&network->lock);
	return 0;
}

void cei_network_forget(struct cei_network *network, uint32_t rank, uint32_t region)
{
	struct cei_network_image *image;

	pthread_mutex_lock(&network->lock);
	image = image_of_rank(network, rank, region);
	if (image) {
		cei_list_remove(&image->link);
		for (; image->n_expected; image->n_expected--)
			cei_rail_expect(network->rail, image->process, -1);
	}
	pthread_mutex_unlock(&network->lock);
	if (image)
		free(image->asked);
	free(image);
}

static uint64_t word_of(const struct cei_network_image *image, uint32_t index)
{
	/* relaxed: only compared; those who wait for the counter acquire it themselves */
	return atomic_load_explicit(&image->words[index], memory_order_relaxed);
}

/* Notes that the counter is asked for up to the value. Returns 0 if it is reached or asked for
 * already. */
static int must_ask(struct cei_network *network, struct cei_network_image *image,
		    uint32_t index, uint64_t value)
{
	if (word_of(image, index) >= value || image->asked[index] >= value)
		return 0;
	if (!image->asked[index]) {
		image->n_expected++;
		cei_rail_expect(network->rail, image->process, 1);
	}
	image->asked[index] = value;
	return 1;
}

void cei_network_ask(struct cei_network *network, uint32_t rank, uint32_t region,
		    uint32_t index, uint64_t value)
{
	struct cei_note note = { .type = CEI_NOTE_ASK };
	struct cei_network_image *image;

	pthread_mutex_lock(&network->lock);
	image = image_of_rank(network, rank, region);
	if (image && index < image->n_words && must_ask(network, image, index, value)) {
		note.counter = (struct cei_note_counter){ region, index, value,
							  image->generation };
		cei_network_note(network, image->process, &note);
	}
	pthread_mutex_unlock(&network->lock);
}

void cei_network_heard_value(struct cei_network *network, uint32_t process,
			     const struct cei_note_counter *told)
{
	struct cei_network_image *image = image_of(network, process, told->region);

	if (!image || told->index >= image->n_words || told->generation != image->generation)
		return;
	(void)cei_word_raise(&image->words[told->index], told->value);
	if (!image->asked[told->index] || told->value < image->asked[told->index])
		return;
	image->asked[told->index] = 0;
	image->n_expected--;
	cei_rail_expect(network->rail, process, -1);
}

/* --- counters of this process ----------------------------------------------------------- */

static _Atomic uint64_t *counter_of(const struct cei_network_entry *entry, uint32_t index)
{
	const struct cei_network_region *region = &entry->export.region;

	if (region->kind != CEI_NETWORK_COUNTERS || !region->base ||
	    index >= region->size_bytes / sizeof(uint64_t))
		return NULL;
	return (_Atomic uint64_t *)region->base + index;
}

void cei_network_heard_raise(struct cei_network *network, const struct cei_note_counter *raise)
{
	struct cei_network_entry *entry = cei_network_entry(network, raise->region);
	_Atomic uint64_t *counter = entry ? counter_of(entry, raise->index) : NULL;

	if (counter && raise->generation == entry->generation)
		(void)cei_word_raise(counter, raise->value);
}

/* The listener of a process for a counter; NULL: there is no room for it. */
static struct cei_network_listener *listener_of(struct cei_network *network,
						struct cei_network_entry *entry,
						uint32_t process, uint32_t index)
{
	struct cei_network_listener *more;
	uint32_t i;

	for (i = 0; i < entry->n_listeners; i++)
		if (entry->listeners[i].process == process && entry->listeners[i].index == index)
			return &entry->listeners[i];
	if (entry->n_listeners == LISTENERS_MAX)
		return NULL;
	more = realloc(entry->listeners, (entry->n_listeners + 1) * sizeof(*more));
	if (!more)
		return NULL;
	entry->listeners = more;
	more[entry->n_listeners] = (struct cei_network_listener){ process, index, 0, 0 };
	network->n_listeners++;
	pthread_cond_signal(&network->work);
	return &more[entry->n_listeners++];
}

/* Tells the listener the counter's value if that has changed. Returns whether it was told. Poison
 * is not told: an abort has a message of its own, which raises the abort word first. */
static int tell(struct cei_network *network, const struct cei_network_entry *entry,
		struct cei_network_listener *listener)
{
	struct cei_note note = { .type = CEI_NOTE_VALUE };
	/* acquire: pairs with the release of whoever raised the counter. The process that hears the
	 * value may overwrite memory that the raiser read before it raised the counter. */
	uint64_t value = atomic_load_explicit(counter_of(entry, listener->index),
					      memory_order_acquire);

	if (value <= listener->told || value >= CEOV_VALUE_LIMIT)
		return 0;
	listener->told = value;
	note.counter = (struct cei_note_counter){ entry->region, listener->index, value,
						  entry->generation };
	cei_network_note(network, listener->process, &note);
	return 1;
}

void cei_network_heard_ask(struct cei_network *network, uint32_t process,
			   const struct cei_note_counter *ask)
{
	struct cei_network_entry *entry = cei_network_entry(network, ask->region);
	struct cei_network_listener *listener;

	if (!entry || !counter_of(entry, ask->index) || ask->generation != entry->generation)
		return;
	listener = listener_of(network, entry, process, ask->index);
	if (!listener) {
		cei_network_part(network, process, "there is no memory for what it asks");
		return;
	}
	if (listener->until < ask->value)
		listener->until = ask->value;
}

/* Removes listeners that were told what they asked for. */
static int look_at(struct cei_network *network, struct cei_network_entry *entry)
{
	struct cei_network_listener *listener;
	int has_told = 0;
	uint32_t i;

	for (i = entry->n_listeners; i-- > 0;) {
		listener = &entry->listeners[i];
		has_told |= tell(network, entry, listener);
		if (listener->told < listener->until)
			continue;
		*listener = entry->listeners[--entry->n_listeners];
		network->n_listeners--;
	}
	return has_told;
}

int cei_network_look_at_counters(struct cei_network *network)
{
	struct cei_list *node;
	int has_told = 0;

	if (!network->n_listeners)
		return 0;
	for (node = network->entries.next; node != &network->entries; node = node->next)
		has_told |= look_at(network, CEI_OWNER(node, struct cei_network_entry, link));
	return has_told;
}

/* --- raising, aborting, renewing ------------------------------------------------------------ */

int cei_network_raise(struct cei_network *network, uint32_t rank, uint32_t region,
		      uint32_t index, uint64_t value)
{
	uint32_t process = cei_network_process(network, rank);
	struct cei_note note = { .type = CEI_NOTE_RAISE };
	struct cei_network_image *image;
	int has_gone;

	note.counter = (struct cei_note_counter){ region, index, value, 0 };
	pthread_mutex_lock(&network->lock);
	has_gone = network->has_gone[process];
	image = image_of_rank(network, rank, region);
	note.counter.generation = image ? image->generation : 0;
	cei_network_note(network, process, &note);
	pthread_mutex_unlock(&network->lock);
	if (!has_gone)
		return 0;
	return cei_raise(network->site->report, CEOV_ERR_PEER_LOST, 0,
			 "a counter of rank %u cannot be raised: the rank has gone", rank);
}

static uint32_t generation_of(struct cei_network *network,
			      const struct cei_network_signal *named)
{
	const struct cei_network_entry *entry;
	const struct cei_network_image *image;

	if (cei_network_process(network, named->rank) == cei_book_own_process(network->book)) {
		entry = cei_network_entry(network, named->region);
		return entry ? entry->generation : 0;
	}
	image = image_of_rank(network, named->rank, named->region);
	return image ? image->generation : 0;
}

uint32_t cei_network_still_aborted(struct cei_network *network,
				   const struct cei_note_abort *abort,
				   struct cei_network_signal *ret_signals)
{
	uint32_t i, n = 0;

	pthread_mutex_lock(&network->lock);
	for (i = 0; i < abort->n; i++)
		if (abort->signals[i].named.rank < cei_book_n_ranks(network->book) &&
		    abort->signals[i].generation ==
		    generation_of(network, &abort->signals[i].named))
			ret_signals[n++] = abort->signals[i].named;
	pthread_mutex_unlock(&network->lock);
	return n;
}

/* Whether the process owns the signal, or has found it here. */
static int concerns(struct cei_network *network, uint32_t process,
		    const struct cei_network_signal *named)
{
	uint32_t owner = cei_network_process(network, named->rank), i;
	const struct cei_network_entry *entry;

	if (owner != cei_book_own_process(network->book))
		return owner == process;
	entry = cei_network_entry(network, named->region);
	for (i = 0; entry && i < entry->n_uses; i++)
		if (entry->uses[i].process == process)
			return 1;
	return 0;
}

/* Fills a note with those signals that concern the process. */
static void fill_abort(struct cei_network *network, uint32_t process,
		       const struct cei_network_signal *signals, uint32_t n,
		       struct cei_note_abort *abort)
{
	uint32_t i;

	abort->n = 0;
	for (i = 0; i < n; i++)
		if (concerns(network, process, &signals[i]))
			abort->signals[abort->n++] = (struct cei_note_signal){
				signals[i], generation_of(network, &signals[i]) };
}

void cei_network_abort(struct cei_network *network, const struct cei_network_signal *signals,
		       uint32_t n, int error, uint32_t blame)
{
	uint32_t own = cei_book_own_process(network->book), process;
	struct cei_note note = { .type = CEI_NOTE_ABORT };

	note.abort.error = error;
	note.abort.blame = blame;
	pthread_mutex_lock(&network->lock);
	for (process = 0; process < cei_book_n_processes(network->book); process++) {
		if (process == own)
			continue;
		fill_abort(network, process, signals, n, &note.abort);
		if (note.abort.n)
			cei_network_note(network, process, &note);
	}
	pthread_mutex_unlock(&network->lock);
}

void cei_network_image_renewed(struct cei_network *network,
			       const struct cei_note_signal *signal)
{
	struct cei_network_image *image = image_of_rank(network, signal->named.rank,
							signal->named.region);

	if (!image)
		return;
	image->generation = signal->generation;
	memset(image->asked, 0, image->n_words * sizeof(*image->asked));
	for (; image->n_expected; image->n_expected--)
		cei_rail_expect(network->rail, image->process, -1);
}

/* Tells all users, and forgets what was asked about the old counters. Returns how many users there
 * are. */
static uint32_t tell_renewal(struct cei_network *network, struct cei_network_entry *entry,
			     uint64_t number)
{
	struct cei_note note = { .type = CEI_NOTE_RENEW };
	uint32_t i;

	entry->generation++;
	note.renew.number = number;
	note.renew.signal.named.rank = entry->export.rank;
	note.renew.signal.named.region = entry->region;
	note.renew.signal.generation = entry->generation;
	network->n_listeners -= entry->n_listeners;
	entry->n_listeners = 0;
	for (i = 0; i < entry->n_uses; i++)
		cei_network_note(network, entry->uses[i].process, &note);
	return entry->n_uses;
}

int cei_network_renew(struct cei_network *network, uint32_t region, uint64_t deadline_ns)
{
	struct cei_network_request request = { .process = CEOV_NOBODY };
	struct cei_network_entry *entry;
	int r = 0;

	pthread_mutex_lock(&network->lock);
	entry = cei_network_entry(network, region);
	if (entry) {
		cei_network_enter(network, &request);
		request.n_awaited = tell_renewal(network, entry, request.number);
		r = cei_network_await(network, &request, deadline_ns);
	}
	pthread_mutex_unlock(&network->lock);
	if (!r)
		return 0;
	return cei_raise(network->site->report, r == CEOV_NONE ? CEOV_ERR_TIMEOUT : r, 0,
			 "ceov_signal_renew: a process that uses the signal %s", r == CEOV_NONE ?
			 "has not answered in time" : "may be lost");
}
