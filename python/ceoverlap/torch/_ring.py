# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Rows of ranks that go around in steps, on a stream beside the caller's: at step i every rank
sends its rows to the rank that lies i behind it, so that a rank works on what has come while the
rest is still on its way."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple, TypeVar

import torch

from .. import errors, ops
from .group import Group
from .operators import ALIGN_BYTES, Call, run_move

Moved = Tuple[torch.Tensor, Optional["torch.cuda.Event"]]


class Side:
    """A group's stream for moves, above others in priority: the few blocks that a move has come
    before those of products and attention, which fill the GPU."""

    def __init__(self, group: Group) -> None:
        self.stream = torch.cuda.Stream(group.device, priority=-1)

    def close(self) -> None:
        """Nothing: PyTorch keeps its streams."""


_Self = TypeVar("_Self", bound="Ring")


class Ring:
    """The moves of one call, as a ``with`` block. All ranks make the same moves in the same order.
    Memory that is moved is allocated by the caller's stream, which at the block's end comes after
    all moves; until then it is kept, since the allocator would give it to kernels of that stream.

    n_rows  n_rows(rank, source) is how many of the source's rows the rank gets: its first ones
    row     bytes of a row
    call    as in Operators.find()
    is_aside   whether moves run on a stream beside the caller's, else on that
    """

    def __init__(self, group: Group, n_rows: Callable[[int, int], int], row: int, call: Call,
                 is_aside: bool = True) -> None:
        self.group, self._n_rows, self._row, self._call = group, n_rows, row, call
        self._side = group.part(Side).stream if group.is_gpu and is_aside else None
        self._kept: List[torch.Tensor] = []
        if any(n_rows(rank, source) * row % ALIGN_BYTES
               for rank in range(group.size) for source in range(group.size)):
            raise errors.InvalidError(f"{call[0]}: rows of {row} bytes: a rank's rows have to be a "
                                      f"multiple of {ALIGN_BYTES} bytes")

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._side is not None:
            torch.cuda.current_stream(self.group.device).wait_stream(self._side)
        self._kept.clear()

    def source(self, step: int) -> int:
        return (self.group.rank - step) % self.group.size

    def step_of(self, source: int) -> int:
        """Returns the step at which a rank's rows come."""
        return (self.group.rank - source) % self.group.size

    def target(self, step: int) -> int:
        return (self.group.rank + step) % self.group.size

    def _bytes(self, step: int, is_home: bool) -> List[int]:
        """Returns the bytes from rank r to rank t at [r * size + t]. is_home: what was made of
        rows goes where the rows have come from."""
        size = self.group.size
        n_bytes = [0] * (size * size)
        for source in range(size):
            rank = (source + step) % size
            at = rank * size + source if is_home else source * size + rank
            n_bytes[at] = self._n_rows(rank, source) * self._row
        return n_bytes

    def _move(self, x: torch.Tensor, n_bytes: List[int], n: int,
              kind: Any = ops.AllToAll) -> Moved:
        """Moves rows. Returns the n rows that arrive, and the event behind which they are there;
        None on the caller's stream and on the host."""
        result = x.new_empty((n, *x.shape[1:]))
        if self._side is None:
            run_move(self.group, kind, x, n_bytes, result, self._call)
            return result, None
        self._kept += [x, result]
        self._side.wait_stream(torch.cuda.current_stream(self.group.device))
        with torch.cuda.stream(self._side):
            run_move(self.group, kind, x, n_bytes, result, self._call)
        return result, self._side.record_event()

    def gather(self, x: torch.Tensor) -> Moved:
        """Queues an all-gather of few bytes, of as many rows at all ranks. It comes before moves
        that are queued later. Returns what fetch() takes: the rows of all ranks in order."""
        size, n_bytes = self.group.size, x.numel() * x.element_size()
        return self._move(x, [n_bytes] * size, size * x.shape[0], ops.AllGather)

    def send(self, rows: torch.Tensor) -> List[Optional[Moved]]:
        """Queues the moves of all steps, where `rows` are this rank's. Returns what fetch() takes,
        by step; None for step 0, whose rows are the rank's own."""
        rank = self.group.rank
        return [None] + [
            self._move(rows, self._bytes(step, False), self._n_rows(rank, self.source(step)))
            for step in range(1, self.group.size)]

    def send_home(self, step: int, made: torch.Tensor) -> Moved:
        """Queues the move of what was made of this step's rows to the rank whose rows they are.
        Returns what fetch() takes: what that rank's peer made of this rank's own rows."""
        return self._move(made, self._bytes(step, True),
                          self._n_rows(self.target(step), self.group.rank))

    def fetch(self, moved: Optional[Moved]) -> torch.Tensor:
        """Returns rows that have been moved; the caller's stream waits for them."""
        assert moved is not None        # only a rank's own rows are not
        rows, event = moved
        if event is not None:
            torch.cuda.current_stream(self.group.device).wait_event(event)
        return rows
