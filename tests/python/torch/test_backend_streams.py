# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The part of the backend "ceov" that makes calls with tensors on GPUs, as far as it can be played
without one: on host memory, with streams that only write down which of them waits for which. Calls
are complete when they return, so what is right here may still be wrong between streams; see
test_backend_gpus.py for that."""

import contextlib
import unittest
from unittest import mock

import rig
import test_backend
import torch
import torch.distributed as dist
from backend_rig import world
from rig import equal, raises

import ceoverlap.torch as ct
from ceoverlap import errors
from ceoverlap.torch import _compat
from ceoverlap.torch.backend import _calls, _gpu
from ceoverlap.torch.backend._work import OnStream

HERE = torch.device("cpu", 0)           # stands for a GPU
SUMMED = (torch.bfloat16, torch.float16, torch.float32)


class Event:
    def query(self):
        return True

    def synchronize(self):
        pass


class Streams:
    """What the part uses of torch.cuda."""

    def __init__(self):
        self.waits, self.captured = [], set()
        self._last = 0
        self._current = [self.Stream()]

    def Stream(self, _device=None, priority=0):         # as in torch.cuda
        self._last += 1
        return Stream(self, self._last, priority)

    @contextlib.contextmanager
    def stream(self, stream):
        self._current.append(stream)
        try:
            yield
        finally:
            self._current.pop()

    def current_stream(self, _device=None):
        return self._current[-1]

    @staticmethod
    def synchronize(_device=None):
        pass

    @contextlib.contextmanager
    def instead(self):
        """Of torch.cuda's."""
        with contextlib.ExitStack() as stack:
            for owner, name, value in (
                    *((torch.cuda, name, getattr(self, name)) for name in (
                        "Stream", "stream", "current_stream", "synchronize")),
                    (torch.cuda, "Event", Event),
                    (_compat, "current_stream", lambda _: self.current_stream().cuda_stream),
                    (_compat, "is_capturing", lambda: self.current_stream() in self.captured)):
                stack.enter_context(mock.patch.object(owner, name, value))
            yield self


class Stream:
    def __init__(self, streams, handle, priority):
        self._streams, self.cuda_stream, self.priority = streams, handle, priority

    def wait_stream(self, other):
        self._streams.waits.append((self, other))

    def wait_event(self, _event):
        pass

    def record_event(self):
        return Event()

    def synchronize(self):
        pass


class Order(unittest.TestCase):
    """Which stream waits for which."""

    def setUp(self):
        self.streams = Streams()
        stack = contextlib.ExitStack()
        stack.enter_context(self.streams.instead())
        self.addCleanup(stack.close)
        self.order = _gpu._Order(torch.device("cuda", 0))
        self.a, self.b, self.c = (self.streams.Stream() for _ in range(3))

    def call(self, run, stream, *waits):
        """A call on the stream lets it wait for these, and for no other."""
        self.streams.waits.clear()
        with self.streams.stream(stream):
            self.assertEqual(run(max, 3, 4), 4)
        self.assertEqual(set(self.streams.waits), {(stream, other) for other in waits})

    def test_each_kind_waits_for_the_other(self):
        ours, plain = self.order.run, self.order.run_plain
        self.call(plain, self.a)
        self.call(ours, self.a)                 # one stream has an order of its own
        self.call(ours, self.b)                 # channels keep theirs
        self.call(plain, self.b)
        self.call(plain, self.c, self.b)
        self.call(plain, self.a, self.b)
        self.call(ours, self.b, self.a, self.c)
        self.call(ours, self.c)                 # behind that on b
        self.call(plain, self.a, self.c)

    def test_captures_wait_for_nothing_outside(self):
        ours, plain = self.order.run, self.order.run_plain
        self.call(ours, self.a)
        self.streams.captured = {self.b, self.c}
        self.call(plain, self.b)
        self.call(ours, self.c, self.b)
        self.call(plain, self.b, self.c)
        self.streams.captured = set()
        self.call(ours, self.a, self.b)


