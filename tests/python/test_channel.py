# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Channels: all kinds of calls against NumPy, ranks as threads and as processes; what is refused,
and what ends a channel."""

import array
import ctypes
import mmap
import os
import random
import threading
import time
import unittest
from unittest import mock

import numpy as np

import ceoverlap
from ceoverlap import Channel, _abi, _operands, channel
from rig import Case, in_processes, in_threads, until

SEED = int(os.environ.get("CEOVERLAP_TEST_SEED") or random.getrandbits(32))
SUMMED = ("float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64")
MOVED = SUMMED + ("uint16", "uint32", "uint64", "bool", "complex64", "complex128")
OPS = {"sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum}
N_CALLS = 80
LONG_S = 60                             # no wait of these tests lasts as long


def reduced(op, parts):
    """As the library does it: of small whole numbers every sum is exact."""
    if op == "mean":
        wide = np.float64 if parts[0].dtype == np.float64 else np.float32
        return (sum(part.astype(wide) for part in parts) / wide(len(parts))).astype(
            parts[0].dtype)
    total = parts[0]
    for part in parts[1:]:
        total = OPS[op](total, part)
    return total


class Draw:
    """What all ranks draw alike."""

    def __init__(self, seed, n_ranks):
        self.random, self.n = random.Random(seed), n_ranks

    def count(self):
        """Few items, none, some; enough that a ring of 64 KiB goes round."""
        return self.random.choice((0, 1, 2, 7, 64, 257, 5000, 70001))

    def rows(self):
        return [self.random.choice((0, 1, 3, 50, 9000)) for _ in range(self.n)]

    def data(self, counts, dtypes, columns=0):
        """An array of each rank, whose items are small whole numbers, and begin anywhere."""
        dtype = np.dtype(self.random.choice(dtypes))
        made = []
        for n in counts:
            shape = (n, columns) if columns else (n,)
            size = n * max(columns, 1)
            generator = np.random.default_rng(self.random.getrandbits(32))
            room = np.zeros(size * dtype.itemsize + 3, np.uint8)
            at = self.random.randrange(4)
            made.append(room[at:at + size * dtype.itemsize].view(dtype).reshape(shape))
            made[-1][...] = generator.integers(0, 2 if dtype == bool else 4, shape)
        return made


def same(got, wanted, what):
    np.testing.assert_array_equal(got, wanted, err_msg=str(what))


# --- calls: each draws its arguments, makes the call, and compares -------------------------------


def all_gather(d, ch, r):
    rows = d.rows() if d.random.random() < 0.5 else [d.count()] * d.n
    parts = d.data(rows, MOVED, d.random.choice((0, 1, 3)))
    whole = np.concatenate(parts)
    output, own = np.zeros_like(whole), parts[r]
    if d.random.random() < 0.3:         # in place
        own = output[sum(rows[:r]):sum(rows[:r + 1])]
        own[...] = parts[r]
    ch.all_gather(output, own, rows if len(set(rows)) > 1 else None)
    same(output, whole, rows)


def reduce_scatter(d, ch, r):
    rows = d.rows() if d.random.random() < 0.5 else [d.count()] * d.n
    inputs = d.data([sum(rows)] * d.n, SUMMED, d.random.choice((0, 2)))
    op = d.random.choice(list(OPS))
    at = slice(sum(rows[:r]), sum(rows[:r + 1]))
    output = np.zeros_like(inputs[r][at])
    ch.reduce_scatter(output, inputs[r], op, rows if len(set(rows)) > 1 else None)
    same(output, reduced(op, inputs)[at], (op, rows))


def all_reduce(d, ch, r):
    parts = d.data([d.count()] * d.n, SUMMED)
    op = d.random.choice(list(OPS) + ["mean"] * (parts[0].dtype.kind == "f"))
    wanted, own = reduced(op, parts), parts[r].copy()
    if d.random.random() < 0.5:
        ch.all_reduce(own, op)
        same(own, wanted, op)
    else:
        output = np.zeros_like(own)
        ch.all_reduce(own, op, output)
        same(output, wanted, op)
        same(own, parts[r], "unchanged")


def all_to_all(d, ch, r):
    n = d.random.choice((0, 1, 5, 3000))
    splits = ([d.rows() for _ in range(d.n)] if d.random.random() < 0.6 else
              [[n] * d.n for _ in range(d.n)])
    inputs = d.data([sum(row) for row in splits], MOVED, d.random.choice((0, 2)))
    wanted = np.concatenate([np.split(one, np.cumsum(row)[:-1])[r]
                             for one, row in zip(inputs, splits)])
    output = np.zeros_like(wanted)
    is_even = all(row == splits[0] and len(set(row)) == 1 for row in splits)
    ch.all_to_all(output, inputs[r], *(() if is_even else (
        [row[r] for row in splits], splits[r])))
    same(output, wanted, splits)


def broadcast(d, ch, r):
    root = d.random.randrange(d.n)
    parts = d.data([d.count()] * d.n, MOVED)
    own = parts[r].copy()
    ch.broadcast(own, root)
    same(own, parts[root], root)


def gather(d, ch, r):
    root = d.random.randrange(d.n)
    rows = d.rows() if d.random.random() < 0.5 else [d.count()] * d.n
    parts = d.data(rows, MOVED)
    if r != root:
        ch.gather(parts[r], dst=root)
        return
    output = np.zeros_like(np.concatenate(parts))
    ch.gather(parts[r], output, root, rows if len(set(rows)) > 1 else None)
    same(output, np.concatenate(parts), rows)


def scatter(d, ch, r):
    root = d.random.randrange(d.n)
    rows = d.rows() if d.random.random() < 0.5 else [d.count()] * d.n
    whole, = d.data([sum(rows)], MOVED)
    wanted = whole[sum(rows[:r]):sum(rows[:r + 1])]
    output = np.zeros_like(wanted)
    if r == root:
        ch.scatter(output, whole, root, rows if len(set(rows)) > 1 else None)
    else:
        ch.scatter(output, src=root)
    same(output, wanted, rows)


def reduce(d, ch, r):
    root, op = d.random.randrange(d.n), d.random.choice(list(OPS))
    parts, in_place = d.data([d.count()] * d.n, SUMMED), d.random.random() < 0.5
    own = parts[r].copy()
    output = np.zeros_like(own) if r == root and not in_place else None
    ch.reduce(own, root, op, output)
    same(own, reduced(op, parts) if r == root and in_place else parts[r], (op, root))
    if output is not None:
        same(output, reduced(op, parts), (op, root))


def barrier(_d, ch, _r):
    ch.barrier()


def messages(d, ch, r):
    """A message from each rank to each other one, in one batch or around a ring."""
    counts = [[d.count() for _ in range(d.n)] for _ in range(d.n)]
    sent = [d.data(row, MOVED) for row in counts]
    got = [np.zeros_like(sent[peer][r]) for peer in range(d.n)]
    peers = [peer for peer in range(d.n) if peer != r]
    if d.random.random() < 0.5:
        ch.batch([(sent[r][peer], peer) for peer in peers],
                 [(got[peer], peer) for peer in peers])
    else:
        for first in range(d.n):
            for second in range(d.n):
                if first != second and r == first:
                    ch.send(sent[r][second], second)
                elif first != second and r == second:
                    ch.receive(got[first], first)
    for peer in peers:
        same(got[peer], sent[peer][r], peer)


KINDS = (all_gather, reduce_scatter, all_reduce, all_to_all, broadcast, gather, scatter, reduce,
         barrier, messages)


def play(ch, r, n, seed, n_calls=N_CALLS):
    draw = Draw(seed, n)
    for _ in range(n_calls):
        kind = draw.random.choice(KINDS)
        kind(draw, ch, r)


class Channels(Case):
    def make(self, n=2, **options):
        context = self.host(n)
        return [Channel(context, "tests", rank, **options) for rank in range(n)]

    def connected(self, n=2, **options):
        channels = self.make(n, **options)
        for one in channels:
            one.connect()
        return channels

    def test_what_is_packed(self):
        self.assertEqual(channel.PACKED.size, ctypes.sizeof(_abi.ceov_call))
        lists = channel.counts([1, 2]), channel.counts([3, 4])
        made = _abi.ceov_call.from_buffer_copy(channel.packed(
            4, 5, 6, 7, 8, reduction=9, root=10, sends=lists[0], receives=lists[1], stream=11))
        self.assertEqual([getattr(made, name) for name in (
            "struct_bytes", "kind", "dtype", "source", "target", "count", "reduction", "root",
            "stream")], [ctypes.sizeof(made), 4, 5, 6, 7, 8, 9, 10, 11])
        self.assertEqual((made.sends[1], made.receives[0]), (2, 3))

    def test_random_calls(self):
        for n in (1, 2, 3):
            with self.subTest(n=n, CEOVERLAP_TEST_SEED=SEED):
                channels = self.connected(n, ring_bytes=64 << 10)
                in_threads(n, lambda r: play(channels[r], r, n, SEED + n))

    def test_names_and_facts(self):
        first, second = self.connected()
        self.assertEqual((first.name, first.rank, second.rank), ("tests", 0, 1))
        self.assertIn("rank 0", first.explain())
        self.assertIn("all_reduce of fp32", first.explain("all_reduce", np.zeros(4, np.float32)))
        first.check()
        first.close()
        self.assertFalse(first.is_open)
        with self.assertRaises(ceoverlap.StateError):
            first.barrier()

    def test_what_has_the_buffer_protocol(self):
        channels = self.connected()
        mapped = mmap.mmap(-1, 5)
        mapped[:] = b"abcde"
        sources = (b"abcde", bytearray(b"abcde"), memoryview(b"abcde"), mapped,
                   memoryview(bytearray(b"xabcdex"))[1:6], np.frombuffer(b"abcde", np.uint8))
        targets = [bytearray(5), array.array("B", bytes(5)), memoryview(bytearray(5)),
                   np.zeros(5, np.uint8)]

        def body(r):
            for source in sources:
                for target in targets:
                    if r:
                        channels[r].receive(target, 0)
                        self.assertEqual(bytes(target), b"abcde")
                    else:
                        channels[r].send(source, 1)
            sums = array.array("d", [1.5, r])
            channels[r].all_reduce(sums, "avg")
            self.assertEqual(list(sums), [1.5, 0.5])
            numbers = array.array("l", [1 << 40, r])
            channels[r].all_reduce(numbers, "max")
            self.assertEqual(list(numbers), [1 << 40, 1])
            channels[r].send(b"", 1 - r)
            channels[r].receive(bytearray(), 1 - r)
            channels[r].batch()

        in_threads(2, body)

    def test_what_is_refused(self):
        """At this rank alone, and nothing has happened."""
        one, other = self.connected()
        floats, read_only = np.zeros(4, np.float32), np.zeros(4, np.float32)
        read_only.flags.writeable = False
        for text, call in (
                ("with gaps", lambda: one.all_reduce(floats[::2])),
                ("ascontiguousarray", lambda: one.all_reduce(np.zeros((4, 4))[:, 1])),
                ("read-only", lambda: one.all_reduce(read_only)),
                ("read-only", lambda: one.receive(b"abc", 1)),
                ("gaps", lambda: one.send(memoryview(b"abcd")[::2], 1)),
                ("uint8", lambda: one.send(np.zeros(2, "datetime64[s]"), 1)),
                ("dtype", lambda: one.send(np.zeros(2, ">f4"), 1)),
                ("give an array", lambda: one.all_reduce([1.0])),
                ("give an array", lambda: one.all_reduce(1.0)),
                ("must be the same", lambda: one.all_gather(np.zeros(8), floats)),
                ("must have 2", lambda: one.all_gather(np.zeros(7, np.float32), floats)),
                ("with sum 8", lambda: one.all_gather(np.zeros(8, np.float32), floats, [4, 3])),
                ("for rank 0", lambda: one.all_gather(np.zeros(8, np.float32), floats, [5, 3])),
                ("equal parts", lambda: one.all_to_all(np.zeros(3), np.zeros(3))),
                ("must be one of sum", lambda: one.all_reduce(floats, "median")),
                ("not added up", lambda: one.all_reduce(np.zeros(4, bool))),
                ("not added up", lambda: one.all_reduce(np.zeros(4, int), "mean")),
                ("dst", lambda: one.send(floats, 2)),
                ("src", lambda: one.broadcast(floats, -1)),
                ("lacks it", lambda: one.gather(floats)),
                ("has one", lambda: other.gather(floats, np.zeros(8, np.float32))),
                ("lacks it", lambda: one.scatter(floats)),
                ("overlap", lambda: one.all_reduce(floats[:3], output=floats[1:])),
                ("as many", lambda: one.all_reduce(floats, output=floats[1:])),
                ("calls; 1 to", lambda: one.batch([(floats, 1)] * 1025))):
            with self.subTest(text=text), self.assertRaisesRegex(ceoverlap.InvalidError, text):
                call()
        with self.assertRaises(TypeError):
            one.send(floats, "1")
        values = [np.ones(3), np.ones(3)]
        in_threads(2, lambda r: (one, other)[r].all_reduce(values[r]))
        same(values, np.full((2, 3), 2.0), "after refusals")

    def test_creation_that_is_refused(self):
        context = self.host(2)
        for options in ({"ring_bytes": 5}, {"ring_bytes": -1}, {"deadline_s": -1.0}):
            with self.assertRaises(ceoverlap.InvalidError):
                Channel(context, "refused", **options)
        for name in ("", "x" * 41, "a\0b"):
            with self.assertRaises(ceoverlap.InvalidError):
                Channel(context, name)
        alone = Channel(context, "alone", 0)
        with self.assertRaises(ceoverlap.PendingError):
            alone.connect(0.05)
        with self.assertRaises(ceoverlap.StateError):
            alone.barrier()
        Channel(context, "alone", 1, ring_bytes=1 << 20 << 1)
        with self.assertRaisesRegex(ceoverlap.InvalidError, "same ring_bytes"):
            alone.connect()

    def test_a_pool_of_a_host_rank_is_refused(self):
        one, other = self.connected()
        for make in (one.make_pool, lambda: ceoverlap.Pool(one, 1 << 20)):
            with self.assertRaisesRegex(ceoverlap.InvalidError, "on the host"):
                make()
        with self.assertRaises(ValueError):
            ceoverlap.Pool(one, -1)
        self.assertIsNone(one.pool)
        in_threads(2, lambda r: (one, other)[r].barrier())      # it goes on
        one.close()
        with self.assertRaisesRegex(ceoverlap.StateError, "closed"):
            one.make_pool()

    def test_memory_of_a_pool(self):
        memory = ceoverlap.PoolMemory(0x200000, 96)
        self.assertEqual(memory.__cuda_array_interface__["data"], (0x200000, False))
        self.assertEqual(ceoverlap.memory_of(memory).size_bytes, 96)
        self.assertTrue(ceoverlap.memory_of(memory).is_gpu)
        memory._is_free = True
        with self.assertRaisesRegex(ceoverlap.StateError, "given back"):
            memory.__cuda_array_interface__

    def both_raise(self, kind, *calls):
        """Makes a call at each rank: all raise this kind of error, and raise it again."""
        channels = self.connected(len(calls))

        def body(r):
            with self.assertRaises(kind) as first:
                calls[r](channels[r])
            with self.assertRaises(kind) as second:
                channels[r].barrier()
            self.assertEqual(str(first.exception), str(second.exception))
            with self.assertRaises(kind):
                channels[r].check()
            return str(first.exception)

        return in_threads(len(calls), body)

    def test_calls_that_differ(self):
        x, y = np.zeros(6, np.float32), np.zeros(12, np.float32)
        calls = {"all_reduce of fp32, sum": lambda ch: ch.all_reduce(x.copy()),
                 "all_reduce of fp32, max": lambda ch: ch.all_reduce(x.copy(), "max"),
                 "all_reduce of int32, sum": lambda ch: ch.all_reduce(np.zeros(6, np.int32)),
                 "broadcast of fp32, root 1": lambda ch: ch.broadcast(x.copy(), 1),
                 "broadcast of fp32, root 0": lambda ch: ch.broadcast(x.copy(), 0),
                 "all_gather of fp32": lambda ch: ch.all_gather(y.copy(), x.copy()),
                 "barrier": lambda ch: ch.barrier()}
        names = list(calls)
        for a, b in zip(names, names[1:] + names[:1]):
            with self.subTest(a=a, b=b):
                for text in self.both_raise(ceoverlap.InvalidError, calls[a], calls[b]):
                    self.assertIn(a, text)
                    self.assertIn(b, text)

    def test_a_split_that_differs(self):
        def exchange(output, input):
            return lambda ch: ch.all_to_all(np.zeros(sum(output)), np.zeros(sum(input)), output,
                                            input)

        for text in self.both_raise(ceoverlap.InvalidError, exchange([1, 2], [1, 3]),
                                    exchange([4, 1], [2, 1])):
            self.assertRegex(text, "gives (rank 1 )?24 (bytes )?and expects 16")
            self.assertRegex(text, "gives (rank 0 )?16 (bytes )?and expects 32")

    def test_a_message_that_differs(self):
        one, other = self.connected()
        one.send(np.zeros(3, np.int16), 1)
        with self.assertRaisesRegex(ceoverlap.InvalidError, "rank 0 sends rank 1 6 bytes.*8"):
            other.receive(np.zeros(4, np.int16), 0)

    def test_a_rank_that_does_not_come(self):
        one, _ = self.connected(deadline_s=0.2)
        started = time.monotonic()
        with self.assertRaisesRegex(ceoverlap.DeadlineError, "rank 1 has not made this call"):
            one.barrier()
        self.assertGreaterEqual(time.monotonic() - started, 0.2)

    def test_abort_and_close_end_calls_under_way(self):
        for way in ("abort", "close"):
            with self.subTest(way=way):
                channels = self.connected()
                done = []

                def wait():
                    try:
                        channels[0].all_reduce(np.zeros(4))
                    except ceoverlap.AbortedError as error:
                        done.append(error)

                thread = threading.Thread(target=wait, daemon=True)
                thread.start()
                self.assertTrue(until(lambda: channels[0]._under_way))
                getattr(channels[0], way)()
                thread.join(LONG_S)
                self.assertEqual(len(done), 1)
                with self.assertRaises(ceoverlap.AbortedError):
                    channels[1].all_reduce(np.zeros(4))


class OnGpu:
    """What a GPU's libraries have, as far as operands are looked at."""

    def __init__(self, shape=(4,), typestr="<f4", **interface):
        self.shape = shape
        self.__cuda_array_interface__ = {"version": 3, "shape": shape, "typestr": typestr,
                                         "data": (0x7000, False), **interface}


