# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Trains a small Llama on a mesh of two dimensions, tensor parallelism by styles and FSDP2 over the
other one, twice from the same weights: by PyTorch alone, and with ceoverlap's styles and
communication, which is two changed names and one more line. Compares the losses of each step; then
PyTorch alone loads the checkpoint that the other one wrote, into a whole model and into one that is
sharded, and all bits have to be the same.

    torchrun --nproc-per-node 4 torch_llama.py --device cpu --steps 4
    torchrun --nproc-per-node 8 torch_llama.py --hidden 2048 --heads 16 --layers 8 --steps 200

--tensor is the number of ranks that share a layer's features and the sequence; the others have
batches of their own."""

import argparse
import contextlib
import os
import shutil
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_model_state_dict,
                                                     get_state_dict, set_state_dict)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel, SequenceParallel,
                                               parallelize_module)

from ceoverlap.torch import Group, fsdp, parallel

# How far two losses may be apart that differ by the order of sums alone: numbers in bf16 are 0.4 %
# apart, and steps add to it, because Adam divides gradients by their own size.
NOISE = 2e-2

# --- the model --------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, hidden, n_heads):
        super().__init__()
        self.width = hidden // n_heads
        self.q, self.k, self.v, self.out = (nn.Linear(hidden, hidden, bias=False)
                                            for _ in range(4))

    def forward(self, x):
        q, k, v = (linear(x).unflatten(-1, (-1, self.width)).transpose(1, 2)
                   for linear in (self.q, self.k, self.v))      # of this rank's heads
        q, k = turned(q), turned(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


def turned(x):
    """Rotary embeddings: pairs of numbers, turned by angles that grow with the place."""
    length, width = x.shape[-2:]
    rates = 10000 ** -(torch.arange(0, width, 2, device=x.device) / width)
    angles = torch.arange(length, device=x.device)[:, None] * rates
    first, second = x.float().chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, hidden, n_heads, ffn):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.attention = Attention(hidden, n_heads)
        self.gate, self.up = (nn.Linear(hidden, ffn, bias=False) for _ in range(2))
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        y = self.ffn_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.embedding = nn.Embedding(options.vocab, options.hidden)
        self.layers = nn.ModuleList(Layer(options.hidden, options.heads, options.ffn)
                                    for _ in range(options.layers))
        self.norm = nn.RMSNorm(options.hidden)
        self.head = nn.Linear(options.hidden, options.vocab, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def whole_model(options, seed):
    """The same at all ranks."""
    torch.manual_seed(seed)
    with torch.device(options.device):
        return Llama(options)


# --- two ways -----------------------------------------------------------------------------


def plan_of(column, row):
    """Between layers each rank has its part of the sequence. Styles of ceoverlap leave the embedding
    and the head, whose result is whole, to PyTorch's."""
    norm = SequenceParallel(use_local_output=True)
    plan = {"embedding": row(input_layouts=Replicate(), output_layouts=Shard(1)), "norm": norm,
            "head": column(input_layouts=Shard(1), output_layouts=Replicate())}
    for name in ("attention.q", "attention.k", "attention.v", "gate", "up"):
        plan[f"layers.*.{name}"] = column(input_layouts=Shard(1))
    for name in ("attention.out", "down"):
        plan[f"layers.*.{name}"] = row(output_layouts=Shard(1))
    for name in ("attention_norm", "ffn_norm"):
        plan[f"layers.*.{name}"] = norm
    return plan


class Way:
    """A model that is divided over the mesh, its optimizer, and what it did."""

    def __init__(self, name, mesh, options, seed, styles):
        self.name, self.options = name, options
        self.model = whole_model(options, seed)
        parallelize_module(self.model, mesh["tensor"], plan_of(*styles))
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        for layer in self.model.layers:
            fully_shard(layer, mesh=mesh["data"], mp_policy=policy)
        fully_shard(self.model, mesh=mesh["data"], mp_policy=policy)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=options.rate)
        self.losses, self.times_ms = [], []

    def step(self, tokens, mesh):
        before = time.perf_counter()
        logits = self.model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        loss = loss.detach().clone()
        dist.all_reduce(loss, group=mesh["data"].get_group())
        self.losses.append(loss.item() / mesh["data"].size())   # which waits for the device
        self.times_ms.append((time.perf_counter() - before) * 1e3)


def theirs(mesh, options, seed):
    return Way("PyTorch", mesh, options, seed, (ColwiseParallel, RowwiseParallel))


def ours(mesh, options, seed):
    way = Way("ceoverlap", mesh, options, seed,
              (parallel.ColwiseParallel, parallel.RowwiseParallel))
    way.handle = fsdp.enable(way.model)
    return way


