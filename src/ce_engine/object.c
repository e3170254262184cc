/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Living and dead handles. */

#include "ce_engine/object.h"

#include "ce_engine/context.h"
#include "ce_engine/graves.h"

static const char *kind_name(enum cei_object_kind kind)
{
	switch (kind) {
	case CEI_OBJECT_BUFFER: return "buffer";
	case CEI_OBJECT_SIGNAL: return "signal";
	case CEI_OBJECT_PLAN:   return "plan";
	case CEI_OBJECT_WORKSPACE: return "workspace";
	case CEI_OBJECT_OP:     return "op";
	case CEI_OBJECT_DEAD:   return "released handle";
	}
	return "no handle of this library";
}

static struct cei_list *list_of(ceov_context *context, enum cei_object_kind kind)
{
	switch (kind) {
	case CEI_OBJECT_BUFFER: return &context->buffers;
	case CEI_OBJECT_SIGNAL: return &context->signals;
	case CEI_OBJECT_PLAN:   return &context->plans;
	case CEI_OBJECT_WORKSPACE:
	case CEI_OBJECT_OP:     return &context->uppers;
	case CEI_OBJECT_DEAD:   break;
	}
	return &context->buried;
}

void cei_object_init(struct cei_object *object, ceov_context *context,
		     enum cei_object_kind kind)
{
	object->kind = kind;
	object->was = kind;
	object->context = context;
	object->n_users = 0;
	pthread_mutex_lock(&context->lock);
	cei_list_append(list_of(context, kind), &object->link);
	pthread_mutex_unlock(&context->lock);
}

static int is_known(enum cei_object_kind kind)
{
	switch (kind) {
	case CEI_OBJECT_BUFFER:
	case CEI_OBJECT_SIGNAL:
	case CEI_OBJECT_PLAN:
	case CEI_OBJECT_WORKSPACE:
	case CEI_OBJECT_OP:
	case CEI_OBJECT_DEAD:
		return 1;
	}
	return 0;
}

/* Its context may be gone, and the caller's log with it: to stderr. */
static int refuse_forgotten(const struct cei_object *object, const char *call)
{
	struct cei_report report;
	int r;

	cei_report_init(&report, NULL, NULL);
	r = cei_raise(&report, CEOV_ERR_INVALID, 0,
		      "%s: the %s was released long before, or its context was closed",
		      call, kind_name(object->was));
	cei_report_fini(&report);
	return r;
}

int cei_object_check(const void *handle, enum cei_object_kind kind, const char *call)
{
	const struct cei_object *object = handle;
	int r;

	if (!object || !is_known(object->kind))
		return CEOV_ERR_INVALID;
	if (!object->context)
		return refuse_forgotten(object, call);
	r = cei_context_check(object->context);
	if (r)
		return r;
	if (object->kind == kind)
		return 0;
	if (object->kind == CEI_OBJECT_DEAD)
		return cei_raise(&object->context->report, CEOV_ERR_INVALID, 0,
				 "%s: the %s was released before", call,
				 kind_name(object->was));
	return cei_raise(&object->context->report, CEOV_ERR_INVALID, 0,
			 "%s: wants a %s and got a %s", call, kind_name(kind),
			 kind_name(object->kind));
}

/* With the context's lock held. */
static void mark_dead(struct cei_object *object)
{
	cei_list_remove(&object->link);
	object->was = object->kind;
	object->kind = CEI_OBJECT_DEAD;
}

int cei_object_claim(struct cei_object *object, const char *call)
{
	ceov_context *context = object->context;
	int r = 0;

	pthread_mutex_lock(&context->lock);
	if (object->kind == CEI_OBJECT_DEAD)
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

/* An object that has left the quarantine. */
static void forget(struct cei_list *node)
{
	struct cei_object *object = CEI_OWNER(node, struct cei_object, link);

	object->context = NULL;
	cei_graves_keep_handle(object);
}

void cei_object_bury(struct cei_object *object)
{
	ceov_context *context = object->context;
	struct cei_list *oldest = NULL;

	pthread_mutex_lock(&context->lock);
	cei_list_append(&context->buried, &object->link);
	if (++context->n_buried > CEI_QUARANTINE_MAX) {
		oldest = cei_list_take(&context->buried);
		context->n_buried--;
	}
	pthread_mutex_unlock(&context->lock);
	if (oldest)
		forget(oldest);
}

void cei_objects_forget(ceov_context *context)
{
	struct cei_list *node;

	while ((node = cei_list_take(&context->buried)))
		forget(node);
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
