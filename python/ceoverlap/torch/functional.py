# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Collectives and operators on tensors, as ``torch.ops.ceoverlap.*``: on the caller's current
stream, with gradients, for torch.compile and CUDA graphs.

Rows    the first dimension is shared out to ranks in order; the others are the same at all
        ranks. ``rows`` has each rank's share, None: equal shares. 0 is allowed.
Group   a ceoverlap.torch.Group, its name, or a torch.distributed process group; None: the
        default one. All ranks of it make the same calls in the same order. The first call
        of a shape blocks on the host until all ranks have come.
Streams the result is there for what the current stream gets next, and the arguments may be
        changed or freed by it: no Tensor.record_stream() is needed for that stream.
Graphs  run each shape once before the capture. All ranks capture and replay alike.
dtypes  products: bfloat16 and float16 on copy engines; others are gathered, multiplied and
        summed one after another. Sums: bfloat16, float16, float32. Moves: any.
"""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

import torch

from .. import errors, ops
from .group import Group, named
from .operators import (ALIGN_BYTES, DTYPES, ELEMENT_STEP, operand, reduce_scatter_into,
                        round_up, run_all_gather_gemm, run_gemm_reduce_scatter, run_move,
                        run_reduce)

_PRODUCT_DTYPES = (torch.bfloat16, torch.float16)

_library = torch.library.Library("ceoverlap", "DEF")
_library.define("all_gather(Tensor x, int[]? rows, str group) -> Tensor")
_library.define("all_to_all(Tensor x, int[]? splits, str group) -> Tensor")
_library.define("reduce_scatter(Tensor x, int[]? rows, str group) -> Tensor")
_library.define("all_reduce(Tensor x, str group) -> Tensor")
_library.define("all_gather_matmul(Tensor x, Tensor[] weights, int[]? rows, "
                "bool keeps_gathered, bool is_k_by_n, str group) -> (Tensor, Tensor[])")
_library.define("matmul_reduce_scatter(Tensor x, Tensor weight, int[]? rows, "
                "bool is_k_by_n, str group) -> Tensor")


# --- shares ---------------------------------------------------------------------------


def _gathered_rows(group: Group, x: torch.Tensor, rows: Optional[Sequence[int]]) -> List[int]:
    """Each rank's rows, where x is the own share."""
    if rows is None:
        return [x.shape[0]] * group.size
    if len(rows) != group.size or rows[group.rank] != x.shape[0]:
        raise errors.InvalidError(f"rows {list(rows)}: rank {group.rank} of {group.size} has "
                                  f"{x.shape[0]}")
    return list(rows)


