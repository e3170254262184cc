# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The library's errors as exceptions: one class for each code of ``enum ceov_error``."""

from __future__ import annotations

import re
from typing import Optional

from . import _abi


class Failure:
    """What the library knows about a failure (``struct ceov_failure``). ``rank`` and
    ``transfer`` are None if none is to blame; ``mark_value`` is the value that was waited for,
    and ``seen_value`` the counter's value."""

    __slots__ = ("code", "native_code", "rank", "transfer", "chunk", "mark_value",
                 "seen_value", "text")

    def __init__(self, struct: _abi.ceov_failure) -> None:
        self.code: int = struct.error
        self.native_code: int = struct.native_code
        self.rank: Optional[int] = _somebody(struct.rank)
        self.transfer: Optional[int] = _somebody(struct.transfer)
        self.chunk: int = struct.chunk
        self.mark_value: int = struct.mark_value
        self.seen_value: int = struct.seen_value
        self.text: str = struct.text.decode(errors="replace")

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"Failure({fields})"


def _somebody(number: int) -> Optional[int]:
    return None if number == _abi.CEOV_NOBODY else number


class CeoverlapError(RuntimeError):
    """Any error of the library. Attributes:

    code         enum ceov_error
    failure      Failure with rank, transfer, chunk and mark; None where the call refused
                 its arguments before anything could fail, or nothing more is known
    native_code, rank, transfer, chunk, mark_value, seen_value
                 of the failure; None where there is no failure
    """

    code: int = 0

    def __init__(self, text: str, code: Optional[int] = None,
                 failure: Optional[Failure] = None) -> None:
        super().__init__(text)
        if code is not None:
            self.code = code
        self.failure = failure

    @property
    def native_code(self) -> Optional[int]:
        """The errno, CUresult or ucs_status_t behind the failure."""
        return self.failure.native_code if self.failure else None

    @property
    def rank(self) -> Optional[int]:
        """The rank to blame."""
        return self.failure.rank if self.failure else None

    @property
    def transfer(self) -> Optional[int]:
        """The transfer to blame."""
        return self.failure.transfer if self.failure else None

    @property
    def chunk(self) -> Optional[int]:
        """The chunk of the transfer."""
        return self.failure.chunk if self.failure else None

    @property
    def mark_value(self) -> Optional[int]:
        """The value that was waited for."""
        return self.failure.mark_value if self.failure else None

    @property
    def seen_value(self) -> Optional[int]:
        """The counter's value."""
        return self.failure.seen_value if self.failure else None


class InvalidError(CeoverlapError, ValueError):
    """An argument breaks the call's contract."""
    code = _abi.CEOV_ERR_INVALID


class StateError(CeoverlapError):
    """The call is right but came at the wrong moment, or the context or object is closed."""
    code = _abi.CEOV_ERR_STATE


class NoMemoryError(CeoverlapError, MemoryError):
    """Memory of the host or of a GPU did not suffice."""
    code = _abi.CEOV_ERR_NO_MEMORY


class NoRouteError(CeoverlapError):
    """No backend can move the bytes from source to target."""
    code = _abi.CEOV_ERR_NO_ROUTE


class SystemCallError(CeoverlapError):
    """A call of the operating system failed; native_code is its errno."""
    code = _abi.CEOV_ERR_SYSTEM


class CudaError(CeoverlapError):
    """The CUDA driver failed; native_code is a CUresult."""
    code = _abi.CEOV_ERR_CUDA


class UcxError(CeoverlapError):
    """UCX failed; native_code is a ucs_status_t."""
    code = _abi.CEOV_ERR_UCX


class PeerLostError(CeoverlapError, ConnectionError):
    """A rank of the group has died or left."""
    code = _abi.CEOV_ERR_PEER_LOST


class AbortedError(CeoverlapError):
    """The launch, or the signal waited for, was aborted."""
    code = _abi.CEOV_ERR_ABORTED


