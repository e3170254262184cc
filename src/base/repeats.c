/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Limits how many log lines of one kind are written. */

#include "base/repeats.h"

#include <string.h>

/* Finds the entry for the kind of `line`. If there is none, returns the entry that was unused for
 * longest, which the caller then replaces. */
static struct cei_repeat *find(struct cei_repeats *repeats, const struct cei_repeat *line)
{
	struct cei_repeat *kind, *oldest = &repeats->kinds[0];
	uint32_t i;

	for (i = 0; i < CEI_REPEATS_KINDS; i++) {
		kind = &repeats->kinds[i];
		if (kind->format == line->format && kind->code == line->code)
			return kind;
		if (kind->seen_ns < oldest->seen_ns)
			oldest = kind;
	}
	return oldest;
}

static void begin_while(struct cei_repeat *kind, uint64_t now_ns)
{
	kind->while_ns = kind->n_held ? 2 * kind->while_ns : CEI_REPEATS_WHILE_NS;
	if (kind->while_ns > CEI_REPEATS_WHILE_MAX_NS)
		kind->while_ns = CEI_REPEATS_WHILE_MAX_NS;
	kind->begun_ns = now_ns;
	kind->n_left = kind->n_held ? 1 : CEI_REPEATS_LINES;
}

int cei_repeats_pass(struct cei_repeats *repeats, const struct cei_repeat *line,
		     uint64_t now_ns, uint64_t *ret_n_held, struct cei_repeat *ret_gone)
{
	struct cei_repeat *kind = find(repeats, line);

	ret_gone->n_held = 0;
	if (kind->format != line->format || kind->code != line->code) {
		*ret_gone = *kind;
		memset(kind, 0, sizeof(*kind));
		kind->format = line->format;
		kind->code = line->code;
		begin_while(kind, now_ns);
	}
	kind->seen_ns = now_ns;
	if (now_ns - kind->begun_ns >= kind->while_ns)
		begin_while(kind, now_ns);
	if (!kind->n_left) {
		kind->n_held++;
		return 0;
	}
	kind->n_left--;
	memcpy(kind->text, line->text, sizeof(kind->text));
	*ret_n_held = kind->n_held;
	kind->n_held = 0;
	return 1;
}
