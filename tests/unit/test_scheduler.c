/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the order of copies on a lane, plans that keep their order, and plans of host ranks that
 * play a machine's GPUs. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/collective.h>

#include "ce_engine/objects/context.h"
#include "ce_engine/objects/plan.h"
#include "ce_engine/sched/queues.h"
#include "sim/sim.h"
#include "testing.h"

#define MIB    (UINT64_C(1) << 20)
#define GPUS   8u
#define CREDIT 64u
#define JOBS   100u
#define NOW    UINT64_C(1000000000)

struct fixture {
	struct cei_machine *machine;
	struct cei_ports   *ports;
	struct cei_queues   queues;     /* queues of GPU 0 */
	struct cei_queues   other;      /* queues of GPU 1 */
	struct cei_job     *jobs;
	uint32_t            n;
};

static void set_up(struct fixture *f, uint32_t n_gpus, uint32_t n_jobs)
{
	struct cei_report report;

	memset(f, 0, sizeof(*f));
	f->machine = sim_machine_switch(n_gpus, UINT64_C(392000000000), 4000);
	cei_report_init(&report, NULL, NULL);
	ck_assert_int_eq(cei_ports_create(&report, f->machine, &f->ports), 0);
	cei_report_fini(&report);
	ck_assert_int_eq(cei_queues_init(&f->queues, f->ports, 2, CREDIT), 0);
	ck_assert_int_eq(cei_queues_init(&f->other, f->ports, 2, CREDIT), 0);
	f->jobs = calloc(n_jobs, sizeof(*f->jobs));
	ck_assert_ptr_nonnull(f->jobs);
}

static void tear_down(struct fixture *f)
{
	uint32_t i;

	for (i = 0; i < f->n; i++)              /* GPU 0 sends through port 0 */
		cei_queues_leave(f->jobs[i].link->ports[0] ? &f->other : &f->queues,
				 &f->jobs[i], NOW);
	cei_queues_fini(&f->queues);
	cei_queues_fini(&f->other);
	ck_assert(cei_ports_are_quiet(f->ports));
	cei_ports_destroy(f->ports);
	cei_machine_destroy(f->machine);
	free(f->jobs);
}

/* Adds a copy from GPU 0, or from GPU 1 if these are its queues. */
static struct cei_job *add(struct fixture *f, struct cei_queues *queues, uint32_t to,
			   const struct cei_job *like)
{
	struct cei_job *job = &f->jobs[f->n++];

	*job = *like;
	job->link = cei_machine_link(f->machine, queues == &f->other, to);
	job->turn = (uint16_t)to;
	if (!job->ready_ns)
		job->ready_ns = NOW;
	cei_queues_add(queues, job);
	return job;
}

/* --- which copy is next -------------------------------------------------------- */

START_TEST(test_order_is_kept_and_nothing_held_back)
{
	const struct cei_job like = { .bytes = 64 * MIB, .keeps_order = 1 };
	struct fixture f;
	uint32_t i;

	set_up(&f, GPUS, JOBS);
	for (i = 0; i < JOBS; i++)
		add(&f, &f.queues, 1 + i % 7, &like);
	for (i = 0; i < CREDIT; i++)
		ck_assert_ptr_eq(cei_queues_take(&f.queues, 0, NOW), &f.jobs[i]);
	ck_assert_ptr_null(cei_queues_take(&f.queues, 0, NOW));
	cei_queues_leave(&f.queues, &f.jobs[0], NOW + 1);
	ck_assert_ptr_eq(cei_queues_take(&f.queues, 0, NOW + 1), &f.jobs[CREDIT]);
	tear_down(&f);
}
END_TEST

