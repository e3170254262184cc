# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ceoverlap-run: starts the processes of a group on this machine
# Objects of its own, because the tests have port.c in a library.
ceoverlap_run_CPPFLAGS = $(AM_CPPFLAGS)
ceoverlap_run_LDADD = libceoverlap_core.la
ceoverlap_run_SOURCES = \
	%D%/ceoverlap-run.c \
	%D%/labels.c \
	%D%/orphans.c \
	%D%/process.c \
	%D%/run.h \
	%D%/supervise.c
dist_bashcompletion_DATA += %D%/completions/ceoverlap-run
