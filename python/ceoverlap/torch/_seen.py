# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Shows calls to torch.profiler, as "ceov::all_gather" and the like, while one runs. With
record_shapes=True an event also has the group, the bytes that this rank gives, and the way that
they go: "channel", or the mode of an operator that the engine's copies or kernels make. At other
times a call costs one look whether a profiler runs."""

from __future__ import annotations

import functools
import re
from typing import Any, Callable, Optional, TypeVar, cast

import torch

from . import _compat

_Function = TypeVar("_Function", bound=Callable[..., Any])


@functools.lru_cache(maxsize=None)
def name_of_kind(kind: Any) -> str:
    """Returns "all_gather" for ops.AllGather."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def shown(name: str, group: Any, x: Optional[torch.Tensor], way: str) -> Any:
    """Returns a context manager within which a call is shown; x is what this rank gives, if it
    does."""
    given, n_bytes = ((), 0) if x is None else ((x,), x.nbytes)
    return _compat.profiled(f"ceov::{name}", given, {"group": group.name, "bytes": n_bytes,
                                                    "way": way})


def by_channel(function: _Function) -> _Function:
    """For functions whose first two arguments are a group and what this rank gives, and that make
    the collective of their name by the group's channel."""
    name = function.__name__

    @functools.wraps(function)
    def call(group: Any, x: torch.Tensor, *arguments: Any) -> Any:
        if not _compat.is_profiling():
            return function(group, x, *arguments)
        with shown(name, group, x, "channel"):
            return function(group, x, *arguments)

    return cast(_Function, call)        # it is called as the function is
