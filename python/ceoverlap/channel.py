# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Channels: collectives and messages of any shape between ranks of one node, all on the host or
all on GPUs, which nobody has to make or agree on before their first call.
``include/ceoverlap/channel.h`` is the contract; in short:

Operands   On the host NumPy arrays, PyTorch tensors on the CPU, and whatever has the buffer
           protocol (bytes, bytearray, array.array, memoryview, mmap); on a GPU PyTorch tensors and
           whatever has ``__cuda_array_interface__`` (CuPy, Numba), on the rank's own. Without
           gaps, of any size, also 0, and any alignment. Both ends have the same dtype. Read-only
           ones are sources only; those that are not ``bytes`` or a NumPy array are copied first.
dtype      the operand's: floats, integers, bool, complex numbers and bfloat16, float8_e4m3fn and
           float8_e5m2, where the operand's library has them. Sums: floats of 2 to 8 bytes, signed
           integers and uint8; on GPUs bfloat16, float16 and float32 alone. NumPy has no bfloat16
           of its own; arrays of ml_dtypes have.
op         "sum", "product", "min", "max", and "mean" or "avg", which integers do not have. Sums
           are in fp32, fp64 or 64-bit integers, and added up from rank 0 on.
Order      All ranks make the same calls of a channel in the same order, each rank from a thread of
           its own. On the host a call returns when this rank's result is complete and its operands
           may be changed.
stream     On a GPU a call is queued, and returns at once: it comes after what is on the stream, and
           what the stream gets next comes after it. stream= takes an integer (CUstream), a
           torch.cuda.Stream, and what has ``ptr`` or ``__cuda_stream__()``; None: PyTorch's current
           stream, or the default one where PyTorch uses no GPU. Calls of one channel follow each
           other, whatever their streams. While a stream is captured into a CUDA graph, so are the
           calls, and replays make them again. Operands stay allocated until the stream has passed:
           a PyTorch tensor that was allocated for another stream than the call's needs the
           caller's Tensor.record_stream(), as with any kernel.
Failures   A call that this rank can see to be wrong raises InvalidError, and nothing has happened.
           If ranks call something different, all of them get an InvalidError that names both
           calls; if a rank does not come within the deadline, DeadlineError; if it is lost,
           PeerLostError; after abort() at any rank, AbortedError. The channel has ended then: all
           later calls raise that error again. Make another one, under another name. On a GPU it is
           found when the queued call runs, so a later call raises it, or check(). What the streams
           hold runs on meanwhile, with undefined results.
Ctrl-C     on the main thread ends a waiting call, and the channel at all ranks. A program's own
           handlers of signals run when the call has returned, after the deadline at the latest.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
from typing import Any, Generic, List, Optional, Sequence, Set, Tuple, TypeVar

from . import _abi, _interrupts, _log, _object, errors
from ._operands import NAMES, Operand, operand
from .buffer import Array
from .context import Context
from .plan import told_by
from .pool import Pool, Pooled
from .stream import StreamLike, any_stream, current_stream

REDUCTIONS = {"sum": _abi.CEOV_SUM, "product": _abi.CEOV_PRODUCT, "min": _abi.CEOV_MIN,
              "max": _abi.CEOV_MAX, "mean": _abi.CEOV_MEAN, "avg": _abi.CEOV_MEAN}

# struct ceov_call, written by one struct.pack(): assigned one by one, the fields would take as long
# as the call.
PACKED = struct.Struct("=QIIIIQQQQQQ")
_pack = PACKED.pack
_CALL_BYTES = PACKED.size

_run = _abi.lib["ceov_channel_run"]     # not the attribute: argument types of its own
_run.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32]
_run.restype = ctypes.c_int

_Numbers = ctypes.Array[ctypes.c_uint64]
Counts = Optional[_Numbers]
_Made = TypeVar("_Made")               # what a call returns


def counts(numbers: Sequence[int]) -> _Numbers:
    """Returns numbers of items, one for each rank, as C takes them."""
    return (ctypes.c_uint64 * len(numbers))(*numbers)


