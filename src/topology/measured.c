/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What was measured of a machine: ports that links share, and the file that keeps costs. */

#include <ceoverlap/ceoverlap.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/machine.h"

#define PAIRS_MAX      1024u
#define RATE_MAX       UINT64_C(1000000000000000)       /* 1 PB/s: nonsense above */
#define T0_NS_MAX      UINT64_C(1000000000000)
#define PLACE_BYTES    24u
#define VERSION        "ceoverlap-measured 1"

/* --- setting one -------------------------------------------------------------------- */

static uint32_t find_port(const struct cei_machine *machine, const char *name)
{
	uint32_t i;

	for (i = 0; i < machine->n_ports; i++)
		if (!strcmp(machine->ports[i].name, name))
			return i;
	return CEOV_NOBODY;
}

static struct cei_machine_link *link_at(struct cei_machine *machine,
					const struct cei_machine_pair *pair)
{
	return &machine->links[pair->from * cei_machine_n_places(machine) + pair->to];
}

static int is_on(const struct cei_machine_link *link, uint32_t port)
{
	uint32_t i;

	for (i = 0; i < link->n_ports; i++)
		if (link->ports[i] == port)
			return 1;
	return 0;
}

static int is_valid(const struct cei_machine *machine, const struct cei_shared_bandwidth *shared)
{
	uint32_t i, n = cei_machine_n_places(machine);

	if (!shared->bytes_per_s || shared->bytes_per_s > RATE_MAX || !shared->name[0] ||
	    strlen(shared->name) >= CEI_MACHINE_NAME_BYTES)
		return 0;
	for (i = 0; i < shared->n_pairs; i++)
		if (shared->pairs[i].from >= n || shared->pairs[i].to >= n)
			return 0;
	return 1;
}

/* Whether a new port fits into the machine and onto all of the links. */
static int has_room(struct cei_machine *machine, const struct cei_shared_bandwidth *shared)
{
	uint32_t i;

	for (i = 0; i < shared->n_pairs; i++)
		if (link_at(machine, &shared->pairs[i])->n_ports >= CEI_MACHINE_PATH_MAX)
			return 0;
	return machine->n_ports < CEI_MACHINE_PORTS_MAX;
}

static void add_port(struct cei_machine *machine, const struct cei_shared_bandwidth *shared)
{
	uint32_t i, number = machine->n_ports++;
	struct cei_machine_port *port = &machine->ports[number];
	struct cei_machine_link *link;

	memset(port, 0, sizeof(*port));
	snprintf(port->name, sizeof(port->name), "%s", shared->name);
	port->is_added = 1;
	for (i = 0; i < shared->n_pairs; i++) {
		link = link_at(machine, &shared->pairs[i]);
		/* appended last, because its number is the highest so far; the link may
		 * have been named twice */
		if (link->kind != CEI_MACHINE_NONE && !is_on(link, number))
			link->ports[link->n_ports++] = (uint16_t)number;
	}
}

static uint64_t widest_link(const struct cei_machine *machine, uint32_t port)
{
	uint32_t i, n = cei_machine_n_places(machine);
	uint64_t widest = 0;

	for (i = 0; i < n * n; i++)
		if (is_on(&machine->links[i], port) && machine->links[i].bytes_per_s > widest)
			widest = machine->links[i].bytes_per_s;
	return widest;
}

int cei_machine_set_shared_bandwidth(struct cei_machine *machine,
				     const struct cei_shared_bandwidth *shared)
{
	uint32_t number;
	uint64_t widest;

	if (!is_valid(machine, shared))
		return CEOV_ERR_INVALID;
	number = find_port(machine, shared->name);
	if (number == CEOV_NOBODY) {
		if (!has_room(machine, shared))
			return CEOV_FULL;
		number = machine->n_ports;
		add_port(machine, shared);
	}
	widest = widest_link(machine, number);
	machine->ports[number].bytes_per_s = shared->bytes_per_s > widest
		? shared->bytes_per_s : widest;
	machine->ports[number].origin = CEI_MACHINE_MEASURED;
	return 0;
}

/* --- to text ------------------------------------------------------------------------ */

/* The first GPU with this address, which parts of one GPU (MIG) share; CEOV_NOBODY: none. */
static uint32_t find_gpu(const struct cei_machine *machine, const char *bus_id)
{
	uint32_t i;

	for (i = 0; *bus_id && i < machine->n_gpus; i++)
		if (!strcmp(machine->gpus[i].bus_id, bus_id))
			return i;
	return CEOV_NOBODY;
}

