/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "tools/common/refused.h"

#include <stdio.h>
#include <string.h>

/* The argument follows its option as a word of its own, or stands in the same one. */
struct refused_option refused_option(const struct argp_state *state, const char *text)
{
	const char *word = state->argv[state->next - 1];
	struct refused_option option = { "its option" };
	size_t n = strcspn(word, "=");

	if (text > word && text <= word + strlen(word) && word[0] == '-')
		n = word[1] == '-' ? n : 2;
	else if (state->next > 2)
		n = strlen(word = state->argv[state->next - 2]);
	else
		return option;
	snprintf(option.text, sizeof(option.text), "%.*s", (int)n, word);
	return option;
}
