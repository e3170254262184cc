/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * An exchange by PMIx, the interface of process managers: mpirun and srun start its server beside
 * the processes. Each process puts its bytes under a key, all take part in a fence, which
 * collects them, and each gets those of all.
 *
 * The library is opened at run time, so that ceoverlap runs without it; one that the application
 * uses already, such as MPI's, is shared. Structs are filled by hand, because the header's macros
 * call functions of the library.
 *
 * PMIx's server does not take a process back that has finalized, so a process connects to it once,
 * and finalizes when it exits.
 *
 * The library's own calls may not come back in time, so all that wait are made without blocking;
 * the first one, which connects to the server on this machine, cannot be.
 * A reply that comes after the deadline finds its memory: who comes last frees it.
 */

#include <dlfcn.h>
#include <pmix.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/exchange_numbers.h"
#include "net/means.h"

#define LIBRARY   "libpmix.so.2"
#define KEYS_MAX  65536u                /* exchanges of a group within one job */
#define ASKED_MAX 4096u                 /* processes that are asked for when some are missing */

struct calls {
	pmix_status_t (*init)(pmix_proc_t *, pmix_info_t *, size_t);
	pmix_status_t (*finalize)(const pmix_info_t *, size_t);
	pmix_status_t (*put)(pmix_scope_t, const char *, pmix_value_t *);
	pmix_status_t (*commit)(void);
	pmix_status_t (*fence_nb)(const pmix_proc_t *, size_t, const pmix_info_t *, size_t,
				  pmix_op_cbfunc_t, void *);
	pmix_status_t (*get_nb)(const pmix_proc_t *, const char *, const pmix_info_t *, size_t,
				pmix_value_cbfunc_t, void *);
	const char   *(*error_string)(pmix_status_t);
};

/* The connection to the server, which exists once per process. */
static struct {
	pthread_mutex_t lock;           /* guards the rest */
	pid_t           pid;            /* of the process that has connected; 0: none has */
	struct calls    calls;
	pmix_proc_t     own;
} client = { .lock = PTHREAD_MUTEX_INITIALIZER };

struct pmix {
	struct calls calls;             /* those of the client */
	pmix_proc_t  own;
	uint32_t     number;            /* of this exchange among those of the group in the job */
};

/* What a call that does not block comes back with. */
struct reply {
	pthread_mutex_t lock;           /* guards the rest */
	pthread_cond_t  changed;
	int             is_done;
	int             is_abandoned;   /* nobody waits any more: whoever comes last frees it */
	pmix_status_t   status;
	uint32_t        number;         /* the value, if it is a number */
	uint8_t        *bytes;          /* the value, if it is bytes */
	size_t          n_bytes;
	pmix_proc_t     proc;           /* arguments of the call */
	pmix_info_t     info;
	char            key[128];
};

/* --- the library ------------------------------------------------------------------- */

static const struct symbol {
	const char *name;
	size_t      offset;             /* in struct calls */
} symbols[] = {
	{ "PMIx_Init", offsetof(struct calls, init) },
	{ "PMIx_Finalize", offsetof(struct calls, finalize) },
	{ "PMIx_Put", offsetof(struct calls, put) },
	{ "PMIx_Commit", offsetof(struct calls, commit) },
	{ "PMIx_Fence_nb", offsetof(struct calls, fence_nb) },
	{ "PMIx_Get_nb", offsetof(struct calls, get_nb) },
	{ "PMIx_Error_string", offsetof(struct calls, error_string) },
};

static int load(struct cei_report *report, struct calls *calls)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL), *address;
	const char *why;
	size_t i;

	if (!library) {
		why = dlerror();
		return cei_raise(report, CEOV_ERR_SYSTEM, 0, "this process was started under "
				 "PMIx, but its library cannot be opened: %s",
				 why ? why : LIBRARY);
	}
	for (i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		address = dlsym(library, symbols[i].name);
		if (!address) {
			dlclose(library);
			return cei_raise(report, CEOV_ERR_VERSION, 0,
					 LIBRARY " lacks %s: it is too old", symbols[i].name);
		}
		/* C has no cast from an object pointer to a function pointer */
		memcpy((char *)calls + symbols[i].offset, &address, sizeof(address));
	}
	return 0;                       /* it stays open: it has threads of its own */
}

