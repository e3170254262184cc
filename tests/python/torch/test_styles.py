# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Styles for PyTorch's parallelize_module(), and what PyTorch then makes of the model: checkpoints,
clipping, optimizers, copies, FSDP2. Beside a plain model on the whole batch, and PyTorch's styles."""

import copy
import functools
import inspect
import shutil
import unittest
from unittest import mock

import rig
import torch
import torch.distributed as dist
from rig import normal, raises
from test_shares import (HIDDEN, WHOLE, Block, assert_close, block, folder, mesh_of, needs_own_gpus,
                         pass_on, same_bits, whole, whole_number)
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, parallel
from torch.distributed.tensor.parallel import parallelize_module

from ceoverlap import errors
from ceoverlap.torch import ColumnParallelLinear, Group, fsdp, parallelize
from ceoverlap.torch.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel
from ceoverlap.torch.styles import OverlappedColumn, OverlappedRow

N_STEPS = 4
THEIRS = (parallel.ColwiseParallel, parallel.RowwiseParallel)
OURS = (ColwiseParallel, RowwiseParallel)
OPTIMIZERS = {
    "foreach": functools.partial(torch.optim.AdamW, lr=1e-2, foreach=True),
    "single": functools.partial(torch.optim.AdamW, lr=1e-2, foreach=False),
    "fused": functools.partial(torch.optim.AdamW, lr=1e-2, fused=True),
    "sgd": functools.partial(torch.optim.SGD, lr=1e-2, momentum=0.9, foreach=True)}


def plan_of(styles, dim=0, **options):
    """With the sequence in that dimension; None: no sequence parallelism."""
    column, row = styles
    if dim is None:
        return {"up": column(), "down": row()}
    return {"up": column(input_layouts=Shard(dim)),
            "down": row(output_layouts=Shard(dim), **options),
            "norm": SequenceParallel(sequence_dim=dim, use_local_output=True)}


def styled(styles=OURS, seed=0, mesh=None, dim=0):
    mesh = mesh or mesh_of(dist.get_world_size())
    return parallelize_module(block(seed, mesh.size()), mesh, plan_of(styles, dim))


def assert_ours(model):
    assert type(model.up) is type(model.down) is nn.Linear
    assert isinstance(model.up.overlapped, OverlappedColumn), vars(model.up)
    assert isinstance(model.down.overlapped, OverlappedRow), vars(model.down)


def whole_batch(step):
    return normal(step, 0, (4 * dist.get_world_size(), 2, HIDDEN))


def own_batch(step):
    return whole_batch(step).chunk(dist.get_world_size())[dist.get_rank()].contiguous()


def finish_gradients(model):
    """Sums what ranks have of a gradient by PyTorch's SequenceParallel, whose norm PyTorch 2.9 takes
    of each rank's part."""
    for one in model.parameters():
        if isinstance(one, DTensor) and any(p.is_partial() for p in one.grad.placements):
            one.grad = one.grad.redistribute(placements=one.placements)


def train(model, optimizer, batch):
    """The batch's losses, by steps with clipping; of ranks' parts the losses are summed."""
    results = []
    for step in range(N_STEPS):
        optimizer.zero_grad()
        loss = model(batch(step)).square().sum() / whole_batch(step).numel()
        loss.backward()
        finish_gradients(model)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        loss = loss.detach().clone()
        if batch is own_batch:
            dist.all_reduce(loss)
        results.append((loss.item(), whole_number(norm)))
    return results


def close_parameters(model, plain, what):
    """Within what AdamW makes of rounding: it divides gradients by their own size, so that those
    close to 0 may turn."""
    got, expected = whole(model), whole(plain)
    for name, one in expected.items():
        difference = (got[name] - one).norm() / one.norm()
        assert difference <= (5e-2 if rig.HAS_GPUS else 1e-3), (what, name, difference)


