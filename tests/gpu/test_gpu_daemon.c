/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * A real ceoverlapd moves GPU memory for clients, each a process of its own that is forked before
 * it touches CUDA. Ranks 0 and 1 of a client are on GPU 0 and on the last one, which may be the
 * same.
 */

#include "gpu_process.h"
#include "gpu_rig.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "system/daemon_fixture.h"

#define WORDS    UINT64_C(700001)       /* no multiple of a chunk */
#define LAUNCHES 40u

/* Four chunks of the daemon's, whose ends another stream tells it, and a bit. */
#define LARGE_WORDS ((UINT64_C(64) << 20) / 8 + 13)

static struct daemon_fixture server;
static uint32_t n_gpus;

struct client {
	struct gpu    gpus[2];
	ceov_context *context;
	uint64_t      n_words;          /* of each launch */
	void         *allocated[2];     /* by cudaMalloc, or NULL */
	ceov_buffer  *source, *target;
	ceov_signal  *ready, *arrived;
	ceov_plan    *plan;
};

enum memory { CREATED, REGISTERED };

static uint32_t gpu_of(uint32_t rank)
{
	return rank ? n_gpus - 1 : 0;
}

static ceov_buffer *make_buffer(struct client *client, uint32_t rank, enum memory memory)
{
	const uint64_t n_bytes = client->n_words * 8;
	ceov_buffer *buffer = NULL;
	int r;

	if (memory == CREATED) {
		r = ceov_buffer_create(client->context, rank, n_bytes, &buffer);
	} else {
		client->allocated[rank] = gpu_allocate(&client->gpus[rank], n_bytes);
		r = ceov_buffer_register(client->context, rank, client->allocated[rank], n_bytes,
					 &buffer);
	}
	ck_assert_int_eq(r, 0);
	return buffer;
}

static void make_plan(struct client *client, uint32_t ready_flags)
{
	struct ceov_transfer transfer;

	client->ready = gpu_signal(client->context, 0, gpu_of(0), 1, ready_flags);
	client->arrived = gpu_signal(client->context, 1, gpu_of(1), 1, CEOV_SIGNAL_HOST_VISIBLE);
	client->plan = testing_plan(client->context, 0);
	transfer = testing_transfer(client->source, client->target,
				    client->n_words * 8);
	transfer.source_ready = testing_mark(client->ready, 0, 1);
	transfer.then = testing_mark(client->arrived, 0, 1);
	testing_add(client->plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(client->plan), 0);
}

static void open_client(struct client *client)
{
	const uint32_t gpus[2] = { gpu_of(0), gpu_of(1) };
	uint32_t i;

	memset(client, 0, sizeof(*client));
	client->n_words = WORDS;
	ck_assert_int_eq(setenv("CEOVERLAP_DAEMON", server.path, 1), 0);
	for (i = 0; i < 2; i++)
		gpu_open(&client->gpus[i], gpus[i]);
	client->context = gpu_context(gpus, 2);
}

static void make_client(struct client *client, enum memory memory)
{
	open_client(client);
	client->source = make_buffer(client, 0, memory);
	client->target = make_buffer(client, 1, memory);
	make_plan(client, CEOV_SIGNAL_HOST_VISIBLE);
}

static void close_client(struct client *client)
{
	uint32_t i;

	ceov_close(client->context);
	for (i = 0; i < 2; i++) {
		if (client->allocated[i])
			gpu_free(&client->gpus[i], client->allocated[i]);
		gpu_close(&client->gpus[i]);
	}
}

static struct gpu_words words_of(const struct client *client, ceov_buffer *buffer,
				 uint32_t rank, uint64_t seed)
{
	return (struct gpu_words){ ceov_buffer_base(buffer, rank), client->n_words, seed };
}

/* One launch with new data. The stream that fills the source raises the mark, and another one waits
 * for the arrival and looks at the target. */
