# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The backend "ceov" with tensors on GPUs: its beginning and end, failures, which way calls go, and
what is built on torch.distributed."""

import datetime
import time
import unittest
from unittest import mock

import rig
import test_backend_gpus as calls
import torch
import torch.distributed as dist
from rig import equal, raises
from test_backend_gpus import BACKEND, channel_of, full, on_gpus, run_here

import ceoverlap.torch as ct
from ceoverlap import errors

DEADLINE_S = rig.patience(3.0)       # also of making the group
SOON_S = rig.patience(10.0)


def started(**options):
    """A new process group that has made a call."""
    group = dist.new_group(**options)
    dist.all_reduce(full(3, 1.0), group=group)
    torch.cuda.synchronize()
    dist.barrier()
    return group


def ended_at_all(group):
    dist.barrier()
    dist.destroy_process_group(group)
    dist.barrier()


def found(group):
    """The error that a queued call has met."""
    torch.cuda.synchronize()
    deadline = time.monotonic() + SOON_S
    while time.monotonic() < deadline:
        try:
            channel_of(group).check()
        except errors.CeoverlapError as error:
            return error
        time.sleep(0.01)
    raise AssertionError("nothing was found")


# --- failures ------------------------------------------------------------------------------------


def one_stays_away():
    group = started(timeout=datetime.timedelta(seconds=DEADLINE_S))
    begun, is_last = time.monotonic(), dist.get_rank() == dist.get_world_size() - 1
    if is_last:
        time.sleep(2 * DEADLINE_S)
    else:
        dist.all_reduce(full(9, 1.0), group=group)
        error = found(group)
        assert isinstance(error, errors.DeadlineError) and "rank" in str(error), error
        assert time.monotonic() - begun < DEADLINE_S + SOON_S
        raises(errors.DeadlineError, "", dist.all_reduce, full(9, 1.0), group=group)
        raises(errors.DeadlineError, "", dist.barrier, group, device_ids=[rig.device().index])
    ended_at_all(group)


def one_differs(is_async):
    group, rank = started(), dist.get_rank()
    x = full(12, 1.0)
    if rank == dist.get_world_size() - 1:
        work = dist.broadcast(x, 0, group, is_async)
    else:
        work = dist.all_reduce(x, group=group, async_op=is_async)
    error = found(group)
    assert isinstance(error, errors.InvalidError), error
    for text in ("all_reduce of fp32", "broadcast of fp32"):
        assert text in str(error), error
    if is_async and hasattr(work, "_side"):
        assert work.is_completed() and not work.is_success(), work.exception()
    raises(errors.InvalidError, "all_reduce of fp32", dist.all_reduce, x, group=group)
    ended_at_all(group)


def one_aborts():
    group, begun = started(), time.monotonic()
    if dist.get_rank() == 0:
        ct.backend.backend_of(group).abort()
    else:
        try:
            dist.all_reduce(full(3, 1.0), group=group)
        except errors.AbortedError:     # rank 0 was faster
            pass
        error = found(group)
        assert isinstance(error, (errors.AbortedError, errors.PeerLostError)), error
    assert time.monotonic() - begun < SOON_S
    ended_at_all(group)


# --- beginning and end ---------------------------------------------------------------------------


def again(n):
    """destroy_process_group() and init_process_group() on the same store, whose keys stay."""
    rank, size = dist.get_rank(), dist.get_world_size()
    store = ct.backend.backend_of()._at.store
    for i in range(n):
        calls._nccl.clear()
        dist.destroy_process_group()
        dist.init_process_group(BACKEND if i % 2 else "ceov", rank=rank, world_size=size,
                                store=dist.PrefixStore("again", store),
                                timeout=datetime.timedelta(seconds=rig.LIMIT_S))
        group = dist.new_group()
        x = full(5, 1.0)
        for one in (None, group):
            dist.all_reduce(x, group=one)
            dist.all_reduce(x, group=one, async_op=True).wait()
        equal(x, full(5, float(size ** 4)), i)
        number = full(2, 1, torch.int64)
        dist.all_reduce(number)         # NCCL's, or Gloo's
        equal(number, full(2, size, torch.int64), i)
        y = torch.ones(4)               # on the host
        dist.all_reduce(y)
        equal(y.to(rig.device()), full(4, float(size)), i)
        assert on_gpus().channel is not None
    torch.cuda.synchronize()
    dist.barrier()


def leaves_nothing():
    before = dict(ct.backend._base.live)
    group = started()
    made = on_gpus(group)
    assert ct.Group.of(group) is made and made.is_open
    ended_at_all(group)
    assert ct.backend._base.live == before and not made.is_open


def parts():
    """Groups of some ranks, and of one."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for ranks in ([0], [size - 1], [0, size - 1]):
        group = dist.new_group(ranks)
        if rank in ranks:
            x = full(7, 1.0)
            dist.all_reduce(x, group=group)
            equal(x, full(7, float(len(ranks))), ranks)
            torch.cuda.synchronize()
            dist.barrier(group)
            dist.destroy_process_group(group)
    dist.barrier()


