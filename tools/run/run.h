/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef RUN_H
#define RUN_H

/*
 * ceoverlap-run starts the processes of one group on this machine, passes signals on to them, and
 * ends all when one fails. When it ends, nothing that it started is left. It has one thread, which
 * makes all calls here.
 */

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/common/port.h"

#define RUN_PROCESSES_MAX 1024u
#define RUN_JOB_BYTES     48u
#define RUN_LINE_BYTES    16384u        /* longer lines are printed in parts of this size */

#define RUN_STATUS_TIMEOUT 124          /* exit statuses as those of timeout(1) and of a shell */
#define RUN_STATUS_NO_EXEC 126
#define RUN_STATUS_ABSENT  127

struct run_options {
	uint32_t  n_processes;
	uint32_t  n_nodes;              /* 0: all are on the node that this machine is */
	int       has_labels;
	uint64_t  timeout_ns;           /* 0: none */
	uint64_t  grace_ns;             /* from SIGTERM to SIGKILL */
	char    **program;              /* with its arguments; NULL ends them */
};

/* One of the two pipes by which a process's output comes, if it is labelled. */
struct run_stream {
	int      fd;                    /* -1: none, or closed */
	uint32_t n;                     /* bytes of a line that is not complete */
	char     line[RUN_LINE_BYTES];
};

struct run_process {
	pid_t              pid;         /* also its process group's number; 0: it has ended */
	struct run_stream *streams;     /* two: standard output and errors; NULL: not labelled */
};

struct run {
	const struct run_options *options;
	char                store[PORT_STORE_BYTES];    /* where the processes meet; its port is
							 * reserved as long as this program runs */
	char                job[RUN_JOB_BYTES];         /* a name that no other run has */
	struct run_process  processes[RUN_PROCESSES_MAX];
	uint32_t            n_started;
	uint32_t            n_alive;
	int                 status;     /* what this program ends with; 0: nothing failed yet */
	int                 has_told;   /* the processes got SIGTERM because one failed, or because
					 * time is over */
	uint64_t            timeout_at_ns;      /* UINT64_MAX: never */
	uint64_t            kill_at_ns;         /* UINT64_MAX: nothing has begun to end */
	int                 signals;            /* descriptor from which signals are read */
	sigset_t            mask_before;        /* the signal mask that processes start with */
	struct sigaction    pipe_before;        /* and what they do at SIGPIPE */
};

/* --- process.c ---------------------------------------------------------------------------- */

/* Starts the process with the next number. Returns 0, or -1, reported on stderr. */
int  run_process_start(struct run *run);

/* Sends a signal to the process groups of all processes that have not ended. */
void run_process_signal(const struct run *run, int number);

/* --- labels.c ----------------------------------------------------------------------------- */

/* Reads what has come by a stream, at most one buffer of it, and prints its complete lines. At the
 * end of the stream it prints the rest, and closes it. Returns 1 if something has come, else 0.
 * which: 0 standard output, 1 errors. */
int  run_label_read(struct run *run, uint32_t process, int which);

/* Prints what is left in the pipes, and closes them. Only when no process writes any more. */
void run_labels_end(struct run *run);

/* --- supervise.c -------------------------------------------------------------------------- */

/* Takes over the signals that this program waits for. Call it before a process is started. Returns
 * 0, or -1, reported on stderr. */
int  run_signals_take(struct run *run);

/* Tells all processes to end: SIGTERM now, once, and SIGKILL after the grace time. Unless a status
 * is there already, this program will end with this one. */
void run_tell_to_end(struct run *run, int status);

/* Returns when all processes that were started have ended. */
void run_supervise(struct run *run);

/* --- orphans.c ---------------------------------------------------------------------------- */

/* Becomes the parent of descendants whose parents end. Returns 0, or -1, reported on stderr. */
int  run_orphans_adopt(void);

/* Kills all that descends from this process, and reaps it. Reports on stderr what the kernel does
 * not end within 10 s. */
void run_orphans_end(void);

#endif /* RUN_H */
