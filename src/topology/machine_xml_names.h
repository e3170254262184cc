/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_MACHINE_XML_NAMES_H
#define CEI_MACHINE_XML_NAMES_H

/*
 * The names in a machine's XML file, for machine_import.c and machine_export.c. Distances connect
 * PCI devices (or the devices of software below them) and NUMA nodes; infos belong to the root
 * object.
 */

#define CEI_XML_NVLINK     "NVLinkBandwidth"    /* distances of hwloc, MB/s */
#define CEI_XML_KIND       "CeoverlapKind"      /* enum cei_machine_link_kind */
#define CEI_XML_ORIGIN     "CeoverlapOrigin"    /* enum cei_machine_origin */
#define CEI_XML_BANDWIDTH "CeoverlapBandwidth" /* MB/s; 0: unset */
#define CEI_XML_LATENCY    "CeoverlapLatency"   /* ns */
#define CEI_XML_GPU        "CeoverlapGPU"       /* one info for each GPU, in order */
#define CEI_XML_LINK       "CeoverlapLink"      /* info: a link of a place without an object */
#define CEI_XML_DRIVER     "CeoverlapDriver"    /* info: the version of the GPUs' driver */
#define CEI_XML_PORT       "CeoverlapPort"      /* one info for each measured port */

#endif /* CEI_MACHINE_XML_NAMES_H */