class OnGpu1(OnGpu):
    """One that tells which GPU."""

    def __dlpack_device__(self):
        return 2, 1


class Recorded(channel._Calls):
    """The calls of rank 1 of 2, on GPU 1, that would be made."""

    _rank, _n_ranks, _gpu = 1, 2, 1

    def _make(self, calls, n=1):
        return [_abi.ceov_call.from_buffer_copy(calls, i * len(calls) // n) for i in range(n)]


class Gpus(Case):
    """What can be told of ranks on GPUs without one."""

    def test_operands(self):
        for of in (OnGpu((2, 3)), OnGpu1((2, 3)), OnGpu((2, 3), strides=(12, 4))):
            self.assertEqual(_operands.operand(of, True, 1)[:3], (0x7000, 6, _abi.CEOV_FP32))
        read_only = OnGpu(data=(0x7000, True))
        self.assertEqual(_operands.operand(read_only, False, 0).address, 0x7000)
        self.assertEqual(_operands.operand(OnGpu((0,), data=(0, False)), True, 0).n_items, 0)
        half = OnGpu(typestr="<V2")
        half.dtype = "bfloat16"
        self.assertEqual(_operands.operand(half, True, 0).dtype, _abi.CEOV_BF16)

    def test_operands_that_are_refused(self):
        host = "rank is on the host: pass host memory"
        here = r"rank is on GPU 0: pass a tensor that is there \(tensor.to\("
        for of, gpu, text in (
                (OnGpu(), None, "OnGpu on a GPU: .*" + host),
                (OnGpu1(), None, "OnGpu1 on GPU 1: .*" + host),
                (OnGpu1(), 0, "OnGpu1 on GPU 1: .*" + here),
                (np.zeros(4), 0, "array in host memory: .*" + here),
                (bytearray(4), 0, "bytearray in host memory: .*" + here),
                (b"abcd", 0, "bytes in host memory: .*" + here),
                (OnGpu(strides=(8,)), 0, "with gaps"),
                (OnGpu(data=(0x7000, True)), 0, "read-only"),
                (OnGpu(typestr="<M8"), 0, "do not know the dtype"),
                (5, 0, "give an array")):
            with self.subTest(text=text), self.assertRaisesRegex(ceoverlap.InvalidError, text):
                _operands.operand(of, True, gpu)
        context = self.host(1)
        one = Channel(context, "host").connect()
        with self.assertRaisesRegex(ceoverlap.InvalidError, host):
            one.all_reduce(OnGpu())
        one.barrier()

    def test_streams(self):
        class Torch:
            cuda_stream = 0x55

        class CuPy:
            ptr = 0x66

        class Core:
            def __cuda_stream__(self):
                return 0, 0x77

        calls = Recorded()
        for stream, handle in ((None, 0), (0, 0), (1, 1), (Torch(), 0x55), (CuPy(), 0x66),
                               (Core(), 0x77), (2 ** 64 - 1, 2 ** 64 - 1)):
            self.assertEqual(calls.barrier(stream=stream)[0].stream or 0, handle)
        for stream, text in ((-1, "-1 is not a number from 0"), (2 ** 64, "is not a number"),
                             ("1", "a str is no stream"), (1.5, "a float is no stream"),
                             (object(), "a object is no stream: pass an integer, or an object")):
            with self.assertRaisesRegex(ceoverlap.InvalidError, text):
                calls.barrier(stream=stream)
        one = Channel(self.host(1), "host").connect()
        with self.assertRaisesRegex(ceoverlap.InvalidError, "rank is on the host.*pass none"):
            one.barrier(stream=1)
        one.barrier()

    def test_every_call_has_the_stream(self):
        calls, x, y = Recorded(), OnGpu((4,)), OnGpu((8,), data=(0x8000, False))
        made = [calls.all_gather(y, x, stream=9), calls.all_gather(y, x, [4, 4], stream=9),
                calls.all_to_all(x, x, stream=9), calls.all_to_all(y, y, [1, 7], [4, 4], stream=9),
                calls.broadcast(x, stream=9), calls.gather(x, stream=9),
                calls.scatter(x, y, 1, stream=9), calls.all_reduce(x, "max", stream=9),
                calls.reduce_scatter(x, y, stream=9), calls.reduce(x, stream=9),
                calls.barrier(stream=9), calls.send(x, 0, stream=9),
                calls.receive(x, 0, stream=9), calls.batch([(x, 0)], [(y, 0)], stream=9)]
        self.assertEqual({call.kind for one in made for call in one}, set(range(1, 12)))
        self.assertEqual([call.stream for one in made for call in one], [9] * 15)

    def test_a_failure_that_is_found_later(self):
        """On a GPU: by a call that writes no lines, while the library has the failure."""
        context = self.host(1)
        one = Channel(context, "found").connect()
        one._gpu = 0
        struct = _abi.ceov_failure()
        struct.error, struct.text = _abi.CEOV_ERR_INVALID, b"rank 0 calls this and rank 1 that"
        failures = [ceoverlap.errors.Failure(struct)]
        with mock.patch.object(context, "last_failure", lambda: failures.pop() if failures else
                               None):
            found = one._failed(_abi.CEOV_ERR_INVALID, [])
            again = one._failed(_abi.CEOV_ERR_INVALID, [])
        for error in (found, again):
            self.assertIsInstance(error, ceoverlap.InvalidError)
            self.assertIn("rank 0 calls this and rank 1 that", str(error))


HEAD = f"""
import os, sys, time
import numpy as np
import ceoverlap, test_channel
context = ceoverlap.Context(deadline_s=20)
r, n = context.rank, context.n_ranks
channel = ceoverlap.Channel(context, "tests").connect()
SEED = {SEED}
"""


class Processes(unittest.TestCase):
    def run_ranks(self, n, program, statuses=None):
        done = in_processes(n, HEAD + program)
        self.assertEqual([status for status, _ in done], statuses or [0] * n,
                         "\n".join(text for _, text in done))
        return [text for _, text in done]

    def test_random_calls(self):
        """On the main thread, whose calls are watched for signals."""
        for n in (2, 3):
            with self.subTest(n=n, CEOVERLAP_TEST_SEED=SEED):
                self.run_ranks(n, """
test_channel.play(channel, r, n, SEED, 150)
context.barrier()
""")

    def test_nothing_is_kept(self):
        """However many shapes there are."""
        self.run_ranks(2, """
def kib():
    return int(open("/proc/self/statm").read().split()[1]) * 4
def call(i):
    x = np.zeros(i % 977, ("f4", "f8", "i4", "u1")[i % 4])
    channel.all_reduce(x)
    channel.all_gather(np.zeros((2 * len(x), 2), x.dtype), np.zeros((len(x), 2), x.dtype))
    channel.all_to_all(np.zeros(i, "i2"), np.zeros(i, "i2"), [0, i] if r else [i, 0],
                       [0, i] if r else [i, 0])
for i in range(2000):
    call(i)
before = kib()
for i in range(2000):
    call(2000 + i)
assert kib() - before < 256, (before, kib())
context.barrier()
""")

    def test_a_rank_that_dies(self):
        said = self.run_ranks(3, """
channel.barrier()
context.barrier()
channel.all_reduce(np.zeros(1))                 # who has made it has left the barrier
if r == 1:
    os._exit(7)
started = time.monotonic()
try:
    while True:
        channel.all_reduce(np.zeros(100000))
except ceoverlap.PeerLostError as error:
    print(error)
assert time.monotonic() - started < 10
""", [0, 7, 0])
        self.assertIn("rank 1 has gone", said[0] + said[2])
        for text in (said[0], said[2]):         # or of the rank that has seen it first
            self.assertRegex(text, "rank 1 has gone|has ended the channel")

    def test_after_fork(self):
        """A child has no thread that watches for signals, and makes its own."""
        self.run_ranks(2, """
channel.barrier()
context.close()
pid = os.fork()
group = os.environ["CEOVERLAP_GROUP"] + ".again"
if not pid:
    with ceoverlap.Context(r, n, "host", group, deadline_s=20) as context:
        ceoverlap.Channel(context, "again").connect().barrier()
        context.barrier()
    os._exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
""")


if __name__ == "__main__":
    unittest.main()
