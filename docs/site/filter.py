# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Doxygen's filter for the public headers, whose comments are plain ones.

    filter.py HEADER            the header with Doxygen's comments, for the site
    filter.py --man HEADER      the same, in which each call is a page of its own
    filter.py --calls HEADER    each call and whether a comment documents it

A comment before a declaration documents it. One before several declarations that follow each other
documents them all, and so does that of the struct behind which a call stands: the fields of the
struct are the call's arguments. Paragraphs with columns or drawings keep their lines."""

import re
import sys

CALL = re.compile(r"^[a-zA-Z_][\w \*]*?\b(ceov_\w+)\(")
STRUCT = re.compile(r"^(?:struct|enum) (ceov_\w+) \{")


def escaped(text):
    """The text without what Doxygen would take for commands and markup."""
    return re.sub(r"([\\@<>&#%$])", r"\\\1", text)


def is_drawn(lines):
    """Whether a paragraph has columns, a drawing or a list, whose lines must stay."""
    return any(line[:1] in " -" or re.search(r"\S {3,}\S", line) for line in lines)


def body_of(comment):
    """The lines of a comment without its marks."""
    lines = []
    for line in comment:
        line = re.sub(r"^\s*/\*+ ?", "", re.sub(r"\s*\*/\s*$", "", line.rstrip("\n")))
        lines.append(re.sub(r"^\s*\* ?", "", line))
    return lines


def paragraphs(lines):
    """A comment's paragraphs as Doxygen takes them, with the marks of a comment where it wants
    them: it would show those of lines that are kept as they are."""
    made, part = [], []
    for line in [*lines, ""]:
        if line.strip():
            part.append(line)
        elif part:
            if is_drawn(part):
                made += [" * @verbatim", *part, "@endverbatim", " *"]
            else:
                made += [*(f" * {escaped(one)}" for one in part), " *"]
            part = []
    return made[:-1]


class Header:
    """A header while it is rewritten."""

    def __init__(self, name, is_man):
        self.name, self.is_man = name, is_man
        self.out, self.calls = [], []
        self.note, self.struct = [], None       # of the declarations that follow
        self.is_fresh = False                   # nothing stands between it and what follows

    def emit(self, name):
        """Writes the comment of the declaration that follows; name: of a call, or None."""
        lines = paragraphs(self.note)
        if name and self.struct:
            lines += [" *", f" * @see struct {self.struct}"]
        if not lines:
            return
        if name and self.is_man:
            self.out += ["/**", f" * @defgroup call_{name} {name}",
                         f" * @brief a call of {self.name}", " * @{", " */"]
        self.out += ["/**", *lines, " */"]

    def call(self, name, lines):
        """Writes a call, with its comment."""
        self.calls.append((name, bool(self.note)))
        self.emit(name)
        self.is_fresh = False
        self.out += lines
        if self.is_man and self.note:
            self.out.append("/** @} */")

    def begin_struct(self, line):
        """Writes what is said of a struct above it, or behind its first line, which is returned."""
        opened = re.match(r"^(.*?\{)\s*/\* ?(.*?) ?\*/$", line)
        if opened:
            self.note, self.is_fresh, line = [opened.group(2)], True, opened.group(1)
        if self.is_fresh:
            self.emit(None)
        else:
            self.note = []
        return line

    def members(self, lines):
        """A struct's or an enum's body, whose comments stand behind or above its members."""
        in_comment = False
        for line in lines:
            found = re.match(r"^(.*?[;,{\w\]])\s*/\*(?!\*) ?(.*)$", line)
            if in_comment:
                line = re.sub(r"^(\s*)\* ?", r"\1", line)
                in_comment = "*/" not in line
                text, end = (line.split("*/")[0], " */") if not in_comment else (line, "")
                self.out.append(escaped(text.rstrip()) + end)
            elif found and not found.group(1).lstrip().startswith("/*"):
                in_comment = "*/" not in found.group(2)
                text = found.group(2) if in_comment else found.group(2).split("*/")[0]
                self.out.append(f"{found.group(1)} /**< {escaped(text.rstrip())}"
                                + ("" if in_comment else " */"))
            else:
                behind = "/**<" if line.startswith("\t\t\t") else "/**"
                self.out.append(re.sub(r"^(\s+)/\*(?!\*)(?! ---)", rf"\1{behind}", line))


def end_of(lines, at, end):
    """The number of the line behind the first one from `at` on that has the end."""
    while end not in lines[at]:
        at += 1
    return at + 1


def rewrite(name, lines, is_man):
    """Rewrites a header, part by part."""
    header, at, is_first = Header(name, is_man), 0, True
    while at < len(lines):
        line, end = lines[at], at + 1
        if line.startswith("/*") and "SPDX" not in line and "Copyright" not in line:
            end = end_of(lines, at, "*/")
            header.note, header.struct, header.is_fresh = body_of(lines[at:end]), None, True
            if is_first and (end == len(lines) or not lines[end].strip()):
                header.out += ["/**", f" * @file {name}",
                               *paragraphs(header.note), " */"]
                header.note = []
            elif lines[at].startswith("/* ---"):
                header.note = []
            is_first = False
        elif STRUCT.match(line):
            end = end_of(lines, at, "};") if "};" not in line else at + 1
            header.members([header.begin_struct(line), *lines[at + 1:end]])
            header.struct, header.is_fresh = STRUCT.match(line).group(1), False
        elif CALL.match(line) and not line.startswith(("typedef", "static")):
            end = end_of(lines, at, ";")
            header.call(CALL.match(line).group(1), lines[at:end])
        else:
            if line.startswith(("#define CEOV", "typedef")) and header.is_fresh:
                header.emit(None)
                header.is_fresh = False
            if line.startswith("static") or not line.strip() and not header.struct:
                header.note = []
            header.out.append(line)
        at = end
    return header


def main():
    options, path = sys.argv[1:-1], sys.argv[-1]
    name = "ceoverlap/" + path.rsplit("/", 1)[-1]
    with open(path, encoding="utf-8") as file:
        header = rewrite(name, file.read().split("\n"), "--man" in options)
    if "--calls" in options:
        for call, is_documented in header.calls:
            print(call, "documented" if is_documented else "not-documented")
    else:
        print("\n".join(header.out))


if __name__ == "__main__":
    main()
