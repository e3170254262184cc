/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * A daemon whose clients pass data under load, and what strikes it, again and again:
 *
 *   client   a client is killed: the other process of its group is told, all others go on, and the
 *            daemon frees what it had
 *   daemon   the daemon is killed: all clients are told, and go on with the next one
 *   stop     a client is stopped for a while: nobody is told anything, others go on meanwhile
 *   both     the daemon is killed, and a client right after it
 *   other    a process is killed that has as much memory as a client and knows no daemon: what
 *            that costs all clients, the machine takes, and not the daemon
 *
 * No byte may be wrong, and no descriptor, mapping, thread or memory be left. Prints when the
 * others were told and when the daemon had freed everything; of 100 times and more the median has
 * to be below the aim. Prints, too, how fast the clients of other groups went on from when a client
 * was killed until all of its group was freed, as a part of their rate just before. The kernel
 * frees memory by the same processors; where each client has two of them, and of 100 kills and
 * more, that has to be 0.9.
 *
 *   CEOVERLAP_TEST_DAEMON_CYCLES   cycles, 20 by default
 *   CEOVERLAP_TEST_DAEMON_CLIENTS  processes, an even number, 4 by default
 *   CEOVERLAP_TEST_DAEMON_MIB      memory of each client, 8 by default
 *   CEOVERLAP_TEST_DAEMON_GPU      the GPU whose memory that is; host memory by default. What of it
 *                                  is used is asked of nvidia-smi
 *   CEOVERLAP_TEST_DAEMON_KIND     one of the five above alone; else the first four take turns at
 *                                  random
 *   CEOVERLAP_TEST_SEED            repeats a run
 */

#include <check.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "system/daemon_fixture.h"
#include "system/torture_client.h"
#include "testing.h"

#define CLIENTS_MAX 64u
#define N_KINDS     5u
#define N_DRAWN     4u          /* the first so many are drawn */
#define TOLD_AIM    (20 * TESTING_MS)
#define FREED_AIM   TESTING_SECOND
#define PATIENCE    (60 * TESTING_SECOND)
#define TIMES_MAX   100000u
#define TIMES_JUDGED 100u       /* so many are enough for a judgement */
#define RATE_AIM    0.9         /* of the others' rate while clients are killed */
#define GPU_FDS_MORE 6u
#define GPU_MIB_MORE 64u                /* contexts differ in size */
#define GROWTH_KIB  16384u              /* of the daemon's own memory: more is a leak */

enum kind { CLIENT, DAEMON, STOP, BOTH, OTHER };

static const char *const kind_names[N_KINDS] = { "client", "daemon", "stop", "both", "other" };

struct times {
	const char *what;
	uint64_t    aim_ns;
	uint32_t    n;
	uint64_t    ns[TIMES_MAX];
};

struct rate {                           /* of clients but those of the victim's group, over all
					 * cycles */
	uint64_t n_passes;
	uint64_t ns;
};

struct holding {                        /* what the daemon's process has */
	uint32_t n_fds;
	uint32_t n_maps;                /* of memory files */
	uint64_t own_kib;               /* anonymous memory */
	uint64_t gpu_mib;               /* of the GPU: what all processes use */
};

static struct torture {
	struct daemon_fixture  daemon;
	struct torture_client *clients; /* shared with all processes */
	pid_t                  pids[CLIENTS_MAX];
	uint32_t               n;       /* of clients */
	uint32_t               n_groups_ever;
	uint64_t               n_bytes;
	int                    gpu;     /* -1: host memory */
	uint64_t               random;
	uint64_t               n_passes;
	uint32_t               n_of_kind[N_KINDS];
	struct holding         empty, full;     /* without clients, and with all */
	struct times           told_lost, told_gone, freed;
	struct rate            quiet, struck;   /* before a client is killed, and from then until
						 * all of its group is freed; the same of another
						 * process, until that has ended */
} torture;

