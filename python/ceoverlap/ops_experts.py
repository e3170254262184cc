# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Dispatch and combine of a mixture of experts. ``include/ceoverlap/ops.h`` is the contract, and
ceoverlap.ops says what operators have in common.

Rank r has the experts from r * n_experts / n_ranks on. A dispatch sends a copy of each token to
each of its top_k experts; a combine brings back what they made of the copies and adds it up. Both
take the same shape:

n_tokens    that a rank has in a run at most; the same at all ranks, as all of these are
hidden      elements of a token, a multiple of 8
n_experts   of all ranks
top_k       experts of a token
capacity    rows that a rank sends to another one in a run at most; None: as many as there can be
n_received  rows for which a dispatch's result has room; None: n_ranks * capacity
n_groups    into which each rank's experts are divided, equal parts in order; a run serves one
total_capacity  rows that a rank sends to another one in the runs of all groups at most; None: no
            such limit

Where copies went is the routing, two arrays of the caller that a dispatch writes and combines
read: slots, n x top_k of int32, and arrived, n_ranks x n_experts / n_ranks of uint32 or int32. The
dispatch of group 0 writes that of all groups, and those of other groups read it.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

from . import _abi, errors
from .buffer import Array, Memory, memory_of
from .ops import Tuning, Workspace, _Op, _scratch_bytes, _shape
from .stream import StreamLike


class _Experts(_Op):
    """What dispatch and combine have in common."""

    _scratch_call = ""
    can_be_captured = False             # the engine counts rows, and takes no part in graphs

    def __init__(self, workspace: Workspace, n_tokens: int, hidden: int, n_experts: int,
                 top_k: int, dtype: str = "bfloat16", *, capacity: Optional[int] = None,
                 n_received: Optional[int] = None, n_groups: int = 1,
                 total_capacity: Optional[int] = None) -> None:
        n_ranks = workspace.context.n_ranks
        self.n_tokens = n_tokens
        self.hidden = hidden
        self.n_experts = n_experts
        self.top_k = top_k
        self.dtype: str = str(dtype)
        self.n_groups = n_groups
        self.n_each: int = n_experts // n_ranks // max(n_groups, 1)          # 0 groups count as one
        self.capacity: int = capacity or n_tokens * min(top_k, self.n_each)
        self.n_received: int = n_received or n_ranks * self.capacity
        super().__init__(workspace, self._shape_of(n_tokens, hidden, n_experts, top_k, dtype,
                                                   capacity, n_received, n_groups,
                                                   total_capacity))

    @staticmethod
    def _shape_of(n_tokens: int, hidden: int, n_experts: int, top_k: int, dtype: str,
                  capacity: Optional[int], n_received: Optional[int], n_groups: int,
                  total_capacity: Optional[int]) -> Any:
        shape = _shape(_abi.ceov_moe, dtype, None)
        shape.n_tokens = n_tokens
        shape.hidden = hidden
        shape.n_experts = n_experts
        shape.top_k = top_k
        shape.capacity = capacity or 0
        shape.n_received = n_received or 0
        shape.n_groups = n_groups
        shape.total_capacity = total_capacity or 0
        return shape

    @classmethod
    def scratch_bytes(cls, n_ranks: int, n_tokens: int, hidden: int, n_experts: int, top_k: int,
                      dtype: str = "bfloat16", *, capacity: Optional[int] = None,
                      n_received: Optional[int] = None, n_groups: int = 1,
                      total_capacity: Optional[int] = None) -> int:
        """Returns how much scratch memory its workspace needs, for n_ranks ranks."""
        return _scratch_bytes(cls._scratch_call,
                              cls._shape_of(n_tokens, hidden, n_experts, top_k, dtype, capacity,
                                            n_received, n_groups, total_capacity), n_ranks)

    def _array(self, obj: Array, name: str, dtypes: Tuple[str, ...], n: int,
               is_result: bool = False) -> Memory:
        """Returns the Memory of n numbers of 4 bytes."""
        memory = memory_of(obj)
        if memory.dtype not in dtypes or memory.size_bytes != 4 * n:
            raise errors.InvalidError(f"{name}: shape {memory.shape} of {memory.dtype}, must be "
                                      f"{n} numbers of {' or '.join(dtypes)}")
        self._check_memory(memory, name, is_result)
        return memory

    def _tokens(self, obj: Array, name: str, is_result: bool = False) -> Tuple[Memory, int]:
        """Returns the Memory of rows of tokens, and how many there are."""
        shape = memory_of(obj).shape
        if len(shape) != 2 or shape[0] > self.n_tokens:
            raise errors.InvalidError(f"{name}: shape {shape}, must be at most {self.n_tokens} x "
                                      f"{self.hidden}")
        return self._operand(obj, name, shape[0], self.hidden, is_result=is_result), shape[0]

    def _routing(self, run: Any, slots: Array, arrived: Array, n: int, is_result: bool) -> None:
        run.routing.slots = self._array(slots, "slots", ("int32",), n * self.top_k,
                                        is_result).address
        run.routing.arrived = self._array(arrived, "arrived", ("uint32", "int32"),
                                          self.n_experts, is_result).address


