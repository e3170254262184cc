# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The backend "ceov" of torch.distributed with tensors on GPUs: each kind and form of call, random
ones on several streams with and without async_op, NCCL's calls among them, and graphs. What comes
is compared with what each rank computes from the data of all, and, where each rank has a GPU, with
what NCCL makes of the same call."""

import atexit
import random
import types
import unittest

import rig
import torch
import torch.distributed as dist
from rig import equal, raises
from test_channel_gpus import MOVED, REPLAYS, ROUNDS, SUMMED, Draw, bytes_of, reduced

import ceoverlap.torch as ct
from ceoverlap import errors
from ceoverlap.torch.backend._work import OnStream

BACKEND = "cuda:ceov,cpu:gloo"
Op = dist.ReduceOp
OPS = {"sum": Op.SUM, "product": Op.PRODUCT, "min": Op.MIN, "max": Op.MAX, "mean": Op.AVG}
OF_NCCL = (torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int8, torch.uint8,
           torch.int32, torch.int64)
HOWS = ("plain", "misaligned", "gaps", "turned")
SHAPES = ((), (1,), (7,), (4, 0, 2), (2, 3, 4), (30000,))
N_SEQUENCES = 10 if rig.SHARES_GPUS else 100
N_CALLS = 30
DELAY_CYCLES = 40_000_000               # of a late stream: some 20 ms
LARGE = (24 << 20) // 4                 # elements of a message that no ring takes

_world = None
_nccl = []                              # a rank's process group for comparisons


def run_here(function, *args):
    """function(*args) at ranks that all tests share, until one has failed."""
    global _world
    if _world is None or not _world.is_open:
        _world = rig.World(rig.SIZE, BACKEND)
    return _world.run(function, *args)


@atexit.register
def _close():
    if _world is not None and _world.is_open:
        _world.close()


def nccl():
    """NCCL's group of all ranks; None where ranks share a GPU, which NCCL refuses."""
    if not _nccl and not rig.SHARES_GPUS:
        _nccl.append(dist.new_group(backend="nccl"))
    return _nccl[0] if _nccl else None


def on_gpus(group=None):
    return ct.backend.backend_of(group).group_on("cuda")


def channel_of(group=None):
    return on_gpus(group).channel


def full(n, value, dtype=torch.float32):
    return torch.full((n,), value, dtype=dtype, device=rig.device())


def awkward(x, how):
    """Returns the same numbers in memory that begins beside a multiple of 16 bytes, that has gaps,
    or whose dimensions are the other way round."""
    if how == "misaligned":
        return torch.empty(x.numel() + 1, dtype=x.dtype, device=x.device)[1:].view(x.shape).copy_(x)
    if how == "gaps":
        return x.new_zeros((*x.shape, 2))[..., 1].copy_(x)
    if how == "turned":
        order = tuple(range(x.dim() - 1, -1, -1))
        return x.new_zeros(x.shape[::-1]).permute(order).copy_(x)
    return x.clone()


def draw_of(tag):
    return Draw(types.SimpleNamespace(rank=dist.get_rank(), size=dist.get_world_size(),
                                      is_gpu=True), None, tag)


# --- each kind, in each form ---------------------------------------------------------------------


def gathers(d, parts, how):
    """Rank's own part is parts[d.rank]; all are of one shape."""
    x, root = awkward(parts[d.rank], how), d.n - 1
    what = (parts[0].shape, parts[0].dtype, how)
    outs = [awkward(torch.zeros_like(one), how) for one in parts]
    dist.all_gather(outs, x)
    d.same(bytes_of(outs), parts, "all_gather", *what)
    whole = awkward(x.new_zeros((d.n, *x.shape)), how)
    dist.all_gather_into_tensor(whole, x)
    d.same(whole, parts, "all_gather_into_tensor", *what)
    outs = [awkward(torch.zeros_like(one), how) for one in parts] if d.rank == root else None
    dist.gather(x, outs, root)
    if outs:
        d.same(bytes_of(outs), parts, "gather", *what)
    got = awkward(torch.zeros_like(x), how)
    dist.scatter(got, [awkward(one, how) for one in parts] if d.rank == root else None, root)
    d.same(got, [parts[d.rank]], "scatter", *what)
    dist.broadcast(got, root)
    d.same(got, [parts[root]], "broadcast", *what)
    right, left = (d.rank + 1) % d.n, (d.rank - 1) % d.n
    got = awkward(torch.zeros_like(x), how)
    for work in (dist.isend(x, right), dist.irecv(got, left)):
        work.wait()
    d.same(got, [parts[left]], "message", *what)


