#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Operators of ceoverlap beside PyTorch's, in one run.

    torchrun --nproc-per-node 4 bench/peers/overlap.py --lib .libs/libceoverlap.so
    python3 bench/peers/overlap.py --lib .libs/libceoverlap.so

Methods, which take turns sample by sample on the same data:

    gemm      torch.matmul alone, on rows that are there already
    comm      NCCL's all-gather or reduce-scatter alone
    nccl      NCCL and torch.matmul, one after the other
    zero-CTA  the same with NCCL's zero-CTA policy on registered memory (all-gather)
    async-TP  torch.ops.symm_mem's fused operators
    ours      ceoverlap

A sample is --calls calls back to back on one stream, or one CUDA graph of them, between
two events, divided by their number; as many go before the first event. Rows are medians
of samples, each the maximum over ranks. Results are held against products in fp32.
What cannot be had is printed as "-", and why under the table.

On a stream the calling thread queues ours, as in ceoverlap.torch: the first call with some operands
by itself, and further ones with the same operands as one CUDA graph.
"""

import argparse
import ctypes
import datetime
import gc
import json
import os
import platform
import shutil
import socket
import sys
import tempfile
import time

# Before torch is loaded. Multicast wants a fabric that may not be there.
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")

MODELS = {
    "llama7b": (4096, 11008),
    "llama8b": (4096, 14336),
    "llama70b": (8192, 28672),
    "qwen72b": (8192, 29568),
    "gpt3": (12288, 49152),
    "llama405b": (16384, 53248),
}
OPERATORS = ("ag_gemm", "gemm_rs")
METHODS = ("gemm", "comm", "nccl", "zero-CTA", "async-TP", "ours")
LAUNCHES = ("stream", "graph")
TOLERANCE = {"ag_gemm": 0.004, "gemm_rs": 0.008}  # of the largest value

# --- ceoverlap, by its C interface ------------------------------------------------------

SECOND_NS = 1000000000


def load_abi(path):
    """The structs of the C interface from the Python package of this source tree, which loads
    the library when it is imported."""
    os.environ["CEOVERLAP_LIBRARY"] = path
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                    "..", "..", "python"))
    from ceoverlap import _abi

    return _abi


class Ceoverlap:
    """One context of one rank."""

    def __init__(self, path, rank, gpu, n_ranks, group):
        self.abi = load_abi(path)
        self.library = ctypes.CDLL(path)
        self.rank = rank
        self.n_ranks = n_ranks
        self.context = None
        self.library.ceov_strerror.restype = ctypes.c_char_p
        self.library.ceov_version.restype = ctypes.c_char_p
        for name in OPERATORS:
            getattr(self.library, f"ceov_{name}_scratch_bytes").restype = ctypes.c_uint64
        member = self.abi.ceov_member(
            rank, self.abi.ceov_place(self.abi.CEOV_PLACE_GPU, gpu))
        config = self.new(
            self.abi.ceov_config,
            members=ctypes.pointer(member),
            n_members=1,
            n_ranks=n_ranks,
            group=group.encode() if n_ranks > 1 else None,
        )
        context = ctypes.c_void_p()
        self.check(self.library.ceov_open(ctypes.byref(config), ctypes.byref(context)),
                   "ceov_open")
        self.context = context

    def new(self, kind, **fields):
        struct = self.abi.new(kind)
        for name, value in fields.items():
            setattr(struct, name, value)
        return struct

    def version(self):
        return self.library.ceov_version().decode()

    def check(self, result, what):
        """Raises what went wrong; conditions count, too."""
        if not result:
            return
        text = self.library.ceov_strerror(ctypes.c_int(result)).decode()
        failure = self.abi.ceov_failure()
        if self.context and not self.library.ceov_last_failure(
                self.context, ctypes.byref(failure)):
            text += ": " + failure.text.decode(errors="replace")
        raise RuntimeError(f"{what}: {text}")

    def barrier(self):
        self.check(self.library.ceov_barrier(self.context,
                                             ctypes.c_uint64(60 * SECOND_NS)),
                   "ceov_barrier")

    def close(self):
        if self.context:
            self.library.ceov_close(self.context)
        self.context = None

    def rows(self, m):
        each = (ctypes.c_uint64 * self.n_ranks)()
        for i in range(self.n_ranks):
            each[i] = m // self.n_ranks + (i < m % self.n_ranks)
        return each

    def shape(self, operator, m, n, k):
        """The shape, and what it points to."""
        rows = self.rows(m)
        if operator == "ag_gemm":
            shape = self.new(self.abi.ceov_ag_gemm, dtype=self.abi.CEOV_BF16, rows=rows, k=k,
                             n_gemms=1)
            shape.n[0] = n
        else:
            shape = self.new(self.abi.ceov_gemm_rs, dtype=self.abi.CEOV_BF16, rows=rows, k=k,
                             n=n)
        return shape, rows

    def scratch_bytes(self, operator, m, n, k):
        shape, _rows = self.shape(operator, m, n, k)
        call = getattr(self.library, f"ceov_{operator}_scratch_bytes")
        n_bytes = call(ctypes.byref(shape), ctypes.c_uint32(self.n_ranks))
        if not n_bytes:
            raise RuntimeError(f"{operator} refuses {m} x {n} x {k}")
        return n_bytes

    def open_workspace(self, name, scratch_bytes):
        config = self.new(
            self.abi.ceov_workspace_config,
            rank=self.rank,
            name=name.encode(),
            scratch_bytes=scratch_bytes,
        )
        workspace = ctypes.c_void_p()
        self.check(self.library.ceov_workspace_create(
            self.context, ctypes.byref(config), ctypes.byref(workspace)),
            "ceov_workspace_create")
        self.check(self.library.ceov_workspace_connect(
            workspace, ctypes.c_uint64(60 * SECOND_NS)), "ceov_workspace_connect")
        return workspace

    def release_workspace(self, workspace):
        deadline = time.monotonic() + 10
        while True:
            result = self.library.ceov_workspace_release(workspace)
            if result != self.abi.CEOV_PENDING or time.monotonic() > deadline:
                break
            time.sleep(0.001)
        # what a peer still maps is released by ceov_close()
        if result != self.abi.CEOV_PENDING:
            self.check(result, "ceov_workspace_release")

    def create_op(self, workspace, operator, m, n, k):
        shape, _rows = self.shape(operator, m, n, k)
        op = ctypes.c_void_p()
        call = getattr(self.library, f"ceov_{operator}_create")
        self.check(call(workspace, ctypes.byref(shape), ctypes.byref(op)),
                   f"ceov_{operator}_create")
        return op

    def release_op(self, op):
        self.library.ceov_op_release(op)

    def make_run(self, operator, op, row, stream_of):
        """A function that queues one run on the stream that stream_of() names."""
        if operator == "ag_gemm":
            run = self.new(self.abi.ceov_ag_gemm_run, a=row.a.data_ptr())
            run.b[0] = row.b.data_ptr()
            run.c[0] = row.ours.data_ptr()
            call = self.library.ceov_ag_gemm_run
        else:
            run = self.new(self.abi.ceov_gemm_rs_run, a=row.a.data_ptr(), b=row.b.data_ptr(),
                      c=row.ours.data_ptr())
            call = self.library.ceov_gemm_rs_run

        def once():
            run.stream = stream_of()
            result = call(op, ctypes.byref(run))
            if result:
                self.check(result, f"ceov_{operator}_run")

        return once


# --- PyTorch ----------------------------------------------------------------------------


class Peers:
    """What all rows need of torch.distributed, on one rank."""

    def __init__(self, torch, rank, gpu, n_ranks, arguments):
        import torch.distributed as dist

        self.torch = torch
        self.dist = dist
        self.rank = rank
        self.n_ranks = n_ranks
        self.arguments = arguments
        self.device = torch.device("cuda", gpu)
        torch.cuda.set_device(self.device)
        # without device_id, so that groups get communicators of their own: one that is
        # split off another may not keep its own policy
        dist.init_process_group("nccl", rank=rank, world_size=n_ranks,
                                timeout=datetime.timedelta(minutes=10))
        self.cpu = dist.new_group(backend="gloo")
        self.stream = torch.cuda.Stream()
        self.reasons = {}  # method (and launch) -> why it is left out
        self.zero_group = None
        self.zero_buffer = None
        self.zero_pool = None
        self.symm_group = None

    def meet(self):
        self.torch.cuda.synchronize()
        self.dist.barrier(group=self.cpu)

    def gather(self, value):
        """Everybody's value, at all ranks."""
        values = [None] * self.n_ranks
        self.dist.all_gather_object(values, value, group=self.cpu)
        return values

    def attempt(self, what, function):
        """All ranks do it, or none has it. The result, or None where one failed."""
        result, reason = None, None
        try:
            result = function()
            self.torch.cuda.synchronize()
        except Exception as error:  # whatever it is, it is why the method is left out
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        reasons = [r for r in self.gather(reason) if r]
        if not reasons:
            return result if result is not None else True
        self.reasons.setdefault(what, reasons[0])
        return None

    def open_zero_cta(self, n_values):
        """A group of the zero-CTA policy, and registered memory for its all-gather."""
        torch, nccl = self.torch, self.dist.ProcessGroupNCCL
        options = nccl.Options()
        options.config.cta_policy = nccl.NCCL_CTA_POLICY_ZERO
        group = self.dist.new_group(backend="nccl", pg_options=options)
        backend = group._get_backend(self.device)
        # the communicator is made by its first collective
        self.dist.all_reduce(torch.zeros(1, device=self.device), group=group)
        torch.cuda.synchronize()
        pool = torch.cuda.MemPool(backend.mem_allocator)
        with torch.cuda.use_mem_pool(pool):
            buffer = torch.empty(n_values, dtype=torch.bfloat16, device=self.device)
        backend.register_mem_pool(pool, symm=True)
        self.zero_pool = pool
        self.zero_buffer = buffer
        self.zero_group = group

    def open_async_tp(self):
        import torch.distributed._symmetric_memory as symm_mem

        name = self.dist.group.WORLD.group_name
        if hasattr(symm_mem, "enable_symm_mem_for_group"):
            symm_mem.enable_symm_mem_for_group(name)
        for operator in ("fused_all_gather_matmul", "fused_matmul_reduce_scatter"):
            getattr(self.torch.ops.symm_mem, operator)
        self.symm_group = name

    def close(self):
        self.meet()
        self.close_zero_cta()
        self.dist.destroy_process_group()

    def close_zero_cta(self):
        """A pool that goes after its communicator ends the process."""
        if self.zero_pool is None:
            return
        backend = self.zero_group._get_backend(self.device)
        backend.deregister_mem_pool(self.zero_pool)
        self.zero_buffer = None
        self.zero_pool = None
        gc.collect()
        self.torch.cuda.empty_cache()


