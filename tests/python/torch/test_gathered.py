# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""All-gather and products of experts whose weights are divided among ranks, against plain PyTorch
of one process, forward and backward."""

import contextlib
import random
import unittest
from unittest import mock

import rig
import torch
from rig import equal, integers, normal, raises
from torch.nn import functional as F

import ceoverlap.torch as ct
from ceoverlap import errors
from ceoverlap.torch import Group, _compat, gathered

TOLERANCES = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def close(got, expected, dtype, what):
    """Within a share of the largest number."""
    bound = TOLERANCES[dtype] * max(expected.abs().max().item(), 1)
    if got.shape != expected.shape or got.dtype != dtype:
        raise AssertionError(f"{what}: {tuple(got.shape)} {got.dtype}, expected "
                             f"{tuple(expected.shape)} {dtype}")
    error = (got.float() - expected.float()).abs().max().item()
    if not error <= bound:
        raise AssertionError(f"{what}: differs by {error}, the bound is {bound}")


def shapes(tag, n_shapes):
    """Random n, hidden, width, n_experts and top_k, the same at all ranks."""
    rng = random.Random(rig.SEED * 1009 + tag)
    for _ in range(n_shapes):
        n_experts = rng.randint(1, 9)
        yield (rng.randint(1, 40), 8 * rng.randint(1, 6), 8 * rng.randint(1, 6), n_experts,
               rng.randint(1, n_experts))


def ids_of(tag, rank, n, n_experts, top_k):
    """Different experts for each token. Where others suffice, the first one gets nothing."""
    generator = torch.Generator().manual_seed((rig.SEED * 1009 + tag) * 64 + rank)
    scores = torch.rand(n, n_experts, generator=generator)
    scores[:, 0] = -1
    return scores.topk(top_k, -1).indices.to(rig.device())


def products(x, ids, weight):
    """Of each token's copy with its expert's weight, n x top_k x width."""
    return torch.einsum("nh,nkhw->nkw", x, weight[ids])


class Case:
    """What all ranks know, in fp32 with the precision of a dtype, and this rank's part of it. Each
    rank has other weights: a part of each expert's columns."""

    def __init__(self, tag, dtype, shape):
        self.group = Group.of()
        n, hidden, width, self.n_experts, top_k = self.shape = shape
        ranks = range(self.group.size)
        self.dtype = dtype

        def leaf(number, rank, size, scale=1.0):
            one = normal(tag * 8 + number, rank, size) * scale
            return one.to(dtype).float().requires_grad_()

        self.xs = [leaf(1, rank, (n, hidden)) for rank in ranks]
        self.ids = [ids_of(tag, rank, n, self.n_experts, top_k) for rank in ranks]
        self.weights = [leaf(2, rank, (self.n_experts, hidden, width), hidden ** -0.5)
                        for rank in ranks]
        self.grads = [normal(tag * 8 + 3, rank, (n * self.group.size, top_k, width)).to(dtype)
                      for rank in ranks]
        own = self.group.rank
        self.x = self.xs[own].detach().to(dtype).requires_grad_()
        self.weight = self.weights[own].detach().to(dtype).requires_grad_()

    def run(self, ids=None):
        return ct.ag_moe(self.x, self.ids[self.group.rank] if ids is None else ids,
                         lambda rows, ends: _compat.grouped_mm(rows, self.weight, offs=ends),
                         self.n_experts)

    def check(self):
        """The result and the gradients of x and of the weights."""
        own, what = self.group.rank, (self.dtype, self.shape)
        y = self.run()
        y.backward(self.grads[own])
        x, ids = torch.cat(self.xs), torch.cat(self.ids)
        expected = [products(x, ids, weight) for weight in self.weights]
        torch.autograd.backward(expected, [grad.float() for grad in self.grads])
        close(y.detach(), expected[own].detach(), self.dtype, (what, "result"))
        close(self.x.grad, self.xs[own].grad, self.dtype, (what, "gradient of x"))
        close(self.weight.grad, self.weights[own].grad, self.dtype, (what, "of the weights"))


# --- what ranks run ----------------------------------------------------------------------


def apart():
    """Makes experts be called for the tokens of each rank apart, however few these are."""
    return mock.patch.multiple(gathered, PART_BYTES=0, PART_COPIES=0)


def aside():
    """Makes few bytes, too, be moved by a stream beside the caller's."""
    return mock.patch.multiple(gathered, PART_BYTES=0, PART_COPIES=1 << 40)


WAYS = (contextlib.nullcontext, aside, apart)


def multiplies(dtype):
    for i, shape in enumerate(shapes(1, 4)):
        for way in WAYS:
            with way():
                Case(i + 1, dtype, shape).check()


def sends_all_to_one_expert():
    """Experts without any tokens, at the begin, the end and between; and one without gradients."""
    case = Case(1, torch.float32, (6, 16, 8, 5, 1))
    for expert in range(5):
        case.ids = [torch.full_like(ids, expert) for ids in case.ids]
        for one in (case.x, *case.xs, case.weight, *case.weights):
            one.grad = None
        case.check()
    for way in WAYS:
        with way():
            with torch.no_grad():
                y = case.run()
            equal(y, case.run().detach(), "without gradients")


