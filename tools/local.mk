# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# --- tools ------------------------------------------------------------------------------

ceoverlap_bench_CPPFLAGS = $(AM_CPPFLAGS) $(JSON_C_CFLAGS)
ceoverlap_bench_LDADD = libceoverlap_core.la $(JSON_C_LIBS)
ceoverlap_bench_SOURCES = \
	%D%/ceoverlap-bench.c \
	%D%/bench.h \
	%D%/bench_cases.h \
	%D%/bench_world.c \
	%D%/bench_device.c %D%/bench_device.h \
	%D%/bench_group.c %D%/bench_group.h \
	%D%/bench_children.c %D%/bench_children.h \
	%D%/bench_output.c %D%/bench_output.h \
	%D%/streams.c %D%/streams.h \
	%D%/bench_p2p.c \
	%D%/bench_doorbell.c \
	%D%/bench_collective.c %D%/bench_collective.h \
	%D%/bench_methods.c \
	%D%/bench_engine.c \
	%D%/bench_plan.c \
	%D%/bench_library.c %D%/bench_library.h \
	%D%/bench_nccl.c \
	%D%/bench_options.c %D%/bench_options.h \
	%D%/bench_report.c

# ceoverlap-bench sweep: what methods carry; traces
ceoverlap_bench_LDADD += -lm
ceoverlap_bench_SOURCES += \
	%D%/bench_sweep.c %D%/bench_sweep.h \
	%D%/bench_sweep_world.c \
	%D%/bench_sweep_plans.c \
	%D%/bench_sweep_job.c \
	%D%/bench_sweep_random.c \
	%D%/bench_sweep_urgent.c \
	%D%/bench_sweep_load.c \
	%D%/bench_sweep_trace.c \
	%D%/bench_sweep_options.c \
	%D%/bench_sweep_report.c \
	%D%/bench_sweep_html.c \
	%D%/bench_sweep_svg.c \
	%D%/bench_sweep_curve.c \
	%D%/bench_trace.c %D%/bench_trace.h

# ceoverlap-bench overlap: operators
ceoverlap_bench_SOURCES += \
	%D%/bench_overlap.c %D%/bench_overlap.h \
	%D%/bench_overlap_set.c \
	%D%/bench_overlap_methods.c \
	%D%/bench_overlap_check.c \
	%D%/bench_overlap_options.c \
	%D%/bench_overlap_report.c \
	%D%/bench_models.c %D%/bench_models.h \
	%D%/bench_values.c %D%/bench_values.h \
	%D%/bench_blas.c %D%/bench_blas.h

# ceoverlap-bench measure: links, for the router
ceoverlap_bench_SOURCES += \
	%D%/bench_measure.c %D%/bench_measure.h \
	%D%/bench_measure_pairs.c \
	%D%/bench_measure_sets.c \
	%D%/bench_measure_host.c \
	%D%/bench_measure_report.c
if HAVE_CUDA
ceoverlap_bench_LDADD += libwork_kernels.la
ceoverlap_bench_SOURCES += \
	%D%/bench_measure_cuda.c \
	%D%/bench_cuda.c %D%/bench_cuda.h \
	%D%/bench_cuda_work.c
endif

ceoverlap_info_CPPFLAGS = $(AM_CPPFLAGS) $(JSON_C_CFLAGS)
ceoverlap_info_LDADD = libceoverlap_core.la $(JSON_C_LIBS)
ceoverlap_info_SOURCES = \
	%D%/ceoverlap-info.c \
	%D%/streams.c %D%/streams.h \
	%D%/info.h \
	%D%/info_words.c \
	%D%/info_tree.c \
	%D%/info_machine.c \
	%D%/info_links.c \
	%D%/info_json.c \
	%D%/info_routes.c \
	%D%/info_settings.c \
	%D%/info_build.c
if HAVE_CUDA
ceoverlap_info_SOURCES += \
	%D%/info_cuda.c
else
ceoverlap_info_SOURCES += \
	%D%/info_absent.c
endif
