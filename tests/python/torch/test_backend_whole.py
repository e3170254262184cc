# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""A process group's own methods, as they may be called with tensors instead of lists of them; and,
of PyTorch before 2.14, where the backend "ceov" takes the whole process group's place, the group's
other devices."""

import datetime
import functools
import unittest
from unittest import mock

import rig
import torch
import torch.distributed as dist
from backend_rig import BACKEND, gloo, run_here, whole
from rig import equal, raises

import ceoverlap.torch as ct
from ceoverlap import errors
from ceoverlap.torch import _compat

Op = dist.ReduceOp
TIME = datetime.timedelta(seconds=30)


def arange(n, rank=None):
    return torch.arange(float(n)) + 10 * (dist.get_rank() if rank is None else rank)


def calls_methods(group):
    """Each form of a process group's methods that takes tensors, and values instead of options."""
    rank, size = dist.get_rank(), dist.get_world_size()
    every = [arange(3, r) for r in range(size)]
    x = arange(3)
    group.broadcast(x, 1).wait()
    equal(x, every[1], "broadcast")
    for args in ((Op.MAX,), (Op.MAX, TIME)):
        for form in (lambda x: x, lambda x: [x]):
            x = arange(3)
            group.allreduce(form(x), *args).wait()
            equal(x, every[-1], "allreduce")
    x = arange(3)
    group.allreduce(x).wait()
    equal(x, sum(every), "allreduce, sum")
    x = arange(3)
    group.reduce(x, root=1, op=Op.MIN).wait()
    if rank == 1:
        equal(x, every[0], "reduce")
    gots = [torch.zeros(3) for _ in range(size)]
    group.allgather(gots, arange(3)).wait()
    for got, one in zip(gots, every):
        equal(got, one, "allgather")
    gots = [torch.zeros(3) for _ in range(size)] if rank == 1 else []
    group.gather(gots, arange(3), 1).wait()
    for got, one in zip(gots, every):
        equal(got, one, "gather")
    got = torch.zeros(3)
    group.scatter(got, every if rank == 1 else [], 1).wait()
    equal(got, every[rank], "scatter")
    group.reduce_scatter(got, [arange(3) + i for i in range(size)], Op.SUM).wait()
    equal(got, sum(every) + size * rank, "reduce_scatter")
    group.barrier().wait()
    group.barrier(timeout=TIME).wait()


def made(function, *args, **options):
    """Makes a call, and waits for it."""
    work = function(*args, **options)
    if work is not None:
        work.wait()


def every_call(group):
    """Each collective of torch.distributed once, with and without async_op=True."""
    rank, size = dist.get_rank(), dist.get_world_size()
    sums = sum(arange(4, r) for r in range(size))
    for is_async in (False, True):
        call = functools.partial(made, group=group, async_op=is_async)
        x, got, whole_one = arange(4), torch.zeros(4), torch.zeros(4 * size)
        call(dist.all_reduce, x)
        equal(x, sums, "all_reduce")
        call(dist.all_gather_into_tensor, whole_one, arange(4))
        equal(whole_one, torch.cat([arange(4, r) for r in range(size)]), "all_gather_into_tensor")
        call(dist.reduce_scatter_tensor, got, arange(4).repeat(size))
        equal(got, sums, "reduce_scatter_tensor")
        call(dist.all_to_all_single, whole_one, arange(4).repeat_interleave(size))
        call(dist.broadcast, x, src=1)
        with dist._coalescing_manager(group, async_ops=is_async) as manager:
            for y in (arange(4), arange(2)):
                dist.all_reduce(y, group=group)
        manager.wait()
        work = dist.isend(arange(4), (rank + 1) % size, group)
        dist.recv(x, (rank - 1) % size, group)
        work.wait()
        equal(x, arange(4, (rank - 1) % size), "recv")
        call(dist.barrier)


def others():
    """Tensors of a device that is not ours go to the process group that PyTorch would have made."""
    group = dist.new_group()
    assert group._get_backend(torch.device("cpu")) is not None
    every_call(group)
    n_ours = dict(ct.backend.stats(group)["ours"])
    plain = gloo()
    _compat.add_backend(group.others, "cpu", "gloo", plain._get_backend(torch.device("cpu")))
    group._ours.remove("cpu")
    try:
        every_call(group)
    finally:
        group._ours.add("cpu")
    assert ct.backend.stats(group)["ours"] == n_ours, (n_ours, ct.backend.stats(group))
    dist.barrier()
    dist.destroy_process_group(group)


def without_a_call(group, gpus):
    """One rank alone asks for the backend on GPUs before any call with a tensor on one. NCCL's
    cannot be had on the host: something else stands in for it, and says so."""
    if dist.get_rank() == 1:
        with mock.patch.object(_compat, "make_nccl", lambda *_: None):
            raises(RuntimeError, "built without NCCL", group._get_backend, gpus)
        with mock.patch.object(_compat, "make_nccl", lambda *_: "stands in for NCCL"):
            assert group._get_backend(gpus) == "stands in for NCCL"
            assert group._get_backend(gpus) is group._mine.nccl()
    group._mine._nccl = None


def with_a_device_more():
    """The group's other device has a backend, too."""
    gpus = torch.device("cuda")
    both = dist.new_group(backend="ceov")
    if not torch.cuda.is_available():
        assert both._device_types == [torch.device("cpu")], both._device_types
    without_a_call(both, gpus)
    every_call(both)
    dist.barrier()
    dist.destroy_process_group(both)
    for name in (f"{BACKEND},cuda:gloo", f"cuda:gloo,{BACKEND}"):
        group = dist.new_group(backend=name)
        assert {one.type for one in group._device_types} == {"cpu", "cuda"}, group._device_types
        assert group._get_backend(gpus).name() == "gloo"
        assert group.name() == "ceov" and group.get_group_store() is not None
        every_call(group)
        assert ct.backend.stats(group)["plain"] == {}, ct.backend.stats(group)
        dist.barrier()
        dist.destroy_process_group(group)
    raises(errors.VersionError, "backend fake: ", dist.new_group, backend=f"{BACKEND},cuda:fake")


@rig.needs_one_node
class Whole(unittest.TestCase):

    def test_methods_of_a_process_group(self):
        run_here(calls_with_ours)

    @whole
    def test_devices_that_are_not_ours(self):
        run_here(others)

    @whole
    def test_a_device_more(self):
        run_here(with_a_device_more)

    def test_where_no_process_group_is_made(self):
        self.assertRaisesRegex(errors.VersionError, "for which devices .* 2.9.1, .* are tested",
                               _compat.asked_backends)


def calls_with_ours():
    group = dist.new_group()
    calls_methods(gloo())               # the measure
    calls_methods(group)
    assert ct.backend.stats(group)["plain"] == {}, ct.backend.stats(group)
    dist.destroy_process_group(group)


if __name__ == "__main__":
    unittest.main()
