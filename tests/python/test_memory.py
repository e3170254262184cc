# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""memory_of(): what it takes, what it refuses, and what it keeps alive."""

import array
import contextlib
import ctypes
import glob
import mmap
import os
import re
import sys
import unittest
import unittest.mock

import numpy as np
import rig

import ceoverlap
from ceoverlap import memory_of


class OnlyDLPack:
    """A NumPy array of which only DLPack is to be seen."""

    def __init__(self, values):
        self.values = values

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()

    def __dlpack__(self, stream=None):
        return self.values.__dlpack__()


class OnGpu:
    """Says that it has GPU memory; nobody looks there."""

    def __init__(self, **changes):
        self.interface = {"version": 3, "shape": (4, 8), "typestr": "<f2", "strides": None,
                          "data": (0x7F0000000000, False), **changes}

    @property
    def __cuda_array_interface__(self):
        return self.interface


class Reluctant:
    """Like a tensor that has an array interface for some of its kinds only."""

    def __init__(self, values):
        self.values = values

    @property
    def __cuda_array_interface__(self):
        raise TypeError("not for this kind")

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, stream=None):
        return self.values.__dlpack__()


class Arrays(unittest.TestCase):
    """Buffers as NumPy takes them."""

    def test_asarray(self):
        with ceoverlap.Context(0, 1, "host") as context:
            buffer = context.allocate(64)
            whole = np.asarray(buffer)
            self.assertEqual((whole.dtype, whole.shape), (np.uint8, (64,)))
            whole[:] = range(64)
            np.testing.assert_array_equal(buffer.view(), whole)
            copy = np.array(buffer, copy=True)
            whole[0] = 7
            self.assertEqual((copy[0], np.asarray(buffer, np.float32)[0]), (0, 7.0))
            with self.assertRaises(ceoverlap.InvalidError):
                np.asarray(context.floating(64))

    def test_memoryview(self):
        with ceoverlap.Context(0, 1, "host") as context:
            buffer = context.allocate(64)
            if sys.version_info >= (3, 12):     # older ones ask no class written in Python
                memoryview(buffer)[3] = 5
            else:
                with self.assertRaisesRegex(TypeError, "bytes-like"):
                    memoryview(buffer)
                buffer.__buffer__(0)[3] = 5
            self.assertEqual(buffer.view()[3], 5)

    def test_dlpack(self):
        takers = [np.from_dlpack]
        with contextlib.suppress(ImportError, AttributeError):  # or the tests' folder of that name
            import torch

            takers.append(torch.from_dlpack)
        with ceoverlap.Context(0, 1, "host") as context:
            buffer = context.allocate(64)
            self.assertEqual(buffer.__dlpack_device__(), (1, 0))
            for take in takers:
                with self.subTest(take.__module__):
                    buffer.view()[:] = range(64)
                    taken = take(buffer)
                    self.assertEqual(tuple(taken.shape), (64,))
                    self.assertEqual([int(one) for one in taken], list(range(64)))
                    buffer.view()[5] = 77       # it is no copy
                    self.assertEqual(int(taken[5]), 77)
                    self.assertFalse(buffer.release())      # the taker may still read it
                    del taken
            self.assertTrue(buffer.release())

    def test_refusals(self):
        """What has no bytes that this process may touch says so, however it is asked."""
        asked = [lambda buffer: buffer.view(), np.asarray, np.from_dlpack, memory_of,
                 lambda buffer: buffer.__buffer__(0)]
        with ceoverlap.Context((0, 1), 2, "host") as context:
            on_gpu, closed = context.allocate(64), context.allocate(64)
            closed.close()
            context.allocate(64, 1).share("theirs")
            found = context.find_buffer(1, "theirs")
            for ask in asked:
                with self.assertRaisesRegex(ceoverlap.StateError, "this Buffer is closed"):
                    ask(closed)
                with self.assertRaisesRegex(ceoverlap.InvalidError, "found here"):
                    ask(found)
                with self.assertRaisesRegex(ceoverlap.InvalidError, "floating buffer"):
                    ask(context.floating(64))
                with unittest.mock.patch.object(
                        context, "place", return_value=ceoverlap.Place("gpu", 3)):
                    with self.assertRaisesRegex(ceoverlap.InvalidError, "on GPU 3, whose memory"):
                        ask(on_gpu)


def messages_in(path):
    """The texts in a C file, without comments; neighbouring literals are one text."""
    with open(path, encoding="utf-8") as file:
        source = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL)
    literal = r'"((?:[^"\\\n]|\\.)*)"'
    for found in re.finditer(rf"(?:{literal}\s*(?:PRI\w+\s*)?)+", source):
        yield "".join(re.findall(literal, found[0]))