def starts_with_what_is_there():
    """Experts are called once for each rank: for the own tokens first, and then in the order in
    which others come, sorted by expert."""
    case = Case(2, torch.float32, (5, 8, 8, 4, 2))
    group, got = case.group, []

    def keep(rows, ends):
        got.append((rows.clone(), ends.clone()))
        return rows

    with apart():
        ct.ag_moe(case.x.detach(), case.ids[group.rank], keep, case.n_experts)
    if len(got) != group.size:
        raise AssertionError(f"experts were called {len(got)} times")
    for step, (rows, ends) in enumerate(got):
        source = (group.rank - step) % group.size
        ids, x = case.ids[source], case.xs[source].detach()
        wanted = [x[(ids == expert).any(-1)] for expert in range(case.n_experts)]
        equal(rows, torch.cat(wanted), (step, "rows"))
        wanted_ends = torch.tensor([len(part) for part in wanted], device=ends.device).cumsum(0)
        equal(ends, wanted_ends.to(torch.int32), (step, "ends"))


def calls_once_for_few_bytes():
    """Then experts get the tokens of all ranks, sorted by expert."""
    case = Case(3, torch.float32, (5, 8, 8, 4, 2))
    got = []

    def keep(rows, ends):
        got.append((rows.clone(), ends.clone()))
        return rows

    ct.ag_moe(case.x.detach(), case.ids[case.group.rank], keep, case.n_experts)
    ids, x = torch.cat(case.ids), torch.cat(case.xs).detach()
    wanted = [x[(ids == expert).any(-1)] for expert in range(case.n_experts)]
    (rows, ends), = got
    equal(rows, torch.cat(wanted), "rows")
    wanted_ends = torch.tensor([len(part) for part in wanted], device=ends.device).cumsum(0)
    equal(ends, wanted_ends.to(torch.int32), "ends")


def is_a_layer():
    """Each rank has a part of ffn: products, the sum over a token's experts and a reduce-scatter
    make what the whole experts make, with gradients."""
    group, dtype = Group.of(), torch.float32
    n, hidden, ffn, n_experts, top_k = 7, 16, 8 * group.size, 4, 2
    whole = [normal(1, 0, (n_experts, hidden, ffn)), normal(2, 0, (n_experts, ffn, hidden)) / 4]
    x, scores = (normal(tag, group.rank, size).requires_grad_()
                 for tag, size in ((3, (n, hidden)), (4, (n, top_k))))
    ids = ids_of(5, group.rank, n, n_experts, top_k)
    up, down = whole[0].chunk(group.size, 2)[group.rank], whole[1].chunk(group.size, 1)[group.rank]

    def experts(rows, ends):
        made = F.silu(_compat.grouped_mm(rows, up.contiguous(), offs=ends))
        return _compat.grouped_mm(made, down.contiguous(), offs=ends)

    weights = ct.all_gather(scores)[..., None]
    y = ct.reduce_scatter((ct.ag_moe(x, ids, experts, n_experts) * weights).sum(1))
    grad = normal(6, group.rank, y.shape)
    y.backward(grad)
    plain, factors = (one.detach().clone().requires_grad_() for one in (x, scores))
    made = F.silu(products(plain, ids, whole[0]))
    expected = (torch.einsum("nkf,nkfh->nkh", made, whole[1][ids]) * factors[..., None]).sum(1)
    expected.backward(grad)
    close(y.detach(), expected.detach(), dtype, "result")
    close(x.grad, plain.grad, dtype, "gradient of x")
    close(scores.grad, factors.grad, dtype, "gradient of the weights")