def packed(kind: int, dtype: int, source: int, target: int, count: int, *, reduction: int = 0,
           root: int = 0, sends: Counts = None, receives: Counts = None, stream: int = 0) -> bytes:
    """Returns the bytes of a struct ceov_call. sends and receives have to be kept until the call
    has returned."""
    return _pack(_CALL_BYTES, kind, dtype, reduction, root, source, target, count,
                 0 if sends is None else ctypes.addressof(sends),
                 0 if receives is None else ctypes.addressof(receives), stream)


def _reduction_of(op: Any) -> int:
    found = REDUCTIONS.get(op)
    if found is None:                   # torch.distributed's have names
        found = REDUCTIONS.get(str(getattr(op, "name", op)).lower())
    if found is None:
        raise errors.InvalidError(f"op {op!r}: must be one of {', '.join(REDUCTIONS)}")
    return found


def _same_dtype(a: Operand, b: Operand) -> None:
    if a.dtype != b.dtype:
        raise errors.InvalidError(f"output of {NAMES[a.dtype]}, input of {NAMES[b.dtype]}: must "
                                  "be the same")


def _items_of(obj: Array, of: Operand, rows: Sequence[int], what: str,
              n_ranks: int) -> _Numbers:
    """Returns how many items of an operand belong to each rank, where rows has the numbers of rows
    of its first dimension."""
    shape = tuple(getattr(obj, "shape", (of.n_items,))) or (1,)
    items = 1
    for n in shape[1:]:
        items *= n
    if len(rows) != n_ranks or sum(rows) != shape[0] or min(rows) < 0:
        raise errors.InvalidError(f"{what} {list(rows)}: must be {n_ranks} numbers with sum "
                                  f"{shape[0]}, the rows of an operand of shape {shape}")
    return counts([n * items for n in rows])


