# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ceoverlap-gpu-direct: the library runs it to test whether the network accesses memory of a GPU
ceoverlap_gpu_direct_LDADD = libceoverlap_core.la
ceoverlap_gpu_direct_SOURCES = \
	%D%/ceoverlap-gpu-direct.c \
	%D%/trial.c %D%/trial.h
