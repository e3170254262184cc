# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The Triton verbs on GPUs, against the library's: tiles start copies, kernels await what
copies and threads raise, and leave when their deadline passes or the signal is aborted.

    CEOVERLAP_TEST_SEED      of the data; printed
    CEOVERLAP_TRITON_ROUNDS  rounds of each kind (default 200)
"""

import os
import random
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import ceoverlap
from cache import use_own_cache

MISSING = ""
try:
    import torch
    import triton
    from triton.tools.tensor_descriptor import TensorDescriptor

    import kernels
    from ceoverlap.triton import ABORTED, REACHED, TIMEOUT, view
    if not torch.cuda.is_available():
        MISSING = "no GPU"
except ImportError as error:
    MISSING = f"no PyTorch with Triton: {error}"

SEED = int(os.environ.get("CEOVERLAP_TEST_SEED") or random.randrange(1 << 20))
ROUNDS = int(os.environ.get("CEOVERLAP_TRITON_ROUNDS") or 200)
N_PIECES, N_TILES, SIZE = 8, 6, 512     # tiles of a piece; int32 of a tile
ROWS, COLUMNS = 16, 32                  # the same tile, for descriptors
LONG_NS, SHORT_NS = 30_000_000_000, 5_000_000
END_S = 10.0                            # an abort is seen sooner


def setUpModule():
    use_own_cache()
    print(f"CEOVERLAP_TEST_SEED={SEED}", flush=True)


class Way:
    """Rank 0 produces, its plan moves piece by piece, rank 1 consumes. Rank 1 is on GPU
    `second`, which may be rank 0's."""

    def __init__(self, context, second):
        n = N_PIECES * N_TILES * SIZE
        self.context, self.second = context, second
        self.source = torch.zeros(n // COLUMNS, COLUMNS, dtype=torch.int32, device="cuda:0")
        self.target = torch.zeros(n, dtype=torch.int32, device=f"cuda:{second}")
        self.found = torch.zeros(2, dtype=torch.int32, device=f"cuda:{second}")
        self.streams = [torch.cuda.Stream("cuda:0"), torch.cuda.Stream(f"cuda:{second}")]
        self.ready = context.signal(N_PIECES, rank=0, host_visible=True)
        self.arrived = context.signal(N_PIECES, rank=1)
        self.free = context.signal(1, rank=1, host_visible=True)
        self.views = view(self.ready, rank=0), view(self.arrived, rank=1)
        self.plan = self.plan_pieces()
        torch.cuda.synchronize(0)
        torch.cuda.synchronize(second)

    def plan_pieces(self):
        source = self.context.register(self.source, rank=0)
        target = self.context.register(self.target, rank=1)
        plan = self.context.plan(rank=0).expect(self.free.mark(0))
        n_bytes = N_TILES * SIZE * 4
        for piece in range(N_PIECES):
            plan.expect(self.ready.mark(1, piece))
            plan.add(source=ceoverlap.Spot(source, piece * n_bytes),
                     target=ceoverlap.Spot(target, piece * n_bytes), row_bytes=n_bytes,
                     source_ready=self.ready.mark(1, piece), target_free=self.free.mark(0),
                     then=self.arrived.mark(1, piece))
        return plan.commit()

    def produce(self, k, by_tma=False):
        with torch.cuda.stream(self.streams[0]):
            if by_tma:
                out = TensorDescriptor.from_tensor(self.source, [ROWS, COLUMNS])
                kernels.produce_by_tma[(N_PIECES * N_TILES,)](
                    out, self.views[0], N_TILES, k + 1, SEED + k, ROWS, COLUMNS)
            else:
                kernels.produce[(N_PIECES * N_TILES,)](
                    self.source, self.views[0], N_TILES, k + 1, SEED + k, SIZE)

    def consume(self, k):
        with torch.cuda.stream(self.streams[1]):
            kernels.consume[(N_PIECES * N_TILES,)](
                self.target, self.found, self.views[1], N_TILES, k + 1, SEED + k, SIZE)

    def run(self, k, is_gated, by_tma=False):
        """Round k: gated or polled; in each third the consumer is there before the producer
        or, gated, before the launch. Nothing is queued behind a kernel that waits: streams
        may share what the driver queues them on."""
        consumer_is_first = k % 3 == 2  # all is compiled by then
        if is_gated:
            self.produce(k, by_tma)
        if is_gated and consumer_is_first:
            self.consume(k)
        ticket = self.plan.launch(k, producer_stream=self.streams[0] if is_gated else None)
        if not is_gated and consumer_is_first:
            self.consume(k)
        if not is_gated:
            self.produce(k, by_tma)
        if not consumer_is_first:
            self.consume(k)
        ticket.wait()                   # the source may be written again
        self.streams[1].synchronize()
        self.free.raise_to(k + 1)       # and so may the target

    def result(self):
        """[wrong words, what programs that left were told, summed up]"""
        for stream in self.streams:
            stream.synchronize()
        return self.found.tolist()


@unittest.skipIf(MISSING, MISSING)
class OnGpus(unittest.TestCase):
    def open(self, second=0):
        context = ceoverlap.Context(range(2), place=("gpu:0", f"gpu:{second}"), deadline_s=30)
        self.addCleanup(context.close)
        return context

    def rounds(self, second, by_tma=False):
        way = Way(self.open(second), second)
        for k in range(ROUNDS):
            way.run(k, k // 5 % 2 == 1, by_tma)
        self.assertEqual(way.result(), [0, 0])
        self.assertTrue(torch.equal(way.source.flatten().cpu(), way.target.cpu()))

    def awaiter(self, signal):
        """A function that queues a kernel awaiting (value, timeout_ns), and one that
        returns what all its threads were told. Both are compiled."""
        result = torch.full((128,), -1, dtype=torch.int32, device="cuda:0")
        stream, seen = torch.cuda.Stream("cuda:0"), view(signal, rank=0)

        def queue(value, timeout_ns):
            with torch.cuda.stream(stream):
                result.fill_(-1)
                kernels.await_only[(1,)](seen, result, value, timeout_ns)

        def told():
            stream.synchronize()
            values = set(result.tolist())
            self.assertEqual(len(values), 1, f"threads were told {values}")
            return values.pop()

        torch.cuda.synchronize(0)
        queue(0, LONG_NS)
        self.assertEqual(told(), REACHED.value)
        return queue, told

    def test_tiles_start_copies_that_a_kernel_awaits_on_one_gpu(self):
        self.rounds(0)

    def test_tiles_start_copies_that_a_kernel_awaits_at_a_peer(self):
        if torch.cuda.device_count() < 2:
            self.skipTest("needs 2 GPUs: it is about copies from one to the other")
        self.rounds(1)

    def test_tiles_stored_by_descriptors(self):
        if torch.cuda.get_device_capability(0) < (9, 0):
            self.skipTest("needs TMA (sm_90)")
        self.rounds(min(torch.cuda.device_count() - 1, 1), by_tma=True)

    def test_the_last_tile_raises_and_the_tally_wraps(self):
        context = self.open()
        for place in (None, "host"):
            signal = context.signal(4, rank=0, place=place, host_visible=place is None)
            stream, seen = torch.cuda.Stream("cuda:0"), view(signal, rank=0)
            for k in range(1, ROUNDS + 1):
                n_tiles = 1 + k * 7 % 100
                with torch.cuda.stream(stream):
                    kernels.arrive_only[(4 * n_tiles,)](seen, 4, n_tiles, k)
                for index in range(4):
                    signal.wait(k, index)
                    self.assertEqual(signal.value(index), k)
            stream.synchronize()
            with torch.cuda.stream(stream):
                kernels.arrive_only[(4 * 99,)](seen, 4, 100, ROUNDS + 1)
            stream.synchronize()
            self.assertFalse(signal.has_reached(ROUNDS + 1))
            with torch.cuda.stream(stream):
                kernels.arrive_only[(4,)](seen, 4, 100, ROUNDS + 1)
            signal.wait(ROUNDS + 1)

    def test_kernels_await_threads_and_kernels(self):
        context = self.open()
        signal = context.signal(1, rank=0, host_visible=True)
        queue, told = self.awaiter(signal)
        other, seen = torch.cuda.Stream("cuda:0"), view(signal, rank=0)
        with torch.cuda.stream(other):
            kernels.arrive_only[(1,)](seen, 1, 1, 1)    # compiled while nobody waits
        signal.wait(1)
        for value in range(2, ROUNDS // 4 + 2):
            queue(value, LONG_NS)
            if value % 2:
                signal.raise_to(value)
            else:
                with torch.cuda.stream(other):
                    kernels.arrive_only[(1,)](seen, 1, 1, value)
            self.assertEqual(told(), REACHED.value)

    def test_a_deadline_ends_await(self):
        signal = self.open().signal(1, rank=0)         # a view does not keep it
        queue, told = self.awaiter(signal)
        for _ in range(5):
            start = time.monotonic()
            queue(1, SHORT_NS)
            self.assertEqual(told(), TIMEOUT.value)
            took = time.monotonic() - start
            self.assertGreaterEqual(took, SHORT_NS * 1e-9 / 2)
            self.assertLess(took, END_S)

    def test_an_abort_ends_await_and_a_renewal_begins_anew(self):
        context = self.open()
        ready, then = (context.signal(1, rank=0, host_visible=True) for _ in range(2))
        source, target = (context.allocate(4096, rank=0) for _ in range(2))
        plan = context.plan(rank=0).expect(ready.mark())
        plan.add(source=source, target=target, row_bytes=4096, source_ready=ready.mark(),
                 then=then.mark()).commit()
        queue, told = self.awaiter(then)
        ticket = plan.launch()
        queue(1, LONG_NS)
        with self.assertRaises(ceoverlap.PendingError):
            ticket.wait(timeout_s=0.02)
        start = time.monotonic()
        self.assertTrue(ticket.abort())
        self.assertEqual(told(), ABORTED.value)
        self.assertLess(time.monotonic() - start, END_S)
        with self.assertRaises(ceoverlap.AbortedError):
            ticket.wait()
        queue(0, LONG_NS)               # reached before: aborted all the same
        self.assertEqual(told(), ABORTED.value)
        ready.renew()
        then.renew()
        queue(1, SHORT_NS)
        self.assertEqual(told(), TIMEOUT.value)
        ticket = plan.launch()
        queue(1, LONG_NS)
        ready.raise_to(1)
        self.assertEqual(told(), REACHED.value)
        ticket.wait()


if __name__ == "__main__":
    unittest.main()
