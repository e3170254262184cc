# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Dispatch and combine of tensors by a group's operators, without gradients: the implementation
behind experts.py."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional, Sequence

import torch

from .. import _abi, errors, ops, ops_experts
from .group import Group
from .operators import DTYPES, ELEMENT_STEP, RunCall, operand, round_up

COUNT_STEP = 4                          # numbers of 4 bytes: as many are an aligned piece


class _Shape(NamedTuple):
    """The shape of dispatch and combine, as operators.Operators.find() takes it. All of it is the
    same at all ranks; the fields are those of ceoverlap.ops_experts."""
    n_ranks: int
    n_tokens: int
    hidden: int
    n_experts: int
    top_k: int
    dtype: str
    capacity: int
    n_received: int
    n_groups: int
    total_capacity: int


def _named(shape: Sequence[Any]) -> Dict[str, Any]:
    """Returns the arguments behind a workspace for a _Shape's fields."""
    named = _Shape(*shape)._asdict()
    del named["n_ranks"]
    return named


class MoeDispatch(ops_experts.MoeDispatch):
    """Has a _Shape's fields as arguments."""

    def __init__(self, workspace: ops.Workspace, *shape: Any) -> None:
        super().__init__(workspace, **_named(shape))

    @classmethod
    def scratch_bytes(cls, *shape: Any, **_none: Any) -> int:
        return super().scratch_bytes(**_Shape(*shape)._asdict())


class MoeCombine(ops_experts.MoeCombine):
    """Has a _Shape's fields as arguments."""

    def __init__(self, workspace: ops.Workspace, *shape: Any) -> None:
        super().__init__(workspace, **_named(shape))

    @classmethod
    def scratch_bytes(cls, *shape: Any, **_none: Any) -> int:
        return super().scratch_bytes(**_Shape(*shape)._asdict())


_run_dispatch = RunCall("ceov_moe_dispatch_run", _abi.ceov_moe_dispatch_run)
_run_combine = RunCall("ceov_moe_combine_run", _abi.ceov_moe_combine_run)


