# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""C = A B^T by Triton on GPU 0, in tiles that arrive at their row block's mark. Copy engines
move the row blocks that are done to GPU 1 while the other tiles are computed; there programs
of a second kernel await the row block that they read, and apply ReLU. Compared with the
same kernels and one copy between them, one after the other.

    python3 examples/triton_gemm.py [M N K]             # default 8192 8192 4096

Needs two GPUs, PyTorch and Triton. Two ranks in one process; with a process each, the
signal `arrived` and the buffer `received` are shared and found by name."""

import statistics
import sys
import time

import torch
import triton
import triton.language as tl

import ceoverlap
from ceoverlap.triton import arrive, await_mark, view

BLOCK_M, BLOCK_N, BLOCK_K = 128, 256, 64
N_PIECES = 8                            # row blocks, each moved when its tiles are done
CHUNK = 8192                            # elements for a program of the consumer
ROUNDS = 20


@triton.jit(do_not_specialize=["value"])
def gemm(a, b, c, ready, n, k, value, TILES: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
         K: tl.constexpr, ARRIVES: tl.constexpr):
    """One M x N tile of C: A is m x k, B n x k, both bf16 and row-major, sums in fp32. A
    piece is TILES tiles high; its tiles have neighbouring numbers, so pieces end early."""
    n_tiles = TILES * (n // N)
    piece = tl.program_id(0) // n_tiles
    tile = tl.program_id(0) % n_tiles
    rows = (piece * TILES + tile % TILES) * M + tl.arange(0, M)
    columns = tile // TILES * N + tl.arange(0, N)
    steps = tl.arange(0, K)
    a_spots = a + rows.to(tl.int64)[:, None] * k + steps[None, :]
    b_spots = b + columns.to(tl.int64)[None, :] * k + steps[:, None]
    total = tl.zeros((M, N), tl.float32)
    for _ in range(k // K):
        total = tl.dot(tl.load(a_spots), tl.load(b_spots), total)
        a_spots += K
        b_spots += K
    tl.store(c + rows.to(tl.int64)[:, None] * n + columns[None, :], total.to(tl.bfloat16))
    if ARRIVES:
        arrive(ready, piece, n_tiles, value)


@triton.jit(do_not_specialize=["value"])
def relu(received, out, status, arrived, n_programs, value, SIZE: tl.constexpr,
         AWAITS: tl.constexpr):
    """out = max(received, 0), SIZE elements a program, n_programs a piece. Without its mark
    a program writes nothing but status."""
    left = 0
    if AWAITS:
        left = await_mark(arrived, tl.program_id(0) // n_programs, value)
    if left == 0:
        spots = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
        tl.store(out + spots, tl.maximum(tl.load(received + spots), 0.0))
    else:
        tl.store(status, left)


class Pair:
    """Both GPUs: operands and C on the first, what arrives and the result on the second."""

    def __init__(self, context, m, n, k):
        self.n_tiles, self.n, self.k = m // BLOCK_M * (n // BLOCK_N), n, k
        self.tiles_high = m // N_PIECES // BLOCK_M
        self.a = torch.randn(m, k, device="cuda:0", dtype=torch.bfloat16)
        self.b = torch.randn(n, k, device="cuda:0", dtype=torch.bfloat16)
        self.c = torch.empty(m, n, device="cuda:0", dtype=torch.bfloat16)
        self.received = torch.empty(m, n, device="cuda:1", dtype=torch.bfloat16)
        self.out = torch.empty_like(self.received)
        self.status = torch.zeros(1, device="cuda:1", dtype=torch.int32)
        self.streams = [torch.cuda.Stream(f"cuda:{gpu}") for gpu in range(2)]
        ready = context.signal(N_PIECES, rank=0, host_visible=True)
        arrived = context.signal(N_PIECES, rank=1)
        self.ready, self.arrived = view(ready, rank=0), view(arrived, rank=1)
        self.plan = self.plan_pieces(context, ready, arrived)
        self.round = 0

    def plan_pieces(self, context, ready, arrived):
        """Each piece goes when its mark is raised, and raises one behind itself."""
        source = context.register(self.c, rank=0)
        target = context.register(self.received, rank=1)
        piece_bytes = self.c.nbytes // N_PIECES
        plan = context.plan(rank=0)
        for piece in range(N_PIECES):
            plan.expect(ready.mark(1, piece))
            plan.add(source=ceoverlap.Spot(source, piece * piece_bytes),
                     target=ceoverlap.Spot(target, piece * piece_bytes),
                     row_bytes=piece_bytes, source_ready=ready.mark(1, piece),
                     then=arrived.mark(1, piece))
        return plan.commit()

    def multiply(self, value, arrives):
        with torch.cuda.stream(self.streams[0]):
            gemm[(self.n_tiles,)](self.a, self.b, self.c, self.ready, self.n, self.k, value,
                                  self.tiles_high, BLOCK_M, BLOCK_N, BLOCK_K, arrives,
                                  num_warps=8, num_stages=3)

    def consume(self, value, awaits):
        n_programs = self.c.numel() // CHUNK
        with torch.cuda.stream(self.streams[1]):
            relu[(n_programs,)](self.received, self.out, self.status, self.arrived,
                                n_programs // N_PIECES, value, CHUNK, awaits)

    def overlapped(self):
        """Queued all at once: the engine and the consumer's programs wait for marks."""
        self.round += 1
        ticket = self.plan.launch(base=self.round - 1)
        self.multiply(self.round, True)
        self.consume(self.round, True)
        ticket.wait()

    def in_sequence(self):
        """The same kernels without marks, and one copy between them."""
        self.multiply(0, False)
        with torch.cuda.stream(self.streams[0]), torch.cuda.stream(self.streams[1]):
            self.received.copy_(self.c, non_blocking=True)
        self.consume(0, False)

    def check(self, name):
        """Against torch.matmul, and bit by bit against the tiles that were computed."""
        if self.status.item():
            raise SystemExit(f"{name}: a program left with {self.status.item()}")
        torch.testing.assert_close(self.c, torch.matmul(self.a, self.b.T), rtol=2e-2, atol=0.5)
        if not torch.equal(self.out.cpu(), self.c.cpu().clamp(min=0)):
            raise SystemExit(f"{name}: GPU 1 read other bytes than GPU 0 wrote")


