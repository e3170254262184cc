/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * What a file says of GPUs and links beside its tree, read with distrust: hwloc's
 * "NVLinkBandwidth", and what machine_tell.c wrote.
 */

#include "topology/machine_draft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/machine_words.h"

#define MB                 UINT64_C(1000000)
#define MB_PER_S_MAX       UINT64_C(100000000)  /* 100 TB/s; beyond is no link */
#define T0_NS_MAX          UINT64_C(1000000000000)
#define COPY_ENGINES_MAX   64u
#define NVLINKS_MAX        256u
#define NVLINK_PER_CENT    UINT64_C(82)         /* as in machine_links.c */
#define MATRICES_MAX       8u

#if HWLOC_API_VERSION >= 0x00030000
static unsigned int n_infos(hwloc_obj_t object)
{
	return object->infos.count;
}

static const struct hwloc_info_s *info_at(hwloc_obj_t object, unsigned int i)
{
	return &object->infos.array[i];
}
#else
static unsigned int n_infos(hwloc_obj_t object)
{
	return object->infos_count;
}

static const struct hwloc_info_s *info_at(hwloc_obj_t object, unsigned int i)
{
	return &object->infos[i];
}
#endif

/* The value of the root's info at i if it has the name, else NULL. */
static const char *info_named(hwloc_obj_t object, unsigned int i, const char *name)
{
	const struct hwloc_info_s *info = info_at(object, i);

	return !strcmp(info->name, name) ? info->value : NULL;
}

static int refuse(struct cei_machine_draft *draft, const char *name, const char *value,
		  const char *why)
{
	return cei_raise(draft->report, CEOV_ERR_INVALID, 0,
			 "%s: %s \"%.80s\": %s", draft->where, name, value, why);
}

/* --- GPUs ----------------------------------------------------------------------------- */

/* "0000:19:00.0 3 18 26562000000 1 0 NVIDIA H200"; "-" where the address is not known */
static int read_gpu(struct cei_machine_draft *draft, const char *text)
{
	struct cei_machine_hints *hints = draft->file_hints;
	struct cei_machine_hint_gpu *gpu;
	unsigned long long nvlink;
	unsigned int on_switch, coherent;
	int n_read = 0;

	if (hints->n_gpus == CEI_MACHINE_GPUS_MAX)
		return refuse(draft, CEI_WORD_GPU, text, "more GPUs than there is room for");
	gpu = &hints->gpus[hints->n_gpus];
	if (sscanf(text, "%15s %u %u %llu %u %u %n", gpu->bus_id, &gpu->n_copy_engines,
		   &gpu->n_nvlinks, &nvlink, &on_switch, &coherent, &n_read) != 6 || !n_read)
		return refuse(draft, CEI_WORD_GPU, text, "not an address, five numbers and "
			      "a name");
	if (gpu->n_copy_engines > COPY_ENGINES_MAX || gpu->n_nvlinks > NVLINKS_MAX ||
	    nvlink > MB_PER_S_MAX * MB || on_switch > 1 || coherent > 1)
		return refuse(draft, CEI_WORD_GPU, text, "a number is beyond reason");
	if (!strcmp(gpu->bus_id, "-"))
		gpu->bus_id[0] = '\0';
	gpu->nvlink_bytes_per_s = nvlink;
	gpu->is_on_switch = (int)on_switch;
	gpu->is_coherent = (int)coherent;
	cei_draft_text(gpu->name, sizeof(gpu->name), text + n_read);
	hints->n_gpus++;
	return 0;
}

int cei_draft_read_gpus(struct cei_machine_draft *draft)
{
	hwloc_obj_t root = hwloc_get_root_obj(draft->machine->hwloc);
	int is_listed = 0;
	const char *text;
	unsigned int i;
	int r = 0;

	for (i = 0; i < n_infos(root); i++)
		is_listed |= info_named(root, i, CEI_WORD_GPU) != NULL;
	if (!is_listed)
		return 0;
	draft->file_hints = calloc(1, sizeof(*draft->file_hints));
	if (!draft->file_hints)
		return cei_raise(draft->report, CEOV_ERR_NO_MEMORY, 0,
				 "%s: no memory for its GPUs", draft->where);
	/* who reaches whom is told by kinds, if at all */
	memset(draft->file_hints->peer, 1, sizeof(draft->file_hints->peer));
	draft->hints = draft->file_hints;
	for (i = 0; i < n_infos(root) && !r; i++) {
		text = info_named(root, i, CEI_WORD_GPU);
		if (text)
			r = read_gpu(draft, text);
	}
	return r;
}

