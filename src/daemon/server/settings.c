/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Reads the configuration file. libinih splits it into sections, names and values; this file knows
 * what they mean. Nothing is taken over from a file of which one line is wrong. */

#include "daemon/server/settings.h"

#include <errno.h>
#include <grp.h>
#include <ini.h>
#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "base/site.h"
#include "base/urgency.h"
#include "daemon/server/gpus.h"
#include "daemon/server/listener.h"

#define KIB  (UINT64_C(1) << 10)
#define US   UINT64_C(1000)
#define S    UINT64_C(1000000000)
#define LOTS (UINT64_C(1) << 60)

enum kind {
	COUNT,                          /* into 32 bits */
	OCTAL,                          /* likewise */
	BYTES,                          /* into 64 bits; with K, M, G or T behind it */
	TIME_US,                        /* into 64 bits of ns */
	TIME_S,                         /* likewise */
	CLASS,                          /* into 32 bits: enum ceov_urgency */
	GPUS,                           /* into 64 bits: a set */
	GROUP,                          /* into 32 bits */
	PATH,                           /* into bytes, as many as `most` */
};

struct field {
	const char *section;
	const char *name;
	size_t      at;
	enum kind   kind;
	uint64_t    least;
	uint64_t    most;
};

#define AT(member) offsetof(struct cei_settings, member)

static const struct field fields[] = {
	{ "daemon", "socket", AT(socket), PATH, 1, CEI_SETTINGS_PATH_BYTES },
	{ "daemon", "control", AT(control), PATH, 1, CEI_SETTINGS_PATH_BYTES },
	{ "daemon", "mode", AT(mode), OCTAL, 0600, 0666 },
	{ "daemon", "group", AT(group), GROUP, 0, 0 },
	{ "daemon", "host_engines", AT(n_host_engines), COUNT, 1, CEI_MEMBERS_MAX },
	{ "daemon", "gpus", AT(gpus), GPUS, 0, 0 },
	{ "daemon", "drain_seconds", AT(drain_ns), TIME_S, 0, 3600 },
	{ "classes", "normal", AT(classes.normal), COUNT, 1, CEI_FLOWS_WEIGHT_MAX },
	{ "classes", "background", AT(classes.background), COUNT, 1, CEI_FLOWS_WEIGHT_MAX },
	{ "classes", "urgent_percent", AT(classes.urgent_percent), COUNT, 0, 100 },
	{ "classes", "urgent_us", AT(classes.urgent_ns), TIME_US, 0,
	  CEI_FLOWS_URGENT_MOST_NS / US },
	{ "classes", "slo_urgent_us", AT(slo_ns[CEOV_URGENCY_URGENT]), TIME_US, 0, 3600000000u },
	{ "classes", "slo_normal_us", AT(slo_ns[CEOV_URGENCY_NORMAL]), TIME_US, 0, 3600000000u },
	{ "classes", "slo_background_us", AT(slo_ns[CEOV_URGENCY_BACKGROUND]), TIME_US, 0,
	  3600000000u },
	{ "metrics", "textfile", AT(textfile), PATH, 1, CEI_SETTINGS_TEXT_BYTES },
	{ "metrics", "textfile_seconds", AT(textfile_ns), TIME_S, 1, 3600 },
	{ "metrics", "http_port", AT(http_port), COUNT, 0, 65535 },
};

#undef AT
#define AT(member) offsetof(struct cei_limits, member)

/* In [limits], and all but the first in [user NAME]. */
static const struct field limit_fields[] = {
	{ "limits", "clients", AT(n_clients), COUNT, 1, 4096 },
	{ "limits", "clients_per_user", AT(n_clients_uid), COUNT, 0, 4096 },
	{ "limits", "plans", AT(n_plans), COUNT, 1, CEI_CLIENT_PLANS_MAX },
	{ "limits", "transfers_per_plan", AT(n_transfers), COUNT, 1, 1u << 20 },
	{ "limits", "chunks", AT(n_chunks), COUNT, 1, 1u << 30 },
	{ "limits", "regions", AT(n_regions), COUNT, 1, 1u << 20 },
	{ "limits", "descriptors_per_user", AT(n_fds_uid), COUNT, 0, 1u << 20 },
	{ "limits", "weight", AT(weight), COUNT, 1, CEI_FLOWS_WEIGHT_MAX },
	{ "limits", "class", AT(most_urgent), CLASS, 0, 0 },
	{ "limits", "bytes", AT(n_bytes), BYTES, 0, LOTS },
	{ "limits", "bytes_per_user", AT(n_bytes_uid), BYTES, 0, LOTS },
	{ "limits", "chunk_bytes", AT(max_chunk_bytes), BYTES, 4 * KIB, LOTS },
	{ "limits", "bytes_per_second", AT(bytes_per_s), BYTES, 0, LOTS },
};

