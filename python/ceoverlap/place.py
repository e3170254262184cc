# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The memory in which a rank's data lies: the host's, or a GPU's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from . import _abi, errors


@dataclass(frozen=True)
class Place:
    """The memory in which a rank's data lies: kind "host" or "gpu", and for a GPU the number
    that the CUDA driver gives it."""
    kind: str
    index: int = 0

    def _struct(self) -> _abi.ceov_place:
        kind = _abi.CEOV_PLACE_GPU if self.kind == "gpu" else _abi.CEOV_PLACE_HOST
        return _abi.ceov_place(kind, self.index)


HOST = Place("host")
PlaceLike = Union[Place, str]


def place_from(struct: _abi.ceov_place) -> Place:
    """Returns the Place that the library tells. index CEOV_NOBODY, which is 2^32 - 1, stands for a
    GPU that this process does not see."""
    return Place("gpu", struct.index) if struct.kind == _abi.CEOV_PLACE_GPU else HOST


def place_of(place: PlaceLike) -> Place:
    """Returns the Place that "host", "gpu:N" or a Place stands for."""
    if isinstance(place, Place):
        return place
    if place == "host":
        return HOST
    kind, _, index = str(place).partition(":")
    if kind not in ("gpu", "cuda") or not index.isdecimal():
        raise errors.InvalidError(f"place {place!r}: must be 'host' or 'gpu:N'")
    return Place("gpu", int(index))
