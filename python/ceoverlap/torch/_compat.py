# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Everything that the package uses of PyTorch beyond its public interface, and what it does
with versions that lack it. No other module of the package names a private module or function of
PyTorch's; tests/python/torch/test_compat.py checks that.

look_at_fsdp2() finds out what is missing of FSDP2 before anything of it is used, because its
internal parts change between versions; where something is, FSDP2 is reached by its public hooks.
TRIED lists the versions with which all tests of the internal parts passed, TESTED those with which
the tests of all else are run; messages name them."""

from __future__ import annotations

import datetime
import functools
import inspect
import warnings
import weakref
from types import ModuleType
from typing import Dict, NamedTuple, Optional

import torch
import torch.distributed as dist
from torch.autograd import forward_ad

from .. import errors

OLDEST = (2, 9)
TRIED = ("2.9.1", "2.11.0")
TESTED = ("2.9.1", "2.11.0", "2.15.0")


def check_version(version: str) -> None:
    """Raises VersionError if this version of PyTorch is older than all with which the package has
    been tried."""
    if tuple(map(int, version.split(".")[:2])) < OLDEST:
        raise errors.VersionError(f"ceoverlap.torch: PyTorch {version} is too old: 2.9 or later is "
                                  f"needed, {', '.join(TESTED)} are tested")


check_version(torch.__version__)        # before parts are looked for that older ones lack


# --- streams -----------------------------------------------------------------------------


def _slow_current_stream(index: int) -> int:
    return torch.cuda.current_stream(index).cuda_stream


# PyTorch's own short way, where it has one: a call makes few microseconds' work otherwise.
current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", _slow_current_stream)
is_capturing = getattr(torch._C, "_cuda_isCurrentStreamCapturing",
                       torch.cuda.is_current_stream_capturing)


# --- memory ------------------------------------------------------------------------------


@functools.lru_cache(maxsize=None)
def allocator_of(allocate: int, free: int):
    """Returns an allocator for torch.cuda.MemPool that calls these two C functions. It stays until
    the process ends: PyTorch before 2.11 keeps no reference to the allocator of a pool, nor of
    memory that outlives its pool."""
    return torch._C._cuda_customAllocator(allocate, free)


# --- tensors -----------------------------------------------------------------------------


_stack_length = getattr(torch._C, "_len_torch_dispatch_stack", None)
_functorch_level = getattr(torch._C._functorch, "maybe_current_level", None)


def is_watched() -> bool:
    """Returns whether a dispatch mode, a functorch transformation or forward-mode differentiation
    has to see the calls; True also if this PyTorch does not tell."""
    return (_stack_length is None or bool(_stack_length()) or
            _functorch_level is None or _functorch_level() is not None or
            getattr(forward_ad, "_current_level", 0) >= 0)


def _copy_each(targets, sources) -> None:
    for target, source in zip(targets, sources):
        target.copy_(source)


def parameters_of(module: torch.nn.Module) -> dict:
    """Returns the table of a module's own parameters, which may be written: with something else
    than a parameter, too, where attributes refuse it."""
    return module._parameters


# PyTorch 2.10 shows it to all.
grouped_mm = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm

# Many copies in one kernel.
copy_each = getattr(torch, "_foreach_copy_", _copy_each)


# --- profilers ---------------------------------------------------------------------------


_profiler = torch.autograd.profiler


def _cannot_tell() -> bool:
    return False


def _by_flag() -> bool:
    return _profiler._is_profiler_enabled


# Whether a profiler runs, in any thread. Where PyTorch does not tell, no call is shown, because
# showing each of them would cost more than most of them take.
is_profiling = _by_flag if hasattr(_profiler, "_is_profiler_enabled") else _cannot_tell


def _slow_profiled(name: str, tensors: tuple, words: dict):
    """The public way, whose events have one text."""
    return torch.profiler.record_function(name, ", ".join(f"{key}={value}"
                                                          for key, value in words.items()))


def _find_profiled():
    """Returns PyTorch's own short way, if it is there and takes what it is given here."""
    short = getattr(torch._C._profiler, "_RecordFunctionFast", None)
    try:
        with short("ceov::check", (), {"group": "", "bytes": 0}):
            return short
    except (TypeError, ValueError):
        return _slow_profiled


# A context manager that shows profilers what is done within it.
profiled = _find_profiled()


# --- attention ---------------------------------------------------------------------------


def flash_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool,
                    scale: float):
    """Returns the result of PyTorch's flash kernel and its log-sum-exp."""
    return torch.ops.aten._scaled_dot_product_flash_attention.default(
        q, k, v, 0.0, is_causal, False, scale=scale)[:2]


