# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Runs the code blocks of Markdown pages as they are printed; check_blocks.sh calls it.

The line before a block, an HTML comment that readers do not see, says how it is run:

  <!-- run -->                     in a process of its own, in a folder that all blocks of
                                   the page share; C is compiled and linked first
  <!-- run: ranks=2 -->            by ceoverlap-run, or with torch by torchrun
  <!-- run: torch -->              skipped where there is no PyTorch; numpy likewise, and ceov:
                                   a PyTorch whose backends can be written in Python
  <!-- run: before=a.py,b.py -->   behind these files of tests/product/blocks/, which make
                                   what the block takes for granted
  <!-- run: file=first.c -->       also written to that file, for commands further down
  <!-- run: prints="42" -->        and prints this
  <!-- run: folder=build -->       commands: in the build folder
  <!-- compiled -->                compiled, or parsed, only
  <!-- not run: REASON -->

A block of C, CUDA, Python, Triton or shell without such a line fails. Exits with 1 if a block
failed; says which were skipped, and why.
"""

import argparse
import multiprocessing
import os
import re
import runpy
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from multiprocessing import forkserver

LANGUAGES = {"c", "cuda", "python", "sh"}
NEEDS = {"torch": "import torch.distributed as d; d.TCPStore; d.ReduceOp",
         "ceov": "import torch; assert hasattr(torch._C._distributed_c10d, 'Backend') and "
                 "tuple(map(int, torch.__version__.split('.')[:2])) >= (2, 14)",
         "numpy": "import numpy", "triton": "import triton"}
LIMIT_S = 120

# What ranks of PyTorch have imported when they are forked: importing it takes seconds.
PRELOADED = ["torch.distributed.tensor", "torch.distributed.fsdp", "torch.profiler",
             "ceoverlap.torch", "ceoverlap.torch.fsdp"]


class Block:
    """One block of a page: where it is, what it has, and how it is to be run."""

    def __init__(self, page, line, language, note):
        self.where = f"{page}:{line}"
        self.language = language
        self.code = ""
        self.way, _, text = (note or "").partition(":")
        self.why = text.strip()
        words = shlex.split(text) if self.way == "run" else []
        self.options = dict(word.split("=", 1) for word in words if "=" in word)
        self.needs = {word for word in words if "=" not in word}


def blocks_of(top, page):
    """The blocks of a page that are code."""
    found, block, note = [], None, None
    with open(os.path.join(top, page), encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            fence = re.match(r"```(\w*)\s*$", line)
            comment = re.match(r"<!--\s*((?:run|compiled|not run)\b.*?)\s*-->\s*$", line)
            if block is not None and line.startswith("```"):
                if block.language in LANGUAGES:
                    found.append(block)
                block, note = None, None
            elif block is not None:
                block.code += line
            elif fence:
                block = Block(page, number, fence.group(1), note)
            elif comment:
                note = comment.group(1)
            elif line.strip():
                note = None
    return found


def run_rank(path, rank, environment, output):
    """Runs a program as a rank of PyTorch's, in a process that this call has for itself."""
    os.environ.update(environment, RANK=str(rank), LOCAL_RANK=str(rank))
    os.chdir(os.path.dirname(path))
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    runpy.run_path(path, run_name="__main__")


def serve_store(port):
    """Serves PyTorch's store until it is killed, as torchrun does: a rank may end before others."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    while store:
        time.sleep(LIMIT_S)


def run_ranks(path, n_ranks):
    """Runs a program as torchrun would; returns its exit status and what it wrote."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {"WORLD_SIZE": str(n_ranks), "LOCAL_WORLD_SIZE": str(n_ranks),
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                   "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    output = path + ".out"
    context = multiprocessing.get_context("forkserver")
    ranks = [context.Process(target=run_rank, args=(path, rank, environment, output))
             for rank in range(n_ranks)]
    store = context.Process(target=serve_store, args=(port,), daemon=True)
    for process in (store, *ranks):
        process.start()
    end = time.monotonic() + LIMIT_S
    while any(rank.is_alive() for rank in ranks) and time.monotonic() < end and not any(
            rank.exitcode for rank in ranks):
        time.sleep(0.02)
    if any(rank.exitcode for rank in ranks):
        time.sleep(1)           # what the others say of it
    store.kill()
    for rank in ranks:
        if rank.is_alive():
            rank.kill()
        rank.join()
    with open(output, encoding="utf-8") as file:
        return max(abs(rank.exitcode) for rank in ranks), file.read()


