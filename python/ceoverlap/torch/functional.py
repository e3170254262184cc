# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Collectives and operators on tensors, as ``torch.ops.ceoverlap.*``: on the caller's current
stream, with gradients, for torch.compile and CUDA graphs.

Rows    the first dimension is shared out to ranks in order; the others are the same at all
        ranks. ``rows`` has each rank's share, None: equal shares. 0 is allowed.
Group   a ceoverlap.torch.Group, its name, or a torch.distributed process group; None: the
        default one. All ranks of it make the same calls in the same order. The first call
        of a shape blocks on the host until all ranks have come, but for moves and sums of a
        group that has a channel, which go by it.
Streams the result is there for what the current stream gets next, and the arguments may be
        changed or freed by it: no Tensor.record_stream() is needed for that stream.
Graphs  all ranks capture and replay alike.
dtypes  products: bfloat16 and float16 on copy engines; others are gathered, multiplied and
        summed one after another. Sums: bfloat16, float16, float32. Moves: any.
"""

from __future__ import annotations

import functools
import operator
from typing import Any, Callable, List, Optional, Sequence, Tuple, TypeVar, cast

import torch

from . import _moves, _products
from ._compat import is_watched
from .group import Group, GroupLike, named
from .operators import columns_of

# The k of a product that takes as long as its sum's exchange: n columns of a row are 2 n k
# operations, at 750 TFLOP/s, and 2 n bytes to peers, at 370 GB/s (H200, docs/results).
EVEN_K = 2000

_library = torch.library.Library("ceoverlap", "DEF")
_library.define("all_gather(Tensor x, int[]? rows, str group) -> Tensor")
_library.define("all_to_all(Tensor x, int[]? splits, str group) -> Tensor")
_library.define("reduce_scatter(Tensor x, int[]? rows, str group) -> Tensor")
_library.define("all_reduce(Tensor x, str group) -> Tensor")
_library.define("all_gather_matmul(Tensor x, Tensor[] weights, int[]? rows, "
                "bool keeps_gathered, bool is_k_by_n, str group) -> (Tensor, Tensor[])")
_library.define("matmul_reduce_scatter(Tensor x, Tensor weight, int[]? rows, "
                "bool is_k_by_n, str group) -> Tensor")


_Function = TypeVar("_Function", bound=Callable[..., Any])


def uncompiled(function: _Function) -> _Function:
    """For functions that torch.compile leaves alone: torch.compiler.disable, which forgets their
    types."""
    return cast(_Function, torch.compiler.disable(function))


# --- shapes for torch.compile ------------------------------------------------------------


def _fake_all_gather(x: torch.Tensor, rows: Any, group: str) -> Any:
    n = x.shape[0] * named(group).size if rows is None else sum(rows)
    return x.new_empty((n, *x.shape[1:]))


def _fake_all_to_all(x: torch.Tensor, splits: Any, group: str) -> Any:
    at = named(group)
    if splits is None:
        return x.new_empty(x.shape)
    return x.new_empty((sum(splits[at.rank::at.size]), *x.shape[1:]))


def _fake_reduce_scatter(x: torch.Tensor, rows: Any, group: str) -> Any:
    at = named(group)
    n = x.shape[0] // at.size if rows is None else rows[at.rank]
    return x.new_empty((n, *x.shape[1:]))


def _fake_all_reduce(x: torch.Tensor, group: str) -> Any:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _fake_all_gather_matmul(x: torch.Tensor, weights: Any, rows: Any, keeps_gathered: bool,
                            is_k_by_n: bool, group: str) -> Any:
    n = x.shape[0] * named(group).size if rows is None else sum(rows)
    is_kept = keeps_gathered or not _products.is_fit(x, weights, is_k_by_n)
    return (x.new_empty((n if is_kept else 0, x.shape[1])),
            [x.new_empty((n, columns_of(weight, is_k_by_n))) for weight in weights])


def _fake_matmul_reduce_scatter(x: torch.Tensor, weight: Any, rows: Any, is_k_by_n: bool,
                                group: str) -> Any:
    at = named(group)
    n = x.shape[0] // at.size if rows is None else rows[at.rank]
    return x.new_empty((n, columns_of(weight, is_k_by_n)))


# --- gradients ----------------------------------------------------------------------------
# Moves and sums are each other's: all-gather and reduce-scatter, all-to-all and itself the
# other way round; all-reduce is its own, as in torch.distributed.nn.


def _keep_rows(ctx: Any, inputs: Any, output: Any) -> None:
    _, ctx.rows, ctx.group = inputs


def _back_all_gather(ctx: Any, grad: Any) -> Any:
    return reduce_scatter(grad, ctx.group, ctx.rows), None, None


def _back_reduce_scatter(ctx: Any, grad: Any) -> Any:
    return all_gather(grad, ctx.group, ctx.rows), None, None


def _keep_splits(ctx: Any, inputs: Any, output: Any) -> None:
    _, ctx.splits, ctx.group = inputs


def _back_all_to_all(ctx: Any, grad: Any) -> Any:
    splits = ctx.splits
    if splits is not None:
        n = group_of(ctx.group).size
        splits = [splits[r::n] for r in range(n)]
    return all_to_all(grad, ctx.group, splits), None, None


def _keep_group(ctx: Any, inputs: Any, output: Any) -> None:
    _, ctx.group = inputs


def _back_all_reduce(ctx: Any, grad: Any) -> Any:
    return all_reduce(grad, ctx.group), None


def _keep_all_gather_matmul(ctx: Any, inputs: Any, output: Any) -> None:
    _, weights, ctx.rows, _, ctx.is_k_by_n, ctx.group = inputs
    ctx.wants_weights = [weight.requires_grad for weight in weights]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*weights, output[0])


def _back_all_gather_matmul(ctx: Any, grad_gathered: Any, grads: Any) -> Any:
    grad_x, grad_weights = _grads_of_all_gather_matmul(ctx, grad_gathered, grads)
    return grad_x, grad_weights, None, None, None, None


def _grads_of_all_gather_matmul(ctx: Any, grad_gathered: Any, grads: Any) -> Any:
    """Returns the gradients of x and of each weight. A weight's gradient is the transposed
    gradient of its product times the gathered rows; for x see _grad_of_shard(). grad_gathered
    is the gradient of the gathered rows, from those who use them."""
    *weights, gathered = ctx.saved_tensors
    grad_x = None
    if ctx.needs_input_grad[0]:
        grad_x = _grad_of_shard(ctx, weights, grads)
        if grad_gathered is not None and grad_gathered.numel():
            more = reduce_scatter(grad_gathered, ctx.group, ctx.rows)
            grad_x = more if grad_x is None else grad_x + more
    return grad_x, [_grad_of_weight(grad, gathered, ctx.is_k_by_n)
                    if wants and grad is not None else None
                    for grad, wants in zip(grads, ctx.wants_weights)]


def _grad_of_shard(ctx: Any, weights: Any, grads: Any) -> Optional[torch.Tensor]:
    """Returns this rank's rows of the sum over ranks and weights of gradient times weight. It
    takes a GEMM + reduce-scatter for each weight, or, if that is slower, all products and one
    reduce-scatter."""
    pairs = [pair for pair in zip(grads, weights) if pair[0] is not None]
    if not pairs:
        return None
    if len(pairs) == 1 or all(_pays_for_its_sum(grad, weight, not ctx.is_k_by_n, len(pairs))
                              for grad, weight in pairs):
        return functools.reduce(operator.add, [_op_matmul_reduce_scatter(
            grad.contiguous(), weight, ctx.rows, not ctx.is_k_by_n, ctx.group)
            for grad, weight in pairs])
    (grad, weight), *others = pairs
    partial = _products.multiply(grad, weight, not ctx.is_k_by_n)
    for grad, weight in others:
        partial.addmm_(grad, weight.t() if ctx.is_k_by_n else weight)
    return reduce_scatter(partial, ctx.group, ctx.rows)


def _pays_for_its_sum(x: torch.Tensor, weight: torch.Tensor, is_k_by_n: bool, n: int) -> bool:
    """Returns whether a reduce-scatter for each of n such products costs no more than one
    behind all of them. With p for the time of a product and e for its exchange: n max(p, e) <=
    n p + e."""
    return (x.shape[1] * n >= EVEN_K * (n - 1) and
            _products.is_fit(x, [weight], is_k_by_n))


def _grad_of_weight(grad: torch.Tensor, x: torch.Tensor, is_k_by_n: bool) -> torch.Tensor:
    return x.t() @ grad if is_k_by_n else grad.t() @ x


def _keep_matmul_reduce_scatter(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, ctx.rows, ctx.is_k_by_n, ctx.group = inputs
    wants_x, wants_weight = ctx.needs_input_grad[:2]
    ctx.save_for_backward(x if wants_weight else None, weight if wants_x else None)


def _back_matmul_reduce_scatter(ctx: Any, grad: Any) -> Any:
    """Returns the gradients. That of x is the gathered gradient of the result times the weight,
    which is an all-gather + GEMM."""
    x, weight = ctx.saved_tensors
    wants_x, wants_weight = ctx.needs_input_grad[:2]
    grad, grad_x, grad_weight = grad.contiguous(), None, None
    if wants_x and torch.is_grad_enabled():     # create_graph: steps with gradients
        gathered = all_gather(grad, ctx.group, ctx.rows)
        grad_x = _products.multiply(gathered, weight, not ctx.is_k_by_n)
    elif wants_x:
        gathered, (grad_x,) = _gather_and_multiply(grad, [weight], ctx.rows, wants_weight,
                                                   not ctx.is_k_by_n, ctx.group)
    else:
        gathered = all_gather(grad, ctx.group, ctx.rows)
    if wants_weight:
        grad_weight = _grad_of_weight(gathered, x, ctx.is_k_by_n)
    return grad_x, grad_weight, None, None, None


# --- ways in --------------------------------------------------------------------------------
# torch.library's operators for compilers, fake tensors and whatever else looks at them; plain
# tensors take a way without the dispatcher, which costs more time than the operator itself.


class _Operator:
    """One operator of torch.ops.ceoverlap, with a direct call that avoids the dispatcher."""

    def __init__(self, name: str, implementation: Callable[..., Any], fake: Callable[..., Any],
                 back: Callable[..., Any], keep: Callable[..., Any]) -> None:
        self.long = getattr(torch.ops.ceoverlap, name)
        self._implementation = implementation

        def by_name(*arguments: Any) -> Any:
            return implementation(*arguments[:-1], named(arguments[-1]))

        _library.impl(name, by_name, "CPU")
        _library.impl(name, by_name, "CUDA")
        torch.library.register_fake(f"ceoverlap::{name}", fake, lib=_library)
        torch.library.register_autograd(f"ceoverlap::{name}", back, setup_context=keep,
                                        lib=_library)

        class Function(torch.autograd.Function):
            """The autograd function of the direct call. Its tensors are arguments and results
            themselves, not members of lists."""

            @staticmethod
            def forward(*arguments: Any) -> Any:
                return implementation(*arguments[:-1], group_of(arguments[-1]))

            setup_context = staticmethod(keep)
            backward = staticmethod(back)

        self._function = Function

    def __call__(self, *arguments: Any) -> Any:
        """Calls the operator. The first one or two arguments are tensors; the last one is a
        Group, a process group or a group's name."""
        tensors = [one for one in arguments[:2] if isinstance(one, torch.Tensor)]
        if not _is_eager(*tensors):
            return self.long(*arguments[:-1], name_of(arguments[-1]))
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return self._function.apply(*arguments)
        return self._implementation(*arguments[:-1], group_of(arguments[-1]))


