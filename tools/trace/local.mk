# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ceoverlap-trace: joins the trace files of a group's processes
ceoverlap_trace_CPPFLAGS = $(AM_CPPFLAGS) $(JSON_C_CFLAGS)
ceoverlap_trace_LDADD = libceoverlap_core.la $(JSON_C_LIBS)
ceoverlap_trace_SOURCES = \
	%D%/ceoverlap-trace.c
