/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests what an operator of a real ceoverlapd sees: metrics wherever they are shown, and the live
 * view on a terminal and in a pipe. */

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "system/daemon_rig.h"

#define SERIES_MAX 4096u
#define REDRAWS    400u                 /* far more than a terminal keeps that nobody reads */

static struct daemon_rig rig;
static char said[1 << 20];

/* --- metrics ------------------------------------------------------------------ */

/* What Prometheus's text format 0.0.4 wants, and what series must not do. */
struct format {
	char     name[128];             /* of the metric that HELP and TYPE began */
	char     type[16];
	char     seen[SERIES_MAX][200]; /* series so far */
	uint32_t n_seen;
	double   last;                  /* count of the last bucket */
};

static int is_name(const char *text, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (!strchr("abcdefghijklmnopqrstuvwxyz_0123456789", text[i]))
			return 0;
	return n > 0 && (*text < '0' || *text > '9');
}

/* The name of a series belongs to the metric that was begun. */
static int belongs(const struct format *format, const char *line, size_t n)
{
	static const char *const ends[] = { "_bucket", "_sum", "_count" };
	size_t length = strlen(format->name), i;

	if (strncmp(line, format->name, length))
		return 0;
	if (strcmp(format->type, "histogram"))
		return n == length;
	for (i = 0; i < 3; i++)
		if (n == length + strlen(ends[i]) && !strncmp(line + length, ends[i], n - length))
			return 1;
	return 0;
}

/* Returns what is behind the labels; NULL: they are none. */
static const char *skip_labels(const char *at)
{
	const char *end;

	if (*at != '{')
		return at;
	do {
		at++;
		end = strchr(at, '=');
		if (!end || !is_name(at, (size_t)(end - at)) || end[1] != '"')
			return NULL;
		at = end + 2;
		at += strcspn(at, "\"\\\n");
		if (*at++ != '"')
			return NULL;
	} while (*at == ',');
	return *at == '}' ? at + 1 : NULL;
}

static void check_series(struct format *format, const char *line)
{
	size_t n = strcspn(line, "{ ");
	const char *at = skip_labels(line + n);
	double value;
	char *end;
	uint32_t i;

	ck_assert_msg(is_name(line, n) && belongs(format, line, n), "'%s' is not of %s", line,
		      format->name);
	ck_assert_msg(at && *at == ' ', "labels of '%s'", line);
	value = strtod(at + 1, &end);
	ck_assert_msg(end != at + 1 && !*end && value >= 0, "value of '%s'", line);
	if (!strcmp(format->type, "counter"))
		ck_assert_msg(n > 6 && !strncmp(line + n - 6, "_total", 6), "name of '%s'", line);
	for (i = 0; i < format->n_seen; i++)
		ck_assert_msg(strncmp(format->seen[i], line, (size_t)(at - line)) ||
			      format->seen[i][at - line], "'%s' comes twice", line);
	ck_assert_uint_lt(format->n_seen, SERIES_MAX);
	snprintf(format->seen[format->n_seen++], sizeof(format->seen[0]), "%.*s",
		 (int)(at - line), line);
	if (!strstr(line, "_bucket{"))
		return;
	ck_assert_msg(strstr(line, "le=\"0.000001\"") || value >= format->last,
		      "'%s' has less than the bucket before", line);
	format->last = value;
}

static void check_line(struct format *format, const char *line)
{
	char name[128], type[16];

	if (!strncmp(line, "# HELP ", 7)) {
		ck_assert_int_eq(sscanf(line, "# HELP %127s", format->name), 1);
		format->type[0] = 0;
		ck_assert(!strncmp(format->name, "ceoverlap_", 10));
		ck_assert(strlen(line) > strlen(format->name) + 12);
	} else if (*line == '#') {
		ck_assert_int_eq(sscanf(line, "# TYPE %127s %15s", name, type), 2);
		ck_assert_str_eq(name, format->name);
		ck_assert(!strcmp(type, "counter") || !strcmp(type, "gauge") ||
			  !strcmp(type, "histogram"));
		strcpy(format->type, type);
	} else {
		ck_assert_msg(*format->type, "'%s' has no type", line);
		check_series(format, line);
	}
}

