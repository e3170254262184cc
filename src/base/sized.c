/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "base/sized.h"

#include <string.h>

#define SIZE_MAX_BYTES 4096u            /* a larger struct_bytes must be uninitialised */

static size_t size_of(const void *from)
{
	size_t bytes;

	memcpy(&bytes, from, sizeof(bytes));
	return bytes;
}

static int is_zero(const unsigned char *bytes, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (bytes[i])
			return 0;
	return 1;
}

const char *cei_sized_room_fault(const void *to, size_t first_bytes)
{
	size_t bytes;

	if (!to)
		return "there is no struct";
	bytes = size_of(to);
	if (bytes < first_bytes)
		return "struct_bytes is too small: set it to the struct's size";
	/* A size_t is the first member, so the size of such a struct is a multiple of it. */
	if (bytes > SIZE_MAX_BYTES || bytes % sizeof(bytes))
		return "struct_bytes is no struct's size: set it to the struct's size";
	return NULL;
}

const char *cei_sized_fault(const void *from, size_t first_bytes, size_t known_bytes)
{
	const char *fault = cei_sized_room_fault(from, first_bytes);
	size_t bytes;

	if (fault)
		return fault;
	bytes = size_of(from);
	if (bytes > known_bytes &&
	    !is_zero((const unsigned char *)from + known_bytes, bytes - known_bytes))
		return "the struct sets fields that this library does not know: the library "
			"is older than the caller's header";
	return NULL;
}

int cei_sized_check(struct cei_report *report, const void *from, size_t first_bytes,
		    size_t known_bytes, const char *what)
{
	const char *fault = cei_sized_fault(from, first_bytes, known_bytes);

	if (!fault)
		return 0;
	return cei_raise(report, CEOV_ERR_INVALID, 0, "%s: %s", what, fault);
}

void cei_sized_take(void *to, const void *from, size_t known_bytes)
{
	size_t bytes = from ? size_of(from) : 0;

	if (bytes > known_bytes)
		bytes = known_bytes;
	memset(to, 0, known_bytes);
	if (bytes)
		memcpy(to, from, bytes);
}

void cei_sized_give(void *to, const void *from, size_t known_bytes)
{
	size_t bytes = size_of(to), n_given = bytes < known_bytes ? bytes : known_bytes;

	memcpy((unsigned char *)to + sizeof(bytes), (const unsigned char *)from + sizeof(bytes),
	       n_given - sizeof(bytes));
	memset((unsigned char *)to + n_given, 0, bytes - n_given);
}

int cei_sized_answer(struct cei_report *report, void *to, const void *from, size_t first_bytes,
		     const char *what)
{
	const char *fault = cei_sized_room_fault(to, first_bytes);

	if (fault)
		return cei_raise(report, CEOV_ERR_INVALID, 0, "%s: %s", what, fault);
	cei_sized_give(to, from, size_of(from));
	return 0;
}
