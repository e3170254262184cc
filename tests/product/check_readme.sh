#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# The code of the README and of docs/operators.md is right as printed: its C blocks compile
# alone against the library of the build folder, those with a main() run on host memory, and
# its Python blocks parse.
set -u

srcdir=$(cd "${srcdir:-.}" && pwd)
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
read -ra cc <<< "${CC:-cc}"
failed=0

pages=("$srcdir/README.md" "$srcdir/docs/operators.md")

# blocks LANGUAGE: each block into a file of its own, block-1.LANGUAGE and so on.
blocks() {
	awk -v language="$1" -v folder="$folder" '
		$0 == "```" language { file = folder "/block-" ++n "." language; next }
		/^```/ { file = "" }
		file { print > file }' "${pages[@]}"
}

blocks c
n_ran=0
for source in "$folder"/block-*.c; do
	name=$(basename "$source")
	if ! "${cc[@]}" -std=c11 -Wall -Wextra -Werror -I"$PWD/include" -I"$srcdir/include" \
			-c -o "$source.o" "$source"; then
		echo "FAIL: README.md or docs/operators.md, $name does not compile as printed"
		failed=1
	elif grep -q '^int main(' "$source"; then
		n_ran=$((n_ran + 1))
		./libtool --silent --mode=link "${cc[@]}" -o "$folder/program" "$source.o" \
			libceoverlap.la -pthread &&
			timeout 60 "$folder/program" > "$folder/out" 2>&1
		status=$?
		cat "$folder/out"
		if [ "$status" != 0 ] || ! grep -q '^42 arrived$' "$folder/out"; then
			echo "FAIL: README.md, $name: exit status $status"
			failed=1
		fi
	fi
done
if [ "$n_ran" = 0 ]; then
	echo "FAIL: no C program was found in README.md"
	failed=1
fi

if command -v python3 > /dev/null; then
	blocks python
	for source in "$folder"/block-*.python; do
		if ! python3 -c 'import sys; compile(open(sys.argv[1]).read(), "README.md", "exec")' \
				"$source"; then
			echo "FAIL: README.md, $(basename "$source") is no Python"
			failed=1
		fi
	done
fi

# The files and pages that it leads to.
while read -r path; do
	[ -e "$srcdir/$path" ] || { echo "FAIL: README.md leads to $path, which is not there"
		failed=1; }
done < <(grep -oE '\]\([^)#:]+\)' "$srcdir/README.md" | sed 's/^](//; s/)$//' | sort -u)
exit "$failed"
