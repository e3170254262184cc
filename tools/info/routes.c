/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Prints routes and the reasons for them: one line for every pair of places that includes a GPU,
 * or one pair under every rule. The router gets the same request as it does from the engine, with
 * the engines of all GPUs allowed and no other load.
 */

#include "tools/info/info.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "topology/route.h"

static const char *const rule_names[] = {
	[CEI_ROUTE_RULE_NEEDED] = "needed",
	[CEI_ROUTE_RULE_DIRECT] = "direct",
	[CEI_ROUTE_RULE_ALL]    = "all",
};

struct found {                          /* the router's answer to one request */
	uint32_t         from;
	uint32_t         to;
	uint8_t          rule;
	int              exists;
	struct cei_route route;
};

static void ask(const struct info *info, struct found *found)
{
	const struct cei_machine *machine = info->machine;
	struct cei_route_request request = {
		.from = found->from,
		.to = found->to,
		.bytes = info->route_bytes,
		.rule = found->rule,
		.may_drive = machine->n_gpus < 64 ? (UINT64_C(1) << machine->n_gpus) - 1
			: UINT64_MAX,
	};

	memset(&found->route, 0, sizeof(found->route));
	found->exists = !cei_route_find(machine, &request, &found->route);
}

uint32_t info_rule_of(const char *name)
{
	uint32_t i;

	for (i = 0; i < sizeof(rule_names) / sizeof(rule_names[0]); i++)
		if (!strcmp(rule_names[i], name))
			return i;
	return CEOV_NOBODY;
}

/* Returns whether the pair is shown: copies between two host memories have no routes to choose
 * from. */
static int is_asked(const struct cei_machine *machine, uint32_t from, uint32_t to)
{
	return from != to && (cei_machine_is_gpu(machine, from) ||
			      cei_machine_is_gpu(machine, to));
}

/* --- parsing the requested pair ----------------------------------------------------- */

/* Parses a place; "3" means gpu3. CEOV_NOBODY: there is no such place. */
static uint32_t place_of(const struct cei_machine *machine, const char *text, size_t length)
{
	uint32_t n = cei_machine_n_places(machine), i;
	char name[16];

	for (i = 0; i < n; i++) {
		cei_machine_place_name(machine, i, name);
		if (strlen(name) == length && !strncmp(name, text, length))
			return i;
		if (cei_machine_is_gpu(machine, i) && strlen(name + 3) == length &&
		    !strncmp(name + 3, text, length))
			return i;
	}
	return CEOV_NOBODY;
}

static int parse_pair(const struct info *info, uint32_t *ret_from, uint32_t *ret_to)
{
	const struct cei_machine *machine = info->machine;
	const char *colon = strchr(info->route, ':');   /* there is a colon: checked when options
							 * were parsed */
	int length = (int)(colon - info->route);
	uint32_t from = place_of(machine, info->route, (size_t)length);
	uint32_t to = place_of(machine, colon + 1, strlen(colon + 1));

	if (from != CEOV_NOBODY && to != CEOV_NOBODY && from != to) {
		*ret_from = from;
		*ret_to = to;
		return 0;
	}
	fprintf(stderr, "ceoverlap-info: --route %s: ", info->route);
	if (from == CEOV_NOBODY)
		fprintf(stderr, "%.*s is not on this machine", length, info->route);
	else if (to == CEOV_NOBODY)
		fprintf(stderr, "%s is not on this machine", colon + 1);
	else
		fprintf(stderr, "two different places are needed");
	fprintf(stderr, "; it has ");
	if (machine->n_gpus)
		fprintf(stderr, "gpu0 to gpu%u and ", machine->n_gpus - 1);
	fprintf(stderr, "node0 to node%u\n", machine->n_nodes - 1);
	return CEOV_ERR_INVALID;
}

/* --- text --------------------------------------------------------------------------- */

static double percent_of(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 100.0;
}

