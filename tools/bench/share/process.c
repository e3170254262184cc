/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "tools/bench/share/share.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/bench/share/pair.h"

#define PATIENCE_NS UINT64_C(60000000000)
#define LOOK_US     500u
#define NOTICE_NS   UINT64_C(5000000)   /* all processes have seen by then when a phase begins */

struct process {
	const struct bench_share *share;
	uint32_t                  number;
	struct bench_pair         pair;
	struct bench_share_found *found;        /* of the phase under way, and here below */
	uint64_t                 *times_ns;
	uint64_t                  begin_ns;     /* when launches begin, ... */
	uint64_t                  from_ns;      /* ... when what arrives begins to count, ... */
	uint64_t                  end_ns;       /* ... and when both end */
};

/* Reports it, unless it is only that another process has failed before. */
static int fail(struct process *process, int result, const char *what)
{
	char text[CEOV_FAILURE_TEXT_BYTES];
	int none = 0, is_first;

	/* seq_cst, here and below: not on a fast path */
	is_first = atomic_compare_exchange_strong(&process->share->run->failed, &none, result);
	bench_pair_failure(&process->pair, text);
	if (is_first || result != CEOV_ERR_ABORTED)
		fprintf(stderr, "ceoverlap-bench: process %u, %s a daemon: %s: %s %s\n",
			process->number, process->share->has_daemon ? "with" : "without", what,
			ceov_strerror(result), text);
	return EXIT_FAILURE;
}

static int is_urgent(const struct process *process)
{
	return process->number == process->share->n_senders;
}

static uint64_t patience(const struct process *process)
{
	uint64_t most_ns = cei_deadline(PATIENCE_NS), all_ns = process->share->deadline_ns;

	return all_ns < most_ns ? all_ns : most_ns;
}

