# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Modules of the package import each other in one direction, also for type checkers and
within functions."""

import ast
import pathlib
import unittest

import ceoverlap

ROOT = pathlib.Path(ceoverlap.__file__).parent
# (from, to): imported within a function, at its first call.
#   a number that C cannot take is refused by the exception for it, which knows codes of C;
#   Group.operators and Group.pool() make what needs a Group
KNOWN = {("_abi", "errors"), ("torch.group", "torch.operators"), ("torch.group", "torch._pool")}


def modules_of(root):
    """{dotted name below the root: path}; a package by its folder's name."""
    found = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(name, path, modules):
    """The package's modules that a module imports, wherever the import stands in it."""
    parts = name.split(".") if name else []
    package = parts if path.name == "__init__.py" else parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        base = package[:len(package) - node.level + 1]
        base = base + node.module.split(".") if node.module else base
        for alias in node.names:
            below = ".".join([*base, alias.name])
            found.add(below if below in modules else ".".join(base))
    return found - {name}


def graph_of(root, known=frozenset()):
    modules = modules_of(root)
    return {name: {other for other in imports_of(name, path, modules)
                   if (name, other) not in known} for name, path in modules.items()}


def circle_in(graph):
    """Names along one circle; None: there is none."""
    done = set()

    def look(name, above):
        if name in above:
            return [*above[above.index(name):], name]
        if name in done:
            return None
        done.add(name)
        for other in sorted(graph.get(name, ())):
            circle = look(other, [*above, name])
            if circle:
                return circle
        return None

    for name in sorted(graph):
        circle = look(name, [])
        if circle:
            return circle
    return None


class Imports(unittest.TestCase):
    def test_there_is_no_circle(self):
        graph = graph_of(ROOT, KNOWN)
        self.assertIn("signal", graph["plan"])
        self.assertIn("plan", graph["context"])
        self.assertIn("torch.group", graph["torch.operators"])
        self.assertIsNone(circle_in(graph))

    def test_what_is_known_is_needed(self):
        for pair in KNOWN:
            self.assertIsNotNone(circle_in(graph_of(ROOT, KNOWN - {pair})), pair)

    def test_a_circle_is_found(self):
        self.assertIsNone(circle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}))
        self.assertEqual(circle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}), ["b", "c", "b"])


if __name__ == "__main__":
    unittest.main()
