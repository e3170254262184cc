/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* An exchange by files in a shared folder: which folder, and what processes other than 0 do. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cursor.h"
#include "base/report.h"
#include "net/exchange_numbers.h"
#include "net/means.h"
#include "net/folder_private.h"

/* --- the folder -------------------------------------------------------------------- */

/* A folder is given by config, if it has a slash, or by CEOVERLAP_FOLDER. */
static int detect(struct cei_exchange *exchange)
{
	const struct cei_exchange_config *config = &exchange->config;
	const char *where = config->where;
	int r;

	if (!where)
		where = secure_getenv("CEOVERLAP_FOLDER");
	if (!where || !strchr(where, '/'))
		return 0;
	r = cei_exchange_numbers(exchange);
	if (r <= 0)
		return r;
	r = cei_exchange_where(exchange, where);
	if (!r)
		r = cei_exchange_job(exchange, NULL);
	if (!r && !exchange->job[0])
		r = cei_raise(config->report, CEOV_ERR_INVALID, 0, "two jobs in the folder "
			      "%s would take each other's processes for their own: give each a "
			      "name (CEOVERLAP_JOB, or ceov_network.job)", exchange->where);
	return r ? r : 1;
}

static int open_folder(struct cei_exchange *exchange)
{
	struct cei_folder *folder = exchange->private;

	folder->fd = open(exchange->where, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder->fd < 0)
		return cei_folder_raise(exchange, errno, "open it");
	if (faccessat(folder->fd, ".", W_OK | X_OK, AT_EACCESS)) {
		cei_folder_raise(exchange, errno, "write to it");
		close(folder->fd);
		return CEOV_ERR_SYSTEM;
	}
	return 0;
}

static int open_exchange(struct cei_exchange *exchange, uint64_t deadline_ns)
{
	struct cei_folder *folder = calloc(1, sizeof(*folder));
	int r;

	(void)deadline_ns;
	if (!folder)
		return cei_raise(exchange->config.report, CEOV_ERR_NO_MEMORY, 0,
				 "no memory to exchange files in %s", exchange->where);
	exchange->private = folder;
	while (!folder->instance)
		if (getrandom(&folder->instance, sizeof(folder->instance), 0) !=
		    (ssize_t)sizeof(folder->instance)) {
			r = cei_raise(exchange->config.report, CEOV_ERR_SYSTEM, errno,
				      "getrandom: %s", strerror(errno));
			free(folder);
			return r;
		}
	r = open_folder(exchange);
	if (r)
		free(folder);
	return r;
}

/* --- processes other than 0 -------------------------------------------------------- */

struct asking {
	struct cei_exchange *exchange;
	const void          *own;
	uint32_t             n_bytes;
};

/* Reads the call, and writes this process's file anew if it is another one than before. A call
 * that cannot be read may be of an earlier run: it is looked at again later. */
static int follow_call(struct asking *asking)
{
	struct cei_exchange *exchange = asking->exchange;
	struct cei_folder *folder = exchange->private;
	struct cei_folder_file file;
	char name[CEI_FOLDER_NAME_BYTES];
	int r;

	cei_folder_name_call(exchange, name);
	r = cei_folder_read(folder->fd, name, 0, &file);
	if (r == CEOV_ERR_SYSTEM)
		return cei_folder_raise(exchange, errno, "read a file");
	folder->foreign_version = r == CEOV_ERR_VERSION ? file.head.version : 0;
	if (r)
		return 0;
	free(file.bytes);
	if (file.head.group != exchange->group || !file.head.run ||
	    file.head.run == folder->run)
		return 0;
	cei_folder_remove_part(exchange);
	folder->run = file.head.run;
	return cei_folder_write_part(exchange, asking->own, asking->n_bytes);
}

/* Returns whether the answer was made with this process's file. Process 0 may have another number
 * of processes. */
static int is_answer_to_us(struct cei_exchange *exchange, const struct cei_folder_file *file)
{
	struct cei_folder *folder = exchange->private;
	uint64_t at = (uint64_t)exchange->process * CEI_FOLDER_ENTRY_BYTES;
	struct cei_reader reader;
	uint64_t instance;

	if (exchange->process >= file->head.n_processes ||
	    file->n_bytes < (uint64_t)file->head.n_processes * CEI_FOLDER_ENTRY_BYTES)
		return 0;
	reader = cei_reader_on(file->bytes + at, CEI_FOLDER_ENTRY_BYTES);
	instance = cei_wire_get_u64(&reader);
	if (instance == folder->instance)
		return 1;
	folder->foreign_instance = instance;
	return 0;
}

/* Raises the failure that process 0 tells, whose text is all that follows the entries. */
static int raise_told(const struct cei_exchange *exchange, const struct cei_folder_file *file)
{
	uint64_t begin = (uint64_t)file->head.n_processes * CEI_FOLDER_ENTRY_BYTES, i, n;
	char text[CEI_FOLDER_TEXT_BYTES];
	int error = file->head.error;

	n = file->n_bytes - begin;
	if (n >= sizeof(text))
		n = sizeof(text) - 1;
	for (i = 0; i < n; i++)
		text[i] = file->bytes[begin + i] >= ' ' && file->bytes[begin + i] <= '~'
			? (char)file->bytes[begin + i] : '?';
	text[n] = '\0';
	if (error < CEI_ERROR_LOWEST || error >= 0)
		error = CEOV_ERR_INVALID;
	return cei_raise(exchange->config.report, error, 0, "process 0 says: %s", text);
}

