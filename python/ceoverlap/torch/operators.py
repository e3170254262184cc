# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The operators of a group: made at the first use of each shape, then only run."""

from __future__ import annotations

import collections
import ctypes
import os
import struct
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple, Type

import torch
import torch.distributed as dist

from .. import _abi, _lasting, errors, ops
from . import _channel, _compat
from ._channel import plain
from ._seen import name_of_kind, shown
from .group import Group

OPERATORS_MAX = 512                     # of a group; the least recently used one goes
SCRATCH_STEP_BYTES = 16 << 20           # workspaces grow by this
DTYPES = {torch.bfloat16: "bfloat16", torch.float16: "float16", torch.float32: "float32"}
ALIGN_BYTES = 16                        # of operands and results
ELEMENT_STEP = 8                        # what k, n and counts are multiples of

# What a rank calls: a name; a tensor; the numbers of rows of all ranks, or None if all have as many
# as the tensor; and further tensors and values. All but the tensor's own number of rows, where
# those of all ranks are given, has to be the same at all ranks.
Call = Tuple[Any, ...]

# Of an operator: its class in ceoverlap.ops, and the arguments behind the workspace.
Key = Tuple[Any, Tuple[Any, ...]]

# What a reduce-scatter takes of scratch, twice, the same at all ranks: a larger one goes
# column by column in several runs. But not in more than these: each costs the calling thread
# 10 to 20 us, and the GPU a start and an end without copies.
SUM_SCRATCH_BYTES = 64 << 20
SUM_RUNS_MAX = 4