static int raise_status(struct cei_report *report, const struct calls *calls,
			pmix_status_t status, const char *call)
{
	const char *text = calls->error_string(status);

	return cei_raise(report, status == PMIX_ERR_TIMEOUT ? CEOV_ERR_TIMEOUT : CEOV_ERR_SYSTEM,
			 status, "%s: %s (%d)", call, text ? text : "?", status);
}

static int raise_pmix(const struct cei_exchange *exchange, pmix_status_t status, const char *call)
{
	const struct pmix *pmix = exchange->private;

	return raise_status(exchange->config.report, &pmix->calls, status, call);
}

/* Called when the process exits, or when ceoverlap's library is unloaded. A forked child has no
 * connection of its own to end. */
static void disconnect(void)
{
	if (client.pid == getpid())
		(void)client.calls.finalize(NULL, 0);
}

/* Connects to the server. With the client's lock held. */
static int connect_client(struct cei_report *report)
{
	pmix_status_t status;
	int r;

	if (client.pid == getpid())
		return 0;
	if (client.pid)
		return cei_raise(report, CEOV_ERR_FORKED, 0, "PMIx's server knows the process "
				 "that this one was forked from, not this one");
	r = load(report, &client.calls);
	if (r)
		return r;
	status = client.calls.init(&client.own, NULL, 0);
	if (status != PMIX_SUCCESS)
		return raise_status(report, &client.calls, status, "PMIx_Init");
	client.pid = getpid();
	if (!atexit(disconnect))
		return 0;
	disconnect();
	client.pid = 0;
	return cei_raise(report, CEOV_ERR_NO_MEMORY, 0, "no memory to leave PMIx at exit");
}

/* --- replies ----------------------------------------------------------------------- */

static struct reply *new_reply(void)
{
	struct reply *reply = calloc(1, sizeof(*reply));

	if (!reply)
		return NULL;
	pthread_mutex_init(&reply->lock, NULL);
	(void)cei_condition_init(&reply->changed);      /* on Linux it cannot fail */
	return reply;
}

static void free_reply(struct reply *reply)
{
	pthread_mutex_destroy(&reply->lock);
	pthread_cond_destroy(&reply->changed);
	free(reply->bytes);
	free(reply);
}

/* Called by the library's thread, with the reply's lock held before. */
static void finish(struct reply *reply, pmix_status_t status)
{
	int is_abandoned = reply->is_abandoned;

	reply->status = status;
	reply->is_done = 1;
	pthread_cond_signal(&reply->changed);
	pthread_mutex_unlock(&reply->lock);
	if (is_abandoned)
		free_reply(reply);
}

static void on_fence(pmix_status_t status, void *arg)
{
	struct reply *reply = arg;

	pthread_mutex_lock(&reply->lock);
	finish(reply, status);
}

/* The value is the library's; bytes are copied. */
static void on_value(pmix_status_t status, pmix_value_t *value, void *arg)
{
	struct reply *reply = arg;

	pthread_mutex_lock(&reply->lock);
	if (status == PMIX_SUCCESS && value && value->type == PMIX_UINT32)
		reply->number = value->data.uint32;
	if (status == PMIX_SUCCESS && value && value->type == PMIX_BYTE_OBJECT) {
		reply->n_bytes = value->data.bo.size;
		reply->bytes = malloc(reply->n_bytes ? reply->n_bytes : 1);
		if (!reply->bytes)
			status = PMIX_ERR_NOMEM;
		else if (reply->n_bytes)
			memcpy(reply->bytes, value->data.bo.bytes, reply->n_bytes);
	}
	finish(reply, status);
}

/* Waits for the reply. Returns whether it came. */
static int await(struct reply *reply, uint64_t deadline_ns)
{
	int is_done, error = 0;

	pthread_mutex_lock(&reply->lock);
	while (!reply->is_done && !error)
		error = cei_condition_wait(&reply->changed, &reply->lock, deadline_ns);
	is_done = reply->is_done;
	pthread_mutex_unlock(&reply->lock);
	return is_done;
}

