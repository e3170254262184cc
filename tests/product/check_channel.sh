#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Runs the kernels of channels between GPUs (src/kernels/channel.h) on the host, by channel.cc, with
# fewer threads, smaller chunks and shorter mail, and the functions that make their parameters.
# Then plays mutants: changes to the kernels, each of which has to be found, with cases that are the
# same each time. CEOVERLAP_TEST_CASES cases, 120 by default; a mutant may need more. Needs a C++
# compiler.
set -u

srcdir=${srcdir:-.}
# shellcheck source=tests/product/gpu_on_host.sh
. "$srcdir/tests/product/gpu_on_host.sh"

# A mutant is the file that it changes and a sed command, in which MUTANT is true while the mutant
# is played.
mutants=(
	# A counter is told before the bytes have been written, or without a release.
	'channel_moves.cuh s/push->n_stored - LAG);/push->n_stored - (MUTANT ? 0 : LAG));/'
	'channel_moves.cuh s/cei_store_wait_all_but<LAG>();/MUTANT ? cei_store_wait_read<LAG>() : &/'
	'channel_moves.cuh /^static .* find_room/,/^}/s/cei_store_wait();/if (!MUTANT) &/'
	'channel_moves.cuh /^static .* push_all/,/^}/s/cei_store_wait();/if (!MUTANT) &/'
	'channel_sums.cuh s/row + 1 - SUM_LAG);/row + 1 - (MUTANT ? 0 : SUM_LAG));/'
	'channel_sums.cuh /^static .* store_all/,/^}/s/cei_store_wait();/if (!MUTANT) &/'
	'channel_steps.cuh s/^\t*release_stores();/if (!MUTANT) &/'
	# Credit comes a chunk too early.
	'channel_moves.cuh /^static .* await_taken/,/^}/s/chunk.i + 1/chunk.i + 1 + MUTANT/'
	'channel_sums.cuh s/n_added, row + 1/n_added, row + 1 + MUTANT/'
	# Nobody waits for room, or PUSH waits before it has told of all.
	'channel_steps.cuh /^static .* has_room/,/^}/s/;$/ + MUTANT;/'
	'channel_moves.cuh s/tell_until(block, list, push, push->n_stored);/if (!MUTANT) &/'
	# Slots of shared memory are used again too early.
	'channel_moves.cuh /^static .* load_chunk/,/^}/s/cei_store_wait_read/if (!MUTANT) &/'
	'channel_moves.cuh /^static .* take_chunk/,/^}/s/cei_store_wait_read/if (!MUTANT) &/'
	'channel_sums.cuh s/if (row >= CEI_CHANNEL_SUM_SLOTS)/if (!MUTANT \&\& row >= CEI_CHANNEL_SUM_SLOTS)/'
	'channel_sums.cuh s/cei_store_wait_read<1>();/if (!MUTANT) &/'
	# Chunks are taken before they have come.
	'channel_moves.cuh s/if (chunk.i < seen(come_of<COPY>(block, chunk)))/if (chunk.i < seen(come_of<COPY>(block, chunk)) + MUTANT)/'
	'channel_sums.cuh /^static .* await_row/,/^}/s/row + 1/row + 1 - MUTANT/'
	# Slots of rings that have wrapped, lanes, and what was counted before.
	'channel_steps.cuh s/(i & (n_slots - 1))/((MUTANT ? i + i \/ n_slots : i) \& (n_slots - 1))/'
	'channel_sums.cuh s/(uint32_t)before + i) & (n_slots - 1)/(uint32_t)before + (MUTANT ? i + i \/ n_slots : i)) \& (n_slots - 1)/'
	'channel_steps.cuh s/layout.n_lanes\[ring\] + block.lane/(layout.n_lanes[ring] - MUTANT) + block.lane/'
	'channel_steps.cuh s/(n - lane + lanes - 1)/(n - lane + lanes - 1 - MUTANT)/'
	'channel_steps.cuh s/(uint64_t)row \* cei_channel_lanes/((uint64_t)row + (MUTANT \&\& row > 3)) * cei_channel_lanes/'
	'channel_steps_kernels.cu s/if (shared->n_in\[way\]\[peer\])/if (!MUTANT \&\& shared->n_in[way][peer])/'
	'channel_steps_kernels.cu s/if (shared->n_out\[way\]\[peer\])/if (!MUTANT \&\& shared->n_out[way][peer])/'
	'channel_steps_kernels.cu s/bytes <= layout.span_max/bytes + (MUTANT \&\& is_to) <= layout.span_max/'
	'channel_steps_kernels.cu s/bytes <= layout.line_span/bytes + (MUTANT \&\& is_to) <= layout.line_span/'
	# Heads are not compared, or not awaited, or have one half, as has the mail.
	'channel.cuh s/if (what.bytes == run.what \&\& bytes.bytes == run.gets\[rank\])/if (MUTANT || (what.bytes == run.what \&\& bytes.bytes == run.gets[rank]))/'
	'channel.cuh s/\&\& bytes.bytes == run.gets\[rank\])/\&\& (MUTANT || bytes.bytes == run.gets[rank]))/'
	'channel.cuh s/&& bytes.number == number/\&\& (MUTANT || bytes.number == number)/'
	'channel.cuh s/heads\[number % 2\]/heads[MUTANT ? 0 : number % 2]/'
	'channel.cuh s/else if (is_peer(run.place, rank))/else if (!MUTANT \&\& is_peer(run.place, rank))/'
	'channel_packets.cuh s/packets.number % 2 \*/(MUTANT ? 0 : packets.number % 2) */'
	'channel_packets.cuh s/ || found.other.number != packets.number/ || (!MUTANT \&\& found.other.number != packets.number)/'
	# Sums are sent by the mail of addends.
	'channel_packets.cuh s/packets.step \* (/(MUTANT ? 0 : packets.step) * (/'
	# One of a warp's lines is taken for all of them.
	'channel_packets.cuh s/\& LAST) == LAST;/\& (MUTANT ? 0x80u : LAST)) == (MUTANT ? 0x80u : LAST);/'
	# Lanes of a warp do not meet before they store or load lines, so each makes an access of its own.
	'channel.cuh /^static .* store_line/,/^}/s/__syncwarp();/if (MUTANT) return store_packet(to, part); &/'
	'channel.cuh /^static .* load_line/,/^}/s/__syncwarp();/if (MUTANT) return load_packet(from); &/'
	# A run is counted when its first block ends, and none is found that is not alone.
	'channel.cuh s/if ((before + own) % 256 != gridDim.x)/if (!MUTANT \&\& (before + own) % 256 != gridDim.x)/'
	'channel.cuh s/is_good = before == number - 1;/is_good = MUTANT || before == number - 1;/'
	# Failures: peers are not told, or before the note; a peer that has released the channel counts
	# as one that has failed; nobody looks at the abort word, or at the clock.
	'channel.cuh s/^\t*poison_peers(place, failure);/if (!MUTANT) &/'
	'channel.cuh s/^\t*release_stores();  *\/\* notes/if (!MUTANT) &/'
	'channel.cuh s/if (poison \&\& /if (!MUTANT \&\& poison \&\& /'
	'channel.cuh s/return rank == awaited \&\& was/return MUTANT || (rank == awaited \&\& was)/'
	'channel.cuh s/rank == awaited \&\& was/rank == awaited \&\& (MUTANT || was)/'
	'channel.cuh s/&place.status->abort;/\&place.status->abort \&\& !MUTANT;/'
	'channel.cuh s/>= place.timeout_ns)/>= place.timeout_ns \&\& !MUTANT)/'
	# What bulk copies cannot move is left out, or nobody waits before a warp moves it.
	'channel_sums.cuh /^static .* store_row_by_warp/,/^}/s/if (is_aligned(target))/if (MUTANT || is_aligned(target))/'
	'channel_sums.cuh /^static .* store_row_by_warp/,/^}/s/cei_bar_wait(/if (!MUTANT) &/'
	'channel_moves.cuh /^static .* place_by_warp/,/^}/s/await_taken<COPY>/if (!MUTANT) &/'
	'channel_moves.cuh /^static .* load_slot(/,/^}/s/copy_rest(/if (!MUTANT) &/'
	'channel_moves.cuh /^static .* store_slot(/,/^}/s/copy_rest(/if (!MUTANT) &/'
)

