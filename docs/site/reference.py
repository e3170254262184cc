# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""reference.py PACKAGE FOLDER: a page of the site for each public module of the Python package,
read from its source: nothing has to be installed for it. What a docstring has in columns keeps its
lines."""

import ast
import os
import re
import sys


def escaped(line):
    """A line of text; what stands between double backquotes is literal already."""
    parts = re.split(r"(``.+?``)", line)
    return "".join(part if part.startswith("``") else re.sub(r"([\\*`|_])", r"\\\1", part)
                   for part in parts)


def blocks(text, indent):
    """A docstring as reStructuredText: paragraphs, and literal blocks for what has columns."""
    made, part = [], []
    lines = (text or "").expandtabs().split("\n")
    rest = [line for line in lines[1:] if line.strip()]
    margin = min((len(line) - len(line.lstrip()) for line in rest), default=0)
    for line in [lines[0].strip(), *(line[margin:].rstrip() for line in lines[1:]), ""]:
        if line:
            part.append(line)
        elif part:
            if any(re.match(r"[ \-*>]|\d+\.", one) or re.search(r"\S {2,}\S", one)
                   for one in part):
                made += ["::", "", *("    " + one for one in part), ""]
            else:
                made += [*map(escaped, part), ""]
            part = []
    return [" " * indent + line if line else "" for line in made]


def signature(node):
    """A function's parameters, without self."""
    arguments = ast.unparse(node.args)
    return re.sub(r"^(self|cls)(, |$)", "", arguments)


def is_public(name):
    return not name.startswith("_")


def function(node, kind, indent):
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return [" " * indent + f".. py:{kind}:: {node.name}({signature(node)}){result}", "",
            *blocks(ast.get_docstring(node, clean=False), indent + 4)]


def is_property(node):
    return any(getattr(one, "id", "") == "property" for one in node.decorator_list)


def members(node, classes):
    """A class's members, with those of bases of the module that are not public themselves."""
    found = list(node.body)
    for base in node.bases:
        name = getattr(getattr(base, "value", base), "id", "")
        if name in classes and not is_public(name):
            found += members(classes[name], classes)
    return found


def class_of(node, classes):
    first = next((one for one in node.body if isinstance(one, ast.FunctionDef)
                  and one.name == "__init__"), None)
    made = [f".. py:class:: {node.name}({signature(first) if first else ''})", "",
            *blocks(ast.get_docstring(node, clean=False), 4)]
    if first:
        made += blocks(ast.get_docstring(first, clean=False), 4)
    seen = set()
    for one in members(node, classes):
        if not isinstance(one, ast.FunctionDef) or not is_public(one.name) or one.name in seen:
            continue
        seen.add(one.name)
        if is_property(one):
            made += [f"    .. py:property:: {one.name}", "",
                     *blocks(ast.get_docstring(one, clean=False), 8)]
        else:
            made += function(one, "method", 4)
    return made


def page(name, tree):
    """A module's page, or None if it has nothing public."""
    made, seen = [], set()
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in tree.body:
        if getattr(node, "name", "_") in seen or not is_public(getattr(node, "name", "_")):
            continue
        seen.add(node.name)
        if isinstance(node, ast.FunctionDef):
            made += function(node, "function", 0)
        elif isinstance(node, ast.ClassDef):
            made += class_of(node, classes)
    about = blocks(ast.get_docstring(tree, clean=False), 0)
    if not made and not about:
        return None
    return "\n".join([name, "=" * len(name), "", f".. py:module:: {name}", "", *about, *made, ""])


def main():
    package, folder = sys.argv[1:]
    os.makedirs(folder)
    names = []
    for where, folders, files in os.walk(package):
        folders[:] = sorted(one for one in folders if is_public(one))
        for file in sorted(files):
            stem = file[:-3]
            if not file.endswith(".py") or not is_public(stem) and stem != "__init__":
                continue
            parts = os.path.relpath(where, os.path.dirname(package)).split(os.sep)
            name = ".".join(parts + ([] if stem == "__init__" else [stem]))
            with open(os.path.join(where, file), encoding="utf-8") as source:
                text = page(name, ast.parse(source.read()))
            if text:
                names.append(name)
                with open(os.path.join(folder, name + ".rst"), "w", encoding="utf-8") as out:
                    out.write(text)
    with open(os.path.join(folder, "index.rst"), "w", encoding="utf-8") as out:
        out.write("Python reference\n================\n\n.. toctree::\n\n"
                  + "".join(f"   {name}\n" for name in sorted(names)))


if __name__ == "__main__":
    main()
