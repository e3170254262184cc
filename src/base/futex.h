/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FUTEX_H
#define CEI_FUTEX_H

/*
 * Lets a thread sleep until another thread changes a word: a thin layer over futex(2). The word
 * must be private to the process, but for the functions that say `shared`.
 */

#include <stdatomic.h>
#include <stdint.h>

/* Sleeps as long as *word is `seen`, until woken or until the deadline (a time of cei_now_ns(), or
 * CEI_FOREVER). It may return early without a reason, so the caller must look at the word again. */
void cei_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t deadline_ns);

/* Wakes every thread that sleeps on the word. Change the word before the call. */
void cei_futex_wake(_Atomic uint32_t *word);

/* The same for a word in memory that processes share; they may have mapped it for reading only. */
void cei_futex_wait_shared(const _Atomic uint32_t *word, uint32_t seen, uint64_t deadline_ns);
void cei_futex_wake_shared(const _Atomic uint32_t *word);

#endif /* CEI_FUTEX_H */