def is_called_apart_for_many():
    """Experts are called once, or once for each rank: if ranks have many bytes, and experts many
    copies of each rank."""
    group = Group.of()
    n_bytes, n_copies = 16 * 8 * 4, 16 * 2 // 4         # of a rank; of an average expert
    for limits, n_calls in (((n_bytes, n_copies), group.size), ((n_bytes + 1, n_copies), 1),
                            ((n_bytes, n_copies + 1), 1)):
        calls = []

        def experts(rows, _ends):
            calls.append(len(rows))
            return rows

        with mock.patch.multiple(gathered, PART_BYTES=limits[0], PART_COPIES=limits[1]):
            ct.ag_moe(torch.ones(16, 8, device=rig.device()), ids_of(7, group.rank, 16, 4, 2),
                      experts, 4)
        assert calls == [group.size * 32 // n_calls] * n_calls, (limits, calls)


def repeats(way):
    """Steps that follow each other at once yield the same bits: none reads what another one has
    not yet written, or writes what another one still reads."""
    case = Case(5, torch.bfloat16, (96, 64, 40, 6, 3))
    leaves = case.x, case.weight

    def step():
        with way():
            y = case.run()
        return y.detach(), *torch.autograd.grad(y, leaves, case.grads[case.group.rank])

    results = [step() for _ in range(6)]
    for result in results[1:]:
        for got, wanted in zip(result, results[0]):
            equal(got, wanted, "a later step")


def is_captured(way):
    """A graph of the call and its gradients, replayed with other tokens and experts."""
    case = Case(6, torch.bfloat16, (16, 32, 24, 5, 2))
    ids = case.ids[case.group.rank].clone()
    leaves, grad = (case.x, case.weight), case.grads[case.group.rank]

    def call():
        with way():
            y = case.run(ids)
        return y.detach(), *torch.autograd.grad(y, leaves, grad)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            results = call()
        for _ in range(3):
            case.x.data.mul_(-0.5)
            ids.copy_((ids + 1) % case.n_experts)
            graph.replay()
            for got, wanted in zip(results, call()):
                torch.testing.assert_close(got, wanted, rtol=1e-2, atol=1e-2)
        stream.synchronize()


def is_refused():
    """Before anything is sent: what follows works."""
    case = Case(3, torch.float32, (4, 8, 8, 3, 2))
    x, ids = case.x.detach(), case.ids[case.group.rank]

    def call(x=x, ids=ids):
        return ct.ag_moe(x, ids, lambda rows, ends: rows, 3)

    for text, one in (("must be n x hidden", lambda: call(x[0])),
                      ("must be n x hidden", lambda: call(ids=ids[1:])),
                      ("nothing of it 0", lambda: call(x[:0], ids[:0])),
                      ("must be one of", lambda: call(x.double())),
                      ("and integers", lambda: call(ids=ids.float())),
                      ("and integers", lambda: call(ids=ids > 0)),
                      ("multiple of 16 bytes", lambda: call(x[:3, :7], ids[:3]))):
        raises(errors.InvalidError, text, one)
    for case.group.operators.compares in (True, False):
        for wrong in (ids + 1, ids - 3, ids.to(torch.uint8) + 254, ids + (1 << 32)):
            mine = wrong if case.group.rank == 1 else ids
            if case.group.operators.compares:
                raises(errors.InvalidError, "rank 1 names", call, ids=mine)
            elif not case.group.is_gpu:
                raises(errors.InvalidError, "rank 1 names an expert", call, ids=mine)
    case.check()


def takes_numbers_of_any_dtype():
    """Ranks may differ in it, also where rows of numbers have as many bytes."""
    group = Group.of()
    x = integers(5, group.rank, (4, 8))
    dtype = gathered.ID_DTYPES[group.rank % len(gathered.ID_DTYPES)]
    for top_k in (1, 2, 16):
        ids = torch.arange(4 * top_k, device=x.device).view(4, top_k) % 3
        got = ct.ag_moe(x, ids.to(dtype), lambda rows, ends: rows, 3)
        xs = torch.cat([integers(5, rank, (4, 8)) for rank in range(group.size)])
        equal(got, xs[:, None].expand(-1, top_k, -1), top_k)


def takes_wrong_numbers_for_the_nearest():
    """On GPUs, where the host does not look at them, they must not reach over other memory."""
    case = Case(4, torch.float32, (6, 8, 8, 3, 2))
    for dtype in gathered.ID_DTYPES:
        ids = case.ids[case.group.rank] * 5 - 3
        ids[0, 0], ids[1, 1] = torch.iinfo(dtype).max, torch.iinfo(dtype).min
        ids.clamp_(min=torch.iinfo(dtype).min)
        equal(gathered._narrow(ids.to(dtype), 3, True).long(), ids.clamp(0, 2).long(), dtype)
        if case.group.is_gpu:
            got = case.run(ids.to(dtype))
            equal(got.detach(), case.run(ids.clamp(0, 2)).detach(), dtype)


class GatheredExperts(unittest.TestCase):
    def test_called_apart_for_many(self):
        rig.run(is_called_apart_for_many)

    def test_products_and_gradients(self):
        for dtype in TOLERANCES:
            with self.subTest(dtype=dtype):
                rig.run(multiplies, dtype)

    def test_idle_experts(self):
        rig.run(sends_all_to_one_expert)

    def test_order(self):
        rig.run(starts_with_what_is_there)
        rig.run(calls_once_for_few_bytes)

    def test_layer(self):
        rig.run(is_a_layer)

    def test_steps_at_once(self):
        for way in WAYS:
            rig.run(repeats, way)

    @rig.needs_gpus
    @rig.needs_one_node
    def test_capture(self):
        for way in (contextlib.nullcontext, apart):
            rig.run(is_captured, way)

    def test_refusals(self):
        rig.run(is_refused)

    def test_dtypes_of_numbers(self):
        rig.run(takes_numbers_of_any_dtype)

    def test_wrong_numbers(self):
        rig.run(takes_wrong_numbers_for_the_nearest)


if __name__ == "__main__":
    unittest.main()
