#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Runs each fuzzer with libFuzzer beside other tests, with what these leave of the processors:
#
#   ci.sh BUILD            a build folder
#
# FUZZ_SECONDS says for how long each, default 60. Without clang they are skipped. Results are in BUILD/tests/fuzz-results, where tests/count_cases.sh counts each fuzzer as
# a case; inputs that fail are in BUILD/fuzz-failures. Fails with any of them.
set -u

here=$(cd "$(dirname "$0")" && pwd) || exit 99
build=$1
cd "$build" || exit 99
chrt -i -p 0 $$ > /dev/null 2>&1

rm -f tests/fuzz-results/*
# An input waits for a processor, too, before it is judged to take too long.
FUZZ_WITH=libfuzzer FUZZ_RESULTS=$PWD/tests/fuzz-results FUZZ_PATIENCE=120 \
	bash "$here/run.sh" "${FUZZ_SECONDS:-60}"
status=$?
[ "$status" = 77 ] || exit "$status"