class _AllGatherMatmul(torch.autograd.Function):
    """The autograd function of all_gather_matmul's direct call. It takes the weights as single
    arguments, because autograd does not look into lists."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, rows: Any, keeps_gathered: bool, group: Any,
                *weights: Any) -> Any:
        gathered, results = _products.all_gather_matmul(x, weights, rows, keeps_gathered, False,
                                               group_of(group))
        ctx.rows, ctx.is_k_by_n, ctx.group = rows, False, group
        gathered = gathered if keeps_gathered else None
        ctx.wants_weights = list(ctx.needs_input_grad[4:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*weights, gathered)
        return gathered, *results

    @staticmethod
    def backward(ctx: Any, grad_gathered: Any, *grads: Any) -> Any:
        grad_x, grad_weights = _grads_of_all_gather_matmul(ctx, grad_gathered, grads)
        return grad_x, None, None, None, *grad_weights


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _is_eager(*tensors: torch.Tensor) -> bool:
    """Returns whether nothing but autograd has to see the call, so that it may avoid PyTorch's
    dispatcher. False if this PyTorch does not tell."""
    return (not torch.compiler.is_compiling() and
            all([type(tensor) in _PLAIN for tensor in tensors]) and
            not is_watched())


def _all_gather_matmul_by_name(x: torch.Tensor,
                               *arguments: Any) -> Tuple[torch.Tensor, List[torch.Tensor]]:
    """The implementation for torch.library, whose operators cannot return None: rows that were
    not gathered are returned as a tensor without rows."""
    gathered, results = _products.all_gather_matmul(x, *arguments)
    return x.new_empty((0, x.shape[1])) if gathered is None else gathered, results


_op_all_gather = _Operator("all_gather", _moves.all_gather, _fake_all_gather, _back_all_gather,
                           _keep_rows)
_op_all_to_all = _Operator("all_to_all", _moves.all_to_all, _fake_all_to_all, _back_all_to_all,
                           _keep_splits)
_op_reduce_scatter = _Operator("reduce_scatter", _moves.reduce_scatter, _fake_reduce_scatter,
                               _back_reduce_scatter, _keep_rows)
_op_all_reduce = _Operator("all_reduce", _moves.all_reduce, _fake_all_reduce, _back_all_reduce,
                           _keep_group)
_op_all_gather_matmul = _Operator("all_gather_matmul", _all_gather_matmul_by_name,
                                  _fake_all_gather_matmul, _back_all_gather_matmul,
                                  _keep_all_gather_matmul)
_op_matmul_reduce_scatter = _Operator("matmul_reduce_scatter", _products.matmul_reduce_scatter,
                                      _fake_matmul_reduce_scatter,
                                      _back_matmul_reduce_scatter,
                                      _keep_matmul_reduce_scatter)


def _gather_and_multiply(x: torch.Tensor, weights: Any, rows: Any, keeps_gathered: bool,
                         is_k_by_n: bool, group: GroupLike) -> Any:
    """Returns the gathered rows and the products. Without gradients if it can avoid PyTorch's
    dispatcher."""
    if _is_eager(x, *weights):
        return _products.all_gather_matmul(x, weights, rows, keeps_gathered, is_k_by_n,
                                  group_of(group))
    return _op_all_gather_matmul.long(x, weights, rows, keeps_gathered, is_k_by_n,
                                      name_of(group))


# --- what users call -----------------------------------------------------------------------


def group_of(group: GroupLike) -> Group:
    """Returns the Group for what a caller passed as group: a Group, its name, a process group
    or None; see Group.of()."""
    return group if type(group) is Group else Group.of(group)


@uncompiled
def _find(group: GroupLike) -> str:
    return Group.of(group).name


def name_of(group: GroupLike) -> str:
    """Returns the name by which the operators of torch.library find a group."""
    if isinstance(group, str):
        return group
    if isinstance(group, Group):
        return group.name
    return _find(group)


def all_gather(x: torch.Tensor, group: GroupLike = None,
               rows: Optional[Sequence[int]] = None) -> torch.Tensor:
    """Returns the x of all ranks one after another, sum(rows) x ..., where this rank's x is
    rows[rank] x ... Its gradient is the sum over ranks."""
    return _op_all_gather(x, rows, group)


def reduce_scatter(x: torch.Tensor, group: GroupLike = None,
                   rows: Optional[Sequence[int]] = None) -> torch.Tensor:
    """Returns this rank's rows of the sum over ranks of x: x is sum(rows) x ..., the result
    rows[rank] x ... Sums are in fp32 and in the order of ranks, so that repeated runs yield the
    same bits."""
    return _op_reduce_scatter(x, rows, group)


def all_reduce(x: torch.Tensor, group: GroupLike = None) -> torch.Tensor:
    """Returns the sum over ranks of x, in x's shape; for rounding see reduce_scatter()."""
    return _op_all_reduce(x, group)


