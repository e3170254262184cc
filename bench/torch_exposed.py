# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""How much of a product's communication is exposed, told twice: by times, as ceoverlap-bench does
(a call of ours less the product alone), and by ceoverlap-trace report, from files that PyTorch's
profiler and ceoverlap write of the same calls. Exits with 1 where the two differ by more than
--within.

    torchrun --nproc-per-node 2 bench/torch_exposed.py

Shapes whose communication takes longer than the product are the ones that tell: what is exposed of
others is a small difference of two long times."""

import argparse
import collections
import json
import os
import statistics
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist

import ceoverlap.torch as ct
from torch_calls import measured, median_of_ranks, opened_group

WARMUP = 3                              # rounds


def ways_of(inner, options, group):
    """{name: call}; the first is the product alone."""
    def random(*shape):
        return torch.randn(*shape, device=group.device).bfloat16()

    x, weight = random(options.rows, inner), random(options.columns, inner)
    ways = {"product": lambda: x @ weight.t(),
            "one after the other": lambda: ct.reduce_scatter(x @ weight.t(), group)}
    if group.is_gpu:                    # a host's profiler does not look into our products
        ways["operator"] = lambda: ct.matmul_reduce_scatter(x, weight, group)
    return ways


def times_of(ways, options, group):
    """{name: us}, medians, the largest of all ranks, in which all ways take turns."""
    samples = collections.defaultdict(list)
    for i in range(WARMUP + options.rounds):
        for name, call in ways.items():
            us = measured(call, options.calls, group)[0]
            if i >= WARMUP:
                samples[name].append(us)
    return {name: median_of_ranks(column, group) for name, column in samples.items()}


def profile(call, options, group, path):
    activities = [torch.profiler.ProfilerActivity.CPU]
    if group.is_gpu:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
        group.exchange("profile")       # ranks begin together
        for _ in range(options.calls):
            call()
        if group.is_gpu:
            torch.cuda.synchronize()
    profiler.export_chrome_trace(path)


def kinds_in(path):
    """What ran on the GPU, of a profiler's file: a name's number and microseconds."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    found = collections.defaultdict(lambda: [0, 0.0])
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            one = found[event["cat"], event["name"][:60]]
            one[0] += 1
            one[1] += event["dur"]
    return sorted(found.items(), key=lambda pair: -pair[1][1])


def reported(tool, files, n_calls):
    """The report's times of a call in microseconds: {what: the median of ranks}."""
    command = [sys.executable, tool, "report", "--json", *files]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return {what: statistics.median(rank[what + "_ns"] for rank in found["ranks"]) / n_calls / 1e3
            for what in ("exposed", "comm", "compute", "idle")}


def compare(name, times, profiles, options):
    """Prints, and returns, what times and the report tell of a way."""
    traces = [f"{options.folder}/exposed.trace.rank{rank}" for rank in range(len(profiles))]
    told = reported(options.tool, profiles + traces, options.calls)
    exposed = times[name] - times["product"]
    ratio = told["exposed"] / exposed
    print(f"{name:20}{times[name]:9.1f}{times['product']:9.1f}{exposed:9.1f}"
          f"{told['exposed']:9.1f}{ratio:7.3f}{told['comm']:9.1f}{told['compute']:9.1f}"
          f"{told['idle']:9.1f}")
    for (kind, what), (n, us) in kinds_in(profiles[0])[:options.kernels]:
        print(f"    {kind:12}{what:62}{n:6}{us:10.1f}")
    return {"way": name, "us": times[name], "product_us": times["product"], "exposed_us": exposed,
            "report_us": told, "ratio": ratio}


def measure(inner, options, group):
    """Returns the times of all ways of a product, after it has written their profiles."""
    ways = ways_of(inner, options, group)
    times = times_of(ways, options, group)
    for name in list(ways)[1:]:
        profile(ways[name], options, group, path_of(name, inner, group.rank, options))
    return times


def path_of(name, inner, rank, options):
    return f"{options.folder}/exposed.{name.split()[0]}.{inner}.{rank}.json"


def show(found, n_ranks, options):
    """Returns the rows of all products, {inner: times}."""
    rows = []
    for inner, times in found.items():
        print(f"{f'inner {inner}, us':20}{'ours':>9}{'product':>9}{'exposed':>9}{'report':>9}"
              f"{'ratio':>7}{'comm':>9}{'compute':>9}{'idle':>9}")
        for name in list(times)[1:]:
            profiles = [path_of(name, inner, rank, options) for rank in range(n_ranks)]
            rows.append({"inner": inner, **compare(name, times, profiles, options)})
    return rows


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for name, default in (("rows", 16384), ("columns", 8192), ("rounds", 9), ("calls", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--inner", type=int, nargs="+", default=[512], help="of products")
    parser.add_argument("--within", type=float, default=0.05, help="how far the two may differ")
    parser.add_argument("--kernels", type=int, default=0, help="how many kinds of kernels and "
                        "copies of rank 0 to show, those that took longest")
    parser.add_argument("--tool", default="./ceoverlap-trace", metavar="FILE")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="for traces")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


def main():
    options = parse()
    os.environ["CEOVERLAP_TRACE"] = f"{options.folder}/exposed.trace"
    with opened_group() as group, torch.no_grad():
        found = {inner: measure(inner, options, group) for inner in options.inner}
        rank, size = group.rank, group.size
        dist.barrier()
    if rank:
        return 0
    rows = show(found, size, options)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({**vars(options), "ranks": size, "rows": rows}, file)
    return 0 if all(abs(row["ratio"] - 1) <= options.within for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
