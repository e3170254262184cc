#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Whether the simulator of the group's state machine finds what it is to find: leaves out one rule
# of the machine at a time, and fails unless a schedule fails then.
#
#   group_mutants.sh [SCHEDULES]    each runs at most so many, default 60000
set -u

srcdir=$(cd "${srcdir:-.}" && pwd -P) || exit 1
most=${1:-60000}
failed=0

folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM HUP

# mutant FILE TEXT INSTEAD RULE: replaces a text that is there once by another one.
mutant() {
	local file=$1 text=$2 instead=$3 rule=$4 source

	rm -rf "$folder/src"
	mkdir -p "$folder/src/ipc"
	cp -r "$srcdir/src/ipc/group" "$folder/src/ipc/group"
	source=$(< "$folder/src/ipc/group/$file")
	if [ "${source/"$text"/}" = "$source" ]; then
		echo "FAIL: $file has changed: '$text' is not there ($rule)"
		failed=1
		return
	fi
	printf '%s\n' "${source/"$text"/"$instead"}" > "$folder/src/ipc/group/$file"
	# shellcheck disable=SC2086 # words of CC
	if ! ${CC:-cc} -std=gnu11 -O2 -w -I"$folder/src" -I"$srcdir/include" -I"$srcdir/src" \
			"$folder"/src/ipc/group/*.c "$srcdir"/src/base/{codec,table}.c \
			"$srcdir"/tests/unit/group_sim*.c \
			-o "$folder/sim"; then
		echo "FAIL: the machine without the rule does not compile ($rule)"
		failed=1
	elif timeout 600 "$folder/sim" 1 "$most" > "$folder/log"; then
		echo "FAIL: not found in $most schedules: $rule"
		failed=1
	else
		echo "found: $rule: $(grep '^schedule' "$folder/log" || echo 'it hangs or crashes')"
	fi
}

mutant uses.c 'if (use->generation < reply->generation)' 'if (1)' \
	'a late REPLY does not bring an older generation back'
mutant life.c 'return !(group->n_owed + group->n_answers) || ' 'return 1 || ' \
	'a farewell is the last thing that is said'
mutant life.c 'if (peer->n_news < group->n_gone && ' 'if (0 && ' \
	'news of losses are passed on'
mutant barrier.c ' || missing_here(group) != CEOV_NOBODY)' ')' \
	'a leader waits for its node'
mutant uses.c 'return reply->result ? 0 : drop_stray(group, peer, use, reply->use);' 'return 0;' \
	'what nobody wants is dropped'
mutant directory.c 'if (user)       /*' 'if (0)       /*' \
	'a FIND that comes twice is counted once'
mutant owed.c 'if (is_question(group, owed) ||' \
	'if (is_question(group, owed) || owed->kind != CEI_OWED_REPLY &&' \
	'a REPLY is said again until it is heard'
mutant owed.c 'owed->number = number ? number : ++group->last_number;' \
	'if (!owed->number || number) owed->number = number ? number : ++group->last_number;' \
	'what is said anew has a new number'
mutant life.c 'if (entry->is_told || life == CEI_GROUP_PARTING)' 'if (entry->is_told)' \
	'a loss is told when nothing lands any more'
mutant life.c '	if (late_ns)
		allow(group);' '	(void)allow;' \
	'a process that stood still accuses nobody'
mutant life.c 'cei_owe(group, &peer->news, CEI_OWED_NEWS, process, 0);
	}
	cei_barrier_go(group);' 'cei_group_part(group, process, expelled);
	}
	cei_barrier_go(group);' 'a process that is thrown out tells its node'
mutant barrier.c 'uint64_t n_calls = is_leader(group) ? barrier->n_world : barrier->n_calls;' \
	'uint64_t n_calls = barrier->n_calls;' \
	'a leader that leaves says what it has passed'

mutant life.c 'if (!peer->n_awaited && cei_list_is_empty(&peer->users))' 'if (!peer->n_awaited)' \
	'users are awaited by whoever waits for them'
mutant peers.c '	cei_group_due_at(group, call->deadline_ns);
' '' \
	'a call ends at its deadline'
mutant owed.c '	cei_group_due_at(group, owed->again_ns);
' '' \
	'what is not answered is said again in time'
mutant uses.c '	cei_counters_renewed(group, use);
' '' \
	'a renewal ends what was asked for'
mutant counters.c '	if (listener->told >= listener->until)
		end_listener' '	end_listener' \
	'all changes are told until the value is reached'
mutant aborts.c 'use->generation > generation)' '!generation)' \
	'an abort is of the highest generation that was heard of'

exit "$failed"
