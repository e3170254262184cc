/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Settings and their origins. A value comes from a call (arguments of ceov_open() or of a plan,
 * not known here), from the environment, from a file in the user's cache, or from the default. A
 * call overrides the environment, and the environment overrides file and default.
 */

#include "tools/info/info.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/variables.h"
#include "ce_engine/objects/context.h"
#include "net/rail_config.h"
#include "ops/tuning/tunings.h"
#include "topology/machine_cache.h"

extern char **environ;

#define PREFIX         "CEOVERLAP_"
#define UNKNOWN_MAX    32u
#define FILE_BYTES_MAX (4u * CEI_TUNINGS_MAX * CEI_TUNING_KEY_BYTES)
#define VALUE_BYTES    (PATH_MAX + 64u)

struct setting {
	const char *name;
	const char *variable;           /* NULL: no environment variable sets it */
	const char *by_call;            /* NULL: no argument of a call sets it */
	const char *fallback;           /* default as text; NULL: a number, see fallback_of() */
	const char *help;
};

static const struct setting settings[] = {
	{ "rank", "CEOVERLAP_RANK", "ceov_config.members", "0", "our rank in the group" },
	{ "ranks", "CEOVERLAP_RANKS", "ceov_config.n_ranks", "1", "ranks of the group" },
	{ "place", "CEOVERLAP_PLACE", "ceov_config.members",
	  "gpu:0, or host where there is no GPU", "where our rank's memory is" },
	{ "group", "CEOVERLAP_GROUP", "ceov_config.group", "none: alone",
	  "path of the socket where ranks meet" },
	{ "bootstrap", "CEOVERLAP_BOOTSTRAP", "ceov_network.bootstrap",
	  "what the environment shows",
	  "how a launcher's processes meet: pmix, store, alone" },
	{ "process", "CEOVERLAP_PROCESS", "ceov_network.process",
	  "as the launcher has it",
	  "number of this process, for a store" },
	{ "processes", "CEOVERLAP_PROCESSES", "ceov_network.n_processes",
	  "as the launcher has it",
	  "how many processes there are" },
	{ "store", "CEOVERLAP_STORE", "ceov_network.where",
	  "MASTER_ADDR:MASTER_PORT + 1, if set",
	  "host:port where process 0 listens" },
	{ "job", "CEOVERLAP_JOB", "ceov_network.job",
	  "as PMIx or torchrun has it",
	  "a name that tells jobs apart" },
	{ "node", "CEOVERLAP_NODE", "ceov_network.node",
	  "the kernel's boot id",
	  "a name of this machine" },
	{ "nics", "CEOVERLAP_NICS", "ceov_network.nics",
	  "all: the one near the first rank's GPU, else as UCX chooses",
	  "network interfaces of which the process uses one" },
	{ "in_place", "CEOVERLAP_IN_PLACE", NULL, "auto",
	  "whether the network accesses host memory itself: auto, on, off" },
	{ "gpu_direct", "CEOVERLAP_GPU_DIRECT", NULL, "staged",
	  "how bytes of GPUs reach the network: staged, direct" },
	{ "transports", "CEOVERLAP_TRANSPORTS", NULL, "all that UCX has",
	  "what UCX may use, as its UCX_TLS" },
	{ "daemon", "CEOVERLAP_DAEMON", "ceov_config.daemon", "none",
	  "the socket of a ceoverlapd that moves the data" },
	{ "daemon_strict", "CEOVERLAP_DAEMON_STRICT", NULL, "0",
	  "1: plans that the daemon cannot carry out are refused" },
	{ "class", "CEOVERLAP_CLASS", "ceov_plan_options.urgency", "normal",
	  "of plans that say normal: urgent, normal, background" },
	{ "peer_timeout_ns", NULL, "ceov_network.peer_timeout_ns", NULL,
	  "how long a process may be silent while something is awaited" },
	{ "max_chunk_bytes", NULL, "ceov_config.max_chunk_bytes, ceov_plan_options", NULL,
	  "the longest copy, behind which others wait" },
	{ "deadline_ns", NULL, "ceov_config.deadline_ns", NULL,
	  "of waits that name none" },
	{ "progress_by_caller", NULL, "ceov_config.progress_by_caller", "0",
	  "1: nothing moves but in ceov_turn()" },
	{ "routes", "CEOVERLAP_ROUTES", "ceov_plan_options.routes", "needed",
	  "paths that bytes may take: direct, all" },
	{ "scheduler", "CEOVERLAP_SCHEDULER", NULL, "by what links share",
	  "fifo: transfers go in the order in which they are ready" },
	{ "machine", "CEOVERLAP_MACHINE", NULL, "this one",
	  "an XML file instead of what is found here" },
	{ "machine_cache", "CEOVERLAP_MACHINE_CACHE", NULL,
	  "$XDG_CACHE_HOME/ceoverlap/machines, else that of ~/.cache",
	  "where measured machines are kept; off" },
	{ "log", "CEOVERLAP_LOG", NULL, "warn", "error, warn, info, debug" },
	{ "trace", "CEOVERLAP_TRACE", NULL, "none", "a file for what the engines do" },
	{ "hang_folder", "CEOVERLAP_HANG_FOLDER", NULL, "none",
	  "where ceoverlap.torch's backend leaves reports of groups that hang" },
	{ "nvtx", "CEOVERLAP_NVTX", NULL, "0",
	  "1: tools that show kernels show launches and calls beside them" },
	{ "flag", "CEOVERLAP_FLAG", NULL, "by a test at start",
	  "how counters of GPUs are raised: write, copy" },
	{ "reserved_queues", "CEOVERLAP_RESERVED_QUEUES", NULL, "2",
	  "hardware queues of a GPU that the application's streams need" },
	{ "cublas", "CEOVERLAP_CUBLAS", NULL, "searched", "cuBLAS's file" },
	{ "host_copy_delay_ns", "CEOVERLAP_HOST_COPY_DELAY_NS", NULL, "0",
	  "tests: every copy on the host takes longer" },
	{ "host_copy_fail_at", "CEOVERLAP_HOST_COPY_FAIL_AT", NULL, "0: none",
	  "tests: the lane's copy that fails" },
	{ "host_copy_lose_at", "CEOVERLAP_HOST_COPY_LOSE_AT", NULL, "0: none",
	  "tests: the lane's copy that never ends" },
	{ "host_break_at", "CEOVERLAP_HOST_BREAK_AT", NULL, "0: none",
	  "tests: the rank's copy with which its place is lost" },
	{ "host_break_after_ms", "CEOVERLAP_HOST_BREAK_AFTER_MS", NULL, "0: never",
	  "tests: the rank's place is lost so long after it was opened" },
	{ "host_fault_rank", "CEOVERLAP_HOST_FAULT_RANK", NULL, "all",
	  "tests: the only rank whose copies have these faults" },
	{ "cuda_connections", "CUDA_DEVICE_MAX_CONNECTIONS", NULL, "CUDA's",
	  "1 would let a waiting lane stop the others" },
	{ "cuda_blocking", "CUDA_LAUNCH_BLOCKING", NULL, "0",
	  "1 would take all overlap away" },
	{ "cuda_loading", "CUDA_MODULE_LOADING", NULL, "LAZY",
	  "EAGER: no first launch waits for the GPU" },
	{ "cuda_devices", "CUDA_VISIBLE_DEVICES", NULL, "all",
	  "the GPUs that this process sees" },
};

