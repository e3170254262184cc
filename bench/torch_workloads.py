# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Named workloads of torch_layers.py: forward passes at the shapes of models, by ceoverlap.torch,
by PyTorch with torch.distributed, and what either part takes alone.

    operator           ceoverlap.torch
    torch.distributed  the collective, then the products or attention, or the other way round
    compute            the latter's products or attention alone, on what is there already
    communication      the latter's collectives of tokens alone, without those of routing

A call of "operator" hides all that it can where it takes as long as the longer one of the last two,
which the table calls ideal."""

import functools
import math
from typing import Callable, Dict, NamedTuple

import torch
import torch.distributed as dist
from torch.nn import functional as F

import ceoverlap.torch as ct
from torch_peers import (attend_balanced, balanced_attention, counts_of, gathered, in_order,
                         mixture_by_torch)

STEP = 8                                # what widths are multiples of
ROOM = 1.25                             # rows for which experts have room, of those expected ...
SPREAD = 6                              # ... or so many standard deviations more, if that is more
PARTS = ("compute", "communication")    # ways that are no peers

# PyTorch 2.10 shows it to all.
grouped_mm = getattr(F, "grouped_mm", None) or torch._grouped_mm
Ways = Dict[str, Callable[[], torch.Tensor]]


class Workload(NamedTuple):
    """A row: its name, what makes its ways, and the latter's shape."""
    name: str
    ways: Callable[..., Ways]
    shape: tuple


