# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The backend "ceov" of torch.distributed: each kind of call against what it must give, random
calls against gloo's, and which way calls go."""

import os
import random
import unittest
from unittest import mock

import rig
import torch
import torch.distributed as dist
from backend_rig import HOWS, awkward, gloo, run_here
from rig import equal, raises

import ceoverlap.torch as ct
from ceoverlap import errors

Op = dist.ReduceOp
MOVED = tuple(dtype for dtype in (
    torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int8, torch.uint8,
    torch.int16, torch.int32, torch.int64, torch.bool, torch.complex64, torch.complex128,
    torch.uint16, torch.float8_e4m3fn, torch.float8_e5m2))
SUMMED = MOVED[:9]
OF_GLOO = tuple(dtype for dtype in SUMMED if dtype != torch.int16)
OPS = (Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX)
SHAPES = ((), (1,), (7,), (4, 0, 2), (2, 3, 4))
N_CALLS = int(os.environ.get("CEOVERLAP_TEST_BACKEND_CALLS", 150))


def numbers(rank, shape, dtype, tag=0):
    """Small whole numbers, other ones for each rank."""
    generator = torch.Generator().manual_seed(rig.SEED * 1000 + tag * 64 + rank)
    return torch.randint(0, 3, shape, generator=generator).to(dtype)


def of_all(shape, dtype, tag=0):
    return [numbers(rank, shape, dtype, tag) for rank in range(dist.get_world_size())]


def summed(parts, op):
    """In float64 or int64, as the channel's accumulators are no smaller."""
    wide = torch.stack([part.double() if part.is_floating_point() else part.long()
                        for part in parts])
    if op == Op.AVG:
        return (wide.sum(0) / len(parts)).to(parts[0].dtype)
    return {Op.SUM: wide.sum, Op.PRODUCT: wide.prod, Op.MIN: wide.amin,
            Op.MAX: wide.amax}[op](0).to(parts[0].dtype)


def bits(x):
    return x.contiguous().as_strided((x.numel(),), (1,)).view(torch.uint8)


def same(got, wanted, what):
    assert got.shape == wanted.shape and got.dtype == wanted.dtype, what
    equal(bits(got), bits(wanted), what)


# --- each kind --------------------------------------------------------------------------------


def moves(shape, dtype, how):
    rank, size = dist.get_rank(), dist.get_world_size()
    what, parts, root = (shape, dtype, how), of_all(shape, dtype), size - 1
    x = awkward(parts[rank], how)
    outs = [awkward(torch.zeros_like(x), how) for _ in range(size)]
    dist.all_gather(outs, x)
    for out, part in zip(outs, parts):
        same(out, part, what)
    whole = awkward(torch.zeros((size, *shape), dtype=dtype), how)
    dist.all_gather_into_tensor(whole.view(-1) if how == "plain" else whole, x)
    same(whole, torch.stack(parts), what)
    got = awkward(parts[rank], how)
    dist.broadcast(got, root)
    same(got, parts[root], what)
    outs = [awkward(torch.zeros_like(x), how) for _ in range(size)] if rank == root else None
    dist.gather(x, outs, root)
    for out, part in zip(outs or [], parts):
        same(out, part, what)
    got = awkward(torch.zeros_like(x), how)
    dist.scatter(got, [awkward(part, how) for part in parts] if rank == root else None, root)
    same(got, parts[rank], what)
    messages(x, parts, how)
    exchanges(shape, dtype, how)


def messages(x, parts, how):
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    for tag in (0, 5) if how in ("plain", "misaligned") else (0,):      # gloo takes no gaps
        got = awkward(torch.zeros_like(x), how)
        works = [dist.isend(x, right, tag=tag), dist.irecv(got, left, tag=tag)]
        for work in works:
            work.wait()
        same(got, parts[left], tag)


def exchanges(shape, dtype, how):
    """Rank r sends r + t rows of its own number to rank t."""
    rank, size = dist.get_rank(), dist.get_world_size()
    rows = [[(r + t) % 3 for t in range(size)] for r in range(size)]
    parts = [[numbers(r * size + t, (rows[r][t], *shape), dtype) for t in range(size)]
             for r in range(size)]
    wanted = [parts[r][rank] for r in range(size)]
    outs = [awkward(torch.zeros_like(one), how) for one in wanted]
    dist.all_to_all(outs, [awkward(one, how) for one in parts[rank]])
    for out, one in zip(outs, wanted):
        same(out, one, (shape, dtype, how))
    received = [rows[r][rank] for r in range(size)]
    out = awkward(torch.zeros((sum(received), *shape), dtype=dtype), how)
    source = torch.cat([bits(one) for one in parts[rank]]).view(dtype)
    source = awkward(source.view(sum(rows[rank]), *shape), how)
    dist.all_to_all_single(out, source, received, rows[rank])
    same(bits(out), torch.cat([bits(one) for one in wanted]), (shape, dtype, how))


