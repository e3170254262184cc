#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Embedding bags + all-to-all of ceoverlap beside PyTorch's, in one run, at the shapes of
"ceoverlap-bench overlap -t embedding_a2a": MLPerf's dlrm, 26 tables of all ranks, bf16.

    torchrun --nproc-per-node 4 bench/peers/embedding.py --json embedding.json

Methods, which take turns on the same data:

    operator           ceov_embedding_a2a
    torch.distributed  embedding_bag, all_to_all_single, and the copy to samples x columns
    look-ups           embedding_bag alone
    communication      all_to_all_single alone

PyTorch looks up all tables of a rank by one call, since all have as many rows and columns: they are
one weight, and bags lie by sample and then table, so that all_to_all_single takes what it returns.
Times are medians of rounds, the largest of all ranks. "ideal" is the longer one of the last two.
"""

import argparse
import json
import os
import sys

import torch
import torch.distributed as dist
from torch.nn import functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from ceoverlap.buffer import memory_of                      # noqa: E402
from ceoverlap.ops_embedding import EmbeddingAllToAll       # noqa: E402
from torch_calls import measured_in_turn, opened_group      # noqa: E402

PARTS = ("look-ups", "communication")   # methods that are no peers
TOLERANCE = 0.01                        # of the norm
TABLES = 26                             # of all ranks


class Bags:
    """This rank's tables, one behind the other, and a bag for each of its tables and each sample.

    indices, offsets  by table and then sample, rows of the table: as ceoverlap takes them
    merged            the same by sample and then table, rows of all tables: for PyTorch
    """

    def __init__(self, options, group):
        n_tables, n_samples = options.tables, options.samples
        device = group.device
        self.weight = torch.randn(n_tables * options.rows, options.columns,
                                  device=device).bfloat16()
        n_of = torch.randint(options.bag + 1, (n_tables, n_samples), device=device)
        self.offsets = F.pad(n_of.flatten().cumsum(0), (1, 0))
        n_indices = int(self.offsets[-1])
        self.indices = torch.randint(options.rows, (n_indices,), device=device)
        begins = self.offsets[:-1].view(n_tables, n_samples).t().flatten()
        merged_n = n_of.t().flatten()
        merged_offsets = F.pad(merged_n.cumsum(0), (1, 0))
        table = (torch.arange(n_tables, device=device) * options.rows).repeat(n_samples)
        place = torch.arange(n_indices, device=device)
        place += (begins - merged_offsets[:-1]).repeat_interleave(merged_n)
        self.merged = (self.indices[place] + table.repeat_interleave(merged_n), merged_offsets)


def methods_of(options, group, bags):
    """{name: call}"""
    size, own, width = group.size, options.samples // group.size, options.tables * options.columns
    pooled = torch.empty(own, size * width, device=group.device, dtype=torch.bfloat16)
    tables = ((options.rows, options.columns),) * options.tables
    op = group.operators.get(EmbeddingAllToAll, (own,) * size, (tables,) * size, "bfloat16")
    operands = [memory_of(one) for one in (bags.weight.view(-1), bags.indices, bags.offsets,
                                           pooled)]
    received = torch.empty(size * own, width, device=group.device, dtype=torch.bfloat16)

    def ours():
        op.run(*operands, stream=torch.cuda.current_stream() if group.is_gpu else None)
        return pooled

    def look_up():
        return F.embedding_bag(bags.merged[0], bags.weight, bags.merged[1], mode="sum",
                               include_last_offset=True).view(-1, width)

    sent = look_up()

    def exchange():
        dist.all_to_all_single(received, sent)
        return received

    def one_after_the_other():
        dist.all_to_all_single(received, look_up())
        return received.view(size, own, width).transpose(0, 1).reshape(own, -1)
    return {"operator": ours, "torch.distributed": one_after_the_other, "look-ups": look_up,
            "communication": exchange}


def check(methods):
    """SystemExit where ceoverlap's vectors are not PyTorch's, within bf16 noise."""
    wanted = methods["torch.distributed"]().float()
    error = ((methods["operator"]().float() - wanted).norm() / wanted.norm()).item()
    if not error < TOLERANCE:
        raise SystemExit(f"embedding.py: the operator differs by {error} of the norm")
    return error


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples-of-all", type=int, nargs="+", default=[8192, 65536],
                        metavar="N", help="samples of all ranks, multiples of their number")
    parser.add_argument("--tables", type=int, help="of a rank (default: its part of 26)")
    for name, default, what in (("columns", 128, "of a table"),
                                ("rows", 1 << 20, "of a table"), ("bag", 16, "most indices of one"),
                                ("rounds", 11, "that are measured"),
                                ("calls", 6, "of a method in a round")):
        parser.add_argument(f"--{name}", type=int, default=default, help=what)
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args(arguments)


def measure(options, group, n_samples):
    """The row of a number of samples."""
    torch.manual_seed(group.rank)
    options.samples = n_samples
    methods = methods_of(options, group, Bags(options, group))
    error = check(methods)
    us = measured_in_turn(methods, options, group)
    return {"samples": n_samples, "tables": options.tables, "columns": options.columns,
            "rows": options.rows, "bag": options.bag, "rounds": options.rounds,
            "calls": options.calls, "us": us, "ideal_us": max(us[part][0] for part in PARTS), "error": error}


def show(row):
    print(f"{row['samples']} samples, {row['tables']} tables of {row['columns']} columns a rank: "
          f"ideal {row['ideal_us']:.1f} us, error {row['error']:.1e}")
    print(f"  {'':20} device us     CPU us")
    for name, (device_us, cpu_us) in row["us"].items():
        print(f"  {name:20}{device_us:10.1f} {cpu_us:10.1f}")


def main():
    options = parse()
    n_ranks = int(os.environ["WORLD_SIZE"])
    options.tables = options.tables or -(-TABLES // n_ranks)
    for n_samples in options.samples_of_all:
        if n_samples % n_ranks:
            raise SystemExit(f"embedding.py: {n_samples} samples cannot be shared out evenly to "
                             f"{n_ranks} ranks, as all_to_all_single wants it")
    rows = []
    with opened_group() as group, torch.no_grad():
        for n_samples in options.samples_of_all:
            rows.append(measure(options, group, n_samples))
            if group.rank == 0:
                show(rows[-1])
        if group.rank == 0 and options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump({"ranks": group.size, "device": group.device.type, "dtype": "bfloat16",
                           "rows": rows}, file)


if __name__ == "__main__":
    main()