def trains_as_plain():
    """Losses, norms of gradients and parameters of the plain model on all of the batch, with PyTorch's
    styles, with ours, and with the layers that parallelize() makes of them."""
    for name, make in OPTIMIZERS.items():
        plain, theirs, ours = block(), styled(THEIRS), styled()
        swapped = parallelize(block(), mesh_of(dist.get_world_size()), plan_of(OURS))
        expected = train(plain, make(plain.parameters()), whole_batch)
        assert not plain.up.weight.equal(block().up.weight), name
        for model in (theirs, ours, swapped):
            assert_close(train(model, make(model.parameters()), own_batch), expected)
            close_parameters(model, plain, name)
        assert_ours(ours)
        assert type(swapped.up) is ColumnParallelLinear, type(swapped.up)


def is_laid_out_as_pytorch():
    """Results, gradients and placements, for all layouts that are ours, as tensors and DTensors."""
    size, mesh = dist.get_world_size(), mesh_of(dist.get_world_size())
    for dim, options in ((0, {}), (1, {}), (None, {}), (1, {"use_local_output": False})):
        results = []
        for styles in (THEIRS, OURS):
            model = parallelize_module(block(), mesh, plan_of(styles, dim, **options))
            if styles is OURS:
                assert_ours(model)
            x = normal(1, 0, (2 * size, 3 * size, HIDDEN))
            x = x if dim is None else x.chunk(size, dim)[dist.get_rank()].contiguous()
            x.requires_grad_()
            y = model.down(model.up(x) if not options else
                           DTensor.from_local(model.up(x), mesh, [Shard(-1)], run_check=False))
            assert isinstance(y, DTensor) is bool(options), type(y)
            y = y.full_tensor() if options else y
            y.square().sum().backward()
            results.append([y.detach(), x.grad, *(one.grad.full_tensor() for one in
                                                  (model.up.weight, model.up.bias,
                                                   model.down.weight, model.down.bias))])
            results[-1].append([(one.placements, one.shape, one.stride())
                                for one in model.parameters() if isinstance(one, DTensor)])
        (*theirs, places), (*ours, own_places) = results
        assert places == own_places, (dim, places, own_places)
        for i, (a, b) in enumerate(zip(theirs, ours)):
            assert a.shape == b.shape and (a - b).norm() <= 1e-4 * a.norm(), (dim, options, i)


def takes_dtensors():
    """As PyTorch's SequenceParallel and PrepareModuleInput return them, whose gradients are summed
    by PyTorch."""
    mesh = mesh_of(dist.get_world_size())
    results = []
    for column, row in (THEIRS, OURS):
        model = parallelize_module(block(), mesh, {"norm": SequenceParallel(sequence_dim=0)})
        plan = {"up": column(input_layouts=Shard(0), use_local_output=False),
                "down": row(output_layouts=Shard(0))}
        for way in ("sharded", "replicated"):
            one = copy.deepcopy(model)
            if way == "replicated":
                plan["up"] = column(use_local_output=False)
            parallelize_module(one, mesh, plan)
            x = own_batch(0).requires_grad_()
            normed = one.norm(x)
            if way == "replicated":
                normed = normed.redistribute(placements=[Replicate()])
            y = one.down(torch.relu(one.up(normed)))
            y.square().sum().backward()
            finish_gradients(one)
            results.append([y.detach(), x.grad,
                            *(parameter.grad.full_tensor() for parameter in one.parameters())])
    for theirs, ours in zip(results[:2], results[2:]):
        for i, (a, b) in enumerate(zip(theirs, ours)):
            assert a.shape == b.shape and (a - b).norm() <= 1e-4 * a.norm(), i


def gathers_once():
    """ColumnParallelLinear.together() takes them; a module without a style is refused."""
    mesh = mesh_of(dist.get_world_size())
    model = nn.Sequential(block(1).up, block(2).up)
    parallelize_module(model, mesh, {"*": ColwiseParallel(input_layouts=Shard(0))})
    x = own_batch(0)
    for got, linear in zip(ColumnParallelLinear.together(list(model), x), model):
        rig.equal(got, linear(x), "together")
    raises(errors.InvalidError, "is no column layer", ColumnParallelLinear.together,
           [block().up], x)
    other = parallelize_module(block(), mesh, {"up": ColwiseParallel(input_layouts=Shard(1))})
    raises(errors.InvalidError, "must be the same", ColumnParallelLinear.together,
           [model[0], other.up], x)