def sums(shape, dtype, how):
    rank, size = dist.get_rank(), dist.get_world_size()
    parts, root = of_all(shape, dtype), size - 1
    ops = OPS + (Op.AVG,) * dtype.is_floating_point
    for op in ops:
        what = (shape, dtype, how, op)
        got = awkward(parts[rank], how)
        dist.all_reduce(got, op)
        same(got, summed(parts, op), what)
        got = awkward(parts[rank], how)
        dist.reduce(got, root, op)
        if rank == root:
            same(got, summed(parts, op), what)
    wholes = of_all((size, *shape), dtype, 1)
    for op in ops:
        out = awkward(torch.zeros(shape, dtype=dtype), how)
        dist.reduce_scatter_tensor(out, awkward(wholes[rank], how), op)
        wanted = summed(wholes, op)[rank]
        same(out, wanted, (shape, dtype, how, op))
        out = awkward(torch.zeros(shape, dtype=dtype), how)
        dist.reduce_scatter(out, [awkward(one, how) for one in wholes[rank]], op)
        same(out, wanted, (shape, dtype, how, op))


def each_kind():
    before = ct.backend.stats()
    cases = [(shape, dtype) for dtype in MOVED for shape in SHAPES]
    for i, (shape, dtype) in enumerate(cases):
        for how in HOWS if dtype == torch.bfloat16 else (HOWS[i % len(HOWS)],):
            moves(shape, dtype, how)
            if dtype in SUMMED:
                sums(shape, dtype, how)
    dist.barrier()
    plain = {kind: n - before["plain"].get(kind, 0)
             for kind, n in ct.backend.stats()["plain"].items()}
    assert {kind for kind, n in plain.items() if n} == {"send", "recv"}, plain     # with tags


def uneven():
    """Lists whose tensors have shapes of their own, the same at all ranks."""
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = [numbers(r, (r + 1, 2), torch.float32) for r in range(size)]
    outs = [torch.zeros_like(part) for part in parts]
    dist.all_gather(outs, parts[rank])
    for out, part in zip(outs, parts):
        equal(out, part, "all_gather")
    whole = [[numbers(r * size + t, (t + 1,), torch.float32) for t in range(size)]
             for r in range(size)]
    out = torch.zeros(rank + 1)
    dist.reduce_scatter(out, whole[rank])
    equal(out, sum(one[rank] for one in whole), "reduce_scatter")
    outs = [torch.zeros_like(part) for part in parts] if rank == 0 else None
    dist.gather(parts[rank], outs, 0)
    for out, part in zip(outs or [], parts):
        equal(out, part, "gather")


def shares_memory():
    """Sources that lie in targets."""
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = of_all((6,), torch.float32)
    whole = torch.zeros(size, 6)
    for at in range(size):              # its place is rank, but any row is right
        whole[at] = parts[rank]
        dist.all_gather_into_tensor(whole, whole[at])
        equal(whole, torch.stack(parts), at)
    x = torch.stack(of_all((6,), torch.float32))
    wanted = x[rank] * size
    dist.reduce_scatter_tensor(x[rank], x)
    equal(x[rank], wanted, "reduce_scatter")
    x = torch.arange(2.0 * size) + 100 * rank
    wanted = torch.cat([torch.arange(2.0 * rank, 2.0 * rank + 2) + 100 * r for r in range(size)])
    dist.all_to_all_single(x, x)
    equal(x, wanted, "all_to_all")


# --- random calls -----------------------------------------------------------------------------


class Pair:
    """A group of ours, and gloo's of the same ranks."""

    def __init__(self, ranks):
        self.ours, self.gloo = dist.new_group(ranks), gloo(ranks)
        self.ranks = ranks


def plays(tag, n_calls):
    draw = random.Random(rig.SEED * 1009 + tag)
    size = dist.get_world_size()
    pairs = [Pair(list(range(size))), Pair([0, size - 1]), Pair([size - 2, size - 1])]
    waiting = []
    for i in range(n_calls):
        call, pair = draw.choice(CALLS), draw.choice(pairs)
        state = draw.random()
        if dist.get_rank() in pair.ranks:
            waiting.append((f"call {i}, {call.__name__} {pair.ranks}",
                            *call(random.Random(state), pair)))
        if draw.random() < 0.3:
            check_all(waiting)
    check_all(waiting)
    dist.barrier()
    for pair in pairs:
        for group in (pair.ours, pair.gloo):
            if dist.get_rank() in pair.ranks:
                dist.destroy_process_group(group)