def smaller(x: int, factor: int, step: int = STEP) -> int:
    """Returns x divided by a factor, as a multiple of step, and not 0."""
    return max(x // factor // step, 1) * step


def random(group, *shape, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(*shape, device=group.device) * scale).bfloat16()


def routing(group, n: int, n_experts: int, top_k: int) -> torch.Tensor:
    """Experts of n tokens, all as likely."""
    return torch.rand(n, n_experts, device=group.device).topk(top_k, -1).indices.int()


def spared(n_sms: int, name: str, call) -> Ways:
    """Returns the call as a further way, in which its grouped products leave n_sms SMs to other
    kernels, by an experimental setting of PyTorch's. 0: no further way."""
    def sparing():
        torch._C._set_sm_carveout_experimental(n_sms)
        try:
            return call()
        finally:
            torch._C._set_sm_carveout_experimental(None)
    return {f"{name}, {n_sms} SMs spared": sparing} if n_sms else {}


# --- all-gather + grouped products ---------------------------------------------------------


def multiply_sorted(x: torch.Tensor, ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Returns each copy's product in the order of copies: by sort, grouped product, scatter."""
    keys, order = ids.flatten().sort(stable=True)
    numbers = torch.arange(len(weight), device=x.device, dtype=keys.dtype)
    ends = torch.searchsorted(keys, numbers, right=True, out_int32=True)
    made = grouped_mm(x.index_select(0, order // ids.shape[1]), weight, offs=ends)
    return torch.empty_like(made).index_copy_(0, order, made)


def ag_moe(options, group, m: int, columns: int, k: int, n_experts: int, top_k: int) -> Ways:
    """m tokens of all ranks; each rank has an equal part of the columns of every expert."""
    n = smaller(m // group.size, options.shrink)
    k, columns = smaller(k, options.shrink), smaller(columns // group.size, options.shrink)
    x, ids = random(group, n, k), routing(group, n, n_experts, top_k)
    weight = random(group, n_experts, k, columns, scale=k ** -0.5)
    all_x, all_ids = x.new_empty((n * group.size, k)), ids.new_empty((n * group.size, top_k))

    def gather():
        dist.all_gather_into_tensor(all_x, x)
        return all_x

    def one_after_the_other():
        gather()
        dist.all_gather_into_tensor(all_ids, ids)
        return multiply_sorted(all_x, all_ids, weight)

    def multiply(rows, ends):
        return grouped_mm(rows, weight, offs=ends)

    def operator():
        return ct.ag_moe(x, ids, multiply, n_experts, group).flatten(0, 1)

    one_after_the_other()
    return {
        "operator": operator,
        **spared(options.spare_sms, "operator", operator),
        "torch.distributed": one_after_the_other,
        "compute": lambda: multiply_sorted(all_x, all_ids, weight),
        "communication": gather,
    }


# --- dispatch, experts, combine ------------------------------------------------------------


def exchange_alone(x: torch.Tensor, ids: torch.Tensor, n_experts: int):
    """Returns a call that moves the copies' bytes to their experts' ranks and back, and the rows
    that each of this rank's experts gets."""
    own, theirs = counts_of(ids.flatten(), n_experts, dist.get_world_size())
    sent, received = own.sum(1).tolist(), theirs.sum(1).tolist()
    there, back = x.new_ones((sum(sent), x.shape[1])), x.new_empty((sum(received), x.shape[1]))

    def exchange():
        dist.all_to_all_single(back, there, received, sent)
        dist.all_to_all_single(there, back, sent, received)
        return there
    return exchange, theirs.sum(0)


def ep(options, group, n: int, hidden: int, n_experts: int, top_k: int, drop: float,
       ffn: int) -> Ways:
    """n tokens of each rank, of whose copies a share `drop` goes nowhere. ffn: of an expert; 0:
    experts return what they get, so that dispatch and combine are all."""
    n_experts -= n_experts % group.size                 # ranks have as many each
    n, hidden, ffn = (smaller(n, options.shrink), smaller(hidden, options.shrink),
                      ffn and smaller(ffn, options.shrink))
    x, ids = random(group, n, hidden), routing(group, n, n_experts, top_k)
    ids[torch.rand(ids.shape, device=ids.device) < drop] = -1
    expected = n * top_k * (1 - drop)
    sizes = {"capacity": 2 * n * top_k // group.size + STEP,
             "n_received": int(max(expected * ROOM, expected + SPREAD * math.sqrt(expected)))}
    exchange, counts = exchange_alone(x, ids, n_experts)
    if not ffn:
        def give_back(rows, _ends):
            return rows
        return {
            "operator": lambda: ct.moe(x, ids, None, give_back, n_experts, group, **sizes),
            "torch.distributed": lambda: mixture_by_torch(x, ids, None, give_back, n_experts),
            "communication": exchange,
        }
    local = n_experts // group.size
    experts = ct.SwiGLUExperts(local, hidden, ffn, group.device, torch.bfloat16)
    ends = counts.cumsum(0).to(torch.int32)
    rows = random(group, int(counts.sum()), hidden)
    ways = {"operator": lambda: ct.moe(x, ids, None, experts, n_experts, group, **sizes)}
    for n_groups in options.groups:
        if local % n_groups == 0 and n_groups > 1:
            parts, name = experts.groups(n_groups), f"operator, {n_groups} groups"
            ways[name] = functools.partial(ct.moe, x, ids, None, parts, n_experts, group,
                                           **sizes)
            ways.update(spared(options.spare_sms, name, ways[name]))
    return {
        **ways,
        "torch.distributed": lambda: mixture_by_torch(x, ids, None, experts, n_experts),
        "compute": lambda: experts(rows, ends),
        "communication": exchange,
    }


# --- attention over a sequence that ranks share ----------------------------------------------


def sp_attn(options, group, n_heads: int, length: int, width: int) -> Ways:
    """Causal, over one sequence in balanced parts."""
    n = smaller(length // group.size, options.shrink, 2 * STEP)
    n_heads = smaller(n_heads, options.shrink, 1)
    q, k, v = (random(group, 1, n_heads, n, width) for _ in range(3))
    pairs = torch.stack((k.permute(2, 0, 1, 3), v.permute(2, 0, 1, 3)), 1)
    all_pairs = pairs.new_empty((n * group.size, *pairs.shape[1:]))
    keys, values = in_order(*gathered(k, v))

    def gather():
        dist.all_gather_into_tensor(all_pairs, pairs)
        return all_pairs
    return {
        "operator": lambda: ct.ring_attention(q, k, v, group, is_causal=True, is_balanced=True),
        "torch.distributed": lambda: balanced_attention(q, k, v),
        "compute": lambda: attend_balanced(q, keys, values),
        "communication": gather,
    }


# --- the tables ----------------------------------------------------------------------------

AG_MOE = {                              # columns of an expert, k, experts, experts of a token
    "qwen1.5-moe": (1408, 2048, 60, 4),
    "mixtral-8x7b": (4096, 14336, 8, 2),
    "mixtral-8x22b": (6144, 16384, 8, 2),
    "deepseek-moe": (2048, 1408, 64, 6),
}
EP = ((8192, 7168, 256, 8, 0.0), (4096, 6144, 256, 6, 0.3))
EP_FFN = 2048
SP_ATTN = ((32, 8192, 128), (32, 65536, 128))

WORKLOADS = (
    *[Workload(f"ag_moe/{model}/{m}", ag_moe, (m, *shape))
      for model, shape in AG_MOE.items() for m in (2048, 8192)],
    *[Workload(f"ep_a2a/{shape[0]}", ep, (*shape, 0)) for shape in EP],
    *[Workload(f"ep_moe/{shape[0]}", ep, (*shape, EP_FFN)) for shape in EP],
    *[Workload(f"sp_attn/{shape[1]}", sp_attn, shape) for shape in SP_ATTN],
)


def named(names) -> list:
    """Returns the workloads that have one of the names, or begin with one and a slash; SystemExit
    if there is none of a name."""
    found = []
    for name in names:
        these = [one for one in WORKLOADS if f"{one.name}/".startswith(f"{name}/")]
        if not these:
            raise SystemExit(f"--table {name}: there are "
                             f"{', '.join(one.name for one in WORKLOADS)}")
        found += [one for one in these if one not in found]
    return found


def captured(ways: Ways) -> Ways:
    """Returns calls that each replay a CUDA graph of a way, and return what the graph makes. A way
    that returns another number of rows with other data cannot be captured, nor one that waits for
    the device."""
    replays = {}
    for name, call in ways.items():
        call()                          # what is made at first use, is made before the capture
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream(),
                              capture_error_mode="thread_local"):
            result = call()
        replays[name] = functools.partial(replayed, graph, call, result)
    return replays


def replayed(graph, _call, result: torch.Tensor) -> torch.Tensor:
    """_call keeps the operands, which the graph only has the addresses of."""
    graph.replay()
    return result


def agree(workload: Workload, ways: Ways) -> None:
    """All ways but the parts return the same, within bf16 noise; else SystemExit."""
    wanted = ways["torch.distributed"]().float()
    for name, call in ways.items():
        if name in PARTS:
            continue
        error = ((call().float() - wanted).norm() / wanted.norm()).item()
        if not error < 0.02:
            raise SystemExit(f"{workload.name}: {name} differs by {error} of the norm")


def row_of(workload: Workload, us: dict, is_graph: bool = False) -> dict:
    """Returns a row for JSON; us: for each way the device's and the calling thread's time."""
    return {"name": workload.name, "shape": list(workload.shape),
            "launch": "graph" if is_graph else "stream", "us": us,
            "ideal_us": max(us[part][0] for part in PARTS if part in us)}


def show(row: dict) -> None:
    """Prints a row: for each way its times, and of peers the ratio to the best operator."""
    best = min(times[0] for name, times in row["us"].items() if name.startswith("operator"))
    print(f"{row['name']} ({row['launch']}): ideal {row['ideal_us']:.1f} us, the best operator "
          f"{best:.1f} us")
    print(f"  {'':26} device us     CPU us   / best")
    for name, (device_us, cpu_us) in row["us"].items():
        print(f"  {name:26}{device_us:10.1f} {cpu_us:10.1f} {device_us / best:9.2f}")
