# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Calls of all kinds over memory that goes back to the driver and comes again: what is kept by
address must not be taken for what it was. On GPUs torch.cuda.empty_cache() gives memory back
between calls; the caches of the library then see equal addresses of other allocations.

It is also a program, which makes more calls in a random order, for example

    torchrun --nproc-per-node 2 tests/python/torch/test_memory.py 300

with tests/python/torch in PYTHONPATH; CEOVERLAP_TEST_SEED repeats one."""

import datetime
import os
import random
import sys
import unittest

import rig
import torch
import torch.distributed as dist
from rig import equal, integers

import ceoverlap.torch as ct

CALLS = 24 if rig.SHARES_GPUS or not rig.HAS_GPUS else 120
K, N = 128, 96                          # of products
BF16 = torch.bfloat16


def everybodys(tag, shape, dtype, size):
    return [integers(tag, rank, shape, dtype) for rank in range(size)]


def sparse(tag, shape, size):
    """Rows whose products with a weight of -1, 0 and 1 are exact in bf16, also their sums."""
    xs = everybodys(tag, shape, BF16, size)
    for x in xs:
        x[:, 32:] = 0
    return xs


def rows_of(scale, size):
    """Rows of 1024 floats: of few bytes, and on GPUs of so many that copy engines move them."""
    return ((16, 64, 256, 1024) if rig.HAS_GPUS else (16, 64, 16, 64))[scale] * size


def all_reduce(tag, scale, rank, size):
    xs = everybodys(tag, (rows_of(scale, size), 1024), torch.float32, size)
    return ct.all_reduce(xs[rank]), sum(xs)


def all_gather(tag, scale, rank, size):
    xs = everybodys(tag, (rows_of(scale, size), 1024), torch.float32, size)
    return ct.all_gather(xs[rank]), torch.cat(xs)


def all_to_all(tag, scale, rank, size):
    xs = everybodys(tag, (rows_of(scale, size), 1024), torch.float32, size)
    return ct.all_to_all(xs[rank]), torch.cat([x.chunk(size)[rank] for x in xs])


def reduce_scatter(tag, scale, rank, size):
    xs = everybodys(tag, (rows_of(scale, size), 1024), torch.float32, size)
    return ct.reduce_scatter(xs[rank]), sum(xs).chunk(size)[rank]


def all_gather_matmul(tag, scale, rank, size):
    xs, weight = sparse(tag, (rows_of(scale, size), K), size), integers(tag, 9, (N, K), BF16)
    return ct.all_gather_matmul(xs[rank], weight), torch.cat(xs) @ weight.t()


def matmul_reduce_scatter(tag, scale, rank, size):
    xs, weight = sparse(tag, (rows_of(scale, size), K), size), integers(tag, 9, (N, K), BF16)
    sums = sum((x @ weight.t()).float() for x in xs)
    return ct.matmul_reduce_scatter(xs[rank], weight), sums.chunk(size)[rank].to(BF16)


def gemm_with_marks(tag, scale, rank, size):
    x, weight = sparse(tag, (rows_of(scale, size), K), size)[rank], integers(tag, 9, (N, K), BF16)
    with torch.no_grad():
        y = ct.gemm_with_marks(x, weight, lambda i, rows: rows.neg_(), n_groups=2)
    return y, -(x @ weight.t())


def moe(tag, scale, rank, size):
    """Each expert doubles; weights are powers of 2."""
    x = integers(tag, rank, (rows_of(scale, size) // 8, 256), BF16)
    chosen = torch.arange(2 * len(x), device=x.device).view(-1, 2) % (2 * size)
    weights = torch.full(chosen.shape, 0.5, device=x.device)
    y = ct.moe(x, chosen, weights, lambda rows, ends: rows * 2, 2 * size)
    return y, x * 2


def backward(tag, scale, rank, size):
    """Gradients, whose memory PyTorch's own thread takes."""
    xs = sparse(tag, (rows_of(scale, size), K), size)
    x, weight = xs[rank].requires_grad_(), integers(tag, 9, (N, K), BF16)
    ct.all_gather_matmul(x, weight).backward(torch.ones(
        (len(x) * size, N), device=x.device, dtype=BF16))
    ones = torch.ones((len(x), N), device=x.device, dtype=torch.float32)
    return x.grad, (size * (ones @ weight.float())).to(BF16)


KINDS = (all_reduce, all_gather, all_to_all, reduce_scatter, all_gather_matmul,
         matmul_reduce_scatter, gemm_with_marks, moe, backward)


def play(n_calls: int) -> None:
    """A few kinds and sizes again and again, so that addresses and shapes repeat; memory goes
    back behind every third call or so, when its result was checked."""
    rank, size = dist.get_rank(), dist.get_world_size()
    choose = random.Random(rig.SEED)
    for i in range(n_calls):
        kind, scale = choose.choice(KINDS), choose.randrange(4)
        got, wanted = kind(1000 + i, scale, rank, size)
        equal(got, wanted, (i, kind.__name__, scale))
        del got, wanted
        if rig.HAS_GPUS and choose.random() < 0.4:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
    ct.Group.of().operators.check()


def one_after_another() -> None:
    """Each kind six times with the same size, and nothing else: memory of the same address."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for kind in KINDS:
        for i in range(6):
            got, wanted = kind(2000 + i, 3, rank, size)
            equal(got, wanted, (kind.__name__, i))
            del got, wanted
            if rig.HAS_GPUS:
                torch.cuda.synchronize()
                torch.cuda.empty_cache()


class MemoryComesAgain(unittest.TestCase):

    def test_calls_of_all_kinds(self):
        rig.run(play, CALLS)

    def test_each_kind(self):
        rig.run(one_after_another)


def main() -> None:
    rank = int(os.environ["RANK"])
    if rig.HAS_GPUS:
        torch.cuda.set_device(rank % rig.N_GPUS)
    dist.init_process_group(rig.backend_of(int(os.environ["WORLD_SIZE"])),
                            timeout=datetime.timedelta(seconds=rig.LIMIT_S))
    seeds = [rig.SEED]
    dist.broadcast_object_list(seeds)   # the first rank's
    rig.SEED = seeds[0]
    n_calls = int(sys.argv[1])
    print(f"rank {rank}: CEOVERLAP_TEST_SEED={rig.SEED}", flush=True)
    play(n_calls)
    print(f"rank {rank}: {n_calls} calls right", flush=True)
    dist.barrier()
    ct.Group.of().close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main() if "RANK" in os.environ else unittest.main()
