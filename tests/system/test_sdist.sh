#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# The sdists of the Python package and of the library, as "python -m build" makes them in the
# source tree: wheels are built from them alone, far from the tree, hold the licence, and move
# bytes. Skipped where there is no shared library (--disable-shared), or no Python with setuptools.
set -u

# shellcheck source=tests/system/with_python.sh
. "${srcdir:-.}/tests/system/with_python.sh" \
	'import sys, setuptools; from setuptools import build_meta
sys.exit(int(setuptools.__version__.split(".")[0]) < 77 or sys.version_info < (3, 10))' \
	"Python from 3.10 on with setuptools from 77 on (pip install setuptools)"

folder=$(mktemp -d) || exit 1
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
unset CEOVERLAP_LIBRARY CEOVERLAP_LIBRARY_DIR PYTHONPATH MAKEFLAGS MFLAGS MAKELEVEL
# What takes long to compile is done for little: without optimisation, and for one kind of GPU.
export CFLAGS=-O0 CEOVERLAP_CONFIGURE_FLAGS=--disable-dependency-tracking
export MAKEFLAGS="NVCC_ARCH_FLAGS=-arch=compute_80" NVCCFLAGS="-Xcicc -O0"

fail() {
	[ ! -e "$folder/log" ] || tail -n 40 "$folder/log"
	echo "FAIL: $1"
	exit 1
}

# Calls setuptools as the build's front end does; prints the name of the file that it made.
make_one() {
	(
		cd "$1" || exit 1
		"$python" -c "
import sys
from setuptools import build_meta
name = build_meta.build_$2('$folder')
open('$folder/name', 'w').write(name)" > "$folder/log" 2>&1
	) && cat "$folder/name"
}

make distdir distdir="$folder/tree" > "$folder/log" 2>&1 || fail "there is no source tree"
chmod -R u+w "$folder/tree"
files=()
for source in python python/lib; do
	sdist=$(make_one "$folder/tree/$source" sdist) || fail "no sdist of $source was built"
	tar -xzf "$folder/$sdist" -C "$folder" || fail "$sdist cannot be unpacked"
	files+=("$folder/$sdist")
done
rm -rf "$folder/tree"
for sdist in "${files[@]}"; do
	wheel=$(make_one "${sdist%.tar.gz}" wheel) || fail "no wheel was built from $sdist"
	"$python" -m zipfile -e "$folder/$wheel" "$folder/site" || fail "$wheel cannot be unpacked"
	licence=$(find "$folder/site/${wheel%%-*}"-*.dist-info -name LICENSE)
	cmp "$srcdir/LICENSE" "${licence:-/dev/null}" || fail "$wheel does not hold the licence"
	files+=("$folder/$wheel")
done
cmp "$srcdir/LICENSE" "$srcdir/python/LICENSE" || fail "python/LICENSE is another one"
if "$python" -c 'import twine' 2> /dev/null; then
	"$python" -m twine check --strict "${files[@]}" > "$folder/log" 2>&1 ||
		fail "an index would refuse the packages"
else
	echo "no twine: what an index says of the packages is not checked"
fi

# Runs in the wheels' folder, so that Python finds no other copy of the package.
cd "$folder/site" || exit 1
PYTHONPATH=$folder/site timeout 60 "$python" -c '
import os
import ceoverlap, ceoverlap_lib
for one in ceoverlap, ceoverlap_lib:
    assert one.__file__.startswith(os.getcwd()), one.__file__
with ceoverlap.Context(range(2), place="host") as context:
    target = bytearray(5)
    plan = context.plan(0).add(source=context.register(bytearray(b"bytes"), 0),
                               target=context.register(target, 1), row_bytes=5)
    plan.commit().launch().wait()
    assert target == b"bytes", target' || fail "the wheels do not move bytes"
launcher=$(find "$PWD" -path '*.data/scripts/*' -name ceoverlap-run)
chmod +x "${launcher:-/nonexistent}" || fail "the wheel of the library holds no tools"
"$launcher" -n 2 true || fail "ceoverlap-run starts no processes"
exit 0