static void name_place(const struct cei_machine *machine, uint32_t place,
		       char text[PLACE_BYTES])
{
	uint32_t node = place - machine->n_gpus;

	if (!cei_machine_is_gpu(machine, place))
		snprintf(text, PLACE_BYTES, "n%u", machine->nodes[node].os_index);
	else if (find_gpu(machine, machine->gpus[place].bus_id) == place)
		snprintf(text, PLACE_BYTES, "%s", machine->gpus[place].bus_id);
	else
		snprintf(text, PLACE_BYTES, "g%u", place);
}

/* Appends to text and moves *at. Returns -1 if there is no room. */
static int append(char *text, size_t *at, const char *more)
{
	size_t length = strlen(more);

	if (*at + length >= CEI_MACHINE_PORT_TEXT_BYTES)
		return -1;
	memcpy(text + *at, more, length + 1);
	*at += length;
	return 0;
}

static int append_pairs(const struct cei_machine *machine, uint32_t port, char *text,
			size_t *at)
{
	uint32_t from, to, n_pairs = 0, n = cei_machine_n_places(machine);
	char pair[2 * PLACE_BYTES + 2], a[PLACE_BYTES], b[PLACE_BYTES];

	for (from = 0; machine->ports[port].is_added && from < n; from++) {
		for (to = 0; to < n; to++) {
			if (!is_on(cei_machine_link(machine, from, to), port))
				continue;
			name_place(machine, from, a);
			name_place(machine, to, b);
			snprintf(pair, sizeof(pair), "%s%s>%s", n_pairs ? "," : "", a, b);
			if (++n_pairs > PAIRS_MAX || append(text, at, pair))
				return -1;
		}
	}
	return n_pairs ? 0 : append(text, at, "-");
}

int cei_machine_port_to_text(const struct cei_machine *machine, uint32_t port,
			     char text[CEI_MACHINE_PORT_TEXT_BYTES])
{
	const struct cei_machine_port *own = &machine->ports[port];
	size_t at = 0;

	if (own->origin != CEI_MACHINE_MEASURED)
		return CEOV_NONE;
	at = (size_t)snprintf(text, CEI_MACHINE_PORT_TEXT_BYTES, "%" PRIu64 " ",
			      own->bytes_per_s);
	if (append_pairs(machine, port, text, &at) || append(text, &at, " ") ||
	    append(text, &at, own->name))
		return CEOV_FULL;
	return 0;
}

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
	return find_gpu(machine, name);
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
	if (!shared.n_pairs && find_port(machine, at) == CEOV_NOBODY)
		return CEOV_ERR_INVALID;
	return cei_machine_set_shared_bandwidth(machine, &shared) ? CEOV_ERR_INVALID : 0;
}

/* --- the file, written --------------------------------------------------------------- */

static void write_links(FILE *file, const struct cei_machine *machine)
{
	uint32_t from, to, n = cei_machine_n_places(machine);
	const struct cei_machine_link *link;
	char a[PLACE_BYTES], b[PLACE_BYTES];

	for (from = 0; from < n; from++) {
		for (to = 0; to < n; to++) {
			link = cei_machine_link(machine, from, to);
			if (link->origin != CEI_MACHINE_MEASURED)
				continue;
			name_place(machine, from, a);
			name_place(machine, to, b);
			fprintf(file, "link %s %s %" PRIu64 " %" PRIu64 "\n", a, b,
				link->bytes_per_s, link->t0_ns);
		}
	}
}

static int write_ports(FILE *file, const struct cei_machine *machine)
{
	char text[CEI_MACHINE_PORT_TEXT_BYTES];
	uint32_t i;
	int r;

	for (i = 0; i < machine->n_ports; i++) {
		r = cei_machine_port_to_text(machine, i, text);
		if (r == CEOV_FULL)
			return r;
		if (!r)
			fprintf(file, "port %s\n", text);
	}
	return 0;
}

int cei_machine_measured_text(const struct cei_machine *machine, char **ret_text,
			      uint64_t *ret_n_bytes)
{
	size_t n_bytes = 0;
	FILE *file;
	int r;

	*ret_text = NULL;
	file = open_memstream(ret_text, &n_bytes);
	if (!file)
		return CEOV_ERR_NO_MEMORY;
	fprintf(file, VERSION "\nmachine %016" PRIx64 " %s\n", machine->hash,
		machine->driver[0] ? machine->driver : "-");
	write_links(file, machine);
	r = write_ports(file, machine);
	fprintf(file, "end\n");
	if (fclose(file) && !r)
		r = CEOV_ERR_NO_MEMORY;
	if (r) {
		free(*ret_text);
		*ret_text = NULL;
	}
	*ret_n_bytes = n_bytes;
	return r;
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
		return strcmp(line, VERSION) ? "not \"" VERSION "\"" : NULL;
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
