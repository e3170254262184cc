/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Machine files: hwloc reads and writes its own format. Files are written whole or not at all. */

#include "topology/machine_builder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"

#define XML_BYTES_MAX (UINT64_C(64) << 20)
/* Memory attributes and kinds of processors are not used here, so hwloc need not read them. */
#if HWLOC_API_VERSION >= 0x00020800
#define FLAGS (HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS | HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS)
#else
#define FLAGS 0
#endif
/* Files are written in the format of hwloc 2, which is the one that is read. */
#if HWLOC_API_VERSION >= 0x00030000
#define EXPORT_FLAGS HWLOC_TOPOLOGY_EXPORT_XML_FLAG_V2
#else
#define EXPORT_FLAGS 0
#endif
#define WHERE_BYTES 100u                /* how much of a path's end error messages show */

static void where_of(const char *path, char where[WHERE_BYTES])
{
	size_t n = strlen(path);

	if (n < WHERE_BYTES)
		cei_builder_text(where, WHERE_BYTES, path);
	else
		snprintf(where, WHERE_BYTES, "...%s", path + n - (WHERE_BYTES - 4));
}

static int fail_system(struct cei_report *report, const char *where, const char *what,
		       int error)
{
	char text[128];

	return cei_raise(report, CEOV_ERR_SYSTEM, error, "%s: %s: %s", where, what,
			 strerror_r(error, text, sizeof(text)));
}

/* --- reading -------------------------------------------------------------------------- */

/* Raises that hwloc refused the text. The format's version stands in the root element; in the
 * format of hwloc 1 it may be missing, and then hwloc alone knows what is wrong. */
static int fail_parse(struct cei_report *report, const char *where, const char *text)
{
	const unsigned int linked = hwloc_get_api_version() >> 16;
	const char *root = strstr(text, "<topology ");
	const char *version = root ? strstr(root, "version=\"") : NULL;
	unsigned int format = 0;

	if (version && version < root + strcspn(root, ">"))
		sscanf(version, "version=\"%3u", &format);
	if (format && format != linked)
		return cei_raise(report, CEOV_ERR_INVALID, 0, "%s: in the format of hwloc %u, "
				 "which this program's hwloc %u does not read: use hwloc %u, or "
				 "write the file in hwloc %u's format (hwloc 3 does so with "
				 "lstopo --export-xml-flags v2)", where, format, linked, format,
				 linked);
	return cei_raise(report, CEOV_ERR_INVALID, 0,
			 "%s: no topology that hwloc %u reads (with HWLOC_XML_VERBOSE=1 it "
			 "tells what it minds)", where, linked);
}

/* Makes a machine from the XML text of a topology, and fills in the source's tree. n_bytes does not
 * count the final NUL. */
static int parse(struct cei_report *report, struct cei_machine_source *source, const char *text,
		 uint64_t n_bytes, struct cei_machine **ret_machine)
{
	const char *where = source->where;

	if (hwloc_topology_init(&source->hwloc))
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0,
				 "%s: hwloc cannot be initialised", where);
	if (cei_machine_set_filters(source->hwloc) ||
	    hwloc_topology_set_flags(source->hwloc, FLAGS) ||
	    hwloc_topology_set_xmlbuffer(source->hwloc, text, (int)n_bytes + 1) ||
	    hwloc_topology_load(source->hwloc)) {
		hwloc_topology_destroy(source->hwloc);
		return fail_parse(report, where, text);
	}
	return cei_machine_make(report, source, ret_machine);
}

static int fail_read(struct cei_report *report, const char *where, int error,
		     uint64_t n_bytes)
{
	if (error == EINVAL)
		return cei_raise(report, CEOV_ERR_INVALID, 0, "%s: not a file", where);
	if (error == EFBIG)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "%s: %llu bytes are more than are read", where,
				 (unsigned long long)n_bytes);
	if (error == ENOMEM)
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0, "%s: no memory for it", where);
	return fail_system(report, where, "cannot be opened or read", error);
}

/* The name of the file beside a machine's; the caller frees it. NULL: no memory. */
static char *beside(const char *path)
{
	char *name = malloc(strlen(path) + sizeof(CEI_MEASURED_SUFFIX));

	return name ? strcat(strcpy(name, path), CEI_MEASURED_SUFFIX) : NULL;
}

/* Reads the file beside a machine's, which need not be there. */
static int read_beside(struct cei_report *report, const char *path, char **ret_text)
{
	char *name = beside(path);
	char where[WHERE_BYTES];
	uint64_t n_bytes = 0;
	int error = name ? cei_file_read(name, CEI_MEASURED_BYTES_MAX, ret_text, &n_bytes) : ENOMEM;

	where_of(name ? name : path, where);
	free(name);
	return error && error != ENOENT ? fail_read(report, where, error, n_bytes) : 0;
}