static uint64_t setting(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

/* --- what is seen ----------------------------------------------------------------- */

static int compare(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return a < b ? -1 : a > b;
}

static void add_time(struct times *times, uint64_t from_ns, uint64_t to_ns)
{
	if (times->n < TIMES_MAX)
		times->ns[times->n++] = to_ns > from_ns ? to_ns - from_ns : 0;
}

static double ms_at(const struct times *times, double part)
{
	return (double)times->ns[(uint32_t)(part * (times->n - 1))] / 1e6;
}

static void print_times(struct times *times)
{
	uint32_t n_late = 0;

	if (!times->n)
		return;
	qsort(times->ns, times->n, sizeof(times->ns[0]), compare);
	while (n_late < times->n && times->ns[times->n - 1 - n_late] > times->aim_ns)
		n_late++;
	printf("%s: %u times, median %.1f ms, 90 %% %.1f, 99 %% %.1f, worst %.1f; %u above %.0f\n",
	       times->what, times->n, ms_at(times, 0.5), ms_at(times, 0.9), ms_at(times, 0.99),
	       ms_at(times, 1), n_late, (double)times->aim_ns / 1e6);
	fflush(stdout);
	if (times->n >= TIMES_JUDGED)
		ck_assert_uint_le(times->ns[times->n / 2], times->aim_ns);
}

/* Begins to measure, or ends it: the caller does the same work in between. */
static void measure(struct rate *rate, uint32_t victim, int is_end)
{
	uint64_t n = 0, now_ns = cei_now_ns();
	uint32_t i;

	for (i = 0; i < torture.n; i++)
		n += victim / TORTURE_PAIR != i / TORTURE_PAIR ? torture.clients[i].n_passes : 0;
	rate->n_passes += is_end ? n : 0 - n;           /* the difference, though it wraps */
	rate->ns += is_end ? now_ns : 0 - now_ns;
}

static double per_second(const struct rate *rate)
{
	return rate->ns ? (double)rate->n_passes * 1e9 / (double)rate->ns : 0;
}

static void print_rates(void)
{
	double before = per_second(&torture.quiet), after = per_second(&torture.struck);

	if (before <= 0 || torture.n <= TORTURE_PAIR)
		return;
	printf("passes of the other clients: %.0f /s before one process is killed, %.0f /s until "
	       "all is freed: %.2f of it\n", before, after, after / before);
	fflush(stdout);
	if (torture.n_of_kind[CLIENT] >= TIMES_JUDGED &&
	    sysconf(_SC_NPROCESSORS_ONLN) >= 2 * (long)torture.n)
		ck_assert_double_ge(after, RATE_AIM * before);
}

static void look_at_maps(struct holding *holding)
{
	char path[64], line[512];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/maps", torture.daemon.pid);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file))
		holding->n_maps += strstr(line, "/memfd:") != NULL;
	fclose(file);
	snprintf(path, sizeof(path), "/proc/%d/status", torture.daemon.pid);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, "RssAnon:", 8))
			holding->own_kib = strtoull(line + 8, NULL, 10);
	fclose(file);
}

static uint64_t look_at_gpu(void)
{
	char command[120];
	unsigned long long mib = 0;
	FILE *said;

	if (torture.gpu < 0)
		return 0;
	snprintf(command, sizeof(command), "nvidia-smi -i %d --query-gpu=memory.used "
		 "--format=csv,noheader,nounits", torture.gpu);
	said = popen(command, "r");
	ck_assert_ptr_nonnull(said);
	ck_assert_int_eq(fscanf(said, "%llu", &mib), 1);
	ck_assert_int_eq(pclose(said), 0);
	return mib;
}

static struct holding look(void)
{
	struct holding holding = { 0 };
	char path[64];
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%d/fd", torture.daemon.pid);
	folder = opendir(path);
	ck_assert_ptr_nonnull(folder);
	while (readdir(folder))
		holding.n_fds++;
	closedir(folder);
	look_at_maps(&holding);
	holding.gpu_mib = look_at_gpu();
	return holding;
}

/* What the daemon, and on a GPU all processes, have with n clients. */
static struct holding expected(uint32_t n)
{
	const struct holding *empty = &torture.empty, *full = &torture.full;

	return (struct holding){
		.n_fds = empty->n_fds + (full->n_fds - empty->n_fds) / torture.n * n,
		.n_maps = empty->n_maps + (full->n_maps - empty->n_maps) / torture.n * n,
		.gpu_mib = empty->gpu_mib + (full->gpu_mib - empty->gpu_mib) / torture.n * n,
	};
}

