/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Writes the sweep's report for readers: one XHTML file with its style and its pictures. It needs
 * no network and no scripts, and suits light and dark screens and paper.
 */

#include <inttypes.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "tools/bench/sweep/sweep.h"
#include "tools/common/output.h"

static const char *const style =
"*{box-sizing:border-box}\n"
":root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--ink:#16202c;--dim:#556271;"
"--rule:#d9dee5;--heat:#0b5394;--strong:#fff;--direct:#0067a5;--all:#c04a00;--raw:#5f6b78;"
"--model:#00795a;--bad:#b3001b;--on:#fff;--c0:#0067a5;--c1:#b84700;--c2:#00795a;--c3:#8a4a86;"
"--c4:#7a6400;--c5:#3d5a99;--c6:#97304f;--c7:#4f5b66}\n"
"@media(prefers-color-scheme:dark){:root{--page:#10151b;--card:#18202a;--ink:#e6ebf1;"
"--dim:#9fadbc;--rule:#2e3945;--heat:#58b0f2;--strong:#08131f;--direct:#58b0f2;--all:#ff9a4d;"
"--raw:#a9b4c0;--model:#3ecf9f;--bad:#ff7a86;--on:#08131f;--c0:#58b0f2;--c1:#ff9a4d;"
"--c2:#3ecf9f;--c3:#d9a0d5;--c4:#e5cf5a;--c5:#9db7f5;--c6:#f08fae;--c7:#b6c0ca}}\n"
"body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"
"'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}\n"
"main{max-width:1080px;margin:0 auto;padding:28px 20px 60px}\n"
"h1{font-size:26px;line-height:1.2;margin:0 0 2px}h2{font-size:18px;margin:0 0 4px}"
"h3{font-size:14px;margin:18px 0 4px;color:var(--dim);font-weight:600}\n"
"p{margin:4px 0 10px;max-width:78ch}.lead,.note{color:var(--dim)}.note{font-size:13.5px}\n"
"section,header{background:var(--card);border:1px solid var(--rule);border-radius:10px;"
"padding:20px 22px;margin:0 0 18px;overflow-x:auto}\n"
"dl{display:grid;grid-template-columns:max-content 1fr;gap:3px 18px;margin:14px 0 0}"
"dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}code{font:13px/1.4 ui-monospace,"
"SFMono-Regular,Menlo,Consolas,monospace}\n"
"svg{display:block;max-width:100%;height:auto;margin:8px 0;font-size:12.5px}"
"svg text{fill:var(--ink)}.end{text-anchor:end}.mid,.value,.strong{text-anchor:middle}"
"svg .label,svg .tick{fill:var(--dim)}svg .strong{fill:var(--strong);font-weight:600}"
".heat{fill:var(--heat)}.none{fill:none;stroke:var(--rule);stroke-dasharray:3 3}\n"
".grid{stroke:var(--rule)}.bound{stroke:var(--bad);stroke-width:1.5;stroke-dasharray:6 3}"
".line{fill:none;stroke-width:2}.line.direct{stroke:var(--direct)}.line.all{stroke:var(--all)}"
".line.all{stroke-dasharray:10 4}"
".line.raw{stroke:var(--raw);stroke-dasharray:2 3}.line.model{stroke:var(--model);"
"stroke-dasharray:8 4;stroke-width:2.5}.direct{fill:var(--direct)}.all,.fifo{fill:var(--all)}"
".raw{fill:var(--raw)}.point.all rect,.point.fifo rect{fill:none;stroke:var(--all);"
"stroke-width:2}.line.direct,.line.all,.line.raw,.line.model{fill:none}\n"
".c0{fill:var(--c0)}.c1{fill:var(--c1)}.c2{fill:var(--c2)}.c3{fill:var(--c3)}.c4{fill:var(--c4)}"
".c5{fill:var(--c5)}.c6{fill:var(--c6)}.c7{fill:var(--c7)}svg .on{fill:var(--on);"
"font-size:12px;font-weight:600}\n"
"ul.key{list-style:none;display:flex;flex-wrap:wrap;gap:4px 20px;padding:0;margin:8px 0 0;"
"font-size:13.5px}ul.key svg{display:inline-block;vertical-align:middle;margin:0 6px 0 0}\n"
"table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}"
"th,td{padding:3px 10px;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}"
"th{color:var(--dim);font-weight:600}td:nth-child(-n+3),th:nth-child(-n+3){text-align:left}"
"summary{cursor:pointer;color:var(--direct)}.bad{color:var(--bad);font-weight:700}\n"
".two{display:grid;grid-template-columns:repeat(auto-fit,minmax(440px,1fr));gap:0 24px}"
".wrap{display:flex;flex-wrap:wrap;gap:0 36px}\n"
"@media print{body{background:#fff}section,header{break-inside:avoid;border:0}}\n";

