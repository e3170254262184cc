# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Which calls of a backend the group's channel makes, and which PyTorch's own backend. All ranks
have to decide alike, so nothing counts but the kind of the call, the dtype and the reduction: no
alignment, no gaps, no size."""

from __future__ import annotations

import logging
from typing import Any, Dict, Optional, Tuple

import torch
import torch.distributed as dist

from ... import _abi, _flight

_Op: Any = dist.ReduceOp.RedOpType
_AVG = int(_Op.AVG)

# By the numbers of RedOpType.
REDUCTIONS = {int(_Op.SUM): _abi.CEOV_SUM, int(_Op.PRODUCT): _abi.CEOV_PRODUCT,
              int(_Op.MIN): _abi.CEOV_MIN, int(_Op.MAX): _abi.CEOV_MAX, _AVG: _abi.CEOV_MEAN}
_INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)

# The dtypes of sums.
GPU_SUMS = (torch.bfloat16, torch.float16, torch.float32)
HOST_SUMS = (*GPU_SUMS, torch.float64, *_INTEGERS)


class Way:
    """The way of one kind of call, dtype and reduction.

    kind    of the call
    reason  why it is not the channel's, "" if it is
    codes   what it is for the group's record of calls
    n       how often it was taken"""

    __slots__ = ("kind", "reason", "is_ours", "codes", "n")

    def __init__(self, kind: str, reason: str, codes: int) -> None:
        self.kind, self.reason, self.is_ours, self.codes = kind, reason, not reason, codes
        self.n = 0


class Ways:
    """Decides, counts, and says once for each kind of call at level info what is not the channel's.

    name        of the group
    refusal     why no call is the channel's, "" if some are
    other       the name of PyTorch's backend that makes the others
    summed      dtypes that the channel adds up"""

    def __init__(self, name: str, refusal: str, other: str,
                 summed: Tuple[torch.dtype, ...]) -> None:
        self._name, self.refusal, self._other, self._summed = name, refusal, other, summed
        self._known: Dict[Tuple[Any, ...], Way] = {}

    def of(self, kind: str, x: Optional[torch.Tensor] = None, op: Optional[int] = None,
           why_not: str = "") -> Way:
        """Returns the way of a call, which is counted: of x's dtype, or of a message or a barrier
        without one; op: its reduction's number in RedOpType; of a message that is not the
        channel's, its tag. why_not: why it is not the channel's whatever the tensor is."""
        key = (kind, op, why_not) if x is None else (kind, x.dtype, x.layout, op, why_not)
        way = self._known.get(key)
        if way is None:
            way = self._known[key] = self._find(kind, x, op, why_not)
        way.n += 1
        return way

    def _find(self, kind: str, x: Optional[torch.Tensor], op: Optional[int],
              why_not: str) -> Way:
        reason = self.refusal or why_not or (
            self._why_not(x.dtype, x.layout, op) if x is not None else "")
        kind_told = kind.replace("_single", "")
        if reason and not any(way.reason for way in self._known.values()
                              if way.kind == kind_told):
            logging.getLogger("ceoverlap").info(
                "group %s: %s goes to %s: %s", self._name, kind_told, self._other, reason)
        dtype = str(x.dtype).replace("torch.", "") if x is not None else ""
        extra = _flight.NO_REDUCTION if op is None else op & 255
        return Way(kind_told, reason, _flight.codes_of(kind, dtype, extra, self._other.lower()
                                                       if reason else "ceov"))

    def _why_not(self, dtype: torch.dtype, layout: torch.layout, op: Optional[int]) -> str:
        """Returns why no channel makes a call with such a tensor, "" if one does. op: None for a
        move."""
        if layout != torch.strided:
            return f"channels have no {layout} tensors"
        if op is None:
            return ""
        name = next((name for name, kind in _Op.__members__.items() if int(kind) == op), op)
        if op not in REDUCTIONS:
            return f"channels have no reduction {name}"
        if dtype not in self._summed or op == _AVG and dtype in _INTEGERS:
            return f"channels have no {name} of {dtype}"
        return ""

    def counts(self, are_ours: bool) -> Dict[str, int]:
        """Returns how many calls of each kind went the channel's way, or the other."""
        found: Dict[str, int] = {}
        for way in list(self._known.values()):
            if way.is_ours == are_ours and way.n:
                found[way.kind] = found.get(way.kind, 0) + way.n
        return found
