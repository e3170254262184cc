# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Trains a small Llama-like model with PyTorch's FSDP2: with its own communication, with
NCCL's copy-engine mode where that runs, and with ceoverlap, step by step in turn.

    torchrun --nproc-per-node 4 torch_fsdp.py --layers 8 --hidden 4096

prints each step's losses, and at the end how long steps took and how much memory they held
at most. --profile also lists the kernels of all-gathers. Without GPUs it runs on the CPU
over gloo, if the model is small: --layers 2 --hidden 64 --vocab 256 --seq 32."""

import argparse
import os
import statistics
import time

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")      # before CUDA begins

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from ceoverlap.torch import Group, fsdp

HEAD = 128                              # width of an attention head, where hidden allows
MIB = 1 << 20

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

    def __init__(self, name, model, options):
        self.name = name
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate)
        self.times_ms, self.peak_bytes, self.other_bytes = [], 0, 0

    def step(self, tokens):
        loss = F.cross_entropy(self.model(tokens[:, :-1]).flatten(0, 1).float(),
                               tokens[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


def nccl_mesh(mesh):
    """A communicator that takes no SM where its memory allows it."""
    options = dist.ProcessGroupNCCL.Options()
    options.config.cta_policy = dist.ProcessGroupNCCL.NCCL_CTA_POLICY_ZERO
    group = dist.new_group(pg_options=options)
    return DeviceMesh.from_group(group, mesh.device_type)


def nccl_way(options, device, mesh):
    """FSDP2 with NCCL's copy engines; raises where this PyTorch cannot."""
    model = sharded_model(options, device, nccl_mesh(mesh))
    for module in model.modules():
        if isinstance(module, FSDPModule):
            if hasattr(module, "set_symm_mem_for_comm"):
                module.set_symm_mem_for_comm()
            else:
                module.set_allocate_memory_from_process_group_for_comm(True)
            module.set_force_sum_reduction_for_comms(True)
    return Way("NCCL copy engines", model, options)


def all_ways(options, device, mesh):
    """([Way, ...], handle of the last one)."""
    ways = [Way("FSDP2", sharded_model(options, device, mesh), options)]
    if device.type == "cuda" and not options.without_nccl:
        try:
            ways.append(nccl_way(options, device, mesh))
        except (AttributeError, RuntimeError, AssertionError) as error:
            say(f"NCCL copy engines: skipped: {error}")
    elif device.type != "cuda":
        say("NCCL copy engines: skipped: no GPU")
    ours = Way("ceoverlap", sharded_model(options, device, mesh), options)
    handle = fsdp.enable(ours.model)
    return ways + [ours], handle


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
    """Returns the loss, the mean over ranks."""
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
    return loss.item() / dist.get_world_size()


def train(ways, options, device):
    for step in range(options.warmup + options.steps):
        torch.manual_seed(1000 * step + dist.get_rank())
        tokens = torch.randint(options.vocab, (options.batch, options.seq + 1), device=device)
        losses = [measured_step(way, tokens, device, step >= options.warmup) for way in ways]
        say(f"step {step}: " + ", ".join(f"{way.name} {loss:.6f}"
                                         for way, loss in zip(ways, losses)) +
            f", difference {losses[-1] - losses[0]:+.2e}")


def kernels_of(way, tokens, device):
    """Names of the GPU kernels that all-gathers launched, with how many of each."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        way.step(tokens)
        finish(device)
    counts = {}
    pending = [event for event in profiler.events() if event.name.startswith(
        "FSDP::all_gather")]
    while pending:
        event = pending.pop()
        pending.extend(event.cpu_children)
        for kernel in event.kernels:
            counts[kernel.name] = counts.get(kernel.name, 0) + 1
    return counts


def profile_all(ways, options, device):
    tokens = torch.randint(options.vocab, (options.batch, options.seq + 1), device=device)
    for way in ways:
        say(f"{way.name}: what all-gathers of one step had the GPU do (copies included):")
        for name, n in sorted(kernels_of(way, tokens, device).items()):
            say(f"  {n:4d} x {name[:100]}")


def report(ways, handle):
    say(f"\n{'way':20} {'median ms':>10} {'least ms':>10} {'peak MiB':>10} "
        f"{'outside MiB':>12}")
    for way in ways:
        if not way.times_ms:
            continue
        say(f"{way.name:20} {statistics.median(way.times_ms):10.2f} "
            f"{min(way.times_ms):10.2f} {way.peak_bytes / MIB:10.0f} "
            f"{way.other_bytes / MIB:12.0f}")
    say("peak: PyTorch's allocator above what is there between steps; outside: memory of the "
        "GPU that others allocated during its steps\n")
    for stats in handle.stats[:2]:
        say(stats)


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
    parser.add_argument("--profile", action="store_true")
    return parser.parse_args()


def main():
    options = parse()
    rank = int(os.environ["LOCAL_RANK"])
    is_gpu = torch.cuda.is_available()
    device = torch.device("cuda", rank) if is_gpu else torch.device("cpu")
    if is_gpu:                          # communicators are made at once: NCCL's pools want that
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    ways, handle = all_ways(options, device, mesh)
    train(ways, options, device)
    if options.profile:
        profile_all(ways, options, device)
    report(ways, handle)
    handle.check()
    handle.disable()
    Group.of(mesh.get_group()).close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
