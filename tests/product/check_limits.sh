#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# The limits of the style: 60 lines a function, 5 parameters (public calls apart: the header is
# their contract; and functions that UCX calls), 100 columns (aim for 90); the two head lines in
# every file; no notes of unfinished work. A .c or .cu file of more than 600 lines is named, but is
# no failure: it is split where it does two things, not where a line too many stands.
set -u

srcdir=${srcdir:-.}
failed=0

sources=()
while read -r path; do
	sources+=("$path")
done < <(find "$srcdir"/src "$srcdir"/include "$srcdir"/tools "$srcdir"/tests \
	"$srcdir"/examples -type f \( -name '*.[chS]' -o -name '*.cu' -o -name '*.cuh' \) \
	2>/dev/null | sort)
scripts=()
while read -r path; do
	scripts+=("$path")
done < <(find "$srcdir"/src "$srcdir"/tools "$srcdir"/tests "$srcdir"/m4/ceov_*.m4 "$srcdir"/configure.ac \
	"$srcdir"/Makefile.am "$srcdir"/quickstart "$srcdir"/.ci -type f \
	\( -name '*.sh' -o -name '*.m4' -o -name '*.a[cm]' -o -name '*.mk' -o -name quickstart \
	-o -name run \) | sort)

if [ "${#sources[@]}" = 0 ]; then
	echo "FAIL: no source found under $srcdir"
	exit 1
fi

# In this style a function's opening brace stands alone in column 1, and nothing
# else's does; its head is what stands since the last line that ended something.
awk '
	function complain(text) {
		printf "FAIL: %s:%d: %s\n", FILENAME, FNR, text
		bad = 1
	}

	# Columns, a tab reaching to the next multiple of 8.
	function columns(line,    i, n) {
		n = 0
		for (i = 1; i <= length(line); i++)
			n = substr(line, i, 1) == "\t" ? n + 8 - n % 8 : n + 1
		return n
	}

	# Parameters in the last pair of outermost parentheses of a head.
	function parameters(text,    i, c, depth, n) {
		depth = n = 0
		for (i = 1; i <= length(text); i++) {
			c = substr(text, i, 1)
			if (c == "(" && depth++ == 0)
				n = 1
			else if (c == ")")
				depth--
			else if (c == "," && depth == 1)
				n++
		}
		return n
	}

	FNR == 1 { head = ""; in_function = 0 }
	FNR == 601 && FILENAME ~ /\.(c|cu)$/ {
		printf "advice: %s: more than 600 lines\n", FILENAME
	}
	columns($0) > 100 { complain("more than 100 columns") }
	/^\{$/ {
		in_function = FNR
		if (head !~ /[ *]ceov_|ucp_am_recv_param_t|ucs_log_level_t/ && parameters(head) > 5)
			complain("more than 5 parameters")
		head = ""
		next
	}
	/^}/ && in_function {
		if (FNR - in_function + 1 > 60)
			complain("a function of " FNR - in_function + 1 " lines")
		in_function = 0
		next
	}
	in_function { next }
	/^[ \t]*$/ || /^[#}]/ || /;[ \t]*$/ || /\*\/[ \t]*$/ { head = ""; next }
	{ head = head " " $0 }
	END { exit bad }
' "${sources[@]}" || failed=1

for path in "${sources[@]}" "${scripts[@]}"; do
	top=$(head -n 3 "$path")
	case $top in
	*"SPDX-License-Identifier: BSD-3-Clause"*"Copyright (c) The ceoverlap developers"*) ;;
	*) echo "FAIL: $path: the two head lines are missing"
		failed=1 ;;
	esac
done

# Written so that this file does not match itself.
if grep -nwE 'TO[D]O|FI[X]ME|XX[X]|HA[C]K' "${sources[@]}" "${scripts[@]}"; then
	echo "FAIL: unfinished work is an issue, not a comment"
	failed=1
fi
exit "$failed"
