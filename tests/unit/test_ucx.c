/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* How UCX is loaded, and what the transport over it does with messages that are not its own. */

#include "net/ucx.h"

#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/ucx_devices.h"
#include "net/ucx_worker.h"
#include "testing.h"

#define SKIPPED 77

static struct testing_log log_lines;
static struct cei_report report;

static void open_report(void)
{
	testing_log_init(&log_lines);
	cei_report_init(&report, testing_log_line, &log_lines);
}

static void close_report(void)
{
	cei_report_fini(&report);
}

/* Whether a file of UCX is mapped into this process. */
static int has_ucx(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int n = 0;

	ck_assert_ptr_nonnull(maps);
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "/libuc") && (strstr(line, "/libucp.") ||
			strstr(line, "/libuct.") || strstr(line, "/libucs.") ||
			strstr(line, "/libucm."));
	fclose(maps);
	return n != 0;
}

/* --- loading ----------------------------------------------------------------------------- */

START_TEST(test_ucx_is_loaded_only_when_asked_for)
{
	struct cei_ucx_calls calls;
	const char *why = NULL;

	ck_assert(!has_ucx());
	ck_assert_int_eq(cei_ucx_load(&report, &calls, &why), 0);
	ck_assert(has_ucx());
	ck_assert_ptr_null(dlsym(RTLD_DEFAULT, "ucp_get_version"));
}
END_TEST

static void own_handler(int number)
{
	(void)number;
}

START_TEST(test_loading_leaves_signal_handlers_as_they_were)
{
	const int signals[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGHUP, SIGABRT, SIGALRM };
	struct sigaction before[sizeof(signals) / sizeof(signals[0])], now;
	struct cei_ucx_calls calls;
	const char *why = NULL;
	size_t i, n = sizeof(signals) / sizeof(signals[0]);

	for (i = 0; i < n; i++) {       /* every second one is the application's, or all are */
		ck_assert(signal(signals[i], (int)(i % 2) == _i % 2 || _i == 2 ?
				 own_handler : SIG_DFL) != SIG_ERR);
		ck_assert_int_eq(sigaction(signals[i], NULL, &before[i]), 0);
	}
	ck_assert_int_eq(cei_ucx_load(&report, &calls, &why), 0);
	for (i = 0; i < n; i++) {
		ck_assert_int_eq(sigaction(signals[i], NULL, &now), 0);
		ck_assert_msg(now.sa_handler == before[i].sa_handler &&
			      now.sa_flags == before[i].sa_flags, "signal %d has changed",
			      signals[i]);
	}
}
END_TEST

/* --- strange messages -------------------------------------------------------------------- */

static struct {
	uint32_t                    n_heard;
	uint32_t                    n_offered;
	struct cei_transport       *transport;
} seen;

static void heard(void *arg, struct cei_transport_peer *from, const void *message,
		  uint32_t n_bytes)
{
	(void)arg;
	(void)from;
	(void)message;
	(void)n_bytes;
	seen.n_heard++;
}

static void offered(void *arg, struct cei_transport_peer *from,
		    const struct cei_transport_arrival *arrival)
{
	(void)arg;
	(void)from;
	seen.n_offered++;
	seen.transport->ops->refuse(seen.transport, arrival->offer);
}

static void ended(void *arg, uint64_t tag, int error)
{
	(void)arg;
	(void)tag;
	(void)error;
	ck_abort_msg("nothing was begun here");
}

static const struct cei_transport_events events = {
	.heard = heard, .offered = offered, .sent = ended, .landed = ended,
};

static void open_transport(struct cei_transport *transport)
{
	const char *why = NULL;

	memset(transport, 0, sizeof(*transport));
	transport->ops = &cei_transport_ucx;
	transport->config.report = &report;
	transport->config.kinds = "tcp";
	transport->config.n_peers = 2;
	transport->config.events = &events;
	ck_assert_int_eq(transport->ops->open(transport, &why), 0);
}

/* An endpoint of UCX's that goes around the transport. */
static ucp_ep_h bare_endpoint(struct cei_ucx *from, struct cei_ucx *to)
{
	ucp_ep_params_t params;
	ucp_address_t *address;
	ucp_ep_h endpoint;
	size_t n;

	ck_assert_int_eq(to->calls.worker_address(to->worker, &address, &n), UCS_OK);
	memset(&params, 0, sizeof(params));
	params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
		UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
	params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
	params.address = address;
	ck_assert_int_eq(from->calls.endpoint_create(from->worker, &params, &endpoint), UCS_OK);
	to->calls.worker_release_address(to->worker, address);
	return endpoint;
}