def flash_attention_backward(grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor,
                             v: torch.Tensor, out: torch.Tensor, lse: torch.Tensor,
                             is_causal: bool, scale: float):
    """Returns the gradients of q, k and v. Nothing is dropped out, so the state of random numbers
    is not read; sequences are all as long, so there are no numbers of where they begin."""
    state = torch.empty(2, dtype=torch.uint64, device=q.device)
    return torch.ops.aten._scaled_dot_product_flash_attention_backward.default(
        grad, q, k, v, out, lse, None, None, q.shape[2], k.shape[2], 0.0, is_causal, state,
        state.new_empty(()), scale=scale)


# --- process groups ----------------------------------------------------------------------


# PyTorch 2.15 renames these two; the former names warn there.
plain_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
plain_reduce_scatter = (getattr(dist, "reduce_scatter_single", None) or
                        dist.reduce_scatter_tensor)


def default_store():
    """Returns the store through which the default process group's ranks found each other."""
    return dist.distributed_c10d._get_default_store()


def own_client(store):
    """Returns a client of the store that nobody else uses. The ranks' one store is locked while
    one of its threads waits, so other threads could tell nothing meanwhile. A store that cannot
    be cloned is returned itself: it was written in Python, and has locks of its own."""
    try:
        return store.clone()
    except dist.DistError:              # the connection has failed
        raise
    except RuntimeError:
        return store


def process_group_named(name: str):
    """Returns the process group with this group_name. Raises RuntimeError or ValueError if
    there is none."""
    return dist.distributed_c10d._resolve_process_group(name)


# --- backends of torch.distributed --------------------------------------------------------


Work = dist._Work                       # classes that Python classes may derive from
Backend = dist._Backend
ProcessGroup = dist.ProcessGroup
AllgatherOptions = dist.distributed_c10d.AllgatherOptions       # the only one not in dist

# Methods of PyTorch's own backends by their names since 2.14: those before.
_FORMER = {"all_gather_single": "_allgather_base", "all_to_all_single": "alltoall_base",
           "reduce_scatter_single": "_reduce_scatter_base"}


def _slow_number_of(op) -> int:
    return int(op.op)


def _find_number_of():
    """Returns what finds out a ReduceOp's number in RedOpType. A ReduceOp's hash is its number,
    which no document says, and takes a third of the time."""
    kinds = [kind for name, kind in dist.ReduceOp.RedOpType.__members__.items()
             if name != "PREMUL_SUM"]
    by_hash = all(hash(dist.ReduceOp(kind)) == int(kind) for kind in kinds)
    return hash if by_hash else _slow_number_of


number_of_op = _find_number_of()


def has_backend(name: str) -> bool:
    """Returns whether a backend of this name was registered."""
    return name.upper() in dist.Backend._plugins


def takes_backends() -> bool:
    """Returns whether process groups of this PyTorch take backends that are written in Python,
    one for a device: from 2.14 on. In others a class of Python's may be a whole process group."""
    return (hasattr(Backend, "all_gather_single") and
            "rank" in (Backend.__init__.__doc__ or ""))


def check_takes_backends(name: str) -> None:
    """Raises VersionError where neither backends nor process groups can be written in Python as
    this package does."""
    if not takes_backends() and not dist.is_gloo_available():
        raise errors.VersionError(f"backend {name}: PyTorch {torch.__version__} was built without "
                                  "Gloo, which the backend needs before 2.14")


def asked_backends() -> Dict[str, str]:
    """Returns the names of the backends by types of devices of the process group that is being
    made. PyTorch before 2.14 does not tell those who make a backend for it, so its own variable is
    looked at. Raises VersionError if that is not there."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_name != "_new_process_group_helper":
        frame = frame.f_back
    config = frame.f_locals.get("backend_config") if frame is not None else None
    if config is None:
        raise errors.VersionError(f"PyTorch {torch.__version__}: it is not known for which devices "
                                  f"a process group is made: {', '.join(TESTED)} are tested")
    return config.get_device_backend_map()


def add_backend(group, device_type: str, name: str, backend) -> None:
    """Makes one of PyTorch's own backends, "gloo" or "nccl", that of a process group's device. None:
    the group has the device, but who asks for its backend gets none."""
    kind = getattr(dist.ProcessGroup.BackendType, name.upper())
    group._register_backend(torch.device(device_type), kind, backend)
    if backend is not None:
        group._set_default_backend(kind)


def timeout_of(backend) -> datetime.timedelta:
    """Returns the timeout of one of PyTorch's own backends."""
    return backend.options._timeout


