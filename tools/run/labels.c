/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Output with the number of its process before each line. Lines are printed whole, so that those
 * of several processes do not mix. */

#include "tools/run/run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void print_line(uint32_t process, int which, const char *text, size_t n)
{
	FILE *to = which ? stderr : stdout;

	fprintf(to, "%u: ", process);
	fwrite(text, 1, n, to);
	fputc('\n', to);
}

/* Prints the complete lines, and also an incomplete one that fills the buffer. */
static void print_lines(struct run_stream *stream, uint32_t process, int which)
{
	char *text = stream->line, *end;

	while ((end = memchr(text, '\n', stream->n))) {
		print_line(process, which, text, (size_t)(end - text));
		stream->n -= (uint32_t)(end + 1 - text);
		text = end + 1;
	}
	if (stream->n == RUN_LINE_BYTES) {
		print_line(process, which, text, stream->n);
		stream->n = 0;
	}
	memmove(stream->line, text, stream->n);
}

static void finish(struct run_stream *stream, uint32_t process, int which)
{
	if (stream->n)
		print_line(process, which, stream->line, stream->n);
	stream->n = 0;
	close(stream->fd);
	stream->fd = -1;
}

/* Nobody can see what the processes say any more, so they end. */
static void flush(struct run *run, FILE *stream)
{
	if ((!fflush(stream) && !ferror(stream)) || run->has_told)
		return;
	fprintf(stderr, "ceoverlap-run: cannot write what the processes say: %s\n",
		strerror(errno));
	run_tell_to_end(run, EXIT_FAILURE);
}

int run_label_read(struct run *run, uint32_t process, int which)
{
	struct run_stream *stream = &run->processes[process].streams[which];
	ssize_t n = read(stream->fd, stream->line + stream->n, RUN_LINE_BYTES - stream->n);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n > 0) {
		stream->n += (uint32_t)n;
		print_lines(stream, process, which);
	} else {
		finish(stream, process, which);
	}
	flush(run, which ? stderr : stdout);
	return 1;
}

static void end_stream(struct run *run, uint32_t process, int which)
{
	struct run_stream *stream = &run->processes[process].streams[which];

	while (stream->fd >= 0 && run_label_read(run, process, which))
		continue;
	if (stream->fd >= 0)
		finish(stream, process, which);
	flush(run, which ? stderr : stdout);
}

void run_labels_end(struct run *run)
{
	uint32_t i;

	for (i = 0; i < run->n_started; i++) {
		if (!run->processes[i].streams)
			continue;
		end_stream(run, i, 0);
		end_stream(run, i, 1);
		free(run->processes[i].streams);
		run->processes[i].streams = NULL;
	}
}
