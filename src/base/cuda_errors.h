/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CUDA_ERRORS_H
#define CEI_CUDA_ERRORS_H

/* What errors of the CUDA driver mean for the context. Needs no cuda.h. */

/* Whether a call's error, a CUresult, says that the context is of no use any more: each call in it
 * fails until the process ends. */
int cei_cuda_error_lasts(int error);

#endif /* CEI_CUDA_ERRORS_H */
