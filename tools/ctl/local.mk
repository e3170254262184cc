# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ceoverlapctl: shows what a ceoverlapd does, and tells it what to do
if HAVE_DAEMON
bin_PROGRAMS += ceoverlapctl
ceoverlapctl_CPPFLAGS = $(AM_CPPFLAGS) $(JSON_C_CFLAGS)
ceoverlapctl_LDADD = libceoverlap_core.la $(JSON_C_LIBS)
ceoverlapctl_SOURCES = \
	%D%/ask.c %D%/ctl.h \
	%D%/ceoverlapctl.c \
	%D%/fields.c \
	%D%/frame.c %D%/frame.h \
	%D%/monitor.c \
	%D%/scene.c %D%/scene.h \
	%D%/show.c \
	tools/common/refused.c tools/common/refused.h \
	tools/common/streams.c tools/common/streams.h
dist_bashcompletion_DATA += %D%/completions/ceoverlapctl
endif