def synchronize():
    for gpu in range(2):
        torch.cuda.synchronize(gpu)


def median_us(pair, run):
    """Of ROUNDS rounds, each between two synchronisations of both GPUs, which also order a
    round's copies behind the last round's readers."""
    times = []
    for _ in range(ROUNDS):
        synchronize()
        start = time.perf_counter()
        run()
        synchronize()
        times.append(1e6 * (time.perf_counter() - start))
    return statistics.median(times)


def main():
    m, n, k = map(int, sys.argv[1:] or (8192, 8192, 4096))
    if m % (N_PIECES * BLOCK_M) or n % BLOCK_N or k % BLOCK_K or min(m, n, k) < 1:
        sys.exit(f"M {m}, N {n}, K {k}: must be multiples of {N_PIECES * BLOCK_M}, "
                 f"{BLOCK_N} and {BLOCK_K}")
    if torch.cuda.device_count() < 2:
        sys.exit("two GPUs are needed")
    torch.manual_seed(time.time_ns() % (1 << 32))
    print(f"seed {torch.initial_seed()}")
    with ceoverlap.Context(ranks=range(2), place=("gpu:0", "gpu:1")) as context:
        pair = Pair(context, m, n, k)
        times = {}
        for run in (pair.in_sequence, pair.overlapped):
            pair.c.zero_()
            pair.received.zero_()
            pair.out.zero_()
            synchronize()
            run()                       # compiles
            synchronize()
            pair.check(run.__name__)
            times[run] = median_us(pair, run)
            pair.check(run.__name__)
        pair.multiply(0, False)         # compiled before
        gemm_us = median_us(pair, lambda: pair.multiply(0, False))
    sequence_us, overlapped_us = times[pair.in_sequence], times[pair.overlapped]
    print(f"M {m}, N {n}, K {k}, bf16, {N_PIECES} pieces; medians of {ROUNDS}, data right")
    print(f"GEMM alone                   {gemm_us:8.0f} us")
    print(f"GEMM, then copy, then ReLU   {sequence_us:8.0f} us")
    print(f"overlapped                   {overlapped_us:8.0f} us, "
          f"{sequence_us / overlapped_us:.2f} times as fast")


if __name__ == "__main__":
    main()
