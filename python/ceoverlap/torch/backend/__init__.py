# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""A backend of torch.distributed for tensors on the host, named "ceov":

    torch.distributed.init_process_group("cpu:ceov")    # GPU tensors by NCCL: "cpu:ceov,cuda:nccl"

Nothing has to be imported for it. It needs PyTorch 2.14 or later. Moves of all dtypes, messages,
and sums of floats and integers go by the channel of the process group's Group, if its ranks are on
one node; the rest is Gloo's. See docs/pytorch.md.
"""

from __future__ import annotations

from typing import Dict, Optional

import torch.distributed as dist

from .. import _compat
from ._calls import Calls

NAME = "ceov"


def register() -> None:
    """Makes the backend known to torch.distributed; called again it does nothing. PyTorch calls it
    where somebody names the backend."""
    if not _compat.has_backend(NAME):
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])


def _create(options, backend_options) -> Calls:
    _compat.check_takes_backends(NAME)
    from ._base import create           # whose class older versions cannot have

    return create(options, backend_options)


def backend_of(process_group=None, device: str = "cpu") -> Optional[Calls]:
    """Returns the backend of a process group (None: the default one) for a device; None if that is
    another one's."""
    if not _compat.takes_backends():
        return None
    from ._base import live

    at = dist.group.WORLD if process_group is None else process_group
    return None if at is None else live.get((at.group_name, device))


def stats(process_group=None) -> Dict[str, Dict[str, int]]:
    """Returns how many calls of each kind this rank has made by the channel ("ours") and by Gloo
    ("plain")."""
    backend = backend_of(process_group)
    if backend is None:
        return {"ours": {}, "plain": {}}
    return {"ours": dict(backend.ways.ours), "plain": dict(backend.ways.plain)}