/* With a GPU a few descriptors more are no leak: CUDA opens some of its own from time to time. And
 * of the memory of a client that has died its partner still maps the target, a half of it. */
static int has_all_freed(const struct holding *now, const struct holding *wanted, uint32_t n)
{
	uint64_t more_mib = GPU_MIB_MORE + (n % TORTURE_PAIR ? torture.n_bytes >> 21 : 0);

	if (now->n_maps != wanted->n_maps)
		return 0;
	if (torture.gpu < 0)
		return now->n_fds == wanted->n_fds;
	return now->n_fds <= wanted->n_fds + GPU_FDS_MORE &&
		now->gpu_mib <= wanted->gpu_mib + more_mib;
}

/* Waits until the daemon has what n clients need, and nothing more. */
static void await_holding(uint32_t n, uint64_t from_ns)
{
	uint64_t deadline = cei_deadline(PATIENCE);
	const struct holding wanted = expected(n);
	struct holding holding = look();

	while (!has_all_freed(&holding, &wanted, n)) {
		ck_assert_msg(cei_now_ns() < deadline, "with %u clients the daemon has %u "
			      "descriptors and %u mappings, not %u and %u; of the GPU %llu MiB are "
			      "in use, not %llu", n, holding.n_fds, holding.n_maps, wanted.n_fds,
			      wanted.n_maps, (unsigned long long)holding.gpu_mib,
			      (unsigned long long)wanted.gpu_mib);
		usleep(1000);
		holding = look();
	}
	if (from_ns)
		add_time(&torture.freed, from_ns, cei_now_ns());
}

/* --- clients ---------------------------------------------------------------------- */

static void start_pair(uint32_t first)
{
	struct torture_task task = {
		.daemon = torture.daemon.path,
		.seed = testing_random(&torture.random),
		.n_bytes = torture.n_bytes,
		.gpu = torture.gpu,
	};
	char name[32], group[200];
	uint32_t i;

	snprintf(name, sizeof(name), "g%u", torture.n_groups_ever++);
	testing_path(name, group, sizeof(group));
	task.group = group;
	memset(&torture.clients[first], 0, TORTURE_PAIR * sizeof(torture.clients[0]));
	fflush(NULL);
	for (i = 0; i < TORTURE_PAIR; i++) {
		task.own = &torture.clients[first + i];
		task.rank = i;
		torture.pids[first + i] = fork();
		if (!torture.pids[first + i])
			torture_client_run(&task);
		ck_assert_int_gt(torture.pids[first + i], 0);
	}
}

/* None may have ended by itself. */
static void check_alive(void)
{
	uint32_t i;
	int status;

	for (i = 0; i < torture.n; i++)
		ck_assert_msg(!torture.pids[i] || !waitpid(torture.pids[i], &status, WNOHANG),
			      "client %u has ended with status %#x: %s", i, (unsigned)status,
			      torture.clients[i].fault);
}

/* Waits until each living client but the one has passed something more. */
static void await_passes(uint32_t but)
{
	uint64_t n_before[CLIENTS_MAX], deadline = cei_deadline(PATIENCE);
	uint32_t i;

	for (i = 0; i < torture.n; i++)
		n_before[i] = torture.clients[i].n_passes;
	for (i = 0; i < torture.n; i++)
		while (but / TORTURE_PAIR != i / TORTURE_PAIR && torture.pids[i] &&
		       torture.clients[i].n_passes < n_before[i] + 2) {
			check_alive();
			ck_assert_msg(cei_now_ns() < deadline, "client %u does not go on after "
				      "%llu passes, %u reopened", i,
				      (unsigned long long)n_before[i],
				      torture.clients[i].n_reopened);
			usleep(500);
		}
}

static uint64_t await_word(const _Atomic uint64_t *word, uint32_t client)
{
	uint64_t deadline = cei_deadline(PATIENCE);

	while (!*word) {
		check_alive();
		ck_assert_msg(cei_now_ns() < deadline, "client %u is told nothing", client);
		usleep(200);
	}
	return *word;
}

