/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What a daemon has open and pays for: descriptors of plans that do not come, memory files without
 * memory, and who may ask it. */

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/sockios.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/server/listener.h"
#include "ipc/service_wire.h"
#include "ipc/wire.h"
#include "system/daemon_rig.h"

#define NORMAL   CEOV_URGENCY_NORMAL
#define FILES    256u                   /* that the daemon may have open */
#define FDS      64u                    /* of a plan that does not come */
#define STRANGER 65534u                 /* another user */

static struct daemon_rig rig;
static int is_lazy;

/* Takes the place of the system's, and allocates nothing where that is asked for. */
int fallocate(int fd, int mode, off_t offset, off_t n_bytes)
{
	return is_lazy ? 0 : (int)syscall(SYS_fallocate, fd, mode, offset, n_bytes);
}

/* --- descriptors ---------------------------------------------------------------- */

/* Announces a plan with so many descriptors, and sends n_sent of them. */
static void send_half(int connection, uint32_t n_fds, uint32_t n_sent)
{
	struct cei_service_message message = { .type = CEI_SERVICE_PLAN, .number = 77 };
	uint8_t bytes[128];
	struct cei_datagram datagram = { .bytes = bytes };
	int fds[CEI_SERVICE_PART_FDS];
	uint32_t i;

	for (i = 0; i < n_sent; i++)
		fds[i] = STDIN_FILENO;
	message.plan = (struct cei_service_plan){ n_fds * CEI_WIRE_REGION_BYTES + 600, n_fds,
						  n_fds };
	datagram.n_bytes = cei_encode(&cei_service_protocol, &message, bytes);
	ck_assert_int_eq(cei_datagram_send(connection, &datagram), 0);
	message = (struct cei_service_message){ .type = CEI_SERVICE_PART };
	datagram.n_bytes = cei_encode(&cei_service_protocol, &message, bytes);
	datagram.fds = fds;
	datagram.n_fds = n_sent;
	ck_assert_int_eq(cei_datagram_send(connection, &datagram), 0);
}

/* Waits until the daemon has read all that was sent. It has done with it before it reads what
 * another client sends. */
static void await_read(int connection)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	int n_bytes;

	do {
		ck_assert_int_eq(ioctl(connection, SIOCOUTQ, &n_bytes), 0);
	} while (n_bytes && cei_now_ns() < deadline && !usleep(1000));
	ck_assert_int_eq(n_bytes, 0);
}

static void start(const char *config)
{
	const struct rlimit limit = { FILES, FILES };

	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	daemon_rig_start(&rig, config);
}

static int try_commit(const struct daemon_rig_client *client, const char *text)
{
	int r = ceov_plan_commit(client->plan);
	struct ceov_failure failure;

	if (!r)
		return 0;
	failure = testing_failure(client->context);
	ck_assert_msg(strstr(failure.text, text) != NULL, "'%s' is not in '%s'", text,
		      failure.text);
	return r;
}

/* Two clients of one user. The limit lets in what one of them holds back, and the sockets and bells
 * of both, but not the four descriptors of the other one's plan. That is refused, and no more, and
 * it is not when the half-sent plan's time is over. */
START_TEST(test_descriptors_held_back_disconnect_nobody)
{
	uint64_t begin_ns, deadline = cei_deadline(TESTING_PATIENCE);
	struct daemon_rig_client evil, honest;
	int connection, r;

	start("[limits]\ndescriptors_per_user = 76\n");
	daemon_rig_open_bare(&rig, &evil);
	connection = daemon_rig_connection();
	daemon_rig_open_bare(&rig, &honest);
	daemon_rig_build(&honest, NORMAL);
	begin_ns = cei_now_ns();
	send_half(connection, FDS, FDS);
	await_read(connection);
	ck_assert_int_eq(try_commit(&honest, "limit 'descriptors_per_user'"),
			 CEOV_ERR_NO_MEMORY);
	do {
		usleep(100000);
		r = try_commit(&honest, "limit 'descriptors_per_user'");
	} while (r == CEOV_ERR_NO_MEMORY && cei_now_ns() < deadline);
	ck_assert_int_eq(r, 0);
	ck_assert_uint_ge(cei_now_ns() - begin_ns, 4 * TESTING_SECOND);
	daemon_rig_logs(&rig, "the rest of a plan did not come in time");
	daemon_rig_pass(&honest);
	ceov_close(honest.context);
	ceov_close(evil.context);
	daemon_rig_end(&rig);
}
END_TEST

/* By itself one user gets half of what there is, so that others are let in. */
START_TEST(test_one_user_gets_half_of_all_descriptors)
{
	struct daemon_rig_client evil, honest;

	start(NULL);
	daemon_rig_open_bare(&rig, &evil);
	send_half(daemon_rig_connection(), FILES / 2, FDS);
	daemon_rig_open(&rig, &honest, NORMAL);
	daemon_rig_pass(&honest);
	/* it was refused, and lives */
	daemon_rig_build(&evil, NORMAL);
	ck_assert_int_eq(ceov_plan_commit(evil.plan), 0);
	daemon_rig_pass(&evil);
	ceov_close(honest.context);
	ceov_close(evil.context);
	daemon_rig_end(&rig);
}
END_TEST

