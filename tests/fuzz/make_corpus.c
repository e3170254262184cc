/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Writes the first inputs of the fuzzers: valid messages of each type, rings as a client fills
 * them, and programs. make_corpus FOLDER: into FOLDER/fuzz_messages, FOLDER/fuzz_service_ring
 * and FOLDER/fuzz_program_wire, which are there. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "ce_engine/program/program_wire.h"
#include "ipc/service_ring.h"
#include "tests/made_message.h"

#define HEAD_BYTES 4u                   /* of an input that is a ring */

#define N_ENTRIES  4u
#define N_MESSAGES 3u                   /* of a type */
#define SHORT_BYTES 1500u

static void write_file(const char *folder, uint32_t number, const void *bytes, size_t n_bytes)
{
	char path[4096];
	FILE *file;
	int n = snprintf(path, sizeof(path), "%s/%u", folder, number);

	file = n > 0 && (size_t)n < sizeof(path) ? fopen(path, "wb") : NULL;
	if (!file || fwrite(bytes, 1, n_bytes, file) != n_bytes || fclose(file)) {
		perror(folder);
		exit(EXIT_FAILURE);
	}
}

/* Some valid messages of each type, short ones, since fuzzers like short inputs. */
static void write_messages(const char *folder)
{
	static uint64_t message[MADE_BYTES_MAX / sizeof(uint64_t)];
	static uint8_t bytes[1 + MADE_BYTES_MAX];
	const struct cei_protocol *protocol;
	uint32_t i, type, k, number = 0;
	uint64_t state = 1;
	size_t n_bytes;

	for (i = 0; i < made_n_protocols; i++) {
		protocol = made_protocols[i].protocol;
		bytes[0] = (uint8_t)i;
		for (type = 1; type < protocol->n_kinds; type++) {
			for (k = 0; k < N_MESSAGES; ) {
				made_message(&state, protocol, type, message);
				n_bytes = 1 + made_bytes(protocol, message, bytes + 1);
				if (n_bytes > SHORT_BYTES)
					continue;
				write_file(folder, number++, bytes, n_bytes);
				k++;
			}
		}
	}
}

/* The entries that a client has put after `before` launches, and those of the lap before behind
 * them, as far as there were any: few, since fuzzers like short inputs. */
static void write_ring(const char *folder, uint32_t before, uint32_t n)
{
	uint8_t input[HEAD_BYTES + N_ENTRIES * sizeof(struct cei_service_entry)] = { 0 };
	struct cei_service_entry entry;
	uint32_t i, turn;

	input[0] = (uint8_t)(n & 1);            /* see fuzz_service_ring.c */
	input[1] = (uint8_t)before;
	input[2] = (uint8_t)(before >> 8);
	for (i = 0; i < N_ENTRIES; i++) {
		memset(&entry, 0, sizeof(entry));
		turn = before + i + 1;
		if (i >= n)
			turn = turn > CEI_SERVICE_ENTRIES ? turn - CEI_SERVICE_ENTRIES : 0;
		atomic_store(&entry.turn, turn);
		atomic_store(&entry.number, turn);
		atomic_store(&entry.plan, i);
		atomic_store(&entry.deadline_ns, i % 2);
		memcpy(input + HEAD_BYTES + i * sizeof(entry), &entry, sizeof(entry));
	}
	write_file(folder, before, input, sizeof(input));
}

static void fill_transfer(struct cei_program *program, uint32_t i)
{
	struct cei_program_transfer *transfer = &program->transfers[i];

	transfer->source.buffer = 0;
	transfer->target.buffer = 1;
	transfer->row_bytes = 64;
	transfer->n_rows = 1 + i;
	transfer->source.pitch_bytes = transfer->target.pitch_bytes = i ? 128 : 0;
	transfer->target.offset_bytes = 1024u * i;
	transfer->source_ready.signal = 0;
	transfer->source_ready.value = 1;
	transfer->target_free.signal = CEI_PROGRAM_NONE;
	transfer->then.signal = 1;
	transfer->then.value = 1 + i;
	transfer->has_direct = 1;
	transfer->route = CEI_PROGRAM_NONE;
}

/* Rank 0 sends to rank 1. */
static void fill_program(struct cei_program *program, uint32_t n_transfers)
{
	uint32_t i, n = n_transfers ? 2 : 0;

	program->n_ranks = 2;
	program->max_chunk_bytes = program->mark_group_bytes = 65536;
	program->has_template = !n_transfers;
	program->floating = CEI_PROGRAM_NONE;
	program->n_movers = 1;
	program->n_buffers = program->n_signals = n;
	program->n_transfers = n_transfers;
	program->n_expected = n / 2;
	if (cei_program_alloc(program))
		exit(EXIT_FAILURE);
	program->movers[0].moves = CEI_MOVES_WITHIN_HOST;
	program->movers[0].gpu = program->movers[0].place = CEOV_NOBODY;
	for (i = 0; i < n; i++) {
		program->buffers[i].rank = program->signals[i].rank = i;
		program->buffers[i].reached = program->signals[i].reached = 1;
		program->buffers[i].gpu = program->buffers[i].place = CEOV_NOBODY;
		program->buffers[i].start = (uint64_t)i << 20;
		program->buffers[i].size_bytes = 4096;
		program->signals[i].n_counters = 1;
		program->signals[i].flags = CEI_PROGRAM_SEEN;
	}
	for (i = 0; i < n_transfers; i++)
		fill_transfer(program, i);
	if (program->n_expected)
		program->expected[0].value = 1;
}

static void write_program(const char *folder, uint32_t n_transfers)
{
	struct cei_program program = { 0 };
	static uint8_t bytes[65536];

	fill_program(&program, n_transfers);
	if (cei_program_verify(&program) || cei_program_bytes(&program) > sizeof(bytes)) {
		fprintf(stderr, "make_corpus: a program of %u transfers is none\n", n_transfers);
		exit(EXIT_FAILURE);
	}
	cei_program_write(&program, bytes);
	write_file(folder, n_transfers, bytes, cei_program_bytes(&program));
	cei_program_fini(&program);
}

int main(int argc, char **argv)
{
	char folder[4000];

	if (argc != 2 || strlen(argv[1]) > sizeof(folder) - 100) {
		fprintf(stderr, "make_corpus FOLDER\n");
		return EXIT_FAILURE;
	}
	snprintf(folder, sizeof(folder), "%s/fuzz_messages", argv[1]);
	write_messages(folder);
	snprintf(folder, sizeof(folder), "%s/fuzz_service_ring", argv[1]);
	write_ring(folder, 0, 3);
	write_ring(folder, 300, 2);
	write_ring(folder, 255, 1);
	snprintf(folder, sizeof(folder), "%s/fuzz_program_wire", argv[1]);
	write_program(folder, 0);
	write_program(folder, 1);
	write_program(folder, 3);
	return EXIT_SUCCESS;
}