class _Calls(Generic[_Made]):
    """The collectives and messages, as methods of what makes calls out of them."""

    _rank: int
    _n_ranks: int
    _gpu: Optional[int]                 # the number of the rank's; None: it is on the host

    def _make(self, calls: bytes, n: int = 1) -> _Made:
        """Makes n packed calls."""
        raise NotImplementedError

    def _queue(self, stream: Optional[StreamLike]) -> int:
        """Returns the CUstream of a call whose caller has passed this stream; 0 on the host."""
        if self._gpu is not None:
            return current_stream(self._gpu) if stream is None else any_stream(stream)
        if stream is not None:
            raise errors.InvalidError("stream: this channel's rank is on the host, where a call is "
                                      "complete when it returns: pass none")
        return 0

    def _check_count(self, whole: Operand, part: Operand, what: str) -> None:
        if whole.n_items != part.n_items * self._n_ranks:
            raise errors.InvalidError(f"{what} of {whole.n_items} items, parts of {part.n_items}: "
                                      f"must have {self._n_ranks} of them, one a rank")

    def _root(self, root: int, what: str) -> int:
        return _abi.checked(root, self._n_ranks - 1, what)

    def _whole(self, obj: Array, what: str, part: Operand,
               rows: Optional[Sequence[int]]) -> Tuple[Operand, Counts]:
        """Returns the operand that has a part for each rank, of which `part` is this rank's, and
        how many items belong to each; None: as many to all. what: "output" or "input"; rows: its
        split sizes."""
        whole = operand(obj, what == "output", self._gpu)
        _same_dtype(*((whole, part) if what == "output" else (part, whole)))
        if rows is None:
            self._check_count(whole, part, what)
            return whole, None
        counted = _items_of(obj, whole, rows, f"{what}_split_sizes", self._n_ranks)
        if counted[self._rank] != part.n_items:
            raise errors.InvalidError(f"{what}_split_sizes: {counted[self._rank]} items for rank "
                                      f"{self._rank}, whose operand has {part.n_items}")
        return whole, counted

    # --- moves -----------------------------------------------------------------------------

    def all_gather(self, output: Array, input: Array,
                   output_split_sizes: Optional[Sequence[int]] = None, *,
                   stream: Optional[StreamLike] = None) -> _Made:
        """Sets output to the inputs of all ranks, one after another. An input may be its own place
        in output.

        output_split_sizes  how many rows of output (of its first dimension) come from each rank;
                            None: as many from all"""
        of = operand(input, False, self._gpu)
        to, receives = self._whole(output, "output", of, output_split_sizes)
        return self._make(packed(_abi.CEOV_ALL_GATHER, to.dtype, of.address, to.address, of.n_items,
                                 receives=receives, stream=self._queue(stream)))

    def all_to_all(self, output: Array, input: Array,
                   output_split_sizes: Optional[Sequence[int]] = None,
                   input_split_sizes: Optional[Sequence[int]] = None, *,
                   stream: Optional[StreamLike] = None) -> _Made:
        """Sends a part of input to each rank, and sets output to the parts that come from each,
        both in the order of ranks.

        input_split_sizes   how many rows of input (of its first dimension) go to each rank; None:
                            as many to all
        output_split_sizes  the same of output: rank r's input_split_sizes[t] is rank t's
                            output_split_sizes[r]"""
        to, of = operand(output, True, self._gpu), operand(input, False, self._gpu)
        _same_dtype(to, of)
        if output_split_sizes is None and input_split_sizes is None:
            if to.n_items != of.n_items or of.n_items % self._n_ranks:
                raise errors.InvalidError(
                    f"output of {to.n_items} items, input of {of.n_items}: must be as many, in "
                    f"{self._n_ranks} equal parts; else say output_split_sizes and "
                    "input_split_sizes")
            return self._make(packed(_abi.CEOV_ALL_TO_ALL, to.dtype, of.address, to.address,
                                     of.n_items // self._n_ranks, stream=self._queue(stream)))
        receives = self._parts(output, to, output_split_sizes, "output_split_sizes")
        sends = self._parts(input, of, input_split_sizes, "input_split_sizes")
        return self._make(packed(_abi.CEOV_ALL_TO_ALL, to.dtype, of.address, to.address, 0,
                                 sends=sends, receives=receives, stream=self._queue(stream)))

    def _parts(self, obj: Array, of: Operand, rows: Optional[Sequence[int]],
               what: str) -> _Numbers:
        if rows is not None:
            return _items_of(obj, of, rows, what, self._n_ranks)
        if of.n_items % self._n_ranks:
            raise errors.InvalidError(f"{of.n_items} items are not {self._n_ranks} equal parts: "
                                      f"say {what}")
        return counts([of.n_items // self._n_ranks] * self._n_ranks)

    def broadcast(self, tensor: Array, src: int = 0, *,
                  stream: Optional[StreamLike] = None) -> _Made:
        """Sets tensor to rank src's, at all ranks."""
        root = self._root(src, "src")
        of = operand(tensor, self._rank != root, self._gpu)
        return self._make(packed(_abi.CEOV_BROADCAST, of.dtype,
                                 of.address if self._rank == root else 0, of.address, of.n_items,
                                 root=root, stream=self._queue(stream)))

    def gather(self, input: Array, output: Array = None, dst: int = 0,
               output_split_sizes: Optional[Sequence[int]] = None, *,
               stream: Optional[StreamLike] = None) -> _Made:
        """As all_gather(), at rank dst alone: the other ranks pass no output, nor
        output_split_sizes."""
        root, receives, target = self._root(dst, "dst"), None, 0
        of = operand(input, False, self._gpu)
        self._check_root(output, root, "output", "dst")
        if self._rank == root:
            to, receives = self._whole(output, "output", of, output_split_sizes)
            target = to.address
        return self._make(packed(_abi.CEOV_GATHER, of.dtype, of.address, target, of.n_items,
                                 root=root, receives=receives, stream=self._queue(stream)))

    def scatter(self, output: Array, input: Array = None, src: int = 0,
                input_split_sizes: Optional[Sequence[int]] = None, *,
                stream: Optional[StreamLike] = None) -> _Made:
        """Sets output to this rank's part of rank src's input. The other ranks pass no input, nor
        input_split_sizes, which has the rows of input (of its first dimension) for each rank."""
        root, sends, source = self._root(src, "src"), None, 0
        to = operand(output, True, self._gpu)
        self._check_root(input, root, "input", "src")
        if self._rank == root:
            of, sends = self._whole(input, "input", to, input_split_sizes)
            source = of.address
        return self._make(packed(_abi.CEOV_SCATTER, to.dtype, source, to.address, to.n_items,
                                 root=root, sends=sends, stream=self._queue(stream)))

    def _check_root(self, obj: Array, root: int, what: str, root_name: str) -> None:
        if (obj is None) == (self._rank == root):
            raise errors.InvalidError(f"{what}: rank {self._rank} "
                                      f"{'lacks it' if obj is None else 'has one'}: rank {root}, "
                                      f"which is {root_name}, passes it, and no other rank")

    # --- sums ------------------------------------------------------------------------------

    def all_reduce(self, tensor: Array, op: Any = "sum", output: Array = None, *,
                   stream: Optional[StreamLike] = None) -> _Made:
        """Sets tensor, or output where it is given, to the sum over ranks of tensor."""
        of = to = operand(tensor, output is None, self._gpu)
        if output is not None:
            to = operand(output, True, self._gpu)
            _same_dtype(to, of)
            self._check_alike(to, of)
        return self._make(packed(_abi.CEOV_ALL_REDUCE, of.dtype, of.address, to.address, of.n_items,
                                 reduction=_reduction_of(op), stream=self._queue(stream)))

    @staticmethod
    def _check_alike(to: Operand, of: Operand) -> None:
        if to.n_items != of.n_items:
            raise errors.InvalidError(f"output of {to.n_items} items, tensor of {of.n_items}: must "
                                      "be as many")

    def reduce_scatter(self, output: Array, input: Array, op: Any = "sum",
                       input_split_sizes: Optional[Sequence[int]] = None, *,
                       stream: Optional[StreamLike] = None) -> _Made:
        """Sets output to this rank's part of the sum over ranks of input. output may be that part
        of input itself.

        input_split_sizes   how many rows of input (of its first dimension) each rank gets, the
                            same at all ranks; None: as many as the others"""
        to = operand(output, True, self._gpu)
        of, sends = self._whole(input, "input", to, input_split_sizes)
        return self._make(packed(_abi.CEOV_REDUCE_SCATTER, to.dtype, of.address, to.address,
                                 to.n_items, reduction=_reduction_of(op), sends=sends,
                                 stream=self._queue(stream)))

    def reduce(self, tensor: Array, dst: int = 0, op: Any = "sum", output: Array = None, *,
               stream: Optional[StreamLike] = None) -> _Made:
        """As all_reduce(), at rank dst alone: the other ranks' tensors do not change, and they
        pass no output."""
        root = self._root(dst, "dst")
        is_root = self._rank == root
        of = to = operand(tensor, is_root and output is None, self._gpu)
        if output is not None:
            self._check_root(output, root, "output", "dst")
            to = operand(output, True, self._gpu)
            _same_dtype(to, of)
            self._check_alike(to, of)
        return self._make(packed(_abi.CEOV_REDUCE, of.dtype, of.address,
                                 to.address if is_root else 0, of.n_items, root=root,
                                 reduction=_reduction_of(op), stream=self._queue(stream)))

    # --- others ----------------------------------------------------------------------------

    def barrier(self, *, stream: Optional[StreamLike] = None) -> _Made:
        """Returns when all ranks have called it as often as this one; on a GPU, the stream goes on
        then."""
        return self._make(packed(_abi.CEOV_BARRIER, 0, 0, 0, 0, stream=self._queue(stream)))

    def _message(self, kind: int, tensor: Array, peer: int, what: str,
                 stream: int) -> Tuple[bytes, object]:
        of = operand(tensor, kind == _abi.CEOV_RECEIVE, self._gpu)
        source, target = (0, of.address) if kind == _abi.CEOV_RECEIVE else (of.address, 0)
        return packed(kind, of.dtype, source, target, of.n_items,
                      root=self._root(peer, what), stream=stream), of.held

    def send(self, tensor: Array, dst: int, *, stream: Optional[StreamLike] = None) -> _Made:
        """Sends tensor to rank dst, which calls receive(). Messages of a pair and direction arrive
        in their order; they have no order with collectives. It returns (on a GPU, the stream goes
        on) when the channel has the bytes, or rank dst has taken those for which the channel has no
        room; so two ranks that send each other much use batch()."""
        call, _held = self._message(_abi.CEOV_SEND, tensor, dst, "dst", self._queue(stream))
        return self._make(call)

    def receive(self, tensor: Array, src: int, *, stream: Optional[StreamLike] = None) -> _Made:
        """Sets tensor to what rank src sends: as many items, of the same dtype."""
        call, _held = self._message(_abi.CEOV_RECEIVE, tensor, src, "src", self._queue(stream))
        return self._make(call)

    def batch(self, sends: Sequence[Tuple[Array, int]] = (),
              receives: Sequence[Tuple[Array, int]] = (), *,
              stream: Optional[StreamLike] = None) -> Optional[_Made]:
        """Sends and receives at the same time, and returns when all is done. sends has (tensor,
        dst) pairs, receives (tensor, src) pairs, at most 1024 together, on a GPU 128. None waits
        for another one but those of the same pair and direction, which go in order."""
        queue = self._queue(stream)
        made = [self._message(_abi.CEOV_SEND, tensor, dst, "dst", queue) for tensor, dst in sends]
        made += [self._message(_abi.CEOV_RECEIVE, tensor, src, "src", queue)
                 for tensor, src in receives]
        if not made:
            return None
        return self._make(b"".join([call for call, _ in made]), len(made))


class Channel(_Calls[None], Pooled):
    """Fixed memory of one rank, known to its peers, through which it makes any collectives and
    messages with them. All ranks are on one node: on the host, at most 64, or on GPUs of compute
    capability 9.0 that NVLink connects, or that ranks share, at most 8.

    name        1 to 40 bytes, the same at all ranks; each open channel has its own
    rank        one of this process; None: its first
    ring_bytes  memory for what this rank sends, the same at all ranks: 64 KiB to 1 GiB; 0: 1 MiB,
                on GPUs 48 MiB
    deadline_s  of each wait for a peer, in seconds; 0: the context's

    connect() comes before the first call. Any thread may call; the calls of several threads follow
    each other. On a GPU, synchronize the streams of the last calls before close(), and replay no
    graph that holds a call afterwards."""

    _release_call = "ceov_channel_release"
    _query = ("ceov_channel_query", _abi.ceov_channel_info)

    def __init__(self, context: Context, name: str, rank: Optional[int] = None, *,
                 ring_bytes: int = 0, deadline_s: float = 0.0) -> None:
        super().__init__(context, context._own(rank))
        self._n_ranks = context.n_ranks
        place = context.place(self._rank)
        self._gpu = place.index if place.kind == "gpu" else None
        self._name = name
        self._under_way: Set[object] = set()    # a token for each call
        self._cause: Optional[errors.CeoverlapError] = None     # that ended it
        self._pool: Optional[Pool] = None
        config = _abi.new(_abi.ceov_channel_config)
        config.rank = self._rank
        config.name = _object.text_of(name, "name")
        config.ring_bytes = ring_bytes
        config.deadline_ns = _object.ns(deadline_s)
        self._make_handle("ceov_channel_create", ctypes.byref(config))

    @property
    def name(self) -> str:
        """The name by which its peers found it."""
        return self._name

    @property
    def n_ranks(self) -> int:
        """How many ranks take part in its collectives."""
        return self._n_ranks

    @property
    def ring_bytes(self) -> int:
        """The memory for bytes under way, as it was chosen."""
        return int(self._info().ring_bytes)

    @property
    def is_connected(self) -> bool:
        """Whether connect() has found all peers."""
        return bool(self._info().is_connected)

    def connect(self, timeout_s: Optional[float] = None) -> Channel:
        """Finds the channels of all peers; calls can be made afterwards. If one process holds
        several ranks, create the channels of all of them first. Raises PendingError if a peer did
        not create its channel in time. Returns the channel."""
        limit = self._context._limit(timeout_s)
        if not _object.wait(lambda ns, is_long: self._invoke(
                "ceov_channel_connect", ns, is_long=is_long), limit):
            raise errors.make(_abi.CEOV_PENDING, f"channel {self._name!r}: some peer has not "
                              f"created it within {limit} s")
        return self

    @property
    def pool(self) -> Optional[Pool]:
        """The channel's pool; None: none was made."""
        return self._pool

    def make_pool(self, max_bytes: int = 0, timeout_s: Optional[float] = None) -> Pool:
        """Makes the channel's pool, and finds those of all peers, which call this between the same
        two calls; see Pool. For one rank a process: with several, make a Pool() of each and connect
        them then."""
        made = Pool(self, max_bytes)
        try:
            return made.connect(timeout_s)
        except BaseException:
            made.close()
            raise

    def _make(self, calls: bytes, n: int = 1) -> None:
        """The short way into the library: as Owner._outcome(), which see, but for numbers that are
        checked already. On a GPU nothing waits, so Ctrl-C need not end it."""
        context, token = self._context, object()
        inside, under_way = context._inside, self._under_way
        outer, result = _log.begin_call(), 0
        try:
            inside.add(token)
            under_way.add(token)
            context._open_handle()
            arguments = self._open_handle(), calls, n
            result = (_interrupts.call(_run, arguments, self._stop) if self._gpu is None else
                      _run(*arguments))
        finally:
            under_way.discard(token)
            inside.discard(token)
            lines = _log.end_call(outer)
        if result:
            raise self._failed(result, lines)
        if lines:
            _log.write_all(context._logger, lines)

    def _failed(self, result: int, lines: List[str],
                failure: Optional[errors.Failure] = None) -> errors.CeoverlapError:
        """Returns the exception for a failed call. If the channel has ended, it is kept: calls that
        come later raise one like it. failure: what the call has left, if that was taken. On a GPU
        the call that finds out what ended the channel is a later one, which writes no lines."""
        context, cause = self._context, self._cause
        if not lines and cause is not None and cause.code == result:
            return type(cause)(str(cause), result, cause.failure)
        with contextlib.suppress(errors.CeoverlapError):        # the context closes
            if failure is None and (lines or self._gpu is not None):
                failure = context.last_failure()
            if failure is None and self._gpu is not None:       # something else has taken it
                failure = context._latest
            is_at_its_end = _abi.lib.ceov_channel_status(self._open_handle())
            if not lines and failure is None:
                return errors.make(result, f"channel {self._name!r} of rank {self._rank} has "
                                   f"ended: {errors.strerror(result)}")
            error = context._exception("ceov_channel_run", result, lines, failure)
            if is_at_its_end and cause is None:
                self._cause = error
            return error
        return errors.make(result, f"channel {self._name!r}: {errors.strerror(result)}")

    def check(self) -> None:
        """Raises the error that ended the channel, if any. Never blocks, so on a GPU it finds what
        the calls that have run until now have met: synchronize their streams first."""
        result, failure, lines = self._context._outcome("ceov_channel_status",
                                                        [self._open_handle()])
        if result:
            raise self._failed(result, lines, failure)

    def explain(self, call: str = "", *arguments: Any, **options: Any) -> str:
        """Returns a few lines that say what the channel is, and how a call moves its bytes: the
        name of a method, and its arguments."""
        if not call:
            return told_by(lambda fd: self._invoke("ceov_channel_explain", None, fd))
        text: str = getattr(_Explained(self), call)(*arguments, **options)
        return text

    def abort(self) -> None:
        """Ends the channel, and the calls under way in it at all ranks, with AbortedError. Any
        thread may call it, and it does not wait. A channel that has failed keeps its error."""
        self._invoke("ceov_channel_abort")

    def _stop(self) -> None:
        """Aborts the channel because a call was interrupted."""
        with contextlib.suppress(errors.CeoverlapError):        # closed, or has failed
            self.abort()

    def _try_release(self) -> bool:
        return (not self._under_way and (self._pool is None or self._pool._try_release()) and
                super()._try_release())

    def close(self) -> None:
        """Ends the caller's use of the channel, and of its pool; see Object.close(). Calls of other
        threads are aborted."""
        if self._under_way:
            self._stop()
            if not _object.poll(lambda: not self._under_way, self._context.deadline_s):
                raise errors.StateError(f"channel {self._name!r}: a call of another thread does "
                                        "not end")
        if self._pool is not None:
            self._pool.close()
        super().close()


class _Explained(_Calls[str]):
    """Calls that are explained instead of made."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._rank, self._n_ranks, self._gpu = channel._rank, channel._n_ranks, channel._gpu

    def _make(self, calls: bytes, n: int = 1) -> str:
        call = _abi.ceov_call.from_buffer_copy(calls)
        return told_by(lambda fd: self._channel._invoke("ceov_channel_explain",
                                                        ctypes.byref(call), fd))
