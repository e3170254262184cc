# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Moves and sums of tensors by a group's channel, which groups of one node may have: any count,
dtype and alignment, and nothing is made or agreed on before a call. On GPUs calls come in the order
of the current stream. All tensors have to be contiguous, see plain(). Counts are elements. Sums
of ceoverlap.torch's own functions are of operators.DTYPES alone, which channels add up wherever the
ranks are; a backend's are also of the other dtypes that they add up on the host."""

from __future__ import annotations

import ctypes
import mmap
from typing import Optional, Sequence, Tuple

import torch

from .. import _abi
from .._operands import CODES
from ..channel import Channel, Counts, counts, packed
from ._seen import by_channel
from .group import Group

_CODES = {getattr(torch, name): code for name, code in CODES.items() if hasattr(torch, name)}

_MOST_MESSAGES, _MOST_GPU_MESSAGES = 1024, 128     # that are made at the same time
_LARGE_BYTES = 4 << 20
_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def result_of(x: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Returns memory for a result of this shape, like x. The first write to each page of fresh
    memory takes longer than the bytes that go there, so large results on the host ask for large
    pages, as NumPy's arrays do; a kernel without them refuses, which changes nothing."""
    result = x.new_empty(shape)
    if result.is_cpu and result.nbytes >= _LARGE_BYTES:
        at = -(-result.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        _madvise(at, result.data_ptr() + result.nbytes - at, mmap.MADV_HUGEPAGE)
    return result


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor, or a copy of it if it has gaps, or if its signs are not in its memory."""
    if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        tensor = tensor.contiguous().resolve_conj().resolve_neg()
    return tensor


def _dtype_and_items(x: torch.Tensor) -> Tuple[int, int]:
    """Returns the code of a dtype that is moved, and how many of its items an element is: bytes of
    a dtype that channels do not know."""
    code = _CODES.get(x.dtype)
    return (code, 1) if code is not None else (_abi.CEOV_UINT8, x.element_size())


def _counts_of(elements: Sequence[int], items: int) -> Counts:
    return counts([n * items for n in elements])


def _channel_of(group: Group) -> Channel:
    assert group.channel is not None    # callers have looked
    return group.channel


def _make(group: Group, call: bytes) -> None:
    """Makes a collective, behind what the group's queue has."""
    if group.queue is None:
        _channel_of(group)._make(call)
    else:
        group.queue.run(_channel_of(group)._make, call)


@by_channel
def all_gather(group: Group, x: torch.Tensor, elements: Optional[Sequence[int]],
               target: torch.Tensor) -> None:
    """Sets target to the x of all ranks, of which this rank's may be in its place already.
    elements: of each rank; None: as many as x has."""
    code, items = _dtype_and_items(x)
    receives = None if elements is None else _counts_of(elements, items)
    _make(group, packed(_abi.CEOV_ALL_GATHER, code, x.data_ptr(), target.data_ptr(),
                        x.numel() * items, receives=receives, stream=group.run_stream()))


@by_channel
def all_to_all(group: Group, x: torch.Tensor, sent: Optional[Sequence[int]],
               received: Optional[Sequence[int]], target: torch.Tensor) -> None:
    """Sends parts of x to all ranks, and sets target to those that come. sent, received: elements
    to, and from, each rank; None, both, at all ranks: as many everywhere, which copy engines can
    move into a pool."""
    code, items = _dtype_and_items(x)
    sends = None if sent is None else _counts_of(sent, items)
    receives = None if received is None else _counts_of(received, items)
    _make(group, packed(_abi.CEOV_ALL_TO_ALL, code, x.data_ptr(), target.data_ptr(),
                        x.numel() // group.size * items, sends=sends, receives=receives,
                        stream=group.run_stream()))


@by_channel
def broadcast(group: Group, x: torch.Tensor, root: int) -> None:
    """Sets x to rank root's, at all ranks."""
    code, items = _dtype_and_items(x)
    at, source = x.data_ptr(), 0
    if group.rank == root:
        source = at
    _make(group, packed(_abi.CEOV_BROADCAST, code, source, at, x.numel() * items, root=root,
                        stream=group.run_stream()))


@by_channel
def gather(group: Group, x: torch.Tensor, elements: Optional[Sequence[int]],
           target: Optional[torch.Tensor], root: int) -> None:
    """As all_gather(), at rank root alone: the others have no elements and no target."""
    code, items = _dtype_and_items(x)
    receives = None if elements is None else _counts_of(elements, items)
    _make(group, packed(_abi.CEOV_GATHER, code, x.data_ptr(),
                        0 if target is None else target.data_ptr(), x.numel() * items, root=root,
                        receives=receives, stream=group.run_stream()))


@by_channel
def scatter(group: Group, x: Optional[torch.Tensor], elements: Optional[Sequence[int]],
            target: torch.Tensor, root: int) -> None:
    """Sets target to this rank's part of rank root's x. elements: of each rank's part; the other
    ranks have none, and no x."""
    code, items = _dtype_and_items(target)
    sends = None if elements is None else _counts_of(elements, items)
    _make(group, packed(_abi.CEOV_SCATTER, code, 0 if x is None else x.data_ptr(),
                        target.data_ptr(), target.numel() * items, root=root, sends=sends,
                        stream=group.run_stream()))


def barrier(group: Group) -> None:
    _make(group, packed(_abi.CEOV_BARRIER, 0, 0, 0, 0, stream=group.run_stream()))


@by_channel
def send(group: Group, x: torch.Tensor, peer: int) -> None:
    """Sends x to a rank that calls receive(). It has no order with collectives."""
    code, items = _dtype_and_items(x)
    _channel_of(group)._make(packed(_abi.CEOV_SEND, code, x.data_ptr(), 0, x.numel() * items,
                                    root=peer, stream=group.run_stream()))


def receive(group: Group, target: torch.Tensor, peer: int) -> None:
    """Sets target to what that rank sends: as many elements, of the same dtype."""
    code, items = _dtype_and_items(target)
    _channel_of(group)._make(packed(_abi.CEOV_RECEIVE, code, 0, target.data_ptr(),
                                    target.numel() * items, root=peer,
                                    stream=group.run_stream()))


def messages(group: Group, calls: Sequence[Tuple[bool, torch.Tensor, int]]) -> None:
    """Sends and receives at the same time: of (whether it is sent, tensor, peer)."""
    queue, made = group.run_stream(), []
    for is_sent, x, peer in calls:
        code, items = _dtype_and_items(x)
        source, target = (x.data_ptr(), 0) if is_sent else (0, x.data_ptr())
        made.append(packed(_abi.CEOV_SEND if is_sent else _abi.CEOV_RECEIVE, code, source, target,
                           x.numel() * items, root=peer, stream=queue))
    most = _MOST_GPU_MESSAGES if group.is_gpu else _MOST_MESSAGES
    for first in range(0, len(made), most):
        some = made[first:first + most]
        _channel_of(group)._make(b"".join(some), len(some))


def reduction_of(group: Group, scale: float) -> Optional[int]:
    """Returns how the group's channel makes sums times scale; None if it does not, or there is
    none. A scale of 1 / size is a mean, which is the sum divided by size: rounded once, where the
    product is rounded twice."""
    if group.channel is None:
        return None
    return {1.0 / group.size: _abi.CEOV_MEAN, 1.0: _abi.CEOV_SUM}.get(scale)


@by_channel
def reduce_scatter(group: Group, x: torch.Tensor, elements: Sequence[int],
                   target: torch.Tensor, reduction: int) -> None:
    """Sets target to this rank's part of the sum over ranks of x. elements: of each rank's part.
    The dtype is one of those that are added up; reduction: enum ceov_reduction."""
    sends = counts(elements)
    _make(group, packed(_abi.CEOV_REDUCE_SCATTER, _CODES[x.dtype], x.data_ptr(),
                        target.data_ptr(), target.numel(), reduction=reduction, sends=sends,
                        stream=group.run_stream()))


@by_channel
def all_reduce(group: Group, x: torch.Tensor, target: torch.Tensor,
               reduction: int = _abi.CEOV_SUM) -> None:
    """Sets target, which may be x, to the sum over ranks of x."""
    _make(group, packed(_abi.CEOV_ALL_REDUCE, _CODES[x.dtype], x.data_ptr(), target.data_ptr(),
                        x.numel(), reduction=reduction, stream=group.run_stream()))


@by_channel
def reduce(group: Group, x: torch.Tensor, root: int, reduction: int) -> None:
    """Sets x to the sum over ranks of x, at rank root alone."""
    at = x.data_ptr()
    _make(group, packed(_abi.CEOV_REDUCE, _CODES[x.dtype], at, at if group.rank == root else 0,
                        x.numel(), reduction=reduction, root=root, stream=group.run_stream()))