struct strange {
	unsigned             id;
	struct cei_ucx_label label;
	size_t               n_header;  /* 0 to sizeof(label) and more, which is zeroes */
	size_t               n_data;
	uint32_t             flags;
};

#define LABEL(magic, connection) { magic, connection, 77 }
#define GOOD LABEL(CEI_UCX_MAGIC, 1)

static const struct strange strange_ones[] = {
	{ CEI_UCX_MESSAGE, GOOD, 0, 10, UCP_AM_SEND_FLAG_EAGER },
	{ CEI_UCX_MESSAGE, GOOD, 15, 10, UCP_AM_SEND_FLAG_EAGER },
	{ CEI_UCX_MESSAGE, LABEL(1, 1), 16, 10, UCP_AM_SEND_FLAG_EAGER },
	{ CEI_UCX_MESSAGE, LABEL(CEI_UCX_MAGIC, 0), 16, 10, UCP_AM_SEND_FLAG_EAGER },
	{ CEI_UCX_MESSAGE, LABEL(CEI_UCX_MAGIC, 2), 16, 10, UCP_AM_SEND_FLAG_EAGER },
	{ CEI_UCX_MESSAGE, GOOD, 16, 0, UCP_AM_SEND_FLAG_EAGER },
	{ CEI_UCX_MESSAGE, GOOD, 16, CEI_TRANSPORT_MESSAGE_MAX + 1, UCP_AM_SEND_FLAG_EAGER },
	{ CEI_UCX_MESSAGE, GOOD, 16, 10, UCP_AM_SEND_FLAG_RNDV },
	{ CEI_UCX_OFFER, GOOD, 0, 100, UCP_AM_SEND_FLAG_RNDV | UCP_AM_SEND_FLAG_REPLY },
	{ CEI_UCX_OFFER, GOOD, 16, 100, UCP_AM_SEND_FLAG_RNDV | UCP_AM_SEND_FLAG_REPLY },
	{ CEI_UCX_OFFER, LABEL(2, 1), 24, 100, UCP_AM_SEND_FLAG_RNDV | UCP_AM_SEND_FLAG_REPLY },
	{ CEI_UCX_OFFER, GOOD, 24, 100, UCP_AM_SEND_FLAG_RNDV },
	{ CEI_UCX_OFFER, GOOD, 24, 100, UCP_AM_SEND_FLAG_EAGER },
	{ CEI_UCX_OFFER, GOOD, 16 + CEI_TRANSPORT_HEAD_MAX + 1, 100,
	  UCP_AM_SEND_FLAG_RNDV | UCP_AM_SEND_FLAG_REPLY },
	{ 9, GOOD, 16, 10, UCP_AM_SEND_FLAG_EAGER },
};

/* Sends it and waits until UCX has done with it at both sides. */
static void send_strange(struct cei_transport *a, struct cei_transport *b, ucp_ep_h endpoint,
			 const struct strange *strange)
{
	static uint8_t header[512], data[4096];
	struct cei_ucx *ucx = a->private;
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	ucp_request_param_t param;
	void *request;

	memset(header, 0, sizeof(header));
	memcpy(header, &strange->label, sizeof(strange->label));
	memset(&param, 0, sizeof(param));
	param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
	param.flags = strange->flags;
	request = ucx->calls.send(endpoint, strange->id, header, strange->n_header, data,
				  strange->n_data, &param);
	ck_assert(!UCS_PTR_IS_ERR(request));
	while (request && ucx->calls.request_status(request) == UCS_INPROGRESS) {
		ck_assert_msg(cei_now_ns() < deadline, "the send does not end");
		(void)a->ops->progress(a);
		(void)b->ops->progress(b);
	}
	if (request)
		ucx->calls.request_free(request);
}

static void turn_until(struct cei_transport *a, struct cei_transport *b, const uint32_t *number,
		       uint32_t value)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);

	while (*number < value) {
		ck_assert_msg(cei_now_ns() < deadline, "what was sent has not come");
		(void)a->ops->progress(a);
		(void)b->ops->progress(b);
		sched_yield();
	}
}

