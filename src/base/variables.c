/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Reads environment variables. A variable whose name is misspelt would have no effect, so a warning
 * says so. */

#include "base/variables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX       "CEOVERLAP_"
#define NAME_BYTES   64u                /* room for a name; longer names are not compared */
#define VALUE_BYTES  160u               /* of a value in a message; the rest is left out */
#define WARNINGS_MAX 8u

extern char **environ;

/* Variables that the library and its tools read; ceoverlap-info describes each. */
static const char *const names[] = {
	"CEOVERLAP_BOOTSTRAP", "CEOVERLAP_CLASS", "CEOVERLAP_CUBLAS", "CEOVERLAP_DAEMON",
	"CEOVERLAP_DAEMON_STRICT", "CEOVERLAP_FLAG",
	"CEOVERLAP_GPU_DIRECT", "CEOVERLAP_GROUP", "CEOVERLAP_HANG_FOLDER",
	"CEOVERLAP_HOST_BREAK_AFTER_MS", "CEOVERLAP_HOST_BREAK_AT",
	"CEOVERLAP_HOST_COPY_DELAY_NS", "CEOVERLAP_HOST_COPY_FAIL_AT",
	"CEOVERLAP_HOST_COPY_LOSE_AT", "CEOVERLAP_HOST_FAULT_RANK", "CEOVERLAP_IN_PLACE",
	"CEOVERLAP_JOB", "CEOVERLAP_LOG",
	"CEOVERLAP_MACHINE", "CEOVERLAP_MACHINE_CACHE", "CEOVERLAP_NICS", "CEOVERLAP_NODE",
	"CEOVERLAP_NVTX",
	"CEOVERLAP_PLACE", "CEOVERLAP_PROCESS", "CEOVERLAP_PROCESSES", "CEOVERLAP_RANK",
	"CEOVERLAP_RANKS", "CEOVERLAP_RESERVED_QUEUES", "CEOVERLAP_ROUTES",
	"CEOVERLAP_SCHEDULER", "CEOVERLAP_STORE", "CEOVERLAP_TRACE", "CEOVERLAP_TRANSPORTS",
	/* the Python package and its build */
	"CEOVERLAP_CONFIGURE_FLAGS", "CEOVERLAP_LIBRARY", "CEOVERLAP_LIBRARY_DIR",
};

/* Variables that only tests read. They say how long a test runs, and on what. */
static const char *const of_tests[] = {
	"CEOVERLAP_GPU_DIRECT_SHAPES", "CEOVERLAP_GPU_DIRECT_STEPS", "CEOVERLAP_GPU_MOVES",
	"CEOVERLAP_GPU_NODE_SHAPES", "CEOVERLAP_GPU_OP_SHAPES", "CEOVERLAP_GPU_REDUCTIONS",
	"CEOVERLAP_GPU_ROUNDS", "CEOVERLAP_LITMUS_BYTES", "CEOVERLAP_LITMUS_ROUNDS",
	"CEOVERLAP_STRESS_SECONDS", "CEOVERLAP_TRITON_ROUNDS",
};

/* Variables that earlier versions read, and what replaces them. */
static const struct {
	const char *name;
	const char *now;
} removed[] = {
	{ "CEOVERLAP_FOLDER", "groups meet by a store, and CEOVERLAP_STORE names the host:port at "
	  "which process 0 listens" },
	{ "CEOVERLAP_SECRET", "the job's name, CEOVERLAP_JOB, tells groups apart, and networks "
	  "must be trusted" },
	{ "CEOVERLAP_GPU_DIRECT_TEST", "nothing is tested any more, and "
	  "CEOVERLAP_GPU_DIRECT=direct lets the network access the memory of GPUs" },
};

static const char *const beginnings[] = { "CEOVERLAP_FAKE_", "CEOVERLAP_TEST_" };

#define N_NAMES      (sizeof(names) / sizeof(names[0]))
#define N_OF_TESTS   (sizeof(of_tests) / sizeof(of_tests[0]))
#define N_REMOVED    (sizeof(removed) / sizeof(removed[0]))
#define N_BEGINNINGS (sizeof(beginnings) / sizeof(beginnings[0]))

/* isdigit() for ASCII digits. strtoull() alone would accept signs and spaces. */
static int is_digit(char c)
{
	return c >= '0' && c <= '9';
}

int cei_variable_number(struct cei_report *report, const char *name, uint64_t limit,
			uint64_t *ret_number)
{
	const char *text = secure_getenv(name);
	unsigned long long number;
	char *end;

	if (!text || !*text)
		return 0;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno || *end || !is_digit(*text) || number > limit)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "%s is '%s', must be a number from 0 to %llu", name, text,
				 (unsigned long long)limit);
	*ret_number = number;
	return 0;
}

