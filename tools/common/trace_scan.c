/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Cuts a trace file into values, which json-c reads one by one. */

#include "tools/common/trace_scan.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/clock_offset.h"

#define NS_PER_US  1000u
#define US_MAX     (CEI_CLOCK_NS_MAX / NS_PER_US)

struct scan {
	const struct trace_scan_calls *calls;
	FILE                *file;
	struct json_tokener *tokener;
	uint64_t             n_events;
	int                  in_event;
	int                  has_events;
	int                  has_data;
	size_t               n;
	char                 text[TRACE_VALUE_BYTES_MAX + 1];
};

static const char *const cut_short = "the file ends too early";

static int next(struct scan *scan)
{
	int c;

	do
		c = getc_unlocked(scan->file);
	while (c == ' ' || c == '\t' || c == '\n' || c == '\r');
	return c;
}

static int ends_scalar(int c)
{
	return c == EOF || strchr(" \t\r\n,:]}", c) != NULL;
}

/* Whether the text so far, without strings, is a whole value; the byte behind it is not taken. */
static int is_whole(struct scan *scan, int first, uint32_t depth)
{
	int c;

	if (depth)
		return 0;
	if (first == '{' || first == '[' || first == '"')
		return 1;
	c = getc_unlocked(scan->file);
	ungetc(c, scan->file);
	return ends_scalar(c);
}

/* Takes the bytes of the value that begins with `first`. */
static const char *take(struct scan *scan, int first)
{
	int c = first, in_text = 0, is_escaped = 0;
	uint32_t depth = 0;

	scan->n = 0;
	if (c != EOF && ends_scalar(c))
		return "a value is missing";
	for (;; c = getc_unlocked(scan->file)) {
		if (c == EOF)
			return cut_short;
		if (scan->n == TRACE_VALUE_BYTES_MAX)
			return "a value is longer than any that ceoverlap writes";
		scan->text[scan->n++] = (char)c;
		if (in_text) {
			in_text = is_escaped || c != '"';
			is_escaped = !is_escaped && c == '\\';
		} else if (c == '"') {
			in_text = 1;
		} else if (c == '{' || c == '[') {
			depth++;
		} else if (c == '}' || c == ']') {
			depth--;
		}
		if (!in_text && is_whole(scan, first, depth))
			break;
	}
	scan->text[scan->n] = '\0';
	return NULL;
}

/* Reads one value of the type; the caller puts it. */
static const char *read_value(struct scan *scan, int first, enum json_type type,
			      struct json_object **ret_value)
{
	const char *why = take(scan, first);

	*ret_value = NULL;
	if (why)
		return why;
	json_tokener_reset(scan->tokener);
	*ret_value = json_tokener_parse_ex(scan->tokener, scan->text, (int)scan->n);
	if (json_tokener_get_error(scan->tokener) == json_tokener_success &&
	    json_object_is_type(*ret_value, type))
		return NULL;
	json_object_put(*ret_value);
	*ret_value = NULL;
	return "a value is no JSON, or of another type than in a trace";
}

static const char *read_events(struct scan *scan)
{
	const struct trace_scan_calls *calls = scan->calls;
	struct json_object *event;
	const char *why = NULL;
	int c = next(scan);

	scan->has_events = 1;
	while (!why && c != ']') {
		scan->n_events++;
		scan->in_event = 1;
		why = read_value(scan, c, json_type_object, &event);
		if (why)
			return why;
		why = calls->event(calls->arg, event);
		json_object_put(event);
		if (why)
			return why;
		scan->in_event = 0;
		c = next(scan);
		if (c == ',') {
			c = next(scan);
			if (c == ']')
				return "a comma stands behind the last event";
		} else if (c != ']') {
			why = c == EOF ? cut_short : "a comma is missing between events";
		}
	}
	return why;
}

static const char *read_data(struct scan *scan, int first)
{
	const struct trace_scan_calls *calls = scan->calls;
	struct json_object *data;
	const char *why = read_value(scan, first, json_type_object, &data);

	if (why)
		return why;
	scan->has_data = 1;
	why = calls->other_data(calls->arg, data);
	json_object_put(data);
	return why;
}

/* A key and its value. */
static const char *read_entry(struct scan *scan, int first)
{
	struct json_object *key;
	const char *why = read_value(scan, first, json_type_string, &key);
	const char *name = json_object_get_string(key);
	int is_events = !why && !strcmp(name, "traceEvents");
	int is_data = !why && !strcmp(name, "otherData");

	json_object_put(key);
	if (why)
		return why;
	if (next(scan) != ':')
		return "a colon is missing";
	if ((is_events && scan->has_events) || (is_data && scan->has_data))
		return "a part of it is there twice";
	first = next(scan);
	if (is_data)
		return read_data(scan, first);
	if (!is_events)
		return take(scan, first);
	return first == '[' ? read_events(scan) : "its events are no list";
}