def check_all(waiting):
    random.shuffle(waiting)             # handles may be waited for in any order
    for what, work, got, wanted in waiting:
        if work is not None:
            work.wait()
        for one, other in zip(got, wanted):
            same(one, other, what)
    waiting.clear()


def drawn(draw, pair, rows=None):
    """This rank's numbers of a drawn shape and dtype, in an awkward place or not."""
    shape = draw.choice(((5,), (0,), (3, 4), (1000,), (1,), (70000,)))
    if rows is not None:
        shape = (rows, *shape[1:])
    x = numbers(dist.get_rank(), shape, draw.choice(OF_GLOO), draw.randrange(99))
    return awkward(x, draw.choice(HOWS)), draw.random() < 0.5


def plays_all_reduce(draw, pair):
    x, is_async = drawn(draw, pair)
    wanted, op = x.clone().contiguous(), draw.choice(OPS)
    dist.all_reduce(wanted, op, pair.gloo)
    return dist.all_reduce(x, op, pair.ours, is_async), [x], [wanted]


def plays_all_gather(draw, pair):
    x, is_async = drawn(draw, pair)
    n = len(pair.ranks)
    wanted = [torch.zeros(x.shape, dtype=x.dtype) for _ in range(n)]
    dist.all_gather(wanted, x.contiguous(), pair.gloo)
    if draw.random() < 0.5:
        got = [torch.zeros_like(one) for one in wanted]
        return dist.all_gather(got, x, pair.ours, is_async), got, wanted
    whole = torch.zeros((n, *x.shape), dtype=x.dtype)
    work = dist.all_gather_into_tensor(whole, x, pair.ours, is_async)
    return work, [whole], [torch.stack(wanted)]


def plays_reduce_scatter(draw, pair):
    n = len(pair.ranks)
    x, is_async = drawn(draw, pair, rows=n * draw.randrange(4))
    at, total = pair.ranks.index(dist.get_rank()), x.clone().contiguous()
    dist.all_reduce(total, group=pair.gloo)
    got = torch.zeros((x.shape[0] // n, *x.shape[1:]), dtype=x.dtype)
    work = dist.reduce_scatter_tensor(got, x, group=pair.ours, async_op=is_async)
    return work, [got], [total.chunk(n)[at] if x.shape[0] else got]


def plays_all_to_all(draw, pair):
    n, at = len(pair.ranks), pair.ranks.index(dist.get_rank())
    rows = [[draw.randrange(4) for _ in range(n)] for _ in range(n)]
    x, is_async = drawn(draw, pair, rows=sum(rows[at]))
    received = [row[at] for row in rows]
    wanted = torch.zeros((sum(received), *x.shape[1:]), dtype=x.dtype)
    got = torch.zeros_like(wanted)
    dist.all_to_all_single(wanted, x.contiguous(), received, rows[at], pair.gloo)
    work = dist.all_to_all_single(got, x, received, rows[at], pair.ours, is_async)
    return work, [got], [wanted]


def plays_broadcast(draw, pair):
    x, is_async = drawn(draw, pair)
    wanted, root = x.clone().contiguous(), draw.choice(pair.ranks)
    dist.broadcast(wanted, root, pair.gloo)
    return dist.broadcast(x, root, pair.ours, is_async), [x], [wanted]


def plays_reduce(draw, pair):
    x, is_async = drawn(draw, pair)
    wanted, root, op = x.clone().contiguous(), draw.choice(pair.ranks), draw.choice(OPS)
    dist.all_reduce(wanted, op, pair.gloo)
    is_root = dist.get_rank() == root
    work = dist.reduce(x, root, op, pair.ours, is_async)
    return work, [x] if is_root else [], [wanted]


def plays_messages(draw, pair):
    x, _ = drawn(draw, pair)
    at, n = pair.ranks.index(dist.get_rank()), len(pair.ranks)
    right, left = pair.ranks[(at + 1) % n], pair.ranks[at - 1]
    got, wanted = torch.zeros(x.shape, dtype=x.dtype), torch.zeros(x.shape, dtype=x.dtype)
    for target, source, group in ((wanted, x.contiguous(), pair.gloo), (got, x, pair.ours)):
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, source, right, group),
                                        dist.P2POp(dist.irecv, target, left, group)])
        if group is pair.gloo:
            for work in works:
                work.wait()
    works[0].wait()
    return works[1], [got], [wanted]


