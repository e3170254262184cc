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

#include "topology/machine.h"

#define PAIRS_MAX        CEI_MEASURED_PAIRS_MAX
#define PLACE_BYTES      24u
#define RATE_MAX         CEI_MEASURED_RATE_MAX
#define T0_NS_MAX        UINT64_C(1000000000000)

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

/* The functions below take one line into the machine, and return what is wrong with it, or NULL. */

static const char *take_machine(struct cei_machine *machine, const char *line)
{
	const char *driver;
	char own[32];
	int n = snprintf(own, sizeof(own), "machine %016" PRIx64 " ", machine->hash);

	if (strncmp(line, own, (size_t)n))
		return "it is of another machine, or of this one with other GPUs or NICs";
	driver = line + n;
	if (!strcmp(driver, "-"))
		driver = "";
	if (machine->driver[0] && strcmp(machine->driver, driver))
		return "it is of another driver of the GPUs";
	snprintf(machine->driver, sizeof(machine->driver), "%s", driver);
	return NULL;
}

static const char *take_link(struct cei_machine *machine, const char *text)
{
	uint32_t from = read_place(machine, &text, " "), to;
	uint64_t bytes_per_s, t0_ns;

	if (from == CEOV_NOBODY || *text++ != ' ')
		return "no place of this machine where a link begins";
	to = read_place(machine, &text, " ");
	if (to == CEOV_NOBODY || *text++ != ' ')
		return "no place of this machine where a link ends";
	if (read_number(&text, ' ', &bytes_per_s) || read_number(&text, '\0', &t0_ns) ||
	    !bytes_per_s || bytes_per_s > RATE_MAX || t0_ns > T0_NS_MAX)
		return "no rate in bytes a second, or no time in nanoseconds, that a link has";
	if (cei_machine_link(machine, from, to)->kind == CEI_MACHINE_NONE)
		return "no copy goes directly between these two";
	cei_machine_set_measured(machine, from, to, bytes_per_s, t0_ns);
	return NULL;
}

static const char *take_line(struct cei_machine *machine, const char *line, uint32_t number)
{
	if (number == 1)
		return strcmp(line, CEI_MEASURED_VERSION) ? "not \"" CEI_MEASURED_VERSION "\"" : NULL;
	if (number == 2)
		return take_machine(machine, line);
	if (!strncmp(line, "link ", 5))
		return take_link(machine, line + 5);
	if (!strncmp(line, "port ", 5))
		return cei_machine_port_from_text(machine, line + 5) ?
			"not a rate, links and a name of a port that this machine has" : NULL;
	return "neither a link nor a port";
}

static const char *take_lines(struct cei_machine *machine, char *text, uint32_t *ret_number)
{
	const char *why = NULL;
	char *line, *next;

	for (line = text; !why; line = next) {
		++*ret_number;
		next = strchr(line, '\n');
		if (!next)
			return "it is cut off: the last line is not \"end\"";
		*next++ = '\0';
		if (*ret_number > 2 && !strcmp(line, "end"))
			return *next ? "something behind \"end\"" : NULL;
		why = take_line(machine, line, *ret_number);
	}
	return why;
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
		why = take_lines(copy, text, &number);
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
