#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# docs/internals/fences.md names every function that orders memory: those of the sources that use
# atomics, fences or acquiring and releasing instructions, and nothing else. And what it
# says fails without them is there: suites in tests/local.mk, steps in model/check.sh.
set -u

srcdir=${srcdir:-.}
doc=$srcdir/docs/internals/fences.md
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
failed=0

fail() {
	echo "FAIL: $*"
	failed=1
}

# FILE FUNCTION of each line that orders memory, or loads and stores flags. A function
# begins with the last line in the first column that has a parenthesis before its brace;
# comments do not count.
used() {
	find "$srcdir"/src "$srcdir"/include "$srcdir"/tools/kernels -type f \
		\( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) | sort |
	while read -r path; do
		awk -v file="${path#"$srcdir"/}" '
			{ line = $0 }
			in_comment {
				if (!sub(/.*\*\//, "", line))
					next
				in_comment = 0
			}
			{
				gsub(/\/\*([^*]|\*[^\/])*\*\//, "", line)
				if (sub(/\/\*.*/, "", line))
					in_comment = 1
			}
			line ~ /^[A-Za-z_].*\(/ && line !~ /;$/ {
				name = line
				sub(/\(.*/, "", name)
				sub(/.*[ *]/, "", name)
			}
			line ~ /^cei_[a-z_]*\(/ { name = line; sub(/\(.*/, "", name) }
			line ~ /atomic_(load|store|exchange|compare|fetch|thread|flag)/ ||
			line ~ /__threadfence|fence\.(acq_rel|sc|proxy|mbarrier)/ ||
			line ~ /(ld|st|atom|red)\.(acquire|release|relaxed|acq_rel)/ ||
			line ~ /arrive\.release|wait\.acquire|parity\.acquire/ ||
			line ~ /CU_STREAM_(WAIT|WRITE)_VALUE_[A-Z]/ ||
			line ~ /stream_(wait|write)_(value|event)\(/ ||
			line ~ /CU_STREAM_MEM_OP_|__syncthreads/ {
				print file, name
			}' "$path"
	done | sort -u
}

# FILE FUNCTION of each row: | `file` | `function`, `function` | ...
# shellcheck disable=SC2016
named() {
	sed -n 's/^| `\([^`]*\)` | \(`[^|]*`\) |.*/\1 \2/p' "$doc" |
	while read -r file functions; do
		for name in ${functions//[\`,]/ }; do
			echo "$file $name"
		done
	done | sort -u
}

used > "$folder/used"
named > "$folder/named"
while read -r file name; do
	fail "$file: $name() orders memory, but docs/internals/fences.md has no row for it"
done < <(comm -23 "$folder/used" "$folder/named")
while read -r file name; do
	fail "docs/internals/fences.md has a row for $name() in $file, which orders no memory there"
done < <(comm -13 "$folder/used" "$folder/named")

while read -r suite; do
	grep -q "/$suite\( \|$\)" "$srcdir/tests/local.mk" ||
		fail "docs/internals/fences.md names $suite, which tests/local.mk does not build"
done < <(grep -o 'test_[a-z_]*' "$doc" | sort -u)
while read -r model which number; do
	count=$(sed -n "s/^	hand_over $model $which \([0-9]*\).*/\1/p" "$srcdir/model/check.sh")
	[ "$number" -le "${count:-0}" ] ||
		fail "docs/internals/fences.md names $model $which.$number, which model/check.sh lacks"
done < <(grep -oE '(order|service_ring) [0-9]+\.[0-9]+' "$doc" | tr . ' ' | sort -u)
[ -s "$folder/used" ] || fail "no function was found that orders memory"
exit "$failed"
