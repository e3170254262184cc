/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* How links between processes of a node end: deaths, refusals, farewells. */

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "carrier_fixture.h"

/* A child that has said n messages and stands still, while a child of its own keeps the socket
 * until the pipe is closed. */
static pid_t start_mate(int fd, uint32_t n, const int pipe_fds[2])
{
	pid_t pid = fork();
	uint8_t bytes[CEI_GROUP_MESSAGE_BYTES];
	struct cei_group_message beat = { .type = CEI_GROUP_BEAT };
	int status;
	char c;

	ck_assert_int_ge(pid, 0);
	if (pid) {
		ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
		ck_assert_int_ne(WIFSTOPPED(status), 0);
		return pid;
	}
	for (beat.number = 1; beat.number <= n; beat.number++)
		if (send(fd, bytes, cei_encode(&cei_group_protocol, &beat, bytes), 0) < 0)
			_exit(1);
	close(pipe_fds[1]);
	if (!fork())
		_exit(read(pipe_fds[0], &c, 1) != 0);
	raise(SIGSTOP);
	_exit(1);
}

START_TEST(test_what_the_dead_have_said_is_heard_first)
{
	int pipe_fds[2], fd = steal(1, 0);
	pid_t pid;

	ck_assert_int_eq(pipe(pipe_fds), 0);
	pid = start_mate(fd, 150, pipe_fds);
	close(fd);
	set_pidfd(0, 1, pid);
	attach(0);
	ck_assert_int_eq(turn(0), 1);
	ck_assert_uint_eq(sides[0].peers.n_heard, 64);  /* the rest is heard after the death */
	ck_assert_uint_eq(sides[0].peers.n_down, 0);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	turn_all(0);
	ck_assert_uint_eq(sides[0].peers.n_heard, 150);
	ck_assert_uint_eq(sides[0].peers.n_down, 1);
	ck_assert_uint_eq(sides[0].peers.from, 1);
	ck_assert_uint_eq(sides[0].peers.n_refusals, 0);
	ck_assert_int_eq(say(0, 1, CEI_GROUP_BEAT, 1), CEOV_ERR_PEER_LOST);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}
END_TEST

/* A socket ends before its process does, which is here as if it took its time. */
START_TEST(test_an_end_is_a_loss_though_the_process_lives)
{
	int fd = steal(1, 0);

	set_pidfd(0, 1, getpid());
	attach(0);
	close(fd);
	turn_all(0);
	ck_assert_uint_eq(sides[0].peers.n_down, 1);
	ck_assert_uint_eq(sides[0].peers.n_refusals, 0);
	give_up(0, 1);
	ck_assert_uint_eq(sides[0].peers.n_quiet, 1);
}
END_TEST

START_TEST(test_who_is_given_up_is_told_and_then_refused)
{
	attach_all();
	ck_assert_int_eq(say(0, 1, CEI_GROUP_BEAT, 1), 0);
	ck_assert_int_eq(say(1, 0, CEI_GROUP_BEAT, 1), 0);
	give_up(0, 1);
	ck_assert_uint_eq(sides[0].peers.n_quiet, 1);
	ck_assert_uint_eq(sides[0].peers.from, 1);
	turn_all(0);
	ck_assert_uint_eq(sides[0].peers.n_heard, 0);   /* nothing of it is accepted */
	ck_assert_uint_eq(sides[0].peers.n_down, 0);
	turn_all(1);
	ck_assert_uint_eq(sides[1].peers.n_heard, 2);
	ck_assert_uint_eq(sides[1].peers.last.type, CEI_GROUP_GONE);
	ck_assert_uint_eq(sides[1].peers.last.number, 0);
	ck_assert_uint_eq(sides[1].peers.last.gone.n, 1);
	ck_assert_uint_eq(sides[1].peers.last.gone.processes[0], 1);
	ck_assert_uint_eq(sides[1].peers.n_down, 1);
}
END_TEST

START_TEST(test_who_is_given_up_and_does_not_read_is_told_later)
{
	uint32_t n = 0;

	attach_all();
	while (!say(0, 1, CEI_GROUP_BEAT, 1))
		n++;
	give_up(0, 1);
	ck_assert_uint_eq(sides[0].peers.n_quiet, 1);
	turn_all(0);                                    /* and its thread sleeps meanwhile */
	turn_all(1);
	ck_assert_uint_eq(sides[1].peers.n_heard, n);
	turn_all(0);
	turn_all(1);
	ck_assert_uint_eq(sides[1].peers.n_heard, n + 1);
	ck_assert_uint_eq(sides[1].peers.last.type, CEI_GROUP_GONE);
	ck_assert_uint_eq(sides[1].peers.n_down, 1);
	ck_assert_uint_eq(sides[0].peers.n_ready + sides[0].peers.n_down, 0);
}
END_TEST

