# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Groups: the ranks of a torch.distributed process group, in a ceoverlap context."""

from __future__ import annotations

import contextlib
import datetime
import functools
import logging
import os
import shutil
import threading
import uuid
import weakref
from typing import (Any, Callable, Dict, List, NamedTuple, Optional, Protocol, Sequence,
                    TYPE_CHECKING, Tuple, TypeVar, Union)

import torch
import torch.distributed as dist

from .. import _bootstrap, errors
from ..channel import Channel
from ..context import DEADLINE_S, Context
from ..network import Network
from ..place import Place
from . import _compat
from ._queue import CallQueue

if TYPE_CHECKING:
    from .operators import Operators


class _Closes(Protocol):
    """What close() ends."""

    def close(self) -> object:
        """Ends it."""


_Made = TypeVar("_Made")
_Closed = TypeVar("_Closed", bound=_Closes)
LEGACY_STREAM = 1                       # CU_STREAM_LEGACY: the default stream, not NULL
SPARE_SMS = 8                           # of a shared GPU: its copies within it run on SMs
_MOST_S = 1e9                           # of a deadline
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class _Given:
    """A ``with`` block's stream that is used as it is."""

    __slots__ = ("_handle",)

    def __init__(self, handle: Optional[int]) -> None:
        self._handle = handle

    def __enter__(self) -> Optional[int]:
        return self._handle

    def __exit__(self, *_exception: object) -> None:
        pass


_NO_STREAM = _Given(None)


class _Beside:
    """A side stream of the default stream. The default stream waits for it at the end of the
    block, so memory that tensors of the default stream give back is not reused before the side
    stream has finished with it. Its two events are used repeatedly, also by several threads: if
    one thread's record replaces another's, waiters only wait for more than they need."""

    __slots__ = ("_default", "_side", "_begun", "_ended")

    def __init__(self, device: torch.device) -> None:
        self._default = torch.cuda.default_stream(device)
        self._side = torch.cuda.Stream(device)
        self._begun, self._ended = torch.cuda.Event(), torch.cuda.Event()

    def __enter__(self) -> int:
        self._begun.record(self._default)
        self._side.wait_event(self._begun)
        return self._side.cuda_stream

    def __exit__(self, *_exception: object) -> None:
        self._ended.record(self._side)
        self._default.wait_event(self._ended)


def _node_id() -> str:
    """Returns a text that is the same for all processes of one node: CEOVERLAP_NODE, else one
    that a machine keeps until it reboots."""
    named_so = os.environ.get("CEOVERLAP_NODE")
    if named_so:
        return named_so
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return os.uname().nodename


def _gpu_id(device: torch.device) -> str:
    """Returns a text that is the same for all processes that use this GPU, whichever number
    they know it by."""
    told = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    if told is not None:
        return str(told)
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "")   # a PyTorch that does not tell
    return f"{seen}:{device.index}".replace(" ", "")


def device_of(process_group: Any,
               device: Union[None, str, torch.device]) -> torch.device:
    """Returns the device that the caller named; else the current GPU if the process group has a
    backend for CUDA, else the CPU."""
    if device is not None:
        device = torch.device(device)
    elif process_group is None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    else:
        kinds = {kind.type for kind in process_group._device_types}
        device = torch.device("cuda" if "cuda" in kinds and torch.cuda.is_available()
                              else "cpu")
    if device.type not in ("cuda", "cpu"):
        raise errors.InvalidError(f"device {device}: a group's ranks are on cuda or cpu")
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    return device


def seconds_of(timeout: datetime.timedelta) -> float:
    """Returns a deadline, which the library counts in nanoseconds."""
    return min(timeout.total_seconds(), _MOST_S)


class Ranks(NamedTuple):
    """Ranks that can meet in a store of their own."""
    store: Any                          # of torch.distributed
    rank: int
    size: int
    name: str                           # of them all


def _environment_ranks(deadline_s: float) -> Ranks:
    """Returns the ranks that torchrun's environment variables name."""
    try:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    except (KeyError, ValueError) as error:
        raise errors.InvalidError(
            f"no process group, and torchrun's environment is not there ({error}): start "
            "with torchrun, or call torch.distributed.init_process_group()") from None
    serves = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        store = dist.TCPStore(host, port, size, serves, datetime.timedelta(seconds=deadline_s))
    except (RuntimeError, dist.DistError) as error:
        raise errors.StateError(_what_of_the_store(
            f"at {host}:{port} within {deadline_s} s", rank, serves, error)) from None
    return Ranks(dist.PrefixStore("ceoverlap", store), rank, size, "torchrun")


