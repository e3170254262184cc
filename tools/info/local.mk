# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ceoverlap-info: what the runtime knows of the machine
ceoverlap_info_CPPFLAGS = $(AM_CPPFLAGS) $(JSON_C_CFLAGS)
ceoverlap_info_LDADD = libceoverlap_core.la $(JSON_C_LIBS)
ceoverlap_info_SOURCES = \
	%D%/ceoverlap-info.c \
	%D%/build.c \
	%D%/info.h \
	%D%/links.c \
	%D%/machine.c \
	%D%/rail.c %D%/rail.h \
	%D%/routes.c \
	%D%/settings.c \
	%D%/tree.c \
	%D%/words.c
if HAVE_CUDA
ceoverlap_info_SOURCES += \
	%D%/cuda.c
else
ceoverlap_info_SOURCES += \
	%D%/absent.c
endif
dist_bashcompletion_DATA += %D%/completions/ceoverlap-info
