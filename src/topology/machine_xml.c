/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* A machine's file: read with distrust, written whole or not at all. */

#include "topology/machine_draft.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topology/xml_scan.h"

/* What no machine here is made of, a file need not be trusted with. */
#if HWLOC_API_VERSION >= 0x00020800
#define FLAGS (HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS | HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS)
#else
#define FLAGS 0
#endif
#define WHERE_BYTES 100u                /* of a path that errors name: its end */

static void where_of(const char *path, char where[WHERE_BYTES])
{
	size_t n = strlen(path);

	if (n < WHERE_BYTES)
		cei_draft_text(where, WHERE_BYTES, path);
	else
		snprintf(where, WHERE_BYTES, "...%s", path + n - (WHERE_BYTES - 4));
}

static int fail_system(struct cei_report *report, const char *where, const char *what)
{
	int error = errno;
	char text[128];

	return cei_raise(report, CEOV_ERR_SYSTEM, error, "%s: %s: %s", where, what,
			 strerror_r(error, text, sizeof(text)));
}

/* --- reading -------------------------------------------------------------------------- */

/* Text of the topology into a machine. n_bytes does not count the NUL behind it. */
static int parse(struct cei_report *report, const char *where, const char *text,
		 uint64_t n_bytes, struct cei_machine **ret_machine)
{
	struct cei_machine_source source = { where, NULL, NULL };
	struct cei_xml_fault fault;

	if (cei_xml_scan(text, n_bytes, &fault))
		return cei_raise(report, CEOV_ERR_INVALID, 0, "%s, line %u: %s", where,
				 fault.line, fault.why);
	if (hwloc_topology_init(&source.hwloc))
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0,
				 "%s: hwloc cannot be initialised", where);
	if (cei_machine_set_filters(source.hwloc) ||
	    hwloc_topology_set_flags(source.hwloc, FLAGS) ||
	    hwloc_topology_set_xmlbuffer(source.hwloc, text, (int)n_bytes + 1) ||
	    hwloc_topology_load(source.hwloc)) {
		hwloc_topology_destroy(source.hwloc);
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "%s: XML, but no topology that hwloc reads (with "
				 "HWLOC_XML_VERBOSE=1 it tells what it minds)", where);
	}
	return cei_machine_make(report, &source, ret_machine);
}

int cei_machine_read_xml_text(struct cei_report *report, const char *text, uint64_t n_bytes,
			      struct cei_machine **ret_machine)
{
	char *copy = NULL;
	int r;

	/* hwloc wants a NUL behind it, which a text by length need not have */
	if (n_bytes <= CEI_XML_BYTES_MAX)
		copy = malloc(n_bytes + 1);
	if (!copy)
		return cei_raise(report, CEOV_ERR_INVALID, 0, "XML text: of %llu bytes, at "
				 "most %llu", (unsigned long long)n_bytes,
				 (unsigned long long)CEI_XML_BYTES_MAX);
	memcpy(copy, text, n_bytes);
	copy[n_bytes] = '\0';
	r = parse(report, "XML text", copy, n_bytes, ret_machine);
	free(copy);
	return r;
}

/* The whole of an open file into memory, with a NUL behind it. */
static int read_all(struct cei_report *report, const char *where, int file,
		    char **ret_text, uint64_t *ret_n_bytes)
{
	struct stat stat;
	uint64_t done = 0;
	ssize_t n = 1;
	char *text;

	if (fstat(file, &stat))
		return fail_system(report, where, "cannot be asked");
	if (!S_ISREG(stat.st_mode))
		return cei_raise(report, CEOV_ERR_INVALID, 0, "%s: not a file", where);
	if ((uint64_t)stat.st_size > CEI_XML_BYTES_MAX)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "%s: %llu bytes, at most %llu are read", where,
				 (unsigned long long)stat.st_size,
				 (unsigned long long)CEI_XML_BYTES_MAX);
	text = malloc((size_t)stat.st_size + 1);
	if (!text)
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0, "%s: no memory for it", where);
	while (done < (uint64_t)stat.st_size && n > 0) {
		n = read(file, text + done, (size_t)stat.st_size - done);
		if (n > 0)
			done += (uint64_t)n;
		else if (n < 0 && errno == EINTR)
			n = 1;
	}
	if (n < 0) {
		free(text);
		return fail_system(report, where, "cannot be read");
	}
	text[done] = '\0';
	*ret_text = text;
	*ret_n_bytes = done;
	return 0;
}

