/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Writes metrics as text. */

#include "daemon/operator/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/urgency.h"
#include "daemon/operator/links.h"
#include "daemon/operator/picture.h"
#include "daemon/server/client.h"
#include "daemon/server/server.h"

/* Errors of launches, by their number without sign, as labels: they stay the same when a message
 * is worded anew. */
static const char *error_name(int error)
{
	switch (-error) {
	case -CEOV_ERR_INVALID:     return "invalid";
	case -CEOV_ERR_STATE:       return "state";
	case -CEOV_ERR_NO_MEMORY:   return "no_memory";
	case -CEOV_ERR_NO_ROUTE:    return "no_route";
	case -CEOV_ERR_SYSTEM:      return "system";
	case -CEOV_ERR_CUDA:        return "cuda";
	case -CEOV_ERR_PEER_LOST:   return "peer_lost";
	case -CEOV_ERR_ABORTED:     return "aborted";
	case -CEOV_ERR_TIMEOUT:     return "timeout";
	case -CEOV_ERR_UNCERTAIN:   return "uncertain";
	case -CEOV_ERR_DAEMON_LOST: return "daemon_lost";
	default:                    return "other";
	}
}

/* Begins a metric: what it is, and its type. */
static void begin(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP ceoverlap_%s %s\n# TYPE ceoverlap_%s %s\n", name, help, name, type);
}

static void put(FILE *out, const char *name, uint64_t value)
{
	fprintf(out, "ceoverlap_%s %" PRIu64 "\n", name, value);
}

/* --- the daemon ------------------------------------------------------------------ */

static void write_errors(const struct cei_server *server, FILE *out)
{
	uint64_t n, others = 0;
	int error;

	begin(out, "launch_errors_total", "counter", "Launches that failed, by error.");
	for (error = -1; error >= CEI_ERROR_LOWEST; error--) {
		/* relaxed: statistics */
		n = atomic_load_explicit(&server->n_errors[-error], memory_order_relaxed);
		if (!strcmp(error_name(error), "other"))
			others += n;
		else
			fprintf(out, "ceoverlap_launch_errors_total{error=\"%s\"} %" PRIu64 "\n",
				error_name(error), n);
	}
	fprintf(out, "ceoverlap_launch_errors_total{error=\"other\"} %" PRIu64 "\n", others);
}

static void write_daemon(struct cei_server *server, const struct cei_usage *sum, FILE *out)
{
	uint32_t i;

	begin(out, "info", "gauge", "The daemon's version.");
	fprintf(out, "ceoverlap_info{version=\"%s\"} 1\n", ceov_version());
	begin(out, "clients", "gauge", "Clients that are connected.");
	put(out, "clients", sum->n_clients);
	begin(out, "draining", "gauge", "1: the daemon is about to end.");
	put(out, "draining", server->is_draining != 0);
	begin(out, "unarbitrated_plans_total", "counter",
	      "Plans that clients carry out in their processes, beside the daemon.");
	put(out, "unarbitrated_plans_total", sum->n_stayed);
	begin(out, "launches_total", "counter", "Launches that have ended.");
	put(out, "launches_total", sum->n_launches);
	write_errors(server, out);
	begin(out, "fairness_jain_index", "gauge", "Jain's index of the rates of clients that "
	      "move data, each divided by its weight; 1: all alike.");
	fprintf(out, "ceoverlap_fairness_jain_index %.6f\n", server->fairness);
	begin(out, "config_reloads_total", "counter", "Times that settings were read again.");
	put(out, "config_reloads_total", server->n_reloads);
	begin(out, "config_last_reload_successful", "gauge", "0: the file has a wrong line.");
	put(out, "config_last_reload_successful", !*server->fault.text);
	begin(out, "engine_turns_total", "counter", "Turns of engines' loops.");
	for (i = 0; i < server->site.n_members; i++)
		fprintf(out, "ceoverlap_engine_turns_total{engine=\"%u\"} %" PRIu64 "\n", i,
			cei_intake_turns(&server->intakes[i]));
}

static void write_fences(const struct cei_server *server, FILE *out)
{
	const struct ceov_member *member;
	char place[24];
	uint32_t i;

	begin(out, "fenced", "gauge", "1: the engine's place is lost, and it gets no work.");
	for (i = 0; i < server->site.n_members; i++) {
		member = &server->site.members[i];
		snprintf(place, sizeof(place), "host");
		if (member->place.kind == CEOV_PLACE_GPU)
			snprintf(place, sizeof(place), "gpu%u", member->place.index);
		fprintf(out, "ceoverlap_fenced{engine=\"%u\",place=\"%s\"} %d\n", i, place,
			server->fences.since_ns[i] != 0);
	}
}

/* --- users ------------------------------------------------------------------------ */

