# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""GEMM + all-reduce. ``include/ceoverlap/ops.h`` is the contract, and ceoverlap.ops says what
operators have in common."""

from __future__ import annotations

from typing import Any, Optional

from . import _abi
from .buffer import Array
from .ops import Tuning, Workspace, _b_shape, _Op, _scratch_bytes, _shape
from .stream import StreamLike


class GemmAllReduce(_Op):
    """GEMM + all-reduce: C = sum over ranks of A_rank B_rank^T, all of it at all ranks.

    m, n    rows and columns of the sum, the same at all ranks
    k       of this rank's product
    b_is_k_by_n  B is k x n, and the product A B
    by_rows  the sum is divided among ranks by rows, however few there are: for GPUs without
            kernels of this library; the same at all ranks
    """

    _create_call = "ceov_gemm_ar_create"
    _run_call = "ceov_gemm_ar_run"

    def __init__(self, workspace: Workspace, m: int, k: int, n: int, dtype: str = "bfloat16",
                 tuning: Optional[Tuning] = None, b_is_k_by_n: bool = False,
                 by_rows: bool = False) -> None:
        self.m = m
        self.k = k
        self.n = n
        self.dtype: str = str(dtype)
        self.b_is_k_by_n: bool = bool(b_is_k_by_n)
        super().__init__(workspace, self._shape_of(m, k, n, dtype, tuning, b_is_k_by_n,
                                                   by_rows))

    @staticmethod
    def _shape_of(m: int, k: int, n: int, dtype: str, tuning: Optional[Tuning], b_is_k_by_n: bool,
                  by_rows: bool) -> Any:
        shape = _shape(_abi.ceov_gemm_ar, dtype, tuning)
        shape.m = m
        shape.k = k
        shape.n = n
        shape.b_is_k_by_n = bool(b_is_k_by_n)
        shape.by_rows = bool(by_rows)
        return shape

    @classmethod
    def scratch_bytes(cls, m: int, k: int, n: int, n_ranks: int, dtype: str = "bfloat16",
                      tuning: Optional[Tuning] = None, b_is_k_by_n: bool = False,
                      by_rows: bool = False) -> int:
        """Returns how much scratch memory its workspace needs."""
        return _scratch_bytes("ceov_gemm_ar_scratch_bytes",
                              cls._shape_of(m, k, n, dtype, tuning, b_is_k_by_n, by_rows),
                              n_ranks)

    def run(self, a: Array, b: Array, c: Array = None,
            stream: Optional[StreamLike] = None) -> Array:
        """a: m x k; b: n x k, or k x n where b_is_k_by_n; c: m x n, new where None (host
        ranks). Returns c."""
        c = self._result(c, a, self.m, self.n)
        held = (self._operand(a, "a", self.m, self.k),
                self._operand(b, "b", *_b_shape(self, self.n)),
                self._operand(c, "c", self.m, self.n, is_result=True))
        run = _abi.new(_abi.ceov_gemm_ar_run)
        run.a, run.b, run.c = (memory.address for memory in held)
        self._start(run, stream)
        return c
