/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Draws what the daemon does. */

#include "tools/ctl/frame.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "tools/ctl/ctl.h"

#define BAR_MOST  60u
#define BAR_LEAST 8u

/* Columns of a row beside its bar. */
#define LINK_COLUMNS   62u
#define CLIENT_COLUMNS 81u

/* Colours of 256: what urgent, normal and background copies have; the rest of a bar; titles. */
static const char *const colours[SCENE_CLASSES] = { "38;5;209", "38;5;75", "38;5;108" };
#define TRACK "48;5;236"
#define TITLE "38;5;245"
#define BUSY  "38;5;221"

/* Lines end with what is behind them cleared. */
static const char line_end[] = "\033[K\r\n";

static void colour(FILE *out, const struct frame_look *look, const char *code)
{
	if (look->has_colours)
		fprintf(out, "\033[%sm", code);
}

static void plain(FILE *out, const struct frame_look *look)
{
	colour(out, look, "0");
}

/* --- bars ------------------------------------------------------------------- */

/* Writes n eighths of cells, all full but the last; returns how many cells that were. */
static uint32_t put_cells(FILE *out, const struct frame_look *look, uint32_t n_eighths)
{
	static const char *const parts[] = { "", "\u258f", "\u258e", "\u258d", "\u258c", "\u258b",
					     "\u258a", "\u2589" };
	uint32_t i, n = n_eighths / 8;

	for (i = 0; i < n; i++)
		fputs(look->is_utf8 ? "\u2588" : "#", out);
	if (n_eighths % 8 && look->is_utf8)
		fputs(parts[n_eighths % 8], out);
	return n + (n_eighths % 8 && look->is_utf8);
}

/* How many eighths of cells a rate is, where `most` is all of them. */
static uint32_t eighths(uint64_t rate, uint64_t most, uint32_t n_cells)
{
	double part = most ? (double)rate / (double)most : 0;

	return (uint32_t)((part > 1 ? 1 : part) * n_cells * 8 + 0.5);
}

/* The classes beside each other; all but the last one end with a full cell. */
static void put_bar(FILE *out, const struct frame_look *look, const struct scene_row *row,
		    uint64_t most, uint32_t n_cells)
{
	uint64_t sum = 0;
	uint32_t i, n = 0, to;

	colour(out, look, TRACK);
	for (i = 0; i < SCENE_CLASSES; i++) {
		sum += row->rate[i];
		to = eighths(sum, most, n_cells);
		if (i < SCENE_CLASSES - 1 && sum < scene_rate(row))
			to = to / 8 * 8;
		if (to <= n * 8 || !row->rate[i])
			continue;
		colour(out, look, colours[i]);
		n += put_cells(out, look, to - n * 8);
	}
	for (; n < n_cells; n++)
		fputc(look->has_colours ? ' ' : '.', out);
	plain(out, look);
}

static uint32_t bar_cells(const struct frame_look *look, uint32_t n_others)
{
	uint32_t n = look->n_columns > n_others ? look->n_columns - n_others : 0;

	return n < BAR_LEAST ? BAR_LEAST : n > BAR_MOST ? BAR_MOST : n;
}

/* Rates of late as a line of blocks of eight heights. */
static void put_history(FILE *out, const struct frame_look *look, const struct scene *scene)
{
	static const char *const blocks[] = { " ", "\u2581", "\u2582", "\u2583", "\u2584",
					      "\u2585", "\u2586", "\u2587", "\u2588" };
	uint64_t most = 1;
	uint32_t i;

	if (!look->is_utf8 || look->n_columns < SCENE_HISTORY + 20)
		return;
	for (i = 0; i < scene->n_history; i++)
		most = scene->history[i] > most ? scene->history[i] : most;
	colour(out, look, colours[SCENE_NORMAL]);
	for (i = 0; i < scene->n_history; i++)
		fputs(blocks[(scene->history[i] * 8 + most - 1) / most], out);
	plain(out, look);
}

/* --- rows ------------------------------------------------------------------- */

static void put_depth(FILE *out, const struct frame_look *look, uint64_t n)
{
	if (n)
		colour(out, look, BUSY);
	fprintf(out, " %6" PRIu64, n);
	if (n)
		plain(out, look);
}

static void put_link(FILE *out, const struct frame_look *look, const struct scene_row *row,
		     uint64_t most)
{
	uint64_t rate = scene_rate(row), top = row->rated ? row->rated : most;
	uint32_t percent = top ? (uint32_t)(100.0 * (double)rate / (double)top + 0.5) : 0;

	fprintf(out, "  %-14.14s %10s ", row->name, ctl_rate(rate).text);
	put_bar(out, look, row, top, bar_cells(look, LINK_COLUMNS));
	fprintf(out, " %3u%%", percent < 999 ? percent : 999);
	put_depth(out, look, row->waiting);
	fprintf(out, " %5" PRIu64 " %7s %7s%s", row->moving, ctl_us(row->wait_p99_us).text,
		ctl_us(row->copy_p99_us).text, line_end);
}

static uint32_t class_of(const struct scene_row *row)
{
	return *row->class == 'u' ? SCENE_URGENT : *row->class == 'b' ? SCENE_BACKGROUND
		: SCENE_NORMAL;
}

