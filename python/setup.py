# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Builds the wheel: the package and, inside it, the library.

The library comes from the folder that CEOVERLAP_LIBRARY_DIR names by its whole path (where
"make" or "make install" has put libceoverlap.so); else it is built, by configure and make, in a
folder below the build's own. CEOVERLAP_CONFIGURE_FLAGS goes to configure.

The library's sources are around this folder in the source tree, and in its folder "library"
in an sdist, which gets a copy of what configure and make need for the library alone.
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

HERE = os.path.dirname(os.path.abspath(__file__))
INSIDE = os.path.join(HERE, "library")
TOP = INSIDE if os.path.isdir(INSIDE) else os.path.dirname(HERE)
NAME = "libceoverlap.so"

# Of TOP, what an sdist takes along.
SOURCES = ("LICENSE", "README.md", "VERSION", "configure.ac", "Makefile.am", "ceoverlap.pc.in",
           "aclocal.m4", "configure", "config.h.in", "Makefile.in", "build-aux", "include", "m4",
           "src", "systemd", "tests/local.mk",
           *(os.path.relpath(path, TOP) for path in sorted(
               glob.glob(os.path.join(TOP, "tools/**/local.mk"), recursive=True))))
NO_SOURCES = shutil.ignore_patterns(".deps", ".libs", ".dirstamp", "*.o", "*.lo", "*.la", "*~",
                                    "version.h")


def version():
    path = os.path.join(TOP, "VERSION")
    if not os.path.exists(path):
        sys.exit(f"ceoverlap: {path} is missing: build in the source tree, or from an sdist")
    with open(path, encoding="ascii") as file:
        return file.read().strip()


def run(command, folder):
    """Output goes on to who builds; a failure ends the build."""
    print("ceoverlap:", shlex.join(command), "in", folder, flush=True)
    subprocess.run(command, cwd=folder, check=True, stdin=subprocess.DEVNULL)


def find_library(folder):
    """The file itself, not a link's name; where libtool has just built it, in .libs."""
    for path in (os.path.join(folder, NAME), os.path.join(folder, ".libs", NAME),
                 *sorted(glob.glob(os.path.join(folder, NAME + ".*")))):
        if os.path.exists(path):
            return os.path.realpath(path)
    sys.exit(f"ceoverlap: there is no {NAME} in {os.path.abspath(folder)}")


def make_configure():
    """In a checkout there is none yet."""
    if not os.path.exists(os.path.join(TOP, "configure")):
        run(["autoreconf", "-fi"], TOP)


def build_library(folder):
    """configure and make, beside the sources, for the library alone."""
    make_configure()
    os.makedirs(folder, exist_ok=True)
    flags = shlex.split(os.environ.get("CEOVERLAP_CONFIGURE_FLAGS", ""))
    run([os.path.join(TOP, "configure"), "--disable-static", *flags], folder)
    run(["make", f"-j{os.cpu_count() or 1}", "libceoverlap.la"], folder)
    return find_library(folder)


class BuildWithLibrary(build_py):
    """Python's files, and the library beside them."""

    def run(self):
        super().run()
        if getattr(self, "editable_mode", False):
            return                      # CEOVERLAP_LIBRARY names it then
        told = os.environ.get("CEOVERLAP_LIBRARY_DIR")
        if told:
            path = find_library(told)
        else:
            build = self.get_finalized_command("build")
            path = build_library(os.path.abspath(os.path.join(build.build_temp, "library")))
        target = os.path.join(self.build_lib, "ceoverlap", NAME)
        shutil.copyfile(path, target)
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


setup(version=version(), distclass=WithLibrary,
      cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel,
                "sdist": SourceWithLibrary})