static double gb_per_s(uint64_t n_bytes, uint64_t ns)
{
	return ns ? (double)n_bytes / (double)ns : 0;
}

/* "direct 89% + staged via node0 11%" */
static void print_paths(const struct cei_machine *machine, const struct found *found,
			uint64_t n_bytes)
{
	const struct cei_route_path *path;
	char name[16];
	uint32_t i;

	for (i = 0; i < found->route.n_paths; i++) {
		path = &found->route.paths[i];
		printf("%s%s", i ? " + " : "",
		       cei_route_kind_name((enum cei_route_kind)path->kind));
		if (path->via != CEOV_NOBODY)
			printf(" via %s", cei_machine_place_name(machine, path->via, name));
		if (found->route.n_paths > 1)
			printf(" %.0f%%", percent_of(path->bytes, n_bytes));
	}
}

static void line(const struct info *info, const struct found *found)
{
	const struct cei_machine *machine = info->machine;
	char from[16], to[16], why[CEI_ROUTE_WHY_BYTES];

	printf("  %-7s %-7s ", cei_machine_place_name(machine, found->from, from),
	       cei_machine_place_name(machine, found->to, to));
	if (found->exists) {
		printf("%8.1f %10.1f  ", gb_per_s(info->route_bytes,
						  found->route.expected_ns),
		       (double)found->route.expected_ns / 1e3);
		print_paths(machine, found, info->route_bytes);
	} else {
		printf("%8s %10s  no route", "-", "-");
	}
	printf(": %s\n", info_plain(found->route.why, why, sizeof(why)));
}

static void print_path(const struct cei_machine *machine, const struct cei_route_path *path,
		       uint64_t n_bytes)
{
	char via[16] = "-", first[16], second[16] = "";

	if (path->via != CEOV_NOBODY) {
		cei_machine_place_name(machine, path->via, via);
		info_gpu_name(path->engines[1], second);
	}
	printf("    %-8s %-7s %14" PRIu64 " %5.1f%% %8.1f %10.1f  %s%s%s\n",
	       cei_route_kind_name((enum cei_route_kind)path->kind), via, path->bytes,
	       percent_of(path->bytes, n_bytes), (double)path->bytes_per_s / 1e9,
	       (double)path->t0_ns / 1e3, info_gpu_name(path->engines[0], first),
	       second[0] ? ", then " : "", second);
}

static void details(const struct info *info, const struct found *found)
{
	const struct cei_machine *machine = info->machine;
	char why[CEI_ROUTE_WHY_BYTES];
	uint32_t i;

	printf("\n  rule %s: ", rule_names[found->rule]);
	if (found->exists)
		printf("%.1f us, %.1f GB/s: ", (double)found->route.expected_ns / 1e3,
		       gb_per_s(info->route_bytes, found->route.expected_ns));
	else
		printf("no route: ");
	printf("%s\n", info_plain(found->route.why, why, sizeof(why)));
	if (!found->exists)
		return;
	printf("    %-8s %-7s %14s %6s %8s %10s  %s\n", "path", "via", "bytes", "share", "GB/s",
	       "begins us", "copied by");
	for (i = 0; i < found->route.n_paths; i++)
		print_path(machine, &found->route.paths[i], info->route_bytes);
}

/* --- JSON --------------------------------------------------------------------------- */

static struct json_object *path_object(const struct cei_machine *machine,
				       const struct cei_route_path *path)
{
	struct json_object *object = json_object_new_object();
	struct json_object *engines = json_object_new_array();
	int has_via = path->via != CEOV_NOBODY;
	char name[16];

	info_add_text(object, "kind", cei_route_kind_name((enum cei_route_kind)path->kind));
	json_object_object_add(object, "via", !has_via ? NULL : json_object_new_string(
		cei_machine_place_name(machine, path->via, name)));
	json_object_array_add(engines, json_object_new_string(
		info_gpu_name(path->engines[0], name)));
	if (has_via)
		json_object_array_add(engines, json_object_new_string(
			info_gpu_name(path->engines[1], name)));
	json_object_object_add(object, "engines", engines);
	info_add_number(object, "bytes", path->bytes);
	info_add_number(object, "bytes_per_s", path->bytes_per_s);
	info_add_number(object, "t0_ns", path->t0_ns);
	return object;
}