START_TEST(test_the_busiest_port_is_served_first)
{
	const struct cei_job like = { .bytes = 64 * MIB };
	struct cei_job *job, *second;
	struct fixture f;

	set_up(&f, GPUS, JOBS);
	add(&f, &f.queues, 2, &like);
	add(&f, &f.queues, 4, &like);
	job = add(&f, &f.queues, 3, &like);
	add(&f, &f.other, 3, &like);
	add(&f, &f.other, 3, &like);
	add(&f, &f.other, 3, &like);
	ck_assert_ptr_eq(cei_queues_take(&f.queues, 0, NOW), job);
	/* the next copy is not chosen until this one is nearly done */
	ck_assert_ptr_null(cei_queues_take(&f.queues, 0, NOW));
	ck_assert_ptr_null(cei_queues_take(&f.queues, 0, NOW + job->takes_ns / 2));
	/* meanwhile the other engine does not use the same port */
	ck_assert_ptr_null(cei_queues_take(&f.other, 0, NOW));
	second = cei_queues_take(&f.queues, 0, NOW + job->takes_ns);
	ck_assert_ptr_eq(second, &f.jobs[0]);
	cei_queues_leave(&f.queues, job, NOW + job->takes_ns);
	ck_assert_ptr_nonnull(cei_queues_take(&f.other, 0, NOW + job->takes_ns));
	tear_down(&f);
}
END_TEST

START_TEST(test_a_link_for_oneself_is_fed_ahead)
{
	const struct cei_job like = { .bytes = 16 * MIB };
	struct fixture f;
	uint32_t i, n = 0;

	set_up(&f, GPUS, JOBS);
	for (i = 0; i < JOBS; i++)
		add(&f, &f.queues, 1, &like);
	while (cei_queues_take(&f.queues, 0, NOW))
		n++;
	ck_assert_uint_ge(n, CEI_QUEUES_ALONE_NS / f.jobs[0].takes_ns);
	ck_assert_uint_lt(n, CREDIT);
	tear_down(&f);
}
END_TEST

START_TEST(test_what_is_late_keeps_its_ports_and_what_is_early_gives_them_back)
{
	const struct cei_job like = { .bytes = 64 * MIB };
	struct cei_job *job;
	struct fixture f;
	uint64_t late;

	set_up(&f, GPUS, JOBS);
	job = add(&f, &f.queues, 3, &like);
	add(&f, &f.other, 3, &like);
	ck_assert_ptr_eq(cei_queues_take(&f.queues, 0, NOW), job);
	late = job->ends_ns + 3 * CEI_QUEUES_LATE_NS;
	cei_queues_settle(&f.queues, late);
	ck_assert_ptr_null(cei_queues_take(&f.other, 0, late - CEI_QUEUES_ISSUE_NS));
	cei_queues_leave(&f.queues, job, late);
	ck_assert_ptr_nonnull(cei_queues_take(&f.other, 0, late));
	tear_down(&f);
}
END_TEST

START_TEST(test_busy_ports_hold_a_job_back_for_a_bounded_time)
{
	const struct cei_job like = { .bytes = MIB };
	struct cei_ports_ask holder;
	struct fixture f;
	uint64_t now;

	set_up(&f, GPUS, JOBS);
	add(&f, &f.queues, 3, &like);
	holder.link = cei_machine_link(f.machine, 1, 3);
	holder.start_ns = NOW;
	holder.takes_ns = 1000 * CEI_QUEUES_PATIENCE_NS;
	(void)cei_ports_book(f.ports, &holder);
	for (now = NOW; now <= NOW + CEI_QUEUES_PATIENCE_NS; now += 500000)
		ck_assert_ptr_null(cei_queues_take(&f.queues, 0, now));
	ck_assert_ptr_nonnull(cei_queues_take(&f.queues, 0, now));
	tear_down(&f);
}
END_TEST

START_TEST(test_ordered_jobs_overtake_for_a_bounded_time)
{
	const struct cei_job like = { .bytes = 64 * MIB };
	struct cei_job ordered = { .bytes = MIB, .keeps_order = 1 };
	struct cei_job *first;
	struct fixture f;

	set_up(&f, GPUS, JOBS);
	add(&f, &f.other, 3, &like);
	ck_assert_ptr_nonnull(cei_queues_take(&f.other, 0, NOW));
	add(&f, &f.queues, 3, &like);           /* the port of this copy is busy */
	ordered.ready_ns = NOW + CEI_QUEUES_OVERTAKE_NS;
	first = add(&f, &f.queues, 2, &ordered);
	ordered.ready_ns++;
	add(&f, &f.queues, 2, &ordered);
	ck_assert_ptr_eq(cei_queues_take(&f.queues, 0, NOW + 1000), first);
	ck_assert_ptr_null(cei_queues_take(&f.queues, 0, NOW + 1000));
	tear_down(&f);
}
END_TEST