# --- ways ----------------------------------------------------------------------------------------


def ways():
    """What goes to NCCL or Gloo is said once."""
    with rig.logged() as kept:
        group, size = started(), dist.get_world_size()
        for i in range(3):
            for dtype in (torch.int64, torch.float64):
                x = full(4, 1, dtype)
                work = dist.all_reduce(x, group=group, async_op=i == 1)
                if work is not None:
                    work.wait()
                equal(x, full(4, size, dtype), dtype)
    said = [line for line in kept.lines() if "all_reduce goes to" in line]
    assert len(said) == 1 and ("Gloo" if rig.SHARES_GPUS else "NCCL") in said[0], kept.lines()
    assert ct.backend.stats(group) == {"ours": {"all_reduce": 1}, "plain": {"all_reduce": 6}}, (
        ct.backend.stats(group))
    raises(errors.InvalidError, "any rank", dist.recv, full(2, 0.0), group=group)
    if rig.N_GPUS > 1:
        other = torch.ones(2, device=f"cuda:{(rig.device().index + 1) % rig.N_GPUS}")
        raises(errors.InvalidError, "where its first one was", dist.all_reduce, other, group=group)
    ended_at_all(group)


def several_nodes():
    rank, size = dist.get_rank(), dist.get_world_size()
    with mock.patch.dict("os.environ", CEOVERLAP_NODE=str(rank % 2)):
        group = started()
    x = full(3, 1.0)
    dist.all_reduce(x, group=group)
    dist.all_reduce(x, group=group, async_op=True).wait()
    equal(x, full(3, float(size * size)), "sum")
    got = full(2, 0.0)
    for work in dist.batch_isend_irecv([
            dist.P2POp(dist.isend, full(2, float(rank)), (rank + 1) % size, group),
            dist.P2POp(dist.irecv, got, (rank - 1) % size, group)]):
        work.wait()
    equal(got, full(2, float((rank - 1) % size)), "message")
    torch.cuda.synchronize()
    counts = ct.backend.stats(group)
    assert not counts["ours"] and counts["plain"]["all_reduce"] == 3, counts
    ended_at_all(group)


def with_functions_of_ours():
    """They go by the same channel, in the same order as the process group's calls and NCCL's."""
    size, x = dist.get_world_size(), full(70001, 1.0)
    dist.all_reduce(x.clone())
    assert ct.Group.of() is on_gpus()
    for i in range(10):
        number = full(5000, i, torch.int64)
        works = [dist.all_reduce(number, async_op=True), dist.all_reduce(x.clone(), async_op=True)]
        equal(ct.all_reduce(x), full(70001, float(size)), i)
        for work in works:
            work.wait()
        equal(number, full(5000, size * i, torch.int64), i)


# --- what is built on it -------------------------------------------------------------------------


def frameworks():
    """DDP and functional collectives."""
    from torch.distributed import _functional_collectives as functional

    rank, size, device = dist.get_rank(), dist.get_world_size(), rig.device()
    total = functional.all_reduce(full(10, float(rank)), "sum", dist.group.WORLD)
    equal(total + 0, full(10, float(sum(range(size)))), "all_reduce")
    whole = functional.all_gather_tensor(full(2, float(rank)), 0, dist.group.WORLD)
    equal(whole + 0, torch.arange(size, device=device).repeat_interleave(2).float(), "all_gather")
    torch.manual_seed(3)
    model = torch.nn.Linear(40, 7, bias=False).to(device)
    alone = torch.nn.Linear(40, 7, bias=False).to(device)
    alone.load_state_dict(model.state_dict())
    ddp = torch.nn.parallel.DistributedDataParallel(model, device_ids=[device.index])
    inputs = torch.randn(size, 8, 40, device=device)
    for _ in range(3):
        ddp(inputs[rank]).square().mean().backward()
        alone(inputs.view(-1, 40)).square().mean().backward()
    torch.testing.assert_close(model.weight.grad, alone.weight.grad, rtol=1e-4, atol=1e-5)
    counts = ct.backend.stats()["ours"]
    assert counts["all_reduce"] and counts["all_gather"], counts
    dist.barrier()


@rig.needs_gpus
@rig.needs_one_node
class Life(unittest.TestCase):

    setUpClass = calls.OnGpus.setUpClass

    def test_a_rank_that_stays_away(self):
        run_here(one_stays_away)

    def test_calls_differ(self):
        run_here(one_differs, False)
        run_here(one_differs, True)

    def test_abort(self):
        run_here(one_aborts)

    def test_again(self):
        run_here(again, 4)

    def test_the_end(self):
        run_here(leaves_nothing)

    def test_parts_of_the_world(self):
        run_here(parts)

    def test_ways(self):
        run_here(ways)

    @unittest.skipIf(rig.SHARES_GPUS, "NCCL refuses ranks that share a GPU")
    def test_several_nodes(self):
        run_here(several_nodes)

    def test_with_functions_of_ours(self):
        run_here(with_functions_of_ours)

    def test_frameworks(self):
        run_here(frameworks)


if __name__ == "__main__":
    unittest.main()
