/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Process 0 of an exchange in a folder: it collects the files of all processes, and answers. */

#include "net/folder_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cursor.h"

/* How long process 0 waits at its close for the others to have read its answer, after a success
 * and after a failure; a process that is slower waits in vain. */
#define REMOVE_WAIT_NS  UINT64_C(5000000000)
#define FAILURE_WAIT_NS UINT64_C(1000000000)

struct collecting {
	struct cei_exchange   *exchange;
	struct cei_folder_file *files;  /* by process */
	uint8_t               *has;     /* by process */
	uint32_t               n_has;
};

/* Returns the process whose file of this round has that name, or UINT32_MAX. */
static uint32_t process_of_name(const struct cei_exchange *exchange, const char *name)
{
	char begin[CEI_FOLDER_NAME_BYTES], again[CEI_FOLDER_NAME_BYTES], *end;
	unsigned long process;
	size_t n;

	cei_folder_name_run(exchange, begin);
	n = strlen(begin);
	if (strncmp(name, begin, n))
		return UINT32_MAX;
	n += strspn(name + n, "0123456789");
	if (name[n] != '.')
		return UINT32_MAX;
	process = strtoul(name + n + 1, &end, 10);
	if (*end || process >= exchange->n_processes)
		return UINT32_MAX;
	cei_folder_name_part(exchange, (uint32_t)process, again);
	return strcmp(again, name) ? UINT32_MAX : (uint32_t)process;
}

/* Reads the file that a process has written to the folder, and counts the process as present.
 * A file that is gone again is no error; its process is then not counted. */
static int take_file(struct collecting *collecting, const char *name, uint32_t process)
{
	const struct cei_exchange *exchange = collecting->exchange;
	struct cei_folder_file *file = &collecting->files[process];
	struct cei_folder_head head;
	int r = cei_folder_read_as(exchange, name, process, CEI_GATHERED_BYTES_MAX, file);

	if (r)
		return r == CEOV_NONE ? 0 : r;
	head = file->head;
	collecting->has[process] = 1;
	collecting->n_has++;
	if (head.n_processes == exchange->n_processes)
		return 0;
	return cei_raise(exchange->config.report, CEOV_ERR_INVALID, 0,
			 "process %u says the group has %u processes, process %u says %u",
			 process, head.n_processes, exchange->process, exchange->n_processes);
}

/* Reads the files that have come. */
static int collect_turn(struct collecting *collecting)
{
	struct cei_exchange *exchange = collecting->exchange;
	DIR *list = cei_folder_open_list(exchange->private);
	struct dirent *entry;
	uint32_t process;
	int r = 0;

	if (!list)
		return cei_folder_raise(exchange, errno, "list it");
	while (!r && (entry = readdir(list))) {
		process = process_of_name(exchange, entry->d_name);
		if (process == UINT32_MAX || collecting->has[process])
			continue;
		r = take_file(collecting, entry->d_name, process);
	}
	closedir(list);
	return r;
}

static int collect(struct collecting *collecting, uint64_t deadline_ns)
{
	struct cei_exchange *exchange = collecting->exchange;
	char missing[CEI_MISSING_TEXT_BYTES];
	uint64_t pause_ns = CEI_FOLDER_PAUSE_NS;
	uint32_t n_before;
	int r;

	for (;;) {
		n_before = collecting->n_has;
		r = collect_turn(collecting);
		if (r || collecting->n_has == exchange->n_processes)
			return r;
		if (cei_now_ns() >= deadline_ns)
			break;
		if (collecting->n_has > n_before)
			pause_ns = CEI_FOLDER_PAUSE_NS;
		cei_folder_pause(deadline_ns, &pause_ns);
	}
	cei_missing_text(collecting->has, exchange->n_processes, missing);
	return cei_raise(exchange->config.report, CEOV_ERR_TIMEOUT, 0,
			 "not all processes have come to the folder %s in time: %s missing",
			 exchange->where, missing);
}