/* Gives the reply up: frees it, or leaves that to the library's thread. */
static void give_up(struct reply *reply)
{
	int is_done;

	pthread_mutex_lock(&reply->lock);
	is_done = reply->is_done;
	reply->is_abandoned = 1;
	pthread_mutex_unlock(&reply->lock);
	if (is_done)
		free_reply(reply);
}

/* --- calls ------------------------------------------------------------------------- */

static void set_flag(pmix_info_t *info, const char *key)
{
	memset(info, 0, sizeof(*info));
	snprintf(info->key, sizeof(info->key), "%s", key);
	info->value.type = PMIX_BOOL;
	info->value.data.flag = 1;
}

/* Begins to get the key of a process. `immediate`: of what the server knows now. NULL: it failed,
 * and *ret_status says how. */
static struct reply *begin_get(const struct pmix *pmix, uint32_t process, const char *key,
			       int immediate, pmix_status_t *ret_status)
{
	struct reply *reply = new_reply();

	*ret_status = PMIX_ERR_NOMEM;
	if (!reply)
		return NULL;
	reply->proc = pmix->own;
	reply->proc.rank = process;
	snprintf(reply->key, sizeof(reply->key), "%s", key);
	set_flag(&reply->info, PMIX_IMMEDIATE);
	*ret_status = pmix->calls.get_nb(&reply->proc, reply->key,
					 immediate ? &reply->info : NULL, (size_t)!!immediate,
					 on_value, reply);
	if (*ret_status == PMIX_SUCCESS)
		return reply;
	free_reply(reply);
	return NULL;
}

/* Gets the key of a process. The caller frees *ret_reply. PMIX_ERR_TIMEOUT: the deadline passed. */
static pmix_status_t get(const struct pmix *pmix, uint32_t process, const char *key,
			 uint64_t deadline_ns, struct reply **ret_reply)
{
	pmix_status_t status;
	struct reply *reply = begin_get(pmix, process, key, 1, &status);

	if (!reply)
		return status;
	if (!await(reply, deadline_ns)) {
		give_up(reply);
		return PMIX_ERR_TIMEOUT;
	}
	status = reply->status;
	if (status == PMIX_SUCCESS)
		*ret_reply = reply;
	else
		free_reply(reply);
	return status;
}

static void name_key(const struct cei_exchange *exchange, char key[128])
{
	const struct pmix *pmix = exchange->private;

	snprintf(key, 128, "ceoverlap.%u.%u", pmix->number, exchange->n_rounds);
}

/* --- opening ----------------------------------------------------------------------- */

static int detect(struct cei_exchange *exchange)
{
	const char *job = secure_getenv("PMIX_NAMESPACE");
	const char *process = secure_getenv("PMIX_RANK");
	int r;

	if (!job || !*job || !process || !*process)
		return 0;
	r = cei_exchange_job(exchange, job);
	return r ? r : 1;
}

static int get_size(struct cei_exchange *exchange, uint64_t deadline_ns)
{
	const struct pmix *pmix = exchange->private;
	struct reply *reply = NULL;
	pmix_status_t status = get(pmix, PMIX_RANK_WILDCARD, PMIX_JOB_SIZE, deadline_ns, &reply);

	if (status != PMIX_SUCCESS)
		return raise_pmix(exchange, status, "PMIx_Get of the number of processes");
	exchange->process = pmix->own.rank;
	exchange->n_processes = reply->number;
	free_reply(reply);
	if (exchange->n_processes)
		return 0;
	return cei_raise(exchange->config.report, CEOV_ERR_INVALID, 0,
			 "PMIx says that the job '%s' has no processes", pmix->own.nspace);
}

/* Counts the exchanges of this group before this one: their keys are still there. All processes
 * have made equally many. */
