# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""What a call of ceoverlap.torch costs beside the C call that it makes, and beside NCCL and
PyTorch's product one after another: device time by events and time of the calling thread,
medians over rounds that take all ways in turn, the largest of all ranks.

    torchrun --nproc-per-node 4 bench/torch_calls.py            # llama70b, bf16
"""

import argparse
import contextlib
import json
import os
import statistics
import time

import torch
import torch.distributed as dist

import ceoverlap.torch as ct
from ceoverlap import ops
from ceoverlap.torch import operators

WARMUP = 3                              # rounds


@contextlib.contextmanager
def opened_group(has_own_stream=True):
    """A group of all processes that torchrun has started, on GPUs if there are any; calls within go
    to a stream of their own, or to the default one."""
    is_gpu, n_gpus = torch.cuda.is_available(), torch.cuda.device_count()
    has_one_each = is_gpu and n_gpus >= int(os.environ["WORLD_SIZE"])
    if is_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % n_gpus)
    dist.init_process_group("nccl" if has_one_each else "gloo")     # NCCL shares no GPU
    group = ct.Group()
    with torch.cuda.stream(torch.cuda.Stream() if is_gpu and has_own_stream else None):
        yield group
    group.close()
    dist.destroy_process_group()


class Data:
    """A rank's operands: x, the shard of all rows; up, n x k; wide, all rows of its
    columns; down."""

    def __init__(self, options, group):
        device, size = group.device, group.size
        self.rows = options.tokens // size
        self.hidden, self.ffn = options.hidden, options.ffn // size

        def random(*shape):
            return torch.randn(*shape, device=device).bfloat16()

        self.x, self.few = random(self.rows, self.hidden), random(64, self.hidden)
        self.up = random(self.ffn, self.hidden) * 0.02
        self.wide = random(self.rows * size, self.ffn)
        self.down = random(self.hidden, self.ffn) * 0.02
        self.all_x = torch.empty(self.rows * size, self.hidden, device=device,
                                 dtype=torch.bfloat16)
        self.own = torch.empty_like(self.x)


def c_all_gather_gemm(group, x, weight):
    """The C call alone, on memory that is there."""
    rows = (x.shape[0],) * group.size
    result = x.new_empty((sum(rows), weight.shape[0]))
    op = group.operators.get(ops.AllGatherGemm, rows, x.shape[1], (weight.shape[0],),
                             "bfloat16", None, False)
    unused = [0] * (len(operators._NONE) - 1)
    pointers = (x.data_ptr(), weight.data_ptr(), *unused, result.data_ptr(), *unused, 0)

    def call():
        operators._ag_gemm(group, op, *pointers)
        return result
    return call


def c_gemm_reduce_scatter(group, x, weight):
    """The same of the other operator."""
    rows = (x.shape[0] // group.size,) * group.size
    result = x.new_empty((rows[0], weight.shape[0]))
    op = group.operators.get(ops.GemmReduceScatter, rows, x.shape[1], weight.shape[0],
                             "bfloat16", None, False)
    pointers = x.data_ptr(), weight.data_ptr(), result.data_ptr()

    def call():
        operators._gemm_rs(group, op, *pointers)
        return result
    return call


def ways_of(data, group):
    """{name: call}; those of one first word do the same."""
    def nccl_gather():
        dist.all_gather_into_tensor(data.all_x, data.x)
        return data.all_x @ data.up.t()

    def nccl_scatter():
        dist.reduce_scatter_tensor(data.own, data.wide @ data.down.t())
        return data.own

    return {
        "gather C": c_all_gather_gemm(group, data.x, data.up),
        "gather operator": lambda: ct.all_gather_matmul(data.x, data.up, group),
        "gather torch.distributed": nccl_gather,
        "few C": c_all_gather_gemm(group, data.few, data.up),
        "few operator": lambda: ct.all_gather_matmul(data.few, data.up, group),
        "scatter C": c_gemm_reduce_scatter(group, data.wide, data.down),
        "scatter operator": lambda: ct.matmul_reduce_scatter(data.wide, data.down, group),
        "scatter torch.distributed": nccl_scatter,
    }


def check(ways):
    """All of one first word agree, within bf16 noise."""
    first = {}
    for name, call in ways.items():
        result = call().float()
        wanted = first.setdefault(name.split()[0], result.clone())
        error = ((result - wanted).abs().max() / wanted.abs().max()).item()
        if not error < 0.02:
            raise SystemExit(f"{name}: differs by {error} of the largest number")


def measured(call, n_calls, group):
    """(device us, calling thread's us) a call."""
    if not group.is_gpu:
        begin = time.perf_counter()
        for _ in range(n_calls):
            call()
        took = (time.perf_counter() - begin) / n_calls * 1e6
        return took, took
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    call()                              # ranks meet
    begin.record()
    start = time.perf_counter()
    for _ in range(n_calls):
        call()
    cpu_us = (time.perf_counter() - start) / n_calls * 1e6
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / n_calls * 1e3, cpu_us


def median_of_ranks(values, group):
    """The largest of the ranks' medians."""
    return max(float(one) for one in group.exchange(repr(statistics.median(values))))


def measured_in_turn(ways, options, group):
    """{name: [device us, calling thread's us]} of a call: medians over rounds in which all ways
    take turns, the largest of all ranks."""
    times = {name: [] for name in ways}
    for i in range(WARMUP + options.rounds):
        for name, call in ways.items():
            sample = measured(call, options.calls, group)
            if i >= WARMUP:
                times[name].append(sample)
    return {name: [round(median_of_ranks(column, group), 1) for column in zip(*samples)]
            for name, samples in times.items()}


def run(options, group):
    ways = ways_of(Data(options, group), group)
    with torch.no_grad():
        check(ways)
        return measured_in_turn(ways, options, group)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for name, default in (("tokens", 8192), ("hidden", 8192), ("ffn", 28672), ("rounds", 11),
                          ("calls", 6)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--side", action="store_true",
                        help="on a stream of its own instead of the default one")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


def report(options, group, results):
    """Prints what run() has measured, and writes it as JSON."""
    print(f"{group.size} ranks, {group.device.type}, tokens {options.tokens}, hidden "
          f"{options.hidden}, ffn {options.ffn}, bf16")
    if group.shares_gpus:
        print(f"{torch.cuda.device_count()} GPU(s) for {group.size} ranks, which take turns: the "
              "times say nothing of speed")
    print(f"{'':28} device us     CPU us")
    for name, (device_us, cpu_us) in results.items():
        print(f"{name:28}{device_us:10.1f} {cpu_us:10.1f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({**vars(options), "ranks": group.size, "us": results}, file)


def main():
    options = parse()
    with opened_group(options.side) as group:
        results = run(options, group)
        if group.rank == 0:
            report(options, group, results)


if __name__ == "__main__":
    main()
