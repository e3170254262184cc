# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# daemon: ceoverlapd, which moves data for many processes
if HAVE_DAEMON
sbin_PROGRAMS = ceoverlapd
noinst_LTLIBRARIES += libceoverlap_daemon.la
libceoverlap_daemon_la_CFLAGS = $(AM_CFLAGS) $(SYSTEMD_CFLAGS) $(INIH_CFLAGS) $(JSON_C_CFLAGS)
libceoverlap_daemon_la_LIBADD = libceoverlap_core.la $(SYSTEMD_LIBS) $(INIH_LIBS) $(JSON_C_LIBS)
libceoverlap_daemon_la_SOURCES =
include src/daemon/server/local.mk
include src/daemon/operator/local.mk
ceoverlapd_LDADD = libceoverlap_daemon.la
ceoverlapd_SOURCES = %D%/ceoverlapd.c
endif