class Runner:
    """What blocks are run with."""

    def __init__(self, top, build, python):
        self.top, self.build, self.python = top, build, python
        self.folder = tempfile.mkdtemp()
        self.has = {}
        self.environment = dict(
            os.environ, CEOVERLAP_LIBRARY=f"{build}/.libs/libceoverlap.so",
            PYTHONPATH=f"{top}/python:{self.folder}", PYTHONDONTWRITEBYTECODE="1",
            CUDA_VISIBLE_DEVICES="", CEOVERLAP_PLACE="host", OMP_NUM_THREADS="1", TOP=top,
            BUILD=build, PATH=f"{self.folder}/bin:{build}:{os.environ['PATH']}",
            PKG_CONFIG_PATH=f"{self.folder}/pkgconfig")
        os.environ.update(self.environment)     # for the processes of PyTorch's ranks
        multiprocessing.set_forkserver_preload(PRELOADED)
        self.compiler = shlex.split(os.environ.get("CC", "cc"))
        self.nvcc = shlex.split(os.environ.get("NVCC", ""))
        os.makedirs(f"{self.folder}/bin")
        if python:
            self._command_of("python3", f'"{python}"')
            self._command_of("torchrun", f'"{python}" -m torch.distributed.run')
        os.makedirs(f"{self.folder}/pkgconfig")
        with open(f"{self.folder}/pkgconfig/ceoverlap.pc", "w", encoding="ascii") as file:
            file.write("Name: ceoverlap\nDescription: that of the build folder\nVersion: 0\n"
                       f"Cflags: -I{build}/include -I{top}/include\n"
                       f"Libs: -L{build}/.libs -Wl,-rpath,{build}/.libs -lceoverlap\n")
        if python:                      # entry points, as an installed package has them
            subprocess.run([python, f"{top}/debian/dist_info.py", self.folder], cwd=top, check=True)

    def _command_of(self, name, command):
        """Makes a command of the pages; a link would hide a virtual environment."""
        path = f"{self.folder}/bin/{name}"
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec {command} "$@"\n')
        os.chmod(path, 0o755)

    def lacks(self, block):
        """What the block needs and is not there."""
        if not self.python and block.language == "python":
            return "Python"
        if not self.nvcc and block.language == "cuda":
            return "nvcc"
        for need in sorted(block.needs):
            if need not in self.has:
                self.has[need] = bool(self.python) and not subprocess.run(
                    [self.python, "-c", NEEDS[need]], capture_output=True,
                    check=False).returncode
            if not self.has[need]:
                return need
        return None

    def _write(self, block, path):
        """Writes a block's file, behind what it takes for granted."""
        with open(path, "w", encoding="utf-8") as file:
            for name in filter(None, block.options.get("before", "").split(",")):
                with open(f"{self.top}/tests/product/blocks/{name}", encoding="utf-8") as before:
                    file.write(before.read())
            file.write(block.code)

    def _run(self, block, path):
        """Runs a block; returns its exit status and what it wrote."""
        folder = os.path.dirname(path)
        if block.needs & {"torch", "ceov"} and block.language == "python":
            return run_ranks(path, int(block.options.get("ranks", 1)))
        cwd = self.build if block.options.get("folder") == "build" else folder
        ran = subprocess.run(self._command(block, path, folder), cwd=cwd, env=self.environment,
                             text=True, timeout=LIMIT_S, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, check=False)
        return ran.returncode, ran.stdout

    def _command(self, block, path, folder):
        """The command that runs a block, after what has to be made for it."""
        ranks = block.options.get("ranks")
        if block.language == "sh":
            return ["bash", "-eu", path]
        if block.language == "python":
            command = [self.python, path]
        else:
            self._compile(path, folder)
            command = [os.path.splitext(path)[0]]
        return [f"{self.build}/ceoverlap-run", "-n", ranks, "--", *command] if ranks else command

    def _compile(self, path, folder, links=True):
        """Compiles a block of C as a user would."""
        flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{self.build}/include",
                 f"-I{self.top}/include"]
        base = os.path.splitext(path)[0]
        end = ["-o", base, path, f"-L{self.build}/.libs", f"-Wl,-rpath,{self.build}/.libs",
               "-lceoverlap", "-pthread"] if links else ["-c", "-o", base + ".o", path]
        subprocess.run([*self.compiler, *flags, *end], cwd=folder, check=True)

    def _compile_kernel(self, path, folder):
        """Compiles a block of CUDA C++."""
        os.rename(path, path + ".cu")
        arch = shlex.split(os.environ.get("NVCC_ARCH_FLAGS", ""))
        subprocess.run([*self.nvcc, *arch, "-std=c++17", f"-I{self.build}/include",
                        f"-I{self.top}/include", "-c", "-o", path + ".o", path + ".cu"],
                       cwd=folder, check=True)

    def run(self, block, number, folder):
        """Runs a block; returns what went wrong."""
        path = os.path.join(folder, block.options.get("file") or f"block{number}.{block.language}")
        self._write(block, path)
        if block.way == "compiled":
            if block.language == "c":
                self._compile(path, folder, links=False)
            elif block.language == "cuda":
                self._compile_kernel(path, folder)
            elif block.language == "python":
                compile(block.code, block.where, "exec")
            return None
        status, output = self._run(block, path)
        if status or block.options.get("prints", "") not in output:
            return f"exit status {status}\n{output[-3000:]}"
        return None