#undef AT

#define N_FIELDS       (sizeof(fields) / sizeof(fields[0]))
#define N_LIMIT_FIELDS (sizeof(limit_fields) / sizeof(limit_fields[0]))

struct reading {
	FILE                *file;
	uint32_t             line;
	uint32_t             wrong_line;        /* 0: nothing is wrong yet */
	char                 fault[256];
	struct cei_settings  settings;
	uint32_t             is_set;            /* bit: the field was set */
	uint32_t             are_limits_set[CEI_LIMITS_USERS_MAX + 1];  /* likewise, of each user,
									 * and last of all */
};

/* Notes what is wrong, the first time. Returns 0, as libinih wants it. */
static int wrong(struct reading *reading, const char *what, const char *name)
{
	if (reading->wrong_line)
		return 0;
	reading->wrong_line = reading->line;
	snprintf(reading->fault, sizeof(reading->fault), "%.80s %s", name, what);
	return 0;
}

/* --- values ----------------------------------------------------------------- */

static int is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* What a letter behind a number multiplies it by; 0: nothing does. */
static uint64_t unit_of(const char *text)
{
	static const char letters[] = "KMGT";
	const char *at;

	if (!*text)
		return 1;
	at = strchr(letters, *text);
	return at && !text[1] ? KIB << (10 * (at - letters)) : 0;
}

/* Returns whether the text is a number of the field's range. */
static int to_number(const struct field *field, const char *text, uint64_t *ret_number)
{
	unsigned long long number;
	uint64_t unit;
	char *end;

	errno = 0;
	number = strtoull(text, &end, field->kind == OCTAL ? 8 : 10);
	unit = field->kind == BYTES ? unit_of(end) : !*end;
	if (!is_digit(*text) || errno || !unit || number > UINT64_MAX / unit)
		return 0;
	*ret_number = number * unit;
	return *ret_number >= field->least && *ret_number <= field->most;
}

static int to_id(const char *text, uint64_t *ret_id)
{
	char *end;

	errno = 0;
	*ret_id = strtoull(text, &end, 10);
	return is_digit(*text) && !*end && !errno && *ret_id < UINT32_MAX;
}

static int to_group(const char *text, uint64_t *ret_group)
{
	const struct group *group;

	if (to_id(text, ret_group))
		return 1;
	group = getgrnam(text);
	if (group)
		*ret_group = group->gr_gid;
	return group != NULL;
}

static int to_user(const char *text, uint64_t *ret_uid)
{
	const struct passwd *user;

	if (to_id(text, ret_uid))
		return 1;
	user = getpwnam(text);
	if (user)
		*ret_uid = user->pw_uid;
	return user != NULL;
}

static int wrong_number(struct reading *reading, const struct field *field, const char *value)
{
	char what[128];

	if (field->kind == OCTAL)
		snprintf(what, sizeof(what), "is '%.20s', must be an octal number from 0%llo to "
			 "0%llo", value, (unsigned long long)field->least,
			 (unsigned long long)field->most);
	else
		snprintf(what, sizeof(what), "is '%.20s', must be a number from %llu to %llu%s",
			 value, (unsigned long long)field->least, (unsigned long long)field->most,
			 field->kind == BYTES ? ", with K, M, G or T behind it or not" : "");
	return wrong(reading, what, field->name);
}

static int set_path(struct reading *reading, const struct field *field, char *target,
		    const char *value)
{
	if (*value != '/' || strlen(value) >= field->most)
		return wrong(reading, "must be an absolute path, of at most 107 bytes for a "
			     "socket and 255 else", field->name);
	strcpy(target, value);
	return 1;
}

