/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Turns answers into rows with rates. */

#include "tools/ctl/scene.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/ctl/ctl.h"

uint64_t scene_rate(const struct scene_row *row)
{
	return row->rate[SCENE_URGENT] + row->rate[SCENE_NORMAL] + row->rate[SCENE_BACKGROUND];
}

/* Numbers only rise; where they do not, another daemon has answered. */
static void fill_rates(struct scene_row *row, const struct scene_row *before, uint64_t past_ns)
{
	uint64_t more;
	uint32_t i;

	for (i = 0; i < SCENE_CLASSES; i++) {
		more = row->bytes[i] > before->bytes[i] ? row->bytes[i] - before->bytes[i] : 0;
		row->rate[i] = past_ns ? (uint64_t)((double)more * 1e9 / (double)past_ns) : 0;
	}
}

static uint64_t past(const struct scene *scene, const struct scene *before)
{
	return scene->at_ns > before->at_ns ? scene->at_ns - before->at_ns : 0;
}

static void fill_link(struct scene_row *row, struct json_object *link)
{
	struct json_object *class;
	uint32_t i;

	memset(row, 0, sizeof(*row));
	snprintf(row->name, sizeof(row->name), "%s", ctl_text(link, "link"));
	row->rated = ctl_number(link, "rated_bytes_per_second");
	row->waiting = ctl_number(link, "waiting_chunks");
	row->moving = ctl_number(link, "moving_chunks");
	for (i = SCENE_CLASSES; i-- > 0;) {
		class = ctl_object(ctl_object(link, "classes"), ctl_classes[i]);
		row->bytes[i] = ctl_number(class, "bytes");
		if (!ctl_number(class, "chunks"))
			continue;
		row->wait_p99_us = ctl_number(class, "wait_p99_us");
		row->copy_p99_us = ctl_number(class, "copy_p99_us");
	}
}

static void fill_links(struct scene *scene, struct json_object *list, const struct scene *before)
{
	struct scene_row *row;
	size_t i, n = ctl_length(list);
	uint32_t k;

	scene->n_links = n < SCENE_LINKS ? (uint32_t)n : SCENE_LINKS;
	for (i = 0; i < scene->n_links; i++) {
		row = &scene->links[i];
		fill_link(row, json_object_array_get_idx(list, i));
		for (k = 0; before && k < before->n_links; k++)
			if (!strcmp(before->links[k].name, row->name))
				fill_rates(row, &before->links[k], past(scene, before));
		scene->rate += scene_rate(row);
	}
}

static void fill_client(struct scene_row *row, struct json_object *client)
{
	uint32_t i;

	memset(row, 0, sizeof(*row));
	row->key = ctl_number(client, "number");
	row->pid = ctl_number(client, "pid");
	snprintf(row->name, sizeof(row->name), "%s", ctl_text(client, "name"));
	snprintf(row->user, sizeof(row->user), "%s", ctl_user(ctl_number(client, "uid")).text);
	snprintf(row->class, sizeof(row->class), "%s", ctl_text(client, "class"));
	row->waiting = ctl_number(client, "waiting_chunks");
	row->plans = ctl_number(client, "plans");
	row->unarbitrated = ctl_number(client, "unarbitrated_plans");
	for (i = 0; i < SCENE_CLASSES; i++)
		row->bytes[i] = ctl_number(ctl_object(client, "bytes"), ctl_classes[i]);
}

static void fill_clients(struct scene *scene, struct json_object *list,
			 const struct scene *before)
{
	size_t i, n = ctl_length(list);
	struct scene_row *row;
	uint32_t k;

	scene->n_clients = n < SCENE_CLIENTS ? (uint32_t)n : SCENE_CLIENTS;
	scene->n_clients_more = (uint32_t)n - scene->n_clients;
	for (i = 0; i < scene->n_clients; i++) {
		row = &scene->clients[i];
		fill_client(row, json_object_array_get_idx(list, i));
		for (k = 0; before && k < before->n_clients; k++)
			if (before->clients[k].key == row->key)
				fill_rates(row, &before->clients[k], past(scene, before));
	}
}

static void fill_history(struct scene *scene, const struct scene *before)
{
	uint32_t skip;

	if (!before)
		return;
	skip = before->n_history == SCENE_HISTORY;
	scene->n_history = before->n_history - skip + 1;
	memcpy(scene->history, before->history + skip,
	       (scene->n_history - 1) * sizeof(scene->history[0]));
	scene->history[scene->n_history - 1] = scene->rate;
}

void scene_fill(struct scene *scene, struct json_object *answer, const struct scene *before)
{
	struct json_object *daemon = ctl_object(answer, "daemon");

	memset(scene, 0, sizeof(*scene));
	scene->at_ns = ctl_number(answer, "at_ns");
	scene->fairness = ctl_real(daemon, "fairness");
	snprintf(scene->head, sizeof(scene->head), "ceoverlapd %s  %s for %s  %" PRIu64
		 " clients  %" PRIu64 " plans  %" PRIu64 " unarbitrated",
		 ctl_text(daemon, "version"), ctl_text(daemon, "state"),
		 ctl_duration(ctl_number(daemon, "uptime_seconds")).text,
		 ctl_number(daemon, "clients"), ctl_number(daemon, "plans"),
		 ctl_number(daemon, "unarbitrated_plans"));
	fill_links(scene, ctl_object(answer, "links"), before);
	fill_clients(scene, ctl_object(answer, "clients"), before);
	fill_history(scene, before);
}