static void write_user(FILE *out, const char *name, uint32_t uid, const char *more,
		       uint64_t value)
{
	char text[16] = "other";

	if (uid != CEI_USAGE_OTHERS)
		snprintf(text, sizeof(text), "%u", uid);
	fprintf(out, "ceoverlap_%s{uid=\"%s\"%s} %" PRIu64 "\n", name, text, more, value);
}

static void write_users(const struct cei_usage_table *table, FILE *out)
{
	char class[40];
	uint32_t i, k;

	begin(out, "user_clients", "gauge", "Clients of a user that are connected.");
	for (i = 0; i < table->n; i++)
		write_user(out, "user_clients", table->users[i].uid, "",
			   table->users[i].usage.n_clients);
	begin(out, "user_mapped_bytes", "gauge", "Memory of a user's clients that is mapped.");
	for (i = 0; i < table->n; i++)
		write_user(out, "user_mapped_bytes", table->users[i].uid, "",
			   table->users[i].usage.n_mapped);
	begin(out, "user_bytes_total", "counter", "Bytes moved for a user, of clients that have "
	      "shares of their own.");
	for (i = 0; i < table->n; i++) {
		for (k = 0; k < CEI_FLOWS_URGENCIES; k++) {
			snprintf(class, sizeof(class), ",class=\"%s\"", cei_urgency_name(k));
			write_user(out, "user_bytes_total", table->users[i].uid, class,
				   table->users[i].usage.bytes[k]);
		}
	}
}

/* --- links ------------------------------------------------------------------------ */

static void write_times(FILE *out, const char *name, const char *labels,
			const struct cei_tally_times_view *times)
{
	uint64_t n = 0;
	uint32_t i;

	for (i = 0; i < CEI_TALLY_BUCKETS - 1; i++) {
		n += times->n[i];
		fprintf(out, "ceoverlap_%s_bucket{%s,le=\"%.6f\"} %" PRIu64 "\n", name, labels,
			(double)(UINT64_C(1) << i) / 1e6, n);
	}
	fprintf(out, "ceoverlap_%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n", name, labels,
		times->n_all);
	fprintf(out, "ceoverlap_%s_sum{%s} %.9f\n", name, labels, (double)times->sum_ns / 1e9);
	fprintf(out, "ceoverlap_%s_count{%s} %" PRIu64 "\n", name, labels, times->n_all);
}

/* Calls write() for each class of each link that has moved something. */
static void for_each_class(const struct cei_links *links, FILE *out,
			   void (*write)(FILE *out, const char *labels,
					 const struct cei_tally_class_view *class))
{
	const struct cei_tally_class_view *class;
	char labels[CEI_LINKS_NAME_BYTES + 40];
	uint32_t i, k;

	for (i = 0; i < links->n; i++) {
		for (k = 0; k < CEI_FLOWS_URGENCIES; k++) {
			class = &links->links[i].view.classes[k];
			snprintf(labels, sizeof(labels), "link=\"%s\",class=\"%s\"",
				 links->links[i].name, cei_urgency_name(k));
			if (class->moved.n_all)
				write(out, labels, class);
		}
	}
}

static void write_bytes(FILE *out, const char *labels, const struct cei_tally_class_view *class)
{
	fprintf(out, "ceoverlap_link_bytes_total{%s} %" PRIu64 "\n", labels, class->bytes);
}

static void write_chunks(FILE *out, const char *labels, const struct cei_tally_class_view *class)
{
	fprintf(out, "ceoverlap_link_chunks_total{%s} %" PRIu64 "\n", labels, class->moved.n_all);
}

static void write_waits(FILE *out, const char *labels, const struct cei_tally_class_view *class)
{
	write_times(out, "queue_wait_seconds", labels, &class->waited);
}

static void write_copies(FILE *out, const char *labels, const struct cei_tally_class_view *class)
{
	write_times(out, "copy_seconds", labels, &class->moved);
}

static void write_depths(const struct cei_links *links, FILE *out)
{
	uint32_t i;

	begin(out, "link_waiting_chunks", "gauge", "Chunks that wait for a link now.");
	for (i = 0; i < links->n; i++)
		fprintf(out, "ceoverlap_link_waiting_chunks{link=\"%s\"} %u\n",
			links->links[i].name, links->links[i].view.n_waiting);
	begin(out, "link_moving_chunks", "gauge", "Chunks that move over a link now.");
	for (i = 0; i < links->n; i++)
		fprintf(out, "ceoverlap_link_moving_chunks{link=\"%s\"} %u\n",
			links->links[i].name, links->links[i].view.n_moving);
}

