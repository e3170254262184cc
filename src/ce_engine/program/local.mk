# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ce_engine/program: what a plan does, as a table of numbers, and what is refused, found and cut
# in it. It needs no context.
libceoverlap_core_la_SOURCES += \
	%D%/area.c %D%/area.h \
	%D%/program.c %D%/program.h \
	%D%/program_check.c \
	%D%/program_cut.c %D%/program_cut.h \
	%D%/program_explain.c %D%/program_explain.h \
	%D%/program_order.c %D%/program_order.h \
	%D%/program_overlap.c \
	%D%/program_route.c \
	%D%/program_wire.c %D%/program_wire.h
