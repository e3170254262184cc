# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""FSDP2 on copy engines against plain FSDP2: losses, gradients and parameters over some
steps."""

import collections
import contextlib
import functools
import gc
import os
import random
import time
import types
import unittest
import weakref
from unittest import mock

import rig
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.tensor import DTensor, Shard
from torch.utils._python_dispatch import TorchDispatchMode

import ceoverlap
from ceoverlap.torch import Group, fsdp
from ceoverlap.torch._pools import _PAUSE, Pools
from ceoverlap.torch._pull import N_SLOTS, RUNS_IN_FLIGHT, Layout, Pull
from ceoverlap.torch._staging import PLANS_MAX, Staging
from ceoverlap.torch._uncast import uncast

N_STEPS = 4
N_LAYERS = 3
# Divisible by no number of ranks; where each has a GPU, copies take as long as kernels.
WIDTHS = (17, 33) if not rig.HAS_GPUS else (250, 1001) if rig.SHARES_GPUS else (1000, 4001)
STANDS_STILL_S = rig.patience(10)       # longer than anything takes that does not


# --- one rank -----------------------------------------------------------------------------


@functools.lru_cache(maxsize=None)
def mesh_of(*shape):
    """The last dimension shards; kept, as process groups are."""
    names = ("replicas", "shards")[-len(shape):]
    return init_device_mesh(rig.device().type, shape, mesh_dim_names=names)


def model_of(widths=None, change=None, mesh=None, policy=None, **options):
    """Layers with a sharded group each, the same at all ranks and in every call."""
    torch.manual_seed(rig.SEED)
    n, wide = widths or WIDTHS
    layers = [nn.Sequential(nn.Linear(n, wide), nn.Tanh(), nn.Linear(wide, n),
                            nn.LayerNorm(n)) for _ in range(N_LAYERS)]
    model = nn.Sequential(*layers, nn.Linear(n, 8)).to(rig.device())
    if change is not None:
        change(model)
    options = dict(options, mesh=mesh_of(*(mesh or (dist.get_world_size(),))),
                   mp_policy=MixedPrecisionPolicy(**(policy or {})))
    for layer in model[:N_LAYERS]:
        fully_shard(layer, **options)
    return fully_shard(model, **options)


def batch(step, n=WIDTHS[0]):
    """This rank's input of one step."""
    return rig.normal(step, dist.get_rank(), (6, n))


def assert_close(ours, theirs, tolerance, what):
    ours, theirs = ours.to_local().double(), theirs.to_local().double()
    if not theirs.numel():
        return
    bound = tolerance * max(theirs.abs().max().item(), 1e-6)
    distance = (ours - theirs).abs().max().item()
    assert distance <= bound, f"{what}: {distance} apart, bound {bound}"


def train_plainly(model, step, n=WIDTHS[0], dtype=torch.float32):
    loss = model(batch(step, n).to(dtype)).float().pow(2).mean()
    loss.backward()
    return loss.item()


def assert_same_training(tolerance, train=train_plainly, factor=1.0, prepare=None, **options):
    """Trains both models; returns the handle, still enabled, and our model. factor: what
    our gradients are of theirs."""
    theirs, ours = model_of(**options), model_of(**options)
    handle = fsdp.enable(ours)
    if prepare is not None:
        prepare(theirs, False)
        prepare(ours, True)
    optimizers = [torch.optim.SGD(model.parameters(), 0.05) for model in (theirs, ours)]
    for step in range(N_STEPS):
        losses = [train(model, step) for model in (theirs, ours)]
        # The same parameters bit by bit, so the same loss.
        assert losses[0] == losses[1], f"{step}: loss {losses[1]}, not {losses[0]}"
        for (name, a), b in zip(theirs.named_parameters(), ours.parameters()):
            assert (a.grad is None) == (b.grad is None), f"{step}: gradient of {name}"
            if a.grad is not None:
                assert_close(b.grad, a.grad * factor, tolerance, f"{step}: {name}")
                b.grad = a.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    handle.check()
    return handle, ours


def assert_on_engines(handle, n_gathers=None):
    """All of it, and then disables."""
    for stats in handle.stats:
        assert stats.all_gather == stats.reduce_scatter == "copy engines", stats
        assert stats.n_gathers and stats.gathered_bytes and stats.summed_bytes, stats
        assert not stats.copied_bytes, stats
        assert n_gathers is None or stats.n_gathers <= n_gathers, stats
        assert 0 < stats.n_plans <= PLANS_MAX * len(handle.stats), stats
        assert 0 < stats.slot_bytes == handle.slot_bytes, stats
    handle.disable()


