# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Reduce-scatters by operators in several runs: with little scratch the same bits, and not more
scratch than that. Those that scale, and what FSDP2's averages make of that."""

import contextlib
import unittest
from typing import NamedTuple, Tuple

import rig
import torch
import torch.distributed as dist
import torch.nn as nn
from rig import equal, normal
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

import ceoverlap.torch as ct
from ceoverlap import ops
from ceoverlap.torch import Group, fsdp, operators

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SCRATCH_BYTES = 1024


@contextlib.contextmanager
def little_scratch(n_runs=100, n_bytes=SCRATCH_BYTES):
    """Runs take n_bytes of scratch, or more where that would be more than n_runs."""
    kept = operators.SUM_SCRATCH_BYTES, operators.SUM_RUNS_MAX
    operators.SUM_SCRATCH_BYTES, operators.SUM_RUNS_MAX = n_bytes, n_runs
    try:
        yield
    finally:
        operators.SUM_SCRATCH_BYTES, operators.SUM_RUNS_MAX = kept


class Run(NamedTuple):
    """What a run's operator was asked for by."""
    kind: type
    counts: Tuple[int, ...]
    stride: int
    scale: float
    n_bytes: int                        # of scratch


@contextlib.contextmanager
def recorded():
    """A list that gets a Run of each."""
    seen, plain = [], operators.Operators.find

    def find(self, key, call=None):
        kind, shape = key
        _, stride, scale = shape[2:] or (None, 0, 1.0)
        seen.append(Run(kind, shape[0], stride, scale, kind.scratch_bytes(*shape)))
        return plain(self, key, call)

    operators.Operators.find = find
    try:
        yield seen
    finally:
        operators.Operators.find = plain


def misaligned(tensor):
    """The same, on no multiple of 16 bytes."""
    room = tensor.new_empty(tensor.numel() + 1)
    room[1:] = tensor.reshape(-1)
    return room[1:].view(tensor.shape)


def with_gaps(tensor):
    """The same, not contiguous."""
    return torch.stack([tensor, tensor], -1)[..., 0]


def in_one_run(x, rows=None):
    """The result, after a look that it was one run."""
    with recorded() as seen:
        result = ct.reduce_scatter(x, rows=rows)
    assert len(seen) == 1, seen
    return result


def bounded_runs(x, rows):
    """The result in several runs, and these."""
    with little_scratch(), recorded() as seen:
        result = ct.reduce_scatter(x, rows=rows)
    assert len(seen) > 1, seen
    for run in seen:
        assert run.kind is ops.ReduceScatter and run.n_bytes <= SCRATCH_BYTES, seen
        assert len(set(run.counts)) == 1 and run.counts[0] % 8 == 0, seen
    steps = [run.counts[0] for run in seen]
    assert steps[:-1] == steps[:1] * (len(steps) - 1) and 0 < steps[-1] <= steps[0], steps
    return result, seen