def leaves_the_rest():
    """To PyTorch's styles, which are told."""
    size, mesh = dist.get_world_size(), mesh_of(dist.get_world_size())

    class Own(nn.Linear):
        def forward(self, x):
            return super().forward(x) + 1

    for module, style, text in (
            (nn.Embedding(8, HIDDEN), RowwiseParallel(input_layouts=Replicate()),
             "a Embedding is no plain nn.Linear"),
            (Own(HIDDEN, 8 * size), ColwiseParallel(), "a Own is no plain nn.Linear"),
            (nn.Linear(HIDDEN, 8 * size + 1), ColwiseParallel(), f"no multiple of {size} ranks"),
            (nn.Linear(HIDDEN, 8 * size).double(), ColwiseParallel(), "torch.float64"),
            (nn.Linear(HIDDEN, 8 * size), ColwiseParallel(output_layouts=Replicate()),
             "must be Shard(-1)"),
            (nn.Linear(8 * size, HIDDEN), RowwiseParallel(output_layouts=Shard(-1)),
             "from 0 on")):
        expected = copy.deepcopy(module).to(rig.device())
        with rig.logged() as kept:
            made = parallelize_module(nn.Sequential(module.to(rig.device())), mesh, {"0": style})[0]
        assert any(text in line for line in kept.lines()), (text, kept.lines())
        assert not hasattr(made, "overlapped") and isinstance(made.weight, DTensor), text
        assert made.weight.full_tensor().equal(expected.weight), text
    raises(NotImplementedError, "nn.Linear", parallelize_module, nn.Sequential(nn.ReLU()), mesh,
           {"0": ColwiseParallel()})


def takes_rank_0s_weights():
    """Ranks that were seeded differently, unless src_data_rank=None; and what has no memory yet."""
    mesh = mesh_of(dist.get_world_size())
    expected = block().up.weight
    one = parallelize_module(block(dist.get_rank()), mesh, plan_of(OURS))
    rig.equal(one.up.weight.full_tensor(), expected, "rank 0's")
    own = parallelize_module(block(dist.get_rank()), mesh, plan_of(OURS), src_data_rank=None)
    rig.equal(own.up.weight.to_local(),
              block(dist.get_rank()).up.weight.chunk(dist.get_world_size())[dist.get_rank()], "own")
    with torch.device("meta"):
        empty = Block(dist.get_world_size())
    parallelize_module(empty, mesh, plan_of(OURS))
    empty.to_empty(device=rig.device())
    set_model_state_dict(empty, whole(block()), options=WHOLE)
    rig.equal(empty(own_batch(0)), styled()(own_batch(0)), "made without memory")


def is_saved_and_loaded():
    """A checkpoint is one of the plain model, and the reverse, by files and in one piece."""
    path, expected = folder(), whole(block())
    plain, ours, again = block(1), styled(), styled(seed=2)
    pass_on(ours, plain, f"{path}/ours")
    same_bits(whole(plain), expected, "loaded by a plain model")
    pass_on(plain, again, f"{path}/plain")
    same_bits(whole(again), expected, "loaded by ours")
    same_bits(get_model_state_dict(ours, options=WHOLE), expected, "whole state")
    last = styled(seed=3)
    set_model_state_dict(last, dict(expected), options=WHOLE)
    same_bits(whole(last), expected, "loaded from a whole state")
    for model in (again, last):
        rig.equal(model(own_batch(0)), ours(own_batch(0)), "result")
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(path)


def is_copied():
    """A copy computes with parameters of its own, not with those of the model it was made of."""
    ours = styled()
    other, expected = copy.deepcopy(ours), ours(own_batch(0))
    same_bits(whole(other), whole(ours), "copied")
    assert_ours(other)
    rig.equal(other(own_batch(0)), expected, "result of the copy")
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    rig.equal(other(own_batch(0)), own_batch(0), "result of a copy without weights")
    rig.equal(ours(own_batch(0)), expected, "result of the original")
    other(own_batch(0)).sum().backward()
    assert all(one.grad is None for one in ours.parameters())
    assert isinstance(other.up.weight.grad, DTensor)


