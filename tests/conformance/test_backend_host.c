/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Runs the backend cases on host memory. */

#include "backend_conformance.h"

int main(void)
{
	return conformance_run(cei_backend_named("host"));
}
