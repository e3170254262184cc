/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GATHERED_H
#define CEI_GATHERED_H

/* The result of an all-gather: bytes of each process, by the process's number. */

#include <stdint.h>

#define CEI_GATHERED_PROCESSES_MAX 65536u
#define CEI_GATHERED_BYTES_MAX     65536u       /* of one process */

struct cei_gathered {
	uint32_t  n_processes;
	uint64_t *ends;                 /* by process: where its bytes end; they begin where those
					 * of the process before end */
	uint8_t  *bytes;                /* ends[n_processes - 1] of them */
};

/* Allocates room for parts of these lengths. CEOV_ERR_INVALID: there are no processes or too
 * many, or a part is too long; CEOV_ERR_NO_MEMORY. Not raised. */
int  cei_gathered_init(struct cei_gathered *gathered, uint32_t n_processes,
		       const uint32_t *n_bytes);

/* Zeroes are allowed. */
void cei_gathered_fini(struct cei_gathered *gathered);

/* Returns the bytes of a process and how many they are. */
uint8_t *cei_gathered_part(const struct cei_gathered *gathered, uint32_t process,
			   uint32_t *ret_n_bytes);

/* How messages call those whose bytes are gathered. */
struct cei_gathered_words {
	const char *one, *many;         /* "process", "processes" */
	const char *are;                /* what two say of the same one: "are process" */
	const char *at;                 /* what is before an address: "store at" */
	const char *other;              /* what can be chosen if the address is taken */
};

extern const struct cei_gathered_words cei_processes, cei_ranks_of_node;

/* Lists those of n whose byte in has is 0, for messages: "process 3", "processes 3, 4, 9 and 12
 * more". Returns how many they are; 0: the text is empty. */
#define CEI_MISSING_TEXT_BYTES 128u
uint32_t cei_missing_text(const struct cei_gathered_words *words, const uint8_t *has, uint32_t n,
			  char ret_text[CEI_MISSING_TEXT_BYTES]);

#endif /* CEI_GATHERED_H */
