# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The backend "ceov" of torch.distributed: its beginning and its end, failures, threads, and
TORCH_DISTRIBUTED_DEBUG=DETAIL."""

import datetime
import os
import threading
import time
import unittest

import rig
import torch
import torch.distributed as dist
from backend_rig import BACKEND, IS_BY_DEVICE, by_device, run_here, world
from rig import equal, raises

import ceoverlap.torch as ct
from ceoverlap import errors

N_ROUNDS = 40
# PyTorch 2.15 renames it; the former name warns there.
set_timeout = getattr(dist, "set_timeout", None) or dist.distributed_c10d._set_pg_timeout


def closed_at_all(group):
    """Ranks meet before they destroy a group that has failed, so that none is lost to another."""
    dist.barrier()
    dist.destroy_process_group(group)
    dist.barrier()


# --- failures ---------------------------------------------------------------------------------


def pairs_that_differ():
    def x():
        return torch.ones(12)

    return (
        ("all_reduce of fp32, sum", lambda g, wait: dist.all_reduce(x(), group=g, async_op=wait)),
        ("all_reduce of fp64, sum", lambda g, wait: dist.all_reduce(x().double(), group=g,
                                                                    async_op=wait)),
        ("all_reduce of fp32, max", lambda g, wait: dist.all_reduce(x(), dist.ReduceOp.MAX, g,
                                                                    wait)),
        ("broadcast of fp32", lambda g, wait: dist.broadcast(x(), 0, g, wait)),
        ("barrier", lambda g, wait: dist.barrier(g, wait)))


def differs(i, is_async):
    """The last rank calls something else. Both calls are named at all ranks, where they wait."""
    group, rank = dist.new_group(), dist.get_rank()
    cases = pairs_that_differ()
    one, other = cases[i], cases[(i + 1) % len(cases)]
    call = (other if rank == dist.get_world_size() - 1 else one)[1]
    for _ in range(2):                  # later calls raise it again
        try:
            work = call(group, is_async)
            if is_async:
                work.wait()
        except errors.InvalidError as error:
            assert one[0] in str(error) and other[0] in str(error), error
        else:
            raise AssertionError("nothing was raised")
    work = dist.all_reduce(torch.ones(2), group=group, async_op=True)
    try:
        work.get_future().wait()
    except Exception as error:
        assert one[0] in str(error), error
    else:
        raise AssertionError("the future has no error")
    closed_at_all(group)


def is_late(timeout_s):
    """One rank does not come, and others see it by the group's timeout."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=timeout_s))
    if dist.get_rank():
        begun = time.monotonic()
        raises(errors.DeadlineError, "", dist.all_reduce, torch.ones(4), group=group)
        assert time.monotonic() - begun < 30
    closed_at_all(group)


def barrier_within(group, seconds):
    """dist.barrier(timeout=...), which older versions lack."""
    options = dist.BarrierOptions()
    options.timeout, options.asyncOp = datetime.timedelta(seconds=seconds), False
    options.device = torch.device("cpu")
    group.barrier(options)


def barrier_has_a_time():
    group = dist.new_group()
    if dist.get_rank() == 1:
        raises(errors.DeadlineError, "have come within 0.3 s", barrier_within, group, 0.3)
    else:
        time.sleep(0.6)
        try:
            dist.barrier(group)         # all have called it: it may be right
        except errors.AbortedError:
            pass
        raises(errors.AbortedError, "", dist.barrier, group)
    closed_at_all(group)


def has_a_new_time():
    """A shorter timeout than that with which the group was made."""
    group = dist.new_group()
    set_timeout(datetime.timedelta(seconds=0.4), group)
    if dist.get_rank() == 1:
        raises(errors.DeadlineError, "within 0.4 s", dist.all_reduce, torch.ones(3), group=group)
    closed_at_all(group)


def is_bound():
    """A default process group that is bound to a device, of which new groups are split off."""
    rank, store = dist.get_rank(), ct.backend.backend_of()._at.store
    dist.destroy_process_group()
    dist.init_process_group(BACKEND, store=dist.PrefixStore("bound", store), rank=rank,
                            world_size=3, device_id=torch.device("cpu:0"))
    for ranks in ([0], [0, 2], [1, 2]):
        group = dist.new_group(ranks)
        if rank in ranks:
            x = torch.ones(2)
            dist.all_reduce(x, group=group)
            equal(x, torch.full((2,), float(len(ranks))), ranks)
    dist.barrier()


