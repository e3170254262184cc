# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""What FSDP2's all-gathers had the GPU do, by their parts: the copy-in with its casts, the
all-gather itself, and the copy-out; and how long one takes by itself. torch_fsdp.py
--profile prints it."""

import statistics

import torch
import torch.distributed as dist


def part_of(name, outer):
    """Of a parameter group's all-gather, the part that an event within `outer` belongs to."""
    if name.startswith("FSDP::all_gather_copy_out"):
        return "copy-out"
    if name.startswith("FSDP::all_gather"):
        return "all-gather"
    if outer == "all-gather" and ("_foreach_copy_" in name or "all_gather_copy_in" in name):
        return "copy-in and its casts"
    return outer


def gather_work(events):
    """{part: {name of a kernel or copy: [how many, us]}} of the events of a torch.profiler
    profile. Batches of copies, which the profiler ties to no event, are not there:
    ceoverlap's are such."""
    work = {}
    pending = [(event, None) for event in events if event.name.startswith("FSDP::all_gather")]
    while pending:
        event, outer = pending.pop()
        part = part_of(event.name, outer)
        pending.extend((child, part) for child in event.cpu_children)
        for kernel in event.kernels:
            if kernel.name == event.name:       # the span of the event, not work
                continue
            entry = work.setdefault(part, {}).setdefault(kernel.name, [0, 0.0])
            entry[0] += 1
            entry[1] += kernel.duration
    return work


def kernel_us(work):
    """Of kernels alone: copies and fills by name are none."""
    return sum(us for name, (_, us) in work.items() if not name.startswith("Mem"))


# --- one all-gather by itself -------------------------------------------------------------


def unshard_us(module, device):
    """Of the GPU, until the module's parameters are there, copied out where need be."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    dist.barrier()
    torch.cuda.synchronize(device)
    begin.record()
    module.unshard()
    end.record()
    module.reshard()
    torch.cuda.synchronize(device)
    return begin.elapsed_time(end) * 1e3


def median_unshard_us(modules, device, rounds=21):
    """For each of the modules, which are taken in turn."""
    times = [[] for _ in modules]
    for i in range(3 + rounds):
        for module, taken in zip(modules, times):
            us = unshard_us(module, device)
            if i >= 3:                  # warm
                taken.append(us)
    return [statistics.median(taken) for taken in times]