def is_compiled():
    for dim in (0, None):
        ours, results = styled(dim=dim), []
        compiled = torch.compile(ours, fullgraph=True,
                                 backend="inductor" if rig.HAS_GPUS else "aot_eager")
        for model in (ours, compiled):
            ours.zero_grad()
            y = model(own_batch(0) if dim == 0 else whole_batch(0))
            y.square().sum().backward()
            results.append([y.detach(), *(one.grad.to_local() for one in
                                          (ours.up.weight, ours.down.weight, ours.up.bias))])
        for i, (a, b) in enumerate(zip(*results)):
            assert (a - b).norm() <= 1e-4 * max(a.norm().item(), 1), (dim, i)


def goes_by_copy_engines():
    """In bf16: products of both layers are our operators, forward and backward."""
    ours = styled().bfloat16()
    operators = Group.of(mesh_of(dist.get_world_size()).get_group()).operators
    with mock.patch.object(operators, "find", wraps=operators.find) as find:
        ours(own_batch(0).bfloat16()).sum().backward()
    names = [call.args[0][0].__name__ for call in find.call_args_list]
    assert names.count("AllGatherGemm") == names.count("GemmReduceScatter") == 2, names


def two_dimensions():
    """FSDP2 over the data dimension, by PyTorch and by us; a checkpoint is the plain model's."""
    mesh, results = mesh_of(2, 2), []
    for styles, enables in ((THEIRS, False), (OURS, False), (OURS, True)):
        model = styled(styles, mesh=mesh["tensor"])
        for one in (model.up, model.down):
            fully_shard(one, mesh=mesh["data"])
        fully_shard(model, mesh=mesh["data"])
        same_bits(get_model_state_dict(model, options=WHOLE), whole(block(size=2)), "whole state")
        handle = fsdp.enable(model) if enables else None
        results.append(train(model, OPTIMIZERS["foreach"](model.parameters()), own_batch))
        if enables:
            assert all(stats.n_gathers and stats.n_sums for stats in handle.stats), handle.stats
            handle.disable()
    for one in results[1:]:
        assert_close(one, results[0])


@needs_own_gpus
class Styles(unittest.TestCase):
    def test_signatures(self):
        """The one private method that is overridden, which parallelize_module() calls."""
        for ours, theirs in zip(OURS, THEIRS):
            self.assertTrue(issubclass(ours, theirs))
            for one in (ours, theirs):
                self.assertEqual(list(inspect.signature(one._apply).parameters),
                                 ["self", "module", "device_mesh"])
        self.assertIs(SequenceParallel, parallel.SequenceParallel)
        self.assertIn("input_layouts=(Shard(dim=1),)", repr(OURS[0](input_layouts=Shard(1))))

    def test_trains_as_plain(self):
        rig.run(trains_as_plain)

    def test_layouts(self):
        rig.run(is_laid_out_as_pytorch)

    def test_dtensors(self):
        rig.run(takes_dtensors)

    def test_together(self):
        rig.run(gathers_once)

    def test_left_to_pytorch(self):
        rig.run(leaves_the_rest)

    def test_weights_of_rank_0(self):
        rig.run(takes_rank_0s_weights)

    def test_saved_and_loaded(self):
        rig.run(is_saved_and_loaded)

    def test_copied(self):
        rig.run(is_copied)

    def test_compiled(self):
        rig.run(is_compiled)

    def test_copy_engines(self):
        rig.run(goes_by_copy_engines)


@needs_own_gpus
class TwoDimensions(unittest.TestCase):
    def test_fsdp2_over_styles(self):
        if 1 < rig.N_GPUS < 4:
            raise unittest.SkipTest("needs 4 GPUs")
        world = rig.World(4)
        self.addCleanup(lambda: world.is_open and world.close())
        world.run(two_dimensions)


if __name__ == "__main__":
    unittest.main()
