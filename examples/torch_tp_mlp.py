# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""A tensor-parallel MLP block (Llama's: gate, up, down), forward and backward, by PyTorch's
modules over NCCL, by the same compiled, with async-TP, and by ceoverlap.torch:

    torchrun --nproc-per-node 4 examples/torch_tp_mlp.py            # llama70b, bf16
    torchrun --nproc-per-node 2 examples/torch_tp_mlp.py --device cpu \\
        --hidden 64 --ffn 128 --tokens 32 --rounds 2

Each rank has its part of the tokens (sequence parallel). Rounds take all ways, in random
order, so that whatever else changes, changes for all. First outputs and gradients are
compared with those of PyTorch's modules; --loss-steps N also trains each way from the same
weights. Where there are fewer GPUs than ranks, these share them, with smaller sizes and over
gloo, which NCCL would refuse: that shows that results are right, and nothing of speed."""

import argparse
import functools
import json
import os
import random
import statistics
import time
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput,
                                               RowwiseParallel, parallelize_module)

import ceoverlap.torch as ct

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
NOISE = {torch.bfloat16: 2e-2, torch.float16: 5e-3, torch.float32: 1e-4}
REFERENCE = "dtensor"
SHARED = {"hidden": 1024, "ffn": 2048, "tokens": 512, "rounds": 3, "steps": 2}


class Mlp(nn.Module):

    def __init__(self, hidden, ffn, **options):
        super().__init__()
        self.gate = nn.Linear(hidden, ffn, bias=False, **options)
        self.up = nn.Linear(hidden, ffn, bias=False, **options)
        self.down = nn.Linear(ffn, hidden, bias=False, **options)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class OurMlp(Mlp):
    """The same; gate and up gather their input together."""

    def forward(self, x):
        gate, up = ct.ColumnParallelLinear.together([self.gate, self.up], x)
        return self.down(nn.functional.silu(gate) * up)


class Bench:
    """What all ways share: sizes, data, ways made so far."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.is_gpu = arguments.device == "cuda"
        self.shares_gpus = shares_gpus(arguments)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.device = (torch.device("cuda", torch.cuda.current_device()) if self.is_gpu
                       else torch.device("cpu"))
        self.dtype = DTYPES[arguments.dtype]
        self.mesh = torch.distributed.init_device_mesh(arguments.device, (self.size,))
        shape = (arguments.tokens // self.size, arguments.hidden)
        self.x = self.random(1 + self.rank, shape).requires_grad_()
        self.grad = self.random(1001 + self.rank, shape)
        self.ways, self.skipped = {}, {}

    def random(self, seed, shape):
        generator = torch.Generator(self.device).manual_seed(seed)
        return torch.randn(shape, generator=generator, device=self.device).to(self.dtype)

    def whole(self, kind):
        """The whole block, alike at all ranks."""
        torch.manual_seed(0)
        return kind(self.arguments.hidden, self.arguments.ffn, device=self.device,
                    dtype=self.dtype)

    def dtensor(self):
        """The input is gathered once for gate and up."""
        mlp = self.whole(Mlp)
        parallelize_module(mlp, self.mesh, PrepareModuleInput(
            input_layouts=(Shard(0),), desired_input_layouts=(Replicate(),)))
        return parallelize_module(mlp, self.mesh, {
            "gate": ColwiseParallel(), "up": ColwiseParallel(),
            "down": RowwiseParallel(output_layouts=Shard(0))}, src_data_rank=None)

    def ours(self):
        return ct.parallelize(self.whole(OurMlp), dist.group.WORLD,
                              {"gate": "column", "up": "column", "down": "row"})

    def compiled(self, make, **options):
        mlp = make()
        if not self.is_gpu:
            return torch.compile(mlp, backend="aot_eager")
        return torch.compile(mlp, options=options)

    def async_tp(self):
        if not self.is_gpu:
            raise RuntimeError("async-TP needs CUDA")
        if self.shares_gpus:
            raise RuntimeError("symmetric memory needs a GPU for each rank")
        from torch.distributed._symmetric_memory import enable_symm_mem_for_group

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            enable_symm_mem_for_group(self.mesh.get_group().group_name)
        return self.compiled(self.dtensor, _micro_pipeline_tp=True)

    def makers(self):
        return {REFERENCE: self.dtensor,
                "dtensor-compiled": functools.partial(self.compiled, self.dtensor),
                "async-tp": self.async_tp,
                "ceoverlap": self.ours,
                "ceoverlap-compiled": functools.partial(self.compiled, self.ours)}

    def make_ways(self, names):
        """Those that work at all ranks."""
        for name, make in self.makers().items():
            if names and name not in names + [REFERENCE]:
                continue
            reason, mlp = "", None
            try:
                mlp = make()
                for _ in range(self.arguments.warmup):
                    self.step(mlp)
                self.synchronize()
            except Exception as error:  # a way of somebody else's may fail by anything
                reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            told = [None] * self.size
            dist.all_gather_object(told, reason)
            reasons = [one for one in told if one]
            if reasons:
                self.skipped[name] = reasons[0]
            else:
                self.ways[name] = mlp

    def step(self, mlp):
        """Forward and backward; the result. The stream then waits for all of it."""
        self.x.grad = None
        for parameter in mlp.parameters():
            parameter.grad = None
        y = mlp(self.x)
        y.backward(self.grad)
        self.x.grad = arrived(self.x.grad)
        return arrived(y.detach())

    def synchronize(self):
        if self.is_gpu:
            torch.cuda.synchronize()


def arrived(tensor):
    """What an eager DTensor leaves may still be on its way, on NCCL's stream."""
    return tensor.wait() if isinstance(tensor, AsyncCollectiveTensor) else tensor


def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def results_of(bench, mlp):
    """Copies of the output and of all gradients."""
    y = bench.step(mlp)
    bench.synchronize()
    grads = {name.replace("_orig_mod.", ""): local(parameter.grad).clone()
             for name, parameter in mlp.named_parameters()}
    return {"y": y.clone(), "x.grad": bench.x.grad.clone(), **grads}


def relative(a, b):
    """|a - b| / |b|, summed over ranks."""
    sums = torch.stack([(a.float() - b.float()).square().sum(), b.float().square().sum()])
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).sqrt().item()