/* --- one value ------------------------------------------------------------------------ */

static int kind_fits(const struct cei_machine *machine, uint32_t from, uint32_t to,
		     uint64_t kind)
{
	uint32_t n_gpu_ends = (from < machine->n_gpus) + (to < machine->n_gpus);

	if (kind == CEI_MACHINE_NONE)
		return 1;
	if (n_gpu_ends == 2)
		return kind == CEI_MACHINE_NVSWITCH || kind == CEI_MACHINE_NVLINK ||
		       kind == CEI_MACHINE_PCIE;
	if (n_gpu_ends == 1)
		return kind == CEI_MACHINE_HOST || kind == CEI_MACHINE_C2C;
	return kind == CEI_MACHINE_NODES;
}

enum word { KIND, ORIGIN, BANDWIDTH, LATENCY, WORDS };

static const struct {
	const char *name;
	const char *why_not;
} words[WORDS] = {
	[KIND]      = { CEI_WORD_KIND, "no kind of link between these two" },
	[ORIGIN]    = { CEI_WORD_ORIGIN, "no origin of a cost" },
	[BANDWIDTH] = { CEI_WORD_BANDWIDTH, "more than 100 TB/s" },
	[LATENCY]   = { CEI_WORD_LATENCY, "more than 1000 s" },
};

struct pair {
	uint32_t from;
	uint32_t to;
};

static int tell_one(struct cei_machine_draft *draft, enum word word, struct pair pair,
		    uint64_t value)
{
	struct cei_machine_told *told = draft->told;
	uint32_t from = pair.from, to = pair.to;
	char text[80], a[16], b[16];

	if (word == KIND && from == to)
		return 0;               /* it is what it is */
	if (word == KIND && kind_fits(draft->machine, from, to, value))
		told->kind[from][to] = (uint8_t)value;
	else if (word == ORIGIN && value <= CEI_MACHINE_MEASURED)
		told->origin[from][to] = (uint8_t)value;
	else if (word == BANDWIDTH && value <= MB_PER_S_MAX)
		told->bytes_per_s[from][to] = value * MB;
	else if (word == LATENCY && value <= T0_NS_MAX)
		told->t0_ns[from][to] = value;
	else {
		snprintf(text, sizeof(text), "%s to %s: %llu",
			 cei_machine_place_name(draft->machine, from, a),
			 cei_machine_place_name(draft->machine, to, b),
			 (unsigned long long)value);
		return refuse(draft, words[word].name, text, words[word].why_not);
	}
	return 0;
}

/* --- matrices ------------------------------------------------------------------------- */

/* The object's place; CEOV_NOBODY: it is none. */
static uint32_t place_of(const struct cei_machine_draft *draft, hwloc_obj_t object)
{
	const struct cei_machine *machine = draft->machine;
	hwloc_obj_t pci = cei_draft_pci_of(object);
	uint32_t i;

	for (i = 0; pci && i < machine->n_gpus; i++)
		if (draft->gpus[i] == pci)
			return i;
	for (i = 0; object && i < machine->n_nodes; i++)
		if (draft->nodes[i] == object)
			return machine->n_gpus + i;
	return CEOV_NOBODY;
}

static int tell_matrix(struct cei_machine_draft *draft, enum word word,
		       const struct hwloc_distances_s *matrix)
{
	uint32_t n = matrix->nbobjs;
	uint32_t i, j;
	int r = 0;

	for (i = 0; i < n; i++) {
		const uint32_t from = place_of(draft, matrix->objs[i]);

		for (j = 0; from != CEOV_NOBODY && j < n && !r; j++) {
			const struct pair pair = { from, place_of(draft, matrix->objs[j]) };

			if (pair.to != CEOV_NOBODY)
				r = tell_one(draft, word, pair,
					     matrix->values[(size_t)i * n + j]);
		}
	}
	return r;
}

