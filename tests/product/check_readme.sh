#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# The first programs that a reader meets run again and again: those of docs/tutorial.md (C) and of
# docs/python.md 100 times each, half of them on one processor, and write nothing to stderr, though
# they close their context as soon as they have seen their last mark. CEOVERLAP_TEST_README_RUNS is
# half the number of runs. check_blocks.sh runs each block of the pages once.
# And what the pages lead to is there, as are the messages that docs/guides/troubleshooting.md quotes,
# and the tools' options that pages show.
set -u

srcdir=$(cd "${srcdir:-.}" && pwd)
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
read -ra cc <<< "${CC:-cc}"
failed=0
n_runs=${CEOVERLAP_TEST_README_RUNS:-50}
seconds=$((60 + n_runs / 2))

fail() {
	echo "FAIL: $*"
	failed=1
}

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

# is_quiet TEXT: nothing was written to stderr.
is_quiet() {
	[ ! -s "$folder/err" ] && return
	sort "$folder/err" | uniq -c | head -5
	fail "$1 writes to stderr"
}

# first LANGUAGE PAGE FILE: the page's first block of that language.
first() {
	awk -v language="$1" '
		$0 == "```" language && !n++ { inside = 1; next }
		/^```/ { inside = 0 }
		inside' "$srcdir/$2" > "$3"
	[ -s "$3" ] || fail "$2 has no block of $1"
}

first c docs/tutorial.md "$folder/first.c"
if "${cc[@]}" -std=c11 -Wall -Wextra -Werror -I"$PWD/include" -I"$srcdir/include" \
		-c -o "$folder/first.o" "$folder/first.c" &&
		./libtool --silent --mode=link "${cc[@]}" -o "$folder/first" "$folder/first.o" \
			libceoverlap.la -pthread; then
	# shellcheck disable=SC2016 # the inner shell expands it
	on_all_and_on_one timeout "$seconds" bash -c 'again "$0"' "$folder/first" \
		> "$folder/out" 2> "$folder/err" || fail "docs/tutorial.md's first program: status $?"
	sort "$folder/out" | uniq -c
	[ "$(grep -c '^42 arrived$' "$folder/out")" = $((2 * n_runs)) ] ||
		fail "docs/tutorial.md's first program: bytes did not arrive in each run"
	is_quiet "docs/tutorial.md's first program"
else
	fail "docs/tutorial.md's first program does not compile as printed"
fi

if command -v python3 > /dev/null && [ -e .libs/libceoverlap.so ]; then
	first python docs/python.md "$folder/first.py"
	cat > "$folder/again.py" <<-'END'
		import sys, ceoverlap
		code = compile(open(sys.argv[1]).read(), "docs/python.md", "exec")
		for _ in range(int(sys.argv[2])):
		    values = memoryview(bytearray(range(64)))
		    names = {"ceoverlap": ceoverlap, "values": values}
		    exec(code, names)
	END
	CEOVERLAP_LIBRARY=$PWD/.libs/libceoverlap.so PYTHONPATH=$srcdir/python \
		PYTHONDONTWRITEBYTECODE=1 on_all_and_on_one timeout "$seconds" \
		python3 "$folder/again.py" "$folder/first.py" "$n_runs" \
		2> "$folder/err" || fail "docs/python.md, its first program"
	is_quiet "docs/python.md, its first program,"
fi

! command -v python3 > /dev/null ||
	python3 "$srcdir/tests/product/messages.py" "$srcdir" \
		"$srcdir/docs/guides/troubleshooting.md" || failed=1
! command -v python3 > /dev/null ||
	python3 "$srcdir/tests/product/options.py" "$srcdir" "$PWD" || failed=1

# The files and pages that pages lead to.
n_links=0
while read -r page; do
	while read -r path; do
		n_links=$((n_links + 1))
		[ -e "$(dirname "$srcdir/$page")/$path" ] || fail "$page leads to $path, which is not there"
	done < <(grep -oE '\]\([^)#: ]+[)#]' "$srcdir/$page" | sed 's/^](//; s/[)#]$//' | sort -u)
done < <(cd "$srcdir" && find ./*.md docs -name '*.md')
[ "$n_links" -gt 100 ] || fail "only $n_links links were found"
echo "$n_links links"
exit "$failed"
