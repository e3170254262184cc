/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What a client asks a daemon for, and the answers. */

#include "ipc/service_link_private.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"

/* Has the daemon release plans whose commits were given up before their answers came. Their numbers
 * tell the answers from those of later requests. The caller holds `asking`. */
static void drop_late(struct cei_service_link *link, uint64_t deadline_ns)
{
	struct cei_service_message drop = { .type = CEI_SERVICE_DROP };
	struct cei_service_late late[CEI_SERVICE_LATE_MAX];
	uint32_t n, i;
	int r = 0;

	pthread_mutex_lock(&link->lock);
	n = link->n_late;
	memcpy(late, link->late, n * sizeof(late[0]));
	link->n_late = 0;
	pthread_mutex_unlock(&link->lock);
	for (i = 0; !r && i < n; i++) {
		drop.number = late[i].number;
		drop.handle = late[i].handle;
		r = cei_service_say(link, &drop, deadline_ns);
	}
}

/* Returns the number of a new request. The caller holds `asking`. */
static uint32_t expect_answer(struct cei_service_link *link, uint64_t deadline_ns)
{
	uint32_t number;

	drop_late(link, deadline_ns);
	pthread_mutex_lock(&link->lock);
	if (link->answer_fd >= 0)
		close(link->answer_fd);
	link->answer_fd = -1;
	link->has_answer = 0;
	link->wants = 1;
	link->number += 1 + (link->number == UINT32_MAX);
	number = link->number;
	pthread_mutex_unlock(&link->lock);
	return number;
}

/* Waits for an answer of any type, and takes the descriptor that came with it. Not raised:
 * CEOV_ERR_DAEMON_LOST, none will come; CEOV_ERR_TIMEOUT. */
static int await_any(struct cei_service_link *link, uint64_t deadline_ns, int *ret_fd)
{
	int error = 0, r;

	pthread_mutex_lock(&link->lock);
	while (!link->has_answer && !link->has_end && !error)
		error = cei_condition_wait(&link->answered, &link->lock, deadline_ns);
	r = link->has_answer ? 0 : link->has_end ? CEOV_ERR_DAEMON_LOST : CEOV_ERR_TIMEOUT;
	link->wants = 0;
	*ret_fd = link->answer_fd;
	link->answer_fd = -1;
	pthread_mutex_unlock(&link->lock);
	return r;
}

/* Waits for the answer of a type, and takes the descriptor that came with it. Raises. */
static int await_answer(struct cei_service_link *link, uint32_t type, uint64_t deadline_ns,
			int *ret_fd)
{
	int r = await_any(link, deadline_ns, ret_fd);

	if (!r && link->answer.type == type)
		return 0;
	if (*ret_fd >= 0)
		close(*ret_fd);
	*ret_fd = -1;
	if (!r && link->answer.type == CEI_SERVICE_REFUSED)
		return cei_service_raise_refused(link, &link->answer.failure);
	if (r == CEOV_ERR_DAEMON_LOST)
		return cei_service_raise_lost(link);
	return cei_raise(link->config.report, r ? CEOV_ERR_TIMEOUT : CEOV_ERR_VERSION, 0,
			 "ceoverlapd: the daemon %s", r ? "does not answer in time"
			 : "gave an answer of another type");
}

static int send_fds(struct cei_service_link *link, const struct cei_service_program *program,
		    uint64_t deadline_ns)
{
	const struct cei_service_message part = { .type = CEI_SERVICE_PART };
	uint32_t n_fds = program->offer->n_fds, at;
	uint8_t bytes[64];
	struct cei_datagram datagram = { .bytes = bytes };
	int r = 0;

	datagram.n_bytes = cei_encode(&cei_service_protocol, &part, bytes);
	for (at = 0; !r && at < n_fds; at += datagram.n_fds) {
		datagram.fds = program->offer->fds + at;
		datagram.n_fds = n_fds - at < CEI_SERVICE_PART_FDS ? n_fds - at
			: CEI_SERVICE_PART_FDS;
		r = cei_service_send_by(link, &datagram, deadline_ns);
	}
	return r;
}

