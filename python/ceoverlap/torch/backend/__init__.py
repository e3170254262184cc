# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""A backend of torch.distributed named "ceov", for tensors on GPUs, on the host, or both:

    torch.distributed.init_process_group("cuda:ceov,cpu:gloo")      # or "ceov", or "cpu:ceov"

From PyTorch 2.14 on nothing has to be imported for it; before, `import ceoverlap.torch` makes it
known. Moves of all dtypes, messages, and sums of floats (on the host of integers, too) go by the
channel of the process group's Group, if its ranks are on one node; the rest is NCCL's, and on the
host Gloo's. See docs/pytorch.md.
"""

from __future__ import annotations

from typing import Any, Dict, Optional

import torch.distributed as dist

from ... import errors, hang
from .. import _compat
from . import _base, _whole
from ._base import NAME
from ._calls import Calls


def register() -> None:
    """Makes the backend known to torch.distributed; called again it does nothing. PyTorch calls it
    where somebody names the backend."""
    if not _compat.has_backend(NAME):
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(options: Any, backend_options: Any) -> Any:
    _compat.check_takes_backends(NAME)
    create = _base.create if _compat.takes_backends() else _whole.create
    return create(options, backend_options)


def backend_of(process_group: Any = None) -> Optional[Calls]:
    """Returns the backend of a process group (None: the default one); None if it has another one.
    """
    at = dist.group.WORLD if process_group is None else process_group
    if at is None:
        return None
    return (_base.live.get((at.group_name, "cuda")) or
            _base.live.get((at.group_name, "cpu")))


def stats(process_group: Any = None) -> Dict[str, Dict[str, int]]:
    """Returns how many calls of each kind this rank has made by channels ("ours"), and by Gloo and
    NCCL ("plain")."""
    backend = backend_of(process_group)
    return {"ours": {}, "plain": {}} if backend is None else backend.counts()


def report(process_group: Any = None) -> hang.Report:
    """Returns what each rank of a process group has called last, whom it waits for, and whose call
    differs, now and as far as this node sees it: text(), json(), why. No other rank takes part, so
    any thread may ask at any time. From outside: python -m ceoverlap.hang."""
    return _existing(process_group).record.report()


def dump(folder: str, process_group: Any = None) -> str:
    """Writes a report() into a new folder in that folder, as text and as JSON, and in its folder
    "fr" a file for each rank, for PyTorch's torchfrtrace. Returns the new folder's path."""
    record = _existing(process_group).record
    return record.write(folder, record.report())


def _existing(process_group: Any) -> Calls:
    backend = backend_of(process_group)
    if backend is None:
        raise errors.InvalidError("a hang report: the process group has another backend than ceov")
    return backend
