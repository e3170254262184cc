# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Trains a small Llama-like model with PyTorch's FSDP2: with its own communication, with
all-gathers on NCCL's copy engines where those run (torch_fsdp_nccl.py), and with ceoverlap,
each step by all of them, in random order.

    torchrun --nproc-per-node 4 torch_fsdp.py --layers 8 --hidden 4096

prints each step's losses, and at the end how long steps took and how much memory they held
at most. --profile also lists what all-gathers had the GPU do. --parts trains with ceoverlap's
all-gathers alone and with its reduce-scatters alone, too, which tells which of both costs time.
Without GPUs it runs on the CPU over gloo, if the model is small: --layers 2 --hidden 64
--vocab 256 --seq 32. Where there are fewer GPUs than ranks, these share them, over gloo and with a
small model: that compares losses, and says nothing of speed."""

import argparse
import dataclasses
import json
import os
import random
import statistics
import time

# A communicator, or a window, is there when the call returns.
os.environ.setdefault("TORCH_NCCL_USE_COMM_NONBLOCKING", "0")

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.profiler import ProfilerActivity, profile

import torch_fsdp_nccl
import torch_fsdp_profile
from ceoverlap.torch import Group, fsdp

HEAD = 128                              # width of an attention head, where hidden allows
MIB = 1 << 20
SHARED = {"layers": 2, "hidden": 256, "vocab": 1000, "seq": 128, "steps": 5, "warmup": 2}

# --- the model --------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.n_heads = max(hidden // HEAD, 1)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x):
        batch, length, hidden = x.shape
        q, k, v = (part.view(batch, length, self.n_heads, -1).transpose(1, 2)
                   for part in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, hidden))


class Layer(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        wide = hidden * 7 // 2
        self.norms = nn.ModuleList(nn.RMSNorm(hidden) for _ in range(2))
        self.attention = Attention(hidden)
        self.gate = nn.Linear(hidden, wide, bias=False)
        self.up = nn.Linear(hidden, wide, bias=False)
        self.down = nn.Linear(wide, hidden, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.embedding = nn.Embedding(options.vocab, options.hidden)
        self.layers = nn.ModuleList(Layer(options.hidden) for _ in range(options.layers))
        self.norm = nn.RMSNorm(options.hidden)
        self.head = nn.Linear(options.hidden, options.vocab, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def sharded_model(options, device, mesh):
    """The same numbers in every call, in fp32; computed with in bf16."""
    torch.manual_seed(options.seed)
    with device:
        model = Model(options)
    policy = MixedPrecisionPolicy(torch.bfloat16, getattr(torch, options.reduce_dtype))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


# --- ways to communicate ------------------------------------------------------------------


class Way:
    """A model, how it communicates, and what was measured of it."""

    def __init__(self, name, model, options, close=lambda: None):
        self.name = name
        self.model = model
        self.close = close              # gives back what the way has beside the model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate)
        self.times_ms, self.losses, self.profile, self.unshard_us = [], [], {}, None
        self.peak_bytes, self.other_bytes, self.kept_bytes = 0, 0, 0

    def step(self, tokens):
        loss = backward(self.model, tokens)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


def backward(model, tokens):
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1).float(),
                           tokens[:, 1:].flatten())
    loss.backward()
    return loss


def random_tokens(options, device):
    return torch.randint(options.vocab, (options.batch, options.seq + 1), device=device)


def nccl_way(options, device):
    """Raises torch_fsdp_nccl.Unavailable where NCCL launches kernels all the same."""
    tokens = random_tokens(options, device)

    def step_of(model):
        backward(model, tokens)
        model.zero_grad()

    model, gather, how = torch_fsdp_nccl.copy_engine_model(
        lambda mesh: sharded_model(options, device, mesh), step_of, device)
    say(f"NCCL copy engines: no all-gather kernel in a profiled step; {how}, "
        f"{gather.n_bytes / MIB:.0f} MiB of windows kept")
    way = Way("NCCL copy engines", model, options, gather.close)
    way.kept_bytes = gather.n_bytes
    return way


def our_ways(options, device, mesh):
    """([Way, ...], their handles); the last one has all communication of ceoverlap."""
    asked = {"ceoverlap": {}}
    if options.parts:
        asked = {"our all-gathers": {"scatter": False}, "our sums": {"gather": False}, **asked}
    ways = [Way(name, sharded_model(options, device, mesh), options) for name in asked]
    handles = [fsdp.enable(way.model, **parts) for way, parts in zip(ways, asked.values())]
    return ways, handles


def all_ways(options, device, mesh):
    """([Way, ...], handles of the last ones, {way: why it was skipped})."""
    ways = [Way("FSDP2", sharded_model(options, device, mesh), options)]
    skipped = {}
    try:
        if device.type != "cuda":
            raise torch_fsdp_nccl.Unavailable("no GPU")
        if shares_gpus():
            raise torch_fsdp_nccl.Unavailable("ranks share a GPU, which NCCL refuses")
        if not options.without_nccl:
            ways.append(nccl_way(options, device))
    except torch_fsdp_nccl.Unavailable as reason:
        skipped["NCCL copy engines"] = str(reason)
        say(f"NCCL copy engines: skipped: {reason}")
    ours, handles = our_ways(options, device, mesh)
    return ways + ours, handles, skipped


# --- measuring ----------------------------------------------------------------------------


def say(*text):
    if dist.get_rank() == 0:
        print(*text, flush=True)


def used_elsewhere(device):
    """Bytes of the GPU that PyTorch's allocator does not hold."""
    if device.type != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info(device)
    return total - free - torch.cuda.memory_reserved(device)


