# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The library's log lines, on their way to Python's ``logging``.

The library writes a line from any of its threads. A line that a call of ours writes on the
thread that made the call belongs to that call: it is kept until the call has returned, and
becomes the text of the exception if the call failed. All others are logged at once.
"""

from __future__ import annotations

import logging
import threading
from typing import List, Optional

from . import _abi

_LEVELS = {"error": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO,
           "debug": logging.DEBUG}


class _Local(threading.local):
    lines: Optional[List[str]] = None   # of the call that this thread is in
    in_callback = False


_local = _Local()


def in_callback() -> bool:
    """Whether this thread is inside a callback of the library: then it may hold what the
    library needs to go on, so nothing that waits may be called."""
    return _local.in_callback


def begin_call() -> Optional[List[str]]:
    """Lines of this thread are kept from now on. Pass the result to end_call()."""
    outer = _local.lines
    _local.lines = []
    return outer


def end_call(outer: Optional[List[str]]) -> List[str]:
    """The lines that were kept; before this call's, another one's may go on. Raises what a
    signal's handler has raised while one was written."""
    lines = _local.lines or []
    _local.lines = outer
    for line in lines:
        if isinstance(line, BaseException):
            raise line
    return lines


def split(line: str):
    """("error", "text") of "ceoverlap[rank 0]: error: text"."""
    parts = line.split(": ", 2)
    if len(parts) == 3 and parts[1] in _LEVELS:
        return parts[1], parts[2]
    return "info", line


def write(logger: logging.Logger, line: str, at_most: int = logging.CRITICAL) -> None:
    """Hands one line to the logger, at the line's own level or at_most. What a handler raises
    is nothing to whoever calls: the library's call has done what it says."""
    level = min(_LEVELS[split(line)[0]], at_most)
    try:
        logger.log(level, "%s", line)
    except Exception:
        pass


def write_all(logger: logging.Logger, lines: List[str],
              at_most: int = logging.CRITICAL) -> None:
    """write() each of them."""
    for line in lines:
        write(logger, line, at_most)


def function_of(logger: logging.Logger):
    """What takes a line from the library. Nothing that goes wrong in it, the logger's handlers
    included, passes through C."""
    def log(_argument, line) -> None:
        _local.in_callback = True
        try:
            text = line.decode(errors="replace")
            if _local.lines is not None:
                _local.lines.append(text)
            else:
                write(logger, text)
        except Exception:               # there is nobody to tell
            pass
        except BaseException as error:  # KeyboardInterrupt: ctypes would print and forget it
            if _local.lines is not None:
                _local.lines.append(error)
        finally:
            _local.in_callback = False

    return log


def make_callback(logger: logging.Logger):
    """The function that C calls. It must live as long as the context."""
    return _abi.ceov_log(function_of(logger))
