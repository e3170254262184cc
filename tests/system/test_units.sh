#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# The units of ceoverlapd are what systemd reads without complaint, and let the daemon do nothing
# that it need not: systemd-analyze gives them an exposure of at most 1.0 of 10. 77: it is not here,
# or cannot look at files without a manager (older than 250).
set -u

srcdir=$(cd "${srcdir:-.}" && pwd)
unit=systemd/ceoverlapd.service
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

skip() {
	echo "skipped: $*"
	exit 77
}

[ -x ./ceoverlapd ] || skip "ceoverlapd was not built"
command -v systemd-analyze > /dev/null || skip "there is no systemd-analyze"
systemd-analyze --help | grep -q -- --offline || skip "systemd-analyze has no --offline"
grep '^ExecStart=' "$unit"
if ! grep -q '^ExecStart=/.*/ceoverlapd --config /.*/ceoverlapd.conf$' "$unit" ||
	grep -n '@[a-z]*dir@' "$unit"; then
	echo "FAIL: paths were not filled in"
	exit 1
fi

# The program need not be installed yet.
sed "s|^ExecStart=.*|ExecStart=$(command -v true)|" "$unit" > "$folder/ceoverlapd.service"
cp "$srcdir/systemd/ceoverlapd.socket" "$folder" || exit 1
cd "$folder" || exit 1
said=$(timeout 60 systemd-analyze verify --man=no ./ceoverlapd.service ./ceoverlapd.socket 2>&1)
if [ -n "$said" ]; then
	echo "FAIL: systemd-analyze verify: $said"
	exit 1
fi
if ! timeout 60 systemd-analyze security --no-pager --offline=true --threshold=10 \
	./ceoverlapd.service > said 2>&1; then
	cat said
	echo "FAIL: the exposure is above 1.0"
	exit 1
fi
tail -n 1 said