/* Returns 0 if the value is wrong. */
static int set(struct reading *reading, const struct field *field, void *target,
	       const char *value)
{
	uint64_t number = 0;
	uint32_t urgency;

	switch (field->kind) {
	case PATH:
		return set_path(reading, field, target, value);
	case CLASS:
		if (!cei_urgency_read(value, &urgency))
			return wrong(reading, "must be urgent, normal or background", field->name);
		number = urgency;
		break;
	case GPUS:
		if (!cei_gpus_read(value, &number))
			return wrong(reading, "must be all, none, or numbers with commas between",
				     field->name);
		break;
	case GROUP:
		if (!to_group(value, &number))
			return wrong(reading, "names a group that there is not", field->name);
		break;
	default:
		if (!to_number(field, value, &number))
			return wrong_number(reading, field, value);
	}
	if (field->kind == TIME_US)
		number *= US;
	else if (field->kind == TIME_S)
		number *= S;
	if (field->kind == BYTES || field->kind == TIME_US || field->kind == TIME_S ||
	    field->kind == GPUS)
		*(uint64_t *)target = number;
	else
		*(uint32_t *)target = (uint32_t)number;
	return 1;
}

/* --- sections ---------------------------------------------------------------- */

/* Returns 0 if the field was set before. */
static int set_once(struct reading *reading, uint32_t *is_set, size_t i, const char *name)
{
	if (*is_set & 1u << i)
		return wrong(reading, "is set twice", name);
	*is_set |= 1u << i;
	return 1;
}

static int set_limit(struct reading *reading, uint32_t at, const char *name, const char *value)
{
	struct cei_limits_table *table = &reading->settings.limits;
	int is_user = at < CEI_LIMITS_USERS_MAX;
	struct cei_limits *limits = is_user ? &table->users[at].limits : &table->all;
	size_t i;

	for (i = is_user; i < N_LIMIT_FIELDS; i++)
		if (!strcmp(limit_fields[i].name, name))
			return set_once(reading, &reading->are_limits_set[at], i, name) &&
				set(reading, &limit_fields[i], (char *)limits + limit_fields[i].at,
				    value);
	return wrong(reading, "is no setting of this section", name);
}

/* Finds or makes the user's limits. Returns CEI_LIMITS_USERS_MAX if that is not possible. */
static uint32_t user_of(struct reading *reading, const char *name)
{
	struct cei_limits_table *table = &reading->settings.limits;
	uint64_t uid;
	uint32_t i;

	if (!to_user(name, &uid)) {
		wrong(reading, "names a user that there is not", name);
		return CEI_LIMITS_USERS_MAX;
	}
	for (i = 0; i < table->n_users && table->users[i].uid != uid; i++)
		;
	if (i < table->n_users)
		return i;
	if (i == CEI_LIMITS_USERS_MAX) {
		wrong(reading, "is one user too many: at most 64 have limits of their own", name);
		return CEI_LIMITS_USERS_MAX;
	}
	table->users[table->n_users++].uid = (uint32_t)uid;
	return i;
}

static int set_of_user(struct reading *reading, const char *user, const char *name,
		       const char *value)
{
	uint32_t at = user_of(reading, user);

	return at < CEI_LIMITS_USERS_MAX && set_limit(reading, at, name, value);
}

static int get_line(void *arg, const char *section, const char *name, const char *value)
{
	struct reading *reading = arg;
	int is_known = 0;
	size_t i;

	if (!strncmp(section, "user ", 5))
		return set_of_user(reading, section + 5, name, value);
	if (!strcmp(section, "limits"))
		return set_limit(reading, CEI_LIMITS_USERS_MAX, name, value);
	for (i = 0; i < N_FIELDS; i++) {
		if (strcmp(fields[i].section, section))
			continue;
		is_known = 1;
		if (!strcmp(fields[i].name, name))
			return set_once(reading, &reading->is_set, i, name) &&
				set(reading, &fields[i], (char *)&reading->settings + fields[i].at,
				    value);
	}
	return is_known ? wrong(reading, "is no setting of this section", name)
		: wrong(reading, "is no section; there are daemon, limits, classes, metrics and "
			"'user NAME'", *section ? section : "nothing");
}

