/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Counters of exports across nodes. The owner's are in its memory; who has found the export has an
 * image of them. Who waits for a counter asks (ASK), and the owner tells each change that it sees
 * (VALUE) until the value is reached. Of several values that wait to be sent for one counter the
 * highest is, so there are no more messages than counters. A renewal begins a generation; what is
 * said of an older one comes too late and is ignored.
 */

#include "ipc/group/group_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/word.h"

/* --- images ---------------------------------------------------------------------------- */

int cei_group_watch(struct cei_group *group, uint32_t rank, uint64_t number,
		    _Atomic uint64_t *words, uint32_t n_words)
{
	struct cei_group_use *use = cei_group_held(group, rank, number);
	uint64_t *asked = use ? calloc(n_words, sizeof(*asked)) : NULL;

	if (!asked)
		return use ? CEOV_ERR_NO_MEMORY : CEOV_ERR_INVALID;
	use->words = words;
	use->asked = asked;
	use->n_words = n_words;
	return 0;
}

static void await_owner(struct cei_group *group, struct cei_group_use *use, int by)
{
	use->n_asked += (uint32_t)by;
	cei_group_await(group, use->owed.process, by);
}

/* What was asked for does not come any more. */
void cei_counters_renewed(struct cei_group *group, struct cei_group_use *use)
{
	if (use->asked)
		memset(use->asked, 0, use->n_words * sizeof(*use->asked));
	while (use->n_asked)
		await_owner(group, use, -1);
}

void cei_group_forget(struct cei_group *group, uint32_t rank, uint64_t number)
{
	struct cei_group_use *use = cei_group_held(group, rank, number);

	if (!use)
		return;
	cei_counters_renewed(group, use);
	free(use->asked);
	use->asked = NULL;
	use->words = NULL;
	use->n_words = 0;
}

static uint64_t value_of(const _Atomic uint64_t *word)
{
	/* acquire: pairs with the release of whoever raised the counter. The process that hears the
	 * value may overwrite memory that the raiser read before it raised the counter. */
	return atomic_load_explicit(word, memory_order_acquire);
}

/* --- raising and asking ---------------------------------------------------------------------- */

static uint64_t key_of(uint32_t process, uint32_t id, uint32_t index)
{
	return cei_group_key(process, (uint64_t)id << 32 | index);
}

static struct cei_counter_note *note_of(struct cei_group *group, struct cei_group_peer *peer,
					const struct cei_group_counter *counter,
					enum cei_owed_kind kind)
{
	uint64_t key = key_of(peer->process, counter->id, counter->index);
	struct cei_counter_note *note;
	struct cei_table_node *node;

	for (node = cei_table_first(&group->tables[CEI_NOTES_BY_COUNTER], key); node;
	     node = cei_table_next(node)) {
		note = CEI_OWNER(node, struct cei_counter_note, by_counter);
		if (note->owed.kind == kind && note->owed.process == peer->process &&
		    note->counter.id == counter->id && note->counter.index == counter->index)
			return note;
	}
	note = cei_pool_take(&group->pools[CEI_NOTES]);
	if (!note)
		return NULL;
	note->counter = *counter;
	note->counter.value = 0;
	cei_list_init(&note->link);
	cei_list_append(&peer->notes, &note->link);
	cei_table_add(&group->tables[CEI_NOTES_BY_COUNTER], &note->by_counter, key);
	return note;
}

/* Sends the counter's value, or a higher one that waits already. */
static int say(struct cei_group *group, const struct cei_group_use *use,
	       struct cei_group_counter *counter, enum cei_owed_kind kind)
{
	struct cei_group_peer *peer = group->peers[use->owed.process];
	struct cei_counter_note *note;

	counter->id = use->id;
	counter->generation = use->generation;
	note = note_of(group, peer, counter, kind);
	if (!note)
		return CEOV_ERR_NO_MEMORY;
	if (note->owed.state != CEI_OWED_NOT &&
	    note->counter.generation == counter->generation &&
	    note->counter.value >= counter->value)
		return 0;
	note->counter = *counter;
	cei_owe(group, &note->owed, kind, peer->process, 0);
	return 0;
}

