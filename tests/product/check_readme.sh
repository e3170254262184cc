#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# The code of the README and of docs/operators.md is right as printed: its C blocks compile
# alone against the library of the build folder, those with a main() run on host memory, and
# its Python blocks parse. The programs of two processes, in docs/configuration.md and
# docs/python.md, run once. The C programs, and the first program of docs/python.md, run 100 times
# each, half of them on one processor, and write nothing to stderr: they close their context as soon
# as they have seen their last mark. CEOVERLAP_TEST_README_RUNS is half the number of runs.
set -u

srcdir=$(cd "${srcdir:-.}" && pwd)
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
read -ra cc <<< "${CC:-cc}"
failed=0
n_runs=${CEOVERLAP_TEST_README_RUNS:-50}
seconds=$((60 + n_runs / 2))

# on_all_and_on_one COMMAND [ARGUMENT...]: the command as it is, and bound to a processor.
on_all_and_on_one() {
	"$@" && taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')" "$@"
}

# again PROGRAM: many runs, with the output of all.
# shellcheck disable=SC2317 # it is called in a shell of its own
again() {
	local i

	for ((i = 0; i < n_runs; i++)); do
		"$1" || return
	done
}
export -f again
export n_runs

# is_quiet TEXT FILE: nothing was written to stderr.
is_quiet() {
	[ ! -s "$2" ] && return
	sort "$2" | uniq -c | head -5
	echo "FAIL: $1 writes to stderr"
	failed=1
}

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
		# shellcheck disable=SC2016 # the inner shell expands it
		./libtool --silent --mode=link "${cc[@]}" -o "$folder/program" "$source.o" \
			libceoverlap.la -pthread &&
			on_all_and_on_one timeout "$seconds" bash -c 'again "$0"' "$folder/program" \
				> "$folder/out" 2> "$folder/err"
		status=$?
		sort "$folder/out" | uniq -c
		if [ "$status" != 0 ] ||
				[ "$(grep -c '^42 arrived$' "$folder/out")" != $((2 * n_runs)) ]; then
			echo "FAIL: README.md, $name: exit status $status"
			failed=1
		fi
		is_quiet "README.md, $name" "$folder/err"
	fi
done
if [ "$n_ran" = 0 ]; then
	echo "FAIL: no C program was found in README.md"
	failed=1
fi

# in_two_processes TEXT COMMAND...: it ends well as two ranks, and one of them prints.
in_two_processes() {
	local what=$1
	shift

	if ! CEOVERLAP_PLACE=host timeout "$seconds" ./ceoverlap-run -n 2 -- "$@" \
			> "$folder/out" 2> "$folder/err" ||
			[ "$(cat "$folder/out")" != "42 arrived" ]; then
		echo "FAIL: $what: two processes"
		cat "$folder/out"
		failed=1
	fi
	is_quiet "$what" "$folder/err"
}

pages=("$srcdir/docs/configuration.md")
blocks c
if "${cc[@]}" -std=c11 -Wall -Wextra -Werror -I"$PWD/include" -I"$srcdir/include" \
		-c -o "$folder/two.o" "$folder/block-1.c" &&
		./libtool --silent --mode=link "${cc[@]}" -o "$folder/two" "$folder/two.o" \
			libceoverlap.la -pthread; then
	in_two_processes "docs/configuration.md" "$folder/two"
else
	echo "FAIL: docs/configuration.md: its program does not compile as printed"
	failed=1
fi
pages=("$srcdir/README.md" "$srcdir/docs/operators.md")

if command -v python3 > /dev/null; then
	blocks python
	for source in "$folder"/block-*.python; do
		if ! python3 -c 'import sys; compile(open(sys.argv[1]).read(), "README.md", "exec")' \
				"$source"; then
			echo "FAIL: README.md, $(basename "$source") is no Python"
			failed=1
		fi
	done

	pages=("$srcdir/docs/python.md")
	blocks python
	cat > "$folder/again.py" <<-'END'
		import sys, ceoverlap
		code = compile(open(sys.argv[1]).read(), "docs/python.md", "exec")
		for _ in range(int(sys.argv[2])):
		    values = memoryview(bytearray(range(64)))
		    names = {"ceoverlap": ceoverlap, "values": values}
		    exec(code, names)
	END
	if [ -e .libs/libceoverlap.so ]; then
		CEOVERLAP_LIBRARY=$PWD/.libs/libceoverlap.so PYTHONPATH=$srcdir/python \
			PYTHONDONTWRITEBYTECODE=1 on_all_and_on_one timeout "$seconds" \
			python3 "$folder/again.py" "$folder/block-1.python" "$n_runs" \
			2> "$folder/err" || { echo "FAIL: docs/python.md, its first program"
			failed=1; }
		is_quiet "docs/python.md, its first program," "$folder/err"
		if python3 -c 'import numpy' 2> /dev/null; then
			CEOVERLAP_LIBRARY=$PWD/.libs/libceoverlap.so PYTHONPATH=$srcdir/python \
				PYTHONDONTWRITEBYTECODE=1 \
				in_two_processes "docs/python.md" python3 "$folder/block-2.python"
		fi
	fi
fi

# The files and pages that it leads to.
while read -r path; do
	[ -e "$srcdir/$path" ] || { echo "FAIL: README.md leads to $path, which is not there"
		failed=1; }
done < <(grep -oE '\]\([^)#:]+\)' "$srcdir/README.md" | sed 's/^](//; s/)$//' | sort -u)
exit "$failed"