static void pass(struct client *client, uint64_t base, int follows)
{
	struct ceov_launch ask = { .struct_bytes = sizeof(ask), .base = base };
	const struct ceov_mark ready = testing_mark(client->ready, 0, base + 1);
	const struct ceov_mark arrived = testing_mark(client->arrived, 0, base + 1);
	struct gpu_words from = words_of(client, client->source, 0, base + 77);
	struct gpu_words to = words_of(client, client->target, 1, base + 77);
	void *produce = client->gpus[0].streams[GPU_PRODUCE];
	void *consume = client->gpus[1].streams[GPU_CONSUME];
	ceov_ticket ticket;

	gpu_reset(&client->gpus[1], 0);
	gpu_fill(&client->gpus[0], GPU_PRODUCE, &from);
	ck_assert_int_eq(ceov_stream_raise(client->context, 0, produce, &ready, 1, 0), 0);
	if (follows)
		ask.after_stream = produce;
	ck_assert_int_eq(ceov_launch(client->plan, &ask, &ticket), 0);
	ck_assert_int_eq(ceov_stream_wait(client->context, 1, consume, &arrived, 1, 0), 0);
	gpu_verify(&client->gpus[1], GPU_CONSUME, &to, 0);
	gpu_idle(&client->gpus[1], GPU_CONSUME);
	ck_assert_uint_eq(gpu_result(&client->gpus[1], 0).n_wrong, 0);
	ck_assert_int_eq(ceov_wait(client->context, ticket, TESTING_PATIENCE), 0);
}

/* --- processes ---------------------------------------------------------------- */

static void make_file(const char *name)
{
	char path[200];
	FILE *file;

	testing_path(name, path, sizeof(path));
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fclose(file);
}

static pid_t start(void (*body)(void))
{
	pid_t child = gpu_process_fork();

	if (child)
		return child;
	body();
	gpu_process_leave();
}

static void ends_well(pid_t child)
{
	gpu_process_end(child, 0, 0);
}

/* --- tests -------------------------------------------------------------------- */

static void move(enum memory memory)
{
	struct client client;
	uint32_t i;

	make_client(&client, memory);
	testing_explained(client.plan, "carried out by the daemon");
	for (i = 0; i < LAUNCHES; i++)
		pass(&client, i, 0);
	close_client(&client);
}

static void move_large(void)
{
	struct client client;
	uint32_t i;

	open_client(&client);
	client.n_words = LARGE_WORDS;
	client.source = make_buffer(&client, 0, CREATED);
	client.target = make_buffer(&client, 1, CREATED);
	make_plan(&client, CEOV_SIGNAL_HOST_VISIBLE);
	for (i = 0; i < LAUNCHES; i++)
		pass(&client, i, 0);
	close_client(&client);
}

static void move_created(void)
{
	move(CREATED);
}

static void move_registered(void)
{
	move(REGISTERED);
}

START_TEST(test_moves_created_memory)
{
	daemon_start(&server, "d.sock");
	ends_well(start(move_created));
	daemon_end(&server);
}
END_TEST

START_TEST(test_moves_several_chunks)
{
	daemon_start(&server, "d.sock");
	ends_well(start(move_large));
	daemon_end(&server);
}
END_TEST

START_TEST(test_moves_memory_of_cudamalloc)
{
	daemon_start(&server, "d.sock");
	ends_well(start(move_registered));
	daemon_end(&server);
}
END_TEST

/* Launches that follow a stream, and plans that a stream carries out, stay in the process, beside
 * launches by the daemon. */
static void follow_streams(void)
{
	struct client client;
	void *stream;
	uint32_t i;

	make_client(&client, CREATED);
	stream = client.gpus[0].streams[GPU_PRODUCE];
	for (i = 0; i < LAUNCHES; i++)
		pass(&client, i, i % 2);
	ck_assert_int_eq(ceov_signal_raise(client.ready, 0, i + 1), 0);
	ck_assert_int_eq(ceov_plan_queue(client.plan, stream, i), 0);
	gpu_idle(&client.gpus[0], GPU_PRODUCE);
	ck_assert_int_eq(ceov_signal_wait(client.arrived, 0, i + 1, TESTING_PATIENCE), 0);
	close_client(&client);
}

START_TEST(test_what_follows_streams_stays_here)
{
	daemon_start(&server, "d.sock");
	ends_well(start(follow_streams));
	daemon_end(&server);
}
END_TEST

static void hide_marks(void)
{
	struct ceov_launch ask = { .struct_bytes = sizeof(ask) };
	struct gpu_words from;
	struct ceov_mark mark;
	struct client client;
	ceov_ticket ticket;
	void *stream;

	open_client(&client);
	client.source = make_buffer(&client, 0, CREATED);
	client.target = make_buffer(&client, 1, CREATED);
	make_plan(&client, 0);
	testing_explained(client.plan, "it waits for marks that only a GPU sees");
	from = words_of(&client, client.source, 0, 5);
	stream = client.gpus[0].streams[GPU_PRODUCE];
	gpu_fill(&client.gpus[0], GPU_PRODUCE, &from);
	mark = testing_mark(client.ready, 0, 1);
	ck_assert_int_eq(ceov_stream_raise(client.context, 0, stream, &mark, 1, 0), 0);
	ask.producer_stream = stream;
	ck_assert_int_eq(ceov_launch(client.plan, &ask, &ticket), 0);
	ck_assert_int_eq(ceov_wait(client.context, ticket, TESTING_PATIENCE), 0);
	from = words_of(&client, client.target, 1, 5);
	gpu_check(&client.gpus[1], &from);
	close_client(&client);
}