# --- what all ranks run --------------------------------------------------------------------


def with_policy(tolerance, **policy):
    handle, _ = assert_same_training(tolerance, policy=policy)
    assert_on_engines(handle, 2 * N_STEPS)


def whole_bf16_model():
    handle, _ = assert_same_training(2e-2, change=nn.Module.bfloat16,
                                     train=functools.partial(train_plainly,
                                                             dtype=torch.bfloat16))
    assert_on_engines(handle)


def kept_after_forward():
    handle, _ = assert_same_training(1e-5, reshard_after_forward=False)
    assert_on_engines(handle, N_STEPS)


def accumulated():
    """Two backward passes to a step; the parameters stay gathered between."""
    def train(model, step):
        total = 0.0
        for last in (False, True):
            model.set_requires_gradient_sync(last)
            model.set_reshard_after_backward(last)
            total += train_plainly(model, 2 * step + last)
        return total

    handle, _ = assert_same_training(1e-5, train)
    assert_on_engines(handle)


def summed():
    def prepare(model, _is_ours):
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)

    handle, _ = assert_same_training(1e-5, prepare=prepare)
    assert_on_engines(handle)


def scaled():
    """gloo has no sum of scaled values: theirs are averages."""
    def prepare(model, is_ours):
        for module in model.modules():
            if is_ours and isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(5.0)

    handle, _ = assert_same_training(1e-5, prepare=prepare,
                                     factor=dist.get_world_size() / 5.0)
    assert_on_engines(handle)


def shards_of_columns():
    """FSDP puts these together from temporaries: what was gathered is copied there."""
    size = dist.get_world_size()
    widths = (16 * size, 24 * size)
    handle, _ = assert_same_training(
        1e-5, functools.partial(train_plainly, n=widths[0]), widths=widths,
        shard_placement_fn=lambda parameter: Shard(parameter.dim() - 1)
        if parameter.shape[-1] % size == 0 else None)
    for stats in handle.stats:
        assert stats.all_gather == stats.reduce_scatter == "copy engines", stats
        assert 0 < stats.copied_bytes, stats
    handle.disable()


def mixed_dtypes():
    """A group with several dtypes is gathered as bytes."""
    def change(model):
        for layer in model[:N_LAYERS]:
            norm = layer[3]
            norm.bias = nn.Parameter(norm.bias.detach().double() + 1, requires_grad=False)
            norm.forward = lambda x, norm=norm: nn.functional.layer_norm(
                x, norm.normalized_shape, norm.weight, norm.bias.float(), norm.eps)

    handle, _ = assert_same_training(1e-5, change=change)
    assert_on_engines(handle)


def some_need_no_cast():
    """Parameters that are kept in the gathered dtype beside others that are not."""
    def change(model):
        for layer in model[:N_LAYERS]:
            layer[3].bfloat16().requires_grad_(False)

    handle, ours = assert_same_training(2e-2, change=change,
                                        policy={"param_dtype": torch.bfloat16})
    with Copies() as copies:            # PyTorch casts; not a copy for each parameter
        ours[0].unshard()
    assert copies.counts == {"aten::_foreach_copy_": 2}, copies.counts
    ours[0].reshard()
    assert_on_engines(handle)


class Copies(TorchDispatchMode):
    """Counts the operators of PyTorch's that copy, by name."""

    def __init__(self):
        super().__init__()
        self.counts = collections.Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "copy" in func.name():
            self.counts[func.name()] += 1
        return func(*args, **(kwargs or {}))


def cast_on_the_way():
    """What is kept in fp32 and gathered in bf16 is copied once, to the slot, and not out of
    anything."""
    model = model_of(policy={"param_dtype": torch.bfloat16})
    handle = fsdp.enable(model)
    train_plainly(model, 0)
    with Copies() as copies:
        model[0].unshard()
    assert copies.counts == {"aten::_foreach_copy_": 1}, copies.counts
    model[0].reshard()
    assert_on_engines(handle)
    with Copies() as copies:            # PyTorch's own again
        model[0].unshard()
    assert sum(copies.counts.values()) > 1, copies.counts
    model[0].reshard()