def compare(bench):
    """{way: {tensor: relative difference from PyTorch's modules}}"""
    expected = results_of(bench, bench.ways[REFERENCE])
    found = {}
    for name, mlp in bench.ways.items():
        got = results_of(bench, mlp)
        found[name] = {key: relative(got[key], expected[key]) for key in expected}
    return found


def measure(bench):
    """{way: (device us, CPU us)} of one step: medians over rounds of the slowest rank."""
    n_steps, times = bench.arguments.steps, {name: [] for name in bench.ways}
    for i in range(bench.arguments.rounds):
        # in another order each time: what ran before has warmed the GPU, or let it cool
        for name in random.Random(i).sample(list(times), len(times)):
            dist.barrier()
            bench.synchronize()
            times[name].append(timed(bench, bench.ways[name], n_steps))
    medians = {}
    for name, rounds in times.items():
        slowest = torch.tensor(rounds, device=bench.device)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        medians[name] = tuple(statistics.median(column) for column in slowest.t().tolist())
    return medians


def timed(bench, mlp, n_steps):
    """(device us, CPU us) of a step; without a GPU both are the same."""
    if bench.is_gpu:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
    before = time.perf_counter()
    for _ in range(n_steps):
        bench.step(mlp)
    cpu_us = (time.perf_counter() - before) * 1e6 / n_steps
    if not bench.is_gpu:
        return cpu_us, cpu_us
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e3 / n_steps, cpu_us