def _scattered_rows(group: Group, n: int, rows: Optional[Sequence[int]]) -> List[int]:
    """Each rank's rows of n."""
    if rows is None:
        if n % group.size:
            raise errors.InvalidError(f"{n} rows are not {group.size} equal shares: say rows")
        return [n // group.size] * group.size
    if len(rows) != group.size or sum(rows) != n:
        raise errors.InvalidError(f"rows {list(rows)}: must be {group.size} numbers with sum "
                                  f"{n}")
    return list(rows)


def _inner(x: torch.Tensor) -> int:
    """Elements of a row."""
    n = 1
    for size in x.shape[1:]:
        n *= size
    return n


def _check(group: Group, x: torch.Tensor, what: str) -> None:
    if x.dim() < 1:
        raise errors.InvalidError(f"{what}: a tensor without dimensions")
    if x.device != group.device:
        raise errors.InvalidError(f"{what}: a tensor on {x.device}, but the group's rank "
                                  f"{group.rank} is on {group.device}")


def _check_sum(x: torch.Tensor, what: str) -> None:
    if x.dtype not in DTYPES:
        raise errors.InvalidError(f"{what}: {x.dtype}: sums are of {list(DTYPES)}")


# --- moves ----------------------------------------------------------------------------


def _all_gather(x: torch.Tensor, rows: Optional[Sequence[int]], at: Group) -> torch.Tensor:
    _check(at, x, "all_gather")
    rows = _gathered_rows(at, x, rows)
    row_bytes = _inner(x) * x.element_size()
    result = x.new_empty((sum(rows), *x.shape[1:]))
    if not result.numel():
        return result
    if any(n * row_bytes % ALIGN_BYTES for n in rows):
        return _all_gather_padded(at, x, rows, result)
    run_move(at, ops.AllGather, operand(x), [n * row_bytes for n in rows], result)
    return result


def _all_gather_padded(group: Group, x: torch.Tensor, rows: Sequence[int],
                       result: torch.Tensor) -> torch.Tensor:
    """Shards that are no whole number of vectors: all as long as the longest, rounded up."""
    sizes = [n * _inner(x) * x.element_size() for n in rows]
    length = round_up(max(sizes), ALIGN_BYTES)
    source = torch.empty(length, dtype=torch.uint8, device=x.device)
    source[:sizes[group.rank]].view(x.dtype).view(x.shape).copy_(x)
    target = source.new_empty((group.size, length))
    run_move(group, ops.AllGather, source, [length] * group.size, target)
    torch.cat([target[rank, :size] for rank, size in enumerate(sizes)],
              out=result.view(-1).view(torch.uint8))
    return result


def _block_rows(group: Group, x: torch.Tensor,
                splits: Optional[Sequence[int]]) -> Tuple[List[int], List[int]]:
    """(rows from rank r to rank t at [r * size + t], those to us)."""
    n = group.size
    if splits is None:
        share = _scattered_rows(group, x.shape[0], None)[0]
        splits = [share] * (n * n)
    if len(splits) != n * n or min(splits) < 0:
        raise errors.InvalidError(f"splits: {len(splits)} numbers, must be {n} x {n}, rows "
                                  "from rank r to rank t")
    sent = sum(splits[group.rank * n:(group.rank + 1) * n])
    if sent != x.shape[0]:
        raise errors.InvalidError(f"splits: rank {group.rank} sends {sent} rows, but x has "
                                  f"{x.shape[0]}")
    return list(splits), [splits[r * n + group.rank] for r in range(n)]


def _all_to_all(x: torch.Tensor, splits: Optional[Sequence[int]], at: Group) -> torch.Tensor:
    _check(at, x, "all_to_all")
    splits, received = _block_rows(at, x, splits)
    row_bytes = _inner(x) * x.element_size()
    result = x.new_empty((sum(received), *x.shape[1:]))
    if not sum(splits) * row_bytes:
        return result
    if row_bytes % ALIGN_BYTES and any(n * row_bytes % ALIGN_BYTES for n in splits):
        raise errors.InvalidError(f"all_to_all: blocks of {row_bytes} bytes a row: each block "
                                  f"has to be a multiple of {ALIGN_BYTES} bytes")
    run_move(at, ops.AllToAll, operand(x), [n * row_bytes for n in splits], result)
    return result


# --- sums -----------------------------------------------------------------------------


def _reduce_scatter(x: torch.Tensor, rows: Optional[Sequence[int]],
                    at: Group) -> torch.Tensor:
    _check(at, x, "reduce_scatter")
    _check_sum(x, "reduce_scatter")
    rows = _scattered_rows(at, x.shape[0], rows)
    inner = _inner(x)
    result = x.new_empty((rows[at.rank], *x.shape[1:]))
    if not x.numel():
        return result
    reduce_scatter_into(at, x, [n * inner for n in rows], result)
    return result


def _all_reduce(x: torch.Tensor, at: Group) -> torch.Tensor:
    _check(at, x.reshape(-1), "all_reduce")
    _check_sum(x, "all_reduce")
    result = torch.empty_like(x, memory_format=torch.contiguous_format)
    n = x.numel()
    if not n:
        return result
    length = round_up(n, ELEMENT_STEP * at.size)
    if length == n:
        run_reduce(at, ops.AllReduce, operand(x), [n // at.size] * at.size, result)
        return result
    source = x.new_zeros(length)
    source[:n] = x.reshape(-1)
    target = torch.empty_like(source)
    run_reduce(at, ops.AllReduce, source, [length // at.size] * at.size, target)
    result.view(-1).copy_(target[:n])
    return result


# --- products -------------------------------------------------------------------------
# Weights are n x k, as nn.Linear keeps them; is_k_by_n: k x n, as backward passes want them.


def _columns(weight: torch.Tensor, is_k_by_n: bool) -> int:
    """n"""
    return weight.shape[1 if is_k_by_n else 0]


def _multiply(x: torch.Tensor, weight: torch.Tensor, is_k_by_n: bool) -> torch.Tensor:
    """Of x's dtype, under autocast, too."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind):
        with torch.autocast(kind, enabled=False):
            return _multiply(x, weight, is_k_by_n)
    return x @ (weight if is_k_by_n else weight.t())


def _is_fit(x: torch.Tensor, weights: Sequence[torch.Tensor], is_k_by_n: bool) -> bool:
    """Whether the copy-engine operators take them as they are."""
    sizes = [x.shape[1], *(_columns(weight, is_k_by_n) for weight in weights)]
    return (x.dtype in _PRODUCT_DTYPES and len(weights) <= ops._abi.CEOV_OP_GEMMS_MAX and
            all(size and size % ELEMENT_STEP == 0 for size in sizes))


def _check_products(x: torch.Tensor, weights: Sequence[torch.Tensor], is_k_by_n: bool,
                    what: str) -> None:
    if x.dim() != 2:
        raise errors.InvalidError(f"{what}: x has {x.dim()} dimensions, must be rows x k")
    k = x.shape[1]
    for weight in weights:
        if (weight.dim() != 2 or weight.shape[0 if is_k_by_n else 1] != k or
                weight.dtype != x.dtype or weight.device != x.device):
            raise errors.InvalidError(
                f"{what}: a weight of {tuple(weight.shape)} {weight.dtype} on "
                f"{weight.device}, must be {f'{k} x n' if is_k_by_n else f'n x {k}'} of "
                f"{x.dtype} on {x.device}")


def _all_gather_matmul(x: torch.Tensor, weights: Sequence[torch.Tensor],
                       rows: Optional[Sequence[int]], keeps_gathered: bool,
                       is_k_by_n: bool, at: Group
                       ) -> Tuple[Optional[torch.Tensor], List[torch.Tensor]]:
    """(gathered, which may be None where it is not kept, products)"""
    _check(at, x, "all_gather_matmul")
    _check_products(x, weights, is_k_by_n, "all_gather_matmul")
    rows = _gathered_rows(at, x, rows)
    n_rows = sum(rows)
    if not n_rows or not _is_fit(x, weights, is_k_by_n):
        gathered = _all_gather(x, rows, at)
        return gathered, [_multiply(gathered, weight, is_k_by_n) for weight in weights]
    results = [x.new_empty((n_rows, _columns(weight, is_k_by_n))) for weight in weights]
    gathered = x.new_empty((n_rows, x.shape[1])) if keeps_gathered else None
    run_all_gather_gemm(at, operand(x), [operand(weight) for weight in weights], rows,
                        is_k_by_n, gathered, results)
    return gathered, results


def _all_gather_matmul_by_name(x: torch.Tensor, *arguments
                               ) -> Tuple[torch.Tensor, List[torch.Tensor]]:
    """As torch.library wants it: nothing is a tensor of no rows."""
    gathered, results = _all_gather_matmul(x, *arguments)
    return x.new_empty((0, x.shape[1])) if gathered is None else gathered, results


def _matmul_reduce_scatter(x: torch.Tensor, weight: torch.Tensor,
                           rows: Optional[Sequence[int]], is_k_by_n: bool,
                           at: Group) -> torch.Tensor:
    _check(at, x, "matmul_reduce_scatter")
    _check_products(x, [weight], is_k_by_n, "matmul_reduce_scatter")
    rows = _scattered_rows(at, x.shape[0], rows)
    if not x.shape[0] or not _is_fit(x, [weight], is_k_by_n):
        return _reduce_scatter(_multiply(x, weight, is_k_by_n), rows, at)
    result = x.new_empty((rows[at.rank], _columns(weight, is_k_by_n)))
    run_gemm_reduce_scatter(at, operand(x), operand(weight), rows, is_k_by_n, result)
    return result


# --- shapes for torch.compile ------------------------------------------------------------


def _fake_all_gather(x, rows, group):
    n = x.shape[0] * named(group).size if rows is None else sum(rows)
    return x.new_empty((n, *x.shape[1:]))


def _fake_all_to_all(x, splits, group):
    at = named(group)
    if splits is None:
        return x.new_empty(x.shape)
    return x.new_empty((sum(splits[at.rank::at.size]), *x.shape[1:]))


def _fake_reduce_scatter(x, rows, group):
    at = named(group)
    n = x.shape[0] // at.size if rows is None else rows[at.rank]
    return x.new_empty((n, *x.shape[1:]))


def _fake_all_reduce(x, group):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _fake_all_gather_matmul(x, weights, rows, keeps_gathered, is_k_by_n, group):
    n = x.shape[0] * named(group).size if rows is None else sum(rows)
    is_kept = keeps_gathered or not _is_fit(x, weights, is_k_by_n)
    return (x.new_empty((n if is_kept else 0, x.shape[1])),
            [x.new_empty((n, _columns(weight, is_k_by_n))) for weight in weights])


def _fake_matmul_reduce_scatter(x, weight, rows, is_k_by_n, group):
    at = named(group)
    n = x.shape[0] // at.size if rows is None else rows[at.rank]
    return x.new_empty((n, _columns(weight, is_k_by_n)))


# --- gradients ----------------------------------------------------------------------------
# Moves and sums are each other's: all-gather and reduce-scatter, all-to-all and itself the
# other way round; all-reduce is its own, as in torch.distributed.nn.


def _keep_rows(ctx, inputs, output):
    _, ctx.rows, ctx.group = inputs


def _back_all_gather(ctx, grad):
    return reduce_scatter(grad, ctx.group, ctx.rows), None, None


def _back_reduce_scatter(ctx, grad):
    return all_gather(grad, ctx.group, ctx.rows), None, None


def _keep_splits(ctx, inputs, output):
    _, ctx.splits, ctx.group = inputs


def _back_all_to_all(ctx, grad):
    splits = ctx.splits
    if splits is not None:
        n = group_of(ctx.group).size
        splits = [splits[r::n] for r in range(n)]
    return all_to_all(grad, ctx.group, splits), None, None


def _keep_group(ctx, inputs, output):
    _, ctx.group = inputs


def _back_all_reduce(ctx, grad):
    return all_reduce(grad, ctx.group), None


def _keep_all_gather_matmul(ctx, inputs, output):
    _, weights, ctx.rows, _, ctx.is_k_by_n, ctx.group = inputs
    ctx.wants_weights = [weight.requires_grad for weight in weights]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*weights, output[0])


def _back_all_gather_matmul(ctx, grad_gathered, grads):
    grad_x, grad_weights = _grads_of_all_gather_matmul(ctx, grad_gathered, grads)
    return grad_x, grad_weights, None, None, None, None


def _grads_of_all_gather_matmul(ctx, grad_gathered, grads):
    """Each weight gets its grad transposed times what was gathered, x see below. Gradients
    of what was gathered come from its users and from a gradient of these."""
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


def _grad_of_shard(ctx, weights, grads) -> Optional[torch.Tensor]:
    """Own rows of the sum over ranks of grad times weight: a GEMM + reduce-scatter, or where
    there are several products and then the sum."""
    pairs = [pair for pair in zip(grads, weights) if pair[0] is not None]
    if not pairs:
        return None
    (grad, weight), *others = pairs
    if not others:
        return _op_matmul_reduce_scatter(grad.contiguous(), weight, ctx.rows,
                                         not ctx.is_k_by_n, ctx.group)
    partial = _multiply(grad, weight, not ctx.is_k_by_n)
    for grad, weight in others:
        partial.addmm_(grad, weight.t() if ctx.is_k_by_n else weight)
    return reduce_scatter(partial, ctx.group, ctx.rows)


def _grad_of_weight(grad: torch.Tensor, x: torch.Tensor, is_k_by_n: bool) -> torch.Tensor:
    return x.t() @ grad if is_k_by_n else grad.t() @ x


def _keep_matmul_reduce_scatter(ctx, inputs, output):
    x, weight, ctx.rows, ctx.is_k_by_n, ctx.group = inputs
    wants_x, wants_weight = ctx.needs_input_grad[:2]
    ctx.save_for_backward(x if wants_weight else None, weight if wants_x else None)


def _back_matmul_reduce_scatter(ctx, grad):
    """The gathered gradient times the weight: an all-gather + GEMM."""
    x, weight = ctx.saved_tensors
    wants_x, wants_weight = ctx.needs_input_grad[:2]
    grad, grad_x, grad_weight = grad.contiguous(), None, None
    if wants_x and torch.is_grad_enabled():     # create_graph: steps with gradients
        gathered = all_gather(grad, ctx.group, ctx.rows)
        grad_x = _multiply(gathered, weight, not ctx.is_k_by_n)
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
    """One operator of torch.ops.ceoverlap and its short way."""

    def __init__(self, name: str, implementation, fake, back, keep):
        self.long = getattr(torch.ops.ceoverlap, name)
        self._implementation = implementation

        def by_name(*arguments):
            return implementation(*arguments[:-1], named(arguments[-1]))

        _library.impl(name, by_name, "CPU")
        _library.impl(name, by_name, "CUDA")
        torch.library.register_fake(f"ceoverlap::{name}", fake, lib=_library)
        torch.library.register_autograd(f"ceoverlap::{name}", back, setup_context=keep,
                                        lib=_library)

        class Function(torch.autograd.Function):
            """Of tensors that are arguments or results by themselves, not in lists."""

            @staticmethod
            def forward(*arguments):
                return implementation(*arguments[:-1], group_of(arguments[-1]))

            setup_context = staticmethod(keep)
            backward = staticmethod(back)

        self._function = Function

    def __call__(self, *arguments):
        """Tensors come first, the group last: whatever names it."""
        tensors = [one for one in arguments[:2] if isinstance(one, torch.Tensor)]
        if not _is_eager(*tensors):
            return self.long(*arguments[:-1], name_of(arguments[-1]))
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return self._function.apply(*arguments)
        return self._implementation(*arguments[:-1], group_of(arguments[-1]))


class _AllGatherMatmul(torch.autograd.Function):
    """The short way of all_gather_matmul, which has lists of tensors."""

    @staticmethod
    def forward(ctx, x, rows, keeps_gathered, group, *weights):
        gathered, results = _all_gather_matmul(x, weights, rows, keeps_gathered, False,
                                               group_of(group))
        ctx.rows, ctx.is_k_by_n, ctx.group = rows, False, group
        gathered = gathered if keeps_gathered else None
        ctx.wants_weights = list(ctx.needs_input_grad[4:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*weights, gathered)
        return gathered, *results

    @staticmethod
    def backward(ctx, grad_gathered, *grads):
        grad_x, grad_weights = _grads_of_all_gather_matmul(ctx, grad_gathered, grads)
        return grad_x, None, None, None, *grad_weights


_PLAIN = (torch.Tensor, torch.nn.Parameter)
_stack_length = getattr(torch._C, "_len_torch_dispatch_stack", None)
_functorch_level = getattr(torch._C._functorch, "maybe_current_level", None)


def _is_eager(*tensors: torch.Tensor) -> bool:
    """Whether nobody but autograd wants to see the call. A PyTorch that does not tell takes
    the long way."""
    return (not torch.compiler.is_compiling() and
            all([type(tensor) in _PLAIN for tensor in tensors]) and
            _stack_length is not None and not _stack_length() and
            _functorch_level is not None and _functorch_level() is None)


_op_all_gather = _Operator("all_gather", _all_gather, _fake_all_gather, _back_all_gather,
                           _keep_rows)
_op_all_to_all = _Operator("all_to_all", _all_to_all, _fake_all_to_all, _back_all_to_all,
                           _keep_splits)
_op_reduce_scatter = _Operator("reduce_scatter", _reduce_scatter, _fake_reduce_scatter,
                               _back_reduce_scatter, _keep_rows)
_op_all_reduce = _Operator("all_reduce", _all_reduce, _fake_all_reduce, _back_all_reduce,
                           _keep_group)
_op_all_gather_matmul = _Operator("all_gather_matmul", _all_gather_matmul_by_name,
                                  _fake_all_gather_matmul, _back_all_gather_matmul,
                                  _keep_all_gather_matmul)
_op_matmul_reduce_scatter = _Operator("matmul_reduce_scatter", _matmul_reduce_scatter,
                                      _fake_matmul_reduce_scatter,
                                      _back_matmul_reduce_scatter,
                                      _keep_matmul_reduce_scatter)


def _gather_and_multiply(x, weights, rows, keeps_gathered: bool, is_k_by_n: bool, group):
    """(gathered, products); no gradients on the short way."""
    if _is_eager(x, *weights):
        return _all_gather_matmul(x, weights, rows, keeps_gathered, is_k_by_n,
                                  group_of(group))
    return _op_all_gather_matmul.long(x, weights, rows, keeps_gathered, is_k_by_n,
                                      name_of(group))


# --- what users call -----------------------------------------------------------------------


def group_of(group) -> Group:
    """The Group that a caller means; see the module."""
    return group if type(group) is Group else Group.of(group)


@torch._dynamo.disable
def _find(group) -> str:
    return Group.of(group).name


def name_of(group) -> str:
    """The name by which torch.library's operators find a group."""
    if isinstance(group, str):
        return group
    if isinstance(group, Group):
        return group.name
    return _find(group)


def all_gather(x: torch.Tensor, group=None,
               rows: Optional[Sequence[int]] = None) -> torch.Tensor:
    """x: rows[rank] x ...; all ranks' x, sum(rows) x ...  Its gradient is summed."""
    return _op_all_gather(x, rows, group)


def reduce_scatter(x: torch.Tensor, group=None,
                   rows: Optional[Sequence[int]] = None) -> torch.Tensor:
    """x: sum(rows) x ...; own rows of the sum over ranks, rows[rank] x ... The sum is in fp32
    and in the order of ranks: the same bits run after run."""
    return _op_reduce_scatter(x, rows, group)


def all_reduce(x: torch.Tensor, group=None) -> torch.Tensor:
    """The sum over ranks, of x's shape; see reduce_scatter()."""
    return _op_all_reduce(x, group)


def all_to_all(x: torch.Tensor, group=None,
               splits: Optional[Sequence[Sequence[int]]] = None) -> torch.Tensor:
    """x: rows for rank 0, for rank 1, ...; the rows from rank 0, from rank 1, ... splits[r][t]
    is how many go from rank r to rank t, the same at all ranks; None: equal shares."""
    flat = None if splits is None else [n for row in splits for n in row]
    return _op_all_to_all(x, flat, group)


def all_gather_matmul(x: torch.Tensor, weights, group=None,
                      rows: Optional[Sequence[int]] = None):
    """All ranks' x (rows[rank] x k each) times weight transposed (n x k, as nn.Linear keeps
    it): sum(rows) x n, while x arrives. Of several weights (up to 4 at once) a list."""
    several = isinstance(weights, (list, tuple))
    weights = list(weights) if several else [weights]
    has_gradients = torch.is_grad_enabled()
    keeps = has_gradients and any([weight.requires_grad for weight in weights])
    if has_gradients and (keeps or x.requires_grad) and _is_eager(x, *weights):
        _, *results = _AllGatherMatmul.apply(x, rows, keeps, group, *weights)
    else:
        _, results = _gather_and_multiply(x, weights, rows, keeps, False, group)
    return results if several else results[0]


def matmul_reduce_scatter(x: torch.Tensor, weight: torch.Tensor, group=None,
                          rows: Optional[Sequence[int]] = None) -> torch.Tensor:
    """Own rows of the sum over ranks of x (sum(rows) x k) times weight (n x k) transposed:
    rows[rank] x n. Rows leave while others are still computed."""
    return _op_matmul_reduce_scatter(x, weight, rows, False, group)
