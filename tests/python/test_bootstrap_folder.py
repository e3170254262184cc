# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The folder where ranks meet: short enough for a socket, whatever TMPDIR says."""

import os
import stat
import tempfile
import unittest
from unittest import mock

from ceoverlap import _bootstrap


class BootstrapFolder(unittest.TestCase):
    def make(self, base):
        with mock.patch.object(tempfile, "tempdir", base):
            folder = _bootstrap.make_folder()
        self.addCleanup(os.rmdir, folder)
        self.assertEqual(stat.S_IMODE(os.stat(folder).st_mode), 0o700)
        self.assertLess(len(os.path.join(folder, "group")), 108)
        return folder

    def test_below_tmpdir(self):
        base = tempfile.mkdtemp()
        self.addCleanup(os.rmdir, base)
        self.assertEqual(os.path.dirname(self.make(base)), base)

    def test_a_tmpdir_too_long_for_a_socket(self):
        base = tempfile.mkdtemp(prefix="x" * 100)
        self.addCleanup(os.rmdir, base)
        self.assertEqual(os.path.dirname(self.make(base)), "/tmp")


if __name__ == "__main__":
    unittest.main()