class MoeDispatch(_Experts):
    """Dispatch: copies of tokens go to the ranks of their experts. The arguments are those that
    the module names."""

    _create_call = "ceov_moe_dispatch_create"
    _run_call = "ceov_moe_dispatch_run"
    _scratch_call = "ceov_moe_dispatch_scratch_bytes"

    def run(self, tokens: Array, experts: Array, slots: Array, arrived: Array, received: Array,
            ends: Array, stream: Optional[StreamLike] = None, *, sent: Array = None,
            group: int = 0) -> Array:
        """tokens: n x hidden; experts: n x top_k numbers of experts, -1 for none, int32. None:
        copies go where those of an earlier dispatch went, whose routing is given, at all ranks.
        slots, arrived: the routing. received: n_received x hidden, in the order of own experts,
        ranks and tokens. ends: int32, for each own expert of the group the row behind its last
        one. sent: n_ranks x n_experts / n_ranks of uint32 or int32, how many rows this rank sends;
        written with the routing, and of use where that is given. group: whose rows come; 0 where
        experts are given. Returns received."""
        is_routed = experts is None
        run = _abi.new(_abi.ceov_moe_dispatch_run)
        memory, n = self._tokens(tokens, "tokens")
        run.n_tokens = n
        run.tokens = memory.address
        run.is_routed = is_routed
        if not is_routed:
            run.experts = self._array(experts, "experts", ("int32",), n * self.top_k).address
        self._routing(run, slots, arrived, n, not is_routed)
        run.received = self._operand(received, "received", self.n_received, self.hidden,
                                     is_result=True).address
        run.ends = self._array(ends, "ends", ("int32",), self.n_each, is_result=True).address
        if sent is not None:
            run.sent = self._array(sent, "sent", ("uint32", "int32"), self.n_experts,
                                   not is_routed).address
        run.group = group
        self._start(run, stream)
        return received


class MoeCombine(_Experts):
    """Combine: what experts made of the copies of a token comes back, and is added up. The
    arguments are those that the module names."""

    _create_call = "ceov_moe_combine_create"
    _run_call = "ceov_moe_combine_run"
    _scratch_call = "ceov_moe_combine_scratch_bytes"

    def run(self, rows: Array, slots: Array, arrived: Array, sums: Array, weights: Array = None,
            stream: Optional[StreamLike] = None, *, group: int = 0) -> Array:
        """rows: n_received x hidden, in the order of a dispatch's result; slots, arrived: its
        routing. sums: n x hidden. weights: n x top_k of float32, by which copies are multiplied;
        None: all are 1. group: whose rows these are; sums are those of a token's copies for its
        experts. Returns sums."""
        run = _abi.new(_abi.ceov_moe_combine_run)
        memory, n = self._tokens(sums, "sums", is_result=True)
        run.n_tokens = n
        run.sums = memory.address
        run.rows = self._operand(rows, "rows", self.n_received, self.hidden).address
        if weights is not None:
            run.weights = self._array(weights, "weights", ("float32",), n * self.top_k).address
        self._routing(run, slots, arrived, n, is_result=False)
        run.group = group
        self._start(run, stream)
        return sums
