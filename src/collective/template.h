/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_TEMPLATE_H
#define CEI_TEMPLATE_H

/*
 * What the plan templates share: checks of what the caller gave, and the transfer of one piece.
 * Results of functions that return int are 0, or errors that have been raised.
 */

#include <stddef.h>
#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

struct cei_template {
	ceov_plan          *plan;
	const char         *name;               /* of the public call, for messages */
	uint32_t            rank;               /* the rank that the plan belongs to */
	uint32_t            n_ranks;
	uint32_t            n_pieces;           /* from here on as the caller said */
	ceov_buffer *const *targets;
	ceov_signal *const *arrived;
	ceov_signal *const *free;
	uint64_t            n_counters;         /* that each arrived and free signal needs */
};

struct cei_part {                       /* bytes that belong together, cut into pieces */
	uint64_t     bytes;
	ceov_buffer *source;
	uint64_t     source_at;
	uint64_t     target_at;
	ceov_signal *ready;                     /* NULL: the source is ready at the launch */
	uint32_t     ready_at;                  /* the first piece's counter in ready */
	uint32_t     counter;                   /* likewise in arrived and free */
};

/* Checks the plan, and the size of the struct that the caller filled (base/sized.h); sets rank and
 * n_ranks. plan and name are set by the caller. */
int cei_template_begin(struct cei_template *template, const void *args, size_t first_bytes,
		       size_t known_bytes);

/* Raises CEOV_ERR_INVALID with these words about the rank. */
int cei_template_refuse(const struct cei_template *template, uint32_t rank, const char *what);

/* Checks that there are arrays and pieces. */
int cei_template_check(const struct cei_template *template);

/* Checks that the signal has at least n_counters; `which` is its name in the caller's struct. */
int cei_template_check_signal(const struct cei_template *template, uint32_t rank,
			      const char *which, const struct ceov_signal *signal,
			      uint64_t n_counters);

/* Checks the target and signals of a rank to which pieces go. */
int cei_template_check_target(const struct cei_template *template, uint32_t rank);

/* Checks the own target, which may be NULL unless the rank passes pieces on from there. In that
 * case it also needs the own arrived signal. */
int cei_template_check_own(const struct cei_template *template, int passes_on);

uint64_t cei_template_piece_bytes(uint64_t bytes, uint32_t n_pieces);

/* Checks the free signal, where there are any, of a rank to which another one passes pieces on. */
int  cei_template_check_free(const struct cei_template *template, uint32_t rank);

/* The transfer that was added last goes to a rank that passes the piece on, from its target, to
 * this one: it also waits until this one has freed the piece, which it cannot before the piece of
 * an earlier launch has reached it and has left that target. Does nothing without free signals. */
int  cei_template_await_also(const struct cei_template *template, const struct cei_part *part,
			     uint32_t rank, uint32_t piece);

/* Adds the transfer of a piece to the rank, and declares the marks that it awaits. is_first: no
 * transfer before it awaits this piece's ready counter. */
int cei_template_add(const struct cei_template *template, const struct cei_part *part,
		     uint32_t rank, uint32_t piece, int is_first);

#endif /* CEI_TEMPLATE_H */
