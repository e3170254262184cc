# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""A mixture of experts and attention over a sequence that ranks share, forward and backward, by
ceoverlap.torch and by PyTorch with NCCL: device time by events and time of the calling thread,
medians over rounds that take all ways in turn, the largest of all ranks.

    CUDA_MODULE_LOADING=EAGER torchrun --nproc-per-node 2 bench/torch_layers.py

Without EAGER each run of the experts' operators is waited for, and times say that.
"""

import argparse
import json
import os

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right

import ceoverlap.torch as ct
from torch_calls import WARMUP, measured, median_of_ranks

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
    own = torch.bincount(ids, minlength=n_experts).view(size, -1)
    theirs = torch.empty_like(own)
    dist.all_to_all_single(theirs, own)
    return own, theirs


def mixture_by_torch(x, ids, weights, experts, n_experts):
    """Copies sorted by expert go to their ranks; numbers of rows come to the host. Experts are as
    those of ct.moe()."""
    size, top_k = dist.get_world_size(), ids.shape[1]
    order = ids.flatten().argsort(stable=True)
    own, theirs = counts_of(ids.flatten(), n_experts, size)
    sent, received = torch.stack((own.sum(1), theirs.sum(1))).tolist()
    rows = Exchange.apply(x.index_select(0, order // top_k), sent, received)
    number = torch.arange(theirs.numel(), device=x.device) % theirs.shape[1]
    by_expert = number.repeat_interleave(theirs.flatten(), output_size=sum(received))
    by_expert = by_expert.argsort(stable=True)
    made = experts(rows.index_select(0, by_expert), theirs.sum(0).cumsum(0).to(torch.int32))
    back = Exchange.apply(torch.zeros_like(made).index_copy(0, by_expert, made), received, sent)
    copies = torch.zeros_like(back).index_copy(0, order, back).view(*ids.shape, -1)
    return (copies * weights[..., None].to(copies.dtype)).sum(1)


def mixtures(options, group):
    device, n_experts = group.device, options.experts
    local = n_experts // group.size
    experts = ct.SwiGLUExperts(local, options.hidden, options.ffn, device, torch.bfloat16)
    n, top_k = options.tokens, options.top_k
    x = torch.randn(n, options.hidden, device=device, dtype=torch.bfloat16, requires_grad=True)
    weights, ids = torch.randn(n, n_experts, device=device).softmax(-1).topk(top_k, -1)
    weights = weights.detach().requires_grad_()
    n_received = int(n * top_k * options.room)
    grad = torch.randn_like(x)
    leaves = [x, weights, *experts.parameters()]

    def timed(call):
        def run():
            y = call()
            return [y.detach(), *torch.autograd.grad(y, leaves, grad)]
        return run
    return {
        "experts operator": timed(lambda: ct.moe(x, ids, weights, experts, n_experts, group,
                                                 n_received=n_received)),
        "experts torch.distributed": timed(lambda: mixture_by_torch(x, ids, weights, experts,
                                                                    n_experts)),
    }


# --- attention ---------------------------------------------------------------------------


def attend_to_first(q, k, v, n):
    """Attention to the first n keys, the last of which is at the place of the last query."""
    return F.scaled_dot_product_attention(
        q, k[:, :, :n], v[:, :, :n], attn_mask=causal_lower_right(q.shape[2], n),
        enable_gqa=q.shape[1] != k.shape[1])


def gathered(q, k, v):
    """All keys and values in the order in which ranks have them, batch x heads x length x width."""
    pairs = torch.stack((k.permute(2, 0, 1, 3), v.permute(2, 0, 1, 3)), 1)
    return Gather.apply(pairs).permute(1, 2, 3, 0, 4).unbind(0)


def gathered_attention(q, k, v):
    return attend_to_first(q, *gathered(q, k, v), (dist.get_rank() + 1) * q.shape[2])


def balanced_attention(q, k, v):
    rank, size, n = dist.get_rank(), dist.get_world_size(), q.shape[2] // 2
    order = [2 * r for r in range(size)] + [2 * r + 1 for r in reversed(range(size))]
    keys, values = (torch.cat([one.split(n, 2)[i] for i in order], 2)
                    for one in gathered(q, k, v))
    first, second = q.split(n, 2)
    return torch.cat((attend_to_first(first, keys, values, (rank + 1) * n),
                      attend_to_first(second, keys, values, (2 * size - rank) * n)), 2)


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


def attentions(options, group):
    def parts(n_heads):
        return torch.randn(1, n_heads, options.sequence // group.size, options.width,
                           device=group.device, dtype=torch.bfloat16, requires_grad=True)

    leaves = parts(options.heads), parts(options.key_heads), parts(options.key_heads)
    grad = torch.randn_like(leaves[0])

    def timed(call, **how):
        def run():
            y = call(*leaves, **how)
            return [y.detach(), *torch.autograd.grad(y, leaves, grad)]
        return run
    return {
        "ring operator": timed(ct.ring_attention, group=group, is_causal=True),
        "ring torch.distributed": timed(gathered_attention),
        "balanced operator": timed(ct.ring_attention, group=group, is_causal=True,
                                   is_balanced=True),
        "balanced torch.distributed": timed(balanced_attention),
        "heads operator": timed(ct.all_to_all_attention, group=group, is_causal=True),
        "heads torch.distributed": timed(heads_attention),
    }


# --- rounds ------------------------------------------------------------------------------


def check(ways):
    """All of one first word agree, results and gradients, within bf16 noise."""
    first = {}
    for name, call in ways.items():
        results = [one.float() for one in call()]
        wanted = first.setdefault(name.split()[0], results)
        for i, (one, other) in enumerate(zip(results, wanted)):
            error = ((one - other).norm() / other.norm()).item()
            if not error < 0.02:
                raise SystemExit(f"{name}: result {i} differs by {error} of its norm")


def run(options, group):
    torch.manual_seed(group.rank)
    ways = {**mixtures(options, group), **attentions(options, group)}
    ways = {name: call for name, call in ways.items() if name.split()[0] in options.only}
    check(ways)
    times = {name: [] for name in ways}
    for i in range(WARMUP + options.rounds):
        for name, call in ways.items():
            sample = measured(call, options.calls, group)
            if i >= WARMUP:
                times[name].append(sample)
    return {name: [round(median_of_ranks(column, group), 1) for column in zip(*samples)]
            for name, samples in times.items()}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for name, default, what in (
            ("tokens", 4096, "of a rank, for the experts"), ("hidden", 2048, "of a token"),
            ("ffn", 768, "of an expert"), ("experts", 128, "of all ranks"),
            ("top-k", 8, "experts of a token"), ("sequence", 32768, "tokens of all ranks"),
            ("heads", 32, "of queries"), ("key-heads", 8, "of keys and values"),
            ("width", 128, "of a head"), ("rounds", 11, "that are measured"),
            ("calls", 4, "of a way in a round")):
        parser.add_argument(f"--{name}", type=int, default=default, help=what)
    parser.add_argument("--room", type=float, default=1.25, help="rows that a rank has room for, "
                        "as a multiple of what comes if all experts get as many")
    parser.add_argument("--only", nargs="+", default=["experts", "ring", "balanced", "heads"],
                        help="first words of the ways")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


def main():
    options = parse()
    is_gpu, n_gpus = torch.cuda.is_available(), torch.cuda.device_count()
    has_one_each = is_gpu and n_gpus >= int(os.environ["WORLD_SIZE"])
    if is_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % n_gpus)
    dist.init_process_group("nccl" if has_one_each else "gloo")     # NCCL shares no GPU
    group = ct.Group()
    with torch.cuda.stream(torch.cuda.Stream() if is_gpu else None):
        results = run(options, group)
    if group.rank == 0:
        loading = os.environ.get("CUDA_MODULE_LOADING", "")
        print(f"{group.size} ranks, {group.device.type}, bf16, CUDA_MODULE_LOADING={loading}: "
              f"{vars(options)}")
        print(f"{'':28} device us     CPU us")
        for name, (device_us, cpu_us) in results.items():
            print(f"{name:28}{device_us:10.1f} {cpu_us:10.1f}")
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump({**vars(options), "ranks": group.size, "loading": loading,
                           "us": results}, file)
    group.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
