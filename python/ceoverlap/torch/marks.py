# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Products behind whose groups of rows any communication begins, that of torch.distributed
for one: ceoverlap.GemmMarks on tensors."""

from __future__ import annotations

import collections
from typing import Any, Callable, Optional, Set, Tuple

import torch

from .. import _abi, errors
from ..ops import Tuning, Workspace
from ..ops_marks import GemmMarks
from ._products import _check_products, is_fit, multiply
from .functional import group_of
from .group import Group, GroupLike
from .operators import DTYPES, OPERATORS_MAX, operand

OnGroup = Callable[[int, torch.Tensor], object]


class Marks:
    """The GEMMs with marks that a group's rank has made so far. Ranks need not make the same ones,
    but the first use makes a workspace, for which all ranks meet. Its kernels take tiles as they
    get SMs, because those of the communication hold some."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._made: collections.OrderedDict[Tuple[Any, ...], GemmMarks] = collections.OrderedDict()
        self._captured: Set[Tuple[Any, ...]] = set()
        what = "workspace for products with marks"
        self._workspace = group.together(what, lambda: Workspace(
            group.context, "torch.marks", GemmMarks.scratch_bytes(8, 8, 8, group.size),
            capturable=group.is_gpu and group.n_nodes == 1, deadline_s=group.deadline_s,
            shares_sms=True, n_sms=group.n_sms))
        group.together(what, lambda: self._workspace.connect(group.deadline_s))
        self.side: Optional[torch.cuda.Stream] = None
        if group.is_gpu:
            self.side = torch.cuda.Stream(group.device)

    def find(self, *shape: Any) -> GemmMarks:
        """Returns the operator of a shape, which is GemmMarks' arguments behind the workspace."""
        op = self._made.get(shape)
        if op is None:
            op = GemmMarks(self._workspace, *shape)
            self._make_room()
            self._made[shape] = op
        self._made.move_to_end(shape)
        if self._group.is_capturing():
            self._captured.add(shape)   # the graph uses its memory
        return op

    def _make_room(self) -> None:
        if len(self._made) < OPERATORS_MAX:
            return
        for shape in self._made:
            if shape not in self._captured:
                self._made.pop(shape).close()
                return

    def close(self) -> None:
        """Releases all operators. Nothing may be in flight, and no graph of their runs may be
        replayed any more."""
        while self._made:
            self._made.popitem()[1].close()
        self._workspace.close()


def _start(op: GemmMarks, x: torch.Tensor, weight: torch.Tensor, result: torch.Tensor,
           stream: Optional[int]) -> None:
    run = _abi.new(_abi.ceov_gemm_marks_run)
    run.a, run.b, run.c = x.data_ptr(), weight.data_ptr(), result.data_ptr()
    op._start(run, stream)


def _tell_on_host(op: GemmMarks, result: torch.Tensor, on_group: OnGroup) -> None:
    for i, (first, n_rows) in enumerate(op.groups):
        op.wait(i)
        on_group(i, result[first:first + n_rows])


def _tell_beside(op: GemmMarks, result: torch.Tensor, on_group: OnGroup,
                 side: torch.cuda.Stream) -> None:
    with torch.cuda.stream(side):
        for i, (first, n_rows) in enumerate(op.groups):
            op.wait(i, side)
            on_group(i, result[first:first + n_rows])


def _multiply_on_gpu(marks: Marks, at: Group, op: GemmMarks,
                     operands: Tuple[torch.Tensor, torch.Tensor, torch.Tensor],
                     on_group: OnGroup) -> None:
    """The current stream goes on behind both the product and what on_group queued, also if that
    raises an error: else the memory of the result might be used again before they have ended."""
    result = operands[2]
    assert marks.side is not None
    current = torch.cuda.current_stream(at.device)
    try:
        with at.stream() as stream:     # beside the default stream, which raises no marks
            _start(op, *operands, stream)
            _tell_beside(op, result, on_group, marks.side)
    finally:
        current.wait_stream(marks.side)


def _multiply_whole(marks: Marks, at: Group, x: torch.Tensor, weight: torch.Tensor,
                    on_group: OnGroup) -> torch.Tensor:
    """What the operator does not accept is one group: PyTorch's product."""
    result = multiply(x, weight, False)
    if marks.side is None:
        on_group(0, result)
        return result
    current = torch.cuda.current_stream(at.device)
    marks.side.wait_stream(current)
    try:
        with torch.cuda.stream(marks.side):
            on_group(0, result)
    finally:
        current.wait_stream(marks.side)
    return result


def gemm_with_marks(x: torch.Tensor, weight: torch.Tensor, on_group: OnGroup,
                    group: GroupLike = None, n_groups: int = 0) -> torch.Tensor:
    """Returns x (m x k) times the transposed weight (n x k), computed in groups of rows. For each
    group, in order, on_group(i, rows) is called, where rows is the group's part of the result, a
    view. What it queues on the current stream begins when these rows are stored, while further
    ones are still computed; it may change them:

        y = ct.gemm_with_marks(x, w, lambda i, rows: dist.all_reduce(rows))

    On GPUs on_group is called at once, with a side stream as the current one, and the caller's
    stream goes on behind all of that. Tensors that on_group makes belong to the side stream (see
    Tensor.record_stream). On the CPU each call comes when its rows are stored.

    n_groups  how many groups, at most 32; 0: the library chooses. Few rows make fewer

    The result is only this rank's: ranks may differ in all arguments, but all meet at the first
    call for a group. May be captured into a CUDA graph, on one host. Without gradients: call it
    under torch.no_grad(), or in an autograd.Function."""
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        raise errors.InvalidError("gemm_with_marks: has no gradient: call it under "
                                  "torch.no_grad(), or in an autograd.Function of your own")
    at = group_of(group)
    _check_products(x, [weight], False, "gemm_with_marks")
    if x.device != at.device:
        raise errors.InvalidError(f"gemm_with_marks: x is on {x.device}, the group's rank on "
                                  f"{at.device}")
    marks = at.part(Marks)
    if not x.shape[0] or not is_fit(x, [weight], False):
        return _multiply_whole(marks, at, x, weight, on_group)
    tuning = Tuning(n_pieces=n_groups)
    op = marks.find(x.shape[0], x.shape[1], weight.shape[0], DTYPES[x.dtype], tuning)
    x, weight = operand(x), operand(weight)
    result = x.new_empty((x.shape[0], weight.shape[0]))
    if at.is_gpu:
        _multiply_on_gpu(marks, at, op, (x, weight, result), on_group)
    else:
        _start(op, x, weight, result, None)
        _tell_on_host(op, result, on_group)
    return result
