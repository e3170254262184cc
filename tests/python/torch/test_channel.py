# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The channel of a group of host ranks: calls of all kinds, shapes and dtypes against gloo's,
differing calls, and that no call makes or keeps anything, nor asks the store."""

import os
import random
import time
import unittest
from unittest import mock

import rig
import torch
import torch.distributed as dist
from rig import equal, raises

import ceoverlap
import ceoverlap.torch as ct
from ceoverlap import errors
from ceoverlap.torch import Group, operators
from ceoverlap.torch import group as group_module

SUMMED = (torch.bfloat16, torch.float16, torch.float32)
MORE_SUMMED = SUMMED + (torch.float64, torch.int8, torch.uint8, torch.int32, torch.int64)
MOVED = MORE_SUMMED + (torch.bool,)
UNKNOWN = (torch.int16, torch.uint16, torch.complex64, torch.float8_e4m3fn,
           torch.float8_e8m0fnu)
OPS = {"sum": dist.ReduceOp.SUM, "product": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN,
       "max": dist.ReduceOp.MAX}
N_CALLS = 150
GROWTH_KIB = 1024
needs_channels = unittest.skipIf(rig.HAS_GPUS or rig.N_NODES > 1, "channels are of host ranks")


class Draw:
    """What all ranks draw alike."""

    def __init__(self, group, tag):
        self.group, self.rank, self.size, self._tag = group, group.rank, group.size, tag
        self.random = random.Random(rig.SEED * 1009 + tag)

    def data(self, shape, dtypes, rank=None):
        """Small whole numbers of this rank, contiguous or not, aligned or not."""
        dtype = self.random.choice(dtypes)
        generator = torch.Generator().manual_seed(
            self.random.getrandbits(32) + (self.rank if rank is None else rank))
        made = torch.randint(0, 2 if dtype == torch.bool else 3, shape, generator=generator)
        if self.random.random() < 0.3:
            made = torch.stack([made, made], -1).to(dtype)[..., 0]
            return made
        room = torch.zeros(made.numel() + 3, dtype=dtype)[3:]
        return room.copy_(made.reshape(-1)).view(shape)

    def rows(self):
        if self.random.random() < 0.4:
            return [self.random.choice((0, 1, 5, 333))] * self.size
        return [self.random.choice((0, 1, 2, 9, 1200)) for _ in range(self.size)]

    def inner(self):
        return self.random.choice(((), (1,), (7,), (2, 3)))


# --- by ceoverlap.torch's functions -----------------------------------------------------------


def gathers(d):
    rows, inner = d.rows(), d.inner()
    x = d.data((rows[d.rank], *inner), MOVED)
    wanted = [torch.empty(n, *inner, dtype=x.dtype) for n in rows]
    for rank, one in enumerate(wanted):         # gloo's all_gather takes equal ones only
        if rank == d.rank:
            one.copy_(x)
        dist.broadcast(one, rank)
    equal(ct.all_gather(x, d.group, None if len(set(rows)) == 1 else rows), torch.cat(wanted),
          rows)


def scatters(d):
    rows = d.rows()
    x = d.data((sum(rows), *d.inner()), SUMMED)
    wanted = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(wanted)
    equal(ct.reduce_scatter(x, d.group, None if len(set(rows)) == 1 else rows),
          wanted.split(rows)[d.rank], rows)


def reduces(d):
    x = d.data(d.random.choice(((), (3,), (0,), (4, 0), (5, 1001), (70000,))), SUMMED)
    wanted = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(wanted)
    equal(ct.all_reduce(x, d.group), wanted, x.shape)


def exchanges(d):
    splits, inner = [d.rows() for _ in range(d.size)], d.inner()
    if d.random.random() < 0.3:
        splits = [[4] * d.size] * d.size
    x = d.data((sum(splits[d.rank]), *inner), MOVED)
    received = [row[d.rank] for row in splits]
    wanted = torch.empty(sum(received), *inner, dtype=x.dtype)
    dist.all_to_all_single(wanted, x.contiguous(), received, splits[d.rank])
    is_even = all(n == splits[0][0] for row in splits for n in row)
    equal(ct.all_to_all(x, d.group, None if is_even and d.random.random() < 0.5 else splits),
          wanted, splits)


def moves_what_is_unknown(d):
    """Dtypes that gloo does not know, some of which channels do not know either, by their bytes."""
    dtype = d.random.choice(UNKNOWN)
    parts = [d.data((24,), (torch.uint8,), rank).reshape(-1).clone().view(dtype)
             for rank in range(d.size)]
    whole = torch.cat([part.view(torch.uint8) for part in parts])
    equal(ct.all_gather(parts[d.rank], d.group).view(torch.uint8), whole, dtype)


# --- by the channel itself ------------------------------------------------------------------


def channel_sums(d):
    shape, dtypes = d.random.choice(((9,), (3, 5), (0,), (33333,))), MORE_SUMMED
    op, root = d.random.choice(list(OPS)), d.random.randrange(d.size)
    x = d.data(shape, dtypes).contiguous()
    wanted = x.clone()
    dist.all_reduce(wanted, OPS[op])
    got, at_root = x.clone(), x.clone()
    d.group.channel.all_reduce(got, OPS[op])
    equal(got, wanted, op)
    d.group.channel.reduce(at_root, root, op)
    equal(at_root, wanted if d.rank == root else x, (op, root))


def channel_moves(d):
    root, channel = d.random.randrange(d.size), d.group.channel
    x = d.data((6, 7), MOVED).contiguous()
    wanted = [torch.empty_like(x) for _ in range(d.size)]
    dist.all_gather(wanted, x)
    got = x.clone()
    channel.broadcast(got, root)
    equal(got, wanted[root], root)
    whole = torch.empty(6 * d.size, 7, dtype=x.dtype) if d.rank == root else None
    channel.gather(x, whole, root)
    if whole is not None:
        equal(whole, torch.cat(wanted), root)
    part = torch.empty_like(x)
    channel.scatter(part, whole, root)
    equal(part, x, root)


def channel_messages(d):
    right, left = (d.rank + 1) % d.size, (d.rank - 1) % d.size
    n = d.random.choice((0, 1, 100, 200000))
    x = d.data((n,), MOVED).contiguous()
    got, wanted = torch.empty_like(x), torch.empty_like(x)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, right),
                                        dist.P2POp(dist.irecv, wanted, left)]):
        work.wait()
    d.group.channel.batch([(x, right)], [(got, left)])
    equal(got, wanted, n)


def scales(d):
    """As FSDP2's gradients are: means by the channel, and what operators make."""
    scale, n = d.random.choice((1.0, 1 / d.size, 0.3)), d.random.choice((1, 40, 1001))
    dtype = d.random.choice((torch.bfloat16, torch.float32))
    parts = [d.data((d.size, n), (dtype,), rank) for rank in range(d.size)]
    total = parts[0][d.rank].float()
    for part in parts[1:]:
        total = total + part[d.rank].float()
    got = torch.empty(n, dtype=dtype)
    operators.reduce_scatter_into(d.group, parts[d.rank], [n] * d.size, got, scale)
    wanted = total / d.size if scale == 1 / d.size else total * scale
    equal(got, wanted.to(got.dtype), (scale, n))