def check(runner, page, only):
    """Runs the blocks of one page; returns how many failed, ran and were skipped."""
    failed, n_ran, skipped = 0, 0, []
    folder = tempfile.mkdtemp(dir=runner.folder)
    for number, block in enumerate(blocks_of(runner.top, page), 1):
        if only and not block.where.endswith(f":{only}"):
            continue
        lack = runner.lacks(block)
        if block.way not in ("run", "compiled", "not run") or (block.way == "not run"
                                                              and not block.why):
            print(f"FAIL: {block.where}: no line before the block says how it is run")
            failed += 1
        elif block.way == "not run":
            skipped.append(f"{block.where}: {block.why}")
        elif lack:
            skipped.append(f"{block.where}: there is no {lack}")
        else:
            begin = time.monotonic()
            try:
                fault = runner.run(block, number, folder)
            except (subprocess.SubprocessError, OSError, SyntaxError) as error:
                fault = str(error)
            n_ran += 1
            print(f"{block.where}: {time.monotonic() - begin:.1f} s"
                  + (f"\nFAIL: {block.where}: {fault}" if fault else ""), flush=True)
            failed += bool(fault)
    return failed, n_ran, skipped


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--top", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--python", default="")
    parser.add_argument("--line", help="only the block that begins there")
    parser.add_argument("pages", nargs="+")
    given = parser.parse_args()
    runner = Runner(os.path.abspath(given.top), os.path.abspath(given.build), given.python)
    failed, n_ran, skipped = 0, 0, []
    try:
        for page in given.pages:
            counts = check(runner, page, given.line)
            failed, n_ran, skipped = (a + b for a, b in zip((failed, n_ran, skipped), counts))
    finally:
        shutil.rmtree(runner.folder, ignore_errors=True)
        forkserver._forkserver._stop()          # else it ends some time after this process
    for line in skipped:
        print(f"not run: {line}")
    print(f"{n_ran} blocks ran, {failed} failed, {len(skipped)} were not run")
    sys.exit(1 if failed or not n_ran else 0)


if __name__ == "__main__":
    main()
