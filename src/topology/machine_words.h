/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_MACHINE_WORDS_H
#define CEI_MACHINE_WORDS_H

/*
 * The names in a machine's XML file, for machine_told.c and machine_tell.c: distances
 * between PCI devices (or the devices of software below them) and NUMA nodes, and infos
 * of the root object.
 */

#define CEI_WORD_NVLINK    "NVLinkBandwidth"    /* distances of hwloc, MB/s */
#define CEI_WORD_KIND      "CeoverlapKind"      /* enum cei_machine_link_kind */
#define CEI_WORD_ORIGIN    "CeoverlapOrigin"    /* enum cei_machine_origin */
#define CEI_WORD_BANDWIDTH "CeoverlapBandwidth" /* MB/s; 0: not told */
#define CEI_WORD_LATENCY   "CeoverlapLatency"   /* ns */
#define CEI_WORD_GPU       "CeoverlapGPU"       /* infos, one of each GPU in order */
#define CEI_WORD_LINK      "CeoverlapLink"      /* of places that have no object */
#define CEI_WORD_DRIVER    "CeoverlapDriver"    /* of the GPUs, its version */
#define CEI_WORD_PORT      "CeoverlapPort"      /* of ports that were measured */

#endif /* CEI_MACHINE_WORDS_H */
