/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Reads and writes the file of measured tunings. */

#include "ops/tuning/tunings.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "ops/compute/dtype.h"
#include "ops/kind.h"

#define LINE_BYTES     (CEI_TUNING_KEY_BYTES + 128u)
#define FILE_BYTES_MAX (2 * (uint64_t)CEI_TUNINGS_MAX * LINE_BYTES)

/* --- keys ------------------------------------------------------------------ */

/* Continues a hash with n numbers, by FNV-1a. */
static uint64_t mix(uint64_t hash, const uint64_t *numbers, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		hash = (hash ^ numbers[i]) * UINT64_C(1099511628211);
	return hash;
}

/* Hashes the sizes, because a key that lists the rows of 64 ranks would be long. */
static uint64_t hash_of(const struct cei_op_shape *shape)
{
	uint32_t n_ranks = shape->n_ranks;
	uint64_t hash = UINT64_C(14695981039346656037);

	hash = mix(hash, shape->rows, n_ranks);
	hash = mix(hash, shape->product.n, shape->product.n_products);
	if (shape->blocks)
		hash = mix(hash, shape->blocks, n_ranks * n_ranks);
	if (shape->a2a.is_by_columns) {
		hash = mix(hash, shape->a2a.rows, n_ranks);
		hash = mix(hash, shape->a2a.columns, n_ranks);
	}
	return mix(hash, &shape->product.k, 1);
}

void cei_tuning_key(const char *machine, const struct cei_op_shape *shape,
		    char key[CEI_TUNING_KEY_BYTES])
{
	uint64_t rows = 0, columns = 0;
	size_t at;
	uint32_t i;

	for (i = 0; i < shape->n_ranks; i++)
		rows += shape->rows[i];
	for (i = 0; i < shape->product.n_products; i++)
		columns += shape->product.n[i];
	snprintf(key, CEI_TUNING_KEY_BYTES, "%.*s/%s%s/%s/%u/%" PRIu64 "x%" PRIu64 "x%" PRIu64
		 "/%016" PRIx64, 80, machine, shape->kind->key,
		 shape->product.b_is_k_by_n ? "_kn" : "", cei_dtype_name(shape->dtype),
		 shape->n_ranks, rows, columns, shape->product.k, hash_of(shape));
	for (at = 0; key[at]; at++)
		if (!isgraph((unsigned char)key[at]))
			key[at] = '_';
}

/* --- the file -------------------------------------------------------------- */

/* Builds the path of the file. Returns 0 or an errno. */
static int path_of(char *path, uint64_t n_bytes, uint64_t *ret_n_given)
{
	return cei_file_cache_folder("/ceoverlap/tunings", path, n_bytes, ret_n_given);
}

int cei_tunings_path(char *path, uint64_t n_bytes)
{
	uint64_t n_given;

	return path_of(path, n_bytes, &n_given) ? CEOV_NONE : 0;
}

static int parse(const char *line, char *key, struct ceov_op_tuning *ret_tuning)
{
	struct ceov_op_tuning tuning = { .struct_bytes = sizeof(tuning) };
	unsigned format, mode, cut, order;
	char end;

	_Static_assert(CEI_TUNING_KEY_BYTES == 192, "the format has its length");
	if (sscanf(line, "%191s %u %u %u %u %u %u %u %" SCNu64 " %u %u %u%c", key, &format, &mode,
		   &tuning.n_pieces, &tuning.tile_rows, &tuning.tile_columns,
		   &tuning.n_reduce_blocks, &cut, &tuning.chunk_bytes, &order, &tuning.band_rows,
		   &tuning.n_gemm_blocks, &end) != 13 ||
	    end != '\n' || format != CEI_TUNINGS_FORMAT)
		return CEOV_NONE;
	tuning.mode = (enum ceov_op_mode)mode;
	tuning.cut = (enum ceov_op_cut)cut;
	tuning.tile_order = (enum ceov_op_order)order;
	if (mode == CEOV_MODE_CHOOSE || cei_selector_fault(&tuning))
		return CEOV_NONE;
	*ret_tuning = tuning;
	return 0;
}

/* Returns the text of the file, or "" if there is no file or it is not one of ours. The caller
 * frees the text. NULL: no memory. */
static char *read_lines(const char *path)
{
	uint64_t n_bytes;
	char *text = NULL;

	if (cei_file_read(path, FILE_BYTES_MAX, &text, &n_bytes))
		text = calloc(1, 1);
	return text;
}

