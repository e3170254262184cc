/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "peers_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

struct world world;

uint32_t draw(uint32_t limit)
{
	uint32_t drawn;

	pthread_mutex_lock(&world.post.lock);
	drawn = (uint32_t)testing_below(&world.random, limit);
	pthread_mutex_unlock(&world.post.lock);
	return drawn;
}

void rest(uint64_t ns)
{
	struct timespec pause = { (time_t)(ns / TESTING_SECOND), (long)(ns % TESTING_SECOND) };

	nanosleep(&pause, NULL);
}

uint32_t n_open_fds(void)
{
	DIR *folder = opendir("/proc/self/fd");
	uint32_t n = 0;

	ck_assert_ptr_nonnull(folder);
	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

struct cei_peers *peers_of(uint32_t process)
{
	return world.processes[process].peers;
}

/* --- what is told upwards ----------------------------------------------------------------- */

/* Takes the lock of the layer above, as every handler of it does. */
static void note(struct process *process, const struct news *news)
{
	/* seq_cst: what it counts is compared, and nothing else depends on it */
	ck_assert_uint_eq(atomic_fetch_add(&process->n_in_event, 1), 0);
	pthread_mutex_lock(&process->upper);
	pthread_mutex_lock(&process->lock);
	ck_assert_uint_lt(process->n_news, NEWS_MAX);
	process->news[process->n_news++] = *news;
	pthread_mutex_unlock(&process->lock);
	if (process->hook)
		process->hook(process, news);
	pthread_mutex_unlock(&process->upper);
	ck_assert_uint_eq(atomic_fetch_sub(&process->n_in_event, 1), 1);
}

static void gone(void *arg, uint32_t rank, int departed)
{
	const struct news news = { .kind = departed ? DEPARTED : LOST, .number = rank };

	note(arg, &news);
}

static void aborted(void *arg, const struct cei_group_abort *abort)
{
	const struct news news = { .kind = ABORTED, .number = abort->blame, .abort = *abort };

	note(arg, &news);
}

static void renewed(void *arg, uint32_t process, uint32_t id, uint64_t use)
{
	const struct news news = { .kind = RENEWED, .number = process, .id = id, .use = use };

	note(arg, &news);
}

static const struct cei_peers_events events = { gone, aborted, renewed };

int has_news(uint32_t process, enum news_kind kind, uint32_t number)
{
	struct process *own = &world.processes[process];
	int has = 0;
	uint32_t i;

	pthread_mutex_lock(&own->lock);
	for (i = 0; i < own->n_news; i++)
		has |= own->news[i].kind == kind && own->news[i].number == number;
	pthread_mutex_unlock(&own->lock);
	return has;
}

void await_news(uint32_t process, enum news_kind kind, uint32_t number)
{
	uint64_t deadline_ns = cei_deadline(TESTING_PATIENCE);

	while (!has_news(process, kind, number)) {
		ck_assert_msg(cei_now_ns() < deadline_ns, "process %u was not told %d of %u",
			      process, kind, number);
		rest(TESTING_MS / 4);
	}
}

uint32_t n_news_of(uint32_t process)
{
	struct process *own = &world.processes[process];
	uint32_t n;

	pthread_mutex_lock(&own->lock);
	n = own->n_news;
	pthread_mutex_unlock(&own->lock);
	return n;
}

void await_value(const _Atomic uint64_t *word, uint64_t value)
{
	uint64_t deadline_ns = cei_deadline(TESTING_PATIENCE);

	/* acquire: pairs with the release of who raised it */
	while (atomic_load_explicit(word, memory_order_acquire) < value) {
		ck_assert_uint_lt(cei_now_ns(), deadline_ns);
		rest(TESTING_MS / 10);
	}
}

/* --- opening ------------------------------------------------------------------------------ */

static void make_roster(const struct world_config *config)
{
	uint32_t node, i, n = 0;

	for (i = 0; i < world.n; i++) {
		world.process_of[i] = world.first_rank[i] = i;
		world.node_of[i] = config->node_of[i];
	}
	for (node = 0; n < world.n; node++) {
		world.node_at[node] = n;
		for (i = 0; i < world.n; i++)
			if (world.node_of[i] == node)
				world.in_node[n++] = i;
	}
	world.node_at[node] = n;
	for (i = 0; i < world.n; i++)
		world.processes[i].roster = (struct cei_roster){
			world.n + 1, world.n, node, i, world.process_of, world.node_of,
			world.first_rank, world.in_node, world.node_at };
}

static void add_link(uint32_t own, uint32_t process, int fd)
{
	struct cei_links *links = &world.processes[own].links;
	struct cei_node_link *link = &links->links[links->n_links++];

	link->party.n_ranks = 1;
	link->party.ranks[0] = process;
	if (!process)
		link->party.ranks[link->party.n_ranks++] = world.n;
	link->fd = fd;
	link->pidfd = -1;
	world.processes[own].ends[world.processes[own].n_ends++] = fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

static void connect_near(void)
{
	struct process *process;
	uint32_t i, j;
	int ends[2];

	for (i = 0; i < world.n; i++)
		for (j = i + 1; j < world.n; j++) {
			if (world.node_of[i] != world.node_of[j])
				continue;
			ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
						    ends), 0);
			add_link(i, j, ends[0]);
			add_link(j, i, ends[1]);
		}
	for (i = 0; i < world.n; i++) {
		process = &world.processes[i];
		if (process->links.n_links)
			ck_assert_int_eq(cei_unix_open(&process->report, &process->roster,
						       &process->near), 0);
	}
}

