# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The socket's folder for groups whose caller named no place where ranks meet."""

import os
import tempfile

_FALLBACK = "/tmp"
_FOLDER_BYTES = 80                      # a socket's path takes 107 bytes, with its folder


def make_folder() -> str:
    """Creates a folder that only this user can enter, and returns its path. It lies below
    TMPDIR, or below /tmp if a socket's path below TMPDIR would be too long."""
    base = tempfile.gettempdir()
    if len(os.fsencode(base)) > _FOLDER_BYTES:
        base = _FALLBACK
    return tempfile.mkdtemp(prefix="ceoverlap-", dir=base)