int cei_machine_read_xml(struct cei_report *report, const char *path,
			 struct cei_machine **ret_machine)
{
	char where[WHERE_BYTES];
	struct cei_machine_source source = { where, NULL, NULL, NULL };
	uint64_t n_bytes = 0;
	char *text = NULL;
	int r, error = cei_file_read(path, XML_BYTES_MAX, &text, &n_bytes);

	where_of(path, where);
	if (error)
		return fail_read(report, where, error, n_bytes);
	r = read_beside(report, path, &source.measured);
	if (!r)
		r = parse(report, &source, text, n_bytes, ret_machine);
	free(source.measured);
	free(text);
	return r;
}

/* --- writing -------------------------------------------------------------------------- */

/* Makes an hwloc tree, which has NUMA nodes only, for a machine that was built without a tree. */
static int plant(struct cei_report *report, const char *where,
		 const struct cei_machine *machine, hwloc_topology_t *ret_hwloc)
{
	hwloc_topology_t hwloc = NULL;
	char text[64];
	uint32_t i;

	for (i = 0; i < machine->n_nodes; i++)
		if (machine->nodes[i].os_index != i || machine->nodes[i].is_gpu_memory ||
		    machine->nodes[i].package != CEOV_NOBODY)
			break;
	if (i < machine->n_nodes || machine->n_nics)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "%s: a machine without hwloc's tree keeps no packages "
				 "and NICs in a file", where);
	snprintf(text, sizeof(text), "numa:%u pu:1", machine->n_nodes);
	if (hwloc_topology_init(&hwloc) || hwloc_topology_set_synthetic(hwloc, text) ||
	    hwloc_topology_load(hwloc)) {
		if (hwloc)
			hwloc_topology_destroy(hwloc);
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0,
				 "%s: hwloc cannot make a tree of %u nodes", where,
				 machine->n_nodes);
	}
	*ret_hwloc = hwloc;
	return 0;
}

static int export(struct cei_report *report, const char *where, hwloc_topology_t hwloc,
		  char **ret_text, uint64_t *ret_n_bytes)
{
	char *text = NULL;
	int n_bytes = 0;

	if (hwloc_topology_export_xmlbuffer(hwloc, &text, &n_bytes, EXPORT_FLAGS) || n_bytes < 1)
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0,
				 "%s: hwloc cannot write the machine as XML", where);
	*ret_n_bytes = (uint64_t)n_bytes - 1;   /* without the NUL */
	*ret_text = strdup(text);
	hwloc_free_xmlbuffer(hwloc, text);
	return *ret_text ? 0 : cei_raise(report, CEOV_ERR_NO_MEMORY, 0,
					 "%s: no memory for the machine's text", where);
}

/* Returns the machine's tree as XML; the caller frees it. */
static int write_tree(struct cei_report *report, const struct cei_machine *machine,
		      const char *where, char **ret_text, uint64_t *ret_n_bytes)
{
	hwloc_topology_t hwloc = machine->hwloc;
	int r = hwloc ? 0 : plant(report, where, machine, &hwloc);

	if (!r)
		r = export(report, where, hwloc, ret_text, ret_n_bytes);
	if (!machine->hwloc && hwloc)
		hwloc_topology_destroy(hwloc);
	return r;
}

/* Writes the file beside a machine's. */
static int write_beside(struct cei_report *report, const struct cei_machine *machine,
			const char *path, const char *where)
{
	char *text = NULL, *name = beside(path);
	uint64_t n_bytes = 0;
	int error, r = name ? cei_machine_measured_text(machine, &text, &n_bytes) :
		CEOV_ERR_NO_MEMORY;

	if (r) {
		free(name);
		return cei_raise(report, r, 0, "%s" CEI_MEASURED_SUFFIX
				 ": cannot be written: %s", where, r == CEOV_FULL ?
				 "more links share a port than a line can name" :
				 "no memory");
	}
	error = cei_file_replace(name, text, n_bytes, 0666);
	free(text);
	free(name);
	return error ? fail_system(report, where, "the file " CEI_MEASURED_SUFFIX
				   " beside it cannot be written", error) : 0;
}

int cei_machine_write_xml(struct cei_report *report, const struct cei_machine *machine,
			  const char *path)
{
	char where[WHERE_BYTES];
	struct stat about;
	uint64_t n_bytes = 0;
	char *text;
	int error, r;

	where_of(path, where);
	/* The user may have named a device, into which the XML would be written in place, not as
	 * a new file that replaces it. Refuse it. */
	if (!stat(path, &about) && !S_ISREG(about.st_mode))
		return cei_raise(report, CEOV_ERR_INVALID, 0, "%s: not a file", where);
	r = write_tree(report, machine, where, &text, &n_bytes);
	if (r)
		return r;
	error = cei_file_replace(path, text, n_bytes, 0666);
	free(text);
	return error ? fail_system(report, where, "cannot be written", error) :
		write_beside(report, machine, path, where);
}
