# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Random programs, as users write them: calls of all kinds on one group or on several, by one
thread or by a thread for each, with gradients, with errors in between, and with groups that are
closed somewhere. Each result is compared with that of plain PyTorch, which every rank computes from the
data of all ranks. Numbers are small integers, so that sums and products are exact.

CEOVERLAP_TEST_SEED and CEOVERLAP_TEST_PROGRAM, which a failure names, repeat one program."""

import os
import random
import threading
import traceback
import unittest

import rig
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import ceoverlap.torch as ct
from ceoverlap import errors
from ceoverlap.torch import Group

N_PROGRAMS = 300 // int(os.environ.get("CEOVERLAP_TEST_SHARE") or 1)
SIZES = (2, 3, 4)                       # of the worlds that share the programs
BATCH = 20                              # programs for which the test waits at once
BATCH_S = rig.patience(120.0)
DEADLINE_S = rig.patience(40.0)
ONE = os.environ.get("CEOVERLAP_TEST_PROGRAM")
FLOATS = (torch.bfloat16, torch.float16, torch.float32)
ANY = (*FLOATS, torch.float64, torch.int32, torch.int64, torch.uint8)
EXACT = 0.0


class Left(Exception):
    """An error of the program's own."""


class Stream:
    """The calls of one thread on one group, which all ranks draw alike."""

    def __init__(self, draw: random.Random, group: Group, tag: int):
        self.draw, self.group, self._tag = draw, group, tag
        self.size, self.rank = group.size, group.rank
        self._checks, self.names = [], []

    def data(self, shapes, dtype, wants_grad=False):
        """Returns a tensor for each rank, where shapes has one for each. Gradients are wanted of
        this rank's."""
        self._tag += 1
        made = [rig.integers(self._tag, rank, shape, dtype) for rank, shape in enumerate(shapes)]
        for one in made:
            one.requires_grad_(wants_grad and dtype.is_floating_point)
        return made

    def same(self, shape, dtype, wants_grad=False):
        return self.data([shape] * self.size, dtype, wants_grad)

    def rows(self):
        """Returns numbers of rows of the ranks, equal ones or not."""
        n = self.draw.randrange(1, 5)
        if self.draw.random() < 0.5:
            return [n] * self.size
        rows = [self.draw.randrange(0, 6) for _ in range(self.size)]
        return rows if any(rows) else [n] * self.size

    def expect(self, got, wanted, what, tolerance=EXACT):
        self._checks.append((got, wanted, what, tolerance))

    def backward(self, y, wanted, inputs):
        """Has gradients of what all ranks' `wanted` depend on compared: of this rank's y the ones
        of inputs, pairs of what the call and what plain PyTorch has used."""
        grads = self.data([one.shape for one in wanted], wanted[0].dtype)
        y.backward(grads[self.rank].to(y.dtype))
        torch.autograd.backward(wanted, grads)
        for ours, plain in inputs:
            self.expect(ours.grad, plain.grad.to(ours.dtype), "gradient")

    def check(self):
        for got, wanted, what, tolerance in self._checks:
            if tolerance == EXACT:
                rig.equal(got, wanted, what)
            else:
                torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance,
                                           msg=lambda text, what=what: f"{what}: {text}")
        self._checks.clear()


def leaf(x):
    """Returns a leaf with the same numbers, of which gradients are wanted as of x."""
    return x.detach().clone().requires_grad_(x.requires_grad)


# --- calls: each draws its arguments, and says what has to come of them -------------------------


def gathers(s):
    rows, wants = s.rows(), s.draw.random() < 0.4
    dtype = s.draw.choice(FLOATS if wants else ANY)
    inner = s.draw.choice(((8,), (3, 16), (1,), ()))
    xs = s.data([(n, *inner) for n in rows], dtype, wants)
    x = leaf(xs[s.rank])
    y = ct.all_gather(x, s.group, rows)
    s.expect(y.detach(), torch.cat(xs).detach(), "all_gather")
    if wants and dtype == torch.float32:
        s.backward(y, [torch.cat(xs) for _ in xs], [(x, xs[s.rank])])


def scatters(s):
    rows, dtype = s.rows(), s.draw.choice(FLOATS)
    xs = s.same((sum(rows), s.draw.choice((1, 5, 8, 24))), dtype, s.draw.random() < 0.4)
    x = leaf(xs[s.rank])
    y = ct.reduce_scatter(x, s.group, rows)
    parts = torch.stack(xs).sum(0).split(rows)
    s.expect(y.detach(), parts[s.rank].detach(), "reduce_scatter")
    if x.requires_grad:
        s.backward(y, parts, [(x, xs[s.rank])])


