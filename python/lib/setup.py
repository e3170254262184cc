# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Builds the wheel of the library and its tools.

They come from the folder that CEOVERLAP_LIBRARY_DIR names by its whole path: that of a build, or
the lib folder below the prefix where "make install" has put libceoverlap.so. Else they are built,
by configure and make, in a folder below the build's own. CEOVERLAP_CONFIGURE_FLAGS goes to
configure.

The sources are around this folder in the source tree, and in its folder "library" in an sdist,
which gets a copy of what configure and make need for the library and the tools.
"""

import glob
import os
import shlex
import shutil
import subprocess
import sys

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

# setuptools has its own distutils, which stands in for the one that Python had up to 3.11.
from distutils.command.build_scripts import build_scripts

HERE = os.path.dirname(os.path.abspath(__file__))
INSIDE = os.path.join(HERE, "library")
TOP = INSIDE if os.path.isdir(INSIDE) else os.path.dirname(os.path.dirname(HERE))
NAME = "libceoverlap.so"
TOOLS = ["ceoverlap-bench", "ceoverlap-info", "ceoverlap-plot", "ceoverlap-run", "ceoverlap-trace"]

# Of TOP, what an sdist takes along.
SOURCES = ("LICENSE", "README.md", "VERSION", "configure.ac", "Makefile.am", "ceoverlap.pc.in",
           "ceoverlapConfig.cmake.in", "ceoverlapConfigVersion.cmake.in",
           "aclocal.m4", "configure", "config.h.in", "Makefile.in", "build-aux", "include", "m4",
           "src", "systemd", "tools", "docs/local.mk", "tests/local.mk", "python/local.mk")
NO_SOURCES = shutil.ignore_patterns(".deps", ".libs", ".dirstamp", "*.o", "*.lo", "*.la", "*~",
                                    "version.h", "__pycache__")


def version():
    path = os.path.join(TOP, "VERSION")
    if not os.path.exists(path):
        sys.exit(f"ceoverlap-lib: {path} is missing: build in the source tree, or from an sdist")
    with open(path, encoding="ascii") as file:
        return file.read().strip()


def run(command, folder):
    """Output goes on to who builds; a failure ends the build."""
    print("ceoverlap-lib:", shlex.join(command), "in", folder, flush=True)
    subprocess.run(command, cwd=folder, check=True, stdin=subprocess.DEVNULL)


def first_of(paths, name, folder):
    """Returns the first of the paths that is there: the file itself, not a link's name."""
    for path in paths:
        if os.path.exists(path):
            return os.path.realpath(path)
    sys.exit(f"ceoverlap-lib: there is no {name} in {os.path.abspath(folder)}")


def find_library(folder):
    """Where libtool has just built it, it is in .libs."""
    return first_of((os.path.join(folder, NAME), os.path.join(folder, ".libs", NAME),
                     *sorted(glob.glob(os.path.join(folder, NAME + ".*")))), NAME, folder)


def find_tool(folder, name):
    """Where "make install" has put it, it is in bin beside the library's folder."""
    return first_of((os.path.join(folder, name), os.path.join(folder, "..", "bin", name)),
                    name, folder)


def make_configure():
    """In a checkout there is none yet."""
    if not os.path.exists(os.path.join(TOP, "configure")):
        run(["autoreconf", "-fi"], TOP)


def built_folder(command):
    """Returns the folder with the library and the tools, for a command of setuptools: the one
    that the environment names, or one below the build's, where they are built if need be."""
    told = os.environ.get("CEOVERLAP_LIBRARY_DIR")
    if told:
        return told
    temporary = command.get_finalized_command("build").build_temp
    folder = os.path.abspath(os.path.join(temporary, "library"))
    if not os.path.exists(os.path.join(folder, "Makefile")):
        make_configure()
        os.makedirs(folder, exist_ok=True)
        flags = shlex.split(os.environ.get("CEOVERLAP_CONFIGURE_FLAGS", ""))
        run([os.path.join(TOP, "configure"), "--disable-static", *flags], folder)
    run(["make", f"-j{os.cpu_count() or 1}", "libceoverlap.la", *TOOLS], folder)
    return folder


class BuildWithLibrary(build_py):
    """Python's files, and the library beside them."""

    def run(self):
        super().run()
        if getattr(self, "editable_mode", False):
            return                      # CEOVERLAP_LIBRARY names it then
        target = os.path.join(self.build_lib, "ceoverlap_lib", NAME)
        shutil.copyfile(find_library(built_folder(self)), target)
        os.chmod(target, 0o755)


class BuildTools(build_scripts):
    """The tools as they were built: setuptools' own command takes all scripts for Python's. What
    installs them puts the environment's Python into a first line "#!python"."""

    def get_source_files(self):
        return []

    def run(self):
        folder = built_folder(self)
        os.makedirs(self.build_dir, exist_ok=True)
        for name in TOOLS:
            with open(find_tool(folder, name), "rb") as file:
                content = file.read()
            first, newline, rest = content.partition(b"\n")
            if first.startswith(b"#!"):
                content = b"#!python" + newline + rest
            target = os.path.join(self.build_dir, name)
            with open(target, "wb") as file:
                file.write(content)
            os.chmod(target, 0o755)


class SourceWithLibrary(sdist):
    """Python's files, and the library's sources beside them. Times go along with the files:
    make would want autoconf and automake where configure looks older than configure.ac."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        make_configure()
        inside = os.path.join(base_dir, os.path.basename(INSIDE))
        os.makedirs(inside)
        for name in SOURCES:
            path, target = os.path.join(TOP, name), os.path.join(inside, name)
            if os.path.isdir(path):
                shutil.copytree(path, target, ignore=NO_SOURCES)
            else:
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copy2(path, target)


class PlatformWheel(bdist_wheel):
    """For any Python 3 on this kind of machine: nothing in it is compiled against Python."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


class WithLibrary(Distribution):
    def has_ext_modules(self):
        return True


setup(version=version(), distclass=WithLibrary, scripts=TOOLS,
      cmdclass={"build_py": BuildWithLibrary, "build_scripts": BuildTools,
                "bdist_wheel": PlatformWheel, "sdist": SourceWithLibrary})
