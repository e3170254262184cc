# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Passes the library's log lines to Python's ``logging``.

The library writes lines from any of its threads. A line written on a thread that is inside a
call made by this package belongs to that call: it is kept until the call has returned, and
becomes the text of the exception if the call failed. All other lines are logged at once."""

from __future__ import annotations

import logging
import threading
from typing import Any, Callable, List, Optional, Tuple, Union

from . import _abi

_LEVELS = {"error": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO,
           "debug": logging.DEBUG}


_Lines = List[Union[str, BaseException]]         # an exception: of a signal's handler


class _Local(threading.local):
    lines: Optional[_Lines] = None      # of the call that this thread is in
    in_callback = False


_local = _Local()


def in_callback() -> bool:
    """Returns whether this thread is inside a log callback of the library. The library may hold
    locks there, so nothing that waits may be called."""
    return _local.in_callback


def begin_call() -> Optional[_Lines]:
    """Keeps this thread's log lines from now on instead of logging them. Pass the result to
    end_call()."""
    outer = _local.lines
    _local.lines = []
    return outer


def end_call(outer: Optional[_Lines]) -> List[str]:
    """Returns the lines kept since begin_call(), whose result is `outer`. If that call was made
    within another one, lines are kept for the other one again. Raises the exception that a
    signal's handler raised while a line was written."""
    told = _local.lines
    _local.lines = outer
    lines: List[str] = []
    for line in told or ():
        if isinstance(line, BaseException):
            raise line
        lines.append(line)
    return lines


def split(line: str) -> Tuple[str, str]:
    """Splits "ceoverlap[rank 0]: error: text" into ("error", "text"). A line without a level
    counts as "info"."""
    parts = line.split(": ", 2)
    if len(parts) == 3 and parts[1] in _LEVELS:
        return parts[1], parts[2]
    return "info", line


def write(logger: logging.Logger, line: str, at_most: int = logging.CRITICAL) -> None:
    """Hands one line to the logger, at the lower of the line's own level and at_most. Errors of
    logging handlers are dropped, because the library's call has done its work in any case."""
    level = min(_LEVELS[split(line)[0]], at_most)
    try:
        logger.log(level, "%s", line)
    except Exception:
        pass


def write_all(logger: logging.Logger, lines: List[str],
              at_most: int = logging.CRITICAL) -> None:
    """Calls write() for each of the lines."""
    for line in lines:
        write(logger, line, at_most)


def function_of(logger: logging.Logger) -> Callable[[Optional[int], bytes], None]:
    """Returns the Python function that takes one line from the library. It raises nothing, not
    even errors of the logger's handlers, because exceptions cannot pass through C."""
    def log(_argument: Optional[int], line: bytes) -> None:
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


def make_callback(logger: logging.Logger) -> Any:
    """Returns the C function pointer that the library calls for each log line. Keep it as long
    as the context lives."""
    return _abi.ceov_log(function_of(logger))
