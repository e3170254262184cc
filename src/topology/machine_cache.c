/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The cache of measured machines, as files. */

#include "topology/machine_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

#define SUFFIX       CEI_MEASURED_SUFFIX
#define NAME_BYTES   64u                /* room for hash, driver and suffix */

/* --- paths ------------------------------------------------------------------------- */

/* Writes the path of the cache folder into path. Its first *ret_n_given characters come from the
 * environment; missing folders within that part are the user's to create, not ours. */
static int folder_of(char *path, size_t n_bytes, uint64_t *ret_n_given, const char **ret_why)
{
	const char *own = secure_getenv("CEOVERLAP_MACHINE_CACHE");
	int error = 0;

	if (own && !strcmp(own, "off")) {
		*ret_why = "switched off by CEOVERLAP_MACHINE_CACHE";
		return CEOV_NONE;
	}
	if (own && *own && *own != '/') {
		*ret_why = "CEOVERLAP_MACHINE_CACHE is neither 'off' nor a folder's whole path";
		return CEOV_NONE;
	}
	n_bytes -= NAME_BYTES;          /* keep room for the file's name behind it */
	if (!own || !*own)
		error = cei_file_cache_folder("/ceoverlap/machines", path, n_bytes,
					      ret_n_given);
	else if ((*ret_n_given = strlen(own)) < n_bytes)
		memcpy(path, own, *ret_n_given + 1);
	else
		error = ENAMETOOLONG;
	if (error)
		*ret_why = error == ENOENT ?
			"neither XDG_CACHE_HOME nor HOME names a folder" :
			"the folder's path is too long";
	return error ? CEOV_NONE : 0;
}

static int is_plain(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '.';
}

static void append_name(const struct cei_machine *machine, char *path, size_t n_bytes)
{
	size_t at = strlen(path);

	/* the driver's version comes from a system file: keep only characters that a
	 * version may have */
	snprintf(path + at, n_bytes - at, "/%016" PRIx64 "-%.31s", machine->hash,
		 machine->driver[0] ? machine->driver : "none");
	for (at += 18; path[at]; at++)
		if (!is_plain(path[at]))
			path[at] = '_';
	snprintf(path + at, n_bytes - at, SUFFIX);
}

int cei_machine_cache_path(const struct cei_machine *machine, char *path, uint64_t n_bytes,
			   const char **ret_why)
{
	uint64_t n_given;
	int r = folder_of(path, n_bytes, &n_given, ret_why);

	if (!r)
		append_name(machine, path, n_bytes);
	return r;
}

/* --- reading ------------------------------------------------------------------------ */

static void drop_line(void *log_arg, const char *line)
{
	(void)log_arg;
	(void)line;
}

/* Takes the costs of a cached file. A bad file is no failure of the caller, so its error goes to
 * a separate report, and the caller's report gets a warning. */
static int load(struct cei_report *report, struct cei_machine *machine, const char *path,
		char *text)
{
	struct ceov_failure failure;
	struct cei_report own;
	int r;

	cei_report_init(&own, drop_line, NULL);
	r = cei_machine_take_measured(&own, machine, path, text);
	if (r && !cei_report_take(&own, &failure))
		cei_log(report, CEI_LOG_WARN, "measured links are passed over: %s; measure "
			"anew (ceoverlap-bench measure) or remove the file", failure.text);
	cei_report_fini(&own);
	return !r;
}

int cei_machine_cache_load(struct cei_report *report, struct cei_machine *machine)
{
	char path[PATH_MAX], *text = NULL;
	const char *why = "";
	uint64_t n_bytes = 0;
	int error, is_loaded;

	if (cei_machine_cache_path(machine, path, sizeof(path), &why)) {
		cei_log(report, CEI_LOG_INFO, "no measured links: %s", why);
		return 0;
	}
	error = cei_file_read(path, CEI_MEASURED_BYTES_MAX, &text, &n_bytes);
	if (error) {
		if (error != ENOENT && error != ENOTDIR)
			cei_log(report, CEI_LOG_WARN, "measured links in '%s' are passed "
				"over: %s; measure anew or remove the file", path,
				cei_file_fault(error));
		return 0;
	}
	is_loaded = load(report, machine, path, text);
	free(text);
	if (is_loaded)
		cei_log(report, CEI_LOG_DEBUG, "measured links taken from '%s'", path);
	return is_loaded;
}

/* --- writing ------------------------------------------------------------------------ */

static int is_ours(const char *name)
{
	size_t i, length = strlen(name);

	if (length < 17 + sizeof(SUFFIX) || length >= NAME_BYTES || name[16] != '-' ||
	    strcmp(name + length - strlen(SUFFIX), SUFFIX))
		return 0;
	for (i = 0; i < 16; i++)
		if (!strchr("0123456789abcdef", name[i]))
			return 0;
	return 1;
}

/* If the folder has too many files, removes the oldest one other than `fresh`. Returns whether it
 * removed a file. */
static int drop_oldest(const char *folder, const char *fresh)
{
	char oldest[NAME_BYTES] = "";
	struct timespec age = { 0, 0 };
	DIR *list = opendir(folder);
	struct dirent *entry;
	struct stat about;
	uint32_t n = 0;
	int is_dropped = 0;

	if (!list)
		return 0;
	while ((entry = readdir(list))) {
		if (!is_ours(entry->d_name) ||
		    fstatat(dirfd(list), entry->d_name, &about, AT_SYMLINK_NOFOLLOW))
			continue;
		n++;
		if (!strcmp(entry->d_name, fresh))
			continue;
		if (*oldest && (about.st_mtim.tv_sec > age.tv_sec ||
				(about.st_mtim.tv_sec == age.tv_sec &&
				 about.st_mtim.tv_nsec >= age.tv_nsec)))
			continue;
		age = about.st_mtim;
		snprintf(oldest, sizeof(oldest), "%.*s", (int)sizeof(oldest) - 1,
			 entry->d_name);
	}
	if (n > CEI_MACHINE_CACHE_FILES && *oldest)
		is_dropped = !unlinkat(dirfd(list), oldest, 0);
	closedir(list);
	return is_dropped;
}

static int replace(struct cei_report *report, const struct cei_machine *machine,
		   const char *path)
{
	uint64_t n_bytes;
	char *text;
	int error, r = cei_machine_measured_text(machine, &text, &n_bytes);

	if (r)
		return cei_raise(report, r, 0, "measured links cannot be kept in '%s': %s", path,
				 r == CEOV_FULL ? "more links share a port than a file can name" :
				 "no memory");
	error = cei_file_replace(path, text, n_bytes, 0600);
	free(text);
	return error ? cei_raise(report, CEOV_ERR_SYSTEM, error, "measured links cannot be "
				 "kept in '%s': %s", path, cei_file_fault(error)) : 0;
}

int cei_machine_cache_store(struct cei_report *report, const struct cei_machine *machine)
{
	char folder[PATH_MAX], path[PATH_MAX];
	const char *why = "";
	uint32_t i;
	uint64_t n_given;
	int r = folder_of(folder, sizeof(folder), &n_given, &why);

	if (r) {
		cei_log(report, CEI_LOG_INFO, "measured links are not kept: %s", why);
		return r;
	}
	cei_file_make_folders(folder, n_given);
	snprintf(path, sizeof(path), "%s", folder);
	append_name(machine, path, sizeof(path));
	r = replace(report, machine, path);
	/* The number of tries is bounded, because other processes may add files meanwhile. */
	for (i = 0; !r && i < CEI_MACHINE_CACHE_FILES; i++)
		if (!drop_oldest(folder, strrchr(path, '/') + 1))
			break;
	return r;
}