def others_gather():
    """An all-gather that was set afterwards, or in front of ours, gets tensors."""
    class InFront(DefaultAllGather):
        def __init__(self, gather, has_memory):
            self.gather = gather
            self.has_memory = has_memory

        def allocate(self, size, *, dtype, device):
            if self.has_memory:
                return torch.empty(*size, dtype=dtype, device=device)
            return self.gather.allocate(size, dtype=dtype, device=device)

        def __call__(self, *args, **kwargs):
            return self.gather(*args, **kwargs)

    def prepare(model, is_ours):
        if is_ours:
            model[0].set_custom_all_gather(DefaultAllGather())
            for i in (1, 2):
                ours = model[i]._get_fsdp_state()._fsdp_param_group._all_gather_comm
                model[i].set_custom_all_gather(InFront(ours, i == 1))

    handle, ours = assert_same_training(2e-2, prepare=prepare,
                                        policy={"param_dtype": torch.bfloat16})
    groups = [module._get_fsdp_state()._fsdp_param_group for module in (*ours[:3], ours)]
    kept = [group._all_gather_comm for group in groups]
    assert [stats.n_gathers > 0 for stats in handle.stats] == [True, False, False, True]
    handle.disable()                    # only what is ours still goes
    assert [group._all_gather_comm is gather for group, gather in zip(groups, kept)] == \
        [True, True, True, False]
    train_plainly(ours, N_STEPS)
    assert kept[2].gather.reasons == {"disabled": 2}, kept[2].gather.reasons


def prefetched():
    def prepare(model, _is_ours):
        layers = list(model[:N_LAYERS])
        for i, layer in enumerate(layers):
            layer.set_modules_to_forward_prefetch(layers[i + 1:i + 3])
            layer.set_modules_to_backward_prefetch(layers[max(i - 2, 0):i][::-1])

    handle, _ = assert_same_training(1e-5, prepare=prepare)
    assert_on_engines(handle)


def asynchronous():
    """Gathered ahead by the caller, two layers beside each other."""
    def train(model, step):
        waits = [layer.unshard(async_op=True) for layer in model[:2]]
        if step % 2:
            waits[0].wait()
        return train_plainly(model, step)

    def prepare(model, _is_ours):
        with torch.no_grad():           # the first forward says who is the root
            model(batch(0))

    handle, _ = assert_same_training(1e-5, train, prepare=prepare)
    assert_on_engines(handle)


def without_gradients():
    theirs, ours = model_of(), model_of()
    handle = fsdp.enable(ours)
    for step in range(N_STEPS):
        x = batch(step)
        with torch.no_grad():
            assert torch.equal(theirs(x), ours(x))
    expected = theirs.state_dict()
    for name, value in ours.state_dict().items():
        assert isinstance(value, DTensor) and torch.equal(value.to_local(),
                                                          expected[name].to_local()), name
    assert all(stats.n_gathers for stats in handle.stats)
    handle.disable()


def ranks_out_of_step():
    """A slot is not filled again while a slow peer still reads it."""
    times = random.Random(rig.SEED + dist.get_rank())

    def train(model, step):
        hooks = [layer.register_forward_pre_hook(
            lambda *_: time.sleep(times.random() * 0.01)) for layer in model[:N_LAYERS]]
        losses = [train_plainly(model, 5 * step + i) for i in range(5)]
        for hook in hooks:
            hook.remove()
        return losses

    handle, _ = assert_same_training(1e-4, train)
    assert_on_engines(handle)


def new_parameters_between_gathers():
    """What a rank gathers is what peers have now: they fill the next slot while slow ranks
    still read the last one."""
    layer = fully_shard(nn.Linear(1000, 1500, device=rig.device()),
                        mesh=mesh_of(dist.get_world_size()))
    handle = fsdp.enable(layer)
    for step in range(40):
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.to_local().fill_(step + 1)
        layer.unshard()
        for parameter in layer.parameters():
            assert (parameter == step + 1).all(), f"{step}: {parameter}"
        layer.reshard()
    handle.disable()


def shard_bytes(module, dtype):
    """Of the parameters that FSDP gathers with this module."""
    params = module._get_fsdp_state()._fsdp_param_group.fsdp_params
    return sum(param.padded_sharded_param_size.numel() for param in params) * dtype.itemsize


