# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# collective: plan templates
libceoverlap_core_la_SOURCES += \
	%D%/broadcast.c \
	%D%/levels.c %D%/levels.h \
	%D%/template.c %D%/template.h \
	%D%/templates.c