START_TEST(test_who_is_given_up_and_dies_without_reading_leaves_nothing)
{
	int pipe_fds[2], fd = steal(1, 0);
	uint32_t n;
	pid_t pid;

	ck_assert_int_eq(pipe(pipe_fds), 0);
	pid = start_mate(fd, 0, pipe_fds);
	close(fd);
	set_pidfd(0, 1, pid);
	attach(0);
	n = n_open_fds();
	while (!say(0, 1, CEI_GROUP_BEAT, 1))
		;
	give_up(0, 1);
	ck_assert_uint_eq(n_open_fds(), n);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	turn_all(0);
	ck_assert_uint_eq(n_open_fds(), n - 2);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}
END_TEST

START_TEST(test_who_is_given_up_before_there_is_a_link_is_refused_then)
{
	give_up(0, 1);
	ck_assert_uint_eq(sides[0].peers.n_quiet, 0);
	attach(0);
	ck_assert_uint_eq(sides[0].peers.n_quiet, 1);
	ck_assert_uint_eq(sides[0].peers.n_ready, 1);   /* process 2 */
	attach(1);
	turn_all(1);
	ck_assert_uint_eq(sides[1].peers.n_heard, 1);
	ck_assert_uint_eq(sides[1].peers.last.type, CEI_GROUP_GONE);
	ck_assert_uint_eq(sides[1].peers.n_down, 1);
}
END_TEST

START_TEST(test_what_was_sent_before_an_end_is_heard_though_sending_fails)
{
	int fd = steal(1, 0);
	uint8_t bytes[CEI_GROUP_MESSAGE_BYTES];
	const struct cei_group_message beat = { .type = CEI_GROUP_BEAT, .number = 4 };
	ssize_t n_bytes = (ssize_t)cei_encode(&cei_group_protocol, &beat, bytes);

	attach(0);
	ck_assert_int_eq(send(fd, bytes, (size_t)n_bytes, 0), n_bytes);
	close(fd);
	ck_assert_int_eq(say(0, 1, CEI_GROUP_BEAT, 1), CEOV_ERR_PEER_LOST);
	ck_assert_int_eq(say(0, 1, CEI_GROUP_BEAT, 1), CEOV_ERR_PEER_LOST);
	turn_all(0);
	ck_assert_uint_eq(sides[0].peers.n_heard, 1);
	ck_assert_uint_eq(sides[0].peers.n_down, 1);
}
END_TEST

START_TEST(test_an_end_behind_a_farewell_is_no_loss)
{
	uint32_t n;

	attach_all();
	n = n_open_fds();
	ck_assert_int_eq(say(1, 0, CEI_GROUP_BEAT, 1), 0);
	ck_assert_int_eq(say(1, 0, CEI_GROUP_BYE, 2), 0);
	turn_all(0);
	ck_assert_uint_eq(sides[0].peers.n_heard, 2);
	ck_assert_uint_eq(sides[0].peers.last.type, CEI_GROUP_BYE);
	ck_assert_uint_eq(sides[0].peers.n_down, 0);
	ck_assert_uint_eq(n_open_fds(), n - 1);
	cei_unix_close(sides[1].carrier);
	sides[1].carrier = NULL;
	turn_all(0);
	ck_assert_uint_eq(sides[0].peers.n_down, 0);
	turn_all(2);
	ck_assert_uint_eq(sides[2].peers.n_down, 1);    /* it heard no farewell */
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_test(tcase, test_what_the_dead_have_said_is_heard_first);
	tcase_add_test(tcase, test_an_end_is_a_loss_though_the_process_lives);
	tcase_add_test(tcase, test_who_is_given_up_is_told_and_then_refused);
	tcase_add_test(tcase, test_who_is_given_up_and_does_not_read_is_told_later);
	tcase_add_test(tcase, test_who_is_given_up_and_dies_without_reading_leaves_nothing);
	tcase_add_test(tcase, test_who_is_given_up_before_there_is_a_link_is_refused_then);
	tcase_add_test(tcase, test_what_was_sent_before_an_end_is_heard_though_sending_fails);
	tcase_add_test(tcase, test_an_end_behind_a_farewell_is_no_loss);
}

int main(void)
{
	return run_suite("carrier_unix_ends", add_tests);
}