static void collect(uint32_t client)
{
	int status;

	ck_assert_int_eq(waitpid(torture.pids[client], &status, 0), torture.pids[client]);
	torture.pids[client] = 0;
	torture.n_passes += torture.clients[client].n_passes;
	ck_assert_msg(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : !WEXITSTATUS(status),
		      "client %u: status %#x: %s", client, (unsigned)status,
		      torture.clients[client].fault);
}

/* --- strikes ---------------------------------------------------------------------- */

static uint64_t strike(uint32_t victim)
{
	uint64_t from_ns = cei_now_ns();

	ck_assert_int_eq(kill(torture.pids[victim], SIGKILL), 0);
	collect(victim);
	return from_ns;
}

/* A killed client's partner is told, leaves, and both are started again. */
static void replace(uint32_t victim, uint64_t from_ns, int is_timed)
{
	uint32_t partner = victim ^ 1;
	uint64_t told_ns, left_ns;

	told_ns = await_word(&torture.clients[partner].gone_ns, partner);
	if (is_timed) {
		add_time(&torture.told_gone, from_ns, told_ns);
		await_holding(torture.n - 1, from_ns);
	}
	torture.clients[partner].may_leave = 1;
	left_ns = cei_now_ns();
	collect(partner);
	if (is_timed) {
		await_holding(torture.n - 2, left_ns);
		measure(&torture.struck, victim, 1);
	}
	start_pair(victim & ~1u);
}

static void kill_client(uint32_t victim)
{
	measure(&torture.struck, victim, 0);
	replace(victim, strike(victim), 1);
}

static void check_growth(void)
{
	struct holding now = look();

	ck_assert_msg(now.own_kib < torture.full.own_kib + GROWTH_KIB,
		      "the daemon's memory has grown from %llu to %llu KiB",
		      (unsigned long long)torture.full.own_kib, (unsigned long long)now.own_kib);
}

static void next_daemon(uint64_t from_ns, uint32_t but)
{
	uint32_t i;

	for (i = 0; i < torture.n; i++)
		if (but / TORTURE_PAIR != i / TORTURE_PAIR)
			add_time(&torture.told_lost, from_ns,
				 await_word(&torture.clients[i].lost_ns, i));
	daemon_start(&torture.daemon, "d.sock");
}

static void kill_daemon(void)
{
	uint64_t from_ns;

	check_growth();
	from_ns = cei_now_ns();
	daemon_kill(&torture.daemon);
	next_daemon(from_ns, CLIENTS_MAX);
}

static void kill_both(uint32_t victim)
{
	uint64_t from_ns = cei_now_ns();

	daemon_strike(&torture.daemon);
	usleep((useconds_t)testing_below(&torture.random, 5000));
	strike(victim);
	daemon_kill(&torture.daemon);
	next_daemon(from_ns, victim);
	replace(victim, from_ns, 0);
}

static void stop_client(uint32_t victim)
{
	testing_stop(torture.pids[victim]);
	usleep((useconds_t)testing_below(&torture.random, 50000));
	await_passes(victim);
	ck_assert_int_eq(kill(torture.pids[victim], SIGCONT), 0);
}

