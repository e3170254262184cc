/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SIGNAL_RENEW_H
#define CEI_SIGNAL_RENEW_H

#include <ceoverlap/ceoverlap.h>

/* As ceov_signal_renew(), for a handle that was checked. */
int cei_signal_renew(ceov_signal *signal);

#endif /* CEI_SIGNAL_RENEW_H */