static void open_process(uint32_t own, const struct world_config *config)
{
	struct process *process = &world.processes[own];
	struct cei_peers_config peers = {
		.report = &process->report,
		.roster = &process->roster,
		.timeout_ns = config->timeout_ns ? config->timeout_ns : TESTING_PATIENCE,
		.progress_by_caller = (config->turned >> own) & 1,
		.near = process->near ? cei_unix_carrier(process->near) : NULL,
		.far = process->n_ends + 1 < world.n ? post_carrier(&world.post, own) :
			NULL,
		.events = &events,
		.events_arg = process,
	};

	process->is_turned = peers.progress_by_caller;
	pthread_mutex_init(&process->lock, NULL);
	pthread_mutex_init(&process->upper, NULL);
	ck_assert_int_eq(cei_peers_open(&peers, &process->peers), 0);
	if (peers.far)
		post_begin(&world.post, own, process->peers, (config->couriers >> own) & 1);
	if (peers.near)
		ck_assert_int_eq(cei_unix_attach(process->near, process->peers, &process->links),
				 0);
}

void world_open(const struct world_config *config)
{
	uint32_t i;

	memset(&world, 0, sizeof(world));
	world.n_fds = n_open_fds();
	world.n = config->n;
	world.random = testing_seed();
	for (i = 0; i < world.n; i++)
		cei_report_init(&world.processes[i].report, NULL, NULL);
	make_roster(config);
	post_open(&world.post, world.n, testing_seed());
	world.post.fullness = config->fullness;
	world.post.busy = config->busy;
	world.post.gives_up_slowly = config->gives_up_slowly;
	connect_near();
	for (i = 0; i < world.n; i++)
		open_process(i, config);
}

/* --- closing ------------------------------------------------------------------------------ */

static void free_process(uint32_t own)
{
	struct process *process = &world.processes[own];
	uint32_t i;

	if (world.post.offices[own].peers)
		post_end(&world.post, own);
	cei_unix_close(process->near);
	cei_peers_free(process->peers);
	process->peers = NULL;
	for (i = 0; i < process->n_ends; i++)
		close(process->ends[i]);
	pthread_mutex_destroy(&process->lock);
	pthread_mutex_destroy(&process->upper);
}

void process_close(uint32_t own)
{
	if (!peers_of(own))
		return;
	cei_peers_leave(peers_of(own));
	free_process(own);
}

/* At once: else it would tell some of them that it has lost others. */
void process_cut(uint32_t own)
{
	struct process *process = &world.processes[own];
	uint32_t i;

	post_hold(&world.post, own, 1);
	for (i = 0; i < process->n_ends; i++)
		shutdown(process->ends[i], SHUT_RDWR);
	for (i = 0; i < world.n; i++)
		if (i != own)
			post_cut(&world.post, own, i);
	post_hold(&world.post, own, 0);
}

static void tear_down(void)
{
	uint32_t i;

	for (i = 0; i < world.n; i++)
		process_close(i);
	post_close(&world.post);
	for (i = 0; i < world.n; i++)
		cei_report_fini(&world.processes[i].report);
	ck_assert_uint_eq(n_open_fds(), world.n_fds);
}

/* --- exports and finds ----------------------------------------------------------------------- */

