# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Where ranks meet when nobody has said where."""

import os
import tempfile

_FALLBACK = "/tmp"
_FOLDER_BYTES = 80                      # a socket's path takes 107 bytes, with its folder


def make_folder() -> str:
    """A new folder that is this user's alone: below TMPDIR, or below /tmp where TMPDIR is
    longer than the path of a socket may be."""
    base = tempfile.gettempdir()
    if len(os.fsencode(base)) > _FOLDER_BYTES:
        base = _FALLBACK
    return tempfile.mkdtemp(prefix="ceoverlap-", dir=base)
