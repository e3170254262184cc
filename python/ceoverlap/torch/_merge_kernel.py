# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""One Triton kernel in place of the seven of PyTorch that put together attention over two pieces of
the keys, and that read and write three times as many bytes. It is used where there is Triton, on
GPUs, for results of 16 bits."""

from __future__ import annotations

from typing import Optional, Set, Tuple

import torch

try:
    import triton
    import triton.language as tl
except ImportError:                     # PyTorch's kernels do it
    triton = None

DTYPES = (torch.bfloat16, torch.float16)
WIDTH_MAX = 256                         # of a head: a program has whole rows
QUERIES = 32                            # of a program
WARPS = 4

if triton is not None:
    @triton.jit(do_not_specialize=["n"])
    def _merge(out, total, lse, more_out, more_lse, n, n_heads,
               out_batch, out_head, out_query, total_batch, total_head, total_query,
               lse_batch, lse_head, more_batch, more_head, more_query,
               more_lse_batch, more_lse_head,
               width: tl.constexpr, block: tl.constexpr, queries: tl.constexpr,
               is_first: tl.constexpr, is_last: tl.constexpr):
        """Queries of one head. Rows of results are contiguous, and so are log-sum-exps of a head.
        is_first: the pieces so far are in out, else in total; is_last: the result goes to out."""
        batch, head = tl.program_id(1) // n_heads, tl.program_id(1) % n_heads
        query = tl.program_id(0) * queries + tl.arange(0, queries)
        column = tl.arange(0, block)
        is_query = query < n
        is_there = is_query[:, None] & (column < width)[None, :]
        batch, head, row = batch.to(tl.int64), head.to(tl.int64), query.to(tl.int64)

        lse_at = lse + batch * lse_batch + head * lse_head + row
        more_lse_at = more_lse + batch * more_lse_batch + head * more_lse_head + row
        a, b = tl.load(lse_at, is_query, 0.0), tl.load(more_lse_at, is_query, 0.0)
        share = tl.sigmoid(b - a)[:, None]      # of the piece in the sum of all scores' exp()

        out_at = (out + batch * out_batch + head * out_head + row[:, None] * out_query +
                  column[None, :])
        total_at = (total + batch * total_batch + head * total_head +
                    row[:, None] * total_query + column[None, :])
        more_at = (more_out + batch * more_batch + head * more_head +
                   row[:, None] * more_query + column[None, :])
        more = tl.load(more_at, is_there, 0.0).to(tl.float32)
        if is_first:
            so_far = tl.load(out_at, is_there, 0.0).to(tl.float32)
        else:
            so_far = tl.load(total_at, is_there, 0.0)
        merged = so_far * (1 - share) + more * share
        # Several warps may have loaded the same numbers: none stores before all have them.
        tl.debug_barrier()
        tl.store(lse_at, tl.maximum(a, b) + tl.log(1 + tl.exp(-tl.abs(a - b))), is_query)
        if is_last:
            tl.store(out_at, merged.to(out.dtype.element_ty), is_there)
        else:
            tl.store(total_at, merged, is_there)

_ready: Set[Tuple[torch.device, torch.dtype, int]] = set()


def is_fit(out: torch.Tensor, lse: torch.Tensor) -> bool:
    """Returns whether the kernel takes such results."""
    return (triton is not None and out.is_cuda and out.dtype in DTYPES and
            out.shape[3] <= WIDTH_MAX and out.stride(3) == 1 and
            lse.dtype == torch.float32 and lse.stride(2) == 1)


def prepare(like: torch.Tensor) -> None:
    """Has the kernel compiled and loaded for results of this dtype and width, before anything waits
    for this rank."""
    key = (like.device, like.dtype, like.shape[3])
    if key in _ready:
        return
    out = like.new_zeros((1, 1, 16, like.shape[3]))
    lse = like.new_zeros((1, 1, 16), dtype=torch.float32)
    if is_fit(out, lse):
        total = out.float()
        for is_first in (True, False):
            for is_last in (True, False):
                merge(out, total, lse, (out, lse), is_first, is_last)
    _ready.add(key)


def merge(out: torch.Tensor, total: Optional[torch.Tensor], lse: torch.Tensor,
          more: Tuple[torch.Tensor, torch.Tensor], is_first: bool, is_last: bool) -> None:
    """Adds one more piece, its result and its log-sum-exp, to out or total, and to lse. total has
    the shape of out in fp32; None where the piece is the first and the last one."""
    more_out, more_lse = more
    more_out = more_out if more_out.stride(3) == 1 else more_out.contiguous()
    more_lse = more_lse if more_lse.stride(2) == 1 else more_lse.contiguous()
    n_batch, n_heads, n, width = out.shape
    grid = (triton.cdiv(n, QUERIES), n_batch * n_heads)
    between = out if total is None else total
    _merge[grid](out, between, lse, more_out, more_lse, n, n_heads, *out.stride()[:3],
                 *between.stride()[:3], *lse.stride()[:2], *more_out.stride()[:3],
                 *more_lse.stride()[:2], width, triton.next_power_of_2(width), QUERIES, is_first,
                 is_last, num_warps=WARPS)