#define N_SETTINGS (sizeof(settings) / sizeof(settings[0]))

/* The value in force, unless a call overrides it, and its origin. */
struct value {
	char        text[VALUE_BYTES];
	const char *origin;             /* "environment", "file", "default" */
};

static void fallback_of(const struct setting *setting, char *room, size_t n_bytes)
{
	if (setting->fallback)
		snprintf(room, n_bytes, "%s", setting->fallback);
	else if (!strcmp(setting->name, "deadline_ns"))
		snprintf(room, n_bytes, "%" PRIu64, (uint64_t)CEI_DEADLINE_DEFAULT_NS);
	else if (!strcmp(setting->name, "peer_timeout_ns"))
		snprintf(room, n_bytes, "%" PRIu64, (uint64_t)CEI_RAIL_TIMEOUT_NS);
	else
		snprintf(room, n_bytes, "%" PRIu64, (uint64_t)CEI_CHUNK_DEFAULT_BYTES);
}

static void value_of(const struct setting *setting, struct value *ret_value)
{
	const char *text = setting->variable ? secure_getenv(setting->variable) : NULL;

	if (text && *text) {
		info_plain(text, ret_value->text, sizeof(ret_value->text));
		ret_value->origin = "environment";
		return;
	}
	fallback_of(setting, ret_value->text, sizeof(ret_value->text));
	ret_value->origin = "default";
}