/* UCX itself would open without it, and reach other processes of this machine only. */
START_TEST(test_an_interface_that_does_not_exist_is_refused)
{
	static const char *const names[] = { "nosuch0", "", "../net/lo", "nosuch0:1" };
	struct cei_transport transport = { .ops = &cei_transport_ucx };
	const char *why;
	size_t i;

	transport.config.report = &report;
	transport.config.n_peers = 1;
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		transport.config.device = names[i];
		ck_assert_int_eq(transport.ops->open(&transport, &why), CEOV_ERR_INVALID);
	}
	testing_log_has(&log_lines, "error", "no network interface 'nosuch0'", NULL);
	transport.config.device = "lo";
	ck_assert_int_eq(transport.ops->open(&transport, &why), 0);
	transport.ops->close(&transport);
}
END_TEST

START_TEST(test_interfaces_are_read_from_what_ucx_prints)
{
	static const struct { const char *line, *name; } lines[] = {
		{ "#      resource 2  :  md 1  dev 2  flags -- tcp/eth0\n#  resource 3", "eth0" },
		{ "#      resource 7  :  md 4  dev 3  flags -A- rc_mlx5/mlx5_0:1 \n", "mlx5_0:1" },
		{ "#      resource 7  :  md 4  dev 3  flags -- tcp/br/0", "br/0" },
		{ "#            md 1  :  component 1  tcp/eth0\n#      resource 0", "" },
		{ "#      resource 2  :  md 1  dev 2  flags -- tcp/\n", "" },
		{ "#      resource 2  :  md 1  dev 2  flags --\ntcp/eth0", "" },
		{ "", "" },
	};
	char name[CEI_TRANSPORT_DEVICE_BYTES], text[200];
	size_t i;

	for (i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		name[0] = '\0';
		ck_assert_int_eq(cei_ucx_device_in(lines[i].line, name), lines[i].name[0] != 0);
		ck_assert_str_eq(name, lines[i].name);
	}
	snprintf(text, sizeof(text), "# resource 1 : tcp/%0100d", 1);
	ck_assert_int_eq(cei_ucx_device_in(text, name), 0);
}
END_TEST

/* Over TCP and shared memory it was tried what lands after a connection has closed. */
START_TEST(test_transports_that_nobody_tried_in_place_are_told)
{
	static const struct { const char *line, *name; } lines[] = {
		{ "#      resource 2  :  md 1  dev 2  flags -- tcp/eth0\n", "" },
		{ "#      resource 0  :  md 0  dev 0  flags -- self/memory\n", "" },
		{ "#      resource 3  :  md 2  dev 1  flags -- posix/memory", "" },
		{ "#      resource 7  :  md 4  dev 3  flags -A- rc_mlx5/mlx5_0:1 \n", "rc_mlx5" },
		{ "#      resource 7  :  md 4  dev 3  flags -- tcpx/eth0", "tcpx" },
		{ "#      resource 7  :  md 4  dev 3  flags -- tc/eth0", "tc" },
		{ "#            md 1  :  component 1  rc_mlx5/mlx5_0:1\n", "" },
		{ "", "" },
	};
	struct cei_transport transport = { .ops = &cei_transport_ucx };
	char name[CEI_UCX_KIND_BYTES];
	const char *why = "";
	size_t i;

	for (i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		name[0] = '\0';
		ck_assert_int_eq(cei_ucx_is_untried(lines[i].line, name),
				 lines[i].name[0] != 0);
		ck_assert_str_eq(name, lines[i].name);
	}
	transport.config.report = &report;
	transport.config.n_peers = 1;
	transport.config.kinds = "tcp,posix,sysv,cma,self";
	ck_assert_int_eq(transport.ops->open(&transport, &why), 0);
	ck_assert_msg(transport.ops->is_tried_in_place(&transport, &why), "%s", why);
	transport.ops->close(&transport);
}
END_TEST

/* Every machine has lo; an interface that does not exist, or is of another kind, is not listed. */
START_TEST(test_ucx_tells_its_interfaces)
{
	struct cei_transport_devices devices;
	uint32_t i, n_lo = 0, n_memory = 0;

	ck_assert_int_eq(cei_transport_ucx.devices(&report, "tcp", &devices), 0);
	for (i = 0; i < devices.n; i++) {
		ck_assert_str_ne(devices.names[i], "memory");
		n_lo += !strcmp(devices.names[i], "lo");
	}
	ck_assert_uint_eq(n_lo, 1);
	ck_assert_int_eq(cei_transport_ucx.devices(&report, "posix", &devices), 0);
	ck_assert_uint_eq(devices.n, 1);
	ck_assert_str_eq(devices.names[0], "memory");
	ck_assert_int_eq(cei_transport_ucx.devices(&report, NULL, &devices), 0);
	for (i = 0; i < devices.n; i++) /* of several transports, and told once */
		n_memory += !strcmp(devices.names[i], "memory");
	ck_assert_uint_eq(n_memory, 1);
	ck_assert_int_eq(cei_transport_ucx.devices(&report, "nosuch", &devices), CEOV_ERR_UCX);
}
END_TEST

