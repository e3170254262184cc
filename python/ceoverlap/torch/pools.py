# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The pool of any group: of a Group, or of a process group, whose backend may be ours."""

from __future__ import annotations

from typing import Any, Optional

import torch
import torch.distributed as dist

from .backend import backend_of
from .group import Group, GroupLike, device_of


def _meet_on_gpu(process_group: Any) -> None:
    """Lets a process group of the backend "ceov" make its group on the GPU, which its first call
    there does."""
    backend = backend_of(process_group)
    at = dist.group.WORLD if process_group is None else process_group
    if (backend is not None and backend.group_on("cuda") is None and
            device_of(at, None).type == "cuda"):
        dist.all_reduce(torch.zeros(1, device="cuda"), group=at)


def pool(group: GroupLike = None, max_bytes: Optional[int] = None) -> torch.cuda.MemPool:
    """Returns the pool of a group, in which tensors are made whose memory the group's other ranks
    know; see Group.pool(). The group is found as by Group.of(); that of a process group of the
    backend "ceov" is made, if this is its first call."""
    if dist.is_available() and dist.is_initialized() and not isinstance(group, (Group, str)):
        _meet_on_gpu(group)
    return Group.of(group).pool(max_bytes)