class Row:
    """Operands and results of one shape, and its methods as functions."""

    def __init__(self, peers, operator, model, m, n, k):
        torch = peers.torch
        self.peers, self.operator, self.model = peers, operator, model
        self.m, self.n, self.k = m, n, k
        self.own = m // peers.n_ranks
        generator = torch.Generator(device=peers.device)
        generator.manual_seed(peers.arguments.seed * 1000 + peers.rank)

        def operand(rows, columns):
            values = torch.randn(rows, columns, device=peers.device,
                                 generator=generator)
            return values.mul_(0.3).clamp_(-1, 1).to(torch.bfloat16)

        def result(rows):
            return torch.empty(rows, n, device=peers.device, dtype=torch.bfloat16)

        self.b = operand(n, k)
        if operator == "ag_gemm":
            self.a = operand(self.own, k)
            self.gathered = torch.empty(m, k, device=peers.device, dtype=torch.bfloat16)
            self.product = result(m)
            self.result = self.product
            self.ours = result(m)
        else:
            self.a = operand(m, k)
            self.product = result(m)
            self.result = result(self.own)
            self.ours = result(self.own)
        self.ops = {}

    # Each returns its result.

    def gemm(self):
        a = self.gathered if self.operator == "ag_gemm" else self.a
        return self.peers.torch.matmul(a, self.b.t(), out=self.product)

    def comm(self):
        if self.operator == "ag_gemm":
            self.peers.dist.all_gather_into_tensor(self.gathered, self.a)
            return self.gathered
        self.peers.dist.reduce_scatter_tensor(self.result, self.product)
        return self.result

    def nccl(self):
        if self.operator == "ag_gemm":
            self.comm()
            return self.gemm()
        self.gemm()
        return self.comm()

    def zero_cta(self):
        peers = self.peers
        gathered = peers.zero_buffer[:self.m * self.k].view(self.m, self.k)
        own = gathered[peers.rank * self.own:(peers.rank + 1) * self.own]
        peers.dist.all_gather_into_tensor(gathered, own, group=peers.zero_group)
        return peers.torch.matmul(gathered, self.b.t(), out=self.product)

    def prepare_zero_cta(self):
        """In place: the own shard stands where it is gathered."""
        peers = self.peers
        if self.operator != "ag_gemm":
            raise RuntimeError("zero-CTA collectives do not sum")
        if peers.zero_group is None:
            raise RuntimeError(peers.reasons.get("zero-CTA", "not opened"))
        gathered = peers.zero_buffer[:self.m * self.k].view(self.m, self.k)
        gathered[peers.rank * self.own:(peers.rank + 1) * self.own].copy_(self.a)

    def async_tp(self):
        ops, name = self.peers.torch.ops.symm_mem, self.peers.symm_group
        if self.operator == "ag_gemm":
            _gathered, products = ops.fused_all_gather_matmul(
                self.a, [self.b.t()], 0, name, return_A=False)
            return products[0]
        return ops.fused_matmul_reduce_scatter(self.a, self.b.t(), "sum", 0, name)

    def prepare_async_tp(self):
        if self.peers.symm_group is None:
            raise RuntimeError(self.peers.reasons.get("async-TP", "not opened"))

    def reference(self):
        """In fp32."""
        peers, torch = self.peers, self.peers.torch
        if self.operator == "ag_gemm":
            peers.dist.all_gather_into_tensor(self.gathered, self.a)
            return torch.matmul(self.gathered.float(), self.b.float().t())
        product = torch.matmul(self.a.float(), self.b.float().t())
        own = torch.empty(self.own, self.n, device=peers.device, dtype=torch.float32)
        peers.dist.reduce_scatter_tensor(own, product)
        return own

    def open_ours(self, ours, workspaces):
        def stream_of():
            return self.peers.torch.cuda.current_stream().cuda_stream

        runs = {}
        for launch, workspace in workspaces.items():
            op = ours.create_op(workspace, self.operator, self.m, self.n, self.k)
            self.ops[launch] = op
            once = ours.make_run(self.operator, op, self, stream_of)

            def call(once=once):
                once()
                return self.ours

            runs[launch] = call
        return runs

    def methods(self, launch, runs):
        """The methods that this machine has, for launches on a "stream" or by a "graph"."""
        found = {"gemm": self.gemm, "comm": self.comm, "nccl": self.nccl}
        if self.peers.attempt("zero-CTA" if self.operator == "ag_gemm"
                              else "zero-CTA, gemm_rs", self.prepare_zero_cta):
            found["zero-CTA"] = self.zero_cta
        if self.peers.attempt("async-TP", self.prepare_async_tp):
            found["async-TP"] = self.async_tp
        if runs and launch in runs:
            found["ours"] = runs[launch]
        return found


