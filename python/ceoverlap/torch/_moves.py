# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Collectives on tensors by a group's operators, without gradients: the implementation behind
functional.py. Also the rules by which rows belong to ranks."""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

import torch

from .. import errors, ops
from . import _channel
from ._channel import plain, result_of
from .group import Group
from .operators import (ALIGN_BYTES, DTYPES, ELEMENT_STEP, Call, operand, reduce_scatter_into,
                        round_up, run_move, run_reduce, sum_shape)

# --- shares ---------------------------------------------------------------------------


def gathered_rows(group: Group, x: torch.Tensor, rows: Optional[Sequence[int]]) -> List[int]:
    """Returns each rank's number of rows for an all-gather, where x is this rank's share."""
    if rows is None:
        return [x.shape[0]] * group.size
    if len(rows) != group.size or rows[group.rank] != x.shape[0]:
        raise errors.InvalidError(f"rows {list(rows)}: rank {group.rank} of {group.size} has "
                                  f"{x.shape[0]}")
    return list(rows)


def scattered_rows(group: Group, n: int, rows: Optional[Sequence[int]]) -> List[int]:
    """Returns each rank's number of rows, where n rows are shared out."""
    if rows is None:
        if n % group.size:
            raise errors.InvalidError(f"{n} rows are not {group.size} equal shares: say with "
                                      "rows=[...] how many each rank gets")
        return [n // group.size] * group.size
    if len(rows) != group.size or sum(rows) != n:
        raise errors.InvalidError(f"rows {list(rows)}: must be {group.size} numbers with sum "
                                  f"{n}")
    return list(rows)


def _inner(x: torch.Tensor) -> int:
    """Returns the number of elements of a row of x."""
    n = 1
    for size in x.shape[1:]:
        n *= size
    return n


def check(group: Group, x: torch.Tensor, what: str) -> None:
    if x.dim() < 1:
        raise errors.InvalidError(f"{what}: a tensor without dimensions")
    if x.device != group.device:
        raise errors.InvalidError(f"{what}: a tensor on {x.device}, but the group's rank "
                                  f"{group.rank} is on {group.device}")


def _check_sum(x: torch.Tensor, what: str) -> None:
    if x.dtype not in DTYPES:
        raise errors.InvalidError(f"{what}: {x.dtype}: sums are of {list(DTYPES)}")


# --- moves ----------------------------------------------------------------------------


def all_gather(x: torch.Tensor, rows: Optional[Sequence[int]], at: Group) -> torch.Tensor:
    call = ("all_gather", x, rows)
    at.operators.compare(call)
    check(at, x, "all_gather")
    rows = gathered_rows(at, x, rows)
    result = result_of(x, (sum(rows), *x.shape[1:]))
    all_gather_into(at, x, rows, result, call)
    return result


def all_gather_into(group: Group, x: torch.Tensor, rows: Sequence[int], target: torch.Tensor,
                    call: Call) -> None:
    """Sets target (sum(rows) x ..., contiguous and, where there is no channel, aligned to 16 bytes)
    to the x of all ranks. This rank's x, rows[rank] x ..., may be its own place in target. call: as
    in Operators.find()."""
    if group.channel is not None:
        is_even = rows.count(rows[0]) == len(rows)
        _channel.all_gather(group, plain(x), None if is_even else [n * _inner(x) for n in rows],
                            target)
        return
    if not target.numel():
        return
    sizes = [n * _inner(x) * x.element_size() for n in rows]
    if any(size % ALIGN_BYTES for size in sizes):
        _all_gather_padded(group, x, sizes, target, call)
        return
    run_move(group, ops.AllGather, operand(x), sizes, target, call)


def _all_gather_padded(group: Group, x: torch.Tensor, sizes: Sequence[int],
                       target: torch.Tensor, call: Call) -> None:
    """Gathers shards whose size is not a multiple of 16 bytes: all are padded to the length of
    the longest one, rounded up. sizes: bytes of each."""
    length = round_up(max(sizes), ALIGN_BYTES)
    source = torch.empty(length, dtype=torch.uint8, device=x.device)
    source[:sizes[group.rank]].view(x.dtype).view(x.shape).copy_(x)
    padded = source.new_empty((group.size, length))
    run_move(group, ops.AllGather, source, [length] * group.size, padded, call)
    torch.cat([padded[rank, :size] for rank, size in enumerate(sizes)],
              out=target.view(-1).view(torch.uint8))


def _block_rows(group: Group, x: torch.Tensor,
                splits: Optional[Sequence[int]]) -> Tuple[List[int], List[int]]:
    """Returns the numbers of rows from rank r to rank t, at [r * size + t], and the list of
    those that this rank receives."""
    n = group.size
    if splits is None:
        share = scattered_rows(group, x.shape[0], None)[0]
        splits = [share] * (n * n)
    if len(splits) != n * n:
        raise errors.InvalidError(f"splits: {len(splits)} numbers, must be {n} x {n}, rows "
                                  "from rank r to rank t")
    if min(splits) < 0:
        raise errors.InvalidError(f"splits {list(splits)}: must not be below 0")
    sent = sum(splits[group.rank * n:(group.rank + 1) * n])
    if sent != x.shape[0]:
        raise errors.InvalidError(f"splits: rank {group.rank} sends {sent} rows, but x has "
                                  f"{x.shape[0]}")
    return list(splits), [splits[r * n + group.rank] for r in range(n)]


def all_to_all(x: torch.Tensor, splits: Optional[Sequence[int]], at: Group) -> torch.Tensor:
    call = ("all_to_all", x, splits)
    at.operators.compare(call)
    check(at, x, "all_to_all")
    splits, received = _block_rows(at, x, splits)
    inner, result = _inner(x), result_of(x, (sum(received), *x.shape[1:]))
    if at.channel is not None:
        if splits.count(splits[0]) == len(splits):
            _channel.all_to_all(at, plain(x), None, None, result)
            return result
        sent = splits[at.rank * at.size:(at.rank + 1) * at.size]
        _channel.all_to_all(at, plain(x), [n * inner for n in sent],
                            [n * inner for n in received], result)
        return result
    row_bytes = inner * x.element_size()
    if not sum(splits) * row_bytes:
        return result
    if row_bytes % ALIGN_BYTES and any(n * row_bytes % ALIGN_BYTES for n in splits):
        raise errors.InvalidError(f"all_to_all: blocks of {row_bytes} bytes a row: each block "
                                  f"has to be a multiple of {ALIGN_BYTES} bytes")
    run_move(at, ops.AllToAll, operand(x), [n * row_bytes for n in splits], result, call)
    return result


# --- sums -----------------------------------------------------------------------------


def reduce_scatter(x: torch.Tensor, rows: Optional[Sequence[int]],
                   at: Group) -> torch.Tensor:
    call = ("reduce_scatter", x, rows)
    at.operators.compare(call)
    check(at, x, "reduce_scatter")
    _check_sum(x, "reduce_scatter")
    rows = scattered_rows(at, x.shape[0], rows)
    inner = _inner(x)
    result = result_of(x, (rows[at.rank], *x.shape[1:]))
    if not x.numel() and at.channel is None:
        return result
    reduce_scatter_into(at, x, [n * inner for n in rows], result, call=call)
    return result


def all_reduce(x: torch.Tensor, at: Group) -> torch.Tensor:
    call = ("all_reduce", x, None)
    at.operators.compare(call)
    check(at, x.reshape(-1), "all_reduce")
    _check_sum(x, "all_reduce")
    result = result_of(x, x.shape)
    if at.channel is not None:
        _channel.all_reduce(at, plain(x), result)
        return result
    n = x.numel()
    if not n:
        return result
    length = round_up(n, ELEMENT_STEP * at.size)
    if length == n:
        run_reduce(at, ops.AllReduce, operand(x), result,
                   sum_shape([n // at.size] * at.size, x.dtype), call)
        return result
    source = x.new_zeros(length)
    source[:n] = x.reshape(-1)
    target = torch.empty_like(source)
    run_reduce(at, ops.AllReduce, source, target,
               sum_shape([length // at.size] * at.size, x.dtype), call)
    result.view(-1).copy_(target[:n])
    return result
