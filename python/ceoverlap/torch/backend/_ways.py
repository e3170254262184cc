# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Which calls of a backend the group's channel makes, and which PyTorch's own backend. All ranks
have to decide alike, so nothing counts but the kind of the call, the dtype and the reduction: no
alignment, no gaps, no size."""

from __future__ import annotations

import collections
import logging
from typing import Any, Dict, Optional, Tuple

import torch
import torch.distributed as dist

from ... import _abi

_Op = dist.ReduceOp.RedOpType

REDUCTIONS = {_Op.SUM: _abi.CEOV_SUM, _Op.PRODUCT: _abi.CEOV_PRODUCT, _Op.MIN: _abi.CEOV_MIN,
              _Op.MAX: _abi.CEOV_MAX, _Op.AVG: _abi.CEOV_MEAN}
_INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)

# The dtypes of sums.
GPU_SUMS = (torch.bfloat16, torch.float16, torch.float32)
HOST_SUMS = (*GPU_SUMS, torch.float64, *_INTEGERS)


class Ways:
    """Decides, counts, and says once for each kind of call at level info what is not the channel's.

    name        of the group
    refusal     why no call is the channel's, "" if some are
    other       the name of PyTorch's backend that makes the others
    summed      dtypes that the channel adds up"""

    def __init__(self, name: str, refusal: str, other: str,
                 summed: Tuple[torch.dtype, ...]) -> None:
        self._name, self.refusal, self._other, self._summed = name, refusal, other, summed
        self._reasons: Dict[tuple, str] = {}
        self.ours: collections.Counter = collections.Counter()
        self.plain: collections.Counter = collections.Counter()

    def is_ours(self, kind: str, x: Optional[torch.Tensor] = None, op: Any = None) -> bool:
        """Returns whether the channel makes the call: of x's dtype, or of a message or a barrier
        without one; op: its reduction."""
        key = (kind, x.dtype, x.layout, op) if x is not None else kind
        reason = self._reasons.get(key)
        if reason is None:
            reason = self.refusal or (x is not None and self._why_not(x.dtype, x.layout, op)) or ""
            self._reasons[key] = reason
        if reason:
            self.count_plain(kind, reason)
            return False
        self.ours[kind] += 1
        return True

    def _why_not(self, dtype: torch.dtype, layout: torch.layout, op: Any) -> str:
        """Returns why no channel makes a call with such a tensor, "" if one does. op: None for a
        move."""
        if layout != torch.strided:
            return f"channels have no {layout} tensors"
        if op is None:
            return ""
        if op not in REDUCTIONS:
            return f"channels have no reduction {op.name}"
        if dtype not in self._summed or op == _Op.AVG and dtype in _INTEGERS:
            return f"channels have no {op.name} of {dtype}"
        return ""

    def count_plain(self, kind: str, reason: str) -> None:
        """Counts a call that is PyTorch's, and says so if it is the first of its kind."""
        self.plain[kind] += 1
        if self.plain[kind] == 1:
            logging.getLogger("ceoverlap").info(
                "group %s: %s goes to %s: %s", self._name, kind, self._other, reason)