def make_backend(name: str, ranks, timeout: datetime.timedelta, global_ranks, options):
    """Returns PyTorch's own backend of this name, as it makes one itself for these ranks; see
    make_nccl(). Raises VersionError if it cannot be had."""
    made = None
    if name == "gloo":
        made = make_gloo(ranks.store, ranks.rank, ranks.size, timeout)
    elif name == "nccl":
        made = make_nccl(ranks, timeout, global_ranks, options)
    if made is None:
        raise errors.VersionError(f"backend {name}: PyTorch {torch.__version__} cannot have it "
                                  "beside ceov: before 2.14 only gloo and nccl can be, where "
                                  "PyTorch was built with them")
    made.options.global_ranks_in_group = global_ranks
    made.options.group_name = ranks.name
    return made


def _owned(kind: type, owner) -> type:
    """Returns the class of one of PyTorch's own backends that asks its owner for memory for
    communication; None: the class itself."""
    if owner is None:
        return kind
    at = weakref.proxy(owner)           # which holds the backend

    class Owned(kind):
        def supports_tensor_alloc(self, device) -> bool:
            return at.supports_tensor_alloc(device)

        def allocate_tensor(self, size: int, *, dtype: torch.dtype, device) -> torch.Tensor:
            return at.allocate_tensor(size, dtype=dtype, device=device)

    return Owned


def make_gloo(store, rank: int, size: int, timeout: datetime.timedelta, owner=None):
    """Returns Gloo's backend for ranks that meet in the store; None if PyTorch was built without
    it. owner: whose memory for communication it has."""
    if not dist.is_gloo_available():
        return None
    return _owned(dist.ProcessGroupGloo, owner)(store, rank, size, timeout=timeout)


def make_nccl(ranks, timeout: datetime.timedelta, global_ranks, options, owner=None):
    """Returns NCCL's backend for ranks that have a store, a rank, a size and a name, and that do
    not meet before their first call. None: PyTorch was built without it. global_ranks: theirs in the
    default process group; options: NCCL's own, or something else; owner: whose memory for
    communication it has."""
    if not dist.is_nccl_available():
        return None
    if not isinstance(options, dist.ProcessGroupNCCL.Options):
        options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    options.group_name = ranks.name
    options.global_ranks_in_group = global_ranks
    made = _owned(dist.ProcessGroupNCCL, owner)(ranks.store, ranks.rank, ranks.size, options)
    made._set_sequence_number_for_group()
    return made


def set_timeout_of(backend, timeout: datetime.timedelta) -> None:
    """Sets how long the calls of one of PyTorch's own backends may last."""
    (getattr(backend, "_set_default_timeout", None) or backend.set_timeout)(timeout)


def start_coalescing(backend) -> None:
    """Lets a backend put off its calls until end_coalescing()."""
    backend._start_coalescing()


def end_coalescing(backend):
    """Returns the handle of the calls since start_coalescing(), which begin now."""
    return backend._end_coalescing()


def send_and_receive(backend, messages) -> list:
    """Makes messages at the same time, of (kind, tensors, peer), where kind is "send" or "recv".
    Returns their handles, or one for all."""
    calls = [(getattr(backend, kind), tensors, peer) for kind, tensors, peer in messages]
    if not backend.supports_coalescing:
        return [call(tensors, peer, 0) for call, tensors, peer in calls]
    start_coalescing(backend)
    for call, tensors, peer in calls:
        call(tensors, peer, 0)
    return [end_coalescing(backend)]


def method_of(backend, name: str):
    """Returns a method of one of PyTorch's own backends by its name since 2.14."""
    found = getattr(backend, name, None)
    return found if found is not None else getattr(backend, _FORMER[name])


# --- async-TP ----------------------------------------------------------------------------


ASYNC_TP_OPERATORS = ("fused_all_gather_matmul", "fused_matmul_reduce_scatter")


def _check_async_tp() -> None:
    """Raises VersionError if PyTorch's compiler makes no fused operators of async-TP."""
    try:
        from torch._inductor import config
        from torch.distributed import _symmetric_memory
    except ImportError as error:
        raise _no_async_tp(str(error)) from error
    for owner, name in ((config, "_micro_pipeline_tp"),
                        (_symmetric_memory, "enable_symm_mem_for_group"),
                        *((torch.ops.symm_mem, name) for name in ASYNC_TP_OPERATORS)):
        if not hasattr(owner, name):
            raise _no_async_tp(f"there is no {owner.__name__}.{name}")
    if not dist.is_nccl_available():
        raise _no_async_tp("it was built without NCCL, so its compiler fuses nothing")


def _no_async_tp(why: str) -> errors.VersionError:
    return errors.VersionError(f"take_over: PyTorch {torch.__version__}: {why}; async-TP is known "
                               f"of {', '.join(TESTED)}: call the functions of "
                               "ceoverlap.torch.async_tp instead")