static struct json_object *route_object(const struct info *info, const struct found *found)
{
	const struct cei_machine *machine = info->machine;
	struct json_object *object = json_object_new_object();
	struct json_object *paths = json_object_new_array();
	char name[16];
	uint32_t i;

	info_add_text(object, "from", cei_machine_place_name(machine, found->from, name));
	info_add_text(object, "to", cei_machine_place_name(machine, found->to, name));
	info_add_text(object, "rule", rule_names[found->rule]);
	info_add_number(object, "bytes", info->route_bytes);
	json_object_object_add(object, "exists", json_object_new_boolean(found->exists));
	for (i = 0; found->exists && i < found->route.n_paths; i++)
		json_object_array_add(paths, path_object(machine, &found->route.paths[i]));
	json_object_object_add(object, "paths", paths);
	if (found->exists)
		info_add_number(object, "expected_ns", found->route.expected_ns);
	else
		json_object_object_add(object, "expected_ns", NULL);
	info_add_text(object, "why", found->route.why);
	return object;
}

/* --- every pair, or one -------------------------------------------------------------- */

/* Adds the routes of every pair to the list, or prints them, if the list is NULL. */
static void all_pairs(const struct info *info, struct json_object *list)
{
	uint32_t n = cei_machine_n_places(info->machine);
	struct found found = { .rule = info->rule };

	if (!list && !info->machine->n_gpus) {
		printf("routes: there is no GPU, so no copy engine\n");
		return;
	}
	if (!list)
		printf("routes of %" PRIu64 " bytes, rule %s\n"
		       "  %-7s %-7s %8s %10s  how and why\n", info->route_bytes,
		       rule_names[info->rule], "from", "to", "GB/s", "us");
	for (found.from = 0; found.from < n; found.from++) {
		for (found.to = 0; found.to < n; found.to++) {
			if (!is_asked(info->machine, found.from, found.to))
				continue;
			ask(info, &found);
			if (list)
				json_object_array_add(list, route_object(info, &found));
			else
				line(info, &found);
		}
	}
}

/* The same for the requested pair, under every rule. Returns as info_routes(). */
static int one_pair(const struct info *info, struct json_object *list)
{
	static const uint8_t rules[] = {        /* from the strictest on */
		CEI_ROUTE_RULE_DIRECT, CEI_ROUTE_RULE_NEEDED, CEI_ROUTE_RULE_ALL,
	};
	struct found found = { 0 };
	char from[16], to[16];
	int exists = 0, r = parse_pair(info, &found.from, &found.to);
	size_t i;

	if (r)
		return r;
	if (!list)
		printf("route of %" PRIu64 " bytes from %s to %s\n", info->route_bytes,
		       cei_machine_place_name(info->machine, found.from, from),
		       cei_machine_place_name(info->machine, found.to, to));
	for (i = 0; i < sizeof(rules); i++) {
		found.rule = rules[i];
		ask(info, &found);
		if (list)
			json_object_array_add(list, route_object(info, &found));
		else
			details(info, &found);
		exists |= found.exists && found.rule == info->rule;
	}
	return exists ? 0 : CEOV_NONE;
}

int info_routes(const struct info *info, struct json_object *root)
{
	struct json_object *list = root ? json_object_new_array() : NULL;
	int r = 0;

	if (info->route)
		r = one_pair(info, list);
	else
		all_pairs(info, list);
	if (root)
		json_object_object_add(root, "routes", list);
	return r;
}
