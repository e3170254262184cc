# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Slots and plans that the all-gathers of many FSDP parameter groups share, so that their
number does not grow with the model's layers."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from ... import errors
from ._pull import N_SLOTS, Layout, Pull
from ..group import Group

# A layer's steady state has at most 12: a gather in forward and one in backward, each with
# every slot and both pools. As many again for steps of two kinds.
PLANS_MAX = 24                          # kept for each parameter group


class Shard(NamedTuple):
    """This rank's shard in a slot: the whole as a 1-D tensor, and the part of each parameter."""
    whole: torch.Tensor
    parts: List[torch.Tensor]


class Staging:
    """The slots of all parameter groups that the same ranks share, for one enable(). They are
    made for the largest shard at the first all-gather instead of growing from layer to layer;
    if a shard becomes larger later, new slots are made. Only one thread at a time may begin and
    run all-gathers, one after the other."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self._n_members = 0             # parameter groups
        self._n_bytes = 0               # of their largest shard
        self._layouts: Dict[Tuple[int, ...], Layout] = {}
        self._shards: Dict[Tuple[Layout, torch.dtype], List[Shard]] = {}
        self._pull: Optional[Pull] = None
        self._side: Optional[torch.cuda.Stream] = None

    def reserve(self, n_bytes: int) -> None:
        """Counts one more parameter group, with a shard of this size."""
        self._n_members += 1
        self._n_bytes = max(self._n_bytes, n_bytes)

    def layout(self, parts: Tuple[int, ...]) -> Layout:
        """Returns the Layout for these numbers of bytes of each parameter's shard. For new
        numbers all ranks meet, and raise an error if their numbers differ."""
        layout = self._layouts.get(parts)
        if layout is None:
            self.group.agree("all-gather: bytes of the parts of a shard", repr(parts))
            layout = self._layouts[parts] = Layout(parts)
        return layout

    def begin(self, layout: Layout, dtype: torch.dtype) -> Shard:
        """Returns the Shard for the next all-gather, in a slot. What is queued on the current
        stream afterwards may write it. The parts' sizes are multiples of the dtype's size."""
        if self._pull is None or self._pull.n_bytes < layout.n_bytes:
            self._make_pull(layout.n_bytes)
        assert self._pull is not None
        with self.group.stream() as stream:
            number = self._pull.begin(stream)
        shards = self._shards.get((layout, dtype))
        if shards is None:
            shards = self._shards[layout, dtype] = self._shards_of(layout, dtype)
        return shards[number]

    def run(self, layout: Layout, targets: Sequence[int]) -> None:
        """Runs the all-gather that begin() began on the current stream, to which the filling of
        the shard was queued before."""
        assert self._pull is not None           # begin() has made it
        with self.group.stream() as stream:
            self._pull.run(layout, targets, stream)

    def side_stream(self) -> torch.cuda.Stream:
        """Returns the stream for all-gathers that run beside the caller's stream."""
        if self._side is None:
            self._side = torch.cuda.Stream(self.group.device, priority=-1)
        return self._side

    @property
    def n_bytes(self) -> int:
        """Bytes of all slots together."""
        return N_SLOTS * self._pull.n_bytes if self._pull else 0

    @property
    def n_plans(self) -> int:
        """Number of plans that are kept."""
        return self._pull.n_plans if self._pull else 0

    def check(self) -> None:
        """Raises the error of an all-gather that failed. Never blocks."""
        if self._pull is not None:
            self._pull.check()

    def close(self) -> None:
        """Releases slots and plans. All ranks call it, with nothing in flight. It may be called
        twice."""
        if self._pull is None:
            return
        if self.group.is_gpu:           # peers' copies are over when their streams are
            torch.cuda.synchronize(self.group.device)
        self._shards.clear()
        pull, self._pull = self._pull, None
        if self.group.is_open:
            pull.close()

    def _make_pull(self, n_bytes: int) -> None:
        """Makes new slots in place of the present ones. Peers may still read the latter, so
        these are released when no peer uses them."""
        self.close()
        self._pull = Pull(self.group, max(n_bytes, self._n_bytes),
                          PLANS_MAX * max(self._n_members, 1), self.group.deadline_s)

    def _shards_of(self, layout: Layout, dtype: torch.dtype) -> List[Shard]:
        """Returns a Shard for each slot. They are ordinary tensors that training may write,
        even if the first all-gather happens in inference mode."""
        sizes = [n_bytes // dtype.itemsize for n_bytes in layout.parts]
        assert self._pull is not None
        with torch.inference_mode(False), torch.no_grad():
            wholes = [_bytes_of(self.group, slot)[:layout.n_bytes].view(dtype)
                      for slot in self._pull.slots]
            return [Shard(whole, list(whole.split(sizes))) for whole in wholes]


class _Memory:
    """GPU memory in the form that PyTorch accepts."""

    def __init__(self, address: int, n_bytes: int) -> None:
        self.__cuda_array_interface__ = {"version": 3, "typestr": "|u1", "strides": None,
                                         "shape": (n_bytes,), "data": (address, False)}


def _bytes_of(group: Group, buffer: Any) -> torch.Tensor:
    """Returns a buffer of this rank as a 1-D tensor of uint8. The buffer has to outlive the
    tensor."""
    if not group.is_gpu:
        return torch.from_numpy(buffer.view("uint8"))
    address = buffer.address(group.rank)
    whole = torch.as_tensor(_Memory(address, buffer.size_bytes), device=group.device)
    if whole.data_ptr() != address:
        raise errors.StateError(f"rank {group.rank}: PyTorch copies the memory at "
                                f"{address:#x} instead of using it: is it on {group.device}?")
    return whole
