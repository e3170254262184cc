# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""FSDP2's all-gather on copy engines: shards go from the peers' slots straight to where the
unsharded parameters are, so that nothing is left to copy out."""

from __future__ import annotations

import functools
import os
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Union

import torch
import torch.distributed as dist

from ... import errors
from .._compat import copy_each, fsdp2
from ._pools import Pools
from ._pull import Layout
from ._staging import Staging
from ._uncast import Uncast, uncast

_FSDP = fsdp2()
RESHARDS = ("_to_sharded", "_to_sharded_post_forward")  # where FSDP frees parameters


class Landing:
    """An object in place of the output tensor of one all-gather. It has no memory: the
    parameters themselves receive the bytes. FSDP passes it to functions that PullAllGather
    handles. It is no torch.Tensor, because making and inspecting one takes more CPU time than
    everything else here.

    gather         the PullAllGather that it belongs to
    dtype, device  of the gathered data, as a tensor has them
    layout         of this rank's shard, once its slot is filled
    targets        tensors with all shards of each parameter, once the copies are queued
    """

    __slots__ = ("gather", "dtype", "device", "layout", "targets")

    def __init__(self, gather: PullAllGather, dtype: torch.dtype, device: torch.device) -> None:
        self.gather = gather
        self.dtype = dtype
        self.device = device
        self.layout: Optional[Layout] = None
        self.targets: Optional[List[torch.Tensor]] = None

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.fsdp.all_gather_copy_in:
            inputs, landing, sizes = args[:3]
            return landing.gather.fill(landing, inputs, sizes), landing
        if func is torch.ops.fsdp.split_with_sizes_copy:
            return args[0].gather.hand_over(args[0], kwargs["out"])
        raise errors.StateError(f"{func}: this stands for the output of an all-gather that "
                                "goes straight to the parameters and has no elements: use "
                                "the parameters, or Handle.disable()")

    def view(self, *_shape: Any) -> Landing:
        """Returns itself. FSDP asks for a view with a row for each rank before
        split_with_sizes_copy()."""
        return self

    def __repr__(self) -> str:
        return f"<Landing of {self.gather.param_group}>"


class _Output(NamedTuple):
    """A tensor in which FSDP keeps all shards of one parameter, with one dimension."""
    tensor: torch.Tensor
    storage: torch.UntypedStorage
    n_bytes: int


class _Work(_FSDP.Work):  # type: ignore[misc, name-defined]     # PyTorch has it, privately
    """An all-gather that runs on a side stream."""

    def __init__(self, event: torch.cuda.Event, device: torch.device) -> None:
        super().__init__()
        self._event = event
        self._device = device

    def wait(self, timeout: Any = None) -> bool:
        """Has the current stream wait for the all-gather."""
        torch.cuda.current_stream(self._device).wait_event(self._event)
        return True

    def is_completed(self) -> bool:
        return self._event.query()


class PullAllGather:
    """The all-gathers of one FSDP parameter group. Those that it does not support go to
    `plain`, the implementation that the group had before, and `reasons` counts why."""

    words = "copy engines"

    def __init__(self, param_group: Any, staging: Staging, pools: Pools) -> None:
        self.param_group = param_group
        self.plain = param_group._all_gather_comm
        self.reasons: Dict[str, int] = {}
        self.n_runs = 0
        self.n_bytes = 0                # that came from peers
        self.n_copied_bytes = 0         # that could not go where they belong at once
        self.staging = staging
        self.groups = {param_group.mesh_info.shard_process_group: staging.group}
        self._group = staging.group
        self._pools = pools
        self._turns: Set[int] = set()   # the pools of what is gathered now
        self._layout: Optional[Layout] = None   # the last one, of
        self._sizes: List[int] = []             # these numbers of elements
        self._dtype: Optional[torch.dtype] = None
        self._params: List[Any] = param_group.fsdp_params
        self._outputs: List[Optional[_Output]] = [None] * len(self._params)
        self._is_expandable = self._group.is_gpu and _has_expandable_segments()
        self._is_closed = False
        staging.reserve(self._shard_bytes())
        for name in RESHARDS:
            setattr(param_group, name,
                    functools.partial(self._after_reshard, getattr(param_group, name)))
        param_group.unshard = functools.partial(self._unshard, param_group.unshard)

    # --- what FSDP calls -----------------------------------------------------------------

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype,
                 device: torch.device) -> torch.Tensor:
        """Returns a Landing, or ordinary memory if the next all-gather is not supported."""
        reason = self._refusal()
        if reason is None:
            return Landing(self, dtype, device)  # type: ignore[return-value]       # acts as one
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        return self.plain.allocate(size, dtype=dtype, device=device)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor,
                 group: dist.ProcessGroup, async_op: bool = False) -> Optional[dist.Work]:
        """Queues the all-gather on the current stream, or on a side stream behind it if
        async_op is set."""
        if not isinstance(output_tensor, Landing):
            return self.plain(output_tensor=output_tensor, input_tensor=input_tensor,
                              group=group, async_op=async_op)
        if not async_op or not self._group.is_gpu:
            self._land(output_tensor)
            return None
        side = self.staging.side_stream()
        side.wait_stream(torch.cuda.current_stream(self._group.device))
        with torch.cuda.stream(side):
            self._land(output_tensor)
            return _Work(side.record_event(), self._group.device)

    def _unshard(self, unshard: Any, async_op: bool = False) -> None:
        """Replaces the parameter group's unshard(), which begins an all-gather if none has
        begun. With this all-gather the shards are passed before they are cast."""
        group, params = self.param_group, None
        if not group.is_unsharded and group._all_gather_result is None and self._is_used():
            params = uncast(self._params)
        if params is None:
            unshard(async_op)
            return
        group.fsdp_params = params
        try:
            unshard(async_op)
        finally:
            group.fsdp_params = self._params

    def _is_used(self) -> bool:
        """Returns whether this object makes the group's next all-gather. Others cannot handle
        Uncast."""
        group = self.param_group
        return (group._all_gather_comm is self and group.fsdp_params is self._params and
                self._refusal() is None)

    def _refusal(self) -> Optional[str]:
        """Returns why the next all-gather is not supported, or None. It depends on shapes and
        types only, so it is the same at all ranks."""
        if self._is_closed:             # and others still call
            return "disabled"
        if _FSDP.collectives.compiled_autograd_enabled():
            return "compiled autograd"
        if self.param_group.is_sharded_post_forward:
            return "resharded to a smaller group after forward"
        if self.param_group.device != self._group.device:
            return f"parameters on {self.param_group.device}"
        if self._is_expandable:
            return "expandable segments, whose parts cannot be registered as one"
        for param in self._params:
            if hasattr(param._sharded_local_tensor, "fsdp_pre_all_gather"):
                return "parameters with an all-gather extension"
            if not param._sharded_param_data.numel():
                return "a parameter without elements"
        return None

    # --- one all-gather, in the order of calls ---------------------------------------------

    def fill(self, landing: Landing, inputs: Sequence[Union[torch.Tensor, Uncast]],
             sizes: Sequence[int]) -> torch.Tensor:
        """Copies this rank's shard, with one part for each parameter, to the slot that peers
        read. Returns the shard's place in the slot, 1-D and of the landing's dtype. Called
        under no_grad()."""
        landing.layout = self._layout_of(sizes, landing.dtype)
        shard = self.staging.begin(landing.layout, landing.dtype)
        copy_each(shard.parts, [part.data for part in inputs])
        return shard.whole

    def _layout_of(self, sizes: Sequence[int], dtype: torch.dtype) -> Layout:
        if self._layout is None or self._sizes != sizes or self._dtype != dtype:
            self._layout = self.staging.layout(tuple(n * dtype.itemsize for n in sizes))
            self._sizes, self._dtype = list(sizes), dtype
        return self._layout

    def _land(self, landing: Landing) -> None:
        layout = landing.layout
        if layout is None:
            raise errors.StateError(f"{landing}: run before its shard was copied in: this "
                                    "version of PyTorch is not known; Handle.disable()")
        try:
            landing.targets = self._targets_of(layout)
        except torch.OutOfMemoryError:  # a pool does not take what the common one keeps
            torch.cuda.empty_cache()
            landing.targets = self._targets_of(layout)
        self.staging.run(layout, [target.data_ptr() for target in landing.targets])
        self.n_runs += 1
        self.n_bytes += (self._group.size - 1) * layout.n_bytes

    def _targets_of(self, layout: Layout) -> List[torch.Tensor]:
        with self._pools.allocating() as number:
            self._turns.add(number)
            return [self._target(i, n_bytes) for i, n_bytes in enumerate(layout.parts)]

    def _target(self, i: int, n_bytes: int) -> torch.Tensor:
        """Returns the 1-D tensor to which FSDP copies the gathered shards of parameter i, with
        memory. It is mostly the same tensor as last time, of which FSDP has only freed the
        storage."""
        outputs = self._params[i].all_gather_outputs
        known = self._outputs[i]
        if (known is None or not outputs or outputs[0] is not known.tensor
                or known.n_bytes != self._group.size * n_bytes):
            return self._fresh_target(i, n_bytes)
        if not known.storage.size():
            known.storage.resize_(known.n_bytes)
        return known.tensor

    def _fresh_target(self, i: int, n_bytes: int) -> torch.Tensor:
        """Returns memory of the same size for a parameter that is sharded along another
        dimension than the first, whose shards FSDP puts together afterwards."""
        param, size = self._params[i], self._group.size
        if param.fsdp_placement.dim == 0:
            dtype = param.param_dtype or param.orig_dtype
            param.init_all_gather_outputs([n_bytes // dtype.itemsize], [dtype], size,
                                          self._group.device)
            param.alloc_all_gather_outputs()
            output = param.all_gather_outputs[0]
            if output.numel() * output.itemsize == size * n_bytes:
                self._outputs[i] = _Output(output, output.untyped_storage(), size * n_bytes)
                return output
        return torch.empty(size * n_bytes, dtype=torch.uint8, device=self._group.device)

    def hand_over(self, landing: Landing, outs: Sequence[torch.Tensor]) -> None:
        """Has the shards of each parameter in outs, size x n each, for the current stream,
        which waits for the copies. They are there already, or are copied there now."""
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

    def _shard_bytes(self) -> int:
        """Returns the bytes that one all-gather needs in a slot. FSDP gathers in the dtype of
        its mixed-precision policy, which parameters know only after the first forward pass."""
        dtype = self.param_group.mp_policy.param_dtype
        return sum(param.padded_sharded_param_size.numel() *
                   (dtype or param.sharded_param.dtype).itemsize for param in self._params)

    # --- what it holds ---------------------------------------------------------------------

    def _after_reshard(self, reshard: Any) -> None:
        """Replaces a method of the parameter group that frees the gathered parameters if the
        group's state changes."""
        before = self.param_group._sharded_state
        reshard()
        if self.param_group._sharded_state is before:
            return
        for number in self._turns:
            self._pools.release(number)
        self._turns.clear()

    def check(self) -> None:
        """Raises the error of an all-gather of the same ranks that failed, if any. Never blocks.
        """
        self.staging.check()

    def close(self) -> None:
        """Gives the parameter group its former all-gather and methods back. Nothing may be in
        flight. An all-gather that somebody else has set since then stays."""
        self._is_closed = True
        if self.param_group._all_gather_comm is self:
            self.param_group._all_gather_comm = self.plain
        for name in (*RESHARDS, "unshard"):
            self.param_group.__dict__.pop(name, None)
        self._pools.close()


def _has_expandable_segments() -> bool:
    """Returns whether PyTorch's allocator uses expandable segments. Then a parameter may lie in
    several allocations of the driver."""
    return any("expandable_segments:true" in os.environ.get(name, "").lower()
               for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"))
