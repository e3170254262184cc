/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Losses that are noticed at odd times, over UCX: while a process of another node is still opening,
 * and while the one that speaks for its node hears nothing. Two processes stand for each node. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ceoverlap/ceoverlap.h>

#include "backend/place.h"
#include "base/clock.h"
#include "ce_engine/open.h"
#include "system/bootstrap_fixture.h"
#include "testing.h"

extern const struct cei_place_ops cei_backend_host;
extern const struct cei_place_ops cei_backend_net;

enum { MET, OPEN, STRUCK, STRUCK_AGAIN, DONE };         /* steps */

static const char *const lost_texts[] = { [2] = "rank 2 was lost", [5] = "rank 5 was lost" };
static int is_told;             /* this process has said that rank 2 is lost */

/* Says at once that the first loss was noticed, even while this process is opening, and that rank 2
 * has met rank 3. */
static void take_line(void *log, const char *line)
{
	testing_log_line(log, line);
	if (strstr(line, "rank 2]") && strstr(line, "processes of this node have met"))
		step_done(MET);
	if (is_told || !strstr(line, lost_texts[2]))
		return;
	is_told = 1;
	step_done(STRUCK);
}

/* NULL: it fails. */
static ceov_context *open_rank(uint32_t rank, uint32_t n_ranks, struct testing_log *log,
			       const struct cei_place_ops *const *movers)
{
	struct ceov_network network = CEOV_NETWORK_INIT;
	struct ceov_member member = { rank, testing_host };
	struct ceov_config config = CEOV_CONFIG_INIT;
	ceov_context *context = NULL;
	char node[16], group[sizeof(directory) + 16];

	snprintf(node, sizeof(node), "node %u", rank / 2);
	snprintf(group, sizeof(group), "%s/group%u", directory, rank / 2);
	network.bootstrap = CEOV_BOOTSTRAP_STORE;
	network.where = store;
	network.process = rank;
	network.n_processes = n_ranks;
	network.job = "test_nodes_losses";
	network.node = node;
	network.nics = "lo";
	network.peer_timeout_ns = 2 * TESTING_PATIENCE; /* nothing is noticed by silence */
	setenv("CEOVERLAP_TRANSPORTS", "tcp", 1);
	testing_log_init(log);
	config.members = &member;
	config.n_members = 1;
	config.n_ranks = n_ranks;
	config.group = group;
	config.deadline_ns = 2 * TESTING_PATIENCE;
	config.network = &network;
	config.log = take_line;
	config.log_arg = log;
	(void)cei_context_open(&config, movers, NULL, &context);
	return context;
}

/* Waits until the log says that the rank is lost. */
static void await_loss(struct testing_log *log, uint32_t rank)
{
	uint64_t end_ns = cei_deadline(TESTING_PATIENCE);
	int is_said = 0;
	uint32_t i;

	while (!is_said && cei_now_ns() < end_ns) {
		pause_ms(5);
		pthread_mutex_lock(&log->lock);
		for (i = 0; i < log->n_lines; i++)
			is_said |= strstr(log->lines[i], lost_texts[rank]) != NULL;
		pthread_mutex_unlock(&log->lock);
	}
	need(is_said);
}

/* --- while a process is opening -------------------------------------------------------------- */

/* The nodes have met, and the processes of this one have not. */
static int open_late(struct cei_backend *backend)
{
	need(step_reached(STRUCK, 2));
	return cei_backend_host.open(backend);
}

static void open_while_rank_2_ends(uint32_t rank)
{
	const struct cei_place_ops *const *movers = cei_backends;
	const struct cei_place_ops *late[] = { NULL, &cei_backend_net, NULL };
	struct cei_place_ops host = cei_backend_host;
	struct testing_log log;
	ceov_context *context;

	host.open = open_late;
	late[0] = &host;
	if (rank == 1)
		movers = late;
	setenv("CEOVERLAP_LOG", "debug", 1);
	context = open_rank(rank, 4, &log, movers);
	if (rank == 3)
		await_loss(&log, 2);
	need(!context || ceov_barrier(context, TESTING_PATIENCE) == CEOV_ERR_PEER_LOST);
	step_done(DONE);
	need(step_reached(DONE, 3));
	ceov_close(context);
}

/* Rank 3 tells rank 0 of it, which waits for rank 1 and tells that when they meet. All of them wait
 * for each other before they are open. Who opens in spite of that passes no barrier. */
START_TEST(test_a_loss_before_processes_of_a_node_have_met_hangs_nobody)
{
	pid_t pids[4];
	uint32_t rank;

	for (rank = 0; rank < 4; rank++)
		pids[rank] = start(open_while_rank_2_ends, rank);
	ck_assert(step_reached(MET, 1));
	(void)kill_party(pids[2]);
	assert_all_end_well();
}
END_TEST

/* --- while who speaks for a node is stopped --------------------------------------------------- */

static void lose_two(uint32_t rank)
{
	struct testing_log log;
	ceov_context *context = open_rank(rank, 6, &log, cei_backends);

	need(context && !ceov_barrier(context, TESTING_PATIENCE));
	step_done(OPEN);
	if (rank == 2 || rank == 5)
		pause();
	if (rank == 3)
		need(step_reached(STRUCK_AGAIN, 1));
	await_loss(&log, 5);
	step_done(DONE);
	await_loss(&log, 2);
	need(step_reached(DONE, 4));
	ceov_close(context);
}

/* Rank 2, which speaks for its node, is told of the loss of rank 5 and ends before it can pass that
 * on: who speaks for the node after it is told again. */
START_TEST(test_a_loss_is_told_again_when_who_was_told_ends)
{
	pid_t pids[6];
	uint32_t rank;
	int status;

	for (rank = 0; rank < 6; rank++)
		pids[rank] = start(lose_two, rank);
	ck_assert(step_reached(OPEN, 6));
	ck_assert_int_eq(kill(pids[2], SIGSTOP), 0);
	ck_assert_int_eq(waitpid(pids[2], &status, WUNTRACED), pids[2]);
	(void)kill_party(pids[5]);
	ck_assert(step_reached(DONE, 3));       /* ranks 0, 1 and 4 */
	(void)kill_party(pids[2]);
	step_done(STRUCK_AGAIN);
	assert_all_end_well();
}
END_TEST

static void add_tests(TCase *tests)
{
	tcase_add_test(tests, test_a_loss_before_processes_of_a_node_have_met_hangs_nobody);
	tcase_add_test(tests, test_a_loss_is_told_again_when_who_was_told_ends);
}

int main(void)
{
	if (!testing_has_ucx()) {
		printf("skipped: there is no UCX\n");
		return 77;
	}
	return run_suite("losses at odd times between nodes", add_tests);
}
