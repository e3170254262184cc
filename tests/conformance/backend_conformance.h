/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BACKEND_CONFORMANCE_H
#define CEI_BACKEND_CONFORMANCE_H

/*
 * What every backend must do, through struct cei_backend_ops only: memory is made by
 * the place's share table, and filled and read by load and store.
 */

#include <ceoverlap/ceoverlap.h>

/* Runs all cases against the backend of that kind of place; main()'s exit status.
 * 77: there is no such place here. */
int conformance_run(enum ceov_place_kind kind);

#endif /* CEI_BACKEND_CONFORMANCE_H */