START_TEST(test_urgent_goes_first_and_background_last_and_little_of_it)
{
	struct cei_job like = { .bytes = 16 * MIB };
	struct cei_job *background, *normal, *urgent;
	struct fixture f;

	set_up(&f, GPUS, JOBS);
	like.keeps_order = 1;
	like.urgency = CEOV_URGENCY_BACKGROUND;
	background = add(&f, &f.queues, 1, &like);
	add(&f, &f.queues, 1, &like);
	add(&f, &f.queues, 1, &like);
	like.urgency = CEOV_URGENCY_NORMAL;
	normal = add(&f, &f.queues, 2, &like);
	like.urgency = CEOV_URGENCY_URGENT;
	urgent = add(&f, &f.queues, 3, &like);
	ck_assert_ptr_eq(cei_queues_take(&f.queues, 0, NOW), urgent);
	ck_assert_ptr_eq(cei_queues_take(&f.queues, 0, NOW), normal);
	ck_assert_ptr_null(cei_queues_take(&f.queues, 0, NOW));
	cei_queues_leave(&f.queues, urgent, NOW + 50000);
	cei_queues_leave(&f.queues, normal, NOW + 100000);
	ck_assert_ptr_eq(cei_queues_take(&f.queues, 0, NOW + 100000), background);
	ck_assert_ptr_null(cei_queues_take(&f.queues, 0, NOW + 100000));
	ck_assert_ptr_eq(cei_queues_take(&f.queues, 0, background->ends_ns - 5000),
			 background + 1);
	ck_assert_ptr_null(cei_queues_take(&f.queues, 0, (background + 1)->ends_ns - 5000));
	tear_down(&f);
}
END_TEST

START_TEST(test_unknown_links_of_the_background_are_bounded_by_bytes)
{
	const struct cei_job like = { .bytes = 16 * MIB, .keeps_order = 1,
				      .urgency = CEOV_URGENCY_BACKGROUND };
	struct cei_queues queues = { 0 };
	struct cei_job jobs[4];
	uint32_t i;

	ck_assert_int_eq(cei_queues_init(&queues, NULL, 1, CREDIT), 0);
	for (i = 0; i < 4; i++) {
		jobs[i] = like;
		jobs[i].bytes = i < 3 ? 16 * MIB : 1000 * MIB;
		cei_queues_add(&queues, &jobs[i]);
	}
	ck_assert_ptr_eq(cei_queues_take(&queues, 0, NOW), &jobs[0]);
	ck_assert_ptr_eq(cei_queues_take(&queues, 0, NOW), &jobs[1]);
	ck_assert_ptr_null(cei_queues_take(&queues, 0, NOW));
	cei_queues_leave(&queues, &jobs[0], NOW);
	ck_assert_ptr_eq(cei_queues_take(&queues, 0, NOW), &jobs[2]);
	cei_queues_leave(&queues, &jobs[1], NOW);
	ck_assert_ptr_null(cei_queues_take(&queues, 0, NOW));   /* a large copy is taken alone */
	cei_queues_leave(&queues, &jobs[2], NOW);
	ck_assert_ptr_eq(cei_queues_take(&queues, 0, NOW), &jobs[3]);
	cei_queues_fini(&queues);
}
END_TEST

