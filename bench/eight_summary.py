# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Writes the summary of a run of eight.sh, as Markdown, from the JSON files of its folder alone:

    python3 bench/eight_summary.py eight-results > summary.md

Times are medians; a ratio is the time of the other way divided by ours, so that above 1 ours is
faster. What was left out, and what has failed, is listed at the end."""

import json
import pathlib
import statistics
import sys

from eight_aims import aim_row, list_aims

KNOWN_FAILURES = {"124": "it ran out of its time", "137": "it ran out of its time",
                  "75": "it was left out: the half's time was over",
                  "77": "it was skipped: its log says why"}


def number(value, digits=1):
    return "-" if value is None else f"{value:.{digits}f}"


def size(n_bytes):
    return f"{n_bytes / 2**20:g} MiB" if n_bytes >= 2**20 else f"{n_bytes / 2**10:g} KiB"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def load(folder, pattern):
    """Returns name and contents of each JSON file that can be read, in the order of names."""
    found = []
    for path in sorted(folder.glob(pattern)):
        try:
            found.append((path.stem, json.loads(path.read_text(encoding="utf-8"))))
        except ValueError as error:
            print(f"eight_summary.py: {path.name}: {error}", file=sys.stderr)
    return found


def rows_of(folder, pattern, key):
    """The rows that have this key, of all files."""
    return [row for _, file in load(folder, pattern) for row in file.get("rows", []) if key in row]


def median_steps(folder):
    """Milliseconds of a step of each way of the FSDP example, and microseconds of the MLP's."""
    fsdp = [{name: median(way["step_ms"]) for name, way in file["ways"].items()}
            for _, file in load(folder, "fsdp.json") if not file.get("shares_gpus")]
    mlp = [file["step_us"] for _, file in load(folder, "tp-mlp.json")
           if not file.get("shares_gpus")]
    return {name: time for way in mlp for name, time in way.items() if time}, \
        {name: time for way in fsdp for name, time in way.items() if time}


def aims(folder):
    links = [link for _, file in load(folder, "measure.json") for link in file["links"]]
    mlp, fsdp = median_steps(folder)
    found = list_aims(rows_of(folder, "moves*.json", "case"),
                      rows_of(folder, "*.json", "operator"), links,
                      rows_of(folder, "sweep.json", "test") +
                      rows_of(folder, "relays.json", "test"), mlp, fsdp)
    return ["## Aims, which are for 8 GPUs", ""] + table(
        ["of", "aim", "reached", "by those", "missed by"], [aim_row(*aim) for aim in found]) + [""]


def moves(folder):
    rows = []
    for _, file in load(folder, "moves*.json"):
        ours = {}
        others = {}
        for row in file["rows"]:
            key = (row["case"], row["bytes_per_rank"], row.get("source"), row.get("target"))
            if not row.get("us_median"):
                continue
            if row["mode"] == "ours":
                ours.setdefault(key, []).append(row)
            else:
                others.setdefault(key, {})[row["mode"]] = row["us_median"]
        for key, ways in ours.items():
            best = min(ways, key=lambda row: row["us_median"])
            beside = [f"{mode} {time / best['us_median']:.2f}"
                      for mode, time in sorted(others.get(key, {}).items())
                      if time is not None]
            pair = "" if key[2] is None else f" {key[2]}>{key[3]}"
            rows.append([key[0] + pair, str(best["ranks"]), f"{key[1] / 2**20:g}",
                         number(best["us_median"]), number(best.get("gb_per_s")),
                         ", ".join(beside) or "-"])
    if not rows:
        return []
    return ["## Copies and collectives", ""] + table(
        ["case", "ranks", "MiB", "ours, us", "GB/s", "ratio to"], rows) + [""]


def ideal(methods):
    """The longer one of the product alone and the faster communication alone."""
    comm = [methods[name]["us_median"] for name in ("comm", "comm_ce")
            if methods.get(name, {}).get("us_median") is not None]
    gemm = methods.get("gemm", {}).get("us_median")
    if gemm is None or not comm:
        return None
    return max(gemm, min(comm))


def chosen_by(row):
    """As ceoverlap-bench overlap prints it: mode/pieces/tiles/SMs."""
    chosen = row.get("chosen")
    if not chosen:
        return "-"
    parts = [chosen["mode"], str(chosen["pieces"])]
    if chosen["tile_rows"]:
        parts.append(f"{chosen['tile_rows']}x{chosen['tile_columns']}")
    if chosen["reduce_blocks"]:
        parts.append(f"{chosen['reduce_blocks']}sm")
    return "/".join(parts)


