# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ops: overlapped operators. What an operator is; what all have in common, lower folders first
libceoverlap_core_la_SOURCES += \
	%D%/kind.h %D%/kinds.h \
	%D%/shape.c %D%/shape.h \
	%D%/compute/executor.h \
	%D%/compute/dtype.c %D%/compute/dtype.h \
	%D%/compute/sum.c %D%/compute/sum.h \
	%D%/compute/tiles.c %D%/compute/tiles.h \
	%D%/compute/direct.h \
	%D%/compute/experts.h \
	%D%/compute/sm_lane.h \
	%D%/exec_host/host_direct.c \
	%D%/compute/embedding.h \
	%D%/exec_host/host_embedding.c \
	%D%/exec_host/host_experts.c \
	%D%/exec_host/host_gemm.c %D%/exec_host/host_gemm.h \
	%D%/exec_host/execute_host.c %D%/exec_host/execute_host.h \
	%D%/exec_host/measure_host.c \
	%D%/tuning/candidates.c %D%/tuning/candidates.h \
	%D%/tuning/direct_choice.c %D%/tuning/direct_choice.h \
	%D%/tuning/selector.c %D%/tuning/selector.h \
	%D%/tuning/tunings.c %D%/tuning/tunings.h \
	%D%/core/agree.c %D%/core/agree.h %D%/core/agreed.h \
	%D%/core/arrivals.c %D%/core/arrivals.h \
	%D%/core/host_allreduce.c %D%/core/host_allreduce.h \
	%D%/core/capture_cuda.h \
	%D%/core/direct.c %D%/core/direct.h \
	%D%/core/inflight.c \
	%D%/core/op.c %D%/core/op.h \
	%D%/core/operands.c %D%/core/operands.h \
	%D%/core/send_stage.c %D%/core/send_stage.h \
	%D%/core/find_peers.c %D%/core/find_peers.h \
	%D%/core/graph_cache.c %D%/core/graph_cache.h \
	%D%/core/run.c %D%/core/run.h %D%/core/running.h \
	%D%/core/shared.c \
	%D%/core/sm_lane.c %D%/core/sm_lane.h \
	%D%/core/tune.c \
	%D%/core/workspace.c %D%/core/workspace.h \
	%D%/channel/call.c %D%/channel/call.h \
	%D%/channel/channel.c %D%/channel/channel.h \
	%D%/channel/connect.c \
	%D%/channel/gpu.h %D%/channel/gpu_calls.c %D%/channel/gpu_fails.c \
	%D%/channel/host_run.c \
	%D%/channel/messages.c \
	%D%/channel/run.c \
	%D%/channel/waits.c %D%/channel/waits.h \
	%D%/pool/calls.c %D%/pool/functions.c \
	%D%/pool/pool.c %D%/pool/pool.h \
	%D%/pool/thread.c
if HAVE_CUDA
libceoverlap_core_la_SOURCES += \
	%D%/channel/gpu_cuda.c %D%/channel/gpu_cuda.h \
	%D%/pool/pool_cuda.c \
	%D%/exec_cuda/embedding_cuda.c \
	%D%/exec_cuda/blas_cuda.c %D%/exec_cuda/blas_cuda.h \
	%D%/exec_cuda/direct_cuda.c \
	%D%/exec_cuda/direct_ll_cuda.c \
	%D%/exec_cuda/execute_cuda.c %D%/exec_cuda/execute_cuda.h \
	%D%/exec_cuda/experts_cuda.c \
	%D%/exec_cuda/forks_cuda.c \
	%D%/exec_cuda/gemm_blas_cuda.c \
	%D%/exec_cuda/gemm_cuda.c \
	%D%/exec_cuda/measure_cuda.c \
	%D%/exec_cuda/order_cuda.c %D%/exec_cuda/order_cuda.h \
	%D%/exec_cuda/rows_cuda.c \
	%D%/exec_cuda/sm_lane_cuda.c \
	%D%/core/graphs_cuda.c %D%/core/graphs_cuda.h \
	%D%/core/capture_cuda.c
else
libceoverlap_core_la_SOURCES += \
	%D%/channel/gpu_absent.c \
	%D%/pool/pool_absent.c \
	%D%/core/capture_absent.c
endif

# One folder a family of operators
libceoverlap_core_la_SOURCES += \
	%D%/embedding/backward.c \
	%D%/embedding/forward.c \
	%D%/embedding/layout.c %D%/embedding/layout.h \
	%D%/experts/combine.c \
	%D%/experts/dispatch.c \
	%D%/experts/layout.c %D%/experts/layout.h \
	%D%/gemm/a2a_gemm.c \
	%D%/gemm/ag_gemm.c \
	%D%/gemm/columns.c %D%/gemm/columns.h \
	%D%/gemm/cost_sim.c %D%/gemm/cost_sim.h \
	%D%/gemm/a2a.c %D%/gemm/a2a.h \
	%D%/gemm/gemm_a2a.c \
	%D%/gemm/ar_parts.c %D%/gemm/ar_parts.h \
	%D%/gemm/gemm_ar.c \
	%D%/gemm/gemm_ar_direct.c %D%/gemm/gemm_ar_direct.h \
	%D%/gemm/gemm_marks.c \
	%D%/gemm/gemm_rs.c \
	%D%/gemm/product.c %D%/gemm/product.h \
	%D%/gemm/product_candidates.c \
	%D%/gemm/product_lane.c %D%/gemm/product_lane.h \
	%D%/gemm/whole.c %D%/gemm/whole.h \
	%D%/gemm/product_model.c \
	%D%/move/move.c \
	%D%/reduce/by_node.c %D%/reduce/by_node.h \
	%D%/reduce/direct_sum.c %D%/reduce/direct_sum.h \
	%D%/reduce/parts.c %D%/reduce/parts.h \
	%D%/reduce/reduce.c \
	%D%/reduce/sum_model.c %D%/reduce/sum_model.h