def reduces(s):
    dtype, wants = s.draw.choice(FLOATS), s.draw.random() < 0.4
    xs = s.same(s.draw.choice(((7,), (2, 3, 4), (64,), ())), dtype, wants)
    x = leaf(xs[s.rank])
    y = ct.all_reduce(x, s.group)
    total = torch.stack(xs).sum(0)
    s.expect(y.detach(), total.detach(), "all_reduce")
    if wants:
        s.backward(y, [total] * s.size, [(x, xs[s.rank])])


def exchanges(s):
    splits = [[s.draw.randrange(0, 4) for _ in range(s.size)] for _ in range(s.size)]
    if s.draw.random() < 0.4:
        splits = None
    sent = splits or [[2] * s.size] * s.size
    dtype, wants = s.draw.choice(ANY), s.draw.random() < 0.4
    xs = s.data([(sum(row), 16) for row in sent], dtype, wants)
    x = leaf(xs[s.rank])
    y = ct.all_to_all(x, s.group, splits)
    blocks = [one.split(row) for one, row in zip(xs, sent)]
    wanted = [torch.cat([blocks[r][t] for r in range(s.size)]) for t in range(s.size)]
    s.expect(y.detach(), wanted[s.rank].detach(), "all_to_all")
    if x.requires_grad:
        s.backward(y, wanted, [(x, xs[s.rank])])


def gathers_and_multiplies(s):
    rows, dtype = s.rows(), s.draw.choice(FLOATS)
    k, wants = s.draw.choice((8, 16, 12)), s.draw.random() < 0.4
    xs = s.data([(n, k) for n in rows], dtype, wants)
    weights = [s.same((s.draw.choice((8, 24)), k), dtype) for _ in range(s.draw.randrange(1, 4))]
    x, several = leaf(xs[s.rank]), len(weights) > 1
    own = [one[0] for one in weights]       # the same at all ranks
    ys = ct.all_gather_matmul(x, own if several else own[0], s.group, rows)
    ys = ys if several else [ys]
    for y, weight in zip(ys, own):
        s.expect(y.detach(), (torch.cat(xs).detach().float() @ weight.float().t()).to(dtype),
                 "all_gather_matmul")
    if wants and dtype == torch.float32:
        s.backward(ys[0], [torch.cat(xs) @ own[0].t() for _ in xs], [(x, xs[s.rank])])


def multiplies_and_scatters(s):
    rows, dtype = s.rows(), s.draw.choice(FLOATS)
    k, wants = s.draw.choice((8, 16, 12)), s.draw.random() < 0.4
    xs = s.same((sum(rows), k), dtype, wants)
    weights = s.same((s.draw.choice((8, 16)), k), dtype, wants)
    x, weight = leaf(xs[s.rank]), leaf(weights[s.rank])
    y = ct.matmul_reduce_scatter(x, weight, s.group, rows)
    total = sum(one.float() @ w.float().t() for one, w in zip(xs, weights))
    parts = total.split(rows)
    s.expect(y.detach(), parts[s.rank].detach().to(dtype), "matmul_reduce_scatter")
    if wants and dtype == torch.float32:
        s.backward(y, parts, [(x, xs[s.rank]), (weight, weights[s.rank])])


def numbered(first):
    """Returns experts that multiply rows by the expert's number and one."""
    def experts(rows, ends):
        place = torch.arange(len(rows), device=rows.device)
        number = torch.searchsorted(ends, place, right=True) + first + 1
        return rows * number[:, None].to(rows.dtype)
    return experts


def mixes(s):
    n_local, n = s.draw.randrange(1, 4), s.draw.randrange(0, 7)
    n_experts = n_local * s.size
    top_k = s.draw.randrange(1, min(n_experts, 5) + 1)
    xs = s.same((n, 8), torch.float32, True)
    s._tag += 1
    generator = torch.Generator().manual_seed(rig.SEED + s._tag * 64 + s.rank)
    ids = torch.randint(-1, n_experts, (n, top_k), generator=generator)     # may name one twice
    weights = s.same((n, top_k), torch.float32, True)
    x, weight = leaf(xs[s.rank]), leaf(weights[s.rank])
    y = ct.moe(x, ids, weight, numbered(s.rank * n_local), n_experts, s.group, n_tokens=7)
    plain_x, plain_weight = xs[s.rank], weights[s.rank]
    factors = (plain_weight * torch.where(ids < 0, 0, ids + 1)).sum(-1, keepdim=True)
    s.expect(y.detach(), (plain_x * factors).detach(), "moe")
    s.backward(y, [plain_x * factors if rank == s.rank else one * 1
                   for rank, one in enumerate(xs)], [(x, plain_x), (weight, plain_weight)])


