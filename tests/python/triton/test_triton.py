# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The Triton verbs as PTX, without a GPU: what each compiles to, how often, in which order,
and that it is what include/ceoverlap/device.cuh has."""

import os
import re
import subprocess
import sys
import unittest

import ceoverlap

FOLDER = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(FOLDER)))
sys.path.insert(0, FOLDER)

from cache import use_own_cache

try:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    import ceoverlap.triton
    import kernels
    MISSING = ""
except ImportError as error:
    MISSING = str(error)

STORED = "st.global"
LOADED = "ld.global"
BARRIER = "bar.sync \t0"
END_STORES = "cp.async.bulk.wait_group 0"
FENCE = "fence.acq_rel.gpu"
COUNT = "atom.acq_rel.gpu.inc.u32"
RAISE = "st.release.sys.u64"
LOOK = "ld.acquire.sys.u64"
LOOK_ABORT = "ld.acquire.sys.u32"
AGREE = "barrier.cta.red.or.pred"
BEGIN_LOADS = "fence.proxy.async;"


def setUpModule():
    use_own_cache()


def ptx_of(kernel, types, constants, capability=90, **options):
    """The code alone. types: of all parameters in their order, "view" for a View; those
    that are not constexpr are multiples of 16."""
    view = ceoverlap.triton.View("i64", "i64", "i64", "i64")
    signature = {name: view if kind == "view" else kind
                 for name, kind in zip(kernel.arg_names, types)}
    positions = [i for i, kind in enumerate(types) if kind[0] == "*" or kind == "i32"]
    source = ASTSource(kernel, signature, {(kernel.arg_names.index(name),): constant
                                           for name, constant in constants.items()},
                       {(i,): [["tt.divisibility", 16]] for i in positions})
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32),
                              options=options)
    code = compiled.asm["ptx"].split(".section")[0]
    return re.sub(r"\n\s*\.loc\s[^\n]*", "", code)     # Triton 3.9 has them within inline assembly


def header():
    with open(os.path.join(ROOT, "include/ceoverlap/device.cuh"), encoding="utf-8") as file:
        return file.read()


class Package(unittest.TestCase):
    def test_only_the_submodule_needs_triton(self):
        program = ("import sys; sys.modules['triton'] = None\n"
                   "import ceoverlap\n"
                   "try:\n    import ceoverlap.triton\n"
                   "except ImportError as error:\n    print(error)\n")
        told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              timeout=60)
        self.assertIn("pip install triton", told.stdout, told.stderr)


@unittest.skipIf(MISSING, f"no Triton: {MISSING}")
class Compiled(unittest.TestCase):
    def assert_order(self, ptx, *words):
        """Each word comes after the first occurrence of the one before it."""
        at = 0
        for word in words:
            found = ptx.find(word, at)
            self.assertGreaterEqual(found, 0, f"{word!r} does not come in its turn")
            at = found + len(word)

    def produce(self, **options):
        return ptx_of(kernels.produce, ["*i32", "view", "i32", "i64", "i32", "constexpr"],
                      {"SIZE": 1024}, **options)

    def consume(self, **options):
        return ptx_of(kernels.consume, ["*i32", "*i32", "view", "i32", "i64", "i32",
                                        "constexpr"], {"SIZE": 1024}, **options)

    def test_arrive(self):
        ptx = self.produce()
        self.assert_order(ptx, STORED, END_STORES, BARRIER, "@first " + FENCE,
                          "@first " + COUNT, "@last " + RAISE, "@has_word " + RAISE)
        self.assertLess(ptx.rfind(STORED), ptx.find(END_STORES))
        for word, n in ((FENCE, 1), (COUNT, 1), (RAISE, 2), ("@uncounted trap", 1)):
            self.assertEqual(ptx.count(word), n, word)
        self.assertRegex(ptx, r"mov\.u32 tid, %tid\.x;\s*setp\.eq\.u32 first, tid, 0;")

    def test_await(self):
        ptx = self.consume()
        self.assert_order(ptx, BARRIER, "@p bra done;", LOOK, "%globaltimer", "reached:",
                          LOOK_ABORT, "done:", AGREE, AGREE, BEGIN_LOADS, LOADED)
        self.assertGreater(ptx.find(LOADED), ptx.find(BEGIN_LOADS))
        for word, n in ((LOOK, 1), (LOOK_ABORT, 2), (AGREE, 2), ("%globaltimer", 2)):
            self.assertEqual(ptx.count(word), n, word)

    def test_the_header_says_the_same(self):
        text = header()
        ptx = self.produce() + self.consume()
        asm = set(re.findall(r'"((?:ld|st|atom|fence)\.[a-z0-9_.]+)', text))
        self.assertEqual(asm, {FENCE, COUNT, RAISE, LOOK, LOOK_ABORT})
        for word in asm:
            self.assertIn(word + (";" if word == FENCE else " "), ptx)
        turns = int(re.search(r"LOOK_TURNS (\d+)u", text).group(1))
        self.assertIn(f"and.b32 word, turn, {turns - 1};", ptx)
        self.assertIn(f"seen, {ceoverlap._abi.CEOV_VALUE_LIMIT};", ptx)
        codes = dict(re.findall(r"CEOV_DEVICE_(\w+) = (\d)", text))
        self.assertEqual({name: str(getattr(ceoverlap.triton, name).value)
                          for name in codes}, codes)
        self.assertEqual(ceoverlap.triton.View._fields,
                         tuple(name for name, _ in ceoverlap._abi.ceov_device_signal._fields_
                               if name != "reserved"))

    def test_all_threads_of_the_program_agree(self):
        for n_warps in (1, 4, 8):
            ptx = self.consume(num_warps=n_warps)
            register = re.search(AGREE + r" aborted, 0, (%r\d+),", ptx).group(1)
            self.assertIn(f"mov.b32 \t{register}, {32 * n_warps};", ptx)

    def test_no_load_comes_before_its_mark(self):
        def multiply(awaits):
            return ptx_of(kernels.multiply, ["*bf16", "*bf16", "*fp32", "view", "i64", "i32",
                                             "constexpr", "constexpr"],
                          {"SIZE": 64, "AWAITS": awaits}, num_stages=3)

        pipelined = "cp.async.cg.shared.global"
        self.assertIn(pipelined, multiply(False))       # what the compiler would do
        ptx = multiply(True)
        self.assertNotIn(pipelined, ptx)
        self.assert_order(ptx, LOOK, AGREE, LOADED)
        self.assertGreater(ptx.find(LOADED), ptx.find(AGREE))
        ptx = ptx_of(kernels.sum_rows, ["*fp32", "*fp32", "view", "i64", "i32", "constexpr"],
                     {"SIZE": 128})
        self.assertGreater(ptx.find(LOADED), ptx.find(AGREE))
        self.assertLess(ptx.rfind(STORED), ptx.find(FENCE))

    def test_stores_by_descriptors_are_complete(self):
        ptx = ptx_of(kernels.produce_by_tma,
                     ["tensordesc<i32[16, 32]>", "view", "i32", "i64", "i32", "constexpr",
                      "constexpr"], {"ROWS": 16, "COLUMNS": 32})
        self.assert_order(ptx, "cp.async.bulk.tensor.2d.global", "cp.async.bulk.commit_group",
                          END_STORES, BARRIER, FENCE, COUNT)

    def test_other_gpus(self):
        for capability, has_bulk_copies in ((80, False), (100, True)):
            for ptx in (self.produce(capability=capability),
                        self.consume(capability=capability)):
                self.assertEqual("cp.async.bulk" in ptx or BEGIN_LOADS in ptx,
                                 has_bulk_copies)

    def test_values_of_any_type(self):
        for kind in ("i32", "i64", "u64"):
            ptx = ptx_of(kernels.await_only, ["view", "*i32", kind, kind], {})
            self.assertEqual(ptx.count(LOOK), 1)
        ptx = ptx_of(kernels.await_only, ["view", "*i32", "constexpr", "constexpr"],
                     {"value": 1, "timeout_ns": 5_000_000_000})
        self.assertRegex(ptx, r"mov\.b64 \t%rd\d+, 5000000000;")

    def test_only_gpu_ranks_have_views(self):
        with ceoverlap.Context(range(1), place="host") as context:
            with self.assertRaisesRegex(ceoverlap.InvalidError, "rank 0 is not on a GPU"):
                ceoverlap.triton.view(context.signal())

    def test_clusters_are_refused(self):
        with self.assertRaises(Exception) as caught:
            self.produce(num_ctas=2)
        texts, error = [], caught.exception
        while error is not None:
            texts.append(str(error))
            error = error.__cause__
        self.assertIn("num_ctas is 2, must be 1", "\n".join(texts))


if __name__ == "__main__":
    unittest.main()