def waits_for_a_time():
    """A wait with a time of its own fails nothing."""
    group, rank = dist.new_group(), dist.get_rank()
    x = torch.ones(3)
    if rank == 0:
        time.sleep(1.0)
    work = dist.all_reduce(x, group=group, async_op=True)
    if rank:
        raises(errors.PendingError, "0.1 s", work.wait, datetime.timedelta(seconds=0.1))
    work.wait()
    equal(x, torch.full((3,), float(dist.get_world_size())), "sum")
    closed_at_all(group)


def dies(at):
    """One rank is killed while others wait for it, in the call or with async_op; a group of the
    others works."""
    rank, size = dist.get_rank(), dist.get_world_size()
    others = dist.new_group([r for r in range(size) if r != at])
    dist.barrier()
    if rank == at:
        os._exit(0)
    begun = time.monotonic()
    try:
        x = torch.ones(1 << 20)
        work = dist.all_reduce(x, async_op=rank == 0)
        if work is not None:
            work.wait()
    except (errors.PeerLostError, errors.DeadlineError):
        pass
    else:
        raise AssertionError("nothing was raised")
    assert time.monotonic() - begun < 30
    x = torch.ones(8)
    dist.all_reduce(x, group=others)
    equal(x, torch.full((8,), size - 1.0), "others")
    dist.destroy_process_group()
    return True


# --- beginning and end ------------------------------------------------------------------------


def again(n):
    """destroy_process_group() and init_process_group() on the same store, whose keys stay."""
    rank, size = dist.get_rank(), dist.get_world_size()
    store = ct.backend.backend_of()._at.store
    for i in range(n):
        if dist.is_initialized():
            assert ct.Group.of().channel is not None
            dist.destroy_process_group()
        dist.init_process_group(BACKEND, store=dist.PrefixStore("again", store), rank=rank,
                                world_size=size, timeout=datetime.timedelta(seconds=60))
        group = dist.new_group()
        x = torch.ones(5)
        dist.all_reduce(x)
        dist.all_reduce(x, group=group)
        equal(x, torch.full((5,), float(size * size)), i)


def leaves_nothing():
    """What belonged to a group that was destroyed is closed, and the name is free."""
    from ceoverlap.torch.backend import _base

    before, n_threads = dict(_base.live), threading.active_count()
    group = dist.new_group()
    made = ct.Group.of(group)
    assert made is ct.backend.backend_of(group).group_on("cpu") and made.process_group is group
    dist.all_reduce(torch.ones(3), group=group, async_op=True).wait()
    dist.isend(torch.ones(3), (dist.get_rank() + 1) % dist.get_world_size(), group)
    dist.recv(torch.ones(3), (dist.get_rank() - 1) % dist.get_world_size(), group)
    assert len(_base.live) == len(before) + 1 and made.is_open
    dist.barrier()
    dist.destroy_process_group(group)
    assert _base.live == before and not made.is_open
    deadline = time.monotonic() + 20
    while threading.active_count() > n_threads and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= n_threads, threading.enumerate()
    dist.barrier()


def leaves_a_message():
    """What was sent arrives, though its sender has destroyed the group since."""
    group, rank = dist.new_group(), dist.get_rank()
    if rank == 0:
        dist.isend(torch.arange(1000.0), 1, group)
        dist.destroy_process_group(group)
        dist.barrier()
        return
    if rank == 1:
        time.sleep(0.5)
        got = torch.zeros(1000)
        dist.recv(got, 0, group)
        equal(got, torch.arange(1000.0), "message")
    dist.barrier()
    dist.destroy_process_group(group)


def is_aborted():
    """abort() ends the calls under way, here of another thread."""
    group, rank = dist.new_group(), dist.get_rank()
    raised = []

    def call():
        try:
            dist.all_reduce(torch.ones(4), group=group)
        except errors.CeoverlapError as error:
            raised.append(error)

    if rank:
        thread = threading.Thread(target=call)
        thread.start()
        time.sleep(0.3)
        dist.distributed_c10d._abort_process_group(group)
        thread.join(20)
        assert not thread.is_alive() and len(raised) == 1, raised
        dist.barrier()
    else:
        dist.barrier()
        dist.destroy_process_group(group)
    dist.barrier()


