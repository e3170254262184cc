#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Counts the test cases of finished runs and prints "N passed, N failed, N skipped":
#
#   count_cases.sh FOLDER...
#
# Every test there has a .trs file with its result, and a .log beside it. A Check
# program's log tells its cases ("100%: Checks: 7, Failures: 0, Errors: 0"); any other
# test is one case. A program that failed though its cases passed (a leak, something
# left behind, a crash) counts as one failure more.
set -eu

find "$@" -name '*.trs' | sort | while read -r trs; do
	sed -n 's/^:global-test-result: /result /p' "$trs"
	grep -a '^[0-9]*%: Checks: ' "${trs%.trs}.log" || true
	echo end
done | awk -F '[ ,]+' '
	$1 == "result" { result = $2 }
	$2 == "Checks:" { checks += $3; bad += $5 + $7; has_cases = 1 }
	$1 == "end" {
		if (!has_cases && result == "PASS")
			checks = 1
		if (!bad && result != "PASS" && result != "SKIP") {
			bad = 1
			checks += 1
		}
		passed += checks - bad
		failed += bad
		skipped += result == "SKIP"
		checks = bad = has_cases = 0
		result = ""
	}
	END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }'
