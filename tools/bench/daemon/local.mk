# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ceoverlap-bench daemon: many clients of one ceoverlapd
ceoverlap_bench_SOURCES += \
	%D%/client.c \
	%D%/daemon.c %D%/daemon.h
