# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""What groups do with pools beside the memory itself, which is of GPUs (test_pool_gpus.py): they
are made at all ranks or at none, and end with the group, but for memory that tensors have. The
library's part and the allocator's are played."""

import contextlib
import datetime
import functools
import unittest
from unittest import mock

import rig
import torch
import torch.distributed as dist
from rig import equal, raises

import ceoverlap.torch as ct
from ceoverlap import errors
from ceoverlap.torch import Group, _compat, _pool


def has_none():
    """A pool is memory of GPUs; the group goes on without one."""
    for group in (Group(), Group(channel=False)):
        for make in (group.pool, functools.partial(ct.pool, group), functools.partial(
                ct.pool, group, 1 << 20)):
            raises(errors.InvalidError, "its ranks are on the host", make)
        equal(ct.all_reduce(torch.ones(40), group), torch.full((40,), float(group.size)), "after")
        dist.barrier()
        group.close()
        raises(errors.StateError, "is closed", group.pool)


@contextlib.contextmanager
def played(pool):
    """A group on the host has this pool."""
    with mock.patch.object(_pool.GroupPool, "_check"), \
            mock.patch.object(_pool, "Pool", side_effect=pool), \
            mock.patch.object(_compat, "allocator_of", lambda *functions: functions), \
            mock.patch.object(torch.cuda, "device"), \
            mock.patch.object(torch.cuda, "MemPool", lambda allocator: ["MemPool", allocator]):
        yield


def pool_of(used_bytes):
    pool = mock.Mock(is_open=True)
    pool.functions.return_value = 1, 2
    pool.connect.return_value = pool
    pool.query.return_value.used_bytes = used_bytes
    return pool


def is_closed(used_bytes):
    group = Group()
    pool = pool_of(used_bytes)
    with played(lambda channel, max_bytes: (channel, max_bytes) == (group.channel, 4096) and pool):
        made = group.pool(4096)
        assert made == ["MemPool", (1, 2)] and group.pool() is made and ct.pool(group) is made
        raises(errors.StateError, "when it was made", group.pool, 4096)
        dist.barrier()
        with rig.logged() as kept:
            group.close()
    said = [line for line in kept.lines() if "they stay valid" in line]
    assert len(said) == bool(used_bytes), (said, kept.lines())
    assert not group.is_open and group.context.is_open == bool(used_bytes)
    raises(errors.StateError, "is closed", group.pool)
    group.close()
    assert Group.of() is not group
    Group.of().close()
    group.context.close()
    _pool._held.clear()


def fails(at, how):
    """One rank cannot make it, or cannot connect it. None has one then, and all may try again."""
    group = Group()
    pool, is_it = pool_of(0), group.rank == at
    if is_it and how == "connect":
        pool.connect.side_effect = errors.NoMemoryError("for a test")
    makes = mock.Mock(return_value=pool)
    if is_it and how == "make":
        makes.side_effect = errors.NoMemoryError("for a test")
    with played(makes):
        raises(errors.NoMemoryError if is_it else errors.StateError, "for a test", group.pool)
        assert pool.close.called == (how == "connect" or not is_it), pool.mock_calls
        makes.side_effect = pool.connect.side_effect = None
        assert group.pool() == ["MemPool", (1, 2)]
        dist.barrier()
        group.close()


class Owner:
    def supports_tensor_alloc(self, device):
        return device.type == "cuda"

    def allocate_tensor(self, size, *, dtype, device):
        return torch.ones(size, dtype=dtype)


class Pools(unittest.TestCase):

    @unittest.skipIf(rig.HAS_GPUS, "is about ranks on the host")
    def test_the_host_has_none(self):
        rig.run(has_none)

    @unittest.skipIf(rig.HAS_GPUS or rig.N_NODES > 1, "is about ranks on one host")
    def test_the_end(self):
        for used_bytes in (0, 2 << 20):
            rig.run(is_closed, used_bytes)

    @unittest.skipIf(rig.HAS_GPUS or rig.N_NODES > 1, "is about ranks on one host")
    def test_a_rank_that_can_have_none(self):
        for how in ("make", "connect"):
            rig.run(fails, rig.SIZE - 1, how)

    @unittest.skipUnless(dist.is_gloo_available(), "needs Gloo")
    def test_a_backend_asks_its_owner_for_memory(self):
        owner, gpu = Owner(), torch.device("cuda", 0)
        for given in (None, owner):
            made = _compat.make_gloo(dist.HashStore(), 0, 1, datetime.timedelta(seconds=20), given)
            self.assertIsInstance(made, dist.ProcessGroupGloo)
            self.assertFalse(made.supports_tensor_alloc(torch.device("cpu")))
            self.assertEqual(made.supports_tensor_alloc(gpu), given is not None)
        x = made.allocate_tensor(3, dtype=torch.float64, device=gpu)
        self.assertEqual((x.sum().item(), x.dtype), (3.0, torch.float64))
        del owner, given
        with self.assertRaises(ReferenceError):
            made.supports_tensor_alloc(gpu)

    @unittest.skipUnless(torch.backends.cuda.is_built(), "needs a PyTorch for CUDA")
    def test_an_allocator_stays(self):
        self.assertIs(_compat.allocator_of(16, 32), _compat.allocator_of(16, 32))
        self.assertIsNot(_compat.allocator_of(16, 32), _compat.allocator_of(16, 48))


if __name__ == "__main__":
    unittest.main()
