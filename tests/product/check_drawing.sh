#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# The files and folders that ARCHITECTURE.md and docs/internals/ name are there: a drawing that
# names what has gone is worse than none.
set -u

srcdir=$(cd "${srcdir:-.}" && pwd)
cd "$srcdir" || exit 1
failed=0
n=0

# exists NAME: as a path from the top, or as a file of that name in src/, include/ or tests/.
# A * stands for what it stands for in a shell.
# cuda.h is the toolkit's; name.c stands for a file that the reader will write.
exists() {
	[[ $1 != cuda.h && $1 != *name.c ]] || return 0
	compgen -G "$1" > /dev/null && return
	[ -n "$(find src include tests tools python model m4 -path "*/$1" -print -quit)" ]
}

for page in ARCHITECTURE.md docs/internals/*.md; do
	while read -r name; do
		n=$((n + 1))
		exists "$name" && continue
		echo "FAIL: $page names $name, which is not there"
		failed=1
	done < <(grep -oE '[A-Za-z0-9_*/-]+\.(c|h|cu|cuh|py|sh|pml)\b' "$page" | sort -u)
done
if [ "$n" -lt 20 ]; then
	echo "FAIL: only $n names were found"
	failed=1
fi
echo "$n names"
exit "$failed"