def exchanges(d, dtype, how):
    """Rank r sends (r + t) % 3 rows to rank t, as lists and in one tensor."""
    rows = [[(r + t) % 3 for t in range(d.n)] for r in range(d.n)]
    parts = [d.moved([(n, 5) for n in row], dtype) for row in rows]
    wanted = [parts[r][d.rank] for r in range(d.n)]
    outs = [awkward(torch.zeros_like(one), how) for one in wanted]
    dist.all_to_all(outs, [awkward(one, how) for one in parts[d.rank]])
    for out, one in zip(outs, wanted):
        d.same(out, [one], "all_to_all", dtype, how)
    received = [row[d.rank] for row in rows]
    out = awkward(torch.zeros((sum(received), 5), dtype=dtype, device=rig.device()), how)
    source = bytes_of(parts[d.rank]).view(dtype).view(sum(rows[d.rank]), 5)
    dist.all_to_all_single(out, awkward(source, how), received, rows[d.rank])
    d.same(out, wanted, "all_to_all_single", dtype, how)
    even = d.moved([(2 * d.n,)] * d.n, dtype)
    out = torch.zeros_like(even[0])
    dist.all_to_all_single(out, awkward(even[d.rank], how))
    d.same(out, [one.chunk(d.n)[d.rank] for one in even], "even", dtype, how)


def sums(d, shape, dtype, how):
    for name, op in OPS.items():
        what, parts = (shape, dtype, how, name), d.summed(shape, dtype)
        got = awkward(parts[d.rank], how)
        dist.all_reduce(got, op)
        d.same(got, [reduced(name, parts)], "all_reduce", *what)
        got = awkward(parts[d.rank], how)
        dist.reduce(got, d.n - 1, op)
        d.same(got, [reduced(name, parts) if d.rank == d.n - 1 else parts[d.rank]], "reduce",
               *what)
        wholes = d.summed((d.n, *shape), dtype)
        wanted = reduced(name, wholes)[d.rank]
        out = awkward(torch.zeros_like(wanted), how)
        dist.reduce_scatter_tensor(out, awkward(wholes[d.rank], how), op)
        d.same(out, [wanted], "reduce_scatter_tensor", *what)
        out = awkward(torch.zeros_like(wanted), how)
        dist.reduce_scatter(out, [awkward(one, how) for one in wholes[d.rank]], op)
        d.same(out, [wanted], "reduce_scatter", *what)


def each_kind():
    before, d = ct.backend.stats()["plain"], draw_of(1)
    for i, (dtype, shape) in enumerate((dtype, shape) for dtype in MOVED for shape in SHAPES):
        for how in HOWS if dtype == torch.bfloat16 else (HOWS[i % len(HOWS)],):
            gathers(d, d.moved([shape] * d.n, dtype), how)
            if shape == SHAPES[0]:
                exchanges(d, dtype, how)
            if dtype in SUMMED:
                sums(d, shape, dtype, how)
    d.compare()
    after = ct.backend.stats()["plain"]
    assert after == before, f"some calls were not the channel's: {before} {after}"


def uneven():
    """Lists whose tensors have shapes of their own, the same at all ranks."""
    d = draw_of(2)
    parts = d.moved([(r * 1000 + 1, 2) for r in range(d.n)], torch.float32)
    outs = [torch.zeros_like(part) for part in parts]
    dist.all_gather(outs, parts[d.rank])
    d.same(bytes_of(outs), parts, "all_gather")
    shapes = [(r * 333 + 1,) for r in range(d.n)]
    wholes = [[d.summed(shape, torch.float32)[r] for shape in shapes] for r in range(d.n)]
    out = torch.zeros(shapes[d.rank], device=rig.device())
    dist.reduce_scatter(out, wholes[d.rank])
    d.same(out, [reduced("sum", [one[d.rank] for one in wholes])], "reduce_scatter")
    d.compare()


