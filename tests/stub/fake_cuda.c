/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * A fake libcuda.so.1 for failures before a GPU is used: a driver that is too old, lacks a
 * call, sees no GPU, or has a GPU without required abilities ("poor": one GPU with all
 * attributes 0). It moves nothing. It works only where CEOVERLAP_FAKE_CUDA selects a
 * behaviour, and reports that on stderr. Needs no cuda.h.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUCCESS        0
#define NO_DEVICE      100
#define NOT_FOUND      500
#define NOT_PERMITTED  800

static int is(const char *behaviour)
{
	const char *wanted = getenv("CEOVERLAP_FAKE_CUDA");

	return wanted && !strcmp(wanted, behaviour);
}

int cuInit(unsigned int flags)
{
	(void)flags;
	if (!getenv("CEOVERLAP_FAKE_CUDA"))
		return NOT_PERMITTED;
	fprintf(stderr, "fake libcuda: a test double, no GPU here\n");
	return is("no device") ? NO_DEVICE : is("broken") ? NOT_PERMITTED : SUCCESS;
}

int cuDriverGetVersion(int *version)
{
	*version = is("old") ? 11040 : 13000;
	return SUCCESS;
}

int cuGetErrorString(int error, const char **text)
{
	*text = error == NOT_PERMITTED ? "operation not permitted" : "an error";
	return SUCCESS;
}

/* The implementation of all other calls: fails. */
static int fails(void)
{
	return NOT_PERMITTED;
}

static int succeeds(void)
{
	return SUCCESS;
}

static int one_gpu(int *n)
{
	*n = 1;
	return SUCCESS;
}

static int no_ability(int *value, int attribute, int device)
{
	(void)attribute;
	(void)device;
	*value = 0;
	return SUCCESS;
}

int cuGetProcAddress_v2(const char *symbol, void **address, int version, uint64_t flags,
			int *status)
{
	(void)version;
	(void)flags;
	*status = 0;
	*address = NULL;
	if (is("missing") && !strcmp(symbol, "cuStreamBatchMemOp"))
		return NOT_FOUND;
	*(int (**)(void))address = is("poor") ? succeeds : fails;
	if (!strcmp(symbol, "cuDeviceGetCount"))
		*(int (**)(int *))address = one_gpu;
	if (!strcmp(symbol, "cuDeviceGetAttribute"))
		*(int (**)(int *, int, int))address = no_ability;
	return SUCCESS;
}
