# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Products with an all-to-all, before or behind it. ``include/ceoverlap/ops.h`` is the
contract, and ceoverlap.ops says what operators have in common.

Each rank has a block for every rank, its own included. Say which by one of these, the same at
all ranks:

rows_of            rows are divided: n_ranks lists of n_ranks numbers, the rows of the block
                   from rank r to rank t in rows_of[r][t]. Blocks have all columns, and lie in
                   the order of targets where they come from, in that of sources where they go
rows and columns   columns are divided: n_ranks numbers each, columns in multiples of 8. Each
                   block has the rows of one of its two ranks, and the columns of the other
"""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple

from . import _abi, errors
from .buffer import Array
from .ops import Tuning, Workspace, _b_shape, _n_of, _numbers, _Op, _scratch_bytes, _shape
from .stream import StreamLike


class _AllToAllOp(_Op):
    """What both products have in common."""

    _scratch_call = ""
    _struct: Any = None
    _run_struct: Any = None

    def __init__(self, workspace: Workspace, k: int, n: int, dtype: str = "bfloat16",
                 tuning: Optional[Tuning] = None, b_is_k_by_n: bool = False, *,
                 rows_of: Optional[Sequence[Sequence[int]]] = None,
                 rows: Optional[Sequence[int]] = None,
                 columns: Optional[Sequence[int]] = None) -> None:
        self._set_blocks(workspace.context.n_ranks, rows_of, rows, columns)
        self.k = k
        self.n = n
        self.dtype: str = str(dtype)
        self.b_is_k_by_n: bool = bool(b_is_k_by_n)
        super().__init__(workspace, self._shape_of(k, n, dtype, tuning, b_is_k_by_n, rows_of,
                                                   rows, columns))

    @staticmethod
    def _n_ranks(rows_of: Optional[Sequence[Sequence[int]]], rows: Optional[Sequence[int]],
                 columns: Optional[Sequence[int]]) -> int:
        """Returns for how many ranks the numbers are."""
        lists: Sequence[Sequence[int]]
        if rows_of is not None and rows is None and columns is None:
            n, lists = _n_of(rows_of, "rows_of"), rows_of
        elif rows_of is None and rows is not None and columns is not None:
            n, lists = _n_of(rows, "rows"), [columns]
        else:
            raise errors.InvalidError("give either rows_of, or both rows and columns")
        if any(_n_of(numbers, "rows_of, or columns") != n for numbers in lists):
            raise errors.InvalidError(f"rows_of, or rows and columns: lists of {n} numbers, "
                                      "one for each rank")
        return n

    def _set_blocks(self, n_ranks: int, rows_of: Optional[Sequence[Sequence[int]]],
                    rows: Optional[Sequence[int]], columns: Optional[Sequence[int]]) -> None:
        n = self._n_ranks(rows_of, rows, columns)
        if n != n_ranks:
            raise errors.InvalidError(f"numbers for {n} of {n_ranks} ranks")
        # Empty where the caller has named blocks in the other way.
        self.rows_of: tuple[tuple[int, ...], ...] = tuple(tuple(line) for line in rows_of or ())
        self.rows: tuple[int, ...] = tuple(rows or ())
        self.columns: tuple[int, ...] = tuple(columns or ())

    @classmethod
    def _shape_of(cls, k: int, n: int, dtype: str, tuning: Optional[Tuning], b_is_k_by_n: bool,
                  rows_of: Optional[Sequence[Sequence[int]]], rows: Optional[Sequence[int]],
                  columns: Optional[Sequence[int]]) -> Any:
        shape = _shape(cls._struct, dtype, tuning)
        if rows_of is not None:
            shape.rows_of = _numbers([number for line in rows_of for number in line],
                                     "rows_of")
        else:
            shape.rows = _numbers(rows or (), "rows")
            shape.columns = _numbers(columns or (), "columns")
        shape.k = k
        shape.n = n
        shape.b_is_k_by_n = bool(b_is_k_by_n)
        return shape

    @classmethod
    def scratch_bytes(cls, k: int, n: int, dtype: str = "bfloat16",
                      tuning: Optional[Tuning] = None, b_is_k_by_n: bool = False, *,
                      rows_of: Optional[Sequence[Sequence[int]]] = None,
                      rows: Optional[Sequence[int]] = None,
                      columns: Optional[Sequence[int]] = None) -> int:
        """Returns how much scratch memory its workspace needs."""
        n_ranks = cls._n_ranks(rows_of, rows, columns)
        return _scratch_bytes(cls._scratch_call,
                              cls._shape_of(k, n, dtype, tuning, b_is_k_by_n, rows_of, rows,
                                            columns), n_ranks)

    def _rows_sent(self) -> int:
        return sum(self.rows_of[self._rank])

    def _rows_received(self) -> int:
        return sum(line[self._rank] for line in self.rows_of)

    def _a_shape(self) -> Tuple[int, int]:
        raise NotImplementedError

    def _c_shape(self) -> Tuple[int, int]:
        raise NotImplementedError

    def run(self, a: Array, b: Array, c: Array = None,
            stream: Optional[StreamLike] = None) -> Array:
        """b: n x k, or k x n where b_is_k_by_n; a and c: see the class; c is new where None
        (host ranks). Returns c."""
        c_shape = self._c_shape()
        c = self._result(c, a, *c_shape)
        held = (self._operand(a, "a", *self._a_shape()),
                self._operand(b, "b", *_b_shape(self, self.n)),
                self._operand(c, "c", *c_shape, is_result=True))
        run = _abi.new(self._run_struct)
        run.a, run.b, run.c = (memory.address for memory in held)
        self._start(run, stream)
        return c


class GemmAllToAll(_AllToAllOp):
    """GEMM + all-to-all: blocks of A B^T go to their ranks. The numbers of blocks are named as
    the module says.

    k, n    of the product; n is the sum of columns
    a       sum(rows_of[rank]) x k, or rows[rank] x k
    c       all rows that the rank gets x n, or sum(rows) x columns[rank]
    """

    _create_call = "ceov_gemm_a2a_create"
    _run_call = "ceov_gemm_a2a_run"
    _scratch_call = "ceov_gemm_a2a_scratch_bytes"
    _struct = _abi.ceov_gemm_a2a
    _run_struct = _abi.ceov_gemm_a2a_run

    def _a_shape(self) -> Tuple[int, int]:
        return (self._rows_sent() if self.rows_of else self.rows[self._rank], self.k)

    def _c_shape(self) -> Tuple[int, int]:
        if self.rows_of:
            return self._rows_received(), self.n
        return sum(self.rows), self.columns[self._rank]


class AllToAllGemm(_AllToAllOp):
    """All-to-all + GEMM: C = A B^T, where blocks of A come from all ranks. The numbers of blocks
    are named as the module says.

    k, n    of the product; k is the sum of columns
    a       sum(rows_of[rank]) x k, or sum(rows) x columns[rank]
    c       all rows that the rank gets x n, or rows[rank] x n
    """

    _create_call = "ceov_a2a_gemm_create"
    _run_call = "ceov_a2a_gemm_run"
    _scratch_call = "ceov_a2a_gemm_scratch_bytes"
    _struct = _abi.ceov_a2a_gemm
    _run_struct = _abi.ceov_a2a_gemm_run

    def _a_shape(self) -> Tuple[int, int]:
        if self.rows_of:
            return self._rows_sent(), self.k
        return sum(self.rows), self.columns[self._rank]

    def _c_shape(self) -> Tuple[int, int]:
        return (self._rows_received() if self.rows_of else self.rows[self._rank], self.n)