static int count_exchanges(struct cei_exchange *exchange, uint64_t deadline_ns)
{
	struct pmix *pmix = exchange->private;
	struct reply *reply;
	pmix_status_t status;
	char key[128];

	for (pmix->number = 0; pmix->number < KEYS_MAX; pmix->number++) {
		name_key(exchange, key);
		status = get(pmix, pmix->own.rank, key, deadline_ns, &reply);
		if (status == PMIX_ERR_TIMEOUT)
			return raise_pmix(exchange, status, "PMIx_Get of an own key");
		if (status != PMIX_SUCCESS)
			return 0;
		free_reply(reply);
	}
	return cei_raise(exchange->config.report, CEOV_ERR_STATE, 0,
			 "this job has made %u exchanges of one group, which is too many",
			 KEYS_MAX);
}

static void close_exchange(struct cei_exchange *exchange)
{
	free(exchange->private);
}

static int open_exchange(struct cei_exchange *exchange, uint64_t deadline_ns)
{
	struct pmix *pmix = calloc(1, sizeof(*pmix));
	struct cei_report_hold hold;
	int r;

	if (!pmix)
		return cei_raise(exchange->config.report, CEOV_ERR_NO_MEMORY, 0,
				 "no memory to use PMIx");
	cei_report_hold_begin(exchange->config.report, &hold);
	pthread_mutex_lock(&client.lock);
	r = connect_client(exchange->config.report);
	pmix->calls = client.calls;
	pmix->own = client.own;
	pthread_mutex_unlock(&client.lock);
	cei_report_hold_end(exchange->config.report, &hold);
	exchange->private = pmix;
	if (!r)
		r = get_size(exchange, deadline_ns);
	if (!r)
		r = count_exchanges(exchange, deadline_ns);
	if (r)
		free(pmix);
	return r;
}

/* --- the all-gather ---------------------------------------------------------------- */

static int put(const struct cei_exchange *exchange, const void *own, uint32_t n_bytes)
{
	const struct pmix *pmix = exchange->private;
	pmix_value_t value;
	pmix_status_t status;
	char key[128];

	memset(&value, 0, sizeof(value));
	value.type = PMIX_BYTE_OBJECT;
	value.data.bo.bytes = malloc(n_bytes ? n_bytes : 1);
	if (!value.data.bo.bytes)
		return cei_raise(exchange->config.report, CEOV_ERR_NO_MEMORY, 0,
				 "no memory for %u bytes", n_bytes);
	if (n_bytes)
		memcpy(value.data.bo.bytes, own, n_bytes);
	value.data.bo.size = n_bytes;
	name_key(exchange, key);
	status = pmix->calls.put(PMIX_GLOBAL, key, &value);
	free(value.data.bo.bytes);
	if (status == PMIX_SUCCESS)
		status = pmix->calls.commit();
	return status == PMIX_SUCCESS ? 0 : raise_pmix(exchange, status, "PMIx_Put");
}

/* Fills has by who answers within the grace. Processes beyond ASKED_MAX count as there. */
static void ask_who_is_there(const struct cei_exchange *exchange, uint8_t *has)
{
	uint32_t n = exchange->n_processes < ASKED_MAX ? exchange->n_processes : ASKED_MAX, i;
	struct reply **replies = calloc(n, sizeof(struct reply *));
	uint64_t deadline_ns = cei_deadline(CEI_EXCHANGE_GRACE_NS);
	pmix_status_t status;
	char key[128];

	memset(has, 1, exchange->n_processes);
	if (!replies)
		return;
	name_key(exchange, key);
	for (i = 0; i < n; i++)
		replies[i] = begin_get(exchange->private, i, key, 0, &status);
	for (i = 0; i < n; i++) {
		if (!replies[i])
			continue;
		has[i] = (uint8_t)(await(replies[i], deadline_ns) &&
				   replies[i]->status == PMIX_SUCCESS);
		give_up(replies[i]);
	}
	free(replies);
}

