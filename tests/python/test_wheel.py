# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The wheel: its name, what it holds, and that it runs from where it was unpacked, without
anything named in the environment."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

from rig import ROOT

BUILD = """
import sys
from setuptools import build_meta
print("wheel:", build_meta.build_wheel(sys.argv[1]))
"""
RUN = """
import os, numpy, ceoverlap
from ceoverlap import _abi
here = os.path.dirname(os.path.abspath(ceoverlap.__file__))
assert _abi.library_path() == os.path.join(here, "libceoverlap.so"), _abi.library_path()
with ceoverlap.Context(range(2), place="host") as context:
    source = context.register(numpy.arange(64), 0)
    target = context.allocate(512, 1)
    context.plan(0).add(source=source, target=target, row_bytes=512).commit().launch().wait()
    assert (target.view(int) == numpy.arange(64)).all()
print(ceoverlap.__version__)
"""


def tools_are_there():
    """What pyproject.toml asks for."""
    try:
        return int(importlib.metadata.version("setuptools").split(".")[0]) >= 77
    except importlib.metadata.PackageNotFoundError:
        return False


@unittest.skipUnless(tools_are_there(), "setuptools from 77 on is not there")
class Wheel(unittest.TestCase):
    def build(self, folder, library):
        """In a copy of the source folder, so that nothing is left in it."""
        top = os.path.join(folder, "top")
        shutil.copytree(os.path.join(ROOT, "python"), os.path.join(top, "python"),
                        ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
        shutil.copy(os.path.join(ROOT, "VERSION"), top)
        environment = dict(os.environ, CEOVERLAP_LIBRARY_DIR=library)
        environment.pop("PYTHONPATH", None)
        return subprocess.run([sys.executable, "-c", BUILD, folder],
                              cwd=os.path.join(top, "python"), env=environment,
                              capture_output=True, text=True, check=False)

    def test_build_and_use(self):
        library = os.environ.get("CEOVERLAP_LIBRARY")
        if not library:
            self.skipTest("CEOVERLAP_LIBRARY names no library to put into it")
        with tempfile.TemporaryDirectory() as folder:
            done = self.build(folder, os.path.dirname(library))
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            name = done.stdout.split("wheel:")[1].strip()
            with open(os.path.join(ROOT, "VERSION"), encoding="ascii") as file:
                version = file.read().strip()
            self.assertRegex(name, rf"^ceoverlap-{version}-py3-none-linux_\w+\.whl$")
            site = os.path.join(folder, "site")
            with zipfile.ZipFile(os.path.join(folder, name)) as wheel:
                names = wheel.namelist()
                wheel.extractall(site)
            for one in ("__init__.py", "py.typed", "libceoverlap.so", "ops.py"):
                self.assertIn(f"ceoverlap/{one}", names)
            environment = {key: value for key, value in os.environ.items()
                           if not key.startswith("CEOVERLAP_")}
            environment["PYTHONPATH"] = site
            run = subprocess.run([sys.executable, "-c", RUN], env=environment, cwd=folder,
                                 capture_output=True, text=True, check=False)
            self.assertEqual((run.returncode, run.stdout.strip()), (0, version), run.stderr)

    def test_a_folder_without_a_library(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.build(folder, folder)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("there is no libceoverlap.so", done.stdout + done.stderr)

    def test_a_relative_folder_is_told_as_a_whole_path(self):
        """pip runs the build in the package's folder, not where the caller stands."""
        with tempfile.TemporaryDirectory() as folder:
            done = self.build(folder, "build")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(os.path.join(folder, "top", "python", "build"),
                          done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
