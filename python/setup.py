# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Builds the wheel of the Python package, which is the same on all machines. The C library comes
with another one, ceoverlap-lib (folder "lib"), which has to be of the same version: structs are
passed to it as they are."""

import os
import shutil
import sys

from setuptools import setup
from setuptools.command.sdist import sdist

HERE = os.path.dirname(os.path.abspath(__file__))


def version_file():
    """In an sdist the file is in this folder, in the source tree above it."""
    for folder in (HERE, os.path.dirname(HERE)):
        path = os.path.join(folder, "VERSION")
        if os.path.exists(path):
            return path
    sys.exit(f"ceoverlap: VERSION is missing in and above {HERE}: build in the source tree, or "
             "from an sdist")


class SourceWithVersion(sdist):
    """The package's files, and that with its version."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        shutil.copy2(version_file(), base_dir)


with open(version_file(), encoding="ascii") as file:
    VERSION = file.read().strip()

setup(version=VERSION, install_requires=[f"ceoverlap-lib == {VERSION}"],
      cmdclass={"sdist": SourceWithVersion})