/* Prints untrusted text with its markup escaped. */
static void say(FILE *out, const char *text)
{
	for (; *text; text++) {
		switch (*text) {
		case '<': fputs("&lt;", out); break;
		case '>': fputs("&gt;", out); break;
		case '&': fputs("&amp;", out); break;
		case '"': fputs("&quot;", out); break;
		default:
			fputc((unsigned char)*text < ' ' ? ' ' : *text, out);
		}
	}
}

static int has_test(const struct sweep *sweep, const char *test)
{
	uint32_t i;

	for (i = 0; i < sweep->n_rows; i++)
		if (!strcmp(sweep->rows[i].test, test))
			return 1;
	return 0;
}

/* --- head ----------------------------------------------------------------- */

static void fact(FILE *out, const char *name, const char *text)
{
	fprintf(out, "<dt>%s</dt><dd>", name);
	say(out, text);
	fputs("</dd>\n", out);
}

static void head(FILE *out, const struct sweep *sweep)
{
	struct utsname host;
	time_t seconds = time(NULL);
	char text[512];
	struct tm utc;

	fputs("<header><h1>What this machine's links carry</h1>\n<p class=\"lead\">ceoverlap-bench "
	      "sweep: bandwidth between all places, by size and by route, and what plans of many "
	      "transfers take.</p>\n<dl>\n", out);
	gmtime_r(&seconds, &utc);
	strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &utc);
	fact(out, "Time", text);
	fact(out, "Machine", sweep->machine);
	sweep_machine(sweep, text, sizeof(text));
	fact(out, "The model's machine", text[0] ? text : "none: costs of kinds of links only");
	snprintf(text, sizeof(text), "%u %s", sweep->n_ranks, sweep->is_gpu
		 ? "GPUs, one rank each, and the host's memory"
		 : "ranks on host memory, and one more as \"host\"; no GPU was used");
	fact(out, "Ranks", text);
	fact(out, "ceoverlap", ceov_version());
	if (!uname(&host)) {
		snprintf(text, sizeof(text), "%s %s, %s", host.sysname, host.release,
			 host.machine);
		fact(out, "System", text);
	}
	fputs("<dt>Command</dt><dd><code>", out);
	say(out, sweep->options->command);
	fputs("</code></dd>\n", out);
	snprintf(text, sizeof(text), "%" PRIu64 " (data and random plans)",
		 sweep->options->seed);
	fact(out, "Seed", text);
	snprintf(text, sizeof(text), "%u of each row, after %u that do not count",
		 sweep->options->n_samples, sweep->options->n_warmup);
	fact(out, "Samples", text);
	fputs("</dl></header>\n", out);
}

/* --- coverage of the measurement ------------------------------------------ */

