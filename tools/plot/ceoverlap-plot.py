#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""ceoverlap-plot: makes of the JSON of ceoverlap-bench sweep one file for readers, XHTML with its
style and its pictures, or CSV. The page needs no network and no scripts, and suits light and dark
screens and paper; everything that a colour says in it is also text."""

import argparse
import csv
import html
import json
import math
import signal
import sys

VERSION = "@VERSION@"
TESTS = ("pairs", "host", "all_gather", "all_to_all", "random", "urgent", "load")
COLOURS = 8

STYLE = """\
*{box-sizing:border-box}
:root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--ink:#16202c;--dim:#556271;
--rule:#d9dee5;--heat:#0b5394;--strong:#fff;--direct:#0067a5;--all:#c04a00;--raw:#5f6b78;
--model:#00795a;--bad:#b3001b;--on:#fff;--c0:#0067a5;--c1:#b84700;--c2:#00795a;--c3:#8a4a86;
--c4:#7a6400;--c5:#3d5a99;--c6:#97304f;--c7:#4f5b66}
@media(prefers-color-scheme:dark){:root{--page:#10151b;--card:#18202a;--ink:#e6ebf1;
--dim:#9fadbc;--rule:#2e3945;--heat:#58b0f2;--strong:#08131f;--direct:#58b0f2;--all:#ff9a4d;
--raw:#a9b4c0;--model:#3ecf9f;--bad:#ff7a86;--on:#08131f;--c0:#58b0f2;--c1:#ff9a4d;--c2:#3ecf9f;
--c3:#d9a0d5;--c4:#e5cf5a;--c5:#9db7f5;--c6:#f08fae;--c7:#b6c0ca}}
body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}
main{max-width:1080px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:26px;line-height:1.2;margin:0 0 2px}h2{font-size:18px;margin:0 0 4px}
h3{font-size:14px;margin:18px 0 4px;color:var(--dim);font-weight:600}
p{margin:4px 0 10px;max-width:78ch}.lead,.note{color:var(--dim)}.note{font-size:13.5px}
section,header{background:var(--card);border:1px solid var(--rule);border-radius:10px;
padding:20px 22px;margin:0 0 18px;overflow-x:auto}
dl{display:grid;grid-template-columns:max-content 1fr;gap:3px 18px;margin:14px 0 0}
dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}
code{font:13px/1.4 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
svg{display:block;max-width:100%;height:auto;margin:8px 0;font-size:12.5px}
svg text{fill:var(--ink)}.end{text-anchor:end}.mid,.value,.strong{text-anchor:middle}
svg .label,svg .tick{fill:var(--dim)}svg .strong{fill:var(--strong);font-weight:600}
.heat{fill:var(--heat)}.none{fill:none;stroke:var(--rule);stroke-dasharray:3 3}
.grid{stroke:var(--rule)}.bound{stroke:var(--bad);stroke-width:1.5;stroke-dasharray:6 3}
.line{fill:none;stroke-width:2}.line.direct{stroke:var(--direct)}.line.all{stroke:var(--all)}
.line.all{stroke-dasharray:10 4}.line.raw{stroke:var(--raw);stroke-dasharray:2 3}
.line.model{stroke:var(--model);stroke-dasharray:8 4;stroke-width:2.5}.direct{fill:var(--direct)}
.all,.fifo{fill:var(--all)}.raw{fill:var(--raw)}.point.all rect,.point.fifo rect{fill:none;
stroke:var(--all);stroke-width:2}.line.direct,.line.all,.line.raw,.line.model{fill:none}
.c0{fill:var(--c0)}.c1{fill:var(--c1)}.c2{fill:var(--c2)}.c3{fill:var(--c3)}.c4{fill:var(--c4)}
.c5{fill:var(--c5)}.c6{fill:var(--c6)}.c7{fill:var(--c7)}svg .on{fill:var(--on);font-size:12px;
font-weight:600}
ul.key{list-style:none;display:flex;flex-wrap:wrap;gap:4px 20px;padding:0;margin:8px 0 0;
font-size:13.5px}ul.key svg{display:inline-block;vertical-align:middle;margin:0 6px 0 0}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}
th,td{padding:3px 10px;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}
th{color:var(--dim);font-weight:600}td:nth-child(-n+3),th:nth-child(-n+3){text-align:left}
summary{cursor:pointer;color:var(--direct)}.bad{color:var(--bad);font-weight:700}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(440px,1fr));gap:0 24px}
.wrap{display:flex;flex-wrap:wrap;gap:0 36px}
@media print{body{background:#fff}section,header{break-inside:avoid;border:0}}
"""


class OtherReport(Exception):
    """The JSON is of something else than a sweep."""


class Sweep:
    """A report as the bench has written it."""

    def __init__(self, report):
        if "places" not in report:
            raise OtherReport
        self.report = report
        self.rows = report["rows"]
        self.origin = report["provenance"]
        self.places = report["places"]
        self.n_ranks = len(self.places) - 1             # the last place is the host
        self.first_chunk = next((row["chunk_bytes"] for row in self.rows
                                 if row["method"] != "raw"), 0)

    def find(self, method, pair, test=None, n_bytes=None):
        """The row of a pair of places, or of a collective (None), with the most bytes, the first
        chunk size and the most launches in flight; None: there is none."""
        tests = (test,) if test else ("pairs", "host")
        found = [row for row in self.rows if row["method"] == method and row["test"] in tests and
                 pair_of(row) == pair and n_bytes in (None, row["bytes"]) and
                 row["chunk_bytes"] in (0, self.first_chunk)]
        return max(found, key=lambda row: (row["bytes"], row["in_flight"]), default=None)

    def has(self, test):
        return any(row["test"] == test for row in self.rows)


def pair_of(row):
    return (row["source"], row["target"]) if "source" in row else None


def size(n_bytes):
    value, unit = float(n_bytes), 0
    while value >= 1024 and unit < 4:
        value, unit = value / 1024, unit + 1
    return f"{value:.4g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"


def verdict(row):
    return {True: "verified", False: "WRONG", None: "not checked"}[row["verified"]]


def svg(kind, width, height, title, shapes):
    """A picture with a description for screen readers."""
    return (f'<svg class="{kind}" role="img" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" xmlns="http://www.w3.org/2000/svg">\n'
            f"<title>{html.escape(title)}</title>\n" + "\n".join(shapes) + "\n</svg>\n")


def text(kind, x, y, words):
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{html.escape(str(words))}</text>'


def missing(why):
    return f'<p class="missing">Not measured: {why}</p>\n'


# --- matrix, shares, timeline ------------------------------------------------------------------

CELL_WIDTH, CELL_HEIGHT, LABEL = 66, 34, 72


def cell(row, pair, share):
    if not row:
        return (f'<rect class="none" width="{CELL_WIDTH - 3}" height="{CELL_HEIGHT - 3}" rx="3">'
                f"<title>{pair[0]} to {pair[1]}: not measured</title></rect>")
    rate = row["gb_per_s"]
    mark = "! " if row["verified"] is False else ""
    return (f'<rect class="heat" width="{CELL_WIDTH - 3}" height="{CELL_HEIGHT - 3}" rx="3" '
            f'fill-opacity="{0.06 + 0.94 * share:.3f}"><title>{pair[0]} to {pair[1]}: {rate:.2f} '
            f"GB/s; {size(row['bytes'])} at a time, median {row.get('us_median', 0):.1f} us, data "
            f"{verdict(row)}</title></rect>" +
            text("strong" if share > 0.7 else "value", (CELL_WIDTH - 3) // 2, 21,
                 f"{mark}{rate:.{1 if rate < 100 else 0}f}"))


def matrix(sweep, method):
    pairs = [(source, target) for source in sweep.places for target in sweep.places]
    found = {(pair, way): sweep.find(way, pair) for pair in pairs for way in ("direct", "all")}
    # both matrices have one scale
    largest = max((row.get("gb_per_s", 0) for row in found.values() if row), default=0)
    shapes = []
    for number, name in enumerate(sweep.places):
        shapes.append(text("label mid", LABEL + number * CELL_WIDTH + (CELL_WIDTH - 3) // 2, 22,
                           name))
        shapes.append(text("label end", LABEL - 8, (number + 1) * CELL_HEIGHT + 21, name))
    for number, pair in enumerate(pairs):
        row = found[pair, method]
        row = row if row and row.get("gb_per_s") and largest else None
        line, column = divmod(number, len(sweep.places))
        shapes.append(f'<g class="cell" transform="translate({LABEL + column * CELL_WIDTH},'
                      f'{(line + 1) * CELL_HEIGHT})">' +
                      cell(row, pair, row["gb_per_s"] / largest if row else 0) + "</g>")
    n = len(sweep.places)
    return svg("matrix", LABEL + n * CELL_WIDTH, (n + 1) * CELL_HEIGHT,
               f"GB/s from each place to each, {method}", shapes)


def bar(row, y):
    """The shares of a transfer's bytes."""
    left, whole_width, x = 150, 640, 150.0
    whole = sum(share["bytes"] for share in row["shares"])
    yield text("label end", left - 10, y + 19, f"{row['source']} to {row['target']}")
    for number, share in enumerate(row["shares"]):
        width = whole_width * share["bytes"] / whole
        percent = 100 * share["bytes"] / whole
        words = ""
        if width > 9 * len(share["path"]) + 50:
            words = text("on", x + 8, y + 19, f"{share['path']} {percent:.1f} %")
        elif width > 30:
            words = text("on", x + 4, y + 19, f"{percent:.0f}")
        yield (f'<g class="share"><rect class="c{number % COLOURS}" x="{x:.2f}" y="{y}" '
               f'width="{width - 1.5 if width > 2 else width:.2f}" height="28" rx="2"><title>'
               f"{html.escape(share['path'])}: {size(share['bytes'])}, {percent:.1f} %</title>"
               f"</rect>{words}</g>")
        x += width


def shares(sweep):
    """Of one pair of ranks, and of a rank and the host in both directions."""
    first, host = sweep.places[0], sweep.places[-1]
    pairs = [(first, sweep.places[1]), (host, first), (first, host)]
    rows = [row for row in (sweep.find("all", pair) for pair in pairs)
            if row and sum(share["bytes"] for share in row.get("shares", ()))]
    if not rows:
        return missing("no pair was run with all routes.")
    return svg("shares", 800, len(rows) * 46, "Shares of a transfer's bytes that take each path",
               [shape for number, row in enumerate(rows) for shape in bar(row, number * 46 + 6)])


def axis_step(length):
    """The largest round figure up to this length."""
    step = 10 ** math.floor(math.log10(length)) if length >= 1 else 1
    return next(step * factor for factor in (5, 2, 1) if step * factor <= length or factor == 1)


def timeline(sweep):
    """What each rank's lane moved in its last launch."""
    events = sweep.report.get("timeline", {}).get("events", ())
    if not events:
        return missing("there is no trace of an all-gather.")
    newest = {}
    for event in events:
        newest[event["pid"]] = max(newest.get(event["pid"], 0), event["args"]["launch"])
    events = [event for event in events if event["args"]["launch"] == newest[event["pid"]]]
    begin = min(event["ts"] for event in events)
    length = max(event["ts"] + event["dur"] for event in events) - begin or 1
    left, step, scale = 110, 32, 800 / length
    bottom = sweep.n_ranks * step
    shapes = []
    ticks = axis_step(length / 4)
    for number in range(int(length / ticks) + 1):
        x = left + number * ticks * scale
        shapes.append(f'<line class="grid" x1="{x:.2f}" x2="{x:.2f}" y1="0" y2="{bottom}"/>')
        shapes.append(text("tick mid", x, bottom + 16, f"{number * ticks:g} us"))
    for number in range(sweep.n_ranks):
        shapes.append(text("label end", left - 10, number * step + 21, sweep.places[number]))
    for event in events:
        about, at = event["args"], event["ts"] - begin
        x, width, y = left + at * scale, event["dur"] * scale, event["pid"] * step
        shapes.append(f'<rect class="span c{about["transfer"] % COLOURS}" x="{x:.2f}" y="{y + 5}" '
                      f'width="{width - 0.6 if width > 1 else width:.2f}" height="{step - 10}" '
                      f'rx="2"><title>rank {event["pid"]}, transfer {about["transfer"]}: '
                      f'{size(about["bytes"])}, {html.escape(about.get("route", "?"))}; from '
                      f'{at:.1f} to {at + event["dur"]:.1f} us</title></rect>')
        if width > 24:
            shapes.append(text("on", x + 5, y + 21, about["transfer"]))
    return svg("timeline", left + 840, bottom + 24, "What each rank's lane moved when", shapes)


# --- charts with two axes ----------------------------------------------------------------------

LEFT, TOP, WIDTH, HEIGHT = 56.0, 14.0, 400.0, 210.0


class Axes:
    def __init__(self, x_first, x_last, y_first, y_last):
        self.x_first, self.x_last, self.y_first, self.y_last = x_first, x_last, y_first, y_last

    def x(self, value):
        if self.x_last <= self.x_first:
            return LEFT + WIDTH / 2
        return LEFT + WIDTH * (value - self.x_first) / (self.x_last - self.x_first)

    def y(self, value):
        return TOP + HEIGHT * (self.y_last - value) / (self.y_last - self.y_first)

    def draw_y(self, name):
        for number in range(5):
            value = self.y_first + (self.y_last - self.y_first) * number / 4
            y = self.y(value)
            yield (f'<line class="grid" x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y:.1f}" '
                   f'y2="{y:.1f}"/>' + text("tick end", LEFT - 8, y + 4, f"{value:.4g}"))
        yield (f'<text class="tick mid" transform="rotate(-90)" x="{-(TOP + HEIGHT / 2)}" y="14">'
               f"{name}</text>")


def round_up(value):
    """To the next of four round figures per decade."""
    scale = 10 ** math.floor(math.log10((value if value > 0 else 1) / 4))
    return next(4 * step * scale for step in (1, 2, 2.5, 5, 10, 20) if 4 * step * scale >= value)


def marker(kind, x, y, title):
    """Series differ in their markers as well as in their colours."""
    if kind in ("all", "fifo"):
        shape = f'<rect x="{x - 4:.2f}" y="{y - 4:.2f}" width="8" height="8"/>'
    elif kind == "raw":
        shape = f'<path d="M{x:.2f} {y - 6:.2f}l5 9h-10z"/>'
    else:
        shape = f'<circle cx="{x:.2f}" cy="{y:.2f}" r="4.2"/>'
    return f'<g class="point {kind}"><title>{html.escape(title)}</title>{shape}</g>'


def line(kind, points):
    if len(points) < 2:
        return ""
    places = " ".join(f"{x:.2f},{y:.2f}" for x, y in points)
    return f'<polyline class="line {kind}" points="{places}"/>'


def expected_rate(sweep, row):
    """Of the cost model, in GB/s."""
    n_bytes = row["bytes"] * (1 if "source" in row else sweep.n_ranks - 1)
    return n_bytes / row["expected_us"] / 1e3 if row.get("expected_us") else 0


def curve(sweep, test, pair):
    """Bandwidth over size."""
    sizes = sorted({row["bytes"] for row in sweep.rows
                    if row["test"] == test and pair_of(row) == pair})
    found = {}
    for method in ("raw", "direct", "all"):
        rows = (sweep.find(method, pair, test, n_bytes) for n_bytes in sizes)
        found[method] = [row for row in rows if row and row.get("gb_per_s")]
    model = [(row["bytes"], expected_rate(sweep, row)) for row in found["direct"]
             if expected_rate(sweep, row)]
    largest = max([rate for _, rate in model] +
                  [row["gb_per_s"] for rows in found.values() for row in rows], default=0)
    axes = Axes(math.log2(sizes[0]), math.log2(sizes[-1]), 0, round_up(largest))
    shapes = list(axes.draw_y("GB/s"))
    for n_bytes in sizes:
        shapes.append(text("tick mid", axes.x(math.log2(n_bytes)), TOP + HEIGHT + 20,
                           size(n_bytes)))
    shapes.append(line("model", [(axes.x(math.log2(n_bytes)), axes.y(rate))
                                 for n_bytes, rate in model]))
    for method, rows in found.items():
        points = [(axes.x(math.log2(row["bytes"])), axes.y(row["gb_per_s"])) for row in rows]
        shapes.append(line(method, points))
        for row, (x, y) in zip(rows, points):
            shapes.append(marker(method, x, y, f"{method}, {size(row['bytes'])}: "
                                 f"{row['gb_per_s']:.2f} GB/s, median {row['us_median']:.1f} us of "
                                 f"{row['samples']} samples, min {row['us_min']:.1f}, p99 "
                                 f"{row['us_p99']:.1f}"))
    of = f" {pair[0]} to {pair[1]}" if pair else ""
    return svg("curve", 486, 256, f"Bandwidth over size: {test}{of}", shapes)


def random_chart(plans):
    """Times of random plans over their bound."""
    plans = sorted(plans, key=lambda plan: plan["scheduler_us"] / plan["bound_us"])
    ratios = [plan[way] / plan["bound_us"] for plan in plans for way in ("scheduler_us", "fifo_us")]
    most = max(1.2, *ratios)
    axes = Axes(0, max(len(plans) - 1, 1), 0.9, 1.7 if most > 1.3 else 1.3)
    if most > 1.7 or min(ratios) < 0.9:
        axes = Axes(0, max(len(plans) - 1, 1), 0, round_up(most))
    y = axes.y(1)
    shapes = list(axes.draw_y("time / bound"))
    shapes.append(f'<line class="bound" x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y:.1f}" '
                  f'y2="{y:.1f}"/>' + text("tick", LEFT + WIDTH + 6, y + 4, "bound"))
    for kind, key, name in (("fifo", "fifo_us", "plan's order"),
                            ("direct", "scheduler_us", "scheduler")):
        for number, plan in enumerate(plans):
            shapes.append(marker(kind, axes.x(number), axes.y(plan[key] / plan["bound_us"]),
                                 f"{name}, seed {plan['seed']}: {plan[key]:.1f} us, bound "
                                 f"{plan['bound_us']:.1f} us"))
    shapes.append(text("tick mid", LEFT + WIDTH / 2, TOP + HEIGHT + 22, "plans, the best first"))
    return svg("random", 516, 256, "Time of random plans over their bound, sorted", shapes)


# --- the page ----------------------------------------------------------------------------------

def section(name, title, *parts):
    head = f"<h2>{html.escape(title)}</h2>\n" if title else ""
    return f'<section id="{name}">{head}' + "".join(parts) + "</section>\n"


def note(words):
    return f'<p class="note">{html.escape(words)}</p>\n'


def key(*entries):
    """What curves and points mean: drawings 26 or 12 wide, and their names."""
    return '<ul class="key">\n' + "".join(
        f'<li><svg width="{width}" height="12" viewBox="0 0 {width} 12" aria-hidden="true">'
        f"{shape}</svg>{html.escape(name)}</li>\n" for width, shape, name in entries) + "</ul>\n"


def sample(kind, shape=""):
    return 26, f'<polyline class="line {kind}" points="0,6 26,6"/>{shape}', \
        {"direct": "direct", "all": "all routes", "raw": "raw copies",
         "model": "cost model (direct)"}[kind]


CIRCLE = '<g class="direct"><circle cx="{0}" cy="6" r="4"/></g>'
SQUARE = '<g class="point {1}"><rect x="{0}" y="2" width="8" height="8"/></g>'
TRIANGLE = '<g class="raw"><path d="M13 1l5 9h-10z"/></g>'


def header(sweep):
    origin = sweep.origin
    ranks = "GPUs, one rank each, and the host's memory" if sweep.report["on_gpus"] else \
        'ranks on host memory, and one more as "host"; no GPU was used'
    facts = {"Time": origin["time"], "Machine": origin["machine"],
             "The model's machine": origin["model_machine"] or
             "none: costs of kinds of links only",
             "Ranks": f"{sweep.n_ranks} {ranks}", "ceoverlap": origin["ceoverlap"],
             "Kernel": origin.get("kernel", "?"), "Command": origin["command"],
             "Seed": f"{origin['seed']} (data and random plans)",
             "Samples": f"{origin['samples']} of each row, after {origin['warmup']} that do not "
             "count"}
    return ("<header><h1>What this machine's links carry</h1>\n"
            '<p class="lead">ceoverlap-bench sweep: bandwidth between all places, by size and by '
            "route, and what plans of many transfers take.</p>\n<dl>\n" + "".join(
                f"<dt>{name}</dt><dd>{html.escape(words)}</dd>\n"
                for name, words in facts.items()) + "</dl></header>\n")


def measured(sweep):
    counts = [sum(row["verified"] is value for row in sweep.rows) for value in (True, None, False)]
    wrong = f', and <span class="bad">of {counts[2]} it was wrong</span>' if counts[2] else ""
    left_out = ", ".join(test for test in TESTS if not sweep.has(test))
    raw = "the driver's own copies, queued by hand, without flags" if sweep.report["on_gpus"] \
        else "memcpy in one thread"
    stand_in = "" if sweep.report["on_gpus"] else \
        "Ranks stand in for GPUs: these figures are this processor's, and say nothing about a GPU."
    return section(
        "measured", "What was measured, and what was not",
        f"<p>{len(sweep.rows)} rows. Data of {counts[0]} was verified, of {counts[1]} not looked "
        f"at{wrong}." + (f" Not run: {left_out}." if left_out else "") + "</p>\n",
        note("Times are of the launching thread's clock, from the first call to the last launch "
             "seen done, divided by the launches that were in flight together; medians, with "
             "methods taking turns sample by sample. One process holds all ranks. \"raw\" is "
             f"{raw}. The model's curve is what the library expected when it made the plan. "
             f"{stand_in}"))


def matrices(sweep):
    sizes = [row["bytes"] for row in sweep.rows if row["test"] in ("pairs", "host")]
    return section(
        "matrix", "From each place to each",
        note(f"GB/s of one transfer of {size(max(sizes)) if sizes else '?'} at a time, launches "
             "back to back; rows send, columns receive; the darker the faster (in dark view: the "
             "brighter)."), '<div class="wrap">\n',
        *(f"<div><h3>{name}</h3>\n{matrix(sweep, method)}</div>\n"
          for method, name in (("direct", "Direct paths only"), ("all", "All routes at once"))),
        "</div>")


def curves(sweep):
    first, host = sweep.places[0], sweep.places[-1]
    wanted = (("pairs", (first, sweep.places[1]), "A pair of ranks"),
              ("host", (host, first), "From host memory to a rank"),
              ("host", (first, host), "From a rank to host memory"),
              ("all_gather", None, "All-gather, received by each rank"),
              ("all_to_all", None, "All-to-all, received by each rank"))
    return section(
        "curves", "Bandwidth over size",
        key(sample("direct", CIRCLE.format(13)), sample("all", SQUARE.format(9, "all")),
            sample("raw", TRIANGLE), sample("model")), '<div class="two">\n',
        *(f"<div><h3>{name}</h3>\n{curve(sweep, test, pair)}</div>\n"
          for test, pair, name in wanted if sweep.find("direct", pair, test)), "</div>")


def random_plans(sweep):
    plans = sweep.report.get("random_plans")
    if not plans:
        return ""
    return section(
        "random", "Plans of random transfers",
        note(f"{len(plans)} plans of {sweep.report['random_transfers']} transfers each, all ready "
             "at launch. The bound is what the busiest port needs: the sum of t0 + bytes / rate, "
             "with each pair's raw copies measured in this run (t0 "
             f"{sweep.report['t0_us']:.1f} us, the middle one)."),
        key((12, CIRCLE.format(6), "with the scheduler"),
            (12, SQUARE.format(2, "fifo"), "in the plan's order (CEOVERLAP_SCHEDULER=fifo)")),
        random_chart(plans),
        *(f"<p>{row['method']}: median {row['bound_median']:.3f} of the bound, worst "
          f"{row['bound_max']:.3f}.</p>\n" for row in sweep.rows if "bound_median" in row))


def figure(row, name, digits):
    return f"{row[name]:.{digits}f}" if name in row else "\u2013"


def table(sweep, test=None):
    titles = ("test", "method", "pair", "size", "chunk", "in flight", "median us", "min", "p99",
              "GB/s", "data")
    lines = []
    for row in sweep.rows:
        if test in (None, row["test"]):
            pair = pair_of(row)
            chunk = size(row["chunk_bytes"]) if row["chunk_bytes"] else "default"
            cells = (row["test"], row["method"], " \u2192 ".join(pair) if pair else "all",
                     size(row["bytes"]), "\u2013" if row["method"] == "raw" else chunk,
                     str(row["in_flight"]), figure(row, "us_median", 1), figure(row, "us_min", 1),
                     figure(row, "us_p99", 1), figure(row, "gb_per_s", 2))
            bad = ' class="bad"' if row["verified"] is False else ""
            lines.append("<tr>" + "".join(f"<td>{html.escape(words)}</td>" for words in cells) +
                         f"<td{bad}>{verdict(row)}</td></tr>\n")
    return ("<table><thead><tr>" + "".join(f'<th scope="col">{title}</th>' for title in titles) +
            "</tr></thead><tbody>\n" + "".join(lines) + "</tbody></table>\n")


def page(sweep):
    parts = [header(sweep), matrices(sweep), curves(sweep)]
    parts.append(section("shares", "Which paths the bytes take", note(
        "With all routes, of the largest size: shares as the plan has cut them."), shares(sweep)))
    parts.append(section("timeline", "One all-gather, lane by lane", note(
        f"Shards of {size(sweep.report.get('timeline', {}).get('bytes', 0))}; the number and the "
        "colour are the transfer in its rank's plan (0: to the next rank). A bar begins when its "
        "copies were handed to the lane, or the lane was done with those before. From the "
        "library's trace of a run of its own, in which each transfer has its mark to itself."),
        timeline(sweep)))
    parts.append(random_plans(sweep))
    if sweep.has("urgent"):
        parts.append(section("urgent", "Urgent transfers beside a background", note(
            "A small urgent transfer every millisecond (urgent_*), an all-gather in the background "
            "that begins again and again (back_*), each alone and beside the other for "
            f"{sweep.report['urgent_ms']} ms; raw_chunk is one driver's copy of the background's "
            "largest chunk."), table(sweep, "urgent")))
    if sweep.has("load"):
        parts.append(section("load", "Host memory and one rank, by relays", note(
            "direct, all and raw: the transfer's time. gemm_*: the time of a matrix product on a "
            "GPU that relays: alone, beside the driver's copies of the same bytes over the same "
            "legs, and beside the relay."), table(sweep, "load")))
    parts.append(measured(sweep))
    parts.append(section("rows", None, "<details><summary>All rows</summary>\n", table(sweep),
                         "</details>"))
    return ('<!DOCTYPE html>\n<html lang="en" xmlns="http://www.w3.org/1999/xhtml">\n<head>\n'
            '<meta charset="utf-8"/>\n<meta name="viewport" content="width=device-width, '
            'initial-scale=1"/>\n<title>ceoverlap sweep</title>\n'
            f"<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n" + "".join(parts) +
            "</main>\n</body>\n</html>\n")


# --- CSV ---------------------------------------------------------------------------------------

COLUMNS = ("test", "method", "source", "target", "bytes", "chunk_bytes", "in_flight", "samples",
           "us_median", "us_min", "us_p99", "gb_per_s", "expected_us", "ratio_raw", "ratio_direct",
           "bound_median", "bound_max", "verified", "shares")


def write_csv(sweep, out):
    """A figure that was not measured is empty."""
    writer = csv.DictWriter(out, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in sweep.rows:
        writer.writerow({"source": "all", "target": "all", **row,
                         "verified": {True: "yes", False: "no", None: "unchecked"}[row["verified"]],
                         "shares": ";".join(f"{share['path']}:{share['bytes']}"
                                            for share in row.get("shares", ()))})


def main():
    parser = argparse.ArgumentParser(
        add_help=False, description="Writes to standard output a page with pictures of what "
        "ceoverlap-bench sweep has measured.",
        epilog="Exit status: 0 when all was written; 1 when the file cannot be read, or is no "
        "report of a sweep; 2 on unusable arguments.")
    parser.add_argument("--csv", action="store_true", help="Write the rows as CSV instead")
    parser.add_argument("-?", "--help", action="help", help="Give this help list")
    parser.add_argument("-V", "--version", action="version", version=f"ceoverlap {VERSION}",
                        help="Print program version")
    parser.add_argument("report", help="The JSON of ceoverlap-bench sweep; -: standard input")
    asked = parser.parse_args()
    # A reader that goes away, such as head, ends this program as it ends others.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        with open(0 if asked.report == "-" else asked.report, encoding="utf-8") as file:
            sweep = Sweep(json.load(file))
        if asked.csv:
            write_csv(sweep, sys.stdout)
        else:
            sys.stdout.reconfigure(encoding="utf-8")
            sys.stdout.write(page(sweep))
        sys.stdout.flush()
    except OSError as error:
        print(f"ceoverlap-plot: {asked.report}: {error.strerror}", file=sys.stderr)
        return 1
    except OtherReport:
        print(f"ceoverlap-plot: {asked.report}: it was not written by ceoverlap-bench sweep, whose "
              "report alone is drawn: make one by ceoverlap-bench sweep -J FILE", file=sys.stderr)
        return 1
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"ceoverlap-plot: {asked.report}: it is no report of a sweep, or one of another "
              f"version: {error!r}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