# --- threads ----------------------------------------------------------------------------------


def four_threads():
    """Each has a group, and calls as it likes."""
    groups = [dist.new_group() for _ in range(4)]
    failures = []

    def play(group, number):
        try:
            for i in range(N_ROUNDS):
                plays(group, number, i)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=play, args=(group, i)) for i, group in enumerate(groups)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    dist.barrier()
    for group in groups:
        dist.destroy_process_group(group)


def plays(group, number, i):
    rank, size = group.rank(), group.size()
    x = torch.full((i * 37,), float(number))
    work = dist.all_reduce(x, group=group, async_op=i % 2 == 0)
    whole = torch.zeros(size * 3, dtype=torch.int64)
    dist.all_gather_into_tensor(whole, torch.full((3,), rank + i), group=group)
    equal(whole, torch.arange(size).repeat_interleave(3) + i, i)
    if work is not None:
        work.wait()
    equal(x, torch.full((i * 37,), float(number * size)), i)


def one_order():
    """Calls of one group come in their order, waited for or not, from last to first."""
    x, works = torch.ones(4, dtype=torch.int64), []
    for i in range(1, 30):              # 3 ** 29 is below 2 ** 63
        works.append(dist.all_reduce(x, async_op=True))
        if i % 10 == 0:
            dist.all_reduce(x, dist.ReduceOp.MAX)
    for work in reversed(works):
        work.wait()
    equal(x, torch.full((4,), dist.get_world_size() ** 29), "power")
    told = []
    future = dist.all_reduce(torch.ones(4), async_op=True).get_future()
    future.then(lambda done: told.append(done.value()[0][0].item())).wait()
    assert told == [dist.get_world_size()], told


# --- DETAIL -----------------------------------------------------------------------------------


def with_detail():
    """PyTorch wraps the backend, and keeps no more than its C++ half."""
    rank, size = dist.get_rank(), dist.get_world_size()
    x = torch.ones(4)
    dist.all_reduce(x)
    dist.all_reduce(x, async_op=True).wait()
    equal(x, torch.full((4,), float(size * size)), "sum")
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(size)], objects
    assert ct.Group.of() is ct.backend.backend_of().group_on("cpu")
    equal(ct.all_reduce(torch.ones(3)), torch.full((3,), float(size)), "ours")
    group = dist.new_group()
    dist.barrier(group)
    dist.destroy_process_group(group)
    assert ct.backend.stats()["ours"]["all_reduce"] >= 2
    # Before 2.14 PyTorch leaves a process group that is written in Python alone, and the channel
    # compares the calls.
    text, kind = (("mismatch", RuntimeError) if IS_BY_DEVICE else
                  ("rank 1 gives 16", errors.InvalidError) if rank == 0 else
                  ("rank 0 gives 12", errors.InvalidError))
    raises(kind, text, dist.all_reduce, torch.ones(3 + rank))


@rig.needs_one_node
class Life(unittest.TestCase):

    def test_calls_differ(self):
        for i in range(len(pairs_that_differ())):
            run_here(differs, i, i % 2 == 0)

    def test_a_rank_is_late(self):
        run_here(is_late, 1.0)
        run_here(barrier_has_a_time)
        run_here(has_a_new_time)
        run_here(waits_for_a_time)

    def test_a_rank_is_killed(self):
        killed = world(3)
        try:
            self.assertEqual(killed.run(dies, 2, dying=(2,)).count(True), 2)
        finally:
            killed.kill()

    def test_the_end(self):
        run_here(leaves_nothing)
        run_here(leaves_a_message)
        run_here(is_aborted)

    def test_threads(self):
        run_here(four_threads)
        run_here(one_order)

    def test_with_detail(self):
        wrapped = world(2, TORCH_DISTRIBUTED_DEBUG="DETAIL")
        try:
            wrapped.run(with_detail)
        finally:
            wrapped.kill()

    def test_again(self):
        run_here(again, 3)

    @by_device
    def test_bound_to_a_device(self):
        run_here(is_bound)


if __name__ == "__main__":
    unittest.main()