def coalesced():
    """Several tensors in one call, and batches of messages that are larger than rings."""
    d = draw_of(3)
    tensors = [full(n, d.rank + 1.0) for n in (3, 0, 70001)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for x in tensors:
            dist.all_reduce(x)
    manager.wait()
    for x in tensors:
        equal(x, torch.full_like(x, d.n * (d.n + 1) / 2), "all_reduce")
    wholes = [full(d.n * n, 0.0) for n in (5, 1001)]
    with dist._coalescing_manager():
        for whole, n in zip(wholes, (5, 1001)):
            dist.all_gather_into_tensor(whole, full(n, float(d.rank)))
    for whole, n in zip(wholes, (5, 1001)):
        equal(whole, torch.arange(d.n, device=rig.device()).repeat_interleave(n).float(), n)
    right, left = (d.rank + 1) % d.n, (d.rank - 1) % d.n
    for batch in (True, False):
        sent, got = full(LARGE, d.rank + 7.0), full(LARGE, 0.0)
        if batch:
            works = dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, right),
                                            dist.P2POp(dist.irecv, got, left)])
        else:
            works = [dist.isend(sent, right), dist.irecv(got, left)]
        for work in works:
            work.wait()
        equal(got, torch.full_like(got, left + 7.0), ("message", batch))


# --- random sequences ----------------------------------------------------------------------------


class Sequence:
    """Calls that all ranks draw alike; on which stream, and with async_op or not, each rank draws
    by itself. groups: of all ranks."""

    def __init__(self, tag, groups):
        self.d, self._groups = draw_of(tag), groups
        self._own = random.Random((rig.SEED * 7 + tag) * 64 + dist.get_rank())
        self._waiting = []

    def play(self, *calls):
        """Makes one of the calls: call(d) returns its name, the tensors that it sets (function(
        group, is_async, tensors)), and what they have to be."""
        what, function, tensors, wanted = self.d.random.choice(calls)(self.d)
        beside = [x.clone() for x in tensors]
        group, is_async = self.d.random.choice(self._groups), self._own.random() < 0.4
        work = self.d.on_a_stream(function, group, is_async, tensors)
        self._waiting.append((work, tensors, wanted, what))
        if nccl() is not None and tensors[0].dtype in OF_NCCL:
            function(nccl(), False, beside)
            self._waiting.append((None, beside, wanted, f"NCCL's {what}"))
        if self._own.random() < 0.3:
            self.end()

    def end(self):
        self._own.shuffle(self._waiting)        # handles may be waited for in any order
        for work, tensors, wanted, what in self._waiting:
            if work is not None:
                work.wait()
            for got, one in zip(tensors, wanted):
                self.d.same(got, [one], what)
        self._waiting.clear()


def drawn_moves(d):
    dtype = d.dtype(MOVED)
    return dtype, d.random.choice(((5,), (0,), (3, 4), (1000,), (1,), (70000,))), d.random.choice(
        HOWS)


def fit(x, group):
    """Returns x, or a copy without gaps for NCCL."""
    return x.contiguous() if group is not None and group is nccl() else x


def plays_all_reduce(d):
    dtype, name = d.dtype(SUMMED), d.random.choice(tuple(OPS))
    parts = d.summed((d.random.choice((0, 1, 7, 5000, 70001)),), dtype)
    x = awkward(parts[d.rank], d.random.choice(HOWS))
    return (f"all_reduce {dtype} {name}",
            lambda group, wait, to: dist.all_reduce(to[0], OPS[name], group, wait), [x],
            [reduced(name, parts)])


def plays_plain_sum(d):
    """Which channels on GPUs do not have."""
    dtype = d.dtype((torch.int64, torch.int32, torch.float64))
    parts = d.summed((d.random.choice((1, 300, 70001)),), dtype)
    wanted = sum(part.double() for part in parts).to(dtype)
    return (f"all_reduce {dtype}",
            lambda group, wait, to: dist.all_reduce(to[0], group=group, async_op=wait),
            [parts[d.rank].clone()], [wanted])


def plays_all_gather(d):
    dtype, shape, how = drawn_moves(d)
    parts = d.moved([shape] * d.n, dtype)
    x = awkward(parts[d.rank], how)
    if d.random.random() < 0.5:
        outs = [torch.zeros_like(one) for one in parts]
        return (f"all_gather {dtype} {shape}",
                lambda group, wait, to: dist.all_gather(to, fit(x, group), group, wait), outs,
                parts)
    whole = bytes_of(parts).view(dtype).view(d.n, *shape)
    return (f"all_gather_into_tensor {dtype} {shape}",
            lambda group, wait, to: dist.all_gather_into_tensor(to[0], fit(x, group), group, wait),
            [torch.zeros_like(whole)], [whole])


