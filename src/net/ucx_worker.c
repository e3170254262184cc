/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The context and the worker of a transport over UCX, and UCX's settings. */

#include "net/ucx_worker.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

/* UCX takes TCP only where it expects fewer endpoints than this. */
#define TCP_ENDPOINTS_MIN 256u

/* ucp_config_modify() knows settings of transports by the names of environment variables from
 * UCX 1.17 on, and before without the transport's prefix. */
#define MINOR_OF_PREFIXES 17u

/* From UCX 1.14 on no build is known that aborts, see avoid_double_ends(). */
#define MINOR_OF_DOUBLE_ENDS 14u

/* How long a worker that is about to be destroyed waits for connections that are still being made.
 * Both processes answer each other, which takes milliseconds unless one of them is stopped. */
#define ANSWERS_LEAVE_NS UINT64_C(1000000000)

/* UCX's names of what moves bytes over sockets, and through memory that processes share. A list
 * that begins with ^ or names an alias may stand for any of them. */
#define SOCKETS "tcp"
#define SHARED  "posix sysv mm shm sm cma knem xpmem"

struct setting {
	const char *used_by;            /* UCX warns of settings of what it does not use; NULL:
					 * of all */
	const char *prefix;             /* before the key, from UCX 1.17 on */
	const char *key;
	const char *value;
};

/* Settings that are always the same. Not every version has them all. */
static const struct setting settings[] = {
	/* 8 KiB, the default, costs UCX 1.22 a factor of 4 over TCP. Where UCX copies what it sends
	 * (avoid_double_ends()), 256 KiB are as much slower than 1 MiB as copying costs. */
	{ SOCKETS, "TCP_", "TX_SEG_SIZE", "1m" },
	{ SOCKETS, "TCP_", "RX_SEG_SIZE", "1m" },
	/* Else the rail's thread stands still in connect() for seconds, or minutes, if the other
	 * side does not answer. */
	{ SOCKETS, "TCP_", "CONN_NB", "y" },
	/* Without it there are no endpoints in error mode PEER over shared memory. */
	{ SHARED, "", "MM_ERROR_HANDLING", "y" },
	/* Over shared memory a dead peer is seen at the next check only. */
	{ NULL, "", "KEEPALIVE_INTERVAL", "1s" },
	/* The environment is the application's business. */
	{ NULL, "", "WARN_UNUSED_ENV_VARS", "n" },
};

/* Whether UCX may use one of the words' transports when TLS is set to kinds. */
static int may_use(const char *kinds, const char *words)
{
	const char *at = kinds;
	size_t n;

	if (!kinds || strchr(kinds, '^') || strstr(kinds, "all"))
		return 1;
	for (; *at; at += n + (at[n] == ',')) {
		n = strcspn(at, ",");
		if (n && memmem(words, strlen(words), at, n))
			return 1;
	}
	return 0;
}

int cei_ucx_raise(struct cei_ucx *ucx, ucs_status_t status, const char *what)
{
	return cei_raise(ucx->transport->config.report, CEOV_ERR_UCX, (int)status,
			 "UCX: %s: %s (%d)", what, ucx->calls.status_string(status),
			 (int)status);
}

/* Sets what the owner asked for; that must succeed. */
static int set_wanted(struct cei_ucx *ucx, ucp_config_t *config, const char *key,
		      const char *value)
{
	ucs_status_t status;

	if (!value)
		return 0;
	status = ucx->calls.config_modify(config, key, value);
	if (status == UCS_OK)
		return 0;
	return cei_raise(ucx->transport->config.report, CEOV_ERR_UCX, (int)status,
			 "UCX: setting %s=%s: %s", key, value,
			 ucx->calls.status_string(status));
}

static void set(struct cei_ucx *ucx, ucp_config_t *config, const struct setting *setting)
{
	unsigned major, minor, release;
	char key[64];

	if (setting->used_by && !may_use(ucx->transport->config.kinds, setting->used_by))
		return;
	ucx->calls.version(&major, &minor, &release);
	snprintf(key, sizeof(key), "%s%s", minor < MINOR_OF_PREFIXES ? "" : setting->prefix,
		 setting->key);
	(void)ucx->calls.config_modify(config, key, setting->value);
}

/* Whether UCX may find a device of RDMA to use. */
static int may_use_rdma(const struct cei_transport_config *wanted)
{
	char path[PATH_MAX];

	if (access("/sys/class/infiniband", F_OK) ||
	    (wanted->kinds && !strcmp(wanted->kinds, SOCKETS)))
		return 0;
	if (!wanted->device)
		return 1;
	snprintf(path, sizeof(path), "/sys/class/net/%s", wanted->device);
	return access(path, F_OK) != 0;
}

/* UCX tells the end of a send twice when its socket breaks while the send goes out of the
 * application's memory, and Debian's 1.13.1 ends the process by an assertion then. So there it
 * copies what it sends over sockets (docs/internals/between-nodes.md). */
static void avoid_double_ends(struct cei_ucx *ucx, ucp_config_t *config)
{
	const struct setting setting = { SOCKETS, "", "ZCOPY_THRESH", "inf" };
	unsigned major, minor, release;

	ucx->calls.version(&major, &minor, &release);
	if (major == 1 && minor < MINOR_OF_DOUBLE_ENDS && !secure_getenv("UCX_ZCOPY_THRESH") &&
	    !may_use_rdma(&ucx->transport->config))
		set(ucx, config, &setting);
}

