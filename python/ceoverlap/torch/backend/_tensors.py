# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Collectives by a group's channel on tensors as torch.distributed gives them: lists, tensors with
gaps, without dimensions, of different shapes. Whatever is no plain memory goes through copies. The
channel compares what the ranks call, so only what one rank alone gets wrong is checked here, by the
functions whose names begin with check."""

from __future__ import annotations

from typing import Callable, List, Optional, Sequence, Tuple

import torch

from ... import errors
from .. import _channel
from .._channel import plain
from ..group import Group

Tensors = Sequence[torch.Tensor]


def _is_plain(x: torch.Tensor) -> bool:
    return x.is_contiguous() and not x.is_conj() and not x.is_neg()


def _into(target: torch.Tensor, fill: Callable[[torch.Tensor], None]) -> None:
    """Calls fill(memory) with memory that becomes target's numbers."""
    if _is_plain(target):
        fill(target)
        return
    with torch.inference_mode():
        made = torch.empty(target.shape, dtype=target.dtype, device=target.device)
        fill(made)
        target.copy_(made)


def _in_place(x: torch.Tensor, make: Callable[[torch.Tensor], None]) -> None:
    """Calls make(memory) with memory that has x's numbers and whose numbers x gets."""
    if _is_plain(x):
        make(x)
        return
    with torch.inference_mode():
        made = plain(x)
        make(made)
        x.copy_(made)


def _adjoining(tensors: Tensors) -> Optional[torch.Tensor]:
    """Returns the tensors as one of one dimension, if they lie one behind another."""
    first, n = tensors[0], 0
    begin, storage = first.data_ptr(), first.untyped_storage().data_ptr()
    for x in tensors:
        if (not _is_plain(x) or x.untyped_storage().data_ptr() != storage or
                x.numel() and x.data_ptr() != begin + n * first.element_size()):
            return None
        n += x.numel()
    return first.as_strided((n,), (1,))


def _together(tensors: Tensors) -> torch.Tensor:
    """Returns the numbers of all the tensors as one tensor, which is a copy unless they adjoin."""
    with torch.inference_mode():
        found = _adjoining(tensors)
        if found is not None:
            return found
        # As bytes: some dtypes cannot be joined.
        flat = [plain(x).as_strided((x.numel(),), (1,)) for x in tensors]
        return torch.cat([x.view(torch.uint8) for x in flat]).view(tensors[0].dtype)


def _into_all(targets: Tensors, fill: Callable[[torch.Tensor], None]) -> None:
    """As _into(), with the memory of all targets."""
    with torch.inference_mode():
        whole = _adjoining(targets)
        if whole is not None:
            fill(whole)
            return
        sizes = [target.numel() for target in targets]
        whole = targets[0].new_empty(sum(sizes))
        fill(whole)
        for target, part in zip(targets, whole.split(sizes)):
            target.copy_(part.view(target.shape))


def _apart(x: torch.Tensor, other: torch.Tensor, place: Optional[int] = None) -> torch.Tensor:
    """Returns x, plain, or a copy of it where `other` has some of the same memory, unless x lies at
    that place, an element of other."""
    x = plain(x)
    begin, at = x.data_ptr(), other.data_ptr()
    if begin + x.nbytes <= at or at + other.nbytes <= begin or (
            place is not None and begin == at + place * x.element_size()):
        return x
    return x.clone()


def _are_simple(x: torch.Tensor, target: torch.Tensor) -> bool:
    """Whether both are plain and have no memory in common."""
    if not _is_plain(x) or not _is_plain(target):
        return False
    begin, at = x.data_ptr(), target.data_ptr()
    return begin + x.nbytes <= at or at + target.nbytes <= begin


# --- checks -----------------------------------------------------------------------------


def check_alike(what: str, tensors: Tensors) -> None:
    """Raises InvalidError unless all tensors have one dtype and are on one device."""
    dtype, device = tensors[0].dtype, tensors[0].device
    for x in tensors:
        if x.dtype != dtype or x.device != device:
            raise errors.InvalidError(f"{what}: tensors of {dtype} on {device} and of {x.dtype} on "
                                      f"{x.device}: must all have the same dtype, and be in one "
                                      "place")


def is_whole(whole: torch.Tensor, part: torch.Tensor, size: int) -> bool:
    """What check_whole() looks at, in less time."""
    return (whole.dtype is part.dtype and whole.numel() == part.numel() * size and
            whole.device == part.device)


def check_whole(what: str, whole: torch.Tensor, part: torch.Tensor, size: int) -> None:
    """Raises InvalidError unless whole has as many elements as a part for each rank."""
    check_alike(what, (whole, part))
    if whole.numel() != part.numel() * size:
        raise errors.InvalidError(f"{what}: a whole of {whole.numel()} elements, parts of "
                                  f"{part.numel()}: must be {size} of them, one a rank")


def check_parts(what: str, parts: Tensors, own: torch.Tensor, group: Group) -> None:
    """Raises InvalidError unless there is a part for each rank, this rank's as large as own."""
    check_alike(what, (*parts, own))
    if len(parts) != group.size or parts[group.rank].numel() != own.numel():
        sizes = [part.numel() for part in parts]
        raise errors.InvalidError(f"{what}: parts of {sizes} elements: must be {group.size}, and "
                                  f"rank {group.rank}'s {own.numel()}")


