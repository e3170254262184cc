/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Living and dead handles, whether a handle may be used, and the memory of dead ones, which is
 * freed late. */

#include "ce_engine/objects/object.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ce_engine/objects/context.h"

/* --- tombstones ------------------------------------------------------------ */

struct tombstones {
	_Atomic uint64_t n;             /* number of entries ever added */
	_Atomic(void *) *slots;
	uint64_t         n_slots;
};

static _Atomic(void *) handle_tombstones[CEI_TOMBSTONES_HANDLES];
static _Atomic(void *) context_tombstones[CEI_TOMBSTONES_CONTEXTS];
static struct tombstones handles = { 0, handle_tombstones, CEI_TOMBSTONES_HANDLES };
static struct tombstones contexts = { 0, context_tombstones, CEI_TOMBSTONES_CONTEXTS };

static void keep(struct tombstones *tombstones, void *memory)
{
	/* relaxed: only gives each caller a different slot */
	uint64_t i = atomic_fetch_add_explicit(&tombstones->n, 1, memory_order_relaxed);

	/* acq_rel: pairs with itself, so that the free comes after the write of whoever
	 * added it */
	free(atomic_exchange_explicit(&tombstones->slots[i % tombstones->n_slots], memory,
				      memory_order_acq_rel));
}

/* Gives whole pages behind the first one back to the system; they read as zeros then. */
static void give_back_pages(void *memory, size_t n_bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t first = ((uintptr_t)memory / page + 2) * page;
	uintptr_t end = ((uintptr_t)memory + n_bytes) / page * page;

	if (first < end)                /* madvise() is only advice, so a failure does no harm */
		(void)madvise((char *)memory + (first - (uintptr_t)memory), end - first,
			      MADV_DONTNEED);
}

void cei_tombstones_keep_context(void *memory, size_t n_bytes)
{
	give_back_pages(memory, n_bytes);
	keep(&contexts, memory);
}

/* --- handles --------------------------------------------------------------- */

void cei_object_init(struct cei_object *object, ceov_context *context,
		     const struct cei_object_type *type)
{
	struct cei_list *list = (struct cei_list *)((char *)context + type->list_at);

	object->state = CEI_OBJECT_ALIVE;
	object->type = type;
	object->context = context;
	object->n_users = 0;
	pthread_mutex_lock(&context->lock);
	cei_list_append(list, &object->link);
	pthread_mutex_unlock(&context->lock);
}

struct cei_report *cei_object_report(const struct cei_object *object)
{
	return &object->context->report;
}

int cei_context_check(const ceov_context *context, const char *call)
{
	if (!context)
		return cei_raise_unlogged(CEOV_ERR_INVALID, "%s: the context is NULL", call);
	if (context->state != CEI_CONTEXT_OPEN)
		return cei_raise_unlogged(CEOV_ERR_INVALID, "%s: the context was closed", call);
	return *context->alive ? 0 : cei_raise_forked(call);
}

int cei_object_check(const void *handle, const struct cei_object_type *type, const char *call)
{
	const struct cei_object *object = handle;
	int r;

	if (!object)
		return cei_raise_unlogged(CEOV_ERR_INVALID, "%s: the %s is NULL", call, type->name);
	if (object->state != CEI_OBJECT_ALIVE && object->state != CEI_OBJECT_DEAD)
		return cei_raise_unlogged(CEOV_ERR_INVALID, "%s: the %s is no handle of this "
					  "library, or one that is long gone", call, type->name);
	if (!object->context)
		return cei_raise_unlogged(CEOV_ERR_INVALID, "%s: the %s was released long before, "
					  "or its context was closed", call, object->type->name);
	r = cei_context_check(object->context, call);
	if (r)
		return r;
	if (object->state == CEI_OBJECT_DEAD)
		return cei_raise(&object->context->report, CEOV_ERR_INVALID, 0,
				 "%s: the %s was released before", call, object->type->name);
	if (object->type == type)
		return 0;
	return cei_raise(&object->context->report, CEOV_ERR_INVALID, 0,
			 "%s: wants a %s and got a %s", call, type->name,
			 object->type->name);
}

/* The caller holds the context's lock. */
static void mark_dead(struct cei_object *object)
{
	cei_list_remove(&object->link);
	object->state = CEI_OBJECT_DEAD;
}

int cei_object_claim(struct cei_object *object, const char *call)
{
	ceov_context *context = object->context;
	int r = 0;

	pthread_mutex_lock(&context->lock);
	if (object->state == CEI_OBJECT_DEAD)
		r = CEOV_ERR_INVALID;
	else if (object->n_users)
		r = CEOV_PENDING;
	else
		mark_dead(object);
	pthread_mutex_unlock(&context->lock);
	if (r >= 0)
		return r;
	return cei_raise(&context->report, r, 0,
			 "%s: another thread releases the same handle", call);
}

void cei_object_end(struct cei_object *object)
{
	pthread_mutex_lock(&object->context->lock);
	mark_dead(object);
	pthread_mutex_unlock(&object->context->lock);
}

/* Makes an object that has left the quarantine a tombstone. */
static void forget(struct cei_list *node)
{
	struct cei_object *object = CEI_OWNER(node, struct cei_object, link);

	object->context = NULL;
	keep(&handles, object);
}

void cei_object_quarantine(struct cei_object *object)
{
	ceov_context *context = object->context;
	struct cei_list *oldest = NULL;

	pthread_mutex_lock(&context->lock);
	cei_list_append(&context->quarantine, &object->link);
	if (++context->n_quarantined > CEI_QUARANTINE_MAX) {
		oldest = cei_list_take(&context->quarantine);
		context->n_quarantined--;
	}
	pthread_mutex_unlock(&context->lock);
	if (oldest)
		forget(oldest);
}

void cei_objects_forget(ceov_context *context)
{
	struct cei_list *node;

	while ((node = cei_list_take(&context->quarantine)))
		forget(node);
}

void cei_shared_name_set(struct cei_shared_name *name, const char *text)
{
	snprintf(name->text, sizeof(name->text), "%s", text);
	/* release: pairs with cei_shared_name_text() */
	atomic_store_explicit(&name->is_set, 1, memory_order_release);
}

const char *cei_shared_name_text(const struct cei_shared_name *name)
{
	/* acquire: pairs with cei_shared_name_set() */
	return atomic_load_explicit(&name->is_set, memory_order_acquire) ? name->text : "";
}

void cei_object_use(struct cei_object *object)
{
	pthread_mutex_lock(&object->context->lock);
	object->n_users++;
	pthread_mutex_unlock(&object->context->lock);
}

void cei_object_unuse(struct cei_object *object)
{
	pthread_mutex_lock(&object->context->lock);
	object->n_users--;
	pthread_mutex_unlock(&object->context->lock);
}

uint32_t cei_object_n_users(struct cei_object *object)
{
	uint32_t n;

	pthread_mutex_lock(&object->context->lock);
	n = object->n_users;
	pthread_mutex_unlock(&object->context->lock);
	return n;
}