/* --- the file ---------------------------------------------------------------- */

/* libinih wants the next line of at most `size` bytes. */
static char *read_line(char *line, int size, void *arg)
{
	struct reading *reading = arg;
	char *got = fgets(line, size, reading->file);
	size_t indent;

	if (!got)
		return NULL;
	reading->line++;
	if (strlen(line) == (size_t)size - 1 && line[size - 2] != '\n')
		wrong(reading, "is too long: at most 198 bytes", "the line");
	/* libinih takes an indented line for more of the one before. */
	indent = strspn(line, " \t");
	memmove(line, line + indent, strlen(line + indent) + 1);
	return got;
}

/* A user has what everybody has where no limit of its own was set. */
static void fill_users(struct reading *reading)
{
	struct cei_limits_table *table = &reading->settings.limits;
	const struct field *field;
	struct cei_limits own;
	uint32_t i, k;
	size_t n;

	for (i = 0; i < table->n_users; i++) {
		own = table->users[i].limits;
		table->users[i].limits = table->all;
		for (k = 0; k < N_LIMIT_FIELDS; k++) {
			field = &limit_fields[k];
			n = field->kind == BYTES ? sizeof(uint64_t) : sizeof(uint32_t);
			if (reading->are_limits_set[i] & 1u << k)
				memcpy((char *)&table->users[i].limits + field->at,
				       (char *)&own + field->at, n);
		}
	}
}

struct cei_settings cei_settings_default(void)
{
	struct cei_settings settings = {
		.mode = 0600,
		.group = CEI_LISTENER_NO_GROUP,
		.n_host_engines = 1,
		.gpus = CEI_GPUS_ALL,
		.drain_ns = 10 * S,
		.textfile_ns = 15 * S,
		.classes = cei_flows_classes_default(),
	};

	settings.limits.all = cei_limits_default();
	return settings;
}

static int read_all(struct reading *reading, const char *path,
		    struct cei_settings_fault *ret_fault)
{
	int line = ini_parse_stream(read_line, reading, get_line, reading);

	if (ferror(reading->file)) {
		snprintf(ret_fault->text, sizeof(ret_fault->text), "%.300s: it cannot be read: %s",
			 path, strerror(errno));
		return CEOV_ERR_SYSTEM;
	}
	if (!line && !reading->wrong_line)
		return 0;
	if (line < 0)
		snprintf(ret_fault->text, sizeof(ret_fault->text), "%.300s: no memory", path);
	else if (reading->wrong_line && (!line || reading->wrong_line <= (uint32_t)line))
		snprintf(ret_fault->text, sizeof(ret_fault->text), "%.300s:%u: %.180s", path,
			 reading->wrong_line, reading->fault);
	else
		snprintf(ret_fault->text, sizeof(ret_fault->text), "%.300s:%d: neither "
			 "'[SECTION]' nor 'NAME = VALUE'", path, line);
	return CEOV_ERR_INVALID;
}

int cei_settings_read(const char *path, struct cei_settings *ret_settings,
		      struct cei_settings_fault *ret_fault)
{
	struct reading *reading = calloc(1, sizeof(*reading));
	int r = CEOV_ERR_SYSTEM;

	if (reading)
		reading->file = fopen(path, "re");
	if (!reading || !reading->file) {
		snprintf(ret_fault->text, sizeof(ret_fault->text), "%.300s: it cannot be read: %s",
			 path, reading ? strerror(errno) : "no memory");
		free(reading);
		return r;
	}
	reading->settings = cei_settings_default();
	r = read_all(reading, path, ret_fault);
	fclose(reading->file);
	if (!r) {
		fill_users(reading);
		*ret_settings = reading->settings;
	}
	free(reading);
	return r;
}

const char *cei_settings_at_start(const struct cei_settings *old, const struct cei_settings *new)
{
	if (strcmp(old->socket, new->socket))
		return "socket";
	if (strcmp(old->control, new->control))
		return "control";
	if (old->mode != new->mode)
		return "mode";
	if (old->group != new->group)
		return "group";
	if (old->n_host_engines != new->n_host_engines)
		return "host_engines";
	if (old->gpus != new->gpus)
		return "gpus";
	return old->http_port != new->http_port ? "http_port" : NULL;
}
