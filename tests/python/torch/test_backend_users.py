# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""What is built on torch.distributed, over its backend "ceov": functional collectives and
torch.compile, DistributedDataParallel, DTensor, FSDP2, objects, calls together, groups of some
ranks, ceoverlap.torch's own functions, and a script that names the backend and imports nothing."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import rig
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from backend_rig import by_device, gloo, run_here
from rig import equal, raises
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import ceoverlap.torch as ct
from ceoverlap import errors

PYPROJECT = pathlib.Path(ct.__file__).parents[2] / "pyproject.toml"
SCRIPT = """
import sys
import torch, torch.distributed as dist
dist.init_process_group("cpu:ceov", init_method="file://" + sys.argv[1], rank=0, world_size=1)
x = torch.ones(3)
dist.all_reduce(x)
assert x.sum() == 3
from ceoverlap.torch import backend
assert backend.stats()["ours"] == {"all_reduce": 1}, backend.stats()
dist.destroy_process_group()
"""


# PyTorch 2.15 renames these two; the former names warn there.
all_gather = getattr(functional, "all_gather_single", None) or functional.all_gather_tensor
reduce_scatter = (getattr(functional, "reduce_scatter_single", None) or
                  functional.reduce_scatter_tensor)


def n_ours():
    return sum(ct.backend.stats()["ours"].values())


def functional_collectives():
    rank, size, world = dist.get_rank(), dist.get_world_size(), dist.group.WORLD
    x = torch.arange(8.0) + rank
    every = torch.stack([torch.arange(8.0) + r for r in range(size)])

    def calls(x):
        y = functional.all_reduce(x * 2, "sum", world)
        z = all_gather(x + 1, 0, world)
        part = reduce_scatter(torch.cat([x] * size), "avg", 0, world)
        return y + 1, z, part * 2

    wanted = (every.sum(0) * 2 + 1, every.reshape(-1) + 1, every.mean(0) * 2)
    before = n_ours()
    compiled = torch.compile(calls, fullgraph=True, backend="aot_eager")
    for function in (calls, compiled, compiled):
        for got, one in zip(function(x), wanted):
            torch.testing.assert_close(got, one)
    assert n_ours() == before + 9, (before, n_ours())


