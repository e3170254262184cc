/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Asks UCX for the network interfaces that it can use. UCP has no call that lists them, but it
 * prints what a context consists of. */

#include "net/ucx_devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/ucx_worker.h"

/* What UCX prints of a context at most; it is a line for each transport on each interface. */
#define TEXT_BYTES_MAX (UINT64_C(1) << 20)

int cei_ucx_device_in(const char *line, char ret_name[CEI_TRANSPORT_DEVICE_BYTES])
{
	size_t n_line = strcspn(line, "\n"), begin, n;
	const char *device;

	if (!memmem(line, n_line, "resource ", strlen("resource ")))
		return 0;
	while (n_line && line[n_line - 1] == ' ')
		n_line--;
	for (begin = n_line; begin && line[begin - 1] != ' '; begin--)
		;
	device = memchr(line + begin, '/', n_line - begin);
	if (!device)
		return 0;
	device++;
	n = n_line - (size_t)(device - line);
	if (!n || n >= CEI_TRANSPORT_DEVICE_BYTES)
		return 0;
	memcpy(ret_name, device, n);
	ret_name[n] = '\0';
	return 1;
}

static int is_listed(const struct cei_transport_devices *devices, const char *name)
{
	uint32_t i;

	for (i = 0; i < devices->n; i++)
		if (!strcmp(devices->names[i], name))
			return 1;
	return 0;
}

static void take_lines(const char *text, struct cei_transport_devices *devices)
{
	char name[CEI_TRANSPORT_DEVICE_BYTES];

	for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
		if (cei_ucx_device_in(text, name) && !is_listed(devices, name) &&
		    devices->n < CEI_TRANSPORT_DEVICES_MAX)
			memcpy(devices->names[devices->n++], name, sizeof(name));
}

/* CEOV_NONE, not raised: there is no memory for the text. */
static int print(struct cei_ucx *ucx, struct cei_transport_devices *ret_devices)
{
	size_t n_bytes = 0;
	char *text = NULL;
	FILE *stream = open_memstream(&text, &n_bytes);

	if (!stream)
		return CEOV_NONE;
	ucx->calls.context_print(ucx->context, stream);
	if (fclose(stream) || n_bytes > TEXT_BYTES_MAX) {
		free(text);
		return CEOV_NONE;
	}
	memset(ret_devices, 0, sizeof(*ret_devices));
	take_lines(text, ret_devices);
	free(text);
	return 0;
}

int cei_ucx_devices(struct cei_report *report, const char *kinds,
		    struct cei_transport_devices *ret_devices)
{
	struct cei_transport transport = { .config = { .report = report, .kinds = kinds } };
	struct cei_ucx ucx = { .transport = &transport };
	const char *why = "";
	int r = cei_ucx_load(report, &ucx.calls, &why);

	if (!r)
		r = cei_ucx_context_open(&ucx);
	if (r)
		return r;
	r = print(&ucx, ret_devices);
	ucx.calls.cleanup(ucx.context);
	return r;
}
