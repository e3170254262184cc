# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ops: overlapped operators. What an operator is; what all have in common, lower folders first
libceoverlap_core_la_SOURCES += \
	%D%/kind.h %D%/kinds.h \
	%D%/shape.c %D%/shape.h \
	%D%/executor.h \
	%D%/numbers.c %D%/numbers.h \
	%D%/tiles.c %D%/tiles.h \
	%D%/desk_host.c %D%/desk_host.h \
	%D%/execute_host.c %D%/execute_host.h \
	%D%/measure_host.c \
	%D%/candidates.c %D%/candidates.h \
	%D%/chooser.c %D%/chooser.h \
	%D%/tunings.c %D%/tunings.h \
	%D%/agree.c %D%/agree.h \
	%D%/capture_cuda.h \
	%D%/flight.c \
	%D%/op.c %D%/op.h \
	%D%/operands.c %D%/operands.h \
	%D%/phase.c %D%/phase.h \
	%D%/replays.c %D%/replays.h \
	%D%/run.c %D%/run.h \
	%D%/tune.c \
	%D%/workspace.c %D%/workspace.h
if HAVE_CUDA
libceoverlap_core_la_SOURCES += \
	%D%/blas_cuda.c %D%/blas_cuda.h \
	%D%/execute_cuda.c %D%/execute_cuda.h \
	%D%/gemm_blas_cuda.c \
	%D%/gemm_cuda.c \
	%D%/measure_cuda.c \
	%D%/capture_cuda.c
else
libceoverlap_core_la_SOURCES += \
	%D%/capture_absent.c
endif

# One folder a family of operators
libceoverlap_core_la_SOURCES += \
	%D%/ag_gemm.c \
	%D%/forecast.c %D%/forecast.h \
	%D%/gemm_rs.c \
	%D%/product.c %D%/product.h \
	%D%/product_candidates.c \
	%D%/product_model.c \
	%D%/move.c \
	%D%/reduce.c
