/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceoverlap-info: the options, and the order of the sections. */

#include "tools/common/refused.h"
#include "tools/info/info.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "topology/route.h"
#include "topology/topology.h"
#include "config.h"
#include "tools/common/streams.h"

#define SCHEMA_VERSION      2
#define ROUTE_BYTES_DEFAULT (UINT64_C(256) << 20)

enum key { KEY_XML = 256, KEY_JSON, KEY_EXPORT, KEY_ROUTE, KEY_BYTES, KEY_RULE, KEY_ALL };

static const struct argp_option options_table[] = {
	{ "xml", KEY_XML, "FILE", 0, "Look at the machine of this hwloc XML file (default: "
	  "what CEOVERLAP_MACHINE names, else this machine)", 0 },
	{ "json", KEY_JSON, NULL, 0, "Print JSON", 0 },
	{ "export", KEY_EXPORT, "FILE", 0, "Write the machine as hwloc XML, its links beside it; "
	  "prints nothing unless sections are named", 0 },
	{ "route", KEY_ROUTE, "FROM:TO", 0, "One route under every rule, say gpu0:gpu1, "
	  "node0:gpu3 or 0:1 (default: one line for every pair)", 1 },
	{ "bytes", KEY_BYTES, "SIZE", 0, "Of routes (default 256M; suffix K, M, G)", 1 },
	{ "rule", KEY_RULE, "needed|direct|all", 0, "Which paths routes may take: direct where "
	  "there is a direct link, direct alone, or several at once (default: "
	  "CEOVERLAP_ROUTES, else needed)", 1 },
	{ "all", KEY_ALL, NULL, 0, "The same as --rule all", 1 },
	{ NULL, 0, NULL, 0, NULL, 0 },
};

static const struct { const char *name; uint32_t section; int in_default; } names[] = {
	{ "machine", INFO_MACHINE, 1 },
	{ "links", INFO_LINKS, 1 },
	{ "ports", INFO_PORTS, 0 },
	{ "affinity", INFO_AFFINITY, 1 },
	{ "routes", INFO_ROUTES, 1 },
	{ "settings", INFO_SETTINGS, 1 },
	{ "build", INFO_BUILD, 1 },
};

#define N_NAMES (sizeof(names) / sizeof(names[0]))

/* --- options -------------------------------------------------------------------------- */

static uint64_t parse_size(struct argp_state *state, const char *text)
{
	static const char suffixes[] = "KMG";
	const char *suffix;
	char *end = NULL;
	uint64_t value;
	int shift = 0;

	errno = 0;
	value = strtoull(text, &end, 10);
	suffix = *end ? strchr(suffixes, *end & ~0x20) : NULL;
	if (suffix) {
		shift = 10 * (int)(suffix - suffixes + 1);
		end++;
	}
	if (errno || *text < '0' || *text > '9' || *end || !value ||
	    value > UINT64_C(1) << (50 - shift))
		argp_error(state, "%s: '%s' must be a size from 1 byte to 1024 TiB, say 64M",
			   refused_option(state, text).text, text);
	return value << shift;
}

static uint8_t parse_rule(struct argp_state *state, const char *text)
{
	uint32_t rule = info_rule_of(text);

	if (rule == CEOV_NOBODY)
		argp_error(state, "%s: '%s' must be needed, direct or all",
			   refused_option(state, text).text, text);
	return (uint8_t)rule;
}

