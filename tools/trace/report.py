# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""ceoverlap-trace report: how long each rank communicated and did not compute meanwhile, for what,
and for whom it waited."""

import collections
import json
import os
import sys
import textwrap

from exposure import analyse
from joining import check_target, write
from picture import draw
from reading import VERSION, Refused, say
from spans import length, share_out, union, without
from timeline import Timeline, choose_clocks, group_of, read_files

COLUMNS = 80


class Row:
    """How long something communicated, each moment counted once, and how long of it exposed."""

    def __init__(self):
        self.n, self.comm_ns, self.exposed_ns = 0, 0, 0
        self.waits = collections.Counter()      # of which rank's mark came last, how long

    def add(self, item, comm_ns, exposed_ns, wait_ns):
        self.n += 1
        self.comm_ns += comm_ns
        self.exposed_ns += exposed_ns
        if item.awaited is not None:
            self.waits[item.awaited] += wait_ns

    def figures(self, is_known):
        return {"n": self.n, "comm_ns": self.comm_ns,
                "exposed_ns": self.exposed_ns if is_known else None}

    def awaited(self):
        return max(sorted(self.waits), key=self.waits.get) if self.waits else None


def tables_of(rank):
    """Sums by operator, by group and by chunk. Each table's sum is the rank's own."""
    tables = [collections.defaultdict(Row) for _ in range(3)]
    comm = share_out(rank.items, rank.moves)
    exposed = share_out(rank.items, rank.exposed or [])
    for item, comm_ns, exposed_ns in zip(rank.items, comm, exposed):
        keys = item.op, item.group, (item.op, item.group, item.chunk)
        for table, key in zip(tables, keys):
            table[key].add(item, comm_ns, exposed_ns, item.end - item.begin)
    return tables


def sorted_rows(table):
    return sorted(table.items(), key=lambda pair: (-pair[1].exposed_ns, -pair[1].comm_ns,
                                                   str(pair[0])))


def waited_for(rank):
    """How long transfers waited for each rank's mark while the rank did not compute, in which more
    than one may have waited."""
    found = collections.defaultdict(list)
    for wait in rank.waits:
        found[wait.awaited].append(wait[:2])
    sums = [{"rank": number, "n": len(waits),
             "wait_ns": length(without(union(waits), rank.computes or []))}
            for number, waits in found.items()]
    return sorted(sums, key=lambda one: (-one["wait_ns"], one["rank"]))


def figures_of(rank):
    is_known = rank.computes is not None
    operators, groups, chunks = tables_of(rank)
    span_ns = rank.span[1] - rank.span[0]
    return {
        "rank": rank.name, "compute_is": rank.compute_is, "span_ns": span_ns,
        "compute_ns": length(rank.computes) if is_known else None,
        "comm_ns": length(rank.moves),
        "exposed_ns": length(rank.exposed) if is_known else None,
        "idle_ns": span_ns - rank.busy_ns if is_known else None,
        "operators": [{"op": key, **row.figures(is_known)}
                      for key, row in sorted_rows(operators)],
        "groups": [{"group": key, **row.figures(is_known)} for key, row in sorted_rows(groups)],
        "chunks": [{"op": op, "group": group, **chunk._asdict(), **row.figures(is_known),
                    "awaited": row.awaited()}
                   for (op, group, chunk), row in sorted_rows(chunks) if chunk],
        "waited_for": waited_for(rank),
        "last_from": [{"rank": number, "n": n} for number, n in
                      sorted(rank.last_from.items(), key=lambda one: (-one[1], one[0]))]}


# --- text --------------------------------------------------------------------------------------

def milliseconds(ns):
    return "-" if ns is None else f"{ns / 1e6:.3f}"


def percent(part, whole):
    return "-" if part is None or not whole else f"{100 * part / whole:.1f}"


def cut(text, n):
    return text if len(text) <= n else text[:n - 1] + "~"


def rank_lines(ranks):
    yield f"{'rank':8}{'span':>12}{'compute':>12}{'comm':>12}{'exposed':>12}{'% of comm':>11}" \
        f"{'idle':>12}"
    for one in ranks:
        yield f"{cut(one['rank'], 8):8}" + "".join(
            f"{milliseconds(one[key]):>12}" for key in
            ("span_ns", "compute_ns", "comm_ns", "exposed_ns")) + \
            f"{percent(one['exposed_ns'], one['comm_ns']):>11}{milliseconds(one['idle_ns']):>12}"


def sum_lines(ranks, table, key, title):
    """The same rows of all ranks as one."""
    sums = {}
    for one in ranks:
        for row in one[table]:
            into = sums.setdefault(row[key], [0, 0, 0])
            into[0] += row["n"]
            into[1] += row["comm_ns"]
            into[2] += row["exposed_ns"] or 0
    whole = sum(one[2] for one in sums.values())
    is_known = any(one["exposed_ns"] is not None for one in ranks)
    yield ""
    yield f"{title:36}{'copies':>9}{'comm':>12}{'exposed':>12}{'% of all':>10}"
    for name, (n, comm_ns, exposed_ns) in sorted(sums.items(),
                                                 key=lambda one: (-one[1][2], -one[1][1], one[0])):
        if not is_known:
            exposed_ns = None
        yield f"{cut(name, 35):36}{n:>9}{milliseconds(comm_ns):>12}" \
            f"{milliseconds(exposed_ns):>12}{percent(exposed_ns, whole):>10}"


def wait_lines(ranks):
    rows = [(one["rank"], wait) for one in ranks for wait in one["waited_for"]]
    if not rows:
        return
    yield ""
    yield f"{'rank':8}{'waited for rank':>16}{'transfers':>12}{'not computing':>16}"
    for name, wait in rows:
        yield f"{cut(name, 8):8}{wait['rank']:>16}{wait['n']:>12}" \
            f"{milliseconds(wait['wait_ns']):>16}"


def last_lines(ranks):
    rows = [(one["rank"], last) for one in ranks for last in one["last_from"]]
    if not rows:
        return
    yield ""
    yield f"{'rank':8}{'bytes came last from rank':>26}{'launches':>12}"
    for name, last in rows:
        yield f"{cut(name, 8):8}{last['rank']:>26}{last['n']:>12}"


def chunk_lines(ranks, n_most):
    rows = [(one["rank"], row) for one in ranks for row in one["chunks"]]
    rows.sort(key=lambda pair: (-(pair[1]["exposed_ns"] or 0), -pair[1]["comm_ns"]))
    if not rows or not n_most:
        return
    yield ""
    yield f"{'rank':8}{'operator':22}{'transfer':>9}{'chunk':>6}{'copies':>7}{'comm':>10}" \
        f"{'exposed':>10}{'awaits':>8}"
    for name, row in rows[:n_most]:
        awaited = "-" if row["awaited"] is None else row["awaited"]
        transfer, chunk = ("-" if row[key] is None else row[key] for key in ("transfer", "chunk"))
        yield f"{cut(name, 8):8}{cut(row['op'], 21):22}{transfer:>9}{chunk:>6}{row['n']:>7}" \
            f"{milliseconds(row['comm_ns']):>10}{milliseconds(row['exposed_ns']):>10}{awaited:>8}"
    if len(rows) > n_most:
        yield f"... and {len(rows) - n_most} more (--chunks)"


def notes(ranks, n_dropped):
    unknown = [one["rank"] for one in ranks if one["compute_ns"] is None]
    if unknown:
        yield "What was computed is not known of rank " + cut(", ".join(unknown), 200) + \
            ": name the files that PyTorch's profiler wrote in the same run, too."
    host = [one["rank"] for one in ranks if one["compute_is"] not in (None, "kernels")]
    if host:
        yield "No kernel ran at rank " + cut(", ".join(host), 200) + ": PyTorch's operators on " \
            "the processor count as computation."
    if n_dropped:
        yield f"{n_dropped} older chunks are not in the traces, which keep the newest."


def lines_of(ranks, n_dropped, n_chunks):
    yield "Times in ms. exposed: communication while nothing was computed; idle: neither."
    yield ""
    yield from rank_lines(ranks)
    yield from sum_lines(ranks, "operators", "op", "operator, all ranks")
    yield from sum_lines(ranks, "groups", "group", "group, all ranks")
    yield from wait_lines(ranks)
    yield from last_lines(ranks)
    yield from chunk_lines(ranks, n_chunks)
    for note in notes(ranks, n_dropped):
        yield ""
        yield from textwrap.wrap(note, COLUMNS - 1)


# --- the command -------------------------------------------------------------------------------

def look(paths):
    """Returns the ranks, and how many chunks the traces lack."""
    parts, profiles = read_files(paths)
    groups = {}
    for part in parts:
        groups.setdefault(group_of(part), []).append(part)
    for of_group in groups.values():
        choose_clocks(of_group)
    timeline = Timeline(parts, profiles)
    return analyse(timeline, parts, profiles), sum(part.n_dropped for part in parts)


def report(asked):
    """Returns the exit status, after it has said what is wrong."""
    try:
        ranks, n_dropped = look(asked.traces)
        if asked.svg:
            check_target(asked.svg, asked.traces)
            write(asked.svg, lambda file: file.write(draw(ranks)))
        figures = [figures_of(rank) for rank in ranks]
        if asked.json:
            json.dump({"ceoverlap": VERSION, "dropped_chunks": n_dropped, "ranks": figures},
                      sys.stdout, indent=1)
            print()
        else:
            print("\n".join(lines_of(figures, n_dropped, asked.chunks)))
        sys.stdout.flush()
    except BrokenPipeError:             # who read it has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (Refused, OSError, MemoryError) as why:
        say(why)
        return 2
    return 0
