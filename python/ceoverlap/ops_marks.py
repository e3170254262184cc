# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""GEMM with marks, for communication by other libraries. ``include/ceoverlap/ops.h`` is the
contract, and ceoverlap.ops says what operators have in common."""

from __future__ import annotations

import ctypes
from typing import Any, Optional, Tuple

from . import _abi
from .buffer import Array
from .ops import Tuning, Workspace, _b_shape, _Op, _scratch_bytes, _shape
from .stream import StreamLike, stream_handle


class GemmMarks(_Op):
    """C = A B^T of one rank, which tells when groups of rows of C are stored. Ranks may make
    different runs, in any order.

    m, n    rows and columns of C
    tuning  its n_pieces is the number of groups; None: the library chooses
    b_is_k_by_n  B is k x n, and the product A B

    groups  the (first row, number of rows) of each group, in order
    """

    _create_call = "ceov_gemm_marks_create"
    _run_call = "ceov_gemm_marks_run"

    def __init__(self, workspace: Workspace, m: int, k: int, n: int, dtype: str = "bfloat16",
                 tuning: Optional[Tuning] = None, b_is_k_by_n: bool = False) -> None:
        self.m = m
        self.k = k
        self.n = n
        self.dtype: str = str(dtype)
        self.b_is_k_by_n: bool = bool(b_is_k_by_n)
        super().__init__(workspace, self._shape_of(m, k, n, dtype, tuning, b_is_k_by_n))
        n_groups = _abi.lib.ceov_gemm_marks_groups(self._open_handle())
        self.groups: Tuple[Tuple[int, int], ...] = tuple(map(self._rows, range(n_groups)))

    @staticmethod
    def _shape_of(m: int, k: int, n: int, dtype: str, tuning: Optional[Tuning],
                  b_is_k_by_n: bool) -> Any:
        shape = _shape(_abi.ceov_gemm_marks, dtype, tuning)
        shape.m = m
        shape.k = k
        shape.n = n
        shape.b_is_k_by_n = bool(b_is_k_by_n)
        return shape

    @classmethod
    def scratch_bytes(cls, m: int, k: int, n: int, n_ranks: int, dtype: str = "bfloat16",
                      tuning: Optional[Tuning] = None, b_is_k_by_n: bool = False) -> int:
        """Returns how much scratch memory its workspace needs."""
        return _scratch_bytes("ceov_gemm_marks_scratch_bytes",
                              cls._shape_of(m, k, n, dtype, tuning, b_is_k_by_n), n_ranks)

    def _rows(self, group: int) -> Tuple[int, int]:
        first, n_rows = ctypes.c_uint64(), ctypes.c_uint64()
        self._invoke("ceov_gemm_marks_rows", group, ctypes.byref(first), ctypes.byref(n_rows))
        return first.value, n_rows.value

    def run(self, a: Array, b: Array, c: Array = None,
            stream: Optional[StreamLike] = None) -> Array:
        """a: m x k; b: n x k, or k x n where b_is_k_by_n; c: m x n, new where None (host
        ranks). Returns c."""
        c = self._result(c, a, self.m, self.n)
        held = (self._operand(a, "a", self.m, self.k),
                self._operand(b, "b", *_b_shape(self, self.n)),
                self._operand(c, "c", self.m, self.n, is_result=True))
        run = _abi.new(_abi.ceov_gemm_marks_run)
        run.a, run.b, run.c = (memory.address for memory in held)
        self._start(run, stream)
        return c

    def wait(self, group: int, stream: Optional[StreamLike] = None, run: int = 0) -> None:
        """Makes the stream wait until a group of the last run, or of the run of that number,
        counted from 1, is stored. On host ranks it blocks, at most for the workspace's
        deadline."""
        is_host = self._context.place(self._rank).kind == "host"
        self._invoke("ceov_gemm_marks_wait", run, group, stream_handle(stream),
                     is_long=is_host)