static uint32_t parse_section(struct argp_state *state, const char *text)
{
	size_t i;

	for (i = 0; i < N_NAMES; i++)
		if (!strcmp(names[i].name, text))
			return names[i].section;
	argp_error(state, "no section '%s': machine, links, ports, affinity, routes, settings "
		   "or build", text);
	return 0;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
	struct info *info = state->input;

	switch (key) {
	case KEY_XML:
		info->xml_path = text;
		info->is_told = 0;
		break;
	case KEY_JSON: info->as_json = 1; break;
	case KEY_EXPORT: info->export_path = text; break;
	case KEY_ROUTE:
		if (!strchr(text, ':'))
			argp_error(state, "%s: '%s' must be FROM:TO, say gpu0:gpu1",
				   refused_option(state, text).text, text);
		info->route = text;
		break;
	case KEY_BYTES: info->route_bytes = parse_size(state, text); break;
	case KEY_RULE: info->rule = parse_rule(state, text); break;
	case KEY_ALL: info->rule = CEI_ROUTE_RULE_ALL; break;
	case ARGP_KEY_ARG: info->sections |= parse_section(state, text); break;
	default: return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* Reads environment variables as the library does. A route rule that the library would refuse is
 * reported among the settings. */
static void take_environment(struct info *info)
{
	const char *path = getenv("CEOVERLAP_MACHINE"), *routes = getenv("CEOVERLAP_ROUTES");

	if (path && *path) {
		info->xml_path = path;
		info->is_told = 1;
	}
	if (routes && info_rule_of(routes) != CEOV_NOBODY)
		info->rule = (uint8_t)info_rule_of(routes);
}

static void choose_sections(struct info *info)
{
	size_t i;

	if (info->sections)
		return;
	if (info->route)
		info->sections = INFO_ROUTES;
	for (i = 0; i < N_NAMES && !info->route && !info->export_path; i++)
		if (names[i].in_default || info->as_json)
			info->sections |= names[i].section;
}

/* --- opening the machine and printing -------------------------------------------------- */

static int open_machine(struct info *info)
{
	int is_told = info->xml_path && info->sections & INFO_BUILD;    /* its rails are shown */

	if (!(info->sections & INFO_OF_MACHINE) && !info->export_path && !is_told)
		return 0;
	if (info->xml_path)
		return cei_machine_read_xml(&info->report, info->xml_path, &info->machine);
	return cei_machine_open_live(&info->report, &info->machine);
}

static int print_section(const struct info *info, uint32_t section)
{
	switch (section) {
	case INFO_MACHINE:  info_machine_text(info); break;
	case INFO_LINKS:    info_links_text(info); break;
	case INFO_PORTS:    info_ports_text(info); break;
	case INFO_AFFINITY: info_affinity_text(info); break;
	case INFO_ROUTES:   return info_routes(info, NULL);
	case INFO_SETTINGS: info_settings(info, NULL); break;
	default:            info_build(info, NULL); break;
	}
	return 0;
}

static int print_text(const struct info *info)
{
	int r, n = 0, result = 0;
	size_t i;

	for (i = 0; i < N_NAMES && result >= 0; i++) {
		if (!(info->sections & names[i].section))
			continue;
		if (n++)
			printf("\n");
		r = print_section(info, names[i].section);
		if (r)
			result = r;
	}
	return result;
}

static int print_json(const struct info *info)
{
	struct json_object *root = json_object_new_object();
	int r = 0;

	info_add_number(root, "schema_version", SCHEMA_VERSION);
	info_machine_json(info, root);
	if (info->sections & INFO_ROUTES)
		r = info_routes(info, root);
	if (info->sections & INFO_SETTINGS)
		info_settings(info, root);
	if (info->sections & INFO_BUILD)
		info_build(info, root);
	if (r >= 0)
		printf("%s\n", json_object_to_json_string_ext(root, JSON_C_TO_STRING_PRETTY |
							      JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(root);
	return r;
}

/* Prints the sections; returns the exit status. */
static int work(struct info *info)
{
	int r = open_machine(info);

	if (!r && info->export_path)
		r = cei_machine_write_xml(&info->report, info->machine, info->export_path);
	if (r)
		return EXIT_FAILURE;
	r = info->as_json && info->sections ? print_json(info) : print_text(info);
	if (r < 0)
		return 2;
	return r ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* argp prints this for --version. */
const char *argp_program_version = PACKAGE_STRING;

int main(int argc, char **argv)
{
	static const struct argp argp = { options_table, parse, "[SECTION...]",
		"Tells what ceoverlap sees: the machine, its links, which NIC and memory is "
		"near which GPU, the routes that bytes take and why, settings and where they "
		"come from, and what was built. Sections: machine, links, ports (what links "
		"share; not by default), affinity, routes, settings, build.\v"
		"Exit status: 0 when all was told; 1 when the machine cannot be read or "
		"written, or the route that was asked for does not exist under the rule; 2 "
		"on unusable arguments.",
		NULL, NULL, NULL };
	struct info info = { .route_bytes = ROUTE_BYTES_DEFAULT };
	int status;

	streams_begin();
	argp_err_exit_status = 2;
	take_environment(&info);
	if (argp_parse(&argp, argc, argv, 0, NULL, &info))
		return 2;
	choose_sections(&info);
	cei_report_init(&info.report, NULL, NULL);
	status = work(&info);
	cei_machine_destroy(info.machine);
	cei_report_fini(&info.report);
	return status;
}
