# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""A row-parallel linear layer whose sum over ranks is NCCL's all-reduce, behind the whole product
and behind groups of its rows:

    torchrun --nproc-per-node 4 examples/torch_marks_nccl.py
    torchrun --nproc-per-node 2 examples/torch_marks_nccl.py --device cpu --tokens 300 \\
        --inner 64 --hidden 72 --rounds 2

The second way is ceoverlap's product: as soon as a group of rows is stored, NCCL sums it on a side
stream, while further rows are computed. Rounds take both ways in turn, and results are compared.
--n-sms leaves the other SMs to NCCL; without it the product takes tiles on those that NCCL leaves.
"""

import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist

import ceoverlap.torch as ct

NOISE = 2e-2                            # of sums in bf16


def plain(x, weight, _):
    y = x @ weight.t()
    dist.all_reduce(y)
    return y


def by_groups(x, weight, arguments):
    return ct.gemm_with_marks(x, weight, lambda _, rows: dist.all_reduce(rows), arguments.group,
                              arguments.groups)


def microseconds(way, x, weight, arguments):
    """The slowest rank's time of a step."""
    is_gpu = x.is_cuda
    dist.barrier()
    if is_gpu:
        torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(arguments.steps):
        way(x, weight, arguments)
    if is_gpu:
        torch.cuda.synchronize()
    took = torch.tensor([(time.perf_counter() - begun) * 1e6 / arguments.steps], device=x.device)
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return took.item()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--inner", type=int, default=28672, help="of all ranks")
    parser.add_argument("--hidden", type=int, default=8192)
    parser.add_argument("--groups", type=int, default=0, help="of rows; 0: ceoverlap chooses")
    parser.add_argument("--n-sms", type=int, default=0, help="for the product; 0: all")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=5, help="of a way in each round")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    return parser.parse_args()


def main():
    arguments = parse()
    is_gpu = arguments.device == "cuda"
    if is_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if is_gpu else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", torch.cuda.current_device()) if is_gpu else torch.device("cpu")
    arguments.group = ct.Group(device=device, n_sms=arguments.n_sms)
    generator = torch.Generator(device).manual_seed(rank)
    shape = {"generator": generator, "device": device}
    x = torch.randn(arguments.tokens, arguments.inner // size, **shape).bfloat16()
    weight = torch.randn(arguments.hidden, arguments.inner // size, **shape).bfloat16()

    expected, got = plain(x, weight, arguments), by_groups(x, weight, arguments)
    difference = ((got.float() - expected.float()).norm() / expected.float().norm()).item()
    times = {plain: [], by_groups: []}
    for _ in range(arguments.rounds):
        for way, found in times.items():
            found.append(microseconds(way, x, weight, arguments))
    if rank == 0:
        whole, grouped = (statistics.median(found) for found in times.values())
        print(f"{size} ranks, {arguments.tokens} x {arguments.inner // size} x "
              f"{arguments.hidden}: product and all-reduce {whole:.1f} us, by groups "
              f"{grouped:.1f} us ({whole / grouped:.2f}), difference {difference:.1e}")
    arguments.group.close()
    dist.destroy_process_group()
    if not difference < NOISE:
        raise SystemExit(f"rank {rank}: results differ by {difference:.1e}")


if __name__ == "__main__":
    main()