def trains(wrap):
    """The same gradients and parameters as with one process that has all ranks' data."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    plain = torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.ReLU(), torch.nn.Linear(24, 4))
    model = wrap(torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.ReLU(),
                                     torch.nn.Linear(24, 4)), plain.state_dict())
    data = torch.randn(3, size * 4, 12)
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (plain, model)]
    for step in range(3):
        losses = [m(x).square().mean() for m, x in (
            (plain, data[step]), (model, data[step, rank * 4:rank * 4 + 4]))]
        for loss, optimizer in zip(losses, optimizers):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for one, other in zip(plain.parameters(), model.parameters()):
        other = other.full_tensor() if hasattr(other, "full_tensor") else other
        torch.testing.assert_close(other, one)


def with_ddp(model, state):
    model.load_state_dict(state)
    return DistributedDataParallel(model, bucket_cap_mb=0.001)     # several buckets


def with_fsdp(model, state):
    model.load_state_dict(state)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def frameworks():
    for wrap in (with_ddp, with_fsdp):
        before = n_ours()
        trains(wrap)
        assert wrap is with_fsdp or n_ours() > before   # a mesh may have a group of its own
    assert ct.backend.stats()["plain"] == {}, ct.backend.stats()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = torch.arange(60.0).view(12, 5)
    equal(distribute_tensor(whole, mesh, [Shard(0)]).full_tensor(), whole, "DTensor")


def objects():
    rank, size = dist.get_rank(), dist.get_world_size()
    got = [None] * size
    dist.all_gather_object(got, {"rank": rank, "text": "x" * rank})
    assert got == [{"rank": r, "text": "x" * r} for r in range(size)], got
    told = ["root", 7] if rank == 1 else [None, None]
    dist.broadcast_object_list(told, 1)
    assert told == ["root", 7], told
    part = [None]
    dist.scatter_object_list(part, list("abcdefgh"[:size]) if rank == 0 else None, 0)
    assert part == ["abcdefgh"[rank]], part


def together():
    rank, size = dist.get_rank(), dist.get_world_size()
    tensors = [torch.full((n,), float(rank)) for n in (1, 20, 300)]
    outs = [torch.zeros(size * x.numel()) for x in tensors]
    for is_async in (False, True):
        with dist._coalescing_manager(async_ops=is_async) as manager:
            for out, x in zip(outs, tensors):
                dist.all_gather_into_tensor(out, x)
        manager.wait()
        for out, x in zip(outs, tensors):
            equal(out, torch.arange(float(size)).repeat_interleave(x.numel()), is_async)
    with dist._coalescing_manager(async_ops=True) as manager:
        for x in tensors:
            dist.all_reduce(x)
    manager.wait()
    for x in tensors:
        equal(x, torch.full(x.shape, float(sum(range(size)))), "all_reduce")
    long = torch.full((3 << 20,), float(rank))          # more than a channel holds, both ways
    gots = [torch.zeros_like(long) for _ in range(2)]
    operations = []
    for got, step in zip(gots, (1, size - 1)):
        operations += [dist.P2POp(dist.isend, long, (rank + step) % size),
                       dist.P2POp(dist.irecv, got, (rank - step) % size)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for got, step in zip(gots, (1, size - 1)):
        equal(got, torch.full_like(got, float((rank - step) % size)), step)


def parts_of_the_world():
    rank, size = dist.get_rank(), dist.get_world_size()
    groups = [list(range(size - 1)), [size - 1]]
    split = dist.split_group(split_ranks=groups)
    mine = groups[rank == size - 1]
    x = torch.ones(4)
    dist.all_reduce(x, group=split)
    equal(x, torch.full((4,), float(len(mine))), "split")
    assert ct.backend.stats(split)["ours"] == {"all_reduce": 1}, ct.backend.stats(split)
    dist.barrier()
    dist.destroy_process_group(split)


def with_functions_of_ours():
    """A Group of the process group is the backend's, whose queue its calls go by."""
    size = dist.get_world_size()
    assert ct.Group.of() is ct.backend.backend_of().group_on("cpu")
    assert ct.Group.of(gloo()) is not ct.Group.of()
    x = torch.ones(1000)
    for _ in range(20):
        work = dist.all_reduce(x.clone(), async_op=True)
        equal(ct.all_reduce(x), x * size, "ct.all_reduce")
        work.wait()


@rig.needs_one_node
class Users(unittest.TestCase):

    def test_functional_collectives(self):
        run_here(functional_collectives)

    def test_frameworks(self):
        run_here(frameworks)

    def test_objects(self):
        run_here(objects)

    def test_together(self):
        run_here(together)

    @by_device
    def test_parts_of_the_world(self):
        run_here(parts_of_the_world)

    def test_with_functions_of_ours(self):
        run_here(with_functions_of_ours)

    @by_device
    def test_a_script_that_imports_nothing(self):
        """PyTorch finds the backend by the entry point that pyproject.toml declares."""
        entry = re.search(r'\[project.entry-points."(.*)"\]\n(\w+) = "(.*)"', PYPROJECT.read_text())
        with tempfile.TemporaryDirectory() as folder:
            info = pathlib.Path(folder, "ceoverlap-0.dist-info")
            info.mkdir()
            info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: ceoverlap\n")
            info.joinpath("entry_points.txt").write_text(
                f"[{entry[1]}]\n{entry[2]} = {entry[3]}\n")
            path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
            subprocess.run([sys.executable, "-c", SCRIPT, os.path.join(folder, "store")],
                           check=True, timeout=rig.START_S, env={**os.environ, "PYTHONPATH": path})

    def test_a_script_that_imports_ours(self):
        """As one has to before PyTorch 2.14."""
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-c", "import ceoverlap.torch\n" + SCRIPT,
                            os.path.join(folder, "store")], check=True, timeout=rig.START_S)

    def test_a_version_without_gloo_is_refused(self):
        with mock.patch.object(ct._compat, "takes_backends", lambda: False), \
                mock.patch.object(dist, "is_gloo_available", lambda: False):
            raises(errors.VersionError, "was built without Gloo", ct.backend._create, None, None)


if __name__ == "__main__":
    unittest.main()
