# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""How the processes of a group of several nodes find each other."""

from __future__ import annotations

import ctypes
from typing import Callable, Dict, Optional, Sequence, Union

from . import _abi, _object, errors

_BOOTSTRAPS = {None: 0, "callback": 1, "pmix": 2, "store": 3, "alone": 5}

AllGather = Callable[[bytes, float], Sequence[bytes]]


class Network:
    """A group of several nodes, for Context's argument of that name. What is left out comes from
    the environment (docs/configuration.md). The network must be trusted.

    all_gather     a function that the processes use to meet: it gets this process' bytes and how
                   many seconds are left, and returns the bytes of every process, in the order of
                   their numbers. All send equally many. Any thread may call it, and while
                   Context() waits; what it raises ends Context()
    bootstrap      "callback" (what all_gather is), "pmix" or "store"; "alone": there
                   are no other nodes, and the processes that a launcher has started with this
                   one are not met; None: "callback" where there is all_gather, else as the
                   environment shows
    process, n_processes
                   the number of this process, and how many there are; needed with all_gather
    where          host:port of the store
    job            keeps jobs apart that meet by mistake; who knows it can take a place
    node           the name of this node, the same at all of its processes; None: the machine's
    nics           the network interface to use, or several, of which one is chosen
    secret         has no effect any more, but for a warning
    peer_timeout_s a process from which nothing was heard for so long is lost; 0: 10 s
    """

    def __init__(self, all_gather: Optional[AllGather] = None, *, bootstrap: Optional[str] = None,
                 process: int = 0, n_processes: int = 0, where: Optional[str] = None,
                 job: Optional[str] = None, node: Optional[str] = None, nics: Optional[str] = None,
                 secret: Union[bytes, None] = None, peer_timeout_s: float = 0) -> None:
        if bootstrap is None and all_gather is not None:
            bootstrap = "callback"
        if bootstrap not in _BOOTSTRAPS:
            raise errors.InvalidError(f"bootstrap: {bootstrap!r} is none of "
                                      f"{list(_BOOTSTRAPS)}")
        if all_gather is not None and n_processes < 1:
            raise errors.InvalidError("all_gather needs process and n_processes")
        self._all_gather = all_gather
        self._n_processes = n_processes
        self.error: Optional[BaseException] = None  # what all_gather has raised
        self._call = _abi.ceov_all_gather_call(self._gather)
        self._secret = ctypes.create_string_buffer(secret, len(secret)) if secret else None
        self._fields: Dict[str, Union[None, int, bytes]] = {
            "bootstrap": _BOOTSTRAPS[bootstrap], "process": process,
            "n_processes": n_processes, "peer_timeout_ns": _object.ns(peer_timeout_s)}
        for name, text in (("where", where), ("job", job), ("node", node), ("nics", nics)):
            if text is not None and "\0" in text:
                raise errors.InvalidError(f"{name} {text!r}: has a NUL, where C would cut it off")
            self._fields[name] = text.encode() if text is not None else None

    def _struct(self) -> _abi.ceov_network:
        """Returns the C struct, which refers to this object's memory."""
        struct = _abi.new(_abi.ceov_network)
        for name, value in self._fields.items():
            setattr(struct, name, value)
        if self._all_gather is not None:
            struct.all_gather = self._call
        if self._secret is not None:
            struct.secret = ctypes.cast(self._secret, ctypes.c_void_p)
            struct.secret_bytes = len(self._secret)
        return struct

    def _gather(self, _arg: Optional[int], own: int, n_bytes: int, ret_all: int,
                timeout_ns: int) -> int:
        assert self._all_gather is not None     # else C has no pointer to this function
        try:
            told = self._all_gather(ctypes.string_at(own, n_bytes), timeout_ns / 1e9)
            if [len(one) for one in told] != [n_bytes] * self._n_processes:
                raise errors.InvalidError(
                    f"all_gather returned {[len(one) for one in told]} bytes: must be "
                    f"{n_bytes} of each of {self._n_processes} processes")
            ctypes.memmove(ret_all, b"".join(told), n_bytes * self._n_processes)
        except BaseException as error:  # C cannot pass it on
            self.error = error
            return 1
        return 0
