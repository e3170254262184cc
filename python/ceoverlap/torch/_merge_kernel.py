# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Puts together attention over two pieces of the keys by one Triton kernel, for results of 16 bits
on GPUs. PyTorch needs seven kernels for that, which read and write three times as many bytes.
Triton has to be installed, and needs a C compiler at first use."""

from __future__ import annotations

import logging
from typing import Any, List, Optional, Set, Tuple

import torch

from .group import Group

try:
    import triton
    import triton.language as tl
except Exception:                       # not installed, or broken: PyTorch's kernels do it
    triton = None

DTYPES = (torch.bfloat16, torch.float16)
WIDTH_MAX = 256                         # of a head: a program has whole rows
QUERIES = 32                            # of a program
WARPS = 4
ALIGNED = 8                             # numbers of 16 bits: 16 bytes, which a thread loads at once
PROGRAMS_MAX = 65535                    # along the grid's second dimension
STRIDE_MAX = 1 << 31                    # Triton compiles again for numbers of more bits

STRIDES = ["out_batch", "out_head", "out_query", "total_batch", "total_head", "total_query",
           "lse_batch", "lse_head", "more_batch", "more_head", "more_query", "more_lse_batch",
           "more_lse_head"]

if triton is not None:
    # Triton compiles again for numbers that are 1 or multiples of 16, and for aligned addresses,
    # unless it is told not to: what prepare() has had compiled would be another kernel. That rows
    # are aligned is said by strides in units of ALIGNED numbers.
    @triton.jit(do_not_specialize=["n", "n_heads", *STRIDES],
                do_not_specialize_on_alignment=["lse", "more_lse"])
    def _merge(out: torch.Tensor, total: Any, lse: torch.Tensor, more_out: Any, more_lse: Any,
               n: Any, n_heads: Any, out_batch: Any, out_head: Any, out_query: Any,
               total_batch: Any, total_head: Any, total_query: Any, lse_batch: Any, lse_head: Any,
               more_batch: Any, more_head: Any, more_query: Any, more_lse_batch: Any,
               more_lse_head: Any, width: tl.constexpr, block: tl.constexpr, queries: tl.constexpr,
               unit: tl.constexpr, is_first: tl.constexpr, is_last: tl.constexpr) -> None:
        """Queries of one head. Rows of results are contiguous, and so are log-sum-exps of a head.
        Strides of out, total and more_out are in units of so many numbers.
        is_first: the pieces so far are in out, else in total; is_last: the result goes to out."""
        batch, head = tl.program_id(0) // n_heads, tl.program_id(0) % n_heads
        query = tl.program_id(1) * queries + tl.arange(0, queries)
        column = tl.arange(0, block)
        is_query = query < n
        is_there = is_query[:, None] & (column < width)[None, :]
        batch, head, row = batch.to(tl.int64), head.to(tl.int64), query.to(tl.int64)

        lse_at = lse + batch * lse_batch + head * lse_head + row
        more_lse_at = more_lse + batch * more_lse_batch + head * more_lse_head + row
        a, b = tl.load(lse_at, is_query, 0.0), tl.load(more_lse_at, is_query, 0.0)
        share = tl.sigmoid(b - a)[:, None]      # of the piece in the sum of all scores' exp()

        out_at = (out + (batch * out_batch + head * out_head + row * out_query)[:, None] * unit +
                  column[None, :])
        total_at = (total + (batch * total_batch + head * total_head +
                             row * total_query)[:, None] * unit + column[None, :])
        more_at = (more_out + (batch * more_batch + head * more_head +
                               row * more_query)[:, None] * unit + column[None, :])
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
            tl.store(out_at, merged.to(out.dtype.element_ty),  # type: ignore[attr-defined]
                     is_there)
        else:
            tl.store(total_at, merged, is_there)


def is_aligned(rows: torch.Tensor) -> bool:
    """Returns whether the kernel takes results that lie so."""
    strides = rows.stride()
    return (strides[3] == 1 and rows.data_ptr() % 16 == 0 and
            not any(stride % ALIGNED or stride >= STRIDE_MAX for stride in strides[:3]))


def _units(rows: torch.Tensor) -> List[int]:
    return [stride // ALIGNED for stride in rows.stride()[:3]]


def merge(out: torch.Tensor, total: Optional[torch.Tensor], lse: torch.Tensor,
          more: Tuple[torch.Tensor, torch.Tensor], is_first: bool, is_last: bool) -> None:
    """Adds one more piece, its result and its log-sum-exp, to out or total, and to lse. out is
    aligned, and its width a multiple of ALIGNED. total has the shape of out in fp32; None where
    the piece is the first and the last one."""
    more_out, more_lse = more
    more_out = more_out if is_aligned(more_out) else more_out.contiguous()
    more_lse = more_lse if more_lse.stride(2) == 1 else more_lse.contiguous()
    n_batch, n_heads, n, width = out.shape
    if total is None:                   # of the same type as in other calls
        total = torch.empty((1, 1, 1, ALIGNED), dtype=torch.float32, device=out.device)
    grid = (n_batch * n_heads, triton.cdiv(n, QUERIES))
    _merge[grid](out, total, lse, more_out, more_lse, n, n_heads, *_units(out), *_units(total),
                 *lse.stride()[:2], *_units(more_out), *more_lse.stride()[:2], width,
                 triton.next_power_of_2(width), QUERIES, ALIGNED, is_first, is_last,
                 num_warps=WARPS)


class MergeKernel:
    """The kernel of a group's GPU, as far as it is compiled and loaded."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._is_usable = triton is not None and group.is_gpu
        self._prepared: Set[Tuple[torch.dtype, int]] = set()    # dtype and width of a head
        self._failed: Set[Tuple[torch.dtype, int]] = set()

    def prepare(self, like: torch.Tensor) -> None:
        """Has the kernel compiled and loaded for results of this dtype and width. It comes before
        anything of a call waits on this rank's streams, where the driver may hold back the first
        launch of a kernel. Peers may wait for this rank meanwhile. During a capture it is left for
        later: PyTorch's kernels are captured."""
        key = (like.dtype, like.shape[3])
        if (key in self._prepared or key in self._failed or not self._is_usable or
                key[0] not in DTYPES or key[1] > WIDTH_MAX or key[1] % ALIGNED or
                self._group.is_capturing()):
            return
        try:
            with torch.cuda.device(self._group.device):
                self._make(*key)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:      # mostly: no compiler, or no folder for what it makes
            self._failed.add(key)
            logging.getLogger("ceoverlap").warning(
                "attention: Triton's kernel for %s and width %d cannot be made, so PyTorch's put "
                "pieces together: %s", *key, error, exc_info=True)
        else:
            self._prepared.add(key)

    def _make(self, dtype: torch.dtype, width: int) -> None:
        out, total = (torch.zeros((1, 1, QUERIES, width), dtype=one, device=self._group.device)
                      for one in (dtype, torch.float32))
        lse = torch.zeros((1, 1, QUERIES), dtype=torch.float32, device=self._group.device)
        for is_first in (True, False):
            for is_last in (True, False):
                merge(out, total, lse, (out, lse), is_first, is_last)

    def takes(self, out: torch.Tensor, lse: torch.Tensor) -> bool:
        """Returns whether merge() may be called for such results."""
        return ((out.dtype, out.shape[3]) in self._prepared and lse.dtype == torch.float32 and
                lse.stride(2) == 1 and is_aligned(out) and
                triton.cdiv(out.shape[2], QUERIES) <= PROGRAMS_MAX)

    def merge(self, *arguments: Any) -> None:
        """As the function, on the group's GPU, whatever the current one is."""
        with torch.cuda.device(self._group.device):
            merge(*arguments)

    def close(self) -> None:
        """Nothing: Triton keeps its kernels."""
