/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The part of the library that tells other processes its version, here with another one. A program
 * that is built from this file has it in the place of the library's own part. */

#include <ceoverlap/version.h>

#undef CEOV_VERSION
#define CEOV_VERSION "99.9.9"

#include "net/book_open.c"