class DeadlineError(CeoverlapError, TimeoutError):
    """A deadline of the library has passed, and what was in flight is aborted."""
    code = _abi.CEOV_ERR_TIMEOUT


class VersionError(CeoverlapError):
    """A peer, a driver or another library has a version that does not fit."""
    code = _abi.CEOV_ERR_VERSION


class StaleError(CeoverlapError):
    """The memory behind a registration has changed."""
    code = _abi.CEOV_ERR_STALE


class ForkedError(CeoverlapError):
    """The call was made in a child that fork() made of the process which opened the context."""
    code = _abi.CEOV_ERR_FORKED


class UncertainError(CeoverlapError):
    """A copy did not come back in time: the target may or may not hold the bytes."""
    code = _abi.CEOV_ERR_UNCERTAIN


class DaemonLostError(CeoverlapError):
    """The daemon that moves the data has gone; all processes of the group call
    Context.reopen() to go on."""
    code = _abi.CEOV_ERR_DAEMON_LOST


class PendingError(CeoverlapError, TimeoutError):
    """The caller's own timeout passed first. Nothing has failed, so the caller may wait again."""
    code = _abi.CEOV_PENDING


class FullError(CeoverlapError):
    """Too many launches are in flight: wait for one of them and try again."""
    code = _abi.CEOV_FULL


_CLASSES = {kind.code: kind for kind in (
    InvalidError, StateError, NoMemoryError, NoRouteError, SystemCallError, CudaError,
    UcxError, PeerLostError, AbortedError, DeadlineError, VersionError, StaleError,
    ForkedError, UncertainError, DaemonLostError, PendingError, FullError)}


# What the library's advice names, and what that is here. Names at the beginning of a message say
# which call has failed, and stay.
_NAMES = {"buffer_create": "Context.allocate", "close": "Context.close",
          "launch": "Plan.launch", "op_tune": "tune", "plan_add": "Plan.add",
          "plan_commit": "Plan.commit", "plan_create": "Context.plan",
          "plan_expect": "Plan.expect", "plan_queue": "Plan.queue", "reopen": "Context.reopen",
          "signal_raise": "Signal.raise_to", "signal_wait": "Signal.wait",
          "workspace_connect": "Workspace"}
# Words of C in the library's advice, and what a caller writes here.
_WORDS = {"CEOV_BF16": '"bfloat16"', "CEOV_FP16": '"float16"', "CEOV_FP32": '"float32"',
          "CEOV_MODE_TWO_SHOT": 'mode "two-shot"', "CEOV_CUT_COLUMNS": 'cut "columns"',
          "CEOV_ORDER_COLUMNS": 'tile_order "columns"',
          "CEOV_SIGNAL_HOST_VISIBLE": "host_visible=True", "CEOV_VALUE_LIMIT": "2^62",
          "set ceov_op_tuning": "pass a Tuning", "ceov_network.where": "where= of a Network",
          "ceov_network.secret": "secret= of a Network"}


def _in_python(text: str) -> str:
    """Returns a message of the library with the advice that a caller in Python can follow."""
    text = re.sub(r"\bceov_(\w+)\(\)",
                  lambda found: f"{_NAMES.get(found[1], found[0][:-2])}()", text)
    text = re.sub(r"\bceov_\w+_scratch_bytes\(\)", "scratch_bytes()", text)
    if "ceov_" in text or "CEOV_" in text:
        for word, here in _WORDS.items():
            text = text.replace(word, here)
    return text.replace("release the workspace", "close the workspace, or the group")


def make(code: int, text: str, failure: Optional[Failure] = None) -> CeoverlapError:
    """Returns the exception for a result of the library."""
    return _CLASSES.get(code, CeoverlapError)(_in_python(text), code, failure)


def strerror(code: int) -> str:
    """Returns the library's short text for a result."""
    text: bytes = _abi.lib.ceov_strerror(code)
    return text.decode()
