# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Shows calls to torch.profiler, as "ceov::all_gather" and the like, while one runs. With
record_shapes=True an event also has the group, the bytes that this rank gives, and the way that
they go: "channel", or the mode of an operator that the engine's copies or kernels make. At other
times a call costs one look whether a profiler runs."""

from __future__ import annotations

import functools
import re
from typing import Optional

import torch

from . import _compat


@functools.lru_cache(maxsize=None)
def name_of_kind(kind: type) -> str:
    """Returns "all_gather" for ops.AllGather."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def shown(name: str, group, x: Optional[torch.Tensor], way: str):
    """Returns a context manager within which a call is shown; x is what this rank gives, if it
    does."""
    given, n_bytes = ((), 0) if x is None else ((x,), x.nbytes)
    return _compat.profiled(f"ceov::{name}", given, {"group": group.name, "bytes": n_bytes,
                                                    "way": way})


def by_channel(function):
    """For functions whose first two arguments are a group and what this rank gives, and that make
    the collective of their name by the group's channel."""
    name = function.__name__

    @functools.wraps(function)
    def call(group, x, *arguments):
        if not _compat.is_profiling():
            return function(group, x, *arguments)
        with shown(name, group, x, "channel"):
            return function(group, x, *arguments)

    return call
