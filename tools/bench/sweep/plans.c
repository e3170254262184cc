/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Builds and runs the sweep's plans, and reads what ceov_plan_explain() says about them. */

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ceoverlap/collective.h>

#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/plan.h"
#include "tools/bench/sweep/sweep.h"

#define EXPLAIN_BYTES 65536u

/* Returns the GPU for copies between host memory and a GPU, because that GPU's engine makes
 * them. */
uint32_t sweep_owner(const struct sweep *sweep, const struct sweep_move *move)
{
	return sweep->is_gpu && move->source == sweep->n_ranks ? move->target : move->source;
}

/* --- open and close ------------------------------------------------------- */

static int add_move(const struct sweep_area *area, const struct sweep_job *job, uint32_t i,
		    ceov_plan *plan)
{
	const struct sweep_move *move = &job->moves[i];
	struct ceov_transfer transfer = { .struct_bytes = sizeof(transfer) };

	transfer.source.buffer = area->source[move->source];
	transfer.source.offset_bytes = move->source_offset;
	transfer.target.buffer = area->target[move->target];
	transfer.target.offset_bytes = move->target_offset;
	transfer.row_bytes = move->bytes;
	transfer.n_rows = 1;
	transfer.then = (struct ceov_mark){ area->arrived[move->target], i, 1 };
	return ceov_plan_add(plan, &transfer);
}

static int add_moves(const struct sweep *sweep, const struct sweep_area *area,
		     const struct sweep_job *job, uint32_t rank, ceov_plan *plan)
{
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < job->n_moves; i++)
		if (sweep_owner(sweep, &job->moves[i]) == rank)
			r = add_move(area, job, i, plan);
	return r;
}

static int add_template(const struct sweep_area *area, const struct sweep_job *job,
			uint32_t rank, ceov_plan *plan)
{
	ceov_buffer *targets[SWEEP_PLACES_MAX];
	struct ceov_all_gather gather = { .struct_bytes = sizeof(gather) };
	struct ceov_all_to_all exchange = { .struct_bytes = sizeof(exchange) };

	memcpy(targets, area->target, sizeof(targets));
	targets[rank] = NULL;
	if (job->pattern == SWEEP_GATHER) {
		gather.shard_bytes = job->bytes;
		gather.n_pieces = 1;
		gather.source = area->source[rank];
		gather.targets = targets;
		gather.arrived = area->arrived;
		return ceov_plan_add_all_gather(plan, &gather);
	}
	exchange.block_bytes = job->bytes;
	exchange.n_pieces = 1;
	exchange.source = area->source[rank];
	exchange.targets = targets;
	exchange.arrived = area->arrived;
	return ceov_plan_add_all_to_all(plan, &exchange);
}

static int owns_any(const struct sweep *sweep, const struct sweep_job *job, uint32_t rank)
{
	uint32_t i;

	for (i = 0; i < job->n_moves; i++)
		if (sweep_owner(sweep, &job->moves[i]) == rank)
			return 1;
	return 0;
}

int sweep_plans_open(struct sweep *sweep, ceov_context *context,
		     const struct sweep_area *area, const struct sweep_job *job,
		     const struct ceov_plan_options *options, struct sweep_plans *plans)
{
	ceov_plan *plan;
	uint32_t rank;
	int r = 0;

	memset(plans, 0, sizeof(*plans));
	plans->context = context;
	for (rank = 0; !r && rank < sweep->n_places; rank++) {
		if (!owns_any(sweep, job, rank))
			continue;
		r = ceov_plan_create(context, rank, options, &plan);
		if (r)
			break;
		plans->plans[plans->n++] = plan;
		r = job->pattern == SWEEP_MOVES
			? add_moves(sweep, area, job, rank, plan)
			: add_template(area, job, rank, plan);
		if (!r)
			r = ceov_plan_commit(plan);
	}
	return r;
}

void sweep_plans_close(struct sweep_plans *plans)
{
	uint32_t i;

	for (i = 0; i < plans->n; i++)
		ceov_plan_release(plans->plans[i]);
	plans->n = 0;
}

/* --- run ------------------------------------------------------------------ */

int sweep_plans_run(struct sweep_area *area, struct sweep_plans *plans, uint32_t n_launches)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	ceov_ticket tickets[SWEEP_FLIGHT_MAX][SWEEP_PLACES_MAX];
	uint32_t i, k;
	int r = 0;

	for (i = 0; !r && i < n_launches; i++) {
		launch.base = area->base++;
		for (k = 0; !r && k < plans->n; k++)
			r = ceov_launch(plans->plans[k], &launch, &tickets[i][k]);
	}
	for (i = 0; !r && i < n_launches; i++)
		for (k = 0; !r && k < plans->n; k++)
			r = ceov_wait(plans->context, tickets[i][k], SWEEP_WAIT_NS);
	return r;
}

