# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Experts whose weights are divided among ranks: the tokens of all ranks come to each rank, which
has a part of every expert, as columns or rows of its weights.

    y = ct.ag_moe(x, expert_ids, experts, n_experts)        # all-gather + grouped products

experts is a callable (rows, ends) -> rows, as ct.moe() takes it, but for all experts; its result
may have another width. It is called for the tokens of one rank after another: of this rank's own
first, of the others as they come, while further ones are still on their way. It makes no collective
calls, which would run beside these moves. Numbers of rows of an expert stay on the device, and the
host waits for nothing, but where a call of an operator does (operators.Operators.waits): then
nothing overlaps.

A layer of which each rank has a part of ffn is

    weights = ct.all_gather(weights.to(x.dtype))[..., None]
    y = ct.reduce_scatter((ct.ag_moe(x, expert_ids, experts, n_experts) * weights).sum(1))
"""

from __future__ import annotations

from typing import Callable, Tuple

import torch
from torch.nn import functional as F

from .. import errors
from ._ring import Ring
from .functional import group_of, reduce_scatter
from .group import Group
from .operators import DTYPES, operand

ID_STEP = 4                             # numbers of 4 bytes: as many are an aligned piece


# --- gradients ---------------------------------------------------------------------------


class _Gathered(torch.autograd.Function):
    """Takes this rank's rows and those that come of others, in the order of steps, and returns
    them all. The gradient of this rank's rows is the sum over all ranks."""

    @staticmethod
    def forward(ctx, ring, x, *others):
        ctx.group, ctx.steps = ring.group, [ring.step_of(rank) for rank in range(ring.group.size)]
        return x, *others

    @staticmethod
    def backward(ctx, *grads):
        grad = reduce_scatter(torch.cat([grads[step] for step in ctx.steps]), ctx.group)
        return None, grad, *[None] * (len(grads) - 1)


class _Copied(torch.autograd.Function):
    """Returns the copies of tokens in the order of their experts: copy i is of token i // top_k.
    The gradient adds up a token's copies in their order, so repeated runs yield the same bits."""

    @staticmethod
    def forward(ctx, x, order, top_k):
        ctx.order, ctx.top_k = order, top_k
        return x.index_select(0, order // top_k)

    @staticmethod
    def backward(ctx, grad):
        copies = torch.empty_like(grad).index_copy_(0, ctx.order, grad)
        return copies.unflatten(0, (-1, ctx.top_k)).sum(1), None, None


class _Placed(torch.autograd.Function):
    """Sets rows of y, from `first` on, to what was made of one rank's copies, in the order of
    copies. Nothing has read these rows of y, so y's gradient passes as it is."""

    @staticmethod
    def forward(ctx, y, made, order, first):
        ctx.order, ctx.first = order, first
        y[first:first + len(order)].index_copy_(0, order, made)
        ctx.mark_dirty(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        part = grad[ctx.first:ctx.first + len(ctx.order)]
        return grad, part.index_select(0, ctx.order), None, None


# --- the order of copies --------------------------------------------------------------------


def _sorted(ids: torch.Tensor, n_experts: int) -> Tuple[torch.Tensor, torch.Tensor]:
    """Returns for ids, ranks x n x top_k, the order of each rank's copies by expert, ranks x
    (n top_k), and for each of its experts the copy behind the last one, ranks x n_experts of int32.
    One sort for all ranks takes little longer than for one."""
    n_ranks, n_copies = ids.shape[0], ids[0].numel()
    ranks = torch.arange(n_ranks, device=ids.device)[:, None]
    keys = (ids.flatten(1).long() + ranks * n_experts).flatten()
    keys, order = keys.sort(stable=True)
    numbers = torch.arange(n_ranks * n_experts, device=ids.device)
    ends = torch.searchsorted(keys, numbers, right=True).view(n_ranks, -1) - ranks * n_copies
    return order.view(n_ranks, -1) - ranks * n_copies, ends.to(torch.int32)


def _padded(ids: torch.Tensor, n_experts: int) -> torch.Tensor:
    """Returns ids as rows that can be moved. A number that no expert has would reach over the
    memory of others, so it is taken for the nearest one."""
    ids = ids.clamp(0, n_experts - 1).to(torch.int32)
    return operand(F.pad(ids, (0, -ids.shape[1] % ID_STEP)))


# --- what users call ---------------------------------------------------------------------


def _check(x: torch.Tensor, ids: torch.Tensor, n_experts: int, group: Group) -> None:
    if x.dim() != 2 or ids.dim() != 2 or len(ids) != len(x) or not x.numel() or not ids.numel():
        raise errors.InvalidError(f"ag_moe: x has shape {tuple(x.shape)}, expert_ids "
                                  f"{tuple(ids.shape)}: must be n x hidden, n x top_k, and "
                                  "nothing of it 0")
    if x.dtype not in DTYPES or ids.is_floating_point() or ids.is_complex():
        raise errors.InvalidError(f"ag_moe: x of {x.dtype}, expert_ids of {ids.dtype}: must be "
                                  f"one of {list(DTYPES)}, and integers")
    if x.device != group.device or ids.device != group.device:
        raise errors.InvalidError(f"ag_moe: x on {x.device}, expert_ids on {ids.device}: must be "
                                  f"on {group.device}")
    if not group.is_gpu and (ids.min() < 0 or ids.max() >= n_experts):
        raise errors.InvalidError(f"ag_moe: rank {group.rank}: an expert is {ids.min().item()} or "
                                  f"{ids.max().item()}: must be 0 to {n_experts - 1}")


@torch.compiler.disable
def ag_moe(x: torch.Tensor, expert_ids: torch.Tensor,
           experts: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], n_experts: int,
           group=None) -> torch.Tensor:
    """Returns what experts make of the tokens of all ranks: (size n) x top_k x width, by rank,
    token and the expert's place in expert_ids.

    x           n x hidden: this rank's tokens, as many at all ranks, and a multiple of 16 bytes
    expert_ids  n x top_k integers from 0 to n_experts - 1. On GPUs the host cannot see them: a
                number beyond that counts as the nearest expert
    experts     see the module; it is called once for each rank

    x and the parameters of experts have gradients, x at all ranks or at none. Its gradient is the
    sum over ranks, as that of ct.all_gather(); it is sent when all of it is there, and so does not
    overlap."""
    at = group_of(group)
    _check(x, expert_ids, n_experts, at)
    n, top_k = expert_ids.shape
    row = x.shape[1] * x.element_size()
    source, ids = operand(x), _padded(expert_ids, n_experts)
    with Ring(at, lambda _rank, _source: n, row, "ag_moe: tokens") as ring:
        all_ids = ring.gather(ids)
        moved = ring.send(source.detach())
        pieces = _Gathered.apply(ring, source, *[rows for rows, _ in moved[1:]])
        orders, ends = _sorted(ids[None, :, :top_k], n_experts)
        y = None
        for step, piece in enumerate(pieces):
            if step == 1:               # the order of own tokens needs no other rank
                all_ids = ring.fetch(all_ids).view(at.size, n, -1)
                orders, ends = _sorted(all_ids[:, :, :top_k], n_experts)
            if step:
                ring.fetch(moved[step])
            rank = ring.source(step)
            own = rank if step else 0
            made = experts(_Copied.apply(piece, orders[own], top_k), ends[own])
            if y is None:
                y = made.new_empty((at.size * len(made), made.shape[1]))
            y = _Placed.apply(y, made, orders[own], rank * n * top_k)
    return y.unflatten(0, (-1, top_k))
