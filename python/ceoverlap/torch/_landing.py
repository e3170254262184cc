# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""FSDP2's all-gather on copy engines: shards go from the peers' slots straight to where the
unsharded parameters are, so that nothing is left to copy out."""

from __future__ import annotations

import functools
import os
from typing import Dict, List, Optional, Sequence, Set, Tuple

import torch
import torch.distributed as dist
from torch.distributed.fsdp._fully_shard import _fsdp_collectives as collectives

from .. import errors
from ._pools import Pools
from ._pull import Pull
from .group import Group

RESHARDS = ("_to_sharded", "_to_sharded_post_forward")  # where FSDP frees parameters


class Landing(torch.Tensor):
    """Stands for the output of one all-gather and owns none of it: FSDP passes it to the
    calls that are answered here. The parameters themselves get the bytes.

    gather   the PullAllGather that it belongs to
    parts    bytes of this rank's shard of each parameter, once it is filled
    targets  tensors with all shards of each parameter, once they are on their way
    """

    gather: PullAllGather
    parts: Optional[Tuple[int, ...]]
    targets: Optional[List[torch.Tensor]]

    @staticmethod
    def __new__(cls, gather: PullAllGather, n: int, dtype: torch.dtype,
                device: torch.device) -> Landing:
        self = torch.Tensor._make_wrapper_subclass(cls, (n,), dtype=dtype, device=device)
        self.gather = gather
        self.parts = None
        self.targets = None
        return self

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.ops.fsdp.all_gather_copy_in:
            inputs, landing, sizes = args[:3]
            return landing.gather.fill(landing, inputs, sizes), landing
        if func is torch.ops.fsdp.split_with_sizes_copy:
            return args[0].gather.hand_over(args[0], kwargs["out"])
        if func is torch.Tensor.view:   # rows by rank, for the call above
            return args[0]
        return super().__torch_function__(func, types, args, kwargs)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise errors.StateError(f"{func}: this tensor stands for the output of an all-gather "
                                "that goes straight to the parameters and has no elements: "
                                "use the parameters, or Handle.disable()")

    def __repr__(self, **_options) -> str:
        return f"<Landing of {self.gather.param_group}>"


class _Work(dist._Work):
    """An all-gather on a stream of its own."""

    def __init__(self, event: torch.cuda.Event, device: torch.device):
        super().__init__()
        self._event = event
        self._device = device

    def wait(self, timeout=None) -> bool:
        """What the current stream gets next comes after it."""
        torch.cuda.current_stream(self._device).wait_event(self._event)
        return True

    def is_completed(self) -> bool:
        return self._event.query()


class PullAllGather(collectives.AllGather):
    """The all-gathers of one FSDP parameter group. What is not understood goes to `plain`,
    the group's all-gather from before, and `reasons` counts why."""

    def __init__(self, param_group, group: Group, pools: Pools):
        self.param_group = param_group
        self.plain = param_group._all_gather_comm
        self.reasons: Dict[str, int] = {}
        self.n_runs = 0
        self.n_bytes = 0                # that came from peers
        self.n_copied_bytes = 0         # that could not go where they belong at once
        self._group = group
        self._pools = pools
        self._turns: Set[int] = set()   # the pools of what is gathered now
        self._pull: Optional[Pull] = None
        self._parts: Tuple[int, ...] = ()
        self._slots: List[torch.Tensor] = []
        self._side: Optional[torch.cuda.Stream] = None
        for name in RESHARDS:
            setattr(param_group, name,
                    functools.partial(self._after_reshard, getattr(param_group, name)))

    # --- what FSDP calls -----------------------------------------------------------------

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype,
                 device: torch.device) -> torch.Tensor:
        """A Landing for size[0] elements, or plain memory."""
        reason = self._refusal(size, device)
        if reason is None:
            return Landing(self, int(size[0]), dtype, device)
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        return self.plain.allocate(size, dtype=dtype, device=device)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor,
                 group: dist.ProcessGroup, async_op: bool = False) -> Optional[dist.Work]:
        """On the current stream, or on one of its own behind it where async_op is set."""
        if not isinstance(output_tensor, Landing):
            return self.plain(output_tensor=output_tensor, input_tensor=input_tensor,
                              group=group, async_op=async_op)
        if not async_op or not self._group.is_gpu:
            self._land(output_tensor)
            return None
        side = self._side_stream()
        side.wait_stream(torch.cuda.current_stream(self._group.device))
        with torch.cuda.stream(side):
            self._land(output_tensor)
            return _Work(side.record_event(), self._group.device)

    def _refusal(self, size: Sequence[int], device: torch.device) -> Optional[str]:
        """Why not; the same at all ranks, as it is of shapes and types only."""
        if collectives.compiled_autograd_enabled():
            return "compiled autograd"
        if self.param_group.is_sharded_post_forward:
            return "resharded to a smaller group after forward"
        if device != self._group.device:
            return f"parameters on {device}"
        if self._group.is_gpu and _has_expandable_segments():
            return "expandable segments, whose parts cannot be registered as one"
        for param in self.param_group.fsdp_params:
            if hasattr(param._sharded_local_tensor, "fsdp_pre_all_gather"):
                return "parameters with an all-gather extension"
            if not param._sharded_param_data.numel():
                return "a parameter without elements"
        return None if len(size) == 1 else f"{len(size)} dimensions"

    # --- one all-gather, in the order of calls ---------------------------------------------

    def fill(self, landing: Landing, inputs: Sequence[torch.Tensor],
             sizes: Sequence[int]) -> torch.Tensor:
        """Copies this rank's shard, a tensor each parameter, to the slot that peers read.
        Returns the slot's part with it: 1-D, of the landing's dtype."""
        item = landing.dtype.itemsize
        landing.parts = tuple(n * item for n in sizes)
        pull = self._pull_of(landing.parts)
        with self._group.stream() as stream:
            number = pull.begin(stream)
        shard = self._slots[number].view(landing.dtype)
        with torch.no_grad():
            torch._foreach_copy_(list(shard.split(list(sizes))), list(inputs))
        return shard

    def _land(self, landing: Landing) -> None:
        if landing.parts is None:
            raise errors.StateError(f"{landing}: run before its shard was copied in: this "
                                    "version of PyTorch is not known; Handle.disable()")
        try:
            landing.targets = self._targets_of(landing.parts)
        except torch.OutOfMemoryError:  # a pool does not take what the common one keeps
            torch.cuda.empty_cache()
            landing.targets = self._targets_of(landing.parts)
        with self._group.stream() as stream:
            self._pull.run([target.data_ptr() for target in landing.targets], stream)
        self.n_runs += 1
        self.n_bytes += (self._group.size - 1) * sum(landing.parts)

    def _targets_of(self, parts: Sequence[int]) -> List[torch.Tensor]:
        params = self.param_group.fsdp_params
        with self._pools.allocating() as number:
            self._turns.add(number)
            return [self._target(param, n_bytes) for param, n_bytes in zip(params, parts)]

    def _target(self, param, n_bytes: int) -> torch.Tensor:
        """What FSDP copies the gathered shards to, 1-D; for a shard along another dimension,
        which FSDP puts together afterwards, memory of the same size."""
        size = self._group.size
        if param.fsdp_placement.dim == 0:
            dtype = param.param_dtype or param.orig_dtype
            param.init_all_gather_outputs([n_bytes // dtype.itemsize], [dtype], size,
                                          self._group.device)
            param.alloc_all_gather_outputs()
            output = param.all_gather_outputs[0]
            if output.numel() * output.itemsize == size * n_bytes:
                return output
        return torch.empty(size * n_bytes, dtype=torch.uint8, device=self._group.device)

    def hand_over(self, landing: Landing, outs: Sequence[torch.Tensor]) -> None:
        """FSDP wants each parameter's shards in outs, size x n each, on the current stream,
        which comes after the copies. They are there already, or are copied there."""
        targets = landing.targets
        if targets is None or len(outs) != len(targets):
            raise errors.StateError(f"{landing}: {len(outs)} outputs for "
                                    f"{len(targets or ())} parameters: this version of "
                                    "PyTorch is not known; Handle.disable()")
        for out, target in zip(outs, targets):
            if out.data_ptr() == target.data_ptr():
                continue
            rows = target.view(torch.uint8).view(self._group.size, -1)
            out.copy_(rows.view(out.dtype))
            self.n_copied_bytes += rows.numel()

    # --- what it holds ---------------------------------------------------------------------

    def _pull_of(self, parts: Tuple[int, ...]) -> Pull:
        """The slots for this layout; all ranks make them together at its first use."""
        if self._pull is None or self._parts != parts:
            self._drop_pull()
            self._pull = Pull(self._group, parts, self._group.deadline_s)
            self._parts = parts
            self._slots = [_bytes_of(self._group, slot) for slot in self._pull.slots]
        return self._pull

    def _drop_pull(self) -> None:
        if self._pull is None:
            return
        if self._group.is_gpu:          # peers' copies are over when their streams are
            torch.cuda.synchronize(self._group.device)
        self._slots = []
        pull, self._pull = self._pull, None
        if self._group.is_open:
            pull.close()

    def _side_stream(self) -> torch.cuda.Stream:
        if self._side is None:
            self._side = torch.cuda.Stream(self._group.device, priority=-1)
        return self._side

    def _after_reshard(self, reshard) -> None:
        """In place of the parameter group's own method, which frees the parameters where
        the state changes."""
        before = self.param_group._sharded_state
        reshard()
        if self.param_group._sharded_state is before:
            return
        for number in self._turns:
            self._pools.release(number)
        self._turns.clear()

    @property
    def n_plans(self) -> int:
        """How many are kept."""
        return self._pull.n_plans if self._pull else 0

    def check(self) -> None:
        """Raises the error of an all-gather that failed. Never blocks."""
        if self._pull is not None:
            self._pull.check()

    def close(self) -> None:
        """Gives the parameter group its own methods back; all ranks call it, with nothing
        in flight."""
        for name in RESHARDS:
            self.param_group.__dict__.pop(name, None)
        self._drop_pull()


def _has_expandable_segments() -> bool:
    """A parameter may then lie in several allocations of the driver's."""
    return any("expandable_segments:true" in os.environ.get(name, "").lower()
               for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"))


class _Range:
    """GPU memory as PyTorch takes it."""

    def __init__(self, address: int, n_bytes: int):
        self.__cuda_array_interface__ = {"version": 3, "typestr": "|u1", "strides": None,
                                         "shape": (n_bytes,), "data": (address, False)}


def _bytes_of(group: Group, buffer) -> torch.Tensor:
    """A buffer of this rank as a 1-D tensor of uint8; the buffer has to outlive it."""
    if not group.is_gpu:
        return torch.from_numpy(buffer.view("uint8"))
    address = buffer.address(group.rank)
    whole = torch.as_tensor(_Range(address, buffer.size_bytes), device=group.device)
    if whole.data_ptr() != address:
        raise errors.StateError(f"rank {group.rank}: PyTorch copies the memory at "
                                f"{address:#x} instead of using it: is it on {group.device}?")
    return whole
