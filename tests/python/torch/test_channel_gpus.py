# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Channels of ranks on GPUs: all calls, on several streams and in graphs, against what each rank
computes from the data of all; what is refused, and what ends a channel. Calls are compared at the
end of many, so that they are queued one behind the other."""

import random
import time
import unittest

import rig
import torch
import torch.distributed as dist
from rig import equal, raises

import ceoverlap
import ceoverlap.torch as ct
from ceoverlap import _operands, errors
from ceoverlap.torch import Group, operators

SUMMED = (torch.bfloat16, torch.float16, torch.float32)
MOVED = tuple(getattr(torch, name) for name in _operands.CODES if hasattr(torch, name))
N_CALLS = 40 if rig.SHARES_GPUS else 200
COUNTS = (0, 1, 2, 7, 64, 257, 5000, 70001) + (() if rig.SHARES_GPUS else (1500003,))
ROUNDS = 5 if rig.SHARES_GPUS else 20
REPLAYS = 20
DELAY_CYCLES = 2_000_000                # of a late stream: about a millisecond
DEADLINE_S = rig.patience(0.5)
SOON_S = rig.patience(5.0)
SMALL_RING = 64 << 10

_shared = []                            # a rank's group for all tests that do not end its channel
_ended = []                             # its further channels


def shared_group():
    if not _shared or not _shared[0].is_open:
        _shared[:] = [Group(channel=True)]
    return _shared[0]


def bytes_of(tensors):
    """Of all tensors, one behind the other."""
    flat = [one.contiguous().as_strided((one.numel(),), (1,)) for one in tensors]
    return torch.cat([one.view(torch.uint8) for one in flat])


def numbers(seed, n, limit):
    """n whole numbers below limit, the same at all ranks, made where they are needed."""
    made = torch.arange(n, device=rig.device()) * (seed % 9973 + 1) + seed % 1013
    return (made // 3 + made % 7) % limit


def reduced(op, parts):
    """In fp32, from rank 0 on."""
    total = parts[0].float()
    for part in parts[1:]:
        one = part.float()
        total = (total + one if op in ("sum", "mean") else total * one if op == "product" else
                 torch.minimum(total, one) if op == "min" else torch.maximum(total, one))
    if op == "mean":                    # by a tensor: a number's reciprocal would be multiplied
        total = total / torch.full_like(total, len(parts))
    return total.to(parts[0].dtype)


class Draw:
    """What all ranks draw alike, but for the streams of their calls, and what is to be compared."""

    def __init__(self, group, channel, tag):
        self.group, self.channel = group, channel
        self.rank, self.n = group.rank, group.size
        self.random = random.Random(rig.SEED * 1009 + tag)
        self._ways = random.Random((rig.SEED * 1009 + tag) * 64 + group.rank)
        self._sides = [torch.cuda.Stream() for _ in range(2)] if group.is_gpu else []
        self._compared = []

    def rows(self):
        if self.random.random() < 0.5:
            return [self.random.choice(COUNTS)] * self.n
        return [self.random.choice((0, 1, 3, 50, 9000)) for _ in range(self.n)]

    def dtype(self, dtypes):
        return self.random.choice(dtypes)

    def columns(self):
        return self.random.choice(((), (1,), (3,)))

    def room(self, shape, dtype):
        """Memory that begins anywhere."""
        n, at = torch.Size(shape).numel(), self.random.randrange(4)
        return torch.empty(n + 4, dtype=dtype, device=rig.device())[at:at + n].view(shape)

    def summed(self, shape, dtype):
        """Small whole numbers of each rank, whose sums and products are exact in fp32."""
        made = []
        for _ in range(self.n):
            of = numbers(self.random.getrandbits(31), torch.Size(shape).numel(), 4)
            made.append(self.room(shape, dtype).copy_(of.view(shape)))
        return made

    def moved(self, shapes, dtype):
        """A tensor of any bytes for each shape."""
        made = []
        for shape in shapes:
            n = torch.Size(shape).numel() * dtype.itemsize
            of = numbers(self.random.getrandbits(31), n, 2 if dtype == torch.bool else 251)
            one = self.room(shape, dtype)
            one.view(-1).copy_(of.to(torch.uint8).view(dtype))
            made.append(one)
        return made

    def call(self, name, *arguments):
        """Of the channel, on the current stream, on another one that is current for it, or that is
        passed."""
        self.on_a_stream(getattr(self.channel, name), *arguments, takes_stream=True)

    def on_a_stream(self, function, *arguments, takes_stream=False):
        way = self._ways.choice(("current", "within") + ("object", "number") * takes_stream)
        if way == "current" or not self._sides:
            return function(*arguments)
        current, side = torch.cuda.current_stream(), self._ways.choice(self._sides)
        side.wait_stream(current)
        if way == "within":
            with torch.cuda.stream(side):
                result = function(*arguments)
        else:
            result = function(*arguments, stream=side if way == "object" else side.cuda_stream)
        current.wait_stream(side)
        if isinstance(result, torch.Tensor):
            result.record_stream(current)
        return result

    def same(self, got, wanted, *what):
        """Later: bytes of one tensor, and of a list of tensors."""
        got, wanted = bytes_of([got]), bytes_of(wanted)
        if got.numel() != wanted.numel():
            raise AssertionError(f"{what}: {got.numel()} bytes, expected {wanted.numel()}")
        self._compared.append((what, (got != wanted).sum()))

    def compare(self):
        for i, (what, n) in enumerate(self._compared):
            if n.item():
                raise AssertionError(f"call {i}, {what}: {n.item()} bytes differ")
        self._compared.clear()


def uneven(rows):
    return rows if len(set(rows)) > 1 else None


# --- calls of the channel ------------------------------------------------------------------------


def all_gather(d):
    rows, columns, dtype = d.rows(), d.columns(), d.dtype(MOVED)
    parts = d.moved([(n, *columns) for n in rows], dtype)
    output, own = d.room((sum(rows), *columns), dtype), parts[d.rank]
    if d.random.random() < 0.3:         # in place
        own = output[sum(rows[:d.rank]):sum(rows[:d.rank + 1])]
        own.copy_(parts[d.rank])
    d.call("all_gather", output, own, uneven(rows))
    d.same(output, parts, "all_gather", dtype, rows)


def all_to_all(d):
    splits = [[d.random.choice(COUNTS[:-1])] * d.n] * d.n
    if d.random.random() < 0.6:
        splits = [[d.random.choice((0, 1, 3, 50, 9000)) for _ in range(d.n)] for _ in range(d.n)]
    dtype, columns = d.dtype(MOVED), d.columns()
    inputs = d.moved([(sum(row), *columns) for row in splits], dtype)
    received = [row[d.rank] for row in splits]
    wanted = [one.split(row)[d.rank] for one, row in zip(inputs, splits)]
    output = d.room((sum(received), *columns), dtype)
    is_even = len({n for row in splits for n in row}) == 1
    d.call("all_to_all", output, inputs[d.rank],
           *(() if is_even else (received, splits[d.rank])))
    d.same(output, wanted, "all_to_all", dtype, splits)


def broadcast(d):
    root, dtype = d.random.randrange(d.n), d.dtype(MOVED)
    parts = d.moved([(d.random.choice(COUNTS),)] * d.n, dtype)
    wanted = parts[root].clone()
    d.call("broadcast", parts[d.rank], root)
    d.same(parts[d.rank], [wanted], "broadcast", dtype, root)


def gather(d):
    root, rows, dtype = d.random.randrange(d.n), d.rows(), d.dtype(MOVED)
    parts = d.moved([(n,) for n in rows], dtype)
    output = d.room((sum(rows),), dtype)
    if d.rank != root:
        d.call("gather", parts[d.rank], None, root)
        return
    d.call("gather", parts[d.rank], output, root, uneven(rows))
    d.same(output, parts, "gather", dtype, rows, root)


def scatter(d):
    root, rows, dtype = d.random.randrange(d.n), d.rows(), d.dtype(MOVED)
    whole, = d.moved([(sum(rows),)], dtype)
    output = d.room((rows[d.rank],), dtype)
    d.call("scatter", output, *((whole, root, uneven(rows)) if d.rank == root else (None, root)))
    d.same(output, [whole.split(rows)[d.rank]], "scatter", dtype, rows, root)


def sum_op(d):
    return d.random.choice(("sum", "product", "min", "max", "mean"))


def all_reduce(d):
    dtype, op, n = d.dtype(SUMMED), sum_op(d), d.random.choice(COUNTS)
    parts = d.summed((n,), dtype)
    wanted, output = reduced(op, parts), d.room((n,), dtype)
    if d.random.random() < 0.5:
        d.call("all_reduce", parts[d.rank], op)
        output = parts[d.rank]
    else:
        d.call("all_reduce", parts[d.rank], op, output)
    d.same(output, [wanted], "all_reduce", dtype, op, n)


def reduce_scatter(d):
    dtype, op, rows, columns = d.dtype(SUMMED), sum_op(d), d.rows(), d.columns()
    inputs = d.summed((sum(rows), *columns), dtype)
    output = d.room((rows[d.rank], *columns), dtype)
    d.call("reduce_scatter", output, inputs[d.rank], op, uneven(rows))
    d.same(output, [reduced(op, inputs).split(rows)[d.rank]], "reduce_scatter", dtype, op, rows)


def reduce(d):
    dtype, op, root = d.dtype(SUMMED), sum_op(d), d.random.randrange(d.n)
    parts = d.summed((d.random.choice(COUNTS),), dtype)
    wanted = reduced(op, parts) if d.rank == root else parts[d.rank].clone()
    d.call("reduce", parts[d.rank], root, op)
    d.same(parts[d.rank], [wanted], "reduce", dtype, op, root)


def barrier(d):
    d.call("barrier")


def messages(d):
    """From each rank to each other one, in one batch or one after another."""
    dtype = d.dtype(MOVED)
    counts = [[d.random.choice(COUNTS) for _ in range(d.n)] for _ in range(d.n)]
    sent = [d.moved([(n,) for n in row], dtype) for row in counts]
    got = [d.room((counts[peer][d.rank],), dtype) for peer in range(d.n)]
    peers = [peer for peer in range(d.n) if peer != d.rank]
    if d.random.random() < 0.5:
        d.call("batch", [(sent[d.rank][peer], peer) for peer in peers],
               [(got[peer], peer) for peer in peers])
    else:
        for first in range(d.n):
            for second in set(range(d.n)) - {first}:
                if d.rank == first:
                    d.call("send", sent[first][second], second)
                elif d.rank == second:
                    d.call("receive", got[first], first)
    for peer in peers:
        d.same(got[peer], [sent[peer][d.rank]], "message", dtype, counts, peer)


# --- calls of ceoverlap.torch --------------------------------------------------------------------


def ct_moves(d):
    rows, dtype = d.rows(), d.dtype(MOVED + (torch.float8_e8m0fnu,))
    parts = d.moved([(n, 3) for n in rows], dtype)
    whole = d.on_a_stream(ct.all_gather, parts[d.rank], d.group, uneven(rows))
    d.same(whole, parts, "ct.all_gather", dtype, rows)
    n = rows[0]
    inputs = d.moved([(n * d.n, 2)] * d.n, dtype)
    d.same(d.on_a_stream(ct.all_to_all, inputs[d.rank], d.group),
           [one.split([n] * d.n)[d.rank] for one in inputs], "ct.all_to_all", dtype, n)


def ct_sums(d):
    rows, dtype = d.rows(), d.dtype(SUMMED)
    xs = d.summed((sum(rows), 2), dtype)
    total = reduced("sum", xs)
    x = torch.stack([xs[d.rank]] * 2, -1)[..., 0]       # with gaps
    d.same(d.on_a_stream(ct.all_reduce, x, d.group), [total], "ct.all_reduce", dtype, rows)
    d.same(d.on_a_stream(ct.reduce_scatter, xs[d.rank], d.group, rows),
           [total.split(rows)[d.rank]], "ct.reduce_scatter", dtype, rows)


def ct_means(d):
    """As FSDP2's gradients are."""
    dtype, n = d.dtype(SUMMED), d.random.choice((1, 40, 1001))
    parts, got = d.summed((d.n, n), dtype), d.room((n,), dtype)
    operators.reduce_scatter_into(d.group, parts[d.rank], [n] * d.n, got, 1 / d.n)
    d.same(got, [reduced("mean", parts)[d.rank]], "mean", dtype, n)


