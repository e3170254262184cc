#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Runs the GPU test programs one after another, because they share the GPUs, and
# prints the count of their cases last. Exits with 77 if all were skipped.
#
#   run_gpu_tests.sh PROGRAM...
set -u

here=$(dirname "$0")
total=0
failed=0
skipped=0

rm -rf gpu-results
mkdir gpu-results || exit 1
for program in "$@"; do
	log=gpu-results/$(basename "$program").log
	"$here/run_test.sh" "$program" > "$log" 2>&1
	case $? in
	0)	result=PASS ;;
	77)	result=SKIP
		skipped=$((skipped + 1)) ;;
	*)	result=FAIL
		failed=$((failed + 1))
		tail -n 40 "$log" ;;
	esac
	total=$((total + 1))
	echo ":global-test-result: $result" > "${log%.log}.trs"
	echo "$result: $program"
done
"$here/count_cases.sh" gpu-results
[ "$failed" = 0 ] || exit 1
[ "$skipped" != "$total" ] || exit 77
