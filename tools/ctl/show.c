/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Prints answers for people. */

#include "tools/ctl/ctl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void say(const char *name, const char *text)
{
	printf("  %-14s%s\n", name, text);
}

static void say_number(const char *name, uint64_t number)
{
	printf("  %-14s%" PRIu64 "\n", name, number);
}

static void show_fences(struct json_object *fences)
{
	struct json_object *fence;
	size_t i;

	for (i = 0; i < ctl_length(fences); i++) {
		fence = json_object_array_get_idx(fences, i);
		printf("  %-14sengine %" PRIu64 " for %s: %s; it gets no work until the daemon is "
		       "started anew\n", "FENCED", ctl_number(fence, "engine"),
		       ctl_duration(ctl_number(fence, "seconds")).text, ctl_text(fence, "why"));
	}
}

void ctl_show_status(struct json_object *answer)
{
	struct json_object *daemon = ctl_object(answer, "daemon");

	printf("ceoverlapd %s, process %" PRIu64 ", %s, for %s\n", ctl_text(daemon, "version"),
	       ctl_number(daemon, "pid"), strcmp(ctl_text(daemon, "state"), "drains")
	       ? "serves" : "ends when all launches have",
	       ctl_duration(ctl_number(daemon, "uptime_seconds")).text);
	say("socket", *ctl_text(daemon, "socket") ? ctl_text(daemon, "socket")
	    : "passed by systemd");
	say("settings", *ctl_text(daemon, "config") ? ctl_text(daemon, "config")
	    : "no file; the defaults");
	if (*ctl_text(daemon, "config_fault"))
		say("  NOT READ", ctl_text(daemon, "config_fault"));
	show_fences(ctl_object(daemon, "fences"));
	printf("  %-14s%" PRIu64 " now, %" PRIu64 " ever\n", "clients",
	       ctl_number(daemon, "clients"), ctl_number(daemon, "clients_ever"));
	printf("  %-14s%" PRIu64 " here, %" PRIu64 " unarbitrated, in their processes\n", "plans",
	       ctl_number(daemon, "plans"), ctl_number(daemon, "unarbitrated_plans"));
	printf("  %-14s%" PRIu64 ", of which %" PRIu64 " failed\n", "launches",
	       ctl_number(daemon, "launches"), ctl_number(daemon, "failed_launches"));
	say("moved", ctl_bytes(ctl_sum(ctl_object(daemon, "bytes"), NULL)).text);
	say("mapped", ctl_bytes(ctl_number(daemon, "mapped_bytes")).text);
	printf("  %-14s%.3f (1: all who move data move as their weights say)\n", "fairness",
	       ctl_real(daemon, "fairness"));
}

static void show_client(struct json_object *client)
{
	printf("%6" PRIu64 " %8" PRIu64 " %-12.12s %-18.18s %-10s %6" PRIu64 " %5" PRIu64 " %6"
	       PRIu64 " %9s %9" PRIu64 " %7" PRIu64 " %11s %10s\n", ctl_number(client, "number"),
	       ctl_number(client, "pid"), ctl_user(ctl_number(client, "uid")).text,
	       ctl_text(client, "name"), ctl_text(client, "class"), ctl_number(client, "weight"),
	       ctl_number(client, "plans"), ctl_number(client, "unarbitrated_plans"),
	       ctl_bytes(ctl_number(client, "mapped_bytes")).text, ctl_number(client, "launches"),
	       ctl_number(client, "failed_launches"),
	       ctl_rate(ctl_number(client, "bytes_per_second")).text,
	       ctl_bytes(ctl_sum(ctl_object(client, "bytes"), NULL)).text);
}

void ctl_show_clients(struct json_object *answer)
{
	struct json_object *clients = ctl_object(answer, "clients");
	size_t i;

	printf("%6s %8s %-12s %-18s %-10s %6s %5s %6s %9s %9s %7s %11s %10s\n", "CLIENT",
	       "PROCESS", "USER", "NAME", "CLASS", "WEIGHT", "PLANS", "UNARB.", "MAPPED",
	       "LAUNCHES", "FAILED", "RATE", "MOVED");
	for (i = 0; i < ctl_length(clients); i++)
		show_client(json_object_array_get_idx(clients, i));
}