START_TEST(test_marks_that_only_a_gpu_sees_stay_here)
{
	daemon_start(&server, "d.sock");
	ends_well(start(hide_marks));
	daemon_end(&server);
}
END_TEST

/* Launches what nothing begins, tells so by a file, and waits. */
static void hang(void)
{
	struct ceov_launch ask = { .struct_bytes = sizeof(ask) };
	struct client client;
	ceov_ticket ticket;

	make_client(&client, CREATED);
	pass(&client, 0, 0);
	ask.base = 1;
	ck_assert_int_eq(ceov_launch(client.plan, &ask, &ticket), 0);
	make_file("hangs");
	for (;;)
		pause();
}

static void await_file(const char *name)
{
	uint64_t deadline = cei_deadline(2 * TESTING_PATIENCE);
	char path[200];

	testing_path(name, path, sizeof(path));
	while (access(path, F_OK) && cei_now_ns() < deadline)
		usleep(1000);
	ck_assert_int_eq(unlink(path), 0);
}

START_TEST(test_a_killed_client_does_not_disturb)
{
	pid_t victim, other;

	daemon_start(&server, "d.sock");
	victim = start(hang);
	await_file("hangs");
	other = start(move_created);
	usleep(200000);
	ck_assert_int_eq(kill(victim, SIGKILL), 0);
	gpu_process_end(victim, 1, SIGKILL);
	ends_well(other);
	ends_well(start(move_registered));
	daemon_end(&server);
}
END_TEST
/* A launch that nothing begins ends by its deadline, and so does a stream that waits for it: the
 * daemon releases it by writing to the signal in the client's GPU memory. */
static void miss_deadline(void)
{
	struct ceov_launch ask = { .struct_bytes = sizeof(ask), .base = 1 };
	struct ceov_mark mark;
	struct client client;
	ceov_ticket ticket;

	make_client(&client, CREATED);
	pass(&client, 0, 0);
	mark = testing_mark(client.arrived, 0, 2);
	ask.deadline_ns = TESTING_SECOND / 5;
	ck_assert_int_eq(ceov_launch(client.plan, &ask, &ticket), 0);
	ck_assert_int_eq(ceov_stream_wait(client.context, 1,
					  client.gpus[1].streams[GPU_CONSUME], &mark, 1, 0), 0);
	ck_assert_int_eq(ceov_wait(client.context, ticket, TESTING_PATIENCE), CEOV_ERR_TIMEOUT);
	gpu_idle(&client.gpus[1], GPU_CONSUME);
	close_client(&client);
}

START_TEST(test_a_deadline_releases_streams)
{
	daemon_start(&server, "d.sock");
	ends_well(start(miss_deadline));
	daemon_end(&server);
}
END_TEST

/* A stream that waits for the daemon goes on when the daemon is killed, and the same plan is
 * carried out by the next one. */
static void lose_daemon(void)
{
	struct ceov_launch ask = { .struct_bytes = sizeof(ask) };
	struct ceov_mark mark;
	struct client client;
	ceov_ticket ticket;

	make_client(&client, CREATED);
	pass(&client, 0, 0);
	ask.base = 1;
	mark = testing_mark(client.arrived, 0, 2);
	ck_assert_int_eq(ceov_launch(client.plan, &ask, &ticket), 0);
	ck_assert_int_eq(ceov_stream_wait(client.context, 1,
					  client.gpus[1].streams[GPU_CONSUME], &mark, 1, 0), 0);
	make_file("waits");
	ck_assert_int_eq(ceov_wait(client.context, ticket, 2 * TESTING_PATIENCE),
			 CEOV_ERR_DAEMON_LOST);
	gpu_idle(&client.gpus[1], GPU_CONSUME);
	ck_assert_int_eq(ceov_reopen(client.context, 2 * TESTING_PATIENCE), 0);
	pass(&client, 0, 0);
	pass(&client, 1, 0);
	close_client(&client);
}