static int is_among(const char *const *list, size_t n, const char *name, size_t length)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (strlen(list[i]) == length && !strncmp(list[i], name, length))
			return 1;
	return 0;
}

int cei_variable_is_known(const char *name, size_t length)
{
	size_t i;

	for (i = 0; i < N_BEGINNINGS; i++)
		if (length > strlen(beginnings[i]) &&
		    !strncmp(name, beginnings[i], strlen(beginnings[i])))
			return 1;
	return is_among(names, N_NAMES, name, length) ||
	       is_among(of_tests, N_OF_TESTS, name, length);
}

static uint32_t least(uint32_t one, uint32_t other)
{
	return one < other ? one : other;
}

/* Returns the edit distance of two names: how many letters must be changed, added or left out to
 * turn one into the other. */
static uint32_t distance(const char *name, size_t length, const char *known)
{
	uint32_t row[NAME_BYTES + 1], before, above, i, k;
	uint32_t n_known = (uint32_t)strlen(known);

	for (k = 0; k <= n_known; k++)
		row[k] = k;
	for (i = 1; i <= length; i++) {
		before = row[0];
		row[0] = i;
		for (k = 1; k <= n_known; k++) {
			above = row[k];
			row[k] = least(least(above, row[k - 1]) + 1,
				       before + (name[i - 1] != known[k - 1]));
			before = above;
		}
	}
	return row[n_known];
}

const char *cei_variable_nearest(const char *name, size_t length)
{
	const char *nearest = NULL;
	/* A name at a distance of 4 or more is a different word. */
	uint32_t least_yet = 4, far;
	size_t i;

	if (length >= NAME_BYTES)
		return NULL;
	for (i = 0; i < N_NAMES; i++) {
		far = distance(name, length, names[i]);
		if (far >= least_yet)
			continue;
		least_yet = far;
		nearest = names[i];
	}
	return nearest;
}

/* Returns what replaces a variable that earlier versions read; NULL: none did. */
static const char *replacement(const char *name, size_t length)
{
	size_t i;

	for (i = 0; i < N_REMOVED; i++)
		if (is_among(&removed[i].name, 1, name, length))
			return removed[i].now;
	return NULL;
}

/* Copies text for a message; characters other than printable ASCII, and spaces, become '?'. */
static void copy_plain(const char *text, size_t length, char *plain, size_t n_bytes)
{
	size_t i;

	for (i = 0; i < length && i < n_bytes - 1; i++)
		plain[i] = text[i] > ' ' && text[i] <= '~' ? text[i] : '?';
	plain[i] = '\0';
}

static void warn_of(struct cei_report *report, const char *name, size_t length)
{
	const char *nearest = cei_variable_nearest(name, length);
	const char *now = replacement(name, length);
	char plain[NAME_BYTES];

	copy_plain(name, length, plain, sizeof(plain));
	if (now)
		cei_log(report, CEI_LOG_WARN, "nobody reads the environment's %s any more: %s",
			plain, now);
	else if (nearest)
		cei_log(report, CEI_LOG_WARN, "nobody reads the environment's %s: is %s meant?",
			plain, nearest);
	else
		cei_log(report, CEI_LOG_WARN, "nobody reads the environment's %s: see "
			"'ceoverlap-info settings' for the names there are", plain);
}

static void check_level(struct cei_report *report)
{
	const char *text = secure_getenv("CEOVERLAP_LOG");

	if (text && *text && cei_log_level_of(text) < 0)
		cei_log(report, CEI_LOG_WARN, "CEOVERLAP_LOG is '%s', must be error, warn, info "
			"or debug; warn holds", text);
}

void cei_variables_check(struct cei_report *report)
{
	uint32_t i, n = 0;
	size_t length;

	check_level(report);
	for (i = 0; environ && environ[i]; i++) {
		length = strcspn(environ[i], "=");
		if (strncmp(environ[i], PREFIX, strlen(PREFIX)) ||
		    cei_variable_is_known(environ[i], length))
			continue;
		if (n++ < WARNINGS_MAX)
			warn_of(report, environ[i], length);
	}
	if (n > WARNINGS_MAX)
		cei_log(report, CEI_LOG_WARN, "and %u more variables that nobody reads",
			n - WARNINGS_MAX);
}

void cei_variables_tell(struct cei_report *report)
{
	char plain[VALUE_BYTES];
	const char *value;
	size_t i;

	for (i = 0; i < N_NAMES; i++) {
		value = secure_getenv(names[i]);
		if (!value)
			continue;
		copy_plain(value, strlen(value), plain, sizeof(plain));
		cei_log(report, CEI_LOG_INFO, "environment: %s=%s", names[i], plain);
	}
}
