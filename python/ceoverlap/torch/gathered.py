# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Experts whose weights are divided among ranks: the tokens of all ranks come to each rank, which
has a part of every expert, as columns or rows of its weights.

    y = ct.ag_moe(x, expert_ids, experts, n_experts)        # all-gather + grouped products

experts is a callable (rows, ends) -> rows, as ct.moe() takes it, but for all experts; its result
may have another width. Where ranks have many bytes of tokens, and enough of them for each expert,
it is called for the tokens of one rank after another: of this rank's own first, of the others as
they come, while further ones are still on their way. Few bytes come sooner than a further product
would begin, and products of few tokens cost as much as those of more, so there it is called once,
for all tokens. It makes no collective calls, which would run beside these moves. Numbers of rows of
an expert stay on the device, and the host waits for nothing, but where a call of an operator does
(operators.Operators.waits): then nothing overlaps.

A layer of which each rank has a part of ffn is

    weights = ct.all_gather(weights.to(x.dtype))[..., None]
    y = ct.reduce_scatter((ct.ag_moe(x, expert_ids, experts, n_experts) * weights).sum(1))
"""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import torch

from .. import errors
from . import _compat
from ._ring import Moved, Ring
from .functional import group_of, reduce_scatter, uncompiled
from .group import Group, GroupLike
from .operators import ALIGN_BYTES, DTYPES, operand, round_up

ID_DTYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

# A rank's tokens of fewer bytes are not worked on apart from others'. PyTorch's calls for one more
# part take some 100 us of the calling thread, in which a copy engine moves as many bytes. They are
# moved by the caller's stream itself. A second stream would let the device sort copies during the
# move, but it takes more calls, and calls with few tokens wait for the calling thread. A graph
# does not wait for that thread, so there the second stream is used.
PART_BYTES = 32 << 20

# Nor are they where an expert gets fewer copies from a rank: its product reads all of its weights
# for each part. On an H100 the products of mixtral-8x22b with 256 copies of each of 2 ranks took
# 466 and 511 us, that with 512 copies of both 682.
PART_COPIES = 512

# --- gradients ---------------------------------------------------------------------------


def _apply(function: Any, *args: Any) -> Any:
    """Calls a torch.autograd.Function whose forward() takes no context if there may be gradients,
    and that alone otherwise: apply() takes the calling thread as long as a kernel's launch does."""
    if torch.is_grad_enabled() or _compat.is_watched():
        return function.apply(*args)
    return function.forward(*args)


class _Gathered(torch.autograd.Function):
    """Takes this rank's rows and what has come of all ranks: their rows in the order of ranks, or
    one after another in the order of steps, where this rank's are the first. Returns what has come.
    The gradient of this rank's rows is the sum over all ranks."""

    @staticmethod
    def forward(_group: Any, steps: Any, x: torch.Tensor, *others: Any) -> Any:
        return others if steps is None else (x.view_as(x), *others)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.group, ctx.steps = inputs[:2]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        whole = grads[0] if ctx.steps is None else torch.cat([grads[step] for step in ctx.steps])
        grad = reduce_scatter(whole, ctx.group)
        return None, None, grad, *[None] * (len(grads) - (ctx.steps is not None))


