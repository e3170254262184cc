/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BACKEND_CONFORMANCE_H
#define CEI_BACKEND_CONFORMANCE_H

/*
 * What every backend must do, through struct cei_backend_ops only: memory is made by
 * the place's share table, and filled and read by load and store.
 */

#include "backend/backend.h"

/* Runs all cases against the backend; main()'s exit status. 77: there is no place here whose
 * members it serves, or, with NULL, no such backend in this build. */
int conformance_run(const struct cei_backend_ops *ops);

#endif /* CEI_BACKEND_CONFORMANCE_H */