static int set_all(struct cei_ucx *ucx, ucp_config_t *config)
{
	const struct cei_transport_config *wanted = &ucx->transport->config;
	char number[16];
	const struct setting peers = { SOCKETS, "TCP_", "MAX_NUM_EPS", number };
	size_t i;
	int r;

	for (i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
		set(ucx, config, &settings[i]);
	snprintf(number, sizeof(number), "%u", wanted->n_peers < TCP_ENDPOINTS_MIN / 2 ?
		 TCP_ENDPOINTS_MIN : 2 * wanted->n_peers);
	set(ucx, config, &peers);
	avoid_double_ends(ucx, config);
	r = set_wanted(ucx, config, "TLS", wanted->kinds);
	return r ? r : set_wanted(ucx, config, "NET_DEVICES", wanted->device);
}

/* Whether the system has a network interface, or a device of InfiniBand ("mlx5_0:1"), of that name.
 * If it does not say which there are, any name may be right. */
static int is_interface(const char *device)
{
	static const char *const folders[] = { "/sys/class/net", "/sys/class/infiniband" };
	int n_name = (int)strcspn(device, ":");
	char path[PATH_MAX];
	size_t i;

	if (access(folders[0], R_OK))
		return 1;
	for (i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		snprintf(path, sizeof(path), "%s/%.*s", folders[i], n_name, device);
		if (!access(path, F_OK))
			return 1;
	}
	return 0;
}

/* With an unknown interface UCX would go on with shared memory alone, within this machine. */
static int check_interface(const struct cei_transport_config *wanted)
{
	if (!wanted->device || (*wanted->device && !strchr(wanted->device, '/') &&
				is_interface(wanted->device)))
		return 0;
	return cei_raise(wanted->report, CEOV_ERR_INVALID, 0,
			 "UCX: this machine has no network interface '%s'; `ucx_info -d` "
			 "lists what there is", wanted->device);
}

static int open_context(struct cei_ucx *ucx)
{
	const struct cei_transport_config *wanted = &ucx->transport->config;
	ucp_config_t *config = NULL;
	ucp_params_t params;
	ucs_status_t status;
	int r = check_interface(wanted);

	if (r)
		return r;
	status = ucx->calls.config_read(NULL, NULL, &config);
	if (status != UCS_OK)
		return cei_ucx_raise(ucx, status, "reading its settings");
	r = set_all(ucx, config);
	if (r)
		goto out;
	memset(&params, 0, sizeof(params));
	params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
	params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
	params.estimated_num_eps = wanted->n_peers ? wanted->n_peers : 1;
	status = ucx->calls.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config,
					 &ucx->context);
	if (status != UCS_OK)
		r = cei_raise(wanted->report, CEOV_ERR_UCX, (int)status,
			      "UCX: no context for network interface %s with %s%s: %s; "
			      "`ucx_info -d` lists what there is",
			      wanted->device ? wanted->device : "(any)",
			      wanted->kinds ? "CEOVERLAP_TRANSPORTS=" : "all transports",
			      wanted->kinds ? wanted->kinds : "",
			      ucx->calls.status_string(status));
out:
	ucx->calls.config_release(config);
	return r;
}

static int open_worker(struct cei_ucx *ucx)
{
	ucp_worker_params_t params;
	ucs_status_t status;

	memset(&params, 0, sizeof(params));
	params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
	params.thread_mode = UCS_THREAD_MODE_SINGLE;
	status = ucx->calls.worker_create(ucx->context, &params, &ucx->worker);
	if (status != UCS_OK)
		return cei_ucx_raise(ucx, status, "creating a worker");
	status = ucx->calls.worker_fd(ucx->worker, &ucx->fd);
	if (status == UCS_OK)
		return 0;
	ucx->calls.worker_destroy(ucx->worker);
	return cei_ucx_raise(ucx, status, "asking for its file descriptor");
}

int cei_ucx_context_open(struct cei_ucx *ucx)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = open_context(ucx);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r;
}

int cei_ucx_worker_open(struct cei_ucx *ucx)
{
	sigset_t all, before;
	int r;

	/* A thread of UCX's own inherits the mask: no handler of the application runs on it. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = open_context(ucx);
	if (!r) {
		r = open_worker(ucx);
		if (r)
			ucx->calls.cleanup(ucx->context);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r;
}

/* UCX 1.13.1 ends the process by an assertion if a worker is destroyed whose answer to another
 * process's request for a connection has not left (docs/internals/between-nodes.md).
 * A flush of the worker ends when no connection of its own is being made any more. */
static void let_answers_leave(struct cei_ucx *ucx)
{
	const ucp_request_param_t none = { .op_attr_mask = 0 };
	ucs_status_ptr_t request = ucx->calls.worker_flush(ucx->worker, &none);
	uint64_t deadline_ns = cei_deadline(ANSWERS_LEAVE_NS);
	struct cei_backoff backoff;

	if (!UCS_PTR_IS_PTR(request))
		return;
	cei_backoff_reset(&backoff);
	while (ucx->calls.request_status(request) == UCS_INPROGRESS &&
	       cei_now_ns() < deadline_ns)
		if (!ucx->calls.worker_progress(ucx->worker))
			cei_backoff_step(&backoff);
	ucx->calls.request_free(request);
}

void cei_ucx_worker_close(struct cei_ucx *ucx)
{
	ucx->is_closing = 1;
	let_answers_leave(ucx);
	ucx->calls.worker_destroy(ucx->worker);
	ucx->calls.cleanup(ucx->context);
}