static void write_links(const struct cei_links *links, FILE *out)
{
	begin(out, "link_bytes_total", "counter", "Bytes that went over a link, by class.");
	for_each_class(links, out, write_bytes);
	begin(out, "link_chunks_total", "counter", "Chunks that went over a link, by class.");
	for_each_class(links, out, write_chunks);
	write_depths(links, out);
	begin(out, "queue_wait_seconds", "histogram",
	      "Time from when a chunk could go until it was chosen.");
	for_each_class(links, out, write_waits);
	begin(out, "copy_seconds", "histogram",
	      "Time from when a chunk was chosen until it was off its lane.");
	for_each_class(links, out, write_copies);
}

/* What part of the chunks of each class was done in time. */
static void write_aims(const struct cei_links *links, FILE *out)
{
	uint64_t n[CEI_FLOWS_URGENCIES] = { 0 }, n_in_time[CEI_FLOWS_URGENCIES] = { 0 };
	uint32_t i, k;

	for (i = 0; i < links->n; i++) {
		for (k = 0; k < CEI_FLOWS_URGENCIES; k++) {
			n[k] += links->links[i].view.classes[k].n_aimed;
			n_in_time[k] += links->links[i].view.classes[k].n_in_time;
		}
	}
	begin(out, "slo_chunks_total", "counter",
	      "Chunks of classes that have a time to be done in, and whether they were.");
	for (k = 0; k < CEI_FLOWS_URGENCIES; k++) {
		fprintf(out, "ceoverlap_slo_chunks_total{class=\"%s\",met=\"yes\"} %" PRIu64 "\n",
			cei_urgency_name(k), n_in_time[k]);
		fprintf(out, "ceoverlap_slo_chunks_total{class=\"%s\",met=\"no\"} %" PRIu64 "\n",
			cei_urgency_name(k), n[k] - (n_in_time[k] < n[k] ? n_in_time[k] : n[k]));
	}
	begin(out, "slo_attainment_ratio", "gauge",
	      "The part of these chunks that was done in time, since the start.");
	for (k = 0; k < CEI_FLOWS_URGENCIES; k++)
		if (n[k])
			fprintf(out, "ceoverlap_slo_attainment_ratio{class=\"%s\"} %.6f\n",
				cei_urgency_name(k), (double)n_in_time[k] / (double)n[k]);
}

static void write_all(struct cei_server *server, FILE *out)
{
	struct cei_links *links = cei_links_read(&server->works);
	struct cei_usage_table table;
	struct cei_usage sum;

	cei_picture_usage(server, &table);
	sum = cei_usage_sum(&table);
	write_daemon(server, &sum, out);
	write_fences(server, out);
	write_users(&table, out);
	if (links) {
		write_links(links, out);
		write_aims(links, out);
	}
	free(links);
}

/* --- as a text ---------------------------------------------------------------------- */

char *cei_metrics_text(struct cei_server *server)
{
	char *text = NULL;
	size_t n;
	FILE *out = open_memstream(&text, &n);

	if (!out)
		return NULL;
	write_all(server, out);
	if (!fclose(out))
		return text;
	free(text);
	return NULL;
}

const char *cei_metrics_scrape(struct cei_server *server, uint64_t now_ns)
{
	if (server->metrics && now_ns < server->metrics_until_ns)
		return server->metrics;
	cei_metrics_forget(server);
	server->metrics = cei_metrics_text(server);
	server->metrics_until_ns = now_ns + CEI_METRICS_FRESH_NS;
	return server->metrics;
}

void cei_metrics_forget(struct cei_server *server)
{
	free(server->metrics);
	server->metrics = NULL;
}

/* --- the text file ------------------------------------------------------------------ */

/* A new file, and nothing that is there already: to open a pipe would last until somebody reads
 * it. Returns -1 with errno set. */
static int open_fresh(const char *path)
{
	if (unlink(path) && errno != ENOENT)
		return -1;
	return open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
}

/* Others read it, whatever the umask is, so it is replaced whole. */
static int replace(struct cei_server *server, const char *path, const char *beside)
{
	int fd = open_fresh(beside), error;
	FILE *out = fd < 0 || fchmod(fd, 0644) ? NULL : fdopen(fd, "w");

	if (!out) {
		error = errno;
		if (fd >= 0)
			close(fd);
		return error;
	}
	write_all(server, out);
	error = ferror(out) ? EIO : 0;
	if (fclose(out) && !error)
		error = errno;
	return error || !rename(beside, path) ? error : errno;
}

int cei_metrics_write_file(struct cei_server *server)
{
	const char *path = server->config.settings.textfile;
	char beside[CEI_SETTINGS_TEXT_BYTES + 8];
	int error;

	snprintf(beside, sizeof(beside), "%s.new", path);
	error = replace(server, path, beside);
	if (!error)
		return 0;
	(void)unlink(beside);
	return cei_raise(&server->report, CEOV_ERR_SYSTEM, error, "metrics: %s: %s", path,
			 strerror(error));
}
