# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""A mixture of experts and attention over a sequence that ranks share, forward and backward, by
ceoverlap.torch and by PyTorch with NCCL: device time by events and time of the calling thread,
medians over rounds that take all ways in turn, the largest of all ranks.

    CUDA_MODULE_LOADING=EAGER torchrun --nproc-per-node 2 bench/torch_layers.py

Without EAGER each run of the experts' operators is waited for, and times say that. With --table,
forward passes at the shapes of models instead, beside what computing and communication take alone:
see torch_workloads.py.
"""

import argparse
import json
import os

import torch

import ceoverlap.torch as ct
import torch_workloads
from torch_calls import measured_in_turn, opened_group
from torch_peers import (balanced_attention, gathered_attention, heads_attention,
                         mixture_by_torch)

# --- mixture of experts ------------------------------------------------------------------


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
    return measured_in_turn(ways, options, group)


def run_tables(options, group):
    """The rows of the named workloads, one after another, as torch_workloads.row_of() has them."""
    rows = []
    for workload in torch_workloads.named(options.table):
        torch.manual_seed(group.rank)
        with torch.no_grad():
            ways = workload.ways(options, group, *workload.shape)
            if options.graph:
                ways = torch_workloads.captured(ways)
            torch_workloads.agree(workload, ways)
            rows.append(torch_workloads.row_of(workload, measured_in_turn(ways, options, group),
                                               options.graph))
        if group.rank == 0:
            torch_workloads.show(rows[-1])
        del ways
        if group.is_gpu:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
    return rows


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
    parser.add_argument("--table", nargs="+", metavar="NAME", help="named workloads instead: "
                        "all that have this name, or begin with it and a slash, of " + ", ".join(
                            one.name for one in torch_workloads.WORKLOADS))
    parser.add_argument("--graph", action="store_true", help="capture each way of the named "
                        "workloads, and measure replays; ag_moe and sp_attn alone can be captured "
                        "by all ways")
    parser.add_argument("--groups", type=int, nargs="+", default=[2, 4], help="numbers of groups "
                        "of experts that ep_moe tries beside one")
    parser.add_argument("--spare-sms", type=int, default=0, help="further ways of ag_moe and of "
                        "ep_moe with groups, whose products leave so many SMs to the kernels of "
                        "moves and dispatches, which else wait for their end")
    parser.add_argument("--shrink", type=int, default=1, help="divide the named workloads' sizes "
                        "by this, to try them on the host")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    torch_workloads.named(options.table or [])          # refuses wrong names
    return options


def report(options, group, results):
    """Prints what run() has measured, and writes it, or the rows of run_tables(), as JSON."""
    loading = os.environ.get("CUDA_MODULE_LOADING", "")
    print(f"{group.size} ranks, {group.device.type}, bf16, CUDA_MODULE_LOADING={loading}: "
          f"{vars(options)}")
    if not options.table:
        print(f"{'':28} device us     CPU us")
        for name, (device_us, cpu_us) in results.items():
            print(f"{name:28}{device_us:10.1f} {cpu_us:10.1f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({**vars(options), "ranks": group.size, "loading": loading,
                       "rows" if options.table else "us": results}, file)


def main():
    options = parse()
    with opened_group() as group:
        results = (run_tables if options.table else run)(options, group)
        if group.rank == 0:
            report(options, group, results)


if __name__ == "__main__":
    main()
