# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""FSDP2 on copy engines with parameters and gradients of several dtypes, and shards that are
cast on their way."""

import collections
import functools
import types
import unittest

import rig
import torch
import torch.nn as nn
from fsdp_models import (N_LAYERS, N_STEPS, WORDS, assert_on_engines, assert_same_training,
                         model_of, needs_inner, train_plainly)
from torch.utils._python_dispatch import TorchDispatchMode

from ceoverlap.torch import fsdp
from ceoverlap.torch.fsdp._uncast import uncast


def with_policy(tolerance, **policy):
    handle, _ = assert_same_training(tolerance, policy=policy)
    assert_on_engines(handle, 2 * N_STEPS)


def whole_bf16_model():
    handle, _ = assert_same_training(2e-2, change=nn.Module.bfloat16,
                                     train=functools.partial(train_plainly,
                                                             dtype=torch.bfloat16))
    assert_on_engines(handle)


def mixed_dtypes():
    """A group with several dtypes is gathered as bytes."""
    def change(model):
        for layer in model[:N_LAYERS]:
            norm = layer[3]
            norm.bias = nn.Parameter(norm.bias.detach().double() + 1, requires_grad=False)
            norm.forward = lambda x, norm=norm: nn.functional.layer_norm(
                x, norm.normalized_shape, norm.weight, norm.bias.float(), norm.eps)

    handle, _ = assert_same_training(1e-5, change=change)
    assert_on_engines(handle)


def some_need_no_cast():
    """Parameters that are kept in the gathered dtype beside others that are not."""
    def change(model):
        for layer in model[:N_LAYERS]:
            layer[3].bfloat16().requires_grad_(False)

    handle, ours = assert_same_training(2e-2, change=change,
                                        policy={"param_dtype": torch.bfloat16})
    with Copies() as copies:            # PyTorch casts; not a copy for each parameter
        ours[0].unshard()
    assert copies.counts == {"aten::_foreach_copy_": 2}, copies.counts
    ours[0].reshard()
    assert_on_engines(handle)


class Copies(TorchDispatchMode):
    """Counts the operators of PyTorch's that copy, by name."""

    def __init__(self):
        super().__init__()
        self.counts = collections.Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "copy" in func.name():
            self.counts[func.name()] += 1
        return func(*args, **(kwargs or {}))


def cast_on_the_way():
    """What is kept in fp32 and gathered in bf16 is copied once, to the slot, and not out of
    anything."""
    model = model_of(policy={"param_dtype": torch.bfloat16})
    handle = fsdp.enable(model)
    train_plainly(model, 0)
    with Copies() as copies:
        model[0].unshard()
    assert copies.counts == {"aten::_foreach_copy_": 1}, copies.counts
    model[0].reshard()
    assert_on_engines(handle)
    with Copies() as copies:            # PyTorch's own again
        model[0].unshard()
    assert sum(copies.counts.values()) > 1, copies.counts
    model[0].reshard()


def other_dtypes_stay():
    """Gradients in fp64 are not summed by us; the stats say why."""
    handle, _ = assert_same_training(1e-12, functools.partial(train_plainly,
                                                              dtype=torch.float64),
                                     change=nn.Module.double)
    for stats in handle.stats:
        assert stats.all_gather == WORDS[handle.level], stats
        assert stats.reduce_scatter.startswith("PyTorch: gradients of torch.float64"), stats
    handle.disable()


class Dtypes(unittest.TestCase):
    def test_fp32(self):
        rig.run(with_policy, 1e-5)

    def test_bf16(self):
        rig.run(functools.partial(with_policy, 2e-2, param_dtype=torch.bfloat16))

    def test_fp32_sums_of_bf16(self):
        rig.run(functools.partial(with_policy, 1e-5, param_dtype=torch.bfloat16,
                                  reduce_dtype=torch.float32))

    def test_fp16(self):
        rig.run(functools.partial(with_policy, 1e-2, param_dtype=torch.float16))

    def test_whole_bf16_model(self):
        rig.run(whole_bf16_model)

    def test_mixed_dtypes(self):
        rig.run(mixed_dtypes)

    @needs_inner
    def test_some_need_no_cast(self):
        rig.run(some_need_no_cast)

    @needs_inner
    def test_cast_on_the_way(self):
        rig.run(cast_on_the_way)

    def test_other_dtypes_stay(self):
        rig.run(other_dtypes_stay)


class Casts(unittest.TestCase):
    def test_what_has_no_stand_in(self):
        def param(param_dtype, kept, offload_to_cpu=False):
            return types.SimpleNamespace(param_dtype=param_dtype, offload_to_cpu=offload_to_cpu,
                                         _sharded_param_data=torch.zeros(4, dtype=kept))

        bf16, fp32, byte = torch.bfloat16, torch.float32, torch.uint8
        for dtype, params in ((bf16, [param(bf16, fp32)] * 2), (fp32, [param(None, fp32)])):
            self.assertEqual({part.dtype for part in uncast(params)}, {dtype})
        for params in ([param(None, byte)], [param(byte, fp32)],
                       [param(bf16, fp32), param(None, bf16)],
                       [param(bf16, fp32), param(None, fp32)], [param(bf16, fp32, True)]):
            self.assertIsNone(uncast(params))


if __name__ == "__main__":
    unittest.main()