static int raise_missing(const struct cei_exchange *exchange)
{
	uint8_t *has = calloc(exchange->n_processes, 1);
	char missing[CEI_MISSING_TEXT_BYTES] = "";
	uint32_t n = 0;

	if (has) {
		has[exchange->process] = 1;
		ask_who_is_there(exchange, has);
		n = cei_missing_text(&cei_processes, has, exchange->n_processes, missing);
	}
	free(has);
	return cei_raise(exchange->config.report, CEOV_ERR_TIMEOUT, 0,
			 "not all processes of the job have come to PMIx's fence in time: %s%s",
			 n ? missing : "which ones is not known", n ? " missing" : "");
}

static int fence(const struct cei_exchange *exchange, uint64_t deadline_ns)
{
	const struct pmix *pmix = exchange->private;
	struct reply *reply = new_reply();
	pmix_status_t status;

	if (!reply)
		return cei_raise(exchange->config.report, CEOV_ERR_NO_MEMORY, 0,
				 "no memory for PMIx's fence");
	set_flag(&reply->info, PMIX_COLLECT_DATA);
	status = pmix->calls.fence_nb(NULL, 0, &reply->info, 1, on_fence, reply);
	if (status != PMIX_SUCCESS) {
		free_reply(reply);
		return raise_pmix(exchange, status, "PMIx_Fence");
	}
	if (!await(reply, deadline_ns)) {
		give_up(reply);
		return raise_missing(exchange);
	}
	status = reply->status;
	free_reply(reply);
	return status == PMIX_SUCCESS ? 0 : raise_pmix(exchange, status, "PMIx_Fence");
}

/* Gets the bytes of all processes; replies and lengths have room for all. */
static int get_all(const struct cei_exchange *exchange, uint64_t deadline_ns,
		   struct reply **replies, uint32_t *lengths)
{
	pmix_status_t status;
	char key[128];
	uint32_t i;

	name_key(exchange, key);
	for (i = 0; i < exchange->n_processes; i++) {
		status = get(exchange->private, i, key, deadline_ns, &replies[i]);
		if (status != PMIX_SUCCESS)
			return raise_pmix(exchange, status, "PMIx_Get of a process's bytes");
		if (!replies[i]->bytes || replies[i]->n_bytes > CEI_GATHERED_BYTES_MAX)
			return cei_raise(exchange->config.report, CEOV_ERR_INVALID, 0,
					 "what process %u has put into PMIx cannot be taken: %zu "
					 "bytes", i, replies[i]->n_bytes);
		lengths[i] = (uint32_t)replies[i]->n_bytes;
	}
	return 0;
}

static int take_all(const struct cei_exchange *exchange, uint64_t deadline_ns,
		    struct cei_gathered *ret_gathered)
{
	uint32_t n = exchange->n_processes, i, length;
	struct reply **replies = calloc(n, sizeof(struct reply *));
	uint32_t *lengths = calloc(n, sizeof(*lengths));
	int r = CEOV_ERR_NO_MEMORY;

	if (replies && lengths)
		r = get_all(exchange, deadline_ns, replies, lengths);
	if (!r)
		r = cei_gathered_init(ret_gathered, n, lengths);
	if (r == CEOV_ERR_NO_MEMORY)
		r = cei_raise(exchange->config.report, r, 0,
			      "no memory for the bytes of %u processes", n);
	for (i = 0; !r && i < n; i++)
		memcpy(cei_gathered_part(ret_gathered, i, &length), replies[i]->bytes,
		       lengths[i]);
	for (i = 0; replies && i < n; i++)
		if (replies[i])
			free_reply(replies[i]);
	free(replies);
	free(lengths);
	return r;
}

static int all_gather(struct cei_exchange *exchange, const void *own, uint32_t n_bytes,
		      uint64_t deadline_ns, struct cei_gathered *ret_gathered)
{
	int r = put(exchange, own, n_bytes);

	if (!r)
		r = fence(exchange, deadline_ns);
	if (!r)
		r = take_all(exchange, deadline_ns, ret_gathered);
	return r;
}

const struct cei_exchange_ops cei_exchange_pmix = {
	.name = "pmix",
	.detect = detect,
	.open = open_exchange,
	.all_gather = all_gather,
	.close = close_exchange,
};