CALLS = (plays_all_reduce, plays_all_gather, plays_reduce_scatter, plays_all_to_all,
         plays_broadcast, plays_reduce, plays_messages)


# --- ways -------------------------------------------------------------------------------------


def plain_calls():
    """What the channel does not make, each of which is said once."""
    rank, size = dist.get_rank(), dist.get_world_size()
    x = torch.tensor([5 + rank, 3])
    dist.all_reduce(x, Op.BAND)
    equal(x, torch.tensor([5 & 6 & (7 if size > 2 else 6), 3]), "BAND")
    sparse = torch.sparse_coo_tensor([[rank]], [1.0], (size,), check_invariants=True)
    dist.all_reduce(sparse)
    equal(sparse.to_dense(), torch.ones(size), "sparse")
    dist.group.WORLD.monitored_barrier()        # older dist.monitored_barrier() asks for Gloo
    raises(errors.InvalidError, "a tag other than 0", dist.recv, torch.zeros(2))
    if rank == 0:
        dist.send(torch.ones(2), 1, tag=3)
    elif rank == 1:
        got = torch.zeros(2)
        dist.irecv(got, tag=3).wait()
        equal(got, torch.ones(2), "any source")


def ways():
    with rig.logged() as kept:
        group = dist.new_group()
        for _ in range(2):
            plain_calls()
            x = torch.tensor([True])
            work = dist.all_reduce(x, Op.BOR, group, async_op=True)
            try:
                work.wait()
            except RuntimeError:        # gloo's own refusal
                pass
    said = [line for line in kept.lines() if f"group {group.group_name}: all_reduce goes" in line]
    assert len(said) == 1 and "BOR" in said[0], kept.lines()
    assert ct.backend.stats(group)["plain"] == {"all_reduce": 2}, ct.backend.stats(group)
    dist.destroy_process_group(group)
    dist.barrier()


def several_nodes():
    """Ranks on two nodes, which have no channel: all is gloo's."""
    rank, size = dist.get_rank(), dist.get_world_size()
    with mock.patch.dict(os.environ, CEOVERLAP_NODE=str(rank % 2)):
        group = dist.new_group()
    x = torch.ones(3)
    dist.all_reduce(x, group=group)
    dist.all_reduce(x, group=group, async_op=True).wait()
    equal(x, torch.full((3,), float(size * size)), "sum")
    got = torch.zeros(2)
    for work in dist.batch_isend_irecv([
            dist.P2POp(dist.isend, torch.full((2,), float(rank)), (rank + 1) % size, group),
            dist.P2POp(dist.irecv, got, (rank - 1) % size, group)]):
        work.wait()
    equal(got, torch.full((2,), float((rank - 1) % size)), "message")
    dist.barrier(group)
    assert ct.backend.stats(group) == {"ours": {}, "plain": {
        "all_reduce": 2, "send": 1, "recv": 1, "barrier": 1}}, ct.backend.stats(group)
    dist.destroy_process_group(group)
    dist.barrier()


def wrong_arguments():
    """Each is refused at once, and the group goes on."""
    size = dist.get_world_size()
    for text, call in (
            ("parts of 3", lambda: dist.all_gather_into_tensor(torch.zeros(4), torch.zeros(3))),
            ("parts of", lambda: dist.all_gather([torch.zeros(4)] * (size - 1), torch.zeros(4))),
            ("equal parts", lambda: dist.all_to_all_single(torch.zeros(size + 1),
                                                           torch.zeros(size + 1))),
            ("splits", lambda: dist.all_to_all_single(torch.zeros(2), torch.zeros(2),
                                                      [1] * size, [2] * size))):
        raises(errors.InvalidError, text, call)
    x = torch.ones(2)
    dist.all_reduce(x)
    equal(x, torch.full((2,), float(size)), "afterwards")


@rig.needs_one_node
class Calls(unittest.TestCase):

    def test_each_kind(self):
        run_here(each_kind)
        run_here(uneven)
        run_here(shares_memory)

    def test_random_calls(self):
        for tag in range(N_CALLS // 150):
            run_here(plays, tag, 150)

    def test_ways(self):
        run_here(ways)
        run_here(several_nodes)

    def test_wrong_arguments(self):
        run_here(wrong_arguments)


if __name__ == "__main__":
    unittest.main()