class Routing:
    """Where the copies of one batch's tokens went. A dispatch writes it; combines and further
    dispatches of the same batch read it. It stays as it is until no gradient needs it.

    group       whose ranks have the experts: each has n_experts / group.size, in order
    n           tokens of this rank
    n_most      tokens that a rank has at most; the same at all ranks, as all that follows is
    n_experts   of all ranks
    top_k       experts of a token
    capacity    rows that a rank sends to another one at most; later ones are dropped
    n_received  rows for which the result of a dispatch has room
    n_groups    into which each rank's experts are divided. Runs then serve one group, by the
                routing that of_group() returns for it, and the two numbers above are those of a
                group. The dispatch of group 0, given expert_ids, makes the routing of all
    total_capacity  rows of all groups that a rank sends to another one at most; None: no limit
    ends        int32 tensor: for each own expert of the group the row behind its last one. The
                rows of the result behind the last expert's are undefined
    """

    n: int
    n_most: int
    n_experts: int
    top_k: int
    n_groups: int
    number: int                         # of the group that runs serve
    slots: torch.Tensor                 # the routing, as ops_experts has it
    arrived: torch.Tensor
    sent: torch.Tensor
    ends: torch.Tensor

    def __init__(self, group: Group, n: int, n_most: int, n_experts: int, top_k: int,
                 capacity: Optional[int] = None, n_received: Optional[int] = None,
                 n_groups: int = 1, total_capacity: Optional[int] = None) -> None:
        if n > n_most:
            raise errors.InvalidError(f"moe: rank {group.rank} has {n} tokens, above n_tokens, "
                                      f"which is {n_most}: pass the most that a rank has")
        if n_experts < 1 or n_experts % group.size:
            raise errors.InvalidError(f"moe: {n_experts} experts: must be a multiple of the "
                                      f"group's {group.size} ranks")
        most = min(n_experts, _abi.CEOV_MOE_TOP_K_MAX)
        if not 1 <= top_k <= most:
            raise errors.InvalidError(f"moe: {top_k} experts of a token: top_k, the columns of "
                                      f"expert_ids, must be 1 to {most}")
        n_each = n_experts // group.size // n_groups
        self.group: Group = group
        self.n, self.n_most = n, n_most
        self.n_experts, self.top_k = n_experts, top_k
        self.capacity: int = capacity or n_most * min(top_k, n_each)
        self.n_received: int = n_received or group.size * self.capacity
        self.n_groups, self.number = n_groups, 0
        self.total_capacity: int = total_capacity or 0
        self._same: Optional[torch.Tensor] = None       # see named_once()
        # Zeros, because a run that fails does not write them, and who follows takes them for rows.
        step, end_step = round_up(n_experts, COUNT_STEP), round_up(n_each, COUNT_STEP)
        counts = torch.zeros(2 * step + n_groups * end_step, dtype=torch.int32,
                             device=group.device)
        self.slots = counts.new_empty((n, top_k))
        self.arrived, self.sent = counts[:n_experts], counts[step:step + n_experts]
        self._ends = counts[2 * step:].view(n_groups, end_step)[:, :n_each]
        self.ends = self._ends[0]

    def named_once(self, expert_ids: torch.Tensor) -> torch.Tensor:
        """Returns the int32 numbers that the dispatch which makes this routing takes, for n x top_k
        integers. If a token could have more copies in a group than the group has experts, for which
        blocks have no room, an expert that a token names again is left out there; weights_of()
        counts it. Call it before of_group()."""
        _check_numbers(expert_ids, self, "dispatch: expert_ids")
        if expert_ids.is_floating_point() or expert_ids.is_complex():
            raise errors.InvalidError(f"dispatch: expert_ids of {expert_ids.dtype}: must be "
                                      "integers")
        self.group.operators.compare_numbers("dispatch: expert_ids", expert_ids, -1,
                                             self.n_experts)
        if expert_ids.dtype == torch.int64:     # no number that int32 lacks becomes an expert's
            expert_ids = expert_ids.clamp(-2, self.n_experts)
        expert_ids = expert_ids.to(torch.int32)
        if self.top_k <= self.n_experts // self.group.size // self.n_groups:
            return expert_ids
        self._same = expert_ids[:, :, None] == expert_ids[:, None, :]
        return expert_ids.masked_fill(self._same.tril(-1).any(-1), -1)

    def weights_of(self, weights: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
        """Returns the weights of the copies that travel, where `weights` has those of all, n x
        top_k of float32; None: all are 1."""
        if self._same is None:
            return weights
        if weights is None:
            return self._same.sum(-1, dtype=torch.float32)
        _check_numbers(weights, self, "combine: weights")
        return torch.where(self._same, weights[:, None, :], 0).sum(-1)

    def of_group(self, number: int) -> Routing:
        """Returns the same routing for the runs of one group."""
        one = Routing.__new__(Routing)
        one.__dict__.update(self.__dict__)
        one.number, one.ends = number, self._ends[number]
        return one

    def of_copies(self) -> Routing:
        """Returns the same routing with each copy of a token taken for a token of its own, which
        has one expert. So each copy may have a row of its own."""
        copies = Routing.__new__(Routing)
        copies.__dict__.update(self.__dict__)
        copies.n, copies.n_most = self.n * self.top_k, self.n_most * self.top_k
        copies.top_k = 1
        return copies

    def key(self, kind: type, rows: torch.Tensor) -> Any:
        """Returns the key of the operator for such rows; see Operators.find()."""
        return kind, _Shape(self.group.size, self.n_most, rows.shape[1], self.n_experts,
                            self.top_k, DTYPES[rows.dtype], self.capacity, self.n_received,
                            self.n_groups, self.total_capacity)


def _check_rows(x: torch.Tensor, n: int, routing: Routing, what: str) -> None:
    if x.dim() != 2 or x.shape[0] != n or x.shape[1] % ELEMENT_STEP or not x.shape[1]:
        raise errors.InvalidError(f"{what}: shape {tuple(x.shape)}: must be {n} x a multiple of "
                                  f"{ELEMENT_STEP}")
    if x.dtype not in DTYPES:
        raise errors.InvalidError(f"{what}: {x.dtype}: must be one of {list(DTYPES)}")
    if x.device != routing.group.device:
        raise errors.InvalidError(f"{what}: a tensor on {x.device}, but the group's rank "
                                  f"{routing.group.rank} is on {routing.group.device}")


def _check_numbers(x: torch.Tensor, routing: Routing, what: str) -> None:
    shape = routing.n, routing.top_k
    if x.shape != shape or x.device != routing.group.device:
        raise errors.InvalidError(f"{what}: {tuple(x.shape)} on {x.device}, must be {shape} on "
                                  f"{routing.group.device}")


def dispatch(x: torch.Tensor, expert_ids: Optional[torch.Tensor],
             routing: Routing) -> torch.Tensor:
    """Returns the copies of tokens that come to this rank's experts, n_received x hidden, in the
    order of own experts, ranks and tokens. x: n x hidden. expert_ids: as Routing.named_once()
    returns them; routing receives where copies go. None: they go where routing says. Of several
    groups, the copies for the routing's one come."""
    _check_rows(x, routing.n, routing, "dispatch: x")
    group, is_routed, experts = routing.group, expert_ids is None, 0
    if expert_ids is not None:
        expert_ids = operand(expert_ids)
        experts = expert_ids.data_ptr()
    x = operand(x)
    received = x.new_empty((routing.n_received, x.shape[1]))
    what = "dispatch by its routing" if is_routed else "dispatch by expert_ids"
    op = group.operators.find(routing.key(MoeDispatch, x), (what, x, (routing.n_most,)))
    _run_dispatch(group, op, x, routing.n, x.data_ptr(), is_routed, experts,
                  routing.slots.data_ptr(), routing.arrived.data_ptr(), received.data_ptr(),
                  routing.ends.data_ptr(), routing.sent.data_ptr(), routing.number)
    return received


def combine(rows: torch.Tensor, weights: Optional[torch.Tensor],
            routing: Routing) -> torch.Tensor:
    """Returns for each token, n x hidden, the sum over its copies of what lies in rows, which is
    as a dispatch's result, times the copy's weight. weights: n x top_k of float32; None: all are
    1. Copies that went nowhere, or to another group, are left out."""
    _check_rows(rows, routing.n_received, routing, "combine: rows")
    group, factors = routing.group, 0
    if weights is not None:
        _check_numbers(weights, routing, "combine: weights")
        if weights.dtype != torch.float32:
            raise errors.InvalidError(f"combine: weights of {weights.dtype}: must be float32")
        weights = operand(weights)
        factors = weights.data_ptr()
    rows = operand(rows)
    sums = rows.new_empty((routing.n, rows.shape[1]))
    op = group.operators.find(routing.key(MoeCombine, rows))
    _run_combine(group, op, rows, routing.n, rows.data_ptr(), factors, routing.slots.data_ptr(),
                 routing.arrived.data_ptr(), sums.data_ptr(), routing.number)
    return sums