def gathers_and_mixes(s):
    n_experts, n, top_k = s.draw.randrange(1, 6), s.draw.randrange(1, 5), s.draw.randrange(1, 4)
    xs = s.same((n, 8), torch.float32)
    s._tag += 1
    ids = [torch.randint(0, n_experts, (n, top_k), generator=torch.Generator().manual_seed(
        rig.SEED + s._tag * 64 + rank)) for rank in range(s.size)]
    y = ct.ag_moe(xs[s.rank], ids[s.rank].to((torch.int64, torch.int32, torch.uint8)[s.rank % 3]),
                  numbered(0), n_experts, s.group)
    wanted = torch.cat(xs)[:, None] * (torch.cat(ids) + 1)[..., None]
    s.expect(y, wanted, "ag_moe")


def attends(s):
    is_causal, by_heads = s.draw.random() < 0.5, s.draw.random() < 0.5
    n, heads = 2 * s.draw.randrange(1, 4), s.size * s.draw.randrange(1, 3)
    q, k, v = (s.same((1, heads, n, 8), torch.float32) for _ in range(3))
    call = ct.all_to_all_attention if by_heads else ct.ring_attention
    y = call(q[s.rank], k[s.rank], v[s.rank], s.group, is_causal=is_causal)
    whole = F.scaled_dot_product_attention(*(torch.cat(one, 2) for one in (q, k, v)),
                                           is_causal=is_causal)
    s.expect(y, whole[:, :, s.rank * n:(s.rank + 1) * n], call.__name__, 1e-4)


def trains_a_layer(s):
    """Two layers by their share, a step, and the same of the whole model."""
    n, hidden, ffn = s.draw.randrange(1, 4), 8 * s.size, 16 * s.size
    torch_state = s.draw.randrange(1 << 30)

    def model():
        made = nn.Sequential(nn.Linear(hidden, ffn), nn.ReLU(), nn.Linear(ffn, hidden))
        generator = torch.Generator().manual_seed(torch_state)
        with torch.no_grad():
            for one in made.parameters():
                one.copy_(torch.randint(-1, 2, one.shape, generator=generator))
        return made

    xs = s.same((n, hidden), torch.float32, True)
    x, plain = leaf(xs[s.rank]), model()
    y = ct.parallelize(model(), s.group, {"0": "column", "2": "row"})(x)
    wanted = plain(torch.cat(xs)).split(n)
    s.expect(y.detach(), wanted[s.rank].detach(), "layers", 1e-4)
    s.backward(y, wanted, [(x, xs[s.rank])])


CALLS = (gathers, scatters, reduces, exchanges, gathers_and_multiplies, multiplies_and_scatters,
         mixes, gathers_and_mixes, attends, trains_a_layer)


# --- errors in between -------------------------------------------------------------------------


def is_refused_everywhere(s):
    x = s.same((4 * s.size, 8), torch.float32)[s.rank]
    bad = s.draw.choice((
        lambda: ct.all_reduce(x.int(), s.group),
        lambda: ct.all_gather(x, s.group, [1] * (s.size + 1)),
        lambda: ct.all_to_all(x, s.group, [[-1] * s.size] * s.size),
        lambda: ct.matmul_reduce_scatter(x, x[:, :4], s.group),
        lambda: ct.moe(x, torch.zeros(len(x), 0).long(), None, numbered(0), s.size, s.group)))
    rig.raises(errors.InvalidError, "", bad)


def differs_at_one_rank(s):
    """Found where calls are compared."""
    x = s.same((2 * s.size, 8), torch.float32)[s.rank]
    odd = s.draw.randrange(s.size)
    rig.raises(errors.InvalidError, f"rank {odd} has ", ct.all_gather,
               x.int() if s.rank == odd else x, s.group)