START_TEST(test_jobs_may_leave_from_any_state)
{
	struct cei_job like = { .bytes = MIB };
	struct fixture f;
	uint32_t i;

	set_up(&f, GPUS, JOBS);
	for (i = 0; i < 20; i++) {
		like.keeps_order = i % 3 == 0;
		like.urgency = (uint8_t)(i % 2 ? CEOV_URGENCY_BACKGROUND : CEOV_URGENCY_NORMAL);
		add(&f, &f.queues, 1 + i % 7, &like);
	}
	for (i = 0; i < 5; i++)
		(void)cei_queues_take(&f.queues, 0, NOW);
	for (i = 20; i-- > 0;) {
		cei_queues_leave(&f.queues, &f.jobs[i], NOW);
		cei_queues_leave(&f.queues, &f.jobs[i], NOW);
	}
	ck_assert(cei_ports_are_quiet(f.ports));
	ck_assert_uint_eq(f.queues.lanes[0]->n_moving, 0);
	ck_assert_uint_eq(f.queues.lanes[0]->n_background, 0);
	ck_assert_uint_eq(f.queues.lanes[0]->moving_ns, 0);
	ck_assert_ptr_null(cei_queues_take(&f.queues, 0, NOW));
	ck_assert(cei_lane_set_is_empty(&f.queues.has_waiting));
	tear_down(&f);
}
END_TEST

/* --- cost of choosing ------------------------------------------------------------ */

/* Returns how many candidates were compared per copy, for n copies over all links. */
static double cost_of(uint32_t n_gpus, uint32_t n)
{
	struct cei_job like = { .bytes = MIB };
	struct cei_job *job;
	uint64_t now = NOW;
	struct fixture f;
	uint32_t i, n_done = 0;
	double cost;

	set_up(&f, n_gpus, n);
	for (i = 0; i < n; i++)
		add(&f, &f.queues, 1 + i % (n_gpus - 1), &like);
	while ((job = cei_queues_take(&f.queues, 0, now))) {
		now = job->ends_ns;
		cei_queues_leave(&f.queues, job, now);
		n_done++;
	}
	ck_assert_uint_eq(n_done, n);
	cost = (double)f.queues.n_looks / n;
	tear_down(&f);
	return cost;
}

START_TEST(test_cost_per_job_does_not_grow)
{
	static const uint32_t sizes[] = { 1000, 10000, 100000, 1000000 };
	uint32_t i;

	for (i = 0; i < 4; i++)
		ck_assert_double_le(cost_of(GPUS, sizes[i]), GPUS - 1);
	/* one engine has more links than it keeps queues for */
	ck_assert_double_le(cost_of(CEI_MACHINE_GPUS_MAX, 10000), CEI_LINEUP_LINKS);
}
END_TEST

START_TEST(test_more_links_than_queues_share_them)
{
	const struct cei_job like = { .bytes = MIB };
	struct fixture f;
	struct cei_job *job;
	uint64_t now = NOW;
	uint32_t i, to;

	set_up(&f, 60, 240);
	for (i = 0; i < 2; i++) {               /* 120 links of one engine */
		for (to = 2; to < 60; to++) {
			add(&f, &f.queues, to, &like);
			job = &f.jobs[f.n++];
			*job = like;
			job->ready_ns = NOW;
			job->link = cei_machine_link(f.machine, to, 0);
			cei_queues_add(&f.queues, job);
		}
	}
	for (i = 0; i < 4 * 58; i++) {
		job = cei_queues_take(&f.queues, 0, now);
		ck_assert_ptr_nonnull(job);
		now = job->ends_ns;
		cei_queues_leave(&f.queues, job, now);
	}
	tear_down(&f);
}
END_TEST

/* --- which plans keep their order --------------------------------------------------- */

static ceov_plan *plan_of(ceov_context *context, uint32_t urgency)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options) };
	ceov_plan *plan;

	options.urgency = urgency;
	ck_assert_int_eq(ceov_plan_create(context, 0, &options, &plan), 0);
	return plan;
}