/* Changes the text. */
static void check_text(char *text)
{
	static struct format format;
	char *line, *rest = text;

	memset(&format, 0, sizeof(format));
	ck_assert_uint_gt(strlen(text), 0);
	ck_assert_int_eq(text[strlen(text) - 1], '\n');
	text[strlen(text) - 1] = 0;
	while ((line = strsep(&rest, "\n")))
		check_line(&format, line);
}

/* promtool comes with Debian's prometheus. */
static void check_by_promtool(const char *text)
{
	char path[200], command[300];
	FILE *file;

	if (system("command -v promtool > /dev/null")) {
		printf("there is no promtool (Debian: prometheus): its check is skipped\n");
		return;
	}
	testing_path("metrics", path, sizeof(path));
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(text, file), 0);
	ck_assert_int_eq(fclose(file), 0);
	snprintf(command, sizeof(command), "promtool check metrics < %s >&2", path);
	ck_assert_int_eq(system(command), 0);
	unlink(path);
}

START_TEST(test_metrics_are_prometheus_text)
{
	struct daemon_rig_client client, other;

	daemon_rig_start(&rig, "[classes]\nslo_urgent_us = 60000000\n");
	daemon_rig_open(&rig, &client, CEOV_URGENCY_URGENT);
	daemon_rig_open(&rig, &other, CEOV_URGENCY_BACKGROUND);
	daemon_rig_pass(&client);
	daemon_rig_pass(&client);
	daemon_rig_pass(&other);
	ck_assert_int_eq(daemon_rig_ctl(&rig, "metrics", said, sizeof(said)), 0);
	check_by_promtool(said);
	check_text(said);
	daemon_rig_says(&rig, "metrics", "ceoverlap_clients 2\n");
	daemon_rig_says(&rig, "metrics",
			"ceoverlap_link_bytes_total{link=\"host\",class=\"urgent\"} 200000\n");
	daemon_rig_says(&rig, "metrics",
			"ceoverlap_link_chunks_total{link=\"host\",class=\"background\"} 4\n");
	daemon_rig_says(&rig, "metrics", "ceoverlap_copy_seconds_bucket{link=\"host\","
			"class=\"urgent\",le=\"+Inf\"} 8\n");
	daemon_rig_says(&rig, "metrics", "ceoverlap_queue_wait_seconds_count{link=\"host\","
			"class=\"urgent\"} 8\n");
	daemon_rig_says(&rig, "metrics",
			"ceoverlap_slo_chunks_total{class=\"urgent\",met=\"yes\"} 8\n");
	daemon_rig_says(&rig, "metrics", "ceoverlap_slo_attainment_ratio{class=\"urgent\"} 1.0");
	daemon_rig_says(&rig, "metrics", "ceoverlap_launches_total 3\n");
	daemon_rig_says(&rig, "metrics", "ceoverlap_fairness_jain_index ");
	ceov_close(client.context);
	ceov_close(other.context);
	daemon_rig_end(&rig);
}
END_TEST

/* Metrics that the sample dashboard shows are there. */
START_TEST(test_the_dashboard_knows_the_metrics)
{
	const char *srcdir = getenv("srcdir"), *at;
	static char dashboard[1 << 18];
	char path[300], type[160];
	uint32_t n_names = 0;
	size_t n;

	daemon_rig_start(&rig, NULL);
	ck_assert_int_eq(daemon_rig_ctl(&rig, "metrics", said, sizeof(said)), 0);
	daemon_rig_end(&rig);
	snprintf(path, sizeof(path), "%s/examples/ceoverlapd-grafana.json",
		 srcdir ? srcdir : "..");
	ck_assert_int_eq(daemon_rig_read(path, dashboard, sizeof(dashboard)), 1);
	for (at = dashboard; (at = strstr(at, "ceoverlap_")); at += n, n_names++) {
		n = strspn(at, "abcdefghijklmnopqrstuvwxyz_");
		snprintf(type, sizeof(type), "# TYPE %.*s ", (int)(n > 7 &&
			 !strncmp(at + n - 7, "_bucket", 7) ? n - 7 : n), at);
		ck_assert_msg(strstr(said, type) != NULL, "there is no '%s'", type);
	}
	ck_assert_uint_gt(n_names, 10);
}
END_TEST

/* A port that nobody has at the moment. */
static uint32_t free_port(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t n = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &n), 0);
	close(fd);
	return ntohs(address.sin_port);
}

static int connect_to(uint32_t port)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

