#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Prints how large the parts of the tree are: for each folder of src/ and for the other parts the
# lines, those of them that are neither blank nor a comment alone, and the files. It judges nothing.
set -u

srcdir=${srcdir:-.}

# row NAME FOLDER...: the sums of all sources below the folders.
row() {
	local name=$1
	shift

	find "$@" -type f \( -name '*.[chS]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.py' -o \
		-name '*.sh' \) -print0 | sort -z | xargs -0 -r awk -v name="$name" '
		FNR == 1 { n_files++; in_comment = 0 }
		{ n_lines++ }
		/^[ \t]*\/\*/ { in_comment = 1 }
		!in_comment && !/^[ \t]*$/ && !/^[ \t]*(\/\/|#[^a-z]|#$)/ { n_code++ }
		in_comment && /\*\// { in_comment = 0 }
		END { printf "%-16s %8d %8d %6d\n", name, n_lines, n_code, n_files }'
}

printf '%-16s %8s %8s %6s\n' part lines code files
for folder in "$srcdir"/src/*/; do
	row "src/$(basename "$folder")" "$folder"
done
for part in src include tools tests python examples; do
	row "$part" "$srcdir/$part"
done
row 'src/net + ipc' "$srcdir/src/net" "$srcdir/src/ipc"
