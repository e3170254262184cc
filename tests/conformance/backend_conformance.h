/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BACKEND_CONFORMANCE_H
#define CEI_BACKEND_CONFORMANCE_H

/*
 * Tests that every backend must pass. They use struct cei_place_ops only; memory is allocated
 * through the place's share table, and filled and read by the backend's load and store.
 */

#include "backend/place.h"

/* Runs all cases on the backend; returns main()'s exit status. 77 (skipped): this machine has no
 * place that the backend serves, or, with NULL, this build has no such backend. */
int conformance_run(const struct cei_place_ops *ops);

#endif /* CEI_BACKEND_CONFORMANCE_H */
