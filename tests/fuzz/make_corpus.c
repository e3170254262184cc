/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Writes the first inputs of the fuzzers: valid messages of each type, and rings as a client fills
 * them. make_corpus FOLDER: into FOLDER/fuzz_service_wire and FOLDER/fuzz_service_ring, which
 * are there. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "ipc/service_ring.h"
#include "ipc/service_wire.h"

#define HEAD_BYTES 4u                   /* of an input that is a ring */

#define N_ENTRIES  4u

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

/* Its numbers are small, so that more members than there may be would be read out of them. */
static void fill_hello(struct cei_service_hello *hello, uint32_t n_members)
{
	uint32_t i;

	hello->n_ranks = CEI_RANKS_MAX;
	hello->n_members = n_members;
	for (i = 0; i < n_members; i++) {
		hello->members[i].rank = i + 1;
		hello->members[i].kind = i % 2 ? CEOV_PLACE_GPU : CEOV_PLACE_HOST;
	}
	hello->deadline_ns = n_members + 1;
	hello->max_chunk_bytes = 65536;
	strcpy(hello->name, "a client");
}

static void fill_message(struct cei_service_message *message, uint32_t type)
{
	static const uint8_t part[] = "bytes of a program";

	memset(message, 0, sizeof(*message));
	message->type = type;
	if (type == CEI_SERVICE_HELLO) {
		fill_hello(&message->hello, 2);
	} else if (type == CEI_SERVICE_WELCOME) {
		message->welcome.serves = 3;
		message->welcome.n_rings = 2;
	} else if (type == CEI_SERVICE_PLAN) {
		message->plan.n_bytes = sizeof(part);
	} else if (type == CEI_SERVICE_PART) {
		message->part.n_bytes = sizeof(part);
		message->part.bytes = part;
	} else if (type == CEI_SERVICE_REFUSED || type == CEI_SERVICE_FAILURE) {
		message->failure.error = CEOV_ERR_TIMEOUT;
		strcpy(message->failure.text, "what, where, what to do");
	}
}

static void write_messages(const char *folder)
{
	static uint8_t bytes[CEI_SERVICE_BYTES_MAX];
	struct cei_service_message message;
	uint32_t type;

	for (type = CEI_SERVICE_HELLO; type <= CEI_SERVICE_STAYED; type++) {
		fill_message(&message, type);
		write_file(folder, type, bytes, cei_service_encode(&message, bytes));
	}
	fill_message(&message, CEI_SERVICE_HELLO);
	fill_hello(&message.hello, CEI_MEMBERS_MAX);
	write_file(folder, type, bytes, cei_service_encode(&message, bytes));
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

int main(int argc, char **argv)
{
	char folder[4000];

	if (argc != 2 || strlen(argv[1]) > sizeof(folder) - 100) {
		fprintf(stderr, "make_corpus FOLDER\n");
		return EXIT_FAILURE;
	}
	snprintf(folder, sizeof(folder), "%s/fuzz_service_wire", argv[1]);
	write_messages(folder);
	snprintf(folder, sizeof(folder), "%s/fuzz_service_ring", argv[1]);
	write_ring(folder, 0, 3);
	write_ring(folder, 300, 2);
	write_ring(folder, 255, 1);
	return EXIT_SUCCESS;
}