static void measured(FILE *out, const struct sweep *sweep)
{
	static const char *const tests[] = { "pairs", "host", "all_gather", "all_to_all",
					     "random", "urgent", "load" };
	uint32_t i, n_verified = 0, n_unchecked = 0, n = 0;

	for (i = 0; i < sweep->n_rows; i++) {
		n_verified += sweep->rows[i].verified > 0;
		n_unchecked += sweep->rows[i].verified < 0;
	}
	fputs("<section id=\"measured\"><h2>What was measured, and what was not</h2>\n<p>", out);
	fprintf(out, "%u rows. Data of %u was verified, of %u not looked at", sweep->n_rows,
		n_verified, n_unchecked);
	if (sweep->n_bad_rows)
		fprintf(out, ", and <span class=\"bad\">of %u it was wrong</span>",
			sweep->n_bad_rows);
	fputs(".", out);
	for (i = 0; i < 7; i++)
		if (!has_test(sweep, tests[i]))
			fprintf(out, "%s%s", n++ ? ", " : " Not run: ", tests[i]);
	fprintf(out, "%s</p>\n<p class=\"note\">Times are of the launching thread's clock, from "
		"the first call to the last launch seen done, divided by the launches that were "
		"in flight together; medians, with methods taking turns sample by sample. One "
		"process holds all ranks. &#8220;raw&#8221; is %s. The model's curve is what the "
		"library expected when it made the plan. ", n ? "." : "", sweep->is_gpu
		? "the driver's own copies, queued by hand, without flags"
		: "memcpy in one thread");
	if (!sweep->is_gpu)
		fputs("Ranks stand in for GPUs: these figures are this processor's, and say "
		      "nothing about a GPU. ", out);
	fputs("</p></section>\n", out);
}

/* --- sections ------------------------------------------------------------- */

static void matrices(FILE *out, const struct sweep *sweep)
{
	static const char *const methods[][2] = {
		{ "direct", "Direct paths only" }, { "all", "All routes at once" } };
	struct sweep_key key = { .test = NULL };
	const struct sweep_row *row = NULL;
	char size[24] = "?";
	uint32_t i, k;

	for (k = 0; k < sweep->n_rows && !row; k++)
		if (sweep->rows[k].source >= 0 && strcmp(sweep->rows[k].test, "urgent")) {
			key = (struct sweep_key){ NULL, "direct", sweep->rows[k].source,
						  sweep->rows[k].target, 0 };
			row = sweep_find(sweep, &key);
		}
	if (row)
		sweep_size(row->bytes, size);
	fprintf(out, "<section id=\"matrix\"><h2>From each place to each</h2>\n<p class=\"note\">"
		"GB/s of one transfer of %s at a time, launches back to back; rows "
		"send, columns receive; the darker the faster (in dark view: the brighter)."
		"</p>\n<div class=\"wrap\">\n", size);
	for (i = 0; i < 2; i++) {
		fprintf(out, "<div><h3>%s</h3>\n", methods[i][1]);
		sweep_svg_matrix(out, sweep, methods[i][0]);
		fputs("</div>\n", out);
	}
	fputs("</div></section>\n", out);
}

static void key_of_curves(FILE *out)
{
	static const char begin[] = "<svg width=\"26\" height=\"12\" viewBox=\"0 0 26 12\" "
		"aria-hidden=\"true\">";

	fprintf(out, "<ul class=\"key\">\n<li>%s<polyline class=\"line direct\" "
		"points=\"0,6 26,6\"/><g class=\"direct\"><circle cx=\"13\" cy=\"6\" r=\"4\"/>"
		"</g></svg>direct</li>\n", begin);
	fprintf(out, "<li>%s<polyline class=\"line all\" points=\"0,6 26,6\"/><g class=\"point "
		"all\"><rect x=\"9\" y=\"2\" width=\"8\" height=\"8\"/></g></svg>all routes</li>"
		"\n", begin);
	fprintf(out, "<li>%s<polyline class=\"line raw\" points=\"0,6 26,6\"/><g class=\"raw\">"
		"<path d=\"M13 1l5 9h-10z\"/></g></svg>raw copies</li>\n", begin);
	fprintf(out, "<li>%s<polyline class=\"line model\" points=\"0,6 26,6\"/></svg>cost model "
		"(direct)</li>\n</ul>\n", begin);
}

