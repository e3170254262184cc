/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CTL_FRAME_H
#define CTL_FRAME_H

/* Draws scenes: as a screen with ANSI's sequences, or as lines of text. */

#include <stdint.h>
#include <stdio.h>

#include "tools/ctl/scene.h"

struct frame_look {
	uint32_t n_columns;
	uint32_t n_rows;
	int      has_colours;
	int      is_utf8;               /* blocks instead of ASCII */
};

/* Draws a whole screen, from its first line to its last. */
void frame_draw(FILE *out, const struct frame_look *look, const struct scene *scene);

/* Writes a line for each link and client, each with the time of day. */
void frame_print(FILE *out, const struct scene *scene);

#endif /* CTL_FRAME_H */