def tokens_of(step, rank, options):
    """Sequences that count on by a step of their own, from anywhere: what follows can be learned."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    first, by = (torch.randint(low, high, (options.batch, 1), generator=generator)
                 for low, high in ((0, options.vocab), (1, 4)))
    places = torch.arange(options.seq + 1)
    return ((first + by * places) % options.vocab).to(options.device)


def train(ways, mesh, options):
    """All ways by turns, with the same tokens. Prints losses."""
    for step in range(options.steps):
        tokens = tokens_of(step, mesh["data"].get_local_rank(), options)
        for way in ways:
            way.step(tokens, mesh)
        if dist.get_rank() == 0 and (step % options.every == 0 or step == options.steps - 1):
            print(f"step {step}: " + ", ".join(f"{way.name} {way.losses[-1]:.5f}"
                                               for way in ways), flush=True)


# --- the checkpoint -----------------------------------------------------------------------


@contextlib.contextmanager
def folder_of(options):
    """A folder of all ranks, which is gone afterwards unless the user has named it."""
    made = [options.checkpoint or (tempfile.mkdtemp() if dist.get_rank() == 0 else None)]
    dist.broadcast_object_list(made, 0, device=torch.device(options.device))
    yield made[0]
    dist.barrier()
    if not options.checkpoint and dist.get_rank() == 0:
        shutil.rmtree(made[0])


def save(way, path):
    model, optimizer = get_state_dict(way.model, way.optimizer)
    dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=path)


def load(way, path):
    model, optimizer = get_state_dict(way.model, way.optimizer)
    state = {"model": model, "optimizer": optimizer}
    dcp.load(state, checkpoint_id=path)
    set_state_dict(way.model, way.optimizer, model_state_dict=state["model"],
                   optim_state_dict=state["optimizer"])


def differing(a, b, name=""):
    """Names of what differs in two states, tensors by any bit."""
    if isinstance(a, dict):
        if a.keys() != b.keys():
            return [f"{name}: keys"]
        return [one for key in a for one in differing(a[key], b[key], f"{name}.{key}")]
    if isinstance(a, (list, tuple)):
        return differing(dict(enumerate(a)), dict(enumerate(b)), name)
    if isinstance(a, DTensor) and isinstance(b, DTensor):
        a, b = a.full_tensor(), b.full_tensor()
    same = torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
    return [] if same else [name]


def compare_checkpoint(way, mesh, options):
    """Returns what is not the same after PyTorch alone has loaded the way's checkpoint."""
    with folder_of(options) as path:
        save(way, path)
        sharded = theirs(mesh, options, options.seed + 1)
        load(sharded, path)
        plain = whole_model(options, options.seed + 2)
        state = {"model": plain.state_dict()}
        dcp.load(state, checkpoint_id=path)
    whole = get_model_state_dict(way.model, options=StateDictOptions(full_state_dict=True))
    wrong = differing(get_state_dict(way.model, way.optimizer),
                      get_state_dict(sharded.model, sharded.optimizer), "sharded")
    return wrong + differing(whole, state["model"], "whole")


# --- the program --------------------------------------------------------------------------


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split(".")[0])
    for name, default in (("layers", 2), ("hidden", 64), ("heads", 4), ("ffn", 0), ("vocab", 128),
                          ("seq", 32), ("batch", 4), ("steps", 20), ("every", 1), ("tensor", 2),
                          ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--backend", help="of torch.distributed, NCCL or Gloo if none is named: "
                        "with cpu:ceov or cuda:ceov all of PyTorch's calls are ceoverlap's, too")
    parser.add_argument("--checkpoint", help="a folder that all ranks see, which is kept")
    options = parser.parse_args()
    options.ffn = options.ffn or options.hidden * 7 // 2
    return options


def report(ways, wrong, handle):
    """Prints what was found on rank 0. Returns whether all is right."""
    apart = max(abs(a - b) / max(a, 1) for a, b in zip(*(way.losses for way in ways)))
    if dist.get_rank() == 0:
        print(f"losses are at most {apart:.1e} apart, large ones of themselves; bf16's noise is "
              f"{NOISE:.0e}")
        for way in ways:
            print(f"{way.name}: {statistics.median(way.times_ms):.1f} ms a step (median)")
        print(f"FSDP2's first group: {handle.stats[0]}")
        print(f"checkpoint: {wrong or 'all bits are the same'}", flush=True)
    return apart <= NOISE and not wrong


def main():
    options = parse()
    if options.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    else:
        torch.set_num_threads(1)
    dist.init_process_group(options.backend or ("nccl" if options.device == "cuda" else "gloo"))
    mesh = init_device_mesh(options.device, (dist.get_world_size() // options.tensor,
                                             options.tensor), mesh_dim_names=("data", "tensor"))
    ways = [theirs(mesh, options, options.seed), ours(mesh, options, options.seed)]
    train(ways, mesh, options)
    is_right = report(ways, compare_checkpoint(ways[1], mesh, options), ways[1].handle)
    ways[1].handle.disable()
    for dimension in ("data", "tensor"):
        Group.of(mesh[dimension].get_group(), options.device).close()
    dist.destroy_process_group()
    if not is_right:
        raise SystemExit("losses or the checkpoint differ: see above")


if __name__ == "__main__":
    main()