# --- measuring --------------------------------------------------------------------------


def relative_error(torch, result, reference):
    difference = (result.float() - reference).abs().max().item()
    largest = reference.abs().max().item()
    error = difference / largest if largest else difference
    return error if error == error and error < 1e30 else 1e30


def check_method(row, name, function, reference):
    """The worst error of all ranks, and whether two runs gave the same bits."""
    peers, torch = row.peers, row.peers.torch
    if name in ("gemm", "comm"):
        return None, None
    with torch.cuda.stream(peers.stream):
        row.ours.fill_(float("nan"))
        peers.meet()
        first = function().clone()
        peers.meet()
        second = function()
        peers.meet()
        error = relative_error(torch, first, reference)
        same = torch.equal(first.view(torch.int16), second.view(torch.int16))
    found = peers.gather((error, same))
    return max(f[0] for f in found), all(f[1] for f in found)


def capture(row, name, function):
    """A graph of calls; None where it cannot be made."""
    peers, torch = row.peers, row.peers.torch

    def attempt():
        graph = torch.cuda.CUDAGraph()
        # the process group's and the library's threads go on meanwhile
        with torch.cuda.graph(graph, stream=peers.stream,
                              capture_error_mode="thread_local"):
            for _ in range(peers.arguments.calls):
                function()
        with torch.cuda.stream(peers.stream):
            graph.replay()
        return graph

    peers.meet()
    graph = peers.attempt(f"{name}, graph", attempt)
    peers.meet()
    return graph


