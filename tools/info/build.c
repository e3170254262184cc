/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Versions at build time and at run time, and the available backends. */

#include "tools/info/info.h"

#include <string.h>

#include <hwloc.h>

#include "backend/place.h"
#include "base/cuda_driver.h"
#include "tools/info/rail.h"

struct built {
	char     toolkit[32];           /* version of CUDA's toolkit; "": built without CUDA */
	char     driver[32];            /* version of the driver; "": none */
	uint32_t n_gpus;
	char     why_no_gpu[256];       /* "": GPUs can be used */
	struct info_rail rail;
	char     hwloc_api[32];         /* API version of the loaded library; its release cannot
					 * be queried */
};

static void format_hwloc(unsigned version, char room[32])
{
	snprintf(room, 32, "%u.%u.%u", version >> 16, version >> 8 & 0xff, version & 0xff);
}

static void keep_line(void *log_arg, const char *line)
{
	struct built *built = log_arg;

	if (!built->why_no_gpu[0])
		snprintf(built->why_no_gpu, sizeof(built->why_no_gpu), "%s", line);
}

/* Opens the driver and keeps its log lines, because here an unusable driver is a result to
 * report. */
static void ask_driver(struct built *built)
{
	const char *why = "";
	struct cei_cuda *cuda = NULL;
	struct cei_report report;
	int r;

	cei_report_init(&report, keep_line, built);
	r = cei_cuda_open(&report, &cuda, &why);
	if (r == CEOV_NONE)
		snprintf(built->why_no_gpu, sizeof(built->why_no_gpu), "%s", why);
	if (!r) {
		built->n_gpus = cei_cuda_n_gpus(cuda);
		built->why_no_gpu[0] = '\0';
		info_cuda_driver(cuda, built->driver);
		cei_cuda_close(cuda);
	}
	cei_report_fini(&report);
}

static void look(const struct info *info, struct built *ret_built)
{
	memset(ret_built, 0, sizeof(*ret_built));
	info_cuda_toolkit(ret_built->toolkit);
	format_hwloc(hwloc_get_api_version(), ret_built->hwloc_api);
	ask_driver(ret_built);
	info_rail_try(info->machine, &ret_built->rail);
}

/* --- backends ------------------------------------------------------------------------ */

struct backend_line {
	const char *name;
	int         is_built;
	int         is_usable;
	char        why[300];           /* why it is not available; otherwise what it is used for */
};

#define N_BACKENDS 3

static void list_backends(const struct built *built, struct backend_line *ret_lines)
{
	struct backend_line *cuda = &ret_lines[1], *net = &ret_lines[2];

	memset(ret_lines, 0, N_BACKENDS * sizeof(*ret_lines));
	ret_lines[0].name = "host";
	ret_lines[0].is_built = cei_backend_named(ret_lines[0].name) != NULL;
	ret_lines[0].is_usable = ret_lines[0].is_built;
	snprintf(ret_lines[0].why, sizeof(ret_lines[0].why), "host memory, by threads");
	cuda->name = "cuda";
	cuda->is_built = cei_backend_named(cuda->name) != NULL;
	cuda->is_usable = cuda->is_built && built->n_gpus;
	if (cuda->is_usable)
		snprintf(cuda->why, sizeof(cuda->why), "copy engines of %u GPUs",
			 built->n_gpus);
	else if (cuda->is_built)
		snprintf(cuda->why, sizeof(cuda->why), "%s", built->why_no_gpu);
	else
		snprintf(cuda->why, sizeof(cuda->why),
			 "configure found no CUDA toolkit, or was told to leave it out");
	net->name = "net";
	net->is_built = cei_backend_named(net->name) != NULL;
	net->is_usable = net->is_built && built->rail.is_usable;
	if (net->is_usable)
		snprintf(net->why, sizeof(net->why), "memory of other nodes");
	else
		snprintf(net->why, sizeof(net->why), "%s", built->rail.text);
}

static const char *state_of(const struct backend_line *backend)
{
	if (backend->is_usable)
		return "yes";
	return backend->is_built ? "built, not usable" : "not built";
}

/* --- output as text and as JSON ------------------------------------------------------ */