CALLS = (gathers, scatters, reduces, exchanges, moves_what_is_unknown, channel_sums, channel_moves,
         channel_messages, scales)


def plays(tag):
    draw = Draw(Group.of(), tag)
    for i in range(N_CALLS):
        call = draw.random.choice(CALLS)
        try:
            call(draw)
        except AssertionError as error:
            raise AssertionError(f"call {i}, {call.__name__}: {error}") from error


# --- what a group has ------------------------------------------------------------------------


def has_a_channel():
    group = Group()
    assert isinstance(group.channel, ceoverlap.Channel) and group.channel.rank == group.rank
    group.channel.barrier()
    channel = group.channel
    dist.barrier()
    group.close()
    assert not channel.is_open


class Counted:
    """A store whose operations are counted."""

    def __init__(self, store):
        self._store, self.n = store, 0

    def __getattr__(self, name):
        self.n += 1
        return getattr(self._store, name)


def kib():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4


def one_shape(group, i):
    """Calls of shapes that i alone has."""
    dtype = SUMMED[i % 3]
    x = torch.ones(i % 1999, dtype=dtype)
    equal(ct.all_reduce(x, group), x * group.size, i)
    rows = [i % (7 + rank) for rank in range(group.size)]
    own = torch.full((rows[group.rank], 1 + i % 5), float(group.rank), dtype=dtype)
    whole = ct.all_gather(own, group, rows)
    mean = ct.reduce_scatter(whole, group, rows)
    equal(mean, own * group.size, i)
    splits = [[i % (3 + r + t) for t in range(group.size)] for r in range(group.size)]
    ct.all_to_all(torch.zeros(sum(splits[group.rank]), 3, dtype=torch.int16), group, splits)
    operators.reduce_scatter_into(group, whole, [n * own.shape[1] for n in rows], own,
                                  1 / group.size)


