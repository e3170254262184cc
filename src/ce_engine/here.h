/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_HERE_H
#define CEI_HERE_H

#include "ce_engine/objects/door.h"

/* The door to the engines of this process. */
extern const struct cei_door cei_door_here;

#endif /* CEI_HERE_H */
