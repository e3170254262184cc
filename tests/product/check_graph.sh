#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# No circle of modules in src/ crosses a folder's border, and none within one folder has
# more than 6 files, those apart that circles.txt names. graph.py says what is counted;
# run by hand it prints the graph, and the arrows that close circles:
#
#   python3 tests/product/graph.py --build build
#   python3 tests/product/graph.py --build build --dot | dot -Tsvg -o graph.svg
set -u

srcdir=$(cd "${srcdir:-.}" && pwd -P) || exit 1
failed=0

command -v python3 > /dev/null || { echo "SKIP: no python3"; exit 77; }

folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

fail() {
	echo "FAIL: $1"
	failed=1
}

compile() {
	(cd "$1" && ${CC:-cc} -Isrc -c "src/$2.c" -o "src/$2.o" -MMD -MF \
		"src/${2%/*}/.deps/${2##*/}.Plo") || fail "no object of $2"
}

# A tree whose modules each have a header and a source; "a/one>b/two" has a/one call b/two.
make_tree() {
	local tree=$folder/$1 arrow module from to
	shift

	for arrow in "$@"; do
		from=${arrow%>*} to=${arrow#*>}
		for module in "$from" "$to"; do
			mkdir -p "$tree/src/${module%/*}/.deps"
			echo "void ${module//\//_}(void);" > "$tree/src/$module.h"
			[ -f "$tree/src/$module.c" ] ||
				printf '#include "%s.h"\n' "$module" > "$tree/src/$module.c"
		done
		printf '#include "%s.h"\n' "$to" >> "$tree/src/$from.c"
		echo "${to//\//_}();" >> "$tree/src/$from.calls"
	done
	while read -r module; do
		module=${module%.c}
		{
			printf 'void %s(void)\n{\n' "${module//\//_}"
			cat "$tree/src/$module.calls" 2> /dev/null
			echo "}"
		} >> "$tree/src/$module.c"
		compile "$tree" "$module"
	done < <(cd "$tree/src" && find . -name '*.c' | sed 's,^\./,,')
}

# expect TREE ALLOWANCE STATUS TEXT: what the rules say about a tree.
expect() {
	local output status

	printf '%b' "$2" > "$folder/allowance"
	output=$(python3 "$srcdir/tests/product/graph.py" --build "$folder/$1" \
		--source "$folder/$1" --check "$folder/allowance" 2>&1)
	status=$?
	[ "$status" = "$3" ] || fail "tree $1, '$2' allowed: $status instead of $3: $output"
	case $output in
	*"$4"*) ;;
	*) fail "tree $1, '$2' allowed: '$output' does not say '$4'" ;;
	esac
}

# A circle over a border, found, allowed, allowed too much, and in the wrong place.
make_tree border "a/one>b/two" "b/two>b/three" "b/three>a/one" "b/three>b/leaf"
expect border "" 1 "a circle of 6 files in a,b: circles over folder borders are not allowed"
expect border "6 a,b\n" 0 ""
expect border "5 a,b\n" 1 "a circle of 6 files in a,b: 5 are allowed"
expect border "7 a,b\n" 1 "7 are allowed: lower it"
expect border "6 a,b\n14 b\n" 1 "no circle in b needs the allowance"
expect border "six a,b\n" 2 "allowance:1"

# Two files a module: three of them in one circle are within the limit, four are not.
make_tree small "a/m1>a/m2" "a/m2>a/m3" "a/m3>a/m1"
expect small "" 0 ""
make_tree large "a/m1>a/m2" "a/m2>a/m3" "a/m3>a/m4" "a/m4>a/m1"
expect large "" 1 "a circle of 8 files in a: more than 6 are not allowed"

# A header is enough to close a circle, without any symbol.
make_tree header "a/one>b/two"
echo '#include "a/one.h"' >> "$folder/header/src/b/two.h"
expect header "" 1 "a circle of 4 files in a,b"

# So is a symbol, without any include.
make_tree symbol "a/one>b/two" "b/two>a/one"
sed -i 's,#include "b/two.h",void b_two(void);,' "$folder/symbol/src/a/one.c"
compile "$folder/symbol" a/one
expect symbol "" 1 "a circle of 4 files in a,b"

# An include that the compiler saw and the script does not find is no silent gap.
make_tree hidden "a/one>b/two"
sed -i 's,#include "b/two.h",#define TWO "b/two.h"\n#include TWO,' "$folder/hidden/src/a/one.c"
expect hidden "" 2 "the compiler read b/two.h for a/one.c"

# A source that was not compiled: what it closes is not seen, so that nothing is lowered.
cp "$folder/border/src/b/two.c" "$folder/border/src/b/other.c"
expect border "7 a,b\n" 0 ""

mkdir "$folder/empty"
expect empty "" 2 "run make first"

python3 "$srcdir/tests/product/graph.py" --source "$srcdir" \
	--check "$srcdir/tests/product/circles.txt" || failed=1
exit "$failed"
