# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Where a rank's memory is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from . import _abi, errors


@dataclass(frozen=True)
class Place:
    """Where a rank's memory is: kind "host" or "gpu", and the CUDA driver's ordinal."""
    kind: str
    index: int = 0

    def _struct(self) -> _abi.ceov_place:
        kind = _abi.CEOV_PLACE_GPU if self.kind == "gpu" else _abi.CEOV_PLACE_HOST
        return _abi.ceov_place(kind, self.index)


HOST = Place("host")
PlaceLike = Union[Place, str]


def place_of(place: PlaceLike) -> Place:
    """A Place from "host", "gpu:N" or a Place."""
    if isinstance(place, Place):
        return place
    if place == "host":
        return HOST
    kind, _, index = str(place).partition(":")
    if kind not in ("gpu", "cuda") or not index.isdecimal():
        raise errors.InvalidError(f"place {place!r}: must be 'host' or 'gpu:N'")
    return Place("gpu", int(index))