static void put_client(FILE *out, const struct frame_look *look, const struct scene_row *row,
		       uint64_t most)
{
	fprintf(out, "  %4" PRIu64 " %-16.16s %8" PRIu64 " %-8.8s ", row->key, row->name, row->pid,
		row->user);
	colour(out, look, colours[class_of(row)]);
	fprintf(out, "%-10.10s", row->class);
	plain(out, look);
	fprintf(out, " %10s ", ctl_rate(scene_rate(row)).text);
	put_bar(out, look, row, most, bar_cells(look, CLIENT_COLUMNS));
	put_depth(out, look, row->waiting);
	fprintf(out, " %5" PRIu64, row->plans);
	if (row->unarbitrated)
		fprintf(out, "+%" PRIu64, row->unarbitrated);
	fputs(line_end, out);
}

static uint64_t most_of(const struct scene_row *rows, uint32_t n)
{
	uint64_t most = 0;
	uint32_t i;

	for (i = 0; i < n; i++)
		most = scene_rate(&rows[i]) > most ? scene_rate(&rows[i]) : most;
	return most;
}

/* Returns how many of n rows there is room for; where not for all, one line says so. */
static uint32_t fit(uint32_t n, uint32_t n_lines)
{
	return n <= n_lines ? n : n_lines ? n_lines - 1 : 0;
}

static void put_more(FILE *out, uint32_t n)
{
	if (n)
		fprintf(out, "  and %u more%s", n, line_end);
}

static void put_head(FILE *out, const struct frame_look *look, const struct scene *scene)
{
	uint32_t i;

	colour(out, look, "1");
	fprintf(out, " %.*s", (int)look->n_columns - 1, scene->head);
	plain(out, look);
	fprintf(out, "%s %10s ", line_end, ctl_rate(scene->rate).text);
	put_history(out, look, scene);
	fprintf(out, "%s fairness %.3f  ", line_end, scene->fairness);
	for (i = 0; i < SCENE_CLASSES; i++) {
		colour(out, look, colours[i]);
		fprintf(out, " %s %s", look->is_utf8 ? "\u25a0" : "#", ctl_classes[i]);
		plain(out, look);
	}
	colour(out, look, TITLE);
	fprintf(out, "   q ends%s%s", line_end, line_end);
}

static void put_links(FILE *out, const struct frame_look *look, const struct scene *scene,
		      uint32_t n_lines)
{
	uint64_t most = most_of(scene->links, scene->n_links);
	uint32_t i, n = fit(scene->n_links, n_lines);

	colour(out, look, TITLE);
	fprintf(out, "  %-14s %10s %-*s %4s %6s %5s %7s %7s", "LINK", "RATE",
		(int)bar_cells(look, LINK_COLUMNS), "", "", "WAIT", "MOVE", "WAIT99", "COPY99");
	plain(out, look);
	fputs(line_end, out);
	for (i = 0; i < n; i++)
		put_link(out, look, &scene->links[i], most);
	put_more(out, scene->n_links - n);
	fputs(line_end, out);
}

static void put_clients(FILE *out, const struct frame_look *look, const struct scene *scene,
			uint32_t n_lines)
{
	uint64_t most = most_of(scene->clients, scene->n_clients);
	uint32_t i, n = fit(scene->n_clients + scene->n_clients_more, n_lines);

	n = n < scene->n_clients ? n : scene->n_clients;
	colour(out, look, TITLE);
	fprintf(out, "  %4s %-16s %8s %-8s %-10s %10s %-*s %6s %5s", "", "CLIENT", "PROCESS",
		"USER", "CLASS", "RATE", (int)bar_cells(look, CLIENT_COLUMNS), "", "WAIT", "PLANS");
	plain(out, look);
	fputs(line_end, out);
	for (i = 0; i < n; i++)
		put_client(out, look, &scene->clients[i], most);
	put_more(out, scene->n_clients + scene->n_clients_more - n);
}

/* Links get half of the screen at most, unless clients need less. The last line stays empty. */
void frame_draw(FILE *out, const struct frame_look *look, const struct scene *scene)
{
	uint32_t n_lines = look->n_rows > 10 ? look->n_rows - 8 : 2;
	uint32_t n_clients = scene->n_clients + scene->n_clients_more;
	uint32_t n_links = n_lines - (n_clients < n_lines / 2 ? n_clients : n_lines / 2);

	fputs("\033[H", out);
	put_head(out, look, scene);
	put_links(out, look, scene, n_links);
	if (scene->n_links < n_links)
		n_links = scene->n_links;
	put_clients(out, look, scene, n_lines - n_links);
	fputs("\033[J", out);
}

/* --- lines ------------------------------------------------------------------ */

void frame_print(FILE *out, const struct scene *scene)
{
	time_t now = time(NULL);
	const struct scene_row *row;
	struct tm local;
	char when[16];
	uint32_t i;

	(void)localtime_r(&now, &local);
	(void)strftime(when, sizeof(when), "%H:%M:%S", &local);
	fprintf(out, "%s all %s, fairness %.3f\n", when, ctl_rate(scene->rate).text,
		scene->fairness);
	for (i = 0; i < scene->n_links; i++) {
		row = &scene->links[i];
		fprintf(out, "%s link %s: %s, %" PRIu64 " wait, %" PRIu64 " move\n", when,
			row->name, ctl_rate(scene_rate(row)).text, row->waiting, row->moving);
	}
	for (i = 0; i < scene->n_clients; i++) {
		row = &scene->clients[i];
		fprintf(out, "%s client %" PRIu64 " %s (%" PRIu64 ") of %s, %s: %s, %" PRIu64
			" wait\n", when, row->key, row->name, row->pid, row->user, row->class,
			ctl_rate(scene_rate(row)).text, row->waiting);
	}
}
