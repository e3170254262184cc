#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Each public call is documented by a comment in its header and has a manual page that says more than
# its name, and Doxygen finds nothing to warn of. With CEOVERLAP_TEST_SITE=1, as "make check-long"
# has it, the site is built by Sphinx, too, without a warning. Skipped where tools are missing.
set -u

srcdir=$(cd "${srcdir:-.}" && pwd)
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
failed=0

fail() {
	echo "FAIL: $*"
	failed=1
}

command -v python3 > /dev/null || { echo "SKIP: no Python"; exit 77; }
calls=()
for header in "$srcdir"/include/ceoverlap/*.h; do
	while read -r call state; do
		calls+=("$call")
		[ "$state" = documented ] || fail "$header: no comment documents $call()"
	done < <(python3 "$srcdir/docs/site/filter.py" --calls "$header")
done

# What the library exports is what the headers declare.
if [ -e .libs/libceoverlap.so ]; then
	exported=$(nm -D --defined-only .libs/libceoverlap.so | awk '$2 == "T" { print $3 }' |
		sed 's/@.*//' | sort)
	missing=$(comm -23 <(echo "$exported") <(printf '%s\n' "${calls[@]}" | sort))
	[ -z "$missing" ] || fail "exported, but in no header that was read: $missing"
fi
echo "${#calls[@]} calls"
[ "${#calls[@]}" -gt 80 ] || fail "only ${#calls[@]} calls were found"

"$srcdir/docs/site/build.sh" man "$folder"
status=$?
[ "$status" != 77 ] || { [ "$failed" = 0 ] || exit 1; exit 77; }
[ "$status" = 0 ] || fail "the manual pages cannot be made: status $status"
for call in "${calls[@]}"; do
	page=$folder/man3/$call.3
	if [ ! -e "$page" ]; then
		fail "$call() has no manual page"
	elif ! grep -q "^[a-z].* \**$call(" "$page"; then
		fail "the manual page of $call() has no prototype"
	elif [ "$(sed -n '/^.SH DESCRIPTION/,/^.SH "SEE/p' "$page" | wc -w)" -lt 12 ]; then
		fail "the manual page of $call() says nothing"
	fi
done
if command -v mandoc > /dev/null; then
	mandoc -T lint -W warning "$folder"/man3/*.3 || fail "mandoc warns of manual pages"
fi

if [ -n "${CEOVERLAP_TEST_SITE:-}" ]; then
	"$srcdir/docs/site/build.sh" site "$folder"
	status=$?
	if [ "$status" = 0 ]; then
		[ -e "$folder/site/html/reference/c-pages/ceoverlap.h.html" ] ||
			fail "the site has no C reference"
		grep -q all_reduce "$folder/site/html/reference/python/ceoverlap.channel.html" ||
			fail "the site has no Python reference"
	elif [ "$status" != 77 ]; then
		fail "the site cannot be built: status $status"
	fi
fi
exit "$failed"
