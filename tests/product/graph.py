#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Draws which modules of src/ need which others, and finds circles among them.

A module is a file pair: name.c and name.h, or one of them alone. Module A needs module B
where a file of A includes a file of B, or an object of A refers to a symbol that an object
of B defines. A circle is a set of modules each of which needs, directly or by way of others,
each other one. Its size is its number of files.

What was compiled, and which headers the compiler read for it, is taken from the dependency
files of the build (.deps/*.Plo); symbols from the objects, with nm. Dependency files list
headers without saying which file includes which, so that is read from the #include lines,
and every header that the compiler read must be found that way. A function that is called
through a pointer makes no arrow. Device code (*.cu) is not looked at.

Exit status: 0, 1 with --check where a rule is broken, 2 where there is nothing to look at.
"""

import argparse
import collections
import os
import re
import signal
import subprocess
import sys

LIMIT = 6               # files of a circle within one folder
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


class Unusable(Exception):
    """The build folder does not have what the graph is drawn from."""


def module_of(path):
    return os.path.splitext(path)[0]


def folder_of(module):
    return os.path.dirname(module)


# --- what the compiler says ---------------------------------------------------------------

class Object:
    """One object file: its source and the headers it was compiled with, under src/."""

    def __init__(self, path, source, headers):
        self.path = path
        self.source = source
        self.headers = headers


def dependencies(path):
    """The target and the prerequisites of the first rule of a dependency file."""
    with open(path, encoding="utf-8") as file:
        text = file.read().replace("\\\n", " ")
    rule = text.split("\n", 1)[0]
    target, found, rest = rule.partition(": ")
    return (target, rest.split()) if found else (None, [])


def newest_object(build, target):
    """libtool makes a position independent object in .libs, another one beside it, or both."""
    stem = os.path.splitext(os.path.join(build, target))[0]
    folder, name = os.path.split(stem)
    paths = [os.path.join(folder, ".libs", name + ".o"), stem + ".o"]
    paths = [path for path in paths if os.path.exists(path)]
    return max(paths, key=os.path.getmtime) if paths else None


def find_objects(build, root):
    """The objects of sources that still exist: a build folder keeps those of removed ones."""
    objects = []
    for folder, _, names in sorted(os.walk(os.path.join(build, "src"))):
        if os.path.basename(folder) != ".deps":
            continue
        for name in sorted(names):
            target, files = dependencies(os.path.join(folder, name))
            files = [os.path.relpath(os.path.join(build, file), root) for file in files]
            files = [file for file in files if not file.startswith("..")]
            if not files or not os.path.exists(os.path.join(root, files[0])):
                continue
            path = newest_object(build, target)
            if path:
                objects.append(Object(path, files[0], set(files[1:])))
    if not objects:
        raise Unusable(f"no objects with dependency files under {build}/src: run make first")
    return objects


def read_symbols(nm, objects):
    """By source: the symbols that its object defines, and those that it only refers to."""
    by_path = {item.path: item.source for item in objects}
    defined, wanted = collections.defaultdict(set), collections.defaultdict(set)
    result = subprocess.run([*nm.split(), "-A", "-g", *by_path], capture_output=True, text=True,
                            check=False)
    if result.returncode:
        raise Unusable(f"{nm} failed: {result.stderr.strip()}")
    for line in result.stdout.splitlines():
        path, _, rest = line.rpartition(":")
        *_, kind, symbol = rest.split()
        (wanted if kind in "Uwv" else defined)[by_path[path]].add(symbol)
    return defined, wanted


# --- the graph ----------------------------------------------------------------------------

class Graph:
    """Modules, their files, and for each arrow why it is there."""

    def __init__(self):
        self.files = collections.defaultdict(set)       # module -> its files
        self.arrows = collections.defaultdict(dict)     # module -> {module: reasons}
        self.left_out = []                              # sources that were not compiled

    def add(self, source, target, kind, what):
        first, second = module_of(source), module_of(target)
        if first != second:
            reasons = self.arrows[first].setdefault(second, {"includes": set(), "uses": set()})
            reasons[kind].add(what)

    def reasons(self, first, second):
        return "; ".join(f"{kind} {' '.join(sorted(what))}"
                         for kind, what in self.arrows[first][second].items() if what)

    def weight(self, first, second):
        """How much there is to change for this arrow to go."""
        return max(1, len(self.arrows[first][second]["uses"]))

    def size(self, circle):
        return sum(len(self.files[module]) for module in circle)


def includes_of(root, path, cache):
    if path not in cache:
        with open(os.path.join(root, path), encoding="utf-8") as file:
            found = INCLUDE.findall(file.read())
        cache[path] = [name for name in found if os.path.exists(os.path.join(root, name))]
    return cache[path]


def check_reached(root, item, cache):
    """Every header that the compiler read is found by following #include lines."""
    reached, ahead = set(), [item.source]
    while ahead:
        path = ahead.pop()
        if path not in reached:
            reached.add(path)
            ahead += includes_of(root, path, cache)
    lost = sorted(item.headers - reached)
    if lost:
        raise Unusable(f"the compiler read {lost[0]} for {item.source}, but no #include line "
                       "leads there: run make, or include it by a path in quotes")


def draw(build, root, nm):
    objects = find_objects(build, root)
    defined, wanted = read_symbols(nm, objects)
    graph, cache, owner = Graph(), {}, {}
    for item in objects:
        check_reached(root, item, cache)
        for path in {item.source} | item.headers:
            graph.files[module_of(path)].add(path)
            for name in includes_of(root, path, cache):
                graph.add(path, name, "includes", os.path.basename(name))
        for symbol in defined[item.source]:
            owner[symbol] = item.source
    for source, symbols in wanted.items():
        for symbol in symbols:
            if symbol in owner:
                graph.add(source, owner[symbol], "uses", symbol)
    compiled = {item.source for item in objects}
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), root)
            if name.endswith(".c") and not name.endswith("_absent.c") and path not in compiled:
                graph.left_out.append(path)
    return graph


def circles(graph):
    """Strongly connected components of more than one module (Tarjan), largest first."""
    numbers, lowest, stack, found = {}, {}, [], []

    def visit(module):
        numbers[module] = lowest[module] = len(numbers)
        stack.append(module)
        for target in graph.arrows[module]:
            if target not in numbers:
                visit(target)
                lowest[module] = min(lowest[module], lowest[target])
            elif target in stack:
                lowest[module] = min(lowest[module], numbers[target])
        if lowest[module] == numbers[module]:
            start = stack.index(module)
            if len(stack) - start > 1:
                found.append(sorted(stack[start:]))
            del stack[start:]

    sys.setrecursionlimit(10000)
    for module in sorted(graph.files):
        if module not in numbers:
            visit(module)
    return sorted(found, key=lambda circle: (-graph.size(circle), circle))


def feedback(graph, circle):
    """Arrows without which the circle is gone: those that point back in an order of its
    modules that is improved, one module at a time, until no move makes them lighter."""
    inside = set(circle)
    arrows = {(a, b): graph.weight(a, b) for a in circle for b in graph.arrows[a] if b in inside}

    def gain(first, second):
        """What is saved when `first` stands before `second`."""
        return arrows.get((first, second), 0) - arrows.get((second, first), 0)

    order = sorted(circle, key=lambda m: sum(gain(other, m) for other in circle))
    moved = True
    while moved:
        moved = False
        for module in sorted(circle):
            rest = [other for other in order if other != module]
            values = [sum(gain(module, other) for other in rest)]   # before all others
            for other in rest:
                values.append(values[-1] - 2 * gain(module, other))
            if max(values) > values[order.index(module)]:
                place = values.index(max(values))
                order = rest[:place] + [module] + rest[place:]
                moved = True
    place = {module: i for i, module in enumerate(order)}
    return sorted((weight, a, b) for (a, b), weight in arrows.items() if place[a] > place[b])


# --- rules --------------------------------------------------------------------------------

def name_of(circle):
    return ",".join(sorted({folder_of(module) for module in circle}))


def needs_allowance(graph, circle):
    return "," in name_of(circle) or graph.size(circle) > LIMIT


def needed(graph):
    """The allowance that the graph needs: [(files, folders)]."""
    return [(graph.size(circle), name_of(circle)) for circle in circles(graph)
            if needs_allowance(graph, circle)]


def read_allowance(path):
    allowed = collections.defaultdict(list)
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            if len(words) != 2 or not words[0].isdigit():
                raise Unusable(f"{path}:{number}: a line is a number of files and folders")
            allowed[words[1]].append(int(words[0]))
    return allowed


def broken_rules(graph, allowed):
    """Sentences, one for each rule that the graph breaks."""
    have = collections.defaultdict(list)
    for size, name in needed(graph):
        have[name].append(size)
    for name in sorted({*have, *allowed}):
        sizes = sorted(have[name], reverse=True)
        limits = sorted(allowed.get(name, []), reverse=True)
        for i, size in enumerate(sizes):
            limit = limits[i] if i < len(limits) else 0
            if size > limit:
                rule = (f"{limit} are allowed" if limit else
                        f"more than {LIMIT} are not allowed" if "," not in name else
                        "circles over folder borders are not allowed")
                yield f"a circle of {size} files in {name}: {rule}"
            elif size < limit and not graph.left_out:
                yield f"a circle of {size} files in {name}, but {limit} are allowed: lower it"
        if not graph.left_out:
            for limit in limits[len(sizes):]:
                yield f"no circle in {name} needs the allowance of {limit} files: remove it"


# --- output -------------------------------------------------------------------------------

def print_circle(graph, circle):
    print(f"circle of {graph.size(circle)} files ({len(circle)} modules) in {name_of(circle)}: "
          + " ".join(circle))
    print("  arrows that close it, the cheapest first:")
    for _, first, second in feedback(graph, circle):
        print(f"    {first} -> {second}: {graph.reasons(first, second)}")


def print_text(graph):
    for first in sorted(graph.files):
        print(f"{first} ({len(graph.files[first])})")
        for second in sorted(graph.arrows[first]):
            print(f"  -> {second}: {graph.reasons(first, second)}")


def print_dot(graph):
    members = {module: i for i, circle in enumerate(circles(graph)) for module in circle}
    back = {(a, b) for circle in circles(graph) for _, a, b in feedback(graph, circle)}
    print("digraph src {\n\trankdir=LR;\n\tnode [shape=box];")
    for folder in sorted({folder_of(module) for module in graph.files}):
        print(f'\tsubgraph "cluster_{folder}" {{\n\t\tlabel="{folder}";')
        for module in sorted(graph.files):
            if folder_of(module) == folder:
                style = ", style=filled" if module in members else ""
                print(f'\t\t"{module}" [label="{os.path.basename(module)}"{style}];')
        print("\t}")
    for first in sorted(graph.arrows):
        for second in sorted(graph.arrows[first]):
            style = " [color=red]" if (first, second) in back else ""
            print(f'\t"{first}" -> "{second}"{style};')
    print("}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=".", help="the build folder")
    parser.add_argument("--source", default=".", help="the folder that has src/")
    parser.add_argument("--folder", help="circles of this folder of src/ only")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", metavar="FILE", help="fail where a circle is larger than FILE "
                      "allows, or FILE allows more than there is")
    what.add_argument("--allowance", action="store_true", help="print what FILE has to say")
    what.add_argument("--text", action="store_true", help="print modules, arrows and reasons")
    what.add_argument("--dot", action="store_true", help="print the graph for Graphviz; arrows "
                      "that close circles are red")
    return parser.parse_args()


def main():
    args = arguments()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)       # for "| head"
    try:
        graph = draw(args.build, os.path.join(args.source, "src"), os.environ.get("NM", "nm"))
        broken = list(broken_rules(graph, read_allowance(args.check))) if args.check else []
    except (Unusable, OSError) as error:
        print(f"graph.py: {error}", file=sys.stderr)
        return 2
    if args.text:
        print_text(graph)
    elif args.dot:
        print_dot(graph)
    elif args.allowance:
        for size, name in needed(graph):
            print(size, name)
    elif args.check:
        for sentence in broken:
            print(f"FAIL: {sentence}")
    else:
        for circle in circles(graph):
            if args.folder in (None, *name_of(circle).split(",")):
                print_circle(graph, circle)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