/* Prints the curves: one pair, the host in both directions, collectives. */
static void curves(FILE *out, const struct sweep *sweep)
{
	int32_t host = (int32_t)sweep->n_ranks;
	const struct {
		struct sweep_key key;
		const char      *name;
	} wanted[] = {
		{ { "pairs", NULL, 0, 1, 0 }, "A pair of ranks" },
		{ { "host", NULL, host, 0, 0 }, "From host memory to a rank" },
		{ { "host", NULL, 0, host, 0 }, "From a rank to host memory" },
		{ { "all_gather", NULL, -1, -1, 0 }, "All-gather, received by each rank" },
		{ { "all_to_all", NULL, -1, -1, 0 }, "All-to-all, received by each rank" },
	};
	struct sweep_key key;
	uint32_t i;

	fputs("<section id=\"curves\"><h2>Bandwidth over size</h2>\n", out);
	key_of_curves(out);
	fputs("<div class=\"two\">\n", out);
	for (i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		key = wanted[i].key;
		key.method = "direct";
		if (!sweep_find(sweep, &key))
			continue;
		fprintf(out, "<div><h3>%s</h3>\n", wanted[i].name);
		sweep_svg_curve(out, sweep, &wanted[i].key);
		fputs("</div>\n", out);
	}
	fputs("</div></section>\n", out);
}

static void shares(FILE *out, const struct sweep *sweep)
{
	fputs("<section id=\"shares\"><h2>Which paths the bytes take</h2>\n<p class=\"note\">With "
	      "all routes, of the largest size: shares as the plan has cut them.</p>\n", out);
	sweep_svg_shares(out, sweep);
	fputs("</section>\n", out);
}

static void timeline(FILE *out, const struct sweep *sweep)
{
	char size[24];

	fprintf(out, "<section id=\"timeline\"><h2>One all-gather, lane by lane</h2>\n"
		"<p class=\"note\">Shards of %s; the number and the colour are the transfer in "
		"its rank's plan (0: to the next rank). A bar begins when its copies were handed "
		"to the lane, or the lane was done with those before. From the library's trace "
		"of a run of its own, in which each transfer has its mark to itself.</p>\n",
		sweep_size(sweep->timeline_bytes, size));
	sweep_svg_timeline(out, sweep);
	fputs("</section>\n", out);
}

static void random_plans(FILE *out, const struct sweep *sweep)
{
	uint32_t i;

	if (!sweep->n_seeds)
		return;
	fprintf(out, "<section id=\"random\"><h2>Plans of random transfers</h2>\n<p class=\"note\">"
		"%u plans of %u transfers each, all ready at launch. The bound is what the "
		"busiest port needs: the sum of t0 + bytes / rate, with each pair's raw copies "
		"measured in this run (t0 %.1f us, the middle one).</p>\n<ul class=\"key\"><li>"
		"<svg width=\"12\" height=\"12\" viewBox=\"0 0 12 12\" aria-hidden=\"true\">"
		"<g class=\"direct\"><circle cx=\"6\" cy=\"6\" r=\"4\"/></g></svg>with the "
		"scheduler</li><li><svg width=\"12\" height=\"12\" viewBox=\"0 0 12 12\" "
		"aria-hidden=\"true\"><g class=\"point fifo\"><rect x=\"2\" y=\"2\" width=\"8\" "
		"height=\"8\"/></g></svg>in the plan's order "
		"(CEOVERLAP_SCHEDULER=fifo)</li></ul>\n",
		sweep->n_seeds, SWEEP_MOVES_MAX, sweep->t0_us);
	sweep_svg_random(out, sweep);
	for (i = 0; i < sweep->n_rows; i++)
		if (sweep->rows[i].bound_median > 0)
			fprintf(out, "<p>%s: median %.3f of the bound, worst %.3f.</p>\n",
				sweep->rows[i].method, sweep->rows[i].bound_median,
				sweep->rows[i].bound_max);
	fputs("</section>\n", out);
}

