# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Mixture of experts: tokens go to the ranks of their experts and come back, with gradients.

    y = ct.moe(x, expert_ids, weights, experts, n_experts)

Ranks   rank r has the n_experts / size experts from r * n_experts / size on.
experts a callable (rows, ends) -> rows of the same shape: rows, n_received x hidden, are sorted
        by this rank's experts, and ends, int32 on the same device, has for each of them the row
        behind its last one, as torch.nn.functional.grouped_mm takes it for offs. What lies
        behind ends[-1] is undefined, at the input and at the output: neither may depend on it.
Sizes   how many rows go where is known on the GPU alone: only they travel, and the host waits
        for none of it. Memory is set aside for the most that may come. Without capacity or
        n_received that is n_ranks * n_tokens * min(top_k, own experts) rows, with groups of
        experts for each group, of its own experts.
Order   the same routing yields the same bits. Sums are in fp32.
Groups  experts may be a list of callables. Then each has an equal part of this rank's experts,
        in order, and tokens travel to one group after another: the products of a group run on
        the caller's stream while, on a stream beside it, tokens come to the next group and
        results of the last one go back. The routing is made once, with the first group's
        dispatch. Each group makes runs and kernels of its own, whose time does not shrink with
        its rows: use few groups, and one where products are short. A token's sum is made of the
        groups' sums, each of which was rounded to x's dtype. Callables of several groups make
        no collective calls, of NCCL or of this package: those would run beside the exchange, in
        an order that may differ from rank to rank.

Nothing of this is in CUDA graphs, and torch.compile breaks the graph around it. On GPUs a run's
call returns when the run has ended, unless CUDA_MODULE_LOADING=EAGER is set or
group.operators.waits is False; see operators.Operators.
"""

from __future__ import annotations

import functools
import operator
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard
from torch.nn import functional as F

from .. import errors
from . import _compat, _experts
from ._experts import Routing
from ._ring import Side
from ._shares import MeshOrGroup, local, mesh_and_group, shared
from .functional import group_of, uncompiled
from .group import Group, GroupLike
from .operators import ELEMENT_STEP

Experts = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


# --- gradients ---------------------------------------------------------------------------
# Dispatch and combine without weights are each other's gradients, by the same routing.


class _Dispatch(torch.autograd.Function):
    """Sends tokens to the ranks of their experts; see _experts.dispatch()."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, expert_ids: torch.Tensor, routing: Any) -> Any:
        ctx.routing = routing
        return _experts.dispatch(x, expert_ids, routing)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _Combine.apply(grad, None, ctx.routing), None, None


class _Combine(torch.autograd.Function):
    """Brings rows back to their tokens and adds them up; see _experts.combine()."""

    @staticmethod
    def forward(ctx: Any, rows: Any, weights: Any, routing: Any) -> Any:
        ctx.routing = routing
        wants_weights = weights is not None and ctx.needs_input_grad[1]
        ctx.save_for_backward(rows if wants_weights else None, weights)
        return _experts.combine(rows, weights, routing)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        rows, weights = ctx.saved_tensors
        wants_rows, wants_weights = ctx.needs_input_grad[:2]
        grads = _Dispatch.apply(grad, None, ctx.routing)
        grad_rows, grad_weights = grads, None
        if wants_rows and weights is not None:
            grad_rows = _times(grads, _at_experts(weights, ctx.routing))
        if wants_weights:
            grad_weights = _at_tokens(_dots(grads, rows), ctx.routing)
        return grad_rows if wants_rows else None, grad_weights, None