def finish(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measured_step(way, tokens, device, is_warm):
    """The way gets its loss, the mean over ranks, and what else is measured."""
    dist.barrier()
    finish(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before_bytes = torch.cuda.memory_allocated(device)
    elsewhere = used_elsewhere(device)
    begin = time.perf_counter()
    loss = way.step(tokens)
    finish(device)
    if is_warm:
        way.times_ms.append((time.perf_counter() - begin) * 1e3)
    if device.type == "cuda":
        way.peak_bytes = max(way.peak_bytes,
                             torch.cuda.max_memory_allocated(device) - before_bytes)
    way.other_bytes += max(used_elsewhere(device) - elsewhere, 0)
    loss = loss.detach().clone()
    dist.all_reduce(loss)
    way.losses.append(loss.item() / dist.get_world_size())


def train(ways, options, device):
    for step in range(options.warmup + options.steps):
        torch.manual_seed(1000 * step + dist.get_rank())
        tokens = random_tokens(options, device)
        # in another order each time: what ran before has warmed the GPU, or let it cool
        for way in random.Random(step).sample(ways, len(ways)):
            measured_step(way, tokens, device, step >= options.warmup)
        say(f"step {step}: " + ", ".join(f"{way.name} {way.losses[-1]:.6f}" for way in ways) +
            f", difference {ways[-1].losses[-1] - ways[0].losses[-1]:+.2e}")


def largest_difference(way, reference):
    """Of the losses, over all steps."""
    return max((abs(x - y) for x, y in zip(way.losses, reference.losses)), default=0.0)


def profile_all(ways, options, device):
    tokens = random_tokens(options, device)
    for way in ways:
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            way.step(tokens)
            finish(device)
        way.profile = torch_fsdp_profile.gather_work(profiler.events())
        say(f"{way.name}: what all-gathers of one step had the GPU do:")
        for part, work in sorted(way.profile.items()):
            say(f"  {part}: {torch_fsdp_profile.kernel_us(work):.0f} us of kernels, "
                f"{sum(us for _, us in work.values()):.0f} us in all")
            for name, (n, us) in sorted(work.items()):
                say(f"    {n:4d} x {us:9.0f} us  {name[:90]}")
    if device.type == "cuda":
        time_gathers(ways, device)


def time_gathers(ways, device):
    """Of the last layer, whose parameters the pass before leaves sharded. By PyTorch and by
    ceoverlap: NCCL's windows are bound to the streams of a training step."""
    ways = [ways[0], ways[-1]]
    times = torch_fsdp_profile.median_unshard_us([way.model.layers[-1] for way in ways], device)
    for way, us in zip(ways, times):
        way.unshard_us = us
        say(f"{way.name}: a layer's all-gather by itself, copy-in and copy-out with it: "
            f"{us:.0f} us")


# --- results --------------------------------------------------------------------------------


def report(ways, handle):
    if shares_gpus():
        say(f"\n{torch.cuda.device_count()} GPU(s) for {dist.get_world_size()} ranks, which "
            "take turns: the times below say nothing of speed")
    say(f"\n{'way':20} {'median ms':>10} {'least ms':>10} {'peak MiB':>10} "
        f"{'outside MiB':>12} {'difference':>11}")
    for way in ways:
        if not way.times_ms:
            continue
        say(f"{way.name:20} {statistics.median(way.times_ms):10.2f} "
            f"{min(way.times_ms):10.2f} {way.peak_bytes / MIB:10.0f} "
            f"{way.other_bytes / MIB:12.0f} {largest_difference(way, ways[0]):11.2e}")
    say("peak: PyTorch's allocator above what is there between steps; outside: memory of the "
        "GPU that others allocated during its steps; difference: the largest of a loss from "
        f"{ways[0].name}'s, over {len(ways[0].losses)} steps\n")
    for stats in handle.stats[:2]:
        say(stats)


def write_json(path, options, found, handle):
    """All figures of this rank; found: (ways, {way: why it was skipped})."""
    ways, skipped = found
    figures = {"options": vars(options), "ranks": dist.get_world_size(),
               "torch": torch.__version__, "skipped": skipped,
               "ways": {way.name: {
                   "step_ms": way.times_ms, "losses": way.losses,
                   "largest_difference": largest_difference(way, ways[0]),
                   "peak_bytes": way.peak_bytes, "outside_bytes": way.other_bytes,
                   "kept_bytes": way.kept_bytes,        # its windows, in no peak
                   "all_gathers": way.profile, "unshard_us": way.unshard_us}
                        for way in ways},
               "stats": [dataclasses.asdict(stats) for stats in handle.stats]}
    if torch.cuda.is_available():
        figures["device"] = torch.cuda.get_device_name()
        figures["shares_gpus"] = shares_gpus()
        figures["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    with open(path, "w", encoding="ascii") as file:
        json.dump(figures, file, indent=1)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for name, default in (("layers", 8), ("hidden", 4096), ("vocab", 32000), ("seq", 2048),
                          ("batch", 1), ("steps", 20), ("warmup", 5), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--reduce-dtype", default="float32",
                        choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--without-nccl", action="store_true",
                        help="no NCCL copy engines beside")
    parser.add_argument("--profile", action="store_true",
                        help="list the GPU's work for one step's all-gathers")
    parser.add_argument("--parts", action="store_true",
                        help="also our all-gathers alone, and our reduce-scatters alone")
    parser.add_argument("--json", help="file for all figures")
    if shares_gpus():
        parser.set_defaults(**SHARED)
    return parser.parse_args()


def shares_gpus():
    """Whether there are GPUs, but fewer than ranks."""
    return 0 < torch.cuda.device_count() < int(os.environ["LOCAL_WORLD_SIZE"])


def begin():
    """The process group; this rank's device."""
    device = torch.device("cpu")
    if torch.cuda.is_available():
        rank = int(os.environ["LOCAL_RANK"])
        device = torch.device("cuda", rank % torch.cuda.device_count())
        torch.cuda.init()
        torch.cuda.set_device(device)
    if device.type == "cpu" or shares_gpus():
        dist.init_process_group("gloo")
    else:                               # communicators are made at once: NCCL's pools want that
        dist.init_process_group("nccl", device_id=device)
    return device


def main():
    options = parse()
    device = begin()
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    ways, handles, skipped = all_ways(options, device, mesh)
    train(ways, options, device)
    report(ways, handles[-1])
    if options.profile:
        profile_all(ways, options, device)
    if options.json and dist.get_rank() == 0:
        write_json(options.json, options, (ways, skipped), handles[-1])
    for handle in handles:
        handle.check()
        handle.disable()
    for way in ways:
        way.close()
    Group.of(mesh.get_group()).close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
