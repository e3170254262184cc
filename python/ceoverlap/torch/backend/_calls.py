# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""What a backend makes of torch.distributed's calls. Each is made where its tensors are, on the
host (_host.py) or on a GPU (_gpu.py), by the channel that the group has there, or by PyTorch's own
backend, as _ways.py decides."""

from __future__ import annotations

import datetime
import threading
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Union

import torch
import torch.distributed as dist

from ... import errors
from .. import _compat
from ..group import Group, Ranks
from . import _tensors
from ._gpu import Gpu
from ._host import Host
from ._record import Record
from ._ways import REDUCTIONS
from ._work import Together

Side = Union[Host, Gpu]
number_of_op = _compat.number_of_op


def device_of(store: Any, rank: int) -> torch.device:
    """Returns the device for which PyTorch makes a backend with this store: it tells that by the
    prefix of the store's keys alone. Where one backend is for several, it is the first."""
    key, outer = f"device/{rank}", getattr(store, "underlying_store", None)
    store.set(key, "")
    is_gpu = outer is not None and outer.check([f"cuda//{key}"])
    return torch.device("cuda" if is_gpu else "cpu")


class Calls:
    """The calls of a backend, but for what its base class asks. Names are those that PyTorch
    calls."""

    # Whether PyTorch tells by start_coalescing() which messages are made at the same time.
    knows_batches = False

    def _begin(self, ranks: Ranks, timeout: datetime.timedelta, device: torch.device,
               on_close: Callable[[], object], global_ranks: Sequence[int] = (),
               options: Any = None) -> None:
        """Begins with what the backend has on the host, if the device is there, together with all
        ranks; the rest is made by the first call that needs it. on_close is called when the backend
        is shut down; global_ranks: the group's, in the default process group; options: NCCL's that
        the process group was made with, or something else."""
        self._on_close = on_close
        # After destroy_process_group() and another init_process_group() the store may still have
        # the first group's keys, whose name comes again.
        number = ranks.store.add(f"made/{ranks.rank}", 1)
        self._at = ranks._replace(store=dist.PrefixStore(str(number), ranks.store))
        self.record: Record = Record(self._at, global_ranks, ranks.name)
        self._timeout = timeout
        self._global_ranks, self._given = list(global_ranks), options
        self._nccl = None
        self._host: Optional[Host] = None
        self._gpu: Optional[Gpu] = None
        self._making = threading.RLock()
        self._batch: Optional[List[Any]] = None      # handles since start_coalescing()
        self._is_open = True
        if device.type == "cpu":
            self._on_host()

    @property
    def store(self) -> dist.Store:
        """The store in which the backend meets, which no other group has, not even one of the same
        name before it."""
        return self._at.store

    # --- where ------------------------------------------------------------------------------

    def _side(self, x: torch.Tensor) -> Side:
        """Returns what makes calls with this tensor."""
        if x.is_cuda:
            gpu = self._gpu or self._on_gpu(x.device)
            if x.device != gpu.device:
                gpu.check_place(x.device)
            return gpu
        return self._host or self._on_host()

    def _on_host(self) -> Host:
        with self._making:
            if self._host is None:
                self._check_open()
                self._host = Host(self._at, self._timeout, self.record)
                self.record.meet()
            return self._host

    def _on_gpu(self, device: Optional[torch.device] = None) -> Gpu:
        """device: None, or one without a number: the current one."""
        with self._making:
            if self._gpu is None:
                self._check_open()
                if device is None or device.index is None:
                    device = torch.device("cuda", torch.cuda.current_device())
                ranks = self._at._replace(store=dist.PrefixStore("gpu", self._at.store))
                self._gpu = Gpu(ranks, device, self._timeout, self.nccl, not self.knows_batches,
                                self.record)
                self.record.meet()
            return self._gpu

    def nccl(self) -> Any:
        """Returns NCCL's backend of the same ranks, which is made when it is first needed; None if
        PyTorch was built without it."""
        with self._making:
            if self._nccl is None:
                store = dist.PrefixStore("nccl", self._at.store)
                self._nccl = _compat.make_nccl(self._at._replace(store=store), self._timeout,
                                               self._global_ranks, self._given, self)
            return self._nccl

    def _check_open(self) -> None:
        if not self._is_open:
            raise errors.StateError(f"group {self._at.name}: it was shut down")

    def _sides(self) -> List[Side]:
        return [side for side in (self._host, self._gpu) if side is not None]

    def group_on(self, kind: str) -> Optional[Group]:
        """Returns the Group that calls with tensors on "cpu" or on "cuda" go by; None if there was
        no such call yet, or its ranks are on several nodes."""
        side = self._gpu if kind == "cuda" else self._host
        return None if side is None else side.group

    def counts(self) -> Dict[str, Dict[str, int]]:
        """Returns how many calls of each kind were the channels' ("ours"), and the others'
        ("plain")."""
        told: Dict[str, Dict[str, int]] = {"ours": {}, "plain": {}}
        for side in self._sides():
            for name, counts in told.items():
                for kind, n in side.ways.counts(name == "ours").items():
                    counts[kind] = counts.get(kind, 0) + n
        return told

    # --- memory ----------------------------------------------------------------------------

    # As FSDP2's set_allocate_memory_from_process_group_for_comm() has it. All ranks ask together,
    # because the first one makes what the group has on the GPU, and its pool.

    def supports_tensor_alloc(self, device: Union[int, torch.device]) -> bool:
        """Returns whether allocate_tensor() can be called. device: a GPU's number, too."""
        at = torch.device("cuda", device) if isinstance(device, int) else device
        return at.type == "cuda" and (self._gpu or self._on_gpu(at)).supports_tensor_alloc(at)

    def allocate_tensor(self, size: Any, *, dtype: torch.dtype,
                        device: torch.device) -> torch.Tensor:
        """Returns a tensor in memory that the group's other ranks know; see Group.pool()."""
        return (self._gpu or self._on_gpu(device)).allocate_tensor(size, dtype=dtype, device=device)

    # --- moves -----------------------------------------------------------------------------

    def all_gather_single(self, output: Any, input: Any, opts: Any = None) -> Any:
        opts = opts or _compat.AllgatherOptions()
        side = self._side(input)
        call = side.begin("all_gather_single", input)
        if call < 0:
            return side.run_plain("all_gather_single", opts, ~call, [output], output, input)
        group = side.group
        if not _tensors.is_whole(output, input, group.size):
            side.checked(call, _tensors.check_whole, "all_gather", output, input, group.size)
        return side.run(opts, call, lambda: _tensors.all_gather(group, output, input), [output])

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        return self._each(self.all_gather_single, zip(outputs, inputs),
                          opts or _compat.AllgatherOptions(), outputs)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        opts = opts or _compat.AllgatherOptions()
        targets, x = outputs[0], inputs[0]
        side = self._side(x)
        call = side.begin("all_gather", x)
        if call < 0:
            return side.run_plain("allgather", opts, ~call, outputs, outputs, inputs)
        group = side.group
        side.checked(call, _tensors.check_parts, "all_gather", targets, x, group)
        return side.run(opts, call, lambda: _tensors.all_gather_list(group, targets, x), outputs)

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        calls = [([[of_rank[i] for of_rank in outputs]], [x]) for i, x in enumerate(inputs)]
        return self._each(self.allgather, calls, opts or _compat.AllgatherOptions(), outputs)

    def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        opts = opts or dist.GatherOptions()
        x, root = inputs[0], opts.rootRank
        side = self._side(x)
        call = side.begin("gather", x, None, root)
        if call < 0:
            return side.run_plain("gather", opts, ~call, outputs, outputs, inputs)
        group, targets = side.group, outputs[0] if outputs else []
        if group.rank == root:
            side.checked(call, _tensors.check_parts, "gather", targets, x, group)
        return side.run(opts, call, lambda: _tensors.gather_list(group, targets, x, root), outputs)

    def gather_single(self, output: Any, input: Any, opts: Any = None) -> Any:
        opts = opts or dist.GatherOptions()
        root = opts.rootRank
        side = self._side(input)
        call = side.begin("gather", input, None, root)
        if call < 0:
            return side.run_plain("gather_single", opts, ~call, [output], output, input)
        group, target = side.group, output if self._at.rank == root else None
        if target is not None:
            side.checked(call, _tensors.check_whole, "gather", target, input, group.size)
        return side.run(opts, call, lambda: _tensors.gather(group, target, input, root), [output])

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        opts = opts or dist.ScatterOptions()
        target, root = outputs[0], opts.rootRank
        side = self._side(target)
        call = side.begin("scatter", target, None, root)
        if call < 0:
            return side.run_plain("scatter", opts, ~call, outputs, outputs, inputs)
        group, parts = side.group, inputs[0] if inputs else []
        if group.rank == root:
            side.checked(call, _tensors.check_parts, "scatter", parts, target, group)
        return side.run(opts, call, lambda: _tensors.scatter_list(group, target, parts, root),
                        outputs)

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        opts = opts or dist.BroadcastOptions()
        x, root = tensors[0], opts.rootRank
        side = self._side(x)
        call = side.begin("broadcast", x, None, root)
        if call < 0:
            return side.run_plain("broadcast", opts, ~call, tensors, tensors)
        group = side.group
        return side.run(opts, call, lambda: _tensors.broadcast(group, x, root), tensors)

    def all_to_all_single(self, output: Any, input: Any, output_splits: Any, input_splits: Any,
                          opts: Any = None) -> Any:
        opts = opts or dist.AllToAllOptions()
        side = self._side(input)
        call = side.begin("all_to_all", input)
        if call < 0:
            return side.run_plain("all_to_all_single", opts, ~call, [output], output, input,
                                  output_splits, input_splits)
        group = side.group
        side.checked(call, _tensors.check_alike, "all_to_all", (output, input))
        received = side.checked(call, _tensors.split, "all_to_all: output", output, output_splits,
                                group.size)
        sent = side.checked(call, _tensors.split, "all_to_all: input", input, input_splits,
                            group.size)
        return side.run(opts, call, lambda: _tensors.all_to_all(group, output, input, received,
                                                                sent), [output])

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        opts = opts or dist.AllToAllOptions()
        side = self._side(inputs[0])
        call = side.begin("all_to_all", inputs[0])
        if call < 0:
            return side.run_plain("alltoall", opts, ~call, outputs, outputs, inputs)
        group = side.group
        for parts in (outputs, inputs):
            side.checked(call, _tensors.check_parts, "all_to_all", parts, inputs[group.rank], group)
        return side.run(opts, call, lambda: _tensors.all_to_all_list(group, outputs, inputs),
                        outputs)

    # --- sums ------------------------------------------------------------------------------

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        opts = opts or dist.AllreduceOptions()
        x, op = tensors[0], number_of_op(opts.reduceOp)
        side = self._side(x)
        call = side.begin("all_reduce", x, op)
        if call < 0:
            return side.run_plain("allreduce", opts, ~call, tensors, tensors)
        group, reduction = side.group, REDUCTIONS[op]
        return side.run(opts, call, lambda: _tensors.all_reduce(group, x, reduction), tensors)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        each = dist.AllreduceOptions()
        if opts is not None:
            each.reduceOp, each.asyncOp, each.timeout = opts.reduceOp, opts.asyncOp, opts.timeout
        return self._each(self.allreduce, [([x],) for x in tensors], each, tensors)

    def allreduce_sparse(self, tensors: Any, opts: Any = None) -> Any:
        opts = opts or dist.AllreduceOptions()
        side = self._side(tensors[0])
        call = side.begin("all_reduce_sparse", tensors[0], number_of_op(opts.reduceOp))
        return side.run_plain("allreduce_sparse", opts, ~call, tensors, tensors)

    def reduce(self, tensors: Any, opts: Any = None) -> Any:
        opts = opts or dist.ReduceOptions()
        x, op, root = tensors[0], number_of_op(opts.reduceOp), opts.rootRank
        side = self._side(x)
        call = side.begin("reduce", x, op, root)
        if call < 0:
            return side.run_plain("reduce", opts, ~call, tensors, tensors)
        group, reduction = side.group, REDUCTIONS[op]
        return side.run(opts, call, lambda: _tensors.reduce(group, x, root, reduction), tensors)

    def reduce_scatter_single(self, output: Any, input: Any, opts: Any = None) -> Any:
        opts = opts or dist.ReduceScatterOptions()
        op = number_of_op(opts.reduceOp)
        side = self._side(input)
        call = side.begin("reduce_scatter_single", output, op)
        if call < 0:
            return side.run_plain("reduce_scatter_single", opts, ~call, [output], output, input)
        group, reduction = side.group, REDUCTIONS[op]
        if not _tensors.is_whole(input, output, group.size):
            side.checked(call, _tensors.check_whole, "reduce_scatter", input, output, group.size)
        return side.run(opts, call, lambda: _tensors.reduce_scatter(group, output, input,
                                                                    reduction), [output])

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        return self._each(self.reduce_scatter_single, zip(outputs, inputs),
                          opts or dist.ReduceScatterOptions(), outputs)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        opts = opts or dist.ReduceScatterOptions()
        target, parts, op = outputs[0], inputs[0], number_of_op(opts.reduceOp)
        side = self._side(target)
        call = side.begin("reduce_scatter", target, op)
        if call < 0:
            return side.run_plain("reduce_scatter", opts, ~call, outputs, outputs, inputs)
        group, reduction = side.group, REDUCTIONS[op]
        side.checked(call, _tensors.check_parts, "reduce_scatter", parts, target, group)
        return side.run(opts, call, lambda: _tensors.reduce_scatter_list(group, target, parts,
                                                                   reduction), outputs)

    def _each(self, call: Callable[..., Any], calls: Iterable[Any], opts: Any,
              result: List[Any]) -> Any:
        """Makes several calls of one kind, which PyTorch hands over together, in their order.
        Returns the last one's handle, which ends behind all others."""
        calls = list(calls)
        works = [call(*args, opts) for args in calls]
        if not opts.asyncOp or not works:
            return None
        return self._side(result[0]).last_of(works, result)

    # --- others ----------------------------------------------------------------------------

    def barrier(self, opts: Any = None) -> Any:
        opts = opts or dist.BarrierOptions()
        device = opts.device
        if device is None:              # nobody has said where
            is_gpu = self._gpu is not None and self._host is None
        else:
            is_gpu = device.type == "cuda"
        side = (self._gpu or self._on_gpu(device)) if is_gpu else self._host or self._on_host()
        return side.barrier(opts)

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool = False) -> Any:
        """Gloo's, which names the ranks that do not come."""
        timeout = opts.timeout if isinstance(opts, dist.BarrierOptions) else opts
        (self._host or self._on_host()).monitored_barrier(timeout, wait_all_ranks)

    def send(self, tensors: Any, peer: int, tag: int = 0) -> Any:
        return self._gathered(self._side(tensors[0]).message("send", tensors, peer, tag))

    def recv(self, tensors: Any, peer: int, tag: int = 0) -> Any:
        return self._gathered(self._side(tensors[0]).message("recv", tensors, peer, tag))

    def _gathered(self, work: Any) -> Any:
        """Returns the handle, which is kept until end_coalescing() while it will be asked for."""
        if self._batch is not None:
            self._batch.append(work)
        return work

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        return self._side(tensors[0]).receive_any(tensors, tag)

    def start_coalescing(self, _device: Any = None) -> None:
        """Messages on GPUs are made at the same time at the end, and those on the host beside the
        caller; other calls are made one by one."""
        self._batch = []
        if self._gpu is not None:
            self._gpu.start_coalescing()

    def end_coalescing(self, _device: Any = None) -> Any:
        """Returns a handle that ends behind all of them."""
        works, self._batch = self._batch or [], None
        if self._gpu is not None:
            works.append(self._gpu.end_coalescing())
        return Together([work for work in works if work is not None], [])

    # --- its life --------------------------------------------------------------------------

    def limit(self, timeout: datetime.timedelta) -> None:
        """Sets how long a call may last; see the sides' limit()."""
        for side in self._sides():
            side.limit(timeout)

    def _get_sequence_number_for_group(self) -> int:
        return sum(n for kinds in self.counts().values() for n in kinds.values())

    def _set_sequence_number_for_group(self) -> None:
        """Numbers begin at 0 at all ranks by themselves."""

    def getBackendName(self) -> str:
        return "ceov"

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
        self.record.leave()
        if self._nccl is not None and not timeout_s:
            self._nccl.abort()
        for side in self._sides():
            side.close(timeout_s)
        self.record.close()
        if self._nccl is not None and timeout_s:
            self._nccl.shutdown()
        self._on_close()
