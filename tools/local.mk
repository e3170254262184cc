# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# --- tools ------------------------------------------------------------------------------

# Of bash; each in a folder of its own, because make would make ceoverlapctl from ceoverlapctl.c.
bashcompletiondir = $(datadir)/bash-completion/completions
dist_bashcompletion_DATA = tools/bench/completions/ceoverlap-bench

# One folder a program; common has what programs share, kernels those of tools and tests.
include tools/kernels/local.mk
include tools/bench/local.mk
include tools/bench/cases/local.mk
include tools/bench/sweep/local.mk
include tools/bench/overlap/local.mk
include tools/bench/measure/local.mk
include tools/bench/daemon/local.mk
include tools/bench/share/local.mk
include tools/info/local.mk
include tools/ctl/local.mk
include tools/run/local.mk
include tools/plot/local.mk
include tools/trace/local.mk
include tools/common/local.mk