int cei_machine_read_xml(struct cei_report *report, const char *path,
			 struct cei_machine **ret_machine)
{
	/* not blocking: a pipe nobody writes to is refused, not waited for */
	int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	char where[WHERE_BYTES];
	uint64_t n_bytes = 0;
	char *text = NULL;
	int r;

	where_of(path, where);
	if (file < 0)
		return fail_system(report, where, "cannot be opened");
	r = read_all(report, where, file, &text, &n_bytes);
	close(file);
	if (r)
		return r;
	r = parse(report, where, text, n_bytes, ret_machine);
	free(text);
	return r;
}

/* --- writing -------------------------------------------------------------------------- */

/* A tree for a machine that was made without one: its nodes and nothing else. */
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

/* Until the name stands for the whole of it, the file has another one. */
static int write_all(struct cei_report *report, const char *path, const char *text,
		     size_t n_bytes)
{
	char where[WHERE_BYTES], temporary[PATH_MAX];
	size_t done = 0;
	ssize_t n = 0;
	int file;

	where_of(path, where);
	if (snprintf(temporary, sizeof(temporary), "%s.%d.tmp", path, (int)gettid()) >=
	    (int)sizeof(temporary))
		return cei_raise(report, CEOV_ERR_INVALID, 0, "%s: too long a path", where);
	(void)unlink(temporary);        /* of a process that died, or nobody's business */
	file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (file < 0)
		return fail_system(report, where, "cannot be written");
	while (done < n_bytes && (n >= 0 || errno == EINTR)) {
		n = write(file, text + done, n_bytes - done);
		done += n > 0 ? (size_t)n : 0;
	}
	/* a full disk may show at the close only */
	if (close(file) || done < n_bytes || rename(temporary, path)) {
		file = errno;
		unlink(temporary);
		errno = file;
		return fail_system(report, where, "cannot be written");
	}
	return 0;
}

static int export(struct cei_report *report, const struct cei_machine *machine,
		  hwloc_topology_t hwloc, const char *path)
{
	char where[WHERE_BYTES];
	char *text = NULL;
	int n_bytes = 0;
	int r;

	where_of(path, where);
	r = cei_machine_tell(report, machine, hwloc, where);
	if (r)
		return r;
	if (hwloc_topology_export_xmlbuffer(hwloc, &text, &n_bytes, 0) || n_bytes < 1)
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0,
				 "%s: hwloc cannot write the machine as XML", where);
	r = write_all(report, path, text, (size_t)n_bytes - 1);        /* without the NUL */
	hwloc_free_xmlbuffer(hwloc, text);
	return r;
}

int cei_machine_write_xml(struct cei_report *report, const struct cei_machine *machine,
			  const char *path)
{
	hwloc_topology_t hwloc;
	char where[WHERE_BYTES];
	struct stat stat_now;
	int r = 0;

	where_of(path, where);
	if (!stat(path, &stat_now) && !S_ISREG(stat_now.st_mode))
		return cei_raise(report, CEOV_ERR_INVALID, 0, "%s: not a file", where);
	if (!machine->hwloc)
		r = plant(report, where, machine, &hwloc);
	else if (hwloc_topology_dup(&hwloc, machine->hwloc))
		r = cei_raise(report, CEOV_ERR_NO_MEMORY, 0,
			      "%s: no memory for the machine's tree", where);
	if (r)
		return r;
	r = export(report, machine, hwloc, path);
	hwloc_topology_destroy(hwloc);
	return r;
}