class Operators:
    """The operators that a group has made so far, as ``group.operators``. On one host they can be
    captured into CUDA graphs, but for those of experts: the calling thread queues their copies
    before the kernels that wait for them. If the engine launched the copies, sums and FSDP2's
    pulls side by side were seen to block each other. A repeated run is queued as one graph.

    tunes     whether operators made from now on are tuned for their shape (ceov_op_tune); the
              same at all ranks. It takes seconds at the first time, and the result is stored on
              this machine. Operators made during a capture only use stored results
    known     a table in which callers keep what they derived from shapes, by keys of their own
    waits     on GPUs, for experts' operators, and for all where there are several hosts: whether
              each run's call returns only when the run has ended. Their copies are made while the
              GPU waits for them, and CUDA lets no thread make a copy while another one loads a
              kernel at its first launch, so a thread that ran ahead would stand still until the
              deadline. True unless CUDA_MODULE_LOADING is EAGER; with False nobody may call
              cudaFree meanwhile, as torch.cuda.empty_cache() does
    compares  whether ranks compare each call and each run's operator on the host, not only the
              first one of a shape, and whether numbers of experts are checked: slow, to find where
              ranks call something different. The same at all ranks; set by
              TORCH_DISTRIBUTED_DEBUG=DETAIL, with which PyTorch compares its own calls"""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._workspaces: Dict[bool, List[Tuple[int, ops.Workspace]]] = {False: [], True: []}
        self._leader: Optional[ops.Workspace] = None    # the first one; all others follow it
        self._made: collections.OrderedDict[Key, Any] = collections.OrderedDict()
        self._captured: Set[Key] = set()
        self._n_names = 0
        self.known: Dict[Any, Any] = {}
        self.tunes = False
        self.waits: bool = (group.is_gpu and
                            os.environ.get("CUDA_MODULE_LOADING", "").upper() != "EAGER")
        self.compares: bool = dist.get_debug_level() == dist.DebugLevel.DETAIL

    def get(self, kind: type, *shape: Any) -> Any:
        """Returns the operator of a class of ceoverlap.ops and of a shape, which is the class'
        arguments behind the workspace. At first use all ranks make it together, also during a
        capture."""
        return self.find((kind, shape))

    def compare(self, call: Call) -> None:
        """Raises an error at all ranks if their calls differ, where `compares` says that calls are
        compared. It comes before a call's other checks, which one rank alone may fail."""
        if self.compares:
            self._group.agree("call", _text(call))

    def compare_numbers(self, what: str, numbers: torch.Tensor, least: int, limit: int) -> None:
        """Raises an error at all ranks if one of them has a number below least, or not below limit,
        or has come with something else than `what`, where `compares` says that calls are compared.
        It waits for the GPU, so it looks at nothing while a CUDA graph is captured."""
        if not self.compares or self._group.is_capturing():
            return
        self._group.agree("call", what)
        numbers = numbers.long()
        wrong = numbers[(numbers < least) | (numbers >= limit)]
        told = self._group.exchange(str(int(wrong[0])) if len(wrong) else "")
        refused = [f"rank {rank} names {one}" for rank, one in enumerate(told) if one]
        if refused:
            raise errors.InvalidError(f"{what}: {', '.join(refused)}: must be {least} to "
                                      f"{limit - 1}")

    def find(self, key: Key, call: Optional[Call] = None) -> Any:
        """Returns the operator of a key (kind, shape), as get() does. call: for which it is needed;
        ranks that make the operator compare it, too."""
        op = self._made.get(key)
        if self._group.is_capturing() and not self._can_capture(key[0]):
            raise errors.InvalidError(
                f"group {self._group.name}: {key[0].__name__}: a CUDA graph cannot hold "
                "transfers to other hosts, or of as many rows as experts get: run it outside "
                "the capture")
        if op is None or self.compares:
            needed = f"{key[0].__name__} {key[1]}"
            self._group.agree("operator", f"{needed} for {_text(call)}" if call else needed)
        if op is None:
            op = self._make(key)
        self._made.move_to_end(key)
        if self._group.is_capturing():
            self._captured.add(key)     # the graph holds its memory
        return op

    def _can_capture(self, kind: Any) -> bool:
        """Returns whether operators of this class can be captured into CUDA graphs."""
        return self._group.is_gpu and self._group.n_nodes == 1 and bool(kind.can_be_captured)

    def _make(self, key: Any) -> Any:
        kind, shape = key
        group = self._group
        workspace = self._workspace(kind.scratch_bytes(*shape), self._can_capture(kind))
        op = group.together(f"{kind.__name__} {shape}", lambda: self._create(
            workspace, kind, shape))    # nobody runs while others still allocate
        self._make_room()
        self._made[key] = op
        return op

    def _create(self, workspace: ops.Workspace, kind: type, shape: Any) -> Any:
        op = kind(workspace, *shape)
        if (self.tunes and self._group.is_gpu and hasattr(op, "tune") and
                not self._group.is_capturing()):
            with self._group.stream() as stream:
                op.tune(stream)
        return op

    def _make_room(self) -> None:
        """Closes the operator that was not used for longest, if there are too many. All ranks
        have made the same operators in the same order, so they close the same one."""
        if len(self._made) < OPERATORS_MAX:
            return
        for key in self._made:
            if key not in self._captured:
                self._made.pop(key).close()
                return

    def _workspace(self, n_bytes: int, capturable: bool) -> ops.Workspace:
        """Returns a workspace that is large enough, and capturable or not. A new one is at least
        half as large again as the largest so far, because slowly growing shapes would need ever
        more workspaces otherwise. Runs of all of them follow each other, so that it makes no
        difference to callers which shapes share one."""
        known = self._workspaces[capturable]
        for size, workspace in known:
            if size >= n_bytes:
                return workspace
        group = self._group
        if known:
            n_bytes = max(n_bytes, known[-1][0] * 3 // 2)
        size = round_up(max(n_bytes, 1), SCRATCH_STEP_BYTES)
        name = f"torch.{self._n_names}"  # a new one each time: peers may still hold the last
        self._n_names += 1
        what = f"workspace of {size} bytes"
        workspace = group.together(what, lambda: ops.Workspace(
            group.context, name, size, capturable=capturable, deadline_s=group.deadline_s,
            n_sms=group.n_sms, follows=self._leader))
        group.together(what, lambda: workspace.connect(group.deadline_s))
        self._leader = self._leader or workspace
        known.append((size, workspace))
        return workspace

    def remember(self, key: Any, value: Any) -> Any:
        """Keeps value in the table `known` and returns it."""
        if len(self.known) >= OPERATORS_MAX:
            self.known.clear()
        self.known[key] = value
        return value

    def check(self) -> None:
        """Raises the error that ended a run of one of the operators, or a call of the group's
        channel, if any. Never blocks."""
        channel = self._group.channel
        if channel is not None and channel.is_open:
            channel.check()
        for known in self._workspaces.values():
            for _, workspace in known:
                workspace.check()

    def close(self) -> None:
        """Releases all operators. Nothing may be in flight, and no graph of their runs may be
        replayed any more."""
        while self._made:
            self._made.popitem()[1].close()
        for known in self._workspaces.values():
            while known:
                workspace = known.pop()[1]
                if workspace is not self._leader:
                    workspace.close()
        if self._leader is not None:
            self._leader.close()
            self._leader = None


def _text(call: Call) -> str:
    """Returns the text of a call by which ranks compare it."""
    name, x, rows, *others = call
    arguments = [_type_of(x.dtype, x.shape)]
    if rows is not None:
        arguments = [f"rows {list(rows)} of " + _type_of(x.dtype, x.shape[1:])]
    arguments += [_type_of(one.dtype, one.shape) if isinstance(one, torch.Tensor) else str(one)
                  for one in others]
    return f"{name}({', '.join(arguments)})"


def _type_of(dtype: torch.dtype, shape: torch.Size) -> str:
    return f"{str(dtype).replace('torch.', '')} {list(shape)}"


def round_up(n: int, step: int) -> int:
    """Returns the least multiple of step that is not below n."""
    return -(-n // step) * step


def operand(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor, or a copy of it if it has gaps or is not aligned as operators need
    it."""
    tensor = plain(tensor)
    return tensor if tensor.data_ptr() % ALIGN_BYTES == 0 else tensor.clone()


class RunCall:
    """A call of one of the library's ceov_*_run() functions. Its struct of pointers is written
    by one struct.pack(): assigned one by one, the fields would take longer than the call."""

    def __init__(self, name: str, struct_type: Type[ctypes.Structure]) -> None:
        n_bytes = ctypes.sizeof(struct_type)
        self.name = name
        self._n_bytes = n_bytes
        self._pack = struct.Struct(f"={n_bytes // 8}Q").pack
        self._call = _abi.lib[name]     # not the attribute: argument types of its own
        self._call.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        self._call.restype = ctypes.c_int

    def __call__(self, group: Group, op: Any, x: torch.Tensor, *pointers: int) -> None:
        """Runs the operator. x is what this rank gives, for profilers; the further arguments are
        the pointers and numbers behind the struct's field `stream`, in the struct's order."""
        if not _compat.is_profiling():
            self._run(group, op, pointers)
            return
        kind: Any = type(op)
        with shown(name_of_kind(kind), group, x, op.chosen().mode):
            self._run(group, op, pointers)

    def _run(self, group: Group, op: Any, pointers: Sequence[int]) -> None:
        handle = op._open_handle()
        if group.is_gpu and not op._workspace.capturable:   # not on the default stream
            with group.stream() as stream:
                result = self._call(handle, self._pack(self._n_bytes, stream, *pointers))
                if group.operators.waits and not result:
                    torch.cuda.ExternalStream(stream, group.device).synchronize()
                    op._workspace.check()
        elif group.is_gpu:
            result = self._call(handle, self._pack(self._n_bytes, group.run_stream(), *pointers))
        else:                           # it lasts until the run is done
            run = self._pack(self._n_bytes, 0, *pointers)
            result = _lasting.call(lambda: self._call(handle, run), op._workspace._stop)
        if result:
            context = group.context
            raise context._exception(self.name, result, [], context.last_failure())


_ag_gemm = RunCall("ceov_ag_gemm_run", _abi.ceov_ag_gemm_run)
_gemm_rs = RunCall("ceov_gemm_rs_run", _abi.ceov_gemm_rs_run)
_reduce = RunCall("ceov_reduce_run", _abi.ceov_reduce_run)
_move = RunCall("ceov_move_run", _abi.ceov_move_run)
_NONE = [0] * _abi.CEOV_OP_GEMMS_MAX


def all_gather_gemm(x: torch.Tensor, weights: Sequence[torch.Tensor], rows: Sequence[int],
                    is_k_by_n: bool) -> Key:
    """Returns the key of the operator that run_all_gather_gemm() needs; see Operators.find()."""
    n = tuple(columns_of(weight, is_k_by_n) for weight in weights)
    return ops.AllGatherGemm, (tuple(rows), x.shape[1], n, DTYPES[x.dtype], None, is_k_by_n)


def gemm_reduce_scatter(x: torch.Tensor, weight: torch.Tensor, rows: Sequence[int],
                        is_k_by_n: bool) -> Key:
    """Returns the key of the operator that run_gemm_reduce_scatter() needs; see
    Operators.find()."""
    n = columns_of(weight, is_k_by_n)
    return ops.GemmReduceScatter, (tuple(rows), x.shape[1], n, DTYPES[x.dtype], None,
                                   is_k_by_n)


def columns_of(weight: torch.Tensor, is_k_by_n: bool) -> int:
    """Returns n of a weight, which is k x n if is_k_by_n, else n x k."""
    return weight.shape[1 if is_k_by_n else 0]


def run_all_gather_gemm(group: Group, key: Key, x: torch.Tensor,
                        weights: Sequence[torch.Tensor], gathered: Optional[torch.Tensor],
                        results: Sequence[torch.Tensor]) -> None:
    """Sets results[i] to the x of all ranks (sum(rows) x k) times weights[i], which is k x n,
    or n x k and then transposed. gathered, if not None, receives the x of all ranks."""
    unused = _NONE[len(weights):]
    _ag_gemm(group, group.operators.find(key), x, x.data_ptr(),
             *[weight.data_ptr() for weight in weights], *unused,
             *[result.data_ptr() for result in results], *unused,
             0 if gathered is None else gathered.data_ptr())


def run_gemm_reduce_scatter(group: Group, key: Key, x: torch.Tensor,
                            weight: torch.Tensor, result: torch.Tensor) -> None:
    """Sets result to this rank's rows of the sum over ranks of x (sum(rows) x k) times weight,
    which is k x n, or n x k and then transposed."""
    _gemm_rs(group, group.operators.find(key), x, x.data_ptr(), weight.data_ptr(),
             result.data_ptr())


def sum_shape(counts: Sequence[int], dtype: torch.dtype, stride: int = 0,
              scale: float = 1.0) -> Tuple[Any, ...]:
    """Returns the shape of an ops.AllReduce or ops.ReduceScatter; only the latter has a stride
    and a scale. counts are numbers of elements, multiples of 8, as is the stride."""
    shape = (tuple(counts), DTYPES[dtype])
    return shape if not stride and scale == 1 else shape + (None, stride, scale)


def run_reduce(group: Group, kind: type, source: torch.Tensor, target: torch.Tensor,
               shape: Tuple[Any, ...], call: Optional[Call] = None) -> None:
    """Runs a sum of this shape, as sum_shape() returns it. kind: ops.ReduceScatter or
    ops.AllReduce; call: as in Operators.find()."""
    op = group.operators.find((kind, shape), call)
    _reduce(group, op, source, source.data_ptr(), target.data_ptr())


def sum_length(longest: int, size: int, item_bytes: int) -> int:
    """Returns how many elements of each of `size` parts one run of a reduce-scatter sums, if
    the longest part has `longest`. It is a multiple of 8: the whole part, or less, so that runs
    go through the part in equal steps, of which the last one may be shorter."""
    most = max(SUM_SCRATCH_BYTES // (size * item_bytes * ELEMENT_STEP), 1) * ELEMENT_STEP
    n_runs = min(-(-longest // most), SUM_RUNS_MAX)
    return round_up(-(-longest // max(n_runs, 1)), ELEMENT_STEP)


def reduce_scatter_into(group: Group, source: torch.Tensor, counts: Sequence[int],
                        target: torch.Tensor, scale: float = 1.0,
                        call: Optional[Call] = None) -> None:
    """Sets target (contiguous) to this rank's part of the sum over ranks of source, times scale
    (see ops.is_scale(); the same at all ranks). Counts and alignment may be any. A source with gaps
    is copied. A channel makes sums and means; what operators do not accept as it is goes through
    copies of pieces that are not larger than a run's scratch memory. call: as in
    Operators.find()."""
    source = plain(source)
    reduction = _channel.reduction_of(group, scale)
    if reduction is not None:
        _channel.reduce_scatter(group, source, counts, target, reduction)
        return
    longest, size = max(counts), group.size
    length = sum_length(longest, size, source.itemsize)
    is_plain = not any(count % ELEMENT_STEP for count in counts)
    source, target = source.view(-1), target.view(-1)
    if is_plain and length >= longest:
        _sum_into(group, operand(source), target,
                  sum_shape(counts, source.dtype, scale=scale), call)
        return
    is_plain = (is_plain and len(set(counts)) == 1 and
                source.data_ptr() % ALIGN_BYTES == 0)
    for at in range(0, longest, length):
        n = min(length, longest - at)
        if is_plain:
            _sum_into(group, source[at:], target[at:at + n],
                      sum_shape([n] * size, source.dtype, longest, scale), call)
        else:
            padded = _padded(source, counts, at, n)
            _sum_into(group, padded, target[at:at + n],
                      sum_shape([padded.shape[1]] * size, source.dtype, scale=scale), call)


def _sum_into(group: Group, source: torch.Tensor, target: torch.Tensor, shape: Tuple[Any, ...],
              call: Optional[Call]) -> None:
    """Makes one run of a sum. target receives as many of the first elements of this rank's part
    as it has room for."""
    n, n_own, whole = target.numel(), shape[0][group.rank], target
    if n_own != n or operand(target) is not target:
        whole = target.new_empty(n_own)
    run_reduce(group, ops.ReduceScatter, source, whole, shape, call)
    if whole is not target:
        target.copy_(whole[:n])


def _padded(source: torch.Tensor, counts: Sequence[int], at: int, n: int) -> torch.Tensor:
    """Returns a matrix with a row for each part: up to n of its elements from `at` on, then
    zeros up to a multiple of 8. source has one dimension."""
    padded = source.new_zeros((len(counts), round_up(n, ELEMENT_STEP)))
    if len(set(counts)) == 1:
        padded[:, :n] = source.view(len(counts), counts[0])[:, at:at + n]
        return padded
    for row, part in zip(padded, source.split(list(counts))):
        part = part[at:at + n]
        row[:len(part)] = part
    return padded


def run_move(group: Group, kind: type, source: torch.Tensor, n_bytes: Sequence[int],
             target: torch.Tensor, call: Optional[Call] = None) -> None:
    """Makes a collective that only moves, by the group's channel if it has one. kind: ops.AllGather
    or ops.AllToAll; n_bytes as these classes take them, multiples of 16; call: as in
    Operators.find()."""
    if group.channel is not None:
        elements = [n // source.element_size() for n in n_bytes]
        if kind is ops.AllGather:
            _channel.all_gather(group, source, elements, target)
        else:
            own, size = group.rank, group.size
            _channel.all_to_all(group, source, elements[own * size:(own + 1) * size],
                                elements[own::size], target)
        return
    op = group.operators.find((kind, (tuple(n_bytes),)), call)
    _move(group, op, source, source.data_ptr(), target.data_ptr())