static void sleep_until(uint64_t ns)
{
	const struct timespec time = {
		.tv_sec = (time_t)(ns / UINT64_C(1000000000)),
		.tv_nsec = (long)(ns % UINT64_C(1000000000)),
	};

	/* A signal that does not end the process only makes it begin early. */
	(void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

/* Waits until all processes have come to the phase. CEOV_ERR_ABORTED: one has failed. */
static int meet(const struct process *process, uint32_t number, uint64_t *ret_begin_ns)
{
	struct bench_share_run *run = process->share->run;
	struct bench_share_phase *phase = &run->phases[number];
	uint64_t begin_ns;

	if (atomic_fetch_add(&phase->n_ready, 1) + 1 == bench_share_n_processes(process->share))
		atomic_store(&phase->begin_ns, cei_now_ns() + NOTICE_NS);
	while (!(begin_ns = atomic_load(&phase->begin_ns))) {
		if (atomic_load(&run->failed))
			return CEOV_ERR_ABORTED;
		if (cei_now_ns() >= process->share->deadline_ns)
			return CEOV_ERR_TIMEOUT;
		usleep(LOOK_US);
	}
	*ret_begin_ns = begin_ns;
	return 0;
}

/* --- sending -------------------------------------------------------------------- */

static int counts(const struct process *process, uint64_t now_ns)
{
	return now_ns >= process->from_ns && now_ns < process->end_ns;
}

/* Keeps n_in_flight launches in flight, and awaits the last ones after the end. */
static int send_blocks(struct process *process)
{
	uint32_t n_in_flight = process->share->n_in_flight;
	ceov_ticket tickets[BENCH_SHARE_FLIGHT_MAX];
	uint64_t n_begun = 0, n_ended = 0;
	int r = 0;

	while (!r) {
		if (n_begun - n_ended < n_in_flight && cei_now_ns() < process->end_ns) {
			r = bench_pair_launch(&process->pair, patience(process),
					      &tickets[n_begun++ % n_in_flight]);
			continue;
		}
		if (n_ended == n_begun)
			break;
		r = bench_pair_wait(&process->pair, tickets[n_ended++ % n_in_flight],
				    patience(process));
		if (!r && counts(process, cei_now_ns()))
			process->found->n_blocks++;
	}
	return r;
}

/* One urgent launch, and the time until its block has arrived. */
static int send_urgent(struct process *process)
{
	struct bench_share_found *found = process->found;
	uint64_t begin_ns = cei_now_ns(), end_ns;
	ceov_ticket ticket;
	int r = bench_pair_launch(&process->pair, patience(process), &ticket);

	if (!r)
		r = bench_pair_await(&process->pair, patience(process));
	end_ns = cei_now_ns();
	if (!r)
		r = bench_pair_wait(&process->pair, ticket, patience(process));
	if (!r && counts(process, begin_ns) && found->n_blocks < BENCH_SHARE_TIMES_MAX)
		process->times_ns[found->n_blocks++] = end_ns - begin_ns;
	return r;
}

/* Launches at each tick of a clock, but leaves out those ticks at which the launch before is still
 * in flight. */
static int send_urgently(struct process *process)
{
	uint64_t every_ns = process->share->every_us * 1000, next_ns = process->begin_ns;
	uint64_t now_ns;
	int r = 0;

	while (!r && next_ns < process->end_ns) {
		sleep_until(next_ns);
		r = send_urgent(process);
		now_ns = cei_now_ns();
		for (next_ns += every_ns; next_ns < now_ns; next_ns += every_ns)
			process->found->n_missed += counts(process, next_ns);
	}
	return r;
}

/* --- phases ---------------------------------------------------------------------- */

/* Sends in a phase that begins for all processes at the same time, and looks at the last block. */
static int work(struct process *process, uint32_t phase)
{
	uint64_t length_ns = (uint64_t)(process->share->seconds * 1e9);
	uint64_t seed = process->share->options.seed +
		(process->number + UINT64_C(1)) * UINT64_C(0x9e3779b97f4a7c15) +
		phase * UINT64_C(0xbf58476d1ce4e5b9);
	int r = bench_pair_fill(&process->pair, seed);

	if (!r)
		r = meet(process, phase, &process->begin_ns);
	if (r)
		return r;
	process->from_ns = process->begin_ns + length_ns / BENCH_SHARE_LEAD;
	process->end_ns = process->from_ns + length_ns;
	sleep_until(process->begin_ns);
	r = is_urgent(process) ? send_urgently(process) : send_blocks(process);
	return r ? r : bench_pair_verify(&process->pair, seed, &process->found->n_wrong);
}

static int run_phases(struct process *process)
{
	struct bench_share_run *run = process->share->run;
	uint32_t phase, n = bench_share_n_processes(process->share);
	enum bench_share_when when;
	uint64_t ignored_ns;
	int r = 0;

	for (phase = 0; !r && phase <= n; phase++) {
		when = phase == n ? BENCH_SHARE_TOGETHER : BENCH_SHARE_ALONE;
		process->found = &run->found[process->number][when];
		process->times_ns = run->times_ns[when];
		if (phase == n || phase == process->number)
			r = work(process, phase);
		else
			r = meet(process, phase, &ignored_ns);
	}
	return r;
}

int bench_share_process(void *arg, uint32_t number)
{
	struct process process = { .share = arg, .number = number };
	struct bench_pair_config config = {
		.places = { process.share->from, process.share->to },
		.n_bytes = process.share->n_bytes,
		.chunk_bytes = process.share->options.chunk_bytes,
		.urgency = CEOV_URGENCY_NORMAL,
		.daemon = process.share->has_daemon ? process.share->server.path : NULL,
	};
	int r;

	if (is_urgent(&process)) {
		config.n_bytes = process.share->urgent_bytes;
		config.urgency = CEOV_URGENCY_URGENT;
	}
	r = bench_pair_open(&process.pair, &config);
	if (r)
		return fail(&process, r, "beginning");
	if (process.share->explains && !number)
		(void)ceov_plan_explain(process.pair.plan, STDOUT_FILENO);
	r = run_phases(&process);
	if (r)
		return fail(&process, r, "sending");
	bench_pair_close(&process.pair);
	return EXIT_SUCCESS;
}
