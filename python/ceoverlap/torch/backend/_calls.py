# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""What a backend makes of torch.distributed's calls. Each is the channel's or PyTorch's own
backend's, `plain`, as _ways.py decides, and runs in the group's queue: in the call, or with
async_op=True beside the caller. Messages have a queue for each pair and direction, because a rank
that waits to send must not keep itself from receiving."""

from __future__ import annotations

import datetime
import logging
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from ... import errors
from .. import _compat
from .._queue import CallQueue, Queued
from ..group import Group, Ranks
from . import _tensors
from ._ways import REDUCTIONS, Ways
from ._work import Work

Tensors = List[torch.Tensor]
_MOST_S = 1e9                           # of a deadline: the library counts nanoseconds


class Calls:
    """The calls of a backend, but for what its base class asks. Names are those that PyTorch
    calls."""

    def _begin(self, ranks: Ranks, timeout: datetime.timedelta, device: torch.device,
               on_close: Callable[[], None]) -> None:
        """Makes what the backend has, together with all ranks. on_close is called when it is
        shut down."""
        self._on_close = on_close
        # After destroy_process_group() and another init_process_group() the store may still have
        # the first group's keys, whose name comes again.
        number = ranks.store.add(f"made/{ranks.rank}", 1)
        store = dist.PrefixStore(str(number), ranks.store)
        self._at = ranks._replace(store=store)
        self._timeout = timeout         # of the channel's waits
        self._limit_s = 0.0             # of each call, if it is shorter
        self._plain = _compat.make_gloo(dist.PrefixStore("plain", store), ranks.rank, ranks.size,
                                        timeout)
        self._group: Optional[Group] = Group.of_ranks(
            self._at, device, min(timeout.total_seconds(), _MOST_S))
        refusal = ""
        if self._group is None:
            refusal = "its ranks are on several nodes"
        elif self._group.channel is None:
            refusal = "its ranks can have no channel"
        self.ways = Ways(ranks.name, refusal)
        self._queue = CallQueue(f"ceoverlap {ranks.name}")
        self._messages: Dict[Tuple[str, int], CallQueue] = {}
        if self._group is not None:
            self._group.queue = self._queue
        self._is_open = True

    # --- ways ------------------------------------------------------------------------------

    def _run(self, opts, function: Callable[[], object], result: list) -> Optional[Work]:
        """Makes a call in the queue; with async_op=True beside the caller. Without it there is no
        handle, as in PyTorch's own backends. result: the tensors that it sets."""
        if opts.asyncOp:
            return Work(self._queue, function, result)
        if self._limit_s:
            self._run_within(self._limit_s, function)
        else:
            self._queue.run(function)
        return None

    def _run_within(self, timeout_s: float, function: Callable[[], object]) -> None:
        """Makes a call that has a time of its own. When it has passed the group is at its end, as
        after its deadline."""
        queued = Queued(function)
        self._queue.submit(queued)
        if not self._queue.wait(queued, timeout_s):
            self._end_calls()
            raise errors.DeadlineError(f"rank {self._at.rank} of group {self._at.name}: not all "
                                       f"ranks have come within {timeout_s} s")
        if queued.error is not None:
            raise queued.error

    def _run_plain(self, name: str, opts, result: list, *args) -> Optional[Work]:
        """As _run(), of a method of plain's."""
        call = self._method_of_plain(name)

        def make() -> None:
            work = call(*args, opts)
            if work is not None:
                work.wait()

        return self._run(opts, make, result)

    def _method_of_plain(self, name: str) -> Callable:
        if self._plain is None:
            raise errors.InvalidError(f"{name} is Gloo's, which this PyTorch does not have")
        return _compat.method_of(self._plain, name)

    # --- moves -----------------------------------------------------------------------------

    def all_gather_single(self, output, input, opts=None):
        opts = opts or dist.AllgatherOptions()
        if not self.ways.is_ours("all_gather", input):
            return self._run_plain("all_gather_single", opts, [output], output, input)
        group = self._group
        _tensors.check_whole("all_gather", output, input, group.size)
        return self._run(opts, lambda: _tensors.all_gather(group, output, input), [output])

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        return self._each(self.all_gather_single, zip(outputs, inputs),
                          opts or dist.AllgatherOptions(), outputs)

    def allgather(self, outputs, inputs, opts=None):
        opts = opts or dist.AllgatherOptions()
        targets, x = outputs[0], inputs[0]
        if not self.ways.is_ours("all_gather", x):
            return self._run_plain("allgather", opts, outputs, outputs, inputs)
        group = self._group
        _tensors.check_parts("all_gather", targets, x, group)
        return self._run(opts, lambda: _tensors.all_gather_list(group, targets, x), outputs)

    def allgather_coalesced(self, outputs, inputs, opts=None):
        calls = [([[of_rank[i] for of_rank in outputs]], [x]) for i, x in enumerate(inputs)]
        return self._each(self.allgather, calls, opts or dist.AllgatherOptions(), outputs)

    def gather(self, outputs, inputs, opts=None):
        opts = opts or dist.GatherOptions()
        x, root = inputs[0], opts.rootRank
        if not self.ways.is_ours("gather", x):
            return self._run_plain("gather", opts, outputs, outputs, inputs)
        group, targets = self._group, outputs[0] if outputs else []
        if group.rank == root:
            _tensors.check_parts("gather", targets, x, group)
        return self._run(opts, lambda: _tensors.gather_list(group, targets, x, root), outputs)

    def gather_single(self, output, input, opts=None):
        opts = opts or dist.GatherOptions()
        root = opts.rootRank
        if not self.ways.is_ours("gather", input):
            return self._run_plain("gather_single", opts, [output], output, input)
        group, target = self._group, output if self._at.rank == root else None
        if target is not None:
            _tensors.check_whole("gather", target, input, group.size)
        return self._run(opts, lambda: _tensors.gather(group, target, input, root), [output])

    def scatter(self, outputs, inputs, opts=None):
        opts = opts or dist.ScatterOptions()
        target, root = outputs[0], opts.rootRank
        if not self.ways.is_ours("scatter", target):
            return self._run_plain("scatter", opts, outputs, outputs, inputs)
        group, parts = self._group, inputs[0] if inputs else []
        if group.rank == root:
            _tensors.check_parts("scatter", parts, target, group)
        return self._run(opts, lambda: _tensors.scatter_list(group, target, parts, root), outputs)

    def broadcast(self, tensors, opts=None):
        opts = opts or dist.BroadcastOptions()
        x, root = tensors[0], opts.rootRank
        if not self.ways.is_ours("broadcast", x):
            return self._run_plain("broadcast", opts, tensors, tensors)
        group = self._group
        return self._run(opts, lambda: _tensors.broadcast(group, x, root), tensors)

    def all_to_all_single(self, output, input, output_splits, input_splits, opts=None):
        opts = opts or dist.AllToAllOptions()
        if not self.ways.is_ours("all_to_all", input):
            return self._run_plain("all_to_all_single", opts, [output], output, input,
                                   output_splits, input_splits)
        group = self._group
        _tensors.check_alike("all_to_all", (output, input))
        received = _tensors.split("all_to_all: output", output, output_splits, group.size)
        sent = _tensors.split("all_to_all: input", input, input_splits, group.size)
        return self._run(opts, lambda: _tensors.all_to_all(group, output, input, received, sent),
                         [output])

    def alltoall(self, outputs, inputs, opts=None):
        opts = opts or dist.AllToAllOptions()
        if not self.ways.is_ours("all_to_all", inputs[0]):
            return self._run_plain("alltoall", opts, outputs, outputs, inputs)
        group = self._group
        for parts in (outputs, inputs):
            _tensors.check_parts("all_to_all", parts, inputs[group.rank], group)
        return self._run(opts, lambda: _tensors.all_to_all_list(group, outputs, inputs), outputs)

    # --- sums ------------------------------------------------------------------------------

    def allreduce(self, tensors, opts=None):
        opts = opts or dist.AllreduceOptions()
        x, op = tensors[0], opts.reduceOp.op
        if not self.ways.is_ours("all_reduce", x, op):
            return self._run_plain("allreduce", opts, tensors, tensors)
        group, reduction = self._group, REDUCTIONS[op]
        return self._run(opts, lambda: _tensors.all_reduce(group, x, reduction), tensors)

    def allreduce_coalesced(self, tensors, opts=None):
        each = dist.AllreduceOptions()
        if opts is not None:
            each.reduceOp, each.asyncOp, each.timeout = opts.reduceOp, opts.asyncOp, opts.timeout
        return self._each(self.allreduce, [([x],) for x in tensors], each, tensors)

    def allreduce_sparse(self, tensors, opts=None):
        self.ways.count_plain("all_reduce_sparse", "channels have no sparse tensors")
        opts = opts or dist.AllreduceOptions()
        return self._run_plain("allreduce_sparse", opts, tensors, tensors)

    def reduce(self, tensors, opts=None):
        opts = opts or dist.ReduceOptions()
        x, op, root = tensors[0], opts.reduceOp.op, opts.rootRank
        if not self.ways.is_ours("reduce", x, op):
            return self._run_plain("reduce", opts, tensors, tensors)
        group, reduction = self._group, REDUCTIONS[op]
        return self._run(opts, lambda: _tensors.reduce(group, x, root, reduction), tensors)

    def reduce_scatter_single(self, output, input, opts=None):
        opts = opts or dist.ReduceScatterOptions()
        op = opts.reduceOp.op
        if not self.ways.is_ours("reduce_scatter", input, op):
            return self._run_plain("reduce_scatter_single", opts, [output], output, input)
        group, reduction = self._group, REDUCTIONS[op]
        _tensors.check_whole("reduce_scatter", input, output, group.size)
        return self._run(opts, lambda: _tensors.reduce_scatter(group, output, input, reduction),
                         [output])

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        return self._each(self.reduce_scatter_single, zip(outputs, inputs),
                          opts or dist.ReduceScatterOptions(), outputs)

    def reduce_scatter(self, outputs, inputs, opts=None):
        opts = opts or dist.ReduceScatterOptions()
        target, parts, op = outputs[0], inputs[0], opts.reduceOp.op
        if not self.ways.is_ours("reduce_scatter", target, op):
            return self._run_plain("reduce_scatter", opts, outputs, outputs, inputs)
        group, reduction = self._group, REDUCTIONS[op]
        _tensors.check_parts("reduce_scatter", parts, target, group)
        return self._run(opts, lambda: _tensors.reduce_scatter_list(group, target, parts,
                                                                    reduction), outputs)

    def _each(self, call: Callable, calls: Sequence[tuple], opts, result: list):
        """Makes several calls of one kind, which PyTorch hands over together, in their order.
        Returns the last one's handle, which ends behind all others."""
        works = [call(*args, opts) for args in calls]
        if not opts.asyncOp:
            return None
        return Work(self._queue, lambda: [work.wait() for work in works], result)

    # --- others ----------------------------------------------------------------------------

    def barrier(self, opts=None):
        opts = opts or dist.BarrierOptions()
        if not self.ways.is_ours("barrier"):
            return self._run_plain("barrier", opts, [])
        if opts.timeout > datetime.timedelta(0) and not opts.asyncOp:
            self._run_within(opts.timeout.total_seconds(), lambda: _tensors.barrier(self._group))
            return None
        return self._run(opts, lambda: _tensors.barrier(self._group), [])

    def monitored_barrier(self, opts, wait_all_ranks=False):
        """Gloo's, which names the ranks that do not come."""
        self.ways.count_plain("monitored_barrier", "channels have none")
        timeout = opts.timeout if isinstance(opts, dist.BarrierOptions) else opts
        self._queue.run(self._method_of_plain("monitored_barrier"), timeout, wait_all_ranks)

    def send(self, tensors, peer, tag=0):
        return self._message("send", tensors, peer, tag)

    def recv(self, tensors, peer, tag=0):
        return self._message("recv", tensors, peer, tag)

    def _message(self, kind: str, tensors: Tensors, peer: int, tag: int):
        """A message's way is what both its ends see alike: its tag. The channel has none, so a
        message with one is Gloo's, and never takes the place of one without."""
        x = tensors[0]
        if tag or not self.ways.is_ours(kind, x):
            if tag:
                self.ways.count_plain(kind, "channels have no tags but 0")
            return self._method_of_plain(kind)(tensors, peer, tag)
        group, make = self._group, _tensors.send if kind == "send" else _tensors.receive
        queue = self._messages.get((kind, peer))
        if queue is None:
            queue = self._messages.setdefault((kind, peer), CallQueue(
                f"ceoverlap {self._at.name}: {kind} {peer}"))
        return Work(queue, lambda: make(group, x, peer), tensors,
                    peer if kind == "recv" else self._at.rank)

    def recv_anysource(self, tensors, tag=0):
        """Gloo's, so its message needs a tag, with which sends are Gloo's, too."""
        if not tag and not self.ways.refusal:
            raise errors.InvalidError("a receive from any rank: pass src, or a tag other than 0 "
                                      "at both ends, with which messages go by Gloo: those "
                                      "without a tag go by a channel, which needs to know the "
                                      "sender")
        self.ways.count_plain("recv_anysource", "channels have none")
        return self._method_of_plain("recv_anysource")(tensors, tag)

    def start_coalescing(self, _device=None) -> None:
        """Nothing is gathered up: each call is made by itself."""

    def end_coalescing(self, _device=None):
        return Work(self._queue, lambda: None, [])

    def limit(self, timeout: datetime.timedelta) -> None:
        """Sets how long a call may last, if that is less than the group's timeout, which the
        channel keeps; calls with async_op=True keep that, too."""
        self._limit_s = 0.0
        if timeout < self._timeout:
            self._limit_s = timeout.total_seconds()
        elif timeout > self._timeout:
            logging.getLogger("ceoverlap").warning(
                "group %s: calls end after %s, with which the group was made: a longer timeout "
                "needs a new group", self._at.name, self._timeout)
        if self._plain is not None:
            self._plain.set_timeout(timeout)

    # --- its life --------------------------------------------------------------------------

    def _get_sequence_number_for_group(self) -> int:
        return sum(self.ways.ours.values()) + sum(self.ways.plain.values())

    def _set_sequence_number_for_group(self) -> None:
        """Numbers begin at 0 at all ranks by themselves."""

    def getBackendName(self) -> str:
        return "ceov"

    def _end_calls(self) -> None:
        """Ends the channel, and with it the calls of all ranks that are under way."""
        if self._group is not None and self._group.channel is not None:
            try:
                self._group.channel.abort()
            except errors.CeoverlapError:       # it is closed, or has failed
                pass

    def abort(self) -> None:
        """Ends the calls under way at all ranks, and closes the backend."""
        self._close(0.0)

    def shutdown(self) -> None:
        """Closes the backend, once the calls that were made are through. Waits for no peer that
        does not take part in them."""
        self._close(self._timeout.total_seconds())

    def _close(self, timeout_s: float) -> None:
        if not self._is_open:
            return
        self._is_open = False
        queues = [self._queue, *self._messages.values()]
        if not timeout_s:
            self._end_calls()
        if not all([queue.close(timeout_s) for queue in queues]):
            self._end_calls()
        if self._group is not None:
            self._group.close()
        self._on_close()
