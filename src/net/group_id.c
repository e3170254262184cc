/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "net/group_id.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "net/siphash.h"

#define VARIABLE "CEOVERLAP_SECRET"

static int take(struct cei_report *report, const void *bytes, size_t n_bytes,
		struct cei_secret *ret_secret)
{
	if (n_bytes > CEI_SECRET_BYTES_MAX)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "the group's secret has %zu bytes, at most %u", n_bytes,
				 CEI_SECRET_BYTES_MAX);
	memset(ret_secret, 0, sizeof(*ret_secret));
	if (n_bytes)
		memcpy(ret_secret->bytes, bytes, n_bytes);
	ret_secret->n_bytes = (uint32_t)n_bytes;
	return 0;
}

static int read_file(struct cei_report *report, const char *path, struct cei_secret *ret_secret)
{
	uint64_t n_bytes = 0;
	char *text = NULL;
	int error = cei_file_read(path, CEI_SECRET_BYTES_MAX, &text, &n_bytes);
	int r;

	if (error)
		return cei_raise(report, CEOV_ERR_SYSTEM, error, VARIABLE
				 " names the file %s: %s", path, error == EFBIG ?
				 "it is longer than 4096 bytes" : cei_file_fault(error));
	if (n_bytes)
		r = take(report, text, (size_t)n_bytes, ret_secret);
	else
		r = cei_raise(report, CEOV_ERR_INVALID, 0, VARIABLE
			      " names the file %s, which is empty", path);
	free(text);
	return r;
}

int cei_secret_load(struct cei_report *report, const void *bytes, size_t n_bytes,
		    struct cei_secret *ret_secret)
{
	const char *text = secure_getenv(VARIABLE);

	if (n_bytes || !text)
		return take(report, bytes, n_bytes, ret_secret);
	if (*text == '/')
		return read_file(report, text, ret_secret);
	return take(report, text, strlen(text), ret_secret);
}

/* The key of the hash are two hashes of the secret, so that a secret may be of any length. */
uint64_t cei_group_id(const struct cei_secret *secret, const char *job)
{
	static const uint64_t first[2] = { 0, 1 }, second[2] = { 2, 3 };
	const uint64_t key[2] = {
		cei_siphash(first, secret->bytes, secret->n_bytes),
		cei_siphash(second, secret->bytes, secret->n_bytes),
	};
	uint64_t id = cei_siphash(key, job, strlen(job));

	return id ? id : 1;
}
