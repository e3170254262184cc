# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# daemon: ceoverlapd, which moves data for many processes
if HAVE_DAEMON
sbin_PROGRAMS = ceoverlapd
noinst_LTLIBRARIES += libceoverlap_daemon.la
libceoverlap_daemon_la_CFLAGS = $(AM_CFLAGS) $(SYSTEMD_CFLAGS) $(INIH_CFLAGS) $(JSON_C_CFLAGS)
libceoverlap_daemon_la_LIBADD = libceoverlap_core.la $(SYSTEMD_LIBS) $(INIH_LIBS) $(JSON_C_LIBS)
libceoverlap_daemon_la_SOURCES = \
	%D%/account.c %D%/account.h \
	%D%/client.c %D%/client.h \
	%D%/client_assembly.c \
	%D%/client_plans.c \
	%D%/client_private.h \
	%D%/client_tasks.c \
	%D%/control.c %D%/control.h \
	%D%/fields.c %D%/fields.h \
	%D%/fences.c %D%/fences.h \
	%D%/flight.c %D%/flight.h \
	%D%/gpus.c %D%/gpus.h \
	%D%/intake.c %D%/intake.h \
	%D%/journal.c %D%/journal.h \
	%D%/limits.c %D%/limits.h \
	%D%/links.c %D%/links.h \
	%D%/listener.c %D%/listener.h \
	%D%/metrics.c %D%/metrics.h \
	%D%/operation.c %D%/operation.h \
	%D%/outlet.c %D%/outlet.h \
	%D%/picture.c %D%/picture.h \
	%D%/porter.c %D%/porter.h \
	%D%/reload.c %D%/reload.h \
	%D%/server.c %D%/server.h \
	%D%/settings.c %D%/settings.h \
	%D%/usage.c %D%/usage.h
ceoverlapd_LDADD = libceoverlap_daemon.la
ceoverlapd_SOURCES = %D%/ceoverlapd.c
endif