static int send_program(struct cei_service_link *link, const struct cei_service_program *program,
			uint64_t deadline_ns)
{
	struct cei_service_message message = { .type = CEI_SERVICE_PLAN,
					       .number = expect_answer(link, deadline_ns) };
	const uint8_t *bytes = program->bytes;
	size_t at;
	int r;

	message.plan.n_bytes = (uint32_t)program->n_bytes;
	message.plan.n_memories = program->offer->n_memories;
	message.plan.n_fds = program->offer->n_fds;
	r = cei_service_say(link, &message, deadline_ns);
	if (!r)
		r = send_fds(link, program, deadline_ns);
	message.type = CEI_SERVICE_PART;
	message.number = 0;
	for (at = 0; !r && at < program->n_bytes; at += message.part.n_bytes) {
		message.part.bytes = bytes + at;
		message.part.n_bytes = program->n_bytes - at < CEI_SERVICE_PART_BYTES
			? (uint32_t)(program->n_bytes - at) : CEI_SERVICE_PART_BYTES;
		r = cei_service_say(link, &message, deadline_ns);
	}
	return r;
}

int cei_service_commit(struct cei_service_link *link, const struct cei_service_program *program,
		       struct cei_service_handle *ret_handle)
{
	uint64_t deadline_ns;
	int r, fd;

	if (program->n_bytes > UINT32_MAX)
		return cei_raise(link->config.report, CEOV_ERR_INVALID, 0,
				 "ceoverlapd: a plan of %zu bytes is too large", program->n_bytes);
	pthread_mutex_lock(&link->asking);
	deadline_ns = cei_deadline(link->config.timeout_ns);
	r = send_program(link, program, deadline_ns);
	if (!r)
		r = await_answer(link, CEI_SERVICE_COMMITTED, deadline_ns, &fd);
	if (!r)
		*ret_handle = link->answer.handle;
	pthread_mutex_unlock(&link->asking);
	return r;
}

int cei_service_explain(struct cei_service_link *link, struct cei_service_handle handle,
			int *ret_fd)
{
	struct cei_service_message message = { .type = CEI_SERVICE_EXPLAIN, .handle = handle };
	uint64_t deadline_ns;
	int r;

	pthread_mutex_lock(&link->asking);
	deadline_ns = cei_deadline(link->config.timeout_ns);
	message.number = expect_answer(link, deadline_ns);
	r = cei_service_say(link, &message, deadline_ns);
	if (!r)
		r = await_answer(link, CEI_SERVICE_EXPLAINED, deadline_ns, ret_fd);
	pthread_mutex_unlock(&link->asking);
	return r;
}

/* Says what has no answer. */
static void tell(struct cei_service_link *link, const struct cei_service_message *message)
{
	pthread_mutex_lock(&link->asking);
	if (!atomic_load(&link->is_lost))
		(void)cei_service_say(link, message, cei_deadline(link->config.timeout_ns));
	pthread_mutex_unlock(&link->asking);
}

/* 0: the daemon has released the plan, or has died and touches no memory any more. Not raised:
 * CEOV_ERR_TIMEOUT, it may still have the memory mapped. */
static int await_dropped(struct cei_service_link *link, uint64_t deadline_ns)
{
	int fd = -1, r = await_any(link, deadline_ns, &fd);

	if (fd >= 0)
		close(fd);
	if (r != CEOV_ERR_DAEMON_LOST)
		return r;
	return cei_service_link_await_loss(link, deadline_ns) == CEOV_PENDING ? CEOV_ERR_TIMEOUT
		: 0;
}

/* A request that cannot be sent has raised that already. */
static int ask_to_drop(struct cei_service_link *link, struct cei_service_handle handle,
		       uint64_t deadline_ns)
{
	const struct cei_service_message message = { .type = CEI_SERVICE_DROP,
						     .number = expect_answer(link, deadline_ns),
						     .handle = handle };

	if (!atomic_load(&link->is_lost) && cei_service_say(link, &message, deadline_ns) &&
	    !atomic_load(&link->is_lost))
		return 0;
	return await_dropped(link, deadline_ns);
}

void cei_service_drop(struct cei_service_link *link, struct cei_service_handle handle)
{
	int r;

	pthread_mutex_lock(&link->asking);
	r = ask_to_drop(link, handle, cei_deadline(link->config.timeout_ns));
	pthread_mutex_unlock(&link->asking);
	if (r)
		(void)cei_raise(link->config.report, r, 0, "ceoverlapd: the daemon at %s does not "
				"say in time that it has released a plan, and may still have its "
				"memory mapped", link->config.path);
}

void cei_service_tell_stayed(struct cei_service_link *link, uint64_t n_plans)
{
	const struct cei_service_message message = { .type = CEI_SERVICE_STAYED,
						     .stayed = { n_plans } };

	tell(link, &message);
}
