# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Overlapped operators: collectives and the matrix products around them, each one call in
the order of a stream. ``include/ceoverlap/ops.h`` is the contract; in short:

Matrices   are row-major without gaps: A is rows x k, B is n x k (a Linear layer's weight),
           or k x n where b_is_k_by_n, C is rows x n; k and n are multiples of 8.
Rows       of the gathered A, or of the product that is scattered, belong to ranks in order:
           rank r has rows[r] of them; 0 is allowed.
dtype      "bfloat16" or "float16"; ReduceScatter and AllReduce also take "float32". Arrays
           have that dtype, or, where it is not "float32", uint16 with the same bits (NumPy
           has no bfloat16 of its own; see ceoverlap.bf16, or ml_dtypes).
Streams    A run on a GPU comes after what is on the caller's stream, and what the caller
           queues there next comes after the run. Operands and results stay allocated until
           then. On host ranks there is no stream: the call is done when it returns, and
           each rank calls from a thread of its own.
Order      All ranks make the same runs of a workspace in the same order.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import weakref
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _abi, _object, errors
from .buffer import Array, Memory, memory_of
from .context import Context
from .plan import number_of, told_by
from .stream import StreamLike, stream_handle

_DTYPES = {"bfloat16": _abi.CEOV_BF16, "float16": _abi.CEOV_FP16}
_SUM_DTYPES = {**_DTYPES, "float32": _abi.CEOV_FP32}
_MODES = {"choose": _abi.CEOV_MODE_CHOOSE, "overlap": _abi.CEOV_MODE_OVERLAP,
          "sequence": _abi.CEOV_MODE_SEQUENCE, "direct": _abi.CEOV_MODE_DIRECT,
          "two-shot": _abi.CEOV_MODE_TWO_SHOT}
_CUTS = {"choose": _abi.CEOV_CUT_CHOOSE, "equal": _abi.CEOV_CUT_EQUAL,
         "waves": _abi.CEOV_CUT_WAVES, "shrinking": _abi.CEOV_CUT_SHRINKING,
         "growing": _abi.CEOV_CUT_GROWING, "columns": _abi.CEOV_CUT_COLUMNS}
_ORDERS = {"choose": _abi.CEOV_ORDER_CHOOSE, "bands": _abi.CEOV_ORDER_BANDS,
           "columns": _abi.CEOV_ORDER_COLUMNS, "turns": _abi.CEOV_ORDER_TURNS}
_WIDE_KINDS = (_abi.ceov_reduce, _abi.ceov_moe, _abi.ceov_embedding)     # also take float32
ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


class Tuning(NamedTuple):
    """Choices that the caller makes instead of the library; 0 and "choose" leave them to the
    library. mode is "overlap" or "sequence", or, where SMs shall move few bytes without copy
    engines, "direct" or "two-shot", by which products other than GEMM + all-reduce and their
    transfers come one after the other; cut is "equal", or for products "waves", "shrinking" or
    "growing", or for GEMM + reduce-scatter and all-reduce "columns"; tile_order "bands", "columns"
    or "turns"; for the other fields see struct ceov_op_tuning."""
    mode: str = "choose"
    n_pieces: int = 0
    tile_rows: int = 0
    tile_columns: int = 0
    n_reduce_blocks: int = 0
    chunk_bytes: int = 0
    cut: str = "choose"
    tile_order: str = "choose"
    band_rows: int = 0
    n_gemm_blocks: int = 0

    def _struct(self) -> _abi.ceov_op_tuning:
        struct = _abi.new(_abi.ceov_op_tuning)
        struct.mode = number_of(_MODES, self.mode, "mode")
        struct.n_pieces = self.n_pieces
        struct.tile_rows = self.tile_rows
        struct.tile_columns = self.tile_columns
        struct.n_reduce_blocks = self.n_reduce_blocks
        struct.chunk_bytes = self.chunk_bytes
        struct.cut = number_of(_CUTS, self.cut, "cut")
        struct.tile_order = number_of(_ORDERS, self.tile_order, "tile_order")
        struct.band_rows = self.band_rows
        struct.n_gemm_blocks = self.n_gemm_blocks
        return struct

    @classmethod
    def _of(cls, struct: _abi.ceov_op_tuning) -> "Tuning":
        values = {name: getattr(struct, name) for name in cls._fields}
        for name, numbers in (("mode", _MODES), ("cut", _CUTS), ("tile_order", _ORDERS)):
            values[name] = {number: text for text, number in numbers.items()}[values[name]]
        return cls(**values)


class Workspace(_object.Object):
    """The scratch memory and signals of one rank, known to its peers, through which any number
    of operators that run one after another move their data.

    name           1 to 40 bytes, the same at all ranks; each open workspace has its own
    scratch_bytes  the largest scratch_bytes() of its operators, the same at all ranks; twice
                   that is allocated
    capturable     behind a daemon: whether runs may be captured into CUDA graphs, and the daemon
                   then has no part in them. On GPUs of one node without a daemon they always may
    deadline_s     limit of every wait of a run, in seconds; 0: the context's
    shares_sms     whether other kernels that wait for peers may run at the same time
    n_sms          how many SMs the kernels of runs take at most, the same at all ranks; 0: all.
                   For ranks that share a GPU, whose budgets fit on it together
    follows        another workspace of the rank: on GPUs, runs of both follow each other whatever
                   their streams. It closes after this one
    """

    _release_call = "ceov_workspace_release"

    def __init__(self, context: Context, name: str, scratch_bytes: int, rank: Optional[int] = None,
                 *, capturable: bool = False, deadline_s: float = 0.0, shares_sms: bool = False,
                 n_sms: int = 0, follows: Optional[Workspace] = None) -> None:
        super().__init__(context, context._own(rank))
        self._ops: weakref.WeakSet[_Op] = weakref.WeakSet()
        self.capturable: bool = bool(capturable)
        config = _abi.new(_abi.ceov_workspace_config)
        config.rank = self._rank
        config.name = _object.text_of(name, "name")
        config.scratch_bytes = scratch_bytes
        config.is_capturable = bool(capturable)
        config.deadline_ns = _object.ns(deadline_s)
        config.shares_sms = bool(shares_sms)
        config.n_sms = n_sms
        if follows is not None:
            config.follows = follows._open_handle()
        self._make_handle("ceov_workspace_create", ctypes.byref(config), kept=follows)
        if follows is not None and self._record and follows._record:
            self._record.stand_on(follows._record)

    def connect(self, timeout_s: Optional[float] = None) -> Workspace:
        """Finds the workspaces of all peers; operators can be created afterwards. If one
        process holds several ranks, create the workspaces of all of them first. Raises
        PendingError if a peer did not create its workspace in time. Returns the workspace."""
        limit = self._context._limit(timeout_s)
        if not _object.wait(lambda ns, is_long: self._invoke(
                "ceov_workspace_connect", ns, is_long=is_long), limit):
            raise errors.make(_abi.CEOV_PENDING, "some peer has not created its "
                              f"workspace within {limit} s")
        return self

    def check(self) -> None:
        """Raises the error that ended a run of one of its operators, if any. Never blocks."""
        self._invoke("ceov_workspace_status")

    def abort(self) -> None:
        """Aborts, at all ranks, its runs in flight; later runs raise AbortedError. Any thread
        may call it. An interrupt (Ctrl-C) during a run does the same."""
        self._invoke("ceov_workspace_abort")

    def _stop(self) -> None:
        """Aborts the workspace because a run was interrupted."""
        with contextlib.suppress(errors.CeoverlapError):        # closed, or has failed
            self.abort()

    def release(self, timeout_s: float = 0.0) -> bool:
        """Releases the workspace and its operators; see Object.release()."""
        deadline = _object.deadline_of(timeout_s)
        if not all([op.release(_object.slice_of(deadline, timeout_s)) for op in self._ops]):
            return False
        return super().release(_object.slice_of(deadline, timeout_s))

    def _try_release(self) -> bool:
        self._context._sweep()          # of its operators, those that were forgotten
        return super()._try_release()

    def close(self) -> None:
        """Closes the workspace's operators, then the workspace; see Object.close()."""
        for op in list(self._ops):
            op.close()
        super().close()


class _Op(_object.Object):
    """An operator of fixed shape, created on a connected workspace."""

    _release_call = "ceov_op_release"
    _idle_call = "ceov_workspace_idle"
    _create_call = ""
    _run_call = ""
    dtype = ""
    can_be_captured = True              # whether capturable workspaces have such operators

    def __init__(self, workspace: Workspace, shape: Any) -> None:
        super().__init__(workspace.context, workspace.rank)
        workspace._open_handle()
        self._workspace = workspace
        self._patience_s = self._context.deadline_s
        self._make_handle(self._create_call, ctypes.byref(shape), kept=workspace,
                          below=workspace._record)
        workspace._ops.add(self)

    def _start(self, run: Any, stream: Optional[StreamLike]) -> None:
        run.stream = stream_handle(stream)
        is_host = self._context.place(self._rank).kind == "host"
        if is_host != (run.stream is None):
            raise errors.InvalidError("host ranks have no stream" if is_host else
                                      "a rank on a GPU needs a stream")
        self._context._invoke(self._run_call, self._open_handle(), ctypes.byref(run),
                              is_long=is_host, stop=self._workspace._stop)

    def explain(self) -> str:
        """Returns a few lines that say which choices were made for this operator and why."""
        return told_by(lambda fd: self._invoke("ceov_op_explain", fd))

    def chosen(self) -> Tuning:
        """Returns what was chosen, as a Tuning with which an operator of the same arguments runs
        alike. Not while tune() is at work."""
        struct = _abi.new(_abi.ceov_op_tuning)
        self._invoke("ceov_op_chosen", ctypes.byref(struct))
        return Tuning._of(struct)

    def tune(self, stream: StreamLike) -> None:
        """Measures candidates for the operator's shape, keeps the fastest and stores it. All
        ranks call it. For GPU ranks only."""
        self._invoke("ceov_op_tune", stream_handle(stream))

    def _operand(self, obj: Array, name: str, *shape: int, is_result: bool = False,
                 may_go_on: bool = False) -> Memory:
        """Returns the Memory of an operand. Refuses one of another shape (may_go_on: one that
        is shorter), of another dtype than the operator's, or not in the rank's place."""
        memory = memory_of(obj)
        size = ITEM_BYTES[self.dtype]
        for n in shape:
            size *= n
        is_longer = may_go_on and memory.size_bytes > size
        if not is_longer and (memory.size_bytes != size or
                              (memory.shape != shape and len(shape) > 1)):
            raise errors.InvalidError(f"{name}: shape {memory.shape} of {memory.dtype}, must "
                                      f"be {shape} of {self.dtype}")
        allowed = (self.dtype,) if self.dtype == "float32" else (self.dtype, "uint16")
        if memory.dtype not in allowed:
            raise errors.InvalidError(f"{name}: {memory.dtype}, must be "
                                      f"{' or its bits as '.join(allowed)}")
        self._check_memory(memory, name, is_result)
        return memory

    def _check_memory(self, memory: Memory, name: str, is_result: bool) -> None:
        if memory.is_gpu != (self._context.place(self._rank).kind == "gpu"):
            raise errors.InvalidError(f"{name}: must be in the place of rank {self._rank}")
        if is_result and not memory.is_writable:
            raise errors.InvalidError(f"{name}: is read-only")

    def _result(self, obj: Array, like: Array, *shape: int) -> Array:
        """Returns the caller's array for a result, or a new one for a host rank."""
        if obj is not None:
            return obj
        if self._context.place(self._rank).kind != "host":
            raise errors.InvalidError("a rank on a GPU brings its results' memory")
        import numpy

        return numpy.empty(shape, numpy.asarray(like).dtype)


def _n_of(values: Sequence[object], what: str) -> int:
    """Returns how many numbers there are. `what` names the parameter in the error, if it is no
    list."""
    try:
        return len(values)
    except TypeError:
        raise errors.InvalidError(f"{what}: {values!r} is no list of numbers, with an entry for "
                                  "each rank") from None


def _numbers(values: Sequence[int], what: str) -> ctypes.Array[ctypes.c_uint64]:
    """Returns a C array of the numbers, which must not be negative."""
    _n_of(values, what)
    values = [int(value) for value in values]
    if any(value < 0 for value in values):
        raise errors.InvalidError(f"{what}: {values}: must not be negative")
    return (ctypes.c_uint64 * len(values))(*values)


def _shape(kind: Any, dtype: str, tuning: Optional[Tuning]) -> Any:
    shape = _abi.new(kind)
    dtypes = _SUM_DTYPES if kind in _WIDE_KINDS else _DTYPES
    shape.dtype = number_of(dtypes, str(dtype), "dtype")
    if tuning is not None:
        shape.tuning = ctypes.pointer(tuning._struct())
    return shape


def _scratch_bytes(call: str, shape: Any, n_ranks: int) -> int:
    size = int(getattr(_abi.lib, call)(ctypes.byref(shape), n_ranks))
    if not size:
        raise errors.InvalidError(f"{call}: the shape is refused: k, n and counts are "
                                  "multiples of 8, and there are 1 to 4 products")
    return size


def _check_rows(workspace: Workspace, rows: Sequence[int], what: str) -> None:
    n = workspace.context.n_ranks
    if _n_of(rows, what) != n:
        raise errors.InvalidError(f"{what}: {len(rows)} numbers for {n} ranks")


def _b_shape(op: Any, n: int) -> Tuple[int, int]:
    """Returns the shape of the operand B of a product with n columns."""
    return (op.k, n) if op.b_is_k_by_n else (n, op.k)


def is_scale(value: float) -> bool:
    """Returns whether a ReduceScatter accepts this scale: finite and not 0 as an fp32 number."""
    scale = ctypes.c_float(value).value
    return math.isfinite(scale) and scale != 0


Several = Any                           # an array, or a list of arrays


class AllGatherGemm(_Op):
    """All-gather + GEMM: C_i = A B_i^T, where A's rows come from all ranks.

    rows    of each rank: n_ranks numbers
    n       columns of the product, or of up to 4 products of one gathered A
    b_is_k_by_n  every B is k x n, and C_i = A B_i: a backward pass multiplies so, by a
                 weight as it is
    """

    _create_call = "ceov_ag_gemm_create"
    _run_call = "ceov_ag_gemm_run"

    def __init__(self, workspace: Workspace, rows: Sequence[int], k: int,
                 n: Union[int, Sequence[int]], dtype: str = "bfloat16",
                 tuning: Optional[Tuning] = None, b_is_k_by_n: bool = False) -> None:
        _check_rows(workspace, rows, "rows")
        self.rows: tuple[int, ...] = tuple(rows)
        self.k = k
        self.n: tuple[int] | tuple[int, ...] = (n,) if isinstance(n, int) else tuple(n)
        self.dtype: str = str(dtype)
        self.b_is_k_by_n: bool = bool(b_is_k_by_n)
        self._is_single = isinstance(n, int)
        super().__init__(workspace, self._shape_of(rows, k, n, dtype, tuning, b_is_k_by_n))

    @staticmethod
    def _shape_of(rows: Sequence[int], k: int, n: Union[int, Sequence[int]], dtype: str,
                  tuning: Optional[Tuning], b_is_k_by_n: bool) -> Any:
        widths = (n,) if isinstance(n, int) else tuple(n)
        if not 1 <= len(widths) <= _abi.CEOV_OP_GEMMS_MAX:
            raise errors.InvalidError(f"{len(widths)} products: 1 to "
                                      f"{_abi.CEOV_OP_GEMMS_MAX}")
        shape = _shape(_abi.ceov_ag_gemm, dtype, tuning)
        shape.rows = _numbers(rows, "rows")
        shape.k = k
        shape.n_gemms = len(widths)
        shape.n[:len(widths)] = widths
        shape.b_is_k_by_n = bool(b_is_k_by_n)
        return shape

    @classmethod
    def scratch_bytes(cls, rows: Sequence[int], k: int, n: Union[int, Sequence[int]],
                      dtype: str = "bfloat16", tuning: Optional[Tuning] = None,
                      b_is_k_by_n: bool = False) -> int:
        """Returns how much scratch memory its workspace needs."""
        return _scratch_bytes("ceov_ag_gemm_scratch_bytes",
                              cls._shape_of(rows, k, n, dtype, tuning, b_is_k_by_n),
                              len(rows))

    def run(self, a: Array, b: Several, c: Several = None, gathered: Array = None,
            stream: Optional[StreamLike] = None) -> Several:
        """a: rows[rank] x k; b: n x k, or k x n where b_is_k_by_n; c: sum(rows) x n, new
        where None (host ranks); for several products b and c are lists. gathered: sum(rows)
        x k or None, gets all of A. Returns c."""
        all_rows = sum(self.rows)
        b = [b] if self._is_single else list(b)
        if c is None:
            c = [None] * len(self.n)
        else:
            c = [c] if self._is_single else list(c)
        if len(b) != len(self.n) or len(c) != len(self.n):
            raise errors.InvalidError(f"{len(b)} b and {len(c)} c for {len(self.n)} products")
        run = _abi.new(_abi.ceov_ag_gemm_run)
        held: List[Memory] = [self._operand(a, "a", self.rows[self._rank], self.k)]
        run.a = held[0].address
        for i, n in enumerate(self.n):
            c[i] = self._result(c[i], a, all_rows, n)
            held.append(self._operand(b[i], "b", *_b_shape(self, n)))
            run.b[i] = held[-1].address
            held.append(self._operand(c[i], "c", all_rows, n, is_result=True))
            run.c[i] = held[-1].address
        if gathered is not None:
            held.append(self._operand(gathered, "gathered", all_rows, self.k, is_result=True))
            run.gathered = held[-1].address
        self._start(run, stream)
        return c[0] if self._is_single else c


class GemmReduceScatter(_Op):
    """GEMM + reduce-scatter: C = sum over ranks of A_rank B_rank^T, own rows of it.

    rows    of the sum that each rank gets: n_ranks numbers
    k       of this rank's product
    b_is_k_by_n  B is k x n, and the product A B
    """

    _create_call = "ceov_gemm_rs_create"
    _run_call = "ceov_gemm_rs_run"

    def __init__(self, workspace: Workspace, rows: Sequence[int], k: int, n: int,
                 dtype: str = "bfloat16", tuning: Optional[Tuning] = None,
                 b_is_k_by_n: bool = False) -> None:
        _check_rows(workspace, rows, "rows")
        self.rows: tuple[int, ...] = tuple(rows)
        self.k = k
        self.n = n
        self.dtype: str = str(dtype)
        self.b_is_k_by_n: bool = bool(b_is_k_by_n)
        super().__init__(workspace, self._shape_of(rows, k, n, dtype, tuning, b_is_k_by_n))

    @staticmethod
    def _shape_of(rows: Sequence[int], k: int, n: Union[int, Sequence[int]], dtype: str,
                  tuning: Optional[Tuning], b_is_k_by_n: bool) -> Any:
        shape = _shape(_abi.ceov_gemm_rs, dtype, tuning)
        shape.rows = _numbers(rows, "rows")
        shape.k = k
        shape.n = n
        shape.b_is_k_by_n = bool(b_is_k_by_n)
        return shape

    @classmethod
    def scratch_bytes(cls, rows: Sequence[int], k: int, n: int, dtype: str = "bfloat16",
                      tuning: Optional[Tuning] = None, b_is_k_by_n: bool = False) -> int:
        """Returns how much scratch memory its workspace needs."""
        return _scratch_bytes("ceov_gemm_rs_scratch_bytes",
                              cls._shape_of(rows, k, n, dtype, tuning, b_is_k_by_n),
                              len(rows))

    def run(self, a: Array, b: Array, c: Array = None,
            stream: Optional[StreamLike] = None) -> Array:
        """a: sum(rows) x k; b: n x k, or k x n where b_is_k_by_n; c: rows[rank] x n, new
        where None (host ranks). Returns c."""
        own = self.rows[self._rank]
        c = self._result(c, a, own, self.n)
        held = (self._operand(a, "a", sum(self.rows), self.k),
                self._operand(b, "b", *_b_shape(self, self.n)),
                self._operand(c, "c", own, self.n, is_result=True))
        run = _abi.new(_abi.ceov_gemm_rs_run)
        run.a, run.b, run.c = (memory.address for memory in held)
        self._start(run, stream)
        return c


class _Reduce(_Op):
    """Operators that only sum. dtype may be "float32", too: then only the additions, and a
    scale, round. by_node, for groups of several nodes: a node's ranks first add up what they
    have for a rank of another one, and send one sum, which is rounded to dtype; the same at all
    ranks."""

    _run_call = "ceov_reduce_run"
    _scratch_call = ""
    stride = 0
    scale: float = 1.0

    def __init__(self, workspace: Workspace, counts: Sequence[int], dtype: str = "bfloat16",
                 tuning: Optional[Tuning] = None, by_node: bool = False) -> None:
        _check_rows(workspace, counts, "counts")
        self.counts: tuple[int, ...] = tuple(counts)
        self.dtype: str = str(dtype)
        super().__init__(workspace, self._shape_of(counts, dtype, tuning, by_node, self.stride,
                                                   self.scale))

    @staticmethod
    def _shape_of(counts: Sequence[int], dtype: str, tuning: Optional[Tuning],
                  by_node: bool = False, stride: int = 0, scale: float = 1.0) -> Any:
        shape = _shape(_abi.ceov_reduce, dtype, tuning)
        shape.counts = _numbers(counts, "counts")
        shape.stride = stride
        if stride and (stride % 8 or stride < max(counts)):
            raise errors.InvalidError(f"stride: {stride}, must be 0, or a multiple of 8 and no "
                                      f"less than the largest count, {max(counts)}")
        if not is_scale(scale):
            raise errors.InvalidError(f"scale: {scale}, must be finite, and not 0, in fp32")
        shape.scale = scale
        shape.by_node = bool(by_node)
        return shape

    @property
    def _n_source(self) -> int:
        """Number of elements of source, from the first part's begin to the last one's end."""
        if not self.stride:
            return sum(self.counts)
        return max(r * self.stride + count for r, count in enumerate(self.counts) if count)

    def _run(self, source: Array, target: Array, n_target: int,
             stream: Optional[StreamLike]) -> Array:
        target = self._result(target, source, n_target)
        held = (self._operand(source, "source", self._n_source, may_go_on=self.stride > 0),
                self._operand(target, "target", n_target, is_result=True))
        run = _abi.new(_abi.ceov_reduce_run)
        run.source, run.target = (memory.address for memory in held)
        self._start(run, stream)
        return target


class ReduceScatter(_Reduce):
    """The sum over ranks of their sources; each rank gets its own part.

    counts  elements of each rank's part, multiples of 8, rank 0's first
    stride  elements of source from the begin of one part to the next one's: a multiple of 8,
            no less than any count, each rank's own affair; 0: no gaps. So columns of a matrix
            are summed, and its other columns by further runs, all with the scratch of one
    scale   what the sums are multiplied by, in fp32, before they are rounded to dtype; finite
            and not 0, each rank's own affair
    """

    _create_call = "ceov_reduce_scatter_create"
    _scratch_call = "ceov_reduce_scatter_scratch_bytes"

    def __init__(self, workspace: Workspace, counts: Sequence[int], dtype: str = "bfloat16",
                 tuning: Optional[Tuning] = None, stride: int = 0, scale: float = 1.0,
                 by_node: bool = False) -> None:
        self.stride = stride
        self.scale = scale
        super().__init__(workspace, counts, dtype, tuning, by_node)

    @classmethod
    def scratch_bytes(cls, counts: Sequence[int], dtype: str = "bfloat16",
                      tuning: Optional[Tuning] = None, stride: int = 0, scale: float = 1.0,
                      by_node: bool = False) -> int:
        """Returns how much scratch memory its workspace needs, with any stride and scale."""
        shape = cls._shape_of(counts, dtype, tuning, by_node, stride, scale)
        return _scratch_bytes(cls._scratch_call, shape, len(counts))

    def run(self, source: Array, target: Array = None,
            stream: Optional[StreamLike] = None) -> Array:
        """source has sum(counts) elements; with a stride it is memory from the first part to
        the end of the last one or farther. target has counts[rank] elements, of any shape, not
        in source or its gaps; None: a new array (host ranks). Returns target."""
        return self._run(source, target, self.counts[self._rank], stream)


class AllReduce(_Reduce):
    """The sum over ranks of their sources, at all ranks.

    counts  elements of the part that each rank sums, multiples of 8
    """

    _create_call = "ceov_all_reduce_create"
    _scratch_call = "ceov_all_reduce_scratch_bytes"

    @classmethod
    def scratch_bytes(cls, counts: Sequence[int], dtype: str = "bfloat16",
                      tuning: Optional[Tuning] = None, by_node: bool = False) -> int:
        """Returns how much scratch memory its workspace needs."""
        return _scratch_bytes(cls._scratch_call, cls._shape_of(counts, dtype, tuning, by_node),
                              len(counts))

    def run(self, source: Array, target: Array = None,
            stream: Optional[StreamLike] = None) -> Array:
        """source and target have sum(counts) elements, of any shape. target is not source;
        None: a new array (host ranks). Returns target."""
        return self._run(source, target, sum(self.counts), stream)


class _Move(_Op):
    """Operators that only move bytes of any dtype, in the order of a stream, and captured if
    the workspace is capturable. Their memory need not be registered. The classes of the same
    names in ceoverlap.collective, which the package exports, are plans instead: they move
    straight between buffers that they own, and count their launches."""

    _run_call = "ceov_move_run"
    _scratch_call = ""

    def __init__(self, workspace: Workspace, n_bytes: Sequence[int],
                 tuning: Optional[Tuning] = None) -> None:
        self._check_bytes(n_bytes, workspace.context.n_ranks)
        self.n_bytes: tuple[int, ...] = tuple(n_bytes)
        super().__init__(workspace, self._shape_of(n_bytes, tuning))

    @staticmethod
    def _shape_of(n_bytes: Sequence[int], tuning: Optional[Tuning]) -> Any:
        shape = _abi.new(_abi.ceov_move)
        shape.bytes = _numbers(n_bytes, "n_bytes")
        if tuning is not None:
            shape.tuning = ctypes.pointer(tuning._struct())
        return shape

    @staticmethod
    def _n_ranks(n_bytes: Sequence[int]) -> int:
        raise NotImplementedError

    @classmethod
    def _check_bytes(cls, n_bytes: Sequence[int], n_ranks: int) -> None:
        if cls._n_ranks(n_bytes) != n_ranks:
            raise errors.InvalidError(f"n_bytes: {len(n_bytes)} numbers for {n_ranks} ranks")

    @classmethod
    def scratch_bytes(cls, n_bytes: Sequence[int], tuning: Optional[Tuning] = None) -> int:
        """Returns how much scratch memory its workspace needs."""
        n_ranks = cls._n_ranks(n_bytes)
        cls._check_bytes(n_bytes, n_ranks)
        size = int(getattr(_abi.lib, cls._scratch_call)(
            ctypes.byref(cls._shape_of(n_bytes, tuning)), n_ranks))
        if not size:
            raise errors.InvalidError(f"{cls._scratch_call}: {tuple(n_bytes)}: bytes are "
                                      "multiples of 16 and not all 0")
        return size

    def _memory(self, obj: Array, name: str, size: int, is_result: bool = False) -> Memory:
        memory = memory_of(obj)
        if memory.size_bytes != size:
            raise errors.InvalidError(f"{name}: {memory.size_bytes} bytes, must be {size}")
        self._check_memory(memory, name, is_result)
        return memory

    def _run(self, source: Array, target: Array, sizes: Tuple[int, int],
             stream: Optional[StreamLike]) -> Array:
        """Runs the operator. sizes: the bytes that source and target must have."""
        held = [self._memory(source, "source", sizes[0])]
        if target is None:
            target = self._result(None, source, sizes[1] // _item_bytes(source))
        held.append(self._memory(target, "target", sizes[1], is_result=True))
        run = _abi.new(_abi.ceov_move_run)
        run.source, run.target = (memory.address for memory in held)
        self._start(run, stream)
        return target


def _item_bytes(array: Array) -> int:
    import numpy

    return numpy.asarray(array).dtype.itemsize


class AllGather(_Move):
    """Every rank gets the shards of all.

    n_bytes  of each rank's shard: n_ranks multiples of 16, 0 is allowed
    tuning   n_pieces, or mode "direct" with n_reduce_blocks; nothing else means something
    """

    _create_call = "ceov_all_gather_create"
    _scratch_call = "ceov_all_gather_scratch_bytes"

    @staticmethod
    def _n_ranks(n_bytes: Sequence[int]) -> int:
        return _n_of(n_bytes, "n_bytes")

    def run(self, source: Array, target: Array = None,
            stream: Optional[StreamLike] = None) -> Array:
        """source: n_bytes[rank] bytes, which may be the own place in target; target:
        sum(n_bytes), in the order of ranks, new where None (host ranks, of the source's
        dtype). Returns target."""
        sizes = (self.n_bytes[self._rank], sum(self.n_bytes))
        return self._run(source, target, sizes, stream)


class AllToAll(_Move):
    """Every rank has a block for each.

    n_bytes  of the block from rank r to rank t at [r * n_ranks + t]: n_ranks * n_ranks
             multiples of 16, 0 is allowed; the same numbers at all ranks
    tuning   n_pieces, or mode "direct" with n_reduce_blocks; nothing else means something
    """

    _create_call = "ceov_all_to_all_create"
    _scratch_call = "ceov_all_to_all_scratch_bytes"

    @staticmethod
    def _n_ranks(n_bytes: Sequence[int]) -> int:
        n = math.isqrt(_n_of(n_bytes, "n_bytes"))
        if n * n != len(n_bytes):
            raise errors.InvalidError(f"n_bytes: {len(n_bytes)} numbers, must be a square")
        return n

    def run(self, source: Array, target: Array = None,
            stream: Optional[StreamLike] = None) -> Array:
        """source: the blocks for all ranks in their order; target: the blocks from all ranks
        in their order, new where None (host ranks, of the source's dtype). The two do not
        overlap. Returns target."""
        n = self._context.n_ranks
        sizes = (sum(self.n_bytes[self._rank * n:(self._rank + 1) * n]),
                 sum(self.n_bytes[self._rank::n]))
        return self._run(source, target, sizes, stream)
