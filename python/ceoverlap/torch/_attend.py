# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Attention of some queries over some of the keys, and how results over different keys are put
together. Tensors are batch x heads x length x width, as scaled_dot_product_attention() takes
them; keys and values may have fewer heads, each for several heads of queries in order.

The log-sum-exp (batch x heads x queries) of a piece's scores says what share its result has in
that over all keys. Gradients of a piece take the log-sum-exp and the result over all keys.

PyTorch's flash kernels do it where they can: float16 and bfloat16 on GPUs from sm_80 on. Else it
is computed by plain products, with all scores in memory."""

from __future__ import annotations

from typing import Optional, Tuple

import torch

from . import _compat
from ._merge_kernel import MergeKernel

FLASH_DTYPES = (torch.bfloat16, torch.float16)
FLASH_WIDTH_MAX = 256
FLASH_WIDTH_STEP = 8
FLASH_CAPABILITY = (8, 0)

# GPUs with less shared memory, for which there is no backward pass of some widths.
FLASH_SMALLER = ((8, 6), (8, 9), (12, 0), (12, 1))
FLASH_SMALLER_WIDTHS = (192, 224)


def has_flash(q: torch.Tensor) -> bool:
    """Returns whether flash kernels take such queries, with gradients."""
    width = q.shape[3]
    if not (q.is_cuda and q.dtype in FLASH_DTYPES and width <= FLASH_WIDTH_MAX and
            width % FLASH_WIDTH_STEP == 0):
        return False
    capability = torch.cuda.get_device_capability(q.device)
    return capability >= FLASH_CAPABILITY and not (
        capability in FLASH_SMALLER and FLASH_SMALLER_WIDTHS[0] < width <= FLASH_SMALLER_WIDTHS[1])


def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool,
            scale: float) -> Tuple[torch.Tensor, torch.Tensor]:
    """Returns the result, in the dtype of q, and its log-sum-exp, in fp32 or wider. is_causal:
    query i sees keys 0 to i."""
    if has_flash(q):
        return _compat.flash_attention(q, k, v, is_causal, scale)
    scores, _, v = _scores(q, k, v, is_causal, scale)
    lse = scores.logsumexp(-1)
    return ((scores - lse[..., None]).exp() @ v).to(q.dtype), lse


def backward(grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
             out: torch.Tensor, lse: torch.Tensor, is_causal: bool,
             scale: float) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns the gradients of q, k and v over these keys. grad and out are of the result over all
    keys, lse is its log-sum-exp."""
    if has_flash(q):
        return _compat.flash_attention_backward(grad, q, k, v, out, lse.contiguous(), is_causal,
                                                scale)
    scores, wide_k, wide_v = _scores(q, k, v, is_causal, scale)
    shares = (scores - lse[..., None]).exp()
    grad = grad.to(scores.dtype)
    rest = (grad * out).sum(-1, keepdim=True)
    grad_scores = shares * (grad @ wide_v.transpose(-1, -2) - rest) * scale
    grad_k = grad_scores.transpose(-1, -2) @ q.to(scores.dtype)
    grad_v = shares.transpose(-1, -2) @ grad
    return ((grad_scores @ wide_k).to(q.dtype), _of_heads(grad_k, k), _of_heads(grad_v, v))


def _scores(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool,
            scale: float) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns the scores, and k and v with as many heads as q, in fp32 or wider."""
    dtype = torch.promote_types(q.dtype, torch.float32)
    n_each = q.shape[1] // k.shape[1]
    k, v = (one.to(dtype).repeat_interleave(n_each, 1) for one in (k, v))
    scores = q.to(dtype) @ k.transpose(-1, -2) * scale
    if is_causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    return scores, k, v


def _of_heads(grad: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Returns the sum over the heads of queries that share a head of `like`."""
    return grad.unflatten(1, (like.shape[1], -1)).sum(2).to(like.dtype)


class Merge:
    """Attention of some queries over pieces of the keys, one piece after another.

    out     over the first piece; when all pieces are there, over all keys, in its dtype
    lse     the log-sum-exp over the pieces so far, in fp32 or wider
    n_more  number of further pieces
    kernel  the group's MergeKernel, which adds a piece by one kernel where it can; None: PyTorch's
            kernels do it

    Sums are in the dtype of lse. The last step writes to out, and the first one reads it, so that
    no step just converts: such a step takes as long as another one that adds."""

    def __init__(self, out: torch.Tensor, lse: torch.Tensor, n_more: int,
                 kernel: Optional[MergeKernel] = None) -> None:
        self._out, self._lse, self._n_left = out, lse, n_more
        self._kernel = kernel if kernel is not None and kernel.takes(out, lse) else None
        self._sum: Optional[torch.Tensor] = None        # in the dtype of lse; None: it is out

    def add(self, more_out: torch.Tensor, more_lse: torch.Tensor) -> None:
        """Adds what there is over one more piece."""
        self._n_left -= 1
        if self._kernel is None:
            self._add(more_out, more_lse)
        else:
            self._add_at_once(more_out, more_lse)

    def _add_at_once(self, more_out: torch.Tensor, more_lse: torch.Tensor) -> None:
        assert self._kernel is not None
        is_first, is_last = self._sum is None, not self._n_left
        if is_first and not is_last:
            self._sum = torch.empty(self._out.shape, dtype=self._lse.dtype,
                                    device=self._out.device)
        self._kernel.merge(self._out, self._sum, self._lse, (more_out, more_lse), is_first,
                           is_last)

    def _add(self, more_out: torch.Tensor, more_lse: torch.Tensor) -> None:
        share = (more_lse - self._lse).sigmoid()        # of the piece in the sum of scores' exp()
        rest, share = (1 - share)[..., None], share[..., None]
        self._sum = self._out * rest if self._sum is None else self._sum.mul_(rest)
        torch.addcmul(self._sum, more_out, share, out=self._sum if self._n_left else self._out)
        torch.logaddexp(self._lse, more_lse, out=self._lse)
