# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""What a Triton kernel does with signals: its tiles arrive, or it awaits a mark. The same
protocol as ``ceoverlap/device.cuh``, instruction by instruction; a signal may be arrived at
by Triton and by CUDA C++ kernels in turn.

    from ceoverlap.triton import arrive, await_mark, view

    @triton.jit(do_not_specialize=["value"])
    def produce(out, ready, n_tiles, value, ...):       # ready: view(signal)
        ...
        tl.store(out + offsets, tile)
        arrive(ready, piece, n_tiles, value)

    @triton.jit(do_not_specialize=["value"])
    def consume(received, arrived, value, ...):
        left = await_mark(arrived, piece, value)
        if left == 0:
            tile = tl.load(received + offsets)

A view is one kernel argument, a tuple of four integers. Name values that change from launch
to launch in do_not_specialize: Triton would compile anew for 1 and for multiples of 16, and
a kernel that is compiled while another waits for it keeps that one waiting.

Both verbs are called by whole programs, in uniform control flow (inside an ``if`` or a loop
whose condition is the same for the program); each contains the barriers that it needs. They
are refused at compile time on anything but CUDA and in kernels with num_ctas > 1. They do
not belong into loops with warp_specialize, whose warps know other barriers.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

try:
    import triton
    import triton.language as tl
    from triton.language import core
except ImportError as _error:
    raise ImportError("ceoverlap.triton needs Triton: pip install triton") from _error

from ..signal import Signal

# What await_mark() returns: enum ceov_device_result.
REACHED = tl.constexpr(0)
ABORTED = tl.constexpr(1)               # the data must not be used: leave
TIMEOUT = tl.constexpr(2)


class View(NamedTuple):
    """The fields of struct ceov_device_signal as a kernel takes them: addresses in one GPU's
    address space.

    counters    of the signal's uint64 counters
    arrivals    of uint32 numbers of arrived tiles, one for each counter; 0: await only
    words       of the uint64 copies of the counters in host memory, or 0
    abort_word  of the uint32 that is not 0 after an abort, or 0
    """
    counters: int
    arrivals: int
    words: int
    abort_word: int


def view(signal: Signal, rank: Optional[int] = None) -> View:
    """Returns the View of a signal for kernels on the GPU of one of this process' ranks (None:
    the context's first), and only for these. It is valid until the signal is closed, also after
    renew(). Raises InvalidError if the rank is not on a GPU."""
    struct = signal.for_device(rank)
    return View(struct.counters or 0, struct.arrivals or 0, struct.words or 0,
                struct.abort_word or 0)


# The PTX stands in constants of the module, because Triton's cache knows a kernel by its
# source and the constants that it names. Scalar assembly is executed by every thread, so
# each text picks thread 0 by itself. No barrier in it is of the aligned form, which would
# ask all threads of a warp to execute one and the same instruction.

# $0: nothing, $1: counter, $2: tally, $3: host word or 0, $4: value, $5: n_tiles - 1
_ARRIVE = tl.constexpr("""{
    .reg .pred first, uncounted, last, has_word;
    .reg .b32 tid, before;
    mov.u32 tid, %tid.x;
    setp.eq.u32 first, tid, 0;
    setp.eq.and.u64 uncounted, $2, 0, first;
    @uncounted trap;
    mov.u32 before, 0;
    @first fence.acq_rel.gpu;
    @first atom.acq_rel.gpu.inc.u32 before, [$2], $5;
    setp.eq.and.u32 last, before, $5, first;
    @last st.release.sys.u64 [$1], $4;
    setp.ne.and.u64 has_word, $3, 0, last;
    @has_word st.release.sys.u64 [$3], $4;
    mov.u32 $0, 0;
}""")

# $0: result in thread 0, else 0; $1: counter, $2: abort word or 0, $3: value, $4: ns.
# 4611686018427387904 is CEOV_VALUE_LIMIT: a counter from there on is poisoned. Time and
# abort word are looked at once in 64 turns, the abort word after the mark, too: a copy that
# was gated when its launch was aborted raises a mark that looks like any other. A thread
# that was moved to another SM may read less time than before.
_POLL = tl.constexpr("""{
    .reg .pred p, has_word;
    .reg .b32 turn, word;
    .reg .b64 seen, start, now;
    mov.u32 $0, 0;
    mov.u32 turn, %tid.x;
    setp.ne.u32 p, turn, 0;
    @p bra done;
    mov.u64 start, %globaltimer;
    setp.ne.u64 has_word, $2, 0;
    mov.u32 word, 0;
again:
    ld.acquire.sys.u64 seen, [$1];
    setp.ge.u64 p, seen, $3;
    @p bra reached;
    add.u32 turn, turn, 1;
    and.b32 word, turn, 63;
    setp.ne.u32 p, word, 0;
    @p bra again;
    @has_word ld.acquire.sys.u32 word, [$2];
    setp.ne.u32 p, word, 0;
    @p bra aborted;
    mov.u64 now, %globaltimer;
    setp.le.u64 p, now, start;
    @p bra again;
    sub.u64 now, now, start;
    setp.lt.u64 p, now, $4;
    @p bra again;
    mov.u32 $0, 2;
    bra done;
reached:
    mov.u32 word, 0;
    @has_word ld.acquire.sys.u32 word, [$2];
    setp.ge.u64 p, seen, 4611686018427387904;
    @p bra aborted;
    setp.eq.u32 p, word, 0;
    @p bra done;
aborted:
    mov.u32 $0, 1;
done:
    bar.warp.sync 0xffffffff;
}""")