# --- calls ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def instead_of_gpus():
    """Calls with tensors on the host are made by the part for GPUs; Gloo stands for NCCL."""
    def gloo(calls):
        at = calls._at
        return _compat.make_gloo(dist.PrefixStore("gloo", at.store), at.rank, at.size,
                                 calls._timeout)

    make, future = _calls.Calls._on_gpu, torch.futures.Future
    with Streams().instead() as streams, \
            mock.patch.object(_calls.Calls, "_side",
                              lambda calls, _: calls._gpu or make(calls, HERE)), \
            mock.patch.object(_calls.Calls, "nccl", gloo), \
            mock.patch.object(torch.futures, "Future", lambda devices: future()):
        yield streams


def in_a_group(function, *args):
    """At a rank: with a group of all that has them."""
    with instead_of_gpus() as streams:
        group = dist.new_group()
        function(group, streams, *args)
        dist.destroy_process_group(group)
    dist.barrier()


def kinds(_group, _streams):
    """Of the default group, because the tests of the host's part call it."""
    with mock.patch.object(test_backend, "SUMMED", SUMMED):
        for shape in test_backend.SHAPES:
            for how in test_backend.HOWS:
                for dtype in SUMMED:
                    test_backend.moves(shape, dtype, how)
                    test_backend.sums(shape, dtype, how)
        test_backend.uneven()
        test_backend.shares_memory()
    assert not ct.backend.stats()["plain"], ct.backend.stats()
    made = ct.backend.backend_of()      # goes on as it was
    made._gpu.close(rig.LIMIT_S)
    made._gpu = None


def async_calls(group, streams):
    rank, size = group.rank(), group.size()
    x, numbers = torch.ones(5), torch.ones(3, dtype=torch.int64)
    for i in (1, 2):
        dist.all_reduce(x, group=group, async_op=True).wait()
        dist.all_reduce(numbers, group=group, async_op=True).wait()
        equal(x, torch.full((5,), float(size ** i)), i)
        equal(numbers, torch.full((3,), size ** i), i)
    future = dist.all_reduce(x, group=group, async_op=True).get_future()
    equal(future.wait()[0], torch.full((5,), float(size ** 3)), "future")
    tensors = [torch.full((n,), float(rank)) for n in (3, 40)]
    with dist._coalescing_manager(group, async_ops=True) as manager:
        for one in tensors:
            dist.all_reduce(one, group=group)
    manager.wait()
    for one in tensors:
        equal(one, torch.full_like(one, float(sum(range(size)))), "coalesced")
    dist.barrier(group)
    assert ct.backend.stats(group)["plain"] == {"all_reduce": 2}, ct.backend.stats(group)
    caller = streams.current_stream()
    assert all(before is not None and late is not before for late, before in streams.waits)
    assert any(before is caller for _, before in streams.waits), "nothing follows the caller"


def messages(group, _streams):
    """In both directions at the same time, in a batch and one by one."""
    rank, size = group.rank(), group.size()
    right, left = (rank + 1) % size, (rank - 1) % size
    for n in (1, 5_000_000):            # with more bytes than rings have
        got = torch.zeros(n)
        for work in dist.batch_isend_irecv([
                dist.P2POp(dist.isend, torch.full((n,), float(rank)), right, group),
                dist.P2POp(dist.irecv, got, left, group)]):
            work.wait()
        equal(got, torch.full((n,), float(left)), n)
    if rank == 0:
        dist.send(torch.ones(4), right, group)
    elif rank == 1:
        dist.recv(torch.zeros(4), 0, group)
    raises(errors.InvalidError, "any rank", dist.recv, torch.zeros(3), group=group)


def keeps(group, _streams):
    """What a call needs stays until its handle was waited for, or the GPU has passed it."""
    part = ct.backend.backend_of(group)._gpu or ct.backend.backend_of(group)._side(torch.ones(1))
    kept = part._kept
    work = OnStream(part, [], object(), Event())
    work.wait()
    del work
    assert not kept
    work = OnStream(part, [], object(), Event())
    del work
    assert len(kept) == 1
    part._let_go()
    assert not kept
    dist.barrier(group)


@rig.needs_one_node
class Calls(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls._world = world()

    @classmethod
    def tearDownClass(cls):
        if cls._world.is_open:
            cls._world.close()

    def play(self, function):
        self._world.run(in_a_group, function)

    def test_kinds(self):
        self.play(kinds)

    def test_async_calls(self):
        self.play(async_calls)

    def test_messages(self):
        self.play(messages)

    def test_keeps(self):
        self.play(keeps)


if __name__ == "__main__":
    unittest.main()