/* Touches as much memory as a client has, and waits for its end. */
_Noreturn static void be_other(int told)
{
	int fd = memfd_create("other", MFD_CLOEXEC);
	char *memory = MAP_FAILED;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (fd >= 0 && !ftruncate(fd, (off_t)torture.n_bytes))
		memory = mmap(NULL, torture.n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		_exit(1);
	memset(memory, 1, torture.n_bytes);
	if (write(told, "", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

static void kill_other(void)
{
	char word;
	pid_t pid;
	int fds[2], status;

	ck_assert_int_eq(pipe(fds), 0);
	fflush(NULL);
	pid = fork();
	if (!pid)
		be_other(fds[1]);
	ck_assert_int_gt(pid, 0);
	close(fds[1]);
	ck_assert_int_eq(read(fds[0], &word, 1), 1);
	close(fds[0]);
	measure(&torture.quiet, CLIENTS_MAX, 0);
	usleep((useconds_t)testing_below(&torture.random, 20000));
	measure(&torture.quiet, CLIENTS_MAX, 1);
	measure(&torture.struck, CLIENTS_MAX, 0);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	measure(&torture.struck, CLIENTS_MAX, 1);
	ck_assert_int_eq(WTERMSIG(status), SIGKILL);
}

static enum kind choose(void)
{
	const char *only = getenv("CEOVERLAP_TEST_DAEMON_KIND");
	uint32_t i;

	for (i = 0; only && i < N_KINDS; i++)
		if (!strcmp(only, kind_names[i]))
			return (enum kind)i;
	ck_assert_msg(!only, "there is no kind '%s'", only);
	return (enum kind)testing_below(&torture.random, N_DRAWN);
}

static void run_cycle(void)
{
	uint32_t i, victim = (uint32_t)testing_below(&torture.random, torture.n);
	enum kind kind = choose();

	for (i = 0; i < torture.n; i++)
		torture.clients[i].lost_ns = 0;
	if (kind == CLIENT)
		measure(&torture.quiet, victim, 0);
	usleep((useconds_t)testing_below(&torture.random, 20000));
	if (kind == CLIENT)
		measure(&torture.quiet, victim, 1);
	torture.n_of_kind[kind]++;
	switch (kind) {
	case CLIENT: kill_client(victim); break;
	case DAEMON: kill_daemon(); break;
	case STOP:   stop_client(victim); break;
	case BOTH:   kill_both(victim); break;
	case OTHER:  kill_other(); break;
	}
	await_passes(CLIENTS_MAX);
	await_holding(torture.n, 0);
}

/* --- the whole --------------------------------------------------------------------- */

static void begin(void)
{
	uint32_t i;

	torture.random = testing_seed();
	torture.n = (uint32_t)setting("CEOVERLAP_TEST_DAEMON_CLIENTS", 4);
	torture.n_bytes = setting("CEOVERLAP_TEST_DAEMON_MIB", 8) << 20;
	torture.gpu = (int)setting("CEOVERLAP_TEST_DAEMON_GPU", UINT64_MAX);
	torture.told_lost.what = "told of the daemon's loss";
	torture.told_gone.what = "told of a client's loss";
	torture.freed.what = "freed by the daemon";
	torture.told_lost.aim_ns = torture.told_gone.aim_ns = TOLD_AIM;
	torture.freed.aim_ns = FREED_AIM;
	ck_assert(torture.n && torture.n % TORTURE_PAIR == 0 && torture.n <= CLIENTS_MAX);
	torture.clients = mmap(NULL, CLIENTS_MAX * sizeof(torture.clients[0]),
			       PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(torture.clients, MAP_FAILED);
	daemon_start(&torture.daemon, "d.sock");
	usleep(100000);                 /* the connection that looked whether it listens has gone */
	torture.empty = look();
	for (i = 0; i < torture.n; i += TORTURE_PAIR)
		start_pair(i);
	await_passes(CLIENTS_MAX);
	torture.full = look();
}

static void end(void)
{
	uint32_t i;

	check_growth();
	for (i = 0; i < torture.n; i++)
		torture.clients[i].must_end = torture.clients[i].may_leave = 1;
	for (i = 0; i < torture.n; i++)
		collect(i);
	await_holding(0, 0);
	daemon_end(&torture.daemon);
	for (i = 0; i < N_KINDS; i++)
		printf("%s: %u\n", kind_names[i], torture.n_of_kind[i]);
	printf("%llu passes checked, 0 wrong\n", (unsigned long long)torture.n_passes);
	print_rates();
	print_times(&torture.told_lost);
	print_times(&torture.told_gone);
	print_times(&torture.freed);
}

START_TEST(test_what_strikes_some_leaves_the_others)
{
	uint64_t i, n = setting("CEOVERLAP_TEST_DAEMON_CYCLES", 20);

	begin();
	for (i = 0; i < n; i++)
		run_cycle();
	end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("daemon under torture");
	TCase *cases = tcase_create("torture");

	tcase_set_timeout(cases, 60 + 10 * (double)setting("CEOVERLAP_TEST_DAEMON_CYCLES", 20));
	tcase_add_test(cases, test_what_strikes_some_leaves_the_others);
	suite_add_tcase(suite, cases);
	return testing_run(suite);
}
