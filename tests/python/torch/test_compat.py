# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""What is used of PyTorch's private parts: it is all in one module, and is looked at."""

import pathlib
import re
import unittest
from unittest import mock

import torch
from fsdp_models import needs_inner
from torch.autograd import forward_ad
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam

import ceoverlap
import ceoverlap.torch
from ceoverlap.torch import _compat, fsdp

PACKAGE = pathlib.Path(ceoverlap.torch.__file__).parent
# torch._C, dist._Work, torch.distributed.fsdp._fully_shard, distributed_c10d and the like.
PRIVATE = re.compile(r"\b(torch|dist)(\.\w+)*\._\w+|\bdistributed_c10d\b|\b_get_fsdp_state\b")


def private_names(text):
    return [match.group(0) for match in PRIVATE.finditer(text)]


class Names(unittest.TestCase):
    def test_what_is_private_is_seen(self):
        for line in ("from torch.distributed.fsdp._fully_shard import x", "torch._C.y()",
                     "dist.distributed_c10d._z()", "class Work(dist._Work):",
                     "torch._foreach_copy_(a, b)", "module._get_fsdp_state()"):
            self.assertTrue(private_names(line), line)
        for line in ("torch.compiler.disable", "from . import _moves", "self._torch",
                     "torch.ops.fsdp.all_gather_copy_in"):
            self.assertFalse(private_names(line), line)

    def test_one_module_has_all_private_names(self):
        paths = [path for path in PACKAGE.rglob("*.py") if path.name != "_compat.py"]
        self.assertGreater(len(paths), 10)
        for path in paths:
            self.assertEqual(private_names(path.read_text()), [], path)


class Versions(unittest.TestCase):
    def test_an_older_one_is_refused(self):
        for version in ("2.9.0", "2.10.0a0+git1", "2.11.0+cu130", "3.0.0", torch.__version__):
            _compat.check_version(version)
        for version in ("1.13.1", "2.8.1+cpu"):
            with self.assertRaises(ceoverlap.errors.VersionError) as caught:
                _compat.check_version(version)
            self.assertEqual(str(caught.exception), (
                f"ceoverlap.torch: PyTorch {version} is too old: 2.9 or later is needed, "
                f"{', '.join(_compat.TESTED)} are tested"))

    def test_documents_name_what_is_tested(self):
        root = pathlib.Path(__file__).parents[3]
        *some, last = _compat.TESTED
        for name in ("README.md", "docs/versions.md", "docs/pytorch.md"):
            self.assertIn(f"{', '.join(some)} and {last}", root.joinpath(name).read_text(), name)
        self.assertIn(f'torch = ["torch >= {_compat.OLDEST[0]}.{_compat.OLDEST[1]}"]',
                      root.joinpath("python", "pyproject.toml").read_text())

    def refused(self, text):
        with self.assertRaisesRegex(ceoverlap.errors.VersionError, text) as caught:
            fsdp.enable(torch.nn.Linear(2, 2), level="inner")
        for part in (torch.__version__, "inner parts are known of", *_compat.TRIED):
            self.assertIn(part, str(caught.exception))
        with self.assertLogs("ceoverlap", "INFO") as logs:
            self.assertEqual(fsdp._level_of_this_version(), "public")
        self.assertRegex(logs.output[0], text)

    @needs_inner
    def test_this_one_has_all(self):
        self.assertTrue(_compat.look_at_fsdp2().Module)
        self.assertEqual(fsdp._level_of_this_version(), "inner")

    def test_a_model_without_fsdp2_is_refused(self):
        with self.assertRaisesRegex(ceoverlap.errors.InvalidError, "no FSDP2 parameter"):
            fsdp.enable(torch.nn.Linear(2, 2))

    def test_a_missing_call_is_refused(self):
        with mock.patch.object(FSDPParam, "alloc_all_gather_outputs", None):
            self.refused(r"no FSDPParam\.alloc_all_gather_outputs\(self\);")

    def test_a_missing_parameter_is_refused(self):
        with mock.patch.object(FSDPModule, "set_custom_all_gather", lambda self: None):
            self.refused(r"no FSDPModule\.set_custom_all_gather\(comm\);")
            with self.assertRaisesRegex(ceoverlap.errors.VersionError, r"gather\(comm\);"):
                fsdp.enable(torch.nn.Linear(2, 2))

    @needs_inner
    def test_a_missing_operator_is_refused(self):
        class Empty:
            __name__ = "torch.ops.fsdp"

        with mock.patch.object(torch.ops, "fsdp", Empty()):
            self.refused(r"no torch\.ops\.fsdp\.all_gather_copy_in;")

    def test_a_missing_module_is_refused(self):
        name = "torch.distributed.fsdp._fully_shard._fsdp_param"
        with mock.patch.dict("sys.modules", {name: None}):
            self.refused("_fsdp_param")


class Streams(unittest.TestCase):
    def test_modes_and_transformations_are_seen(self):
        with forward_ad.dual_level():
            self.assertTrue(_compat.is_watched())
        self.assertFalse(_compat.is_watched())
        seen = []
        torch.func.vmap(lambda x: seen.append(_compat.is_watched()) or x)(torch.zeros(2))
        self.assertEqual(seen, [True])
        for name in ("_stack_length", "_functorch_level"):
            with mock.patch.object(_compat, name, None):
                self.assertTrue(_compat.is_watched())

    def test_copies_go_one_by_one_where_there_is_no_short_way(self):
        targets = [torch.zeros(2), torch.zeros(3, dtype=torch.bfloat16)]
        for copy in (_compat.copy_each, _compat._copy_each):
            copy(targets, [torch.ones(2), torch.full((3,), 2.0)])
            self.assertEqual([target.sum().item() for target in targets], [2.0, 6.0])
            for target in targets:
                target.zero_()


if __name__ == "__main__":
    unittest.main()