/* --- the user's cache --------------------------------------------------------------- */

static uint32_t n_links(const struct cei_machine *machine, int measured)
{
	uint32_t n = cei_machine_n_places(machine), i, sum = 0;
	const struct cei_machine_link *link;

	for (i = 0; i < n * n; i++) {
		link = &machine->links[i];
		if (link->kind == CEI_MACHINE_NONE || link->kind == CEI_MACHINE_SELF)
			continue;
		sum += !measured || link->origin == CEI_MACHINE_MEASURED;
	}
	return sum;
}

static void measured_of(const struct info *info, struct value *ret_value)
{
	const struct cei_machine *machine = info->machine;
	const char *why = "";
	char path[PATH_MAX];
	uint32_t n = n_links(machine, 1);
	uint32_t n_all = n_links(machine, 0);

	ret_value->origin = n ? "file" : "default";
	if (info->xml_path)
		snprintf(ret_value->text, sizeof(ret_value->text), "%u of %u links", n, n_all);
	else if (cei_machine_cache_path(machine, path, sizeof(path), &why))
		snprintf(ret_value->text, sizeof(ret_value->text), "%u of %u links: %s", n,
			 n_all, why);
	else
		snprintf(ret_value->text, sizeof(ret_value->text), "%u of %u links, %s%s", n,
			 n_all, path, access(path, R_OK) ? " (not there)" : "");
	info_plain(ret_value->text, ret_value->text, sizeof(ret_value->text));
}

static uint32_t lines_of(const char *path)
{
	uint64_t n_bytes, i;
	uint32_t n = 0;
	char *text;

	if (cei_file_read(path, FILE_BYTES_MAX, &text, &n_bytes))
		return 0;
	for (i = 0; i < n_bytes; i++)
		n += text[i] == '\n';
	free(text);
	return n;
}

static void tunings_of(struct value *ret_value)
{
	char path[PATH_MAX];
	uint32_t n;

	ret_value->origin = "default";
	if (cei_tunings_path(path, sizeof(path))) {
		snprintf(ret_value->text, sizeof(ret_value->text),
			 "none: neither XDG_CACHE_HOME nor HOME names a folder");
		return;
	}
	n = lines_of(path);
	if (n)
		ret_value->origin = "file";
	snprintf(ret_value->text, sizeof(ret_value->text), "%u, %s", n, path);
	info_plain(ret_value->text, ret_value->text, sizeof(ret_value->text));
}

/* --- checking the environment -------------------------------------------------------- */

static void drop_line(void *log_arg, const char *line)
{
	(void)log_arg;
	(void)line;
}

/* Finds out whether ceov_open(NULL, ...) would refuse the environment. ret_refusal: its message;
 * "": it would accept. */
static void check(char ret_refusal[CEOV_FAILURE_TEXT_BYTES])
{
	ceov_context *context = calloc(1, sizeof(*context));
	struct ceov_failure failure;
	const char *group;

	ret_refusal[0] = '\0';
	if (!context)
		return;
	cei_report_init(&context->report, drop_line, NULL);
	if (cei_settings_load(context, NULL, &group) &&
	    !cei_report_take(&context->report, &failure))
		snprintf(ret_refusal, CEOV_FAILURE_TEXT_BYTES, "%s", failure.text);
	cei_report_fini(&context->report);
	free(context);
}

