/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Opens libucp at run time, undoes what UCX does to the process's signal handlers, and has it log
 * to standard error. */

#include "net/ucx_table.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucs/debug/log_def.h>

#define LIBRARY  "libucp.so.0"
#define BASE     "libucs.so.0"          /* what libucp logs by */
#define N_SIGNALS 32                    /* the standard signals, 1 to 31 */

struct symbol {
	const char *name;
	size_t      offset;             /* in struct cei_ucx_calls */
	int         is_optional;
};

#define AT(field) offsetof(struct cei_ucx_calls, field)

static const struct symbol symbols[] = {
	{ "ucp_get_version", AT(version), 0 },
	{ "ucp_get_version_string", AT(version_string), 0 },
	{ "ucs_status_string", AT(status_string), 0 },     /* of libucs, which libucp needs */
	{ "ucp_config_read", AT(config_read), 0 },
	{ "ucp_config_modify", AT(config_modify), 0 },
	{ "ucp_config_release", AT(config_release), 0 },
	{ "ucp_init_version", AT(init_version), 0 },
	{ "ucp_cleanup", AT(cleanup), 0 },
	{ "ucp_context_print_info", AT(context_print), 0 },
	{ "ucp_context_query", AT(context_query), 0 },
	{ "ucp_worker_create", AT(worker_create), 0 },
	{ "ucp_worker_destroy", AT(worker_destroy), 0 },
	{ "ucp_worker_get_address", AT(worker_address), 0 },
	{ "ucp_worker_release_address", AT(worker_release_address), 0 },
	{ "ucp_worker_get_efd", AT(worker_fd), 0 },
	{ "ucp_worker_arm", AT(worker_arm), 0 },
	{ "ucp_worker_progress", AT(worker_progress), 0 },
	{ "ucp_worker_flush_nbx", AT(worker_flush), 0 },
	{ "ucp_worker_set_am_recv_handler", AT(worker_set_handler), 0 },
	{ "ucp_mem_map", AT(memory_map), 0 },
	{ "ucp_mem_unmap", AT(memory_unmap), 0 },
	{ "ucp_ep_create", AT(endpoint_create), 0 },
	{ "ucp_ep_close_nbx", AT(endpoint_close), 0 },
	{ "ucp_ep_evaluate_perf", AT(evaluate), 1 },
	{ "ucp_am_send_nbx", AT(send), 0 },
	{ "ucp_am_recv_data_nbx", AT(receive), 0 },
	{ "ucp_am_data_release", AT(release), 0 },
	{ "ucp_request_check_status", AT(request_status), 0 },
	{ "ucp_request_free", AT(request_free), 0 },
};

#undef AT

/* UCX's constructor installs handlers of SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGHUP (1.13.1,
 * and more by its settings). The lock keeps a second thread that loads UCX from taking them
 * for the application's. */
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;

static int is_same_handler(const struct sigaction *a, const struct sigaction *b)
{
	return a->sa_flags == b->sa_flags && (a->sa_flags & SA_SIGINFO ?
		a->sa_sigaction == b->sa_sigaction : a->sa_handler == b->sa_handler);
}

/* Writes a line of UCX's log, which UCX would write to standard output, into the program's results.
 */
static ucs_log_func_rc_t log_to_stderr(const char *file, unsigned line, const char *function,
				       ucs_log_level_t level,
				       const ucs_log_component_config_t *component,
				       const char *message, va_list arguments)
{
	static const char *const levels[] = { "fatal", "error", "warning", "diagnostic", "info" };
	const char *name = strrchr(file, '/');
	char text[1024];

	(void)function;
	(void)component;
	(void)vsnprintf(text, sizeof(text), message, arguments);
	fprintf(stderr, "ceoverlap: UCX: %s: %s (%s:%u)\n",
		(unsigned)level < sizeof(levels) / sizeof(levels[0]) ? levels[level] : "debug",
		text, name ? name + 1 : file, line);
	return UCS_LOG_FUNC_RC_STOP;
}

/* Has UCX log to standard error, unless the user says where its log goes, by UCX_LOG_FILE or UCX's
 * file of settings. What this needs is no part of UCX's documented interface: where that is
 * missing, the log stays as it is. */
static void take_log(void *library)
{
	void (*push)(ucs_log_func_t handler);
	ucs_status_t (*ask)(const char *name, char *value, size_t n_bytes);
	void *const found[] = { dlsym(library, "ucs_log_push_handler"),
				dlsym(library, "ucs_global_opts_get_value") };
	const char *asked = secure_getenv("UCX_LOG_FILE");
	char path[8] = "";              /* long enough to see whether there is one */

	if (!found[0] || !found[1] || (asked && *asked))
		return;
	memcpy(&push, &found[0], sizeof(push));
	memcpy(&ask, &found[1], sizeof(ask));
	/* 1.13.1 answers with LOG_FILE_FILTER, which is "*" as a rule. */
	if (ask("LOG_FILE", path, sizeof(path)) == UCS_OK && (!path[0] || !strcmp(path, "*")))
		push(log_to_stderr);
}

static int is_loaded(const char *name)
{
	void *library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);

	if (library)
		(void)dlclose(library);
	return library != NULL;
}

/* Puts back only handlers that have changed, to leave those alone that another thread of the
 * application sets meanwhile. */
static void *load(void)
{
	struct sigaction before[N_SIGNALS], now;
	int is_known[N_SIGNALS], is_first;
	void *library;
	int i;

	pthread_mutex_lock(&load_lock);
	is_first = !is_loaded(BASE);
	for (i = 1; i < N_SIGNALS; i++)
		is_known[i] = !sigaction(i, NULL, &before[i]);
	library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	for (i = 1; i < N_SIGNALS; i++)
		if (is_known[i] && !sigaction(i, NULL, &now) &&
		    !is_same_handler(&before[i], &now))
			(void)sigaction(i, &before[i], NULL);
	if (library && is_first)
		take_log(library);
	pthread_mutex_unlock(&load_lock);
	return library;
}

int cei_ucx_load(struct cei_report *report, struct cei_ucx_calls *ret_calls,
		 const char **ret_why)
{
	unsigned major = 0, minor = 0, release = 0;
	struct cei_ucx_calls calls;
	void *library = load();
	void *address;
	size_t i;

	if (!library) {
		cei_log(report, CEI_LOG_INFO, "UCX: %s", dlerror());
		*ret_why = LIBRARY " cannot be loaded: install UCX (Debian: libucx0)";
		return CEOV_NONE;
	}
	for (i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		address = dlsym(library, symbols[i].name);
		if (!address && !symbols[i].is_optional) {
			cei_log(report, CEI_LOG_INFO, "UCX: " LIBRARY " has no %s",
				symbols[i].name);
			*ret_why = LIBRARY " lacks functions of UCX 1.13: install a newer UCX";
			return CEOV_NONE;
		}
		/* C has no cast from an object pointer to a function pointer. */
		memcpy((char *)&calls + symbols[i].offset, &address, sizeof(address));
	}
	calls.version(&major, &minor, &release);
	if (major != CEI_UCX_VERSION_MAJOR || minor < CEI_UCX_VERSION_MINOR_MIN) {
		cei_log(report, CEI_LOG_INFO, "UCX: " LIBRARY " is version %u.%u.%u", major,
			minor, release);
		*ret_why = LIBRARY " is not of UCX 1.13 or a newer 1.x";
		return CEOV_NONE;
	}
	*ret_calls = calls;
	return 0;
}