/* The answer to what is sent in two pieces. */
static void get(uint32_t port, const char *request, const char *more)
{
	int fd = connect_to(port);
	size_t n = 0;
	ssize_t r;

	ck_assert_int_eq(send(fd, request, strlen(request), MSG_NOSIGNAL),
			 (ssize_t)strlen(request));
	usleep(10000);
	(void)send(fd, more, strlen(more), MSG_NOSIGNAL);
	while ((r = recv(fd, said + n, sizeof(said) - 1 - n, 0)) > 0)
		n += (size_t)r;
	said[n] = 0;
	close(fd);
}

START_TEST(test_metrics_by_http)
{
	uint32_t port = free_port(), i;
	char config[100], *body;
	int fds[16];

	snprintf(config, sizeof(config), "[metrics]\nhttp_port = %u\n", port);
	daemon_rig_start(&rig, config);
	get(port, "GET /metrics HT", "TP/1.1\r\nHost: x\r\n\r\n");
	ck_assert(!strncmp(said, "HTTP/1.1 200 OK\r\n", 17));
	ck_assert_ptr_nonnull(strstr(said, "text/plain; version=0.0.4"));
	body = strstr(said, "\r\n\r\n");
	ck_assert_ptr_nonnull(body);
	check_text(body + 4);
	get(port, "GET /other HTTP/1.1\r\n", "\r\n");
	ck_assert(!strncmp(said, "HTTP/1.1 404 ", 13));
	get(port, "POST /metrics HTTP/1.1\r\n", "\r\n");
	ck_assert(!strncmp(said, "HTTP/1.1 405 ", 13));
	/* too long: it is closed without an answer */
	memset(said, 'x', 5000);
	said[5000] = 0;
	get(port, strdupa(said), "");
	ck_assert_str_eq(said, "");
	/* who says nothing keeps nobody out */
	for (i = 0; i < 16; i++)
		fds[i] = connect_to(port);
	usleep(200000);
	get(port, "GET /metrics HTTP/1.0\r\n", "\r\n");
	ck_assert(!strncmp(said, "HTTP/1.1 200 OK\r\n", 17));
	daemon_rig_says(&rig, "status", "serves");
	for (i = 0; i < 16; i++)
		close(fds[i]);
	daemon_rig_end(&rig);
}
END_TEST