static struct cei_group_export made_export(uint32_t process, const char *name)
{
	struct cei_group_export export = { .rank = process, .n_bytes = 64 };

	snprintf(export.name, sizeof(export.name), "%s", name);
	memcpy(export.bytes, export.name, sizeof(export.name));
	return export;
}

uint32_t export_file(uint32_t process, const char *name)
{
	struct cei_group_export export = made_export(process, name);
	uint32_t id = 0;

	export.fds.n = 1;
	export.fds.fds[0] = STDERR_FILENO;
	ck_assert_int_eq(cei_peers_export(peers_of(process), &export, &id), 0);
	ck_assert_uint_ne(id, 0);
	return id;
}

uint32_t export_words(uint32_t process, const char *name)
{
	struct cei_group_export export = made_export(process, name);
	uint32_t id = 0;

	export.words = world.processes[process].words;
	export.n_words = WORDS;
	ck_assert_int_eq(cei_peers_export(peers_of(process), &export, &id), 0);
	return id;
}

static void check_found(struct cei_group_found *found, const char *name)
{
	struct stat own, other;
	uint32_t i;

	ck_assert_uint_ne(found->id, 0);
	ck_assert_uint_eq(found->n_bytes, 64);
	ck_assert_str_eq((const char *)found->bytes, name);
	for (i = 0; i < found->fds.n; i++) {
		ck_assert_int_eq(fstat(found->fds.fds[i], &other), 0);
		ck_assert_int_eq(fstat(STDERR_FILENO, &own), 0);
		ck_assert_uint_eq(own.st_ino, other.st_ino);
		close(found->fds.fds[i]);
	}
}

int find_within(uint32_t process, const struct cei_lookup *lookup, struct cei_group_found *found,
		uint64_t *ret_use)
{
	int r;

	memset(found, 0, sizeof(*found));
	r = cei_peers_find(peers_of(process), lookup, found, ret_use);
	if (!r)
		check_found(found, lookup->name);
	else
		ck_assert_uint_eq(found->fds.n, 0);
	return r;
}

int find(uint32_t process, uint32_t rank, const char *name, uint64_t *ret_use)
{
	const struct cei_lookup lookup = { rank, name, cei_deadline(TESTING_PATIENCE) };
	struct cei_group_found found;

	return find_within(process, &lookup, &found, ret_use);
}

void withdraw(uint32_t process, uint32_t id)
{
	uint64_t deadline_ns = cei_deadline(TESTING_PATIENCE);
	int r;

	while ((r = cei_peers_withdraw(peers_of(process), id, 0)) == CEOV_PENDING) {
		ck_assert_uint_lt(cei_now_ns(), deadline_ns);
		if (world.processes[process].is_turned)
			(void)cei_peers_turn(peers_of(process));
		else
			rest(TESTING_MS / 10);
	}
	ck_assert_int_eq(r, 0);
}

/* --- threads ------------------------------------------------------------------------------ */

static void *turn_on(void *arg)
{
	struct turner *turner = arg;

	/* relaxed: only a flag */
	while (!atomic_load_explicit(&turner->must_stop, memory_order_relaxed))
		if (!cei_peers_turn(peers_of(turner->process)))
			rest(TESTING_MS / 20);
	return NULL;
}

void turner_start(struct turner *turner, uint32_t process)
{
	turner->process = process;
	atomic_init(&turner->must_stop, 0);
	ck_assert_int_eq(pthread_create(&turner->thread, NULL, turn_on, turner), 0);
}

void turner_stop(struct turner *turner)
{
	/* relaxed: only a flag */
	atomic_store_explicit(&turner->must_stop, 1, memory_order_relaxed);
	pthread_join(turner->thread, NULL);
}

#define THREADS_MAX 32u

void run_all(uint32_t n, void *(*run)(void *))
{
	pthread_t threads[THREADS_MAX];
	uint32_t i;

	ck_assert_uint_le(n, THREADS_MAX);
	for (i = 0; i < n; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run, (void *)(uintptr_t)i), 0);
	for (i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
}

int run_suite(const char *name, void (*add_tests)(TCase *))
{
	Suite *suite = suite_create(name);
	TCase *all = tcase_create(name);

	tcase_add_checked_fixture(all, NULL, tear_down);
	tcase_set_timeout(all, 120);
	add_tests(all);
	suite_add_tcase(suite, all);
	return testing_run(suite);
}