def _what_of_the_store(where: str, rank: int, serves: bool, error: Exception) -> str:
    """Returns the message for a store by torchrun's environment that did not come to be."""
    again = "after destroy_process_group() call init_process_group() again"
    if not serves:
        missing = f"nobody serves the store {where}: start all ranks together; {again}"
    elif isinstance(error, dist.DistStoreError):
        missing = (f"not all ranks have come to the store {where}: start all ranks together, or "
                   "give a longer deadline_s")
    else:
        missing = f"no store can be served {where}: {again}"
    return (f"rank {rank}: no process group is there, and {missing} "
            f"({str(error).splitlines()[0]})")


class Group:
    """The ranks of a process group: one process each, on one host or several.

    process_group  a torch.distributed ProcessGroup; None: the default one where
                   torch.distributed is initialised, else torchrun's environment
    device         where this rank's tensors are: "cuda", "cuda:N" or "cpu"; None: the
                   current GPU where the group has a backend for it, else the CPU
    deadline_s     of every wait for a peer
    n_sms          how many SMs the operators' kernels take at most, the same at all ranks; 0:
                   all, or where ranks share a GPU all but a few
    channel        whether the group has a channel, the same at all ranks: "auto": ranks on the
                   CPU have one where they can, ranks on GPUs have none; True: it is an
                   InvalidError where they cannot have one; False: none

    All ranks make it together, as they would call a collective; it blocks until all have.
    Everything in ceoverlap.torch that takes a process group finds its Group by of(). NCCL
    communicators of the same process go on working; nothing of the environment is set. Threads
    may use different groups at the same time, in any order; calls of one group come in the same
    order at all ranks, so one thread at a time makes them.

    Between hosts bytes go over UCX (docs/nodes.md); n_nodes says how many hosts there are. Runs
    cannot be captured into CUDA graphs then, and FSDP2 gathers by PyTorch's own means, unless it
    is reached by its public hooks.

    The channel (ceoverlap.Channel) moves and sums in any shape at its first call, and compares the
    ranks' calls; moves and sums of ceoverlap.torch go by it. Ranks on one host can have one: up to
    64 on the CPU, or up to 8 on GPUs that NVLink connects; elsewhere channel is None.

    Ranks may share a GPU: results are the same, but the GPU runs one process at a time, in
    turns of some 2 ms, so that every wait for a peer takes milliseconds. shares_gpus says,
    at all ranks alike, whether any do. A rank is on the GPU that is current when its group is
    made, so with a GPU for each rank call torch.cuda.set_device() first.
    """

    def __init__(self, process_group: Optional[dist.ProcessGroup] = None,
                 device: Union[None, str, torch.device] = None, *, deadline_s: float = DEADLINE_S,
                 n_sms: int = 0, channel: Union[bool, str] = "auto") -> None:
        if channel != "auto" and not isinstance(channel, bool):
            raise errors.InvalidError(f"channel {channel!r}: must be \"auto\", True or False")
        if process_group is None and dist.is_available() and dist.is_initialized():
            process_group = dist.group.WORLD
        self.deadline_s: float = deadline_s
        self._find(self._ranks_of(process_group), device_of(process_group, device), str(channel))
        self._make(n_sms, channel)
        _known.append((process_group and weakref.ref(process_group), self))

    @classmethod
    def of_ranks(cls, ranks: Ranks, device: torch.device, deadline_s: float) -> Group:
        """Makes the group of ranks that have a store but no process group yet, as those of a
        torch.distributed backend, with a channel wherever they can have one. ranks.name will be the
        process group's group_name, by which of() finds the group. Where they are on several nodes
        (n_nodes) it is only found out where they are, and nothing is made: of() makes their group
        when somebody asks for it. All ranks call it together."""
        group = cls.__new__(cls)
        group.deadline_s = deadline_s
        group._default_store = ranks.store
        group._find(Ranks(_compat.own_client(ranks.store), ranks.rank, ranks.size,
                          f"{ranks.name}/ceov/{device.type}"), device, "any")
        if group.n_nodes == 1:
            group._make(0, "any")
            _of_backends[ranks.name, device.type] = group
        return group

    # --- bootstrap ---------------------------------------------------------------------

    def _find(self, ranks: Ranks, device: torch.device, channel: str) -> None:
        """Lets the ranks meet in their store, and finds out where they are."""
        self._n_exchanges = 0
        self.rank: int = ranks.rank
        self.size: int = ranks.size
        self._store, base = ranks.store, ranks.name
        self.device: torch.device = device
        self.is_gpu: bool = device.type == "cuda"
        self.name: str = self._agree_on_name(base)
        self.n_nodes: int
        self.shares_gpus: bool
        self.n_nodes, self.shares_gpus = self._check_places(channel)

    def _make(self, n_sms: int, channel: Union[bool, str]) -> None:
        """Makes what the group has of the library. _find() comes before."""
        self.n_sms: int = n_sms or self._spare_sms()
        self.context: Context = self._open()
        self.why_no_channel: str = "it has not asked for one, by Group(channel=True)"
        self.holds_memory: bool = False     # of tensors, though it is closed; see _pool.py
        self.channel: Optional[Channel] = self._make_channel(channel)
        self.queue: Optional[CallQueue] = None  # of the channel's collectives, or the like
        self._lock = threading.RLock()
        self._parts: Dict[Callable[[Group], Any], Any] = {}
        _groups[self.name] = self

    def _ranks_of(self, process_group: Optional[dist.ProcessGroup]) -> Ranks:
        if process_group is None:
            return _environment_ranks(self.deadline_s)
        rank = dist.get_rank(process_group)
        if rank < 0:
            raise errors.InvalidError("this process is not in the process group")
        self._default_store = _compat.default_store()   # its server ends when nobody holds it
        store = dist.PrefixStore(f"ceoverlap/{process_group.group_name}",
                                 _compat.own_client(self._default_store))
        return Ranks(store, rank, dist.get_world_size(process_group), process_group.group_name)

    def _agree_on_name(self, base: str) -> str:
        """Returns the group's name. It has the number of groups that this process group had so
        far, which is the same at all ranks."""
        key = f"groups/{self.rank}"
        number = self._store.add(key, 1)
        self._store = dist.PrefixStore(str(number), self._store)
        return f"{base}#{number}"

    def _check_places(self, channel: str) -> Tuple[int, bool]:
        """Refuses ranks on different kinds of device, or that ask differently for a channel.
        Returns how many nodes the ranks are on, and whether some ranks share a GPU."""
        gpu = _gpu_id(self.device) if self.is_gpu else "none"
        told = [one.split("\t") for one in
                self.exchange(f"{_node_id()}\t{self.device.type}\t{gpu}\t{channel}")]
        nodes, kinds, gpus, channels = zip(*told)
        if len(set(kinds)) != 1:
            raise errors.InvalidError(f"group {self.name}: some ranks are on cuda and some on "
                                      "cpu: pass the same kind of device at all of them")
        if len(set(channels)) != 1:
            raise errors.InvalidError(f"group {self.name}: channel: {_by_ranks(channels)}: must be "
                                      "the same at all ranks")
        n_gpus = len(set(gpus)) if self.is_gpu else self.size
        if n_gpus < self.size and self.rank == 0:
            self._tell_of_sharing(n_gpus)
        return len(set(nodes)), n_gpus < self.size

    def _spare_sms(self) -> int:
        """Returns how many SMs the operators' kernels may use; 0: all. If ranks share a GPU,
        some SMs are left free: copies within a GPU are kernels, which the driver does not start
        while kernels that wait for peers hold all SMs."""
        if not self.shares_gpus:
            return 0
        properties = torch.cuda.get_device_properties(self.device)
        least = min(map(int, self.exchange(str(properties.multi_processor_count))))
        return max(least - SPARE_SMS, 2)

    def _tell_of_sharing(self, n_used: int) -> None:
        """Logs that ranks share GPUs; as a warning if there is a GPU for each rank, because
        then it may be a mistake."""
        level = logging.WARNING if torch.cuda.device_count() >= self.size else logging.INFO
        logging.getLogger("ceoverlap").log(
            level, "group %s: its %d ranks share %d GPU%s and get them in turns of some 2 ms: "
            "results are the same, speed is not. With a GPU for each rank, call "
            "torch.cuda.set_device(LOCAL_RANK) before the group is made", self.name, self.size,
            n_used, "s" if n_used > 1 else "")

    def _open(self) -> Context:
        place = Place("gpu", self.device.index) if self.is_gpu else Place("host")
        return self._open_here(place) if self.n_nodes == 1 else self._open_nodes(place)

    def _open_nodes(self, place: Place) -> Context:
        """Opens the context of a group of several nodes. The job's name keeps its sockets and
        connections apart from those of all other groups."""
        job = self.exchange(uuid.uuid4().hex)[0]
        network = Network(self._all_gather, process=self.rank, n_processes=self.size, job=job,
                          node=_node_id())
        return Context(self.rank, self.size, place, deadline_s=self.deadline_s,
                       network=network)

    def _all_gather(self, own: bytes, timeout_s: float) -> List[bytes]:
        told = self.exchange(own.hex(), min(timeout_s, self.deadline_s))
        return [bytes.fromhex(one) for one in told]

    def _open_here(self, place: Place) -> Context:
        """Opens the context of a group on one host. The socket where ranks meet lies in a
        temporary folder, which is removed when all ranks have come."""
        folder = _bootstrap.make_folder() if self.rank == 0 else ""
        try:
            path = self.exchange(folder)[0]
            context = Context(self.rank, self.size, place, os.path.join(path, "group"),
                              deadline_s=self.deadline_s)
            self.exchange("open")
        finally:
            if folder:
                shutil.rmtree(folder, ignore_errors=True)
        return context

    def _make_channel(self, asked: Union[bool, str]) -> Optional[Channel]:
        """asked: Group's argument `channel`, or "any": where they can. "auto" stands for none on
        GPUs until channels have been measured there."""
        if asked is False or asked == "auto" and self.is_gpu:
            return None
        made, refusal = self._try_channel()
        if made is not None:
            made.barrier()              # a rank may close the group before others have connected
            return made
        if asked is True:
            raise errors.InvalidError(f"group {self.name}: it can have no channel: {refusal}")
        self.why_no_channel = refusal
        if self.rank == 0:
            logging.getLogger("ceoverlap").info(
                "group %s: it has no channel, so operators make its moves and sums: %s", self.name,
                refusal)
        return None

    def _try_channel(self) -> Tuple[Optional[Channel], str]:
        """Returns a connected channel, if all ranks have one; else None, and why not. One rank's
        refusal is all ranks', because their calls have to go one way. Between GPUs it may be found
        when they connect."""
        made: Optional[Channel] = None
        for _ in ("create", "connect"):
            own = ""
            try:
                if made is None:
                    made = Channel(self.context, "torch")
                else:
                    made.connect(self.deadline_s)
            except errors.CeoverlapError as error:
                own = str(error)
            refusals = [one for one in self.exchange(own) if one]
            if refusals:
                if made is not None:
                    made.close()
                return None, refusals[0]
        return made, ""

    def end_channel(self) -> None:
        """Ends the channel, if there is one, and with it the calls of all ranks under way."""
        if self.channel is not None:
            with contextlib.suppress(errors.CeoverlapError):    # it is closed, or has failed
                self.channel.abort()

    def exchange(self, text: str, timeout_s: Optional[float] = None) -> List[str]:
        """Returns the text of every rank, in the order of ranks. All ranks call it in the same
        order. It blocks on the host until all have called it, so keep it out of training steps.
        DeadlineError names the rank that is missing."""
        timeout_s = self.deadline_s if timeout_s is None else timeout_s
        number = self._tell(text)
        told = [self._get(f"{number}/{rank}", rank, timeout_s) for rank in range(self.size)]
        if number:                      # all who have come here have read the last one
            self._store.delete_key(f"{number - 1}/{self.rank}")
        return told

    def _tell(self, text: str) -> int:
        """Publishes this rank's text for the next exchange, and returns that exchange's number.
        """
        number, self._n_exchanges = self._n_exchanges, self._n_exchanges + 1
        self._store.set(f"{number}/{self.rank}", text)
        return number

    def _get(self, key: str, rank: int, timeout_s: float) -> str:
        try:
            self._store.wait([key], datetime.timedelta(seconds=timeout_s))
        except (RuntimeError, dist.DistError) as error:
            raise errors.DeadlineError(
                f"rank {self.rank}: rank {rank} of {self.size} has not come within "
                f"{timeout_s} s: all ranks have to make the same calls ({error})") from None
        return self._store.get(key).decode()

    def agree(self, what: str, text: str) -> None:
        """Raises an error at all ranks if `text` is not the same at all of them; `what` names
        it in the error."""
        try:
            told = self.exchange(text)
        except errors.DeadlineError as error:
            raise errors.DeadlineError(f"{what} {text}: {error}") from None
        if len(set(told)) > 1:
            raise errors.InvalidError(f"{what}: {_by_ranks(told)}: must be the same at all ranks")

    def together(self, what: str, make: Callable[[], _Closed]) -> _Closed:
        """Calls make() at all ranks and returns its result, an object with close(), if it
        succeeded everywhere. If it fails at one rank, that one raises its error at once, and
        the others close their result and raise a StateError with it. Then all may try again."""
        try:
            made = make()
        except Exception as error:
            self._tell(f"{type(error).__name__}: {error}")
            raise
        for rank, failure in enumerate(self.exchange("")):
            if failure:
                made.close()
                raise errors.StateError(f"{what}: rank {rank} has failed: {failure}")
        return made

    # --- streams ----------------------------------------------------------------------

    def stream(self) -> Union[_Given, _Beside]:
        """For ``with group.stream() as handle``: yields a CUstream (None on the CPU) that runs
        after what is on the caller's current stream; what the current stream gets after the
        block runs after it. It is the current stream itself. Only for the default stream it is
        a side stream, because the default stream is the NULL stream, which cannot wait for
        marks."""
        handle = self.current_stream()
        if handle:
            return _Given(handle)
        return _NO_STREAM if handle == 0 else self._beside

    def current_stream(self) -> Optional[int]:
        """Returns the CUstream of the current stream, 0 on the CPU; None if it is the NULL
        stream."""
        return (_compat.current_stream(self.device.index) or None) if self.is_gpu else 0

    def run_stream(self) -> int:
        """Returns the CUstream of the current stream for an operator's run. The NULL stream is
        returned by the handle CU_STREAM_LEGACY, which runs accept."""
        return (_compat.current_stream(self.device.index) or LEGACY_STREAM) if self.is_gpu else 0

    def is_capturing(self) -> bool:
        """Returns whether the current stream is being captured into a CUDA graph."""
        return self.is_gpu and _compat.is_capturing()

    @functools.cached_property
    def _beside(self) -> _Beside:
        return _Beside(self.device)

    # --- what belongs to it --------------------------------------------------------------

    def part(self, kind: Callable[[Group], _Made]) -> _Made:
        """Returns the group's only object of this class, which is made with the group as
        argument at first use. The group's close() closes these objects, the last one made
        first."""
        with self._lock:
            if kind not in self._parts:
                self._parts[kind] = kind(self)
            made: _Made = self._parts[kind]
            return made

    @functools.cached_property
    def operators(self) -> Operators:
        """The operators that the group has made so far; see operators.py."""
        from .operators import Operators

        return self.part(Operators)

    def pool(self, max_bytes: Optional[int] = None) -> torch.cuda.MemPool:
        """Returns the group's pool, for ``with torch.cuda.use_mem_pool(group.pool()):``. Tensors
        that are made in the block, by this thread, lie in memory that the other ranks know: large
        all-gathers, broadcasts and all-to-alls into them take no SM (ceoverlap/pool.h).

        The first call makes it, at all ranks together, between the same calls of the group and in
        no capture; InvalidError says why a group can have none. max_bytes: that this rank's takes
        from the driver at most, None: no bound; later calls give none. What tensors free serves
        later ones of the pool alone, until the group is closed. Where tensors still have memory of
        it then, they stay valid, and all of it stays until the process ends. group.channel.pool
        tells how much it has taken, and which way calls went."""
        from ._pool import GroupPool

        return self.part(GroupPool).mem_pool(max_bytes)

    @classmethod
    def of(cls, process_group: GroupLike = None,
           device: Union[None, str, torch.device] = None) -> Group:
        """Returns the Group of a process group (None: as in Group()), the group of a name, or
        the Group that was passed. It is made at first use, by all ranks together."""
        if isinstance(process_group, Group):
            return process_group
        if isinstance(process_group, str):
            return named(process_group)
        if process_group is None and dist.is_available() and dist.is_initialized():
            process_group = dist.group.WORLD
        known = _group_of(process_group, device)
        if known is not None:
            return known
        name = getattr(process_group, "group_name", None)   # PyTorch gives others a number
        with _making.setdefault(name, threading.RLock()):   # not all: others may wait for peers
            return _group_of(process_group, device) or cls(process_group, device)

    @property
    def process_group(self) -> Optional[dist.ProcessGroup]:
        """The process group that it was made for; None if there was none, or it is gone."""
        for known, group in list(_known):       # other threads may close groups
            if group is self:
                return known and known()
        for (name, _), group in list(_of_backends.items()):
            if group is self:
                return _compat.process_group_named(name)
        return None

    @property
    def is_open(self) -> bool:
        """Whether the group can still be used."""
        return self.context.is_open and not self.holds_memory

    def close(self) -> None:
        """Releases the group's context and operators. All ranks call it, after their last use
        of the group and with nothing in flight. Groups that are left open are closed when the
        interpreter ends."""
        if not self.is_open:
            return
        if self.is_gpu:
            torch.cuda.synchronize(self.device)
        for part in reversed(list(self._parts.values())):
            part.close()
        self._parts.clear()
        if not self.holds_memory:
            if self.channel is not None:
                self.channel.close()
            self.context.close()
        tables: Tuple[Dict[Any, Group], ...] = (_groups, _of_backends)
        for named_so in tables:
            for name in [name for name, group in list(named_so.items()) if group is self]:
                del named_so[name]
        _known[:] = [entry for entry in _known if entry[1] is not self]

    def __repr__(self) -> str:
        return f"<ceoverlap.torch.Group {self.name}: rank {self.rank} of {self.size}>"