def names_no_expert(s):
    """One rank does; all of them refuse it."""
    x, odd = s.same((3, 8), torch.float32)[s.rank], s.draw.randrange(s.size)
    ids = torch.full((3, 2), s.size if s.rank == odd else 0)
    rig.raises(errors.InvalidError, f"rank {odd} names", ct.moe, x, ids, None, numbered(s.rank),
               s.size, s.group, n_tokens=3)


def leaves_in_the_middle(s):
    """The program's own experts fail, at all ranks, between two moves."""
    def experts(_rows, _ends):
        raise Left

    x = s.same((3, 8), torch.float32)[s.rank]
    rig.raises(Left, "", ct.moe, x, torch.zeros(3, 1).long(), None, experts, s.size, s.group,
               n_tokens=3)


def run_calls(s, n_calls):
    for _ in range(n_calls):
        call = s.draw.choice(CALLS)
        if s.draw.random() < 0.15:
            call = s.draw.choice((is_refused_everywhere, names_no_expert, leaves_in_the_middle,
                                  *[differs_at_one_rank] * s.group.operators.compares))
        s.names.append(call.__name__)
        call(s)
        if s.draw.random() < 0.3:
            s.check()
    s.check()


# --- programs ----------------------------------------------------------------------------------


def run_beside(streams, n_calls):
    """Each stream by a thread of its own. Raises what one of them has raised."""
    failures = []

    def body(s):
        try:
            run_calls(s, n_calls)
        except BaseException:
            failures.append(f"{s.names}: {traceback.format_exc()}")

    threads = [threading.Thread(target=body, args=(s,)) for s in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise AssertionError("\n".join(failures))


def run_program(number, some):
    """some: a process group of some ranks, for programs that are not of all."""
    draw = random.Random(rig.SEED * 1000003 + number)
    process_group = some if draw.random() < 0.25 else dist.group.WORLD
    if dist.get_rank(process_group) < 0:
        return
    n_groups = draw.choice((1, 1, 1, 2))
    groups = [Group(process_group, deadline_s=DEADLINE_S) for _ in range(n_groups)]
    if draw.random() < 0.2:
        groups[0] = Group.of(process_group)     # stays open for other programs
    for group in groups:
        group.operators.compares = draw.random() < 0.4
    streams = [Stream(random.Random(draw.random()), group, (number * 8 + i) * 1000)
               for i, group in enumerate(groups)]
    try:
        if n_groups > 1 and draw.random() < 0.7:
            run_beside(streams, draw.randrange(1, 6))
        else:
            for _ in range(draw.randrange(1, 4)):
                run_calls(draw.choice(streams), draw.randrange(1, 4))
    except BaseException as error:
        done = "; ".join(str(s.names) for s in streams)
        raise AssertionError(f"program {number}, after {done}") from error
    for group in groups:
        if draw.random() < 0.8:         # the others are closed when the process ends
            group.close()


_some = {}


def runs_programs(numbers):
    """At all ranks of a world."""
    if "group" not in _some:
        _some["group"] = dist.new_group(range(dist.get_world_size() - 1)
                                        if dist.get_world_size() > 2 else [0, 1])
    for number in numbers:
        run_program(number, _some["group"])


def numbers_of(size):
    """Returns the numbers of the programs that run in a world of this size."""
    numbers = [int(ONE)] if ONE else range(N_PROGRAMS)
    return [number for number in numbers if SIZES[number % len(SIZES)] == size]


@unittest.skipIf(rig.HAS_GPUS, "the programs are for host ranks")
class Programs(unittest.TestCase):
    def run_all(self, size):
        numbers = numbers_of(size)
        if not numbers:
            self.skipTest("CEOVERLAP_TEST_PROGRAM is for ranks of another number")
        world = rig.World(size)
        try:
            for at in range(0, len(numbers), BATCH):
                batch = numbers[at:at + BATCH]
                try:
                    world.run(runs_programs, batch, limit_s=BATCH_S)
                except AssertionError as error:
                    raise AssertionError(
                        f"programs {batch}: CEOVERLAP_TEST_SEED={rig.SEED} "
                        f"CEOVERLAP_TEST_PROGRAM=N repeats one\n{error}") from None
            world.close()
        finally:
            world.kill()


def _test_of(size):
    return lambda self: self.run_all(size)


for _size in SIZES:
    setattr(Programs, f"test_{_size}_ranks", _test_of(_size))


if __name__ == "__main__":
    unittest.main()