static int is_nvswitch(hwloc_obj_t object)
{
	return object && object->type == HWLOC_OBJ_PCI_DEVICE &&
	       object->attr->pcidev.vendor_id == 0x10de &&
	       object->attr->pcidev.class_id == 0x0680;
}

/* An NVLink between a GPU and a processor (POWER): to all memory of the package. */
static void tell_package(struct cei_machine_draft *draft, uint32_t gpu, hwloc_obj_t object,
			 uint64_t bytes_per_s)
{
	struct cei_machine *machine = draft->machine;
	uint64_t copy = bytes_per_s / MB * NVLINK_PER_CENT / 100 * MB;
	uint32_t i, place;

	for (i = 0; i < machine->n_nodes; i++) {
		if (machine->nodes[i].is_gpu_memory ||
		    machine->nodes[i].package != object->os_index)
			continue;
		place = machine->n_gpus + i;
		draft->told->kind[gpu][place] = CEI_MACHINE_C2C;
		draft->told->kind[place][gpu] = CEI_MACHINE_C2C;
		draft->told->bytes_per_s[gpu][place] = copy;
		draft->told->bytes_per_s[place][gpu] = copy;
	}
}

static int tell_nvlink(struct cei_machine_draft *draft, uint32_t gpu, hwloc_obj_t object,
		       uint64_t mb_per_s)
{
	uint32_t to = place_of(draft, object);
	char text[64];

	if (!mb_per_s || !object || to == gpu)
		return 0;
	if (mb_per_s > MB_PER_S_MAX) {
		snprintf(text, sizeof(text), "gpu%u: %llu", gpu, (unsigned long long)mb_per_s);
		return refuse(draft, CEI_WORD_NVLINK, text, words[BANDWIDTH].why_not);
	}
	if (to < draft->machine->n_gpus)
		draft->told->nvlink_bytes_per_s[gpu][to] = mb_per_s * MB;
	else if (is_nvswitch(object))
		draft->told->to_switch_bytes_per_s[gpu] += mb_per_s * MB;
	else if (object->type == HWLOC_OBJ_PACKAGE)
		tell_package(draft, gpu, object, mb_per_s * MB);
	return 0;
}

static int tell_nvlinks(struct cei_machine_draft *draft,
			const struct hwloc_distances_s *matrix)
{
	uint32_t n = matrix->nbobjs;
	uint32_t i, j, gpu;
	int r = 0;

	for (i = 0; i < n; i++) {
		gpu = place_of(draft, matrix->objs[i]);
		if (gpu >= draft->machine->n_gpus)
			continue;
		for (j = 0; j < n && !r; j++)
			r = tell_nvlink(draft, gpu, matrix->objs[j],
					matrix->values[(size_t)i * n + j]);
	}
	return r;
}

/* Where there are switches, links that are told from GPU to GPU lead through them. */
static void fold_switches(struct cei_machine_draft *draft)
{
	struct cei_machine_told *told = draft->told;
	hwloc_obj_t object = NULL;
	uint32_t a, b;

	while ((object = hwloc_get_next_pcidev(draft->machine->hwloc, object)))
		if (is_nvswitch(object))
			break;
	for (a = 0; object && a < draft->machine->n_gpus; a++) {
		for (b = 0; b < draft->machine->n_gpus; b++) {
			if (told->to_switch_bytes_per_s[a] < told->nvlink_bytes_per_s[a][b])
				told->to_switch_bytes_per_s[a] =
					told->nvlink_bytes_per_s[a][b];
			told->nvlink_bytes_per_s[a][b] = 0;
		}
	}
}

/* All matrices of a name; a name WORDS is hwloc's. */
static int read_matrices(struct cei_machine_draft *draft, enum word word)
{
	const char *name = word == WORDS ? CEI_WORD_NVLINK : words[word].name;
	struct hwloc_distances_s *matrices[MATRICES_MAX];
	hwloc_topology_t hwloc = draft->machine->hwloc;
	unsigned int n = MATRICES_MAX;
	unsigned int i;
	int r = 0;

	if (hwloc_distances_get_by_name(hwloc, name, &n, matrices, 0))
		return 0;
	for (i = 0; i < n && i < MATRICES_MAX; i++) {
		if (!r)
			r = word == WORDS ? tell_nvlinks(draft, matrices[i]) :
				tell_matrix(draft, word, matrices[i]);
		hwloc_distances_release(hwloc, matrices[i]);
	}
	if (!r && n > MATRICES_MAX)
		r = refuse(draft, "distances", name, "too many of this name");
	return r;
}

