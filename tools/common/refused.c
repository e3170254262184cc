/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "tools/common/refused.h"

#include <stdio.h>
#include <string.h>

/* Whether a short option is followed by its argument. argp wraps a program's table in one of its
 * own, with the options for help beside it. */
static int takes_argument(const struct argp *argp, int letter)
{
	const struct argp_option *option = argp->options;
	const struct argp_child *child = argp->children;

	for (; option && (option->name || option->key); option++)
		if (option->key == letter)
			return option->arg != NULL;
	for (; child && child->argp; child++)
		if (takes_argument(child->argp, letter))
			return 1;
	return 0;
}

/* The argument follows its option as a word of its own, or stands in the same one, where letters of
 * other options may come before. */
struct refused_option refused_option(const struct argp_state *state, const char *text)
{
	const char *word = state->argv[state->next - 1];
	struct refused_option option = { "its option" };

	if (text <= word || text > word + strlen(word) || word[0] != '-') {
		if (state->next <= 2)
			return option;
		word = state->argv[state->next - 2];
	}
	if (word[1] == '-') {
		snprintf(option.text, sizeof(option.text), "%.*s", (int)strcspn(word, "="), word);
		return option;
	}
	while (*++word && word[1] && !takes_argument(state->root_argp, *word))
		;
	snprintf(option.text, sizeof(option.text), "-%c", *word);
	return option;
}