int cei_group_raise(struct cei_group *group, uint32_t rank, uint64_t number, uint32_t index,
		    uint64_t value)
{
	const struct cei_group_use *use = cei_group_held(group, rank, number);
	struct cei_group_counter counter = { .index = index, .value = value };

	if (!use)
		return CEOV_ERR_INVALID;
	if (group->is_expelled || group->life[use->owed.process] != CEI_GROUP_UP)
		return CEOV_ERR_PEER_LOST;
	return say(group, use, &counter, CEI_OWED_RAISE);
}

void cei_group_ask(struct cei_group *group, uint32_t rank, uint64_t number, uint32_t index,
		   uint64_t value)
{
	struct cei_group_use *use = cei_group_held(group, rank, number);
	struct cei_group_counter counter = { .index = index, .value = value };

	if (!use || index >= use->n_words || value_of(&use->words[index]) >= value ||
	    use->asked[index] >= value || group->life[use->owed.process] != CEI_GROUP_UP ||
	    group->is_expelled || say(group, use, &counter, CEI_OWED_ASK))
		return;
	if (!use->asked[index])
		await_owner(group, use, 1);
	use->asked[index] = value;
}

int cei_group_hear_value(struct cei_group *group, struct cei_group_peer *peer,
			 const struct cei_group_counter *told)
{
	struct cei_group_use *use = NULL;

	while ((use = cei_group_use_of(group, peer->process, told->id, use)) != NULL) {
		if (use->generation != told->generation || told->index >= use->n_words)
			continue;
		(void)cei_word_raise(&use->words[told->index], told->value);
		if (!use->asked[told->index] || told->value < use->asked[told->index])
			continue;
		use->asked[told->index] = 0;
		await_owner(group, use, -1);
	}
	return 0;
}

/* --- counters of this process -------------------------------------------------------------- */

static _Atomic uint64_t *word_of(const struct cei_group_entry *entry,
				 const struct cei_group_counter *counter)
{
	if (!entry || counter->index >= entry->export.n_words ||
	    counter->generation != entry->generation)
		return NULL;
	return &entry->export.words[counter->index];
}

int cei_group_hear_raise(struct cei_group *group, const struct cei_group_counter *raise)
{
	_Atomic uint64_t *word = word_of(cei_group_entry(group, raise->id), raise);

	if (raise->value >= CEOV_VALUE_LIMIT)
		return CEOV_ERR_INVALID;
	if (word)
		(void)cei_word_raise(word, raise->value);
	return 0;
}

static void end_listener(struct cei_group *group, struct cei_listener *listener)
{
	cei_owed_forget(group, &listener->owed);
	cei_list_remove(&listener->of);
	cei_list_remove(&listener->looked);
	cei_list_remove(&listener->link);
	cei_table_remove(&group->tables[CEI_LISTENERS_BY_COUNTER], &listener->by_counter);
	cei_pool_put(&group->pools[CEI_LISTENERS], listener);
}

void cei_counters_end_listeners(struct cei_group *group, struct cei_group_entry *entry)
{
	while (!cei_list_is_empty(&entry->listeners))
		end_listener(group, CEI_OWNER(entry->listeners.next, struct cei_listener, of));
}

void cei_counters_unused(struct cei_group *group, struct cei_group_entry *entry,
			 struct cei_group_peer *peer)
{
	struct cei_list *node, *next;
	struct cei_listener *listener;

	for (node = peer->listeners.next; node != &peer->listeners; node = next) {
		next = node->next;
		listener = CEI_OWNER(node, struct cei_listener, link);
		if (listener->entry == entry)
			end_listener(group, listener);
	}
}

/* Tells the listener the counter's value if that has changed. Returns whether it is told. Poison is
 * not: an abort has a message of its own, which raises the abort word first. */
static int tell(struct cei_group *group, struct cei_listener *listener)
{
	uint64_t value = value_of(&listener->entry->export.words[listener->index]);

	if (value <= listener->told || value >= CEOV_VALUE_LIMIT)
		return 0;
	listener->told = value;
	cei_owe(group, &listener->owed, CEI_OWED_VALUE, listener->process, 0);
	return 1;
}

int cei_group_look(struct cei_group *group)
{
	struct cei_list *node;
	int has_told = 0;

	for (node = group->listening.next; node != &group->listening; node = node->next)
		has_told |= tell(group, CEI_OWNER(node, struct cei_listener, looked));
	return has_told;
}

int cei_group_has_listeners(const struct cei_group *group)
{
	return !cei_list_is_empty(&group->listening);
}

