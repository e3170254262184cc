# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""_abi.py against the headers: sizes, offsets and constants by a C program, fields and
prototypes by the headers' text."""

import ctypes
import os
import re
import shlex
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

from ceoverlap import _abi
from rig import ROOT

INCLUDE = os.path.join(ROOT, "include")
HEADERS = ("ceoverlap.h", "collective.h", "ops.h", "embedding.h", "channel.h", "pool.h")
STRUCTS = {name: kind for name, kind in vars(_abi).items()
           if isinstance(kind, type) and issubclass(kind, ctypes.Structure)
           and name.startswith("ceov_")}


def headers():
    """Their text without comments and preprocessor lines."""
    text = ""
    for name in HEADERS:
        with open(os.path.join(INCLUDE, "ceoverlap", name), encoding="utf-8") as file:
            text += file.read()
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    return re.sub(r"^#(.*\\\n)*.*$", "", text, flags=re.M)


def constants():
    """Every constant of the headers' enums, and those of _abi.py."""
    names = set()
    for body in re.findall(r"\benum \w+ \{(.*?)\}", headers(), re.S):
        names.update(re.findall(r"\bCEOV_\w+", body))
    return names


def ctype_of(words):
    """The ctypes type of a C declaration without its name."""
    words = re.sub(r"\bconst\b|\bstruct\b", " ", words).replace("*", " * ").split()
    if "*" in words:
        return "pointer"
    if words[0] == "enum":
        return ctypes.c_uint32
    plain = {"int": ctypes.c_int, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64,
             "size_t": ctypes.c_size_t, "void": None, "char": ctypes.c_char,
             "float": ctypes.c_float}
    return plain[words[0]] if words[0] in plain else STRUCTS[words[0]]


def kind_of(ctype):
    """Pointers of all types are one kind."""
    is_pointer = ctype in (ctypes.c_void_p, ctypes.c_char_p) or \
        hasattr(ctype, "contents") or (isinstance(ctype, type) and
                                       issubclass(ctype, ctypes._CFuncPtr))
    return "pointer" if is_pointer else ctype


class Abi(unittest.TestCase):
    def test_what_a_c_program_says(self):
        compiler = shlex.split(os.environ.get("CC") or "cc")
        lines = []
        for name, kind in STRUCTS.items():
            tag = name if name == "ceov_ticket" else f"struct {name}"
            lines.append(f'printf("{name} %zu\\n", sizeof({tag}));')
            for field, *_ in kind._fields_:
                lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({tag}, {field}),'
                             f' sizeof((({tag} *)0)->{field}));')
        numbers = sorted(constants() | {"CEOV_NOBODY", "CEOV_FAILURE_TEXT_BYTES",
                                        "CEOV_NAME_BYTES",
                                        "CEOV_MOE_TOP_K_MAX", "CEOV_OP_GEMMS_MAX",
                                        "CEOV_CHANNEL_CALLS_MAX",
                                        "CEOV_POOL_CALL_BYTES", "CEOV_POOL_SEGMENTS_MAX",
                                        "CEOV_VALUE_LIMIT"})
        for name in numbers:
            lines.append(f'printf("{name} %lld\\n", (long long){name});')
        program = ("#include <stddef.h>\n#include <stdio.h>\n" +
                   "".join(f"#include <ceoverlap/{name}>\n" for name in HEADERS) +
                   "int main(void)\n{\n" + "\n".join(lines) + "\nreturn 0;\n}\n")
        with tempfile.TemporaryDirectory() as folder:
            source, binary = os.path.join(folder, "abi.c"), os.path.join(folder, "abi")
            with open(source, "w", encoding="utf-8") as file:
                file.write(program)
            try:
                subprocess.run(compiler + ["-std=c11", "-I", INCLUDE, "-o", binary, source],
                               check=True, capture_output=True, text=True)
            except FileNotFoundError:
                self.skipTest(f"no C compiler ({compiler[0]})")
            said = subprocess.run([binary], check=True, capture_output=True,
                                  text=True).stdout.splitlines()
        for name, kind in STRUCTS.items():
            self.assertIn(f"{name} {ctypes.sizeof(kind)}", said)
            for field, *_ in kind._fields_:
                place = getattr(kind, field)
                self.assertIn(f"{name}.{field} {place.offset} {place.size}", said)
        for name in numbers:
            self.assertIn(f"{name} {getattr(_abi, name)}", said)
        self.assertGreater(len(numbers), 30)

    def test_no_struct_and_no_field_is_missing(self):
        declared = {}
        for name, body in re.findall(r"\bstruct (ceov_\w+) \{(.*?)\}", headers(), re.S):
            declared[name] = [re.search(r"(\w+)\s*(\[\w+\])?\s*$|\(\*(\w+)\)", field)
                              for field in body.split(";") if field.strip()]
        self.assertEqual(set(declared), set(STRUCTS))
        for name, found in declared.items():
            fields = [match.group(3) or match.group(1) for match in found]
            for i, match in enumerate(found):       # "void (*log)(...)"
                text = match.string
                pointer = re.search(r"\(\*(\w+)\)", text)
                fields[i] = pointer.group(1) if pointer else fields[i]
            self.assertEqual(fields, [field[0] for field in STRUCTS[name]._fields_], name)

    def test_prototypes(self):
        found = re.findall(r"^([\w ]+[ *]+)(ceov_\w+)\(([^)]*)\);", headers(), re.M)
        self.assertEqual({name for _, name, _ in found}, set(_abi.PROTOTYPES))
        for result, name, arguments in found:
            wanted_result, wanted = _abi.PROTOTYPES[name]
            self.assertEqual(ctype_of(result), kind_of(wanted_result), name)
            kinds = [] if arguments.strip() == "void" else \
                [ctype_of(re.sub(r"\w+\s*$", "", one)) for one in arguments.split(",")]
            self.assertEqual(kinds, [kind_of(one) for one in wanted], name)

    def test_numbers_out_of_range_are_refused(self):
        with self.assertRaises(ValueError):
            _abi.ceov_launch().base = -1
        with self.assertRaises(ValueError):
            _abi.ceov_place(0, 1 << 32)
        with self.assertRaises(TypeError):
            _abi.ceov_launch().base = 1.5

    def test_where_the_library_is_looked_for(self):
        package = types.ModuleType("ceoverlap_lib")
        package.path = lambda: "/a/package/libceoverlap.so"
        for name, module, path in (("/told.so", package, "/told.so"),
                                   ("", package, "/a/package/libceoverlap.so"),
                                   ("", None, "libceoverlap.so.0")):
            with mock.patch.dict(os.environ, CEOVERLAP_LIBRARY=name), \
                    mock.patch.dict(sys.modules, ceoverlap_lib=module):
                self.assertEqual(_abi.library_path(), path)

    def test_a_library_that_is_missing_or_another(self):
        with self.assertRaisesRegex(ImportError, "CEOVERLAP_LIBRARY"):
            _abi.load("/nonexistent/libceoverlap.so")
        with self.assertRaisesRegex(ImportError, "has no ceov_"):
            _abi.load("libc.so.6")
