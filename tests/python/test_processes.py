# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Ranks in processes of their own: a transfer, collectives, operators, a rank that dies."""

import unittest

from rig import in_processes

HEAD = """
import numpy as np, os, sys, threading, time
import ceoverlap
context = ceoverlap.Context(deadline_s=20)
r, n = context.rank, context.n_ranks
"""


class Processes(unittest.TestCase):
    def run_ranks(self, n, program, statuses=None):
        done = in_processes(n, HEAD + program)
        self.assertEqual([status for status, _ in done], statuses or [0] * n,
                         "\n".join(text for _, text in done))
        return [text for _, text in done]

    def test_one_transfer(self):
        self.run_ranks(2, """
values = np.arange(1 << 16)
if r == 0:
    source = context.register(values)
    target = context.find_buffer(1, "inbox")
    arrived = context.find_signal(1, "arrived")
    plan = context.plan().add(source=source, target=target, row_bytes=values.nbytes,
                              then=arrived.mark())
    plan.commit().launch().wait()
else:
    inbox, arrived = context.allocate(values.nbytes), context.signal()
    inbox.share("inbox")
    arrived.share("arrived")
    arrived.wait(1)
    assert (inbox.view(values.dtype) == values).all()
context.barrier()
context.close()
""")

    def test_a_rank_that_does_not_come(self):
        done = in_processes(1, """
import ceoverlap, os
os.environ["CEOVERLAP_RANKS"] = "2"
try:
    ceoverlap.Context(deadline_s=0.3)
except ceoverlap.DeadlineError as error:
    print(error)
""")
        self.assertRegex(done[0][1], r"not all .* in \d+\.\d s: ")
        self.assertNotIn("refused", done[0][1])

    def test_collectives_and_operators(self):
        self.run_ranks(3, """
values = np.zeros((4, 8), np.int32)
gather = ceoverlap.AllGather(context, "gather", values)
exchange = ceoverlap.AllToAll(context, "exchange", np.repeat(np.arange(n) + 10 * r, 16))
space = ceoverlap.Workspace(context, "sums", ceoverlap.AllReduce.scratch_bytes([8] * n))
for one in (gather, exchange, space):
    one.connect()
op = ceoverlap.AllReduce(space, [8] * n, "float16")
for k in range(20):
    values[:] = 10 * r + k
    gather.run()
    whole = gather.target.view(np.int32, (n, 4, 8))
    assert (whole == (10 * np.arange(n) + k)[:, None, None]).all()
    sums = op.run(np.full(8 * n, r + k, np.float16))
    assert (sums == sum(range(n)) + n * k).all()
exchange.run()
blocks = exchange.target.view(np.int64, (n, 16))
assert (blocks == (10 * np.arange(n) + r)[:, None]).all()
context.barrier()
""")

    def test_uneven_shards(self):
        self.run_ranks(3, """
rows, k = (3, 0, 9), 16
space = ceoverlap.Workspace(context, "uneven", max(
    ceoverlap.AllGatherGemm.scratch_bytes(rows, k, 8, "float16"),
    ceoverlap.GemmReduceScatter.scratch_bytes(rows, k, 8, "float16")))
space.connect()
gather = ceoverlap.AllGatherGemm(space, rows, k, 8, "float16")
scatter = ceoverlap.GemmReduceScatter(space, rows, k, 8, "float16")
a = np.full((rows[r], k), r + 1, np.float16)
b = np.ones((8, k), np.float16)
c = gather.run(a, b)
assert (c == k * np.repeat([1, 2, 3], rows)[:, None]).all()
d = scatter.run(np.full((12, k), r + 1, np.float16), b)
assert d.shape == (rows[r], 8) and (d == 6 * k).all()
context.barrier()
""")

    def test_a_rank_that_dies(self):
        said = self.run_ranks(3, """
gather = ceoverlap.AllGather(context, "gather", np.zeros(64))
gather.connect()
gather.run()
context.barrier()
if r == 1:
    os._exit(7)
started = time.monotonic()
try:
    while True:
        gather.run()
except ceoverlap.CeoverlapError as error:
    assert isinstance(error, (ceoverlap.PeerLostError, ceoverlap.AbortedError)), repr(error)
    assert error.rank in (1, None), error.failure
    print("text:", error)
assert time.monotonic() - started < 10
""", [0, 7, 0])
        for text in (said[0], said[2]):
            self.assertIn("rank 1 was lost", text)

    def test_a_peer_that_uses_our_memory(self):
        self.run_ranks(2, """
if r == 0:
    buffer = context.allocate(4099)
    buffer.share("block")
    context.barrier()                   # found
    assert not buffer.release()
    context.barrier()                   # may be dropped
    assert buffer.release(timeout_s=10)
else:
    found = context.find_buffer(0, "block")
    assert (found.size_bytes, found.name, found.place.kind) == (4099, "block", "host"), found
    assert (context.n_processes, context.n_nodes, context.node) == (2, 1, 0)
    context.barrier()
    context.barrier()
    found.close()
context.barrier()
""")


if __name__ == "__main__":
    unittest.main()