def train(bench, mlp):
    """Losses of the whole batch, step by step."""
    optimizer = torch.optim.SGD(mlp.parameters(), bench.arguments.lr)
    target = bench.random(2001 + bench.rank, bench.x.shape)
    losses = []
    for _ in range(bench.arguments.loss_steps):
        optimizer.zero_grad()
        loss = (mlp(bench.x.detach()).float() - target).square().sum()
        (loss / bench.arguments.tokens).backward()
        optimizer.step()
        loss = loss.detach() / (bench.arguments.tokens * bench.arguments.hidden)
        dist.all_reduce(loss)
        losses.append(loss.item())
    return losses


def report(bench, errors, times, losses):
    """The table, on rank 0; what JSON gets."""
    a = bench.arguments
    worst = {name: max(one.values()) for name, one in errors.items()}
    found = {"hidden": a.hidden, "ffn": a.ffn, "tokens": a.tokens, "dtype": a.dtype,
             "ranks": bench.size, "rounds": a.rounds, "steps": a.steps,
             "torch": torch.__version__, "skipped": bench.skipped, "errors": errors,
             "step_us": {name: one[0] for name, one in times.items()},
             "cpu_us": {name: one[1] for name, one in times.items()}, "losses": losses}
    if bench.is_gpu:
        found["device"] = torch.cuda.get_device_name()
        found["shares_gpus"] = bench.shares_gpus
    lines = [f"{bench.size} ranks, hidden {a.hidden}, ffn {a.ffn}, tokens {a.tokens}, "
             f"{a.dtype}"]
    if bench.shares_gpus:
        lines.append(f"{torch.cuda.device_count()} GPU(s) for {bench.size} ranks, which take "
                     "turns: times say nothing of speed, so none is compared")
    lines.append(f"{'way':20} {'step us':>10} {'CPU us':>10} {'speed':>7} {'difference':>11}")
    for name, (step_us, cpu_us) in times.items():
        speed = "-" if bench.shares_gpus else f"{times[REFERENCE][0] / step_us:.2f}"
        lines.append(f"{name:20} {step_us:10.1f} {cpu_us:10.1f} {speed:>7} "
                     f"{worst[name]:11.1e}")
    lines += [f"{name:20} skipped: {reason}" for name, reason in bench.skipped.items()]
    for name, curve in losses.items():
        apart = max(abs(x - y) for x, y in zip(curve, losses[REFERENCE]))
        lines.append(f"{name:20} loss {curve[0]:.6f} to {curve[-1]:.6f}, at most "
                     f"{apart:.1e} from {REFERENCE}")
    if bench.rank == 0:
        print("\n".join(lines), flush=True)
        if a.json:
            with open(a.json, "w", encoding="ascii") as file:
                json.dump(found, file, indent=1)
    return worst


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hidden", type=int, default=8192)
    parser.add_argument("--ffn", type=int, default=28672)
    parser.add_argument("--tokens", type=int, default=8192, help="of all ranks")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=5, help="of a way in each round")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--ways", nargs="*", help="only these, beside " + REFERENCE)
    parser.add_argument("--loss-steps", type=int, default=0)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--json", help="file for the figures")
    if shares_gpus(parser.parse_args()):
        parser.set_defaults(**SHARED)
    return parser.parse_args()


def shares_gpus(arguments):
    """Whether there are fewer GPUs than ranks."""
    return (arguments.device == "cuda" and
            int(os.environ["LOCAL_WORLD_SIZE"]) > torch.cuda.device_count())


def main():
    arguments = parse()
    is_gpu = arguments.device == "cuda"
    if is_gpu:
        torch.cuda.init()
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if is_gpu and not shares_gpus(arguments) else "gloo")
    bench = Bench(arguments)
    bench.make_ways(arguments.ways)
    errors = compare(bench)
    times = measure(bench)
    losses = {name: train(bench, mlp) for name, mlp in bench.ways.items()
              } if arguments.loss_steps else {}
    worst = report(bench, errors, times, losses)
    ct.Group.of().close()
    dist.destroy_process_group()
    wrong = [name for name, error in worst.items() if not error < NOISE[bench.dtype]]
    if wrong:
        raise SystemExit(f"differ from {REFERENCE} by more than noise: {wrong}")


if __name__ == "__main__":
    main()