START_TEST(test_plans_keep_their_order_where_more_than_marks_orders_them)
{
	ceov_context *context = testing_open(2, NULL);
	ceov_buffer *source = testing_buffer(context, 0, 4096);
	ceov_buffer *target = testing_buffer(context, 1, 4096);
	ceov_signal *signal = testing_signal(context, 1, 4);
	struct ceov_transfer transfer = testing_transfer(source, target, 1024);
	ceov_plan *plans[3];
	uint32_t i;

	for (i = 0; i < 3; i++) {
		plans[i] = plan_of(context, i);
		ck_assert_uint_eq(plans[i]->program.urgency, i);
		transfer.then = testing_mark(signal, i, 1);
		transfer.source_ready = testing_mark(NULL, 0, 0);
		testing_add(plans[i], &transfer);
	}
	transfer.source_ready = testing_mark(signal, 1, 1);
	transfer.then = testing_mark(signal, 1, 2);     /* one counter is raised twice */
	ck_assert_int_eq(ceov_plan_add(plans[1], &transfer), 0);
	transfer.source_ready = testing_mark(NULL, 0, 0);
	transfer.then = testing_mark(signal, 3, 1);
	transfer.row_bytes = 0;                         /* without bytes, so its mark comes behind
							 * all transfers before it */
	ck_assert_int_eq(ceov_plan_add(plans[2], &transfer), 0);
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(ceov_plan_commit(plans[i]), 0);
	ck_assert(!plans[0]->triggers.keeps_order);
	ck_assert(plans[1]->triggers.keeps_order);
	ck_assert(plans[2]->triggers.keeps_order);
	ceov_close(context);
}
END_TEST

START_TEST(test_an_unknown_urgency_is_refused)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options), .urgency = 3 };
	ceov_context *context = testing_open(1, NULL);
	ceov_plan *plan;

	ck_assert_int_eq(ceov_plan_create(context, 0, &options, &plan), CEOV_ERR_INVALID);
	ceov_close(context);
}
END_TEST

/* --- whole engines ------------------------------------------------------------------- */

#define PIECE     UINT64_C(65536)
#define TRANSFERS 16u                   /* from each rank to each other rank */

struct world {
	ceov_context *context;
	ceov_buffer  *source[GPUS];
	ceov_buffer  *target[GPUS];
	ceov_signal  *arrived[GPUS];
};

static uint64_t place_of(uint32_t from, uint32_t i)
{
	return ((uint64_t)from * TRANSFERS + i) * PIECE;
}

static void open_world(struct world *world)
{
	const char *srcdir = getenv("srcdir");
	char path[512];
	uint32_t rank;

	snprintf(path, sizeof(path), "%s/tests/fixtures/machines/h200x8-nvswitch.xml",
		 srcdir ? srcdir : ".");
	ck_assert_int_eq(setenv("CEOVERLAP_MACHINE", path, 1), 0);
	world->context = testing_open(GPUS, NULL);
	ck_assert_ptr_nonnull(world->context->works.ports);
	for (rank = 0; rank < GPUS; rank++) {
		world->source[rank] = testing_buffer(world->context, rank,
						     GPUS * TRANSFERS * PIECE);
		world->target[rank] = testing_buffer(world->context, rank,
						     GPUS * TRANSFERS * PIECE);
		world->arrived[rank] = testing_signal(world->context, rank, GPUS * TRANSFERS);
	}
}

/* Makes one rank's plan, in an order in which all ranks would send to the same receiver at once. */
static ceov_plan *build(struct world *world, uint32_t from, uint32_t urgency)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options) };
	struct ceov_transfer transfer;
	ceov_plan *plan;
	uint32_t i, to;

	options.max_chunk_bytes = PIECE / 4;
	options.urgency = urgency;
	ck_assert_int_eq(ceov_plan_create(world->context, from, &options, &plan), 0);
	for (to = 0; to < GPUS; to++) {
		for (i = 0; to != from && i < TRANSFERS; i++) {
			transfer = testing_transfer(world->source[from], world->target[to],
						    PIECE);
			transfer.source.offset_bytes = place_of(to, i);
			transfer.target.offset_bytes = place_of(from, i);
			transfer.then = testing_mark(world->arrived[to], from * TRANSFERS + i,
						     1);
			ck_assert_int_eq(ceov_plan_add(plan, &transfer), 0);
		}
	}
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert(!plan->triggers.keeps_order);
	return plan;
}