/* Launches between requests change what they show at most once a second. */
START_TEST(test_who_asks_without_a_pause_gets_what_was_rendered_before)
{
	static const char name[] = "\nceoverlap_launches_total ";
	uint64_t last = UINT64_MAX, n, n_changes = 0, begin_ns = cei_now_ns();
	struct daemon_rig_client client;
	uint32_t port = free_port(), i;
	char config[100], *at;

	snprintf(config, sizeof(config), "[metrics]\nhttp_port = %u\n", port);
	daemon_rig_start(&rig, config);
	daemon_rig_open(&rig, &client, CEOV_URGENCY_NORMAL);
	for (i = 0; i < 30 || n_changes < 2; i++) {     /* the first one counts, too */
		daemon_rig_pass(&client);
		get(port, "GET /metrics HTTP/1.1\r\n", "\r\n");
		at = strstr(said, name);
		ck_assert_ptr_nonnull(at);
		n = strtoull(at + sizeof(name) - 1, NULL, 10);
		n_changes += n != last;
		last = n;
	}
	ck_assert_uint_le(n_changes, 2 + (cei_now_ns() - begin_ns) / TESTING_SECOND);
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

START_TEST(test_metrics_in_a_file)
{
	char path[200], other[220], config[300];
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	struct stat stats;
	mode_t mask;

	testing_path("m.prom", path, sizeof(path));
	/* to open a pipe would last until somebody reads it */
	snprintf(other, sizeof(other), "%s.new", path);
	ck_assert_int_eq(mkfifo(other, 0600), 0);
	snprintf(config, sizeof(config), "[metrics]\ntextfile = %s\ntextfile_seconds = 1\n", path);
	mask = umask(077);              /* as the unit has it */
	daemon_rig_start(&rig, config);
	umask(mask);
	while (!daemon_rig_read(path, said, sizeof(said)) && cei_now_ns() < deadline)
		usleep(1000);
	check_text(said);
	ck_assert_int_eq(stat(path, &stats), 0);
	ck_assert_uint_eq(stats.st_mode & 0777, 0644);
	ck_assert_int_eq(unlink(path), 0);
	while (!daemon_rig_read(path, said, sizeof(said)) && cei_now_ns() < deadline)
		usleep(1000);
	check_text(said);
	/* what nobody replaces any more is removed: when another file is named, and at the end */
	testing_path("n.prom", other, sizeof(other));
	snprintf(config, sizeof(config), "[metrics]\ntextfile = %s\n", other);
	daemon_rig_configure(&rig, config);
	daemon_rig_says(&rig, "reload", "read again");
	while (!daemon_rig_read(other, said, sizeof(said)) && cei_now_ns() < deadline)
		usleep(1000);
	check_text(said);
	ck_assert_int_ne(access(path, F_OK), 0);
	daemon_rig_end(&rig);
	ck_assert_int_ne(access(other, F_OK), 0);
}
END_TEST

/* --- the live view -------------------------------------------------------------- */

struct busy {                           /* a client that moves data meanwhile */
	struct daemon_rig_client *client;
	_Atomic int               must_end;
};

static void *pass_again_and_again(void *arg)
{
	struct busy *busy = arg;

	while (!atomic_load(&busy->must_end))
		daemon_rig_pass(busy->client);
	return NULL;
}

START_TEST(test_monitor_prints_lines_where_there_is_no_terminal)
{
	struct daemon_rig_client client;
	struct busy busy = { .must_end = 0 };
	pthread_t thread;
	char *line;

	daemon_rig_start(&rig, NULL);
	daemon_rig_open(&rig, &client, CEOV_URGENCY_URGENT);
	daemon_rig_pass(&client);
	daemon_rig_says(&rig, "-i 100 -n 2 monitor < /dev/null", "link host: ");
	daemon_rig_says(&rig, "-i 100 -n 2 monitor < /dev/null", "client 1 test_daemon_show");
	daemon_rig_says(&rig, "-i 100 -n 2 --json monitor", "\"clients\":[{");
	ck_assert_int_eq(daemon_rig_ctl(&rig, "-n 1 monitor", said, sizeof(said)), 0);
	ck_assert_ptr_null(strchr(said, '\033'));
	/* a single frame has rates, too */
	busy.client = &client;
	ck_assert_int_eq(pthread_create(&thread, NULL, pass_again_and_again, &busy), 0);
	ck_assert_int_eq(daemon_rig_ctl(&rig, "-i 500 -n 1 monitor", said, sizeof(said)), 0);
	atomic_store(&busy.must_end, 1);
	pthread_join(thread, NULL);
	line = strstr(said, "client 1 ");
	ck_assert_ptr_nonnull(line);
	line[strcspn(line, "\n")] = 0;
	ck_assert_msg(strstr(line, " 0 B/s") == NULL, "%s", line);
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

/* Reads what the program draws until it has drawn the text, or has ended. */
static int await_text(int fd, const char *text)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
	size_t n = strlen(said);
	ssize_t r = 1;

	while (!strstr(said, text) && r > 0 && n < sizeof(said) - 1 &&
	       poll(&poll_fd, 1, 20000) > 0) {
		r = read(fd, said + n, sizeof(said) - 1 - n);
		n += r > 0 ? (size_t)r : 0;
		said[n] = 0;
	}
	return strstr(said, text) != NULL;
}

/* Begins monitor on a terminal of that size. */
static pid_t begin_monitor(uint16_t n_columns, uint16_t n_rows, int *ret_fd)
{
	struct winsize size = { .ws_row = n_rows, .ws_col = n_columns };
	pid_t pid = forkpty(ret_fd, NULL, NULL, &size);

	ck_assert_int_ge(pid, 0);
	if (!pid) {
		setenv("TERM", "xterm-256color", 1);
		setenv("LC_ALL", "C.UTF-8", 1);
		unsetenv("NO_COLOR");
		execl("./ceoverlapctl", "ceoverlapctl", "-s", rig.daemon.path, "-i", "200",
		      "monitor", (char *)NULL);
		_exit(127);
	}
	said[0] = 0;
	return pid;
}

/* It has left the other screen, and shows the cursor. */
static void ends_well(pid_t pid, int fd)
{
	int status;

	ck_assert_int_eq(await_text(fd, "\033[?25h\033[?1049l"), 1);
	while (await_text(fd, "never drawn"))
		;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "status %d", status);
	close(fd);
}