class Advice(unittest.TestCase):
    """What messages of the library advise, as a caller in Python can follow it."""

    def test_names(self):
        made = ceoverlap.errors.make
        self.assertEqual(str(made(-1, "ceov_launch: call ceov_reopen() or ceov_buffer_create()")),
                         "ceov_launch: call Context.reopen() or Context.allocate()")
        self.assertEqual(str(made(-1, "create it with ceov_ag_gemm_scratch_bytes()")),
                         "create it with scratch_bytes()")

    def test_all_messages(self):
        """No message in the library's sources names C's calls or constants to follow, but those
        at its beginning, which say what has failed, and the names of C's enums and structs."""
        seen = 0
        for path in glob.glob(os.path.join(rig.ROOT, "src", "**", "*.c"), recursive=True):
            for text in messages_in(path):
                advice = re.sub(r"^(ceov_\w+: )+", "", ceoverlap.errors._in_python(text))
                if " " not in advice:           # a name, no message
                    continue
                seen += 1
                self.assertIsNone(re.search(r"\bceov_\w+\(\)|\bCEOV_[A-Z]", advice),
                                  f"{path}: {advice}")
        self.assertGreater(seen, 500)

    def test_every_name_is_there(self):
        from ceoverlap import ops, plan, signal

        for name in ceoverlap.errors._NAMES.values():
            where, _, call = name.rpartition(".")
            owner = {"Context": ceoverlap.Context, "Plan": plan.Plan, "Signal": signal.Signal,
                     "": ops._Op if call == "tune" else ops}[where]
            self.assertTrue(hasattr(owner, call), name)


class Memory(unittest.TestCase):
    def test_numpy(self):
        values = np.zeros((3, 8), np.float16)
        memory = memory_of(values)
        self.assertEqual((memory.address, memory.size_bytes, memory.shape, memory.dtype),
                         (values.ctypes.data, 48, (3, 8), "float16"))
        self.assertIs(memory.owner, values)
        self.assertFalse(memory.is_gpu)
        self.assertIs(memory_of(memory), memory)

    def test_a_dtype_without_a_name(self):
        class Dtype:
            def __str__(self):
                return "torch.bfloat16"

        class Tensor:
            dtype = Dtype()
            __cuda_array_interface__ = {"version": 3, "typestr": "<V2", "shape": (8,),
                                        "data": (4096, False)}

        self.assertEqual(memory_of(Tensor()).dtype, "bfloat16")

    def test_bfloat16(self):
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("ml_dtypes is not there")
        self.assertEqual(memory_of(np.zeros(8, ml_dtypes.bfloat16)).dtype, "bfloat16")

    def test_buffer_protocol(self):
        for obj in (bytearray(64), array.array("d", [0] * 8), (ctypes.c_uint16 * 32)(),
                    mmap.mmap(-1, 64), memoryview(bytearray(64))):
            memory = memory_of(obj)
            self.assertEqual(memory.size_bytes, 64)
            ctypes.memset(memory.address, 7, 64)
            self.assertEqual(bytes(obj[:] if isinstance(obj, mmap.mmap) else obj), b"\7" * 64)

    def test_an_exported_bytearray_cannot_move(self):
        data = bytearray(64)
        memory = memory_of(data)
        with self.assertRaises(BufferError):
            data.extend(b"more")
        del memory
        data.extend(b"more")

    def test_dlpack(self):
        values = np.arange(24, dtype=np.int32).reshape(4, 6)
        for wrapped in (OnlyDLPack(values), Reluctant(values)):
            memory = memory_of(wrapped)
            self.assertEqual((memory.address, memory.size_bytes, memory.shape, memory.dtype),
                             (values.ctypes.data, 96, (4, 6), "int32"))
        part = memory_of(OnlyDLPack(values[2:]))
        self.assertEqual((part.address, part.shape), (values.ctypes.data + 48, (2, 6)))
        del memory, wrapped             # the capsule frees what it holds
        before = sys.getrefcount(values)
        for _ in range(100):
            memory_of(OnlyDLPack(values))
        self.assertEqual(sys.getrefcount(values), before)

    def test_gpu_memory(self):
        memory = memory_of(OnGpu())
        self.assertEqual((memory.address, memory.size_bytes, memory.is_gpu, memory.index),
                         (0x7F0000000000, 64, True, None))

    def test_refusals(self):
        read_only = np.zeros(8)
        read_only.flags.writeable = False
        self.assertFalse(memory_of(read_only).is_writable)
        values = np.zeros((8, 8))
        for obj, text in ((values[:, :4], "gaps"), (values.T, "gaps"), (values[::2], "gaps"),
                          (OnlyDLPack(values[:, :4]), "gaps"), (b"bytes", "read-only"),
                          (OnGpu(strides=(64, 2)), "gaps"), (7, "no memory"),
                          (None, "no memory"), (memoryview(bytearray(64))[::2], "gaps")):
            with self.assertRaisesRegex(ceoverlap.InvalidError, text):
                memory_of(obj)

    def test_empty_and_one_row(self):
        self.assertEqual(memory_of(np.zeros((0, 8))).size_bytes, 0)
        self.assertEqual(memory_of(np.zeros((4, 8))[1:2]).size_bytes, 64)
        self.assertEqual(memory_of(bytearray()).size_bytes, 0)

    def test_bf16_bits(self):
        values = np.array([0, 1, -2.5, 1 + 2 ** -8, 1 + 3 * 2 ** -8, 3e38, np.inf, np.nan],
                          np.float32)
        back = ceoverlap.bf16.to_float32(ceoverlap.bf16.from_float32(values))
        wanted = np.array([0, 1, -2.5, 1, 1 + 2 ** -6, 3e38, np.inf, np.nan], np.float32)
        np.testing.assert_allclose(back, wanted, rtol=2 ** -8)
        self.assertEqual((back[3], back[4]), (1, 1 + 2 ** -6))      # ties to even
        self.assertEqual(ceoverlap.bf16.from_float32(np.zeros((2, 3))).shape, (2, 3))