/* --- unknown variables --------------------------------------------------------------- */

/* Finds up to UNKNOWN_MAX unknown CEOVERLAP_ variables and writes their names, cut to fit, to
 * ret_names. */
static uint32_t find_unknown(char ret_names[UNKNOWN_MAX][64])
{
	char name[64];
	uint32_t n = 0;
	size_t i, length;

	for (i = 0; environ[i] && n < UNKNOWN_MAX; i++) {
		length = strcspn(environ[i], "=");
		if (strncmp(environ[i], PREFIX, strlen(PREFIX)) ||
		    cei_variable_is_known(environ[i], length))
			continue;
		snprintf(name, sizeof(name), "%.*s", length < 63 ? (int)length : 63,
			 environ[i]);
		info_plain(name, ret_names[n++], 64);
	}
	return n;
}

/* --- output as text and as JSON ------------------------------------------------------ */

static void add_or_null(struct json_object *object, const char *key, const char *text)
{
	json_object_object_add(object, key, text ? json_object_new_string(text) : NULL);
}

static void print_setting(const struct setting *setting, const struct value *value)
{
	printf("  %-20s %-12s %-28s %s\n", setting->name, value->origin,
	       setting->variable ? setting->variable : "-", value->text);
	if (setting->help)
		printf("  %-20s %-12s %s%s%s\n", "", "", setting->help,
		       setting->by_call ? "; call: " : "",
		       setting->by_call ? setting->by_call : "");
}

/* Adds a setting to the list, or prints it, if the list is NULL. */
static void show(struct json_object *list, const struct setting *setting,
		 const struct value *value)
{
	struct json_object *object;
	char fallback[64];

	if (!list) {
		print_setting(setting, value);
		return;
	}
	object = json_object_new_object();
	add_or_null(object, "name", setting->name);
	add_or_null(object, "value", value->text);
	add_or_null(object, "origin", value->origin);
	if (setting->help) {
		fallback_of(setting, fallback, sizeof(fallback));
		add_or_null(object, "default", fallback);
		add_or_null(object, "variable", setting->variable);
		add_or_null(object, "call", setting->by_call);
		add_or_null(object, "help", setting->help);
	}
	json_object_array_add(list, object);
}

static void show_faults(struct json_object *root)
{
	char refusal[CEOV_FAILURE_TEXT_BYTES], unknown[UNKNOWN_MAX][64];
	struct json_object *list = root ? json_object_new_array() : NULL;
	uint32_t n = find_unknown(unknown), i;

	check(refusal);
	if (!root && refusal[0])
		printf("  ceov_open(NULL, ...) would refuse: %s\n", refusal);
	for (i = 0; i < n; i++)
		if (root)
			json_object_array_add(list, json_object_new_string(unknown[i]));
		else
			printf("  %s: nobody reads a variable of this name\n", unknown[i]);
	if (!root)
		return;
	add_or_null(root, "settings_refused", refusal[0] ? refusal : NULL);
	json_object_object_add(root, "settings_unknown", list);
}

void info_settings(const struct info *info, struct json_object *root)
{
	static const struct setting measured = { .name = "measured" };
	static const struct setting tunings = { .name = "tunings" };
	struct json_object *list = root ? json_object_new_array() : NULL;
	struct value value;
	uint32_t i;

	if (!root)
		printf("settings: what holds unless a call says otherwise\n"
		       "  %-20s %-12s %-28s %s\n", "setting", "origin", "variable", "value");
	for (i = 0; i < N_SETTINGS; i++) {
		value_of(&settings[i], &value);
		show(list, &settings[i], &value);
	}
	measured_of(info, &value);
	show(list, &measured, &value);
	tunings_of(&value);
	show(list, &tunings, &value);
	if (root)
		json_object_object_add(root, "settings", list);
	show_faults(root);
}
