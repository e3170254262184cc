#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Tests ceoverlapd behind a socket that somebody else listens at, as under its units for systemd:
# nobody runs it until a client comes, that client is served, and when the daemon has ended the
# socket's file is still there, for systemd to start the next one. And that the units are such as
# systemd takes.
set -u

srcdir=${srcdir:-.}
folder=${CEOVERLAP_TEST_TMP:-$(mktemp -d)}
socket=$folder/socket
log=$folder/daemon.log
out=$folder/out
failed=0
pid=

fail() {
	echo "FAIL: $1"
	tail -n 20 "$log" "$out"
	failed=1
}

if [ ! -x ./ceoverlapd ]; then
	echo "SKIP: built without the daemon"
	exit 77
fi
if ! command -v systemd-socket-activate > /dev/null; then
	echo "SKIP: there is no systemd-socket-activate (Debian: systemd)"
	exit 77
fi
# The build's own program, not the script by which libtool starts it: its name is looked at.
daemon=$PWD/ceoverlapd
trap '[ -z "$pid" ] || kill "$pid" 2> /dev/null' EXIT

# until_true WHAT COMMAND...: the command succeeds within 30 s.
until_true() {
	local what=$1 i
	shift

	for ((i = 0; i < 300; i++)); do
		"$@" > /dev/null 2>&1 && return 0
		sleep 0.1
	done
	fail "$what"
	return 1
}

# The activator becomes the daemon.
is_daemon() {
	[ "$(tr '\0' '\n' < "/proc/$pid/cmdline" | head -n 1)" = "$daemon" ]
}

# shellcheck disable=SC2317 # called by until_true
has_ended() {
	! kill -0 "$pid"
}

# No path of a socket here: it is passed. "none" because a test takes no GPU from others.
printf '[daemon]\ncontrol = %s\ngpus = none\n' "$folder/control" > "$folder/conf"
for round in first second; do
	rm -f "$socket"                 # the activator binds it anew; systemd keeps its own
	: > "$log"
	systemd-socket-activate --seqpacket -l "$socket" "$daemon" --config "$folder/conf" \
		> "$log" 2>&1 &
	pid=$!
	until_true "$round: nobody listens" test -S "$socket" || break
	! is_daemon || fail "$round: the daemon runs before a client has come"
	timeout 60 ./ceoverlap-bench daemon --socket "$socket" --clients 2 -n 20 > "$out" 2>&1 ||
		fail "$round: clients are not served"
	grep -qE '^ +2 +20 +64( +[0-9.]+){6} +0$' "$out" || fail "$round: no row of two clients"
	is_daemon || fail "$round: it is not the daemon that has served them"
	timeout 60 ./ceoverlapctl --control "$folder/control" drain > "$out" 2>&1 ||
		fail "$round: the daemon is not told to end"
	until_true "$round: the daemon does not end" has_ended
	wait "$pid" || fail "$round: the daemon's exit status is $?"
	pid=
	[ -S "$socket" ] || fail "$round: the daemon has removed a socket that is not its own"
done

# A socket of another kind is refused in words.
rm -f "$socket"
systemd-socket-activate -l "$socket" "$daemon" --config "$folder/conf" > "$log" 2>&1 &
pid=$!
until_true "nobody listens at a stream" test -S "$socket"
timeout 60 ./ceoverlap-bench daemon --socket "$socket" --clients 1 -n 1 > "$out" 2>&1
if command -v python3 > /dev/null; then
	python3 -c 'import socket, sys
socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect(sys.argv[1])' "$socket"
	until_true "a daemon with a stream for its socket does not end" has_ended
	if wait "$pid"; then
		fail "a stream is taken for a socket of packets"
	fi
	pid=
	grep -q "ListenSequentialPacket=" "$log" || fail "nothing is said of the kind of socket"
fi

# The installed service names paths that are not there yet, so it gets others.
if command -v systemd-analyze > /dev/null; then
	sed "s|^ExecStart=[^ ]*|ExecStart=$daemon|" systemd/ceoverlapd.service \
		> "$folder/ceoverlapd.service"
	cp "$srcdir/systemd/ceoverlapd.socket" "$folder"
	systemd-analyze verify --man=no "$folder/ceoverlapd.service" \
		"$folder/ceoverlapd.socket" > "$out" 2>&1
	if grep -E "$folder|ceoverlapd\.(service|socket):" "$out" |
			grep -vE 'Failed to (connect|open)|not found|Operation not permitted'; then
		fail "the units are not such as systemd takes"
	fi
fi
exit "$failed"
