/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Reads the machine at a context's open; read-only afterwards. */

#include "topology/topology.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cuda_driver.h"
#include "topology/machine_cache.h"

/* --- this machine ----------------------------------------------------------------- */

/* Writes the version of the driver's kernel module, which stays the same when only the library is
 * updated. If it cannot be read, writes the version of CUDA. */
static void name_driver(const struct cei_site *site, char *text, size_t n_bytes)
{
	uint32_t version = cei_topology_cuda_version(site);
	FILE *file;
	size_t i;

	text[0] = '\0';
	if (!version)
		return;
	file = fopen("/sys/module/nvidia/version", "re");
	if (file) {
		if (!fgets(text, (int)n_bytes, file))
			text[0] = '\0';
		fclose(file);
	}
	for (i = 0; isalnum((unsigned char)text[i]) || text[i] == '.'; i++)
		;
	text[i] = '\0';
	if (!i)
		snprintf(text, n_bytes, "cuda%u.%u", version / 1000, version % 1000 / 10);
}

/* Discovers this machine; errors are raised in site's report. */
static int discover(struct cei_site *site, struct cei_machine **ret_machine)
{
	struct cei_machine_hints *hints = calloc(1, sizeof(*hints));
	struct cei_machine *machine = NULL;
	int r;

	if (!hints)
		return cei_raise(site->report, CEOV_ERR_NO_MEMORY, 0,
				 "topology: no memory for what the driver tells");
	r = cei_machine_hints_from_driver(site, hints);
	if (!r)
		r = cei_machine_from_hwloc(site->report,
					   cei_topology_load_hwloc(site->report),
					   hints->n_gpus ? hints : NULL, &machine);
	free(hints);
	if (r)
		return r;
	name_driver(site, machine->driver, sizeof(machine->driver));
	*ret_machine = machine;
	return 0;
}

int cei_machine_open_unmeasured(struct cei_report *report, struct cei_machine **ret_machine)
{
	struct cei_site site = { .report = report };
	const char *why = "";
	int r = cei_cuda_open(report, &site.cuda, &why);

	if (r < 0)
		return r;
	if (r)
		cei_log(report, CEI_LOG_DEBUG, "topology: %s", why);
	r = discover(&site, ret_machine);
	if (site.cuda)
		cei_cuda_close(site.cuda);
	return r;
}

int cei_machine_open_live(struct cei_report *report, struct cei_machine **ret_machine)
{
	int r = cei_machine_open_unmeasured(report, ret_machine);

	if (!r)
		cei_machine_cache_load(report, *ret_machine);
	return r;
}

/* --- the machine of a context ------------------------------------------------------- */

static void drop_line(void *log_arg, const char *line)
{
	(void)log_arg;
	(void)line;
}

/* Reads the machine. If that fails, the context opens all the same: the error goes to a separate
 * report, and the context's report gets one warning. */
static void discover_if_possible(struct cei_topology *topology, const struct cei_site *site)
{
	struct cei_report report;
	struct ceov_failure failure;
	struct cei_site own = *site;

	cei_report_init(&report, drop_line, NULL);
	own.report = &report;
	if (!discover(&own, &topology->machine))
		cei_machine_cache_load(site->report, topology->machine);
	else if (!cei_report_take(&report, &failure))
		cei_log(site->report, CEI_LOG_WARN, "%s; going on without the machine's "
			"links", failure.text);
	cei_report_fini(&report);
}

static int take_file(struct cei_topology *topology, struct cei_site *site, const char *path)
{
	int r = cei_machine_read_xml(site->report, path, &topology->machine);
	uint32_t i;

	for (i = 0; !r && i < site->n_members; i++)
		if (site->members[i].place.kind == CEOV_PLACE_GPU &&
		    site->members[i].place.index >= topology->machine->n_gpus)
			r = cei_raise(site->report, CEOV_ERR_INVALID, 0,
				      "CEOVERLAP_MACHINE: '%s' has %u GPUs, but rank %u is on "
				      "GPU %u: name a file of a machine that is large enough",
				      path, topology->machine->n_gpus, site->members[i].rank,
				      site->members[i].place.index);
	return r;
}

int cei_topology_open(struct cei_site *site, struct cei_topology **ret_topology)
{
	struct cei_topology *topology = calloc(1, sizeof(*topology));
	const char *path = secure_getenv("CEOVERLAP_MACHINE");
	int r;

	if (!topology)
		return cei_raise(site->report, CEOV_ERR_NO_MEMORY, 0,
				 "topology: no memory");
	r = cei_topology_discover_gpus(topology, site);
	if (!r && path && *path)
		r = take_file(topology, site, path);
	if (r)
		goto fail;
	/* Reading the machine takes tens of milliseconds, and only GPUs need it. */
	if (!topology->machine && topology->n_gpus)
		discover_if_possible(topology, site);
	*ret_topology = topology;
	return 0;
fail:
	cei_topology_close(topology);
	return r;
}

void cei_topology_close(struct cei_topology *topology)
{
	if (!topology)
		return;
	cei_machine_destroy(topology->machine);
	free(topology);
}