static void show_class(struct json_object *link, const char *class)
{
	struct json_object *numbers = ctl_object(ctl_object(link, "classes"), class);

	if (!ctl_number(numbers, "chunks"))
		return;
	printf("    %-12s %10s %10" PRIu64 " chunks; waited %s, 99 %%: %s; moved in %s, 99 %%: "
	       "%s\n", class, ctl_bytes(ctl_number(numbers, "bytes")).text,
	       ctl_number(numbers, "chunks"), ctl_us(ctl_number(numbers, "wait_p50_us")).text,
	       ctl_us(ctl_number(numbers, "wait_p99_us")).text,
	       ctl_us(ctl_number(numbers, "copy_p50_us")).text,
	       ctl_us(ctl_number(numbers, "copy_p99_us")).text);
}

static void show_route(struct json_object *link)
{
	uint64_t rated = ctl_number(link, "rated_bytes_per_second");
	uint32_t i;

	printf("%s: %s%s; %" PRIu64 " chunks wait, %" PRIu64 " move\n", ctl_text(link, "link"),
	       rated ? "rated at " : "its rate is not known", rated ? ctl_rate(rated).text : "",
	       ctl_number(link, "waiting_chunks"), ctl_number(link, "moving_chunks"));
	for (i = 0; i < CTL_CLASSES; i++)
		show_class(link, ctl_classes[i]);
}

void ctl_show_routes(struct json_object *answer)
{
	struct json_object *links = ctl_object(answer, "links");
	size_t i;

	if (!ctl_length(links))
		printf("nothing was moved yet\n");
	for (i = 0; i < ctl_length(links); i++)
		show_route(json_object_array_get_idx(links, i));
}

static void show_limits_of(struct json_object *limits)
{
	static const char *const counts[] = { "clients", "clients_per_user", "plans",
					      "transfers_per_plan", "chunks", "regions",
					      "descriptors_per_user", "weight" };
	static const char *const bytes[] = { "bytes", "bytes_per_user", "chunk_bytes" };
	uint64_t rate = ctl_number(limits, "bytes_per_second");
	size_t i;

	for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		if (ctl_object(limits, counts[i]))
			printf("  %-22s%" PRIu64 "\n", counts[i], ctl_number(limits, counts[i]));
	for (i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++)
		printf("  %-22s%s\n", bytes[i], ctl_bytes(ctl_number(limits, bytes[i])).text);
	printf("  %-22s%s\n", "bytes_per_second", rate ? ctl_rate(rate).text : "no limit");
	printf("  %-22s%s\n", "class", ctl_text(limits, "class"));
}

void ctl_show_limits(struct json_object *answer)
{
	struct json_object *classes = ctl_object(answer, "classes");
	struct json_object *users = ctl_object(answer, "users");

	printf("everybody\n");
	show_limits_of(ctl_object(answer, "limits"));
	if (!json_object_is_type(users, json_type_object))
		return;
	json_object_object_foreach(users, uid, limits) {
		printf("user %s\n", uid);
		show_limits_of(limits);
	}
	printf("classes\n");
	say_number("normal", ctl_number(classes, "normal"));
	say_number("background", ctl_number(classes, "background"));
	printf("  %-14s%" PRIu64 " %% of a port's time, unused for %" PRIu64 " us\n", "urgent",
	       ctl_number(classes, "urgent_percent"), ctl_number(classes, "urgent_us"));
}

void ctl_show_dump(struct json_object *answer)
{
	struct json_object *list = ctl_object(answer, "transfers"), *one;
	char client[64];
	const char *error;
	size_t i;

	if (!ctl_length(list))
		printf("nothing was moved yet\n");
	for (i = 0; i < ctl_length(list); i++) {
		one = json_object_array_get_idx(list, i);
		error = ctl_text(one, "error");
		snprintf(client, sizeof(client), "client %" PRIu64, ctl_number(one, "client"));
		printf("engine %" PRIu64 ": %s ago: %s, launch %" PRIu64
		       ", transfer %" PRIu64 ", chunk %" PRIu64 ": %s over %s, %s, waited %s, "
		       "moved in %s%s%s\n", ctl_number(one, "engine"),
		       ctl_us(ctl_number(one, "age_us")).text, ctl_number(one, "client")
		       ? client : "a client that has gone, or has no share of its own",
		       ctl_number(one, "launch"), ctl_number(one, "transfer"),
		       ctl_number(one, "chunk"), ctl_bytes(ctl_number(one, "bytes")).text,
		       ctl_text(one, "link"), ctl_text(one, "class"),
		       ctl_us(ctl_number(one, "waited_us")).text,
		       ctl_us(ctl_number(one, "moved_us")).text,
		       *error ? "; its launch failed: " : "", error);
	}
}
