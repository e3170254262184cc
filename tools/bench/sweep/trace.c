/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Runs one all-gather with its own trace, for the report's timeline. */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <json-c/json.h>

#include "tools/bench/sweep/sweep.h"

#define LAUNCHES 3u                     /* the report shows the last one */

/* Runs launches in a context that writes its trace when it closes. */
static int gather(struct sweep *sweep, ceov_context *context, struct sweep_job *job)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options) };
	struct sweep_plans plans;
	struct sweep_area area;
	uint32_t i;
	int r, s;

	memset(&area, 0, sizeof(area));
	memset(&plans, 0, sizeof(plans));
	area.n_places = sweep->n_ranks;
	area.source_bytes = job->bytes;
	area.target_bytes = job->bytes * sweep->n_ranks;
	options.mark_group_bytes = job->bytes;  /* one mark per transfer, so that each shows in
						 * the trace */
	r = sweep_area_open(sweep, context, &area);
	if (!r)
		r = sweep_plans_open(sweep, context, &area, job, &options, &plans);
	for (i = 0; !r && i < LAUNCHES; i++)
		r = sweep_plans_run(&area, &plans, 1);
	if (r)
		(void)sweep_fail(sweep, context, r, "the timeline's all-gather");
	sweep_plans_close(&plans);
	s = sweep_area_close(sweep, &area);
	return r ? r : s;
}

static int with_trace(struct sweep *sweep, const char *path, struct sweep_job *job)
{
	ceov_context *context = NULL;
	int r = sweep_open_context(sweep, sweep->n_ranks, path, &context);

	if (!r)
		r = gather(sweep, context, job);
	ceov_close(context);
	return r;
}

/* Reads what lanes did; NULL, reported: the file is no trace. */
static struct json_object *read_spans(const char *path)
{
	struct json_object *file = json_object_from_file(path), *list, *event;
	struct json_object *events = json_object_object_get(file, "traceEvents");
	const char *phase;
	size_t i;

	if (!events) {
		fprintf(stderr, "ceoverlap-bench: cannot read the trace %s\n", path);
		json_object_put(file);
		return NULL;
	}
	list = json_object_new_array();
	for (i = 0; i < json_object_array_length(events); i++) {
		event = json_object_array_get_idx(events, i);
		phase = json_object_get_string(json_object_object_get(event, "ph"));
		if (phase && !strcmp(phase, "X"))
			json_object_array_add(list, json_object_get(event));
	}
	json_object_put(file);
	return list;
}

int sweep_timeline(struct sweep *sweep)
{
	struct sweep_job *job;
	char path[128];
	int r;

	if (sweep->n_ranks < 2)
		return 0;
	job = calloc(1, sizeof(*job));
	if (!job)
		return CEOV_ERR_NO_MEMORY;
	snprintf(path, sizeof(path), "%s/trace", sweep->folder);
	sweep->timeline_bytes = sweep->is_gpu ? UINT64_C(16) << 20 : UINT64_C(1) << 20;
	sweep_collective(sweep, SWEEP_GATHER, sweep->timeline_bytes, job);
	sweep_progress(sweep, "timeline of one all-gather");
	r = with_trace(sweep, path, job);
	if (!r && !(sweep->timeline = read_spans(path)))
		r = CEOV_ERR_SYSTEM;
	(void)unlink(path);
	free(job);
	return r;
}