def take_sample(row, repeat):
    """Microseconds of a call."""
    peers, torch = row.peers, row.peers.torch
    begin = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    peers.meet()
    with torch.cuda.stream(peers.stream):
        repeat()
        begin.record()
        repeat()
        end.record()
    end.synchronize()
    us = begin.elapsed_time(end) * 1000 / peers.arguments.calls
    peers.meet()
    return us


def statistics(samples):
    """Of samples that are the maximum over ranks."""
    ordered = sorted(samples)
    return {
        "us_median": ordered[len(ordered) // 2],
        "us_min": ordered[0],
        "us_p99": ordered[(len(ordered) * 99 + 99) // 100 - 1],
    }


def repeats_of(row, launch, methods):
    """What a sample of each method does."""
    arguments = row.peers.arguments
    repeats = {}
    for name, function in methods.items():
        if launch == "graph":
            graph = capture(row, name, function)
            if graph is not None:
                repeats[name] = graph.replay
            continue

        def repeat(function=function):
            for _ in range(arguments.calls):
                function()

        repeats[name] = repeat
    return repeats


def first_calls(row, launch, methods):
    """Methods that can be called at all; whatever is made at first use is made."""
    peers = row.peers

    def call(function):
        def once():
            with peers.torch.cuda.stream(peers.stream):
                function()

        return once

    able = {}
    for name, function in methods.items():
        peers.meet()
        if peers.attempt(f"{name}, {row.operator}", call(function)) is not None:
            able[name] = function
    return able


def measure(row, launches, runs):
    """The row's tables: one for each kind of launch, "stream" and "graph"."""
    peers, arguments = row.peers, row.peers.arguments
    reference = row.reference()
    peers.meet()
    repeats, found = {}, {}
    for launch in launches:
        methods = first_calls(row, launch, row.methods(launch, runs))
        found[launch] = {name: dict(zip(("error", "same_bits"),
                                        check_method(row, name, function, reference)))
                         for name, function in methods.items()}
        for name, repeat in repeats_of(row, launch, methods).items():
            repeats[launch, name] = repeat
    samples = {key: [] for key in repeats}
    keys = list(repeats)
    for i in range(arguments.warmup + arguments.samples):
        for j in range(len(keys)):
            key = keys[(i + j) % len(keys)]
            us = take_sample(row, repeats[key])
            if i >= arguments.warmup:
                samples[key].append(us)
    everybody = peers.gather(samples)
    for key in keys:
        worst = [max(them) for them in zip(*(rank[key] for rank in everybody))]
        found[key[0]][key[1]].update(statistics(worst))
    if ("graph", "ours") in repeats:
        check_replay(row, found, repeats["graph", "ours"], reference)
    return {launch: {name: method for name, method in found[launch].items()
                     if "us_median" in method}
            for launch in launches}


def check_replay(row, found, replay, reference):
    """What a replay of ours leaves counts, too."""
    peers = row.peers
    with peers.torch.cuda.stream(peers.stream):
        row.ours.fill_(float("nan"))
        peers.meet()
        replay()
    peers.meet()
    error = max(peers.gather(relative_error(peers.torch, row.ours, reference)))
    found["graph"]["ours"]["error"] = max(error, found["graph"]["ours"]["error"])


# --- rows -------------------------------------------------------------------------------


def ratio(methods, name):
    if name not in methods or "ours" not in methods:
        return None
    return methods[name]["us_median"] / methods["ours"]["us_median"]


def finish_row(row, launch, methods):
    """As it goes into the JSON file."""
    ours = methods.get("ours")
    verified = None
    if ours and ours["error"] is not None:
        verified = bool(ours["error"] <= TOLERANCE[row.operator] and ours["same_bits"])
    return {
        "operator": row.operator, "model": row.model, "launch": launch,
        "ranks": row.peers.n_ranks, "m": row.m, "n": row.n, "k": row.k,
        "methods": methods,
        "vs_nccl": ratio(methods, "nccl"),
        "vs_zero_cta": ratio(methods, "zero-CTA"),
        "vs_async_tp": ratio(methods, "async-TP"),
        "verified": verified, "tolerance": TOLERANCE[row.operator],
    }


def print_head():
    print("# us a call: medians of samples, each the maximum over ranks; vs X: X / ours")
    print(f"{'operator':<9} {'model':<10} {'M':>6} {'N':>6} {'K':>6} {'launch':<6} "
          + " ".join(f"{name:>9}" for name in METHODS)
          + f" {'vs nccl':>8} {'vs zero':>8} {'vs async':>8} {'error':>8}  data",
          flush=True)


def cell(value, width, decimals):
    return f"{'-' if value is None else format(value, f'.{decimals}f'):>{width}}"


def print_row(row):
    methods = row["methods"]
    times = " ".join(cell(methods[name]["us_median"] if name in methods else None, 9, 1)
                     for name in METHODS)
    error = methods.get("ours", {}).get("error")
    data = {None: "unchecked", True: "verified", False: "WRONG"}[row["verified"]]
    print(f"{row['operator']:<9} {row['model']:<10} {row['m']:>6} {row['n']:>6} "
          f"{row['k']:>6} {row['launch']:<6} {times} {cell(row['vs_nccl'], 8, 3)} "
          f"{cell(row['vs_zero_cta'], 8, 3)} {cell(row['vs_async_tp'], 8, 3)} "
          f"{'-' if error is None else format(error, '.1e'):>8}  {data}", flush=True)


def shapes_of(arguments, operator, n_ranks):
    shapes = []
    for model in arguments.models:
        hidden, ffn = MODELS[model]
        share = ffn // n_ranks // 8 * 8
        for m in arguments.tokens:
            n, k = (share, hidden) if operator == "ag_gemm" else (hidden, share)
            shapes.append((model, m, n, k))
    return shapes


def open_library(peers, arguments, gpu, folder):
    if not arguments.lib:
        peers.reasons["ours"] = "no --lib"
        return None
    return peers.attempt("ours", lambda: Ceoverlap(
        arguments.lib, peers.rank, gpu, peers.n_ranks, os.path.join(folder, "group")))


def open_workspaces(peers, ours, operator, shapes):
    if ours is None:
        return {}
    arguments = peers.arguments
    n_bytes = max(ours.scratch_bytes(operator, m, n, k) for _model, m, n, k in shapes)
    return {launch: ours.open_workspace(f"peers.{operator}.{launch}", n_bytes)
            for launch in arguments.launches}


def run_operator(peers, ours, operator, rows):
    arguments = peers.arguments
    shapes = shapes_of(arguments, operator, peers.n_ranks)
    workspaces = peers.attempt(f"ours, {operator}", lambda: open_workspaces(
        peers, ours, operator, shapes))
    workspaces = workspaces if isinstance(workspaces, dict) else {}
    for model, m, n, k in shapes:
        row = Row(peers, operator, model, m, n, k)
        runs = None
        if workspaces:
            runs = peers.attempt(f"ours, {operator}",
                                 lambda row=row: row.open_ours(ours, workspaces))
        tables = measure(row, arguments.launches, runs)
        for launch, methods in tables.items():
            rows.append(finish_row(row, launch, methods))
            if not peers.rank:
                print_row(rows[-1])
        write(peers, ours, rows, False)
        for op in row.ops.values():
            ours.release_op(op)
        del row
        peers.torch.cuda.empty_cache()
        peers.meet()
    for workspace in workspaces.values():
        ours.release_workspace(workspace)
    peers.meet()


def provenance(peers, ours):
    torch = peers.torch
    return {
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(),
        "command": " ".join(sys.argv),
        "machine": f"{peers.n_ranks} x {torch.cuda.get_device_name(peers.device)}",
        "kernel": platform.release(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": ".".join(str(v) for v in torch.cuda.nccl.version()),
        "ceoverlap": ours.version() if ours else None,
        "seed": peers.arguments.seed,
        "samples": peers.arguments.samples,
        "warmup": peers.arguments.warmup,
        "calls_per_sample": peers.arguments.calls,
        "environment": {name: value for name, value in os.environ.items()
                        if name.startswith(("CEOVERLAP_", "CUDA_", "NCCL_",
                                            "TORCH_SYMM_MEM_"))},
        "left_out": peers.reasons,
    }


def write(peers, ours, rows, is_complete):
    """Rank 0 writes after each shape, so that a run that ends early leaves what it had."""
    if peers.rank or not peers.arguments.json:
        return
    with open(peers.arguments.json, "w", encoding="utf-8") as file:
        json.dump({"schema_version": 2, "provenance": provenance(peers, ours),
                   "complete": is_complete, "rows": rows}, file, indent=2)
        file.write("\n")


def report(peers, ours, rows):
    for what, reason in peers.reasons.items():
        print(f"# {what}: left out: {reason}")
    write(peers, ours, rows, True)


def work(local_rank, arguments, rank=None, n_ranks=None):
    """One rank. Returns the program's exit status."""
    import torch

    rank = local_rank if rank is None else rank
    n_ranks = arguments.ranks if n_ranks is None else n_ranks
    peers = Peers(torch, rank, local_rank, n_ranks, arguments)
    folder = [tempfile.mkdtemp(prefix="ceoverlap-peers-") if not rank else None]
    peers.dist.broadcast_object_list(folder, src=0, group=peers.cpu)
    ours = open_library(peers, arguments, local_rank, folder[0])
    largest = max(m * MODELS[model][0] for model in arguments.models
                  for m in arguments.tokens)
    peers.attempt("zero-CTA", lambda: peers.open_zero_cta(largest))
    peers.attempt("async-TP", peers.open_async_tp)
    rows = []
    if not rank:
        print_head()
    for operator in arguments.operators:
        run_operator(peers, ours, operator, rows)
    if not rank:
        report(peers, ours, rows)
    if ours:
        ours.barrier()
        ours.close()
    peers.meet()
    if not rank:
        shutil.rmtree(folder[0], ignore_errors=True)
    peers.close()
    return 1 if any(row["verified"] is False for row in rows) else 0


def spawned(local_rank, arguments):
    status = work(local_rank, arguments)
    if status:
        sys.exit(status)


def name_list(choices):
    def parse(text):
        names = text.split(",")
        for name in names:
            if name not in choices:
                raise argparse.ArgumentTypeError(f"no '{name}' among {', '.join(choices)}")
        return names

    return parse


def number_list(text):
    numbers = [int(part) for part in text.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError("numbers from 1")
    return numbers


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", help="libceoverlap.so; left out: without ours")
    parser.add_argument("--operators", type=name_list(OPERATORS), default=list(OPERATORS))
    parser.add_argument("--models", type=name_list(list(MODELS)), default=list(MODELS))
    parser.add_argument("--tokens", type=number_list, default=[2048, 8192])
    parser.add_argument("--launches", type=name_list(LAUNCHES), default=list(LAUNCHES))
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, help="without torchrun; default: all GPUs")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    if "RANK" in os.environ:  # torchrun
        n_ranks = int(os.environ["WORLD_SIZE"])
    else:
        import torch

        n_ranks = arguments.ranks or torch.cuda.device_count()
    for m in arguments.tokens:
        if not n_ranks or m % n_ranks:
            sys.exit(f"overlap.py: {m} tokens cannot be shared out evenly to {n_ranks} "
                     "ranks, as PyTorch's collectives want it")
    if "RANK" in os.environ:
        return work(int(os.environ["LOCAL_RANK"]), arguments, int(os.environ["RANK"]),
                    n_ranks)
    import torch.multiprocessing as multiprocessing

    arguments.ranks = n_ranks
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", free_port())
    multiprocessing.spawn(spawned, args=(arguments,), nprocs=n_ranks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
