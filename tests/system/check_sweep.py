# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

"""Looks into the files that tests/system/test_sweep.sh has made: 3 ranks and the host,
sizes 16 KiB and 256 KiB, two chunk sizes, 1 and 2 in flight, 3 random plans."""

import csv
import json
import re
import sys
import xml.etree.ElementTree as tree

FOLDER = sys.argv[1]
PLACES = 4
SIZES = 2
WAYS = 2 * (2 * 2 + 1)          # in flight x (routes x chunks + raw)
STAGES = ("doorbell", "scheduler", "backend", "completion")
SVG = "{http://www.w3.org/2000/svg}"
failed = False


def expect(what, seen, wanted):
    global failed
    if seen != wanted:
        print(f"FAIL: {what}: {seen!r}, not {wanted!r}")
        failed = True


def count_rows(rows, **wanted):
    return sum(all(row[key] == value for key, value in wanted.items()) for row in rows)


def check_csv():
    rows = list(csv.DictReader(open(f"{FOLDER}/sweep.csv")))
    expect("CSV rows of pairs", count_rows(rows, test="pairs"), 6 * SIZES * WAYS)
    expect("CSV rows of host", count_rows(rows, test="host"), 6 * SIZES * WAYS)
    for test in ("all_gather", "all_to_all"):
        expect(f"CSV rows of {test}", count_rows(rows, test=test), SIZES * WAYS)
    expect("CSV rows of random", count_rows(rows, test="random"), 2)
    expect("CSV rows of load", count_rows(rows, test="load"), 2 * WAYS)
    expect("CSV rows of urgent", count_rows(rows, test="urgent"), 5)
    expect("rows with wrong data", count_rows(rows, verified="no"), 0)
    expect("rows not as wide as the head", sum(None in row or None in row.values()
                                               for row in rows), 0)
    for row in rows:
        if row["test"] == "pairs" and not float(row["us_min"]) <= float(row["us_median"]) \
                <= float(row["us_p99"]):
            expect("order of times", row, None)
        if row["method"] == "all":
            total = sum(int(share.rsplit(":", 1)[1]) for share in row["shares"].split(";"))
            if row["source"] != "all":
                expect("sum of shares", total, int(row["bytes"]))
    return rows


def check_json(rows):
    report = json.load(open(f"{FOLDER}/sweep.json"))
    expect("JSON rows", len(report["rows"]), len(rows))
    expect("places", report["places"], ["rank0", "rank1", "rank2", "host"])
    expect("seed", report["provenance"]["seed"], 7)
    expect("random plans", [plan["seed"] for plan in report["random_plans"]], [7, 8, 9])
    expect("bounds", all(plan["bound_us"] > 0 for plan in report["random_plans"]), True)
    if "--seed 7" not in report["provenance"]["command"]:
        expect("command", report["provenance"]["command"], "...")


def pictures(root, name):
    return [svg for svg in root.iter(SVG + "svg") if svg.get("class") == name]


def count_class(svg, tag, name):
    return sum(name in (node.get("class") or "").split() for node in svg.iter(SVG + tag))


def check_html():
    text = open(f"{FOLDER}/sweep.html").read()
    root = tree.fromstring(re.sub(r"^<!DOCTYPE html>", "", text))
    for word in ("<script", "http-equiv", "src=", "@import", "url(", "<link"):
        expect(f"'{word}' in the report", text.count(word), 0)
    links = set(re.findall(r"https?://[^\"' <]+", text))
    expect("addresses", links, {"http://www.w3.org/1999/xhtml",
                                "http://www.w3.org/2000/svg"})
    expect("matrices", len(pictures(root, "matrix")), 2)
    for svg in pictures(root, "matrix"):
        expect("cells", count_class(svg, "g", "cell"), PLACES * PLACES)
        expect("measured cells", count_class(svg, "rect", "heat"), PLACES * (PLACES - 1))
    expect("curves", len(pictures(root, "curve")), 5)
    for svg in pictures(root, "curve"):
        for method in ("direct", "all", "raw"):
            expect(f"points of {method}", count_class(svg, "g", method), SIZES)
            expect(f"lines of {method}", count_class(svg, "polyline", method), 1)
        model = [line for line in svg.iter(SVG + "polyline") if
                 "model" in line.get("class").split()]
        expect("the model's points", [len(line.get("points").split()) for line in model],
               [SIZES])
    expect("pictures of shares", len(pictures(root, "shares")), 1)
    expect("bars of shares", count_class(pictures(root, "shares")[0], "g", "share"), 3)
    expect("timelines", len(pictures(root, "timeline")), 1)
    expect("spans", count_class(pictures(root, "timeline")[0], "rect", "span"), 3 * 2)
    expect("pictures of random plans", len(pictures(root, "random")), 1)
    expect("points of random plans", count_class(pictures(root, "random")[0], "g", "point"),
           2 * 3)
    for svg in root.iter(SVG + "svg"):
        if svg.get("role") == "img" and svg.find(SVG + "title") is None:
            expect("title of a picture", svg.get("class"), None)


def check_trace(name, ranks):
    trace = json.load(open(f"{FOLDER}/{name}"))
    expect(f"{name}: dropped", trace["otherData"]["unfinished_chunks"], 0)
    begun, ended, ranks_seen = {}, {}, set()
    for event in trace["traceEvents"]:
        ranks_seen.add(event["pid"])
        key = (event.get("id"), event["name"])
        if event["ph"] == "b":
            begun[key] = event
        elif event["ph"] == "e":
            ended[key] = event
        elif event["ph"] == "X" and event["dur"] < 0:
            expect("a span's length", event, None)
    expect(f"{name}: ranks", ranks_seen, set(range(ranks)))
    expect(f"{name}: slices that end", set(begun), set(ended))
    expect(f"{name}: slices that end too early",
           [key for key in begun if key in ended and ended[key]["ts"] < begun[key]["ts"]], [])
    counts = {stage: sum(key[1] == stage for key in begun) for stage in STAGES}
    if not counts["backend"]:
        expect(f"{name}: chunks", 0, "some")
    expect(f"{name}: stages", set(key[1] for key in begun), set(STAGES))
    expect(f"{name}: slices a stage", len(set(counts.values())), 1)
    chunks = {}
    for key, event in begun.items():
        chunks.setdefault((event["pid"], key[0].rsplit(".", 1)[0]), {})[key[1]] = key
    for stages in chunks.values():
        for before, after in zip(STAGES, STAGES[1:]):
            if ended[stages[before]]["ts"] != begun[stages[after]]["ts"]:
                expect("a stage begins when the one before it ends", stages, None)


check_html()
check_json(check_csv())
check_trace("sweep.trace", PLACES)
check_trace("sweep.trace.group", 3)
check_trace("all.trace", 2)
sys.exit(failed)