def shared_slots():
    """Layers of different sizes take turns in slots as large as the largest one's shard,
    however many layers there are."""
    def change(n_more, model):
        n = WIDTHS[0]
        model[1] = nn.Sequential(nn.Linear(n, 2 * n), nn.Linear(2 * n, 3 * n),
                                 nn.Linear(3 * n, n, bias=False)).to(rig.device())
        for _ in range(n_more):
            model[0].append(fully_shard(nn.Linear(n, n, device=rig.device()),
                                        mesh=mesh_of(dist.get_world_size())))

    model = model_of(change=functools.partial(change, 0))
    handle = fsdp.enable(model)
    model[0].unshard()                  # all layers are known, so also the largest one
    model[0].reshard()
    assert handle.slot_bytes == N_SLOTS * shard_bytes(model[1], torch.float32)
    handle.disable()
    for n_more, dtype, tolerance in ((0, torch.float32, 1e-5), (5, torch.float32, 1e-5),
                                     (0, torch.bfloat16, 2e-2)):
        handle, ours = assert_same_training(tolerance, policy={"param_dtype": dtype},
                                            change=functools.partial(change, n_more))
        largest = max(shard_bytes(module, dtype) for module in ours.modules()
                      if isinstance(module, FSDPModule))
        assert handle.slot_bytes == N_SLOTS * largest, (handle.slot_bytes, largest)
        assert len(handle.stats) == N_LAYERS + 1 + n_more
        assert_on_engines(handle)


class Streams:
    """Some streams; nothing on the host."""

    def __init__(self, n):
        self._all = [torch.cuda.Stream() for _ in range(n)] if rig.HAS_GPUS else []

    def take(self, i):
        """``with streams.take(i)``: the block's work goes to that one."""
        return torch.cuda.stream(self._all[i]) if self._all else contextlib.nullcontext()

    def order(self, first, second):
        """What comes on the second one comes after what is on the first."""
        if self._all:
            self._all[second].wait_stream(self._all[first])