/* --- memory ---------------------------------------------------------------------- */

START_TEST(test_memory_files_without_memory_are_refused)
{
	struct daemon_rig_client lazy, honest;

	daemon_rig_start(&rig, NULL);
	is_lazy = 1;
	daemon_rig_open_bare(&rig, &lazy);
	is_lazy = 0;
	daemon_rig_build(&lazy, NORMAL);
	ck_assert_int_eq(try_commit(&lazy, "no memory for all of its bytes"), CEOV_ERR_INVALID);
	daemon_rig_open(&rig, &honest, NORMAL);
	daemon_rig_pass(&honest);
	ceov_close(honest.context);
	ceov_close(lazy.context);
	daemon_rig_end(&rig);
}
END_TEST

/* --- who asks --------------------------------------------------------------------- */

/* The answer that another user gets at the control socket, whose file and folder let everybody
 * connect. */
static void ask_as_stranger(const char *path, char text[256])
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), r;
	char folder[300], file[300];
	ssize_t n;

	snprintf(folder, sizeof(folder), "%s", path);
	snprintf(file, sizeof(file), "%s", path);
	strncpy(address.sun_path, basename(file), sizeof(address.sun_path) - 1);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(chmod(path, 0666), 0);
	ck_assert_int_eq(chdir(dirname(folder)), 0);
	ck_assert_int_eq(chmod(".", 0711), 0);
	ck_assert_int_eq(seteuid(STRANGER), 0);
	r = connect(fd, (const struct sockaddr *)&address, sizeof(address));
	ck_assert_int_eq(seteuid(0), 0);
	ck_assert_int_eq(chmod(".", 0700), 0);
	ck_assert_int_eq(r, 0);
	(void)send(fd, "show\n", 5, MSG_NOSIGNAL);
	n = recv(fd, text, 255, 0);
	text[n > 0 ? n : 0] = 0;
	close(fd);
}

START_TEST(test_another_user_may_not_ask)
{
	char text[256], folder[200];

	if (geteuid()) {
		printf("not tested: only root can act as another user\n");
		return;
	}
	ck_assert_ptr_nonnull(getcwd(folder, sizeof(folder)));
	daemon_rig_start(&rig, NULL);
	ask_as_stranger(rig.daemon.control, text);
	ck_assert_int_eq(chdir(folder), 0);
	ck_assert_msg(strstr(text, "only root and the daemon's user may ask") != NULL, "%s", text);
	daemon_rig_says(&rig, "status", "serves");
	daemon_rig_end(&rig);
}
END_TEST

/* Whoever answers at the control socket may be of another version, or no daemon at all. */
START_TEST(test_strange_answers_are_named)
{
	static const char *const answers[][2] = {
		{ "", "closed the connection without an answer" },
		{ "\n", "not JSON" },
		{ "{}\n", "neither that it went well nor why it did not" },
		{ "[]\n", "neither that it went well nor why it did not" },
		{ "{\"ok\":true}\n", "without what was asked for" },
	};
	const struct cei_listener_path ask = { rig.daemon.control, SOCK_STREAM, 0600,
					       CEI_LISTENER_NO_GROUP };
	struct cei_report report;
	char line[100];
	int fd, connection;
	pid_t child;
	uint32_t i;

	cei_report_init(&report, NULL, NULL);
	testing_path("d.sock", rig.daemon.path, sizeof(rig.daemon.path));
	snprintf(rig.daemon.control, sizeof(rig.daemon.control), "%s.control", rig.daemon.path);
	ck_assert_int_eq(cei_listener_bind(&report, &ask, &fd), 0);
	ck_assert_int_eq(fcntl(fd, F_SETFL, 0), 0);
	child = fork();
	for (i = 0; !child; i = (i + 1) % 5) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		connection = accept(fd, NULL, NULL);
		if (recv(connection, line, sizeof(line), 0) > 0)
			(void)send(connection, answers[i][0], strlen(answers[i][0]), 0);
		close(connection);
	}
	ck_assert_int_gt(child, 0);
	for (i = 0; i < 10; i++)
		daemon_rig_fails(&rig, i < 5 ? "status" : "metrics", 1, answers[i % 5][1]);
	kill(child, SIGKILL);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	close(fd);
	ck_assert_int_eq(unlink(rig.daemon.control), 0);
	cei_report_fini(&report);
}
END_TEST

START_TEST(test_a_daemon_says_where_it_serves)
{
	daemon_rig_start(&rig, NULL);
	daemon_rig_logs(&rig, "ceoverlapd: serves at ");
	daemon_rig_logs(&rig, "1 for host memory and 0 for GPUs");
	daemon_rig_end(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("daemon files");
	TCase *tests = tcase_create("files");

	tcase_set_timeout(tests, 120);
	tcase_add_test(tests, test_descriptors_held_back_disconnect_nobody);
	tcase_add_test(tests, test_one_user_gets_half_of_all_descriptors);
	tcase_add_test(tests, test_memory_files_without_memory_are_refused);
	tcase_add_test(tests, test_another_user_may_not_ask);
	tcase_add_test(tests, test_strange_answers_are_named);
	tcase_add_test(tests, test_a_daemon_says_where_it_serves);
	suite_add_tcase(suite, tests);
	return testing_run(suite);
}
