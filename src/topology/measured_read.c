/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Reads the file of what was measured of a machine, which anybody may have written. */

#include <ceoverlap/ceoverlap.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/machine_builder.h"

#define PAIRS_MAX        CEI_MEASURED_PAIRS_MAX
#define PLACE_BYTES      CEI_MEASURED_PLACE_BYTES
#define RATE_MAX         CEI_MEASURED_RATE_MAX
#define T0_NS_MAX        UINT64_C(1000000000000)
#define COPY_ENGINES_MAX 64u
#define NVLINKS_MAX      256u

/* --- from text ---------------------------------------------------------------------- */

/* Reads digits up to the character `end`, without sign or blanks; moves *at behind it. */
static int read_number(const char **at, char end, uint64_t *ret_number)
{
	char *stop;
	uint64_t number;

	if (!isdigit((unsigned char)**at))
		return -1;
	errno = 0;
	number = strtoull(*at, &stop, 10);
	if (errno || *stop != end)
		return -1;
	*at = stop + (end != '\0');
	*ret_number = number;
	return 0;
}

static uint32_t place_of(const struct cei_machine *machine, const char *name)
{
	const char *at = name + 1;
	uint64_t number;
	uint32_t i;

	if (name[0] == 'n' && !read_number(&at, '\0', &number)) {
		for (i = 0; i < machine->n_nodes; i++)
			if (machine->nodes[i].os_index == number)
				return cei_machine_host_place(machine, i);
		return CEOV_NOBODY;
	}
	if (name[0] == 'g' && !read_number(&at, '\0', &number))
		return number < machine->n_gpus ? (uint32_t)number : CEOV_NOBODY;
	return cei_machine_find_gpu(machine, name);
}

/* Reads the name of a place up to one of `ends`, and moves *at there. */
static uint32_t read_place(const struct cei_machine *machine, const char **at,
			   const char *ends)
{
	size_t length = strcspn(*at, ends);
	char name[PLACE_BYTES];

	if (length >= sizeof(name))
		return CEOV_NOBODY;
	memcpy(name, *at, length);
	name[length] = '\0';
	*at += length;
	return place_of(machine, name);
}

/* Reads a list of pairs and the blank behind it. */
static int read_pairs(const struct cei_machine *machine, const char **at,
		      struct cei_machine_pair *pairs, uint32_t *ret_n)
{
	uint32_t n = 0;

	*ret_n = 0;
	if (!strncmp(*at, "- ", 2)) {
		*at += 2;
		return 0;
	}
	for (;;) {
		if (n == PAIRS_MAX)
			return -1;
		pairs[n].from = read_place(machine, at, ">, ");
		if (pairs[n].from == CEOV_NOBODY || *(*at)++ != '>')
			return -1;
		pairs[n].to = read_place(machine, at, ">, ");
		if (pairs[n].to == CEOV_NOBODY)
			return -1;
		n++;
		if (**at != ',')
			break;
		(*at)++;
	}
	*ret_n = n;
	return *(*at)++ == ' ' ? 0 : -1;
}

int cei_machine_port_from_text(struct cei_machine *machine, const char *text)
{
	struct cei_machine_pair pairs[PAIRS_MAX];
	struct cei_shared_bandwidth shared = { .pairs = pairs };
	const char *at = text;

	if (read_number(&at, ' ', &shared.bytes_per_s) ||
	    read_pairs(machine, &at, pairs, &shared.n_pairs))
		return CEOV_ERR_INVALID;
	shared.name = at;
	/* A port that this machine does not have, and that names no links, must belong to another
	 * machine. */
	if (!shared.n_pairs && cei_machine_find_port(machine, at) == CEOV_NOBODY)
		return CEOV_ERR_INVALID;
	return cei_machine_set_shared_bandwidth(machine, &shared) ? CEOV_ERR_INVALID : 0;
}

/* --- the file, read ------------------------------------------------------------------ */

/* Takes one line into what the first argument is; returns what is wrong with the line, or NULL. */
typedef const char *take_line_fn(void *arg, const char *line, uint32_t number);

/* Takes all lines of the text, which it changes. *ret_number is the line that is wrong. */
static const char *take_lines(take_line_fn *take, void *arg, char *text, uint32_t *ret_number)
{
	const char *why = NULL;
	char *line, *next;

	for (line = text; !why; line = next) {
		++*ret_number;
		next = strchr(line, '\n');
		if (!next)
			return "it is cut off: the last line is not \"end\"";
		*next++ = '\0';
		if (*ret_number == 1) {
			if (strcmp(line, CEI_MEASURED_VERSION))
				return "not \"" CEI_MEASURED_VERSION "\"";
			continue;
		}
		if (*ret_number > 2 && !strcmp(line, "end"))
			return *next ? "something behind \"end\"" : NULL;
		why = take(arg, line, *ret_number);
	}
	return why;
}