static void print_rail(const struct info_rail *rail)
{
	const struct info_left *left;
	char plain[300];

	printf("\n  %-12s %-18s\n", "rail", "usable");
	printf("  %-12s %-18s %s\n", rail->name, rail->is_usable ? "yes" : "no",
	       info_plain(rail->text, plain, sizeof(plain)));
	printf("  %-12s %-18s why: %s\n", "", "", info_plain(rail->why, plain, sizeof(plain)));
	for (left = rail->left; left < rail->left + rail->n_left; left++) {
		printf("  %-12s %-18s ", info_plain(left->name, plain, sizeof(plain)),
		       "no rail");
		printf("why not: %s\n", info_plain(left->why, plain, sizeof(plain)));
	}
	printf("  (of a process whose first rank is on GPU 0; others use the NIC of their first "
	       "rank's GPU. CEOVERLAP_NICS names others)\n");
}

static void print_build(const struct built *built, const struct backend_line *backends)
{
	char plain[300];
	uint32_t i;

	printf("build\n");
	printf("  %-12s %s\n", "ceoverlap", ceov_version());
	printf("  %-12s %s\n", "compiler", __VERSION__);
	printf("  %-12s toolkit %s, driver %s\n", "CUDA",
	       built->toolkit[0] ? built->toolkit : "none",
	       built->driver[0] ? built->driver : "none");
	printf("  %-12s %s, runs with one of interface %s\n", "hwloc", HWLOC_VERSION,
	       built->hwloc_api);
	printf("  %-12s %s, runs with %s\n", "json-c", JSON_C_VERSION, json_c_version());
	printf("\n  %-12s %-18s\n", "backend", "usable");
	for (i = 0; i < N_BACKENDS; i++)
		printf("  %-12s %-18s %s\n", backends[i].name, state_of(&backends[i]),
		       info_plain(backends[i].why, plain, sizeof(plain)));
	print_rail(&built->rail);
}

static void add_version(struct json_object *object, const char *key, const char *text)
{
	json_object_object_add(object, key, text[0] ? json_object_new_string(text) : NULL);
}

static struct json_object *backend_object(const struct backend_line *backend)
{
	struct json_object *object = json_object_new_object();

	info_add_text(object, "name", backend->name);
	json_object_object_add(object, "is_built", json_object_new_boolean(backend->is_built));
	json_object_object_add(object, "is_usable",
			       json_object_new_boolean(backend->is_usable));
	info_add_text(object, "why", backend->why);
	return object;
}

static struct json_object *rail_object(const struct info_rail *rail)
{
	struct json_object *object = json_object_new_object();

	info_add_text(object, "name", rail->name);
	json_object_object_add(object, "is_usable", json_object_new_boolean(rail->is_usable));
	info_add_text(object, "text", rail->text);
	info_add_text(object, "why", rail->why);
	return object;
}

static struct json_object *left_array(const struct info_rail *rail)
{
	struct json_object *list = json_object_new_array(), *object;
	const struct info_left *left;

	for (left = rail->left; left < rail->left + rail->n_left; left++) {
		object = json_object_new_object();
		info_add_text(object, "name", left->name);
		info_add_text(object, "why", left->why);
		json_object_array_add(list, object);
	}
	return list;
}

static struct json_object *build_object(const struct built *built,
					const struct backend_line *backends)
{
	struct json_object *object = json_object_new_object();
	struct json_object *list = json_object_new_array();
	uint32_t i;

	add_version(object, "ceoverlap", ceov_version());
	add_version(object, "compiler", __VERSION__);
	add_version(object, "cuda_toolkit", built->toolkit);
	add_version(object, "cuda_driver", built->driver);
	add_version(object, "hwloc", HWLOC_VERSION);
	add_version(object, "hwloc_interface", built->hwloc_api);
	add_version(object, "json_c", json_c_version());
	json_object_object_add(object, "rail", rail_object(&built->rail));
	json_object_object_add(object, "nics_without_rail", left_array(&built->rail));
	for (i = 0; i < N_BACKENDS; i++)
		json_object_array_add(list, backend_object(&backends[i]));
	json_object_object_add(object, "backends", list);
	return object;
}

void info_build(const struct info *info, struct json_object *root)
{
	struct backend_line backends[N_BACKENDS];
	struct built built;

	look(info, &built);
	list_backends(&built, backends);
	if (root)
		json_object_object_add(root, "build", build_object(&built, backends));
	else
		print_build(&built, backends);
}