class _Copied(torch.autograd.Function):
    """Returns the copies of tokens in the order of their experts: copy i is of token i // top_k.
    The gradient adds up a token's copies in their order, so repeated runs yield the same bits."""

    @staticmethod
    def forward(x: torch.Tensor, order: Any, top_k: Any) -> Any:
        return x.index_select(0, order // top_k)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.order, ctx.top_k = inputs[1:]

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        copies = torch.empty_like(grad).index_copy_(0, ctx.order, grad)
        return copies.unflatten(0, (-1, ctx.top_k)).sum(1), None, None


class _Placed(torch.autograd.Function):
    """Sets rows of y, from `first` on, to what was made of one rank's copies, in the order of
    copies. Nothing has read these rows of y, so y's gradient passes as it is."""

    @staticmethod
    def forward(y: Any, made: Any, order: Any, first: Any) -> Any:
        y[first:first + len(order)].index_copy_(0, order, made)
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.order, ctx.first = inputs[2:]
        ctx.mark_dirty(inputs[0])

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        part = grad[ctx.first:ctx.first + len(ctx.order)]
        return grad, part.index_select(0, ctx.order), None, None


# --- the order of copies --------------------------------------------------------------------


class _Numbers(NamedTuple):
    """What _sorted() adds and takes off, which shapes alone decide."""
    keys: torch.Tensor                  # parts x 1 x 1: the key of expert 0 of each part
    all_keys: torch.Tensor              # 0 to parts x n_experts - 1, of the dtype of keys
    copies: torch.Tensor                # parts x 1: the number of the part's first copy
    ends: torch.Tensor                  # the same as int32


def _numbers_of(group: Group, parts: int, n_copies: int, n_experts: int) -> _Numbers:
    """Returns what was made before for the shape, on the same stream. During a capture it is made
    anew, as a part of the graph: the graph would not keep what was there before, nor does anybody
    but the graph come to what is made in it."""
    key = ("ag_moe", parts, n_copies, n_experts, group.current_stream())
    made = None if group.is_capturing() else group.operators.known.get(key)
    if made is not None:
        return made
    # sorts of numbers of 2 bytes make half as many passes
    is_short = parts * n_experts <= torch.iinfo(torch.int16).max
    all_keys = torch.arange(parts * n_experts, device=group.device,
                            dtype=torch.int16 if is_short else torch.int32)
    copies = torch.arange(parts, device=group.device)[:, None] * n_copies
    made = _Numbers(all_keys[::n_experts, None, None], all_keys, copies, copies.to(torch.int32))
    return made if group.is_capturing() else group.operators.remember(key, made)


def _narrow(ids: torch.Tensor, n_experts: int, is_gpu: bool) -> torch.Tensor:
    """Returns numbers of experts in a dtype that n_experts alone decides, so that ranks may have
    them in different ones. On GPUs a number that no expert has would reach over the memory of
    others, so it becomes the nearest one; on the host -1 or n_experts, for _check_all()."""
    is_short = n_experts <= torch.iinfo(torch.int16).max
    if is_gpu:
        ids = ids.clamp(0, min(n_experts - 1, torch.iinfo(ids.dtype).max))
    else:
        ids = ids.long().clamp(-1, n_experts)
    return ids.to(torch.int16 if is_short else torch.int32)


def _check_all(ids: torch.Tensor, n_experts: int, group: Group) -> None:
    """Raises an error at all ranks if one of them named an expert that does not exist. ids: those
    of all ranks, in order, on the host."""
    for rank, own in enumerate(ids.chunk(group.size)):
        if own.min() < 0 or own.max() >= n_experts:
            raise errors.InvalidError(f"ag_moe: rank {rank} names an expert that does not exist: "
                                      f"expert_ids must be 0 to {n_experts - 1}")


def _keys(ids: torch.Tensor, numbers: _Numbers) -> torch.Tensor:
    """Returns what ids, parts x n x top_k, are sorted by."""
    if len(ids) == 1:
        return ids.to(numbers.all_keys.dtype)
    keys = torch.empty(ids.shape, dtype=numbers.all_keys.dtype, device=ids.device)
    return torch.add(ids, numbers.keys, out=keys)


def _sorted(group: Group, ids: torch.Tensor, n_experts: int) -> Tuple[torch.Tensor, torch.Tensor]:
    """Returns for ids, parts x n x top_k, the order of each part's copies by expert, parts x
    (n top_k), and for each of its experts the copy behind the last one, parts x n_experts of int32.
    One sort for all parts takes little longer than for one."""
    parts = ids.shape[0]
    numbers = _numbers_of(group, parts, ids.shape[1] * ids.shape[2], n_experts)
    keys, order = _keys(ids, numbers).flatten().sort(stable=True)
    ends = torch.searchsorted(keys, numbers.all_keys, right=True, out_int32=True)
    order, ends = order.view(parts, -1), ends.view(parts, -1)
    return (order, ends) if parts == 1 else (order - numbers.copies, ends - numbers.ends)


def _padded(ids: torch.Tensor) -> torch.Tensor:
    """Returns ids, or, where all of them together are no multiple of ALIGN_BYTES, a copy with
    longer rows. Nobody reads what is behind a row's ids."""
    n, top_k = ids.shape
    if not ids.numel() * ids.element_size() % ALIGN_BYTES:
        return operand(ids)
    rows = ids.new_empty((n, round_up(top_k, ALIGN_BYTES // ids.element_size())))
    rows[:, :top_k].copy_(ids)
    return rows


# --- what users call ---------------------------------------------------------------------


def _check(x: torch.Tensor, ids: torch.Tensor, n_experts: int, group: Group) -> None:
    if x.dim() != 2 or ids.dim() != 2 or len(ids) != len(x) or not x.numel() or not ids.numel():
        raise errors.InvalidError(f"ag_moe: x has shape {tuple(x.shape)}, expert_ids "
                                  f"{tuple(ids.shape)}: must be n x hidden, n x top_k, and "
                                  "nothing of it 0")
    if x.dtype not in DTYPES or ids.dtype not in ID_DTYPES:
        raise errors.InvalidError(f"ag_moe: x of {x.dtype}, expert_ids of {ids.dtype}: must be "
                                  f"one of {list(DTYPES)}, and integers, one of "
                                  f"{list(ID_DTYPES)}")
    if x.device != group.device or ids.device != group.device:
        raise errors.InvalidError(f"ag_moe: x on {x.device}, expert_ids on {ids.device}: must be "
                                  f"on {group.device}")


class _Parts:
    """Tokens as they come: all at once, or of one rank after another, this rank's own first.

    ranks   by step, the number of the part in the order of ranks"""

    def __init__(self, ring: Ring, x: torch.Tensor, is_apart: bool) -> None:
        self._ring = ring
        size = ring.group.size
        self._moved: List[Optional[Moved]]
        steps: Optional[List[int]] = None
        if not is_apart and size > 1:
            self._moved, self.ranks = [ring.gather(x.detach())], [0]
        else:
            self._moved = ring.send(x.detach())
            self.ranks = [ring.source(step) for step in range(size)]
            steps = [ring.step_of(rank) for rank in range(size)]
        others = [moved[0] for moved in self._moved if moved]
        self._rows: List[torch.Tensor] = _apply(_Gathered, ring.group, steps, x, *others)

    def rows(self, step: int) -> torch.Tensor:
        """Returns the tokens of a step, for which the caller's stream waits."""
        if self._moved[step]:
            self._ring.fetch(self._moved[step])
        return self._rows[step]


@uncompiled
def ag_moe(x: torch.Tensor, expert_ids: torch.Tensor,
           experts: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], n_experts: int,
           group: GroupLike = None) -> torch.Tensor:
    """Returns what experts make of the tokens of all ranks: (size n) x top_k x width, by rank,
    token and the expert's place in expert_ids.

    x           n x hidden: this rank's tokens, as many at all ranks, and a multiple of 16 bytes
    expert_ids  n x top_k integers from 0 to n_experts - 1; ranks may differ in their dtype. On
                GPUs the host cannot see them: a number beyond that counts as the nearest expert,
                but with TORCH_DISTRIBUTED_DEBUG=DETAIL it is refused at all ranks
    experts     see the module; it is called once, or once for each rank

    x and the parameters of experts have gradients, x at all ranks or at none. Its gradient is the
    sum over ranks, as that of ct.all_gather(); it is sent when all of it is there, and so does not
    overlap."""
    at = group_of(group)
    call = ("ag_moe", x, None, expert_ids.shape, n_experts)
    at.operators.compare(call)
    _check(x, expert_ids, n_experts, at)
    at.operators.compare_numbers("ag_moe: expert_ids", expert_ids, 0, n_experts)
    n, top_k = expert_ids.shape
    row = x.shape[1] * x.element_size()
    source = operand(x)
    is_long = n * row >= PART_BYTES
    with Ring(at, lambda _rank, _source: n, row, call,
              is_aside=is_long or at.is_capturing()) as ring:
        moved_ids = ring.gather(_padded(_narrow(expert_ids, n_experts, at.is_gpu)))
        parts = _Parts(ring, source, is_long and n * top_k >= PART_COPIES * n_experts)
        all_ids = ring.fetch(moved_ids)[:, :top_k]
        if not at.is_gpu:
            _check_all(all_ids, n_experts, at)
        orders, ends = _sorted(at, all_ids.unflatten(0, (len(parts.ranks), -1)), n_experts)
        y, n_copies = None, orders.shape[1]
        for step, rank in enumerate(parts.ranks):
            rows = _apply(_Copied, parts.rows(step), orders[rank], top_k)
            made = experts(rows, ends[rank])
            if y is None:
                y = made.new_empty((orders.numel(), made.shape[1]))
            y = _apply(_Placed, y, made, orders[rank], rank * n_copies)
    assert y is not None                # there is one part at least
    return y.unflatten(0, (-1, top_k))