static const char *take_machine(struct cei_machine *machine, const char *line)
{
	const char *driver = line + 10;
	char own[32];
	int n = snprintf(own, sizeof(own), "machine %016" PRIx64 " ", machine->hash);

	if (strncmp(line, "machine - ", 10)) {
		if (strncmp(line, own, (size_t)n))
			return "it is of another machine, or of this one with other GPUs or NICs";
		driver = line + n;
	}
	if (!strcmp(driver, "-"))
		driver = "";
	if (machine->driver[0] && strcmp(machine->driver, driver))
		return "it is of another driver of the GPUs";
	cei_builder_text(machine->driver, sizeof(machine->driver), driver);
	return NULL;
}

/* Reads two places and the blank behind each. */
static int read_ends(const struct cei_machine *machine, const char **at,
		     struct cei_machine_pair *pair)
{
	pair->from = read_place(machine, at, " ");
	if (pair->from == CEOV_NOBODY || *(*at)++ != ' ')
		return -1;
	pair->to = read_place(machine, at, " ");
	return pair->to == CEOV_NOBODY || *(*at)++ != ' ' ? -1 : 0;
}

static const char *take_link(struct cei_machine *machine, const char *text)
{
	struct cei_machine_pair pair;
	uint64_t bytes_per_s, t0_ns;

	if (read_ends(machine, &text, &pair))
		return "not two places of this machine";
	if (read_number(&text, ' ', &bytes_per_s) || read_number(&text, '\0', &t0_ns) ||
	    !bytes_per_s || bytes_per_s > RATE_MAX || t0_ns > T0_NS_MAX)
		return "no rate in bytes a second, or no time in nanoseconds, that a link has";
	if (cei_machine_link(machine, pair.from, pair.to)->kind == CEI_MACHINE_NONE)
		return "no copy goes directly between these two";
	cei_machine_set_measured(machine, pair.from, pair.to, bytes_per_s, t0_ns);
	return NULL;
}

static const char *take_measured(void *arg, const char *line, uint32_t number)
{
	struct cei_machine *machine = arg;

	if (number == 2)
		return take_machine(machine, line);
	if (!strncmp(line, "link ", 5))
		return take_link(machine, line + 5);
	if (!strncmp(line, "port ", 5))
		return cei_machine_port_from_text(machine, line + 5) ?
			"not a rate, links and a name of a port that this machine has" : NULL;
	/* only a machine that is being built takes these */
	return !strncmp(line, "gpu ", 4) || !strncmp(line, "kind ", 5) ? NULL :
		"none of gpu, kind, link and port";
}

int cei_machine_take_measured(struct cei_report *report, struct cei_machine *machine,
			      const char *where, char *text)
{
	uint32_t n = cei_machine_n_places(machine), number = 0;
	size_t n_bytes = (size_t)n * n * sizeof(machine->links[0]);
	struct cei_machine *copy = malloc(sizeof(*copy));
	struct cei_machine_link *links = malloc(n_bytes);
	const char *why = "no memory for it";

	if (copy && links) {
		*copy = *machine;
		copy->links = memcpy(links, machine->links, n_bytes);
		why = take_lines(take_measured, copy, text, &number);
	}
	if (!why) {
		links = machine->links;
		*machine = *copy;
	}
	free(links);
	free(copy);
	return why ? cei_raise(report, CEOV_ERR_INVALID, 0, "%s, line %u: %s", where, number,
			       why) : 0;
}

/* --- the file, read while a machine is built ---------------------------------------------- */