/* --- what ceov_plan_explain() says ---------------------------------------- */

static double sum_of(const char *text)
{
	static const char key[] = "expected ";
	double sum = 0, us;
	char *end;

	while ((text = strstr(text, key))) {
		text += sizeof(key) - 1;
		us = strtod(text, &end);
		if (!strncmp(end, " us", 3))
			sum += us;
	}
	return sum;
}

static double expected_us(const ceov_plan *plan, char *text)
{
	int fd = memfd_create("explain", MFD_CLOEXEC);
	ssize_t n = -1;

	if (fd < 0)
		return 0;
	if (!ceov_plan_explain(plan, fd) && lseek(fd, 0, SEEK_SET) == 0)
		n = read(fd, text, EXPLAIN_BYTES - 1);
	(void)close(fd);
	if (n < 0)
		return 0;
	text[n] = '\0';
	return sum_of(text);
}

/* Takes the longest plan's time: plans run side by side, the transfers of one plan one after
 * another. */
double sweep_plans_expected_us(const struct sweep_plans *plans)
{
	char *text = malloc(EXPLAIN_BYTES);
	double longest = 0, us;
	uint32_t i;

	for (i = 0; text && i < plans->n; i++) {
		us = expected_us(plans->plans[i], text);
		if (us > longest)
			longest = us;
	}
	free(text);
	return longest;
}

void sweep_machine(const struct sweep *sweep, char *text, size_t n_bytes)
{
	const struct cei_topology *topology = sweep->context
		? sweep->context->works.topology : NULL;
	const struct cei_machine *machine = topology ? topology->machine : NULL;
	uint32_t n_links[CEI_MACHINE_MEASURED + 1] = { 0 }, i, n;

	text[0] = '\0';
	if (!machine)
		return;
	n = cei_machine_n_places(machine);
	for (i = 0; i < n * n; i++)
		if (machine->links[i].kind > CEI_MACHINE_SELF &&
		    machine->links[i].origin <= CEI_MACHINE_MEASURED)
			n_links[machine->links[i].origin]++;
	snprintf(text, n_bytes, "%u GPUs%s%s, %u NUMA nodes; costs of links: %u measured "
		 "before, %u reported by the system, %u by default of their kind", machine->n_gpus,
		 machine->n_gpus && machine->gpus[0].name[0] ? " " : "",
		 machine->n_gpus ? machine->gpus[0].name : "", machine->n_nodes,
		 n_links[CEI_MACHINE_MEASURED], n_links[CEI_MACHINE_REPORTED],
		 n_links[CEI_MACHINE_DEFAULT]);
}

static void add_share(const struct cei_machine *machine, const struct cei_route_path *path,
		      struct sweep_share *share)
{
	char via[16];

	if (path->kind == CEI_ROUTE_DIRECT)
		snprintf(share->path, sizeof(share->path), "direct");
	else
		snprintf(share->path, sizeof(share->path), "%s via %s",
			 cei_route_kind_name((enum cei_route_kind)path->kind),
			 cei_machine_place_name(machine, path->via, via));
}

uint32_t sweep_plans_shares(const struct sweep_plans *plans, struct sweep_share *shares)
{
	const struct ceov_plan *plan = plans->n ? plans->plans[0] : NULL;
	const struct cei_program_transfer *transfer = plan ? plan->program.transfers : NULL;
	const struct cei_program_route *found;
	const struct cei_machine *machine;
	const struct cei_route *route;
	double whole;
	uint32_t i;

	if (!transfer)
		return 0;
	if (transfer->route == CEI_PROGRAM_NONE) {
		snprintf(shares[0].path, sizeof(shares[0].path), "direct");
		shares[0].bytes = transfer->row_bytes * transfer->n_rows;
		return 1;
	}
	machine = plan->object.context->engines[plan->member]->topology->machine;
	found = &plan->program.routes[transfer->route];
	route = &found->route;
	whole = (double)(transfer->row_bytes * transfer->n_rows) / (double)found->bytes;
	for (i = 0; i < route->n_paths && i < SWEEP_PATHS_MAX; i++) {
		add_share(machine, &route->paths[i], &shares[i]);
		/* the route's shares are of its size class, so scale them */
		shares[i].bytes = (uint64_t)((double)route->paths[i].bytes * whole);
	}
	return i;
}
