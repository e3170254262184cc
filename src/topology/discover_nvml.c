/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Reads from NVML how many NVLinks of a GPU are up, how fast one NVLink is, and whether it ends
 * at a switch or at another GPU. NVML comes with the driver and is opened at run time. If one of
 * its first three calls in struct nvml is missing, NVML is not used; if another call is missing,
 * what that call would report stays unknown.
 */

#include "topology/topology.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/*
 * Numbers and layouts of NVML's interface, from its API reference and nvml.h (driver 580).
 * NVML never changes a published layout, or a name that ends in a version.
 */
#define LINKS_MAX       64u             /* NVML_NVLINK_MAX_LINKS is 18 and grows */
#define LINK_TO_GPU     0u              /* NVML_NVLINK_DEVICE_TYPE_GPU */
#define LINK_TO_SWITCH  2u              /* NVML_NVLINK_DEVICE_TYPE_SWITCH */
#define LINK_TO_UNKNOWN 0xffu           /* NVML_NVLINK_DEVICE_TYPE_UNKNOWN */
#define FIELD_LINK_MBPS 90u             /* NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON */
#define VALUE_UNSIGNED  1u              /* NVML_VALUE_TYPE_UNSIGNED_INT */
#define MBPS_MAX        1000000u        /* a larger value is taken for an error */

struct pci_info {                       /* nvmlPciInfo_t */
	char         bus_id_legacy[16];
	unsigned int domain;
	unsigned int bus;
	unsigned int device;
	unsigned int device_id;
	unsigned int subsystem_id;
	char         bus_id[32];
	char         reserved[64];      /* room in case NVML's struct grows */
};

struct field {                          /* nvmlFieldValue_t */
	unsigned int field_id;
	unsigned int scope_id;
	long long    timestamp;
	long long    latency_us;
	unsigned int value_type;
	int          result;
	union {
		double             number;
		unsigned int       count;
		unsigned long long count64;
	} value;
};

_Static_assert(sizeof(struct field) == 40, "nvmlFieldValue_t has another size");

struct nvml {
	void *library;
	int (*init)(void);
	int (*shutdown)(void);
	int (*find)(const char *bus_id, void **device);
	int (*link_state)(void *device, unsigned int link, unsigned int *is_active);
	int (*link_type)(void *device, unsigned int link, unsigned int *type);
	int (*link_pci)(void *device, unsigned int link, struct pci_info *pci);
	int (*fields)(void *device, int n_fields, struct field *fields);
};

static void find_call(const struct nvml *nvml, const char *name, void *ret_call)
{
	void *address = dlsym(nvml->library, name);

	/* C has no cast from an object pointer to a function pointer */
	memcpy(ret_call, &address, sizeof(address));
}

/* Opens the library and looks up its calls. 0, or CEOV_NONE where there is no NVML. */
static int open_nvml(struct cei_report *report, struct nvml *nvml)
{
	int result;

	memset(nvml, 0, sizeof(*nvml));
	nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!nvml->library) {
		cei_log(report, CEI_LOG_DEBUG,
			"topology: libnvidia-ml.so.1 cannot be loaded: NVLinks are not counted");
		return CEOV_NONE;
	}
	find_call(nvml, "nvmlInit_v2", &nvml->init);
	find_call(nvml, "nvmlShutdown", &nvml->shutdown);
	find_call(nvml, "nvmlDeviceGetHandleByPciBusId_v2", &nvml->find);
	find_call(nvml, "nvmlDeviceGetNvLinkState", &nvml->link_state);
	find_call(nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", &nvml->link_type);
	find_call(nvml, "nvmlDeviceGetNvLinkRemotePciInfo_v2", &nvml->link_pci);
	find_call(nvml, "nvmlDeviceGetFieldValues", &nvml->fields);
	result = nvml->init && nvml->shutdown && nvml->find ? nvml->init() : -1;
	if (!result)
		return 0;
	cei_log(report, CEI_LOG_DEBUG, "topology: NVML does not start (%d): NVLinks are not "
		"counted", result);
	dlclose(nvml->library);
	return CEOV_NONE;
}

/* The rate of one of the device's NVLinks in one direction; 0: not known. */
static uint64_t link_bytes_per_s(const struct nvml *nvml, void *device)
{
	struct field field;

	memset(&field, 0, sizeof(field));
	field.field_id = FIELD_LINK_MBPS;
	if (!nvml->fields || nvml->fields(device, 1, &field) || field.result ||
	    field.value_type != VALUE_UNSIGNED || field.value.count > MBPS_MAX)
		return 0;
	return field.value.count * UINT64_C(1000000);
}

/* The GPU at the other end of an NVLink. CEOV_NOBODY: the other end is not one of our GPUs. */
static uint32_t gpu_at(const struct nvml *nvml, const struct cei_machine_hints *hints,
		       void *device, unsigned int link)
{
	unsigned int domain, bus, slot;
	struct pci_info pci;
	uint32_t i;

	memset(&pci, 0, sizeof(pci));
	if (!nvml->link_pci || nvml->link_pci(device, link, &pci))
		return CEOV_NOBODY;
	for (i = 0; i < hints->n_gpus; i++)
		if (sscanf(hints->gpus[i].bus_id, "%x:%x:%x", &domain, &bus, &slot) == 3 &&
		    domain == pci.domain && bus == pci.bus && slot == pci.device)
			return i;
	return CEOV_NOBODY;
}

static void ask_link(const struct nvml *nvml, struct cei_machine_hints *hints,
		     uint32_t gpu, void *device, unsigned int link)
{
	unsigned int is_active = 0, type = LINK_TO_UNKNOWN;
	uint32_t other;

	if (nvml->link_state(device, link, &is_active) || !is_active)
		return;
	hints->gpus[gpu].n_nvlinks++;
	if (nvml->link_type && nvml->link_type(device, link, &type))
		type = LINK_TO_UNKNOWN;
	if (type == LINK_TO_SWITCH)
		hints->gpus[gpu].is_on_switch = 1;
	if (type != LINK_TO_GPU && type != LINK_TO_UNKNOWN)
		return;
	other = gpu_at(nvml, hints, device, link);
	if (other < hints->n_gpus && other != gpu && hints->n_direct[gpu][other] < UINT8_MAX)
		hints->n_direct[gpu][other]++;
}

void cei_machine_hints_from_nvml(struct cei_report *report, struct cei_machine_hints *hints)
{
	struct nvml nvml;
	unsigned int link;
	void *device;
	uint32_t i;

	if (!hints->n_gpus || open_nvml(report, &nvml))
		return;
	for (i = 0; i < hints->n_gpus; i++) {
		device = NULL;
		if (!nvml.link_state || nvml.find(hints->gpus[i].bus_id, &device))
			continue;
		for (link = 0; link < LINKS_MAX; link++)
			ask_link(&nvml, hints, i, device, link);
		if (hints->gpus[i].n_nvlinks)
			hints->gpus[i].nvlink_bytes_per_s = link_bytes_per_s(&nvml, device);
	}
	nvml.shutdown();
	dlclose(nvml.library);
}
