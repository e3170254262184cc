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
of other dtypes, ...) stays with PyTorch, group by group, and the stats say why. Where FSDP2's
inner parts are not known, its public hooks are used; see enable().
"""

from __future__ import annotations

import logging
import os
from typing import List, Optional

import torch.nn as nn

from ... import errors
from .. import _compat
from ._handle import GroupStats, Handle, Part

__all__ = ["GroupStats", "Handle", "enable"]

LEVELS = (None, "inner", "public")


def enable(model: nn.Module, *, gather: bool = True, scatter: bool = True,
           level: Optional[str] = None) -> Handle:
    """Puts the communication of a model's FSDP2 parameter groups on copy engines. After
    fully_shard() was applied to the submodules and the root; by all ranks together.

    gather, scatter  which of both
    level            "inner": all-gathers go straight into the parameters, which takes inner
                     parts of FSDP2. "public": FSDP2's public hooks alone, so that FSDP2 copies
                     what was gathered once more, as it does with PyTorch's collectives. None:
                     the former where this PyTorch's inner parts are known, else the latter,
                     the same at all ranks; Handle.level tells

    The process groups that shard parameters each get a ceoverlap.torch.Group (for another
    deadline than its default one make it before, by Group(process_group, deadline_s=...)), at
    level "public" at the first call. With HSDP the shards' communication is ours, the
    all-reduce among replicas stays PyTorch's.

    Streams wait for peers in the GPU. What they wait for does not depend on what the process
    does next: it may load kernels and free memory meanwhile.

    VersionError: this PyTorch has no FSDP2 with public hooks, or for level "inner" not the inner
    parts that are known. InvalidError: no parameter group, an unknown level. StateError: enabled
    already, or one hardware queue for all streams.
    """
    if level not in LEVELS:
        raise errors.InvalidError(f"enable: level {level!r}: must be 'inner', 'public' or None")
    _check_environment(model)
    found = level or _level_of_this_version()
    parts = (_inner_parts if found == "inner" else _public_parts)(model, gather, scatter)
    if not parts:
        raise errors.InvalidError("enable: the model has no FSDP2 parameter group: apply "
                                  "torch.distributed.fsdp.fully_shard() to it first")
    return Handle(parts, found)


def _level_of_this_version() -> str:
    try:
        _compat.look_at_fsdp2()
    except errors.VersionError as error:
        logging.getLogger("ceoverlap").info("%s: its public hooks are used", error)
        return "public"
    return "inner"


def _inner_parts(model: nn.Module, gather: bool, scatter: bool) -> List[Part]:
    _compat.look_at_fsdp2()             # before anything is imported that is made from it
    from . import _parts

    return _parts.inner_parts(model, gather, scatter)


def _public_parts(model: nn.Module, gather: bool, scatter: bool) -> List[Part]:
    _compat.look_at_fsdp2_hooks()
    from . import _public

    return _public.public_parts(model, gather, scatter)


def _check_environment(model: nn.Module) -> None:
    """Refuses CUDA settings of the environment, read at CUDA's first use, with which streams
    could block each other."""
    if not any(parameter.is_cuda for parameter in model.parameters()):
        return
    if os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1":
        raise errors.StateError("enable: CUDA_DEVICE_MAX_CONNECTIONS=1: an all-gather that "
                                "waits for a peer would hold up all other streams: set it "
                                "to 32, or leave it unset")
