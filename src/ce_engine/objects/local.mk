# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ce_engine/objects: what the handles of the API stand for, and the context that holds it
libceoverlap_core_la_SOURCES += \
	%D%/abort.c %D%/abort.h \
	%D%/far.c %D%/far.h \
	%D%/buffer.c %D%/buffer.h \
	%D%/context.c %D%/context.h \
	%D%/door.h \
	%D%/export.c %D%/export.h \
	%D%/object.c %D%/object.h \
	%D%/plan.h \
	%D%/plan_waits.h \
	%D%/settings.c \
	%D%/signal.c %D%/signal.h \
	%D%/signal_verbs.c %D%/signal_abort.c \
	%D%/tickets.c %D%/tickets.h \
	%D%/works.h