def runs_of_many_layouts():
    """Every rank's shard arrives where it belongs, run after run, while layouts, dtypes and
    streams change, shards outgrow the slots, and ranks are out of step."""
    staging, n, rank = Staging(Group.of()), dist.get_world_size(), dist.get_rank()
    same, own = random.Random(rig.SEED), random.Random(rig.SEED + rank)
    streams, results, largest = Streams(3), [], 0
    limit = 30000 if rig.HAS_GPUS else 300
    layouts = [[same.randrange(1, limit << 5 * (k == 3)) for _ in range(k + 1)]
               for k in range(5)]
    for k in range(90):
        sizes = layouts[same.randrange(3 + k // 30)]
        dtype = same.choice((torch.bfloat16, torch.float32))
        layout = staging.layout(tuple(size * dtype.itemsize for size in sizes))
        fills, runs = same.randrange(3), same.randrange(3)
        with streams.take(fills), torch.inference_mode(k < 30):
            shard = staging.begin(layout, dtype)
            for i, part in enumerate(shard.parts):
                part.copy_(rig.integers(k * 8 + i, rank, (sizes[i],), dtype))
        streams.order(fills, runs)
        with streams.take(runs):
            targets = [torch.empty(n, size, dtype=dtype, device=rig.device())
                       for size in sizes]
            if rig.HAS_GPUS:
                torch.cuda._sleep(own.randrange(1000000))
            staging.run(layout, [target.data_ptr() for target in targets])
        results.append((k, sizes, dtype, targets))
        largest = max(largest, layout.n_bytes)
        assert staging.n_bytes == N_SLOTS * largest, f"{k}: {staging.n_bytes}, {largest}"
        time.sleep(own.random() * 0.004)
    if rig.HAS_GPUS:
        torch.cuda.synchronize()
    for k, sizes, dtype, targets in results:
        for i, target in enumerate(targets):
            expected = [rig.integers(k * 8 + i, peer, (sizes[i],), dtype) for peer in range(n)]
            rig.equal(target, torch.stack(expected), f"run {k}, part {i}")
    staging.group.exchange("read")
    staging.close()
    assert not staging.n_bytes


def kernels_are_loaded_while_a_pull_waits():
    """While a stream waits, a kernel's first launch holds back what the process submits later:
    nothing that the wait needs is left for later. Operators and a dtype that nothing else
    uses, so that their kernels are not loaded yet; every rank is late in its turn."""
    fresh = (torch.hypot, torch.copysign, torch.nextafter, torch.heaviside, torch.atan2,
             torch.logaddexp, torch.fmod, torch.fmax, torch.ldexp, torch.xlogy)
    staging, n, rank = Staging(Group.of()), dist.get_world_size(), dist.get_rank()
    layout, streams = staging.layout((30000,)), Streams(2)
    targets = torch.zeros(len(fresh), n, 30000, dtype=torch.uint8, device=rig.device())
    x = torch.ones(64, dtype=torch.float64, device=rig.device())
    torch.cuda.synchronize()
    begin = time.monotonic()
    for run, operator in enumerate(fresh):
        with streams.take(0):
            shard = staging.begin(layout, torch.uint8)
            shard.whole.fill_(run * n + rank)
            if run % n == rank:
                time.sleep(0.1)
            staging.run(layout, [targets[run].data_ptr()])
        with streams.take(1):
            operator(x, x)
    torch.cuda.synchronize()
    elapsed = time.monotonic() - begin
    assert elapsed < STANDS_STILL_S, f"{elapsed} s: stood still"
    for run, target in enumerate(targets):
        for peer in range(n):
            assert (target[peer] == run * n + peer).all(), f"run {run}, rank {peer}"
    staging.check()
    staging.group.exchange("read")
    staging.close()


def memory_is_freed_while_a_pull_waits():
    """cudaFree() waits for the GPU and keeps others out of the driver."""
    staging, rank = Staging(Group.of()), dist.get_rank()
    layout = staging.layout((30000,))
    target = torch.zeros(dist.get_world_size(), 30000, dtype=torch.uint8,
                         device=rig.device())
    torch.cuda.synchronize()
    begin = time.monotonic()
    for run in range(5):
        shard = staging.begin(layout, torch.uint8)
        shard.whole.fill_(run)
        if run % dist.get_world_size() == rank:
            time.sleep(0.1)
        staging.run(layout, [target.data_ptr()])
        del shard
        torch.empty(64 << 20, dtype=torch.uint8, device=rig.device())
        torch.cuda.empty_cache()
    torch.cuda.synchronize()
    elapsed = time.monotonic() - begin
    assert elapsed < STANDS_STILL_S, f"{elapsed} s: stood still"
    assert (target == 4).all()
    staging.check()
    staging.group.exchange("read")
    staging.close()


def runs_far_ahead():
    """The host queues more runs than may be in flight, and waits for room."""
    staging, n, rank = Staging(Group.of()), dist.get_world_size(), dist.get_rank()
    layout, runs = staging.layout((3000,)), 3 * RUNS_IN_FLIGHT
    targets = torch.zeros(runs, n, 3000, dtype=torch.uint8, device=rig.device())
    shard = staging.begin(layout, torch.uint8)      # allocates
    torch.cuda._sleep(1)
    torch.cuda.synchronize()
    staging.group.exchange("ready")
    torch.cuda._sleep(5 * 10 ** 8 * (1 + rank))     # ranks begin some 0.3 s apart
    for run in range(runs):
        if run:
            shard = staging.begin(layout, torch.uint8)
        shard.whole.fill_((run * n + rank) % 251)
        staging.run(layout, [targets[run].data_ptr()])
    torch.cuda.synchronize()
    for run, target in enumerate(targets):
        for peer in range(n):
            assert (target[peer] == (run * n + peer) % 251).all(), f"run {run}, rank {peer}"
    staging.check()
    staging.group.exchange("read")
    staging.close()


def late_raises_close_nothing_again():
    """Deadlines pass and open what waits; then the last rank raises its mark after all, below
    what the others wait for by then. All streams go on, and all ranks are told."""
    group = Group.of()
    cycles = int(rig.patience(10 ** 9))     # of a clock: twice the deadline, or some more
    pull, layout = Pull(group, 64, 3, rig.patience(0.25)), Layout((64,))
    is_last = group.rank == group.size - 1
    target = torch.zeros(group.size * 64, dtype=torch.uint8, device=rig.device())
    torch.cuda._sleep(1)                # loaded before anything waits
    torch.cuda.synchronize()
    group.exchange("ready")
    begin = time.monotonic()
    with torch.cuda.stream(torch.cuda.Stream()), group.stream() as stream:
        for run in range(1 if is_last else 3):
            pull.begin(stream)
            if is_last or run:          # the others' second run comes behind the late raise
                torch.cuda._sleep(cycles if is_last else 2 * cycles)
            pull.run(layout, [target.data_ptr()], stream)
    torch.cuda.synchronize()
    elapsed = time.monotonic() - begin
    assert elapsed < STANDS_STILL_S, f"{elapsed} s: a stream stood still"
    rig.raises(ceoverlap.DeadlineError, "", wait_for_failure, pull)
    rig.raises(ceoverlap.DeadlineError, "", pull.begin, stream)
    group.exchange("seen")
    pull.close()


def wait_for_failure(pull):
    until = time.monotonic() + rig.patience(5)
    while time.monotonic() < until:
        pull.check()
        time.sleep(0.01)


def plans_are_bounded():
    """Targets that never come again leave neither plans nor registered memory."""
    group = Group.of()
    pull, layout = Pull(group, 64, 3, 10.0), Layout((48, 16))
    whole = torch.zeros(12, 2, group.size * 64, dtype=torch.uint8, device=rig.device())
    for row in whole:
        with group.stream() as stream:
            pull.begin(stream)
            pull.run(layout, [part.data_ptr() for part in row], stream)
    assert pull.n_plans == 3 and len(pull._targets) == 6, (pull.n_plans, pull._targets)
    pull.check()
    group.exchange("read")
    if rig.HAS_GPUS:
        torch.cuda.synchronize()
    pull.close()
    assert not pull._targets


def layouts_differ():
    """Nothing is left of what the ranks do not agree on."""
    staging = Staging(Group.of())
    rig.raises(ceoverlap.InvalidError, "bytes of the parts of a shard", staging.layout,
               (64, 32 * (1 + dist.get_rank())))
    assert staging.layout((64, 32)) is staging.layout((64, 32))


def nothing_is_left():
    """Of a handle that was disabled, without the help of the garbage collector: its pools of
    memory must not go at any later time."""
    model = model_of()
    handle = fsdp.enable(model)
    train_plainly(model, 0)
    gather = model._get_fsdp_state()._fsdp_param_group._all_gather_comm
    pools, staging = weakref.ref(gather._pools), weakref.ref(gather.staging)
    own = gather._pools._pools
    assert len(own) == (2 if rig.HAS_GPUS else 0)
    del gather
    gc.disable()
    try:
        handle.disable()
        assert not own, "pools are kept"
        train_plainly(model, 1)         # the last gather's result goes
        assert pools() is None and staging() is None
    finally:
        gc.enable()


def disabled():
    handle, ours = assert_same_training(1e-5)
    assert handle.slot_bytes
    handle.disable()
    handle.disable()
    assert not handle.stats and not handle.slot_bytes
    for name in ("_to_sharded", "_to_sharded_post_forward"):
        assert name not in ours[0]._get_fsdp_state()._fsdp_param_group.__dict__
    expected = train_plainly(ours, 0)
    for options, ways in (({"gather": False}, ("PyTorch: not asked for", "copy engines")),
                          ({"scatter": False}, ("copy engines", "PyTorch: not asked for"))):
        handle = fsdp.enable(ours, **options)
        assert train_plainly(ours, 0) == expected
        stats = handle.stats[0]
        assert (stats.all_gather, stats.reduce_scatter) == ways, stats
        handle.disable()


def refused():
    rig.raises(ceoverlap.InvalidError, "fully_shard", fsdp.enable, nn.Linear(4, 4))
    ours = model_of()
    with mock.patch.object(FSDPParamGroup, "_to_sharded", None):
        rig.raises(ceoverlap.VersionError, "no FSDPParamGroup._to_sharded", fsdp.enable, ours)
    answers = [Group.of(mesh_of(dist.get_world_size()).get_group()),
               ceoverlap.InvalidError("on 2 hosts")]
    with mock.patch.object(Group, "of", side_effect=answers):
        rig.raises(ceoverlap.InvalidError, "on 2 hosts", fsdp.enable, ours)
    handle = fsdp.enable(ours)          # none of it is left
    rig.raises(ceoverlap.StateError, "enabled already", fsdp.enable, ours)
    handle.disable()


def slots_fail_at_one_rank():
    """All ranks are told at once, and may try again."""
    group = Group.of()
    staging, (create, last) = Staging(group), (Pull._create, group.size - 1)
    layout = staging.layout((64, 32))

    def fails(self, name):
        create(self, name)
        raise MemoryError("none left")

    begin = time.monotonic()
    if group.rank == last:
        with mock.patch.object(Pull, "_create", fails):
            rig.raises(MemoryError, "none left", staging.begin, layout, torch.float32)
    else:
        rig.raises(ceoverlap.StateError, f"rank {last} has failed: MemoryError: none left",
                   staging.begin, layout, torch.float32)
    assert time.monotonic() - begin < group.deadline_s / 2
    assert not staging.n_bytes
    assert staging.begin(layout, torch.float32).whole.numel() == 24
    group.exchange("made")
    staging.close()


def survive_a_death():
    """Of rank 1, which exits between steps while others may still read its slot."""
    ours = model_of()
    fsdp.enable(ours)
    dist.barrier()
    begin = time.monotonic()
    try:
        for step in range(10000):
            begin = time.monotonic()
            with torch.no_grad():
                ours(batch(step))
            if rig.HAS_GPUS:
                torch.cuda.synchronize()
            if step == 3 and dist.get_rank() == 1:
                os._exit(7)
    except (ceoverlap.PeerLostError, ceoverlap.AbortedError):
        assert time.monotonic() - begin < STANDS_STILL_S
        return
    raise AssertionError("rank 1 was not missed")


def other_dtypes_stay():
    """Gradients in fp64 are not summed by us; the stats say why."""
    handle, _ = assert_same_training(1e-12, functools.partial(train_plainly,
                                                              dtype=torch.float64),
                                     change=nn.Module.double)
    for stats in handle.stats:
        assert stats.all_gather == "copy engines", stats
        assert stats.reduce_scatter.startswith("PyTorch: gradients of torch.float64"), stats
    handle.disable()


def replicas_of_shards():
    """HSDP: the all-reduce among replicas is PyTorch's."""
    handle, _ = assert_same_training(1e-5, mesh=(2, 2))
    assert all(stats.n_ranks == 2 for stats in handle.stats), handle.stats
    assert_on_engines(handle)
    Group.of(mesh_of(2, 2).get_group("shards")).close()


def resharded_to_some():
    """Gathers of a smaller group in backward stay with PyTorch."""
    handle, _ = assert_same_training(1e-5, reshard_after_forward=2)
    for stats in handle.stats[1:]:
        assert "resharded to a smaller group" in stats.all_gather, stats
        assert stats.n_gathers == N_STEPS, stats
    handle.disable()
    Group.of(mesh_of(4).get_group()).close()


# --- tests --------------------------------------------------------------------------------


class Dtypes(unittest.TestCase):
    def test_fp32(self):
        rig.run(with_policy, 1e-5)

    def test_bf16(self):
        rig.run(functools.partial(with_policy, 2e-2, param_dtype=torch.bfloat16))

    def test_fp32_sums_of_bf16(self):
        rig.run(functools.partial(with_policy, 1e-5, param_dtype=torch.bfloat16,
                                  reduce_dtype=torch.float32))

    def test_fp16(self):
        rig.run(functools.partial(with_policy, 1e-2, param_dtype=torch.float16))

    def test_whole_bf16_model(self):
        rig.run(whole_bf16_model)

    def test_mixed_dtypes(self):
        rig.run(mixed_dtypes)

    def test_some_need_no_cast(self):
        rig.run(some_need_no_cast)

    def test_cast_on_the_way(self):
        rig.run(cast_on_the_way)

    def test_other_dtypes_stay(self):
        rig.run(other_dtypes_stay)


class Training(unittest.TestCase):
    def test_kept_after_forward(self):
        rig.run(kept_after_forward)

    def test_accumulated(self):
        rig.run(accumulated)

    def test_summed(self):
        rig.run(summed)

    def test_scaled(self):
        rig.run(scaled)

    def test_shards_of_columns(self):
        rig.run(shards_of_columns)

    def test_prefetched(self):
        rig.run(prefetched)

    def test_asynchronous(self):
        rig.run(asynchronous)

    def test_others_gather(self):
        rig.run(others_gather)

    def test_without_gradients(self):
        rig.run(without_gradients)

    def test_ranks_out_of_step(self):
        rig.run(ranks_out_of_step)

    def test_new_parameters_between_gathers(self):
        rig.run(new_parameters_between_gathers)


class Environment(unittest.TestCase):
    def check(self, settings, is_cuda=True):
        parameters = [types.SimpleNamespace(is_cuda=is_cuda)]
        with mock.patch.dict(os.environ, settings, clear=True):
            fsdp._check_environment(types.SimpleNamespace(parameters=lambda: parameters))

    def test_one_queue_is_refused(self):
        with self.assertRaisesRegex(ceoverlap.errors.StateError, "MAX_CONNECTIONS=1"):
            self.check({"CUDA_DEVICE_MAX_CONNECTIONS": "1"})
        self.check({"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, is_cuda=False)


class Slots(unittest.TestCase):
    def test_shared(self):
        rig.run(shared_slots)

    def test_runs_of_many_layouts(self):
        rig.run(runs_of_many_layouts)

    def test_plans_are_bounded(self):
        rig.run(plans_are_bounded)

    @rig.needs_gpus
    def test_kernels_are_loaded_while_a_pull_waits(self):
        rig.run(kernels_are_loaded_while_a_pull_waits)

    @rig.needs_gpus
    def test_memory_is_freed_while_a_pull_waits(self):
        rig.run(memory_is_freed_while_a_pull_waits)

    @rig.needs_gpus
    def test_runs_far_ahead(self):
        rig.run(runs_far_ahead)

    @rig.needs_gpus
    def test_late_raises_close_nothing_again(self):
        self.addCleanup(rig.renew)      # a lane that came back too late takes no more
        rig.run(late_raises_close_nothing_again)


class Casts(unittest.TestCase):
    def test_what_has_no_stand_in(self):
        def param(param_dtype, kept, offload_to_cpu=False):
            return types.SimpleNamespace(param_dtype=param_dtype, offload_to_cpu=offload_to_cpu,
                                         _sharded_param_data=torch.zeros(4, dtype=kept))

        bf16, fp32, byte = torch.bfloat16, torch.float32, torch.uint8
        for dtype, params in ((bf16, [param(bf16, fp32)] * 2), (fp32, [param(None, fp32)])):
            self.assertEqual({part.dtype for part in uncast(params)}, {dtype})
        for params in ([param(None, byte)], [param(byte, fp32)],
                       [param(bf16, fp32), param(None, bf16)],
                       [param(bf16, fp32), param(None, fp32)], [param(bf16, fp32, True)]):
            self.assertIsNone(uncast(params))


class Order(unittest.TestCase):
    def test_memory_waits_for_who_used_it(self):
        """With PyTorch's part played: a pool's third user waits for its first one alone."""
        gathers, computes = mock.Mock(cuda_stream=1), mock.Mock(cuda_stream=2)
        events = [mock.Mock(), mock.Mock()]
        with mock.patch.multiple(torch.cuda, MemPool=mock.Mock(side_effect=["A", "B"]),
                                 Event=mock.Mock(side_effect=events),
                                 current_stream=mock.DEFAULT, device=mock.MagicMock(),
                                 use_mem_pool=mock.MagicMock()) as patched:
            patched["current_stream"].return_value = gathers
            pools = Pools(torch.device("cuda", 0))
            for expected in (0, 1):
                with pools.allocating() as number:
                    self.assertEqual(number, expected)
            gathers.wait_event.assert_not_called()
            patched["current_stream"].return_value = computes
            pools.release(0)
            events[0].record.assert_called_once_with(computes)
            patched["current_stream"].return_value = gathers
            with pools.allocating() as number:
                self.assertEqual(number, 0)
            gathers.wait_event.assert_called_once_with(events[0])
            gathers.wait_event.reset_mock()
            with pools.allocating() as number:
                self.assertEqual(number, 1)
                with _PAUSE:            # another thread's
                    self.assertFalse(gc.isenabled())
                self.assertFalse(gc.isenabled())
            self.assertTrue(gc.isenabled())
            gathers.wait_event.assert_not_called()
            self.assertEqual([call.args[0] for call in torch.cuda.use_mem_pool.mock_calls
                              if call.args and isinstance(call.args[0], str)],
                             ["A", "B", "A", "B"])


class Handles(unittest.TestCase):
    def test_nothing_is_left(self):
        rig.run(nothing_is_left)

    def test_disabled(self):
        rig.run(disabled)

    def test_refused(self):
        rig.run(refused)

    def test_layouts_differ(self):
        rig.run(layouts_differ)

    def test_slots_fail_at_one_rank(self):
        rig.run(slots_fail_at_one_rank)

    def test_a_rank_that_dies(self):
        world = rig.World(min(rig.SIZE, 3))
        self.addCleanup(world.kill)
        world.run(survive_a_death, dying=(1,))


class FourRanks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if 1 < rig.N_GPUS < 4:
            raise unittest.SkipTest("needs 4 GPUs, or one that all ranks share")
        cls.world = rig.World(4)
        cls.addClassCleanup(lambda: cls.world.is_open and cls.world.close())

    def test_replicas_of_shards(self):
        self.world.run(replicas_of_shards)

    def test_resharded_to_some(self):
        self.world.run(resharded_to_some)


if __name__ == "__main__":
    unittest.main()
