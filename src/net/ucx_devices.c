/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Asks UCX for the network interfaces and transports that it can use. UCP has no call that lists
 * them, but it prints what a context consists of. */

#include "net/ucx_devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/ucx_worker.h"

/* What UCX prints of a context at most; it is a line for each transport on each interface. */
#define TEXT_BYTES_MAX (UINT64_C(1) << 20)

/* Finds the last word of a line that tells of a resource, "tcp/eth0". Returns its length; 0: the
 * line tells of none. */
static size_t find_resource(const char *line, const char **ret_word)
{
	size_t n_line = strcspn(line, "\n"), begin;

	if (!memmem(line, n_line, "resource ", strlen("resource ")))
		return 0;
	while (n_line && line[n_line - 1] == ' ')
		n_line--;
	for (begin = n_line; begin && line[begin - 1] != ' '; begin--)
		;
	*ret_word = line + begin;
	return memchr(*ret_word, '/', n_line - begin) ? n_line - begin : 0;
}

int cei_ucx_device_in(const char *line, char ret_name[CEI_TRANSPORT_DEVICE_BYTES])
{
	const char *word, *device;
	size_t n_word = find_resource(line, &word), n;

	if (!n_word)
		return 0;
	device = (const char *)memchr(word, '/', n_word) + 1;
	n = n_word - (size_t)(device - word);
	if (!n || n >= CEI_TRANSPORT_DEVICE_BYTES)
		return 0;
	memcpy(ret_name, device, n);
	ret_name[n] = '\0';
	return 1;
}

int cei_ucx_is_untried(const char *line, char ret_name[CEI_UCX_KIND_BYTES])
{
	static const char *const tried[] = { "tcp", "self", "posix", "sysv", "cma", "knem",
					     "xpmem", "cuda_copy", "cuda_ipc", "gdr_copy" };
	const char *word;
	size_t n = find_resource(line, &word), i;

	if (!n)
		return 0;
	n = (size_t)((const char *)memchr(word, '/', n) - word);
	for (i = 0; i < sizeof(tried) / sizeof(tried[0]); i++)
		if (strlen(tried[i]) == n && !memcmp(tried[i], word, n))
			return 0;
	snprintf(ret_name, CEI_UCX_KIND_BYTES, "%.*s", (int)n, word);
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

/* The line behind this one; the text's end: there is none. */
static const char *next_line(const char *text)
{
	text += strcspn(text, "\n");
	return text + (*text == '\n');
}

static void take_lines(const char *text, struct cei_transport_devices *devices)
{
	char name[CEI_TRANSPORT_DEVICE_BYTES];

	for (; *text; text = next_line(text))
		if (cei_ucx_device_in(text, name) && !is_listed(devices, name) &&
		    devices->n < CEI_TRANSPORT_DEVICES_MAX)
			memcpy(devices->names[devices->n++], name, sizeof(name));
}

/* What UCX says of the context, which the caller frees. NULL: there is no memory for it. */
static char *print(struct cei_ucx *ucx)
{
	size_t n_bytes = 0;
	char *text = NULL;
	FILE *stream = open_memstream(&text, &n_bytes);

	if (!stream)
		return NULL;
	ucx->calls.context_print(ucx->context, stream);
	if (!fclose(stream) && n_bytes <= TEXT_BYTES_MAX)
		return text;
	free(text);
	return NULL;
}

int cei_ucx_find_untried(struct cei_ucx *ucx, char ret_name[CEI_UCX_KIND_BYTES])
{
	char *text = print(ucx);
	const char *line = text;

	if (!text)
		return CEOV_NONE;
	ret_name[0] = '\0';
	while (*line && !cei_ucx_is_untried(line, ret_name))
		line = next_line(line);
	free(text);
	return 0;
}

int cei_ucx_devices(struct cei_report *report, const char *kinds,
		    struct cei_transport_devices *ret_devices)
{
	struct cei_transport transport = { .config = { .report = report, .kinds = kinds } };
	struct cei_ucx ucx = { .transport = &transport };
	const char *why = "";
	char *text;
	int r = cei_ucx_load(report, &ucx.calls, &why);

	if (!r)
		r = cei_ucx_context_open(&ucx);
	if (r)
		return r;
	text = print(&ucx);
	ucx.calls.cleanup(ucx.context);
	if (!text)
		return CEOV_NONE;
	memset(ret_devices, 0, sizeof(*ret_devices));
	take_lines(text, ret_devices);
	free(text);
	return 0;
}
