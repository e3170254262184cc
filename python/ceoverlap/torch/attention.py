# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Attention over a sequence whose parts lie at different ranks, with gradients.

    y = ct.ring_attention(q, k, v, is_causal=True)          # keys and values travel
    y = ct.all_to_all_attention(q, k, v, is_causal=True)    # heads are shared out

Tensors are batch x heads x length x width, as scaled_dot_product_attention() takes them; length
is this rank's equal part of the sequence. Keys and values may have fewer heads than queries, each
for several heads of queries in order. No mask but the causal one, and no dropout. Autocast is
followed, as by scaled_dot_product_attention().

Ring        Each rank sends its keys and values to all others that need them, one after another,
            on a stream beside the caller's, while it attends to those that it has. Results over
            the pieces are put together in fp32. The backward pass sends keys and values again,
            and their gradients home, each while the next piece's are computed.
All-to-all  Before and behind attention, each rank has all heads of its part of the sequence; in
            between it has all of the sequence for its part of the heads.

Causal      A rank gets no keys behind its last query. With parts in order the last rank has the
            most work, and the others wait for it. With is_balanced a rank has two parts instead,
            the r-th from either end of the sequence, one after the other: see balanced_part().
"""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Tuple

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .. import errors
from . import _attend
from ._merge_kernel import MergeKernel
from ._ring import Moved, Ring
from .functional import all_to_all, group_of, uncompiled
from .group import Group, GroupLike
from .linear import cast
from .operators import Call

# --- which keys which queries need -------------------------------------------------------


class _Mask(NamedTuple):
    """Which of a rank's queries need which of another rank's keys.

    size         number of ranks
    n            keys of a rank
    is_causal, is_balanced
                 as in ring_attention()
    """
    size: int
    n: int
    is_causal: bool
    is_balanced: bool

    def n_keys(self, rank: int, source: int) -> int:
        """Returns how many of the source's keys the rank needs: its first ones."""
        if not self.is_causal:
            return self.n
        if self.is_balanced:
            return self.n // 2 if source < rank else self.n
        return self.n if source < rank else 0

    def queries(self, rank: int, source: int) -> Optional[slice]:
        """Returns which of the rank's queries see these keys; None: all."""
        if self.is_causal and self.is_balanced and source > rank:
            return slice(self.n // 2, None)
        return None


# --- moves of keys and their gradients ----------------------------------------------------


class _Ring(Ring):
    """The moves of one call: rows are a key and its value.

    row   bytes of a row
    """

    def __init__(self, group: Group, mask: _Mask, row: int, call: Call) -> None:
        super().__init__(group, mask.n_keys, row, call)
        self.mask = mask


# --- keys and values as rows -------------------------------------------------------------
# length x 2 x batch x heads x width: the first keys are the first bytes, and attention reads them
# as they lie.

WIDE = torch.complex128                 # elements of 16 bytes; copies keep every bit of them


def _wide(x: torch.Tensor) -> torch.Tensor:
    """Returns x as elements of 16 bytes, or x where it has none. PyTorch's copies of rows in
    another order move an element at a time: those of 2 bytes took three times as long."""
    step = WIDE.itemsize // x.element_size()
    if (x.stride(-1) != 1 or x.shape[-1] % step or x.data_ptr() % WIDE.itemsize or
            x.storage_offset() % step or any(n % step for n in x.stride()[:-1])):
        return x
    return x.view(WIDE)


def _pack(k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    pair = [_wide(one) for one in (k, v)]
    if pair[0].dtype != pair[1].dtype:
        pair = [k, v]
    return torch.stack([one.permute(2, 0, 1, 3) for one in pair], 1).view(k.dtype)


def _unpack(rows: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
    k, v = rows.permute(1, 2, 3, 0, 4)
    return k, v


def _ring_of(group: Group, k: torch.Tensor, mask: _Mask, call: Call) -> _Ring:
    return _Ring(group, mask, 2 * k[:, :, :1].numel() * k.element_size(), call)


def _call_of(name: str, k: torch.Tensor, is_causal: bool, is_balanced: bool) -> Call:
    return (name, k, None, "causal" if is_causal else "all",
            "balanced" if is_balanced else "in order")


# --- ring --------------------------------------------------------------------------------


class _Merges:
    """The merges of a call. Pieces are of all queries or, those from ranks behind this one where
    parts are balanced, of the second half.

    wanted  for each piece that comes, its queries, as _Mask.queries() has them
    kernel  as in _attend.Merge"""

    def __init__(self, out: torch.Tensor, lse: torch.Tensor, wanted: List[Optional[slice]],
                 kernel: Optional[MergeKernel] = None) -> None:
        some = [queries for queries in wanted if queries is not None]
        self._parts = [(slice(None), len(wanted))]
        if some:
            first = slice(None, some[0].start)
            self._parts = [(first, len(wanted) - len(some)), (some[0], len(wanted))]
        self._merges = [_attend.Merge(out[:, :, part], lse[:, :, part], n, kernel)
                        for part, n in self._parts]

    def add(self, queries: Optional[slice], out: torch.Tensor, lse: torch.Tensor) -> None:
        if queries is not None:
            self._merges[-1].add(out, lse)
            return
        for (part, _), merge in zip(self._parts, self._merges):
            merge.add(out[:, :, part], lse[:, :, part])


def _attend_in_ring(ring: _Ring, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
                    scale: float) -> Tuple[torch.Tensor, torch.Tensor]:
    """Returns the result, in the dtype of q, and its log-sum-exp, in fp32 or wider."""
    rank, mask = ring.group.rank, ring.mask
    kernel = ring.group.part(MergeKernel)
    if ring.group.size > 1:
        kernel.prepare(q)
    moved = ring.send(_pack(k, v))
    out, lse = _attend.forward(q, k, v, mask.is_causal, scale)
    steps = [step for step in range(1, ring.group.size) if mask.n_keys(rank, ring.source(step))]
    wanted = [mask.queries(rank, ring.source(step)) for step in steps]
    merges = _Merges(out, lse, wanted, kernel)
    for step, queries in zip(steps, wanted):
        some = q if queries is None else q[:, :, queries]
        piece = _attend.forward(some, *_unpack(ring.fetch(moved[step])), False, scale)
        merges.add(queries, *piece)
    return out, lse


def _piece_gradients(ring: _Ring, step: int, operands: Any, rows: torch.Tensor,
                     grad_q: torch.Tensor, scale: float) -> torch.Tensor:
    """Returns the gradients of the keys and values that came at this step, as rows, and adds to
    that of the queries. operands: grad, q, out and lse."""
    rank, source = ring.group.rank, ring.source(step)
    queries = ring.mask.queries(rank, source)
    if queries is not None:
        operands = [one[:, :, queries] for one in operands]
        grad_q = grad_q[:, :, queries]
    grad, q, out, lse = operands
    some, *of_keys = _attend.backward(grad, q, *_unpack(rows), out, lse, False, scale)
    grad_q.add_(some)
    return _pack(*of_keys)


def _gradients_in_ring(ring: _Ring, grad: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
                       out: torch.Tensor, lse: torch.Tensor, scale: float) -> Any:
    """Returns the gradients of q, k and v."""
    rank, mask, n_steps = ring.group.rank, ring.mask, ring.group.size
    pairs = _pack(k, v)
    moved = ring.send(pairs)
    home: List[Optional[Moved]] = [None] * n_steps
    grad_q, *own = _attend.backward(grad, q, k, v, out, lse, mask.is_causal, scale)
    grad_q, grad_pairs = grad_q.to(lse.dtype), _pack(*own).to(lse.dtype)
    for step in range(1, n_steps):
        grads = pairs[:0]
        if mask.n_keys(rank, ring.source(step)):
            grads = _piece_gradients(ring, step, (grad, q, out, lse),
                                     ring.fetch(moved[step]), grad_q, scale)
        home[step] = ring.send_home(step, grads)
    for step in range(1, n_steps):
        rows = ring.fetch(home[step])
        grad_pairs[:len(rows)] += rows
    grad_k, grad_v = _unpack(grad_pairs.to(k.dtype))
    return grad_q.to(q.dtype), grad_k, grad_v


class _RingAttention(torch.autograd.Function):
    """ring_attention() with checked arguments."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: Any, mask: Any,
                scale: Any) -> Any:
        q, k, v = (one if one.stride(3) == 1 else one.contiguous() for one in (q, k, v))
        call = _call_of("ring_attention", k, mask.is_causal, mask.is_balanced)
        with _ring_of(group, k, mask, call) as ring:
            out, lse = _attend_in_ring(ring, q, k, v, scale)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.group, ctx.mask, ctx.scale = group, mask, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        q, k, v, out, lse = ctx.saved_tensors
        mask = ctx.mask
        call = _call_of("gradient of ring_attention", k, mask.is_causal, mask.is_balanced)
        with _ring_of(ctx.group, k, mask, call) as ring:
            grads = _gradients_in_ring(ring, grad.contiguous(), q, k, v, out, lse, ctx.scale)
        return *grads, None, None, None


# --- what users call ---------------------------------------------------------------------


def _check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: Group, what: str) -> None:
    if any(one.dim() != 4 or not one.numel() for one in (q, k, v)):
        raise errors.InvalidError(f"{what}: shapes {tuple(q.shape)}, {tuple(k.shape)}, "
                                  f"{tuple(v.shape)}: must be batch x heads x length x width, and "
                                  "nothing of it 0")
    if (k.shape != v.shape or (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]) or
            q.shape[1] % k.shape[1]):
        raise errors.InvalidError(f"{what}: k {tuple(k.shape)} and v {tuple(v.shape)}: must be "
                                  f"alike, of the batch and width of q, which is {tuple(q.shape)},"
                                  " and with a number of heads that divides its own")
    for one in (q, k, v):
        if one.dtype != q.dtype or one.device != group.device or not one.is_floating_point():
            raise errors.InvalidError(f"{what}: {one.dtype} on {one.device}: must be a type of "
                                      f"floating-point numbers, the same of q, k and v, on "
                                      f"{group.device}")


@uncompiled
def ring_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: GroupLike = None, *,
                   is_causal: bool = False, is_balanced: bool = False,
                   scale: Optional[float] = None) -> torch.Tensor:
    """Returns attention of this rank's queries over the keys and values of all ranks, whose parts
    are equally long. Any numbers of heads. is_causal: a query sees the keys up to its own place in
    the sequence. is_balanced: parts are as balanced_part() returns them. scale: of scores; None:
    1 / sqrt(width). Gradients have no gradients again."""
    at = group_of(group)
    q, k, v = cast(q, k, v)
    at.operators.compare(_call_of("ring_attention", k, is_causal, is_balanced))
    _check(q, k, v, at, "ring_attention")
    n = k.shape[2]
    if is_causal and (q.shape[2] != n or is_balanced and n % 2):
        raise errors.InvalidError(f"ring_attention: {q.shape[2]} queries and {n} keys: must be "
                                  "as many where is_causal, and an even number if is_balanced")
    mask = _Mask(at.size, n, bool(is_causal), bool(is_balanced))
    scale = q.shape[3] ** -0.5 if scale is None else float(scale)
    with torch.autocast(at.device.type, enabled=False):         # pieces are put together in fp32
        return _RingAttention.apply(q, k, v, at, mask, scale)


def balanced_part(x: torch.Tensor, dim: int = 0, group: GroupLike = None) -> torch.Tensor:
    """Returns this rank's part of a whole sequence for ring_attention() with is_balanced: of
    2 * size equal parts along dim, the r-th and the r-th from the end. Of positions, too:
    balanced_part(torch.arange(n))."""
    at = group_of(group)
    if x.shape[dim] % (2 * at.size):
        raise errors.InvalidError(f"balanced_part: {x.shape[dim]} along dimension {dim}: must be "
                                  f"a multiple of {2 * at.size}")
    parts = x.chunk(2 * at.size, dim)
    return torch.cat((parts[at.rank], parts[-1 - at.rank]), dim)


def _by_heads(x: torch.Tensor, size: int) -> torch.Tensor:
    """Returns x as ranks x length x heads of a rank x batch x width."""
    return x.unflatten(1, (size, -1)).permute(1, 3, 2, 0, 4)


def all_to_all_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
                         group: GroupLike = None, *, is_causal: bool = False,
                         scale: Optional[float] = None) -> torch.Tensor:
    """Returns attention of this rank's queries over the keys and values of all ranks, whose parts
    are equally long and in order. The numbers of heads are multiples of the number of ranks. Each
    rank computes its heads by scaled_dot_product_attention(). is_causal, scale: as in
    ring_attention()."""
    at = group_of(group)
    q, k, v = cast(q, k, v)
    _check(q, k, v, at, "all_to_all_attention")
    if k.shape[1] % at.size or q.shape[2] != k.shape[2]:
        raise errors.InvalidError(f"all_to_all_attention: {k.shape[1]} heads of keys, "
                                  f"{q.shape[2]} queries and {k.shape[2]} keys: heads must be a "
                                  f"multiple of the group's {at.size} ranks, queries and keys as "
                                  "many")
    n_heads = [one.shape[1] // at.size for one in (q, k, v)]
    blocks = torch.cat([_by_heads(one, at.size) for one in (q, k, v)], 2)
    whole = all_to_all(blocks.flatten(0, 1), group).permute(2, 1, 0, 3)
    own_q, own_k, own_v = whole.split(n_heads, 1)
    out = F.scaled_dot_product_attention(own_q, own_k, own_v, is_causal=is_causal, scale=scale,
                                         enable_gqa=q.shape[1] != k.shape[1])
    parts = all_to_all(out.permute(2, 1, 0, 3), group).unflatten(0, (at.size, -1))
    return parts.permute(3, 0, 2, 1, 4).flatten(1, 2)
