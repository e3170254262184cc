# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""What the all-gathers of many FSDP parameter groups share: slots and plans, a constant
however many layers a model has."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from ... import errors
from ._pull import N_SLOTS, Layout, Pull
from ..group import Group

# A layer's steady state has at most 12: a gather in forward and one in backward, each with
# every slot and both pools. As many again for steps of two kinds.
PLANS_MAX = 24                          # kept for each parameter group


class Shard(NamedTuple):
    """The own shard in a slot: all of it, 1-D, and the part of each parameter."""
    whole: torch.Tensor
    parts: List[torch.Tensor]


class Staging:
    """The slots of the parameter groups that the same ranks share, in one enable(). They are
    made for the largest shard at once, at the first all-gather, instead of growing from one
    layer to the next; parameters that have become larger since get larger slots. One thread
    at a time, which begins and runs one all-gather after the other."""

    def __init__(self, group: Group):
        self.group = group
        self._n_members = 0             # parameter groups
        self._n_bytes = 0               # of their largest shard
        self._layouts: Dict[Tuple[int, ...], Layout] = {}
        self._shards: Dict[Tuple[Layout, torch.dtype], List[Shard]] = {}
        self._pull: Optional[Pull] = None
        self._side: Optional[torch.cuda.Stream] = None

    def reserve(self, n_bytes: int) -> None:
        """One more parameter group, with a shard of that size."""
        self._n_members += 1
        self._n_bytes = max(self._n_bytes, n_bytes)

    def layout(self, parts: Tuple[int, ...]) -> Layout:
        """The one of these bytes of each parameter's shard; all ranks meet where it is
        new, and refuse it where they come with different ones."""
        layout = self._layouts.get(parts)
        if layout is None:
            self.group.agree("all-gather: bytes of the parts of a shard", repr(parts))
            layout = self._layouts[parts] = Layout(parts)
        return layout

    def begin(self, layout: Layout, dtype: torch.dtype) -> Shard:
        """Where the next all-gather's shard goes: what the current stream gets next may
        write it. The parts are multiples of the dtype's size."""
        if self._pull is None or self._pull.n_bytes < layout.n_bytes:
            self._make_pull(layout.n_bytes)
        with self.group.stream() as stream:
            number = self._pull.begin(stream)
        shards = self._shards.get((layout, dtype))
        if shards is None:
            shards = self._shards[layout, dtype] = self._shards_of(layout, dtype)
        return shards[number]

    def run(self, layout: Layout, targets: Sequence[int]) -> None:
        """Pull.run() of what was begun, on the current stream, which comes after the
        shard's filling."""
        with self.group.stream() as stream:
            self._pull.run(layout, targets, stream)

    def side_stream(self) -> torch.cuda.Stream:
        """For all-gathers beside the caller's stream."""
        if self._side is None:
            self._side = torch.cuda.Stream(self.group.device, priority=-1)
        return self._side

    @property
    def n_bytes(self) -> int:
        """Of all slots."""
        return N_SLOTS * self._pull.n_bytes if self._pull else 0

    @property
    def n_plans(self) -> int:
        """How many are kept."""
        return self._pull.n_plans if self._pull else 0

    def check(self) -> None:
        """Raises the error of an all-gather that failed. Never blocks."""
        if self._pull is not None:
            self._pull.check()

    def close(self) -> None:
        """All ranks call it, with nothing in flight. Twice is harmless."""
        if self._pull is None:
            return
        if self.group.is_gpu:           # peers' copies are over when their streams are
            torch.cuda.synchronize(self.group.device)
        self._shards.clear()
        pull, self._pull = self._pull, None
        if self.group.is_open:
            pull.close()

    def _make_pull(self, n_bytes: int) -> None:
        """Peers may still read the slots that go: these are released when nobody does."""
        self.close()
        self._pull = Pull(self.group, max(n_bytes, self._n_bytes),
                          PLANS_MAX * max(self._n_members, 1), self.group.deadline_s)

    def _shards_of(self, layout: Layout, dtype: torch.dtype) -> List[Shard]:
        """Of each slot. Ordinary tensors, which training may write, even where the first
        all-gather was in inference mode."""
        sizes = [n_bytes // dtype.itemsize for n_bytes in layout.parts]
        with torch.inference_mode(False), torch.no_grad():
            wholes = [_bytes_of(self.group, slot)[:layout.n_bytes].view(dtype)
                      for slot in self._pull.slots]
            return [Shard(whole, list(whole.split(sizes))) for whole in wholes]


class _Memory:
    """GPU memory as PyTorch takes it."""

    def __init__(self, address: int, n_bytes: int):
        self.__cuda_array_interface__ = {"version": 3, "typestr": "|u1", "strides": None,
                                         "shape": (n_bytes,), "data": (address, False)}


def _bytes_of(group: Group, buffer) -> torch.Tensor:
    """A buffer of this rank as a 1-D tensor of uint8; the buffer has to outlive it."""
    if not group.is_gpu:
        return torch.from_numpy(buffer.view("uint8"))
    address = buffer.address(group.rank)
    whole = torch.as_tensor(_Memory(address, buffer.size_bytes), device=group.device)
    if whole.data_ptr() != address:
        raise errors.StateError(f"rank {group.rank}: PyTorch copies the memory at "
                                f"{address:#x} instead of using it: is it on {group.device}?")
    return whole