/* Takes the bytes of all out of the answer. CEOV_ERR_INVALID, not raised: it is malformed. */
static int take_answer(const struct cei_exchange *exchange, const struct cei_folder_file *file,
		       struct cei_gathered *ret_gathered)
{
	uint32_t n = exchange->n_processes, i, *lengths = calloc(n, sizeof(*lengths));
	struct cei_reader reader = cei_reader_on(file->bytes, (size_t)file->n_bytes);
	int r;

	if (!lengths)
		return CEOV_ERR_NO_MEMORY;
	if (file->head.n_processes != n)
		reader.failed = 1;
	for (i = 0; i < n; i++) {
		(void)cei_wire_get_u64(&reader);
		lengths[i] = cei_wire_get_u32(&reader);
	}
	r = cei_gathered_init(ret_gathered, n, lengths);
	free(lengths);
	if (r)
		return r;
	cei_wire_get_bytes(&reader, ret_gathered->bytes, (size_t)ret_gathered->ends[n - 1]);
	r = cei_reader_end(&reader);
	if (r)
		cei_gathered_fini(ret_gathered);
	return r;
}

/* Reads the answer. CEOV_NONE: there is none yet for this process. */
static int hear(struct asking *asking, struct cei_gathered *ret_gathered)
{
	struct cei_exchange *exchange = asking->exchange;
	uint64_t limit = (uint64_t)exchange->n_processes *
			 (CEI_FOLDER_ENTRY_BYTES + CEI_GATHERED_BYTES_MAX);
	struct cei_folder_file file;
	char name[CEI_FOLDER_NAME_BYTES];
	int r;

	cei_folder_name_all(exchange, name);
	r = cei_folder_read_as(exchange, name, 0, limit, &file);
	if (r)
		return r;
	if (!is_answer_to_us(exchange, &file)) {
		free(file.bytes);
		return CEOV_NONE;
	}
	cei_folder_remove_part(exchange);       /* tells process 0 that it was read */
	if (file.head.error) {
		r = raise_told(exchange, &file);
	} else {
		r = take_answer(exchange, &file, ret_gathered);
		if (r)
			r = cei_raise(exchange->config.report, r, 0, "the answer of process 0 in "
				      "%s/%s cannot be taken: %s", exchange->where, name,
				      ceov_strerror(r));
	}
	free(file.bytes);
	return r;
}

static int raise_silence(const struct cei_exchange *exchange)
{
	const struct cei_folder *folder = exchange->private;
	struct cei_report *report = exchange->config.report;

	if (folder->foreign_version)
		return cei_raise(report, CEOV_ERR_VERSION, 0, "process 0 has files of version %u "
				 "in %s, process %u has version %u: install one version of "
				 "ceoverlap on all nodes", folder->foreign_version,
				 exchange->where, exchange->process, CEI_FOLDER_VERSION);
	if (folder->foreign_instance)
		return cei_raise(report, CEOV_ERR_TIMEOUT, 0, "process 0 has answered in %s to "
				 "another process %u: two processes have this number, or files of "
				 "an earlier run are there and process 0 is missing",
				 exchange->where, exchange->process);
	return cei_raise(report, CEOV_ERR_TIMEOUT, 0, "process 0 has not %s the folder %s in "
			 "time", folder->run ? "answered in" : "come to", exchange->where);
}

/* Asks and waits for the answer, a little longer than the deadline. */
static int ask(struct asking *asking, uint64_t deadline_ns, struct cei_gathered *ret_gathered)
{
	struct cei_exchange *exchange = asking->exchange;
	struct cei_folder *folder = exchange->private;
	uint64_t pause_ns = CEI_FOLDER_PAUSE_NS;
	DIR *list;
	int r = 0;

	if (deadline_ns < CEI_FOREVER - CEI_EXCHANGE_GRACE_NS)
		deadline_ns += CEI_EXCHANGE_GRACE_NS;
	if (exchange->n_rounds)
		r = cei_folder_write_part(exchange, asking->own, asking->n_bytes);
	while (!r) {
		list = cei_folder_open_list(folder);
		if (!list)
			return cei_folder_raise(exchange, errno, "list it");
		closedir(list);
		r = exchange->n_rounds ? 0 : follow_call(asking);
		if (!r)
			r = folder->run ? hear(asking, ret_gathered) : CEOV_NONE;
		if (r != CEOV_NONE)
			return r;
		if (cei_now_ns() >= deadline_ns)
			return raise_silence(exchange);
		cei_folder_pause(deadline_ns, &pause_ns);
		r = 0;
	}
	return r;
}

/* --- both -------------------------------------------------------------------------- */

static int all_gather(struct cei_exchange *exchange, const void *own, uint32_t n_bytes,
		      uint64_t deadline_ns, struct cei_gathered *ret_gathered)
{
	struct asking asking = { exchange, own, n_bytes };

	if (!exchange->process)
		return cei_folder_gather(exchange, own, n_bytes, deadline_ns, ret_gathered);
	return ask(&asking, deadline_ns, ret_gathered);
}

static void close_exchange(struct cei_exchange *exchange)
{
	struct cei_folder *folder = exchange->private;

	if (!exchange->process)
		cei_folder_clear(exchange);
	else
		cei_folder_remove_part(exchange);
	close(folder->fd);
	free(folder);
}

const struct cei_exchange_ops cei_exchange_folder = {
	.name = "folder",
	.detect = detect,
	.open = open_exchange,
	.all_gather = all_gather,
	.close = close_exchange,
};
