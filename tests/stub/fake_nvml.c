/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * A fake libnvidia-ml.so.1: two GPUs at 0000:19:00.0 and 0000:3b:00.0, linked as
 * CEOVERLAP_FAKE_NVML selects ("switch": 18 links to a switch each; "direct": 4 links to
 * each other; "refuses": NVML does not start; "silent": every call fails). It works only
 * where that is set, and reports it on stderr. Built with FAKE_NVML_FEW it has only the
 * first calls.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUCCESS      0
#define BAD_ARGUMENT 2
#define NOT_FOUND    6
#define UNKNOWN      999

static int first, second;               /* the GPUs: their addresses are their handles */

static int is(const char *behaviour)
{
	const char *wanted = getenv("CEOVERLAP_FAKE_NVML");

	return wanted && !strcmp(wanted, behaviour);
}

int nvmlInit_v2(void)
{
	if (!getenv("CEOVERLAP_FAKE_NVML"))
		return UNKNOWN;
	fprintf(stderr, "fake libnvidia-ml: a test double, no GPU here\n");
	return is("refuses") ? UNKNOWN : SUCCESS;
}

int nvmlShutdown(void)
{
	return SUCCESS;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device)
{
	if (is("silent"))
		return UNKNOWN;
	*device = !strcmp(bus_id, "0000:19:00.0") ? (void *)&first :
		!strcmp(bus_id, "0000:3B:00.0") ? (void *)&second : NULL;
	return *device ? SUCCESS : NOT_FOUND;
}

#ifndef FAKE_NVML_FEW
int nvmlDeviceGetNvLinkState(void *device, unsigned int link, unsigned int *is_active)
{
	unsigned int n = is("switch") ? 18 : 6;

	(void)device;
	if (link >= n)
		return BAD_ARGUMENT;
	*is_active = is("switch") || link < 4;
	return SUCCESS;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned int link, unsigned int *type)
{
	(void)device;
	(void)link;
	*type = is("switch") ? 2 : 0;
	return SUCCESS;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned int link, void *pci)
{
	struct {
		char         bus_id_legacy[16];
		unsigned int domain, bus, device, device_id, subsystem_id;
		char         bus_id[32];
	} info = { .bus = device == &first ? 0x3b : 0x19 };

	(void)link;
	if (is("switch"))
		info.bus = 0xff;
	memcpy(pci, &info, sizeof(info));
	return SUCCESS;
}

int nvmlDeviceGetFieldValues(void *device, int n_fields, void *fields)
{
	struct {
		unsigned int field, scope;
		long long    timestamp, latency_us;
		unsigned int type;
		int          result;
		unsigned long long value;
	} *field = fields;

	(void)device;
	if (n_fields != 1 || field->field != 90)
		return BAD_ARGUMENT;
	field->type = 1;
	field->result = SUCCESS;
	field->value = 26562;
	return SUCCESS;
}
#endif