static const char *read_all(struct scan *scan)
{
	const char *why = NULL;
	int c = next(scan);

	if (c != '{')
		return c == EOF ? "it is empty" : "it is no trace";
	do {
		why = read_entry(scan, next(scan));
		c = why ? EOF : next(scan);
	} while (c == ',');
	if (why)
		return why;
	if (c != '}')
		return c == EOF ? cut_short : "a comma is missing";
	if (next(scan) != EOF)
		return "something stands behind its end";
	if (!scan->has_events || !scan->has_data)
		return "it has no events, or does not say where it is from: ceoverlap has not "
			"written it";
	return NULL;
}

/* Opens a regular file; never waits for a pipe's writer. Returns an errno. */
static int open_file(const char *path, FILE **ret_file)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), error;
	struct stat status;

	if (fd < 0)
		return errno;
	error = fstat(fd, &status) ? errno : S_ISREG(status.st_mode) ? 0 : EINVAL;
	*ret_file = error ? NULL : fdopen(fd, "r");
	if (*ret_file)
		return 0;
	error = error ? error : errno;
	close(fd);
	return error;
}

static int refuse(const struct scan *scan, const char *path, const char *why)
{
	if (scan && scan->file && ferror(scan->file))
		why = "it cannot be read to its end";
	if (scan && scan->in_event)
		fprintf(stderr, "%s: %s, event %" PRIu64 ": %s\n", program_invocation_short_name,
			path, scan->n_events, why);
	else
		fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, path, why);
	return -1;
}

int trace_scan(const char *path, const struct trace_scan_calls *calls)
{
	struct scan *scan = calloc(1, sizeof(*scan));
	const char *why;
	int error, r = 0;

	if (!scan)
		return refuse(NULL, path, "no memory to read it");
	scan->calls = calls;
	scan->tokener = json_tokener_new();
	error = scan->tokener ? open_file(path, &scan->file) : ENOMEM;
	if (error) {
		r = refuse(NULL, path, error == EINVAL ? "it is no regular file" :
			   strerror(error));
	} else {
		json_tokener_set_flags(scan->tokener,
				       JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
		why = read_all(scan);
		if (why)
			r = refuse(scan, path, why);
		(void)fclose(scan->file);
	}
	if (scan->tokener)
		json_tokener_free(scan->tokener);
	free(scan);
	return r;
}

/* --- values ------------------------------------------------------------------------------- */

int trace_number(struct json_object *object, const char *key, uint64_t most,
		 uint64_t *ret_number)
{
	struct json_object *value = json_object_object_get(object, key);
	int64_t number;

	if (!json_object_is_type(value, json_type_int))
		return -1;
	number = json_object_get_int64(value);
	if (number < 0 || (uint64_t)number > most)
		return -1;
	*ret_number = (uint64_t)number;
	return 0;
}

/* Doubles keep the text that they were read from: no digit is lost. */
int trace_time(struct json_object *object, const char *key, uint64_t *ret_ns)
{
	struct json_object *value = json_object_object_get(object, key);
	uint64_t us = 0, ns = 0, unit = NS_PER_US / 10;
	const char *text;

	*ret_ns = 0;
	if (!json_object_is_type(value, json_type_int) &&
	    !json_object_is_type(value, json_type_double))
		return -1;
	text = json_object_get_string(value);
	for (; isdigit((unsigned char)*text); text++) {
		us = us * 10 + (uint64_t)(*text - '0');
		if (us >= US_MAX)
			return -1;
	}
	if (*text == '.')
		for (text++; isdigit((unsigned char)*text); text++, unit /= 10)
			ns += (uint64_t)(*text - '0') * unit;
	if (*text)
		return -1;              /* a sign or an exponent */
	*ret_ns = us * NS_PER_US + ns;
	return 0;
}

void trace_set_time(struct json_object *object, const char *key, uint64_t ns)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64 ".%03" PRIu64, ns / NS_PER_US, ns % NS_PER_US);
	json_object_object_add(object, key, json_object_new_double_s((double)ns / NS_PER_US,
								     text));
}

int trace_text(struct json_object *object, const char *key, char *ret_text, size_t n_bytes)
{
	struct json_object *value = json_object_object_get(object, key);
	char *at;

	if (!json_object_is_type(value, json_type_string))
		return -1;
	snprintf(ret_text, n_bytes, "%s", json_object_get_string(value));
	for (at = ret_text; *at; at++)
		if (*at < ' ' || *at > '~')
			*at = '?';
	return 0;
}