OF_CHANNELS = (all_gather, all_to_all, broadcast, gather, scatter, all_reduce, reduce_scatter,
               reduce, barrier, messages)
OF_GROUPS = (ct_moves, ct_sums, ct_means)


def plays(tag):
    group = shared_group()
    draw = Draw(group, group.channel, tag)
    for _ in range(N_CALLS):
        draw.random.choice(OF_CHANNELS + OF_GROUPS)(draw)
    draw.compare()
    group.operators.check()
    assert not group.operators._made, "some sums or moves have gone by operators"


def plays_with_a_small_ring(tag):
    """Which goes round in most calls."""
    group = shared_group()
    small = ceoverlap.Channel(group.context, f"small{tag}", ring_bytes=SMALL_RING)
    group.exchange("made")
    draw = Draw(group, small.connect(), tag)
    for _ in range(N_CALLS // 2):
        draw.random.choice(OF_CHANNELS)(draw)
    draw.compare()
    torch.cuda.synchronize()
    group.exchange("used")
    small.close()


# --- streams and graphs --------------------------------------------------------------------------


def follows():
    """Calls on two streams, of which another one is late at each rank, come in the order in which
    they are made."""
    group = shared_group()
    size, rank, device = group.size, group.rank, group.device
    streams = [torch.cuda.Stream() for _ in range(2)]
    xs = [torch.empty(n, device=device) for n in (3, 100001)]
    results = []
    torch.cuda.synchronize()
    for i in range(2 * ROUNDS):
        for which, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                if (i + rank + which) % 2:
                    torch.cuda._sleep(DELAY_CYCLES)
                xs[which].fill_(i + which + rank)
                group.channel.all_reduce(xs[which])
                results.append((i + which, xs[which].clone()))
    torch.cuda.synchronize()
    for n, got in results:
        equal(got, torch.full_like(got, size * n + sum(range(size))), n)


def replays():
    """A graph of several calls, and calls beside it between its replays."""
    group = shared_group()
    size, rank, device, channel = group.size, group.rank, group.device, group.channel
    x, first = torch.zeros(70001, device=device), torch.zeros(5, device=device)
    ranks = sum(range(size))
    got = torch.zeros(4, device=device)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total = ct.all_reduce(x, group)
        whole = ct.all_gather(x[1:8] + 1, group)
        part = ct.reduce_scatter(whole, group)
        first.copy_(x[:5])
        channel.broadcast(first, size - 1)
        channel.batch([(x[3:7], (rank + 1) % size)], [(got, (rank - 1) % size)])
        blocks = ct.all_to_all(x[:2 * size].clone(), group)
        channel.barrier()
    for i in range(REPLAYS):
        x.fill_(i + rank)
        graph.replay()
        own = torch.full_like(x, i)
        equal(total, size * own + ranks, i)
        of_all = torch.arange(size, device=device, dtype=x.dtype) + i
        equal(whole, (of_all + 1).repeat_interleave(7), i)
        equal(part, size * (own[:7] + rank + 1), i)
        equal(first, own[:5] + size - 1, i)
        equal(got, own[:4] + (rank - 1) % size, i)
        equal(blocks, of_all.repeat_interleave(2), i)
        if i % 3 == 0:
            equal(ct.all_reduce(x, group), size * own + ranks, ("beside", i))
    torch.cuda.synchronize()
    group.exchange("replayed")
    del graph


def frees_at_once():
    """Operands and results go while the calls are only queued."""
    group = shared_group()
    sums = []
    for i in range(ROUNDS):
        torch.cuda._sleep(DELAY_CYCLES * (group.rank + i % 2) // 2)
        x = torch.full((50001,), float(i + group.rank), device=group.device)
        y = ct.all_reduce(x[1:], group)
        del x
        junk = [torch.full((50001,), 7.0, device=group.device) for _ in range(3)]
        sums.append(y.clone())
        del y, junk
    for i, one in enumerate(sums):
        equal(one, torch.full_like(one, group.size * i + sum(range(group.size))), i)


# --- refusals and failures -----------------------------------------------------------------------


class Wrapped:
    """A library's array, of which only the interface is known."""

    def __init__(self, tensor):
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__


def refuses():
    """What this rank can see alone, without an effect on the channel."""
    group = shared_group()
    channel, device = group.channel, group.device
    x, index = torch.ones(8, device=device), group.device.index
    for text, call in (
            (f"rank is on GPU {index}", lambda: channel.all_reduce(torch.ones(8))),
            (f"rank is on GPU {index}", lambda: channel.all_reduce(torch.ones(8).numpy())),
            (f"rank is on GPU {index}", lambda: channel.send(b"abc", 0)),
            ("with gaps", lambda: channel.all_reduce(x[::2])),
            ("all_reduce: ", lambda: channel.all_reduce(x.int())),
            ("all_reduce: ", lambda: channel.all_reduce(x.double())),
            ("129 calls", lambda: channel.batch([(x, 1 - min(group.rank, 1))] * 129)),
            ("is no stream", lambda: channel.barrier(stream="default"))):
        raises(errors.InvalidError, text, call)
    if rig.N_GPUS > 1:
        other = x.to(f"cuda:{(index + 1) % rig.N_GPUS}")
        raises(errors.InvalidError, f"rank is on GPU {index}", channel.all_reduce, other)
    channel.check()
    wrapped = torch.full((5,), 1.0 + group.rank, device=device)
    channel.all_reduce(Wrapped(wrapped))
    equal(wrapped, torch.full_like(wrapped, sum(range(1, group.size + 1))), "after refusals")


def own_channel(group, deadline_s=rig.patience(20.0)):
    """One that may end."""
    made = ceoverlap.Channel(group.context, f"own{len(_ended)}", deadline_s=deadline_s)
    _ended.append(made)
    group.exchange("made")
    return made.connect()


def found(channel):
    """The error that a queued call has met."""
    torch.cuda.synchronize()
    deadline = time.monotonic() + SOON_S
    while time.monotonic() < deadline:
        try:
            channel.check()
        except errors.CeoverlapError as error:
            return error
        time.sleep(0.01)
    raise AssertionError("nothing was found")


def ends(group, channel, kind, *texts):
    """The channel has ended by an error with these texts, and a later call raises it."""
    error = found(channel)
    assert type(error) is kind, error
    for text in texts:
        assert text in str(error), (text, error)
    raises(kind, texts[0] if texts else "", channel.barrier)
    group.exchange("ended")
    channel.close()


def differing(x):
    """Calls, and the names by which errors tell of them."""
    return (("all_reduce of fp32, sum", lambda channel: channel.all_reduce(x)),
            ("all_reduce of fp32, max", lambda channel: channel.all_reduce(x, "max")),
            ("all_reduce of bf16, sum", lambda channel: channel.all_reduce(x.bfloat16())),
            ("broadcast of fp32, root 0", lambda channel: channel.broadcast(x, 0)),
            ("barrier", lambda channel: channel.barrier()))


def one_differs():
    """The last rank makes another call than the others."""
    group = shared_group()
    calls = differing(torch.ones(12, device=group.device))
    last = group.size - 1
    for one, other in zip(calls, calls[1:] + calls[:1]):
        channel = own_channel(group)
        (other if group.rank == last else one)[1](channel)
        ends(group, channel, errors.InvalidError, one[0], other[0], f"rank {last} ")
    group.operators.check()


def counts_differ():
    """In calls of a group, which is at its end then."""
    group = Group(channel=True)
    n = 10 if group.rank == group.size - 1 else 100000
    ct.all_reduce(torch.ones(n, device=group.device), group)
    found(group.channel)
    raises(errors.InvalidError, "all_reduce of fp32", group.operators.check)
    raises(errors.InvalidError, "all_reduce of fp32", ct.all_reduce,
           torch.ones(n, device=group.device), group)
    dist.barrier()
    group.close()


def one_stays_away():
    group = shared_group()
    channel = own_channel(group, DEADLINE_S)
    last, x = group.size - 1, torch.ones(9, device=group.device)
    begun = time.monotonic()
    if group.rank == last:
        time.sleep(2 * DEADLINE_S)
        try:
            channel.all_reduce(x)
        except errors.CeoverlapError:   # or it is found later
            pass
        found(channel)
    else:
        channel.all_reduce(x)
        error = found(channel)
        assert time.monotonic() - begun < DEADLINE_S + SOON_S
        assert isinstance(error, errors.DeadlineError) and "rank" in str(error), error
    group.exchange("ended")
    channel.close()


def one_aborts():
    group = shared_group()
    channel, begun = own_channel(group), time.monotonic()
    if group.rank == 0:
        channel.abort()
    else:
        try:
            channel.barrier()
        except errors.AbortedError:     # rank 0 was faster
            pass
    ends(group, channel, errors.AbortedError)
    assert time.monotonic() - begun < rig.patience(10.0)


def asks():
    """What groups on GPUs have."""
    for how, has_one in (("auto", False), (False, False), (True, True)):
        group = Group(channel=how)
        assert (group.channel is not None) == has_one, (how, group.channel)
        equal(ct.all_reduce(torch.ones(40, device=group.device), group),
              torch.full((40,), float(group.size), device=group.device), how)
        torch.cuda.synchronize()
        dist.barrier()
        group.close()
    raises(errors.InvalidError, "must be the same", Group, channel=dist.get_rank() == 0)
    dist.barrier()


@rig.needs_gpus
@rig.needs_one_node
class OnGpus(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        if torch.cuda.get_device_capability(0) != (9, 0):
            raise unittest.SkipTest("needs GPUs of compute capability 9.0")

    def test_what_groups_ask_for(self):
        rig.run(asks)

    def test_random_calls(self):
        rig.run(plays, 1)

    def test_a_ring_that_goes_round(self):
        rig.run(plays_with_a_small_ring, 2)

    def test_two_streams(self):
        rig.run(follows)

    def test_graphs(self):
        rig.run(replays)

    def test_memory_is_freed_at_once(self):
        rig.run(frees_at_once)

    def test_what_is_refused(self):
        rig.run(refuses)

    def test_calls_differ(self):
        rig.run(one_differs)

    def test_counts_differ(self):
        rig.run(counts_differ)

    def test_a_rank_that_stays_away(self):
        rig.run(one_stays_away)

    def test_abort(self):
        rig.run(one_aborts)


if __name__ == "__main__":
    unittest.main()

