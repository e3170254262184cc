/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef TRACE_SCAN_H
#define TRACE_SCAN_H

/*
 * Reads a trace file, JSON as Perfetto and Chrome read it, event by event, so that memory does not
 * grow with the file. The file is not trusted: what is no such file is refused, whatever its
 * bytes are.
 */

#include <stdint.h>

#include <json-c/json.h>

#define TRACE_VALUE_BYTES_MAX 65536u    /* of one event, and of all that is not one */

/* What is called for a file's events, in their order, and for its otherData. Each gets an object,
 * which stays the scan's. It returns NULL, or why the file is refused. */
struct trace_scan_calls {
	const char *(*event)(void *arg, struct json_object *event);
	const char *(*other_data)(void *arg, struct json_object *data);
	void *arg;
};

/* Reads the whole file. Returns 0, or -1, reported on stderr with the file's name and, where an
 * event is the reason, its number from 1 on. */
int trace_scan(const char *path, const struct trace_scan_calls *calls);

/* --- values of an object; each returns 0, or -1: it is missing or something else ------ */

/* A whole number from 0 to most. */
int trace_number(struct json_object *object, const char *key, uint64_t most,
		 uint64_t *ret_number);

/* A time in microseconds, with its nanoseconds as decimals. 0 is found where it is not there. */
int trace_time(struct json_object *object, const char *key, uint64_t *ret_ns);

/* Sets such a time. */
void trace_set_time(struct json_object *object, const char *key, uint64_t ns);

/* A text, of which at most n_bytes with a final 0 are copied. What is not printable ASCII becomes a
 * question mark, so that the copy may go to a terminal. */
int trace_text(struct json_object *object, const char *key, char *ret_text, size_t n_bytes);

#endif /* TRACE_SCAN_H */