def all_to_all(x: torch.Tensor, group: GroupLike = None,
               splits: Optional[Sequence[Sequence[int]]] = None) -> torch.Tensor:
    """Sends rows of x to all ranks and returns the rows received from all of them. x holds the
    rows for rank 0, then for rank 1, ...; the result those from rank 0, then from rank 1, ...
    splits[r][t] is the number of rows from rank r to rank t, the same at all ranks; None: equal
    shares."""
    flat = None if splits is None else [n for row in splits for n in row]
    return _op_all_to_all(x, flat, group)


def all_gather_matmul(x: torch.Tensor, weights: Any, group: GroupLike = None,
                      rows: Optional[Sequence[int]] = None) -> Any:
    """Returns the x of all ranks (rows[rank] x k each) times the transposed weight (n x k, as
    nn.Linear keeps it): sum(rows) x n. Products are computed while x still arrives. A list of
    weights, up to 4 at once, yields a list of products."""
    several = isinstance(weights, (list, tuple))
    weights = list(weights) if several else [weights]
    has_gradients = torch.is_grad_enabled()
    keeps = has_gradients and any([weight.requires_grad for weight in weights])
    if has_gradients and (keeps or x.requires_grad) and _is_eager(x, *weights):
        _, *results = _AllGatherMatmul.apply(x, rows, keeps, group, *weights)
    else:
        _, results = _gather_and_multiply(x, weights, rows, keeps, False, group)
    return results if several else results[0]


def matmul_reduce_scatter(x: torch.Tensor, weight: torch.Tensor, group: GroupLike = None,
                          rows: Optional[Sequence[int]] = None) -> torch.Tensor:
    """Returns this rank's rows, rows[rank] x n, of the sum over ranks of x (sum(rows) x k)
    times the transposed weight (n x k). Rows are sent while others are still computed."""
    return _op_matmul_reduce_scatter(x, weight, rows, False, group)
