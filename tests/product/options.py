# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""options.py TOP BUILD: the options of our tools that documents show, in blocks of sh and in `...`,
are options that the tools in BUILD say they have."""

import functools
import pathlib
import re
import subprocess
import sys

COMMANDS = {"ceoverlap-bench": ("overlap", "measure", "sweep", "daemon", "share"),
            "ceoverlap-trace": ("merge", "report")}
PAGES = ("*.md", "docs/*.md", "docs/guides/*.md", "docs/results/*.md", "docs/internals/*.md")
CALL = re.compile(r"(?:^|[\s/])(ceoverlap(?:-(?:bench|info|run|trace|plot)|ctl|d))((?:\s+\S+)*)")
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z_-]*|-[A-Za-z](?![\w-]))")


@functools.lru_cache(maxsize=None)
def options_of(program, command):
    """Returns the options of a tool's help; None: the tool was not built."""
    if not pathlib.Path(program).exists():
        return None
    words = [program, *([command] if command else []), "--help"]
    return set(OPTION.findall(subprocess.run(words, check=True, text=True,
                                             stdout=subprocess.PIPE).stdout)) | {"--help", "-h"}


def calls_in(text):
    """Yields lines of sh and texts in `...` without comments."""
    for block in re.findall(r"```sh\n(.*?)```", text, re.S):
        yield from block.replace("\\\n", "").split("\n")
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    yield from re.findall(r"^    (.*)$", text, re.M)
    yield from (re.sub(r"\s+", " ", one) for one in re.findall(r"`([^`]+)`", text))


def wrong_in(line, build):
    """Yields (tool, option) of what a line names and the tool does not have."""
    for tool, rest in CALL.findall(line.split("#")[0]):
        words = re.split(r"[|;&>]|\s--\s|\sceoverlap", rest)[0].split()
        command = words[0] if words and words[0] in COMMANDS.get(tool, ()) else None
        known = options_of(f"{build}/{tool}", command)
        for i, word in enumerate(words):
            if tool == "ceoverlap-run" and not re.match(r"-|\d+$", word):
                break                   # the program that it starts, and that program's options
            found = re.match(r"--[a-z][a-z_-]*|-[A-Za-z]", word)
            if known is not None and found and found.group() not in known:
                yield " ".join([tool, *words[:i]][:2]), found.group()


def main():
    top, build = pathlib.Path(sys.argv[1]), sys.argv[2]
    n, failed = 0, False
    for page in sorted(page for pages in PAGES for page in top.glob(pages)):
        for line in calls_in(page.read_text(encoding="utf-8")):
            n += bool(CALL.search(line))
            for tool, option in wrong_in(line, build):
                failed = True
                print(f"FAIL: {page.relative_to(top)} shows {tool} with {option}, which it does not "
                      f"have: {line.strip()}")
    print(f"{n} calls of tools")
    sys.exit(1 if failed or n < 50 else 0)


if __name__ == "__main__":
    main()