/* Takes the GPU of a line such as "gpu 0000:19:00.0 3 18 26562000000 1 0 NVIDIA H200". */
static const char *take_gpu(void *arg, const char *line, uint32_t number)
{
	struct cei_machine_hints *hints = arg;
	struct cei_machine_hint_gpu *gpu = &hints->gpus[hints->n_gpus];
	unsigned int on_switch, coherent;
	int n_read = 0;

	(void)number;
	if (strncmp(line, "gpu ", 4))
		return NULL;
	if (hints->n_gpus == CEI_MACHINE_GPUS_MAX)
		return "more GPUs than there is room for";
	if (sscanf(line, "gpu %15s %" SCNu32 " %" SCNu32 " %" SCNu64 " %u %u%n", gpu->bus_id,
		   &gpu->n_copy_engines, &gpu->n_nvlinks, &gpu->nvlink_bytes_per_s, &on_switch,
		   &coherent, &n_read) != 6 || line[n_read] != ' ')
		return "not an address, five numbers and a name";
	if (gpu->n_copy_engines > COPY_ENGINES_MAX || gpu->n_nvlinks > NVLINKS_MAX ||
	    gpu->nvlink_bytes_per_s > RATE_MAX / NVLINKS_MAX || on_switch > 1 || coherent > 1)
		return "a number of a GPU is beyond reason";
	if (!strcmp(gpu->bus_id, "-"))
		gpu->bus_id[0] = '\0';
	gpu->is_on_switch = (int)on_switch;
	gpu->is_coherent = (int)coherent;
	cei_builder_text(gpu->name, sizeof(gpu->name), line + n_read);
	hints->n_gpus++;
	return NULL;
}

static int kind_fits(const struct cei_machine *machine, const struct cei_machine_pair *pair,
		     enum cei_machine_link_kind kind)
{
	int n_gpus = cei_machine_is_gpu(machine, pair->from) +
		cei_machine_is_gpu(machine, pair->to);

	if (kind == CEI_MACHINE_NONE)
		return 1;
	if (n_gpus == 2)
		return kind == CEI_MACHINE_NVSWITCH || kind == CEI_MACHINE_NVLINK ||
		       kind == CEI_MACHINE_PCIE;
	return n_gpus ? kind == CEI_MACHINE_HOST || kind == CEI_MACHINE_C2C :
		kind == CEI_MACHINE_NODES;
}

/* Takes the kind of a link, and of an NVLink the rate that copies reach on it. */
static const char *take_kind(void *arg, const char *line, uint32_t number)
{
	struct cei_machine_builder *builder = arg;
	struct cei_machine_imported *imported = builder->imported;
	struct cei_machine_pair pair;
	const char *at = line + 5;
	uint64_t bytes_per_s;
	int kind;

	(void)number;
	if (strncmp(line, "kind ", 5))
		return NULL;
	if (read_ends(builder->machine, &at, &pair) || pair.from == pair.to)
		return "not two places of this machine";
	if (read_number(&at, ' ', &bytes_per_s) || bytes_per_s > RATE_MAX)
		return "no rate in bytes a second that a link has";
	for (kind = CEI_MACHINE_NONE; kind <= CEI_MACHINE_NODES; kind++)
		if (!strcmp(cei_machine_link_kind_name((enum cei_machine_link_kind)kind), at) &&
		    kind_fits(builder->machine, &pair, (enum cei_machine_link_kind)kind))
			break;
	if (kind > CEI_MACHINE_NODES)
		return "no kind of link between these two";
	imported->kind[pair.from][pair.to] = (uint8_t)kind;
	if (bytes_per_s)
		imported->bytes_per_s[pair.from][pair.to] = bytes_per_s;
	return NULL;
}

/* Takes lines of a copy of the text, which is read again. */
static int take_facts(struct cei_machine_builder *builder, take_line_fn *take, void *arg)
{
	char *copy = strdup(builder->measured);
	const char *why = copy && arg ? NULL : "no memory for it";
	uint32_t number = 0;

	if (!why)
		why = take_lines(take, arg, copy, &number);
	free(copy);
	return why ? cei_raise(builder->report, CEOV_ERR_INVALID, 0, "%s" CEI_MEASURED_SUFFIX
			       ", line %u: %s", builder->where, number, why) : 0;
}

int cei_builder_take_gpus(struct cei_machine_builder *builder)
{
	int r;

	if (!builder->measured)
		return 0;
	builder->file_hints = calloc(1, sizeof(*builder->file_hints));
	r = take_facts(builder, take_gpu, builder->file_hints);
	if (r || !builder->file_hints->n_gpus)
		return r;
	/* the kinds of links say which GPU reaches which */
	memset(builder->file_hints->peer, 1, sizeof(builder->file_hints->peer));
	builder->hints = builder->file_hints;
	return 0;
}

int cei_builder_take_kinds(struct cei_machine_builder *builder)
{
	return builder->measured ? take_facts(builder, take_kind, builder) : 0;
}

int cei_builder_take_measured(struct cei_machine_builder *builder)
{
	char where[CEI_MACHINE_NAME_BYTES + 64];

	if (!builder->measured)
		return 0;
	snprintf(where, sizeof(where), "%s" CEI_MEASURED_SUFFIX, builder->where);
	return cei_machine_take_measured(builder->report, builder->machine, where,
					 builder->measured);
}
