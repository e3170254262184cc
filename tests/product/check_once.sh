#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# One of each: what processes say to each other is declared in the headers below, as tables of fields
# for one codec (base/codec.h), and each kind of message in one of them. A HELLO begins something
# different in each: a process joins a group, a connection begins, a client comes to its daemon.
set -u

srcdir=${srcdir:-.}
failed=0

expect() {      # WHAT EXPECTED FOUND
	[ "$2" = "$3" ] && return
	echo "FAIL: $1: expected, then found:"
	diff <(echo "$2") <(echo "$3")
	failed=1
}

cd "$srcdir/src" || exit 1

messages="ipc/group/messages.h
ipc/service_wire.h
ipc/wire.h
net/far_wire.h
net/record.h
net/store_wire.h"
expect "headers of messages" "$messages" "$(grep -rl '"base/codec.h"' --include='*.h' . | sed 's,^\./,,' | sort)"

said() {        # NAMES: the enumerators of these names
	xargs grep -HoE "^	CEI_[A-Z]+_($1)\b *[=,]" <<< "$messages" | sed -E 's/:	(CEI_[A-Z_]+).*/ \1/' | sort
}

expect "messages that begin something" "ipc/service_wire.h CEI_SERVICE_HELLO
net/far_wire.h CEI_FAR_HELLO
net/store_wire.h CEI_STORE_HELLO" "$(said HELLO)"
expect "messages of a barrier, and of who is lost" "ipc/group/messages.h CEI_GROUP_BARRIER
ipc/group/messages.h CEI_GROUP_GONE
ipc/group/messages.h CEI_GROUP_LATE
ipc/group/messages.h CEI_GROUP_LIMIT" "$(said 'BARRIER|GONE|LATE|LIMIT|LOST|MISSING')"
expect "messages of the directory between processes" "ipc/group/messages.h CEI_GROUP_FIND
ipc/group/messages.h CEI_GROUP_RENEW
ipc/group/messages.h CEI_GROUP_REPLY" "$(said 'FIND|RENEW|REPLY|EXPORT|FOUND')"
expect "files that know the order of bytes" "base/cursor.h" \
	"$(grep -rlE '\b(htole|htobe|le|be)[0-9]*(16|32|64)(toh)?\(' . | sed 's,^\./,,' | sort)"
exit $failed
