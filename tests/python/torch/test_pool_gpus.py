# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Pools of groups on GPUs: moves into tensors of the pool, which copy engines make, and sums,
against what each rank computes from the data of all; on several streams, in graphs, beside small
calls, with tensors that lie elsewhere, that are freed, and that outlive their group; and FSDP2's
training by the backend's memory, against training without it."""

import atexit
import contextlib
import gc
import random
import time
import unittest

import fsdp_models
import rig
import torch
import torch.distributed as dist
from rig import equal, raises
from test_channel_gpus import reduced
from torch.distributed.fsdp import FSDPModule

import ceoverlap
import ceoverlap.torch as ct
from ceoverlap import errors
from ceoverlap.pool import CALL_BYTES
from ceoverlap.torch import Group
from ceoverlap.torch.backend import backend_of

BACKEND = "cuda:ceov,cpu:gloo"
KIB, MIB = 1 << 10, 1 << 20
# Of a part, in bytes: below and above what is made by engines, also no multiples of 16.
SIZES = (KIB, 60 * KIB + 4, CALL_BYTES - 4, CALL_BYTES, CALL_BYTES + MIB + 4, 16 * MIB + 12)
SIZES += () if rig.SHARES_GPUS else (64 * MIB,)
LARGE = CALL_BYTES + MIB
N_CALLS = 30 if rig.SHARES_GPUS else 150
ROUNDS = 8 if rig.SHARES_GPUS else 40
REPLAYS = 10
N_STEPS = 4
DELAY_CYCLES = 2_000_000                # of a late stream: about a millisecond
SOON_S = rig.patience(5.0)
WIDTHS = (1000, 4001)                   # of layers whose shards are large enough for engines

_world = None
_more = []                              # a rank's further process group


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


def data(tag, rank, n):
    """n random numbers, the same at all ranks, made where they are needed."""
    generator = torch.Generator(rig.device()).manual_seed((rig.SEED * 1009 + tag) * 64 + rank)
    return torch.randn(n, generator=generator, device=rig.device())


def parts_of(tag, n):
    return [data(tag, rank, n) for rank in range(dist.get_world_size())]


def empty(n, group=None, dtype=torch.float32):
    """A tensor in the group's pool."""
    with torch.cuda.use_mem_pool(ct.pool(group)):
        return torch.empty(n, dtype=dtype, device=rig.device())


def pool_of(group=None):
    ct.pool(group)
    return Group.of(group).channel.pool


@contextlib.contextmanager
def counts(engines, kernels, group=None):
    """Of the block's calls, that many are made by engines, and that many look for the pool and take
    kernels."""
    pool = pool_of(group)
    torch.cuda.synchronize()
    before = pool.query()
    yield
    torch.cuda.synchronize()
    wanted, deadline = (engines, kernels), time.monotonic() + SOON_S
    while True:
        now = pool.query()
        got = (now.n_engine_calls - before.n_engine_calls,
               now.n_kernel_calls - before.n_kernel_calls)
        if got == wanted:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"by engines and by kernels: {got}, expected {wanted}")
        time.sleep(0.01)


# --- each kind of move: of parts of n numbers into target, which lies in the pool or elsewhere ---


def gather(parts, target):
    dist.all_gather_into_tensor(target, parts[dist.get_rank()])
    return torch.cat(parts)


def gather_in_place(parts, target):
    own = target.chunk(len(parts))[dist.get_rank()]
    own.copy_(parts[dist.get_rank()])
    dist.all_gather_into_tensor(target, own)
    return torch.cat(parts)


def gather_by_handle(parts, target):
    dist.all_gather_into_tensor(target, parts[dist.get_rank()], async_op=True).wait()
    return torch.cat(parts)


def gather_list(parts, target):
    dist.all_gather(list(target.chunk(len(parts))), parts[dist.get_rank()])
    return torch.cat(parts)


def gather_by_channel(parts, target):
    Group.of().channel.all_gather(target, parts[dist.get_rank()])
    return torch.cat(parts)


def exchange(parts, target):
    """Rank r gives rank t the r-th part, turned by t."""
    rank = dist.get_rank()
    dist.all_to_all_single(target, torch.cat([parts[rank].roll(to) for to in range(len(parts))]))
    return torch.cat([part.roll(rank) for part in parts])


def exchange_by_channel(parts, target):
    rank = dist.get_rank()
    Group.of().channel.all_to_all(target, torch.cat([parts[rank].roll(to)
                                                     for to in range(len(parts))]))
    return torch.cat([part.roll(rank) for part in parts])


def spread(parts, target):
    """From rank 0. The other ranks' last part of the target is not looked at: a broadcast is of
    one part."""
    n = parts[0].numel()
    if dist.get_rank() == 0:
        target[:n].copy_(parts[-1])
    dist.broadcast(target[:n], 0)
    target[n:].zero_()
    return torch.cat([parts[-1], torch.zeros_like(target[n:])])