# edits_of FILE: sets the arguments of sed that make all mutants of a file.
edits=()
edits_of() {
	local i file change

	edits=()
	for i in "${!mutants[@]}"; do
		read -r file change <<< "${mutants[i]}"
		if [ "$file" = "$1" ]; then
			edits+=(-e "${change//MUTANT/(mutant == $((i + 1)))}")
		fi
	done
}

touch "$folder/kernels/bulk.cuh"        # bulk_on_host.h defines what it holds
set_in channel.h -e 's/^\(#define CEI_CHANNEL_LANES_MAX *\)[0-9]*/\14/' \
	-e 's/^\(#define CEI_CHANNEL_CHUNK *\)[0-9]*/\11024/' \
	-e 's/^\(#define CEI_CHANNEL_SENT_MAX *\)[0-9]*/\19216/' \
	-e 's/^\(#define CEI_CHANNEL_LINED_MAX *\)[0-9]*/\124000/' \
	-e 's/^\(#define CEI_CHANNEL_PACKET_THREADS *\)[0-9]*/\196/' \
	-e 's/^\(#define CEI_CHANNEL_ADDERS *\)[0-9]*/\12/'
for name in channel.cuh channel_packets.cuh channel_packets_kernels.cu channel_steps.cuh \
	channel_moves.cuh channel_sums.cuh channel_steps_kernels.cu; do
	edits_of "$name"
	replace_in "$name" "${edits[@]}" -e 's/\(uint32_t POLLS = \)[0-9]*/\14/' \
		-e 's/asm volatile("fence.acq_rel.sys;.*;$/host_release();/' \
		-e 's/asm volatile("st.relaxed.sys.u64.*;$/host_store_late(counter, value);/' \
		-e 's/return \*(const volatile uint32_t \*)&\(.*failed\);/return host_seen(\&\1);/' \
		-e '/asm volatile("ld.acquire.cta/,/;$/c\
			value = host_seen(counter);' \
		-e '/asm volatile("st.release.cta/,/;$/c\
			host_publish(counter, value);' \
		-e '/asm volatile("atom.acq_rel.gpu.add/,/;$/c\
			before = host_add(&state->ended, own);' \
		-e '/ store_packet(void /,/^}/{
			/asm volatile/,/;$/c\
				host_store_packet(to, packet.bytes, packet.number);
		}' \
		-e '/ load_packet(const /,/^}/{
			/asm volatile/,/;$/c\
				host_load_packet(from, &packet.bytes, &packet.number);
		}' \
		-e 's/^\tstore_packet(to, part);/\thost_store_line(to, part.bytes, part.number);/' \
		-e '/ load_line(const /,/^}/{
			s/^\treturn load_packet(from);/\tstruct cei_channel_packet part;\
			host_load_line(from, \&part.bytes, \&part.number);\
			return part;/
		}' \
		-e 's/extern __shared__ .* memory\[\];/char *memory = host_shared();/'
