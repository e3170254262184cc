/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What every context begins with, and how what it holds is destroyed. */

#include "ce_engine/context_life.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/export.h"
#include "ce_engine/objects/signal.h"
#include "ce_engine/plan/local_door.h"
#include "ce_engine/plan/plan_release.h"

void cei_context_begin(ceov_context *context, void (*log)(void *, const char *), void *log_arg)
{
	context->state = CEI_CONTEXT_OPEN;
	cei_report_init(&context->report, log, log_arg);
	context->door = &cei_local_door;
	context->settle = cei_plans_settle;
	cei_list_init(&context->buffers);
	cei_list_init(&context->signals);
	cei_list_init(&context->plans);
	cei_list_init(&context->stuck);
	cei_list_init(&context->uppers);
	cei_list_init(&context->exports);
	cei_list_init(&context->far);
	cei_list_init(&context->quarantine);
	pthread_mutex_init(&context->lock, NULL);
	pthread_mutex_init(&context->far_lock, NULL);
	cei_tickets_init(&context->tickets);
}

int cei_context_make_alive(ceov_context *context)
{
	long page = sysconf(_SC_PAGESIZE);
	uint64_t *alive = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (alive == MAP_FAILED)
		return cei_raise(&context->report, CEOV_ERR_SYSTEM, errno,
				 "ceov_open: mmap of one page");
	context->alive = alive;
	if (madvise(alive, (size_t)page, MADV_WIPEONFORK))
		return cei_raise(&context->report, CEOV_ERR_SYSTEM, errno,
				 "ceov_open: MADV_WIPEONFORK (Linux 4.14 or newer)");
	*alive = 1;
	return 0;
}

/* Releases what was found at peers: they may wait for that before they close. */
static void let_go_of_peers(ceov_context *context)
{
	struct cei_list *node, *next;
	struct ceov_signal *signal;
	struct ceov_buffer *buffer;

	for (node = context->signals.next; node != &context->signals; node = next) {
		next = node->next;
		signal = CEI_OWNER(node, struct ceov_signal, object.link);
		if (signal->found_use || signal->far)
			cei_signal_destroy(signal);
	}
	for (node = context->buffers.next; node != &context->buffers; node = next) {
		next = node->next;
		buffer = CEI_OWNER(node, struct ceov_buffer, object.link);
		if (buffer->found_use || buffer->far)
			cei_buffer_destroy(buffer);
	}
}

/* Withdraws all exports. Returns how many of them peers still use. */
static uint32_t withdraw_exports(ceov_context *context)
{
	struct cei_list *node, *next;
	uint32_t n = 0;

	for (node = context->exports.next; node != &context->exports; node = next) {
		next = node->next;
		n += cei_export_withdraw(context, CEI_OWNER(node, struct cei_local_export,
							    link)->id) == CEOV_PENDING;
	}
	return n;
}

/* Waits, for a bounded time, until peers no longer use exported memory, because it is freed
 * next. A peer of another node, or a way to it, that falls silent meanwhile is lost, so that nobody
 * waits longer for it. */
static void wait_for_users(ceov_context *context)
{
	uint64_t deadline = cei_deadline(CEI_CLOSE_NS);
	struct cei_backoff backoff;
	uint32_t n;

	cei_backoff_reset(&backoff);
	cei_context_await(context, 1);
	while ((n = withdraw_exports(context)) && cei_now_ns() < deadline)
		cei_backoff_step(&backoff);
	cei_context_await(context, -1);
	if (n)
		cei_log(&context->report, CEI_LOG_WARN,
			"ceov_close: peers still use %u of our buffers and signals; let "
			"all ranks meet before one closes", n);
}

/* Found handles go before the handles that own their regions. */
void cei_context_destroy_objects(ceov_context *context)
{
	struct cei_object *upper;
	struct cei_list *node;

	while ((node = context->uppers.previous) != &context->uppers) {
		upper = CEI_OWNER(node, struct cei_object, link);
		upper->type->destroy(upper);
	}
	while ((node = context->plans.next) != &context->plans)
		cei_plan_destroy(CEI_OWNER(node, struct ceov_plan, object.link));
	cei_plans_destroy_released(context);
	let_go_of_peers(context);
	wait_for_users(context);
	while ((node = context->signals.previous) != &context->signals)
		cei_signal_destroy(CEI_OWNER(node, struct ceov_signal, object.link));
	while ((node = context->buffers.previous) != &context->buffers)
		cei_buffer_destroy(CEI_OWNER(node, struct ceov_buffer, object.link));
	cei_objects_forget(context);
	while ((node = cei_list_take(&context->exports)))
		free(CEI_OWNER(node, struct cei_local_export, link));
}

void cei_context_end(ceov_context *context)
{
	if (context->alive)
		munmap((void *)(uintptr_t)context->alive, (size_t)sysconf(_SC_PAGESIZE));
	free((void *)context->is_lost);
	cei_tickets_fini(&context->tickets);
	pthread_mutex_destroy(&context->lock);
	pthread_mutex_destroy(&context->far_lock);
	cei_report_fini(&context->report);
	context->state = CEI_CONTEXT_CLOSED;
	cei_tombstones_keep_context(context, sizeof(*context));
}
