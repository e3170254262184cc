#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# For tests of the Python packages, which source it from the build folder:
#
#   . with_python.sh CODE WANTED
#
# finds a Python that runs CODE - the user's, or the system's, whose modules packages of the
# system bring - and skips the test where there is none, saying that it has WANTED. Sets
# srcdir, python and the environment in which ceoverlap is found.

skip() {
	echo "SKIP: $1"
	exit 77
}

find_python() {
	local one

	for one in ${PYTHON:-python3 /usr/bin/python3}; do
		command -v "$one" > /dev/null && "$one" -c "$1" > /dev/null 2>&1 &&
			echo "$one" && return 0
	done
	return 1
}

srcdir=$(cd "${srcdir:-.}" && pwd)
[ -e "$PWD/.libs/libceoverlap.so" ] || skip "no shared library was built"
python=$(find_python "$1") || skip "no $2"
echo "with $("$python" -V)"

export CEOVERLAP_LIBRARY=$PWD/.libs/libceoverlap.so
export PYTHONPATH=$srcdir/python PYTHONDONTWRITEBYTECODE=1
unset CEOVERLAP_RANK CEOVERLAP_RANKS CEOVERLAP_PLACE CEOVERLAP_GROUP