def _times(rows: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Returns rows, each times its factor of float32, in the dtype of rows."""
    if torch.is_grad_enabled():
        return (rows * factors).to(rows.dtype)
    return torch.mul(rows, factors, out=torch.empty_like(rows))


def _dots(rows: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Returns the sum of the products of each row with the other tensor's, in fp32. Products are in
    fp32, too: those of 16-bit numbers may be beyond the range of their type where the sum is not.
    """
    wide = rows.float()
    if wide is rows or torch.is_grad_enabled():
        return (wide * others).sum(-1)
    return wide.mul_(others).sum(-1)    # rows are many, so in the memory that is there


# A number of each copy travels as a row of its own.


def _as_rows(numbers: torch.Tensor) -> torch.Tensor:
    return F.pad(numbers.reshape(-1, 1), (0, ELEMENT_STEP - 1))


def _at_experts(numbers: torch.Tensor, routing: Routing) -> torch.Tensor:
    """Returns the number of each row, n_received x 1, where numbers has those of the tokens'
    copies, n x top_k of float32."""
    return _Dispatch.apply(_as_rows(numbers), None, routing.of_copies())[:, :1]


def _at_tokens(numbers: torch.Tensor, routing: Routing) -> torch.Tensor:
    """Returns the number of each token's copy, n x top_k, where numbers has those of the rows,
    n_received of float32. It is 0 of copies that went nowhere."""
    sums = _Combine.apply(_as_rows(numbers), None, routing.of_copies())
    return sums[:, 0].reshape(routing.n, routing.top_k)


# --- what users call ---------------------------------------------------------------------


@uncompiled
def dispatch(x: torch.Tensor, expert_ids: torch.Tensor, n_experts: int, group: GroupLike = None, *,
             n_tokens: Optional[int] = None, capacity: Optional[int] = None,
             n_received: Optional[int] = None) -> Tuple[torch.Tensor, Routing]:
    """Sends a copy of each token of x (n x hidden, hidden a multiple of 8) to each of its
    experts: expert_ids is n x top_k integers, -1 for none. Returns the rows that come to this
    rank's experts, n_received x hidden, and the routing; its `ends` goes to the experts, all of
    it to combine(). An expert that a token names twice counts twice in combine(), but where a rank
    (or a group) has fewer than top_k experts, one row comes for both.

    n_tokens    that a rank has at most; None: every rank has as many as this one has now
    capacity    rows that a rank sends to another one at most: later copies, in the order of
                experts and tokens, are dropped, and add nothing; None: as many as there can be
                where a token's experts differ
    n_received  None: as many as there can be; a run to which more come fails

    n_experts, top_k and these three are the same at all ranks."""
    group = group_of(group)
    if x.dim() != 2 or expert_ids.dim() != 2:
        raise errors.InvalidError(f"dispatch: x has shape {tuple(x.shape)}, expert_ids "
                                  f"{tuple(expert_ids.shape)}: must be n x hidden, n x top_k")
    n = x.shape[0]
    routing = Routing(group, n, max(n, 1) if n_tokens is None else n_tokens, n_experts,
                      expert_ids.shape[1], capacity, n_received)
    return _Dispatch.apply(x, routing.named_once(expert_ids), routing), routing


@uncompiled
def combine(rows: torch.Tensor, routing: Routing,
            weights: Optional[torch.Tensor] = None) -> torch.Tensor:
    """Returns for each token, n x hidden, the sum over its experts of what they made of it,
    times weights, n x top_k; None: all are 1. rows are as dispatch() returned them."""
    weights = None if weights is None else weights.float()
    return _Combine.apply(rows, routing.weights_of(weights), routing)


def moe(x: torch.Tensor, expert_ids: torch.Tensor, weights: Optional[torch.Tensor],
        experts: Union[Experts, Sequence[Experts]], n_experts: int, group: GroupLike = None,
        **sizes: Any) -> torch.Tensor:
    """Returns for each token of x (... x hidden) the sum over its experts (expert_ids,
    ... x top_k, -1 for none) of what they make of it, times weights (... x top_k; None: all
    are 1). experts: see the module; sizes: n_tokens, capacity and n_received, see dispatch().
    With several groups of experts, each has room for an equal part of n_received.
    x, weights and the parameters of experts have gradients. At all ranks the same ones, and
    those of experts are of this rank's experts, complete."""
    shape = x.shape
    if not (shape and expert_ids.shape and shape[-1] and expert_ids.shape[-1]):
        raise errors.InvalidError(f"moe: x has shape {tuple(shape)}, expert_ids "
                                  f"{tuple(expert_ids.shape)}: must be ... x hidden, ... x top_k, "
                                  "and hidden and top_k at least 1")
    x, expert_ids = x.reshape(-1, shape[-1]), expert_ids.reshape(-1, expert_ids.shape[-1])
    if weights is not None:
        weights = weights.reshape(expert_ids.shape)
    is_list = isinstance(experts, (Sequence, nn.ModuleList))    # the latter is callable, too
    parts: List[Any] = list(experts) if is_list else [experts]      # type: ignore[arg-type]
    if len(parts) != 1:
        return _in_groups(x, expert_ids, weights, parts, n_experts, group_of(group),
                          **sizes).view(shape)
    rows, routing = dispatch(x, expert_ids, n_experts, group, **sizes)
    return combine(parts[0](rows, routing.ends), routing, weights).view(shape)


# --- groups of experts ---------------------------------------------------------------------
# One routing serves all groups. Autograd runs the backward pass of a step on the step's stream, so
# it overlaps in the same way.


class _Lane:
    """The steps of one call that run beside the caller's stream, on a stream of the group's. On
    the host they run at once."""

    def __init__(self, group: Group) -> None:
        self._device = group.device
        self._stream = group.part(Side).stream if group.is_gpu else None

    def mark(self) -> Any:
        """Returns what run() takes: all that the caller's stream has got so far."""
        return None if self._stream is None else self._current().record_event()

    def _current(self) -> torch.cuda.Stream:
        return torch.cuda.current_stream(self._device)

    def run(self, behind: Any, call: Callable[..., Any], *arguments: Any, **sizes: Any) -> Any:
        """Queues call(*arguments, **sizes) behind a mark. Returns its result and a mark, for
        take()."""
        if self._stream is None:
            return call(*arguments, **sizes), None
        self._stream.wait_event(behind)
        for one in arguments:
            if isinstance(one, torch.Tensor):
                one.record_stream(self._stream)
        with torch.cuda.stream(self._stream):
            return call(*arguments, **sizes), self._stream.record_event()

    def take(self, mark: Any, *tensors: torch.Tensor) -> None:
        """The caller's stream waits for a mark of run() and then uses its tensors."""
        if mark is not None:
            self._current().wait_event(mark)
            for one in tensors:
                one.record_stream(self._current())


def _sizes_of_groups(n_groups: int, size: int, most: int, capacity: Optional[int] = None,
                     n_received: Optional[int] = None) -> Dict[str, Any]:
    """Returns Routing's sizes for moe()'s capacity and n_received, where a rank sends at most so
    many rows of a group to another one. The same copies are dropped for any number of groups."""
    each = min(capacity or most, most)
    room = size * each
    return {"capacity": each, "total_capacity": capacity, "n_groups": n_groups,
            "n_received": min(room, -(-n_received // n_groups)) if n_received else room}


@uncompiled
def _in_groups(x: torch.Tensor, expert_ids: torch.Tensor, weights: Any, parts: List[Experts],
               n_experts: int, group: Group, *, n_tokens: Optional[int] = None,
               **sizes: Any) -> torch.Tensor:
    """Returns what moe() does, for x of n x hidden and several groups of experts. Steps are
    queued in the order in which they can run: also where calls wait for their runs, a group's
    products run while the next group's tokens come."""
    n_groups, n_local = len(parts), n_experts // group.size
    if not n_groups or n_experts % group.size or n_local % n_groups:
        raise errors.InvalidError(f"moe: {n_groups} groups of {n_experts} experts at "
                                  f"{group.size} ranks: each rank must have as many experts, and "
                                  "at least one group, whose number divides them")
    n_most, top_k = max(len(x), 1) if n_tokens is None else n_tokens, expert_ids.shape[1]
    sizes = _sizes_of_groups(n_groups, group.size, n_most * min(top_k, n_local // n_groups),
                             **sizes)
    lane, combines, sums = _Lane(group), [], []
    start = lane.mark()
    whole, _ = lane.run(start, Routing, group, len(x), n_most, n_experts, top_k, **sizes)
    ids, _ = lane.run(start, whole.named_once, expert_ids)
    for i, part in enumerate(parts):
        routing = whole.of_group(i)
        rows, mark = lane.run(start, _Dispatch.apply, x, None if i else ids, routing)
        lane.take(mark, rows, routing.ends)
        made = part(rows, routing.ends)
        combines.append((lane.mark(), combine, made, routing, weights))
        if i:
            sums.append(lane.run(*combines[i - 1]))
    sums.append(lane.run(*combines[-1]))
    for one, mark in sums:
        lane.take(mark, one)
    return functools.reduce(operator.add, [one for one, _ in sums])


# --- layers ---------------------------------------------------------------------------------


def _swiglu(rows: torch.Tensor, ends: torch.Tensor, gate_up: torch.Tensor,
            down: torch.Tensor) -> torch.Tensor:
    gate, up = _compat.grouped_mm(rows, gate_up, offs=ends).chunk(2, -1)
    return _compat.grouped_mm(F.silu(gate) * up, down, offs=ends)


class SwiGLUExperts(nn.Module):
    """This rank's experts: down(silu(gate(x)) * up(x)) each, as grouped products.

    gate_up  n_local x hidden x 2 ffn: the columns of gate, then those of up
    down     n_local x ffn x hidden

    hidden and ffn are multiples of 8. The first weights are drawn from this rank's generator as
    nn.Linear's: give ranks different seeds. torch.compile may compile it by itself.

    The parameters are plain tensors, of which checkpoints would keep one rank's, until share(),
    which MoeLayer and parallelize() call."""

    def __init__(self, n_local: int, hidden: int, ffn: int,
                 device: Union[None, str, torch.device] = None,
                 dtype: Optional[torch.dtype] = None) -> None:
        super().__init__()
        self.gate_up: nn.Parameter = nn.Parameter(
            torch.empty(n_local, hidden, 2 * ffn, device=device, dtype=dtype))
        self.down: nn.Parameter = nn.Parameter(
            torch.empty(n_local, ffn, hidden, device=device, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        for weight in (self.gate_up, self.down):
            bound = weight.shape[1] ** -0.5
            nn.init.uniform_(local(weight), -bound, bound)

    def share(self, mesh: DeviceMesh) -> None:
        """Makes plain parameters DTensors: of all experts of the ranks of a mesh of one dimension,
        each of which has as many, in order."""
        for name, weight in list(self.named_parameters()):
            if type(weight) is nn.Parameter:
                setattr(self, name, shared(weight, mesh, Shard(0), weight.requires_grad))

    def forward(self, rows: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return _swiglu(rows, ends, local(self.gate_up), local(self.down))

    def groups(self, n_groups: int) -> List[Experts]:
        """Returns the experts as n_groups equal groups, in order, as moe() takes them. They use
        the parameters directly: hooks of this module, FSDP2's for one, are not called."""
        weights = local(self.gate_up), local(self.down)
        n_local = weights[0].shape[0]
        if n_groups < 1 or n_local % n_groups:
            raise errors.InvalidError(f"SwiGLUExperts: {n_groups} groups of {n_local} experts: "
                                      "must be at least one, and divide them")
        n_each = n_local // n_groups
        return [functools.partial(_swiglu, gate_up=gate_up, down=down) for gate_up, down in
                zip(*(weight.split(n_each) for weight in weights))]


class MoeLayer(nn.Module):
    """A mixture of n_experts SwiGLU experts, shared out to a group's ranks: a linear router, whose
    top_k probabilities are made to add up to 1, then moe().

    The router is the same at all ranks: give it the same weights, and sum its gradient over the
    ranks, as data parallelism does, or parallelize() that names the layer as "summed". The
    experts' gradients are complete: no sum over the ranks of the group. The experts' parameters
    are DTensors, as those of ColumnParallelLinear.

    group     as everywhere in ceoverlap.torch, or a DeviceMesh of one dimension
    n_groups  into which a rank's experts are divided; more than 1: products overlap with the
              exchange, see the module. 1: all tokens come before the first product
    sizes     see moe()"""

    def __init__(self, hidden: int, ffn: int, n_experts: int, top_k: int,
                 device: Union[None, str, torch.device] = None,
                 dtype: Optional[torch.dtype] = None, *, group: MeshOrGroup = None,
                 n_groups: int = 1, **sizes: Any) -> None:
        super().__init__()
        mesh, at = mesh_and_group(group)
        if n_experts % at.size:
            raise errors.InvalidError(f"MoeLayer: {n_experts} experts: must be a multiple of the "
                                      f"group's {at.size} ranks")
        if not 1 <= top_k <= n_experts:
            raise errors.InvalidError(f"MoeLayer: top_k {top_k}: must be 1 to {n_experts}")
        n_local = n_experts // at.size
        if n_groups < 1 or n_local % n_groups:
            raise errors.InvalidError(f"MoeLayer: {n_groups} groups of {n_local} experts: must be "
                                      "at least one, and divide them")
        self.n_experts: int = n_experts
        self.top_k: int = top_k
        self.n_groups: int = n_groups
        self.group: str = at.name
        self.sizes = sizes
        self.router: nn.Linear = nn.Linear(hidden, n_experts, bias=False, device=device,
                                           dtype=dtype)
        self.experts: SwiGLUExperts = SwiGLUExperts(n_local, hidden, ffn, device, dtype)
        self.experts.share(mesh)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the layer's result for x, ... x hidden: this rank's tokens."""
        weights, expert_ids = self.router(x).float().softmax(-1).topk(self.top_k, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        experts = self.experts if self.n_groups == 1 else self.experts.groups(self.n_groups)
        return moe(x, expert_ids, weights, experts, self.n_experts, self.group, **self.sizes)

    def extra_repr(self) -> str:
        return f"n_experts={self.n_experts}, top_k={self.top_k}, group={self.group!r}"