# $0: thread 0's result in every thread; $1: result here, $2: number of threads. Two barriers
# that carry a bit each: shared memory is Triton's.
_SHARE = tl.constexpr("""{
    .reg .pred mine, aborted, late;
    setp.eq.u32 mine, $1, 1;
    barrier.cta.red.or.pred aborted, 0, $2, mine;
    setp.eq.u32 mine, $1, 2;
    barrier.cta.red.or.pred late, 0, $2, mine;
    selp.u32 $0, 2, 0, late;
    selp.u32 $0, 1, $0, aborted;
    bar.warp.sync 0xffffffff;
}""")

_END_STORES = tl.constexpr("cp.async.bulk.wait_group 0; mov.u32 $0, 0;")
_BEGIN_LOADS = tl.constexpr("fence.proxy.async; mov.u32 $0, 0;")


@core.builtin
def _has_bulk_copies(_semantic: Any = None) -> Any:
    """Returns whether the target GPU has TMA. Refuses kernels for which the two verbs are not
    made."""
    options = _semantic.builder.options
    if options.backend_name != "cuda":
        raise ValueError("ceoverlap.triton: arrive() and await_mark() are PTX: a CUDA GPU "
                         f"is needed, this kernel is compiled for {options.backend_name}")
    if options.num_ctas != 1:
        raise ValueError("ceoverlap.triton: arrive() and await_mark() are made for programs "
                         f"of one block: num_ctas is {options.num_ctas}, must be 1")
    return core.constexpr(int(options.arch[2:].rstrip("af")) >= 90)


# Annotations of what Triton compiles are text: it looks up what is a name.
@triton.jit
def _counted(n: "Any") -> "Any":
    """Returns an integer of any type as uint64."""
    return tl.cast(n, tl.uint64)


@triton.jit
def arrive(signal: "Any", index: "Any", n_tiles: "Any", value: "Any") -> "Any":
    """One tile of n_tiles is stored by this program, by tl.store or through a tensor
    descriptor; the last one to arrive raises counter `index` of the signal to value.

    signal      View with arrivals; without, it traps: a tile that nobody counts would
                hang everybody who waits for it
    index       of the counter, below the signal's n_counters (not checked)
    n_tiles     from 1 to 2^32 - 1
    value       below 2^62, above what the counter holds: the launch's base + the mark's

    All n_tiles of a round name the same n_tiles and value, and the next round's arrive
    after this one's raise. Kernels of one rank at a time may arrive at a counter."""
    has_bulk_copies: tl.constexpr = _has_bulk_copies()
    if has_bulk_copies:
        tl.inline_asm_elementwise(_END_STORES, "=r,~{memory}", [], dtype=tl.int32,
                                  is_pure=False, pack=1)
    tl.debug_barrier()
    tl.inline_asm_elementwise(
        _ARRIVE, "=r,l,l,l,l,r,~{memory}",
        [_counted(signal.counters) + 8 * _counted(index),
         tl.where(signal.arrivals == 0, _counted(0),
                  _counted(signal.arrivals) + 4 * _counted(index)),
         tl.where(signal.words == 0, _counted(0),
                  _counted(signal.words) + 8 * _counted(index)),
         _counted(value), tl.cast(n_tiles, tl.uint32) - 1],
        dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def await_mark(signal: "Any", index: "Any", value: "Any",
               timeout_ns: "Any" = 10_000_000_000) -> "Any":
    """Waits until counter `index` of the signal has reached value, at most timeout_ns; what
    the program loads behind it, by tl.load or through a tensor descriptor, is what the mark
    stands for. Returns REACHED, or ABORTED or TIMEOUT: then the data must not be read.

    Every program that reads awaits. One thread polls; the counters belong into the memory
    of the GPU that waits. Programs that wait keep their SMs: launch no more of them than
    leave room for what they wait for, if that runs on the same GPU."""
    has_bulk_copies: tl.constexpr = _has_bulk_copies()
    # Loops with a barrier that the compiler knows are not pipelined: it would load the next
    # turn's data before this turn's mark.
    tl.debug_barrier()
    code = tl.inline_asm_elementwise(
        _POLL, "=&r,l,l,l,l,~{memory}",
        [_counted(signal.counters) + 8 * _counted(index), _counted(signal.abort_word),
         _counted(value), _counted(timeout_ns)],
        dtype=tl.int32, is_pure=False, pack=1)
    code = tl.inline_asm_elementwise(
        _SHARE, "=&r,r,r,~{memory}",
        [code, tl.cast(tl.extra.cuda.num_threads(), tl.int32)],
        dtype=tl.int32, is_pure=False, pack=1)
    if has_bulk_copies:
        tl.inline_asm_elementwise(_BEGIN_LOADS, "=r,~{memory}", [], dtype=tl.int32,
                                  is_pure=False, pack=1)
    return code