/* It was heard what the listener was told: that may have been all that it asked for. */
void cei_counters_value_paid(struct cei_group *group, struct cei_owed *owed)
{
	struct cei_listener *listener = CEI_OWNER(owed, struct cei_listener, owed);

	if (listener->told >= listener->until)
		end_listener(group, listener);
}

static struct cei_listener *listener_of(struct cei_group *group, struct cei_group_peer *peer,
					struct cei_group_entry *entry, uint32_t index)
{
	uint64_t key = key_of(peer->process, entry->id, index);
	struct cei_listener *listener;
	struct cei_table_node *node;

	for (node = cei_table_first(&group->tables[CEI_LISTENERS_BY_COUNTER], key); node;
	     node = cei_table_next(node)) {
		listener = CEI_OWNER(node, struct cei_listener, by_counter);
		if (listener->process == peer->process && listener->entry == entry &&
		    listener->index == index)
			return listener;
	}
	listener = cei_pool_take(&group->pools[CEI_LISTENERS]);
	if (!listener)
		return NULL;
	listener->entry = entry;
	listener->process = peer->process;
	listener->index = index;
	cei_list_init(&listener->link);
	cei_list_init(&listener->of);
	cei_list_init(&listener->looked);
	cei_list_append(&peer->listeners, &listener->link);
	cei_list_append(&entry->listeners, &listener->of);
	cei_list_append(&group->listening, &listener->looked);
	cei_table_add(&group->tables[CEI_LISTENERS_BY_COUNTER], &listener->by_counter, key);
	return listener;
}

int cei_group_hear_ask(struct cei_group *group, struct cei_group_peer *peer,
		       const struct cei_group_counter *ask)
{
	struct cei_group_entry *entry = cei_group_entry(group, ask->id);
	struct cei_listener *listener;

	if (!word_of(entry, ask))
		return 0;
	if (!cei_group_carrier_of(group, peer->process)->is_sure &&
	    !cei_group_is_used_by(entry, peer->process))
		return 0;               /* it comes behind the drop */
	listener = listener_of(group, peer, entry, ask->index);
	if (!listener)
		return CEOV_FULL;
	if (listener->until < ask->value)
		listener->until = ask->value;
	(void)tell(group, listener);
	return 0;
}

/* --- what is owed ------------------------------------------------------------------------- */

void cei_counters_fill(const struct cei_owed *owed, struct cei_group_message *message)
{
	const struct cei_listener *listener;

	if (owed->kind != CEI_OWED_VALUE) {
		message->counter = CEI_OWNER(owed, struct cei_counter_note, owed)->counter;
		return;
	}
	listener = CEI_OWNER(owed, struct cei_listener, owed);
	message->counter = (struct cei_group_counter){
		.id = listener->entry->id, .index = listener->index,
		.generation = listener->entry->generation, .value = listener->told };
}

void cei_counters_note_paid(struct cei_group *group, struct cei_owed *owed)
{
	struct cei_counter_note *note = CEI_OWNER(owed, struct cei_counter_note, owed);

	cei_list_remove(&note->link);
	cei_table_remove(&group->tables[CEI_NOTES_BY_COUNTER], &note->by_counter);
	cei_pool_put(&group->pools[CEI_NOTES], note);
}

static void end_note(struct cei_group *group, struct cei_counter_note *note)
{
	cei_owed_forget(group, &note->owed);
	cei_counters_note_paid(group, &note->owed);
}

void cei_counters_dropped(struct cei_group *group, struct cei_group_peer *peer, uint32_t id)
{
	struct cei_counter_note *note;
	struct cei_list *node, *next;

	for (node = peer->notes.next; node != &peer->notes; node = next) {
		next = node->next;
		note = CEI_OWNER(node, struct cei_counter_note, link);
		if (note->owed.kind == CEI_OWED_ASK && note->counter.id == id)
			end_note(group, note);
	}
}

void cei_counters_end(struct cei_group *group, struct cei_group_peer *peer)
{
	while (!cei_list_is_empty(&peer->notes))
		end_note(group, CEI_OWNER(peer->notes.next, struct cei_counter_note, link));
	while (!cei_list_is_empty(&peer->listeners))
		end_listener(group, CEI_OWNER(peer->listeners.next, struct cei_listener, link));
}