def _by_ranks(told: Sequence[str]) -> str:
    """Returns each text with the ranks that have it."""
    ranks: Dict[str, List[str]] = {}
    for rank, one in enumerate(told):
        ranks.setdefault(one, []).append(str(rank))
    return "; ".join(f"rank {some[0]} has {one}" if len(some) == 1 else
                     f"ranks {', '.join(some)} have {one}" for one, some in ranks.items())


def _is_of(known: Optional[weakref.ref[Any]], process_group: Any) -> bool:
    """Returns whether `known`, a reference that a Group keeps, is to this process group. A
    process group that was destroyed equals none, not even None."""
    if known is None or process_group is None:
        return known is process_group
    return known() is process_group


def _group_of(process_group: GroupLike, device: Union[None, str, torch.device]) -> Optional[Group]:
    """Returns the Group that was made first of this process group, if one is open; else that of
    the process group's backend, if it has one for the device that the Group would have."""
    for known, group in list(_known):
        if _is_of(known, process_group):
            return group
    name: Any = getattr(process_group, "group_name", None)
    if not any((name, kind) in _of_backends for kind in ("cpu", "cuda")):
        return None
    asked = device_of(process_group, device)
    made = _of_backends.get((name, asked.type))
    return made if made is not None and made.device == asked else None


# Operators registered with torch.library name their group by a string, as PyTorch's do.
_groups: Dict[str, Group] = {}
_of_backends: Dict[Tuple[str, str], Group] = {}         # by group_name, and the kind of device
_known: List[Tuple[Any, Group]] = []    # (reference to a process group or None, its Group)
_making: Dict[Optional[str], threading.RLock] = {}      # of the process groups by name


def named(name: str) -> Group:
    """Returns the open Group with this name, which is Group.name or a process group's
    group_name."""
    group = _groups.get(name)
    if group is not None:
        return group
    if dist.is_available() and dist.is_initialized():
        try:
            return Group.of(_compat.process_group_named(name))
        except (RuntimeError, ValueError):
            pass
    raise errors.InvalidError(f"no group is named {name!r}: make it by "
                              "ceoverlap.torch.Group()")


# What callers pass as group: a Group or its name, a process group, or None; see Group.of().
GroupLike = Union[None, str, Group, dist.ProcessGroup]
