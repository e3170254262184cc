# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Collectives of torch.distributed by the backend "ceov" beside NCCL's in one process (on the host:
beside Gloo's), of 1 KiB to 256 MiB, called one by one on a stream and replayed from a CUDA graph.
Both take turns; times are device time and time of the calling thread, medians over rounds, the
largest of all ranks. The bytes are those of the whole: what an all-gather gives, what others take.

    torchrun --nproc-per-node 2 bench/torch_backend.py
"""

import argparse
import json
import os
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch_calls import measured_in_turn

import ceoverlap.torch as ct

KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
LARGE = 1 << 20                         # bytes, from which fewer calls are made


def start():
    """Returns the group whose channel is measured, and the process group beside it."""
    is_gpu, n_gpus = torch.cuda.is_available(), torch.cuda.device_count()
    if is_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % n_gpus)
    device = torch.device("cuda", torch.cuda.current_device()) if is_gpu else torch.device("cpu")
    dist.init_process_group("cuda:ceov,cpu:gloo" if is_gpu else "cpu:ceov")
    has_one_each = n_gpus >= dist.get_world_size()
    other = dist.new_group(backend="nccl") if has_one_each else (
        None if is_gpu else dist.new_group(backend="gloo"))
    dist.all_reduce(torch.ones(1, device=device))       # all ranks meet
    group = ct.backend.backend_of().group_on(device.type)
    if group is None or group.channel is None:
        raise SystemExit("these ranks have no channel: nothing of ceov's is there to be measured")
    return group, other


def call_of(kind, n_bytes, group, process_group):
    """Returns a function that makes a call of torch.distributed."""
    whole = torch.zeros(n_bytes // 2, dtype=torch.bfloat16, device=group.device)
    part = torch.zeros(n_bytes // 2 // group.size, dtype=whole.dtype, device=group.device)
    if kind == "all_gather":
        return lambda: dist.all_gather_into_tensor(whole, part, process_group)
    if kind == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(part, whole, group=process_group)
    if kind == "all_reduce":
        return lambda: dist.all_reduce(whole, group=process_group)
    result = torch.zeros_like(whole)
    return lambda: dist.all_to_all_single(result, whole, group=process_group)


def replayed(call, n_calls):
    """Returns a function that replays a graph of that many calls."""
    call()
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(n_calls):
            call()
    return graph.replay


def row(kind, n_bytes, group, other, options):
    """Returns {way: [device us, calling thread's us]} of one call."""
    n_calls = options.calls if n_bytes < LARGE else max(options.calls // 5, 1)
    calls = {"ceov": call_of(kind, n_bytes, group, None)}
    if other is not None:
        calls[dist.get_backend(other)] = call_of(kind, n_bytes, group, other)
    times = measured_in_turn(calls, SimpleNamespace(rounds=options.rounds, calls=n_calls), group)
    if group.is_gpu:
        graphs = {f"{name} graph": replayed(call, n_calls) for name, call in calls.items()}
        found = measured_in_turn(graphs, SimpleNamespace(rounds=options.rounds, calls=1), group)
        times.update({name: [round(us / n_calls, 2) for us in both]
                      for name, both in found.items()})
        torch.cuda.synchronize()
        dist.barrier()                  # before graphs go
    return times


def text_of(kind, n_bytes, times):
    """Returns a line of the table: of each way the device time, and the other one's by ours."""
    line = f"{kind:15}{n_bytes:>11}"
    for suffix in ("", " graph"):
        ours = times.get(f"ceov{suffix}")
        others = [us for name, us in times.items()
                  if not name.startswith("ceov") and name.endswith(" graph") == bool(suffix)]
        if ours is None:
            continue
        line += f"{ours[0]:11.1f}"
        line += f"{others[0][0]:11.1f}{others[0][0] / ours[0]:7.2f}" if others else " " * 18
        line += f"{ours[1]:8.1f}" + (f"{others[0][1]:8.1f}" if others else "")
    return line


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--kinds", default=",".join(KINDS))
    for name, default in (("smallest", 1 << 10), ("largest", 256 << 20), ("rounds", 9),
                          ("calls", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


def main():
    options = parse()
    group, other = start()
    results = []
    if group.rank == 0:
        print(f"{group.size} ranks, {group.device.type}, PyTorch {torch.__version__}, bf16; us of "
              "ceov, of the other, other / ceov, and the calling threads' us; then by a graph")
    for kind in options.kinds.split(","):
        n_bytes = options.smallest
        while n_bytes <= options.largest:
            times = row(kind, n_bytes, group, other, options)
            results.append({"kind": kind, "bytes": n_bytes, "us": times})
            if group.rank == 0:
                print(text_of(kind, n_bytes, times), flush=True)
            n_bytes *= 4
    if group.rank == 0 and options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"ranks": group.size, "rows": results}, file)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