/* Copies the next complete line with its newline, and moves *text behind it; NULL: there is none.
 * Lines that are too long are skipped. A last line without a newline was cut off when the disk was
 * full, and is ignored. */
static const char *next_line(const char **text, char line[LINE_BYTES])
{
	size_t n_bytes;

	for (;;) {
		n_bytes = strcspn(*text, "\n");
		if (!(*text)[n_bytes])
			return NULL;
		n_bytes++;
		if (n_bytes < LINE_BYTES)
			break;
		*text += n_bytes;       /* skip a line that is too long */
	}
	memcpy(line, *text, n_bytes);
	line[n_bytes] = '\0';
	*text += n_bytes;
	return line;
}

int cei_tunings_recall(const char *key, struct ceov_op_tuning *ret_tuning)
{
	char path[PATH_MAX], line[LINE_BYTES], seen[CEI_TUNING_KEY_BYTES];
	struct ceov_op_tuning tuning;
	const char *at;
	char *text;
	int r = cei_tunings_path(path, sizeof(path));

	if (r)
		return r;
	text = read_lines(path);
	at = text;
	r = CEOV_NONE;
	while (at && next_line(&at, line)) {
		if (parse(line, seen, &tuning) || strcmp(seen, key))
			continue;
		*ret_tuning = tuning;
		r = 0;
	}
	free(text);
	return r;
}

/* Copies all valid lines that have another key than `key`, except for the first `skip` of them.
 * Returns how many such lines there were. */
static uint32_t copy_others(const char *text, const char *key, FILE *to, uint32_t skip)
{
	char line[LINE_BYTES], seen[CEI_TUNING_KEY_BYTES];
	struct ceov_op_tuning tuning;
	uint32_t n = 0;

	while (next_line(&text, line)) {
		if (parse(line, seen, &tuning) || !strcmp(seen, key))
			continue;
		if (to && n >= skip)
			fputs(line, to);
		n++;
	}
	return n;
}

/* Writes all lines of the new file. Returns 0 or an errno. */
static int write_lines(const char *path, const char *key,
		       const struct ceov_op_tuning *tuning, FILE *to)
{
	char *text = read_lines(path);
	uint32_t n;

	if (!text)
		return ENOMEM;
	n = copy_others(text, key, NULL, 0);
	copy_others(text, key, to, n < CEI_TUNINGS_MAX ? 0 : n - CEI_TUNINGS_MAX + 1);
	free(text);
	fprintf(to, "%s %u %u %u %u %u %u %u %" PRIu64 " %u %u %u\n", key, CEI_TUNINGS_FORMAT,
		(unsigned)tuning->mode, tuning->n_pieces, tuning->tile_rows, tuning->tile_columns,
		tuning->n_reduce_blocks, (unsigned)tuning->cut, tuning->chunk_bytes,
		(unsigned)tuning->tile_order, tuning->band_rows, tuning->n_gemm_blocks);
	return ferror(to) ? ENOMEM : 0;
}

/* Replaces the file by one in which `key` has this tuning. Returns 0 or an errno. */
static int replace(const char *path, const char *key, const struct ceov_op_tuning *tuning)
{
	size_t n_bytes = 0;
	char *text = NULL;
	FILE *to = open_memstream(&text, &n_bytes);
	int error;

	if (!to)
		return errno;
	error = write_lines(path, key, tuning, to);
	if (fclose(to) && !error)
		error = errno;
	if (!error)
		error = cei_file_replace(path, text, n_bytes, 0600);
	free(text);
	return error;
}

int cei_tunings_remember(struct cei_report *report, const char *key,
			 const struct ceov_op_tuning *tuning)
{
	char path[PATH_MAX], *name;
	uint64_t n_given;
	int error = path_of(path, sizeof(path), &n_given);

	if (error)
		return cei_raise(report, CEOV_ERR_SYSTEM, error, "tunings cannot be remembered: "
				 "neither XDG_CACHE_HOME nor HOME names a folder");
	name = strrchr(path, '/');
	*name = '\0';
	cei_file_make_folders(path, n_given);
	*name = '/';
	error = replace(path, key, tuning);
	return error ? cei_raise(report, CEOV_ERR_SYSTEM, error, "tunings cannot be "
				 "remembered in '%s': %s", path, cei_file_fault(error)) : 0;
}
