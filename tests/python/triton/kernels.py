# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The tests' Triton kernels. Importing this needs Triton."""

import triton
import triton.language as tl

from ceoverlap.triton import arrive, await_mark

NUMBERS = ["value", "salt", "timeout_ns"]       # what changes from launch to launch


@triton.jit
def pattern(offsets, salt):
    """Data that tells its place and its round: int32, as offsets."""
    return (offsets + salt) * 40503 + (offsets >> 7)


@triton.jit(do_not_specialize=NUMBERS)
def produce(out, ready, n_tiles, value, salt, SIZE: tl.constexpr):
    """A tile of SIZE int32 a program, n_tiles a piece, piece after piece."""
    offsets = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(out + offsets, pattern(offsets, salt))
    arrive(ready, tl.program_id(0) // n_tiles, n_tiles, value)


@triton.jit(do_not_specialize=NUMBERS)
def produce_by_tma(out, ready, n_tiles, value, salt, ROWS: tl.constexpr,
                   COLUMNS: tl.constexpr):
    """The same; out is a tensor descriptor of rows of COLUMNS, SIZE is ROWS * COLUMNS."""
    row = tl.program_id(0) * ROWS
    offsets = (row + tl.arange(0, ROWS))[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    out.store([row, 0], pattern(offsets, salt))
    arrive(ready, tl.program_id(0) // n_tiles, n_tiles, value)


@triton.jit(do_not_specialize=NUMBERS)
def consume(received, found, arrived, n_tiles, value, salt, SIZE: tl.constexpr):
    """A program for each tile: awaits its piece, adds the number of wrong words to found[0]
    and what await_mark said to found[1]."""
    offsets = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    left = await_mark(arrived, tl.program_id(0) // n_tiles, value)
    if left == 0:
        words = tl.load(received + offsets)
        tl.atomic_add(found, tl.sum((words != pattern(offsets, salt)).to(tl.int32)))
    else:
        tl.atomic_add(found + 1, left)


@triton.jit(do_not_specialize=NUMBERS)
def arrive_only(signal, n_counters, n_tiles, value):
    """n_counters * n_tiles programs; neighbours arrive at different counters."""
    arrive(signal, tl.program_id(0) % n_counters, n_tiles, value)


@triton.jit(do_not_specialize=NUMBERS)
def await_only(signal, result, value, timeout_ns):
    """Stores what await_mark says, in each element of result (128) by another thread."""
    left = await_mark(signal, 0, value, timeout_ns)
    tl.store(result + tl.arange(0, 128), tl.zeros((128,), tl.int32) + left)


@triton.jit
def multiply(a, b, c, arrived, value, k, SIZE: tl.constexpr, AWAITS: tl.constexpr):
    """c = a b^T, SIZE x SIZE; a's and b's columns come in pieces."""
    rows = tl.arange(0, SIZE)
    total = tl.zeros((SIZE, SIZE), tl.float32)
    for i in range(k // SIZE):
        if AWAITS:
            await_mark(arrived, i, value)
        steps = (i * SIZE + rows)[None, :]
        left = tl.load(a + rows[:, None] * k + steps)
        right = tl.load(b + rows[:, None] * k + steps)
        total = tl.dot(left, right.T, total)
    tl.store(c + rows[:, None] * SIZE + rows[None, :], total)


@triton.jit
def sum_rows(a, c, arrived, value, n, SIZE: tl.constexpr):
    """Reads the same memory n times, each behind a mark, and arrives with constants."""
    total = tl.zeros((SIZE,), tl.float32)
    for i in range(n):
        await_mark(arrived, i, value)
        total += tl.load(a + tl.arange(0, SIZE))
    tl.store(c + tl.arange(0, SIZE), total)
    arrive(arrived, 3, SIZE, 7)
