/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* A thread for what takes long. */

#include "daemon/server/porter.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"

/* Returns the first task whose time has come, or NULL and the time of the earliest one. With the
 * lock held. */
static struct cei_task *next_task(struct cei_porter *porter, uint64_t *ret_when_ns)
{
	uint64_t now = cei_now_ns();
	struct cei_list *node;
	struct cei_task *task;

	*ret_when_ns = CEI_FOREVER;
	for (node = porter->tasks.next; node != &porter->tasks; node = node->next) {
		task = CEI_OWNER(node, struct cei_task, link);
		if (task->not_before_ns <= now)
			return task;
		if (task->not_before_ns < *ret_when_ns)
			*ret_when_ns = task->not_before_ns;
	}
	return NULL;
}

/* With the lock held, which is given up while the task runs. */
static void carry_out(struct cei_porter *porter, struct cei_task *task)
{
	int r;

	cei_list_remove(&task->link);
	pthread_mutex_unlock(&porter->lock);
	r = task->run(task);
	pthread_mutex_lock(&porter->lock);
	if (r == CEOV_PENDING) {
		task->not_before_ns = cei_deadline(CEI_PORTER_PAUSE_NS);
		cei_list_append(&porter->tasks, &task->link);
		return;
	}
	cei_list_append(&porter->finished, &task->link);
	cei_ring_eventfd(porter->bell);
}

static void *porter_main(void *arg)
{
	struct cei_porter *porter = arg;
	struct cei_task *task;
	uint64_t when_ns;

	pthread_setname_np(pthread_self(), "ceov-porter");
	pthread_mutex_lock(&porter->lock);
	while (!porter->must_end || !cei_list_is_empty(&porter->tasks)) {
		task = next_task(porter, &when_ns);
		if (task)
			carry_out(porter, task);
		else
			cei_condition_wait(&porter->came, &porter->lock, when_ns);
	}
	pthread_mutex_unlock(&porter->lock);
	return NULL;
}

int cei_porter_init(struct cei_porter *porter, struct cei_report *report)
{
	int error;

	pthread_mutex_init(&porter->lock, NULL);
	(void)cei_condition_init(&porter->came);        /* on Linux it cannot fail */
	cei_list_init(&porter->tasks);
	cei_list_init(&porter->finished);
	porter->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (porter->bell < 0)
		return cei_raise(report, CEOV_ERR_SYSTEM, errno, "the porter's bell: %s",
				 strerror(errno));
	error = pthread_create(&porter->thread, NULL, porter_main, porter);
	if (error)
		return cei_raise(report, CEOV_ERR_SYSTEM, error, "the porter's thread: %s",
				 strerror(error));
	porter->has_thread = 1;
	return 0;
}

void cei_porter_fini(struct cei_porter *porter)
{
	if (!porter->has_thread)
		return;
	pthread_mutex_lock(&porter->lock);
	porter->must_end = 1;
	pthread_cond_signal(&porter->came);
	pthread_mutex_unlock(&porter->lock);
	pthread_join(porter->thread, NULL);
	porter->has_thread = 0;
	cei_porter_finish(porter);
	close(porter->bell);
	pthread_cond_destroy(&porter->came);
	pthread_mutex_destroy(&porter->lock);
}

void cei_porter_give(struct cei_porter *porter, struct cei_task *task)
{
	task->not_before_ns = 0;
	pthread_mutex_lock(&porter->lock);
	cei_list_append(&porter->tasks, &task->link);
	pthread_cond_signal(&porter->came);
	pthread_mutex_unlock(&porter->lock);
}

void cei_porter_finish(struct cei_porter *porter)
{
	struct cei_list *node;
	struct cei_task *task;

	for (;;) {
		pthread_mutex_lock(&porter->lock);
		node = cei_list_take(&porter->finished);
		pthread_mutex_unlock(&porter->lock);
		if (!node)
			return;
		task = CEI_OWNER(node, struct cei_task, link);
		task->done(task);
	}
}
