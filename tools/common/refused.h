/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef REFUSED_H
#define REFUSED_H

#include <argp.h>

/* The option whose argument, or a part of it, the text is, as the user wrote it: "--nodes" or "-n".
 * For messages of a parser that refuses the argument which it was just given. */
struct refused_option {
	char text[64];
};
struct refused_option refused_option(const struct argp_state *state, const char *text);

#endif /* REFUSED_H */