START_TEST(test_what_is_not_ours_is_dropped)
{
	const struct strange message = { CEI_UCX_MESSAGE, GOOD, 16, 10, UCP_AM_SEND_FLAG_EAGER };
	const struct strange offer = { CEI_UCX_OFFER, GOOD, 24, 100,
				       UCP_AM_SEND_FLAG_RNDV | UCP_AM_SEND_FLAG_REPLY };
	struct cei_transport a, b;
	ucp_ep_h endpoint;
	size_t i;

	open_transport(&a);
	open_transport(&b);
	seen.transport = &b;
	endpoint = bare_endpoint(a.private, b.private);
	for (i = 0; i < sizeof(strange_ones) / sizeof(strange_ones[0]); i++)
		send_strange(&a, &b, endpoint, &strange_ones[i]);
	ck_assert_uint_eq(seen.n_heard, 0);
	ck_assert_uint_eq(seen.n_offered, 0);
	/* As a check of the test: those with a right label do come, from nobody known. */
	send_strange(&a, &b, endpoint, &message);
	turn_until(&a, &b, &seen.n_heard, 1);
	send_strange(&a, &b, endpoint, &offer);
	turn_until(&a, &b, &seen.n_offered, 1);
	ck_assert_uint_eq(seen.n_heard, 1);
	ck_assert_uint_eq(seen.n_offered, 1);
	testing_log_has(&log_lines, "not of this library", NULL, NULL);
	a.ops->close(&a);
	b.ops->close(&b);
}
END_TEST

/* UCX believes every byte of an address, so none that was changed reaches it. */
START_TEST(test_damaged_addresses_are_refused)
{
	uint8_t address[CEI_TRANSPORT_ADDRESS_MAX];
	struct cei_transport_peer *peer = NULL;
	uint64_t state = testing_seed();
	struct cei_transport a, b;
	uint32_t n_bytes, i;
	uint8_t change;

	open_transport(&a);
	open_transport(&b);
	ck_assert_int_eq(b.ops->address(&b, address, &n_bytes), 0);
	for (i = 0; i < n_bytes; i++) {
		change = (uint8_t)(1 + testing_below(&state, 255));
		address[i] ^= change;
		ck_assert_int_eq(a.ops->peer_open(&a, address, n_bytes, NULL, &peer),
				 CEOV_ERR_INVALID);
		address[i] ^= change;
		ck_assert_int_eq(a.ops->peer_open(&a, address, i, NULL, &peer),
				 CEOV_ERR_INVALID);
	}
	testing_log_has(&log_lines, "should be the address of another process", NULL, NULL);
	a.ops->close(&a);
	b.ops->close(&b);
}
END_TEST

/* The leak sanitizer asks this. It crashes now and then while it walks the memory of UCX's own
 * thread; other errors are still found. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}

int main(void)
{
	Suite *suite = suite_create("ucx");
	TCase *cases = tcase_create("ucx");
	struct cei_ucx_calls calls;
	const char *why = NULL;
	int status = 0;
	pid_t child;

	/* In a child: a library that is loaded would spoil the first case. */
	open_report();
	child = fork();
	if (!child)
		_exit(cei_ucx_load(&report, &calls, &why) ? SKIPPED : 0);
	close_report();
	if (child < 0 || waitpid(child, &status, 0) != child || WEXITSTATUS(status) == SKIPPED) {
		puts("there is no libucp.so.0 of UCX 1.13 or newer");
		return SKIPPED;
	}
	tcase_add_checked_fixture(cases, open_report, close_report);
	tcase_set_timeout(cases, 30);
	tcase_add_test(cases, test_ucx_is_loaded_only_when_asked_for);
	tcase_add_loop_test(cases, test_loading_leaves_signal_handlers_as_they_were, 0, 3);
	tcase_add_test(cases, test_an_interface_that_does_not_exist_is_refused);
	tcase_add_test(cases, test_interfaces_are_read_from_what_ucx_prints);
	tcase_add_test(cases, test_transports_that_nobody_tried_in_place_are_told);
	tcase_add_test(cases, test_ucx_tells_its_interfaces);
	tcase_add_test(cases, test_damaged_addresses_are_refused);
	tcase_add_test(cases, test_what_is_not_ours_is_dropped);
	suite_add_tcase(suite, cases);
	return testing_run(suite);
}