def implement_async_tp(all_gather_matmul, matmul_reduce_scatter) -> torch.library.Library:
    """Makes these the implementations of PyTorch's two operators of async-TP, and lets the compiler
    use them in all process groups that there are. Returns what has to be kept meanwhile. Raises
    VersionError where PyTorch cannot."""
    _check_async_tp()
    from torch.distributed import _symmetric_memory

    library = torch.library.Library("symm_mem", "IMPL")
    with warnings.catch_warnings():     # that a kernel is replaced, and that 2.15 needs no enabling
        warnings.simplefilter("ignore")
        for name, function in zip(ASYNC_TP_OPERATORS, (all_gather_matmul, matmul_reduce_scatter)):
            for key in ("CUDA", "CPU"):
                library.impl(name, function, key, allow_override=True)
        for group in list(dist.distributed_c10d._world.pg_map):
            _symmetric_memory.enable_symm_mem_for_group(group.group_name)
    return library


def give_back_async_tp(library: torch.library.Library) -> None:
    """Takes back what implement_async_tp() has registered."""
    library._destroy()


def switch_async_tp(is_on: bool) -> bool:
    """Switches the compiler's search for async-TP's patterns. Returns what it was."""
    from torch._inductor import config

    before, config._micro_pipeline_tp = config._micro_pipeline_tp, is_on
    return before


# --- FSDP2 -------------------------------------------------------------------------------


class Fsdp2(NamedTuple):
    """The classes and modules of FSDP2 that the package uses."""
    Module: type
    MeshInfo: type
    Work: type                          # that an all-gather returns
    collectives: ModuleType


def look_at_fsdp2() -> Fsdp2:
    """Returns what the package uses of FSDP2. Raises VersionError if any of it is missing or
    has other parameters in this PyTorch."""
    try:
        from torch.distributed.fsdp import FSDPModule
        from torch.distributed.fsdp._fully_shard import _fsdp_collectives
        from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo
        from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
        from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
    except ImportError as error:
        raise _unknown(str(error)) from error
    missing = _first_missing([
        (dist, "_Work", ""),
        (FSDPModule, "set_custom_all_gather", "comm"),
        (FSDPModule, "set_custom_reduce_scatter", "comm"),
        (FSDPParamGroup, "unshard", "async_op"),
        (FSDPParamGroup, "_to_sharded", "self"),
        (FSDPParamGroup, "_to_sharded_post_forward", "self"),
        (FSDPParam, "init_all_gather_outputs", "world_size"),
        (FSDPParam, "alloc_all_gather_outputs", "self"),
        (_fsdp_collectives, "foreach_all_gather", "fsdp_params"),
        (_fsdp_collectives, "compiled_autograd_enabled", ""),
        (torch.ops.fsdp, "all_gather_copy_in", ""),
        (torch.ops.fsdp, "split_with_sizes_copy", "")])
    if missing is not None:
        raise _unknown(missing)
    return Fsdp2(FSDPModule, FSDPMeshInfo, dist._Work, _fsdp_collectives)


def look_at_fsdp2_hooks() -> type:
    """Returns the class of modules to which fully_shard() was applied. Raises VersionError if it
    lacks the public hooks, by which a module's communication is replaced."""
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError as error:
        raise _unknown(str(error)) from error
    missing = _first_missing([(FSDPModule, "set_custom_all_gather", "comm"),
                              (FSDPModule, "set_custom_reduce_scatter", "comm")])
    if missing is not None:
        raise _unknown(missing)
    return FSDPModule


@functools.lru_cache(maxsize=None)
def fsdp2() -> Fsdp2:
    """Returns the result of look_at_fsdp2(), which is called once."""
    return look_at_fsdp2()


def _first_missing(wanted) -> Optional[str]:
    """Returns the first missing one of (owner, name, parameter), where owner has to have name,
    and that has to have the parameter unless it is ""; None if all are there."""
    for owner, name, parameter in wanted:
        found = getattr(owner, name, None)
        if found is None or (parameter and
                             parameter not in inspect.signature(found).parameters):
            return f"{owner.__name__}.{name}" + (f"({parameter})" if parameter else "")
    return None


def _unknown(missing: str) -> errors.VersionError:
    return errors.VersionError(f"enable: PyTorch {torch.__version__}: FSDP2 has no {missing}; its "
                               f"inner parts are known of {', '.join(TRIED)}")


def param_group_of(module):
    """Returns the parameter group of an FSDPModule; None if the module has no group of its own.
    """
    return module._get_fsdp_state()._fsdp_param_group