def same_bits(dtype):
    """Even and uneven parts, columns that are and are no multiple of 8; a short last run."""
    group = Group.of()
    size, item_bytes = group.size, dtype.itemsize
    most = SCRATCH_BYTES // (size * item_bytes) // 8 * 8
    n_short = 0
    for i, n in enumerate((most + 8, 2 * most, 3 * most - 16, 3 * most + 8, 2 * most + 5)):
        for rows in ([n] * size, [n] + [n // 16 * 8] * (size - 1), [0] * (size - 1) + [n]):
            x = normal(i, group.rank, (sum(rows),), dtype)
            expected = in_one_run(x, rows)
            for way in (lambda x: x, misaligned, with_gaps):
                got, seen = bounded_runs(way(x), rows)
                equal(got, expected, (n, rows, way))
                n_short += seen[-1].counts != seen[0].counts
                is_plain = len(set(rows)) == 1 and n % 8 == 0 and way is not misaligned
                strides = {run.stride for run in seen}
                assert strides == ({n} if is_plain else {0}), (n, rows, way, strides)
    assert n_short > 10, n_short


def same_bits_in_rows():
    """Results of several dimensions, and the gradient's way back."""
    group = Group.of()
    rows = [9] * group.size
    x = normal(1, group.rank, (sum(rows), 40)).requires_grad_()
    expected = in_one_run(x.detach(), rows)
    with little_scratch():
        y = ct.reduce_scatter(x, rows=rows)
        y.backward(expected)
    equal(y.detach(), expected, rows)
    equal(x.grad, ct.all_gather(expected, rows=rows), rows)


def scaled(dtype):
    """In one run and in several: of fp32, and rounded once."""
    group = Group.of()
    for i, (n, scale) in enumerate(((168, 1 / 3), (171, -0.7), (1000, 0.125))):
        sources = [normal(i, r, (group.size, n), dtype) for r in range(group.size)]
        sums = sources[0][group.rank].float()
        for source in sources[1:]:
            sums = sums + source[group.rank].float()
        expected = (sums * scale).to(dtype)
        for n_bytes in (operators.SUM_SCRATCH_BYTES, SCRATCH_BYTES):
            for way in (lambda x: x, misaligned, with_gaps):
                got = torch.empty_like(expected)
                with little_scratch(n_bytes=n_bytes), recorded() as seen:
                    operators.reduce_scatter_into(group, way(sources[group.rank]),
                                                  [n] * group.size, got, scale)
                equal(got, expected, (n, scale, n_bytes, way))
                assert {run.scale for run in seen} == {scale}, seen


def few_runs():
    """Of what is much too large for the bound there are only as many runs as allowed."""
    group = Group.of()
    n = 8 * 2000
    x = normal(2, group.rank, (group.size * n,))
    expected = in_one_run(x)
    for n_runs in (1, 3, 7):
        with little_scratch(n_runs), recorded() as seen:
            equal(ct.reduce_scatter(x), expected, n_runs)
        assert len(seen) == n_runs, seen


def sharded_model(width, **options):
    """An FSDP2 model on copy engines, and its handle."""
    torch.manual_seed(rig.SEED)
    mesh = init_device_mesh(rig.device().type, (dist.get_world_size(),))
    model = nn.Sequential(*[nn.Linear(width, width, **options) for _ in range(3)])
    model.to(rig.device())
    for layer in (*model, model):
        fully_shard(layer, mesh=mesh)
    return model, fsdp.enable(model)


def step(model, handle, width):
    """The gradients of one, and the runs of its sums."""
    model.zero_grad()
    with recorded() as seen:
        model(normal(3, dist.get_rank(), (6, width))).pow(2).sum().backward()
    handle.check()
    for stats in handle.stats:
        assert stats.reduce_scatter.startswith("copy engines"), stats
    return ([parameter.grad.to_local().clone() for parameter in model.parameters()],
            [run for run in seen if run.kind is ops.ReduceScatter])


def gradients(width, **options):
    """Those of one step, and the runs of its sums."""
    model, handle = sharded_model(width, **options)
    result = step(model, handle, width)
    handle.disable()
    return result


def divided(model, divisor):
    """From now on gradients are sums over ranks, divided by that; None: averages."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(divisor)


def factors(divisors, scales, width=40):
    """With one divisor after another the fp32 sums are scaled to the bit as they would be
    afterwards; scales: of the operators then."""
    model, handle = sharded_model(width)
    divided(model, 1.0)
    sums, seen = step(model, handle, width)
    assert seen and {run.scale for run in seen} == {1.0}, seen
    for divisor, scale in zip(divisors, scales):
        divided(model, divisor)
        got, seen = step(model, handle, width)
        assert {run.scale for run in seen} == {scale}, (divisor, scale, seen)
        for ours, total in zip(got, sums):
            equal(ours, total * (1 / (divisor or dist.get_world_size())), (divisor, scale))
    handle.disable()


def fsdp_factors():
    """The first one that operators can multiply by is theirs, others come afterwards."""
    mean = 1 / dist.get_world_size()
    factors((None, 5.5, None, 7.5), (mean, 1.0, mean, 1.0))        # no number of ranks
    factors((float("inf"), 5.5, None, 5.5), (1.0, 1 / 5.5, 1.0, 1 / 5.5))


def fsdp_sums_with_little_scratch():
    """Gradients of parts that are a multiple of 8 elements, and of parts that are not."""
    for width, options in ((32 * dist.get_world_size(), {"bias": False}), (37, {})):
        expected, _ = gradients(width, **options)
        with little_scratch():
            got, seen = gradients(width, **options)
        assert len(seen) > 3 and all(run.n_bytes <= SCRATCH_BYTES for run in seen), seen
        assert any(run.stride for run in seen) == (not options.get("bias", True)), seen
        for i, (ours, theirs) in enumerate(zip(got, expected)):
            equal(ours, theirs, (width, i))


class Lengths(unittest.TestCase):
    def test_no_run_takes_more(self):
        for size in (2, 3, 8):
            for item_bytes in (2, 4):
                with little_scratch():
                    for longest in (0, 1, 8, 20, 56, 171, 1000, 1999):
                        self.check(longest, size, item_bytes)

    def check(self, longest, size, item_bytes):
        length = operators.sum_length(longest, size, item_bytes)
        self.assertEqual(length % 8, 0)
        self.assertLessEqual(length * size * item_bytes, SCRATCH_BYTES)
        if longest * size * item_bytes <= SCRATCH_BYTES - 8 * size * item_bytes:
            self.assertGreaterEqual(length, longest)

    def test_large_ones_have_few_runs(self):
        with little_scratch(4):
            self.assertEqual(operators.sum_length(10 ** 6, 8, 4), 250000)
        length = operators.sum_length(1 << 30, 8, 4)
        self.assertEqual(-(-(1 << 30) // length), operators.SUM_RUNS_MAX)

    def test_as_one_where_there_is_scratch(self):
        most = operators.SUM_SCRATCH_BYTES // 32
        self.assertEqual(operators.sum_length(most, 8, 4), most)
        self.assertEqual(operators.sum_length(most + 8, 8, 4), most // 2 + 8)


class Sums(unittest.TestCase):
    def test_same_bits(self):
        for dtype in DTYPES:
            with self.subTest(dtype=dtype):
                rig.run(rig.by_operators, same_bits, dtype)

    def test_same_bits_in_rows(self):
        rig.run(rig.by_operators, same_bits_in_rows)

    def test_scaled(self):
        for dtype in DTYPES:
            with self.subTest(dtype=dtype):
                rig.run(rig.by_operators, scaled, dtype)

    def test_few_runs(self):
        rig.run(rig.by_operators, few_runs)

    def test_fsdp_sums_with_little_scratch(self):
        rig.run(rig.by_operators, fsdp_sums_with_little_scratch)

    def test_fsdp_factors(self):
        rig.run(rig.by_operators, fsdp_factors)
