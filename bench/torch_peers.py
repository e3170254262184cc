# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""What the layers of ceoverlap.torch are compared with: the same by PyTorch's products and the
collectives of torch.distributed, with gradients."""

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right

# --- PyTorch's collectives with gradients ------------------------------------------------


class Exchange(torch.autograd.Function):
    """all_to_all_single() of rows; sent and received are numbers of rows, None: equal ones."""

    @staticmethod
    def forward(ctx, x, sent, received):
        ctx.sent, ctx.received = sent, received
        n = x.shape[0] if received is None else sum(received)
        result = x.new_empty((n, *x.shape[1:]))
        dist.all_to_all_single(result, x.contiguous(), received, sent)
        return result

    @staticmethod
    def backward(ctx, grad):
        return Exchange.apply(grad, ctx.received, ctx.sent), None, None


class Gather(torch.autograd.Function):
    """all_gather_into_tensor(); its gradient is a reduce_scatter_tensor()."""

    @staticmethod
    def forward(ctx, x):
        result = x.new_empty((x.shape[0] * dist.get_world_size(), *x.shape[1:]))
        dist.all_gather_into_tensor(result, x)
        return result

    @staticmethod
    def backward(ctx, grad):
        result = grad.new_empty((grad.shape[0] // dist.get_world_size(), *grad.shape[1:]))
        dist.reduce_scatter_tensor(result, grad.contiguous())
        return result


# --- mixture of experts ------------------------------------------------------------------


def counts_of(ids, n_experts, size):
    """Returns for each rank and each of its experts how many copies this rank has for it, and the
    same of what all ranks have for this one."""
    own = torch.bincount(ids + 1, minlength=n_experts + 1)[1:].view(size, -1)
    theirs = torch.empty_like(own)
    dist.all_to_all_single(theirs, own)
    return own, theirs


def mixture_by_torch(x, ids, weights, experts, n_experts):
    """Copies sorted by expert go to their ranks; numbers of rows come to the host. Experts are as
    those of ct.moe(), and so are ids: -1 is none. weights None: all are 1."""
    size, top_k = dist.get_world_size(), ids.shape[1]
    own, theirs = counts_of(ids.flatten(), n_experts, size)
    sent, received = torch.stack((own.sum(1), theirs.sum(1))).tolist()
    order = ids.flatten().argsort(stable=True)[ids.numel() - sum(sent):]
    rows = Exchange.apply(x.index_select(0, order // top_k), sent, received)
    number = torch.arange(theirs.numel(), device=x.device) % theirs.shape[1]
    by_expert = number.repeat_interleave(theirs.flatten(), output_size=sum(received))
    by_expert = by_expert.argsort(stable=True)
    made = experts(rows.index_select(0, by_expert), theirs.sum(0).cumsum(0).to(torch.int32))
    back = Exchange.apply(torch.empty_like(made).index_copy_(0, by_expert, made), received, sent)
    copies = back.new_zeros(ids.numel(), back.shape[1]).index_copy_(0, order, back)
    copies = copies.view(*ids.shape, -1)
    return (copies if weights is None else copies * weights[..., None].to(copies.dtype)).sum(1)


# --- attention ---------------------------------------------------------------------------


def attend_to_first(q, k, v, n):
    """Attention to the first n keys, the last of which is at the place of the last query."""
    return F.scaled_dot_product_attention(
        q, k[:, :, :n], v[:, :, :n], attn_mask=causal_lower_right(q.shape[2], n),
        enable_gqa=q.shape[1] != k.shape[1])


def gathered(k, v):
    """All keys and values in the order in which ranks have them, batch x heads x length x width."""
    pairs = torch.stack((k.permute(2, 0, 1, 3), v.permute(2, 0, 1, 3)), 1)
    return Gather.apply(pairs).permute(1, 2, 3, 0, 4).unbind(0)


def gathered_attention(q, k, v):
    return attend_to_first(q, *gathered(k, v), (dist.get_rank() + 1) * q.shape[2])


def in_order(*gathered_parts):
    """Returns gathered balanced parts in the order of the sequence."""
    size = dist.get_world_size()
    order = [2 * r for r in range(size)] + [2 * r + 1 for r in reversed(range(size))]
    return [torch.cat([one.chunk(2 * size, 2)[i] for i in order], 2) for one in gathered_parts]


def attend_balanced(q, keys, values):
    """Attention of a balanced part to all keys."""
    rank, size, n = dist.get_rank(), dist.get_world_size(), q.shape[2] // 2
    first, second = q.split(n, 2)
    return torch.cat((attend_to_first(first, keys, values, (rank + 1) * n),
                      attend_to_first(second, keys, values, (2 * size - rank) * n)), 2)


def balanced_attention(q, k, v):
    return attend_balanced(q, *in_order(*gathered(k, v)))


def heads_attention(q, k, v):
    size = dist.get_world_size()
    n_heads = [one.shape[1] // size for one in (q, k, v)]
    blocks = torch.cat([one.unflatten(1, (size, -1)).permute(1, 3, 2, 0, 4)
                        for one in (q, k, v)], 2)
    whole = Exchange.apply(blocks.flatten(0, 1), None, None).permute(2, 1, 0, 3)
    out = F.scaled_dot_product_attention(*whole.split(n_heads, 1), is_causal=True,
                                         enable_gqa=q.shape[1] != k.shape[1])
    parts = Exchange.apply(out.permute(2, 1, 0, 3), None, None).unflatten(0, (size, -1))
    return parts.permute(3, 0, 2, 1, 4).flatten(1, 2)