def split(what: str, x: torch.Tensor, rows: Sequence[int], size: int) -> Optional[List[int]]:
    """Returns how many elements of x belong to each rank, of which rows has how many rows of its
    first dimension; None where it is empty: as many to all."""
    n = x.shape[0] if x.dim() else -1
    if not rows:
        if n < 0 or n % size:
            raise errors.InvalidError(f"{what}: a tensor of shape {tuple(x.shape)} is not {size} "
                                      "equal parts: its first dimension must be a multiple of it, "
                                      "or say how many rows each rank has")
        return None
    if len(rows) != size or sum(rows) != n or min(rows) < 0:
        raise errors.InvalidError(f"{what}: splits {list(rows)}: must be {size} numbers with sum "
                                  f"{n}, the rows of a tensor of shape {tuple(x.shape)}")
    inner = 1
    for m in x.shape[1:]:
        inner *= m
    return [row * inner for row in rows]


# --- moves ------------------------------------------------------------------------------


def all_gather(group: Group, target: torch.Tensor, x: torch.Tensor) -> None:
    if _are_simple(x, target):          # which the rest would find out in three times the time
        _channel.all_gather(group, x, None, target)
        return
    _into(target, lambda to: _channel.all_gather(
        group, _apart(x, to, group.rank * x.numel()), None, to))


def all_gather_list(group: Group, targets: Tensors, x: torch.Tensor) -> None:
    sizes = [target.numel() for target in targets]
    _into_all(targets, lambda to: _channel.all_gather(
        group, _apart(x, to, sum(sizes[:group.rank])), sizes, to))


def gather(group: Group, target: Optional[torch.Tensor], x: torch.Tensor, root: int) -> None:
    """target: None at other ranks than root."""
    if target is None:
        _channel.gather(group, plain(x), None, None, root)
        return
    _into(target, lambda to: _channel.gather(
        group, _apart(x, to, group.rank * x.numel()), None, to, root))


def gather_list(group: Group, targets: Tensors, x: torch.Tensor, root: int) -> None:
    """targets: empty at other ranks than root."""
    if not targets:
        _channel.gather(group, plain(x), None, None, root)
        return
    sizes = [target.numel() for target in targets]
    _into_all(targets, lambda to: _channel.gather(
        group, _apart(x, to, sum(sizes[:group.rank])), sizes, to, root))


def scatter_list(group: Group, target: torch.Tensor, parts: Tensors, root: int) -> None:
    """parts: empty at other ranks than root."""
    if not parts:
        _into(target, lambda to: _channel.scatter(group, None, None, to, root))
        return
    sizes = [part.numel() for part in parts]
    whole = _together(parts)
    _into(target, lambda to: _channel.scatter(
        group, _apart(whole, to), sizes, to, root))


def broadcast(group: Group, x: torch.Tensor, root: int) -> None:
    if _is_plain(x):
        _channel.broadcast(group, x, root)
        return
    _in_place(x, lambda memory: _channel.broadcast(group, memory, root))


def all_to_all(group: Group, target: torch.Tensor, x: torch.Tensor,
               received: Optional[Sequence[int]], sent: Optional[Sequence[int]]) -> None:
    """received, sent: elements from, and to, each rank; None: as many from, or to, all."""
    if sent is None and received is not None:
        sent = [x.numel() // group.size] * group.size
    if received is None and sent is not None:
        received = [target.numel() // group.size] * group.size
    if _are_simple(x, target):
        _channel.all_to_all(group, x, sent, received, target)
        return
    _into(target, lambda to: _channel.all_to_all(group, _apart(x, to), sent, received, to))


def all_to_all_list(group: Group, targets: Tensors, parts: Tensors) -> None:
    sent, received = [x.numel() for x in parts], [x.numel() for x in targets]
    whole = _together(parts)
    _into_all(targets, lambda to: _channel.all_to_all(group, _apart(whole, to), sent, received,
                                                      to))


barrier = _channel.barrier


def send(group: Group, x: torch.Tensor, peer: int) -> None:
    _channel.send(group, plain(x), peer)


def receive(group: Group, target: torch.Tensor, peer: int) -> None:
    _into(target, lambda to: _channel.receive(group, to, peer))


def messages(group: Group, calls: Sequence[Tuple[bool, torch.Tensor, int]]) -> None:
    """Sends and receives at the same time: of (whether it is sent, tensor, peer)."""
    made, targets = [], []
    with torch.inference_mode():
        for is_sent, x, peer in calls:
            memory = plain(x) if is_sent or _is_plain(x) else torch.empty(
                x.shape, dtype=x.dtype, device=x.device)
            made.append((is_sent, memory, peer))
            if not is_sent and memory is not x:
                targets.append((x, memory))
        _channel.messages(group, made)
        for x, memory in targets:
            x.copy_(memory)


# --- sums: reduction is one of enum ceov_reduction ---------------------------------------


def all_reduce(group: Group, x: torch.Tensor, reduction: int) -> None:
    if _is_plain(x):
        _channel.all_reduce(group, x, x, reduction)
        return
    _in_place(x, lambda memory: _channel.all_reduce(group, memory, memory, reduction))


def reduce(group: Group, x: torch.Tensor, root: int, reduction: int) -> None:
    _in_place(x, lambda memory: _channel.reduce(group, memory, root, reduction))


def reduce_scatter(group: Group, target: torch.Tensor, x: torch.Tensor, reduction: int) -> None:
    n = target.numel()
    if _are_simple(x, target):
        _channel.reduce_scatter(group, x, [n] * group.size, target, reduction)
        return
    _into(target, lambda to: _channel.reduce_scatter(
        group, _apart(x, to, -group.rank * n), [n] * group.size, to, reduction))


def reduce_scatter_list(group: Group, target: torch.Tensor, parts: Tensors,
                        reduction: int) -> None:
    sizes = [part.numel() for part in parts]
    whole = _together(parts)
    _into(target, lambda to: _channel.reduce_scatter(
        group, _apart(whole, to, -sum(sizes[:group.rank])), sizes, to, reduction))
