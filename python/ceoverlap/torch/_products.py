# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Matrix products of tensors by a group's operators, without gradients: the implementation
behind functional.py. Weights are n x k, as nn.Linear keeps them, or k x n if is_k_by_n, as
backward passes need them."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import torch

from .. import _abi, errors, ops
from ._moves import all_gather, check, gathered_rows, reduce_scatter, scattered_rows
from .group import Group
from .operators import (Key, DTYPES, ELEMENT_STEP, all_gather_gemm, columns_of,
                        gemm_reduce_scatter, operand, run_all_gather_gemm,
                        run_gemm_reduce_scatter)

_PRODUCT_DTYPES = (torch.bfloat16, torch.float16)


def multiply(x: torch.Tensor, weight: torch.Tensor, is_k_by_n: bool) -> torch.Tensor:
    """Returns x times the weight in x's dtype, under autocast, too."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind):
        with torch.autocast(kind, enabled=False):
            return multiply(x, weight, is_k_by_n)
    return x @ (weight if is_k_by_n else weight.t())


def is_fit(x: torch.Tensor, weights: Sequence[torch.Tensor], is_k_by_n: bool) -> bool:
    """Returns whether the operators on copy engines accept these operands as they are."""
    sizes = [x.shape[1], *(columns_of(weight, is_k_by_n) for weight in weights)]
    return (x.dtype in _PRODUCT_DTYPES and len(weights) <= _abi.CEOV_OP_GEMMS_MAX and
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


class _Products(NamedTuple):
    """What follows from the shapes of a call. It is worked out and checked once for each
    signature.

    rows      each rank's number of rows
    operator  the operator's key; None: the products are not made by copy-engine operators
    results   the shape of the result for each weight
    """
    rows: Tuple[int, ...]
    operator: Optional[Key]
    results: Tuple[Tuple[int, int], ...]


def _signature(kind: str, x: torch.Tensor, weights: Sequence[torch.Tensor],
               rows: Optional[Sequence[int]], is_k_by_n: bool) -> Tuple[Any, ...]:
    """Returns the key of Operators.known under which a _Products is kept: everything that it
    and its checks depend on."""
    if len(weights) == 1:
        weight = weights[0]
        of_weights: Tuple[Any, ...] = weight.shape, weight.dtype, weight.device
    else:
        of_weights = tuple([(one.shape, one.dtype, one.device) for one in weights])
    return (kind, x.shape, x.dtype, x.device, of_weights,
            None if rows is None else tuple(rows), is_k_by_n)


def _gathered_products(x: torch.Tensor, weights: Sequence[torch.Tensor],
                       rows: Optional[Sequence[int]], is_k_by_n: bool, at: Group
                       ) -> _Products:
    signature = _signature("gather", x, weights, rows, is_k_by_n)
    known = at.operators.known.get(signature)
    if known is not None:
        return known
    check(at, x, "all_gather_matmul")
    _check_products(x, weights, is_k_by_n, "all_gather_matmul")
    shares = tuple(gathered_rows(at, x, rows))
    n_rows, operator = sum(shares), None
    if n_rows and is_fit(x, weights, is_k_by_n):
        operator = all_gather_gemm(x, weights, shares, is_k_by_n)
    results = tuple([(n_rows, columns_of(weight, is_k_by_n)) for weight in weights])
    return at.operators.remember(signature, _Products(shares, operator, results))


def all_gather_matmul(x: torch.Tensor, weights: Sequence[torch.Tensor],
                       rows: Optional[Sequence[int]], keeps_gathered: bool,
                       is_k_by_n: bool, at: Group
                       ) -> Tuple[Optional[torch.Tensor], List[torch.Tensor]]:
    """Returns the gathered rows and the list of products. The gathered rows are None if
    keeps_gathered is false and they were not needed."""
    at.operators.compare(("all_gather_matmul", x, rows, *weights))
    products = _gathered_products(x, weights, rows, is_k_by_n, at)
    if products.operator is None:
        gathered = all_gather(x, products.rows, at)
        return gathered, [multiply(gathered, weight, is_k_by_n) for weight in weights]
    results = [x.new_empty(shape) for shape in products.results]
    kept: Optional[torch.Tensor] = None
    if keeps_gathered:
        kept = x.new_empty((sum(products.rows), x.shape[1]))
    run_all_gather_gemm(at, products.operator, operand(x),
                        [operand(weight) for weight in weights], kept, results)
    return kept, results


def _scattered_products(x: torch.Tensor, weight: torch.Tensor,
                        rows: Optional[Sequence[int]], is_k_by_n: bool, at: Group
                        ) -> _Products:
    signature = _signature("scatter", x, [weight], rows, is_k_by_n)
    known = at.operators.known.get(signature)
    if known is not None:
        return known
    check(at, x, "matmul_reduce_scatter")
    _check_products(x, [weight], is_k_by_n, "matmul_reduce_scatter")
    shares, operator = tuple(scattered_rows(at, x.shape[0], rows)), None
    if x.shape[0] and is_fit(x, [weight], is_k_by_n):
        operator = gemm_reduce_scatter(x, weight, shares, is_k_by_n)
    result = shares[at.rank], columns_of(weight, is_k_by_n)
    return at.operators.remember(signature, _Products(shares, operator, (result,)))


def matmul_reduce_scatter(x: torch.Tensor, weight: torch.Tensor,
                           rows: Optional[Sequence[int]], is_k_by_n: bool,
                           at: Group) -> torch.Tensor:
    at.operators.compare(("matmul_reduce_scatter", x, rows, weight))
    products = _scattered_products(x, weight, rows, is_k_by_n, at)
    if products.operator is None:
        return reduce_scatter(multiply(x, weight, is_k_by_n), products.rows, at)
    result = x.new_empty(products.results[0])
    run_gemm_reduce_scatter(at, products.operator, operand(x), operand(weight), result)
    return result