/* "0 9 4 1 55000 4000": places by number, kind, origin, MB/s, ns; for places that no
 * object of the tree stands for. */
static int read_line(struct cei_machine_draft *draft, const char *text)
{
	uint32_t n = cei_machine_n_places(draft->machine);
	unsigned long long values[WORDS];
	struct pair pair;
	int word, r = 0;

	if (sscanf(text, "%u %u %llu %llu %llu %llu", &pair.from, &pair.to, &values[KIND],
		   &values[ORIGIN], &values[BANDWIDTH], &values[LATENCY]) != 6)
		return refuse(draft, CEI_WORD_LINK, text, "not six numbers");
	if (pair.from >= n || pair.to >= n)
		return refuse(draft, CEI_WORD_LINK, text, "there is no such place");
	for (word = 0; word < WORDS && !r; word++)
		r = tell_one(draft, (enum word)word, pair, values[word]);
	return r;
}

int cei_draft_read_links(struct cei_machine_draft *draft)
{
	hwloc_obj_t root = hwloc_get_root_obj(draft->machine->hwloc);
	struct cei_machine_told *told = calloc(1, sizeof(*told));
	const char *text;
	unsigned int i;
	int word, r;

	draft->told = told;
	if (!told)
		return cei_raise(draft->report, CEOV_ERR_NO_MEMORY, 0,
				 "%s: no memory for its links", draft->where);
	memset(told->kind, CEI_DRAFT_NOT_TOLD, sizeof(told->kind));
	memset(told->origin, CEI_DRAFT_NOT_TOLD, sizeof(told->origin));
	memset(told->t0_ns, 0xff, sizeof(told->t0_ns));         /* CEI_DRAFT_NO_T0 */
	r = read_matrices(draft, WORDS);
	if (!r)
		fold_switches(draft);
	for (word = 0; word < WORDS && !r; word++)
		r = read_matrices(draft, (enum word)word);
	for (i = 0; i < n_infos(root) && !r; i++) {
		text = info_named(root, i, CEI_WORD_LINK);
		if (text)
			r = read_line(draft, text);
	}
	return r;
}

/* --- after the links are made --------------------------------------------------------- */

static void apply_one(struct cei_machine_draft *draft, uint32_t from, uint32_t to)
{
	const struct cei_machine_told *told = draft->told;
	struct cei_machine *machine = draft->machine;
	struct cei_machine_link *link;
	uint64_t rate = told->bytes_per_s[from][to];
	uint64_t t0_ns = told->t0_ns[from][to];

	link = &machine->links[from * cei_machine_n_places(machine) + to];
	if (link->kind == CEI_MACHINE_NONE || (!rate && t0_ns == CEI_DRAFT_NO_T0))
		return;
	cei_machine_set_measured(machine, from, to, rate ? rate : link->bytes_per_s,
				 t0_ns == CEI_DRAFT_NO_T0 ? link->t0_ns : t0_ns);
	link->origin = told->origin[from][to];
	if (link->origin == CEI_DRAFT_NOT_TOLD)
		link->origin = CEI_MACHINE_TOLD;
}

int cei_draft_apply_told(struct cei_machine_draft *draft)
{
	hwloc_obj_t root = hwloc_get_root_obj(draft->machine->hwloc);
	uint32_t n = cei_machine_n_places(draft->machine);
	uint32_t from, to;
	const char *text;
	unsigned int i;
	int r;

	for (from = 0; from < n; from++)
		for (to = 0; to < n; to++)
			apply_one(draft, from, to);
	for (i = 0; i < n_infos(root); i++) {
		text = info_named(root, i, CEI_WORD_DRIVER);
		if (text)
			cei_draft_text(draft->machine->driver,
				       sizeof(draft->machine->driver), text);
		text = info_named(root, i, CEI_WORD_PORT);
		r = text ? cei_machine_port_from_text(draft->machine, text) : 0;
		if (r)
			return refuse(draft, CEI_WORD_PORT, text, r == CEOV_ERR_INVALID ?
				      "not a rate, links and a name that are there" :
				      "no room for another shared way");
	}
	return 0;
}