/* Writes the answer. n_bytes of the bytes of all, or of the text, follow the entries. */
static int answer(struct collecting *collecting, int error, const void *bytes, uint64_t n_bytes)
{
	struct cei_exchange *exchange = collecting->exchange;
	uint64_t n_all = (uint64_t)exchange->n_processes * CEI_FOLDER_ENTRY_BYTES + n_bytes;
	uint8_t *all = malloc((size_t)n_all);
	struct cei_writer writer = cei_writer_on(all, all ? (size_t)n_all : 0);
	const struct cei_folder_file *file;
	char name[CEI_FOLDER_NAME_BYTES];
	uint32_t i;
	int r;

	if (!all)
		return cei_raise(exchange->config.report, CEOV_ERR_NO_MEMORY, 0,
				 "no memory for the bytes of %u processes",
				 exchange->n_processes);
	for (i = 0; i < exchange->n_processes; i++) {
		file = &collecting->files[i];
		cei_wire_put_u64(&writer, collecting->has[i] ? file->head.instance : 0);
		cei_wire_put_u32(&writer, error ? 0 : (uint32_t)file->n_bytes);
	}
	cei_wire_put_bytes(&writer, bytes, (size_t)n_bytes);
	cei_folder_name_all(exchange, name);
	r = cei_folder_write_as(exchange, name, all, n_all, error);
	free(all);
	return r;
}

static int put_together(struct collecting *collecting, struct cei_gathered *ret_gathered)
{
	struct cei_exchange *exchange = collecting->exchange;
	uint32_t *lengths = calloc(exchange->n_processes, sizeof(*lengths)), i, n;
	int r = CEOV_ERR_NO_MEMORY;

	for (i = 0; lengths && i < exchange->n_processes; i++)
		lengths[i] = (uint32_t)collecting->files[i].n_bytes;
	if (lengths)
		r = cei_gathered_init(ret_gathered, exchange->n_processes, lengths);
	free(lengths);
	if (r)
		return cei_raise(exchange->config.report, r, 0,
				 "no memory for the bytes of %u processes",
				 exchange->n_processes);
	for (i = 0; i < exchange->n_processes; i++)
		memcpy(cei_gathered_part(ret_gathered, i, &n), collecting->files[i].bytes,
		       (size_t)collecting->files[i].n_bytes);
	return answer(collecting, 0, ret_gathered->bytes,
		      ret_gathered->ends[exchange->n_processes - 1]);
}

/* Tells the others why the exchange has failed, so that they do not wait longer. */
static void answer_failure(struct collecting *collecting, int error)
{
	struct cei_exchange *exchange = collecting->exchange;
	char text[CEI_FOLDER_TEXT_BYTES], missing[CEI_MISSING_TEXT_BYTES];

	if (error == CEOV_ERR_TIMEOUT &&
	    cei_missing_text(collecting->has, exchange->n_processes, missing))
		snprintf(text, sizeof(text), "not all processes have come in time: %s missing",
			 missing);
	else
		snprintf(text, sizeof(text), "it could not gather the group of %u processes: %s; "
			 "its log says more", exchange->n_processes, ceov_strerror(error));
	(void)answer(collecting, error, text, strlen(text));
}

static void remove_call(const struct cei_exchange *exchange)
{
	const struct cei_folder *folder = exchange->private;
	char name[CEI_FOLDER_NAME_BYTES];

	cei_folder_name_call(exchange, name);
	(void)unlinkat(folder->fd, name, 0);
}

static int call(struct cei_exchange *exchange)
{
	struct cei_folder *folder = exchange->private;
	char name[CEI_FOLDER_NAME_BYTES];

	folder->run = folder->instance;
	cei_folder_name_call(exchange, name);
	return cei_folder_write_as(exchange, name, NULL, 0, 0);
}

/* Gathers into the arrays of collecting, which has room for all processes. */
static int gather(struct collecting *collecting, uint64_t deadline_ns,
		  struct cei_gathered *ret_gathered)
{
	struct cei_exchange *exchange = collecting->exchange;
	struct cei_folder *folder = exchange->private;
	int r = collect(collecting, deadline_ns);

