# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Ranks in processes that act as several nodes: what goes between nodes goes over UCX."""

import unittest

from rig import in_processes

HEAD = """
import numpy as np, os, sys
import ceoverlap
try:
    context = ceoverlap.Context(deadline_s=20)
except ceoverlap.errors.CeoverlapError as error:
    if "cannot reach others" not in str(error):
        raise
    sys.exit(77)
r, n = context.rank, context.n_ranks
"""


class Nodes(unittest.TestCase):
    def run_ranks(self, n, n_nodes, program, has_ranks=True):
        done = in_processes(n, HEAD + program, n_nodes, has_ranks)
        if all(status == 77 for status, _ in done):
            self.skipTest("UCX is not installed, or not built in")
        self.assertEqual([status for status, _ in done], [0] * n,
                         "\n".join(text for _, text in done))
        return [text for _, text in done]

    def test_a_transfer_to_another_node(self):
        self.run_ranks(2, 2, """
values = np.random.default_rng(7).integers(0, 1 << 60, 1 << 19)
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

    def test_collectives_of_two_nodes(self):
        self.run_ranks(4, 2, """
values = np.zeros((4, 8), np.int32)
gather = ceoverlap.AllGather(context, "gather", values, n_pieces=2)
ring = ceoverlap.AllGather(context, "ring", values, nodes="ring")
exchange = ceoverlap.AllToAll(context, "exchange", np.repeat(np.arange(n) + 10 * r, 16))
for one in (gather, ring, exchange):
    one.connect()
for k in range(20):
    values[:] = 10 * r + k
    for one in (gather, ring):
        one.run()
        whole = one.target.view(np.int32, (n, 4, 8))
        assert (whole == (10 * np.arange(n) + k)[:, None, None]).all()
    exchange.run()
    blocks = exchange.target.view(np.int64, (n, 16))
    assert (blocks == (r + 10 * np.arange(n))[:, None]).all()
gather.close()
ring.close()
exchange.close()
context.barrier()
context.close()
""")

    def test_a_launcher_gives_the_ranks(self):
        """Each process only has a number, and the library makes that its rank."""
        self.run_ranks(3, 2, """
assert context.ranks == (r,) and n == 3 and context.place().kind == "host"
assert r == int(os.environ["CEOVERLAP_PROCESS"]), r
with context.signal() as own:
    own.share("own")
    context.find_signal((r + 1) % n, "own").raise_to(1)
    own.wait(1)
    context.barrier()
context.close()
""", has_ranks=False)

    def test_operators_of_two_nodes(self):
        self.run_ranks(4, 2, """
counts = [64, 0, 40, 24]
space = ceoverlap.Workspace(context, "sums", 1 << 16)
space.connect()
all_reduce = ceoverlap.AllReduce(space, counts, "float32")
by_node = ceoverlap.AllReduce(space, counts, "float32", by_node=True)
gather = ceoverlap.ops.AllGather(space, [16 * (k + 1) for k in range(n)])
for k in range(20):
    for one in (all_reduce, by_node):
        sums = one.run(np.full(sum(counts), r + k, np.float32))
        assert (sums == sum(range(n)) + n * k).all()
    whole = gather.run(np.full(16 * (r + 1), 7 * r + k, np.uint8))
    shards = [np.full(16 * (s + 1), 7 * s + k, np.uint8) for s in range(n)]
    assert (whole == np.concatenate(shards)).all()
context.barrier()
context.close()
""")


if __name__ == "__main__":
    unittest.main()
