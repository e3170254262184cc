# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Workspaces and operators on host ranks, against NumPy, in threads."""

import gc
import logging
import unittest
from unittest import mock

import numpy as np

import ceoverlap
from ceoverlap import (AllGatherGemm, AllReduce, GemmReduceScatter, ReduceScatter, Tuning,
                       Workspace, ops)
from ceoverlap.bf16 import from_float32, to_float32
from rig import Case, in_threads

N = 3


def numbers(shape, seed):
    """Small whole numbers: sums lose nothing."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32)


def pack(values, dtype):
    return from_float32(values) if dtype == "bfloat16" else values.astype(dtype)


def as_stored(b, is_kn):
    """An n x k matrix, or what it is as k x n."""
    return np.ascontiguousarray(b.T) if is_kn else b


def unpack(values):
    return to_float32(values) if values.dtype == np.uint16 else values.astype(np.float32)


class Operators(Case):
    def workspaces(self, n_ranks, scratch_bytes, **options):
        context = self.host(n_ranks)
        spaces = [Workspace(context, "tests", scratch_bytes, rank, **options)
                  for rank in range(n_ranks)]
        for space in spaces:
            space.connect()
        return spaces

    def test_a_budget_of_sms(self):
        """It gets to the library, and what no number of SMs is does not."""
        context, seen = self.host(1), []
        plain = context._invoke

        def invoke(name, *arguments, **options):
            if name == "ceov_workspace_create":
                seen.append(arguments[1]._obj.n_sms)
            return plain(name, *arguments, **options)

        with mock.patch.object(context, "_invoke", invoke):
            for i, options in enumerate(({}, {"n_sms": 12})):
                Workspace(context, f"budget {i}", 1024, **options).close()
        self.assertEqual(seen, [0, 12])
        for n_sms in (-1, 1 << 64):
            with self.assertRaisesRegex(ceoverlap.InvalidError, "n_sms"):
                Workspace(context, "none", 1024, n_sms=n_sms)

    def test_all_gather_gemm(self):
        for dtype, rows, n in (("bfloat16", (16, 16, 16), 24), ("float16", (7, 0, 21), 16),
                               ("bfloat16", (5, 11, 1), (8, 32))):
            for is_kn in (False, True):
                with self.subTest(dtype=dtype, rows=rows, n=n, is_kn=is_kn):
                    self.check_all_gather_gemm(dtype, rows, n, is_kn)

    def check_all_gather_gemm(self, dtype, rows, n, is_kn, k=40):
        widths = (n,) if isinstance(n, int) else n
        size = AllGatherGemm.scratch_bytes(rows, k, n, dtype, b_is_k_by_n=is_kn)
        spaces = self.workspaces(N, size)
        a = [numbers((rows[r], k), r) for r in range(N)]

        def body(r):
            op = AllGatherGemm(spaces[r], rows, k, n, dtype, b_is_k_by_n=is_kn)
            b = [numbers((width, k), 10 * r + i) for i, width in enumerate(widths)]
            packed = [pack(as_stored(one, is_kn), dtype) for one in b]
            gathered = np.zeros((sum(rows), k), pack(a[0], dtype).dtype)
            for _ in range(3):
                c = op.run(pack(a[r], dtype), packed[0] if isinstance(n, int) else packed,
                           gathered=gathered)
                whole = np.concatenate(a)
                np.testing.assert_array_equal(unpack(gathered), whole)
                for one, result in zip(b, [c] if isinstance(n, int) else c):
                    np.testing.assert_allclose(unpack(result), whole @ one.T, rtol=2 ** -8)
            spaces[r].check()
            return op

        for op in in_threads(N, body):
            self.assertIn("pieces", op.explain())
            op.close()
            op.close()

    def test_gemm_reduce_scatter(self):
        for dtype, rows in (("bfloat16", (16, 16, 16)), ("float16", (3, 20, 0))):
            for is_kn in (False, True):
                with self.subTest(dtype=dtype, rows=rows, is_kn=is_kn):
                    self.check_gemm_reduce_scatter(dtype, rows, is_kn)

    def check_gemm_reduce_scatter(self, dtype, rows, is_kn, k=24, n=32):
        size = GemmReduceScatter.scratch_bytes(rows, k, n, dtype, b_is_k_by_n=is_kn)
        spaces = self.workspaces(N, size)
        a = [numbers((sum(rows), k), r) for r in range(N)]
        b = [numbers((n, k), 10 + r) for r in range(N)]
        whole = sum(x @ y.T for x, y in zip(a, b))

        def body(r):
            op = GemmReduceScatter(spaces[r], rows, k, n, dtype, b_is_k_by_n=is_kn)
            mine = np.zeros((rows[r], n), pack(a[0], dtype).dtype)
            stored = pack(as_stored(b[r], is_kn), dtype)
            self.assertIs(op.run(pack(a[r], dtype), stored, mine), mine)
            first = sum(rows[:r])
            np.testing.assert_allclose(unpack(mine), whole[first:first + rows[r]], rtol=2 ** -8)
            return op

        in_threads(N, body)

    def test_sums(self):
        for dtype, counts in (("bfloat16", (64, 64, 64)), ("float16", (8, 0, 200)),
                              ("float32", (64, 64, 64)), ("float32", (0, 200, 8))):
            for kind in (ReduceScatter, AllReduce):
                with self.subTest(dtype=dtype, counts=counts, kind=kind):
                    self.check_sums(kind, dtype, counts)

    def check_sums(self, kind, dtype, counts):
        spaces = self.workspaces(N, kind.scratch_bytes(counts, dtype))
        sources = [numbers(sum(counts), r) for r in range(N)]
        whole = sum(sources)

        def body(r):
            op = kind(spaces[r], counts, dtype)
            result = op.run(pack(sources[r], dtype).reshape(-1, 8))
            first = sum(counts[:r])
            wanted = whole if kind is AllReduce else whole[first:first + counts[r]]
            np.testing.assert_array_equal(unpack(result), wanted)

        in_threads(N, body)

    def test_scaled_sums(self):
        """By powers of two, at each rank another one: nothing rounds."""
        counts = (64, 0, 200)
        for dtype in ("bfloat16", "float16", "float32"):
            spaces = self.workspaces(N, ReduceScatter.scratch_bytes(counts, dtype, scale=0.5))
            sources = [numbers(sum(counts), r) for r in range(N)]
            whole = sum(sources)

            def body(r):
                scale = (0.25, 1.0, -2.0)[r]
                op = ReduceScatter(spaces[r], counts, dtype, scale=scale)
                first = sum(counts[:r])
                np.testing.assert_array_equal(unpack(op.run(pack(sources[r], dtype))),
                                              whole[first:first + counts[r]] * scale)

            in_threads(N, body)

    def test_scales_round_once(self):
        """The sum of fp16 is beyond fp16, its half is not; a third is one of fp32."""
        spaces = self.workspaces(N, ReduceScatter.scratch_bytes((8,) * N, "float32"))
        for dtype, number, scale, wanted in (
                ("float16", 30000, 0.5, 15000 * N),
                ("float32", 7, 1 / 3, np.float32(7 * N) * np.float32(1 / 3))):
            self.assertGreater(N * 30000, float(np.finfo("float16").max))

            def body(r):
                op = ReduceScatter(spaces[r], (8,) * N, dtype, scale=scale)
                np.testing.assert_array_equal(op.run(np.full(8 * N, number, dtype)),
                                              np.full(8, wanted, dtype))

            in_threads(N, body)

    def test_scales_that_are_refused(self):
        spaces = self.workspaces(1, ReduceScatter.scratch_bytes((8,)))
        for scale in (0, 1e-50, float("nan"), float("inf"), 1e50):
            with self.assertRaisesRegex(ceoverlap.InvalidError, "scale: .*, must be finite"):
                ReduceScatter(spaces[0], (8,), scale=scale)
            with self.assertRaisesRegex(ceoverlap.InvalidError, "scale: .*, must be finite"):
                ReduceScatter.scratch_bytes((8,), scale=scale)

    def test_columns_of_a_matrix(self):
        """With every rank's own stride, and of uneven parts."""
        for counts in ((16, 16, 16), (24, 0, 8), (8, 16, 0)):
            with self.subTest(counts=counts):
                self.check_columns(counts)

    def check_columns(self, counts, first=8):
        spaces = self.workspaces(N, ReduceScatter.scratch_bytes(counts, "float32", stride=24))
        strides = [32 + 8 * r for r in range(N)]
        sources = [numbers((N, strides[r]), r) for r in range(N)]
        flat = [source.reshape(-1)[first:] for source in sources]
        ends = [max(p * strides[r] + count for p, count in enumerate(counts) if count)
                for r in range(N)]

        def body(r):
            op = ReduceScatter(spaces[r], counts, "float32", stride=strides[r])
            wanted = sum(source[r, first:first + counts[r]] for source in sources)
            for source in (flat[r], flat[r][:ends[r]]):
                np.testing.assert_array_equal(op.run(source), wanted)
            with self.assertRaisesRegex(ceoverlap.InvalidError, "source: shape"):
                op.run(flat[r][:ends[r] - 1])

        in_threads(N, body)

    def test_strides_that_are_refused(self):
        counts = (16, 24)
        spaces = self.workspaces(2, ReduceScatter.scratch_bytes(counts))
        for stride in (16, 28, -8):
            with self.assertRaisesRegex(ceoverlap.InvalidError, "stride"):
                ReduceScatter(spaces[0], counts, stride=stride)
            with self.assertRaisesRegex(ceoverlap.InvalidError, "stride"):
                ReduceScatter.scratch_bytes(counts, stride=stride)
        with self.assertRaisesRegex(ceoverlap.InvalidError, "above 2"):
            ReduceScatter(spaces[0], counts, stride=1 << 48)

    def test_sums_in_fp32_round_by_addition_alone(self):
        counts = (40, 0, 16)
        spaces = self.workspaces(N, AllReduce.scratch_bytes(counts, "float32"))
        random = np.random.default_rng(1)
        sources = [random.standard_normal(56, np.float32) for _ in range(N)]
        wanted = sources[0] + sources[1] + sources[2]           # in the order of ranks

        def body(r):
            op = AllReduce(spaces[r], counts, "float32")
            for _ in range(3):
                np.testing.assert_array_equal(op.run(sources[r]), wanted)

        in_threads(N, body)

    def test_ml_dtypes(self):
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("ml_dtypes is not there")
        spaces = self.workspaces(2, AllReduce.scratch_bytes((8, 8)))
        source = np.arange(16).astype(ml_dtypes.bfloat16)

        def body(r):
            result = AllReduce(spaces[r], (8, 8)).run(source)
            self.assertEqual(result.dtype, source.dtype)
            np.testing.assert_array_equal(result.astype(np.float32), 2 * np.arange(16))

        in_threads(2, body)

    def test_tuning(self):
        rows = (32, 32)
        tuning = Tuning(mode="sequence")
        spaces = self.workspaces(2, AllGatherGemm.scratch_bytes(rows, 8, 8, tuning=tuning))
        ops = [AllGatherGemm(space, rows, 8, 8, tuning=tuning) for space in spaces]
        self.assertIn("sequence", ops[0].explain())
        chosen = ops[0].chosen()
        self.assertEqual((chosen.mode, chosen.n_pieces, chosen.cut, chosen.tile_order),
                         ("sequence", 1, "equal", "bands"))
        self.assertEqual(AllGatherGemm(spaces[0], rows, 8, 8, tuning=chosen).chosen(), chosen)
        with self.assertRaises(ceoverlap.InvalidError):
            AllGatherGemm(spaces[0], rows, 8, 8, tuning=Tuning(n_pieces=1000))
        with self.assertRaises(ceoverlap.InvalidError):
            Tuning(mode="both")._struct()
        for call in (lambda: AllGatherGemm(spaces[0], 64, 8, 8),
                     lambda: AllGatherGemm.scratch_bytes(64, 8, 8),
                     lambda: GemmReduceScatter(spaces[0], 64, 8, 8)):
            with self.assertRaisesRegex(ceoverlap.InvalidError, "rows: 64 is no list of numbers"):
                call()

    def test_cuts_and_chunks(self):
        rows = (256, 200)
        tuning = Tuning(n_pieces=2, cut="shrinking", chunk_bytes=5000)
        spaces = self.workspaces(2, GemmReduceScatter.scratch_bytes(rows, 8, 8))
        a = np.linspace(-1, 1, 456 * 8).reshape(456, 8).astype(np.float16)
        b = np.linspace(-1, 1, 64).reshape(8, 8).astype(np.float16)
        wanted = 2 * (a.astype(np.float32) @ b.astype(np.float32).T)

        def body(r):
            op = GemmReduceScatter(spaces[r], rows, 8, 8, "float16", tuning=tuning)
            self.assertIn("cut: shrinking (as given), rows 192 64", op.explain())
            self.assertIn("chunks: at most 5000 bytes (as given)", op.explain())
            first = 256 * r
            np.testing.assert_allclose(op.run(a, b), wanted[first:first + rows[r]],
                                       rtol=5e-3, atol=5e-3)

        in_threads(2, body)
        with self.assertRaisesRegex(ceoverlap.InvalidError, "equal pieces"):
            AllReduce(spaces[0], (8, 8), tuning=Tuning(cut="waves"))
        with self.assertRaisesRegex(ceoverlap.InvalidError, "chunk_bytes"):
            GemmReduceScatter(spaces[0], rows, 8, 8, tuning=Tuning(chunk_bytes=1))
        with self.assertRaises(ceoverlap.InvalidError):
            Tuning(cut="tapered")._struct()

    def test_orders_of_tiles(self):
        rows, n, k = (40, 24, 40), 48, 16
        sources = [(np.arange(sum(rows) * k) % (5 + r) - 2).reshape(-1, k).astype(np.float16)
                   for r in range(3)]
        b = (np.arange(n * k) % 3 - 1).reshape(n, k).astype(np.float16)
        wanted = sum(a.astype(np.float32) @ b.astype(np.float32).T for a in sources)
        spaces = self.workspaces(3, GemmReduceScatter.scratch_bytes(rows, k, n, "float16"))

        def body(r):
            first = sum(rows[:r])
            for order, band, told in (("bands", 8, "bands of at most 64 rows"),
                                      ("columns", 0, "column by column"),
                                      ("turns", 0, "all ranks' first pieces")):
                tuning = Tuning(n_pieces=3, tile_order=order, band_rows=8 * band,
                                n_gemm_blocks=4)
                op = GemmReduceScatter(spaces[r], rows, k, n, "float16", tuning)
                self.assertIn("at most 4 (as given)", op.explain())
                self.assertIn(told, op.explain())
                np.testing.assert_array_equal(op.run(sources[r], b),
                                              wanted[first:first + rows[r]])

        in_threads(3, body)
        for refused in (Tuning(tile_order="columns", band_rows=64), Tuning(n_gemm_blocks=1)):
            with self.assertRaises(ceoverlap.InvalidError):
                GemmReduceScatter(spaces[0], rows, k, n, "float16", refused)
        with self.assertRaises(ceoverlap.InvalidError):
            Tuning(tile_order="rows")._struct()

    def test_direct_modes(self):
        counts = (64, 128, 0)
        sources = [np.linspace(-1, r, 192).astype(np.float32) for r in range(3)]
        wanted = sources[0] + sources[1] + sources[2]
        spaces = self.workspaces(3, AllReduce.scratch_bytes(counts, "float32"))

        def body(r):
            for mode in ("direct", "two-shot"):
                op = AllReduce(spaces[r], counts, "float32", tuning=Tuning(mode=mode))
                self.assertIn("moved by: SMs", op.explain())
                np.testing.assert_array_equal(op.run(sources[r]), wanted)

        in_threads(3, body)
        with self.assertRaisesRegex(ceoverlap.InvalidError, "only on GPUs of compute capability"):
            AllGatherGemm(spaces[0], (8, 8, 8), 8, 8, tuning=Tuning(mode="direct"))

    def test_refusals(self):
        rows = (8, 8)
        spaces = self.workspaces(2, AllGatherGemm.scratch_bytes(rows, 8, 8))
        op = AllGatherGemm(spaces[0], rows, 8, 8)
        bits = lambda *shape: np.zeros(shape, np.uint16)
        read_only = bits(16, 8)
        read_only.flags.writeable = False
        for text, arguments in (
                ("a: shape", (bits(8, 16), bits(8, 8))),
                ("a: shape", (bits(16, 8), bits(8, 8))),
                ("b: shape", (bits(8, 8), bits(4, 16))),
                ("c: shape", (bits(8, 8), bits(8, 8), bits(8, 8))),
                ("float16, must be bfloat16", (np.zeros((8, 8), np.float16), bits(8, 8))),
                ("float32", (np.zeros((8, 4), np.float32), bits(8, 8))),
                ("gaps", (bits(8, 16)[:, :8], bits(8, 8))),
                ("read-only", (bits(8, 8), bits(8, 8), read_only)),
                ("no stream", (bits(8, 8), bits(8, 8), None, None, 0x44))):
            with self.subTest(text=text):
                with self.assertRaisesRegex(ceoverlap.InvalidError, text):
                    op.run(*arguments)
        for call in (lambda: AllGatherGemm(spaces[0], (8, 8, 8), 8, 8),
                     lambda: AllGatherGemm(spaces[0], rows, 8, [8] * 5),
                     lambda: AllGatherGemm.scratch_bytes(rows, 7, 8),
                     lambda: AllGatherGemm.scratch_bytes((-8, 8), 8, 8),
                     lambda: AllGatherGemm(spaces[0], rows, 8, 8, "float32"),
                     lambda: AllReduce.scratch_bytes((9, 8)),
                     lambda: AllGatherGemm(spaces[0], rows, 4096, 8),
                     lambda: op.tune(0x44)):
            with self.assertRaises(ceoverlap.CeoverlapError):
                call()
        op = AllGatherGemm(spaces[0], rows, 8, 16, b_is_k_by_n=True)
        with self.assertRaisesRegex(ceoverlap.InvalidError, r"b: shape .* be \(8, 16\)"):
            op.run(bits(8, 8), bits(16, 8))
        total = AllReduce(spaces[0], (8, 8))
        for arguments in ((bits(8),), (bits(16), bits(8)), (bits(24), bits(16))):
            with self.assertRaisesRegex(ceoverlap.InvalidError, "shape"):
                total.run(*arguments)
        total = AllReduce(spaces[0], (8, 8), "float32")
        for text, source in (("shape", bits(16)), ("uint16, must be float32$", bits(32)),
                             ("int32, must be float32$", np.zeros(16, np.int32))):
            with self.assertRaisesRegex(ceoverlap.InvalidError, text):
                total.run(source, np.zeros(16, np.float32))
        with self.assertRaisesRegex(ceoverlap.InvalidError, "float32"):
            GemmReduceScatter(spaces[0], rows, 8, 8, "float32")
        spaces[0].check()

    def test_all_gather(self):
        for sizes, tuning, told in (((64, 64, 64), Tuning(n_pieces=2), "pieces: 2"),
                                    ((0, 1600, 16), Tuning(n_pieces=2), "pieces: 2"),
                                    ((0, 1600, 16), Tuning(mode="direct"), "by: SMs")):
            spaces = self.workspaces(N, ops.AllGather.scratch_bytes(sizes))
            shards = [numbers(size // 4, r) for r, size in enumerate(sizes)]

            def body(r):
                op = ops.AllGather(spaces[r], sizes, tuning)
                whole = op.run(shards[r])
                self.assertEqual(whole.dtype, np.float32)
                np.testing.assert_array_equal(whole, np.concatenate(shards))
                target = np.zeros(sum(sizes) // 4, np.float32)
                first = sum(sizes[:r]) // 4
                place = target[first:first + len(shards[r])]
                place[:] = shards[r]
                self.assertIs(op.run(place, target), target)
                np.testing.assert_array_equal(target, whole)
                return op

            self.assertIn(told, in_threads(N, body)[0].explain())

    def test_all_to_all(self):
        for sizes in ((64,) * 9, (16, 0, 320, 48, 0, 0, 0, 16, 32)):
            spaces = self.workspaces(N, ops.AllToAll.scratch_bytes(sizes))
            blocks = [[numbers(sizes[r * N + t] // 4, r * N + t) for t in range(N)]
                      for r in range(N)]

            def body(r):
                op = ops.AllToAll(spaces[r], sizes)
                target = np.zeros(sum(sizes[r::N]), np.uint8)
                wanted = np.concatenate([blocks[s][r] for s in range(N)])
                for _ in range(3):
                    result = op.run(np.concatenate(blocks[r]))
                    np.testing.assert_array_equal(result, wanted)
                    self.assertIs(op.run(np.concatenate(blocks[r]), target), target)
                    np.testing.assert_array_equal(target.view(np.float32), wanted)

            in_threads(N, body)

    def test_moves_that_are_refused(self):
        spaces = self.workspaces(2, 4096)
        op = ops.AllToAll(spaces[0], (16, 16, 0, 16))
        array = lambda n: np.zeros(n, np.uint8)
        read_only = array(16)
        read_only.flags.writeable = False
        both = array(48)
        for text, arguments in (("source: 16 bytes, must be 32", (array(16),)),
                                ("target: 32 bytes, must be 16", (array(32), array(32))),
                                ("read-only", (array(32), read_only)),
                                ("overlaps", (both[:32], both[16:32])),
                                ("no stream", (array(32), None, 0x44))):
            with self.assertRaisesRegex(ceoverlap.InvalidError, text):
                op.run(*arguments)
        for text, call in (("3 numbers, must be a square",
                            lambda: ops.AllToAll.scratch_bytes((16,) * 3)),
                           ("9 numbers for 2", lambda: ops.AllToAll(spaces[0], (16,) * 9)),
                           ("3 numbers for 2", lambda: ops.AllGather(spaces[0], (16,) * 3)),
                           ("multiples of 16", lambda: ops.AllGather.scratch_bytes((8, 8))),
                           ("not all 0", lambda: ops.AllGather.scratch_bytes((0, 0))),
                           ("negative", lambda: ops.AllGather.scratch_bytes((-16, 16))),
                           ("needs scratch", lambda: ops.AllGather(spaces[0], (4096, 16)))):
            with self.assertRaisesRegex(ceoverlap.InvalidError, text):
                call()
        spaces[0].check()

    def test_a_workspace_closes_its_ops(self):
        spaces = self.workspaces(2, AllReduce.scratch_bytes((8, 8)))
        op = AllReduce(spaces[0], (8, 8))
        spaces[0].close()
        spaces[1].close()
        self.assertFalse(op.is_open)
        with self.assertRaises(ceoverlap.StateError):
            op.run(np.zeros(16, np.uint16))

    def test_a_workspace_that_follows_another(self):
        """Whichever is closed first, or forgotten, what is followed is released last."""
        context = self.host(1)
        for is_forgotten in (False, True):
            first = Workspace(context, "first", 4096)
            second = Workspace(context, "second", 4096, follows=first)
            third = Workspace(context, "third", 4096, follows=second)
            first.close()
            with self.assertRaises(ceoverlap.StateError):
                Workspace(context, "fourth", 4096, follows=first)
            if is_forgotten:
                del second, third
            else:
                second.close()
                third.close()
            gc.collect()
            Workspace(context, "another", 4096).close()     # releases what was forgotten
            for name in ("first", "second", "third"):       # so their names are free again
                Workspace(context, name, 4096).close()
        self.assertEqual(self.log.lines(logging.WARNING), [])

    def test_peers_that_do_not_come(self):
        context = self.host(2)
        space = Workspace(context, "alone", 4096, 0)
        with self.assertRaises(ceoverlap.PendingError):
            space.connect(0.05)

    def test_a_run_that_peers_do_not_make(self):
        spaces = self.workspaces(2, AllReduce.scratch_bytes((8, 8)), deadline_s=0.1)
        ops = [AllReduce(space, (8, 8)) for space in spaces]
        with self.assertRaises(ceoverlap.CeoverlapError) as caught:
            ops[0].run(np.zeros(16, np.uint16))
        self.assertIn(caught.exception.code, (-9, -10))
        with self.assertRaises(ceoverlap.CeoverlapError):
            spaces[0].check()
        with self.assertRaises(ceoverlap.CeoverlapError):
            ops[0].run(np.zeros(16, np.uint16))


if __name__ == "__main__":
    unittest.main()
