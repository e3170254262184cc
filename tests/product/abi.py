# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""abi.py HEADERS [BASELINE], for check_abi.sh: reads the public headers as the preprocessor leaves
them, and prints a C file that declares the same, and defines each call, doing nothing. A library
of it has the binary interface of the real one, and nothing else.

With a BASELINE, which abidw has written, structs that begin with struct_bytes end where they end
there: they may grow at their end, and what is left has to be as it was."""

import re
import sys
import xml.etree.ElementTree

CALL = re.compile(r"^(?!typedef)([a-z][\w\s*]*?\bceov_\w+\s*\([^;{}]*\))\s*;", re.MULTILINE)
ENUM = re.compile(r"\benum (ceov_\w+)\s*\{")
SIZED = re.compile(r"(\bstruct (ceov_\w+)\s*\{)(\s*size_t\s+struct_bytes\s*;[^{}]*)\}")
BEGIN = re.compile(r"\bstruct ceov_\w+\s*\{\s*size_t\s+struct_bytes\s*;")
DO_NOTHING = "{ __builtin_trap(); }"


def counts_of(path):
    """How many members each struct of the baseline has."""
    tree = xml.etree.ElementTree.parse(path)
    return {one.get("name"): len(one.findall("data-member")) for one in tree.iter("class-decl")
            if one.get("is-declaration-only") != "yes"}


def cut(members, n):
    """The first n members of a struct's text; a declaration may have several."""
    kept = []
    for one in members.split(";"):
        # Commas between parentheses are those of a function's arguments.
        n -= re.sub(r"\([^()]*\)", "", one).count(",") + 1
        if n < 0:
            break
        kept.append(one)
    return ";".join(kept) + ";"


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    counts = counts_of(sys.argv[2]) if len(sys.argv) > 2 else {}
    names = [match[1] for match in SIZED.findall(text)]
    if len(names) != len(BEGIN.findall(text)):
        sys.exit("abi.py: a struct with struct_bytes has braces within, which is not understood")
    inside = re.findall(rf"\bstruct (?:{'|'.join(names)})\s+\w+\s*[;,\[]", text)
    if inside:
        sys.exit(f"abi.py: {inside[0]} is part of another struct, which its growth would change")
    print(SIZED.sub(lambda match: match[1] + (cut(match[3], counts[match[2]])
                                              if match[2] in counts else match[3]) + "}", text))
    for call in CALL.findall(text):
        print(call, DO_NOTHING)
    # Calls return and take enums as integers, so that nothing else would hold their values.
    for name in ENUM.findall(text):
        print(f"enum {name} enum_{name}(void) {DO_NOTHING}")


if __name__ == "__main__":
    main()