static void row_of_table(FILE *out, const struct sweep *sweep, const struct sweep_row *row)
{
	char size[24], chunk[24] = "default";

	if (row->chunk_bytes)
		sweep_size(row->chunk_bytes, chunk);
	fprintf(out, "<tr><td>%s</td><td>%s</td><td>%s%s%s</td><td>%s</td><td>%s</td><td>%u</td>"
		"<td>%.1f</td><td>%.1f</td><td>%.1f</td>", row->test, row->method,
		row->source < 0 ? "all" : sweep_place(sweep, row->source),
		row->source < 0 ? "" : " &#8594; ",
		row->source < 0 ? "" : sweep_place(sweep, row->target),
		sweep_size(row->bytes, size), strcmp(row->method, "raw") ? chunk : "&#8211;",
		row->in_flight, row->us_median, row->us_min, row->us_p99);
	if (row->gb_per_s > 0)
		fprintf(out, "<td>%.2f</td>", row->gb_per_s);
	else
		fputs("<td>&#8211;</td>", out);
	fprintf(out, "<td%s>%s</td></tr>\n", row->verified ? "" : " class=\"bad\"",
		row->verified > 0 ? "verified" : row->verified ? "not checked" : "WRONG");
}

static void table(FILE *out, const struct sweep *sweep, const char *test)
{
	uint32_t i;

	fputs("<table><thead><tr><th scope=\"col\">test</th><th scope=\"col\">method</th><th "
	      "scope=\"col\">pair</th><th scope=\"col\">size</th><th scope=\"col\">chunk</th><th "
	      "scope=\"col\">in flight</th><th scope=\"col\">median us</th><th scope=\"col\">min"
	      "</th><th scope=\"col\">p99</th><th scope=\"col\">GB/s</th><th scope=\"col\">data"
	      "</th></tr></thead><tbody>\n", out);
	for (i = 0; i < sweep->n_rows; i++)
		if (!test || !strcmp(sweep->rows[i].test, test))
			row_of_table(out, sweep, &sweep->rows[i]);
	fputs("</tbody></table>\n", out);
}

static void urgent(FILE *out, const struct sweep *sweep)
{
	if (!has_test(sweep, "urgent"))
		return;
	fprintf(out, "<section id=\"urgent\"><h2>Urgent transfers beside a background</h2>\n"
		"<p class=\"note\">A small urgent transfer every millisecond (urgent_*), an "
		"all-gather in the background that begins again and again (back_*), each alone and "
		"beside the other for %u ms; raw_chunk is one driver's copy of the background's "
		"largest chunk.</p>\n", sweep->own->urgent_ms);
	table(out, sweep, "urgent");
	fputs("</section>\n", out);
}

static void load(FILE *out, const struct sweep *sweep)
{
	if (!has_test(sweep, "load"))
		return;
	fputs("<section id=\"load\"><h2>Host memory and one rank, by relays</h2>\n"
	      "<p class=\"note\">direct, all and raw: the transfer's time. gemm_*: the time of "
	      "a matrix product on a GPU that relays: alone, beside the driver's copies of the "
	      "same bytes over the same legs, and beside the relay.</p>\n", out);
	table(out, sweep, "load");
	fputs("</section>\n", out);
}

int sweep_write_html(const struct sweep *sweep, const char *path)
{
	struct output output;
	FILE *out;

	if (output_open(&output, path))
		return -1;
	out = output.stream;
	fprintf(out, "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n"
		"<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" "
		"content=\"width=device-width, initial-scale=1\"/>\n"
		"<title>ceoverlap sweep</title>\n"
		"<style>\n%s</style>\n</head>\n<body>\n<main>\n", style);
	head(out, sweep);
	matrices(out, sweep);
	curves(out, sweep);
	shares(out, sweep);
	timeline(out, sweep);
	random_plans(out, sweep);
	urgent(out, sweep);
	load(out, sweep);
	measured(out, sweep);
	fputs("<section id=\"rows\"><details><summary>All rows</summary>\n", out);
	table(out, sweep, NULL);
	fputs("</details></section>\n</main>\n</body>\n</html>\n", out);
	return output_close(&output);
}
