/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FUTEX_H
#define CEI_FUTEX_H

/*
 * Sleeping until another thread changes a word: a thin layer on futex(2). The
 * word is private to the process.
 */

#include <stdatomic.h>
#include <stdint.h>

/* Sleeps while *word is `seen`, until woken or the deadline (cei_now_ns() time,
 * CEI_FOREVER for none). May return early without reason: look again. */
void cei_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t deadline_ns);

/* Wakes every thread that sleeps on word. Change the word before. */
void cei_futex_wake(_Atomic uint32_t *word);

#endif /* CEI_FUTEX_H */
