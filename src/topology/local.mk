# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# topology: facts about the machine
libceoverlap_core_la_SOURCES += \
	%D%/topology.c %D%/topology.h \
	%D%/link.c %D%/link.h \
	%D%/machine.c %D%/machine.h \
	%D%/machine_builder.h \
	%D%/machine_hwloc.c \
	%D%/machine_ports.c \
	%D%/machine_links.c \
	%D%/machine_import.c \
	%D%/machine_xml.c \
	%D%/discover_nvml.c \
	%D%/measured.c \
	%D%/measured_read.c \
	%D%/machine_cache.c %D%/machine_cache.h \
	%D%/route.c %D%/route.h \
	%D%/route_private.h \
	%D%/route_options.c \
	%D%/route_rates.c \
	%D%/nics.c %D%/nics.h \
	%D%/cost_fit.c %D%/cost_fit.h \
	%D%/discover_hwloc.c
if HAVE_CUDA
libceoverlap_core_la_SOURCES += \
	%D%/discover_cuda.c
else
libceoverlap_core_la_SOURCES += \
	%D%/discover_absent.c
endif
