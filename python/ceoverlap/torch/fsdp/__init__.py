# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""PyTorch's FSDP2 (fully_shard) on copy engines.

    from ceoverlap.torch import fsdp

    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    handle = fsdp.enable(model)         # the model trains as before
    ...
    print(handle.stats[0])
    handle.disable()                    # PyTorch's own communication again

All-gathers take no SM: each rank's copy engine pulls the shards from its peers straight into
the unsharded parameters. Reduce-scatters move on copy engines and sum in fp32 in a bounded
kernel. All ranks enable and disable together; results are PyTorch's, but for the rounding of
averages (see _sums.py) and the order of sums.

What is not understood (compiled autograd, all-gather extensions such as float8's, gradients
of other dtypes, ...) stays with PyTorch, group by group, and the stats say why.
"""

from __future__ import annotations

import os

import torch.nn as nn

from ... import errors
from .. import _compat
from ._handle import GroupStats, Handle

__all__ = ["GroupStats", "Handle", "enable"]


def enable(model: nn.Module, *, gather: bool = True, scatter: bool = True) -> Handle:
    """Puts the communication of a model's FSDP2 parameter groups on copy engines. After
    fully_shard() was applied to the submodules and the root; by all ranks together.

    gather, scatter  which of both

    The process groups that shard parameters have to be on one host; each gets a
    ceoverlap.torch.Group (for another deadline than its default one make it before, by
    Group(process_group, deadline_s=...)). With HSDP the shards' communication is ours, the
    all-reduce among replicas stays PyTorch's.

    Streams wait for peers in the GPU. What they wait for does not depend on what the process
    does next: it may load kernels and free memory meanwhile.

    VersionError: this PyTorch's FSDP2 is not what is known. InvalidError: no parameter group,
    several hosts. StateError: enabled already, or one hardware queue for all streams.
    """
    _compat.look_at_fsdp2()             # before anything is imported that is made from it
    from . import _parts

    _check_environment(model)
    parts = _parts.parts_of(model)
    if not parts:
        raise errors.InvalidError("enable: the model has no FSDP2 parameter group: apply "
                                  "torch.distributed.fsdp.fully_shard() to it first")
    for part in parts:                  # which may refuse, so all of it comes first
        _parts.join(part)
    shared = _parts.Shared({}, {}, {})
    for part in parts:
        _parts.equip(part, shared, gather, scatter)
    return Handle(parts)


def _check_environment(model: nn.Module) -> None:
    """Refuses CUDA settings of the environment, read at CUDA's first use, with which streams
    could block each other."""
    if not any(parameter.is_cuda for parameter in model.parameters()):
        return
    if os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1":
        raise errors.StateError("enable: CUDA_DEVICE_MAX_CONNECTIONS=1: an all-gather that "
                                "waits for a peer would hold up all other streams: set it "
                                "to 32, or leave it unset")