START_TEST(test_monitor_draws_and_leaves_the_terminal_as_it_was)
{
	struct daemon_rig_client client;
	struct winsize size = { .ws_row = 10, .ws_col = 70 };
	pid_t pid;
	int fd;

	daemon_rig_start(&rig, NULL);
	daemon_rig_open(&rig, &client, CEOV_URGENCY_URGENT);
	daemon_rig_pass(&client);
	pid = begin_monitor(120, 30, &fd);
	ck_assert_int_eq(await_text(fd, "\033[?1049h\033[?25l"), 1);
	ck_assert_int_eq(await_text(fd, "test_daemon_show"), 1);
	ck_assert_ptr_nonnull(strstr(said, "  host "));
	daemon_rig_pass(&client);
	ck_assert_int_eq(await_text(fd, "\u2588"), 1);  /* a bar */
	ck_assert_int_eq(ioctl(fd, TIOCSWINSZ, &size), 0);
	ck_assert_int_eq(write(fd, "q", 1), 1);
	ends_well(pid, fd);
	pid = begin_monitor(40, 5, &fd);        /* hardly any room */
	ck_assert_int_eq(await_text(fd, "ceoverlapd"), 1);
	ck_assert_int_eq(write(fd, "\003", 1), 1);      /* Ctrl-C */
	ends_well(pid, fd);
	pid = begin_monitor(120, 30, &fd);
	ck_assert_int_eq(await_text(fd, "host"), 1);
	ck_assert_int_eq(kill(pid, SIGTERM), 0);
	ends_well(pid, fd);
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

/* Signals interrupt writes to a terminal that is full. A new size, for which the view is drawn
 * anew, is no reason to end, and an order to end is no error. */
START_TEST(test_monitor_on_a_terminal_that_nobody_reads)
{
	struct winsize size = { .ws_row = 30, .ws_col = 100 };
	uint32_t i;
	pid_t pid;
	int fd;

	daemon_rig_start(&rig, NULL);
	pid = begin_monitor(size.ws_col, size.ws_row, &fd);
	ck_assert_int_eq(await_text(fd, "LINK"), 1);
	for (i = 0; i < REDRAWS; i++) {
		size.ws_col ^= 1;
		ck_assert_int_eq(ioctl(fd, TIOCSWINSZ, &size), 0);
		usleep(3000);
	}
	if (_i)
		ck_assert_int_eq(kill(pid, SIGTERM), 0);
	else
		ck_assert_int_eq(write(fd, "q", 1), 1);
	ends_well(pid, fd);
	daemon_rig_end(&rig);
}
END_TEST

/* The message comes after the other screen was left. */
START_TEST(test_monitor_ends_with_the_daemon)
{
	int fd, status;
	pid_t pid;

	daemon_rig_start(&rig, NULL);
	pid = begin_monitor(100, 30, &fd);
	ck_assert_int_eq(await_text(fd, "LINK"), 1);
	daemon_rig_end(&rig);
	ck_assert_int_eq(await_text(fd, "\033[?1049l"), 1);
	ck_assert_int_eq(await_text(fd, "is ceoverlapd running"), 1);
	ck_assert(strstr(said, "\033[?1049l") < strstr(said, "is ceoverlapd running"));
	while (await_text(fd, "never drawn"))
		;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 3);
	close(fd);
}
END_TEST

static Suite *suite(void)
{
	Suite *all = suite_create("what a daemon shows");
	TCase *cases = tcase_create("what a daemon shows");

	tcase_set_timeout(cases, 120);
	tcase_add_test(cases, test_metrics_are_prometheus_text);
	tcase_add_test(cases, test_the_dashboard_knows_the_metrics);
	tcase_add_test(cases, test_metrics_by_http);
	tcase_add_test(cases, test_who_asks_without_a_pause_gets_what_was_rendered_before);
	tcase_add_test(cases, test_metrics_in_a_file);
	tcase_add_test(cases, test_monitor_prints_lines_where_there_is_no_terminal);
	tcase_add_test(cases, test_monitor_draws_and_leaves_the_terminal_as_it_was);
	tcase_add_loop_test(cases, test_monitor_on_a_terminal_that_nobody_reads, 0, 2);
	tcase_add_test(cases, test_monitor_ends_with_the_daemon);
	suite_add_tcase(all, cases);
	return all;
}

int main(void)
{
	return testing_run(suite());
}