/* Checks what each rank received from every other rank. */
static void check_bytes(const struct world *world)
{
	const uint8_t *sent, *got;
	uint32_t rank, from, i;

	for (rank = 0; rank < GPUS; rank++) {
		for (from = 0; from < GPUS; from++) {
			sent = ceov_buffer_base(world->source[from], from);
			got = ceov_buffer_base(world->target[rank], rank);
			for (i = 0; from != rank && i < TRANSFERS; i++)
				ck_assert_int_eq(memcmp(got + place_of(from, i),
							sent + place_of(rank, i), PIECE), 0);
		}
	}
}

START_TEST(test_engines_that_share_ports_move_every_byte)
{
	ceov_ticket tickets[GPUS];
	ceov_plan *plans[GPUS];
	struct world world;
	uint32_t rank;

	open_world(&world);
	for (rank = 0; rank < GPUS; rank++) {
		testing_fill(ceov_buffer_base(world.source[rank], rank),
			     GPUS * TRANSFERS * PIECE, rank);
		plans[rank] = build(&world, rank, (uint32_t)_i);
	}
	for (rank = 0; rank < GPUS; rank++)
		ck_assert_int_eq(ceov_launch(plans[rank], NULL, &tickets[rank]), 0);
	for (rank = 0; rank < GPUS; rank++)
		ck_assert_int_eq(ceov_wait(world.context, tickets[rank], TESTING_PATIENCE), 0);
	check_bytes(&world);
	ck_assert(cei_ports_are_quiet(world.context->works.ports));
	ceov_close(world.context);
	unsetenv("CEOVERLAP_MACHINE");
}
END_TEST

START_TEST(test_an_aborted_plan_leaves_nothing_waiting)
{
	struct world world;
	ceov_ticket ticket;
	ceov_plan *plan;
	int r;

	open_world(&world);
	plan = build(&world, 0, CEOV_URGENCY_NORMAL);
	ck_assert_int_eq(ceov_launch(plan, NULL, &ticket), 0);
	r = ceov_abort(world.context, ticket);
	ck_assert(r == 0 || r == CEOV_NONE);            /* the launch may have ended already */
	r = ceov_wait(world.context, ticket, TESTING_PATIENCE);
	ck_assert(r == 0 || r == CEOV_ERR_ABORTED);
	ck_assert(cei_ports_are_quiet(world.context->works.ports));
	ceov_close(world.context);
	unsetenv("CEOVERLAP_MACHINE");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("scheduler");
	TCase *tests = tcase_create("queues"), *plans = tcase_create("plans");

	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, test_order_is_kept_and_nothing_held_back);
	tcase_add_test(tests, test_the_busiest_port_is_served_first);
	tcase_add_test(tests, test_a_link_for_oneself_is_fed_ahead);
	tcase_add_test(tests, test_what_is_late_keeps_its_ports_and_what_is_early_gives_them_back);
	tcase_add_test(tests, test_busy_ports_hold_a_job_back_for_a_bounded_time);
	tcase_add_test(tests, test_ordered_jobs_overtake_for_a_bounded_time);
	tcase_add_test(tests, test_urgent_goes_first_and_background_last_and_little_of_it);
	tcase_add_test(tests, test_unknown_links_of_the_background_are_bounded_by_bytes);
	tcase_add_test(tests, test_jobs_may_leave_from_any_state);
	tcase_add_test(tests, test_cost_per_job_does_not_grow);
	tcase_add_test(tests, test_more_links_than_queues_share_them);
	suite_add_tcase(suite, tests);
	tcase_set_timeout(plans, 60);
	tcase_add_test(plans, test_plans_keep_their_order_where_more_than_marks_orders_them);
	tcase_add_test(plans, test_an_unknown_urgency_is_refused);
	tcase_add_loop_test(plans, test_engines_that_share_ports_move_every_byte, 0, 3);
	tcase_add_test(plans, test_an_aborted_plan_leaves_nothing_waiting);
	suite_add_tcase(suite, plans);
	return testing_run(suite);
}