done

# Parameters, for those numbers. channel.cc is C++, and takes of ops/channel/channel.h what C++ can.
mkdir -p "$folder/ops/compute" "$folder/cxx/ops/channel"
sed -e 's/^\(#define SUM_LANES *\)[0-9]*/\13/' \
	-e '/^static uint32_t pair_lanes/,/^}/{
		s/return CEI_CHANNEL_LANES_MAX;/return 4;/
		s/? 4 : 2;/? 2 : 1;/
	}' \
	-e 's/^\(#define PACKET_BLOCKS \)[0-9]*/\13/' \
	-e 's/^\(#define LINE_BLOCKS *\)[0-9]*/\14/' \
	-e 's/^\(#define LINES_SHARE *\)[0-9]*/\12/' \
	"$srcdir/src/ops/channel/gpu_calls.c" > "$folder/gpu_calls.c"
sed -n '/^struct cei_calls {/,/^struct ceov_call cei_calls_at/p' \
	"$srcdir/src/ops/channel/channel.h" > "$folder/cxx/ops/channel/channel.h"
build_c "$folder/gpu_calls.c" "$srcdir/src/ops/channel/call.c" "$srcdir/src/ops/compute/sum.c"
cxx+=(-I"$folder/cxx")

# find MUTANT: plays cases with a mutant until one finds it.
find() {
	local number=$(($1 + 1))

	if ! grep -q "(mutant == $number)" "$folder"/kernels/*; then
		echo "FAIL: this changes nothing: ${mutants[$1]}"
		return 1
	fi
	if timeout 60 "$folder/channel" 3 400 "$number" > "$folder/found" 2>&1; then
		echo "FAIL: no case has found this: ${mutants[$1]}"
		return 1
	fi
}

run_cases channel 120 || exit 1
result=0
for i in "${!mutants[@]}"; do
	find "$i" || result=1
done
# That parts of a line come in ascending order is what lines rest on: without it cases must fail.
if timeout 60 "$folder/channel" 3 400 999 > "$folder/found" 2>&1; then
	echo "FAIL: no case has found that parts of a line come in any order"
	result=1
fi
[ $result = 0 ] && echo "${#mutants[@]} mutants: each was found"
exit $result
