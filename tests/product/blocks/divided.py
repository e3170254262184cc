# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
# Behind group.py: each rank has a part of every expert.
experts = ct.SwiGLUExperts(n_experts, hidden, ffn)
