/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Reads fields of answers, and says numbers in words. */

#include "tools/ctl/ctl.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>

struct json_object *ctl_object(struct json_object *from, const char *name)
{
	struct json_object *object = NULL;

	(void)json_object_object_get_ex(from, name, &object);
	return object;
}

uint64_t ctl_number(struct json_object *from, const char *name)
{
	return json_object_get_uint64(ctl_object(from, name));
}

double ctl_real(struct json_object *from, const char *name)
{
	return json_object_get_double(ctl_object(from, name));
}

const char *ctl_text(struct json_object *from, const char *name)
{
	const char *text = json_object_get_string(ctl_object(from, name));

	return text ? text : "";
}

size_t ctl_length(struct json_object *list)
{
	return json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
}

const char *const ctl_classes[CTL_CLASSES] = { "urgent", "normal", "background" };

uint64_t ctl_sum(struct json_object *classes, const char *name)
{
	uint64_t n = 0;
	uint32_t i;

	for (i = 0; i < CTL_CLASSES; i++)
		n += name ? ctl_number(ctl_object(classes, ctl_classes[i]), name)
			: ctl_number(classes, ctl_classes[i]);
	return n;
}

/* --- words ------------------------------------------------------------------ */

/* A number with a prefix, of which each is `step` times the one before. */
static struct ctl_words scaled(uint64_t number, double step, const char *const *units)
{
	struct ctl_words words;
	double value = (double)number;
	uint32_t i = 0;

	for (; value >= step && units[i + 1]; i++)
		value /= step;
	snprintf(words.text, sizeof(words.text), i && value < 100 ? "%.1f %s" : "%.0f %s", value,
		 units[i]);
	return words;
}

struct ctl_words ctl_rate(uint64_t bytes_per_s)
{
	static const char *const units[] = { "B/s", "kB/s", "MB/s", "GB/s", "TB/s", NULL };

	return scaled(bytes_per_s, 1000, units);
}

struct ctl_words ctl_bytes(uint64_t n_bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", NULL };

	return scaled(n_bytes, 1024, units);
}

struct ctl_words ctl_us(uint64_t us)
{
	static const char *const units[] = { "us", "ms", "s", NULL };

	return scaled(us, 1000, units);
}

struct ctl_words ctl_duration(uint64_t seconds)
{
	struct ctl_words words;

	if (seconds < 60)
		snprintf(words.text, sizeof(words.text), "%" PRIu64 " s", seconds);
	else if (seconds < 3600)
		snprintf(words.text, sizeof(words.text), "%" PRIu64 " min %" PRIu64 " s",
			 seconds / 60, seconds % 60);
	else if (seconds < 86400)
		snprintf(words.text, sizeof(words.text), "%" PRIu64 " h %" PRIu64 " min",
			 seconds / 3600, seconds / 60 % 60);
	else
		snprintf(words.text, sizeof(words.text), "%" PRIu64 " d %" PRIu64 " h",
			 seconds / 86400, seconds / 3600 % 24);
	return words;
}

struct ctl_words ctl_user(uint64_t uid)
{
	const struct passwd *user = getpwuid((uid_t)uid);
	struct ctl_words words;

	if (user)
		snprintf(words.text, sizeof(words.text), "%s", user->pw_name);
	else
		snprintf(words.text, sizeof(words.text), "%" PRIu64, uid);
	return words;
}