def plays_reduce_scatter(d):
    dtype, name, n = d.dtype(SUMMED), d.random.choice(tuple(OPS)), d.random.choice((0, 1, 3, 9001))
    wholes = d.summed((d.n * n, 2), dtype)
    wanted = reduced(name, wholes).chunk(d.n)[d.rank] if n else wholes[0]
    x = awkward(wholes[d.rank], d.random.choice(HOWS))
    return (f"reduce_scatter {dtype} {name} {n}",
            lambda group, wait, to: dist.reduce_scatter_tensor(to[0], fit(x, group), OPS[name],
                                                               group, wait),
            [torch.zeros_like(wanted)], [wanted])


def plays_all_to_all(d):
    dtype = d.dtype(MOVED)
    rows = [[d.random.choice((0, 1, 3, 9000)) for _ in range(d.n)] for _ in range(d.n)]
    inputs = d.moved([(sum(row), 3) for row in rows], dtype)
    received = [row[d.rank] for row in rows]
    wanted = bytes_of([one.split(row)[d.rank] for one, row in zip(inputs, rows)])
    wanted = wanted.view(dtype).view(sum(received), 3)
    x = awkward(inputs[d.rank], d.random.choice(HOWS))
    return (f"all_to_all {dtype} {rows}",
            lambda group, wait, to: dist.all_to_all_single(to[0], fit(x, group), received,
                                                           rows[d.rank], group, wait),
            [torch.zeros_like(wanted)], [wanted])


def plays_broadcast(d):
    dtype, shape, _ = drawn_moves(d)
    parts, root = d.moved([shape] * d.n, dtype), d.random.randrange(d.n)
    return (f"broadcast {dtype} {shape} {root}",
            lambda group, wait, to: dist.broadcast(to[0], root, group, wait),
            [parts[d.rank].clone()], [parts[root]])


def plays_reduce(d):
    dtype, name, root = d.dtype(SUMMED), d.random.choice(tuple(OPS)), d.random.randrange(d.n)
    parts = d.summed((d.random.choice((1, 5000)),), dtype)
    is_root = d.rank == root            # NCCL's leaves others' tensors undefined
    return (f"reduce {dtype} {name} {root}",
            lambda group, wait, to: dist.reduce(to[0], root, OPS[name], group, wait),
            [parts[d.rank].clone()], [reduced(name, parts)] if is_root else [])


def plays_messages(d):
    dtype, shape, how = drawn_moves(d)
    parts = d.moved([shape] * d.n, dtype)
    x = awkward(parts[d.rank], how)
    right, left = (d.rank + 1) % d.n, (d.rank - 1) % d.n

    def exchange(group, _, to):
        works = dist.batch_isend_irecv([
            dist.P2POp(dist.isend, fit(x, group), right, group),
            dist.P2POp(dist.irecv, to[0], left, group)])
        for work in works:
            work.wait()

    return f"messages {dtype} {shape}", exchange, [torch.zeros_like(parts[0])], [parts[left]]


def plays(first, n_sequences):
    groups = [None, dist.new_group()]
    nccl()
    for tag in range(first, first + n_sequences):
        sequence = Sequence(100 + tag, groups)
        for _ in range(N_CALLS):
            sequence.play(plays_all_reduce, plays_all_gather, plays_reduce_scatter,
                          plays_all_to_all, plays_broadcast, plays_reduce, plays_messages,
                          plays_plain_sum)
        sequence.end()
        sequence.d.compare()
    torch.cuda.synchronize()
    counts = ct.backend.stats()
    assert counts["ours"]["all_gather"] and counts["plain"]["all_reduce"], counts
    dist.barrier()
    dist.destroy_process_group(groups[1])


# --- streams, handles and graphs -----------------------------------------------------------------


def handles():
    """The host does not wait, the stream does."""
    x, late = full(5000, float(dist.get_rank())), torch.cuda.Event()
    for is_async in (False, True):      # kernels are loaded before, for which the host may wait
        work = dist.all_reduce(x + 0, async_op=is_async)
    work.wait()
    torch.cuda._sleep(1)
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda._sleep(DELAY_CYCLES)
    late.record()
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    y = x + 1
    assert not late.query(), "the host has waited"
    equal(y, torch.full_like(y, 1.0 + sum(range(dist.get_world_size()))), "sum")
    torch.cuda.synchronize()
    if isinstance(work, OnStream):      # newer versions of PyTorch hand out another one
        assert work.is_completed() and work.is_success()
    future = dist.all_gather_into_tensor(full(dist.get_world_size(), 0.0), full(1, 2.0),
                                         async_op=True).get_future()
    equal(future.then(lambda done: done.value()[0] * 2).wait(),
          full(dist.get_world_size(), 4.0), "future")
    dist.barrier()


