# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ce_engine, what the application builds: the context, buffers, signals, plans
libceoverlap_core_la_SOURCES += \
	%D%/context.c %D%/context.h \
	%D%/open.c \
	%D%/door.h %D%/here.c \
	%D%/signal_renew.c \
	%D%/settings.c \
	%D%/warm.c %D%/warm.h \
	%D%/object.c %D%/object.h \
	%D%/tombstones.c %D%/tombstones.h \
	%D%/export.c %D%/export.h \
	%D%/buffer.c %D%/buffer.h \
	%D%/signal.c %D%/signal.h \
	%D%/signal_verbs.c %D%/signal_abort.c \
	%D%/plan_builder.c %D%/plan_builder.h \
	%D%/plan.h \
	%D%/plan_release.c %D%/plan_release.h \
	%D%/plan_import.c %D%/plan_import.h \
	%D%/program.c %D%/program.h \
	%D%/program_check.c %D%/program_triggers.c \
	%D%/program_explain.c %D%/program_explain.h \
	%D%/program_route.c %D%/program_cut.c \
	%D%/program_wire.c %D%/program_wire.h \
	%D%/plan_commit.c \
	%D%/program_order.c %D%/program_order.h \
	%D%/order_queries.c %D%/order_queries.h \
	%D%/overlap_sweep.c %D%/overlap_sweep.h \
	%D%/program_overlap.c \
	%D%/area.c %D%/area.h \
	%D%/plan_waits.c %D%/plan_waits.h \
	%D%/plan_explain.c \
	%D%/plan_bind.c %D%/plan_bind.h \
	%D%/split.c %D%/split.h

# ce_engine, what travels, and the turn
libceoverlap_core_la_SOURCES += \
	%D%/launch.h \
	%D%/expiry.c %D%/expiry.h \
	%D%/ticket.c \
	%D%/tickets.c %D%/tickets.h \
	%D%/lower.c %D%/lower.h \
	%D%/stream_marks.c \
	%D%/stream_queue.c \
	%D%/admission.c %D%/admission.h \
	%D%/turn.c %D%/engine.h \
	%D%/trace.c %D%/trace.h \
	%D%/trace_file.c

# Stage 1: doorbell
libceoverlap_core_la_SOURCES += \
	%D%/doorbell.c %D%/doorbell.h \
	%D%/parking.c %D%/parking.h

# Stage 2: scheduler
libceoverlap_core_la_SOURCES += \
	%D%/scheduler.c %D%/scheduler.h \
	%D%/queues.c %D%/queues.h \
	%D%/ports.c %D%/ports.h \
	%D%/staging.c %D%/staging.h

# Stage 3: backend: the engine's lanes to the movers
libceoverlap_core_la_SOURCES += \
	%D%/lanes.c %D%/lanes.h \
	%D%/movers.c %D%/movers.h

# Stage 4: completion
libceoverlap_core_la_SOURCES += \
	%D%/completion.c %D%/completion.h
