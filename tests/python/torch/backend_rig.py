# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""What the tests of the backend "ceov" share: ranks whose process group has it, and tensors in
awkward places."""

import atexit
import os
import unittest
from unittest import mock

import rig
import torch
import torch.distributed as dist

from ceoverlap.torch import _compat

BACKEND = "cpu:ceov"
# Whether PyTorch takes a backend for each device, or else a whole process group of ours.
IS_BY_DEVICE = _compat.takes_backends()
by_device = unittest.skipUnless(IS_BY_DEVICE, "is about what PyTorch has from 2.14 on")
whole = unittest.skipIf(IS_BY_DEVICE, "is about PyTorch before 2.14")
HOWS = ("plain", "misaligned", "gaps", "turned")


def world(size=3, **environment):
    """Ranks whose processes have these variables, too."""
    with mock.patch.dict(os.environ, environment):
        return rig.World(size, BACKEND)


_shared = None


def run_here(function, *args):
    """function(*args) at ranks that all tests share, until one has failed."""
    global _shared
    if _shared is None or not _shared.is_open:
        _shared = world()
    return _shared.run(function, *args)


@atexit.register
def _close():
    if _shared is not None and _shared.is_open:
        _shared.close()


def gloo(ranks=None):
    """Gloo's group of the ranks."""
    return dist.new_group(ranks, backend="gloo")


def awkward(x, how):
    """Returns the same numbers in memory that begins beside a multiple of 16 bytes, that has gaps,
    or whose dimensions are the other way round."""
    if how == "misaligned":
        memory = torch.zeros(x.numel() + 1, dtype=x.dtype)
        made = memory[1:].view(x.shape)
    elif how == "gaps":
        made = torch.zeros((*x.shape, 2), dtype=x.dtype)[..., 1]
    elif how == "turned":
        made = torch.zeros(x.shape[::-1], dtype=x.dtype).permute(
            tuple(range(x.dim() - 1, -1, -1)))
    else:
        return x.clone()
    return made.copy_(x)
