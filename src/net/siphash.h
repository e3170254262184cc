/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SIPHASH_H
#define CEI_SIPHASH_H

/* SipHash-2-4 (Aumasson and Bernstein, 2012): a hash of 64 bits under a key of 128 bits. */

#include <stddef.h>
#include <stdint.h>

uint64_t cei_siphash(const uint64_t key[2], const void *bytes, size_t n_bytes);

#endif /* CEI_SIPHASH_H */
