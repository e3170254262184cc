#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Small collectives of ceoverlap.torch beside NCCL's and PyTorch's symmetric memory, in one run.

    torchrun --nproc-per-node 2 bench/peers/small.py --json small.json

Methods, which take turns on the same data:

    operator           all_reduce, all_gather, all_to_all of ceoverlap.torch
    torch.distributed  the same of NCCL; all_reduce is in place
    one-shot           torch.ops.symm_mem.one_shot_all_reduce
    two-shot           torch.ops.symm_mem.two_shot_all_reduce_, which is in place

A size is what an all-reduce adds up, an all-gather collects, and an all-to-all sends, in bytes of
a rank, bf16. Each method is captured in a CUDA graph of --in-graph calls, in front of which the
operand of all-reduces that are in place is copied once. Times are of one call: the graph's, divided
by the number of calls; medians of rounds, the largest of all ranks. On the host nothing is
captured, and PyTorch has no symmetric memory.
"""

import argparse
import json
import os
import sys
import typing

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import ceoverlap.torch as ct                                # noqa: E402
from torch_calls import measured_in_turn, opened_group      # noqa: E402

COLLECTIVES = ("all_reduce", "all_gather", "all_to_all")
TOLERANCE = 0.01                        # of the norm
BF16_BYTES = 2


class Way(typing.NamedTuple):
    """prepare() renews the operand of a call that is in place."""
    call: typing.Callable[[], torch.Tensor]
    prepare: typing.Callable[[], object] = lambda: None


def symmetric_ways(x):
    """All-reduces by symmetric memory, which take their operand from memory of that kind."""
    import torch.distributed._symmetric_memory as symmetric

    name = dist.group.WORLD.group_name

    def operand():
        memory = symmetric.empty(x.numel(), dtype=x.dtype, device=x.device)
        symmetric.rendezvous(memory, name)
        return memory.copy_(x)

    one, two = operand(), operand()
    ops = torch.ops.symm_mem
    return {"one-shot": Way(lambda: ops.one_shot_all_reduce(one, "sum", name)),
            "two-shot": Way(lambda: ops.two_shot_all_reduce_(two, "sum", name),
                            lambda: two.copy_(x))}


def ways_of(collective, n_bytes, group):
    """{name: Way}; all calls return the same."""
    n = n_bytes // BF16_BYTES
    x = torch.randn(n // group.size if collective == "all_gather" else n, device=group.device)
    x = x.bfloat16()
    whole = torch.empty(n, device=group.device, dtype=torch.bfloat16)

    def reduce():
        dist.all_reduce(whole)
        return whole

    def gather():
        dist.all_gather_into_tensor(whole, x)
        return whole

    def exchange():
        dist.all_to_all_single(whole, x)
        return whole

    def ours():
        return getattr(ct, collective)(x, group)

    by_torch = {"all_reduce": Way(reduce, lambda: whole.copy_(x)), "all_gather": Way(gather),
                "all_to_all": Way(exchange)}[collective]
    ways = {"operator": Way(ours), "torch.distributed": by_torch}
    if collective == "all_reduce" and group.is_gpu and not group.shares_gpus:
        ways.update(symmetric_ways(x))
    return ways


def check(ways):
    """SystemExit where a method's result is not that of NCCL, within bf16 noise."""
    def result_of(way):
        way.prepare()
        return way.call().float()

    wanted = result_of(ways["torch.distributed"]).clone()
    for name, way in ways.items():
        error = ((result_of(way) - wanted).norm() / wanted.norm()).item()
        if not error < TOLERANCE:
            raise SystemExit(f"small.py: {name} differs by {error} of the norm")


def captured(ways, n_calls):
    """Returns calls that each replay a CUDA graph of n_calls calls of a method, which have been
    made once before."""
    graphs = {}
    for name, way in ways.items():
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name], stream=torch.cuda.current_stream(),
                              capture_error_mode="thread_local"):
            way.prepare()
            for _ in range(n_calls):
                way.call()
    return {name: graph.replay for name, graph in graphs.items()}


def measure(options, group, collective, n_bytes):
    """The row of a collective and size."""
    torch.manual_seed(group.rank)
    ways = ways_of(collective, n_bytes, group)
    check(ways)
    n_calls = options.in_graph if group.is_gpu else 1
    calls = (captured(ways, n_calls) if group.is_gpu
             else {name: way.call for name, way in ways.items()})
    us = {name: round(device_us / n_calls, 2)
          for name, (device_us, _) in measured_in_turn(calls, options, group).items()}
    return {"collective": collective, "bytes": n_bytes, "us": us}


def show(row):
    times = ", ".join(f"{name} {us:.2f}" for name, us in row["us"].items())
    print(f"{row['collective']:10} {row['bytes']:8} bytes, us: {times}")


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collectives", nargs="+", choices=COLLECTIVES, default=COLLECTIVES)
    parser.add_argument("--bytes", type=int, nargs="+", metavar="N",
                        default=[1 << i for i in range(10, 21, 2)],
                        help="multiples of 16 for each rank (default: 1024 to 1048576)")
    for name, default, what in (("in-graph", 20, "calls of a graph"),
                                ("rounds", 11, "that are measured"),
                                ("calls", 4, "replays of a method in a round")):
        parser.add_argument(f"--{name}", type=int, default=default, help=what)
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args(arguments)


def main():
    options = parse()
    n_ranks = int(os.environ["WORLD_SIZE"])
    for n_bytes in options.bytes:
        if n_bytes <= 0 or n_bytes % (16 * n_ranks):
            raise SystemExit(f"small.py: {n_bytes} bytes are no multiple of 16 for each of "
                             f"{n_ranks} ranks")
    rows = []
    with opened_group() as group, torch.no_grad():
        for collective in options.collectives:
            for n_bytes in options.bytes:
                rows.append(measure(options, group, collective, n_bytes))
                if group.rank == 0:
                    show(rows[-1])
        if group.rank == 0 and options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump({"ranks": group.size, "device": group.device.type, "dtype": "bfloat16",
                           "in_graph": options.in_graph, "rows": rows}, file)


if __name__ == "__main__":
    main()