def makes_nothing():
    group = Group()
    for i in range(500):
        one_shape(group, i)
    group._store = counted = Counted(group._store)
    before = kib()
    for i in range(500, 1000):          # 2,500 calls
        one_shape(group, i)
    grown = kib() - before
    assert not counted.n, counted.n
    assert grown < GROWTH_KIB, grown
    assert not group.operators._made and not any(group.operators._workspaces.values())
    group.close()


def flags_at(address):
    """What the kernel was told of the memory in the middle of which the address lies."""
    flags, holds = [], False
    with open("/proc/self/smaps", encoding="ascii") as file:
        for line in file:
            first = line.split()[0]
            if not first.endswith(":"):
                begin, end = (int(one, 16) for one in first.split("-"))
                holds = begin <= address < end
            elif holds and first == "VmFlags:":
                flags = line.split()[1:]
    return flags


def large_pages():
    """Large results ask for large pages."""
    group = Group.of()
    x = torch.ones(group.size * 12345, 128)             # no multiple of a page
    for result in (ct.all_gather(x, group), ct.all_to_all(x, group),
                   ct.reduce_scatter(x, group), ct.all_reduce(x, group)):
        assert "hg" in flags_at(result.data_ptr() + result.nbytes // 2), result.shape


def differing():
    """Pairs of calls, and what the error says of them."""
    def x():
        return torch.ones(12, 2)

    return (
        ("all_reduce of fp32, sum", lambda g: ct.all_reduce(x(), g)),
        ("all_reduce of bf16, sum", lambda g: ct.all_reduce(x().bfloat16(), g)),
        ("all_gather of fp32", lambda g: ct.all_gather(x(), g)),
        ("all_gather of int32", lambda g: ct.all_gather(x().int(), g)),
        ("reduce_scatter of fp32, sum", lambda g: ct.reduce_scatter(x(), g)),
        ("all_to_all of fp32", lambda g: ct.all_to_all(x(), g)))


def one_differs(i, is_long):
    """The last rank makes another call than the others, or one of another size."""
    group = Group()
    one, other = differing()[i], differing()[(i + 1) % len(differing())]
    last = group.size - 1
    if is_long:
        one = " 400000 ", lambda g: ct.all_reduce(torch.ones(100000), g)
        other = " 40 ", lambda g: ct.all_reduce(torch.ones(10), g)
    call = (other if group.rank == last else one)[1]
    for _ in range(2):                  # again, as all that is called then
        try:
            call(group)
        except errors.InvalidError as error:
            for text in (one[0], other[0], f"rank {last} "):
                assert text in str(error), (text, error)
        else:
            raise AssertionError("nothing was raised")
    raises(errors.InvalidError, one[0], group.operators.check)
    dist.barrier()
    group.close()


def asks(how, text):
    """Group's argument `channel`; how: of each rank."""
    rank = dist.get_rank()
    if text:
        raises(errors.InvalidError, text, Group, channel=how[rank % len(how)])
        dist.barrier()
        return
    group = Group(channel=how[rank % len(how)])
    x = torch.arange(40.0) + rank
    wanted = x.clone()
    dist.all_reduce(wanted)
    equal(ct.all_reduce(x, group), wanted, how)
    assert (group.channel is not None) == (how[0] is not False), group.channel
    dist.barrier()
    group.close()


def is_refused(at, asked):
    """One rank can have no channel. All go on without, or raise the reason where one is a must."""
    rank = dist.get_rank()
    kind = type("Refused", (), {"__init__": refuse}) if rank == at else ceoverlap.Channel
    with rig.logged() as kept, mock.patch.object(group_module, "Channel", kind):
        if asked is True:
            raises(errors.InvalidError, "no channel: for a test", Group, channel=True)
            return
        group = Group()
    assert group.channel is None
    said = [line for line in kept.lines() if "it has no channel" in line]
    assert len(said) == (rank == 0) and all("for a test" in line for line in said), said
    equal(ct.all_reduce(torch.ones(40), group), torch.full((40,), float(group.size)), at)
    dist.barrier()
    group.close()


def is_refused_at_the_end(at):
    """One rank's GPU has no link to a peer's, for one, which is found when they connect."""
    kind = ceoverlap.Channel
    if dist.get_rank() == at:
        kind = type("Alone", (kind,), {"connect": refuse})
    with mock.patch.object(group_module, "Channel", kind):
        group = Group()
    assert group.channel is None and "for a test" in group.why_no_channel, group.why_no_channel
    equal(ct.all_reduce(torch.ones(40), group), torch.full((40,), float(group.size)), at)
    dist.barrier()
    group.close()


def refuse(*_):
    raise errors.InvalidError("for a test")


def exchanges_evenly():
    """All-to-alls of equal parts, with and without numbers of rows, and of none."""
    group = Group()
    n, rank = group.size, group.rank
    for rows in (0, 1, 700):
        xs = [rig.integers(rows, r, (n * rows, 3)) for r in range(n)]
        wanted = torch.cat([x.split(rows)[rank] if rows else x for x in xs])
        for splits in (None, [[rows] * n] * n):
            equal(ct.all_to_all(xs[rank], group, splits), wanted, (rows, splits))
    dist.barrier()
    group.close()


def closes_at_once(late):
    """A group is made at all ranks, even if one is late to connect and the others close it."""
    connect = ceoverlap.Channel.connect

    def connect_late(self, deadline_s):
        if dist.get_rank() == late:
            time.sleep(0.3)
        return connect(self, deadline_s)

    ceoverlap.Channel.connect = connect_late
    try:
        Group().close()
    finally:
        ceoverlap.Channel.connect = connect
    dist.barrier()


@needs_channels
class OfGroups(unittest.TestCase):

    def test_random_calls(self):
        for tag in range(2):
            rig.run(plays, tag)

    def test_random_calls_of_two(self):
        world = rig.World(2)
        try:
            world.run(plays, 7)
            world.run(makes_nothing)
            world.close()
        finally:
            if world.is_open:
                world.kill()

    def test_a_rank_that_closes_at_once(self):
        for late in (0, 1):
            rig.run(closes_at_once, late)

    def test_it_is_made_and_closed(self):
        rig.run(has_a_channel)

    def test_what_groups_ask_for(self):
        for how, text in ((["auto"], ""), ([True], ""), ([False], ""), (["yes"], "must be"),
                          ([None], "must be"), ([True, False], "must be the same")):
            rig.run(asks, how, text)

    def test_a_rank_that_can_have_none(self):
        for at in (0, rig.SIZE - 1):
            for asked in ("auto", True):
                rig.run(is_refused, at, asked)
            rig.run(is_refused_at_the_end, at)

    def test_nothing_is_made(self):
        rig.run(makes_nothing)

    @unittest.skipUnless(os.path.exists("/sys/kernel/mm/transparent_hugepage"),
                         "this kernel has no large pages")
    def test_large_results(self):
        rig.run(large_pages)

    def test_equal_parts(self):
        rig.run(exchanges_evenly)

    def test_calls_differ(self):
        for i in range(len(differing())):
            rig.run(one_differs, i, False)
        rig.run(one_differs, 0, True)


if __name__ == "__main__":
    unittest.main()