def operators(folder):
    rows = []
    for _, file in load(folder, "*.json"):
        for row in file.get("rows", []):
            if "operator" not in row or "ours" not in row.get("methods", {}):
                continue
            methods = row["methods"]
            ours = methods["ours"]["us_median"]
            if not ours:
                continue
            best = ideal(methods)
            beside = [f"{name} {way['us_median'] / ours:.2f}"
                      for name, way in sorted(methods.items())
                      if name != "ours" and way.get("us_median")]
            shape = (f"{row['m']} x {row['n']} x {row['k']}" if "m" in row
                     else size(row["bytes_per_rank"]))
            if row.get("top_k"):
                shape += f", top {row['top_k']}, {row.get('dropped_percent', 0)} % dropped"
            by_sms = " SM" if row.get("moved_by") == "SM" else ""
            rows.append([row["operator"] + by_sms, row.get("model", ""), shape, row["launch"],
                         str(row["ranks"]), number(ours),
                         number(ours / best if best else None, 2), chosen_by(row),
                         ", ".join(beside) or "-",
                         {True: "yes", False: "NO"}.get(row.get("verified"), "-")])
    if not rows:
        return []
    return ["## Operators", "", "\"/ ideal\" is ours divided by the longer one of the product "
            "alone and the communication alone.", ""] + table(
        ["operator", "model", "shape", "launch", "ranks", "ours, us", "/ ideal",
         "mode/pieces/tiles/SMs", "ratio to", "right"], rows) + [""]


def median(values):
    return statistics.median(values) if values else None


def random_plans(folder):
    """Of the sweep: how long random plans take, as a multiple of what the links allow."""
    rows = [[row["method"], str(row["samples"]), number(row["bound_median"], 2),
             number(row["bound_max"], 2)]
            for _, file in load(folder, "sweep.json") for row in file["rows"]
            if row["test"] == "random"]
    if not rows:
        return []
    return ["## Random plans", "", "Times divided by the least that the links allow.", ""] + table(
        ["order of chunks", "plans", "median", "most"], rows) + [""]


def relays(folder):
    """Of the sweep: between host memory and one GPU, directly and over all paths."""
    rows = []
    for name in ("sweep.json", "relays.json"):
        found = {}
        for row in rows_of(folder, name, "test"):
            if row["test"] == "host" and row["in_flight"] == 1 and row.get("us_median"):
                key = (row["bytes"], row["source"], row["target"])
                found.setdefault(key, {}).setdefault(row["method"], row["us_median"])
        largest = max((key[0] for key in found), default=0)
        for (n_bytes, source, target), ways in sorted(found.items()):
            if n_bytes == largest and {"direct", "all"} <= set(ways):
                rows.append([f"{source} to {target}", f"{n_bytes / 2**20:g}",
                             number(ways["direct"]), number(ways["all"]),
                             number(ways["direct"] / ways["all"], 2)])
    if not rows:
        return []
    return ["## Relays", "", "Host memory and one GPU: over the direct path, and over all paths.",
            ""] + table(["from, to", "MiB", "direct, us", "all, us", "ratio"], rows) + [""]


def examples(folder):
    """The training examples in PyTorch."""
    rows = []
    for _, file in load(folder, "fsdp.json"):
        if file.get("shares_gpus"):     # ranks take turns, and times say nothing
            continue
        times = {name: median(way["step_ms"]) for name, way in file["ways"].items()}
        rows += example_rows("FSDP2 step", file["ranks"], times, "ms")
    for _, file in load(folder, "tp-mlp.json"):
        if file.get("shares_gpus"):
            continue
        rows += example_rows("MLP block", file["ranks"], file["step_us"], "us")
    if not rows:
        return []
    return ["## Examples in PyTorch", ""] + table(
        ["example", "ranks", "way", "median", "divided by ours"], rows) + [""]


def example_rows(name, ranks, times, unit):
    ours = times.get("ceoverlap")
    return [[name, str(ranks), way, "-" if time is None else f"{time:.1f} {unit}",
             number(time / ours, 2) if time and ours else "-"] for way, time in times.items()]


def steps(folder):
    path = folder / "steps.tsv"
    if not path.exists():
        return []
    rows = []
    partial = {name for name, file in load(folder, "*.json") if file.get("complete") is False}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, status, seconds, limit = line.split("\t")
        said = "done" if status == "0" else KNOWN_FAILURES.get(status, "it has failed: see its log")
        if name in partial:
            said = "it ended early, as its log says: rows above are those that it had by then"
        rows.append([name, status, f"{seconds} of {limit}", said])
    return ["## Steps", ""] + table(["step", "exit status", "seconds", "result"], rows) + [""]


def main():
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1]).is_dir():
        print(f"usage: {sys.argv[0]} FOLDER", file=sys.stderr)
        return 2
    folder = pathlib.Path(sys.argv[1])
    gpus = folder / "gpus.txt"
    names = gpus.read_text(encoding="utf-8").splitlines() if gpus.exists() else []
    print(f"# A run on {len(names)} GPUs\n")
    for name in sorted(set(names)):
        print(f"{names.count(name)} x {name}\n")
    parts = (aims, moves, operators, relays, random_plans, examples, steps)
    print("\n".join(line for part in parts for line in part(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