START_TEST(test_a_killed_daemon_releases_streams)
{
	pid_t child;

	daemon_start(&server, "d.sock");
	child = start(lose_daemon);
	await_file("waits");
	daemon_kill(&server);
	ck_assert_int_eq(unlink(server.path), 0);
	daemon_start(&server, "d.sock");
	ends_well(child);
	daemon_end(&server);
}
END_TEST

/* --- a GPU that is lost ------------------------------------------------------- */

/* NVIDIA's multi-process service (MPS) has processes share a context of the driver, so that one
 * process's fault takes the GPU from all of them. It is how a test can have a daemon lose a GPU. */

static int has_mps(void)
{
	return !system("command -v nvidia-cuda-mps-control > /dev/null");
}

/* The processes that are started from now on use it. */
static void start_mps(const char *folder)
{
	char path[200];

	testing_path(folder, path, sizeof(path));
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_eq(setenv("CUDA_MPS_PIPE_DIRECTORY", path, 1), 0);
	ck_assert_int_eq(setenv("CUDA_MPS_LOG_DIRECTORY", path, 1), 0);
	ck_assert_int_eq(system("nvidia-cuda-mps-control -d"), 0);
}

static void end_mps(void)
{
	ck_assert_int_eq(system("echo quit -t 5 | nvidia-cuda-mps-control"), 0);
}

static void start_logged_daemon(char *ret_log, size_t n_bytes)
{
	testing_path("d.log", ret_log, n_bytes);
	daemon_start_with(&server, "d.sock", NULL, ret_log);
}

static void await_line(const char *log, const char *text)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	char line[2000];
	int has = 0;
	FILE *file;

	while (!has) {
		file = fopen(log, "r");
		ck_assert_ptr_nonnull(file);
		while (!has && fgets(line, sizeof(line), file))
			has = strstr(line, text) != NULL;
		fclose(file);
		ck_assert_msg(has || cei_now_ns() < deadline, "no line says '%s'", text);
		usleep(10000);
	}
}

/* Writes where no memory is. */
static void fault(void)
{
	struct gpu_words words = { .p = (void *)(uintptr_t)16, .n_words = 1 };
	struct gpu gpu;

	gpu_open(&gpu, 0);
	gpu_fill(&gpu, GPU_PRODUCE, &words);
	usleep(200000);
}

/* A launch that waits for its mark ends by itself, and so does a new one. */
static void lose_gpu(void)
{
	struct ceov_launch ask = { .struct_bytes = sizeof(ask), .base = 1,
				   .deadline_ns = 10 * TESTING_PATIENCE };
	struct client client;
	ceov_ticket ticket;

	make_client(&client, CREATED);
	pass(&client, 0, 0);
	ck_assert_int_eq(ceov_launch(client.plan, &ask, &ticket), 0);
	make_file("waits");
	ck_assert_int_eq(ceov_wait(client.context, ticket, TESTING_PATIENCE), CEOV_ERR_CUDA);
	ck_assert_ptr_nonnull(strstr(testing_failure(client.context).text, "GPU 0 is lost"));
	/* nothing is closed: this process has lost the GPU, too */
}

START_TEST(test_a_gpu_that_is_lost_is_fenced)
{
	char log[200];
	pid_t child = 0;

	if (!has_mps()) {
		printf("not tested: MPS, by which a test loses a GPU, is not installed\n");
		return;
	}
	start_mps(_i ? "busy" : "idle");
	start_logged_daemon(log, sizeof(log));
	if (_i) {               /* else the daemon is idle */
		child = start(lose_gpu);
		await_file("waits");
	}
	(void)waitpid(start(fault), NULL, 0);
	await_line(log, "fenced: GPU 0 is lost");
	if (_i)
		ends_well(child);
	daemon_end(&server);
	end_mps();
}
END_TEST

static Suite *suite(uint32_t n)
{
	Suite *made = suite_create("gpu_daemon");
	TCase *all = tcase_create("gpu_daemon");

	n_gpus = n;
	tcase_set_timeout(all, 100);
	tcase_add_test(all, test_moves_created_memory);
	tcase_add_test(all, test_moves_several_chunks);
	tcase_add_test(all, test_moves_memory_of_cudamalloc);
	tcase_add_test(all, test_what_follows_streams_stays_here);
	tcase_add_test(all, test_marks_that_only_a_gpu_sees_stay_here);
	tcase_add_test(all, test_a_killed_client_does_not_disturb);
	tcase_add_test(all, test_a_deadline_releases_streams);
	tcase_add_test(all, test_a_killed_daemon_releases_streams);
	tcase_add_loop_test(all, test_a_gpu_that_is_lost_is_fenced, 0, 2);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return gpu_main(1, suite);
}