def frees_at_once():
    """Operands go while calls are only queued, waited for or not."""
    rank, size, totals = dist.get_rank(), dist.get_world_size(), []
    for i in range(ROUNDS):
        torch.cuda._sleep(DELAY_CYCLES // 20 * (rank + i % 2))
        x, whole = full(50001, float(i + rank)), full(50001 * size, 0.0)
        work = dist.all_gather_into_tensor(whole, x, async_op=True)
        del x
        junk = [full(50001, 7.0) for _ in range(3)]
        if i % 2:
            work.wait()
        else:                           # the channel's next call comes behind
            del work
            dist.all_reduce(full(1, 0.0))
        totals.append(whole.view(size, -1)[:, ::5000].clone())
        del junk, whole
    for i, got in enumerate(totals):
        wanted = torch.arange(size, device=rig.device(), dtype=torch.float32) + i
        equal(got, wanted.view(-1, 1).expand_as(got), i)


def graphs():
    """A graph of several calls, with NCCL's where each rank has a GPU, and calls beside it."""
    rank, size, device = dist.get_rank(), dist.get_world_size(), rig.device()
    x, number = torch.zeros(70001, device=device), torch.zeros(3, dtype=torch.int64, device=device)
    whole, part = full(7 * size, 0.0), full(7, 0.0)
    with_nccl, ranks = not rig.SHARES_GPUS, sum(range(size))
    dist.all_reduce(x)
    if with_nccl:
        dist.all_reduce(number)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total = x.clone()
        work = dist.all_reduce(total, async_op=True)
        dist.all_gather_into_tensor(whole, x[1:8])
        work.wait()
        if with_nccl:
            dist.all_reduce(number)
        dist.reduce_scatter_tensor(part, whole)
        got = torch.zeros(4, device=device)
        for work in dist.batch_isend_irecv([
                dist.P2POp(dist.isend, x[3:7].clone(), (rank + 1) % size),
                dist.P2POp(dist.irecv, got, (rank - 1) % size)]):
            work.wait()
    for i in range(REPLAYS):
        x.fill_(i + rank)
        number.fill_(i)
        graph.replay()
        equal(total, torch.full_like(x, size * i + ranks), i)
        of_all = torch.arange(size, device=device, dtype=x.dtype) + i
        equal(whole, of_all.repeat_interleave(7), i)
        equal(part, full(7, float(size * (i + rank))), i)
        equal(got, full(4, float(i + (rank - 1) % size)), i)
        if with_nccl:
            equal(number, torch.full_like(number, size * i), i)
        if i % 3 == 0:
            y = full(5, 1.0)
            dist.all_reduce(y)
            equal(y, full(5, float(size)), ("beside", i))
    torch.cuda.synchronize()
    dist.barrier()
    del graph


def captured_first():
    group = dist.new_group()
    graph, x = torch.cuda.CUDAGraph(), full(3, 1.0)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        raises(errors.InvalidError, "captured", dist.all_reduce, x, group=group)
        x += 1
    dist.all_reduce(x, group=group)
    equal(x, full(3, float(dist.get_world_size())), "afterwards")
    dist.barrier()
    dist.destroy_process_group(group)


@rig.needs_gpus
@rig.needs_one_node
class OnGpus(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        if torch.cuda.get_device_capability(0) != (9, 0):
            raise unittest.SkipTest("needs GPUs of compute capability 9.0")

    def test_each_kind(self):
        run_here(each_kind)
        run_here(uneven)

    def test_coalesced(self):
        run_here(coalesced)

    def test_random_sequences(self):
        for first in range(0, N_SEQUENCES, 10):
            run_here(plays, first, 10)

    def test_handles(self):
        run_here(handles)

    def test_memory_is_freed_at_once(self):
        run_here(frees_at_once)

    def test_graphs(self):
        run_here(graphs)
        run_here(captured_first)


if __name__ == "__main__":
    unittest.main()
