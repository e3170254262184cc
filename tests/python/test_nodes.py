# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Ranks in processes that act as several nodes: what goes between nodes goes over UCX."""

import unittest

from rig import in_processes

HEAD = """
import numpy as np, sys
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
    def run_ranks(self, n, n_nodes, program):
        done = in_processes(n, HEAD + program, n_nodes)
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
exchange = ceoverlap.AllToAll(context, "exchange", np.repeat(np.arange(n) + 10 * r, 16))
for one in (gather, exchange):
    one.connect()
for k in range(20):
    values[:] = 10 * r + k
    gather.run()
    whole = gather.target.view(np.int32, (n, 4, 8))
    assert (whole == (10 * np.arange(n) + k)[:, None, None]).all()
    exchange.run()
    blocks = exchange.target.view(np.int64, (n, 16))
    assert (blocks == (r + 10 * np.arange(n))[:, None]).all()
gather.close()
exchange.close()
context.barrier()
context.close()
""")

    def test_what_operators_say_of_several_nodes(self):
        self.run_ranks(2, 2, """
space = ceoverlap.Workspace(context, "sums", ceoverlap.AllReduce.scratch_bytes([8] * n))
try:
    space.connect()
    ceoverlap.AllReduce(space, [8] * n, "float16").run(np.zeros(8 * n, np.float16))
except ceoverlap.errors.NoRouteError:
    pass
else:
    raise AssertionError("operators within a node only: this test has to be changed")
context.barrier()
context.close()
""")


if __name__ == "__main__":
    unittest.main()
