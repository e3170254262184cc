/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* A tool of NVTX's, which NVTX_INJECTION64_PATH has a process open: counts the ranges of the domain
 * "ceoverlap" by name and, when a domain ends, writes a line for each into a file of the process's
 * own, $COUNT_RANGES.PID, and how many things were wrong: ranges that were not ended, or ended
 * without a begin. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <nvtx3/nvToolsExt.h>

#define NAMES_MAX 64

static struct {
	char          name[64];
	unsigned long n;
} names[NAMES_MAX];
static unsigned long n_wrong;
static long n_open;
static _Thread_local long depth;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int ours, other;                 /* their addresses are handles of domains */

static nvtxDomainHandle_t NVTX_API create(const char *name)
{
	return (nvtxDomainHandle_t)(void *)(strcmp(name, "ceoverlap") ? &other : &ours);
}

static int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event)
{
	int i;

	if ((void *)domain != &ours)
		return 0;
	pthread_mutex_lock(&lock);
	for (i = 0; i < NAMES_MAX - 1 && names[i].n; i++)
		if (!strcmp(names[i].name, event->message.ascii))
			break;
	snprintf(names[i].name, sizeof(names[i].name), "%s", event->message.ascii);
	names[i].n++;
	n_open++;
	n_wrong += event->size != NVTX_EVENT_ATTRIB_STRUCT_SIZE;
	pthread_mutex_unlock(&lock);
	return (int)depth++;
}

static int NVTX_API pop(nvtxDomainHandle_t domain)
{
	if ((void *)domain != &ours)
		return 0;
	pthread_mutex_lock(&lock);
	n_open--;
	n_wrong += depth <= 0;
	pthread_mutex_unlock(&lock);
	return (int)--depth;
}

static void tell(void)
{
	const char *folder = getenv("COUNT_RANGES");
	char path[4096];
	FILE *out;
	int i;

	if (!folder)
		return;
	snprintf(path, sizeof(path), "%s.%ld", folder, (long)getpid());
	out = fopen(path, "w");
	if (!out)
		return;
	for (i = 0; i < NAMES_MAX && names[i].n; i++)
		fprintf(out, "%s %lu\n", names[i].name, names[i].n);
	fprintf(out, "wrong %lu\n", n_wrong + (n_open != 0));
	fclose(out);
}

/* Of the context's end: what a process does later may be no more than _exit(). */
static void NVTX_API destroy(nvtxDomainHandle_t domain)
{
	pthread_mutex_lock(&lock);
	if ((void *)domain == &ours)
		tell();
	pthread_mutex_unlock(&lock);
}

/* Puts a function in the place that the headers call for it. */
static void take(NvtxFunctionTable table, unsigned int size, unsigned int id,
		 NvtxFunctionPointer to)
{
	if (id < size && table[id])
		*table[id] = to;
}

extern int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table)
{
	const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
	NvtxFunctionTable table = NULL;
	unsigned int size = 0;

	if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size))
		return 0;
	take(table, size, NVTX_CBID_CORE2_DomainCreateA, (NvtxFunctionPointer)create);
	take(table, size, NVTX_CBID_CORE2_DomainDestroy, (NvtxFunctionPointer)destroy);
	take(table, size, NVTX_CBID_CORE2_DomainRangePushEx, (NvtxFunctionPointer)push);
	take(table, size, NVTX_CBID_CORE2_DomainRangePop, (NvtxFunctionPointer)pop);
	return 1;
}
