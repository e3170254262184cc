# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""FSDP2's all-gathers on NCCL's own copy engines, which torch_fsdp.py compares with.

NCCL (2.28 or later) leaves an all-gather to copy engines where both operands lie in symmetric
windows and the communicator wants no CTAs; elsewhere it launches a kernel, silently. So one
step is profiled first, and with a kernel in it nothing is measured."""

import math
import weakref

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather
from torch.profiler import ProfilerActivity, profile


class Unavailable(RuntimeError):
    """NCCL's copy engines cannot be had here: the reason, the same at all ranks."""


# --- windows: (tensor, what gives it back), made by all ranks of the group together -------


def pool_window(group, size, dtype, device):
    """In a pool of its own, which is registered when it has got its memory: what comes to a
    registered pool later becomes a window in some versions of PyTorch only."""
    backend = group._get_backend(device)
    pool = torch.cuda.MemPool(backend.mem_allocator)
    with torch.cuda.use_mem_pool(pool):
        window = torch.empty(size, dtype=dtype, device=device)
    backend.register_mem_pool(pool, symm=True)
    return window, lambda: backend.deregister_mem_pool(pool)


def symmetric_window(group, size, dtype, device):
    """By torch.distributed._symmetric_memory, which cannot give it back."""
    import torch.distributed._symmetric_memory as symmetric

    if symmetric.get_backend(device) != "NCCL":
        symmetric.set_backend("NCCL")
    window = symmetric.empty(size, dtype=dtype, device=device)
    handle = symmetric.rendezvous(window, group)
    return window, lambda: handle


WINDOWS = {"registered pools": pool_window, "symmetric memory": symmetric_window}

# --- the all-gather -------------------------------------------------------------------------


class WindowAllGather(AllGather):
    """All-gathers in symmetric windows: FSDP2's input is a part of its output, so each takes
    one window. Windows are kept, and an output gets the first of its size, dtype and current
    stream that nobody refers to any more. FSDP2 lets an output go when that stream, the
    copy-in's, waits for what reads it, as PyTorch's allocator needs it, too. All ranks make
    the same all-gathers in the same order, so they make the same windows."""

    def __init__(self, group, make_window):
        self._group = group
        self._make_window = make_window
        self._kept = {}                 # key: [(window, give_back), ...]
        self._outputs = {}              # address of a window: weak reference to its output

    def _new(self, size, dtype, device):
        window, give_back = self._make_window(self._group, size, dtype, device)
        self._outputs[window.data_ptr()] = lambda: None
        return window, give_back

    def allocate(self, size, *, dtype, device):
        """An output; of its contents nothing is known."""
        size = math.prod(size)
        stream = torch.cuda.current_stream(device).cuda_stream
        kept = self._kept.setdefault((size, dtype, stream), [])
        window = next((window for window, _ in kept
                       if self._outputs[window.data_ptr()]() is None), None)
        if window is None:
            kept.append(self._new(size, dtype, device))
            window = kept[-1][0]
        output = window.view(-1)
        self._outputs[window.data_ptr()] = weakref.ref(output)
        return output

    def __call__(self, output_tensor, input_tensor, group, async_op=False):
        output = self._outputs.get(output_tensor.data_ptr(), lambda: None)()
        if output is not output_tensor:         # its window might be taken while it is used
            raise Unavailable("FSDP2 gathers into another tensor than it was given")
        return dist.all_gather_into_tensor(output_tensor, input_tensor, group=group,
                                           async_op=async_op)

    @property
    def n_bytes(self):
        return sum(window.nbytes for kept in self._kept.values() for window, _ in kept)

    def close(self):
        """All ranks, when all work is done and nothing will be gathered any more."""
        for kept in self._kept.values():
            for _, give_back in kept:
                give_back()
        self._kept.clear()
        self._outputs.clear()


# --- does it launch kernels? ----------------------------------------------------------------


def is_gather_kernel(name):
    """ncclDevKernel_AllGather_RING_LL, ncclSymkDevKernel_AllGather_ST, ...; the profiler also
    calls spans of the GPU's time by the names of calls, such as nccl:_all_gather_base."""
    return name.startswith("nccl") and "Kernel" in name and "AllGather" in name


def fault_of(names):
    """Why what the GPU did is no all-gather of copy engines, or an empty text."""
    kernels = sorted({name.split("(")[0] for name in names if is_gather_kernel(name)})
    if kernels:
        return f"NCCL launched {', '.join(kernels)}"
    return "" if names else "the profiler saw no work of the GPU"


def trial(step, device):
    """The fault of one profiled step, told to all ranks: the first rank's that has one."""
    try:
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            step()
            torch.cuda.synchronize(device)
        fault = fault_of([event.name for event in profiler.events()
                          if event.device_type == torch.autograd.DeviceType.CUDA])
    except Exception as error:          # PyTorch and NCCL fail here by many types
        fault = (f"{type(error).__name__}: {error}".splitlines()[0])[:200]
    told = [None] * dist.get_world_size()
    dist.all_gather_object(told, fault)
    return next((one for one in told if one), "")


def zero_cta_group(device):
    """A communicator of all ranks that takes no SM where its memory allows it."""
    options = dist.ProcessGroupNCCL.Options()
    options.config.cta_policy = dist.ProcessGroupNCCL.NCCL_CTA_POLICY_ZERO
    group = dist.new_group(pg_options=options)
    dist.barrier(group, device_ids=[device.index])      # windows want a communicator in use
    return group


def copy_engine_model(make_model, step_of, device):
    """(model, its WindowAllGather, how windows are made): the first of WINDOWS with which
    one step launches no all-gather kernel. All ranks call it.

    make_model(mesh)    a model sharded over the mesh, the same in every call
    step_of(model)      one forward and backward pass that changes no parameter

    Raises Unavailable where this PyTorch, this NCCL or these GPUs cannot.
    """
    try:
        group = zero_cta_group(device)
    except (AttributeError, RuntimeError, ValueError) as error:
        raise Unavailable(f"no communicator without CTAs: {error}") from error
    faults = []
    for name, make_window in WINDOWS.items():
        model = make_model(DeviceMesh.from_group(group, device.type))
        gather = WindowAllGather(group, make_window)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_custom_all_gather(gather)
        fault = trial(lambda: step_of(model), device)
        if not fault:
            return model, gather, name
        faults.append(f"by {name}: {fault}")
        gather.close()
    raise Unavailable("; ".join(faults))