	remove_call(exchange);
	if (!r)
		r = put_together(collecting, ret_gathered);
	if (!r)
		return 0;
	folder->has_failed = 1;
	cei_gathered_fini(ret_gathered);
	answer_failure(collecting, r);
	return r;
}

int cei_folder_gather(struct cei_exchange *exchange, const void *own, uint32_t n_bytes,
		      uint64_t deadline_ns, struct cei_gathered *ret_gathered)
{
	struct collecting collecting = { .exchange = exchange };
	struct cei_folder *folder = exchange->private;
	uint32_t i;
	int r = 0;

	folder->deadline_ns = deadline_ns;
	collecting.files = calloc(exchange->n_processes, sizeof(*collecting.files));
	collecting.has = calloc(exchange->n_processes, 1);
	if (!collecting.files || !collecting.has)
		r = cei_raise(exchange->config.report, CEOV_ERR_NO_MEMORY, 0,
			      "no memory for the bytes of %u processes", exchange->n_processes);
	if (!r && !exchange->n_rounds)
		r = call(exchange);
	if (!r)
		r = cei_folder_write_part(exchange, own, n_bytes);
	if (!r)
		r = gather(&collecting, deadline_ns, ret_gathered);
	for (i = 0; collecting.has && i < exchange->n_processes; i++)
		if (collecting.has[i])
			free(collecting.files[i].bytes);
	free(collecting.files);
	free(collecting.has);
	return r;
}

/* --- the end ----------------------------------------------------------------------- */

/* Returns how many files of this run, answers apart, are in the folder. */
static uint32_t count_parts(const struct cei_exchange *exchange)
{
	DIR *list = cei_folder_open_list(exchange->private);
	char begin[CEI_FOLDER_NAME_BYTES];
	struct dirent *entry;
	uint32_t n = 0;

	if (!list)
		return 0;
	cei_folder_name_run(exchange, begin);
	while ((entry = readdir(list)))
		n += !strncmp(entry->d_name, begin, strlen(begin)) &&
		     !strstr(entry->d_name, ".all");
	closedir(list);
	return n;
}

/* Removes all files of the group, those of earlier runs included. */
static void remove_files(const struct cei_exchange *exchange)
{
	const struct cei_folder *folder = exchange->private;
	DIR *list = cei_folder_open_list(folder);
	char begin[CEI_FOLDER_NAME_BYTES];
	struct dirent *entry;

	if (!list)
		return;
	snprintf(begin, sizeof(begin), "ceoverlap-%016" PRIx64 ".", exchange->group);
	while ((entry = readdir(list)))
		if (!strncmp(entry->d_name, begin, strlen(begin)))
			(void)unlinkat(folder->fd, entry->d_name, 0);
	closedir(list);
}

/* Until when process 0 waits for the others' reading: not beyond the deadline of the exchange. A
 * failure is often that this has passed, and the others have to be told of it. */
static uint64_t clearing_deadline(const struct cei_folder *folder)
{
	uint64_t deadline_ns;

	if (folder->has_failed)
		return cei_deadline(FAILURE_WAIT_NS);
	deadline_ns = cei_deadline(REMOVE_WAIT_NS);
	return deadline_ns < folder->deadline_ns ? deadline_ns : folder->deadline_ns;
}

void cei_folder_clear(struct cei_exchange *exchange)
{
	const struct cei_folder *folder = exchange->private;
	uint64_t pause_ns = CEI_FOLDER_PAUSE_NS;
	uint64_t deadline_ns = clearing_deadline(folder);
	uint32_t n_parts;

	if (!folder->run)
		return;
	cei_folder_remove_part(exchange);
	while ((n_parts = count_parts(exchange)) && cei_now_ns() < deadline_ns)
		cei_folder_pause(deadline_ns, &pause_ns);
	if (n_parts && !folder->has_failed)
		cei_log(exchange->config.report, CEI_LOG_WARN, "%u processes have not read what "
			"process 0 gathered in %s; its files are removed now", n_parts,
			exchange->where);
	remove_files(exchange);
}
