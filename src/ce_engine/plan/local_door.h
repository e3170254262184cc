/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_LOCAL_DOOR_H
#define CEI_LOCAL_DOOR_H

#include "ce_engine/objects/door.h"

/* The door to the engines of this process. */
extern const struct cei_door cei_local_door;

#endif /* CEI_LOCAL_DOOR_H */
