/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_MACHINE_XML_NAMES_H
#define CEI_MACHINE_XML_NAMES_H

/*
 * The names in a machine's XML file, for machine_import.c and machine_export.c: distances
 * between PCI devices (or the devices of software below them) and NUMA nodes, and infos
 * of the root object.
 */

#define CEI_XML_NVLINK     "NVLinkBandwidth"    /* distances of hwloc, MB/s */
#define CEI_XML_KIND       "CeoverlapKind"      /* enum cei_machine_link_kind */
#define CEI_XML_ORIGIN     "CeoverlapOrigin"    /* enum cei_machine_origin */
#define CEI_XML_BANDWIDTH "CeoverlapBandwidth" /* MB/s; 0: unset */
#define CEI_XML_LATENCY    "CeoverlapLatency"   /* ns */
#define CEI_XML_GPU        "CeoverlapGPU"       /* infos, one of each GPU in order */
#define CEI_XML_LINK       "CeoverlapLink"      /* of places that have no object */
#define CEI_XML_DRIVER     "CeoverlapDriver"    /* of the GPUs, its version */
#define CEI_XML_PORT       "CeoverlapPort"      /* of ports that were measured */

#endif /* CEI_MACHINE_XML_NAMES_H */
