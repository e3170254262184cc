# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Ranks in processes that act as several nodes: what goes between nodes goes over UCX."""

import threading
import unittest

import ceoverlap
import numpy as np
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


class Meeting(unittest.TestCase):
    """Contexts that meet by a function of the program."""

    def setUp(self):
        try:
            ceoverlap.Context(0, 1, "host", network=ceoverlap.Network(
                lambda own, _: [own], n_processes=1, node="one")).close()
        except ceoverlap.CeoverlapError as error:
            if "cannot reach others" not in str(error):
                raise
            self.skipTest("UCX is not installed, or not built in")

    def test_two_nodes_in_two_threads(self):
        told, failures = [b"", b""], []
        barrier = threading.Barrier(2, timeout=20)
        values = np.arange(1000) * 7

        def meet(rank):
            def all_gather(own, timeout_s):
                assert timeout_s > 0
                told[rank] = own
                barrier.wait()
                both = list(told)
                barrier.wait()
                return both
            return ceoverlap.Network(all_gather, process=rank, n_processes=2,
                                     node=f"node {rank}", job="two threads")

        def run(rank):
            with ceoverlap.Context(rank, 2, "host", deadline_s=20,
                                   network=meet(rank)) as context:
                with ceoverlap.Workspace(context, "sums", 1 << 16) as space:
                    space.connect()
                    gather = ceoverlap.ops.AllGather(space, [8 * len(values)] * 2)
                    whole = gather.run(values + rank).view(values.dtype)
                    assert (whole == np.concatenate([values, values + 1])).all()
                    context.barrier()

        def keep(rank):
            try:
                run(rank)
            except BaseException as error:
                failures.append(error)
                barrier.abort()

        threads = [threading.Thread(target=keep, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(failures, [])

    def test_what_the_function_raises_is_the_cause(self):
        def broken(_own, _timeout_s):
            raise KeyError("no store")
        with self.assertRaisesRegex(ceoverlap.CeoverlapError, "all-gather") as caught:
            ceoverlap.Context(0, 1, "host", network=ceoverlap.Network(broken, n_processes=1))
        self.assertIsInstance(caught.exception.__cause__, KeyError)

    def test_wrong_lengths_are_refused(self):
        network = ceoverlap.Network(lambda own, _: [own, own], n_processes=1)
        with self.assertRaises(ceoverlap.CeoverlapError) as caught:
            ceoverlap.Context(0, 1, "host", network=network)
        self.assertIn("of each of 1 processes", str(caught.exception.__cause__))

    def test_what_is_no_network_is_refused(self):
        for options in ({"bootstrap": "smoke signals"}, {"all_gather": lambda own, _: [own]},
                        {"job": "a\0b"}):
            with self.assertRaises(ceoverlap.InvalidError):
                ceoverlap.Network(**options)


if __name__ == "__main__":
    unittest.main()