INTO = (gather, gather_in_place, gather_by_handle, gather_list, gather_by_channel, exchange,
        exchange_by_channel, spread)


def moves_into(i, where):
    """where: of each rank's target: "pool", or "one elsewhere": the last rank's is not in it."""
    move, size = INTO[i], dist.get_world_size()
    for tag, n_bytes in enumerate(SIZES):
        n = n_bytes // 4
        parts = parts_of(100 * i + tag, n)
        target = empty(n * size) if where == "pool" or dist.get_rank() != size - 1 else \
            torch.empty(n * size, device=rig.device())
        is_large = n_bytes >= CALL_BYTES
        with counts(is_large and where == "pool", is_large and where != "pool"):
            equal(target, move(parts, target), (move.__name__, n_bytes, where))


def moves_of_ct():
    """Whose results are made in the pool where the caller says so."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for tag, n_bytes in enumerate(SIZES):
        n, is_large = n_bytes // 4, n_bytes >= CALL_BYTES
        parts = parts_of(2000 + tag, n)
        own = torch.cat([parts[rank].roll(to) for to in range(size)])
        with counts(2 * is_large, 0):
            with torch.cuda.use_mem_pool(ct.pool()):
                whole, got = ct.all_gather(parts[rank]), ct.all_to_all(own)
            equal(whole, torch.cat(parts), ("ct.all_gather", n_bytes))
            equal(got, torch.cat([part.roll(rank) for part in parts]), ("ct.all_to_all", n_bytes))
        with counts(0, 2 * is_large):
            equal(ct.all_gather(parts[rank]), torch.cat(parts), ("elsewhere", n_bytes))
            equal(ct.all_to_all(own), torch.cat([part.roll(rank) for part in parts]), n_bytes)


def uneven():
    """All-gathers of different parts go by engines, too; exchanges with split sizes do not."""
    rank, size = dist.get_rank(), dist.get_world_size()
    rows = [(LARGE if r else MIB) // 4 + r for r in range(size)]
    parts = [data(3000, r, n) for r, n in enumerate(rows)]
    target = empty(sum(rows))
    with counts(1, 0):
        Group.of().channel.all_gather(target, parts[rank], rows)
        equal(target, torch.cat(parts), rows)
    splits = [LARGE // 4] * size
    own, got = data(3001, rank, sum(splits)), empty(sum(splits))
    with counts(0, 0):
        dist.all_to_all_single(got, own, splits, splits)
        equal(got, torch.cat([data(3001, r, sum(splits)).split(splits)[rank]
                              for r in range(size)]), splits)


def sums():
    """Small whole numbers, whose sums are exact; of operands in the pool."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for tag, n_bytes in enumerate(SIZES):
        n = n_bytes // 4 // size * size
        parts = [one.mul(3).round() for one in parts_of(4000 + tag, n)]
        for dtype in (torch.float32, torch.bfloat16):
            xs = [one.to(dtype) for one in parts]
            wanted = reduced("sum", xs)
            x, part = empty(n, dtype=dtype).copy_(xs[rank]), empty(n // size, dtype=dtype)
            with counts(0, 0):
                dist.reduce_scatter_tensor(part, x)
                equal(part, wanted.chunk(size)[rank], ("reduce_scatter", n_bytes, dtype))
                dist.all_reduce(x)
                equal(x, wanted, ("all_reduce", n_bytes, dtype))


# --- order ---------------------------------------------------------------------------------------


def mixed(tag):
    """Large and small calls of all kinds one behind the other, on several streams of which some are
    late; targets go while others are under way. Compared at the end."""
    rank, size = dist.get_rank(), dist.get_world_size()
    alike = random.Random(rig.SEED * 1009 + tag)
    ways = random.Random((rig.SEED * 1009 + tag) * 64 + rank)
    current, compared = torch.cuda.current_stream(), []
    streams = [current, torch.cuda.Stream(), torch.cuda.Stream()]
    ct.pool()
    for i in range(N_CALLS):
        n = alike.choice((8, 1001, 40000, CALL_BYTES // 4, LARGE // 4 + 1))
        move = alike.choice(INTO)
        one_elsewhere, stream = alike.random() < 0.3, ways.choice(streams)
        if alike.random() < 0.3:
            x = torch.full((alike.choice((5, 70001)),), float(rank), device=rig.device())
            dist.all_reduce(x)
            compared.append((x, torch.full_like(x, sum(range(size))), (i, "all_reduce")))
        parts = parts_of(5000 + i, n)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            if ways.random() < 0.3:
                torch.cuda._sleep(DELAY_CYCLES)
            target = torch.empty(n * size, device=rig.device()) \
                if one_elsewhere and rank == size - 1 else empty(n * size)
            wanted = move(parts, target)
            differ = (target != wanted).sum()
        current.wait_stream(stream)
        for one in (differ, *parts):
            one.record_stream(current if one is differ else stream)
        compared.append((differ, torch.zeros_like(differ), (i, move.__name__, n, one_elsewhere)))
        del target, wanted
    for got, wanted, what in compared:
        equal(got, wanted, what)


def used_again():
    """Tensors are freed and others made, of few sizes, which take no more memory than the first."""
    size, pool, rank = dist.get_world_size(), pool_of(), dist.get_rank()
    taken = []
    for i in range(ROUNDS):
        n = (LARGE, 2 * LARGE, LARGE + 4 * KIB)[i % 3] // 4
        parts, target = parts_of(6000 + i, n), empty(n * size)
        dist.all_gather_into_tensor(target, parts[rank])
        equal(target, torch.cat(parts), i)
        del target
        taken.append(pool.query().segment_bytes)
    assert taken[-1] == taken[2], taken


def with_graphs():
    """Captured calls take kernels; what is called beside them goes on by engines."""
    size, rank, n = dist.get_world_size(), dist.get_rank(), LARGE // 4
    x, target, beside = torch.zeros(n, device=rig.device()), empty(n * size), empty(n * size)
    dist.all_gather_into_tensor(target, x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with counts(REPLAYS, 0):
        with torch.cuda.graph(graph):
            dist.all_gather_into_tensor(target, x)
        for i in range(REPLAYS):
            x.copy_(data(7000 + i, rank, n))
            graph.replay()
            equal(target, torch.cat(parts_of(7000 + i, n)), i)
            dist.all_gather_into_tensor(beside, x)
            equal(beside, target, i)
    dist.barrier()
    del graph


def two_groups():
    """Each has its pool; a tensor of one is none of the other's."""
    if not _more:
        _more.append(dist.new_group(backend=BACKEND))
    other, n, size, rank = _more[0], LARGE // 4, dist.get_world_size(), dist.get_rank()
    parts = parts_of(8000, n)
    mine, theirs = empty(n * size), empty(n * size, other)
    assert ct.pool() is not ct.pool(other) and ct.pool() is ct.pool()
    for a, b, engines in ((mine, theirs, ROUNDS), (theirs, mine, 0)):
        with counts(engines, ROUNDS - engines), counts(engines, ROUNDS - engines, other):
            for i in range(ROUNDS):
                a.zero_()
                b.zero_()
                dist.all_gather_into_tensor(a, parts[rank])
                torch.cuda.current_stream().synchronize()       # calls of two groups at a time
                dist.all_gather_into_tensor(b, parts[rank].roll(i), group=other)
                equal(a, torch.cat(parts), i)
                equal(b, torch.cat([part.roll(i) for part in parts]), i)


# --- what is refused, and the end ----------------------------------------------------------------


def refuses():
    ct.pool()
    raises(errors.StateError, "when it was made", ct.pool, None, MIB)
    plain = Group(dist.group.WORLD)
    raises(errors.InvalidError, "channel=True", plain.pool)
    plain.close()
    group = Group(dist.group.WORLD, channel=True)
    x = torch.zeros(8, device=rig.device())
    torch.cuda.synchronize()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        raises(errors.InvalidError, "call pool() before", group.pool)
        x.add_(1)
    dist.barrier()
    group.close()


def has_a_bound():
    """What does not fit raises PyTorch's error, and what fits then is made."""
    group = Group(dist.group.WORLD, channel=True)
    pool = group.pool(64 * MIB)
    n = LARGE // 4
    with torch.cuda.use_mem_pool(pool):
        raises(torch.cuda.OutOfMemoryError, "", torch.empty, 64 * MIB, device=rig.device())
        target = torch.empty(n * group.size, device=rig.device())
    parts = parts_of(9000, n)
    with counts(1, 0, group):
        group.channel.all_gather(target, parts[group.rank])
        equal(target, torch.cat(parts), "bounded")
    assert group.channel.pool.query().segment_bytes <= 64 * MIB
    del target, pool
    dist.barrier()
    group.close()
    assert not group.context.is_open and not group.is_open


def is_closed_early():
    """A tensor outlives its group; others of the process go on."""
    group = Group(dist.group.WORLD, channel=True)
    n, rank = LARGE // 4, dist.get_rank()
    parts, target = parts_of(9100, n), empty(n * group.size, group)
    group.channel.all_gather(target, parts[rank])
    torch.cuda.synchronize()
    dist.barrier()
    with rig.logged() as kept:
        group.close()
    said = [line for line in kept.lines() if "of its pool: they stay valid" in line]
    assert len(said) == 1 and not group.is_open, (said, kept.lines())
    raises(errors.StateError, "closed", group.pool)
    dist.barrier()
    target.add_(1)
    equal(target, torch.cat(parts) + 1, "after its group")
    del target
    gc.collect()
    torch.cuda.empty_cache()
    gather(parts_of(9101, n), empty(n * dist.get_world_size()))


def by_hand():
    """ceoverlap.Pool, without PyTorch's allocator."""
    group = Group(dist.group.WORLD, channel=True)
    channel, rank = group.channel, group.rank
    pool = channel.make_pool()
    assert channel.pool is pool and pool.query().is_connected
    raises(errors.StateError, "it has a pool", channel.make_pool)
    memory = pool.alloc(LARGE * group.size)
    assert memory.address % (2 * MIB) == 0, memory.address
    target = torch.as_tensor(memory, device=rig.device()).view(torch.float32)
    assert target.data_ptr() == memory.address
    parts = parts_of(9200, LARGE // 4)
    channel.all_gather(target, parts[rank])
    equal(target, torch.cat(parts), "by hand")
    info = pool.query()
    assert info.n_engine_calls == 1 and info.n_kernel_calls == 0 and info.n_segments == 1, info
    assert info.used_bytes >= memory.size_bytes and info.segment_bytes >= info.used_bytes, info
    pool.free(memory)
    pool.free(memory)
    raises(errors.StateError, "given back", lambda: memory.__cuda_array_interface__)
    assert pool.query().used_bytes == 0 and pool.query().segment_bytes == info.segment_bytes
    again = pool.alloc(LARGE * group.size)
    assert pool.query().n_segments == 1
    raises(errors.InvalidError, "is no memory", pool.free, ceoverlap.PoolMemory(8, 8))
    raises(errors.InvalidError, "0", pool.alloc, 0)
    functions = pool.functions()
    assert all(functions) and functions == pool.functions() and functions[0] != functions[1]
    pool.free(again)
    torch.cuda.synchronize()
    dist.barrier()
    channel.close()
    raises(errors.StateError, "closed", pool.query)
    group.close()


# --- FSDP2 ---------------------------------------------------------------------------------------


def trained(has_hook):
    """The losses of some steps."""
    model = fsdp_models.model_of(WIDTHS)
    for module in model.modules():
        if has_hook and isinstance(module, FSDPModule):
            module.set_allocate_memory_from_process_group_for_comm(True)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    losses = []
    for step in range(N_STEPS):
        losses.append(fsdp_models.train_plainly(model, step, WIDTHS[0]))
        optimizer.step()
        optimizer.zero_grad()
    return losses


def trains():
    """Each layer's parameters are gathered once in a step at least. The model's last ones are few,
    and go by a kernel."""
    group = fsdp_models.mesh_of(dist.get_world_size()).get_group()
    backend = group._get_backend(rig.device())
    assert backend.supports_tensor_alloc(rig.device())
    x = backend.allocate_tensor(1000, dtype=torch.bfloat16, device=rig.device())
    assert x.shape == (1000,) and x.dtype == torch.bfloat16 and x.device == rig.device()
    raises(errors.InvalidError, "no memory for communication", backend_of(group).allocate_tensor,
           8, dtype=torch.float32, device=torch.device("cuda", 31))
    pool, wanted = pool_of(group), trained(False)
    before = pool.query().n_engine_calls
    got = trained(True)
    torch.cuda.synchronize()
    n = pool.query().n_engine_calls - before
    assert got == wanted, (got, wanted)
    assert n >= N_STEPS * fsdp_models.N_LAYERS, n


@rig.needs_gpus
@rig.needs_one_node
class OnGpus(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        if torch.cuda.get_device_capability(0) != (9, 0):
            raise unittest.SkipTest("needs GPUs of compute capability 9.0")

    def test_moves(self):
        for i in range(len(INTO)):
            run_here(moves_into, i, "pool")

    def test_a_rank_whose_target_lies_elsewhere(self):
        for i in range(len(INTO)):
            run_here(moves_into, i, "one elsewhere")

    def test_moves_of_ceoverlap_torch(self):
        run_here(moves_of_ct)

    def test_uneven_moves(self):
        run_here(uneven)

    def test_sums(self):
        run_here(sums)

    def test_random_calls(self):
        for tag in range(2):
            run_here(mixed, tag)

    def test_memory_is_used_again(self):
        run_here(used_again)

    def test_graphs(self):
        run_here(with_graphs)

    def test_two_groups(self):
        run_here(two_groups)

    def test_what_is_refused(self):
        run_here(refuses)

    def test_a_bound(self):
        run_here(has_a_bound)

    def test_tensors_that_outlive_their_group(self):
        run_here(is_closed_early)

    def test_by_hand(self):
        run_here(by_hand)

    def test_fsdp2(self):
        run_here(trains)


if __name__ == "__main__":
    unittest.main()
