#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Compares this build's ceoverlap-bench with another build's, say one of an older commit:

    beside-build.py [--rounds 15] OURS OTHER [ARGUMENT...]

Runs both in turns with the same arguments (default: a pair, an all-gather, the engine and the
doorbell on host memory), the one that goes first changing from round to round. For each row that
both have, it prints the median over the rounds of other's time / ours: above 1, ours is faster;
and the median over all rows. Rows with wrong data end it with an error."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ARGUMENTS = "--host -g 2 -n 10 -w 2 -T 60 -t p2p,doorbell,all_gather,engine -b 1M -e 1M".split()


def rows_of(bench, arguments, path):
    done = subprocess.run([bench, *arguments, "-J", path], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, timeout=300)
    if done.returncode:
        sys.exit(f"{bench}: {done.stderr.strip()[-500:]}")
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    found = {}
    for row in rows:
        if row["mode"] == "raw" or not row["us_median"]:
            continue
        if row["verified"] is False:
            sys.exit(f"{bench}: wrong data in {row}")
        key = tuple(str(row.get(name)) for name in ("case", "mode", "trigger", "pair",
                                                    "bytes_per_rank", "chunk_bytes"))
        found.setdefault(key, row["us_median"])
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("ours")
    parser.add_argument("other")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    arguments = asked.arguments or ARGUMENTS
    ratios = {}
    print("load", *os.getloadavg(), "arguments", *arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.json")
        for number in range(asked.rounds):
            pair = [asked.ours, asked.other]
            rows = {bench: rows_of(bench, arguments, path)
                    for bench in (pair if number % 2 else pair[::-1])}
            for key, us in rows[asked.ours].items():
                if key in rows[asked.other]:
                    ratios.setdefault(key, []).append(rows[asked.other][key] / us)
    if not ratios:
        sys.exit("the two have no row in common")
    for key, values in ratios.items():
        quartiles = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
        print(f"{' '.join(key):60} {statistics.median(values):6.3f}  "
              f"(quarters {quartiles[0]:.3f} to {quartiles[2]:.3f})")
    medians = [statistics.median(values) for values in ratios.values()]
    print(f"all {len(medians)} rows: {statistics.median(medians):.3f}; load", *os.getloadavg())


if __name__ == "__main__":
    main()
